//! One engine with both sides played by hand: what a client says goes in, what the server is sent comes out, and back.
//!
//! Messages are written as bytes by the functions of `messages` and read as short texts: `P(a: SELECT 1) B(a) E S`.

mod clusters;
mod own_queries;

use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};

use sluice_control::{
    Configuration, Control, Database, Observation, Secret, Snapshot,
    access::{Access, Method, Policy, Users},
    address::{Address, PeerAddress},
    settings::{Limits, PoolSettings},
};
use sluice_core::{
    hub::{CalledIn, Hub},
    io::Owner,
    mail::{self, Mail},
    secrets::Found,
    time::Time,
};
use sluice_sim::{Lockstep, PipeId, Style};
use sluice_wire::{
    ErrorFields, Frame, Framer,
    message::{self, AUTHENTICATION_OK, BindNames, Named, Parse, TransactionStatus, framed, put_cstr},
    startup::{self, ProtocolVersion, Startup},
};

pub(crate) use crate::messages::*;

/// One side of the engine: a client's connection, or a server's.
pub(crate) type Side = PipeId;

/// The room for bytes on their way to a side that does not read, in bytes: next to nothing.
const ROOM_BYTES: usize = 8 << 10;

/// The worker's buffers: how many, and of how many bytes. What a side says in one piece comes in one piece.
const BUFFERS: (u16, usize) = (64, 4 << 20);

/// A worker, and where everybody sits.
pub(crate) struct Table {
    net: Lockstep,
    hub: Arc<Hub>,
    /// The observer of the cluster, if there is one.
    control: Option<Control>,
    /// The keys that clients were told.
    keys: HashMap<Side, Vec<u8>>,
    /// The StartupMessages of servers' connections.
    startups: HashMap<Side, Vec<u8>>,
    /// Connections for CancelRequests so far.
    cancels: Vec<Side>,
    /// Whether servers say by themselves what their sessions hold.
    pub(crate) reports: bool,
    /// The version that servers report.
    version: &'static str,
    /// Parameters that servers report besides, and their values.
    reported: Vec<(&'static str, &'static str)>,
}

/// The database that a table's clients name, whatever they call it.
pub(crate) fn scripted(settings: PoolSettings) -> Database {
    Database::any_at(Address::Unix("/scripted".into()), settings)
}

/// The hub of the workers; clients prove who they are by that method, and nobody is known.
pub(crate) fn hub(database: Database, limits: Limits, method: Method, workers: u16) -> Arc<Hub> {
    let access = Access { policy: Policy::Method(method), users: Users::Listed(HashMap::new()) };
    let first = Snapshot::first(Configuration {
        databases: vec![database],
        access,
        encryption: None,
        admin: None,
        balancers: Vec::new(),
        client_log: sluice_control::settings::ClientLog::default(),
        clusters: Vec::new(),
        limits,
    });
    sluice_sim::hub(Arc::new(first), workers)
}

impl Table {
    pub(crate) fn new(settings: PoolSettings) -> Self {
        Self::with_secret(settings, None)
    }

    /// One whose servers are told where their clients are, by function 77.
    pub(crate) fn telling(settings: PoolSettings) -> Self {
        Self::with_secret(settings, Some(Secret("a secret between them".to_owned())))
    }

    /// One whose servers say by themselves what their sessions hold.
    pub(crate) fn reporting(settings: PoolSettings) -> Self {
        Self { reports: true, ..Self::new(settings) }
    }

    /// One whose servers are of another version than 15.
    pub(crate) fn of_version(version: &'static str, settings: PoolSettings) -> Self {
        Self { version, ..Self::new(settings) }
    }

    fn with_secret(settings: PoolSettings, client_address_secret: Option<Secret>) -> Self {
        Self::with_all(settings, client_address_secret, limits(), Method::Trust)
    }

    /// One with other limits, where clients prove who they are by that method, and nobody is known.
    pub(crate) fn limited(settings: PoolSettings, limits: Limits, method: Method) -> Self {
        Self::with_all(settings, None, limits, method)
    }

    fn with_all(settings: PoolSettings, client_address_secret: Option<Secret>, limits: Limits, method: Method) -> Self {
        let database = Database { client_address_secret, ..scripted(settings) };
        let hub = hub(database, limits, method, 1);
        let net = Lockstep::new(&hub, &[Style::Polls], BUFFERS, ROOM_BYTES).unread();
        Self {
            net,
            hub,
            control: None,
            keys: HashMap::new(),
            cancels: Vec::new(),
            startups: HashMap::new(),
            version: "15.0",
            reports: false,
            reported: Vec::new(),
        }
    }

    /// Servers that log in from now on report that parameter as well.
    pub(crate) fn reports_at_login(&mut self, name: &'static str, value: &'static str) {
        self.reported.retain(|(known, _)| *known != name);
        self.reported.push((name, value));
    }

    /// The configuration has this database from now on, in place of what it had.
    pub(crate) fn publishes(&mut self, database: Database) {
        self.changes(|configuration| configuration.databases = vec![database]);
    }

    /// The configuration is changed in that way.
    pub(crate) fn changes(&mut self, change: impl FnOnce(&mut Configuration)) {
        let mut configuration = configuration_of(&self.hub.snapshot());
        let mut control = Control::new(configuration.clone());
        change(&mut configuration);
        let published = control.observe(Observation::Configured(configuration.into())).expect("something is otherwise");
        self.hub.publish(published.snapshot);
        self.net.post(0, Mail::Published);
    }

    /// The oldest look-up has this result; gives its user.
    pub(crate) fn finds(&mut self, found: Found) -> String {
        let user = self.net.asked.pop_front().expect("somebody is looked up");
        for client in self.hub.secrets.found(self.net.now(), &user, found) {
            self.net.post(client.worker, Mail::Secret(client));
        }
        user
    }

    /// The worker gets that mail.
    pub(crate) fn is_told(&mut self, mail: Mail) {
        self.net.post(0, mail);
    }

    /// An operator has the pools give out no servers, or open new ones.
    pub(crate) fn operates(&mut self, how: fn(&Hub, Time) -> CalledIn) {
        let now = self.net.now();
        for (worker, mail) in mail::of_called_in(how(&self.hub, now)) {
            self.net.post(worker, mail);
        }
    }

    /// The number of pools.
    pub(crate) fn pools(&self) -> usize {
        self.hub.pools().len()
    }

    /// A client that is logged in, as is the server that it needed for that.
    pub(crate) fn client(&mut self) -> Side {
        self.numbered_client().0
    }

    /// The same of another user.
    pub(crate) fn client_of(&mut self, user: &str) -> Side {
        let side = self.stranger(user);
        self.connects();
        let heard = self.hears(side);
        assert!(heard.ends_with("Z(I)"), "a client is not let in: {heard}");
        side
    }

    /// A client like others, with the process number that it was told.
    pub(crate) fn numbered_client(&mut self) -> (Side, u32) {
        let side = self.stranger("app");
        self.connects();
        let heard = self.hears(side);
        assert!(heard.ends_with("Z(I)"), "a client is not let in");
        let number = heard.split_once("K(").and_then(|(_, rest)| rest.split_once(')')).expect("it is told a number").0;
        (side, number.parse().expect("a number"))
    }

    /// A client that has said who it is, and nothing else.
    pub(crate) fn stranger(&mut self, user: &str) -> Side {
        self.stranger_with(user, &[])
    }

    /// A connection from that address, by which nothing has been said yet.
    pub(crate) fn comes_from(&mut self, address: &str) -> Side {
        let address: SocketAddr = address.parse().expect("an address and a port");
        let peer = PeerAddress::Tcp(address.ip(), address.port());
        self.net.open(0, peer).expect("the worker accepts clients")
    }

    /// One that asks for settings as well.
    pub(crate) fn stranger_with(&mut self, user: &str, settings: &[(&str, &str)]) -> Side {
        let side = self.net.open(0, PeerAddress::Local).expect("the worker accepts clients");
        let mut packet = Vec::new();
        let parameters = [("user", user), ("database", "app")].into_iter().chain(settings.iter().copied());
        startup::put_session(&mut packet, ProtocolVersion::V3_0, parameters);
        self.says(side, &packet);
        side
    }

    /// Makes the connections that were asked for; returns those to servers, logged in.
    pub(crate) fn connects(&mut self) -> Vec<Side> {
        self.note_cancels();
        let mut servers = Vec::new();
        for side in self.net.connecting() {
            let is_server = self.is_server(side);
            self.net.connect(side);
            if !is_server {
                continue;
            }
            let startup = self.take(side);
            self.startups.insert(side, startup);
            let mut welcome = AUTHENTICATION_OK.to_vec();
            message::put_parameter_status(&mut welcome, "server_version", self.version);
            for (name, value) in &self.reported {
                message::put_parameter_status(&mut welcome, name, value);
            }
            if self.reports {
                message::put_parameter_status(&mut welcome, "sluice.session", "");
                message::put_parameter_status(&mut welcome, "sluice.catalog", "1");
            }
            message::put_backend_key_data(&mut welcome, 1000 + side as u32, b"abcd");
            welcome.extend_from_slice(&TransactionStatus::Idle.ready_for_query());
            self.says(side, &welcome);
            let tells = self.hub.snapshot().databases[0].client_address_secret.is_some();
            if tells && self.hears(side).starts_with("Q(SELECT p.oid") {
                self.says(side, &answers("D(77) C(SELECT 1) Z(I)"));
            }
            servers.push(side);
        }
        servers
    }

    /// The settings that a server's connection was opened with.
    pub(crate) fn opened_with(&self, server: Side) -> String {
        let Ok(Some((Startup::Session(request), _))) = startup::read(&self.startups[&server]) else {
            panic!("a server's connection begins with a StartupMessage")
        };
        let settings = request.parameters.iter().skip(2).map(|(name, value)| format!("{name}={value}"));
        settings.collect::<Vec<_>>().join(" ")
    }

    /// Makes the connections that were asked for; the servers refuse the log-ins so.
    pub(crate) fn refuses(&mut self, error: &str) {
        for side in self.net.connecting() {
            self.net.connect(side);
            self.take(side);
            self.says(side, &[AUTHENTICATION_OK.to_vec(), answers(error)].concat());
        }
    }

    fn is_server(&self, side: Side) -> bool {
        matches!(self.net.place(side), Some((_, _, Owner::Server(_))))
    }

    /// The server connections that are open.
    pub(crate) fn servers(&self) -> Vec<Side> {
        let connections = self.net.workers()[0].net().connections();
        let servers = connections.filter(|(_, owner, _)| matches!(owner, Some(Owner::Server(_))));
        let mut sides: Vec<Side> = servers.filter_map(|(_, _, socket)| Some(socket?.pipe())).collect();
        sides.sort_unstable();
        sides
    }

    fn note_cancels(&mut self) {
        for side in self.net.connecting() {
            let is_cancel = matches!(self.net.place(side), Some((_, _, Owner::Cancel(_))));
            if is_cancel && !self.cancels.contains(&side) {
                self.cancels.push(side);
            }
        }
    }

    /// CancelRequests so far.
    pub(crate) fn cancels(&mut self) -> usize {
        self.note_cancels();
        self.cancels.len()
    }

    /// The CancelRequests that were sent have been passed on: the server closes their connections.
    pub(crate) fn cancels_arrive(&mut self) {
        self.note_cancels();
        for side in self.cancels.clone() {
            if self.net.network().is_connecting(side) {
                self.net.connect(side);
            }
            self.net.hang_up(side);
        }
    }

    /// Bytes come from that side, in one piece.
    pub(crate) fn says(&mut self, side: Side, bytes: &[u8]) {
        self.net.say(side, &[bytes]);
    }

    /// Several pieces come from that side, and all have been read before anything is done about the first.
    pub(crate) fn says_at_once(&mut self, side: Side, pieces: &[&[u8]]) {
        self.net.say(side, pieces);
    }

    /// Hangs up that side.
    pub(crate) fn hangs_up(&mut self, side: Side) {
        if self.net.network().is_connecting(side) {
            return self.net.refuse(side);
        }
        self.net.hang_up(side);
    }

    /// All that a side is sent, until nothing more comes.
    pub(crate) fn take(&mut self, side: Side) -> Vec<u8> {
        self.net.set_reads(side, true);
        self.net.set_reads(side, false);
        std::mem::take(&mut self.net.side(side).heard)
    }

    /// The messages that that side has been sent since it was last asked, as text.
    pub(crate) fn hears(&mut self, side: Side) -> String {
        let bytes = self.take(side);
        if !self.net.side(side).is_client {
            return read(&bytes, frontend);
        }
        self.note_key(side, &bytes);
        read(&bytes, backend)
    }

    /// The error that a client has been sent last, with all that it says.
    pub(crate) fn hears_error(&mut self, client: Side) -> String {
        let bytes = self.take(client);
        let at = bytes.windows(2).position(|pair| pair == b"SF").expect("it has heard a FATAL");
        String::from_utf8_lossy(&bytes[at..]).into_owned()
    }

    /// The pools of all that.
    pub(crate) fn hub(&self) -> &Hub {
        &self.hub
    }

    fn note_key(&mut self, side: Side, bytes: &[u8]) {
        let mut at = 0;
        while let Ok(Frame::Message { tag, total, here }) = Framer::default().next(&bytes[at..])
            && here == total
        {
            if tag == b'K' {
                self.keys.insert(side, bytes[at + 9..at + total].to_vec());
            }
            at += total;
        }
    }

    /// The number of bytes that that side has not read.
    pub(crate) fn unread(&self, side: Side) -> usize {
        self.net.unread_by(side)
    }

    /// Whether that side is not read from.
    pub(crate) fn is_paused(&self, side: Side) -> bool {
        !self.net.network().is_read(side)
    }

    pub(crate) fn is_closed(&self, side: Side) -> bool {
        self.net.place(side).is_none()
    }

    /// A CancelRequest of a client comes.
    pub(crate) fn cancel(&mut self, client: Side) {
        let Some((_, _, Owner::Client(id))) = self.net.place(client) else { panic!("not a client") };
        let key = self.keys.get(&client).expect("it was told one").clone();
        self.net.post(0, Mail::Cancel { process_id: 0, client: id, key, asker: None });
    }

    /// Somebody connects and sends a CancelRequest.
    pub(crate) fn asker(&mut self, number: u32, key: &[u8]) -> Side {
        let side = self.net.open(0, PeerAddress::Local).expect("the worker accepts clients");
        let mut packet = Vec::new();
        startup::put_cancel(&mut packet, number, key);
        self.says(side, &packet);
        side
    }

    /// The key that a client was told.
    pub(crate) fn key(&self, client: Side) -> Vec<u8> {
        self.keys[&client].clone()
    }

    /// Time goes by, with a tick at its end.
    pub(crate) fn passes(&mut self, time: Duration) {
        self.net.pass(time);
    }
}

fn configuration_of(snapshot: &Snapshot) -> Configuration {
    Configuration {
        databases: snapshot.databases.iter().map(|database| (**database).clone()).collect(),
        access: (*snapshot.access).clone(),
        encryption: None,
        admin: None,
        balancers: snapshot.balancers.clone(),
        client_log: snapshot.client_log,
        clusters: Vec::new(),
        limits: snapshot.limits.clone(),
    }
}

/// The limits of a table where nothing else is said.
pub(crate) fn limits() -> Limits {
    Limits { rewritten_message_bytes: 4096, ..Limits::default() }
}

fn read(bytes: &[u8], describe: fn(u8, &[u8]) -> String) -> String {
    let framer = Framer::default();
    let (mut at, mut out) = (0, Vec::new());
    while at < bytes.len() {
        match framer.next(&bytes[at..]) {
            Ok(Frame::Message { tag, total, here }) if here == total => {
                out.push(describe(tag, &bytes[at + 5..at + total]));
                at += total;
            }
            _ => {
                out.push(format!("and {} bytes", bytes.len() - at));
                break;
            }
        }
    }
    out.join(" ")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
}

/// A message to a server, as text.
fn frontend(tag: u8, body: &[u8]) -> String {
    match tag {
        b'Q' | b'f' => own_queries::query_text(tag, &text(body)),
        b'F' => format!("F({})", u32::from_be_bytes(*body.first_chunk().expect("an OID"))),
        b'P' => {
            let parse = Parse::read(body).expect("the engine writes whole messages");
            let types: Vec<_> = types_in(&parse).map(|oid| oid.to_string()).collect();
            let of = if types.is_empty() { String::new() } else { format!(" of {}", types.join(" ")) };
            format!("P({}: {}{of})", text(parse.name), text(parse.query))
        }
        b'B' => format!("B({})", text(BindNames::read(body).expect("the engine writes whole messages").statement)),
        b'D' if body == b"!\0" => "D(!)".to_owned(),
        b'D' | b'C' => match Named::read(body, "").expect("the engine writes whole messages") {
            Named::Statement(name) => format!("{}({})", tag as char, text(name)),
            Named::Portal(name) => format!("{}[{}]", tag as char, text(name)),
        },
        _ => (tag as char).to_string(),
    }
}

/// The parameters' types in a Parse.
fn types_in(parse: &Parse<'_>) -> impl Iterator<Item = u32> {
    let types = parse.definition.get(parse.query.len() + 3..).unwrap_or_default();
    types.chunks_exact(4).map(|oid| u32::from_be_bytes([oid[0], oid[1], oid[2], oid[3]]))
}

/// A message to a client, as text.
fn backend(tag: u8, body: &[u8]) -> String {
    match tag {
        b'C' => format!("C({})", text(body)),
        b'Z' => format!("Z({})", body[0] as char),
        b'A' | b'K' => format!(
            "{}({})",
            tag as char,
            u32::from_be_bytes(*body.first_chunk().expect("the engine writes whole messages"))
        ),
        b'E' => {
            let field = |name| text(ErrorFields(body).get(name).unwrap_or_default());
            match field(b'M').as_str() {
                message if message.contains('"') => format!("E({}: {message})", field(b'C')),
                _ => format!("E({})", field(b'C')),
            }
        }
        b'S' => {
            let (name, value) = message::read_parameter_status(body).expect("the engine writes whole messages");
            format!("S({name}={value})")
        }
        b't' => {
            let types = body[2..].chunks_exact(4).map(|oid| u32::from_be_bytes([oid[0], oid[1], oid[2], oid[3]]));
            match types.len() {
                0 => "t".to_owned(),
                1..=8 => format!("t({})", types.map(|oid| oid.to_string()).collect::<Vec<_>>().join(" ")),
                _ => "t(many)".to_owned(),
            }
        }
        _ => (tag as char).to_string(),
    }
}

/// A server's answers, as they are read: `1 2 C(SELECT 1) Z(I)`; `E(0A000)` comes from where stale plans are found, and
/// `E(26000: text)` says that text.
pub(crate) fn answers(script: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for (tag, argument) in split(script) {
        match tag {
            b'C' => message::put_command_complete(&mut out, argument),
            b'Z' => framed(&mut out, b'Z', |out| out.extend_from_slice(argument.as_bytes())),
            b'E' => framed(&mut out, b'E', |out| {
                let (code, message) = argument.split_once(": ").unwrap_or((argument, "no"));
                // Class 57P is an operator's: with it a session ends.
                let severity = if code.starts_with("57P") { "FATAL" } else { "ERROR" };
                let [shown, told] = ["S", "V"].map(|field| format!("{field}{severity}"));
                let (code, message) = (format!("C{code}"), format!("M{message}"));
                for field in [&shown, &told, &code, &message, "RRevalidateCachedQuery"] {
                    put_cstr(out, field.as_bytes());
                }
                out.push(0);
            }),
            b'D' => framed(&mut out, b'D', |out| {
                out.extend_from_slice(&1_u16.to_be_bytes());
                out.extend_from_slice(&(argument.len() as u32).to_be_bytes());
                out.extend_from_slice(argument.as_bytes());
            }),
            b'S' => {
                let (name, value) = argument.split_once('=').expect("a parameter has a value");
                message::put_parameter_status(&mut out, name, value);
            }
            // From the process of that number.
            b'A' => framed(&mut out, b'A', |out| {
                let process: u32 = argument.parse().expect("a process has a number");
                out.extend_from_slice(&process.to_be_bytes());
                put_cstr(out, b"news");
                put_cstr(out, b"");
            }),
            // One column, of that name.
            b'T' => framed(&mut out, b'T', |out| {
                out.extend_from_slice(&1_u16.to_be_bytes());
                put_cstr(out, argument.as_bytes());
                out.extend_from_slice(&[0; 18]);
            }),
            // Parameters of these types, or none.
            b't' => framed(&mut out, b't', |out| {
                let types: Vec<u32> = argument.split_whitespace().flat_map(str::parse).collect();
                out.extend_from_slice(&(types.len() as u16).to_be_bytes());
                types.iter().for_each(|oid| out.extend_from_slice(&oid.to_be_bytes()));
            }),
            // A boolean, in binary.
            b'V' => framed(&mut out, b'V', |out| out.extend_from_slice(&[0, 0, 0, 1, u8::from(argument == "t")])),
            tag => framed(&mut out, tag, |_| {}),
        }
    }
    out
}

fn split(script: &str) -> Vec<(u8, &str)> {
    let (mut rest, mut parts) = (script.trim(), Vec::new());
    while let Some(tag) = rest.bytes().next() {
        let argument = rest[1..].strip_prefix('(').and_then(|tail| tail.split_once(')'));
        let (argument, tail) = argument.unwrap_or(("", &rest[1..]));
        parts.push((tag, argument));
        rest = tail.trim_start();
    }
    parts
}

/// A statement of the pool's own as part of a client's batch, as its server hears it.
pub(crate) fn own(sql: &str) -> String {
    format!("C(sluice_switch) P(sluice_switch: {sql}) B(sluice_switch) E C[sluice_switch] C(sluice_switch)")
}
