//! The time that a log-in may take (`login_timeout`): it counts from when a client connects, but not while a cluster
//! that may have no primary is asked for its account, which takes until there is one (`failover_timeout`).

use sluice_control::access::Users;
use sluice_wire::{ErrorResponse, sqlstate};

use crate::{
    client::Phase,
    ids::{ClientId, ClientRef},
    io::Io,
    time::Time,
};

use super::Engine;

impl Engine {
    /// A client's time begins, for the first time or anew.
    pub(super) fn begin_login_time(&mut self, now: Time, client: ClientRef) {
        self.clients[client.id].login_since = Some(now);
        self.forget_logins();
        self.logins.push_back((now, client));
    }

    /// The account of a client has been found, or not. What it waited for a primary is no time of its own, and its time
    /// may have been forgotten meanwhile, by a configuration that is another one by now.
    pub(super) fn account_awaited(&mut self, now: Time, client: ClientRef) {
        if self.asks_a_cluster() || self.clients[client.id].login_since.is_none() {
            self.begin_login_time(now, client);
        }
    }

    /// Refuses those whose time is over.
    pub(super) fn expire_logins(&mut self, now: Time, io: &mut impl Io) {
        self.forget_logins();
        while let Some(&(since, client)) = self.logins.front() {
            if now < since + self.snapshot.limits.login_timeout {
                return;
            }
            self.logins.pop_front();
            let error = ErrorResponse::fatal(sqlstate::QUERY_CANCELED, "canceling authentication due to timeout")
                .routine("ProcessInterrupts")
                .hint("The limit is \"login_timeout\" under [limits] in the pool's configuration.");
            self.refuse_client(now, client.id, &error, io);
            self.forget_logins();
        }
    }

    /// Forgets the first log-ins that have ended, well or not, and those whose time does not count now.
    fn forget_logins(&mut self) {
        while let Some((since, client)) = self.logins.front() {
            let id = client.id;
            if self.is_current(*client) && self.clients[id].login_since == Some(*since) && !self.is_known(id) {
                if !self.awaits_primary(id) {
                    return;
                }
                self.clients[id].login_since = None;
            }
            self.logins.pop_front();
        }
    }

    /// Whether a client's account is asked for where there may be no primary.
    fn awaits_primary(&self, id: ClientId) -> bool {
        self.asks_a_cluster() && matches!(self.clients[id].phase, Phase::Account(_))
    }

    fn asks_a_cluster(&self) -> bool {
        matches!(&self.snapshot.access.users, Users::LookedUp(look_up, _) if look_up.cluster.is_some())
    }
}
