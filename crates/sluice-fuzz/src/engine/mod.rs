//! Two engines of one process between clients and servers that say and do anything at all, at any time.
//!
//! The input is a list of operations; each takes its arguments from the bytes behind it, so that cutting or splicing
//! inputs gives other scripts and not noise. Besides panics, two things count as findings: an action on a connection
//! that the engine has given up ([`net`]), and anything left over when all is closed at the end.

mod net;
mod peers;

use std::{collections::HashMap, sync::Arc, time::Duration};

use sluice_core::{
    Engine,
    hub::{Hub, Mail, Route},
    io::{Address, Conn, Owner, PeerAddress},
    secrets::{LookUp, Method, Secrets, Source},
    settings::{Limits, PinPolicy, PoolMode, PoolSettings},
    time::Time,
};
use sluice_wire::{ErrorResponse, md5, secret::Secret, sqlstate, startup};

use crate::Input;
use net::{Life, Link, Net, Parcel, WorkerIo};
use peers::{Asks, PASSWORD, USERS};

const WORKERS: u16 = 2;

/// Rounds until all is at rest at the end. Each takes one step of every connection.
const CLOSING_ROUNDS_MAX: usize = 100;

/// The operations, for whoever writes a script: the byte, then its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// A client connects: worker.
    Accept,
    /// A client says any bytes: which one, cut, length, bytes.
    ClientBytes,
    /// A client says something it should: which one, cut, how many phrases, phrases.
    ClientSays,
    /// A client sends its first packet: which one, cut, what.
    ClientStarts,
    /// A client answers what it is asked for its login: which one, cut, user.
    ClientProves,
    /// A server's connection is open: which one, how it will ask for the password, and whether it has the extension.
    Connected,
    /// A server says any bytes: which one, cut, length, bytes.
    ServerBytes,
    /// A server answers all it was sent: which one, cut.
    ServerAnswers,
    /// A server's schema changes: which one.
    ServerStale,
    /// The other side of a connection is gone: which one.
    Closed,
    /// A peer stops reading: which one.
    Slow,
    /// A peer reads again: which one.
    Drained,
    /// A worker reads its post: which worker.
    Post,
    /// Somebody cancels what a client does: which client, worker that is asked.
    Cancel,
    /// A secret is found: what is found.
    Found,
    /// Time passes: how much.
    Tick,
    /// The service stops.
    Stop,
}

const OPS: [Op; 17] = [
    Op::Accept,
    Op::ClientBytes,
    Op::ClientSays,
    Op::ClientStarts,
    Op::ClientProves,
    Op::Connected,
    Op::ServerBytes,
    Op::ServerAnswers,
    Op::ServerStale,
    Op::Closed,
    Op::Slow,
    Op::Drained,
    Op::Post,
    Op::Cancel,
    Op::Found,
    Op::Tick,
    Op::Stop,
];

/// How far a script has come: what tells a corpus that reaches the engine's depths from one that does not.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// Connections that were opened to servers.
    pub servers: usize,
    /// CancelRequests that were sent to servers.
    pub cancels: usize,
    /// Servers that went from one worker to another.
    pub handed_over: usize,
    /// Times that a server was asked what its session holds.
    pub looks: usize,
    /// Servers that clients kept between transactions, at once.
    pub pinned: usize,
    /// Bytes that came to clients.
    pub client_bytes: usize,
    /// Bytes that came to servers.
    pub server_bytes: usize,
}

/// Runs a script.
pub fn engine(data: &[u8]) {
    run(data);
}

/// Runs a script, and says how far it came.
pub fn run(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let mut world = World::new(&mut input);
    while !input.is_empty() {
        world.step(&mut input);
    }
    world.finish();
    world.reached
}

struct World {
    now: Time,
    hub: Arc<Hub>,
    engines: Vec<Engine>,
    net: Net,
    reached: Reached,
}

impl World {
    /// Two bytes choose the configuration.
    fn new(input: &mut Input<'_>) -> Self {
        let (method, sizes) = (input.byte(), input.byte());
        let size = u32::from(sizes % 3) + 1;
        let pool = |mode| PoolSettings {
            mode,
            size,
            min: u32::from(sizes >> 2 & 1),
            prepared_per_server: u32::from(sizes >> 3 & 1) + 1,
            auto_prepare: sizes >> 4 & 1 == 0,
            pins: if method >> 5 & 1 == 0 { PinPolicy::Pin } else { PinPolicy::Refuse },
            pinned_max: (method >> 6 & 1 == 1).then_some(0),
            ..PoolSettings::default()
        };
        let route = |name: Option<&str>, mode| Route {
            name: name.map(str::to_owned),
            address: Address::Tcp("db".into(), 5432),
            dbname: None,
            user: None,
            password: (method >> 3 & 1 == 1).then(|| PASSWORD.to_owned()),
            client_address_secret: (method >> 4 & 1 == 1).then(|| (*b"sixteen of bytes").into()),
            pool: pool(mode),
        };
        let routes = vec![route(Some("session"), PoolMode::Session), route(None, PoolMode::Transaction)];
        let limits = Limits {
            clients: 8,
            servers: u32::from(sizes >> 5) + 1,
            rewritten_message_bytes: 512,
            statement_nonce: 0,
            ..Limits::default()
        };
        let hub = Arc::new(Hub::new(limits, secrets(method), routes, WORKERS));
        let engines = (0..WORKERS).map(|worker| Engine::new(worker, hub.clone())).collect();
        Self { now: Time(1_000_000), hub, engines, net: Net::new(WORKERS), reached: Reached::default() }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match OPS[input.below(OPS.len())] {
            Op::Accept => {
                self.accept(worker(input));
            }
            Op::ClientBytes => self.bytes(input, is_client, |_, input| input.bytes().to_vec()),
            Op::ClientSays => self.bytes(input, is_client, |_, input| {
                let mut out = Vec::new();
                for _ in 0..input.below(8) + 1 {
                    peers::phrase(input.below(peers::PHRASES), &mut out);
                }
                out
            }),
            Op::ClientStarts => self.bytes(input, is_client, |_, input| first_packet(input.byte())),
            Op::ClientProves => self.bytes(input, is_client, |link, input| {
                link.peer.log_in(USERS[input.below(USERS.len())], &mut link.sent)
            }),
            Op::Connected => self.connected(input),
            Op::ServerBytes => self.bytes(input, is_server, |_, input| input.bytes().to_vec()),
            Op::ServerAnswers => self.bytes(input, is_server, |link, _| link.peer.serve(&mut link.sent)),
            Op::ServerStale => {
                if let Some(link) = self.pick(input, is_server) {
                    self.net.links[link].peer.stale = true;
                }
            }
            Op::Closed => {
                if let Some(link) = self.pick(input, Link::is_live) {
                    self.closed(link);
                }
            }
            Op::Slow => {
                if let Some(link) = self.pick(input, Link::is_live) {
                    self.net.links[link].slow = true;
                }
            }
            Op::Drained => {
                if let Some(link) = self.pick(input, |l| l.is_live() && l.slow) {
                    self.net.links[link].slow = false;
                    self.event(link, &[], |engine, now, owner, io| engine.drained(now, owner, io));
                }
            }
            Op::Post => self.read_post(worker(input)),
            Op::Cancel => self.cancel(input),
            Op::Found => self.found(input.byte()),
            Op::Tick => self.tick([1, 100, 1_000, 11_000, 61_000, 4_000_000][input.below(6)]),
            Op::Stop => self.stop(),
        }
        self.check_sessions();
    }

    /// What is free holds nothing that ties a client to it, and no more servers are kept than may be.
    fn check_sessions(&mut self) {
        for server in self.engines.iter().flat_map(Engine::idle) {
            assert!(server.pins.is_empty() && server.pinned.is_none(), "a server is free that is kept for a client");
        }
        for pool in self.hub.pools() {
            let pinned = pool.state().counts().pinned;
            let most = pool.settings.pinned_max.unwrap_or_else(|| (pool.settings.size - 1).max(1));
            assert!(pinned <= most, "more servers are kept for clients than may be");
            self.reached.pinned = self.reached.pinned.max(pinned as usize);
        }
    }

    /// One of the connections that `choose` likes.
    fn pick(&self, input: &mut Input<'_>, choose: impl Fn(&Link) -> bool) -> Option<usize> {
        let chosen = self.net.select(choose);
        let number = input.byte();
        (!chosen.is_empty()).then(|| chosen[usize::from(number) % chosen.len()])
    }

    /// Lets an engine handle an event of a connection, unless it has given that up.
    fn event(&mut self, link: usize, chunk: &[u8], handle: impl FnOnce(&mut Engine, Time, Owner, &mut WorkerIo<'_>)) {
        let Link { worker, owner, .. } = self.net.links[link];
        let Some(owner) = owner else { return };
        let mut io = WorkerIo { net: &mut self.net, worker, chunk };
        handle(&mut self.engines[usize::from(worker)], self.now, owner, &mut io);
    }

    fn accept(&mut self, worker: u16) -> usize {
        let conn = self.net.add(worker, None, Life::Open);
        let mut io = WorkerIo { net: &mut self.net, worker, chunk: &[] };
        let owner = self.engines[usize::from(worker)].accepted(self.now, conn, PeerAddress::Local, &mut io);
        let link = conn.0 as usize;
        assert_eq!(owner.is_none(), self.net.links[link].life == Life::Closed, "a client is refused or owned");
        self.net.links[link].owner = owner;
        link
    }

    /// Which connection, then how its bytes are cut, then the bytes.
    fn bytes(
        &mut self,
        input: &mut Input<'_>,
        choose: impl Fn(&Link) -> bool,
        make: impl FnOnce(&mut Link, &mut Input<'_>) -> Vec<u8>,
    ) {
        let Some(link) = self.pick(input, choose) else { return };
        let cut = usize::from(input.byte());
        let bytes = make(&mut self.net.links[link], input);
        self.received(link, &bytes, if cut == 0 { usize::MAX } else { cut });
    }

    fn received(&mut self, link: usize, bytes: &[u8], cut: usize) {
        for chunk in bytes.chunks(cut) {
            if self.net.links[link].life == Life::Open {
                self.event(link, chunk, |engine, now, owner, io| engine.received(now, owner, chunk, io));
            }
        }
    }

    fn connected(&mut self, input: &mut Input<'_>) {
        let Some(link) = self.pick(input, |l| l.life == Life::Connecting) else { return };
        self.net.links[link].life = Life::Open;
        let how = input.byte();
        let peer = &mut self.net.links[link].peer;
        peer.asks = [Asks::Nothing, Asks::Cleartext, Asks::Md5, Asks::Scram][usize::from(how & 3)];
        peer.reports = how >> 2 & 1 == 1;
        match self.net.links[link].owner {
            Some(Owner::Cancel(_)) => self.reached.cancels += 1,
            _ => self.reached.servers += 1,
        }
        self.event(link, &[], |engine, now, owner, io| engine.connected(now, owner, io));
    }

    fn closed(&mut self, link: usize) {
        self.event(link, &[], |engine, now, owner, io| engine.closed(now, owner, "it hung up", io));
        assert_eq!(self.net.links[link].life, Life::Closed, "a connection that is gone is given up");
    }

    fn read_post(&mut self, worker: u16) {
        for parcel in std::mem::take(&mut self.net.post[usize::from(worker)]) {
            let engine = &mut self.engines[usize::from(worker)];
            match parcel {
                Parcel::Mail(mail) => {
                    let mut io = WorkerIo { net: &mut self.net, worker, chunk: &[] };
                    engine.mail(self.now, mail, &mut io);
                }
                Parcel::Server { link, mut server, client } => {
                    self.reached.handed_over += 1;
                    let Conn(adopted) = self.net.add(worker, None, Life::Open);
                    let (old, new) = (link, adopted as usize);
                    self.net.links[new].is_accepted = false;
                    self.net.links[old].life = Life::Closed;
                    self.net.links[new].peer = std::mem::take(&mut self.net.links[old].peer);
                    self.net.links[new].sent = std::mem::take(&mut self.net.links[old].sent);
                    server.conn = Conn(adopted);
                    let mut io = WorkerIo { net: &mut self.net, worker, chunk: &[] };
                    let owner = engine.adopt(self.now, server, client, &[], &mut io);
                    assert_eq!(owner.is_some(), self.net.links[new].is_live(), "a server is kept or given up");
                    self.net.links[new].owner = owner;
                }
            }
        }
    }

    fn cancel(&mut self, input: &mut Input<'_>) {
        let victim = self.pick(input, is_client);
        let worker = worker(input);
        let Some((process_id, key)) = victim.and_then(|link| peers::key_in(&self.net.links[link].sent)) else { return };
        let link = self.accept(worker);
        let mut request = Vec::new();
        startup::put_cancel(&mut request, process_id, &key);
        self.received(link, &request, usize::MAX);
    }

    /// The answer to the oldest question for a secret.
    fn found(&mut self, what: u8) {
        let Some(user) = self.net.asked.pop_front() else { return };
        let found = match what % 3 {
            0 => Ok(secret_of(&user)),
            1 => Ok(None),
            _ => Err(Arc::new(ErrorResponse::fatal(sqlstate::CANNOT_CONNECT, "no"))),
        };
        for client in self.hub.secrets.found(self.now, &user, found) {
            self.net.post[usize::from(client.worker)].push_back(Parcel::Mail(Mail::Secret(client)));
        }
    }

    fn tick(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
        for worker in 0..WORKERS {
            let mut io = WorkerIo { net: &mut self.net, worker, chunk: &[] };
            self.engines[usize::from(worker)].tick(self.now, &mut io);
        }
    }

    fn stop(&mut self) {
        for post in &mut self.net.post {
            post.push_back(Parcel::Mail(Mail::Stop(self.now + Duration::from_secs(5))));
        }
    }

    /// Stops the service and hangs up on it: then nothing may be left, here or in the counts.
    fn finish(&mut self) {
        self.count_bytes();
        self.stop();
        for _ in 0..CLOSING_ROUNDS_MAX {
            (0..WORKERS).for_each(|worker| self.read_post(worker));
            self.tick(10_000);
            for link in self.net.select(Link::is_live) {
                if self.net.links[link].is_live() {
                    self.closed(link);
                }
            }
            let quiet = self.net.post.iter().all(|post| post.is_empty()) && self.net.select(Link::is_live).is_empty();
            if quiet && self.engines.iter().all(Engine::is_finished) {
                break;
            }
        }
        for engine in &self.engines {
            assert!(engine.is_finished(), "clients and servers left: {:?}", engine.counts());
        }
        assert_eq!((self.hub.clients(), self.hub.servers()), (0, 0), "clients and servers left in the counts");
        for pool in self.hub.pools() {
            let counts = pool.state().counts();
            assert_eq!((counts.open, counts.idle, counts.connecting), (0, 0, 0), "servers left in a pool: {counts:?}");
            assert_eq!(counts.waiting, 0, "clients left in a queue");
        }
        assert_eq!(self.net.select(|l| l.life != Life::Closed), [0; 0], "connections left");
    }

    fn count_bytes(&mut self) {
        self.reached.looks = self.net.links.iter().map(|link| link.peer.looks).sum();
        for link in &self.net.links {
            let count = if link.is_accepted { &mut self.reached.client_bytes } else { &mut self.reached.server_bytes };
            *count += link.total;
        }
    }
}

fn worker(input: &mut Input<'_>) -> u16 {
    u16::from(input.byte()) % WORKERS
}

fn is_client(link: &Link) -> bool {
    link.life == Life::Open && matches!(link.owner, Some(Owner::Client(_)))
}

fn is_server(link: &Link) -> bool {
    link.life == Life::Open && matches!(link.owner, Some(Owner::Server(_) | Owner::Cancel(_)))
}

/// An encryption request, or a StartupMessage of any user.
fn first_packet(what: u8) -> Vec<u8> {
    let mut out = Vec::new();
    match what {
        0xff => out.extend_from_slice(b"\0\0\0\x08\x04\xd2\x16\x2f"),
        0xfe => out.extend_from_slice(b"\0\0\0\x08\x04\xd2\x16\x30"),
        what => {
            let user = USERS[usize::from(what) % USERS.len()];
            peers::startup_packet(user, what >> 2 & 1 == 1, what >> 3 & 1 == 1, &mut out);
        }
    }
    out
}

fn secret_of(user: &str) -> Option<Secret> {
    match user {
        "alice" => Some(Secret::Scram(peers::verifier())),
        "bob" => Some(Secret::Md5(md5::hash_password(user, PASSWORD))),
        "carol" => Some(Secret::Plain(PASSWORD.to_owned())),
        _ => None,
    }
}

fn secrets(method: u8) -> Secrets {
    let source = if method >> 2 & 1 == 1 {
        Source::LookUp(LookUp::new(Duration::from_secs(10)))
    } else {
        let known = USERS.iter().filter_map(|user| Some((user.to_string(), secret_of(user)?)));
        Source::File(known.collect::<HashMap<_, _>>())
    };
    let method = [Method::Trust, Method::Md5, Method::ScramSha256][usize::from(method & 3) % 3];
    Secrets::new(method, source, [3; 32])
}
