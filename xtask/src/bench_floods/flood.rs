//! The floods: threads that make connections at a steady pace, and give each of them up.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use sluice_wire::startup::{self, ProtocolVersion, SSL_REQUEST_PACKET};

/// The time that a connection stays which stops in the midst of a log-in.
const STAY: Duration = Duration::from_secs(5);

/// Time for the pool to answer anything.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Threads: a handshake is awaited, and one at a time would not make the pace.
const THREADS: u32 = 4;

/// A kind of flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Flood {
    /// Nobody else is there.
    None,
    /// Clients that say who they are and not a word more.
    Logins,
    /// CancelRequests with keys that are nobody's.
    Cancels,
    /// Clients that begin a TLS handshake, and leave when the server has done its part of it.
    Handshakes,
}

impl Flood {
    /// All of them, each round in another order.
    pub(crate) fn of_round(round: u32) -> impl Iterator<Item = Self> {
        let all = [Self::None, Self::Logins, Self::Cancels, Self::Handshakes];
        let first = round as usize % all.len();
        all.into_iter().cycle().skip(first).take(all.len())
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Logins => "log-ins",
            Self::Cancels => "cancels",
            Self::Handshakes => "handshakes",
        }
    }
}

/// A flood that goes on.
pub(crate) struct Running {
    ends: Arc<AtomicBool>,
    begun: Instant,
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    made: AtomicU64,
    failed: AtomicU64,
}

/// Its figures.
pub(crate) struct Flooded {
    pub(crate) seconds: f64,
    /// Connections that were begun.
    pub(crate) made: u64,
    /// Those of them that were not answered as they would be without a flood.
    pub(crate) failed: u64,
}

impl Running {
    /// Begins one, with so many connections a second to that port of this host.
    pub(crate) fn start(flood: Flood, port: u16, rate: u32) -> Result<Self> {
        let hello: Arc<[u8]> = match flood {
            Flood::Handshakes => client_hello()?.into(),
            _ => Arc::new([]),
        };
        let (ends, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
        let threads = if flood == Flood::None || rate == 0 { 0 } else { THREADS };
        let threads = (0..threads)
            .map(|_| {
                let (ends, counts, hello) = (Arc::clone(&ends), Arc::clone(&counts), Arc::clone(&hello));
                let pace = Duration::from_secs(1) * THREADS / rate.max(1);
                thread::spawn(move || make(flood, port, pace, &hello, &ends, &counts))
            })
            .collect();
        Ok(Self { ends, begun: Instant::now(), counts, threads })
    }

    /// Ends it.
    pub(crate) fn stop(self) -> Flooded {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // One that has panicked has made its connections until then.
            let _ = thread.join();
        }
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Flooded { seconds, made: get(&self.counts.made), failed: get(&self.counts.failed) }
    }
}

/// One thread's part.
fn make(flood: Flood, port: u16, pace: Duration, hello: &[u8], ends: &AtomicBool, counts: &Counts) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut staying: VecDeque<(Instant, TcpStream)> = VecDeque::new();
    let mut next = Instant::now();
    while !ends.load(Ordering::Relaxed) {
        while staying.front().is_some_and(|(since, _)| since.elapsed() >= STAY) {
            staying.pop_front();
        }
        thread::sleep(next.saturating_duration_since(Instant::now()));
        // What could not be made in time is not made up for.
        next = (next + pace).max(Instant::now());
        counts.made.fetch_add(1, Ordering::Relaxed);
        let made = counts.made.load(Ordering::Relaxed);
        let done = connect(address).and_then(|mut stream| {
            match flood {
                Flood::None => {}
                Flood::Logins => {
                    stream.write_all(&startup())?;
                    staying.push_back((Instant::now(), stream));
                }
                Flood::Cancels => {
                    stream.write_all(&cancel(made as u32))?;
                    // The pool closes it when it has looked.
                    let _ = stream.read(&mut [0])?;
                }
                Flood::Handshakes => {
                    stream.write_all(&SSL_REQUEST_PACKET)?;
                    let mut answer = [0];
                    stream.read_exact(&mut answer)?;
                    if answer != *b"S" {
                        return Err(ErrorKind::InvalidData.into());
                    }
                    stream.write_all(hello)?;
                    stream.read_exact(&mut answer)?;
                }
            }
            Ok(())
        });
        if done.is_err() {
            counts.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    Ok(stream)
}

/// A StartupMessage.
fn startup() -> Vec<u8> {
    let mut out = Vec::new();
    startup::put_session(&mut out, ProtocolVersion::V3_0, [("user", "bench"), ("database", "bench")]);
    out
}

/// A CancelRequest that is nobody's.
fn cancel(number: u32) -> Vec<u8> {
    let mut out = Vec::new();
    startup::put_cancel(&mut out, number, &number.wrapping_mul(2_654_435_761).to_be_bytes());
    out
}

/// The first bytes of a handshake. A server can't tell that others have sent the same.
fn client_hello() -> Result<Vec<u8>> {
    let config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = "localhost".try_into().context("a name for the handshake")?;
    let mut client = ClientConnection::new(config.into(), name)?;
    let mut hello = Vec::new();
    client.write_tls(&mut hello)?;
    Ok(hello)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_whole() {
        assert_eq!(startup()[..4], (startup().len() as u32).to_be_bytes());
        assert_eq!(cancel(7).len(), 16);
        // A handshake record.
        assert_eq!(client_hello().unwrap()[0], 22);
    }

    #[test]
    fn each_round_begins_with_another_flood() {
        let firsts: Vec<_> = (0..5).filter_map(|round| Flood::of_round(round).next()).collect();
        assert_eq!(firsts, [Flood::None, Flood::Logins, Flood::Cancels, Flood::Handshakes, Flood::None]);
        assert_eq!(Flood::of_round(2).count(), 4);
    }
}
