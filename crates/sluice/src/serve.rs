//! The pool, as this command sees it: a configuration file in, a running service out.
//!
//! The one file that starts what `sluice-proxy` has to offer.

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use sluice_proxy::{GivesUp, Inherited, Predecessor, Pulse, Service, Successor};
use thiserror::Error;

use crate::{
    signals::{Signals, Wake},
    systemd::Systemd,
    upgrade::{self, Program},
};

/// The interval at which a process that was taken over from looks whether its clients have left.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// The end of a process whose reason the log has already: there is no more to say.
#[derive(Debug, Error)]
#[error("the log says why")]
pub(crate) struct Told;

/// A running pool.
pub(crate) struct Pool {
    service: Service,
}

impl Pool {
    /// Starts the pool on a configuration file.
    pub(crate) fn start(file: &Path) -> Result<Self> {
        Self::start_with(file, Inherited::default())
    }

    fn start_with(file: &Path, inherited: Inherited) -> Result<Self> {
        Ok(Self { service: Service::start(file, inherited)? })
    }

    /// The addresses that it listens on, with the ports that the system chose for port 0.
    pub(crate) fn listen_addrs(&self) -> Vec<SocketAddr> {
        self.service.listen_addrs()
    }

    /// Reads its configuration file again; the log says what has come of it, and the result whether it went well.
    pub(crate) fn reload(&self) -> bool {
        self.service.reload()
    }

    /// Ends it: new clients are refused, transactions may finish within `shutdown_grace`.
    pub(crate) fn shutdown(self) {
        self.service.shutdown();
    }

    fn log_addresses(&self) {
        let whose = |is_activated| if is_activated { ", a socket that this process was started with" } else { "" };
        let of_http = whose(self.service.is_http_activated());
        for address in self.service.http_addrs() {
            tracing::info!("metrics at http://{address}/metrics{of_http}");
        }
        let whose = whose(self.service.is_activated());
        let driver = self.service.driver();
        for address in self.service.listen_addrs() {
            tracing::info!("listening on {address} ({driver}){whose}");
        }
        for path in self.service.unix_sockets() {
            tracing::info!("listening on {} ({driver}){whose}", path.display());
        }
    }

    /// The addresses in a line.
    fn status(&self) -> String {
        let tcp = self.service.listen_addrs().into_iter().map(|address| address.to_string());
        let unix = self.service.unix_sockets().into_iter().map(|path| path.display().to_string());
        format!("Listening on {}", tcp.chain(unix).collect::<Vec<_>>().join(", "))
    }

    fn pulse(&self) -> Pulse {
        self.service.pulse()
    }
}

/// `sluice serve`: the pool alone, until a signal, or until another process has taken over and the last client is gone.
pub(crate) fn serve(path: &Path) -> Result<()> {
    sluice_proxy::forbid_core_dumps();
    let mut inherited = Inherited::from_environment()?;
    let signals = Signals::install()?;
    let program = Program::of_this_process().map_err(|error| anyhow!("can't tell this program's path: {error}"))?;
    let mut predecessor = inherited.take_predecessor();
    let mut pool = Pool::start_with(path, inherited).map_err(|error| told(error, predecessor.as_mut()))?;
    pool.log_addresses();
    // There are clients from now on, who are to be sent away in order.
    signals.running();
    if let Some(predecessor) = &mut predecessor {
        let pid = predecessor.pid;
        if let Err(error) = predecessor.take_over() {
            tracing::error!("process {pid} does not hand over, and this one ends: {error}");
            return Err(Told.into());
        }
        pool.service.took_over();
        tracing::info!("taken over from process {pid}");
    }
    let systemd = Systemd::default();
    systemd.ready(&pool.status());
    systemd.watch(pool.pulse());
    let mut serving =
        Serving { signals: &signals, systemd: &systemd, program, predecessor, starting: None, successor: None };
    let end = serving.until_the_end(&mut pool);
    tracing::info!("stopping: {}", end.reason());
    systemd.stopping("Stopping: transactions may finish");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Each returns when `signals` is told to end, or with a signal: the second one of those who ask for the end.
            if (end == End::Signal || signals.wait_again()) && signals.wait_again() {
                tracing::warn!("ending at once");
                std::process::exit(1);
            }
        });
        pool.shutdown();
        signals.end();
    });
    Ok(())
}

/// Tells a predecessor why this process can't start, which has it in its log: that may be of JSON.
fn told(error: anyhow::Error, predecessor: Option<&mut Predecessor>) -> anyhow::Error {
    match predecessor.is_some_and(|predecessor| predecessor.tell_failure(&error.to_string())) {
        true => Told.into(),
        false => error,
    }
}

/// The reason for the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// A signal asks for it.
    Signal,
    /// Another process has taken over, and the last client has left.
    LastClient,
    /// Another process has taken over, and clients have been here for longer than they may.
    Grace,
    /// The process has ended that was to take over, when this one had given way already.
    Successor,
}

impl End {
    fn reason(self) -> &'static str {
        match self {
            Self::Signal => "transactions may finish; a second signal ends at once",
            Self::LastClient => "the last client has left",
            Self::Grace => "the time of those who are still here is over (upgrade_grace)",
            Self::Successor => "nobody is listening any longer",
        }
    }
}

/// A service that runs, and what it listens to.
struct Serving<'a> {
    signals: &'a Signals,
    systemd: &'a Systemd,
    program: Program,
    predecessor: Option<Predecessor>,
    /// The successor that is being started.
    starting: Option<GivesUp>,
    /// Kept to the end, by which it knows that cancels for clients here need to be passed on no more.
    successor: Option<Successor>,
}

impl Serving<'_> {
    /// Serves until there is a reason for the end.
    fn until_the_end(&mut self, pool: &mut Pool) -> End {
        loop {
            match self.signals.wait() {
                Wake::Reload => self.reload(pool),
                Wake::Upgrade => self.upgrade(pool),
                Wake::Upgraded(Ok(successor)) => return self.hand_over(pool, successor),
                Wake::Upgraded(Err(error)) => {
                    self.starting = None;
                    pool.service.keep_bequest();
                    tracing::error!("{}", upgrade::not_taken_over(&error));
                }
                Wake::Signal | Wake::Down(_) | Wake::End => {
                    self.give_up();
                    return End::Signal;
                }
            }
        }
    }

    fn reload(&self, pool: &Pool) {
        self.systemd.reloading();
        let status = pool.status();
        match pool.reload() {
            true => self.systemd.ready(&status),
            false => self.systemd.ready(&format!("{status}; the last reload failed, see the log")),
        }
    }

    /// Starts another process in the place of this one.
    fn upgrade(&mut self, pool: &mut Pool) {
        if self.starting.is_some() {
            tracing::warn!("a new process is being started already");
            return;
        }
        if std::process::id() == 1 {
            tracing::error!("this is process 1, whose end is the end of its container: restart that instead");
            return;
        }
        let bequest = pool.service.bequest();
        match bequest.and_then(|bequest| self.program.start(bequest, self.signals.sender())) {
            Ok((pid, gives_up)) => {
                self.starting = Some(gives_up);
                tracing::info!("starting {} again, as process {pid}", self.program.path().display());
            }
            Err(error) => {
                pool.service.keep_bequest();
                tracing::error!("{} can't be started again: {error}", self.program.path().display());
            }
        }
    }

    /// This process is to end: so is one that is being started in its place, which nobody would know of.
    fn give_up(&mut self) {
        let Some(starting) = self.starting.take() else { return };
        starting.give_up();
        let mut is_hasty = false;
        loop {
            match self.signals.wait() {
                Wake::Upgraded(outcome) => {
                    // It may have been ready a moment before.
                    let _ = outcome.map(Successor::end);
                    tracing::info!("the process that was being started in the place of this one has ended");
                    break;
                }
                Wake::Signal => is_hasty = true,
                Wake::Reload | Wake::Upgrade | Wake::Down(_) | Wake::End => {}
            }
        }
        if is_hasty {
            self.signals.signal_again();
        }
    }

    /// Leaves all new clients to the successor, and waits until those that are here have left, or their time is over.
    fn hand_over(&mut self, pool: &mut Pool, mut successor: Successor) -> End {
        pool.service.hand_over();
        self.systemd.handed_over(successor.pid());
        if let Err(error) = successor.go() {
            tracing::error!("process {} has ended as it was to take over: {error}", successor.pid());
            return End::Successor;
        }
        let grace = pool.service.upgrade_grace();
        let (clients, pid) = (pool.service.counts().0, successor.pid());
        self.successor = Some(successor);
        let clients = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
        tracing::info!("process {pid} has taken over; {clients} here may go on for {grace:?}");
        let (begin, mut has_ended) = (Instant::now(), false);
        while begin.elapsed() < grace {
            match self.signals.wait_for(LOOKS_EVERY) {
                Some(Wake::Reload) => {
                    // The log says what has come of it.
                    let _ = pool.reload();
                }
                Some(Wake::Upgrade) => tracing::warn!("process {pid} has taken over: it is the one to be upgraded"),
                Some(Wake::Signal | Wake::Down(_) | Wake::End) => return End::Signal,
                Some(Wake::Upgraded(_)) | None => {}
            }
            if !has_ended && self.successor.as_mut().is_some_and(Successor::has_ended) {
                has_ended = true;
                tracing::info!("process {pid}, which had taken over, has ended");
            }
            // Cancels for clients of that process come through this one.
            let is_last = self.predecessor.as_mut().is_none_or(Predecessor::is_gone);
            if pool.service.counts().0 == 0 && is_last {
                return End::LastClient;
            }
        }
        End::Grace
    }
}

/// `sluice check`: tells whether `serve` would accept the file.
pub(crate) fn check(path: &Path) -> Result<()> {
    let config = sluice_config::load(path).map_err(|report| anyhow!("{report}"))?;
    for warning in &config.warnings {
        say_aside!("warning: {warning}");
    }
    say!("{}: good", path.display());
    Ok(())
}
