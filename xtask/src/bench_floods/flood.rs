//! The floods: threads that make connections at a steady pace, and give each of them up, or are refused.

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

/// The largest answer that is read whole.
const ANSWER_BYTES_MAX: u32 = 1 << 12;

/// A kind of flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Flood {
    /// Nobody else is there.
    None,
    /// Clients that say who they are and not a word more.
    #[value(name = "log-ins")]
    Logins,
    /// CancelRequests with keys that are nobody's.
    Cancels,
    /// Clients that begin a TLS handshake, and leave when the server has done its part of it.
    Handshakes,
    /// Clients beyond the pool's limit, who try to log in once a second each, and have to be refused.
    Overload,
}

impl Flood {
    /// All of them, each round in another order.
    pub(crate) fn of_round(round: u32) -> impl Iterator<Item = Self> {
        let all = [Self::None, Self::Logins, Self::Cancels, Self::Handshakes, Self::Overload];
        let first = round as usize % all.len();
        all.into_iter().cycle().skip(first).take(all.len())
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Logins => "log-ins",
            Self::Cancels => "cancels",
            Self::Handshakes => "handshakes",
            Self::Overload => "overload",
        }
    }
}

/// A flood that goes on.
pub(crate) struct Running {
    ends: Arc<AtomicBool>,
    begun: Instant,
    ended: Option<Instant>,
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<Vec<Duration>>>,
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
    /// The times after which they were answered, in order; none in a flood that waits for no answer.
    pub(crate) answers: Vec<Duration>,
}

impl Running {
    /// Begins one, with so many connections a second to that port of this host.
    pub(crate) fn start(flood: Flood, port: u16, rate: u32) -> Result<Self> {
        let hello: Arc<[u8]> = match flood {
            Flood::Handshakes => client_hello()?.into(),
            _ => Arc::new([]),
        };
        let (ends, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
        let begun = Instant::now();
        let threads = match flood {
            Flood::None => 0,
            // Each of them is there all the time, and waits for its own answer.
            Flood::Overload => rate,
            _ => THREADS.min(rate),
        };
        let pace = Duration::from_secs(1) * threads / rate.max(1);
        let threads = (0..threads)
            .map(|number| {
                let (ends, counts, hello) = (Arc::clone(&ends), Arc::clone(&counts), Arc::clone(&hello));
                let begin = begun + pace * number / threads;
                thread::spawn(move || make(flood, port, (begin, pace), &hello, &ends, &counts))
            })
            .collect();
        Ok(Self { ends, begun, ended: None, counts, threads })
    }

    /// Has it begin no more connections.
    pub(crate) fn end(&mut self) {
        self.ended.get_or_insert_with(Instant::now);
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Ends it, and waits for its last connections.
    pub(crate) fn stop(mut self) -> Flooded {
        self.end();
        let seconds = self.ended.unwrap_or_else(Instant::now).duration_since(self.begun).as_secs_f64();
        // One that has panicked has made its connections until then.
        let mut answers: Vec<_> = self.threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect();
        answers.sort_unstable();
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Flooded { seconds, made: get(&self.counts.made), failed: get(&self.counts.failed), answers }
    }
}

impl Flooded {
    /// The time within which this share of the answers came, in ms.
    pub(crate) fn answered_ms(&self, share: f64) -> Option<f64> {
        let last = self.answers.len().checked_sub(1)?;
        Some(self.answers[(last as f64 * share).round() as usize].as_secs_f64() * 1e3)
    }
}

/// One thread's part, from its first moment on, at its pace. Returns the times after which it was answered.
fn make(
    flood: Flood,
    port: u16,
    (mut next, pace): (Instant, Duration),
    hello: &[u8],
    ends: &AtomicBool,
    counts: &Counts,
) -> Vec<Duration> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut staying: VecDeque<(Instant, TcpStream)> = VecDeque::new();
    let mut answers = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        while staying.front().is_some_and(|(since, _)| since.elapsed() >= STAY) {
            staying.pop_front();
        }
        thread::sleep(next.saturating_duration_since(Instant::now()));
        if ends.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
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
                    return Ok(());
                }
                Flood::Overload => {
                    stream.write_all(&startup())?;
                    read_refusal(&mut stream)?;
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
            answers.push(begun.elapsed());
            Ok(())
        });
        if done.is_err() {
            counts.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
    answers
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
        let firsts: Vec<_> = (0..6).filter_map(|round| Flood::of_round(round).next()).collect();
        let all = [Flood::None, Flood::Logins, Flood::Cancels, Flood::Handshakes, Flood::Overload];
        assert_eq!(firsts, [&all[..], &all[..1]].concat());
        assert_eq!(Flood::of_round(2).count(), 5);
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
        let flooded = Flooded { seconds: 1.0, made: 101, failed: 0, answers };
        assert_eq!((flooded.answered_ms(0.5), flooded.answered_ms(0.99)), (Some(51.0), Some(100.0)));
        assert_eq!(Flooded { answers: Vec::new(), ..flooded }.answered_ms(0.5), None);
    }
}
