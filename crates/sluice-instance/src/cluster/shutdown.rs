//! A primary's shutdown: what makes it short, and a way to begin it a moment before its Patroni asks for it.
//!
//! Patroni signals the postmaster, and looks a second later whether it has ended (`_wait_for_connection_close` and the
//! loop behind it, 4.1), while the shutdown itself takes some hundredths of one. In a switchover all clients wait for
//! that. A postmaster that has ended before Patroni signals it is not waited for.

use std::{
    io,
    path::Path,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use postgres::{Config, NoTls};

use crate::{
    bootstrap::{SEARCH_PATH, SUPERUSER},
    orphans,
    pid_file::{self, Runner},
};

/// The time that a checkpoint may take before nobody waits for it any more; it goes on.
const CHECKPOINT_TIME_MAX: Duration = Duration::from_secs(120);

const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// The time for whoever has adopted a postmaster to reap it when it has ended; one that takes longer may take seconds.
const REAP_TIME_MAX: Duration = Duration::from_millis(100);
const POLL: Duration = Duration::from_millis(5);

/// Has the PostgreSQL on `pgdata` make a checkpoint, by its Unix socket, so that one that Patroni makes while clients are
/// held has little left to write. `false` where none runs.
///
/// # Errors
///
/// The data directory can't be read, this user is not let in, or it takes too long.
pub fn checkpoint(pgdata: &Path) -> io::Result<bool> {
    let Some(mut config) = superuser(pgdata)? else { return Ok(false) };
    config.options(&format!("{SEARCH_PATH} -c statement_timeout={}", CHECKPOINT_TIME_MAX.as_millis()));
    // A PostgreSQL that is stopped where it is lets the kernel take a connection, and says nothing: no limit of the
    // driver's or the server's own ends that.
    let ((connected, has_connected), (done, is_done)) = (mpsc::channel(), mpsc::channel());
    thread::spawn(move || {
        let made = config.connect(NoTls).and_then(|mut client| {
            let _nobody_waits = connected.send(());
            client.batch_execute("CHECKPOINT")
        });
        let _nobody_waits = done.send(made);
    });
    if has_connected.recv_timeout(CONNECT_TIME_MAX) == Err(RecvTimeoutError::Timeout) {
        let error = format!("PostgreSQL does not answer within {} s", CONNECT_TIME_MAX.as_secs());
        return Err(io::Error::new(io::ErrorKind::TimedOut, error));
    }
    let made = is_done.recv_timeout(CHECKPOINT_TIME_MAX + CONNECT_TIME_MAX).map_err(io::Error::other)?;
    made.map_err(io::Error::other)?;
    Ok(true)
}

/// Ends the sessions of clients of the PostgreSQL on `pgdata`, as its fast shutdown would, while it goes on: Patroni would
/// start one again that has ended. `false` where none runs.
///
/// # Errors
///
/// As with [`checkpoint`].
pub(super) fn end_sessions(pgdata: &Path) -> io::Result<bool> {
    const END: &str = "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity \
                       WHERE backend_type = 'client backend' AND pid <> pg_catalog.pg_backend_pid() \
                       AND application_name NOT LIKE 'Patroni%'";
    let Some(config) = superuser(pgdata)? else { return Ok(false) };
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let ended = config.connect(NoTls).and_then(|mut client| client.batch_execute(END));
        let _nobody_waits = done.send(ended);
    });
    // One that is stopped where it is says nothing.
    is_done.recv_timeout(CONNECT_TIME_MAX).map_err(io::Error::other)?.map_err(io::Error::other)?;
    Ok(true)
}

/// A connection as the superuser to the PostgreSQL on `pgdata`, by its Unix socket; `None` where none runs.
pub(super) fn superuser(pgdata: &Path) -> io::Result<Option<Config>> {
    let Some((dir, port)) = pid_file::socket(&pgdata.canonicalize()?)? else { return Ok(None) };
    let mut config = Config::new();
    config.host_path(dir).port(port).user(SUPERUSER).dbname("postgres").application_name("sluice cluster");
    config.connect_timeout(CONNECT_TIME_MAX).options(SEARCH_PATH);
    Ok(Some(config))
}

/// Asks the PostgreSQL on `pgdata` for a fast shutdown, as its Patroni does, and waits for its end: `true` when there is
/// none any more, `false` when it takes longer than `time_max`, and goes on.
///
/// A fast shutdown ends only when each standby that is connected has all of the log ("Shutting Down the Server" in
/// PostgreSQL's documentation), whoever has asked for it.
///
/// # Errors
///
/// A data directory that can't be read, or a postmaster that this user may not signal.
pub fn shut_down(pgdata: &Path, time_max: Duration) -> io::Result<bool> {
    // Processes are known by the path without links.
    let pgdata = pgdata.canonicalize()?;
    let Runner::Live(postmaster) = pid_file::runner(&pgdata)? else { return Ok(true) };
    let begin = Instant::now();
    match kill(Pid::from_raw(postmaster), Signal::SIGINT) {
        Ok(()) => {}
        Err(Errno::ESRCH) => return Ok(true),
        Err(error) => return Err(error.into()),
    }
    while orphans::is_server_of(postmaster, &pgdata) {
        if begin.elapsed() >= time_max {
            return Ok(false);
        }
        thread::sleep(POLL);
    }
    // Patroni would take one that was not reaped yet for one that runs.
    let (ended, process) = (Instant::now(), Path::new("/proc").join(postmaster.to_string()));
    while process.exists() && ended.elapsed() < REAP_TIME_MAX {
        thread::sleep(POLL);
    }
    Ok(true)
}
