//! The transaction blocks that texts begin and end, and what of a block a ROLLBACK does not take away.

use sluice_wire::message::TransactionStatus;

use super::{Effects, Words, lexer::Token, outline};

/// What running a text does to the transaction block that is open.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The block goes on.
    #[default]
    None,
    /// It is a plain COMMIT.
    Commit,
    /// It is a plain ROLLBACK.
    Rollback,
    /// It may end the block, and what that comes to is not known.
    Open,
}

impl Ending {
    /// What a text does that is run in a block.
    pub(crate) fn of(text: &[u8]) -> Self {
        if outline::is_other_command(text, &BLOCK_ENDS) {
            return Self::None;
        }
        match end(text) {
            Some("COMMIT") => Self::Commit,
            Some(_) => Self::Rollback,
            None if may_end_block(text) => Self::Open,
            None => Self::None,
        }
    }

    /// What this and another one do together.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (ending, Self::None) | (Self::None, ending) => ending,
            (ending, other) if ending == other => ending,
            _ => Self::Open,
        }
    }

    /// The same, where that is certain; else it is open how the block ends, if it does.
    pub fn known_if(self, is_certain: bool) -> Self {
        if is_certain || self == Self::None { self } else { Self::Open }
    }

    /// Whether it ends the block, and it is known how.
    pub fn is_known(self) -> bool {
        matches!(self, Self::Commit | Self::Rollback)
    }
}

/// Reads a COMMIT or ROLLBACK in any of its spellings, without AND CHAIN; gives its command tag.
pub(crate) fn end(text: &[u8]) -> Option<&'static str> {
    let mut words = Words::new(text);
    let tag = match words.take_any(&["commit", "end", "rollback", "abort"])? {
        "commit" | "end" => "COMMIT",
        _ => "ROLLBACK",
    };
    let _noise = words.take("work") || words.take("transaction");
    words.at_end().then_some(tag)
}

/// Whether a text begins as one that PostgreSQL takes in a failed transaction (`IsTransactionExitStmt`), or says
/// nothing at all.
pub(crate) fn ends_transaction(text: &[u8]) -> bool {
    let mut words = Words::new(text);
    while words.0.next_if_eq(&Token::Semicolon).is_some() {}
    match words.take_any(&["end", "abort", "commit", "rollback", "prepare"]) {
        Some("end" | "abort") => true,
        Some("prepare") => words.take("transaction"),
        Some(_) => !words.take("prepared"),
        None => words.at_end(),
    }
}

/// The words with which a command begins that may end a block, or of which it can't be told.
const BLOCK_ENDS: [&str; 6] = ["commit", "end", "rollback", "abort", "prepare", "execute"];

/// Whether a text may end the transaction block that it is run in, or what that comes to can't be told from it: several
/// commands may, if there is such a word among them, and a statement that SQL executes may be a COMMIT of the extended
/// protocol's. A procedure may not: in a block, PostgreSQL lets none of them commit.
fn may_end_block(text: &[u8]) -> bool {
    let mut words = Words::new(text);
    match words.take_any(&BLOCK_ENDS) {
        Some("rollback") => {
            let _noun = words.take_any(&["work", "transaction"]);
            !words.take("to") || outline::may_have_several(text)
        }
        Some(_) => true,
        None => outline::may_have_several(text) && BLOCK_ENDS.iter().any(|word| has_word(text, word.as_bytes())),
    }
}

/// Whether a word stands anywhere in a text, though it be a part of a literal or a comment.
fn has_word(text: &[u8], word: &[u8]) -> bool {
    let goes_on = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..);
    text.windows(word.len()).enumerate().any(|(at, part)| {
        // A number may stand before it without a space.
        let is_begun =
            at.checked_sub(1).and_then(|at| text.get(at)).is_some_and(|byte| goes_on(byte) && !byte.is_ascii_digit());
        part.eq_ignore_ascii_case(word) && !is_begun && !text.get(at + word.len()).is_some_and(goes_on)
    })
}

/// The status of the transaction behind a statement that begins or ends a block, if it succeeds.
pub(crate) fn leads_to(text: &[u8]) -> Option<TransactionStatus> {
    let mut words = Words::new(text);
    while words.0.next_if_eq(&Token::Semicolon).is_some() {}
    match words.take_any(&["begin", "start", "commit", "end", "rollback", "abort", "prepare"])? {
        "begin" => Some(TransactionStatus::InTransaction),
        "start" => words.take("transaction").then_some(TransactionStatus::InTransaction),
        "prepare" => words.take("transaction").then_some(TransactionStatus::Idle),
        _ if words.take("prepared") => None,
        _ => {
            let _noun = words.take_any(&["work", "transaction"]);
            let goes_on = words.take("to") || (words.take("and") && !words.take("no"));
            Some(if goes_on { TransactionStatus::InTransaction } else { TransactionStatus::Idle })
        }
    }
}

/// Whether a text of these effects may leave something in its session that PostgreSQL keeps beyond a ROLLBACK, as far as
/// it shows: an advisory lock of the session, a statement of SQL's PREPARE, a seed, a library. A sequence's value is
/// another matter.
pub(crate) fn may_outlast_rollback(effects: Effects, text: &[u8]) -> bool {
    let lasting = Effects::PREPARES | Effects::SEED | Effects::SPENDS_SERVER;
    effects.intersects(lasting) || effects.intersects(Effects::STATE) && locks_session(text)
}

/// Whether the name of a function that takes or frees an advisory lock of the session stands anywhere in a text.
fn locks_session(text: &[u8]) -> bool {
    let (name, of_transaction) = (b"advisory_", b"xact");
    text.windows(name.len()).enumerate().any(|(at, part)| {
        let rest = text.get(at + name.len()..).and_then(|rest| rest.get(..of_transaction.len()));
        part.eq_ignore_ascii_case(name) && !rest.is_some_and(|rest| rest.eq_ignore_ascii_case(of_transaction))
    })
}

#[cfg(test)]
mod tests {
    use super::{super::effects, *};

    #[test]
    fn knows_how_transactions_end() {
        for text in [
            "COMMIT",
            " end;",
            "/* so */ ;commit",
            "Rollback to a",
            "abort",
            "COMMIT AND CHAIN",
            "PREPARE TRANSACTION 'x'",
            "-- so\nROLLBACK",
            "",
            " ;",
        ] {
            assert!(ends_transaction(text.as_bytes()), "{text}");
        }
        for text in [
            "SELECT 1",
            "PREPARE a AS SELECT 1",
            "committed",
            "BEGIN",
            "ROLLBACK PREPARED 'x'",
            "commit prepared 'x'",
            "-- COMMIT\nSELECT 1",
        ] {
            assert!(!ends_transaction(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn turns_of_a_transaction_are_read() {
        use TransactionStatus::{Idle, InTransaction};
        for (text, expected) in [
            ("BEGIN READ ONLY", Some(InTransaction)),
            ("start transaction", Some(InTransaction)),
            ("commit", Some(Idle)),
            ("/* so */ END WORK AND NO CHAIN", Some(Idle)),
            ("rollback transaction and chain", Some(InTransaction)),
            ("abort", Some(Idle)),
            ("ROLLBACK TO a", Some(InTransaction)),
            ("rollback work to savepoint a", Some(InTransaction)),
            ("PREPARE TRANSACTION 'a'", Some(Idle)),
            ("prepare a as select 1", None),
            ("commit prepared 'a'", None),
            ("rollback prepared 'a'", None),
            ("select 1", None),
            ("", None),
        ] {
            assert_eq!(leads_to(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn reads_the_ways_to_end() {
        for (text, tag) in [
            ("COMMIT", Some("COMMIT")),
            (" end work ;", Some("COMMIT")),
            ("rollback transaction", Some("ROLLBACK")),
            ("Abort;", Some("ROLLBACK")),
            ("commit /* app */", Some("COMMIT")),
            ("rollback to a", None),
            ("commit and chain", None),
            ("commit prepared 'a'", None),
            ("commit; select 1", None),
            ("select 1", None),
            ("", None),
        ] {
            assert_eq!(end(text.as_bytes()), tag, "{text}");
        }
    }

    #[test]
    fn knows_what_may_end_a_block() {
        for (text, ending) in [
            ("Commit;", Ending::Commit),
            ("/* so */ end", Ending::Commit),
            (" ROLLBACK", Ending::Rollback),
            ("abort work", Ending::Rollback),
            ("commit and chain", Ending::Open),
            ("execute a", Ending::Open),
            ("prepare transaction 'a'", Ending::Open),
            ("rollback to a; commit", Ending::Open),
            ("select 1; commit", Ending::Open),
            ("select 1;commit", Ending::Open),
            ("; commit", Ending::Open),
            ("rollback to a", Ending::None),
            ("select 1; select 2", Ending::None),
            ("select 'commit'", Ending::None),
            ("call p()", Ending::None),
            ("explain execute a", Ending::None),
            ("", Ending::None),
        ] {
            assert_eq!(Ending::of(text.as_bytes()), ending, "{text}");
        }
    }

    #[test]
    fn knows_what_a_rollback_leaves() {
        for (text, leaves) in [
            ("SELECT pg_advisory_lock(1)", true),
            ("select pg_catalog.PG_TRY_ADVISORY_LOCK_SHARED(1, 2)", true),
            ("SELECT pg_advisory_xact_lock(1), pg_advisory_unlock(1)", true),
            ("PREPARE a AS SELECT 1", true),
            ("SET seed = 0.5", true),
            ("LOAD 'auto_explain'", true),
            ("SELECT pg_advisory_xact_lock(1)", false),
            ("SELECT set_config('a.b', 'x', false)", false),
            ("SET LOCAL a.b = 'x'", false),
            ("LISTEN a", false),
            ("CREATE TEMP TABLE t ()", false),
            ("INSERT INTO advisory_notes VALUES (1)", false),
        ] {
            assert_eq!(may_outlast_rollback(effects(text.as_bytes()), text.as_bytes()), leaves, "{text}");
        }
    }
}
