//! The process around a simulated worker.

use std::{collections::VecDeque, io, rc::Rc, time::Duration};

use sluice_core::{
    ids::ClientRef,
    io::{Address, Command, LogEvent},
    mail::Mail,
};
use sluice_net::{Bell, Handshake, Host, Parcel};

use crate::{Network, Rng, SimMailboxes, SimSocket, Wake};

/// The part of a letter that is shown, in characters.
const SAID_MAX: usize = 200;

/// The system's user at the other end of every Unix socket.
pub const SYSTEM_USER: &str = "somebody";

/// A worker's bell.
#[derive(Debug)]
pub struct SimBell {
    network: Network,
    worker: u16,
}

impl Bell for SimBell {
    fn ring(&self) {
        self.network.wake(Wake::Mail(self.worker));
    }
}

/// The process, as a worker sees it.
#[derive(Debug)]
pub struct SimHost {
    network: Network,
    worker: u16,
    mailboxes: Rc<SimMailboxes>,
    rng: Rng,
}

impl SimHost {
    /// Mailboxes for that many workers.
    pub fn mailboxes(network: &Network, workers: u16) -> Rc<SimMailboxes> {
        Rc::new(SimMailboxes::new((0..workers).map(|worker| SimBell { network: network.clone(), worker })))
    }

    /// The process around a worker, whose random bytes come from `rng`.
    pub fn new(network: &Network, worker: u16, mailboxes: &Rc<SimMailboxes>, rng: Rng) -> Self {
        Self { network: network.clone(), worker, mailboxes: mailboxes.clone(), rng }
    }
}

impl Host for SimHost {
    type Socket = SimSocket;

    fn places(&mut self, address: &Address) -> Vec<Address> {
        vec![address.clone()]
    }

    fn tcp_user_timeout(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn connect_failed(&mut self, _: &Address, _: &Address) {}

    fn connect(&mut self, address: &Address) -> io::Result<SimSocket> {
        self.network.begin_connect(address)
    }

    fn post(&mut self, worker: u16, parcel: Parcel<SimSocket>) {
        if let Parcel::Mail(Mail::Fetch(server, ..)) = &parcel {
            self.network.wake(Wake::Fetch(*server));
        }
        if self.network.0.borrow().listens {
            let what: String = format!("to worker {worker}: {parcel:?}").chars().take(SAID_MAX).collect();
            self.network.wake(Wake::Said(self.worker, what));
        }
        self.mailboxes.send(worker, parcel);
    }

    fn collect(&mut self) -> VecDeque<Parcel<SimSocket>> {
        self.mailboxes.take(self.worker)
    }

    fn shake_hands(&mut self, mut handshake: Box<Handshake>) {
        handshake.step();
        self.post(self.worker, Parcel::Handshake(handshake));
    }

    fn look_up(&mut self, user: &str) {
        self.network.wake(Wake::LookUp(user.to_owned()));
    }

    fn identify(&mut self, _: &SimSocket, client: ClientRef) -> bool {
        self.post(self.worker, Parcel::Mail(Mail::Identified(client, Some(SYSTEM_USER.into()))));
        true
    }

    fn command(&mut self, _: Command) -> bool {
        false
    }

    fn cancel_command(&mut self, _: ClientRef) {}

    fn random(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.rng.next() as u8);
    }

    fn log(&mut self, event: LogEvent<'_>) {
        if self.network.0.borrow().listens {
            self.network.wake(Wake::Said(self.worker, format!("{event:?}")));
        }
    }

    fn accept_failed(&mut self, _: &io::Error, _: Option<Duration>) {}
}
