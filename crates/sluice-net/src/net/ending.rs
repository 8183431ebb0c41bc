//! Connections that end or leave: what was given for them is sent, in bounded time, and nothing is under way any more.

use std::{collections::VecDeque, net::Shutdown, time::Duration};

use sluice_core::{io::Conn, time::Time};

use super::{LINGER, LinkKey, Net};
use crate::{Driver, Host, LinkId, Parcel, Socket, link::Life};

/// The interval at which connections are looked at whose end is overdue.
const LEFTOVERS_INTERVAL: Duration = Duration::from_millis(100);

/// Connections of a worker that are being closed and may wait for their peers, at most.
///
/// Beyond that the oldest are closed at once, those first that have been sent everything: they have had the most time to
/// take it, and the kernel still delivers what it has got. New ones may not have been sent anything yet.
pub const LINGERING_MAX: usize = 32;

/// The connections that are being closed.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// Those that wait for their peers, oldest first, and some that have ended since.
    lingering: VecDeque<LinkKey>,
    /// The number of those that do wait.
    count: usize,
    /// Those whose end is only for the driver to report.
    finished: Vec<LinkKey>,
    /// The next time that these are looked at.
    pub(super) at: Option<Time>,
}

impl Ending {
    fn look_at(&mut self, at: Time) {
        self.at = Some(self.at.map_or(at, |next| next.min(at)));
    }
}

impl<D: Driver, H: Host<Socket = D::Socket>> Net<D, H> {
    /// Ends the lives that have taken too long.
    pub(super) fn end_overdue(&mut self) {
        if self.ending.at.is_none_or(|at| self.now < at) {
            return;
        }
        self.ending.at = None;
        for key in std::mem::take(&mut self.ending.finished) {
            if self.links.get(key.id as usize).is_some_and(|link| link.serial == key.serial) {
                self.finish(key.id);
            }
        }
        for key in std::mem::take(&mut self.ending.lingering) {
            match self.deadline(key) {
                None => {}
                Some(deadline) if self.now < deadline => {
                    self.ending.lingering.push_back(key);
                    self.ending.look_at(deadline);
                }
                Some(_) => self.finish(key.id),
            }
        }
        // All of them are looked at each time, so not at each one's own.
        self.ending.at = self.ending.at.map(|at| at.max(self.now + LEFTOVERS_INTERVAL));
    }

    /// Ends the oldest of those that wait for their peers, where there are too many.
    pub(super) fn end_beyond_limit(&mut self) {
        while self.ending.count > LINGERING_MAX {
            while let Some(key) = self.ending.lingering.front().copied()
                && self.deadline(key).is_none()
            {
                self.ending.lingering.pop_front();
            }
            let mut waiting = self.ending.lingering.iter().filter(|key| self.deadline(**key).is_some());
            let oldest = waiting.clone().find(|key| self.links[key.id as usize].has_sent_all()).or(waiting.next());
            let Some(id) = oldest.map(|key| key.id) else { return };
            self.finish(id);
        }
    }

    /// The deadline of a connection that is being closed, unless it has ended.
    fn deadline(&self, key: LinkKey) -> Option<Time> {
        match self.links.get(key.id as usize).filter(|link| link.serial == key.serial)?.life {
            Life::Closing { deadline, finished: false } => Some(deadline),
            _ => None,
        }
    }

    /// Waits for the peer of a connection that is being closed from now on, until then.
    pub(super) fn await_end(&mut self, Conn(id): Conn, deadline: Time) {
        let Some(link) = self.links.get_mut(id as usize) else { return };
        link.life = Life::Closing { deadline, finished: false };
        self.ending.lingering.push_back(LinkKey { id, serial: link.serial });
        self.ending.count += 1;
        self.ending.look_at(deadline);
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
                    self.ending.at = self.ending.at.map(|next| next.min(at));
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
        if let Life::Closing { finished, .. } = &mut link.life
            && !std::mem::replace(finished, true)
        {
            self.ending.count -= 1;
        }
        link.outbox.clear(&mut self.buffers);
        if link.is_quiet() {
            self.remove(id);
        } else {
            link.shutdown(Shutdown::Both);
            self.ending.finished.push(LinkKey { id, serial: link.serial });
            self.ending.look_at(self.now + LEFTOVERS_INTERVAL);
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
