//! The thread that owns the postmaster. It alone spawns, signals and reaps it, so no signal ever goes to a process
//! that has taken over an old number.

use std::{
    cell::RefCell,
    io,
    process::{Child, ExitStatus, Stdio},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};

use super::{
    PostgresConfig, Shared, StartError, State, StopReport, conf, launch, log_file,
    restart::{Decision, History},
};
use crate::{
    class::ClassGroup,
    diagnosis::Tail,
    event::{Event, Observer},
    orphans,
    pid_file::{self, PidFile, Runner, Status},
    stop_mode::StopMode,
};

/// Time limit for an immediate shutdown, before it becomes a kill.
pub(super) const IMMEDIATE_TIME_MAX: Duration = Duration::from_secs(10);
/// Time limit for the kernel to end a killed process and its children.
pub(super) const KILL_TIME_MAX: Duration = Duration::from_secs(10);

/// Time limit for the server of an earlier run to leave: a Sluice that was killed has its server shut down by
/// the kernel, and the next one may meet it.
const LEAVING_TIME_MAX: Duration = Duration::from_secs(30);
/// Time limit for it to say that it is leaving.
const SIGNAL_TIME_MAX: Duration = Duration::from_secs(2);
/// Time limit for children of a dead postmaster to leave by themselves.
const ORPHAN_TIME_MAX: Duration = Duration::from_secs(2);

const POLL_READY: Duration = Duration::from_millis(20);
const TELL_EVERY: Duration = Duration::from_secs(1);
const TRIM_EVERY: Duration = Duration::from_secs(60);

/// A message to the keeper.
#[derive(Debug)]
pub(super) enum Message {
    /// The postmaster with this number has ended, and can be reaped.
    Exited(u32),
    /// Stop it, or stop it harder.
    Stop(StopMode),
    /// Kill it and see what happens.
    Kill,
    /// Have it read its configuration again.
    Reload,
}

/// A postmaster.
struct Server {
    child: Child,
    began: Instant,
    /// The offset of its part of the log, in bytes.
    log_start: u64,
}

/// The event that ended a wait.
enum Wake {
    /// The postmaster has ended.
    Exited,
    /// A stop was asked for.
    Stop(StopMode),
    /// The time is over.
    Timeout,
}

pub(super) struct Keeper {
    config: PostgresConfig,
    observer: Arc<dyn Observer>,
    shared: Arc<Shared>,
    /// From the first start to the last end of a postmaster.
    groups: RefCell<Option<ClassGroup>>,
    /// For the threads that wait for a postmaster's end.
    messages: Sender<Message>,
    inbox: Receiver<Message>,
}

impl Keeper {
    pub(super) fn new(
        config: PostgresConfig,
        observer: Arc<dyn Observer>,
        shared: Arc<Shared>,
        messages: Sender<Message>,
        inbox: Receiver<Message>,
    ) -> Self {
        Self { config, observer, shared, groups: RefCell::new(None), messages, inbox }
    }

    /// The keeper's life: a first start, whose outcome goes to `first`, then watching until a stop or giving up.
    pub(super) fn run(self, first: &SyncSender<Result<(), StartError>>) {
        let started = self.start(None);
        let answer = |result| {
            // Whoever started us is waiting for this.
            let _ = first.send(result);
        };
        let mut server = match started {
            Ok(server) => server,
            Err(error) => {
                self.remove_groups();
                self.shared.set(State::Failed { error: error.to_string() });
                return answer(Err(error));
            }
        };
        answer(Ok(()));
        let mut history = History::new(self.config.restart);
        loop {
            let ready_since = Instant::now();
            let previous = server.child.id();
            let Some(status) = self.watch(server) else { return };
            self.observer.event(Event::Crashed { status });
            match self.restart(&mut history, ready_since, status, previous) {
                Some(next) => server = next,
                None => return,
            }
        }
    }

    /// Starts a server and waits until it is ready. One that does not get there is ended. The crash of `previous`, if
    /// there was one, is known already.
    fn start(&self, previous: Option<u32>) -> Result<Server, StartError> {
        self.clear_the_way(previous.map(raw))?;
        conf::write(&self.config)?;
        let server = self.spawn()?;
        self.observer.event(Event::Starting { pid: server.child.id() });
        self.await_ready(server)
    }

    /// Makes sure that no server, and no part of one, is left on the data directory.
    fn clear_the_way(&self, previous: Option<Pid>) -> Result<(), StartError> {
        let pgdata = self.config.data_dir.pgdata();
        let runner = || pid_file::runner(pgdata).map_err(|source| StartError::io("read postmaster.pid", source));
        let begin = Instant::now();
        let mut told = false;
        loop {
            match runner()? {
                Runner::Nobody => break,
                Runner::Stale(pid) => {
                    if previous != Some(Pid::from_raw(pid)) {
                        self.observer.event(Event::StalePidFile { pid });
                    }
                    // PostgreSQL refuses to start if any process has that number, whatever it is by now.
                    std::fs::remove_file(pgdata.join(pid_file::NAME))
                        .map_err(|source| StartError::io("remove a stale postmaster.pid", source))?;
                    break;
                }
                Runner::Live(pid) if begin.elapsed() >= self.patience_with(pid) => {
                    return Err(StartError::AlreadyRunning { pid, pgdata: pgdata.to_owned() });
                }
                Runner::Live(pid) if !told => {
                    self.observer.event(Event::WaitingForEarlier { pid });
                    told = true;
                }
                Runner::Live(_) => thread::sleep(POLL_READY),
            }
        }
        let count = orphans::end_all(pgdata, ORPHAN_TIME_MAX, &[Signal::SIGQUIT, Signal::SIGKILL]);
        if count > 0 {
            self.observer.event(Event::EndedOrphans { count });
        }
        Ok(())
    }

    /// Time limit for a server to leave: short if it does not say that it is stopping.
    fn patience_with(&self, pid: i32) -> Duration {
        let stopping = |file: PidFile| file.pid == pid && file.status == Status::Stopping;
        // A file that vanishes here is a server that has just left.
        let leaving = PidFile::read(self.config.data_dir.pgdata()).is_ok_and(|file| file.is_none_or(stopping));
        if leaving { LEAVING_TIME_MAX } else { SIGNAL_TIME_MAX }
    }

    fn spawn(&self) -> Result<Server, StartError> {
        let path = self.config.data_dir.log_file();
        let log_error = |source| StartError::io(format!("open the log {}", path.display()), source);
        let (log, log_start) = log_file::open(&path).map_err(log_error)?;
        let output = [Stdio::from(log.try_clone().map_err(log_error)?), Stdio::from(log)];
        let program = self.config.data_dir.binaries().postgres.display();
        let child = self.launch(output).map_err(|source| StartError::io(format!("run {program}"), source))?;
        let server = Server { child, began: Instant::now(), log_start };
        match self.tell_exit(server.child.id()) {
            Ok(()) => Ok(server),
            Err(source) => {
                self.end_now(server);
                Err(StartError::io("start the thread that waits for PostgreSQL", source))
            }
        }
    }

    /// Starts a postmaster within its class, and tells what is enforced of that if it is news.
    fn launch(&self, output: [Stdio; 2]) -> io::Result<Child> {
        let mut groups = self.groups.borrow_mut();
        let data_dir = &self.config.data_dir;
        let groups = groups.get_or_insert_with(|| {
            let groups = ClassGroup::create(&self.config.class, data_dir.root(), data_dir.pgdata());
            for path in groups.leftovers() {
                self.observer.event(Event::RemovedLeftover { path: path.clone() });
            }
            groups
        });
        let child = launch::launch(&self.config, groups, output)?;
        let report = groups.report().clone();
        if *self.shared.class() != report {
            *self.shared.class() = report.clone();
            self.observer.event(Event::Class { report });
        }
        Ok(child)
    }

    /// Removes the groups. Called when no postmaster is left, and none will be started.
    fn remove_groups(&self) {
        if let Some(mut groups) = self.groups.take() {
            groups.remove();
        }
    }

    /// Has a thread wait for the end of process `pid`, without reaping it.
    fn tell_exit(&self, pid: u32) -> std::io::Result<()> {
        let messages = self.messages.clone();
        let wait = move || {
            while waitid(Id::Pid(raw(pid)), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(nix::Error::EINTR) {}
            // No receiver: the keeper has ended.
            let _ = messages.send(Message::Exited(pid));
        };
        thread::Builder::new().name("postgres-exit".to_owned()).spawn(wait).map(drop)
    }

    fn await_ready(&self, mut server: Server) -> Result<Server, StartError> {
        let pid = server.child.id();
        let log = self.config.data_dir.log_file();
        let mut told = server.began;
        loop {
            match self.wake(&server, POLL_READY) {
                Wake::Timeout => {}
                Wake::Stop(mode) => {
                    self.stop(server, mode);
                    return Err(StartError::Interrupted);
                }
                Wake::Exited => {
                    let status = server.child.wait().map_err(|source| StartError::io("reap PostgreSQL", source))?;
                    let tail = Tail::of_file(&log, server.log_start);
                    return Err(StartError::Exited { status, log, tail });
                }
            }
            // An unreadable file is no answer: the time limit decides.
            let file = PidFile::read(self.config.data_dir.pgdata()).ok().flatten();
            let waited = server.began.elapsed();
            if file.is_some_and(|file| file.status == Status::Ready && u32::try_from(file.pid) == Ok(pid)) {
                self.shared.set(State::Ready { pid });
                self.observer.event(Event::Ready { pid, took: waited });
                return Ok(server);
            }
            if waited >= self.config.start_timeout {
                let tail = Tail::of_file(&log, server.log_start);
                self.end_now(server);
                return Err(StartError::NotReady { waited, log, tail });
            }
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                let last_log_line = Tail::of_file(&log, server.log_start).last_message();
                self.observer.event(Event::StillStarting { waited, last_log_line });
            }
        }
    }

    /// Watches a ready server; returns how it crashed, or `None` once it was stopped.
    fn watch(&self, mut server: Server) -> Option<ExitStatus> {
        loop {
            match self.wake(&server, TRIM_EVERY) {
                Wake::Exited => {
                    self.shared.set(State::Restarting);
                    // The process has ended, so this returns at once; it is our child and was not reaped before.
                    return Some(server.child.wait().unwrap_or_default());
                }
                Wake::Stop(mode) => {
                    self.stop(server, mode);
                    return None;
                }
                Wake::Timeout => {
                    if let Err(error) = log_file::trim(&self.config.data_dir.log_file()) {
                        tracing::warn!(%error, "cannot shorten PostgreSQL's log");
                    }
                }
            }
        }
    }

    /// Starts a crashed server again; `None` if it stays down.
    fn restart(
        &self,
        history: &mut History,
        ready_since: Instant,
        status: ExitStatus,
        previous: u32,
    ) -> Option<Server> {
        let mut ready_since = Some(ready_since);
        let log = self.config.data_dir.log_file();
        let mut error = format!("it ended by itself ({status}){}", Tail::of_file(&log, 0));
        loop {
            match history.failed(ready_since.take(), Instant::now()) {
                Decision::Restart { delay, failures } => {
                    self.observer.event(Event::Restarting { delay, failures });
                    if self.stop_within(delay) {
                        self.stopped(Instant::now(), None, None);
                        return None;
                    }
                }
                Decision::GiveUp { failures } => {
                    self.remove_groups();
                    self.shared.set(State::Failed { error: error.clone() });
                    let stable_after = self.config.restart.stable_after;
                    self.observer.event(Event::GaveUp { failures, stable_after, error });
                    return None;
                }
            }
            match self.start(Some(previous)) {
                Ok(server) => return Some(server),
                Err(StartError::Interrupted) => return None,
                Err(failure) => {
                    error = failure.to_string();
                    self.observer.event(Event::RestartFailed { error: error.clone() });
                }
            }
        }
    }

    /// Stops a server: as asked at first, harder when asked again or when it takes too long.
    fn stop(&self, mut server: Server, mode: StopMode) {
        let begin = Instant::now();
        let mut mode = mode;
        self.shared.set(State::Stopping);
        loop {
            self.observer.event(Event::Stopping { mode });
            self.signal(&mut server, mode);
            match self.await_harder(&server, mode) {
                Wake::Exited => break,
                Wake::Stop(harder) => mode = harder,
                Wake::Timeout => match mode {
                    StopMode::Fast => mode = StopMode::Immediate,
                    StopMode::Immediate => mode = StopMode::Kill,
                    // It hangs in the kernel: nothing more can be done from here.
                    StopMode::Kill => return self.stopped(begin, Some(mode), None),
                },
            }
        }
        // It has ended, and the status of one that was made to do so in haste tells nothing new.
        let status = server.child.wait().ok();
        let failed = status.filter(|status| mode == StopMode::Fast && !status.success());
        if mode == StopMode::Kill {
            orphans::end_all(self.config.data_dir.pgdata(), Duration::ZERO, &[Signal::SIGKILL]);
        }
        self.stopped(begin, Some(mode), failed);
    }

    /// Waits for the end, or for a reason to be harder than `mode`.
    fn await_harder(&self, server: &Server, mode: StopMode) -> Wake {
        let deadline = Instant::now()
            + match mode {
                StopMode::Fast => self.config.stop_timeout,
                StopMode::Immediate => IMMEDIATE_TIME_MAX,
                StopMode::Kill => KILL_TIME_MAX,
            };
        loop {
            match self.wake(server, deadline.saturating_duration_since(Instant::now())) {
                Wake::Stop(wanted) if wanted <= mode => {}
                wake => return wake,
            }
        }
    }

    fn stopped(&self, begin: Instant, mode: Option<StopMode>, failed: Option<ExitStatus>) {
        let took = begin.elapsed();
        self.remove_groups();
        // Before whoever waits for it goes on.
        self.observer.event(Event::Stopped { took, failed });
        self.shared.set(State::Stopped(StopReport { mode, took, failed }));
    }

    fn signal(&self, server: &mut Server, mode: StopMode) {
        let signal = match mode {
            StopMode::Fast => Signal::SIGINT,
            StopMode::Immediate => Signal::SIGQUIT,
            StopMode::Kill => Signal::SIGKILL,
        };
        self.send_signal(server, signal);
    }

    /// The child has not been reaped as long as its [`Server`] exists, so the number is its own.
    fn send_signal(&self, server: &Server, signal: Signal) {
        if let Err(error) = kill(raw(server.child.id()), signal) {
            tracing::warn!(%error, %signal, "cannot signal PostgreSQL");
        }
    }

    /// Ends a server that is of no use, without telling.
    fn end_now(&self, mut server: Server) {
        self.send_signal(&server, Signal::SIGQUIT);
        let begin = Instant::now();
        while begin.elapsed() < IMMEDIATE_TIME_MAX {
            match server.child.try_wait() {
                Ok(None) => thread::sleep(POLL_READY),
                _ => return,
            }
        }
        // Both fail only if it has just ended.
        let _ = server.child.kill();
        let _ = server.child.wait();
    }

    /// Waits for what concerns `server`; carries out small wishes meanwhile.
    fn wake(&self, server: &Server, time_max: Duration) -> Wake {
        let deadline = Instant::now() + time_max;
        loop {
            match self.inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Message::Exited(pid)) if pid == server.child.id() => return Wake::Exited,
                // An earlier server's.
                Ok(Message::Exited(_)) => {}
                Ok(Message::Stop(mode)) => return Wake::Stop(mode),
                Ok(Message::Kill) => self.send_signal(server, Signal::SIGKILL),
                Ok(Message::Reload) => self.send_signal(server, Signal::SIGHUP),
                Err(RecvTimeoutError::Timeout) => return Wake::Timeout,
                // Can't be: we hold a sender ourselves.
                Err(RecvTimeoutError::Disconnected) => return Wake::Stop(StopMode::Fast),
            }
        }
    }

    /// Waits while no server exists; returns whether a stop was asked for.
    fn stop_within(&self, time_max: Duration) -> bool {
        let deadline = Instant::now() + time_max;
        loop {
            match self.inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Message::Stop(_)) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }
}

fn raw(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed())
}
