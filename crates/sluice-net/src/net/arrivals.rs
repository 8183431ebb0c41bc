//! Peers that have no room for what they are sent: a client that does not read for a while, a server that is busy.
//!
//! `TCP_USER_TIMEOUT` is to end connections whose peer does not answer. But Linux (since 5.11) counts it from when a peer
//! last had room, however often it answers that it has none. PostgreSQL waits for such a client, and a client for such a
//! server. So who answers is given more time, again and again; and who is gone then is noticed a while after the last
//! answer.

use std::time::Duration;

use sluice_core::time::Time;

use super::{LinkKey, Net};
use crate::{Delivery, Driver, Host, LinkId, Socket, link::Stall};

/// Connections are looked at so many times within the time that the kernel waits.
const LOOKS: u32 = 8;

/// The least time by which a connection goes on without another look, however late a busy machine comes to that.
const MORE_MIN: Duration = Duration::from_secs(2);

/// Connections that are looked at in one go, at most: each takes a system call.
const LOOKS_AT_ONCE: usize = 256;

/// The time until it goes on with the others.
const PAUSE: Duration = Duration::from_millis(1);

/// The connections that have been sent something, and may not have taken it yet.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    awaited: Vec<LinkKey>,
    /// The place of the one that is looked at next.
    next: usize,
    /// The time of that; none if there is none.
    pub(super) at: Option<Time>,
}

impl<D: Driver, H: Host<Socket = D::Socket>> Net<D, H> {
    /// Something is about to be sent by a connection.
    pub(super) fn await_arrival(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id as usize).filter(|link| !link.is_awaited) else { return };
        link.is_awaited = true;
        self.arrivals.awaited.push(LinkKey { id, serial: link.serial });
        if self.arrivals.at.is_none() {
            self.arrivals.at = Some(self.now + self.host.tcp_user_timeout() / LOOKS);
        }
    }

    /// Gives those more time who have no room and answer.
    pub(super) fn look_at_arrivals(&mut self) {
        if self.arrivals.at.is_none_or(|at| self.now < at) {
            return;
        }
        let limit = self.host.tcp_user_timeout();
        for _ in 0..LOOKS_AT_ONCE {
            let Some(&key) = self.arrivals.awaited.get(self.arrivals.next) else { break };
            if self.is_awaited(key, limit) {
                self.arrivals.next += 1;
            } else {
                self.arrivals.awaited.swap_remove(self.arrivals.next);
            }
        }
        self.arrivals.at = if self.arrivals.next < self.arrivals.awaited.len() {
            Some(self.now + PAUSE)
        } else {
            self.arrivals.next = 0;
            (!self.arrivals.awaited.is_empty()).then(|| self.now + limit / LOOKS)
        };
    }

    /// Looks at a connection; whether something is still to arrive.
    fn is_awaited(&mut self, key: LinkKey, limit: Duration) -> bool {
        let link = self.links.get_mut(key.id as usize).filter(|link| link.serial == key.serial);
        let Some(link) = link else { return false };
        let Some(socket) = &link.socket else {
            link.is_awaited = false;
            return false;
        };
        let delivery = socket.delivery();
        link.is_awaited = delivery != Delivery::Complete;
        let Delivery::Unread { taken_bytes, silent } = delivery else {
            if link.stall.take().is_some() {
                socket.set_user_timeout(limit);
            }
            return link.is_awaited;
        };
        let since = self.now;
        let stall = link.stall.get_or_insert_with(|| Box::new(Stall { since, taken_bytes }));
        if stall.taken_bytes != taken_bytes {
            // It had room meanwhile.
            **stall = Stall { since, taken_bytes };
        }
        let more = (limit / 2).max(MORE_MIN);
        // The kernel asks at least once in that time, and answers may be lost.
        if silent < more * 4 {
            socket.set_user_timeout(limit.max(self.now.since(stall.since) + limit / LOOKS + more));
        }
        true
    }
}
