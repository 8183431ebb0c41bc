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
        Arc, Mutex, PoisonError,
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
/// Connections that it takes in its life: a node makes a handful.
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
    streams: Mutex<Vec<TcpStream>>,
}

impl Shared {
    fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay.load(Ordering::Relaxed))
    }

    /// Keeps a stream, to close it at the end; an error if that has come.
    fn keep(&self, stream: &TcpStream) -> io::Result<()> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_over.load(Ordering::Relaxed) || streams.len() >= 2 * CONNECTIONS_MAX {
            return Err(io::Error::other("the relay takes no more connections"));
        }
        streams.push(stream.try_clone()?);
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
        for stream in &*self.shared.streams.lock().unwrap_or_else(PoisonError::into_inner) {
            // The others may have closed it.
            let _ = stream.shutdown(Shutdown::Both);
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
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        shared.keep(stream)?;
    }
    forward(client.try_clone()?, server.try_clone()?, shared)?;
    forward(server, client, shared)
}

/// One direction: a thread that notes when bytes came, and one that sends them when they are due.
fn forward(from: TcpStream, to: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    let (sender, receiver) = mpsc::sync_channel(CHUNKS_MAX);
    let shared = Arc::clone(shared);
    thread::Builder::new().name("relay-in".to_owned()).spawn(move || receive(from, &sender, &shared))?;
    thread::Builder::new().name("relay-out".to_owned()).spawn(move || send(to, &receiver))?;
    Ok(())
}

struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
}

fn receive(mut from: TcpStream, sender: &SyncSender<Chunk>, shared: &Shared) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let chunk = Chunk { due: Instant::now() + shared.delay(), bytes: buffer[..count].to_vec() };
        if sender.send(chunk).is_err() {
            break;
        }
    }
}

fn send(mut to: TcpStream, receiver: &Receiver<Chunk>) {
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
