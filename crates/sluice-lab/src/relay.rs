//! A relay: the same bytes, in the same order, each a set time later. So a distance is emulated between two programs on
//! one machine, by an ordinary user.
//!
//! A chunk is due a time after it was received, and is sent then, whatever came before it or comes behind: what is under
//! way is not limited by the distance, as on a long line. What the relay itself takes comes on top, some hundredths of a
//! millisecond; who reports a distance measures it.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    num::NonZeroU64,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Bytes that are read at once.
const CHUNK: usize = 32 << 10;
/// Chunks under way at once, in each direction of a connection; who sends more waits, as for a full window.
const CHUNKS_MAX: usize = 1024;
/// Connections at once: a node makes a handful.
const CONNECTIONS_MAX: usize = 1000;
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// A relay before one address. Dropping it ends it, and closes what it has.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// In nanoseconds, one way.
    delay: AtomicU64,
    is_over: AtomicBool,
    /// Those that are open, and some that were: each one lives as long as its threads do.
    pairs: Mutex<Vec<Weak<Pair>>>,
}

/// Both ends of a connection.
#[derive(Debug)]
struct Pair {
    client: TcpStream,
    server: TcpStream,
}

impl Shared {
    fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay.load(Ordering::Relaxed))
    }

    /// Notes a connection, to close it at the end; an error if that has come.
    fn note(&self, pair: &Arc<Pair>) -> io::Result<()> {
        let mut pairs = self.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.retain(|pair| pair.strong_count() > 0);
        if self.is_over.load(Ordering::Relaxed) || pairs.len() >= CONNECTIONS_MAX {
            return Err(io::Error::other("the relay takes no more connections"));
        }
        pairs.push(Arc::downgrade(pair));
        Ok(())
    }
}

impl Relay {
    /// Listens on a free port of loopback for connections to `to`; without a delay as yet.
    ///
    /// # Errors
    ///
    /// The system's: no port, or no thread.
    pub fn start(to: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (address, shared) = (listener.local_addr()?, Arc::<Shared>::default());
        let of_thread = Arc::clone(&shared);
        let thread =
            thread::Builder::new().name("relay".to_owned()).spawn(move || accept(&listener, to, &of_thread))?;
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The time that bytes take from one side to the other, from now on.
    pub fn set_delay(&self, one_way: Duration) {
        let nanoseconds = u64::try_from(one_way.as_nanos()).unwrap_or(u64::MAX);
        self.shared.delay.store(nanoseconds, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // Wakes it up.
        let _ = TcpStream::connect_timeout(&self.address, CONNECT_MAX);
        if let Some(thread) = self.thread.take() {
            // A panic was reported by its thread.
            let _ = thread.join();
        }
        let pairs = self.shared.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        for pair in pairs.iter().filter_map(Weak::upgrade) {
            // The others may have closed it.
            let _ = pair.client.shutdown(Shutdown::Both);
            let _ = pair.server.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, to: SocketAddr, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.is_over.load(Ordering::Relaxed) {
            return;
        }
        // One that can't be served is closed, and its maker tries again.
        let _ = client.and_then(|client| connect(client, to, shared));
    }
}

fn connect(client: TcpStream, to: SocketAddr, shared: &Arc<Shared>) -> io::Result<()> {
    let server = TcpStream::connect_timeout(&to, CONNECT_MAX)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let pair = Arc::new(Pair { client, server });
    shared.note(&pair)?;
    forward(&pair, |pair| (&pair.client, &pair.server), shared)?;
    forward(&pair, |pair| (&pair.server, &pair.client), shared)
}

/// One direction, from the first end to the second: a thread that notes when bytes came, and one that sends them when
/// they are due.
fn forward(pair: &Arc<Pair>, ends: fn(&Pair) -> (&TcpStream, &TcpStream), shared: &Arc<Shared>) -> io::Result<()> {
    let (sender, receiver) = mpsc::sync_channel(CHUNKS_MAX);
    let (source, target, shared) = (Arc::clone(pair), Arc::clone(pair), Arc::clone(shared));
    let thread = |name: &str| thread::Builder::new().name(name.to_owned());
    thread("relay-in").spawn(move || receive(ends(&source).0, &sender, &shared))?;
    thread("relay-out").spawn(move || send(ends(&target).1, &receiver))?;
    Ok(())
}

struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
}

fn receive(mut from: &TcpStream, sender: &SyncSender<Chunk>, shared: &Shared) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let chunk = Chunk { due: Instant::now() + shared.delay(), bytes: buffer[..count].to_vec() };
        if sender.send(chunk).is_err() {
            break;
        }
    }
}

fn send(mut to: &TcpStream, receiver: &Receiver<Chunk>) {
    // By default the kernel lets a sleep be 0.05 ms too long, which is half of the shortest distance.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    for Chunk { due, bytes } in receiver {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // What it has sent is still on its way.
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says back what it hears.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut from = stream.unwrap();
                let mut to = from.try_clone().unwrap();
                thread::spawn(move || {
                    // Until either side is closed.
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        });
        address
    }

    #[test]
    fn the_same_bytes_later() {
        let relay = Relay::start(echo()).unwrap();
        let mut stream = TcpStream::connect(relay.address()).unwrap();
        for one_way in [Duration::ZERO, Duration::from_millis(20)] {
            relay.set_delay(one_way);
            let sent: Vec<u8> = (0..200_000_u32).map(|number| number.to_le_bytes()[0]).collect();
            let begin = Instant::now();
            let mut writer = stream.try_clone().unwrap();
            let (bytes, mut heard) = (sent.clone(), vec![0; sent.len()]);
            thread::spawn(move || writer.write_all(&bytes).unwrap());
            stream.read_exact(&mut heard).unwrap();
            assert!(sent == heard && begin.elapsed() >= 2 * one_way);
        }
    }

    #[test]
    fn connections_that_have_ended_do_not_count() {
        let relay = Relay::start(echo()).unwrap();
        for _ in 0..CONNECTIONS_MAX + 100 {
            let mut stream = TcpStream::connect(relay.address()).unwrap();
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        }
    }

    #[test]
    fn an_end_is_passed_on() {
        let relay = Relay::start(echo()).unwrap();
        let mut stream = TcpStream::connect(relay.address()).unwrap();
        stream.write_all(b"last words").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "last words");

        let mut open = TcpStream::connect(relay.address()).unwrap();
        open.write_all(b"x").unwrap();
        open.read_exact(&mut [0]).unwrap();
        drop(relay);
        assert!(!matches!(open.read(&mut [0]), Ok(1..)), "what it has is closed");
    }
}
