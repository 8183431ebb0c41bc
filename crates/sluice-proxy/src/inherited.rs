//! Sockets that this process was started with, in place of those that it would open: systemd's, by socket activation
//! (sd_listen_fds(3)), or those of the process that it takes over from.
//!
//! Environment: `LISTEN_FDS`, `LISTEN_FDNAMES`, and `LISTEN_PID`, which a predecessor can't know; it says
//! `SLUICE_PREDECESSOR` instead, its own process id and the socket at which it hears CancelRequests. By `SLUICE_SEED_FD` it
//! hands on what challenges of made-up users come from, so that they stay the same.

use std::{
    env, fmt,
    io::{self, Read, Write},
    os::{
        fd::{OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
};

use socket2::{Domain, SockRef, Type};
use thiserror::Error;

use crate::{
    listening::{Kind, Listener, Place},
    net::passed,
};

/// The variable by which a predecessor says who it is.
pub(crate) const PREDECESSOR: &str = "SLUICE_PREDECESSOR";

/// The variable by which it says the number of a descriptor with the seed of decoys. It is none of `LISTEN_FDS`: a version
/// that does not know it leaves it alone.
pub(crate) const SEED: &str = "SLUICE_SEED_FD";

/// The variable by which it says, with its number, that it hears why this process fails, and tells that in its own log: a
/// version that does not know it leaves that to this one, and may have got it from the version before.
pub(crate) const HEARS_REASONS: &str = "SLUICE_HEARS_REASONS";

/// The name of the channel to a predecessor among the descriptors.
pub(crate) const CHANNEL: &str = "predecessor";

/// Descriptors that are taken, at most: far more than there are addresses.
const COUNT_MAX: RawFd = 64;

/// The reason why what this process was started with can't be used.
#[derive(Debug, Error)]
pub enum InheritError {
    /// A variable does not say what it should.
    #[error("{name}=\"{value}\" in the environment: {expected}\n  see sd_listen_fds(3)")]
    Variable {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// The values that it may have.
        expected: String,
    },
    /// A descriptor is not what it should be.
    #[error("descriptor {number} (\"{name}\"), which this process was started with, {problem}")]
    Descriptor {
        /// Its number.
        number: RawFd,
        /// Its name: `FileDescriptorName` of its socket unit.
        name: String,
        /// The difference, and the remedy.
        problem: &'static str,
    },
}

/// The process that this one takes over from.
#[derive(Debug)]
pub struct Predecessor {
    /// Its process id.
    pub pid: u32,
    /// The way to it: see [`crate::successor`].
    pub(crate) channel: UnixStream,
    /// Whether it hears why this process fails.
    pub(crate) hears_reasons: bool,
}

/// The seed of the challenges of users that do not exist. Whoever knows it can tell who does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct MockSeed(pub(crate) [u8; 32]);

impl MockSeed {
    /// A socket that says it once.
    pub(crate) fn to_socket(self) -> io::Result<OwnedFd> {
        let (mut ours, theirs) = UnixStream::pair()?;
        // As little as this always fits.
        ours.write_all(&self.0)?;
        Ok(theirs.into())
    }

    /// The seed that such a socket says; `None` if it says none.
    fn read(socket: OwnedFd) -> Option<Self> {
        let (mut stream, mut seed) = (UnixStream::from(socket), [0; 32]);
        // Its other end was closed before this process was started, so nothing is waited for.
        stream.set_nonblocking(true).ok()?;
        stream.read_exact(&mut seed).ok()?;
        Some(Self(seed))
    }
}

impl fmt::Debug for MockSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MockSeed(…)")
    }
}

/// All that this process was started with.
#[derive(Debug, Default)]
pub struct Inherited {
    pub(crate) listeners: Vec<Listener>,
    /// The socket at which the predecessor hears CancelRequests.
    pub(crate) cancels: Option<PathBuf>,
    /// The seed of what made-up users are asked.
    pub(crate) mock_seed: Option<MockSeed>,
    predecessor: Option<Predecessor>,
}

impl Inherited {
    /// Takes what the environment speaks of. To be called once, before this process opens anything.
    pub fn from_environment() -> Result<Self, InheritError> {
        let said = predecessor(env::var(PREDECESSOR).ok().as_deref());
        let is_for_us = env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
        if said.is_none() && !is_for_us {
            return Ok(Self::default());
        }
        let names = names(env::var("LISTEN_FDS").ok(), env::var("LISTEN_FDNAMES").ok())?;
        let next = passed::FIRST.saturating_add(names.len() as RawFd);
        let mut inherited = Self::default();
        for (number, name) in (passed::FIRST..).zip(names) {
            let failed = |problem| InheritError::Descriptor { number, name: name.clone(), problem };
            let fd = passed::take(number).ok_or_else(|| failed("is not open: LISTEN_FDS says more than there are"))?;
            match &said {
                Some((pid, _)) if name == CHANNEL => {
                    let hears_reasons = env::var(HEARS_REASONS).is_ok_and(|said| said == pid.to_string());
                    inherited.predecessor =
                        Some(Predecessor { pid: *pid, channel: UnixStream::from(fd), hears_reasons });
                }
                _ => inherited.listeners.push(check(fd, Kind::of(&name, said.is_some())).map_err(failed)?),
            }
        }
        if said.is_some() {
            // Its number follows those of the names; another one was meant for somebody else.
            let is_next = env::var(SEED).is_ok_and(|number| number == next.to_string());
            inherited.mock_seed = is_next.then(|| passed::take(next)).flatten().and_then(MockSeed::read);
        }
        inherited.cancels = said.map(|(_, path)| path);
        Ok(inherited)
    }

    /// The process that this one takes over from, if there is one.
    pub fn take_predecessor(&mut self) -> Option<Predecessor> {
        self.predecessor.take()
    }
}

/// The process that says it is our predecessor, if it is the one that has started us, and its socket for cancels.
fn predecessor(said: Option<&str>) -> Option<(u32, PathBuf)> {
    let (pid, path) = said?.split_once(' ')?;
    let parent = rustix::process::getppid()?;
    let pid: u32 = pid.parse().ok()?;
    (parent.as_raw_nonzero().get().cast_unsigned() == pid).then(|| (pid, path.into()))
}

/// The name of each descriptor.
fn names(count: Option<String>, names: Option<String>) -> Result<Vec<String>, InheritError> {
    let value = count.unwrap_or_default();
    let Some(count) = value.parse().ok().filter(|count| (0..=COUNT_MAX).contains(count)) else {
        let expected = format!("a number from 0 to {COUNT_MAX} is expected");
        return Err(InheritError::Variable { name: "LISTEN_FDS", value, expected });
    };
    let Some(value) = names else { return Ok((0..count).map(|_| "unknown".to_owned()).collect()) };
    let names: Vec<String> = value.split(':').map(str::to_owned).collect();
    if names.len() == count.unsigned_abs() as usize || (count == 0 && value.is_empty()) {
        return Ok(names.into_iter().take(count.unsigned_abs() as usize).collect());
    }
    let expected = format!("{count} names with colons between are expected, one for each of LISTEN_FDS");
    Err(InheritError::Variable { name: "LISTEN_FDNAMES", value, expected })
}

/// Sees that it is a listening stream socket.
fn check(socket: OwnedFd, kind: Kind) -> Result<Listener, &'static str> {
    let as_socket = SockRef::from(&socket);
    let Ok(what) = as_socket.r#type() else {
        return Err("is no socket\n  give it by ListenStream= in a socket unit");
    };
    if what != Type::STREAM {
        return Err("is no stream socket\n  give it by ListenStream= in its socket unit");
    }
    if !as_socket.is_listener().unwrap_or(false) {
        return Err("does not listen\n  set Accept=no in its socket unit");
    }
    let address = as_socket.local_addr().map_err(|_| "has no address")?;
    let is_http = kind.is_http();
    let place = match (address.domain(), address.as_socket()) {
        (Domain::UNIX, _) if is_http => {
            return Err("is a Unix socket, and HTTP is answered by TCP only\n  give it ListenStream=ADDRESS:PORT");
        }
        (Domain::UNIX, _) => Place::Unix(address.as_pathname().map(Path::to_owned).unwrap_or_default()),
        (_, Some(address)) => Place::Tcp(address),
        _ => return Err("is neither of TCP nor a Unix socket\n  give it by ListenStream= in its socket unit"),
    };
    as_socket.set_nonblocking(true).map_err(|_| "can't be set not to block")?;
    Ok(Listener { kind, place, socket })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn only_listening_stream_sockets_are_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stream = OwnedFd::from(TcpStream::connect(address).unwrap());
        let datagrams = OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let problem = |fd| check(fd, Kind::Pool).unwrap_err().lines().next();
        assert_eq!(problem(stream), Some("does not listen"));
        assert_eq!(problem(datagrams), Some("is no stream socket"));
        assert_eq!(problem(file), Some("is no socket"));
        assert_eq!(check(listener.into(), Kind::Pool).unwrap().place, Place::Tcp(address));
    }

    #[test]
    fn a_seed_is_said_once() {
        let seed = MockSeed(std::array::from_fn(|at| at as u8));
        assert_eq!(MockSeed::read(seed.to_socket().unwrap()), Some(seed));
        let (ours, silent) = UnixStream::pair().unwrap();
        assert_eq!(MockSeed::read(silent.into()), None);
        drop(ours);
        assert_eq!(format!("{seed:?}"), "MockSeed(…)");
    }

    #[test]
    fn each_descriptor_has_a_name() {
        let of = |count: &str, given: Option<&str>| names(Some(count.to_owned()), given.map(str::to_owned));
        assert_eq!(of("2", Some("a:http")).unwrap(), ["a", "http"]);
        assert_eq!(of("1", None).unwrap(), ["unknown"]);
        assert!(of("0", Some("")).unwrap().is_empty());
        for (count, given) in [("2", Some("a")), ("-1", None), ("many", None), ("1000000", None)] {
            let error = of(count, given).unwrap_err().to_string();
            assert!(error.starts_with("LISTEN_FD") && error.contains("expected"), "{error}");
        }
    }

    #[test]
    fn a_predecessor_is_whoever_has_started_us() {
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero();
        let said = predecessor(Some(&format!("{parent} /run/there"))).unwrap();
        assert_eq!(said.1, PathBuf::from("/run/there"));
        assert_eq!(predecessor(Some("1000000000 /run/there")), None);
        assert_eq!(predecessor(Some("nonsense")), None);
    }
}
