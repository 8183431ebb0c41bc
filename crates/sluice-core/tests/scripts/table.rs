//! One engine with both sides played by hand: what a client says goes in, what the server is sent comes out, and back.
//!
//! Messages are written as bytes by the functions below and read as short texts: `P(a: SELECT 1) B(a) E S`.

use std::{collections::HashMap, ops::Range, sync::Arc, time::Duration};

use sluice_core::{
    Engine,
    engine::BACKLOG_HIGH_BYTES,
    hub::{Hub, Mail, Route},
    io::{Address, Conn, HandOver, Io, LogEvent, Owner, PeerAddress},
    secrets::{Method, Secrets, Source},
    server::Server,
    settings::{Limits, PoolSettings},
    time::Time,
};
use sluice_wire::{
    ErrorFields, Frame, Framer,
    message::{self, AUTHENTICATION_OK, BindNames, Named, Parse, TransactionStatus, framed, put_cstr},
    startup::{self, ProtocolVersion},
};

/// One side of the engine: a client's connection, or a server's.
pub(crate) type Side = Conn;

/// A connection as the engine sees it.
#[derive(Default)]
struct Link {
    owner: Option<Owner>,
    /// What the engine has sent and nobody has read.
    sent: Vec<u8>,
    /// Whether that was above the limit.
    high: bool,
    paused: bool,
    closed: bool,
}

#[derive(Default)]
struct Links {
    all: Vec<Link>,
    /// The chunk that is being handled.
    chunk: Vec<u8>,
    /// Connects that were asked for and not made.
    asked: Vec<usize>,
    /// What the worker has written to itself.
    letters: Vec<Mail>,
}

impl Links {
    fn open(&mut self, owner: Option<Owner>) -> Conn {
        self.all.push(Link { owner, ..Link::default() });
        Conn(self.all.len() as u32 - 1)
    }

    fn take(&mut self, conn: Conn) -> Vec<u8> {
        std::mem::take(&mut self.all[conn.0 as usize].sent)
    }
}

impl Io for Links {
    fn forward(&mut self, to: Conn, range: Range<usize>) {
        let bytes = self.chunk[range].to_vec();
        self.send(to, &bytes);
    }

    fn send(&mut self, to: Conn, bytes: &[u8]) {
        let link = &mut self.all[to.0 as usize];
        link.sent.extend_from_slice(bytes);
        link.high |= link.sent.len() > BACKLOG_HIGH_BYTES;
    }

    fn backlog(&self, conn: Conn) -> usize {
        self.all[conn.0 as usize].sent.len()
    }

    fn pause(&mut self, conn: Conn) {
        self.all[conn.0 as usize].paused = true;
    }

    fn resume(&mut self, conn: Conn) {
        self.all[conn.0 as usize].paused = false;
    }

    fn close(&mut self, conn: Conn) {
        self.all[conn.0 as usize].closed = true;
    }

    fn connect(&mut self, owner: Owner, _address: &Address) -> Conn {
        let conn = self.open(Some(owner));
        self.asked.push(conn.0 as usize);
        conn
    }

    fn hand_over(&mut self, _conn: Conn, _worker: u16, _server: Box<Server>, _mail: HandOver) {
        unreachable!("there is one worker");
    }

    fn mail(&mut self, _worker: u16, mail: Mail) {
        self.letters.push(mail);
    }

    fn look_up(&mut self, _user: &str) {}

    fn random(&mut self, bytes: &mut [u8]) {
        bytes.fill(7);
    }

    fn log(&mut self, _event: LogEvent<'_>) {}
}

/// The engine, and where everybody sits.
pub(crate) struct Table {
    engine: Engine,
    hub: Arc<Hub>,
    links: Links,
    now: Time,
    /// Whether servers say by themselves what their sessions hold.
    reports: bool,
}

impl Table {
    pub(crate) fn new(settings: PoolSettings) -> Self {
        Self::with_secret(settings, None)
    }

    /// One whose servers are told where their clients are, by function 77.
    pub(crate) fn telling(settings: PoolSettings) -> Self {
        Self::with_secret(settings, Some((*b"a secret between them").into()))
    }

    /// One whose servers say by themselves what their sessions hold.
    pub(crate) fn reporting(settings: PoolSettings) -> Self {
        Self { reports: true, ..Self::new(settings) }
    }

    fn with_secret(settings: PoolSettings, client_address_secret: Option<Arc<[u8]>>) -> Self {
        Self::with_all(settings, client_address_secret, limits(), Method::Trust)
    }

    /// One with other limits, where clients prove who they are by that method, and nobody is known.
    pub(crate) fn limited(settings: PoolSettings, limits: Limits, method: Method) -> Self {
        Self::with_all(settings, None, limits, method)
    }

    fn with_all(
        settings: PoolSettings,
        client_address_secret: Option<Arc<[u8]>>,
        limits: Limits,
        method: Method,
    ) -> Self {
        let secrets = Secrets::new(method, Source::File(HashMap::new()), [3; 32]);
        let address = Address::Unix("/scripted".into());
        let route = Route {
            name: None,
            address,
            dbname: None,
            user: None,
            password: None,
            client_address_secret,
            pool: settings,
        };
        let hub = Arc::new(Hub::new(limits, secrets, vec![route], 1));
        Self { engine: Engine::new(0, hub.clone()), hub, links: Links::default(), now: Time(0), reports: false }
    }

    /// How many pools there are.
    pub(crate) fn pools(&self) -> usize {
        self.hub.pools().len()
    }

    /// A client that is logged in, as is the server that it needed for that.
    pub(crate) fn client(&mut self) -> Conn {
        self.numbered_client().0
    }

    /// The same, with the process number that it was told.
    pub(crate) fn numbered_client(&mut self) -> (Conn, u32) {
        let conn = self.stranger("app");
        self.connects();
        let heard = self.hears(conn);
        assert!(heard.ends_with("Z(I)"), "a client is not let in");
        let number = heard.split_once("K(").and_then(|(_, rest)| rest.split_once(')')).expect("it is told a number").0;
        (conn, number.parse().expect("a number"))
    }

    /// A client that has said who it is, and nothing else.
    pub(crate) fn stranger(&mut self, user: &str) -> Conn {
        let conn = self.links.open(None);
        let owner = self.engine.accepted(self.now, conn, PeerAddress::Local, &mut self.links);
        self.links.all[conn.0 as usize].owner = owner;
        let mut packet = Vec::new();
        startup::put_session(&mut packet, ProtocolVersion::V3_0, [("user", user), ("database", "app")]);
        self.says(conn, &packet);
        conn
    }

    /// Makes the connections that were asked for; returns those to servers, logged in.
    pub(crate) fn connects(&mut self) -> Vec<Conn> {
        let mut servers = Vec::new();
        for asked in std::mem::take(&mut self.links.asked) {
            let conn = Conn(asked as u32);
            let owner = self.links.all[asked].owner.expect("a connect has an owner");
            self.engine.connected(self.now, owner, &mut self.links);
            let Owner::Server(_) = owner else { continue };
            self.links.take(conn);
            let mut welcome = AUTHENTICATION_OK.to_vec();
            message::put_parameter_status(&mut welcome, "server_version", "15.0");
            if self.reports {
                message::put_parameter_status(&mut welcome, "sluice.session", "");
                message::put_parameter_status(&mut welcome, "sluice.catalog", "1");
            }
            message::put_backend_key_data(&mut welcome, 1000 + conn.0, b"abcd");
            welcome.extend_from_slice(&TransactionStatus::Idle.ready_for_query());
            self.says(conn, &welcome);
            if self.hears(conn).starts_with("Q(SELECT p.oid") {
                self.says(conn, &answers("D(77) C(SELECT 1) Z(I)"));
            }
            servers.push(conn);
        }
        servers
    }

    /// The server connections that are open.
    pub(crate) fn servers(&self) -> Vec<Conn> {
        let is_open = |link: &Link| matches!(link.owner, Some(Owner::Server(_))) && !link.closed;
        (0..self.links.all.len()).filter(|at| is_open(&self.links.all[*at])).map(|at| Conn(at as u32)).collect()
    }

    /// CancelRequests so far.
    pub(crate) fn cancels(&self) -> usize {
        self.links.all.iter().filter(|link| matches!(link.owner, Some(Owner::Cancel(_)))).count()
    }

    /// The CancelRequests that were sent have been passed on: the server closes their connections.
    pub(crate) fn cancels_arrive(&mut self) {
        let open: Vec<Owner> =
            self.links.all.iter().filter(|link| !link.closed).filter_map(|link| link.owner).collect();
        for owner in open.into_iter().filter(|owner| matches!(owner, Owner::Cancel(_))) {
            self.engine.closed(self.now, owner, "it was passed on", &mut self.links);
        }
    }

    /// Bytes come from that side, in one piece.
    pub(crate) fn says(&mut self, conn: Conn, bytes: &[u8]) {
        let owner = self.links.all[conn.0 as usize].owner.expect("only who is known speaks");
        self.links.chunk = bytes.to_vec();
        self.engine.received(self.now, owner, bytes, &mut self.links);
        self.post();
    }

    /// That side hangs up.
    pub(crate) fn hangs_up(&mut self, conn: Conn) {
        let owner = self.links.all[conn.0 as usize].owner.expect("only who is known hangs up");
        self.engine.closed(self.now, owner, "it hung up", &mut self.links);
        self.post();
    }

    fn post(&mut self) {
        for mail in std::mem::take(&mut self.links.letters) {
            self.engine.mail(self.now, mail, &mut self.links);
        }
    }

    /// What that side has been sent since it was last asked.
    pub(crate) fn hears(&mut self, conn: Conn) -> String {
        let owner = self.links.all[conn.0 as usize].owner;
        let is_server = matches!(owner, Some(Owner::Server(_)));
        let bytes = self.links.take(conn);
        if let (true, Some(owner)) = (std::mem::take(&mut self.links.all[conn.0 as usize].high), owner) {
            self.engine.drained(self.now, owner, &mut self.links);
        }
        read(&bytes, if is_server { frontend } else { backend })
    }

    /// How many bytes that side has not read.
    pub(crate) fn unread(&self, conn: Conn) -> usize {
        self.links.all[conn.0 as usize].sent.len()
    }

    /// Whether that side is not read from.
    pub(crate) fn is_paused(&self, conn: Conn) -> bool {
        self.links.all[conn.0 as usize].paused
    }

    pub(crate) fn is_closed(&self, conn: Conn) -> bool {
        self.links.all[conn.0 as usize].closed
    }

    /// A CancelRequest of a client comes.
    pub(crate) fn cancel(&mut self, client: Conn) {
        let Some(Owner::Client(client)) = self.links.all[client.0 as usize].owner else { panic!("not a client") };
        let key = vec![7; 4];
        self.engine.mail(self.now, Mail::Cancel { client, key }, &mut self.links);
    }

    /// Time goes by, with a tick at its end.
    pub(crate) fn passes(&mut self, time: Duration) {
        self.now = self.now + time;
        self.engine.tick(self.now, &mut self.links);
        self.post();
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

/// What the query begins with that asks what a session holds.
const LOOK: &str = "SELECT pg_catalog.concat_ws(' ', 'pins=";

/// What stands before it where a time-out could end it.
const UNTIMED: &str = "SET LOCAL statement_timeout = 0;";

/// What a server hears.
fn frontend(tag: u8, body: &[u8]) -> String {
    match tag {
        b'Q' | b'f' => match text(body).as_str() {
            look if look.starts_with(LOOK) => "Q(look)".to_owned(),
            look if look.starts_with(&[UNTIMED, LOOK].concat()) => "Q(untimed look)".to_owned(),
            other => format!("{}({other})", tag as char),
        },
        b'F' => format!("F({})", u32::from_be_bytes(*body.first_chunk().expect("an OID"))),
        b'P' => {
            let parse = Parse::read(body).expect("the engine writes whole messages");
            format!("P({}: {})", text(parse.name), text(parse.query))
        }
        b'B' => format!("B({})", text(BindNames::read(body).expect("the engine writes whole messages").statement)),
        b'D' | b'C' => match Named::read(body, "").expect("the engine writes whole messages") {
            Named::Statement(name) => format!("{}({})", tag as char, text(name)),
            Named::Portal(name) => format!("{}[{}]", tag as char, text(name)),
        },
        _ => (tag as char).to_string(),
    }
}

/// What a client hears.
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
        _ => (tag as char).to_string(),
    }
}

pub(crate) fn query(sql: &str) -> Vec<u8> {
    let mut out = Vec::new();
    message::put_query(&mut out, sql);
    out
}

pub(crate) fn parse(name: &str, sql: &str) -> Vec<u8> {
    parse_typed(name, sql, &[])
}

pub(crate) fn parse_typed(name: &str, sql: &str, types: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    message::put_parse(&mut out, name.as_bytes(), sql, types);
    out
}

/// A Bind to the unnamed portal, with a parameter of that many bytes if there are any.
pub(crate) fn bind(name: &str, bytes: usize) -> Vec<u8> {
    let value = vec![b'x'; bytes];
    let values: &[Option<&[u8]>] = if bytes > 0 { &[Some(&value)] } else { &[] };
    let mut out = Vec::new();
    message::put_bind(&mut out, b"", name.as_bytes(), values);
    out
}

pub(crate) fn execute() -> Vec<u8> {
    let mut out = Vec::new();
    message::put_execute(&mut out, b"", 0);
    out
}

pub(crate) fn sync() -> Vec<u8> {
    message::SYNC.to_vec()
}

pub(crate) fn flush() -> Vec<u8> {
    b"H\0\0\0\x04".to_vec()
}

pub(crate) fn terminate() -> Vec<u8> {
    message::TERMINATE.to_vec()
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
            // No parameters.
            b't' => framed(&mut out, b't', |out| out.extend_from_slice(&[0, 0])),
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
