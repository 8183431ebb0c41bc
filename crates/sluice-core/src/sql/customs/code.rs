//! The names of custom settings in code that literals hold: what a `DO` runs, and what a function of a user's may run
//! that is given it.
//!
//! Such code is read as PostgreSQL would read it. It may have been put together from pieces, in which a SET lacks its
//! setting's name, or a part of it: then there may be others than are known.

use crate::profile::NAME_BYTES_MAX;

use super::{
    super::{
        effects::shows_setting,
        lexer::{Lexer, Token},
        literals::{DEPTH_MAX, has_word, is_one_of, may_hide_words},
        ways::read_within,
    },
    CustomNames,
};

/// Functions that put texts together, and leave their arguments as they are.
const JOINING: [&[u8]; 6] = [b"concat", b"concat_ws", b"format", b"string_agg", b"array_to_string", b"textcat"];

/// Functions that change a text.
const CHANGING: [&[u8]; 6] = [b"replace", b"regexp_replace", b"translate", b"overlay", b"reverse", b"decode"];

/// Keywords behind which a command begins in PL/pgSQL.
const BEFORE_COMMANDS: [&[u8]; 4] = [b"begin", b"then", b"else", b"loop"];

/// Keywords of PL/pgSQL's RAISE before its message.
const RAISING: [&[u8]; 7] = [b"raise", b"debug", b"log", b"info", b"notice", b"warning", b"exception"];

/// Commands that may have a SET of a setting in them, and the objects that have settings, functions first.
const WITH_SET: [&[u8]; 2] = [b"alter", b"create"];
const WITH_SETTINGS: [&[u8]; 7] = [b"function", b"procedure", b"routine", b"role", b"user", b"database", b"system"];

/// Whether a text may be code that makes custom settings by other means than a name that stands in it as it is.
pub(super) fn may_be(text: &[u8]) -> bool {
    has_word(text, b"set") || may_hide_words(text)
}

/// The names in a whole text.
pub(super) fn read_text(lexer: &mut Lexer<'_>) -> CustomNames {
    read(lexer, 0, b"").names
}

/// The names in code that is run as it is.
pub(super) fn read_alone(lexer: &mut Lexer<'_>) -> CustomNames {
    read(lexer, 1, b"").names
}

/// What has been found in code.
#[derive(Default)]
struct Found {
    names: CustomNames,
    /// Whether a SET in it lacks its setting's name, or a part of it, which something else may add.
    lacks: bool,
    /// Whether it has a SET at all, or calls `set_config`.
    sets: bool,
}

/// Reads a text, or code at that depth, which may be a piece of some.
fn read(lexer: &mut Lexer<'_>, depth: usize, code: &[u8]) -> Found {
    let mut reader = Reader { depth, ..Reader::default() };
    while let Some(token) = lexer.next() {
        reader.take(token, lexer);
    }
    reader.end_statement();
    reader.keep_chain();
    let mut found = reader.found;
    if reader.is_unclear {
        // What PostgreSQL refuses may be a piece.
        let may_set = depth == 0 || begins_set(code);
        found.names.has_others |= may_set && !lexer.is_refused();
        found.lacks |= may_set && lexer.is_refused();
    }
    found.names.has_others |= depth > 0 && reader.lacks && reader.joins;
    found
}

#[derive(Default)]
struct Reader<'a> {
    depth: usize,
    found: Found,
    /// The name with dots that is being read.
    chain: Vec<u8>,
    /// Whether a dot has come behind its last part.
    goes_on: bool,
    /// Whether a part of it is longer than PostgreSQL's names are, and not of ASCII.
    is_cut: bool,
    last: Option<Token<'a>>,
    is_unclear: bool,
    /// Whether a literal has been a piece of code in which a SET lacks something.
    lacks: bool,
    /// Whether texts are put together.
    joins: bool,
    /// The parentheses that are open.
    open: usize,
    /// The number of them around the outermost call of a function that puts texts together, and whether one changes
    /// them.
    joining: Option<(usize, bool)>,
    statement: Statement,
}

/// The statement that is being read.
#[derive(Default)]
struct Statement {
    /// Whether a SET is part of it, wherever it stands.
    has_set: bool,
    /// Whether it makes a function, and runs nothing of its code.
    makes_function: bool,
    is_do: bool,
    /// Whether the language of a DO has another grammar.
    is_foreign: bool,
    /// Whether its code sets something.
    sets: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, token: Token<'a>, lexer: &mut Lexer<'a>) {
        let is_part = matches!(self.last, Some(Token::Word(_) | Token::Quoted(_)));
        match token {
            Token::Word(word) | Token::Quoted(word) => {
                if !self.goes_on {
                    self.keep_chain();
                }
                self.is_cut |= word.len() > NAME_BYTES_MAX && !word.is_ascii();
                self.chain.extend_from_slice(&word[..word.len().min(NAME_BYTES_MAX)]);
                match token {
                    Token::Word(_) => self.word(word, lexer),
                    _ => self.quoted(word, lexer),
                }
            }
            Token::Dot if is_part => self.chain.push(b'.'),
            // It may be a name, and it may be a text that has one.
            Token::Literal(literal) => self.literal(literal, lexer),
            Token::Open => {
                self.open += 1;
                let name = self.last.and_then(|last| match last {
                    Token::Word(name) | Token::Quoted(name) => Some(name),
                    _ => None,
                });
                let is_among = |names: &[&[u8]]| name.is_some_and(|name| is_one_of(name, names));
                let is_changing = is_among(&CHANGING);
                if is_changing || is_among(&JOINING) {
                    self.joins = true;
                    let (around, changes) = self.joining.unwrap_or((self.open, false));
                    self.joining = Some((around, changes || is_changing));
                }
            }
            Token::Close => {
                self.joining = self.joining.filter(|(around, _)| self.open > *around);
                self.open = self.open.saturating_sub(1);
            }
            Token::Other => self.joins |= is_pipe(self.last, lexer),
            Token::Semicolon => self.end_statement(),
            Token::Unclear => self.is_unclear = true,
            Token::Dot | Token::Comma | Token::Parameter(_) => {}
        }
        self.goes_on = is_part && token == Token::Dot;
        self.last = Some(token);
    }

    fn keep_chain(&mut self) {
        // Nobody knows at which character PostgreSQL cuts it.
        self.found.names.has_others |= self.is_cut && self.chain.contains(&b'.');
        self.found.names.keep(&self.chain);
        self.chain.clear();
        self.is_cut = false;
    }

    fn end_statement(&mut self) {
        let Statement { is_foreign, sets, .. } = std::mem::take(&mut self.statement);
        self.found.names.has_others |= is_foreign && sets;
        self.joining = None;
        self.open = 0;
    }

    /// Whether a command begins here.
    fn is_beginning(&self) -> bool {
        match self.last {
            None | Some(Token::Semicolon | Token::Other) => true,
            Some(Token::Word(word)) => is_one_of(word, &BEFORE_COMMANDS),
            _ => false,
        }
    }

    fn word(&mut self, word: &[u8], lexer: &Lexer<'a>) {
        let is = |keyword: &[u8]| word.eq_ignore_ascii_case(keyword);
        if (is(b"set") || is(b"reset")) && (self.is_beginning() || self.statement.has_set) {
            self.found.sets = true;
            match target(lexer.clone()) {
                Target::Whole => {}
                Target::Lacking => self.found.lacks = true,
                Target::Placeholder => self.found.names.has_others |= self.depth > 0,
            }
        } else if is(b"set_config") {
            self.call(lexer);
        } else if is(b"language") && self.statement.is_do {
            let language = lexer.clone().next();
            self.statement.is_foreign = !matches!(language, Some(Token::Word(name) | Token::Quoted(name)
                | Token::Literal(name)) if name.eq_ignore_ascii_case(b"plpgsql"));
        } else if is_one_of(word, &WITH_SET) && self.is_beginning() {
            // `CREATE OR REPLACE` at most stands before it.
            let is_about = |kinds: &[&[u8]]| {
                lexer.clone().take(3).any(|token| matches!(token, Token::Word(kind) if is_one_of(kind, kinds)))
            };
            self.statement.has_set = is_about(&WITH_SETTINGS);
            self.statement.makes_function = is_about(&WITH_SETTINGS[..2]);
        } else if is(b"do") && self.is_beginning() {
            self.statement.is_do = true;
        }
    }

    /// A name in quotes; in another language than SQL it may be a text.
    fn quoted(&mut self, name: &[u8], lexer: &Lexer<'a>) {
        if name.eq_ignore_ascii_case(b"set_config") {
            self.call(lexer);
        } else if self.depth > 0 && name.iter().any(|b| b.is_ascii_whitespace() || *b == b'=') && may_be(name) {
            self.code(name, lexer, false);
        }
    }

    /// A call of `set_config`, perhaps of a setting whose name is put together. Those of a text itself count as effects.
    fn call(&mut self, lexer: &Lexer<'a>) {
        self.found.sets = true;
        let mut ahead = lexer.clone();
        if self.depth == 0 || ahead.next() != Some(Token::Open) {
            return;
        }
        let is_parameter = matches!(ahead.clone().next(), Some(Token::Parameter(_)));
        if is_parameter || !shows_setting(ahead) {
            self.tell_of_others();
        }
    }

    fn literal(&mut self, literal: &'a [u8], lexer: &mut Lexer<'a>) {
        let Some(value) = lexer.value(literal) else { return };
        self.found.names.keep_all(&value);
        // A message is not run.
        let is_told = self.depth > 0 && matches!(self.last, Some(Token::Word(word)) if is_one_of(word, &RAISING));
        if !is_told && may_be(&value) {
            let is_joined = self.joining.is_some() || lexer.rest().trim_ascii_start().starts_with(b"||");
            self.code(&value, lexer, is_joined);
        }
    }

    /// Code in a literal; `is_joined` says whether something may be added to it.
    fn code(&mut self, code: &[u8], lexer: &Lexer<'a>, is_joined: bool) {
        if self.depth == DEPTH_MAX {
            self.tell_of_others();
            return;
        }
        let depth = self.depth + 1;
        let Found { names, lacks, sets } = read_within(lexer, code, |lexer| read(lexer, depth, code));
        self.found.names.known.extend(names.known);
        let is_changed = sets && self.joining.is_some_and(|(_, changes)| changes);
        if names.has_others || is_changed || (lacks && is_joined) {
            self.tell_of_others();
        }
        self.lacks |= lacks && !self.statement.makes_function;
        self.found.sets |= sets;
        self.statement.sets |= sets || has_word(code, b"set");
    }

    /// There may be others, unless the code is not run.
    fn tell_of_others(&mut self) {
        self.found.names.has_others |= !self.statement.makes_function;
    }
}

/// The setting of a SET or RESET.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// Its name is there, or it is none.
    Whole,
    /// A part of it is missing, or all.
    Lacking,
    /// Something else stands in its place, for a function to put it there: `SET %I.%I = 1`.
    Placeholder,
}

/// Reads what stands behind a SET or RESET.
fn target(mut ahead: Lexer<'_>) -> Target {
    let lacking = |ahead: &Lexer<'_>| match ahead.rest().trim_ascii_start().first() {
        Some(b'%') => Target::Placeholder,
        _ => Target::Lacking,
    };
    let before = ahead.clone();
    let is_scope = |token: Token<'_>| matches!(token, Token::Word(word) if is_one_of(word, &[b"local", b"session"]));
    // It may be a name, too.
    if !ahead.next().is_some_and(is_scope) || ahead.clone().next() == Some(Token::Dot) {
        ahead = before;
    }
    loop {
        let before = ahead.clone();
        match ahead.next() {
            Some(Token::Word(_) | Token::Quoted(_)) => {}
            None | Some(Token::Other | Token::Dot | Token::Parameter(_) | Token::Unclear) => return lacking(&before),
            _ => return Target::Whole,
        }
        let before = ahead.clone();
        match ahead.next() {
            Some(Token::Dot) => {}
            None | Some(Token::Unclear | Token::Parameter(_)) => return lacking(&before),
            Some(Token::Other) if !before.rest().trim_ascii_start().starts_with(b"=") => return lacking(&before),
            _ => return Target::Whole,
        }
    }
}

/// Whether a SET begins somewhere in a text that can't be read as code.
fn begins_set(text: &[u8]) -> bool {
    let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | 0x80..);
    memchr::memchr2_iter(b's', b'S', text).any(|at| {
        let is_word = text[at..].get(..3).is_some_and(|word| word.eq_ignore_ascii_case(b"set"))
            && !text.get(at + 3).is_some_and(is_part)
            && !at.checked_sub(1).is_some_and(|at| is_part(&text[at]));
        let before = text[..at].trim_ascii_end();
        let ends_with = |word: &&[u8]| {
            before.len().checked_sub(word.len()).is_some_and(|start| before[start..].eq_ignore_ascii_case(word))
        };
        let begins = match before.last() {
            None | Some(b';' | b'\'' | b'"' | b'$' | b'>' | b'=') => true,
            _ => BEFORE_COMMANDS.iter().any(ends_with),
        };
        is_word && begins
    })
}

/// Whether that byte of an operator is the first one of a `||`.
fn is_pipe(last: Option<Token<'_>>, lexer: &Lexer<'_>) -> bool {
    last != Some(Token::Other) && lexer.rest().starts_with(b"|")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in a text, with a `?` where there may be others.
    fn names(text: &str) -> String {
        let names = CustomNames::of_text(text.as_bytes());
        let others = names.has_others.then(|| "?".to_owned());
        names.known.into_iter().chain(others).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn names_are_found_in_code() {
        for (text, expected) in [
            (r#"DO $q$ BEGIN SET "k"."n" = 'secret'; END $q$"#, "k.n"),
            ("DO $q$ BEGIN SET k . n = 'secret'; END $q$", "k.n"),
            ("DO $q$ BEGIN SET k./* so */n = 'secret'; END $q$", "k.n"),
            ("DO $q$ BEGIN RESET \"k\" -- so\n . n; END $q$", "k.n"),
            (r"DO E'BEGIN SET k\056n = 1; END'", "k.n"),
            (r"DO E'BEGIN \x53ET \x22k\x22.n = 1; END'", "k.n"),
            (r"DO U&'BEGIN SET k\002en = 1; END'", "k.n"),
            (r#"DO $$ BEGIN SET U&"\006b".n = 1; END $$"#, "k.n"),
            ("DO 'BEGIN SET k'\n'.n = 1; END'", "k.n"),
            ("DO 'BEGIN S'\n'ET \"k\".n = 1; END'", "k.n"),
            ("SELECT x.runs('SET \"k\".n=1')", "k.n x.runs"),
            ("SELECT x.runs('SET ''k''.n=1')", "x.runs"),
            ("DO $a$ BEGIN EXECUTE $b$ SET \"k\".n = 1 $b$; END $a$", "k.n"),
            ("DO 'BEGIN EXECUTE ''DO ''''BEGIN SET \"k\" . n = 1; END''''''; END'", "k.n"),
            ("DO $$ BEGIN EXECUTE 'SE'\n'T \"k\".n = 1'; END $$", "k.n"),
            ("DO $$ BEGIN PERFORM set_config('k.n', 'v', false); END $$", "k.n"),
            (r#"DO LANGUAGE plpgsql $$ BEGIN EXECUTE E'SET "k"\u002en = 1'; END $$"#, "k.n"),
            // A function is made, and not run.
            ("CREATE OR REPLACE FUNCTION f(text) RETURNS text LANGUAGE sql AS 'SELECT set_config($1, $1, true)'", ""),
            ("CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN SET \"k\".n = 1; END $$", "k.n"),
        ] {
            assert_eq!(names(text), expected, "{text}");
        }
    }

    #[test]
    fn code_that_is_put_together_may_have_others() {
        for text in [
            "DO $$ BEGIN EXECUTE format('SET %I.%I = 1', 'k', 'n'); END $$",
            "DO $$ BEGIN EXECUTE format('SET k_%s = 1', 'n'); END $$",
            "DO $$ BEGIN EXECUTE 'SET k' || '.n = 1'; END $$",
            "DO $$ BEGIN EXECUTE 'SET ' || v || ' = 1'; END $$",
            "DO $$ BEGIN EXECUTE 'SET \"k' || '\".n = 1'; END $$",
            r#"DO $$ BEGIN EXECUTE 'SET U&"\006b".U&"\' || '006e" = 1'; END $$"#,
            "DO $$ DECLARE v text := 'SET k'; BEGIN EXECUTE v || '.n = 1'; END $$",
            "DO $$ BEGIN EXECUTE concat('SET ', v, ' = 1'); END $$",
            "DO $$ BEGIN PERFORM set_config('k' || 'n', 'v', false); END $$",
            r"DO E'BEGIN PERFORM set\137config(v, 1, false); END'",
            "SELECT x.runs('SET k' || y)",
            "SELECT x.runs(concat('SET k', $1, '.n=1'))",
            "SELECT x.runs(replace('SET kk.n=1', 'kk', 'k'))",
            "SELECT x.runs('SELECT set_config(''k''||''.n'', ''1'', false)')",
            "SELECT x.runs('SET LOCAL %I.n = 1')",
            "DO LANGUAGE plperl $$ spi_exec_query(\"SET k\" . \".n = 1\") $$",
            "DO $a$ $b$ $c$ $d$ $e$ $f$ SET k $f$ $e$ $d$ $c$ $b$ $a$",
        ] {
            assert!(names(text).ends_with('?'), "{text}: {}", names(text));
        }
    }

    #[test]
    fn what_is_no_code_has_no_others() {
        for text in [
            "SELECT f('it''s set', 'Set password', 'email not set', 'Reset password', 'a set of 50% ' || $1)",
            r"SELECT f('Set to 50%', E'C:\\users\\set', 'offset 5 || x')",
            r#"SELECT f('{"set": "Set up", "a": [1]}'), data || '{"set": 1}' FROM t"#,
            "SELECT f('größe|set', 'straße[settings')",
            "DO $$ BEGIN UPDATE t SET a = b || c; RAISE NOTICE 'Set % to %', a, b; END $$",
            "DO $$ BEGIN EXECUTE format('UPDATE %I SET n = 1', 't') || 'x'; SET work_mem = '1MB'; RESET ALL; END $$",
            "DO $$ BEGIN EXECUTE 'ALTER TABLE t ALTER a SET DEFAULT ' || 1; SET LOCAL ROLE NONE; END $$",
            r"SELECT f('C:\users\set', 'C:\temp')",
            "INSERT INTO t VALUES (f(), '用户设置了很多很多很多很多很多很多很多很多很多很多很多很多的内容 set')",
        ] {
            assert!(!names(text).ends_with('?'), "{text}: {}", names(text));
        }
    }

    #[test]
    fn names_are_found_in_code_of_parameters() {
        let value = b"SET \"k\" . n = 'v'";
        let mut rest = vec![0, 0, 0, 1, 0, 0, 0, u8::try_from(value.len()).expect("it is short")];
        rest.extend_from_slice(value);
        let names = CustomNames::of_parameters(&rest, true);
        assert_eq!(names, CustomNames { known: ["k.n".to_owned()].into(), has_others: false });
    }
}
