//! Functions that a session has called and that are not PostgreSQL's own. What they have compiled and planned, by the
//! catalogs of then, PostgreSQL keeps to the session's end.

use crate::sql::{Effects, has_word};

/// Those that a session has called, if any.
#[derive(Debug, Default)]
pub struct Functions {
    have_run: bool,
    /// The alterations of what is in the catalogs that were there before the first one.
    altered_before: u64,
}

impl Functions {
    /// None, on a server that is opened after so many alterations.
    pub fn none(altered: u64) -> Self {
        Self { have_run: false, altered_before: altered }
    }

    /// Whether there are any, as far as is known.
    pub(super) fn may_have_run(&self) -> bool {
        self.have_run
    }

    /// There are.
    pub(super) fn have_run(&mut self) {
        self.have_run = true;
    }

    /// Notes a text with these effects, and returns whether it may call some. DDL calls none, mostly; DO counts as such,
    /// and does.
    pub(super) fn note_text(&mut self, effects: Effects, text: &[u8]) -> bool {
        let is_ddl =
            || (effects.intersects(Effects::CATALOG) && !begins_with(text, "do")) || begins_with(text, "create");
        let may_call = effects.contains(Effects::ANYTHING) && !is_ddl();
        self.have_run |= may_call;
        may_call
    }

    /// Whether what they have compiled is of before the last of so many alterations.
    pub fn are_outdated(&mut self, altered: u64) -> bool {
        if !self.have_run {
            self.altered_before = altered;
        }
        self.altered_before != altered
    }
}

/// Whether a text may be a DO in another language than PL/pgSQL, which may keep something in the session.
pub(super) fn may_name_language(text: &[u8]) -> bool {
    let has = |words: &[u8]| text.windows(words.len()).any(|window| window.eq_ignore_ascii_case(words));
    begins_with(text, "do") && has_word(text, b"language") && !has(b"language plpgsql")
}

fn begins_with(text: &[u8], verb: &str) -> bool {
    text.trim_ascii_start().get(..verb.len()).is_some_and(|start| start.eq_ignore_ascii_case(verb.as_bytes()))
}

#[cfg(test)]
mod tests {
    use crate::sql::effects;

    use super::*;

    #[test]
    fn a_log_in_may_run_some() {
        let mut functions = Functions::none(3);
        functions.have_run();
        assert_eq!((functions.are_outdated(3), functions.are_outdated(4)), (false, true));
    }

    #[test]
    fn a_do_may_be_in_another_language() {
        for (text, expected) in [
            ("DO $$ $_SHARED{k} = 1 $$ LANGUAGE plperl", true),
            (" do language 'plperl' ''", true),
            ("DO LANGUAGE plpgsql $$ BEGIN END $$", false),
            ("DO $$ BEGIN END $$", false),
            ("CREATE FUNCTION f() RETURNS int LANGUAGE plperl AS ''", false),
        ] {
            assert_eq!(may_name_language(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn functions_that_have_run_know_what_was_there_before() {
        for (text, may_run) in [
            ("SELECT lower(a) FROM t", false),
            ("SELECT f(1)", true),
            ("CALL p()", true),
            ("  do 'BEGIN END'", true),
            ("SET work_mem = '1MB'", false),
            ("ALTER TABLE t ADD b int", false),
            ("CREATE TEMP TABLE t (a int)", false),
        ] {
            let mut functions = Functions::none(3);
            functions.note_text(effects(text.as_bytes()), text.as_bytes());
            assert_eq!((functions.are_outdated(3), functions.are_outdated(4)), (false, may_run), "{text}");
        }
    }
}
