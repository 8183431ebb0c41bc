//! Settings without which PostgreSQL does not start on its data: room for prepared transactions and slots, and the log that
//! logical slots read. Patroni gives them on its command line, so they are others for one node than for several.

use std::{fs, path::Path, process::Stdio};

use nix::sys::signal::Signal;

use super::ClusterError;
use crate::{binaries::Binaries, run_as::RunAs};

/// The settings that Patroni always gives on the command line, and its values for them where the cluster has none
/// (`CMDLINE_OPTIONS` of Patroni 4.1). The connections are Sluice's.
const BY_PATRONI: [(&str, &str); 7] = [
    ("wal_level", "replica"),
    ("max_prepared_transactions", "0"),
    ("max_replication_slots", "10"),
    ("max_locks_per_transaction", "64"),
    ("max_worker_processes", "8"),
    ("max_wal_senders", "10"),
    ("track_commit_timestamp", "off"),
];

/// The place of a slot's database in its file `state`, behind the file's head and the slot's name (`ReplicationSlotOnDisk`
/// in PostgreSQL's `slot.c`); a physical one has none.
const SLOT_DATABASE: std::ops::Range<usize> = 80..84;

/// The needs of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Needs {
    prepared: usize,
    slots: usize,
    has_logical_slot: bool,
}

impl Needs {
    fn of(pgdata: &Path) -> Self {
        let entries = |name: &str| {
            let entries = fs::read_dir(pgdata.join(name)).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let slots: Vec<_> =
            entries("pg_replslot").iter().filter_map(|slot| fs::read(slot.join("state")).ok()).collect();
        let is_logical =
            |state: &Vec<u8>| state.get(SLOT_DATABASE).is_some_and(|database| database.iter().any(|byte| *byte != 0));
        Self {
            prepared: entries("pg_twophase").len(),
            slots: slots.len(),
            has_logical_slot: slots.iter().any(is_logical),
        }
    }

    /// The first setting that is too low, by a server's own values: why, and the setting as it would do.
    fn lack(self, value: impl Fn(&str) -> Option<String>) -> Option<(String, String)> {
        let few = |name: &'static str, needed: usize, what: &str| {
            let found = if needed == 0 { None } else { value(name) }?;
            let is_enough = found.parse::<usize>().map_or(true, |found| found >= needed);
            let said =
                || (format!("{name} would be {found}, and there are {needed} {what}"), format!("{name} = {needed}"));
            (!is_enough).then(said)
        };
        let level = || {
            let found = if self.has_logical_slot { value("wal_level") } else { None }?;
            let said = || format!("wal_level would be {found}, and there are slots of logical replication");
            (found != "logical").then(|| (said(), "wal_level = logical".to_owned()))
        };
        few("max_prepared_transactions", self.prepared, "prepared transactions")
            .or_else(|| few("max_replication_slots", self.slots, "replication slots"))
            .or_else(level)
    }
}

/// The value that a server on these data would have of a setting by its files; `None` if it does not say.
fn value(binaries: &Binaries, run_as: &RunAs, pgdata: &Path, name: &str) -> Option<String> {
    let mut command = run_as.command(&binaries.postgres, Signal::SIGKILL);
    command.args(["-C", name, "-D"]).arg(pgdata).current_dir("/");
    // Beside it is Patroni's own, where it has been there.
    let base = pgdata.join("postgresql.base.conf");
    if base.exists() {
        command.arg("-c").arg(format!("config_file={}", base.display()));
    }
    let output = command.stderr(Stdio::null()).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| said.trim().to_owned()).filter(|value| !value.is_empty())
}

/// Sees that one node would start on these data.
///
/// # Errors
///
/// [`ClusterError::Needs`], with the remedy; nothing has been moved.
pub(super) fn check_one(binaries: &Binaries, run_as: &RunAs, pgdata: &Path) -> Result<(), ClusterError> {
    let lack = Needs::of(pgdata).lack(|name| value(binaries, run_as, pgdata, name));
    let Some((lack, remedy)) = lack else { return Ok(()) };
    let base = pgdata.join("postgresql.base.conf");
    let file = if base.exists() { base } else { pgdata.join("postgresql.conf") };
    Err(ClusterError::Needs { pgdata: pgdata.to_owned(), lack, remedy, file })
}

/// The settings of one node that Patroni would lower on its command line.
pub(super) fn above_patronis(binaries: &Binaries, run_as: &RunAs, pgdata: &Path) -> Vec<(&'static str, String)> {
    let own = BY_PATRONI
        .iter()
        .filter_map(|(name, patronis)| Some((*name, *patronis, value(binaries, run_as, pgdata, name)?)));
    own.filter(|(_, patronis, own)| is_above(own, patronis)).map(|(name, _, own)| (name, own)).collect()
}

fn is_above(own: &str, patronis: &str) -> bool {
    match (own.parse::<u64>(), patronis.parse::<u64>()) {
        (Ok(own), Ok(patronis)) => own > patronis,
        _ => matches!(own, "logical" | "on"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_prepared_transactions_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let slot = |name: &str, database: u32| {
            let mut state = vec![1; 80];
            state.extend(database.to_ne_bytes());
            fs::create_dir_all(dir.path().join("pg_replslot").join(name)).unwrap();
            fs::write(dir.path().join("pg_replslot").join(name).join("state"), state).unwrap();
        };
        assert_eq!(Needs::of(dir.path()), Needs { prepared: 0, slots: 0, has_logical_slot: false });
        slot("node2", 0);
        fs::create_dir(dir.path().join("pg_twophase")).unwrap();
        fs::write(dir.path().join("pg_twophase/0000000000000300"), "").unwrap();
        assert_eq!(Needs::of(dir.path()), Needs { prepared: 1, slots: 1, has_logical_slot: false });
        slot("warehouse", 16384);
        assert_eq!(Needs::of(dir.path()), Needs { prepared: 1, slots: 2, has_logical_slot: true });
    }

    #[test]
    fn what_lacks_has_a_remedy() {
        let none = Needs { prepared: 0, slots: 0, has_logical_slot: false };
        let says = |needs: Needs, said: &'static str| needs.lack(|_| Some(said.to_owned())).map(|(_, remedy)| remedy);
        assert_eq!(says(none, "0"), None);
        assert_eq!(says(Needs { prepared: 3, ..none }, "3"), None);
        let prepared = Some("max_prepared_transactions = 3".to_owned());
        assert_eq!(says(Needs { prepared: 3, ..none }, "2"), prepared);
        assert_eq!(says(Needs { slots: 11, ..none }, "10"), Some("max_replication_slots = 11".to_owned()));
        let logical = Needs { has_logical_slot: true, ..none };
        assert_eq!(says(logical, "replica"), Some("wal_level = logical".to_owned()));
        assert_eq!(says(logical, "logical"), None);
        // A server that does not say is asked by its start.
        assert_eq!(Needs { prepared: 3, ..logical }.lack(|_| None), None);
    }

    #[test]
    fn what_patroni_would_lower_is_above() {
        for (own, patronis, above) in
            [("50", "0", true), ("10", "10", false), ("logical", "replica", true), ("replica", "replica", false)]
        {
            assert_eq!(is_above(own, patronis), above, "{own}");
        }
    }
}
