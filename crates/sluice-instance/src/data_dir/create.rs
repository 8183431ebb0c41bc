//! The creation of PostgreSQL's data directory: whole or not at all.
//!
//! `initdb` works in `pgdata.new` beside its place, which takes its name when all is written. What an interrupted
//! run leaves is thrown away by the next.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown},
    path::Path,
    process::{Child, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use super::{DataDirError, DataDirSpec};
use crate::{
    diagnosis::Tail,
    disk,
    event::{Event, Observer},
    files::{self, Owner},
    run_as::RunAs,
};

/// `initdb` takes two seconds, or some minutes on a slow disk that is busy.
const INITDB_TIME_MAX: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(20);

/// Tried in this order; the first is missing on some small systems.
const LOCALES: [&str; 2] = ["C.UTF-8", "C"];

/// Creates `pgdata`, which is missing or empty.
pub(super) fn create(
    spec: &DataDirSpec,
    root: &Path,
    home: &Path,
    pgdata: &Path,
    observer: &dyn Observer,
) -> Result<(), DataDirError> {
    let begin = Instant::now();
    let temporary = home.join("pgdata.new");
    if remove(&temporary)? {
        observer.event(Event::RemovedLeftover { path: temporary.clone() });
    }
    check_space(spec, root)?;
    observer.event(Event::Creating { pgdata: pgdata.to_owned() });

    let made = fill(spec, root, &temporary)
        .and_then(|()| fs::rename(&temporary, pgdata).map_err(|source| DataDirError::io("create", pgdata, source)))
        .and_then(|()| sync_dir(home));
    if let Err(error) = made {
        // The first error is the one to report; what is left is removed by the next start.
        let _ = remove(&temporary);
        return Err(error);
    }
    observer.event(Event::Created { took: begin.elapsed() });
    Ok(())
}

fn remove(path: &Path) -> Result<bool, DataDirError> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(DataDirError::io("remove", path, source)),
    }
}

pub(super) fn sync_dir(path: &Path) -> Result<(), DataDirError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(|source| DataDirError::io("sync", path, source))
}

fn check_space(spec: &DataDirSpec, root: &Path) -> Result<(), DataDirError> {
    let free_bytes = disk::free_bytes(root).map_err(|source| DataDirError::io("look at the disk of", root, source))?;
    if free_bytes >= spec.free_bytes_min {
        return Ok(());
    }
    Err(DataDirError::DiskFull { path: root.to_owned(), free_bytes, needed_bytes: spec.free_bytes_min })
}

/// Makes a complete data directory at `temporary`.
fn fill(spec: &DataDirSpec, root: &Path, temporary: &Path) -> Result<(), DataDirError> {
    let mut failure = None;
    for locale in LOCALES {
        make_empty(&spec.run_as, temporary)?;
        match initdb(spec, &root.join("log/initdb.log"), temporary, locale)? {
            Ok(()) => return configure(&spec.run_as, temporary),
            Err((how, tail)) => {
                remove(temporary)?;
                let locale_missing = tail.text.contains("invalid locale");
                failure = Some(DataDirError::InitDb { how, tail });
                if !locale_missing {
                    break;
                }
            }
        }
    }
    failure.map_or(Ok(()), Err)
}

fn make_empty(run_as: &RunAs, path: &Path) -> Result<(), DataDirError> {
    let error = |source| DataDirError::io("create", path, source);
    DirBuilder::new().mode(0o700).create(path).map_err(error)?;
    if run_as.switches() {
        chown(path, Some(run_as.uid()), Some(run_as.gid())).map_err(error)?;
    }
    Ok(())
}

/// A program's failure: how it ended, and its last words.
type Failure = (String, Tail);

fn initdb(spec: &DataDirSpec, log: &Path, pgdata: &Path, locale: &str) -> Result<Result<(), Failure>, DataDirError> {
    let log_error = |source| DataDirError::io("write", log, source);
    let output = File::options().write(true).create(true).truncate(true).mode(0o600).open(log).map_err(log_error)?;
    let errors = output.try_clone().map_err(log_error)?;
    let program = &spec.binaries.initdb;
    let mut command = spec.run_as.command(program, Signal::SIGTERM);
    command.arg("--pgdata").arg(pgdata);
    command.args(["--username=postgres", "--encoding=UTF8", "--data-checksums"]);
    command.args(["--auth-local=peer", "--auth-host=scram-sha-256"]).arg(format!("--locale={locale}"));
    if !spec.sync {
        command.arg("--no-sync");
    }
    let child = command.current_dir("/").stdout(output).stderr(errors).spawn();
    let child = child.map_err(|source| DataDirError::io("run", program, source))?;
    let status = wait(child, INITDB_TIME_MAX).map_err(|source| DataDirError::io("wait for", program, source))?;
    let how = match status {
        Some(status) if status.success() => return Ok(Ok(())),
        Some(status) => status.to_string(),
        None => format!("not done after {} s", INITDB_TIME_MAX.as_secs()),
    };
    Ok(Err((how, Tail::of_file(log, 0))))
}

/// Waits for a child; kills it when the time is over, and returns `None`.
fn wait(mut child: Child, time_max: Duration) -> io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    while begin.elapsed() < time_max {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(POLL);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// Writes the rules of who may connect, and includes Sluice's settings.
fn configure(run_as: &RunAs, pgdata: &Path) -> Result<(), DataDirError> {
    let write = |name: &str, text: &str| {
        let path = pgdata.join(name);
        files::write_private(&path, text.as_bytes(), Owner::Postgres(run_as))
            .map_err(|source| DataDirError::io("write", &path, source))
    };
    let path = pgdata.join("postgresql.conf");
    let conf = files::read_of_postgres(&path, run_as).map_err(|source| DataDirError::io("read", &path, source))?;
    write("postgresql.conf", &format!("{conf}{INCLUDE}"))?;
    write("pg_hba.conf", HBA)?;
    let maps: String = run_as.peers().iter().map(|peer| format!("sluice  {}  postgres\n", quoted(peer))).collect();
    write("pg_ident.conf", &format!("# MAPNAME  SYSTEM-USERNAME  PG-USERNAME\n{maps}"))
}

/// A name as `pg_ident.conf` takes it, whatever is in it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

const INCLUDE: &str = "
#------------------------------------------------------------------------------
# SLUICE
#------------------------------------------------------------------------------
# Settings that suit a server behind sluice's pool; sluice writes that file at
# each start. Put your own settings below this line: the last one wins, and
# ALTER SYSTEM wins over both. Only where the server listens (listen_addresses,
# port, unix_socket_directories) is given by sluice on the command line.

include_if_exists = 'sluice.conf'
";

const HBA: &str = "\
# Written by sluice when it created this directory; yours from then on.
#
# The superuser has no password. It logs in by the Unix socket only, as the
# system user that runs PostgreSQL (or root): see pg_ident.conf. Everybody else
# needs a password, also the pool.
#
# TYPE  DATABASE     USER      ADDRESS       METHOD
local   all          postgres                peer map=sluice
local   all          all                     scram-sha-256
local   replication  all                     scram-sha-256
host    all          all       127.0.0.1/32  scram-sha-256
host    all          all       ::1/128       scram-sha-256
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("postgres"), "\"postgres\"");
        assert_eq!(quoted("/^x\""), "\"/^x\"\"\"");
    }

    #[test]
    fn a_child_that_takes_too_long_is_ended() {
        let run_as = RunAs::resolve(None).unwrap();
        let child = run_as.command("sleep", Signal::SIGKILL).arg("60").spawn().unwrap();
        assert_eq!(wait(child, Duration::from_millis(50)).unwrap(), None);
        let child = run_as.command("false", Signal::SIGKILL).spawn().unwrap();
        assert_eq!(wait(child, Duration::from_secs(10)).unwrap().unwrap().code(), Some(1));
    }
}
