//! The process around a worker: its mail, the way to the control thread, sockets to servers, and the log.

use std::{
    collections::VecDeque,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_core::{
    ids::ClientRef,
    io::{Address, Command, LogEvent},
    mail::Mail,
};
use sluice_net::Handshake;
use tokio::sync::mpsc;

use crate::{
    asked::Asked,
    clusters::Suspicion,
    desk::{DESK, Desk},
    handshakes::Handshakes,
    identify, log,
    lookup::Request,
    mailbox::{Mailboxes, Parcel},
    net::sockets::{self, Socket},
    resolver::Resolver,
};

/// The process, as a worker sees it.
pub(crate) struct Host {
    pub(crate) worker: u16,
    pub(crate) mailboxes: Arc<Mailboxes>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) handshakes: Handshakes,
    pub(crate) look_ups: mpsc::Sender<Request>,
    pub(crate) identities: mpsc::Sender<identify::Request>,
    pub(crate) commands: mpsc::Sender<Asked>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) suspicion: Suspicion,
    pub(crate) tcp_user_timeout: Duration,
}

impl sluice_net::Host for Host {
    type Socket = Socket;

    fn places(&mut self, address: &Address) -> Vec<Address> {
        self.resolver.places(address)
    }

    fn connect(&mut self, place: &Address) -> io::Result<Socket> {
        sockets::begin_connect(&self.resolver.target(place)?, self.tcp_user_timeout)
    }

    fn tcp_user_timeout(&self) -> Duration {
        self.tcp_user_timeout
    }

    fn connect_failed(&mut self, address: &Address, place: &Address) {
        self.resolver.failed(address, place);
    }

    fn post(&mut self, worker: u16, parcel: Parcel) {
        match parcel {
            Parcel::Mail(Mail::Cancelled(asker)) if worker == DESK => self.desk.delivered(asker),
            parcel => self.mailboxes.send(worker, parcel),
        }
    }

    fn collect(&mut self) -> VecDeque<Parcel> {
        self.mailboxes.take(self.worker)
    }

    fn shake_hands(&mut self, handshake: Box<Handshake>) {
        self.handshakes.take_step(self.worker, handshake);
    }

    fn look_up(&mut self, user: &str) {
        // The control thread outlives the workers, and there is room for as many as may be asked for.
        let _ = self.look_ups.try_send(Request { user: user.to_owned(), asked: Instant::now() });
    }

    fn identify(&mut self, socket: &Socket, client: ClientRef) -> bool {
        identify::Request::of(client, &socket.0).is_some_and(|request| self.identities.try_send(request).is_ok())
    }

    fn command(&mut self, command: Command) -> bool {
        self.commands.try_send(Asked::Command(command)).is_ok()
    }

    fn cancel_command(&mut self, client: ClientRef) {
        // As with PostgreSQL, a cancel that is lost does nothing, and can be sent again.
        let _ = self.commands.try_send(Asked::Cancel(client));
    }

    fn random(&mut self, bytes: &mut [u8]) {
        // The kernel's generator fails only where it is missing, which Linux 3.17 ended.
        getrandom::fill(bytes).expect("the kernel has a random number generator");
    }

    fn log(&mut self, event: LogEvent<'_>) {
        if matches!(event, LogEvent::ServerLost { .. } | LogEvent::ConnectFailed { .. }) {
            self.suspicion.raise();
        }
        log::event(event);
    }

    fn accept_failed(&mut self, error: &io::Error, pause: Option<Duration>) {
        match pause {
            Some(pause) => tracing::warn!("no clients are accepted for {} s: {error}", pause.as_secs()),
            None => tracing::warn!("a client could not be accepted: {error}"),
        }
    }
}
