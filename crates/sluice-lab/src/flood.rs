//! A flood that goes on: threads that make connections at a steady pace, and give each of them up, or are refused.
//!
//! They know of a pool only its port.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustls::{ClientConfig, ClientConnection, RootCertStore, crypto::ring};
use sluice_wire::startup::{self, ProtocolVersion, SSL_REQUEST_PACKET};

use crate::{
    error::Error,
    result::Figures,
    scenario::{Flood, FloodKind},
};

/// The time that a connection stays which stops in the midst of a log-in.
const STAY: Duration = Duration::from_secs(5);
/// Time for the pool to answer anything.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Threads: a handshake is awaited, and one at a time would not make the pace.
const THREADS: u32 = 4;
/// The largest answer that is read whole.
const ANSWER_BYTES_MAX: u32 = 1 << 12;

/// A flood that goes on; dropping it without [`Running::stop`] has its threads end by themselves.
pub(crate) struct Running {
    shared: Arc<Shared>,
    begun: Instant,
    ended: Option<Instant>,
    threads: Vec<JoinHandle<Vec<Duration>>>,
}

/// The state that all threads have in common.
struct Shared {
    kind: FloodKind,
    address: SocketAddr,
    /// The first bytes of a handshake, where there are any.
    hello: Vec<u8>,
    ends: AtomicBool,
    made: AtomicU64,
    failed: AtomicU64,
}

/// Its figures.
pub(crate) struct Flooded {
    seconds: f64,
    /// Connections that were begun.
    made: u64,
    /// Those of them that were not answered as they would be without a flood.
    failed: u64,
    /// The times after which they were answered, in order; none in a flood that waits for no answer.
    answers: Vec<Duration>,
}

impl Running {
    /// Begins one, to that port of this host.
    pub(crate) fn start(flood: Flood, port: u16) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            kind: flood.kind,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            hello: if flood.kind == FloodKind::Handshakes { client_hello()? } else { Vec::new() },
            ends: AtomicBool::new(false),
            made: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        let count = match flood.kind {
            // Each of them is there all the time, and waits for its own answer.
            FloodKind::Overload => flood.per_second,
            _ => THREADS.min(flood.per_second),
        };
        let begun = Instant::now();
        let pace = Duration::from_secs(1) * count / flood.per_second.max(1);
        let thread = |number| {
            let (shared, first) = (Arc::clone(&shared), begun + pace * number / count);
            thread::spawn(move || shared.make(first, pace))
        };
        let threads = (0..count).map(thread).collect();
        Ok(Self { shared, begun, ended: None, threads })
    }

    /// Has it begin no more connections.
    pub(crate) fn end(&mut self) {
        self.ended.get_or_insert_with(Instant::now);
        self.shared.ends.store(true, Ordering::Relaxed);
    }

    /// Ends it, and waits for its last connections.
    pub(crate) fn stop(mut self) -> Flooded {
        self.end();
        let seconds = self.ended.unwrap_or_else(Instant::now).duration_since(self.begun).as_secs_f64();
        // One that has panicked has made its connections until then.
        let threads = std::mem::take(&mut self.threads);
        let mut answers: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect();
        answers.sort_unstable();
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Flooded { seconds, made: get(&self.shared.made), failed: get(&self.shared.failed), answers }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

impl Flooded {
    /// Puts its figures beside those of the clients that were served.
    pub(crate) fn put(&self, figures: &mut Figures) {
        figures.flood_per_s = (self.seconds > 0.0).then(|| self.made as f64 / self.seconds);
        figures.flood_failed_percent = Some(100.0 * self.failed as f64 / self.made.max(1) as f64);
        figures.flood_p50_ms = self.answered_ms(0.5);
        figures.flood_p99_ms = self.answered_ms(0.99);
    }

    /// The time within which this share of the answers came.
    fn answered_ms(&self, share: f64) -> Option<f64> {
        let last = self.answers.len().checked_sub(1)?;
        Some(self.answers[(last as f64 * share).round() as usize].as_secs_f64() * 1e3)
    }
}

impl Shared {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// One thread's part, from its first moment on, at its pace. Returns the times after which it was answered.
    fn make(&self, mut next: Instant, pace: Duration) -> Vec<Duration> {
        let mut staying: VecDeque<(Instant, TcpStream)> = VecDeque::new();
        let mut answers = Vec::new();
        while !self.ends() {
            while staying.front().is_some_and(|(since, _)| since.elapsed() >= STAY) {
                staying.pop_front();
            }
            thread::sleep(next.saturating_duration_since(Instant::now()));
            if self.ends() {
                break;
            }
            let begun = Instant::now();
            // What could not be made in time is not made up for.
            next = (next + pace).max(begun);
            let number = self.made.fetch_add(1, Ordering::Relaxed);
            match self.connection(number) {
                Ok(Some(stays)) => staying.push_back((Instant::now(), stays)),
                Ok(None) => answers.push(begun.elapsed()),
                Err(_) => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        answers
    }

    /// One connection, up to its answer; itself, where it waits for none and stays.
    fn connection(&self, number: u64) -> std::io::Result<Option<TcpStream>> {
        let mut stream = TcpStream::connect_timeout(&self.address, ANSWER_MAX)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        match self.kind {
            FloodKind::LogIns => {
                stream.write_all(&startup())?;
                return Ok(Some(stream));
            }
            FloodKind::Overload => {
                stream.write_all(&startup())?;
                read_refusal(&mut stream)?;
            }
            FloodKind::Cancels => {
                stream.write_all(&cancel(number as u32))?;
                // The pool closes it when it has looked.
                let _ = stream.read(&mut [0])?;
            }
            FloodKind::Handshakes => {
                stream.write_all(&SSL_REQUEST_PACKET)?;
                let mut answer = [0];
                stream.read_exact(&mut answer)?;
                if answer != *b"S" {
                    return Err(ErrorKind::InvalidData.into());
                }
                stream.write_all(&self.hello)?;
                stream.read_exact(&mut answer)?;
            }
        }
        Ok(None)
    }
}

/// Reads an ErrorResponse, whole; whatever else comes is an error. Which words a pool finds is its own affair.
fn read_refusal(stream: &mut impl Read) -> std::io::Result<()> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let [tag, length @ ..] = head;
    let length = u32::from_be_bytes(length);
    if tag != b'E' || !(4..ANSWER_BYTES_MAX).contains(&length) {
        return Err(ErrorKind::InvalidData.into());
    }
    stream.read_exact(&mut vec![0; length as usize - 4])
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
fn client_hello() -> Result<Vec<u8>, Error> {
    let begin = || {
        let config = ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let address = Ipv4Addr::LOCALHOST;
        ClientConnection::new(config.into(), std::net::IpAddr::from(address).into())
    };
    let mut client = begin().map_err(Error::server)?;
    let mut hello = Vec::new();
    client.write_tls(&mut hello).map_err(Error::io("begin a TLS handshake"))?;
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
    fn a_refusal_is_an_error_response_and_whole() {
        assert!(read_refusal(&mut &b"E\0\0\0\x0cC53300\0\0"[..]).is_ok());
        assert!(read_refusal(&mut &b"E\0\0\0\x0cC533"[..]).is_err());
        assert!(read_refusal(&mut &b"R\0\0\0\x08\0\0\0\0"[..]).is_err());
        assert!(read_refusal(&mut &b""[..]).is_err());
    }

    #[test]
    fn answers_by_their_share() {
        let answers = (1..=101).map(Duration::from_millis).collect();
        let mut flooded = Flooded { seconds: 2.0, made: 200, failed: 1, answers };
        let mut figures = Figures::default();
        flooded.put(&mut figures);
        assert_eq!((figures.flood_per_s, figures.flood_failed_percent), (Some(100.0), Some(0.5)));
        assert_eq!((figures.flood_p50_ms, figures.flood_p99_ms), (Some(51.0), Some(100.0)));
        flooded.answers.clear();
        assert_eq!(flooded.answered_ms(0.5), None);
    }
}
