//! One PostgreSQL server as a child process: started, watched, started again when it crashes, stopped.
//!
//! A thread of its own, the keeper, owns the child. The kernel ends the child when that thread ends, so a Sluice that
//! is killed leaves no server behind. This module starts a server on a [`DataDir`]; it creates nothing in it but
//! `sluice.conf` and the log.

pub(crate) mod conf;
mod config;
mod error;
mod keeper;
mod launch;
pub(crate) mod log_file;
mod restart;

use std::{
    process::ExitStatus,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use self::keeper::{Keeper, Message};
pub(crate) use self::restart::{Decision, History};
pub use self::{config::PostgresConfig, error::StartError, restart::RestartPolicy};
use crate::{class::ClassReport, data_dir::DataDir, endpoint::Endpoint, event::Observer, stop_mode::StopMode};

/// The report of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopReport {
    /// The last mode that was needed; `None` if no server was running.
    pub mode: Option<StopMode>,
    /// From the request to the end of the postmaster.
    pub took: Duration,
    /// The status of a PostgreSQL that did not shut down in order though it was asked to, as on a full disk; the next
    /// start recovers its data.
    pub failed: Option<ExitStatus>,
}

/// The state of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It has been started and is not ready yet.
    Starting,
    /// It accepts connections.
    Ready {
        /// The postmaster.
        pid: u32,
    },
    /// It crashed and will be started again.
    Restarting,
    /// It is being shut down.
    Stopping,
    /// It failed too often, or at its first start, and stays down.
    Failed {
        /// The reason.
        error: String,
    },
    /// It was stopped on request.
    Stopped(StopReport),
}

impl State {
    fn is_final(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Stopped(_))
    }
}

/// The state that keeper and handles share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    class: Mutex<ClassReport>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A state is replaced whole, so one that a panicking thread left is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.lock() = state;
        self.changed.notify_all();
    }

    /// The report on the class's limits.
    fn class(&self) -> MutexGuard<'_, ClassReport> {
        // Replaced whole, too.
        self.class.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `done` holds; `None` when the time is over.
    fn wait(&self, time_max: Duration, done: impl Fn(&State) -> bool) -> Option<State> {
        let (state, _) = self
            .changed
            .wait_timeout_while(self.lock(), time_max, |state| !done(state))
            .unwrap_or_else(PoisonError::into_inner);
        Some(state.clone()).filter(done)
    }
}

/// A running server. Dropping it stops it by a fast shutdown.
#[derive(Debug)]
pub struct Postgres {
    shared: Arc<Shared>,
    messages: Sender<Message>,
    keeper: Option<JoinHandle<()>>,
    data_dir: Arc<DataDir>,
    endpoint: Endpoint,
    stop_time_max: Duration,
}

impl Postgres {
    /// Starts the server and waits until it accepts connections.
    pub fn start(config: PostgresConfig, observer: Arc<dyn Observer>) -> Result<Self, StartError> {
        let (state, class) = (Mutex::new(State::Starting), Mutex::default());
        let shared = Arc::new(Shared { state, changed: Condvar::new(), class });
        let (messages, inbox) = mpsc::channel();
        let (first, started) = mpsc::sync_channel(1);
        let (data_dir, endpoint) = (Arc::clone(&config.data_dir), config.endpoint());
        // What a stop takes at most: each mode's time in turn, and the end of orphans.
        let stop_time_max = config.stop_timeout + keeper::IMMEDIATE_TIME_MAX + keeper::KILL_TIME_MAX;
        let keeper = Keeper::new(config, observer, Arc::clone(&shared), messages.clone(), inbox);
        let keeper = thread::Builder::new()
            .name("postgres-keeper".to_owned())
            .spawn(move || keeper.run(&first))
            .map_err(|source| StartError::Io { what: "start the thread that keeps PostgreSQL".to_owned(), source })?;
        let server = Self { shared, messages, keeper: Some(keeper), data_dir, endpoint, stop_time_max };
        // The keeper answers before it ends, unless it panics.
        started.recv().unwrap_or(Err(StartError::KeeperDied))?;
        Ok(server)
    }

    /// The endpoint that it listens on.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its directory.
    pub fn data_dir(&self) -> &Arc<DataDir> {
        &self.data_dir
    }

    /// Its current state.
    pub fn state(&self) -> State {
        self.shared.lock().clone()
    }

    /// The limits of its class, enforced or not, as read back when it was last started.
    pub fn class(&self) -> ClassReport {
        self.shared.class().clone()
    }

    /// The postmaster's process while the server is ready.
    pub fn pid(&self) -> Option<u32> {
        match *self.shared.lock() {
            State::Ready { pid } => Some(pid),
            _ => None,
        }
    }

    /// Waits until a postmaster other than `previous` is ready, for example after [`Postgres::kill`]; returns its
    /// process, or `None` if the time is over or the server stays down.
    pub fn wait_ready(&self, previous: Option<u32>, time_max: Duration) -> Option<u32> {
        let fresh = |state: &State| matches!(state, State::Ready { pid } if Some(*pid) != previous);
        match self.shared.wait(time_max, |state| fresh(state) || state.is_final())? {
            State::Ready { pid } => Some(pid),
            _ => None,
        }
    }

    /// Kills the postmaster, as a crash would; the keeper starts it again. For tests.
    pub fn kill(&self) {
        self.send(Message::Kill);
    }

    /// Has the configuration files read again (SIGHUP).
    pub fn reload(&self) {
        self.send(Message::Reload);
    }

    /// Stops the server and waits until it has ended. A second call, from another thread, with a harder mode hastens
    /// the first. Bounded: a shutdown that takes longer than `stop_timeout` becomes an immediate one, then a kill.
    pub fn stop(&self, mode: StopMode) -> StopReport {
        let begin = Instant::now();
        self.request_stop(mode);
        match self.shared.wait(self.stop_time_max, State::is_final) {
            Some(State::Stopped(report)) => report,
            _ => StopReport { mode: None, took: begin.elapsed(), failed: None },
        }
    }

    /// Asks for a stop, or for a harder one, without waiting for it.
    pub fn request_stop(&self, mode: StopMode) {
        self.send(Message::Stop(mode));
    }

    fn send(&self, message: Message) {
        // No receiver: the keeper has ended, and with it the server.
        let _ = self.messages.send(message);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop(StopMode::Fast);
        if let Some(keeper) = self.keeper.take() {
            // A panic of the keeper was reported by its thread.
            let _ = keeper.join();
        }
    }
}
