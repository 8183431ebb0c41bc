//! The effects that running an SQL text may have on its session and on the catalogs, as far as the text shows. What
//! can't be shown to do nothing is taken to do anything: the server is asked then (docs/decisions/0014).

mod catalogs;
mod place;
mod plain;
mod query;

use bitflags::bitflags;

use super::{
    lexer::{Lexer, Token},
    ways::read_each_way,
};

pub(super) use query::shows_setting;

bitflags! {
    /// A set of effects.
    #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
    pub struct Effects: u32 {
        /// The session may hold something afterwards that it did not hold before: a setting, a lock, a temporary table.
        const STATE = 1;
        /// Settings that parsing, planning or literals read may be others from here on, until the transaction ends.
        const CONTEXT = 1 << 1;
        /// Names may mean something else to all sessions from here on.
        const CATALOG = 1 << 2;
        /// A literal means the time at which it is read.
        const CLOCK = 1 << 3;
        /// It reads what the session's own use of a sequence has left (`currval`, `lastval`).
        const READS_SEQUENCE = 1 << 4;
        /// It holds something that no query shows: a library, a backup.
        const SPENDS_SERVER = 1 << 5;
        /// A literal stands in it that settings may give another meaning: a string, or NULL.
        const LITERAL = 1 << 6;
        /// It gives the session a seed.
        const SEED = 1 << 7;
        /// It may take a value of a sequence, which `currval` and `lastval` tell of.
        const USES_SEQUENCE = 1 << 8;
        /// Its meaning depends on something that its session has made: a cursor, a statement, a custom setting.
        const SESSION = 1 << 9;
        /// It sets custom settings for a transaction, which leaves their names, and nothing else.
        const CUSTOM = 1 << 10;
        /// It says itself that settings are others from here on which parsing reads.
        const SETS_CONTEXT = 1 << 11;
        /// Those who log in later may find something else: rights, defaults, passwords.
        const LOG_INS = 1 << 12;
        /// It may do what only the server itself can tell of, and a probe of its session does not show: make a custom
        /// setting whose name is nowhere to be read, give a seed, load a library.
        const UNPROBEABLE = 1 << 13;
        /// It speaks of prepared statements by their names, or of all.
        const NAMES = 1 << 14;
        /// It gives a name to a prepared statement.
        const PREPARES = 1 << 15;
        /// It says itself that names are looked for in other schemas from here on.
        const MOVES_PATH = 1 << 16;
        /// The session forgets what sequences gave it.
        const FORGETS_SEQUENCES = 1 << 17;
        /// It may alter, replace or drop what is there, which functions that have run know: a table's columns, a type.
        const ALTERS = 1 << 18;
        /// A trigger that runs at log-ins may do something else from here on.
        const LOG_IN_TRIGGERS = 1 << 19;
    }
}

impl Effects {
    /// Everything that a text can't be trusted not to do.
    pub const ANYTHING: Self = Self::STATE.union(Self::CONTEXT).union(Self::LITERAL).union(Self::USES_SEQUENCE);

    /// Everything that a text may do of which nothing is known. That it makes custom settings is known of none.
    const UNREAD: Self = Self::ANYTHING
        .union(Self::CATALOG)
        .union(Self::CLOCK)
        .union(Self::READS_SEQUENCE)
        .union(Self::SESSION)
        .union(Self::SETS_CONTEXT)
        .union(Self::MOVES_PATH)
        .union(Self::LOG_INS)
        .union(Self::UNPROBEABLE)
        .union(Self::NAMES)
        .union(Self::PREPARES)
        .union(Self::ALTERS)
        .union(Self::LOG_IN_TRIGGERS);
}

/// The effects of a text, which may hold several statements. Names and labels that are not of ASCII depend on the
/// client's encoding, as literals do.
pub fn effects(text: &[u8]) -> Effects {
    if let Some(found) = plain::effects(text) {
        return found;
    }
    let found = effects_as_read(text);
    if text.is_ascii() { found } else { found | Effects::LITERAL }
}

/// The same, from the words of any text.
fn effects_as_read(text: &[u8]) -> Effects {
    read_each_way(text, read, Effects::union)
}

fn read(lexer: &mut Lexer<'_>) -> Effects {
    let mut reader = Reader { lexer, found: Effects::empty(), names_seed: false, sets_by_name: false };
    while reader.statement() {}
    let found = reader.found;
    // By set_config, or an UPDATE of pg_settings.
    if reader.names_seed && reader.sets_by_name { found | Effects::SEED | Effects::STATE } else { found }
}

/// The effects of a text of which only the beginning is known. Behind that it may do what is to be known of a text.
pub fn effects_of_beginning(text: &[u8]) -> Effects {
    let mut buffer = [0; WORD_BYTES_MAX];
    let is_query = match Lexer::new(text).next() {
        Some(Token::Word(verb)) => {
            matches!(lower(verb, &mut buffer), "select" | "insert" | "update" | "delete" | "with" | "values" | "merge")
        }
        _ => false,
    };
    let unread = Effects::ANYTHING | Effects::UNPROBEABLE | Effects::READS_SEQUENCE;
    if is_query { unread } else { unread | Effects::CATALOG | Effects::LOG_INS | Effects::ALTERS }
}

/// No word that is looked for is longer, in bytes: as long as PostgreSQL's names are.
const WORD_BYTES_MAX: usize = 64;

struct Reader<'a, 'l> {
    lexer: &'l mut Lexer<'a>,
    found: Effects,
    /// Whether a literal is the name of the setting that gives a seed.
    names_seed: bool,
    /// Whether it sets something whose name is a literal.
    sets_by_name: bool,
}

impl<'a> Reader<'a, '_> {
    /// Reads one statement; `false` at the end of the text.
    fn statement(&mut self) -> bool {
        let Some(first) = self.next_token() else { return false };
        match first {
            Token::Semicolon => {}
            Token::Word(verb) => self.command(verb),
            Token::Open => self.nested_query(Token::Open),
            _ => self.anything(),
        }
        true
    }

    fn next_token(&mut self) -> Option<Token<'a>> {
        let token = self.lexer.next()?;
        match token {
            // PostgreSQL runs nothing of it.
            Token::Unclear if self.lexer.is_refused() => self.found.insert(Effects::ANYTHING),
            Token::Unclear => self.found.insert(Effects::UNREAD),
            // `transform_null_equals` gives `= NULL` another meaning.
            Token::Word(word) if word.eq_ignore_ascii_case(b"null") => self.found.insert(Effects::LITERAL),
            Token::Word(word) | Token::Quoted(word)
                if word.eq_ignore_ascii_case(b"set_config") || word.eq_ignore_ascii_case(b"pg_settings") =>
            {
                self.sets_by_name = true;
            }
            Token::Literal(text) => self.names_seed |= text.eq_ignore_ascii_case(b"seed"),
            _ => {}
        }
        Some(token)
    }

    fn command(&mut self, verb: &'a [u8]) {
        let mut buffer = [0; WORD_BYTES_MAX];
        match lower(verb, &mut buffer) {
            "select" | "values" | "table" => self.query(Token::Word(verb)),
            // By a default, or a trigger.
            "insert" | "update" | "delete" | "with" | "merge" | "copy" => {
                self.found.insert(Effects::USES_SEQUENCE | catalogs::changed_by(verb, self.lexer));
                self.query(Token::Word(verb));
            }
            "fetch" | "move" | "show" => {
                self.found.insert(Effects::SESSION);
                self.skip();
            }
            "commit" => self.commit(),
            "begin" | "start" | "end" | "rollback" | "abort" | "savepoint" | "release" | "notify" | "lock"
            | "vacuum" | "analyze" | "analyse" | "checkpoint" | "truncate" | "reindex" | "cluster" | "comment" => {
                self.skip();
            }
            "explain" => self.explain(),
            "set" => self.set(),
            "declare" => {
                self.found.insert(Effects::STATE);
                self.query(Token::Word(verb));
            }
            "reset" => self.reset(),
            "discard" => {
                self.found.insert(Effects::NAMES);
                let forgets =
                    |word: &[u8]| [&b"all"[..], b"sequences"].iter().any(|all| word.eq_ignore_ascii_case(all));
                if matches!(self.lexer.clone().next(), Some(Token::Word(word)) if forgets(word)) {
                    self.found.insert(Effects::FORGETS_SEQUENCES);
                }
                self.reset();
            }
            "close" | "listen" | "unlisten" => {
                self.found.insert(Effects::STATE | Effects::SESSION);
                self.skip();
            }
            "deallocate" => {
                self.found.insert(Effects::STATE | Effects::SESSION | Effects::NAMES);
                self.skip();
            }
            // PREPARE TRANSACTION leaves nothing, and is looked at for the sake of the other one.
            "prepare" => {
                self.found.insert(Effects::NAMES | Effects::PREPARES);
                self.anything();
            }
            "execute" => {
                self.found.insert(Effects::SESSION | Effects::NAMES | Effects::ANYTHING);
                // An argument may be the name of a setting.
                self.sets_by_name = true;
                self.arguments();
            }
            "call" | "refresh" => self.anything(),
            "do" => {
                self.found.insert(Effects::CATALOG);
                self.block();
            }
            "alter" | "drop" => {
                self.found.insert(Effects::CATALOG);
                self.alter(verb.eq_ignore_ascii_case(b"alter"));
            }
            // Of databases, among others.
            "reassign" => {
                self.found.insert(Effects::CATALOG | Effects::LOG_INS);
                self.anything();
            }
            "grant" | "revoke" => {
                self.found.insert(Effects::CATALOG);
                self.grant();
            }
            "load" => {
                self.found.insert(Effects::SPENDS_SERVER);
                self.anything();
            }
            "create" => self.create(),
            _ => {
                self.found.insert(Effects::CATALOG);
                self.anything();
            }
        }
    }

    /// The rest of an ALTER, or of a DROP.
    fn alter(&mut self, is_alter: bool) {
        let concerned = ["role", "user", "group", "database", "system", "owned", "event"];
        // Nothing that is compiled goes by these.
        let beside = ["role", "user", "group", "database", "system", "event", "default", "index", "sequence"];
        let is = |kinds: &[&str], token| matches!(token, Some(Token::Word(word)) if is_one_of(word, kinds));
        let kind = self.next_token();
        if is(&concerned, kind) {
            self.found.insert(Effects::LOG_INS);
        }
        if !is(&beside, kind) {
            self.found.insert(Effects::ALTERS);
        }
        // PostgreSQL drops no function that a trigger calls, but with the trigger.
        let cascades = || self.lexer.clone().any(|token| is(&["cascade"], Some(token)));
        if is(&["function", "routine"], kind) && (is_alter || cascades()) {
            self.found.insert(Effects::LOG_IN_TRIGGERS);
        }
        self.anything();
    }

    /// The code of a DO may do all that its words say.
    fn block(&mut self) {
        self.found.insert(Effects::ANYTHING);
        while let Some(token) = self.next_token() {
            match token {
                Token::Semicolon => return,
                Token::Literal(code) => {
                    self.found.insert(Effects::LITERAL);
                    let Some(code) = self.lexer.value(code) else { continue };
                    self.code(&code);
                    if code.windows(13).any(|word| word.eq_ignore_ascii_case(b"event_trigger")) {
                        self.found.insert(Effects::LOG_IN_TRIGGERS);
                    }
                    for word in code.split(|b| !b.is_ascii_alphabetic()) {
                        if is_one_of(word, &["alter", "drop", "grant", "revoke", "role", "user", "authid", "database"])
                        {
                            self.found.insert(Effects::LOG_INS);
                        }
                        if is_one_of(word, &["alter", "drop", "replace"]) {
                            self.found.insert(Effects::ALTERS);
                        }
                        if is_one_of(word, &["seed", "setseed"]) {
                            self.found.insert(Effects::SEED);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Membership in roles, and rights on databases, are what log-ins go by.
    fn grant(&mut self) {
        self.found.insert(Effects::ANYTHING);
        let mut is_on = false;
        while let Some(token) = self.next_token() {
            match token {
                Token::Semicolon => break,
                Token::Word(word) if is_on => {
                    if word.eq_ignore_ascii_case(b"database") {
                        self.found.insert(Effects::LOG_INS);
                    }
                    return self.skip();
                }
                Token::Word(word) => is_on = word.eq_ignore_ascii_case(b"on"),
                Token::Quoted(_) if is_on => return self.skip(),
                _ => {}
            }
        }
        self.found.insert(Effects::LOG_INS);
    }

    /// It resets settings.
    fn reset(&mut self) {
        self.found.insert(Effects::STATE | Effects::CONTEXT | Effects::SETS_CONTEXT | Effects::MOVES_PATH);
        self.skip();
    }

    /// Takes a statement for one that may do anything.
    fn anything(&mut self) {
        self.found.insert(Effects::ANYTHING);
        self.skip();
    }

    /// An argument of an EXECUTE may be the name of a setting: then it stands there as it is, or nobody can read it.
    fn arguments(&mut self) {
        let (mut is_inside, mut is_text) = (false, false);
        while let Some(token) = self.next_token() {
            match token {
                Token::Semicolon => return,
                Token::Open if !is_inside => is_inside = true,
                Token::Comma => is_text = false,
                Token::Literal(_) | Token::Parameter(_) => {
                    if let Token::Literal(text) = token {
                        self.found.insert(Effects::LITERAL);
                        if text.contains(&b'\\') || self.lexer.clone().goes_on() {
                            self.found.insert(Effects::UNPROBEABLE);
                        }
                    }
                    is_text = true;
                    self.skip_cast();
                }
                // The type of a literal, or no text at all.
                Token::Word(word) if is_inside => {
                    let is_typed = matches!(self.lexer.clone().next(), Some(Token::Literal(_)));
                    if !is_typed && !is_one_of(word, &["null", "true", "false", "array"]) {
                        self.found.insert(Effects::UNPROBEABLE);
                    }
                }
                Token::Other if !is_text => {}
                Token::Close | Token::Dot => {}
                _ if is_inside => self.found.insert(Effects::UNPROBEABLE),
                _ => {}
            }
        }
    }

    /// Passes over `::` and a type, if they follow.
    fn skip_cast(&mut self) {
        if self.lexer.rest().trim_ascii_start().starts_with(b"::") {
            for _ in 0..3 {
                self.next_token();
            }
        }
    }

    /// Goes to the statement's end.
    fn skip(&mut self) {
        while let Some(token) = self.next_token() {
            match token {
                Token::Semicolon => return,
                Token::Literal(_) => self.found.insert(Effects::LITERAL),
                Token::Word(name) | Token::Quoted(name) => self.perhaps_call(name),
                _ => {}
            }
        }
    }

    /// CREATE of a temporary table is nobody else's concern; whatever is made, it may be made where `search_path` says.
    fn create(&mut self) {
        self.found.insert(Effects::ANYTHING);
        let mut is_temporary = false;
        for _ in 0..4 {
            let Some(token) = self.next_token() else { break };
            match token {
                Token::Semicolon => {
                    self.found.insert(Effects::CATALOG);
                    return;
                }
                Token::Word(word) => {
                    let mut buffer = [0; WORD_BYTES_MAX];
                    match lower(word, &mut buffer) {
                        "temp" | "temporary" => is_temporary = true,
                        "replace" => {
                            self.found.insert(Effects::ALTERS);
                            continue;
                        }
                        "or" | "local" | "global" | "unique" => continue,
                        // A trigger may run at each log-in.
                        "role" | "user" | "group" | "event" => self.found.insert(Effects::LOG_INS),
                        // It changes how things are found, not what they are.
                        "index" => return self.skip(),
                        _ => {}
                    }
                }
                _ => {}
            }
            break;
        }
        if !is_temporary {
            self.found.insert(Effects::CATALOG);
        }
        self.made();
    }

    /// Goes to the end of a CREATE, which may be of a table AS EXECUTE.
    fn made(&mut self) {
        let mut is_behind_as = false;
        while let Some(token) = self.next_token() {
            match token {
                Token::Semicolon => return,
                Token::Literal(_) => self.found.insert(Effects::LITERAL),
                Token::Word(word) if is_behind_as && word.eq_ignore_ascii_case(b"execute") => {
                    self.found.insert(Effects::SESSION | Effects::NAMES);
                    return self.arguments();
                }
                Token::Word(name) | Token::Quoted(name) => {
                    // The type that a function returns.
                    if name.eq_ignore_ascii_case(b"event_trigger") {
                        self.found.insert(Effects::LOG_IN_TRIGGERS);
                    }
                    self.perhaps_call(name);
                }
                _ => {}
            }
            is_behind_as = matches!(token, Token::Word(word) if word.eq_ignore_ascii_case(b"as"));
        }
    }

    /// A COMMIT PREPARED may make others' changes to the catalogs seen, and to roles.
    fn commit(&mut self) {
        match self.next_token() {
            None | Some(Token::Semicolon) => {}
            Some(Token::Word(word)) if word.eq_ignore_ascii_case(b"prepared") => {
                self.found.insert(Effects::CATALOG | Effects::LOG_INS | Effects::ALTERS);
                self.skip();
            }
            Some(_) => self.skip(),
        }
    }

    /// It plans, and with ANALYZE it runs, what stands behind its options. Those are words, or what the first
    /// parenthesis holds, unless that is the statement.
    fn explain(&mut self) {
        let mut may_be_options = true;
        while let Some(token) = self.next_token() {
            match token {
                Token::Semicolon => return,
                Token::Word(word) => {
                    let mut buffer = [0; WORD_BYTES_MAX];
                    match lower(word, &mut buffer) {
                        "analyze" | "analyse" | "verbose" => {}
                        // There is none of itself, and a text of nothing else may be long.
                        "explain" => return self.anything(),
                        _ => return self.command(word),
                    }
                }
                Token::Open if may_be_options => {
                    let mut buffer = [0; WORD_BYTES_MAX];
                    match self.next_token() {
                        Some(Token::Word(word))
                            if !matches!(lower(word, &mut buffer), "select" | "values" | "with" | "table") =>
                        {
                            self.skip_options();
                        }
                        Some(first) => return self.nested_query(first),
                        None => return,
                    }
                }
                Token::Open => return self.nested_query(token),
                _ => return self.anything(),
            }
            may_be_options = false;
        }
    }

    /// Goes to the end of a parenthesis.
    fn skip_options(&mut self) {
        let mut depth = 1;
        while depth > 0 {
            match self.next_token() {
                Some(Token::Open) => depth += 1,
                Some(Token::Close) => depth -= 1,
                Some(_) => {}
                None => return,
            }
        }
    }

    /// A query in parentheses, which may begin with a WITH that changes something.
    fn nested_query(&mut self, first: Token<'a>) {
        self.found.insert(Effects::USES_SEQUENCE);
        self.query(first);
    }

    /// The rest of a SET LOCAL, which may reset a setting to what its client began with.
    fn local_value(&mut self) {
        while let Some(token) = self.next_token() {
            match token {
                Token::Semicolon => return,
                Token::Literal(_) => self.found.insert(Effects::LITERAL),
                Token::Word(word) if is_one_of(word, &["default", "local"]) => self.found.insert(Effects::CONTEXT),
                _ => {}
            }
        }
    }

    fn set(&mut self) {
        let first = match self.next_token() {
            Some(Token::Word(first)) => first,
            Some(Token::Quoted(name)) => return self.set_name(name),
            _ => return self.anything(),
        };
        let mut buffer = [0; WORD_BYTES_MAX];
        match lower(first, &mut buffer) {
            "constraints" | "transaction" if self.lexer.clone().next() != Some(Token::Dot) => self.skip(),
            "local" => match self.next_token() {
                Some(Token::Word(name) | Token::Quoted(name)) => self.set_local(name),
                _ => self.anything(),
            },
            "session" => {
                if let Some(Token::Word(name) | Token::Quoted(name)) = self.next_token() {
                    self.found.insert(seeds(name));
                }
                self.set_name(b"");
            }
            _ => self.set_name(first),
        }
    }

    fn set_local(&mut self, name: &[u8]) {
        let mut buffer = [0; WORD_BYTES_MAX];
        match self.next_token() {
            // Custom settings are nothing that PostgreSQL's parser reads.
            Some(Token::Dot) => self.found.insert(Effects::CUSTOM),
            _ => self.found.insert(context_set_by(lower(name, &mut buffer))),
        }
        self.found.insert(seeds(name));
        // It ends with the transaction, and takes a session's earlier SET with it where there was one.
        self.local_value();
    }

    fn set_name(&mut self, name: &[u8]) {
        let mut buffer = [0; WORD_BYTES_MAX];
        self.found.insert(Effects::STATE | seeds(name) | context_set_by(lower(name, &mut buffer)));
        self.skip();
    }
}

/// The effects of a SET of that name on how what follows is read; of any setting, where the name is empty.
fn context_set_by(name: &str) -> Effects {
    let path = if matches!(name, "" | "search_path" | "schema") { Effects::MOVES_PATH } else { Effects::empty() };
    let is_context = crate::profile::is_context(name);
    if is_context { Effects::CONTEXT | Effects::SETS_CONTEXT | path } else { Effects::empty() }
}

/// The effects of a SET of that name, if it is that of a seed.
fn seeds(name: &[u8]) -> Effects {
    if name.eq_ignore_ascii_case(b"seed") { Effects::STATE | Effects::SEED } else { Effects::empty() }
}

fn is_one_of(word: &[u8], words: &[&str]) -> bool {
    words.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
}

/// A word in lower case, or nothing if it is too long to be one that matters.
fn lower<'b>(word: &[u8], buffer: &'b mut [u8; WORD_BYTES_MAX]) -> &'b str {
    let Some(space) = buffer.get_mut(..word.len()) else { return "" };
    space.copy_from_slice(word);
    space.make_ascii_lowercase();
    std::str::from_utf8(space).unwrap_or_default()
}

#[cfg(test)]
mod tests;
