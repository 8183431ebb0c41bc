//! One engine with both sides played by hand: what a client says goes in, what the server is sent comes out, and back.
//!
//! Messages are written as bytes by the functions below and read as short texts: `P(a: SELECT 1) B(a) E S`.

use std::{collections::HashMap, ops::Range, sync::Arc, time::Duration};

use sluice_core::{
    Engine,
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
};

/// One side of the engine: a client's connection, or a server's.
pub(crate) type Side = Conn;

/// A connection as the engine sees it.
#[derive(Default)]
struct Link {
    owner: Option<Owner>,
    /// What the engine has sent and nobody has read.
    sent: Vec<u8>,
    closed: bool,
}

#[derive(Default)]
struct Links {
    all: Vec<Link>,
    /// The chunk that is being handled.
    chunk: Vec<u8>,
    /// Connects that were asked for and not made.
    asked: Vec<usize>,
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
        self.all[to.0 as usize].sent.extend_from_slice(bytes);
    }

    fn backlog(&self, _conn: Conn) -> usize {
        0
    }

    fn pause(&mut self, _conn: Conn) {}

    fn resume(&mut self, _conn: Conn) {}

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
        panic!("a script has no use for {mail:?}");
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
    links: Links,
    now: Time,
}

impl Table {
    pub(crate) fn new(settings: PoolSettings) -> Self {
        Self::with_secret(settings, None)
    }

    /// One whose servers are told where their clients are, by function 77.
    pub(crate) fn telling(settings: PoolSettings) -> Self {
        Self::with_secret(settings, Some((*b"a secret between them").into()))
    }

    fn with_secret(settings: PoolSettings, client_address_secret: Option<Arc<[u8]>>) -> Self {
        let limits = Limits { rewritten_message_bytes: 4096, ..Limits::default() };
        let secrets = Secrets::new(Method::Trust, Source::File(HashMap::new()), [3; 32]);
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
        Self { engine: Engine::new(0, hub), links: Links::default(), now: Time(0) }
    }

    /// A client that is logged in, as is the server that it needed for that.
    pub(crate) fn client(&mut self) -> Conn {
        let conn = self.links.open(None);
        let owner = self.engine.accepted(self.now, conn, PeerAddress::Local, &mut self.links);
        self.links.all[conn.0 as usize].owner = owner;
        let parameters = b"\0\x03\0\0user\0app\0database\0app\0\0";
        let packet = [&(parameters.len() as u32 + 4).to_be_bytes()[..], parameters].concat();
        self.says(conn, &packet);
        self.connects();
        assert!(self.hears(conn).ends_with("Z(I)"), "a client is not let in");
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

    /// Bytes come from that side, in one piece.
    pub(crate) fn says(&mut self, conn: Conn, bytes: &[u8]) {
        let owner = self.links.all[conn.0 as usize].owner.expect("only who is known speaks");
        self.links.chunk = bytes.to_vec();
        self.engine.received(self.now, owner, bytes, &mut self.links);
    }

    /// What that side has been sent since it was last asked.
    pub(crate) fn hears(&mut self, conn: Conn) -> String {
        let is_server = matches!(self.links.all[conn.0 as usize].owner, Some(Owner::Server(_)));
        let bytes = self.links.take(conn);
        read(&bytes, if is_server { frontend } else { backend })
    }

    pub(crate) fn is_closed(&self, conn: Conn) -> bool {
        self.links.all[conn.0 as usize].closed
    }

    /// A CancelRequest of a client comes.
    pub(crate) fn cancel(&mut self, client: Conn) {
        let Some(Owner::Client(index)) = self.links.all[client.0 as usize].owner else { panic!("not a client") };
        let key = vec![7; 4];
        self.engine.mail(self.now, Mail::Cancel { index, key }, &mut self.links);
    }

    /// Time goes by, with a tick at its end.
    pub(crate) fn passes(&mut self, time: Duration) {
        self.now = self.now + time;
        self.engine.tick(self.now, &mut self.links);
    }
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

/// What a server hears.
fn frontend(tag: u8, body: &[u8]) -> String {
    match tag {
        b'Q' | b'f' => format!("{}({})", tag as char, text(body)),
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
        b'E' => format!("E({})", text(ErrorFields(body).get(b'C').unwrap_or_default())),
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

/// A server's answers, as they are read: `1 2 C(SELECT 1) Z(I)`; `E(0A000)` comes from where stale plans are found.
pub(crate) fn answers(script: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for (tag, argument) in split(script) {
        match tag {
            b'C' => message::put_command_complete(&mut out, argument),
            b'Z' => framed(&mut out, b'Z', |out| out.extend_from_slice(argument.as_bytes())),
            b'E' => framed(&mut out, b'E', |out| {
                // Class 57P is an operator's: with it a session ends.
                let severity = if argument.starts_with("57P") { "FATAL" } else { "ERROR" };
                let [shown, told] = ["S", "V"].map(|field| format!("{field}{severity}"));
                for field in [&shown, &told, &format!("C{argument}"), "Mno", "RRevalidateCachedQuery"] {
                    put_cstr(out, field.as_bytes());
                }
                out.push(0);
            }),
            b'D' => framed(&mut out, b'D', |out| {
                out.extend_from_slice(&1_u16.to_be_bytes());
                out.extend_from_slice(&(argument.len() as u32).to_be_bytes());
                out.extend_from_slice(argument.as_bytes());
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
