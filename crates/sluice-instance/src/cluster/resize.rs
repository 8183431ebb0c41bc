//! From one node to several and back, without a dump: data directories change their places, whole or not at all.
//!
//! Nothing is removed that can't be shown to be a copy of what stays: of the same PostgreSQL, on no later timeline and
//! not further in its log. Each step can be interrupted, and is finished by the next start.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::{
    ClusterError, State,
    control::{self, Control},
    earlier, half_copy, needs,
    state::NODES_MAX,
};
use crate::{
    binaries::Binaries,
    data_dir::{self, DataDirError, DataDirSpec},
    event::{Event, Observer},
    files::{self, Owner, if_there},
    kept_settings::{KeptSettings, PATRONIS},
    pid_file::{self, Runner},
};

/// The time for a PostgreSQL of a killed Sluice to leave.
const LEAVING_TIME_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// Whether the directory is, or was, one of several nodes.
pub fn is_cluster(root: &Path) -> bool {
    root.join(super::state::NAME).exists()
}

/// Whether the directory's data are those of one node now, whatever it was.
pub(super) fn is_one(root: &Path) -> bool {
    root.join("pgdata/PG_VERSION").exists()
}

/// Makes one node of several: the data of the last leader, which must have been shut down in order, go to where one
/// node has them. What etcd knew of the cluster is removed; the other nodes' data stay, as copies.
///
/// # Errors
///
/// No node that is shown to have everything: the cluster was not stopped in order.
pub fn to_one(spec: &DataDirSpec, observer: &dyn Observer) -> Result<(), ClusterError> {
    let Ok(root) = spec.root.canonicalize() else { return Ok(()) };
    // Nothing is written in a directory that need not be Sluice's.
    if !is_cluster(&root) {
        return Ok(());
    }
    let _lock = data_dir::take_lock(&root)?;
    let Some(mut state) = State::read(&root)? else { return Ok(()) };
    clear_earlier(&root, observer);
    let pgdata = root.join("pgdata");
    remove_discarded(&root)?;
    if state.is_formed {
        remove_half_copies(&root, observer)?;
    }
    if !pgdata.exists() {
        let nodes = control::of_nodes(&spec.binaries, &root)?;
        for (place, _) in &nodes {
            wait_gone(place)?;
        }
        let nodes = control::of_nodes(&spec.binaries, &root)?;
        let Some((chosen, _)) = last_leader(&nodes) else { return not_whole(&root, &nodes) };
        data_dir::check_major_of(&spec.binaries, chosen)?;
        keep_settings(spec, &root, chosen)?;
        unmanage(chosen)?;
        data_dir::move_data(chosen, &pgdata)?;
        observer.event(Event::Resized { from: chosen.clone(), to: pgdata });
    }
    dissolve(&root, &mut state)
}

/// Makes room for several nodes where there is one: copies that it has outlived are removed, so that each further node
/// gets a fresh one. The data themselves are moved when the directory is opened. `check` comes first, once nothing runs there:
/// if it fails, all stays as it is.
pub(super) fn to_several(
    spec: &DataDirSpec,
    observer: &dyn Observer,
    check: &dyn Fn(&Path) -> Result<(), ClusterError>,
) -> Result<(), ClusterError> {
    let Ok(root) = spec.root.canonicalize() else { return Ok(()) };
    if !is_one(&root) {
        return Ok(());
    }
    let pgdata = root.join("pgdata");
    let _lock = data_dir::take_lock(&root)?;
    clear_earlier(&root, observer);
    wait_gone(&pgdata)?;
    check(&root)?;
    data_dir::check_major_of(&spec.binaries, &pgdata)?;
    let own = Control::read(&spec.binaries, &pgdata)?;
    remove_discarded(&root)?;
    remove_half_copies(&root, observer)?;
    let copies = control::of_nodes(&spec.binaries, &root)?;
    for (copy, control) in &copies {
        wait_gone(copy)?;
        if !control.is_behind(&own) {
            return Err(not_a_copy(copy, control, &pgdata, &own));
        }
    }
    for (copy, _) in &copies {
        remove(&discard(copy)?)?;
        observer.event(Event::RemovedCopy { path: copy.clone() });
    }
    match State::read(&root)? {
        Some(mut state) => dissolve(&root, &mut state),
        None => Ok(()),
    }
}

/// Removes copies that were interrupted by whatever stopped the nodes. Nothing runs there by now.
pub(super) fn remove_half_copies(root: &Path, observer: &dyn Observer) -> Result<(), ClusterError> {
    (1..=NODES_MAX).try_for_each(|number| half_copy::clear(&root.join(format!("node{number}")), observer))
}

/// Before a start: all nodes' data are of one PostgreSQL, and fit the programs.
pub(super) fn check_nodes(binaries: &Binaries, root: &Path) -> Result<(), ClusterError> {
    let nodes = control::of_nodes(binaries, root)?;
    let Some((first, own)) = nodes.first() else { return Ok(()) };
    for (pgdata, control) in &nodes {
        data_dir::check_major_of(binaries, pgdata)?;
        if control.system != own.system {
            return Err(not_a_copy(pgdata, control, first, own));
        }
    }
    Ok(())
}

fn not_a_copy(pgdata: &Path, control: &Control, other: &Path, own: &Control) -> ClusterError {
    if control.system == own.system {
        return ClusterError::NoCopy { pgdata: pgdata.to_owned(), other: other.to_owned() };
    }
    ClusterError::OtherSystem {
        pgdata: pgdata.to_owned(),
        found: control.system.clone(),
        other: other.to_owned(),
        expected: own.system.clone(),
    }
}

/// The node that was the leader when all were stopped: shut down in order, and all others are behind it.
fn last_leader(nodes: &[(PathBuf, Control)]) -> Option<&(PathBuf, Control)> {
    let is_last = |one: &Control| one.is_whole() && nodes.iter().all(|(_, other)| other.is_behind(one));
    nodes.iter().find(|(_, control)| is_last(control))
}

fn not_whole(root: &Path, nodes: &[(PathBuf, Control)]) -> Result<(), ClusterError> {
    let said: Vec<String> = nodes
        .iter()
        .map(|(pgdata, control)| format!("{}: {}, timeline {}", pgdata.display(), control.state, control.timeline))
        .collect();
    Err(ClusterError::NotWhole { root: root.to_owned(), said: said.join("\n  "), nodes: nodes.len() })
}

/// Keeps the settings that the nodes shared, without which the data may not start, and sees that they do with them.
fn keep_settings(spec: &DataDirSpec, root: &Path, pgdata: &Path) -> Result<(), ClusterError> {
    let patronis = pgdata.join(PATRONIS);
    let unread = |error: io::Error| ClusterError::BadFile {
        path: patronis.clone(),
        why: format!("{error}\nit has the settings of all nodes: mend it, or move it away to go on without them"),
    };
    let kept = match KeptSettings::of_node(pgdata).map_err(unread)? {
        Some(kept) => {
            kept.write(root).map_err(ClusterError::io("keep the settings of all nodes in", root))?;
            kept
        }
        // It has been interrupted behind this; or Patroni never began.
        None => KeptSettings::read(root).map_err(ClusterError::io("read the settings of all nodes in", root))?,
    };
    // Each start writes this file anew: here it is for the check.
    let conf = pgdata.join("sluice.conf");
    let text = if_there(files::read_of_postgres(&conf, &spec.run_as)).map_err(ClusterError::io("read", &conf))?;
    let text = text.unwrap_or_default() + &kept.to_conf();
    files::write_private(&conf, text.as_bytes(), Owner::Postgres(&spec.run_as))
        .map_err(ClusterError::io("write", &conf))?;
    needs::check_one(&spec.binaries, &spec.run_as, pgdata)
}

/// Takes back what Patroni has made of a node's settings; it keeps the operator's in a file beside.
fn unmanage(pgdata: &Path) -> Result<(), ClusterError> {
    let (base, conf) = (pgdata.join("postgresql.base.conf"), pgdata.join("postgresql.conf"));
    if base.exists() {
        fs::rename(&base, &conf).map_err(ClusterError::io("move", &base))?;
    }
    let dynamic = pgdata.join(PATRONIS);
    if_there(fs::remove_file(&dynamic)).map(drop).map_err(ClusterError::io("remove", &dynamic))
}

/// Removes what etcd knew, by which another node could be made the leader: it is behind from now on.
fn dissolve(root: &Path, state: &mut State) -> Result<(), ClusterError> {
    for member in 1..=NODES_MAX {
        remove(&root.join(format!("etcd{member}")))?;
    }
    state.is_formed = false;
    state.write(root)
}

fn remove(path: &Path) -> Result<(), ClusterError> {
    if_there(fs::remove_dir_all(path)).map(drop).map_err(ClusterError::io("remove", path))
}

/// The name of a data directory that is being removed. What is left of it under its own one would be taken for data, by
/// Patroni, if the removal is interrupted.
const DISCARDED: &str = "pgdata.removed";

/// Gives a data directory that name.
fn discard(pgdata: &Path) -> Result<PathBuf, ClusterError> {
    let discarded = pgdata.with_file_name(DISCARDED);
    fs::rename(pgdata, &discarded).map_err(ClusterError::io("move aside", pgdata))?;
    Ok(discarded)
}

/// Finishes removals that were interrupted.
fn remove_discarded(root: &Path) -> Result<(), ClusterError> {
    (1..=NODES_MAX).try_for_each(|number| remove(&root.join(format!("node{number}")).join(DISCARDED)))
}

/// Ends what an earlier run has left behind.
pub(super) fn clear_earlier(root: &Path, observer: &dyn Observer) {
    let numbers = 1..=NODES_MAX;
    let own = numbers.flat_map(|n| [root.join(format!("etcd{n}")), root.join(format!("node{n}/patroni.yml"))]);
    let count = earlier::clear(&own.collect::<Vec<_>>());
    if count > 0 {
        observer.event(Event::EndedEarlier { count });
    }
}

/// Waits for a PostgreSQL of an earlier run to leave.
fn wait_gone(pgdata: &Path) -> Result<(), ClusterError> {
    let begin = Instant::now();
    loop {
        match pid_file::runner(&pgdata.canonicalize().unwrap_or_else(|_| pgdata.to_owned())) {
            Ok(Runner::Live(pid)) if begin.elapsed() >= LEAVING_TIME_MAX => {
                return Err(DataDirError::Running { pid, path: pgdata.to_owned() }.into());
            }
            Ok(Runner::Live(_)) => thread::sleep(POLL),
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, state: &str, timeline: u64, checkpoint: u64) -> (PathBuf, Control) {
        let (system, state) = ("7".to_owned(), state.to_owned());
        (name.into(), Control { system, state, timeline, checkpoint, recovered: 0 })
    }

    #[test]
    fn a_removal_that_was_interrupted_is_finished() {
        let root = tempfile::tempdir().unwrap();
        let pgdata = root.path().join("node3/pgdata");
        fs::create_dir_all(pgdata.join("base")).unwrap();
        let discarded = discard(&pgdata).unwrap();
        assert!(discarded.join("base").exists() && !pgdata.exists());
        remove_discarded(root.path()).unwrap();
        assert!(!discarded.exists() && root.path().join("node3").exists());
    }

    #[test]
    fn the_last_leader_has_everything() {
        let standby = |name, reached| node(name, "shut down in recovery", 2, reached);
        let leader = || node("b", "shut down", 2, 50);
        let chosen = |nodes: &[(PathBuf, Control)]| last_leader(nodes).map(|(path, _)| path.display().to_string());
        assert_eq!(chosen(&[standby("a", 40), leader(), standby("c", 49)]).as_deref(), Some("b"));
        // One that was lost on the way, and one that was the leader before.
        assert_eq!(chosen(&[node("a", "in production", 1, 30), leader()]).as_deref(), Some("b"));
        assert_eq!(chosen(&[node("a", "shut down", 1, 30), leader()]).as_deref(), Some("b"));
        for other in [standby("a", 51), node("a", "in production", 3, 10), node("a", "shut down", 3, 60)] {
            let is_it = chosen(&[other.clone(), leader()]).is_some_and(|name| name == "b");
            assert!(!is_it, "{other:?}");
        }
        assert_eq!(chosen(&[node("a", "in production", 1, 30), standby("b", 20)]), None);
    }
}
