//! Mailboxes by which workers write to each other, and the control thread to them: a queue and a bell each.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use sluice_core::{
    hub::CalledIn,
    mail::{self, Mail},
};

use crate::Parcel;

/// A means to wake a worker, whose driver then reports [`Event::Mail`](crate::Event::Mail).
pub trait Bell {
    /// Wakes it.
    fn ring(&self);
}

#[derive(Debug)]
struct Mailbox<S, B> {
    parcels: Mutex<VecDeque<Parcel<S>>>,
    bell: B,
}

/// The mailboxes of all workers.
#[derive(Debug)]
pub struct Mailboxes<S, B> {
    boxes: Vec<Mailbox<S, B>>,
}

impl<S, B: Bell> Mailboxes<S, B> {
    /// One for each bell.
    pub fn new(bells: impl IntoIterator<Item = B>) -> Self {
        let boxes = bells.into_iter().map(|bell| Mailbox { parcels: Mutex::default(), bell });
        Self { boxes: boxes.collect() }
    }

    /// The bell of a worker, which it has to watch.
    pub fn bell(&self, worker: u16) -> &B {
        &self.boxes[usize::from(worker)].bell
    }

    /// Sends to a worker; one that has ended reads nothing any more, and nothing is lost with it.
    pub fn send(&self, worker: u16, parcel: Parcel<S>) {
        let Some(mailbox) = self.boxes.get(usize::from(worker)) else { return };
        let mut parcels = mailbox.parcels.lock().unwrap_or_else(PoisonError::into_inner);
        let first = parcels.is_empty();
        parcels.push_back(parcel);
        drop(parcels);
        if first {
            mailbox.bell.ring();
        }
    }

    /// Sends the same message to every worker.
    pub fn send_all(&self, mail: impl Fn() -> Mail) {
        self.post_all(|| Parcel::Mail(mail()));
    }

    /// Sends the same to every worker.
    pub fn post_all(&self, parcel: impl Fn() -> Parcel<S>) {
        for worker in 0..self.boxes.len() as u16 {
            self.send(worker, parcel());
        }
    }

    /// Tells workers of servers that were called in.
    pub fn call_in(&self, servers: CalledIn) {
        for (worker, mail) in mail::of_called_in(servers) {
            self.send(worker, Parcel::Mail(mail));
        }
    }

    /// The number of waiting deliveries of a kind, for all workers.
    pub fn count(&self, which: impl Fn(&Parcel<S>) -> bool) -> usize {
        let waiting = |mailbox: &Mailbox<S, B>| {
            let parcels = mailbox.parcels.lock().unwrap_or_else(PoisonError::into_inner);
            parcels.iter().filter(|parcel| which(parcel)).count()
        };
        self.boxes.iter().map(waiting).sum()
    }

    /// Takes what has come.
    pub fn take(&self, worker: u16) -> VecDeque<Parcel<S>> {
        std::mem::take(&mut *self.boxes[usize::from(worker)].parcels.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
