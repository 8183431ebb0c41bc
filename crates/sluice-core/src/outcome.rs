//! The outcome of a COMMIT whose answer was lost with its server (docs/decisions/0027): the mark by which a transaction
//! can be known on another server, and what that says of it.
//!
//! Sluice's extension reports the mark (docs/session-report.md).

/// The parameter that turns the reports on, from a session's start.
pub const REPORT_TRANSACTIONS: (&str, &str) = ("sluice.report_transactions", "on");

/// The reported parameter with the mark of the block that is open.
pub const TRANSACTION_PARAMETER: &str = "sluice.transaction";

/// The parameter by which sessions say where their commits end in the log, from a session's start.
pub const REPORT_COMMITS: (&str, &str) = ("sluice.report_commits", "on");

/// The reported parameter with the end of a session's last commit.
pub const COMMIT_PARAMETER: &str = "sluice.commit_lsn";

/// The mark of a transaction that has written something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The server's words for it, which tell it from all others.
    text: Box<str>,
    /// Whether it may have left something in its session that is not known elsewhere.
    pub changes_session: bool,
}

impl Mark {
    /// Reads what a server reports; `None` if that makes no sense, or there is none.
    pub fn read(text: &str) -> Option<Self> {
        let mut fields = text.split(' ');
        let known = ["xid=", "at=", "system=", "key="];
        // It becomes part of a query.
        let is_plain = |value: &str| value.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'/');
        let is_field = |name: &str, field: &str| field.strip_prefix(name).is_some_and(is_plain);
        if !known.iter().all(|name| fields.next().is_some_and(|field| is_field(name, field))) {
            return None;
        }
        let changes_session = match fields.next() {
            None => false,
            Some("session=changed") => true,
            Some(_) => return None,
        };
        let text = text.strip_suffix(" session=changed").unwrap_or(text).into();
        fields.next().is_none().then_some(Self { text, changes_session })
    }

    /// The query that asks what has become of it. It has one row, and is a transaction of its own, which no time-out that
    /// another client has left ends.
    ///
    /// `with_end`: with a row more, a place in the log behind its commit that standbys will come to.
    pub fn query(&self, with_end: bool) -> String {
        let end = if with_end { "; SELECT pg_catalog.pg_current_wal_flush_lsn()" } else { "" };
        format!(
            "SET LOCAL statement_timeout = 0; SELECT pg_catalog.set_config('sluice.outcome', '{}', true){end}",
            self.text
        )
    }
}

/// The outcome of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is committed, and as durable as any commit that is acknowledged now.
    Committed,
    /// It is not, and never will be.
    Aborted,
}

impl Outcome {
    /// Reads what a server says.
    pub fn read(text: &str) -> Option<Self> {
        match text {
            "committed" => Some(Self::Committed),
            "aborted" => Some(Self::Aborted),
            _ => None,
        }
    }
}

/// A COMMIT whose answer was lost.
#[derive(Debug)]
pub struct LostCommit {
    /// The mark of its transaction.
    pub mark: Mark,
    /// The ParameterStatus messages by which what was set for the transaction is gone.
    pub reports: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read() {
        let mark = Mark::read("xid=745 at=0/3000148 system=9 key=1658447").expect("it is well-formed");
        assert!(!mark.changes_session);
        assert_eq!(
            mark.query(false),
            "SET LOCAL statement_timeout = 0; SELECT pg_catalog.set_config('sluice.outcome', 'xid=745 at=0/3000148 system=9 key=1658447', true)"
        );
        let changed =
            Mark::read("xid=745 at=0/3000148 system=9 key=1658447 session=changed").expect("it is well-formed");
        assert!(changed.changes_session);
        assert_eq!(changed.query(false), mark.query(false));
        for bad in [
            "",
            "xid=1",
            "xid=1 at=0/1 system=9 key=1 else",
            "xid=1' at=0/1 system=9 key=1",
            "at=0/1 xid=1 system=9 key=1",
            "xid=1 at=0/1 system=9 key=1 session=changed x",
        ] {
            assert_eq!(Mark::read(bad), None, "{bad}");
        }
    }
}
