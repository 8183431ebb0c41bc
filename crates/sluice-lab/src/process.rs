//! Child processes that never outlive the laboratory: each is held by a guard that stops it by its own id and waits.
//!
//! Children get process groups of their own, so that Ctrl-C in a terminal reaches only the laboratory, which then
//! stops them in order. Where `setpriv` exists, the kernel also ends them when the laboratory itself is killed; for that
//! they must be started from the main thread. Nothing here looks processes up by name.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::Error;

type Result<T> = std::result::Result<T, Error>;

/// The interval at which a wait looks at its process and at Ctrl-C.
const POLL: Duration = Duration::from_millis(20);

/// Raised by SIGINT, SIGTERM or SIGHUP; every wait looks at it, and the guards then stop what runs.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes the three signals over for this process.
    pub fn install() -> Result<Self> {
        let raised = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&raised)).map_err(Error::io("take signals over"))?;
        }
        Ok(Self(raised))
    }

    /// An interrupt that nobody raises.
    pub fn never() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    /// Whether a signal has come.
    pub fn raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once a signal has come.
    pub fn check(&self) -> Result<()> {
        if self.raised() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Does something that looks at no signal by itself; once one has come, `cancel` is to end it, and this is an error.
    pub fn during<T>(&self, cancel: impl FnOnce() + Send, work: impl FnOnce() -> T) -> Result<T> {
        let done = AtomicBool::new(false);
        let outcome = thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if self.raised() {
                        cancel();
                        return;
                    }
                    thread::sleep(POLL);
                }
            });
            // Also if it panics, or the thread above would be waited for.
            let _done = RaisedAtEnd(&done);
            work()
        });
        self.check()?;
        Ok(outcome)
    }

    /// Sleeps; an error once a signal has come.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.check()?;
            thread::sleep(POLL.min(end.saturating_duration_since(Instant::now())));
        }
        self.check()
    }
}

/// Raises a flag at its end.
struct RaisedAtEnd<'a>(&'a AtomicBool);

impl Drop for RaisedAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A command in its own process group, without input, that the kernel ends with `death` should the laboratory die.
pub fn command(program: &Path, death: &str) -> Command {
    let mut command = match find_in_path("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", death, "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    // No locale but C: what pgbench prints is read back.
    command.env("LC_ALL", "C").process_group(0).stdin(Stdio::null());
    command
}

/// Looks a program up in `PATH` and in the places for servers, which an ordinary user's `PATH` leaves out.
pub fn find_in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let servers = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(servers).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Raises this process's soft limit on open files to the hard one, for itself and its children, and returns it.
pub fn raise_open_files() -> u64 {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let maximum = limit.maximum.unwrap_or(1 << 20);
    let raised = Rlimit { current: Some(maximum), maximum: limit.maximum };
    match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(_) => limit.current.unwrap_or(maximum),
    }
}

/// A running child; dropping it stops it, by force after `grace`.
pub struct Process {
    name: String,
    child: Child,
    stop_signal: Signal,
    grace: Duration,
}

impl Process {
    /// Starts it. `name` is for messages; `grace` is what it gets to end after `stop_signal`.
    pub fn spawn(name: &str, command: &mut Command, stop_signal: Signal, grace: Duration) -> Result<Self> {
        let child = command.spawn().map_err(Error::io(format!("start {name}")))?;
        Ok(Self { name: name.to_owned(), child, stop_signal, grace })
    }

    /// A server whose output goes to `log`.
    pub fn spawn_server(
        name: &str,
        mut command: Command,
        log: &Path,
        stop_signal: Signal,
        grace: Duration,
    ) -> Result<Self> {
        let log_file = File::create(log).map_err(Error::file("create", log))?;
        let errors = log_file.try_clone().map_err(Error::file("write", log))?;
        command.stdout(log_file).stderr(errors);
        Self::spawn(name, &mut command, stop_signal, grace)
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Sends a signal. Only before [`Self::ended`] has told of an end: until then the id can't be another's.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// For its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The exit status, once it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(Error::io(format!("wait for {}", self.name)))
    }

    /// Waits for the end; past `limit` the process is stopped and this is an error.
    pub fn wait(&mut self, limit: Duration, interrupt: &Interrupt) -> Result<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() >= end {
                self.stop();
                return Err(Error::TimedOut { what: self.name.clone(), limit });
            }
            interrupt.sleep(POLL)?;
        }
    }

    /// Stops the process and what is left of its group. It is not reaped before that, so its id can't be another's.
    pub fn stop(&mut self) {
        let Some(pid) = self.pid() else { return };
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        self.signal(self.stop_signal);
        let end = Instant::now() + self.grace;
        while !is_zombie(pid) && Instant::now() < end {
            thread::sleep(POLL);
        }
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        let _ = rustix::process::kill_process(pid, Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

fn is_zombie(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(rustix::process::waitid(WaitId::Pid(pid), options), Ok(None))
}

/// Runs a short tool to its end and returns what it printed; a failure carries its complaints.
pub fn output(name: &str, mut command: Command, limit: Duration, interrupt: &Interrupt) -> Result<String> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::spawn(name, &mut command, Signal::KILL, Duration::from_secs(1))?;
    let stdout = collect(process.child().stdout.take());
    let stderr = collect(process.child().stderr.take());
    let status = process.wait(limit, interrupt)?;
    let stdout = stdout.join().unwrap_or_default();
    if !status.success() {
        let said = tail(&stderr.join().unwrap_or_default());
        return Err(Error::Failed { program: name.to_owned(), status, said });
    }
    Ok(stdout)
}

/// Reads a pipe to its end in a thread of its own, so that a full pipe can't block its writer.
pub fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What came before an error is still worth showing.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A pipe's lines as they come, until its writer closes it.
pub fn lines(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let Some(pipe) = pipe else { return };
        // Servers speak in the encodings of their databases.
        for line in BufReader::new(pipe).split(b'\n').map_while(std::result::Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The last lines of an output, as one line for an error message.
pub fn tail(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join(" | ")
}

/// A word as a POSIX shell reads it.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = command(Path::new("/bin/sh"), "KILL");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_is_returned_and_failures_carry_their_complaint() {
        let limit = Duration::from_secs(20);
        assert_eq!(output("sh", shell("echo yes"), limit, &Interrupt::never()).unwrap(), "yes\n");
        let error = output("sh", shell("echo no >&2; exit 3"), limit, &Interrupt::never()).unwrap_err().to_string();
        assert!(error.contains("no") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_process_that_ignores_its_signal_is_killed() {
        let mut command = shell("trap '' TERM; sleep 100 & wait");
        let mut process = Process::spawn("sh", &mut command, Signal::TERM, Duration::from_millis(100)).unwrap();
        assert!(process.ended().unwrap().is_none());
        process.stop();
        assert!(process.ended().unwrap().is_some());
    }

    #[test]
    fn lines_in_any_encoding() {
        let lines: Vec<String> = lines(Some(&b"one\nz\xfcrich\nthree"[..])).iter().collect();
        assert_eq!(lines, ["one", "z\u{fffd}rich", "three"]);
    }

    #[test]
    fn waits_end() {
        let error =
            output("sh", shell("sleep 100"), Duration::from_millis(50), &Interrupt::never()).unwrap_err().to_string();
        assert!(error.contains("did not end"), "{error}");
        let raised = Interrupt(Arc::new(AtomicBool::new(true)));
        assert!(output("sh", shell("sleep 100"), Duration::from_secs(20), &raised).is_err());
    }

    #[test]
    fn what_hears_no_signal_is_cancelled() {
        let (raised, cancelled) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
        let interrupt = Interrupt(Arc::clone(&raised));
        let cancel = || cancelled.store(true, Ordering::Relaxed);
        assert_eq!(interrupt.during(cancel, || 1).unwrap(), 1);
        assert!(!cancelled.load(Ordering::Relaxed));
        let outcome = interrupt.during(cancel, || {
            raised.store(true, Ordering::Relaxed);
            while !cancelled.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
        });
        assert!(matches!(outcome, Err(Error::Interrupted)));
    }

    #[test]
    fn shell_words() {
        for (word, expected) in [
            ("/var/lib/sluice", "/var/lib/sluice"),
            ("/a b", "'/a b'"),
            ("it's", "'it'\\''s'"),
            ("", "''"),
            ("$x", "'$x'"),
        ] {
            assert_eq!(shell_word(word), expected);
        }
    }
}
