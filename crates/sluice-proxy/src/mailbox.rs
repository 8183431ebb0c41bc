//! How workers write to each other, and the control thread to them: a queue and an eventfd each.

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use rustix::event::{EventfdFlags, eventfd};
use sluice_core::{
    hub::{ClientRef, Mail},
    server::Server,
};
use tokio::sync::mpsc;

use crate::lookup::Request;

/// What a worker gets.
#[derive(Debug)]
pub(crate) enum Parcel {
    /// A letter for its engine.
    Mail(Mail),
    /// A server connection, with its socket.
    Server {
        socket: OwnedFd,
        server: Box<Server>,
        client: ClientRef,
        /// What the server said while the connection changed hands.
        early: Vec<u8>,
    },
}

#[derive(Debug)]
struct Mailbox {
    parcels: Mutex<VecDeque<Parcel>>,
    bell: OwnedFd,
}

/// The mailboxes of all workers, and the way to the control thread.
#[derive(Debug)]
pub(crate) struct Mailboxes {
    boxes: Vec<Mailbox>,
    look_ups: mpsc::Sender<Request>,
}

impl Mailboxes {
    /// For that many workers.
    pub(crate) fn new(workers: u16, look_ups: mpsc::Sender<Request>) -> io::Result<Self> {
        let mailbox = || {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Mailbox { parcels: Mutex::default(), bell })
        };
        let boxes = (0..workers).map(|_| mailbox()).collect::<io::Result<_>>()?;
        Ok(Self { boxes, look_ups })
    }

    /// What a worker has to watch to hear of its mail.
    pub(crate) fn bell(&self, worker: u16) -> io::Result<OwnedFd> {
        self.boxes[usize::from(worker)].bell.try_clone()
    }

    /// Sends to a worker; one that has ended reads nothing any more, and nothing is lost with it.
    pub(crate) fn send(&self, worker: u16, parcel: Parcel) {
        let Some(mailbox) = self.boxes.get(usize::from(worker)) else { return };
        let mut parcels = mailbox.parcels.lock().unwrap_or_else(PoisonError::into_inner);
        let first = parcels.is_empty();
        parcels.push_back(parcel);
        drop(parcels);
        if first {
            // It fails only when the counter is full, and then the bell rings already.
            let _ = rustix::io::write(&mailbox.bell, &1u64.to_ne_bytes());
        }
    }

    /// Sends the same letter to every worker.
    pub(crate) fn send_all(&self, mail: impl Fn() -> Mail) {
        for worker in 0..self.boxes.len() as u16 {
            self.send(worker, Parcel::Mail(mail()));
        }
    }

    /// Takes what has come.
    pub(crate) fn take(&self, worker: u16) -> VecDeque<Parcel> {
        std::mem::take(&mut *self.boxes[usize::from(worker)].parcels.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks the control thread for a user's secret.
    pub(crate) fn look_up(&self, user: &str) {
        // The control thread outlives the workers, and there is room for as many as may be asked for.
        let _ = self.look_ups.try_send(Request { user: user.to_owned(), asked: Instant::now() });
    }
}
