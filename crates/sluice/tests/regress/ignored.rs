//! All that may differ between what a file prints straight and through a pool: [`KNOWN`], and in what isolationtester
//! prints, the process number that a notification comes from. docs/postgresql-tests.md says it in prose.

use crate::suite::Suite;

/// Known differences in a file: each line that differs begins with one of these, and the reason.
pub(crate) struct Known {
    pub(crate) suite: Suite,
    pub(crate) file: &'static str,
    pub(crate) lines: &'static [&'static str],
    pub(crate) why: &'static str,
}

/// The files that can't be the same.
pub(crate) const KNOWN: [Known; 6] = [
    Known {
        suite: Suite::Files,
        file: "guc",
        lines: &[
            "ERROR:  invalid configuration parameter name \"plpgsql.extra_foo_warnings\"",
            "WARNING:  invalid configuration parameter name \"plpgsql.extra_foo_warnings\"",
            "DETAIL:  \"plpgsql\" is",
        ],
        why: "a server's process has loaded PL/pgSQL for others before, and can't let go of it",
    },
    Known {
        suite: Suite::Files,
        file: "temp",
        lines: &["ERROR:  cannot PREPARE a transaction that has operated on temporary objects"],
        why: "it wants a session that has never had a temporary schema; a server keeps its own, empty",
    },
    Known {
        suite: Suite::Files,
        file: "stats",
        lines: &[" t", " f"],
        why: "it waits for its reconnect to be counted as a session of PostgreSQL's",
    },
    Known {
        suite: Suite::Specs,
        file: "stats",
        lines: &["test_stat_func|"],
        why: "a server's process tells its counts when it likes, and sessions are spread over several",
    },
    Known {
        suite: Suite::Specs,
        file: "detach-partition-concurrently-3",
        lines: &[""],
        why: "a session keeps its pg_backend_pid() for later, and another is to cancel it by that",
    },
    Known {
        suite: Suite::Specs,
        file: "detach-partition-concurrently-4",
        lines: &[""],
        why: "as detach-partition-concurrently-3",
    },
];

impl Known {
    /// The one for a file.
    pub(crate) fn of(suite: Suite, file: &str) -> Option<&'static Self> {
        KNOWN.iter().find(|known| known.suite == suite && known.file == file)
    }

    /// Whether a line of `diff`, without its sign, is covered.
    pub(crate) fn covers(&self, line: &str) -> bool {
        self.lines.iter().any(|begin| line.starts_with(begin))
    }
}

/// The output without what may differ in every file.
///
/// A notification tells of a process, and isolationtester of the session that it knows by that number. A client's own
/// notifications bear its own number; those of others bear their server's.
pub(crate) fn without_ignored(suite: Suite, text: &str) -> String {
    let ignored = |line: &str| match line.split_once(": NOTIFY \"") {
        Some((receiver, rest)) if suite == Suite::Specs && !rest.ends_with(&format!(" from {receiver}")) => {
            let kept = rest.rsplit_once(" from ").map_or(rest, |(kept, _)| kept);
            format!("{receiver}: NOTIFY \"{kept} from another session")
        }
        _ => line.to_owned(),
    };
    text.split('\n').map(ignored).collect::<Vec<_>>().join("\n")
}
