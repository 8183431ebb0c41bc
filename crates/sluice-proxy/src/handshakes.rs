//! Threads that take the steps of TLS handshakes: each costs as much as hundreds of statements, and the clients of a
//! worker do not wait for that.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
};

use sluice_net::Handshake;

use crate::mailbox::{Mailboxes, Parcel};

/// A step to take, and the worker that it goes back to.
type Step = (u16, Box<Handshake>);

/// The way to the threads. Each connection waits for one step at a time, so there are never more of them than those.
#[derive(Debug, Clone)]
pub(crate) struct Handshakes(mpsc::Sender<Step>);

impl Handshakes {
    /// Has a step taken for a worker.
    pub(crate) fn take_step(&self, worker: u16, handshake: Box<Handshake>) {
        // The threads end when no worker is left.
        let _ = self.0.send((worker, handshake));
    }
}

/// Starts that many threads; they end when the last way to them is gone.
pub(crate) fn start(count: u16, mailboxes: &Arc<Mailboxes>) -> io::Result<(Handshakes, Vec<JoinHandle<()>>)> {
    let (steps, asked) = mpsc::channel();
    let asked = Arc::new(Mutex::new(asked));
    let start = |number: u16| {
        let (asked, mailboxes) = (asked.clone(), mailboxes.clone());
        let builder = std::thread::Builder::new().name(format!("handshake-{number}"));
        builder.spawn(move || take_steps(&asked, &mailboxes))
    };
    let threads = (0..count).map(start).collect::<io::Result<_>>()?;
    Ok((Handshakes(steps), threads))
}

fn take_steps(asked: &Mutex<mpsc::Receiver<Step>>, mailboxes: &Mailboxes) {
    loop {
        let step = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((worker, mut handshake)) = step else { return };
        // Whoever is on the other side must not end the thread that all others need. The session is not used again.
        if catch_unwind(AssertUnwindSafe(|| handshake.step())).is_err() {
            tracing::error!("the step of a TLS handshake has panicked, and that connection ends");
            handshake.panicked();
        }
        mailboxes.send(worker, Parcel::Handshake(handshake));
    }
}
