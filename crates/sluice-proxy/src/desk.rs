//! CancelRequests that a successor passes on: clients that were let in here name themselves at an address that is the
//! successor's by now. It has no use for them, and hands them in at a socket that only it knows.
//!
//! As with PostgreSQL, the connection ends when the cancel has been delivered.

use std::{
    collections::HashMap,
    fs, io,
    os::unix::{fs::DirBuilderExt, net::UnixListener as StdListener},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use sluice_core::{
    client_of,
    ids::{ClientId, ClientRef},
    mail::Mail,
};
use sluice_wire::startup::{self, Startup};
use tokio::{
    io::AsyncReadExt,
    net::{UnixListener, UnixStream},
    sync::{Semaphore, oneshot},
    time::timeout,
};

use crate::{
    accepted::accepted,
    mailbox::{Mailboxes, Parcel},
};

/// The worker that stands for the desk where mail says who asks: there are never that many.
pub(crate) const DESK: u16 = u16::MAX;

/// Requests at once, at most: others wait.
const REQUESTS_MAX: usize = 256;

/// The time that a request has, with its delivery.
const REQUEST_TIME: Duration = Duration::from_secs(15);

/// The longest request.
const REQUEST_BYTES_MAX: usize = 12 + startup::CANCEL_KEY_BYTES_MAX;

/// The requests that wait to be delivered.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    next: AtomicU32,
    waiting: Mutex<HashMap<ClientId, oneshot::Sender<()>>>,
}

impl Desk {
    /// A request has been delivered, or there is nothing to cancel.
    pub(crate) fn delivered(&self, asker: ClientRef) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&asker.id);
        if let Some(waiting) = waiting {
            // It may have given up.
            let _ = waiting.send(());
        }
    }

    /// Hears requests at a socket, for ever.
    pub(crate) async fn hear(
        self: Arc<Self>,
        listener: StdListener,
        mailboxes: Arc<Mailboxes>,
        workers: u16,
    ) -> io::Result<()> {
        let listener = UnixListener::from_std(listener)?;
        let room = Arc::new(Semaphore::new(REQUESTS_MAX));
        loop {
            let Ok(permit) = room.clone().acquire_owned().await else { return Ok(()) };
            let (stream, _) = accepted(|| listener.accept()).await;
            let (desk, mailboxes) = (self.clone(), mailboxes.clone());
            tokio::spawn(async move {
                // The end of the connection is the answer, whatever it was.
                let _ = timeout(REQUEST_TIME, desk.take(stream, &mailboxes, workers)).await;
                drop(permit);
            });
        }
    }

    async fn take(&self, mut stream: UnixStream, mailboxes: &Mailboxes, workers: u16) -> io::Result<()> {
        let mut bytes = Vec::new();
        let (process_id, key) = loop {
            match startup::read(&bytes) {
                Ok(Some((Startup::Cancel { process_id, key }, _))) => break (process_id, key),
                Ok(None) if bytes.len() < REQUEST_BYTES_MAX => {}
                _ => return Ok(()),
            }
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        };
        let Some((worker, client)) = client_of(process_id) else { return Ok(()) };
        let id = ClientId(self.next.fetch_add(1, Ordering::Relaxed));
        let (delivered, is_delivered) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, delivered);
        let asker = Some(ClientRef { worker: DESK, id, serial: 0 });
        // Any worker passes on what is for a process before this one, whose workers may be more.
        let worker = if worker < workers { worker } else { 0 };
        mailboxes.send(worker, Parcel::Mail(Mail::Cancel { process_id, client, key, asker }));
        let done = timeout(REQUEST_TIME / 2, is_delivered).await;
        if done.is_err() {
            self.delivered(ClientRef { worker: DESK, id, serial: 0 });
        }
        Ok(())
    }
}

/// A socket in a folder that only this user may enter; removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Private {
    dir: PathBuf,
}

impl Private {
    /// Listens on it: below `RUNTIME_DIRECTORY`, which systemd gives, or in the folder for temporary files.
    pub(crate) fn open() -> io::Result<(Self, StdListener)> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        // Of several, the first.
        let given = std::env::var("RUNTIME_DIRECTORY").ok().and_then(|dirs| dirs.split(':').next().map(PathBuf::from));
        let base = given.filter(|dir| dir.is_absolute()).unwrap_or_else(std::env::temp_dir);
        let dir = base.join(format!("sluice-{:016x}", u64::from_ne_bytes(random)));
        fs::DirBuilder::new().mode(0o700).create(&dir)?;
        let private = Self { dir };
        let listener = StdListener::bind(private.path())?;
        listener.set_nonblocking(true)?;
        Ok((private, listener))
    }

    /// The socket's path.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join("cancel")
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}
