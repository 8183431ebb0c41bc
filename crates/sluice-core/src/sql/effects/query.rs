//! The effects of a query, which lie in the functions that it calls by name and in its literals.

use crate::sql::{
    harmless::is_harmless,
    lexer::{Lexer, Token},
};

use super::{
    Effects, Reader, WORD_BYTES_MAX, effects, is_one_of, lower,
    place::{Place, Use},
};

/// Keywords that a parenthesis may follow without a function being called, types with modifiers among them.
const NO_CALLS: [&str; 64] = [
    "all",
    "and",
    "any",
    "array",
    "as",
    "between",
    "bit",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "dec",
    "decimal",
    "distinct",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "float",
    "for",
    "from",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "intersect",
    "interval",
    "join",
    "lateral",
    "least",
    "like",
    "limit",
    "nchar",
    "not",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "overlay",
    "position",
    "returning",
    "row",
    "select",
    "some",
    "substring",
    "then",
    "time",
    "timestamp",
    "treat",
    "trim",
    "union",
    "using",
    "values",
    "varchar",
    "when",
    "where",
];

/// Words that are keywords behind certain others, each with one of those and the one before that, unless any will do;
/// elsewhere they may be functions' names.
const NO_CALLS_BEHIND: [(&str, &str, &str); 8] = [
    ("by", "group", ""),
    ("by", "order", ""),
    ("by", "partition", ""),
    ("cube", "by", "group"),
    ("materialized", "not", "as"),
    ("rollup", "by", "group"),
    ("sets", "grouping", ""),
    ("to", "similar", ""),
];

/// Words behind which an expression begins, beside those of [`NO_CALLS`].
const BEFORE_EXPRESSIONS: [&str; 25] = [
    "asymmetric",
    "both",
    "by",
    "content",
    "default",
    "document",
    "escape",
    "first",
    "groups",
    "leading",
    "next",
    "passing",
    "path",
    "placing",
    "range",
    "ref",
    "rows",
    "set",
    "similar",
    "symmetric",
    "to",
    "trailing",
    "value",
    "variadic",
    "zone",
];

/// Words in front of a name that make a parenthesis behind it a list of columns, or a query's name.
const NAMES_RELATION: [&str; 6] = ["as", "copy", "into", "recursive", "update", "with"];

/// A name of one or several parts.
#[derive(Clone, Copy)]
struct Name<'a> {
    /// Its first part.
    head: Token<'a>,
    /// The token before that.
    lead: Token<'a>,
    /// The token before the lead.
    earlier: Token<'a>,
    parts: usize,
}

impl<'a> Reader<'a, '_> {
    /// A query, or what may hold one: the functions that it calls by name are looked at.
    pub(super) fn query(&mut self, first: Token<'a>) {
        let mut place = Place::behind(first);
        let (mut earlier, mut last) = (Token::Semicolon, first);
        let mut name = Name { head: first, lead: first, earlier, parts: 1 };
        while let Some(token) = self.next_token() {
            let mut within = Use::Other;
            match token {
                Token::Semicolon | Token::Unclear => break,
                Token::Literal(text) => self.literal(text),
                Token::Open => within = self.parenthesis(last, name, place.closed()),
                Token::Word(word) if self.names_state(word, last, place.is_at_verb()) => {
                    self.found.insert(Effects::ANYTHING);
                }
                Token::Quoted(name) if is_temporary_schema(name) || name.eq_ignore_ascii_case(b"pg_settings") => {
                    self.found.insert(Effects::ANYTHING);
                }
                _ => {}
            }
            if matches!(token, Token::Word(_) | Token::Quoted(_)) {
                name = match last {
                    Token::Dot => Name { parts: name.parts + 1, ..name },
                    lead => Name { head: token, lead, earlier, parts: 1 },
                };
            }
            place.pass(token, last, within);
            (earlier, last) = (last, token);
        }
        if place.is_in_doubt() {
            self.found.insert(Effects::ANYTHING);
        }
    }

    /// Whether a word shows that a query leaves more than its result: SELECT INTO makes a table, and pg_settings can be
    /// updated. `is_behind_verb` tells that what stands before it begins a statement, and is no name.
    fn names_state(&mut self, word: &[u8], before: Token<'_>, is_behind_verb: bool) -> bool {
        // Most words are none of these.
        if !matches!(word.first(), Some(b'h' | b'H' | b'i' | b'I' | b'p' | b'P')) {
            return false;
        }
        let mut buffer = [0; WORD_BYTES_MAX];
        match lower(word, &mut buffer) {
            "into" => {
                let is_insert =
                    is_behind_verb && matches!(before, Token::Word(before) if is_one_of(before, &["insert", "merge"]));
                if !is_insert {
                    self.found.insert(Effects::CATALOG);
                }
                !is_insert
            }
            "pg_settings" | "hold" => true,
            name => is_temporary_schema(name.as_bytes()),
        }
    }

    /// A parenthesis behind a name calls a function, mostly. `last` is what stands right before it, and `closed` tells of
    /// the parenthesis before.
    fn parenthesis(&mut self, last: Token<'a>, name: Name<'a>, closed: Use) -> Use {
        let mut buffer = [0; WORD_BYTES_MAX];
        if let Token::Word(lead) = name.lead
            && NAMES_RELATION.contains(&lower(lead, &mut buffer))
        {
            return Use::Other;
        }
        let is_qualified = name.parts > 1;
        if let (Token::Word(word), false) = (last, is_qualified)
            && let Some(found) = self.keyword(word, name, closed)
        {
            return found;
        }
        // Of three parts, the first one is the database's.
        let is_elsewhere = name.parts > 2 || (is_qualified && !is_catalog(name.head));
        match last {
            Token::Word(_) | Token::Quoted(_) if is_elsewhere => self.found.insert(Effects::ANYTHING),
            Token::Word(word) => {
                let word = lower(word, &mut buffer);
                let is_keyword = NO_CALLS.binary_search(&word).is_ok();
                if !is_qualified && is_keyword && !is_function_behind(word, name.lead, closed) {
                    return Use::Other;
                }
                self.call(word);
            }
            Token::Quoted(word) => self.call(std::str::from_utf8(word).unwrap_or_default()),
            _ => return Use::Other,
        }
        Use::Call
    }

    /// The use of a parenthesis behind a word that is a keyword where it stands.
    fn keyword(&self, word: &[u8], name: Name<'_>, closed: Use) -> Option<Use> {
        let is = |token: Token<'_>, keyword: &str| matches!(token, Token::Word(word) if is_one_of(word, &[keyword]));
        let word = Token::Word(word);
        if is(word, "on") && is(name.lead, "distinct") {
            return Some(Use::DistinctOn);
        }
        // Whether it is shows behind it.
        if is(word, "conflict") && is(name.lead, "on") {
            return Some(Use::Conflict);
        }
        // `WITHIN GROUP (…) FILTER (WHERE …) OVER (…)`
        let is_of_call = is(word, "group")
            || (is(word, "filter") && self.lexer.clone().next().is_some_and(|next| is(next, "where")))
            || (is(word, "over") && name.lead == Token::Close && closed == Use::Call);
        if is_of_call {
            return Some(Use::Call);
        }
        let is_listed = NO_CALLS_BEHIND.iter().any(|(keyword, lead, earlier)| {
            is(word, keyword) && is(name.lead, lead) && (earlier.is_empty() || is(name.earlier, earlier))
        });
        is_listed.then_some(Use::Other)
    }

    fn call(&mut self, name: &str) {
        let effect = match name {
            "currval" | "lastval" => Effects::READS_SEQUENCE,
            "nextval" | "setval" => Effects::USES_SEQUENCE,
            "setseed" => Effects::SEED | Effects::STATE,
            _ if is_harmless(name) => Effects::empty(),
            "set_config" => {
                let path = if may_set_path(self.lexer.clone()) { Effects::MOVES_PATH } else { Effects::empty() };
                Effects::ANYTHING | Effects::SETS_CONTEXT | path | beyond_probes(name, self.lexer)
            }
            // A user's own, or one that sets something: no text tells.
            _ => Effects::ANYTHING | beyond_probes(name, self.lexer),
        };
        self.found.insert(effect);
    }

    /// A word or a quoted name of a statement that is taken to do anything: by some calls it does what no probe shows.
    pub(super) fn perhaps_call(&mut self, name: &[u8]) {
        self.found.insert(perhaps_call(name, self.lexer));
    }

    /// Code that is run: the calls in it count as those in a statement.
    pub(super) fn code(&mut self, code: &[u8]) {
        let mut lexer = Lexer::new(code);
        while let Some(token) = lexer.next() {
            if let Token::Word(name) | Token::Quoted(name) = token {
                self.found.insert(perhaps_call(name, &lexer));
            }
        }
    }

    fn literal(&mut self, text: &[u8]) {
        self.found.insert(Effects::LITERAL);
        if self.lexer.clone().goes_on() {
            // What it says is known only with its next line.
            self.found.insert(Effects::CLOCK);
        }
        if reads_clock(text)
            || (text.contains(&b'\\') && self.lexer.unescaped(text).is_some_and(|text| reads_clock(&text)))
        {
            self.found.insert(Effects::CLOCK);
        }
    }
}

/// The effects of a call that no probe of a session shows; `ahead` stands behind its parenthesis.
fn beyond_probes(name: &str, ahead: &Lexer<'_>) -> Effects {
    let is_lasting = match name {
        "set_config" if shows_setting(ahead.clone()) => return Effects::empty(),
        "set_config" => return Effects::UNPROBEABLE,
        "query_to_xml"
        | "query_to_xmlschema"
        | "query_to_xml_and_xmlschema"
        | "ts_stat"
        | "crosstab"
        | "crosstab2"
        | "crosstab3"
        | "crosstab4" => {
            return run_text(ahead.clone());
        }
        // With three arguments, it runs no text.
        "ts_rewrite" if arguments(ahead.clone()) != Some(3) => return RUNS_ANYTHING,
        "pg_replication_origin_session_setup" | "isn_weak" | "pg_start_backup" => true,
        _ if name.ends_with("_replication_slot") => names_temporary(ahead.clone()),
        _ => name.starts_with("dblink_connect") || name.starts_with("pg_backup"),
    };
    if is_lasting { Effects::SPENDS_SERVER } else { Effects::empty() }
}

/// The same for a name that a parenthesis may follow, and what matters besides of calls in a statement of which all else
/// is taken to be done.
fn perhaps_call(name: &[u8], behind: &Lexer<'_>) -> Effects {
    let mut buffer = [0; WORD_BYTES_MAX];
    let name = lower(name, &mut buffer);
    let mut ahead = behind.clone();
    if ahead.next() != Some(Token::Open) {
        return Effects::empty();
    }
    match name {
        "currval" | "lastval" => Effects::READS_SEQUENCE,
        "setseed" => Effects::SEED,
        _ => beyond_probes(name, &ahead),
    }
}

/// The effects of a text that is run by one of PostgreSQL's own functions: those of a literal that has no other in it.
fn run_text(mut ahead: Lexer<'_>) -> Effects {
    match (ahead.next(), ahead.next()) {
        (Some(Token::Literal(text)), Some(Token::Comma | Token::Close))
            if !text.iter().any(|b| matches!(b, b'\'' | b'\\' | b'$')) =>
        {
            effects(text)
        }
        _ => RUNS_ANYTHING,
    }
}

/// The effects of a text that is run and can't be read.
const RUNS_ANYTHING: Effects = Effects::UNPROBEABLE.union(Effects::READS_SEQUENCE);

/// The number of arguments of a call; `None` if there are too many tokens to tell.
fn arguments(ahead: Lexer<'_>) -> Option<usize> {
    let mut count = 1;
    for (place, (depth, token)) in tokens_of_call(ahead).enumerate() {
        if place == AHEAD_MAX {
            return None;
        }
        count += usize::from(depth == 1 && token == Token::Comma);
    }
    Some(count)
}

/// The rest of a call, each token with the number of parentheses that are open behind it.
fn tokens_of_call(ahead: Lexer<'_>) -> impl Iterator<Item = (usize, Token<'_>)> {
    let mut depth = 1;
    ahead.map_while(move |token| {
        match token {
            _ if depth == 0 => return None,
            Token::Open => depth += 1,
            Token::Close => depth -= 1,
            _ => {}
        }
        Some((depth, token))
    })
}

/// Whether the name of the setting that is made here is a whole literal, as it stands, or a parameter.
pub(in crate::sql) fn shows_setting(mut ahead: Lexer<'_>) -> bool {
    let is_whole = match ahead.next() {
        Some(Token::Word(column)) if is_one_of(column, &["name"]) => return equals_literal(ahead),
        Some(Token::Literal(name)) => !name.contains(&b'\\'),
        Some(Token::Parameter(_)) => true,
        _ => false,
    };
    if ahead.rest().trim_ascii_start().starts_with(b"::") {
        // To a type that leaves it whole: `$1::text`.
        let is_text = matches!(ahead.nth(2), Some(Token::Word(kind)) if is_one_of(kind, &["text", "varchar"]));
        if !is_text {
            return false;
        }
    }
    is_whole && ahead.next() == Some(Token::Comma)
}

/// Whether the setting that a `set_config` sets may be `search_path`: its first argument is no literal that shows another.
fn may_set_path(mut ahead: Lexer<'_>) -> bool {
    match (ahead.next(), ahead.next()) {
        (Some(Token::Literal(name)), Some(Token::Comma)) => {
            name.contains(&b'\\') || name.eq_ignore_ascii_case(b"search_path")
        }
        _ => true,
    }
}

/// Whether a call that makes a replication slot says that it is temporary, or not: as its third argument, or by name.
fn names_temporary(ahead: Lexer<'_>) -> bool {
    let is_name = |token: Token<'_>| matches!(token, Token::Word(name) | Token::Quoted(name) if name.eq_ignore_ascii_case(b"temporary"));
    arguments(ahead.clone()).is_none_or(|count| count > 2) || tokens_of_call(ahead).any(|(_, token)| is_name(token))
}

/// The tokens that are looked at ahead in a call: a text of nothing but calls is not to be read over and over.
const AHEAD_MAX: usize = 64;

/// Whether the column `name`, from the rest of the call on, equals a literal in all rows that are read:
/// `set_config(name, 'view', false) FROM pg_settings WHERE name = 'restrict_nonsystem_relation_kind'`, by which
/// `pg_dump` asks for a setting that older servers do not have.
fn equals_literal(mut ahead: Lexer<'_>) -> bool {
    let mut depth = 1;
    for _ in 0..AHEAD_MAX {
        match ahead.next() {
            Some(Token::Open) => depth += 1,
            Some(Token::Close) => depth -= 1,
            None | Some(Token::Semicolon) => return false,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    if depth > 0 {
        return false;
    }
    let mut reads = |words: &[&str]| {
        words.iter().all(|word| matches!(ahead.next(), Some(Token::Word(found)) if is_one_of(found, &[word])))
    };
    if !reads(&["from", "pg_settings", "where", "name"]) || !ahead.rest().trim_ascii_start().starts_with(b"=") {
        return false;
    }
    let is_equal = matches!(ahead.nth(1), Some(Token::Literal(name)) if !name.contains(&b'\\'));
    is_equal && matches!(ahead.next(), None | Some(Token::Semicolon))
}

/// Whether a word that mostly stands between two things is a function's name, where none stands before it.
fn is_function_behind(word: &str, lead: Token<'_>, closed: Use) -> bool {
    let mut buffer = [0; WORD_BYTES_MAX];
    matches!(word, "ilike" | "join")
        && match lead {
            Token::Word(lead) => {
                let lead = lower(lead, &mut buffer);
                NO_CALLS.binary_search(&lead).is_ok() || BEFORE_EXPRESSIONS.binary_search(&lead).is_ok()
            }
            Token::Close => closed == Use::DistinctOn,
            Token::Other | Token::Comma | Token::Open => true,
            _ => false,
        }
}

fn is_catalog(schema: Token<'_>) -> bool {
    match schema {
        Token::Word(name) => name.eq_ignore_ascii_case(b"pg_catalog"),
        Token::Quoted(name) => name == b"pg_catalog",
        _ => false,
    }
}

fn is_temporary_schema(name: &[u8]) -> bool {
    name.get(..7).is_some_and(|start| start.eq_ignore_ascii_case(b"pg_temp"))
}

/// Whether a literal may mean the time at which it is read: `now`, `today`, `tomorrow` and `yesterday` in a date or
/// time (PostgreSQL documentation, 8.5.1.4), or a time of day, whose zone's offset is that of the day.
fn reads_clock(text: &[u8]) -> bool {
    let names_time = |word: &[u8]| {
        [&b"now"[..], b"today", b"tomorrow", b"yesterday"].iter().any(|name| word.eq_ignore_ascii_case(name))
    };
    let is_word = |b: &u8| b.is_ascii_alphabetic();
    if text.split(|b| !is_word(b)).any(names_time) {
        return true;
    }
    let has_time = text.windows(3).any(|w| w[0].is_ascii_digit() && w[1] == b':' && w[2].is_ascii_digit());
    let has_date = text.windows(4).any(|w| w.iter().all(u8::is_ascii_digit));
    has_time && !has_date
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_stand_in_order() {
        assert!(NO_CALLS.is_sorted() && BEFORE_EXPRESSIONS.is_sorted());
    }
}
