//! The settings that a text resets to what the session began with, which is not what the server began with. They
//! are read from the text, since a command tag says only that there are some.

mod within;

use std::collections::BTreeSet;

pub use within::{ResetWithin, resets_within};

use super::{
    lexer::{Lexer, Token},
    ways::read_each_way,
};

/// Settings that commands reset, by their lower-case names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reset {
    /// Whether these are all but `set`.
    all: bool,
    names: BTreeSet<String>,
    /// Set since.
    set: BTreeSet<String>,
    /// Reset up to the transaction's end only.
    local: BTreeSet<String>,
    /// Whether a command resets something at all, which others may undo.
    takes: bool,
    /// Whether only a command tag told of it, so that any of these may have been left alone, or set since.
    unread: bool,
}

/// Those that `RESET ALL` leaves alone. The role goes with the session's user, by whatever words that is changed.
const IDENTITY: [&str; 2] = ["session_authorization", "role"];

/// No statement that resets a setting has more words and signs before it is clear that it does.
const HEAD_MAX: usize = 16;

impl Reset {
    /// All settings: what a command tag says where the text was not read.
    pub fn all() -> Self {
        Self { all: true, unread: true, ..Self::default() }
    }

    /// Whether it is known which ones they are.
    pub fn is_read(&self) -> bool {
        !self.unread
    }

    /// Whether it is about a setting, by its lower-case name.
    pub fn covers(&self, name: &str) -> bool {
        let is_among_all = self.all && !self.set.contains(name) && !IDENTITY.contains(&name);
        self.names.contains(name) || is_among_all || self.is_local(name)
    }

    /// Whether it resets a setting up to the transaction's end only.
    pub fn is_local(&self, name: &str) -> bool {
        self.local.contains(name)
    }

    /// Whether it may be what DISCARD ALL resets.
    pub fn may_discard(&self) -> bool {
        self.all && (self.unread || IDENTITY.iter().all(|name| self.names.contains(*name)))
    }

    /// The same, once the transaction has ended.
    #[must_use]
    pub fn beyond_transaction(mut self) -> Self {
        self.local.clear();
        self
    }

    /// The settings that two in turn reset, of which each may be nothing.
    pub fn both(first: Option<Self>, later: Option<&Self>) -> Option<Self> {
        match (first, later) {
            (Some(first), Some(later)) => Some(first.and(later)),
            (first, later) => first.or_else(|| later.cloned()),
        }
    }

    /// Those of these that are not set again, which may be none.
    #[must_use]
    pub fn without(mut self, set: &BTreeSet<String>) -> Self {
        set.iter().for_each(|name| self.note(name, false));
        self
    }

    fn and(mut self, later: &Self) -> Self {
        self.unread |= later.unread;
        self.takes |= later.takes;
        if later.all {
            self.note_all();
        }
        later.set.iter().for_each(|name| self.note(name, false));
        later.names.iter().for_each(|name| self.note(name, true));
        later.local.iter().for_each(|name| self.note_local(name));
        self
    }

    fn note_local(&mut self, name: &str) {
        self.takes = true;
        self.local.insert(name.to_owned());
    }

    fn note(&mut self, name: &str, is_back: bool) {
        self.local.remove(name);
        self.takes |= is_back;
        if is_back {
            self.set.remove(name);
            self.names.insert(name.to_owned());
        } else {
            self.names.remove(name);
            self.set.insert(name.to_owned());
        }
    }

    fn note_all(&mut self) {
        self.takes = true;
        self.all = true;
        self.names.retain(|name| IDENTITY.contains(&name.as_str()));
        self.set.retain(|name| IDENTITY.contains(&name.as_str()));
        self.local.retain(|name| IDENTITY.contains(&name.as_str()));
    }

    fn note_identity(&mut self, is_back: bool) {
        IDENTITY.iter().for_each(|name| self.note(name, is_back));
    }

    /// Whether a setting was set, and not taken back since.
    pub(super) fn sets(&self, name: &str) -> bool {
        self.set.contains(name)
    }

    /// Reads what a statement begins with.
    pub(super) fn statement(&mut self, head: &[Token<'_>]) {
        let mut words = Head(head);
        if words.take("discard") {
            if words.take("all") {
                self.note_all();
                self.note_identity(true);
            }
        } else if words.take("reset") {
            if words.take("all") {
                self.note_all();
            } else {
                self.target(&mut words, false, |_| true);
            }
        } else if words.take("set") {
            let is_local = words.take("local");
            let _noise = words.take("session");
            self.target(&mut words, is_local, |words| {
                let _sign = words.take("to") || words.sign();
                words.take("default") || words.take("local")
            });
        }
    }

    /// Reads a setting's name, and what is done to it.
    fn target(&mut self, words: &mut Head<'_, '_>, is_local: bool, is_back: impl Fn(&mut Head<'_, '_>) -> bool) {
        let may_stand_alone = words.is(0, "names");
        let name = if words.take("authorization") || words.take_both("session", "authorization") {
            IDENTITY[0].to_owned()
        } else if words.take_both("time", "zone") {
            "timezone".to_owned()
        } else if words.take("names") {
            "client_encoding".to_owned()
        } else if words.take("schema") {
            "search_path".to_owned()
        } else if let Some(name) = words.name() {
            of_today(name)
        } else {
            return;
        };
        let is_back = is_back(words) || (may_stand_alone && words.0.is_empty());
        // Whoever changes the one, changes the other.
        let names: &[&str] = if name == IDENTITY[0] { &IDENTITY } else { &[&name] };
        for name in names {
            match is_back {
                true if is_local => self.note_local(name),
                is_back => self.note(name, is_back),
            }
        }
    }
}

/// The name that a setting has today: PostgreSQL takes some old ones as well (`map_old_guc_names` in `guc.c`).
fn of_today(name: String) -> String {
    match &*name {
        "sort_mem" => "work_mem".to_owned(),
        "vacuum_mem" => "maintenance_work_mem".to_owned(),
        _ => name,
    }
}

/// Reads the commands RESET, DISCARD ALL and SET to DEFAULT in a text; `None` where there are none, and where the text
/// can't be told for certain.
pub fn reset(text: &[u8]) -> Option<Reset> {
    if !mentions(text) {
        return None;
    }
    let joined = read_each_way(text, read, |found, other| found.filter(|found| other.as_ref() == Some(found)));
    joined.filter(|found| found.takes)
}

/// Reads the commands of a text; `None` where it can't be told for certain.
fn read(lexer: &mut Lexer<'_>) -> Option<Reset> {
    let mut found = Course::default();
    statements(lexer, |head, _| found.statement(head))?;
    if found.kept > KEPT_MAX {
        return None;
    }
    let takes = found.now.takes || found.has_undone;
    Some(Reset { takes, ..found.now })
}

/// Reads a text's statements: the first tokens of each, and what follows its semicolon, if it has one. `None` where
/// the text can't be told for certain.
fn statements<'a>(lexer: &mut Lexer<'a>, mut each: impl FnMut(&[Token<'a>], Option<&'a [u8]>)) -> Option<()> {
    let mut head = Vec::with_capacity(HEAD_MAX);
    let mut depth = 0_usize;
    while let Some(token) = lexer.next() {
        match token {
            Token::Unclear => return None,
            Token::Semicolon if depth == 0 => {
                each(&head, Some(lexer.rest()));
                head.clear();
                continue;
            }
            Token::Open => depth += 1,
            Token::Close => depth = depth.saturating_sub(1),
            _ => {}
        }
        if head.len() < HEAD_MAX {
            head.push(token);
        }
    }
    each(&head, None);
    Some(())
}

/// The first tokens of a statement of which that is the first one.
pub(super) fn statement_head<'a>(first: Token<'a>, behind: Lexer<'a>) -> Vec<Token<'a>> {
    let is_inside = |token: &Token<'_>| *token != Token::Semicolon;
    std::iter::once(first).chain(behind.take_while(is_inside).take(HEAD_MAX / 2)).collect()
}

/// The course of a text's statements, of which some undo what others before them have done.
#[derive(Default)]
struct Course {
    now: Reset,
    /// As it was when the transaction began, or the text.
    before: Reset,
    /// As it was at each savepoint.
    savepoints: Vec<(Vec<u8>, Reset)>,
    /// Whether something that was reset is no longer.
    has_undone: bool,
    /// The names that are kept for savepoints.
    kept: usize,
}

/// Names that are kept for a text's savepoints, at most: one with more is not read.
const KEPT_MAX: usize = 4096;

impl Course {
    fn statement(&mut self, head: &[Token<'_>]) {
        let mut words = Head(head);
        if words.take_any(&["commit", "end"]) {
            self.commit(!words.take("prepared"));
        } else if words.take("prepare") {
            self.commit(words.take("transaction"));
        } else if words.take_any(&["rollback", "abort"]) {
            let _noise = words.take_any(&["work", "transaction"]);
            if words.take("to") {
                let _noise = words.take("savepoint");
                self.roll_back_to(&words.label());
            } else if !words.take("prepared") {
                self.undo(self.before.clone());
                self.savepoints.clear();
            }
        } else if words.take("savepoint") {
            self.kept += 1 + self.now.names.len() + self.now.set.len() + self.now.local.len();
            if self.kept <= KEPT_MAX {
                self.savepoints.push((words.label(), self.now.clone()));
            }
        } else if words.take("release") {
            let _noise = words.take("savepoint");
            let name = words.label();
            // One of before the text releases them all.
            let place = self.savepoints.iter().rposition(|(other, _)| *other == name);
            self.savepoints.truncate(place.unwrap_or_default());
        } else {
            self.now.statement(head);
        }
    }

    fn commit(&mut self, does: bool) {
        if does {
            self.now = std::mem::take(&mut self.now).beyond_transaction();
            self.before = self.now.clone();
            self.savepoints.clear();
        }
    }

    fn roll_back_to(&mut self, name: &[u8]) {
        // One of before the text is of this transaction.
        let place = self.savepoints.iter().rposition(|(other, _)| other == name);
        self.savepoints.truncate(place.map_or(0, |place| place + 1));
        let former = place.map_or(&self.before, |place| &self.savepoints[place].1);
        self.undo(former.clone());
    }

    fn undo(&mut self, former: Reset) {
        self.has_undone |= self.now.takes;
        self.now = former;
    }
}

/// The settings that the SET commands of a text name, by their lower-case names.
pub fn settings_named(text: &[u8]) -> BTreeSet<String> {
    let named = |lexer: &mut Lexer<'_>| read(lexer).unwrap_or_default().set;
    let mut found = read_each_way(text, named, |mut found, other| {
        found.extend(other);
        found
    });
    if found.remove("characteristics") {
        let of_transactions = ["deferrable", "isolation", "read_only"];
        found.extend(of_transactions.map(|name| format!("default_transaction_{name}")));
    }
    found
}

/// Whether a text has any of the words at all: most have none.
fn mentions(text: &[u8]) -> bool {
    let has =
        |at: usize, word: &[u8]| text.get(at..at + word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word));
    (0..text.len()).any(|at| match text[at] | 0x20 {
        b'r' => has(at, b"reset"),
        b'd' => has(at, b"discard") || has(at, b"default"),
        b'n' => has(at, b"names"),
        b'z' => has(at, b"zone"),
        _ => false,
    })
}

/// The tokens of a statement that have not been read.
struct Head<'a, 'b>(&'b [Token<'a>]);

impl Head<'_, '_> {
    fn is(&self, at: usize, keyword: &str) -> bool {
        matches!(self.0.get(at), Some(Token::Word(word)) if word.eq_ignore_ascii_case(keyword.as_bytes()))
    }

    fn take(&mut self, keyword: &str) -> bool {
        let is_it = self.is(0, keyword);
        if is_it {
            self.0 = &self.0[1..];
        }
        is_it
    }

    fn take_any(&mut self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.take(keyword))
    }

    fn take_both(&mut self, first: &str, second: &str) -> bool {
        let are_they = self.is(0, first) && self.is(1, second);
        if are_they {
            self.0 = &self.0[2..];
        }
        are_they
    }

    /// Takes a sign: `=`.
    fn sign(&mut self) -> bool {
        let is_it = self.0.first() == Some(&Token::Other);
        if is_it {
            self.0 = &self.0[1..];
        }
        is_it
    }

    /// A savepoint's name, as PostgreSQL folds it.
    fn label(&self) -> Vec<u8> {
        match self.0.first() {
            Some(Token::Word(word)) => word.to_ascii_lowercase(),
            Some(Token::Quoted(name)) => name.to_vec(),
            _ => Vec::new(),
        }
    }

    /// Takes a setting's whole name.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        while let Some((Token::Word(word) | Token::Quoted(word), rest)) = self.0.split_first() {
            name.push_str(&std::str::from_utf8(word).ok()?.to_ascii_lowercase());
            self.0 = rest;
            match self.0.split_first() {
                Some((Token::Dot, rest)) => {
                    name.push('.');
                    self.0 = rest;
                }
                _ => return Some(name),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_so_many_savepoints_that_it_would_take_too_much_is_not_read() {
        let text = |savepoints| {
            (0..100).map(|i| format!("reset a.b{i};")).collect::<String>() + &"savepoint s;".repeat(savepoints)
        };
        assert!(reset(text(10).as_bytes()).is_some());
        assert!(reset(text(20_000).as_bytes()).is_none());
    }

    #[test]
    fn reads_the_ways_to_reset() {
        // What is asked, of these: the ones that go back.
        let asked = [
            "datestyle",
            "timezone",
            "work_mem",
            "app.tenant",
            "search_path",
            "client_encoding",
            "session_authorization",
            "role",
        ];
        let settings = "datestyle timezone work_mem app.tenant search_path client_encoding";
        let all = "datestyle timezone work_mem app.tenant search_path client_encoding session_authorization role";
        for (text, expected) in [
            ("RESET ALL;", settings),
            ("discard all", all),
            ("discard temp", ""),
            ("reset DateStyle", "datestyle"),
            ("/* so */ reset \"DateStyle\" -- and so", "datestyle"),
            ("reset app . Tenant", "app.tenant"),
            ("reset time zone", "timezone"),
            ("reset session authorization", "session_authorization role"),
            ("set session authorization default", "session_authorization role"),
            ("reset session_authorization", "session_authorization role"),
            ("set session \"session_authorization\" to default", "session_authorization role"),
            (
                "reset all; reset role; set session_authorization = a",
                "datestyle timezone work_mem app.tenant search_path client_encoding",
            ),
            ("reset sort_mem", "work_mem"),
            ("set session authorization default; set role a", "session_authorization"),
            ("set time zone local", "timezone"),
            ("set local time zone default", "timezone"),
            ("set names; set names 'latin1'; set local names", "client_encoding"),
            ("set names 'latin1'", ""),
            ("set local work_mem to default; reset all", settings),
            ("set local work_mem to default; set local work_mem = 5", ""),
            ("set session work_mem = default", "work_mem"),
            ("set work_mem to default;", "work_mem"),
            ("set work_mem to 5", ""),
            ("select 'reset all'", ""),
            ("create function f() returns int language sql set work_mem to default as 'reset all'", ""),
            // Among other statements, and in their order.
            ("reset all; select 1", settings),
            ("select 1; reset work_mem; set datestyle = 'german'; reset role", "work_mem role"),
            ("reset work_mem; set work_mem = 5", ""),
            ("set work_mem = 5; reset work_mem", "work_mem"),
            ("reset all; set work_mem = 5; set schema 'a'", "datestyle timezone app.tenant client_encoding"),
            ("set work_mem = 5; reset all", settings),
            (r"select 'C:\temp'; reset work_mem", "work_mem"),
            // With what undoes them.
            ("begin; reset work_mem; rollback; begin; reset datestyle", "datestyle"),
            ("reset work_mem; begin; rollback; begin", ""),
            ("reset work_mem; commit; begin; reset datestyle; abort work; begin", "work_mem"),
            ("set local work_mem to default; end; begin", ""),
            ("savepoint a; reset work_mem; savepoint b; reset datestyle; rollback to b", "work_mem"),
            ("savepoint a; reset work_mem; rollback to savepoint A; reset datestyle", "datestyle"),
            ("savepoint \"A\"; reset work_mem; rollback to a", ""),
            ("reset work_mem; savepoint a; savepoint a; release a; reset datestyle; rollback to a", "work_mem"),
            ("reset work_mem; commit prepared 'x'; rollback prepared 'y'; prepare transaction 'z'; begin", "work_mem"),
            ("reset work_mem; prepare x as select 1; rollback; begin", ""),
        ] {
            let found = reset(text.as_bytes());
            let covered: Vec<_> =
                asked.into_iter().filter(|name| found.as_ref().is_some_and(|found| found.covers(name))).collect();
            assert_eq!(covered.join(" "), expected, "{text}");
        }
    }

    #[test]
    fn what_is_local_ends_with_the_transaction() {
        let found = reset(b"set local work_mem to default; reset datestyle").expect("it resets");
        assert!(found.is_local("work_mem") && !found.is_local("datestyle"));
        let found = found.beyond_transaction();
        assert!(found.covers("datestyle") && !found.covers("work_mem"));
        let found = reset(b"reset work_mem; set local work_mem to default").expect("it resets");
        assert!(found.is_local("work_mem") && found.beyond_transaction().covers("work_mem"));
    }

    #[test]
    fn what_is_undone_was_read() {
        for text in ["begin; reset work_mem; rollback; begin", "reset work_mem; set work_mem = 5"] {
            let found = reset(text.as_bytes()).expect("it resets");
            assert!(found.is_read() && !found.covers("work_mem"), "{text}");
        }
        assert_eq!(reset(b"rollback; set work_mem = 5; select 'reset'"), None);
    }

    #[test]
    fn resets_add_up() {
        let read = |text: &str| reset(text.as_bytes()).unwrap();
        assert_eq!(read("reset a").and(&read("reset b")), read("reset a; reset b"));
        assert_eq!(read("reset all; set a = 1").and(&read("reset a")), read("reset all; set a = 1; reset a"));
        assert!(!read("reset a").and(&read("reset b; set a = 1")).covers("a"));
    }
}
