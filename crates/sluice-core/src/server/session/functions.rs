//! Functions that a session has called and that are not PostgreSQL's own. What they have compiled and planned, by the
//! catalogs of then, PostgreSQL keeps to the session's end.

use crate::sql::Effects;

/// Those that a session has called, if any.
#[derive(Debug, Default)]
pub struct Functions {
    have_run: bool,
    /// The alterations of what is in the catalogs that were there before the first one.
    altered_before: u64,
}

impl Functions {
    /// Whether there are any, as far as is known.
    pub(super) fn may_have_run(&self) -> bool {
        self.have_run
    }

    /// There are.
    pub(super) fn have_run(&mut self) {
        self.have_run = true;
    }

    /// A text with these effects may call some. DDL calls none, mostly; DO counts as such, and does.
    pub(super) fn note_text(&mut self, effects: Effects, text: &[u8]) {
        let begins = |verb: &str| {
            text.trim_ascii_start().get(..verb.len()).is_some_and(|start| start.eq_ignore_ascii_case(verb.as_bytes()))
        };
        let is_ddl = || (effects.intersects(Effects::CATALOG) && !begins("do")) || begins("create");
        self.have_run |= effects.contains(Effects::ANYTHING) && !is_ddl();
    }

    /// Whether what they have compiled is of before the last of so many alterations.
    pub fn are_outdated(&mut self, altered: u64) -> bool {
        if !self.have_run {
            self.altered_before = altered;
        }
        self.altered_before != altered
    }
}

#[cfg(test)]
mod tests {
    use crate::sql::effects;

    use super::*;

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
            let mut functions = Functions::default();
            assert!(!functions.are_outdated(3));
            functions.note_text(effects(text.as_bytes()), text.as_bytes());
            assert_eq!((functions.are_outdated(3), functions.are_outdated(4)), (false, may_run), "{text}");
        }
    }
}
