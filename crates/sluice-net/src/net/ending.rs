//! Connections that end or leave: what was given for them is sent, in bounded time, and nothing is under way any more.

use std::{net::Shutdown, time::Duration};

use sluice_core::time::Time;

use super::{LINGER, Net};
use crate::{Driver, Host, LinkId, Parcel, Socket, link::Life};

/// The interval at which connections are looked at whose end is overdue.
const LEFTOVERS_INTERVAL: Duration = Duration::from_millis(100);

impl<D: Driver, H: Host<Socket = D::Socket>> Net<D, H> {
    /// Ends the lives that have taken too long.
    pub(super) fn end_overdue(&mut self) {
        if self.next_tick.is_none_or(|at| self.now < at) {
            return;
        }
        self.next_tick = None;
        let closing = std::mem::take(&mut self.closing);
        for id in closing {
            match self.links.get(id as usize).map(|link| &link.life) {
                Some(&Life::Closing { deadline, .. }) if self.now < deadline => self.await_end(id, deadline),
                Some(Life::Closing { .. }) => self.finish(id),
                _ => {}
            }
        }
        // All of them are looked at each time, so not at each one's own.
        self.next_tick = self.next_tick.map(|at| at.max(self.now + LEFTOVERS_INTERVAL));
    }

    /// Looks at a closing connection at that time, if it is still there.
    pub(super) fn await_end(&mut self, id: LinkId, at: Time) {
        self.closing.push(id);
        self.next_tick = Some(self.next_tick.map_or(at, |next| next.min(at)));
    }

    /// Moves a connection on that is closing or leaving.
    pub(super) fn advance(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        let (sent, is_quiet) = (link.has_sent_all(), link.is_quiet());
        match &mut link.life {
            Life::Closing { finished: false, deadline } if sent => {
                if link.ended {
                    self.finish(id);
                } else {
                    let at = (*deadline).min(self.now + LINGER);
                    *deadline = at;
                    // The peer reads what was sent, then hangs up; closing at once could take it back unread.
                    link.shutdown(Shutdown::Write);
                    self.next_tick = self.next_tick.map(|next| next.min(at));
                }
            }
            Life::Closing { finished: true, .. } if is_quiet => self.remove(id),
            Life::Leaving { .. } if sent && is_quiet => self.leave(id),
            _ => {}
        }
    }

    /// Ends a closing connection: whatever is still under way comes to its end now.
    fn finish(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        if let Life::Closing { finished, .. } = &mut link.life {
            *finished = true;
        }
        link.outbox.clear(&mut self.buffers);
        if link.is_quiet() {
            self.remove(id);
        } else {
            link.shutdown(Shutdown::Both);
            self.await_end(id, self.now + LEFTOVERS_INTERVAL);
        }
    }

    fn remove(&mut self, id: LinkId) {
        let mut link = self.links.remove(id as usize);
        link.outbox.clear(&mut self.buffers);
        self.driver.forget(id);
    }

    fn leave(&mut self, id: LinkId) {
        let link = self.links.remove(id as usize);
        self.driver.forget(id);
        if let (Some(_), Some(socket)) = (&link.stall, &link.socket) {
            socket.set_user_timeout(self.host.tcp_user_timeout());
        }
        if let (Life::Leaving { worker, server, client, early }, Some(socket)) = (link.life, link.socket) {
            self.host.post(worker, Parcel::Server { socket, tls: link.tls, server, client, early });
        }
    }
}
