//! The language that simulated clients and servers speak: SQL to a pool that reads its words, and simple enough to be
//! carried out by a few lines.
//!
//! | text | what it does |
//! |---|---|
//! | `select echo X`, `select rows 3 20 X`, `select sleep 9 X` | gives rows that say X; the last one after that many milliseconds |
//! | `select literal 'X' Y` | gives a row that says what a literal meant when it was parsed |
//! | `select nextval(s) X` | takes the value X of a sequence |
//! | `select lastval() X` | gives a row that says which one was taken last |
//! | `copy fails X` | a COPY from the client that fails as soon as it has begun |
//! | `copy in X`, `copy out 3 20 X` | takes a value of the sequence as well, as by a column's default |
//! | `select temporary` | gives a row that says which temporary table there is |
//! | `select error X` | fails |
//! | `select f(...)` | does the same by a function of the user's, which may do anything: also `set` a setting, make a `temp` table, `advance` the sequence or tell its `last` value |
//! | `select held` | gives a row that says whether there is a cursor that is held |
//! | `declare c cursor with hold X` | makes it, by that name |
//! | `create temp table X` | as it says, as do `set`, `reset`, `show`, `begin`, `deallocate`, `discard all` |
//!
//! Clients write verbs in lower case. What begins in upper case is the pool's own.

/// A text of the verb behind `select`, and whether a function carries it out.
pub(crate) fn selected(sql: &str) -> Option<(&str, bool)> {
    let verb = sql.strip_prefix("select ")?;
    Some(match verb.strip_prefix("f(").and_then(|call| call.split_once(')')) {
        Some((inner, _)) => (inner, true),
        None => (verb, false),
    })
}

/// Whether a statement gives rows.
pub(crate) fn has_rows(sql: &str) -> bool {
    ["select ", "SELECT ", "show ", "SHOW "].iter().any(|verb| sql.starts_with(verb))
}

/// The least time that a statement takes, in milliseconds.
pub(crate) fn sleeps(sql: &str) -> Option<u64> {
    selected(sql)?.0.strip_prefix("sleep ")?.split(' ').next()?.parse().ok()
}

/// Whether a Query is the pool's own.
pub(crate) fn is_own(sql: &str) -> bool {
    sql.starts_with(|first: char| first.is_ascii_uppercase())
}

/// A text in hexadecimal.
pub(crate) fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// A session's answer about its state: `made` are settings that were made in it, by lower-case names.
pub(crate) fn holding<'a>(pins: &[&str], made: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let list: Vec<String> = made.map(|(name, value)| format!("{}:{}", hex(name), hex(value))).collect();
    let mut fields = Vec::new();
    if !pins.is_empty() {
        fields.push(format!("pins={}", pins.join(",")));
    }
    if !list.is_empty() {
        fields.push(format!("set={}", list.join(",")));
    }
    fields.join(" ")
}
