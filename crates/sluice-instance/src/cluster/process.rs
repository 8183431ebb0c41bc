//! A program that is kept running: etcd's members, and the Patroni of each node.
//!
//! A thread of its own starts it, waits for its end and starts it again. The kernel ends the program when that thread
//! ends (`PR_SET_PDEATHSIG`), so a Sluice that is killed leaves none behind. It is never given up: whoever waits for it
//! has a deadline, and sees how often it has failed.

use std::{
    io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{Signal, kill, killpg},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};

use crate::{
    diagnosis::Tail,
    event::{Event, Observer},
    server::{Decision, History, RestartPolicy, log_file},
};

const TRIM_EVERY: Duration = Duration::from_secs(60);

/// A program, and how it is started.
pub(super) struct Program {
    /// As it is told of: `etcd1`, `node2`.
    pub(super) name: String,
    /// Makes the command, which dies with the thread that starts it; its output is set here. An error counts as an end.
    pub(super) command: Box<dyn Fn() -> io::Result<Command> + Send>,
    /// Its output.
    pub(super) log: PathBuf,
}

/// The program's present state.
#[derive(Debug, Clone, Default)]
pub(super) struct Status {
    /// Its process while it runs.
    pub(super) pid: Option<u32>,
    /// Ends that nobody asked for, in a row.
    pub(super) failures: u32,
    /// The offset in its log at which the part of its present run begins, in bytes.
    log_start: u64,
    /// It was stopped, and is not started again.
    is_over: bool,
}

#[derive(Debug)]
enum Message {
    Exited(u32),
    Signal(Signal),
    /// Send this to it, and do not start it again.
    Stop(Signal),
}

#[derive(Debug, Default)]
struct Shared {
    status: Mutex<Status>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Status> {
        // Plain values: what a panicking thread left is still good.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

/// A program that is kept running until it is stopped. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    shared: Arc<Shared>,
    messages: Sender<Message>,
    keeper: Option<JoinHandle<()>>,
    log: PathBuf,
}

impl Process {
    /// Starts it. Whether it comes up, its user has to find out.
    pub(super) fn start(program: Program, observer: Arc<dyn Observer>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (messages, inbox) = mpsc::channel();
        let log = program.log.clone();
        let policy = RestartPolicy { failures_max: u32::MAX, ..RestartPolicy::default() };
        let keeper = Keeper {
            program,
            observer,
            shared: Arc::clone(&shared),
            messages: messages.clone(),
            inbox,
            history: History::new(policy),
        };
        let name = format!("{}-keeper", keeper.program.name);
        let keeper = thread::Builder::new().name(name).spawn(move || keeper.run())?;
        Ok(Self { shared, messages, keeper: Some(keeper), log })
    }

    pub(super) fn status(&self) -> Status {
        self.shared.lock().clone()
    }

    /// The end of its log, as far as it is about its present run.
    pub(super) fn tail(&self) -> Tail {
        // A run that has just ended says more than one that has just begun.
        let status = self.status();
        Tail::of_file(&self.log, if status.failures == 0 { status.log_start } else { 0 })
    }

    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// Sends it a signal, if it runs.
    pub(super) fn signal(&self, signal: Signal) {
        // No receiver: it is over.
        let _ = self.messages.send(Message::Signal(signal));
    }

    /// Asks for its end by a signal; it is not started again. SIGKILL goes to its whole process group.
    pub(super) fn request_stop(&self, signal: Signal) {
        let _ = self.messages.send(Message::Stop(signal));
    }

    /// Waits until a stop has been carried out; says whether it was, in that time.
    pub(super) fn wait_over(&self, time_max: Duration) -> bool {
        let over = self.shared.changed.wait_timeout_while(self.shared.lock(), time_max, |status| !status.is_over);
        over.unwrap_or_else(PoisonError::into_inner).0.is_over
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.request_stop(Signal::SIGKILL);
        if let Some(keeper) = self.keeper.take() {
            // A panic of the keeper was reported by its thread.
            let _ = keeper.join();
        }
    }
}

struct Keeper {
    program: Program,
    observer: Arc<dyn Observer>,
    shared: Arc<Shared>,
    messages: Sender<Message>,
    inbox: Receiver<Message>,
    history: History,
}

impl Keeper {
    fn run(mut self) {
        loop {
            let began = Instant::now();
            let how = match self.spawn() {
                Ok(child) => match self.watch(child) {
                    Some(how) => how,
                    None => break,
                },
                Err(error) => error.to_string(),
            };
            let name = self.program.name.clone();
            let (delay, failures) = match self.history.failed(Some(began), Instant::now()) {
                Decision::Restart { delay, failures } => (delay, failures),
                Decision::GiveUp { failures } => (RestartPolicy::default().delay_max, failures),
            };
            self.shared.update(|status| {
                status.pid = None;
                status.failures = failures;
            });
            self.observer.event(Event::ProgramEnded { name, how, delay });
            if self.is_stopped_within(delay) {
                break;
            }
        }
        self.shared.update(|status| {
            status.pid = None;
            status.is_over = true;
        });
    }

    fn spawn(&self) -> io::Result<Child> {
        let (log, log_start) = log_file::open(&self.program.log)?;
        let mut command = (self.program.command)()?;
        let mut child = command.stdout(Stdio::from(log.try_clone()?)).stderr(Stdio::from(log)).spawn()?;
        let pid = child.id();
        let messages = self.messages.clone();
        let wait = move || {
            while waitid(Id::Pid(raw(pid)), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(nix::Error::EINTR) {}
            // No receiver: the keeper has ended.
            let _ = messages.send(Message::Exited(pid));
        };
        if let Err(error) = thread::Builder::new().name("program-exit".to_owned()).spawn(wait) {
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
        self.shared.update(|status| {
            status.pid = Some(pid);
            status.log_start = log_start;
        });
        self.observer.event(Event::ProgramStarted { name: self.program.name.clone(), pid });
        Ok(child)
    }

    /// Watches it; returns how it ended if nobody had asked for that.
    fn watch(&self, mut child: Child) -> Option<String> {
        let mut is_stopping = false;
        loop {
            match self.inbox.recv_timeout(TRIM_EVERY) {
                Ok(Message::Exited(pid)) if pid == child.id() => {
                    // It has ended, so this returns at once.
                    let status = child.wait().unwrap_or_default();
                    return (!is_stopping).then(|| status.to_string());
                }
                // An earlier one's.
                Ok(Message::Exited(_)) => {}
                Ok(Message::Signal(signal)) => send(&child, signal),
                Ok(Message::Stop(signal)) => {
                    is_stopping = true;
                    send(&child, signal);
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = log_file::trim(&self.program.log) {
                        tracing::warn!(%error, log = %self.program.log.display(), "cannot shorten a log");
                    }
                }
                // Can't be: we hold a sender ourselves.
                Err(RecvTimeoutError::Disconnected) => {
                    is_stopping = true;
                    send(&child, Signal::SIGKILL);
                }
            }
        }
    }

    fn is_stopped_within(&self, time_max: Duration) -> bool {
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

/// The child has not been reaped as long as its [`Child`] is here, so the number is its own.
fn send(child: &Child, signal: Signal) {
    let pid = raw(child.id());
    // What Patroni has begun, as a base backup, is in its group; PostgreSQL itself is not.
    let sent =
        if signal == Signal::SIGKILL { killpg(pid, signal).or_else(|_| kill(pid, signal)) } else { kill(pid, signal) };
    if let Err(error) = sent {
        tracing::warn!(%error, %signal, "cannot signal a program");
    }
}

fn raw(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::Silent, run_as::RunAs};

    fn keep(script: &str, dir: &Path) -> Process {
        let (run_as, script) = (RunAs::resolve(None).unwrap(), script.to_owned());
        let command = move || {
            let mut command = run_as.command("sh", Signal::SIGKILL);
            command.args(["-c", &script]).current_dir("/");
            Ok(command)
        };
        let program = Program { name: "test".to_owned(), command: Box::new(command), log: dir.join("log") };
        Process::start(program, Arc::new(Silent)).unwrap()
    }

    fn eventually(mut done: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !done() {
            assert!(begin.elapsed() < Duration::from_secs(20));
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn started_again_until_it_is_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let process = keep("echo hello; exit 3", dir.path());
        eventually(|| process.status().failures >= 2);
        assert!(process.tail().text.contains("hello"));
        process.request_stop(Signal::SIGTERM);
        assert!(process.wait_over(Duration::from_secs(20)));
        assert_eq!(process.status().pid, None);
    }

    #[test]
    fn killed_with_its_group() {
        let dir = tempfile::tempdir().unwrap();
        let process = keep("trap '' TERM; sleep 77 & echo $!; wait", dir.path());
        eventually(|| process.tail().text.trim().parse::<u32>().is_ok());
        let inner = format!("/proc/{}/stat", process.tail().text.trim());
        process.request_stop(Signal::SIGTERM);
        assert!(!process.wait_over(Duration::from_millis(200)));
        drop(process);
        // Its new parent may not have reaped it yet.
        eventually(|| std::fs::read_to_string(&inner).map_or(true, |stat| stat.contains(") Z ")));
    }
}
