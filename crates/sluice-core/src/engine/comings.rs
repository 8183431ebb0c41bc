//! Clients who come and go, as the log tells of them.

use sluice_wire::startup::SessionRequest;

use crate::{
    client::{Client, Phase, Said},
    ids::ClientId,
    io::{Departure, Io, KnownClient, LogEvent},
    time::Time,
};

use super::{
    Engine,
    listing::{application_name, reported_name},
    login::shortened,
};

impl Engine {
    /// Notes who a client says it is, before it has proven anything.
    pub(super) fn note_said(&mut self, id: ClientId, request: &SessionRequest) {
        let Some(user) = request.get("user").filter(|user| !user.is_empty()) else { return };
        let database = request.get("database").filter(|database| !database.is_empty()).unwrap_or(user);
        let [user, database] = [user, database].map(|name| shortened(name.to_owned()).into());
        if let Some(client) = self.clients.get_mut(id) {
            client.said = Some(Box::new(Said { user, database }));
        }
    }

    /// The user and the database of a client, as far as it has said.
    pub(super) fn who<'a>(&'a self, client: &'a Client) -> Option<(&'a str, &'a str)> {
        let said = || client.said.as_ref().map(|said| (&*said.user, &*said.database));
        self.proven(client).or_else(said)
    }

    /// The same of one that has proven who it is.
    pub(super) fn proven<'a>(&'a self, client: &'a Client) -> Option<(&'a str, &'a str)> {
        match &client.phase {
            Phase::Console(console) => Some((&console.user, &self.snapshot.admin.as_ref()?.database)),
            _ => Some((client.admitted.as_ref()?.user()?, &client.session()?.pool.database)),
        }
    }

    /// A client's `application_name`, as its server has reported it or as the pool remembers it.
    pub(super) fn application_name_of(&self, client: &Client) -> String {
        let server = client.server().and_then(|id| self.servers.get(id));
        match (&client.phase, server) {
            (Phase::Console(console), _) => console.application_name.to_string(),
            (_, Some(server)) => reported_name(server),
            (_, None) => client.session().map(application_name).unwrap_or_default(),
        }
    }

    /// Logs that a client is logged in, if that is asked for.
    pub(super) fn log_logged_in(&mut self, id: ClientId, io: &mut impl Io) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.said = None;
        if !self.snapshot.client_log.connections {
            return;
        }
        if let Some(known) = self.clients.get(id).and_then(|client| self.known(client)) {
            io.log(LogEvent::ClientLoggedIn(&known));
        }
    }

    /// Logs that a client is gone, if it had logged in and that is asked for.
    pub(super) fn log_gone(&self, now: Time, client: &Client, reason: Departure<'_>, io: &mut impl Io) {
        if !self.snapshot.client_log.disconnections || !matches!(client.phase, Phase::Open(_) | Phase::Console(_)) {
            return;
        }
        if let Some(known) = self.known(client) {
            io.log(LogEvent::ClientGone { client: &known, reason, age: now.since(client.connected_at) });
        }
    }

    fn known<'a>(&'a self, client: &'a Client) -> Option<KnownClient<'a>> {
        let (user, database) = self.proven(client)?;
        Some(KnownClient {
            database,
            user,
            peer: client.peer,
            tls: client.encryption.secured().map(|it| it.secured.version),
            application_name: self.application_name_of(client),
        })
    }
}
