//! Connecting to a server: to one after the other of the places at which it may be, until one connect succeeds.

use std::{io, time::Duration};

use sluice_core::io::Loss;

use super::{LinkKey, Net, Notice};
use crate::{Driver, Host, LinkId, Socket, link::Life};

/// The time from which a connect that the engine gives up has failed: sooner, it has changed its mind.
const IN_VAIN: Duration = Duration::from_millis(100);

impl<D: Driver, H: Host<Socket = D::Socket>> Net<D, H> {
    /// Begins to connect to the next place; `false` if there is none any more.
    pub(super) fn connect_to_next(&mut self, id: LinkId) -> bool {
        let Some(link) = self.links.get_mut(id as usize) else { return false };
        let Life::Connecting(attempt) = &mut link.life else { return false };
        while let Some(place) = attempt.rest.next() {
            let socket = self.host.connect(&place);
            attempt.place = Some(place);
            match socket {
                Ok(socket) => {
                    link.awaits_connect = true;
                    link.ended = false;
                    link.connecting_since = self.now;
                    self.driver.await_connect(id, link.socket.insert(socket));
                    return true;
                }
                Err(error) => attempt.fails(&error, &mut self.host),
            }
        }
        false
    }

    /// A connect to one of the places has ended.
    pub(super) fn connect_ended(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        link.awaits_connect = false;
        let Life::Connecting(attempt) = &mut link.life else {
            self.advance(id);
            return;
        };
        let Some(socket) = &link.socket else { return };
        match socket.connect_result() {
            Ok(()) => {
                link.life = Life::Open;
                link.wants_bytes = true;
                self.notices.extend(self.key(id).map(Notice::Connected));
                self.read(id);
            }
            Err(error) => {
                attempt.fails(&error, &mut self.host);
                if !attempt.rest.as_slice().is_empty() {
                    self.driver.forget(id);
                    (link.socket, link.ended) = (None, true);
                }
                if !self.connect_to_next(id) {
                    self.connect_fails(id);
                }
            }
        }
    }

    /// It has connected to none of the places. Told like any other end, in its turn.
    pub(super) fn connect_fails(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        if let Life::Connecting(attempt) = &link.life {
            self.notices
                .push_back(Notice::Closed(LinkKey { id, serial: link.serial }, Loss::Broken(attempt.wrong.join("; "))));
        }
    }

    /// The engine gives a connection up that may be under way.
    pub(super) fn connect_is_given_up(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        if let Life::Connecting(attempt) = &mut link.life
            && self.now >= link.connecting_since + IN_VAIN
        {
            attempt.fails(&io::ErrorKind::TimedOut.into(), &mut self.host);
        }
    }
}
