//! A cluster that is begun again (`sluice node init --again`): etcd was lost on all hosts, and an operator has chosen the
//! one whose data count.
//!
//! An election promotes nobody who may lack what was acknowledged, and so `pg_rewind` may discard what another host has
//! more. A choice gives no such promise. So etcd has a mark of each new beginning, and a host that has not joined since
//! compares its data with the primary's history before anything is rewound: what it has written on a timeline beyond the
//! place at which the primary left that is only there.

use std::{
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use sluice_config::NodeConfig;

use super::{
    super::{
        control::{Control, lsn, lsn_text},
        error::ClusterError,
        etcd_api::{EtcdClient, Step},
    },
    history::History,
};
use crate::{binaries::Binaries, secret::Password};

/// The beginning of what is waited for.
pub(super) const TO_COMPARE: &str =
    "the cluster was begun again, and this host's data have to be compared with the primary's first";

/// A program that runs takes a connection at once, or its host is not there.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

/// The key of a cluster's mark.
fn key(scope: &str) -> String {
    format!("/sluice/{scope}/begun-again")
}

/// A mark for a new beginning.
pub(super) fn mark() -> Result<String, ClusterError> {
    let random = Password::random();
    let random = random.map_err(|error| ClusterError::Bootstrap(crate::bootstrap::BootstrapError::Random(error)))?;
    Ok(random.expose().to_owned())
}

/// The mark of the cluster that etcd has; none if it was never begun again.
pub(super) fn of_cluster(etcd: &EtcdClient, scope: &str) -> std::io::Result<Option<String>> {
    etcd.value(&key(scope))
}

/// Has etcd know the mark, before it has the cluster's data.
pub(super) fn tell(etcd: &EtcdClient, scope: &str, mark: &str) -> std::io::Result<()> {
    etcd.transact(&[], &[Step::Put { key: key(scope), value: mark.to_owned(), lease: None }]).map(drop)
}

/// Sees that no other host goes on: its Patroni would follow the new primary by itself.
pub(super) fn check_stopped(config: &NodeConfig) -> Result<(), ClusterError> {
    let runs = |address: &SocketAddr| TcpStream::connect_timeout(address, CONNECT_TIME_MAX).is_ok();
    match config.other_nodes().map(|node| (&node.name, node.patroni)).find(|(_, address)| runs(address)) {
        None => Ok(()),
        Some((name, address)) => Err(ClusterError::BadFile {
            path: config.file.clone(),
            why: format!(
                "{name} runs: its Patroni answers at {address}\nstop all hosts first (systemctl stop sluice-node): one that goes \
                 on would follow the new primary, whatever its own data have more"
            ),
        }),
    }
}

/// The data that a cluster is to be begun again with, in words. Those of a primary that was shut down in order have all
/// that it ever acknowledged; others are taken where `is_forced` only.
pub(super) fn beginning(binaries: &Binaries, pgdata: &Path, is_forced: bool) -> Result<String, ClusterError> {
    let control = Control::read(binaries, pgdata)?;
    let said = said(&control);
    if control.is_whole() || is_forced {
        return Ok(format!("{}: {said}", pgdata.display()));
    }
    Err(ClusterError::BadFile {
        path: pgdata.to_owned(),
        why: format!(
            "{said}: this is no primary that was shut down in order, and another host may have more\ncompare all hosts by \
             pg_controldata (docs/hosts.md, \"etcd is lost on all hosts\"): the cluster begins on the one that is on the latest \
             timeline, and goes furthest there. If that is this one: sluice node init --again --force"
        ),
    })
}

fn said(control: &Control) -> String {
    let goes_on = if control.state.starts_with("shut down") { "" } else { " at least" };
    format!("\"{}\", timeline {}, end of its log {}{goes_on}", control.state, control.timeline, lsn_text(control.end()))
}

/// Words for the place at which the primary left the data's timeline, if those go further than that.
pub(super) fn parting(
    binaries: &Binaries,
    pgdata: &Path,
    control: &Control,
    of_primary: &History,
) -> Result<Option<String>, ClusterError> {
    let Some(left) = of_primary.left(control.timeline) else {
        return Ok(Some("was never on that".to_owned()));
    };
    let is_ahead = control.end() > left || goes_on(binaries, pgdata, control.timeline, left)?;
    Ok(is_ahead.then(|| format!("left that at {}", lsn_text(left))))
}

/// Whether the log of a timeline has a record behind a place at which one ends: what a server wrote since its last
/// checkpoint is in no control file.
fn goes_on(binaries: &Binaries, pgdata: &Path, timeline: u64, place: u64) -> Result<bool, ClusterError> {
    let Some(next) = records(binaries, pgdata, timeline, place, 1)?.first().copied() else { return Ok(false) };
    // A file that was used before may have a whole record there: it follows one that is elsewhere.
    Ok(records(binaries, pgdata, timeline, next.before, 2)?.get(1) == Some(&next))
}

/// A record of the log: where it begins, and where the one before it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    at: u64,
    before: u64,
}

/// So many records from a place on, as far as there are any.
fn records(
    binaries: &Binaries,
    pgdata: &Path,
    timeline: u64,
    place: u64,
    count: usize,
) -> Result<Vec<Record>, ClusterError> {
    let program = binaries.dir.join("pg_waldump");
    let mut command = Command::new(&program);
    command.arg("-p").arg(pgdata.join("pg_wal")).args(["-t", &timeline.to_string(), "-n", &count.to_string()]);
    command.args(["-s", &lsn_text(place)]).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().map_err(ClusterError::io("run", &program))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(record).collect())
}

fn record(line: &str) -> Option<Record> {
    let value = |name: &str| lsn(line.split_once(name)?.1.split(',').next()?.trim());
    Some(Record { at: value(" lsn: ")?, before: value(" prev ")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "rmgr: Standby     len (rec/tot):     50/    50, tx:          0, lsn: 1/0E395610, prev 0/0E3955D8, \
                        desc: RUNNING_XACTS nextXid 740";

    fn control(state: &str, checkpoint: u64, recovered: u64) -> Control {
        Control { system: "7".to_owned(), state: state.to_owned(), timeline: 34, checkpoint, recovered }
    }

    #[test]
    fn records_are_read() {
        assert_eq!(record(LINE), Some(Record { at: 0x1_0E39_5610, before: 0x0E39_55D8 }));
        assert_eq!(record("first record is after 0/E395610, at 0/E395618, skipping over 8 bytes"), None);
    }

    #[test]
    fn another_host_that_runs_is_in_the_way() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = |port: u16| {
            let text = format!(
                r#"
                name = "b"
                tls = {{ ca_file = "ca.crt", cert_file = "b.crt", key_file = "b.key" }}
                member = [{{ name = "a", address = "127.0.0.1", patroni_port = {port} }},
                          {{ name = "b", address = "127.0.0.2" }}, {{ name = "c", address = "127.0.0.3", witness = true }}]
                "#
            );
            sluice_config::parse_node(&text, Path::new("/etc/sluice/node.toml")).unwrap()
        };
        let said = check_stopped(&config(port)).unwrap_err().to_string();
        assert!(
            said.contains("a runs: its Patroni answers at 127.0.0.1:") && said.contains("stop all hosts"),
            "{said}"
        );
        assert!(check_stopped(&config(1)).is_ok());
    }

    #[test]
    fn data_are_said_by_their_state_and_end() {
        let whole = control("shut down", 0x0E3A_CAF8, 0);
        assert_eq!(said(&whole), "\"shut down\", timeline 34, end of its log 0/E3ACAF8");
        let killed = control("in production", 0x0E3A_CAF8, 0);
        assert!(said(&killed).ends_with("0/E3ACAF8 at least"), "{}", said(&killed));
    }

    #[test]
    fn what_lies_behind_the_place_where_the_primary_left_is_ahead() {
        let binaries = crate::binaries::Binaries::find(None).unwrap();
        let pgdata = tempfile::tempdir().unwrap();
        let primary = History::from_file("33\t0/D000000\t-\n34\t0/E395610\t-\n");
        let of = |control: &Control| parting(&binaries, pgdata.path(), control, &primary).unwrap();
        assert_eq!(of(&control("shut down in recovery", 0x0D00_0000, 0x0E39_5610)), None);
        let ahead = of(&control("shut down", 0x0E3A_CAF8, 0)).unwrap();
        assert_eq!(ahead, "left that at 0/E395610");
        assert!(of(&control("shut down in recovery", 0, 0x0E3A_CAC8)).is_some());
        let elsewhere = Control { timeline: 32, ..control("shut down", 1, 0) };
        assert_eq!(of(&elsewhere).unwrap(), "was never on that");
    }
}
