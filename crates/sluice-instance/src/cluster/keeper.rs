//! One node, kept running: its Patroni and by it PostgreSQL, the look-out for a postmaster that has ended, and the
//! survivor that looks after the primary. The same for a node of `sluice up` and for a host of its own.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    environment::Environment,
    error::{ClusterError, LogEnd},
    half_copy,
    patroni::{self, Node},
    process::{Process, Program},
    reaper,
    rest::Api,
    survivors::{Agent, Electorate},
    waker::Waker,
};
use crate::{
    event::Observer,
    orphans,
    pid_file::{self, Runner},
    run_as::RunAs,
    stop_mode::StopMode,
};

const POLL: Duration = Duration::from_millis(50);
/// Time limit for an immediate shutdown, before it becomes a kill.
const IMMEDIATE_TIME_MAX: Duration = Duration::from_secs(10);
/// Time limit for the kernel to end what was killed.
const KILL_TIME_MAX: Duration = Duration::from_secs(10);

/// A program that runs, or none.
#[derive(Debug, Default)]
pub(super) struct Slot(Mutex<Option<Process>>);

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        // It is replaced whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a program, unless one is kept already.
    pub(super) fn keep(&self, program: Program, observer: &Arc<dyn Observer>) -> Result<(), ClusterError> {
        let mut slot = self.lock();
        if slot.is_none() {
            let log = program.log.clone();
            let process = Process::start(program, Arc::clone(observer));
            *slot = Some(process.map_err(ClusterError::io("start the thread that keeps the program of", &log))?);
        }
        Ok(())
    }

    /// Takes the process out: it is its caller's now.
    pub(super) fn take(&self) -> Option<Process> {
        self.lock().take()
    }

    pub(super) fn is_kept(&self) -> bool {
        self.lock().is_some()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.lock().as_ref()?.status().pid
    }

    /// Sends the program a signal, if it runs.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(process) = &*self.lock() {
            process.signal(signal);
        }
    }

    /// Ends that nobody asked for, in a row.
    pub(super) fn failures(&self) -> u32 {
        self.lock().as_ref().map_or(0, |process| process.status().failures)
    }

    pub(super) fn log_end(&self) -> Option<LogEnd> {
        self.lock().as_ref().map(|process| LogEnd { log: process.log().to_owned(), tail: process.tail() })
    }
}

/// The node's place among others, and what it is run with.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    /// The cluster's name.
    pub(super) scope: String,
    pub(super) run_as: RunAs,
    pub(super) environment: Environment,
    pub(super) api: Api,
    /// Time limit for its shutdown, before that becomes an immediate one.
    pub(super) stop_timeout: Duration,
}

/// A node that is kept.
pub(super) struct NodeKeeper {
    node: Node,
    around: Surroundings,
    /// None: it has no survivor.
    survivor: Option<Electorate>,
    observer: Arc<dyn Observer>,
    pub(super) patroni: Slot,
    waker: Mutex<Option<Waker>>,
    agent: Mutex<Option<Agent>>,
}

impl NodeKeeper {
    pub(super) fn new(
        node: Node,
        around: Surroundings,
        survivor: Option<Electorate>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let (patroni, waker, agent) = Default::default();
        Self { node, around, survivor, observer, patroni, waker, agent }
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// The process of its postmaster.
    pub(super) fn postmaster_pid(&self) -> Option<u32> {
        match pid_file::runner(&self.node.pgdata) {
            Ok(Runner::Live(pid)) => u32::try_from(pid).ok(),
            _ => None,
        }
    }

    /// All of its processes: Patroni's, and PostgreSQL's.
    pub(super) fn processes(&self) -> Vec<u32> {
        let servers = orphans::servers_of(&self.node.pgdata);
        self.patroni.pid().into_iter().chain(servers.into_iter().map(|pid| pid.as_raw().cast_unsigned())).collect()
    }

    /// Starts its Patroni, unless it is kept already, and by it PostgreSQL; one that runs there is taken over.
    pub(super) fn start(&self) -> Result<(), ClusterError> {
        reaper::start().map_err(ClusterError::io("adopt the orphans of", &self.node.home))?;
        let Surroundings { scope, run_as, environment, api, .. } = self.around.clone();
        let own = self.node.clone();
        let has_run = AtomicBool::new(false);
        let command = move || {
            // Whose Patroni ends in the midst of a copy, its next one would wait for somebody to remove that.
            if has_run.swap(true, Ordering::Relaxed) {
                half_copy::remove(&own.home)?;
            }
            Ok(patroni::command(&environment, &run_as, &own))
        };
        let Node { name, log, .. } = self.node.clone();
        let program = Program { name, log, command: Box::new(command) };
        self.patroni.keep(program, &self.observer)?;
        let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if waker.is_none() {
            let started = Waker::start(&self.node, &api);
            *waker = Some(started.map_err(ClusterError::io("start the thread that watches", &self.node.pgdata))?);
        }
        let Some(electorate) = self.survivor.clone() else { return Ok(()) };
        let mut agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
        if agent.is_none() {
            let run_as = &self.around.run_as;
            let started = Agent::start(&scope, &self.node, run_as, api, electorate, Arc::clone(&self.observer));
            *agent = Some(started.map_err(ClusterError::io("start the survivor of", &self.node.home))?);
        }
        Ok(())
    }

    /// Has its Patroni read its configuration again, and write PostgreSQL's rules by it.
    pub(super) fn reload(&self) {
        self.patroni.signal(Signal::SIGHUP);
    }

    /// Stops its Patroni and PostgreSQL, as hard as `haste` says meanwhile; returns the last mode that was needed, none
    /// if nothing ran. Bounded: a shutdown that takes too long becomes an immediate one, then a kill.
    pub(super) fn stop(&self, haste: &dyn Fn() -> StopMode) -> Option<StopMode> {
        let _agent = self.stop_watching();
        let patroni = self.patroni.take();
        let mut mode = StopMode::Fast;
        if let Some(patroni) = &patroni {
            patroni.request_stop(Signal::SIGTERM);
            // It can't hear that while it is stopped itself.
            patroni.signal(Signal::SIGCONT);
            mode = self.await_end(patroni, haste);
        } else if self.postmaster_pid().is_none() {
            return None;
        }
        drop(patroni);
        // What Patroni has left.
        self.signal_postmaster(Signal::SIGINT);
        let alone = if haste() == StopMode::Fast { IMMEDIATE_TIME_MAX } else { Duration::ZERO };
        let left = orphans::end_all(&self.node.pgdata, alone, &[Signal::SIGQUIT, Signal::SIGKILL]);
        // Whatever Patroni's end was like, that server's was not in order.
        Some(if left > 0 { mode.max(StopMode::Immediate) } else { mode })
    }

    /// Kills it as the loss of its host would: Patroni and all of its PostgreSQL. It stays down until it is started.
    pub(super) fn kill(&self) {
        let _agent = self.stop_watching();
        if let Some(patroni) = self.patroni.take() {
            patroni.request_stop(Signal::SIGKILL);
            orphans::end_all(&self.node.pgdata, Duration::ZERO, &[Signal::SIGKILL]);
            patroni.wait_over(KILL_TIME_MAX);
        }
        orphans::end_all(&self.node.pgdata, Duration::ZERO, &[Signal::SIGKILL]);
    }

    /// A node that is being stopped has no vote any more. What is returned has to be dropped when its PostgreSQL has
    /// ended, which it may be waiting for.
    fn stop_watching(&self) -> Option<Agent> {
        let mut agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner).take();
        agent.iter_mut().for_each(Agent::request_stop);
        drop(self.waker.lock().unwrap_or_else(PoisonError::into_inner).take());
        agent
    }

    /// Waits for Patroni's end; hastens it when that is asked for or takes too long.
    fn await_end(&self, patroni: &Process, haste: &dyn Fn() -> StopMode) -> StopMode {
        let begin = Instant::now();
        let mut mode = StopMode::Fast;
        while !patroni.wait_over(POLL) {
            let waited = begin.elapsed();
            let wanted = if waited >= self.around.stop_timeout + IMMEDIATE_TIME_MAX {
                StopMode::Kill
            } else if waited >= self.around.stop_timeout {
                StopMode::Immediate
            } else {
                haste()
            };
            if wanted <= mode {
                continue;
            }
            mode = wanted;
            match mode {
                // Patroni waits for just this.
                StopMode::Fast | StopMode::Immediate => self.signal_postmaster(Signal::SIGQUIT),
                StopMode::Kill => {
                    patroni.request_stop(Signal::SIGKILL);
                    patroni.wait_over(KILL_TIME_MAX);
                    break;
                }
            }
        }
        mode
    }

    fn signal_postmaster(&self, signal: Signal) {
        if let Some(pid) = self.postmaster_pid() {
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
        }
    }
}

/// Time limit for etcd to leave in order.
const ETCD_TIME_MAX: Duration = Duration::from_secs(2);

/// Stops a member of etcd: a leader that leaves hands over to another one, for which it waits.
pub(super) fn stop_etcd(etcd: &Slot) {
    if let Some(etcd) = etcd.take() {
        etcd.request_stop(Signal::SIGTERM);
        // Dropping what has not ended kills it, which loses nothing: what etcd has answered is on disk.
        etcd.wait_over(ETCD_TIME_MAX);
    }
}
