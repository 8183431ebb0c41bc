//! Flushes of the write-ahead log that lie between a COMMIT and its answer, by the server's settings, and the reason for
//! each.
//!
//! Source: PostgreSQL's documentation, `synchronous_commit` and `synchronous_standby_names`. A primary sends only what it
//! has flushed itself (`XLogSendPhysical`), so a standby's flush comes behind the primary's, and those of several standbys
//! are under way at the same time.

use crate::result::CommitWait;

/// The wait at a level of `synchronous_commit`.
pub(super) fn wait(level: &str, standby_names: &str, fsync: bool) -> CommitWait {
    let settings = match standby_names {
        "" => format!("synchronous_commit = {level}"),
        names => format!("synchronous_commit = {level}, synchronous_standby_names = {names}"),
    };
    let own = "the primary's own";
    let standbys = Standbys::read(standby_names);
    let (flushes, which) = match (level, standbys) {
        ("off", _) => (0, "none: the log is flushed a moment later".to_owned()),
        (_, None) => (1, format!("{own}, since no standby is synchronous")),
        ("local", Some(_)) => (1, format!("{own}; standbys are not waited for at this level")),
        ("remote_write", Some(standbys)) => (
            1,
            format!(
                "{own}, then that {} has the log in its operating system's cache, which is no flush",
                standbys.who()
            ),
        ),
        ("remote_apply", Some(standbys)) => {
            (2, format!("{own}, then that of {}, one after the other, then the replay there", standbys.who()))
        }
        (_, Some(standbys)) => (
            2,
            format!(
                "{own}, then that of {}; one after the other, since the primary sends only what it has flushed",
                standbys.who()
            ),
        ),
    };
    let (flushes, which) =
        if fsync { (flushes, which) } else { (0, format!("none, since fsync is off; else {which}")) };
    CommitWait { flushes, why: format!("{which} ({settings})"), nodes_round_trip_us: None }
}

/// The standbys that are waited for.
#[derive(Debug, PartialEq, Eq)]
struct Standbys {
    /// Any of them, or those that stand first.
    is_quorum: bool,
    wanted: usize,
    names: Vec<String>,
}

impl Standbys {
    /// `FIRST n (list)`, `ANY n (list)`, `n (list)`, or a list, of which the first is waited for. None: nobody.
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        let (head, list) = match text.split_once('(') {
            Some((head, list)) => (head.trim(), list.trim_end().trim_end_matches(')')),
            None => ("1", text),
        };
        let names: Vec<String> = list.split(',').map(|name| name.trim().trim_matches('"').to_owned()).collect();
        let names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
        let is_quorum = head.to_ascii_uppercase().starts_with("ANY");
        let wanted = head.split_ascii_whitespace().next_back()?.parse().ok()?;
        (!names.is_empty()).then_some(Self { is_quorum, wanted, names })
    }

    fn who(&self) -> String {
        let Self { is_quorum, wanted, names } = self;
        let list = names.join(", ");
        if names.iter().any(|name| name == "*") {
            return format!("{wanted} of the standbys that are connected");
        }
        match (is_quorum, names.len() > *wanted) {
            (_, false) if names.len() == 1 => format!("{list}, which is waited for each time"),
            (_, false) => format!("each of {list} at the same time, of which the slowest counts"),
            (true, true) if *wanted == 1 => {
                format!("whichever of {list} confirms first; the slower ones are not waited for")
            }
            (true, true) => format!("the first {wanted} of {list} to confirm, at the same time"),
            (false, true) if *wanted == 1 => format!("the first of {list} that is connected"),
            (false, true) => format!("the first {wanted} of {list} that are connected, at the same time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_by_level_and_standbys() {
        for (level, standbys, fsync, flushes, says) in [
            ("on", "", true, 1, "no standby is synchronous"),
            ("off", "ANY 1 (node2,node3)", true, 0, "a moment later"),
            ("local", "node2", true, 1, "not waited for at this level"),
            ("remote_write", "node2", true, 1, "which is no flush"),
            ("on", "node2", true, 2, "that of node2, which is waited for each time"),
            ("on", "\"node-2\"", true, 2, "that of node-2"),
            ("on", "ANY 1 (node2,node3)", true, 2, "whichever of node2, node3 confirms first"),
            ("on", "FIRST 2 (a, b, c)", true, 2, "the first 2 of a, b, c that are connected, at the same time"),
            ("on", "any 2 (a,b)", true, 2, "each of a, b at the same time"),
            ("remote_apply", "1 (a, b)", true, 2, "the first of a, b that is connected, one after the other, then"),
            ("on", "*", true, 2, "that of 1 of the standbys that are connected"),
            ("on", "node2", false, 0, "fsync is off"),
        ] {
            let wait = wait(level, standbys, fsync);
            assert_eq!(wait.flushes, flushes, "{level} {standbys}: {wait:?}");
            assert!(wait.why.contains(says), "{level} {standbys}: {wait:?}");
        }
    }
}
