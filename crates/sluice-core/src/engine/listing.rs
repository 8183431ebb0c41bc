//! The clients and servers of a worker, as the console lists them.

use sluice_tls::Secured;

use crate::{
    client::{Client, Session},
    ids::{ClientId, ClientRef, ServerId, ServerRef},
    listing::{Encryption, ListedClient, ListedServer, Listing, ServerState},
    server::{Role, Server},
    time::Time,
};

use super::{Engine, cancel};

impl Engine {
    /// Its clients and servers of now, without what only their sockets know.
    pub fn listing(&self, now: Time) -> Listing {
        Listing {
            clients: self.clients.iter().filter_map(|(id, client)| self.listed_client(id, client)).collect(),
            servers: self.servers.iter().map(|(id, server)| self.listed_server(now, id, server)).collect(),
        }
    }

    /// `None` of one that has not proven who it is.
    fn listed_client(&self, id: ClientId, client: &Client) -> Option<ListedClient> {
        let this = ClientRef { worker: self.worker, id, serial: client.serial };
        let (user, database) = self.proven(client)?;
        let session = client.session();
        let server = client.server().and_then(|id| Some((id, self.servers.get(id)?)));
        let asked = server.and_then(|(_, server)| server.meter.query_since());
        Some(ListedClient {
            client: this,
            process_id: cancel::process_id(this),
            user: user.to_owned(),
            database: database.to_owned(),
            application_name: self.application_name_of(client),
            conn: client.conn,
            peer: client.peer,
            local: None,
            connected_at: client.connected_at,
            request_at: asked.unwrap_or_else(|| client.rest.since().max(client.connected_at)),
            waits_since: session.and_then(|session| session.waits_since),
            server: server.map(|(id, server)| self.reference(id, server)),
            unsent_bytes: 0,
            encryption: client.encryption.secured().map(|it| encryption(&it.secured)),
        })
    }

    fn listed_server(&self, now: Time, id: ServerId, server: &Server) -> ListedServer {
        let (state, client) = match server.role {
            Role::Opening { .. } => (ServerState::Opening, None),
            Role::Idle => (ServerState::Idle, None),
            Role::Serving(client) => (ServerState::Active, self.client_ref(client)),
            Role::Settling { .. } => (ServerState::Settling, None),
        };
        let asked = server.meter.query_since().unwrap_or_else(|| server.exchange.ready_at());
        ListedServer {
            server: self.reference(id, server),
            process_id: server.key.as_ref().map(|(process_id, _)| *process_id),
            role: server.pool.upstream.user.clone(),
            database: server.pool.database.clone(),
            conn: server.conn,
            address: server.pool.upstream.address.clone(),
            local: None,
            application_name: client.map(|_| reported_name(server)).unwrap_or_default(),
            state,
            opened_at: server.opened.at,
            request_at: asked.max(server.opened.at),
            client,
            is_busy: client.is_some() && !server.is_at_rest(),
            is_worn: server.is_worn || server.pool.wants_back(now, &server.opened),
            is_called_in: server.pool.has_called_in(&server.opened),
            unsent_bytes: 0,
            encryption: server.encryption.secured().map(encryption),
        }
    }

    fn reference(&self, id: ServerId, server: &Server) -> ServerRef {
        ServerRef { worker: self.worker, id, serial: server.serial }
    }
}

/// The `application_name` that a server has reported.
pub(super) fn reported_name(server: &Server) -> String {
    server.parameters.get("application_name").unwrap_or_default().to_owned()
}

/// The `application_name` that is in place for a client, whatever server it gets.
pub(super) fn application_name(session: &Session) -> String {
    let name = session.profile.get("application_name").unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

fn encryption(secured: &Secured) -> Encryption {
    Encryption { version: secured.version, cipher: secured.cipher.clone() }
}
