//! The settings that a text takes back to what the session began with, which is not what the server began with. They
//! are read from the text, since a command tag says only that there are some.

use std::collections::BTreeSet;

use super::lexer::{Lexer, Token, read_each_way};

/// Settings that commands take back, by their lower-case names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reset {
    /// Whether these are all but `set`.
    all: bool,
    names: BTreeSet<String>,
    /// Set since.
    set: BTreeSet<String>,
    /// Whether only a command tag told of it, so that any of these may have been left alone, or set since.
    unread: bool,
}

/// Those that `RESET ALL` leaves alone.
const IDENTITY: [&str; 2] = ["session_authorization", "role"];

/// No statement that takes a setting back has more words and signs before it is clear that it does.
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
        self.names.contains(name) || is_among_all
    }

    /// The settings that two in turn take back, of which each may be nothing.
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
        if later.all {
            self.note_all();
        }
        later.set.iter().for_each(|name| self.note(name, false));
        later.names.iter().for_each(|name| self.note(name, true));
        self
    }

    fn note(&mut self, name: &str, is_back: bool) {
        if is_back {
            self.set.remove(name);
            self.names.insert(name.to_owned());
        } else {
            self.names.remove(name);
            self.set.insert(name.to_owned());
        }
    }

    fn note_all(&mut self) {
        self.all = true;
        self.names.retain(|name| IDENTITY.contains(&name.as_str()));
        self.set.clear();
    }

    fn note_identity(&mut self, is_back: bool) {
        IDENTITY.iter().for_each(|name| self.note(name, is_back));
    }

    /// Reads what a statement begins with.
    fn statement(&mut self, head: &[Token<'_>]) {
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
                self.target(&mut words, |_| true);
            }
        } else if words.take("set") {
            // What is local ends with the transaction, and goes back to nothing.
            let is_local = words.take("local");
            let _noise = words.take("session");
            self.target(&mut words, |words| {
                let _sign = words.take("to") || words.sign();
                !is_local && (words.take("default") || words.take("local"))
            });
        }
    }

    /// Reads a setting's name, and what is done to it.
    fn target(&mut self, words: &mut Head<'_, '_>, is_back: impl Fn(&mut Head<'_, '_>) -> bool) {
        let name = if words.take("authorization") || words.take_both("session", "authorization") {
            let is_back = is_back(words);
            return self.note_identity(is_back);
        } else if words.take_both("time", "zone") {
            "timezone".to_owned()
        } else if words.take("names") {
            "client_encoding".to_owned()
        } else if words.take("schema") {
            "search_path".to_owned()
        } else if let Some(name) = words.name() {
            name
        } else {
            return;
        };
        let is_back = is_back(words);
        self.note(&name, is_back);
    }

    fn is_back(&self) -> bool {
        self.all || !self.names.is_empty()
    }
}

/// Reads the commands RESET, DISCARD ALL and SET to DEFAULT in a text; `None` where there are none, and where the text
/// can't be told for certain.
pub fn reset(text: &[u8]) -> Option<Reset> {
    if !mentions(text) {
        return None;
    }
    let joined = read_each_way(text, read, |found, other| found.filter(|found| other.as_ref() == Some(found)));
    joined.filter(Reset::is_back)
}

/// Reads the commands of a text; `None` where it can't be told for certain.
fn read(lexer: &mut Lexer<'_>) -> Option<Reset> {
    let mut found = Reset::default();
    let mut head = Vec::with_capacity(HEAD_MAX);
    let mut depth = 0_usize;
    for token in lexer {
        match token {
            Token::Unclear => return None,
            Token::Semicolon if depth == 0 => {
                found.statement(&head);
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
    found.statement(&head);
    Some(found)
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
    fn reads_the_ways_to_reset() {
        // What is asked, of these: the ones that go back.
        let asked = ["datestyle", "timezone", "work_mem", "app.tenant", "search_path", "session_authorization", "role"];
        let settings = "datestyle timezone work_mem app.tenant search_path";
        let all = "datestyle timezone work_mem app.tenant search_path session_authorization role";
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
            ("set session authorization default; set role a", "session_authorization"),
            ("set time zone local", "timezone"),
            ("set local time zone default", ""),
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
            ("reset all; set work_mem = 5; set schema 'a'", "datestyle timezone app.tenant"),
            ("set work_mem = 5; reset all", settings),
            (r"select 'C:\temp'; reset work_mem", "work_mem"),
        ] {
            let found = reset(text.as_bytes());
            let covered: Vec<_> =
                asked.into_iter().filter(|name| found.as_ref().is_some_and(|found| found.covers(name))).collect();
            assert_eq!(covered.join(" "), expected, "{text}");
        }
    }

    #[test]
    fn resets_add_up() {
        let read = |text: &str| reset(text.as_bytes()).unwrap();
        assert_eq!(read("reset a").and(&read("reset b")), read("reset a; reset b"));
        assert_eq!(read("reset all; set a = 1").and(&read("reset a")), read("reset all; set a = 1; reset a"));
        assert!(!read("reset a").and(&read("reset b; set a = 1")).covers("a"));
    }
}
