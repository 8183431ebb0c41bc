//! `SHOW CLIENTS`, `SHOW SERVERS`, `SHOW SOCKETS` and `SHOW WAITS`: connections one by one.

use std::time::{Duration, SystemTime};

use sluice_core::{
    ids::{ClientRef, ServerRef},
    io::PeerAddress,
    listing::{Encryption, ListedClient, ListedServer, Listing, ServerState},
    time::Time,
};
use time::OffsetDateTime;

use super::{
    rows::{Table, Type, Value},
    tables::host_and_port,
};

/// The columns of PgBouncer 1.18.
const COLUMNS: [&str; 18] = [
    "type",
    "user",
    "database",
    "state",
    "addr",
    "port",
    "local_addr",
    "local_port",
    "connect_time",
    "request_time",
    "wait",
    "wait_us",
    "close_needed",
    "ptr",
    "link",
    "remote_pid",
    "tls",
    "application_name",
];

/// The place of the state among them.
const STATE: usize = 3;

/// The columns of PgBouncer's that `SHOW SOCKETS` has behind them: the places in a connection's buffers. Only the last
/// one has a counterpart, the bytes that are still to be sent.
const IN_BUFFERS: [&str; 7] =
    ["recv_pos", "pkt_pos", "pkt_remain", "send_pos", "send_remain", "pkt_avail", "send_avail"];

/// The columns of `SHOW SOCKETS`.
const OF_SOCKETS: [&str; COLUMNS.len() + IN_BUFFERS.len()] = {
    let mut all = [""; COLUMNS.len() + IN_BUFFERS.len()];
    let (own, behind) = all.split_at_mut(COLUMNS.len());
    own.copy_from_slice(&COLUMNS);
    behind.copy_from_slice(&IN_BUFFERS);
    all
};

/// Those of them that hold texts.
const TEXTS: [&str; 12] = [
    "type",
    "user",
    "database",
    "state",
    "addr",
    "local_addr",
    "connect_time",
    "request_time",
    "ptr",
    "link",
    "tls",
    "application_name",
];

/// The connections of all workers.
pub(super) struct Listed {
    pub(super) listing: Listing,
    /// The port that clients come to.
    pub(super) port: Option<u16>,
    /// The time now, by both clocks.
    pub(super) now: (Time, SystemTime),
}

impl Listed {
    pub(super) fn clients(&self) -> Table {
        let mut table = Table::of(&COLUMNS, &TEXTS, Type::Int4);
        self.listing.clients.iter().for_each(|client| table.push(self.client(client)));
        table
    }

    pub(super) fn servers(&self) -> Table {
        let mut table = Table::of(&COLUMNS, &TEXTS, Type::Int4);
        self.listing.servers.iter().for_each(|server| table.push(self.server(server)));
        table
    }

    /// All connections, or those alone that have not been sent all that is for them.
    pub(super) fn sockets(&self, has_unsent: bool) -> Table {
        let mut table = Table::of(&OF_SOCKETS, &TEXTS, Type::Int4);
        let mut add = |side: &str, mut row: [Value; COLUMNS.len()], unsent_bytes: u64| {
            if has_unsent && unsent_bytes == 0 {
                return;
            }
            if let Value::Text(state) = &row[STATE] {
                let state = if state == "new" { "login" } else { state };
                row[STATE] = format!("{side}_{state}").into();
            }
            let mut row = Vec::from(row);
            row.extend(std::iter::repeat_n(Value::from(0_u32), IN_BUFFERS.len() - 1));
            row.push(unsent_bytes.into());
            table.append(row);
        };
        self.listing.clients.iter().for_each(|client| add("cl", self.client(client), client.unsent_bytes));
        self.listing.servers.iter().for_each(|server| add("sv", self.server(server), server.unsent_bytes));
        table
    }

    fn client(&self, client: &ListedClient) -> [Value; COLUMNS.len()] {
        let own_port = self.port.map(u32::from);
        let (address, port) = shown(Some(client.peer), own_port);
        let (local, local_port) = shown(client.local, own_port);
        let wait = client.waits_since.map_or(Duration::ZERO, |since| self.now.0.since(since));
        let state = if client.waits_since.is_some() { "waiting" } else { "active" };
        [
            "C".into(),
            client.user.as_str().into(),
            client.database.as_str().into(),
            state.into(),
            address.into(),
            port.into(),
            local.into(),
            local_port.into(),
            self.clock(client.connected_at).into(),
            self.clock(client.request_at).into(),
            wait.as_secs().into(),
            wait.subsec_micros().into(),
            0_u32.into(),
            client_name(client.client).into(),
            client.server.map(server_name).unwrap_or_default().into(),
            client.process_id.into(),
            encryption(client.encryption.as_ref()).into(),
            client.application_name.as_str().into(),
        ]
    }

    fn server(&self, server: &ListedServer) -> [Value; COLUMNS.len()] {
        let (host, port) = host_and_port(&server.address);
        let (local, local_port) = shown(server.local, port);
        [
            "S".into(),
            server.role.as_str().into(),
            server.database.as_str().into(),
            state(server.state).into(),
            host.into(),
            port.into(),
            local.into(),
            local_port.into(),
            self.clock(server.opened_at).into(),
            self.clock(server.request_at).into(),
            0_u32.into(),
            0_u32.into(),
            u32::from(server.is_worn).into(),
            server_name(server.server).into(),
            server.client.map(client_name).unwrap_or_default().into(),
            server.process_id.unwrap_or_default().into(),
            encryption(server.encryption.as_ref()).into(),
            server.application_name.as_str().into(),
        ]
    }

    /// The clients that wait for a server, the one that has waited longest first: Sluice's own.
    pub(super) fn waits(&self) -> Table {
        const COLUMNS: [&str; 7] = ["database", "user", "wait", "wait_us", "client", "addr", "application_name"];
        const TEXTS: [&str; 5] = ["database", "user", "client", "addr", "application_name"];
        let clients = self.listing.clients.iter();
        let mut waiting: Vec<_> = clients.filter_map(|client| Some((client.waits_since?, client))).collect();
        waiting.sort_by_key(|(since, _)| *since);
        let mut table = Table::new(&COLUMNS, &TEXTS);
        for (since, client) in waiting {
            let wait = self.now.0.since(since);
            table.push([
                client.database.as_str().into(),
                client.user.as_str().into(),
                wait.as_secs().into(),
                wait.subsec_micros().into(),
                client_name(client.client).into(),
                client.peer.to_string().into(),
                client.application_name.as_str().into(),
            ]);
        }
        table
    }

    /// A time as people read it, in UTC.
    fn clock(&self, at: Time) -> String {
        let (now, clock) = self.now;
        let at = OffsetDateTime::from(clock.checked_sub(now.since(at)).unwrap_or(clock));
        let (date, (hour, minute, second)) = (at.date(), at.to_hms());
        format!(
            "{:04}-{:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC",
            date.year(),
            u8::from(date.month()),
            date.day()
        )
    }
}

/// The name of a client, which no other has had for long.
fn client_name(ClientRef { worker, id, serial }: ClientRef) -> String {
    format!("C{worker}.{}.{serial}", id.0)
}

fn server_name(ServerRef { worker, id, serial }: ServerRef) -> String {
    format!("S{worker}.{}.{serial}", id.0)
}

/// PgBouncer's words.
fn state(state: ServerState) -> &'static str {
    match state {
        ServerState::Opening => "new",
        ServerState::Idle => "idle",
        ServerState::Active => "active",
        ServerState::Settling => "tested",
    }
}

/// An address and a port, if they are known. PgBouncer calls a Unix socket `unix`, and gives it the port in its name.
fn shown(address: Option<PeerAddress>, port_of_socket: Option<u32>) -> (Option<String>, Option<u32>) {
    match address {
        None => (None, None),
        Some(PeerAddress::Local) => (Some("unix".to_owned()), port_of_socket),
        Some(PeerAddress::Tcp(address, port)) => (Some(address.to_string()), Some(port.into())),
    }
}

fn encryption(encryption: Option<&Encryption>) -> String {
    encryption.map(|Encryption { version, cipher }| format!("{version}/{cipher}")).unwrap_or_default()
}
