//! Another process in the place of this one, without a connection refused: it gets the listening sockets, both accept for
//! a moment, and then this one lets its clients go on until they leave.
//!
//! ```text
//! old                                   new
//! starts it, with the sockets ────────► reads its configuration, listens
//!                      ◄──── "ready" ── accepts clients
//! accepts none any more ──── "go" ────► goes on alone
//! hears cancels that the new one passes on, until its last client has left
//! ```
//!
//! A new process that can't start says "failed" in place of "ready", and why: the log is that of the old one, in its form.
//!
//! The words go by a pair of sockets. Its other end closed means that the other process is gone.

use std::{
    fmt,
    io::{self, Read, Write},
    net::Shutdown,
    os::{
        fd::{OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use command_fds::{CommandFdExt, FdMapping};
use thiserror::Error;

use crate::{
    inherited::{CHANNEL, HEARS_REASONS, MockSeed, PREDECESSOR, Predecessor, SEED},
    net::passed,
};

/// The word of a process that listens.
const READY: &[u8; 6] = b"ready\n";

/// The word of a process that can't start, behind which stands why. It is as long as the other.
const FAILED: &[u8; 6] = b"failed";

/// The length of a reason, at most.
const REASON_BYTES_MAX: u64 = 64 * 1024;

/// Time for a reason: it stands behind the word.
const REASON_TIME_MAX: Duration = Duration::from_secs(2);

/// The answer: from now on it is alone.
const GO: &[u8; 3] = b"go\n";

/// Time that the predecessor has for its answer: it has nothing else to do.
const GO_TIME_MAX: Duration = Duration::from_secs(30);

/// Time that a successor has to end once it has given up.
const END_TIME_MAX: Duration = Duration::from_secs(2);

/// The things that a successor gets.
#[derive(Debug)]
pub struct Bequest {
    /// The listening sockets with their names.
    pub(crate) listeners: Vec<(&'static str, OwnedFd)>,
    /// The socket at which cancels are heard.
    pub(crate) cancels: PathBuf,
    /// The seed of what made-up users are asked.
    pub(crate) mock_seed: MockSeed,
}

/// The reason why a successor does not take over.
#[derive(Debug, Error)]
pub enum NotReady {
    /// It has ended.
    #[error("it ended with {0} before it was ready; its own words stand above")]
    Ended(ExitStatus),
    /// It can't start, and says why.
    #[error("it ended with {0} before it was ready: {1}")]
    Refused(ExitStatus, String),
    /// It takes too long.
    #[error("it was not ready after {0:?}, and was ended")]
    Late(Duration),
    /// This process ends, and has ended it.
    #[error("it was ended, as this process is")]
    GivenUp,
    /// It says something that no version of this program says, or the system refuses something.
    #[error("{0}")]
    Failed(io::Error),
}

/// A process that is to take over from this one.
pub struct Successor {
    child: Child,
    channel: UnixStream,
    is_given_up: Arc<AtomicBool>,
}

/// A means to give up a successor while another thread waits for it.
#[derive(Debug)]
pub struct GivesUp {
    channel: UnixStream,
    is_given_up: Arc<AtomicBool>,
}

impl GivesUp {
    /// Whoever waits for it ends it at once.
    pub fn give_up(self) {
        self.is_given_up.store(true, Ordering::Release);
        let _ = self.channel.shutdown(Shutdown::Both);
    }
}

impl Successor {
    /// Starts it by a command.
    pub fn start(mut command: Command, bequest: Bequest) -> io::Result<Self> {
        let (channel, theirs) = UnixStream::pair()?;
        let (mut names, mut sockets): (Vec<_>, Vec<_>) = bequest.listeners.into_iter().unzip();
        names.push(CHANNEL);
        sockets.push(theirs.into());
        let seed_number = passed::FIRST + RawFd::try_from(sockets.len()).map_err(io::Error::other)?;
        sockets.push(bequest.mock_seed.to_socket()?);
        let numbered = (passed::FIRST..).zip(sockets);
        let mappings = numbered.map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd }).collect();
        command.fd_mappings(mappings).map_err(io::Error::other)?;
        command.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        command.env(SEED, seed_number.to_string());
        command.env(HEARS_REASONS, std::process::id().to_string());
        command.env(PREDECESSOR, format!("{} {}", std::process::id(), bequest.cancels.display()));
        // They name this process.
        command.env_remove("LISTEN_PID").env_remove("WATCHDOG_PID");
        // Its end of the channel is closed here with the command.
        Ok(Self { child: command.spawn()?, channel, is_given_up: Arc::default() })
    }

    /// The means to give it up.
    pub fn gives_up(&self) -> io::Result<GivesUp> {
        Ok(GivesUp { channel: self.channel.try_clone()?, is_given_up: self.is_given_up.clone() })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it listens. One that does not in that time is ended.
    pub fn wait_until_ready(&mut self, within: Duration) -> Result<(), NotReady> {
        let error = match self.hear_ready(within) {
            Ok(None) => return Ok(()),
            Ok(Some(reason)) => {
                let ended = self.wait_for_end();
                return Err(ended.map_or_else(NotReady::Failed, |status| NotReady::Refused(status, reason)));
            }
            Err(error) => error,
        };
        if self.is_given_up.load(Ordering::Acquire) {
            let _ = self.child.kill();
            let _ = self.child.wait();
            return Err(NotReady::GivenUp);
        }
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Err(self.wait_for_end().map_or_else(NotReady::Failed, NotReady::Ended));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let is_late = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        Err(if is_late { NotReady::Late(within) } else { NotReady::Failed(error) })
    }

    /// Waits for the end of a process that has closed the channel: it may have something to say yet.
    fn wait_for_end(&mut self) -> io::Result<ExitStatus> {
        let begin = Instant::now();
        while begin.elapsed() < END_TIME_MAX {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.child.kill()?;
        self.child.wait()
    }

    /// Hears whether it is ready; if it can't start, why.
    fn hear_ready(&mut self, within: Duration) -> io::Result<Option<String>> {
        self.channel.set_read_timeout(Some(within))?;
        let mut heard = [0; READY.len()];
        self.channel.read_exact(&mut heard)?;
        match &heard {
            READY => Ok(None),
            FAILED => {
                self.channel.set_read_timeout(Some(REASON_TIME_MAX))?;
                let mut reason = Vec::new();
                // What has come is what there is.
                let _ = (&mut self.channel).take(REASON_BYTES_MAX).read_to_end(&mut reason);
                Ok(Some(String::from_utf8_lossy(&reason).into_owned()))
            }
            _ => Err(unheard_of()),
        }
    }

    /// Whether it has ended. Asked now and then, so that its last trace goes away with it.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Has it end, which is not to take over, and waits for that.
    pub fn end(mut self) {
        // Then it knows that there is nobody to take over from.
        let _ = self.channel.shutdown(Shutdown::Both);
        let _ = self.wait_for_end();
    }

    /// Tells it that it is alone from now on.
    pub fn go(&mut self) -> io::Result<()> {
        self.channel.write_all(GO)
    }
}

impl fmt::Debug for Successor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Successor").field("pid", &self.pid()).finish_non_exhaustive()
    }
}

impl Predecessor {
    /// Says that this process listens, and waits until it is alone with that.
    pub fn take_over(&mut self) -> io::Result<()> {
        self.channel.write_all(READY)?;
        self.channel.set_read_timeout(Some(GO_TIME_MAX))?;
        hear(&mut self.channel, GO)?;
        self.channel.set_nonblocking(true)
    }

    /// Says why this process does not take over, if that one hears it; `false` if it does not, and somebody else has to be
    /// told.
    pub fn tell_failure(&mut self, reason: &str) -> bool {
        let told = [FAILED, reason.as_bytes()].concat();
        // It may be gone, or busy: then nobody waits for it here.
        let tell = |channel: &mut UnixStream| {
            channel.set_write_timeout(Some(REASON_TIME_MAX))?;
            channel.write_all(&told)?;
            channel.shutdown(Shutdown::Write)
        };
        self.hears_reasons && tell(&mut self.channel).is_ok()
    }

    /// Whether it has ended, once this process has taken over.
    pub fn is_gone(&mut self) -> bool {
        match self.channel.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        }
    }
}

fn hear<const N: usize>(channel: &mut UnixStream, word: &[u8; N]) -> io::Result<()> {
    let mut heard = [0; N];
    channel.read_exact(&mut heard)?;
    if heard == *word { Ok(()) } else { Err(unheard_of()) }
}

fn unheard_of() -> io::Error {
    io::Error::other("it says something else than this version would")
}
