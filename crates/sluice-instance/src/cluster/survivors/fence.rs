//! Holding a standby's WAL receiver off, and letting it go.
//!
//! `primary_conninfo` is Patroni's, which would put it back at its next turn, or later, if it was stopped in the midst
//! of one. So the receiver is kept from loading its library: `dynamic_library_path` has a folder in front in which
//! `libpqwalreceiver.so` is a text. Nothing else is loaded from there, a server that starts again is still held off,
//! and what Patroni writes meanwhile takes effect when the receiver is let go.
//!
//! A receiver inherits that setting from the postmaster. One that was forked before the postmaster knew of it is ended,
//! also where it has not come so far as to be shown in `pg_stat_wal_receiver`: it is looked for among processes.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use postgres::Client;

use super::super::Node;
use crate::{
    files::{self, Owner},
    orphans,
    pid_file::{self, Runner},
    run_as::RunAs,
};

/// Time limit for each step of holding the receiver off.
const STEP_TIME_MAX: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(5);

/// A process of the server's that has no title after this time serves a client that says nothing. PostgreSQL itself
/// waits for it as long as `authentication_timeout` says.
const UNTITLED_TIME_MAX: Duration = Duration::from_millis(500);

/// The folder's name, by which also a fence is known that has come with another node's configuration.
const FOLDER: &str = "receiver-fence";
const LIBRARY: &str = "libpqwalreceiver.so";
const TEXT: &str = "\
Not a library. Sluice puts this folder in front of dynamic_library_path while the survivors of a lost primary agree that
it is gone, so that no WAL receiver of this server can start. If no Sluice runs any more that could take it away:
ALTER SYSTEM RESET dynamic_library_path; SELECT pg_reload_conf();
";

/// The path in which PostgreSQL looks if nothing is set.
const DEFAULT_PATH: &str = "$libdir";

/// A node's fence.
#[derive(Debug, Clone)]
pub(super) struct Fence {
    dir: PathBuf,
    pgdata: PathBuf,
}

impl Fence {
    /// Makes the folder, which holds nobody off as yet.
    pub(super) fn prepare(node: &Node, run_as: &RunAs) -> io::Result<Self> {
        let dir = node.home.join(FOLDER);
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?,
        }
        files::write_private(&dir.join(LIBRARY), TEXT.as_bytes(), Owner::Postgres(run_as))?;
        let dir = dir.canonicalize()?;
        // Colons part the folders of the path.
        if dir.to_str().is_none_or(|dir| dir.contains([':', '\'', '\\'])) {
            return Err(io::Error::other(format!(
                "{dir:?} can't stand in dynamic_library_path: choose another folder"
            )));
        }
        Ok(Self { dir, pgdata: node.pgdata.clone() })
    }

    /// Whether a value of `dynamic_library_path` has this fence.
    fn is_in(&self, path: &str) -> bool {
        path.split(':').any(|dir| Path::new(dir) == self.dir)
    }

    /// Holds the receiver off; afterwards none runs, and none can start.
    pub(super) fn raise(
        &self,
        client: &mut Client,
        connect: impl Fn() -> Result<Client, postgres::Error>,
    ) -> io::Result<()> {
        let path = shown(client)?;
        if !self.is_in(&path) {
            if by_system(client)?.is_some_and(|path| !is_fenced(&path)) {
                let why = "dynamic_library_path is set by ALTER SYSTEM: set it in postgresql.base.conf instead";
                return Err(io::Error::other(why));
            }
            let wanted = self.before(&path);
            set(client, &format!("ALTER SYSTEM SET dynamic_library_path = '{}'", wanted.replace('\'', "''")))?;
        }
        // A new process has what the postmaster has.
        wait("the postmaster to know", || Ok(self.is_in(&shown(&mut connect().map_err(io::Error::other)?)?)))?;
        let (mut untitled, since) = (None, Instant::now());
        wait("the WAL receiver to end", || self.end_receivers(&mut untitled, since))
    }

    /// The path with this fence in front, and no other.
    fn before(&self, path: &str) -> String {
        let rest: Vec<&str> = path.split(':').filter(|dir| !dir.is_empty() && !is_fence(dir)).collect();
        let rest = if rest.is_empty() { DEFAULT_PATH.to_owned() } else { rest.join(":") };
        format!("{}:{rest}", self.dir.display())
    }

    /// Lets the receiver go.
    pub(super) fn lift(&self, client: &mut Client) -> io::Result<()> {
        set(client, "ALTER SYSTEM RESET dynamic_library_path")
    }

    /// Asks receivers to end; true when there is none, and no process that may become one. `untitled` are those that
    /// might at the first look, which begins with `since`: what was forked later has the fence.
    fn end_receivers(&self, untitled: &mut Option<BTreeSet<Pid>>, since: Instant) -> io::Result<bool> {
        let Ok(Runner::Live(postmaster)) = pid_file::runner(&self.pgdata) else {
            return Err(io::Error::other("PostgreSQL has ended"));
        };
        let own = command_line(Pid::from_raw(postmaster));
        let (mut receivers, mut without_title) = (BTreeSet::new(), BTreeSet::new());
        for pid in orphans::servers_of(&self.pgdata).into_iter().filter(|pid| pid.as_raw() != postmaster) {
            let command = command_line(pid);
            if command.contains("walreceiver") {
                receivers.insert(pid);
            } else if command == own {
                without_title.insert(pid);
            }
        }
        let untitled = untitled.get_or_insert_with(|| without_title.clone());
        untitled.retain(|pid| without_title.contains(pid));
        let silent = if since.elapsed() >= UNTITLED_TIME_MAX { untitled.clone() } else { BTreeSet::new() };
        for pid in receivers.iter().chain(&silent) {
            // It may have ended meanwhile.
            let _ = kill(*pid, Signal::SIGTERM);
        }
        Ok(receivers.is_empty() && untitled.is_empty())
    }
}

/// Whether a value of `dynamic_library_path` has a fence, of this node or of another one.
pub(super) fn is_fenced(path: &str) -> bool {
    path.split(':').any(is_fence)
}

fn is_fence(dir: &str) -> bool {
    Path::new(dir).file_name().is_some_and(|name| name == FOLDER)
}

fn command_line(pid: Pid) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned()
}

fn shown(client: &mut Client) -> io::Result<String> {
    let row = client.query_one("SELECT pg_catalog.current_setting('dynamic_library_path')", &[]);
    row.map(|row| row.get(0)).map_err(io::Error::other)
}

/// The value that ALTER SYSTEM has set, whether or not it is in effect.
fn by_system(client: &mut Client) -> io::Result<Option<String>> {
    let query = "SELECT setting FROM pg_catalog.pg_file_settings \
                 WHERE name = 'dynamic_library_path' AND sourcefile LIKE '%/postgresql.auto.conf'";
    client.query_opt(query, &[]).map(|row| row.and_then(|row| row.get(0))).map_err(io::Error::other)
}

fn set(client: &mut Client, statement: &str) -> io::Result<()> {
    // Not in one text: ALTER SYSTEM takes no transaction.
    client.batch_execute(statement).map_err(io::Error::other)?;
    client.batch_execute("SELECT pg_catalog.pg_reload_conf()").map_err(io::Error::other)
}

fn wait(what: &str, mut is_over: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let begin = Instant::now();
    while !is_over()? {
        if begin.elapsed() >= STEP_TIME_MAX {
            return Err(io::Error::other(format!("it takes longer than {} s for {what}", STEP_TIME_MAX.as_secs())));
        }
        thread::sleep(POLL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fence_stands_in_front() {
        let fence = Fence { dir: "/data/node1/receiver-fence".into(), pgdata: PathBuf::new() };
        for (path, expected) in [
            ("$libdir", "/data/node1/receiver-fence:$libdir"),
            ("", "/data/node1/receiver-fence:$libdir"),
            ("/opt/lib:$libdir", "/data/node1/receiver-fence:/opt/lib:$libdir"),
            ("/data/node2/receiver-fence:$libdir", "/data/node1/receiver-fence:$libdir"),
        ] {
            assert_eq!(fence.before(path), expected, "{path}");
            assert!(is_fenced(&fence.before(path)) && fence.is_in(&fence.before(path)));
        }
        assert!(is_fenced("/data/node2/receiver-fence:$libdir") && !is_fenced("/opt/lib:$libdir"));
        assert!(!fence.is_in("/data/node2/receiver-fence:$libdir"));
    }
}
