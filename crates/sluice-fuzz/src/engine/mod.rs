//! Two workers of one process between clients and servers that say and do anything at all, at any time.
//!
//! The input is a list of operations; each takes its arguments from the bytes behind it, so that cutting or splicing
//! inputs gives other scripts and not noise. The workers are the service's own, on a network in memory
//! ([`sluice_sim::Lockstep`]). Besides panics, two things count as findings: an action on a connection that the engine
//! has given up (asserted in `sluice_net`), and anything left over when all is closed at the end.

mod peers;

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use sluice_control::{
    Configuration, Database, Secret as Hidden, Snapshot,
    access::{Access, LookUp, Method, Policy, Users},
    address::{Address, Network, PeerAddress},
    server_auth::ServerAuth,
    settings::{Limits, PinPolicy, PoolMode, PoolSettings, Sharing},
};
use sluice_core::{engine::BACKLOG_HIGH_BYTES, hub::Hub, io::Owner, mail::Mail, secrets::Account};
use sluice_sim::{Lockstep, PipeId, SimWorker, Style};
use sluice_wire::{
    ErrorResponse, md5,
    message::{backend, framed, frontend},
    secret::Secret,
    sqlstate, startup,
};

use crate::Input;
use peers::{Asks, PASSWORD, Peer, USERS};

const WORKERS: u16 = 2;

/// The workers' drivers: one of each manner.
const DRIVERS: [Style; WORKERS as usize] = [Style::Completes, Style::Polls];

/// The address of the balancer whose clients say first where they come from.
const BALANCER_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
const BALANCER: PeerAddress = PeerAddress::Tcp(IpAddr::V4(BALANCER_ADDRESS), 40_000);

/// The buffers of a worker: how many, and of how many bytes.
const BUFFERS: (u16, usize) = (8, 16 << 10);

/// The room for bytes on their way to a side that does not read, in bytes.
const ROOM_BYTES: usize = 1 << 10;

/// The length of a message that is more than may wait for a side that does not read, in bytes.
const LARGE_BYTES: usize = BACKLOG_HIGH_BYTES + (32 << 10);

/// Messages of that length in a script, at most: they take long.
const LARGE_MAX: usize = 2;

/// Bytes that one chunk, and the room on the way, may add to the backlog.
const BACKLOG_SLACK_BYTES: usize = 64 << 10;

/// Rounds until all is at rest at the end. Each takes one step of every connection.
const CLOSING_ROUNDS_MAX: usize = 100;

/// The operations, for whoever writes a script: the byte, then its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// A client connects: worker, and from the highest bit whether through a balancer.
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
    /// A client or server says something very long: which one.
    Large,
}

const OPS: [Op; 18] = [
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
    Op::Large,
];

/// The depth that a script has reached: it tells a corpus that gets deep into the engine from one that does not.
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
    /// Bytes that waited for one side, at most.
    pub backlog: usize,
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
    hub: Arc<Hub>,
    net: Lockstep,
    /// The other side of each connection, with its memory.
    peers: Vec<Peer>,
    /// Long messages so far.
    large: usize,
    reached: Reached,
}

impl World {
    /// Two bytes choose the configuration.
    fn new(input: &mut Input<'_>) -> Self {
        let (method, sizes) = (input.byte(), input.byte());
        let size = u32::from(sizes % 3) + 1;
        let pool = |mode| PoolSettings {
            sharing: Sharing {
                mode,
                auto_prepare: sizes >> 4 & 1 == 0,
                pins: if method >> 5 & 1 == 0 { PinPolicy::Pin } else { PinPolicy::Refuse },
                ..Sharing::default()
            },
            size,
            min: u32::from(sizes >> 2 & 1),
            prepared_per_server: u32::from(sizes >> 3 & 1) + 1,
            pinned_max: (method >> 6 & 1 == 1).then_some(0),
            ..PoolSettings::default()
        };
        let database = |name: Option<&str>, mode| Database {
            name: name.map(str::to_owned),
            password: (method >> 3 & 1 == 1).then(|| Hidden(PASSWORD.to_owned())),
            client_address_secret: (method >> 4 & 1 == 1).then(|| Hidden("sixteen of bytes".to_owned())),
            ..Database::any_at(Address::Tcp("db".into(), 5432), pool(mode))
        };
        let databases = vec![database(Some("session"), PoolMode::Session), database(None, PoolMode::Transaction)];
        let limits = Limits {
            clients: 8,
            servers: u32::from(sizes >> 5) + 1,
            rewritten_message_bytes: 512,
            ..Limits::default()
        };
        let first = Snapshot::first(Configuration {
            databases,
            access: access(method),
            encryption: None,
            admin: None,
            clusters: Vec::new(),
            balancers: vec![Network::of(IpAddr::V4(BALANCER_ADDRESS))],
            client_log: sluice_control::settings::ClientLog::default(),
            limits,
        });
        let hub = sluice_sim::hub(Arc::new(first), WORKERS);
        let mut net = Lockstep::new(&hub, &DRIVERS, BUFFERS, ROOM_BYTES).holding_mail();
        net.pass(Duration::from_secs(1));
        Self { hub, net, peers: Vec::new(), large: 0, reached: Reached::default() }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match OPS[input.below(OPS.len())] {
            Op::Accept => {
                let how = input.byte();
                let peer = if how & 0x80 != 0 { BALANCER } else { PeerAddress::Local };
                self.net.open(u16::from(how) % WORKERS, peer);
            }
            Op::ClientBytes => self.bytes(input, Self::is_client, |_, _, input| input.bytes().to_vec()),
            Op::ClientSays => self.bytes(input, Self::is_client, |_, _, input| {
                let mut out = Vec::new();
                for _ in 0..input.below(8) + 1 {
                    peers::phrase(input.below(peers::PHRASES), &mut out);
                }
                out
            }),
            Op::ClientStarts => self.bytes(input, Self::is_client, |_, _, input| first_packet(input.byte())),
            Op::ClientProves => self.bytes(input, Self::is_client, |peer, heard, input| {
                peer.log_in(USERS[input.below(USERS.len())], heard)
            }),
            Op::Connected => self.connected(input),
            Op::ServerBytes => self.bytes(input, Self::is_server, |_, _, input| input.bytes().to_vec()),
            Op::ServerAnswers => self.bytes(input, Self::is_server, |peer, heard, _| peer.serve(heard)),
            Op::ServerStale => {
                if let Some(side) = self.pick(input, Self::is_server) {
                    self.peer(side).stale = true;
                }
            }
            Op::Closed => {
                if let Some(side) = self.pick(input, Self::is_live) {
                    self.hang_up(side);
                }
            }
            Op::Slow => {
                if let Some(side) = self.pick(input, Self::is_live) {
                    self.net.set_reads(side, false);
                }
            }
            Op::Drained => {
                if let Some(side) = self.pick(input, |world, side| world.is_live(side) && !world.reads(side)) {
                    self.net.set_reads(side, true);
                }
            }
            Op::Post => self.net.read_mail(worker(input)),
            Op::Cancel => self.cancel(input),
            Op::Found => self.found(input.byte()),
            Op::Tick => {
                let millis = [1, 100, 1_000, 11_000, 61_000, 4_000_000][input.below(6)];
                self.net.pass(Duration::from_millis(millis));
            }
            Op::Stop => self.stop(),
            Op::Large => self.large(input),
        }
        self.check_sessions();
        self.check_backlogs();
    }

    /// Asserts that a free server holds nothing that ties a client to it, and that no more servers are kept than may
    /// be.
    fn check_sessions(&mut self) {
        for server in self.net.workers().iter().flat_map(|worker| worker.engine().idle()) {
            let is_free = server.session.pins().is_empty() && server.kept.is_none();
            assert!(is_free, "a server is free that is kept for a client");
        }
        for pool in self.hub.pools() {
            let state = pool.state();
            let (pinned, most) = (state.counts().pinned, state.pinned_max());
            assert!(pinned <= most, "more servers are kept for clients than may be");
            self.reached.pinned = self.reached.pinned.max(pinned as usize);
        }
    }

    /// Asserts that reading has stopped where sending does not keep up.
    fn check_backlogs(&mut self) {
        if self.large == 0 {
            return;
        }
        let waiting = (0..self.net.sides().len()).map(|side| self.net.unread_by(side)).max().unwrap_or_default();
        let most = BACKLOG_HIGH_BYTES + BACKLOG_SLACK_BYTES;
        assert!(waiting < most, "{waiting} bytes wait for a side that does not read");
        self.reached.backlog = self.reached.backlog.max(waiting);
    }

    fn peer(&mut self, side: PipeId) -> &mut Peer {
        let known = self.peers.len().max(side + 1);
        self.peers.resize_with(known, Peer::default);
        &mut self.peers[side]
    }

    fn is_client(&self, side: PipeId) -> bool {
        matches!(self.net.place(side), Some((_, _, Owner::Client(_))))
    }

    fn is_server(&self, side: PipeId) -> bool {
        let is_open = !self.net.network().is_connecting(side);
        is_open && matches!(self.net.place(side), Some((_, _, Owner::Server(_) | Owner::Cancel(_))))
    }

    fn is_live(&self, side: PipeId) -> bool {
        self.net.place(side).is_some()
    }

    fn reads(&self, side: PipeId) -> bool {
        self.net.sides().get(side).is_none_or(|side| side.reads)
    }

    /// One of the sides that `choose` likes.
    fn pick(&self, input: &mut Input<'_>, choose: impl Fn(&Self, PipeId) -> bool) -> Option<PipeId> {
        let chosen: Vec<PipeId> = (0..self.net.network().pipes()).filter(|side| choose(self, *side)).collect();
        let number = input.byte();
        (!chosen.is_empty()).then(|| chosen[usize::from(number) % chosen.len()])
    }

    /// Reads a side, then how its bytes are cut, then the bytes; and sends them.
    fn bytes(
        &mut self,
        input: &mut Input<'_>,
        choose: impl Fn(&Self, PipeId) -> bool,
        make: impl FnOnce(&mut Peer, &mut Vec<u8>, &mut Input<'_>) -> Vec<u8>,
    ) {
        let Some(side) = self.pick(input, choose) else { return };
        let cut = usize::from(input.byte());
        let mut heard = std::mem::take(&mut self.net.side(side).heard);
        let bytes = make(self.peer(side), &mut heard, input);
        self.net.side(side).heard = heard;
        for piece in bytes.chunks(if cut == 0 { usize::MAX } else { cut }) {
            self.net.say(side, &[piece]);
        }
    }

    /// Data of a COPY from a client, or a notice of a server: more than may wait.
    fn large(&mut self, input: &mut Input<'_>) {
        let Some(side) = self.pick(input, |world, side| world.is_client(side) || world.is_server(side)) else { return };
        if self.large == LARGE_MAX {
            return;
        }
        self.large += 1;
        let mut out = Vec::with_capacity(LARGE_BYTES + 16);
        let filler = std::iter::repeat_n(b' ', LARGE_BYTES);
        if self.is_client(side) {
            framed(&mut out, frontend::COPY_DATA, |out| out.extend(filler));
        } else {
            framed(&mut out, backend::NOTICE_RESPONSE, |out| {
                out.push(b'M');
                out.extend(filler);
                out.extend_from_slice(&[0, 0]);
            });
        }
        self.net.say(side, &[&out]);
    }

    fn connected(&mut self, input: &mut Input<'_>) {
        let is_connecting = |world: &Self, side| world.is_live(side) && world.net.network().is_connecting(side);
        let Some(side) = self.pick(input, is_connecting) else { return };
        let how = input.byte();
        let peer = self.peer(side);
        peer.asks = [Asks::Nothing, Asks::Cleartext, Asks::Md5, Asks::Scram][usize::from(how & 3)];
        peer.reports = how >> 2 & 1 == 1;
        match self.net.place(side) {
            Some((_, _, Owner::Cancel(_))) => self.reached.cancels += 1,
            _ => self.reached.servers += 1,
        }
        self.net.connect(side);
    }

    fn hang_up(&mut self, side: PipeId) {
        if self.net.network().is_connecting(side) {
            self.net.refuse(side);
        } else {
            self.net.hang_up(side);
        }
    }

    fn cancel(&mut self, input: &mut Input<'_>) {
        let victim = self.pick(input, Self::is_client);
        let worker = worker(input);
        let key = victim.and_then(|side| peers::key_in(&self.net.side(side).heard));
        let Some((process_id, key)) = key else { return };
        let Some(side) = self.net.open(worker, PeerAddress::Local) else { return };
        let mut request = Vec::new();
        startup::put_cancel(&mut request, process_id, &key);
        self.net.say(side, &[&request]);
    }

    /// The answer to the oldest question for a secret.
    fn found(&mut self, what: u8) {
        let Some(user) = self.net.asked.pop_front() else { return };
        let found = match what % 3 {
            0 => Ok(secret_of(&user).into()),
            1 => Ok(Account::default()),
            _ => Err(Arc::new(ErrorResponse::fatal(sqlstate::CANNOT_CONNECT, "no"))),
        };
        for client in self.hub.secrets.found(self.net.now(), &user, found) {
            self.net.post(client.worker, Mail::Secret(client));
        }
    }

    fn stop(&mut self) {
        let deadline = self.net.now() + Duration::from_secs(5);
        (0..WORKERS).for_each(|worker| self.net.post(worker, Mail::Stop(deadline)));
    }

    /// Stops the service and hangs up on it: then nothing may be left, here or in the counts.
    fn finish(&mut self) {
        self.count_bytes();
        self.stop();
        for _ in 0..CLOSING_ROUNDS_MAX {
            (0..WORKERS).for_each(|worker| self.net.read_mail(worker));
            self.net.pass(Duration::from_secs(10));
            for side in 0..self.net.network().pipes() {
                if self.is_live(side) {
                    self.hang_up(side);
                }
            }
            if !self.net.has_mail() && self.net.workers().iter().all(SimWorker::is_finished) {
                break;
            }
        }
        for worker in self.net.workers() {
            let (clients, servers) = worker.engine().counts();
            assert!(worker.is_finished(), "{clients} clients and {servers} servers left, or connections");
            assert_eq!(worker.net().buffers().in_use(), 0, "buffers left in use");
        }
        assert_eq!((self.hub.connections(), self.hub.servers()), (0, 0), "clients and servers left in the counts");
        for pool in self.hub.pools() {
            let counts = pool.state().counts();
            assert_eq!((counts.open, counts.idle, counts.connecting), (0, 0, 0), "servers left in a pool: {counts:?}");
            assert_eq!(counts.waiting, 0, "clients left in a queue");
        }
        assert_eq!(self.net.network().open_sockets(), 0, "connections left");
    }

    fn count_bytes(&mut self) {
        self.reached.looks = self.peers.iter().map(|peer| peer.looks).sum();
        self.reached.handed_over = self.net.handed_over;
        for side in self.net.sides() {
            let count = if side.is_client { &mut self.reached.client_bytes } else { &mut self.reached.server_bytes };
            *count += side.total;
        }
    }
}

fn worker(input: &mut Input<'_>) -> u16 {
    u16::from(input.byte()) % WORKERS
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

fn access(method: u8) -> Access {
    let users = if method >> 2 & 1 == 1 {
        Users::LookedUp(
            LookUp {
                cluster: None,
                tls: None,
                address: Address::Tcp("db".into(), 5432),
                dbname: "postgres".to_owned(),
                user: "asks".to_owned(),
                password: None,
                server_auth: ServerAuth::default(),
                query: "select $1".to_owned(),
                asks_roles: false,
                cache: Duration::from_secs(10),
            },
            HashMap::new(),
        )
    } else {
        let known = USERS.iter().filter_map(|user| Some((user.to_string(), secret_of(user)?)));
        Users::Listed(known.collect::<HashMap<_, _>>())
    };
    let method = [Method::Trust, Method::Md5, Method::ScramSha256][usize::from(method & 3) % 3];
    Access { policy: Policy::Method(method), users }
}
