//! One run: workers, clients and servers in one thread, on virtual time, and what must hold.

use std::{collections::HashMap, io::ErrorKind, rc::Rc, sync::Arc, time::Duration};

use sluice_control::{
    Control, Observation,
    access::Method,
    address::Address,
    cluster::Primary,
    reading::{Lag, Node, NodeState, Standby},
    settings::PoolMode,
};
use sluice_core::{
    Engine,
    engine::BACKLOG_HIGH_BYTES,
    hub::Hub,
    ids::ClientRef,
    io::{Conn, Io, Owner, PeerAddress},
    logins::Generation,
    lsn::Lsn,
    mail::Mail,
    pool::Counts,
    time::Time,
};
use sluice_net::Parcel;
use sluice_sim::{Delivery, Rng, SimDriver, SimHost, SimMailboxes, SimSocket, SimWorker};
use sluice_wire::startup;

use crate::{
    agenda::{Event, Peer, PipeId, SimIo},
    client::{Client, Kind},
    figures::Figures,
    plan::{ADDRESSES, PRIMARY, Plan},
    postgres::{Postgres, place_of},
};

/// The time that all is left to settle before the counts must be back where they began.
const SETTLING: Duration = Duration::from_secs(25);

/// Bytes that chunks under way when reading stops may add to a backlog.
const BACKLOG_SLACK_BYTES: usize = 112 << 10;

/// A run ends by then.
const LIMIT: Time = Time(600_000_000);

pub(crate) struct World {
    io: SimIo,
    control: Control,
    hub: Arc<Hub>,
    workers: Vec<SimWorker>,
    mailboxes: Rc<SimMailboxes>,
    postgres: Postgres,
    clients: Vec<Client>,
    /// The number of each client that has waited.
    names: HashMap<ClientRef, usize>,
    /// The clients that waited for each pool when it was last looked at.
    queues: HashMap<(String, String), Vec<ClientRef>>,
    figures: Figures,
    /// Whether the service has been told to stop.
    stopping: bool,
}

impl World {
    pub(crate) fn new(seed: u64, tracing: bool) -> Self {
        let plan = Plan::new(seed);
        let mut control = Control::new(plan.configuration());
        if plan.has_nodes() {
            control.observe(the_primary());
            control.observe(standbys(&ADDRESSES)).expect("it is news");
        }
        let hub = sluice_sim::hub(control.snapshot().clone(), plan.workers);
        let upstream_checks = plan.method != Method::Trust;
        let mut io = SimIo::new(seed, plan, tracing);
        let mailboxes = SimHost::mailboxes(&io.network, io.plan.workers);
        let worker = |number: u16| {
            let (count, size) = io.plan.buffers;
            let (driver, buffers) = SimDriver::new(&io.network, number, count, size);
            let rng = Rng::new(seed ^ 0x4057 ^ u64::from(number) << 32);
            let host = SimHost::new(&io.network, number, &mailboxes, rng);
            SimWorker::new(Engine::new(number, hub.clone()), driver, buffers, host)
        };
        let workers = (0..io.plan.workers).map(worker).collect();
        io.trace(|| format!("{:?}", io.plan));
        let postgres = Postgres::new(upstream_checks.then(Plan::verifier));
        let clients: Vec<Client> = (0..io.plan.clients)
            .map(|id| {
                let kind = match io.rng.below(8) {
                    _ if !io.rng.percent(io.plan.strange_percent) => Kind::Good,
                    0 | 1 if io.plan.method != Method::Trust => Kind::WrongPassword,
                    2 if io.plan.method != Method::Trust => Kind::UnknownUser,
                    3 | 4 => Kind::NoPostgres,
                    _ => Kind::Breaks(io.rng.below(io.plan.steps)),
                };
                Client::new(id, kind, &mut io)
            })
            .collect();
        for id in 0..clients.len() {
            let at = io.rng.pick(&[1_000, 20_000, 1_500_000]);
            let at = io.rng.below(at);
            io.after(at, Event::ClientArrives(id));
        }
        for _ in 0..io.plan.crashes {
            let most = io.rng.pick(&[50_000, 300_000, 2_000_000]);
            let at = io.rng.below(most);
            io.after(at, Event::Crash);
        }
        if let Some(at) = io.plan.stops_after_micros {
            io.after(at, Event::Stop);
        }
        for _ in 0..io.plan.reloads {
            let at = io.rng.below(300_000);
            io.after(at, Event::Reload);
        }
        for _ in 0..io.plan.configurations {
            let at = io.rng.below(1_000_000);
            io.after(at, Event::Configure);
        }
        for _ in 0..io.plan.operations {
            let at = io.rng.below(1_000_000);
            io.after(at, Event::Operate);
        }
        for _ in 0..io.plan.schema_changes {
            let at = io.rng.below(500_000);
            io.after(at, Event::SchemaChange);
        }
        io.after(0, Event::Tick);
        Self {
            io,
            control,
            hub,
            workers,
            mailboxes,
            postgres,
            clients,
            names: HashMap::new(),
            queues: HashMap::new(),
            figures: Figures::default(),
            stopping: false,
        }
    }

    /// Runs to the end and checks what must hold then.
    pub(crate) fn run(mut self) -> Figures {
        self.run_until(|world| world.clients.iter().all(Client::is_done));
        let quiet = self.io.now + SETTLING;
        self.run_until(|world| world.io.now > quiet);
        // Where servers live shortly, there may always be one that is being replaced.
        let is_busy = |world: &Self| {
            let is_new = |counts: Counts| counts.connecting > 0 || counts.open > counts.idle;
            let connecting = world.hub.pools().iter().any(|p| is_new(p.state().counts()));
            let is_closing = |worker: &SimWorker| worker.net().connections().any(|(_, owner, _)| owner.is_none());
            connecting || world.workers.iter().any(is_closing) || world.mailboxes.count(|_| true) > 0
        };
        self.run_until(|world| !is_busy(world) || world.io.now > quiet + SETTLING);
        self.check_quiet();
        if self.io.plan.stops_after_micros.is_none() {
            self.probe();
            self.stop();
        }
        self.check_end();
        self.figures.answers = self.clients.iter().map(|c| c.answers).sum();
        self.figures.lost = self.clients.iter().filter(|c| c.lost.is_some()).count() as u64;
        self.figures.sequences_told = self.clients.iter().map(|c| c.sequences_told).sum();
        self.figures.sequences_lost = self.clients.iter().map(|c| c.sequences_lost).sum();
        let Postgres { served, asked, led, .. } = self.postgres;
        self.figures = Figures { served, asked, led, ..self.figures };
        self.figures.sockets_refused = self.io.network.sockets_refused();
        self.figures.longest_stall = self.clients.iter().map(|c| c.longest_stall).max().unwrap_or_default();
        self.figures
    }

    fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            let event = self.io.next().expect("ticks go on");
            assert!(self.io.now < LIMIT, "the run does not end");
            self.figures.events += 1;
            self.event(event);
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Up(pipe) => self.io.network.arrive(pipe),
            Event::Down(pipe) => self.deliver(pipe),
            Event::Connect(pipe) => self.connect(pipe),
            Event::Turn(worker) => self.turn(worker),
            Event::Mail(worker) => self.io.network.ring(worker),
            Event::Tick => self.tick(),
            Event::LookUp(user) => self.look_up(&user),
            Event::Client(id) => self.clients[id].go_on(&mut self.io),
            Event::ClientArrives(id) => self.client_arrives(id),
            Event::ClientVanishes(id) => self.clients[id].vanish(&mut self.io),
            Event::ClientCancels(id) => self.client_cancels(id),
            Event::Backend(index, generation) => self.postgres.run(index, generation, &mut self.io),
            Event::Crash => {
                let live: Vec<usize> = self.postgres.live().map(|(index, _)| index).collect();
                if !live.is_empty() {
                    let index = live[self.io.rng.index(live.len())];
                    self.postgres.crash(index, &mut self.io);
                }
            }
            Event::CrashSoon(index) => self.crash_if_live(index),
            Event::CrashOf(server) => {
                let is_it = |(_, owner, _): &(Conn, Option<Owner>, _)| *owner == Some(Owner::Server(server.id));
                let found = self.workers[usize::from(server.worker)].net().connections().find(is_it);
                let pipe = found.and_then(|(_, _, socket)| Some(socket?.pipe()));
                if let Some(Peer::Backend(index)) = pipe.map(|pipe| self.io.peer(pipe)) {
                    self.crash_if_live(index);
                }
            }
            Event::Stop => self.stop(),
            Event::Configure => self.configure(),
            Event::Operate => self.operate(),
            Event::Resume => _ = self.hub.resume(self.io.now, None),
            Event::Reload => self.postgres.reload(&mut self.io),
            Event::SchemaChange => self.postgres.schema += 1,
            Event::Nothing => {}
        }
    }

    /// Checks that a free server holds nothing of a client's, and that no more servers are kept than may be.
    fn check_sessions(&self) {
        for pool in self.hub.pools() {
            // One that was larger a moment ago may still have as many.
            let limit = pool.state().pinned_max() + u32::from(self.io.plan.configurations > 0);
            let kept = pool.state().kept().filter(|pins| pins.are_lasting()).count();
            assert!(kept <= limit as usize, "more servers are kept than may be: {kept}");
        }
        for worker in &self.workers {
            for server in worker.engine().idle() {
                let session = &server.session;
                assert!(session.pins().is_empty(), "a server is free that holds {}", session.pins());
                let pipe = worker.net().socket(server.conn).map(SimSocket::pipe);
                if let Some(Peer::Backend(index)) = pipe.map(|pipe| self.io.peer(pipe)) {
                    self.postgres.check_idle(index, session.profile());
                }
            }
        }
    }

    /// Checks that reading has stopped where sending does not keep up.
    fn check_backlogs(&mut self) {
        let limit = BACKLOG_HIGH_BYTES + BACKLOG_SLACK_BYTES;
        let mut highest = self.figures.highest_backlog;
        for worker in &self.workers {
            for (conn, ..) in worker.net().connections() {
                let backlog = worker.net().backlog(conn);
                assert!(backlog < limit, "a backlog of {backlog} bytes");
                highest = highest.max(backlog);
            }
        }
        self.figures.highest_backlog = highest;
    }

    /// A worker does what there is to do.
    fn turn(&mut self, worker: u16) {
        let at = usize::from(worker);
        self.workers[at].wait(Duration::ZERO, Duration::ZERO).expect("the driver does not fail");
        while self.workers[at].step(self.io.now) {
            self.check_queues();
            self.check_sessions();
            self.check_backlogs();
        }
        self.turn_again(worker);
    }

    /// Leaves the rest of the worker's work to its next turn.
    fn turn_again(&mut self, worker: u16) {
        if self.workers[usize::from(worker)].net().has_work() {
            let busy = self.io.rng.below(20);
            self.io.after(busy, Event::Turn(worker));
        }
    }

    fn deliver(&mut self, pipe: PipeId) {
        let stalled_until = self.io.stall_of(pipe);
        if stalled_until > self.io.now {
            return self.io.at(stalled_until, Event::Down(pipe));
        }
        match (self.io.network.deliver(pipe), self.io.peer(pipe)) {
            (Delivery::Bytes(bytes), Peer::Client(id)) => self.clients[id].received(&bytes, &mut self.io),
            (Delivery::Bytes(bytes), Peer::Backend(index)) => self.postgres.received(index, &bytes, &mut self.io),
            (Delivery::End, Peer::Client(id)) => self.clients[id].ended(&mut self.io),
            (Delivery::End, Peer::Backend(index)) => self.postgres.ended(index, &mut self.io),
            _ => {}
        }
    }

    /// A connect to the server ends, if it does.
    fn connect(&mut self, pipe: PipeId) {
        if !self.io.network.is_connecting(pipe) {
            return;
        }
        let trouble = self.io.plan.connect_trouble && self.io.now < self.io.plan.trouble_until;
        match self.io.rng.below(10) {
            // It hangs.
            0..2 if trouble => {}
            2..6 if trouble => self.io.network.end_connect(pipe, Some(ErrorKind::ConnectionRefused)),
            _ => {
                let backend = self.postgres.accept(pipe, &mut self.io);
                self.io.set_peer(pipe, Peer::Backend(backend));
                self.io.network.end_connect(pipe, None);
            }
        }
    }

    fn tick(&mut self) {
        if self.io.now >= self.io.plan.trouble_until {
            self.io.network.set_faults(|faults| (faults.no_socket_percent, faults.no_accept_percent) = (0, 0));
        }
        for worker in 0..self.io.plan.workers {
            let worker_at = &mut self.workers[usize::from(worker)];
            // It said itself when it is to be woken.
            if worker_at.next_timeout().is_some_and(|at| at <= self.io.now) {
                worker_at.tick(self.io.now);
            }
            self.check_queues();
            self.check_sessions();
            self.turn_again(worker);
        }
        for client in &self.clients {
            client.check_deadline(&self.io);
        }
        // More only while as many of other pools are being closed for them.
        let closing = self.mailboxes.count(|parcel| matches!(parcel, Parcel::Mail(Mail::CloseIdle(_)))) as u32;
        let (servers, most) = (self.hub.servers(), self.io.plan.servers);
        assert!(servers <= most + closing, "{servers} servers, and {closing} of them being closed");
        self.io.after(100_000, Event::Tick);
        self.hub.tell_log(self.io.now, &"main".into(), Lsn(self.io.now.0));
    }

    fn crash_if_live(&mut self, server: usize) {
        if self.postgres.live().any(|(live, _)| live == server) {
            self.postgres.crash(server, &mut self.io);
        }
    }

    fn look_up(&mut self, user: &str) {
        let known = crate::plan::USERS.contains(&user);
        let found = Ok(known.then(|| self.io.plan.secret()).into());
        for client in self.hub.secrets.found(self.io.now, user, found) {
            self.mailboxes.send(client.worker, Parcel::Mail(Mail::Secret(client)));
        }
    }

    fn client_arrives(&mut self, id: usize) {
        let worker = self.io.rng.below(u64::from(self.io.plan.workers)) as u16;
        let Some(pipe) = self.io.network.open(worker, place_of(id)) else { return self.clients[id].turned_away() };
        self.io.trace(|| format!("client {id} connects to worker {worker}"));
        self.io.set_peer(pipe, Peer::Client(id));
        self.clients[id].begin(pipe, &mut self.io);
    }

    fn client_cancels(&mut self, id: usize) {
        let client = &mut self.clients[id];
        let (true, Some((pid, key))) = (client.is_ready(), &client.key) else { return };
        let mut packet = Vec::new();
        startup::put_cancel(&mut packet, *pid, key);
        client.cancels += 1;
        self.io.trace(|| format!("client {id} cancels"));
        let worker = self.io.rng.below(u64::from(self.io.plan.workers)) as u16;
        let Some(pipe) = self.io.network.open(worker, PeerAddress::Local) else { return };
        self.io.set_peer(pipe, Peer::Canceller);
        self.io.write_up(pipe, &packet);
    }

    /// Whoever has left a queue was its first, or did not want to wait any more, or was sent away.
    fn check_queues(&mut self) {
        for pool in self.hub.pools() {
            let waiting: Vec<ClientRef> = pool.state().waiting().collect();
            waiting.iter().for_each(|client| self.note_name(*client));
            let key = (pool.database.clone(), pool.upstream.user.clone());
            let before = self.queues.insert(key, waiting.clone()).unwrap_or_default();
            let first = before.iter().position(|c| waiting.contains(c)).unwrap_or(before.len());
            self.figures.waits += first as u64;
            for gone in before[first..].iter().filter(|c| !waiting.contains(c)) {
                let client = self.names.get(gone).map(|id| &self.clients[*id]);
                let is_refusal =
                    |parcel: &Parcel<_>| matches!(parcel, Parcel::Mail(Mail::Refuse(who, _)) if who == gone);
                // Whoever comes again, since it could not use its server, is the first, and has not waited the longest.
                let is_refused = || self.mailboxes.count(is_refusal) > 0;
                let overtook = client.is_some_and(|c| c.stays() && !c.careful) && !is_refused();
                // One that logged in behind a change waits for a server that has, too; and in session mode for one that
                // was opened as it asked.
                let startup = |client: &ClientRef| self.names.get(client).map(|id| &self.clients[*id].startup);
                let is_shared = pool.sharing.mode == PoolMode::Transaction;
                let are_alike = pool.log_ins.generation() == Generation::FIRST
                    && (is_shared || startup(gone) == startup(&before[first]));
                assert!(
                    !overtook || self.stopping || !are_alike,
                    "{gone:?} was served before {:?} of {before:?}",
                    before[first]
                );
            }
            // One whose first query was cancelled while it waited comes again for its next one.
            let comes_again = |c: &&ClientRef| {
                let client = self.names.get(*c).map(|id| &self.clients[*id]);
                client.is_some_and(|client| client.careful)
            };
            let kept: Vec<&ClientRef> = before.iter().filter(|c| waiting.contains(c) && !comes_again(c)).collect();
            // And one who was given a server that it can't use comes again before the others, whoever was first.
            let waited = |c: &&ClientRef| before.contains(c) && !comes_again(c);
            let waiting: Vec<ClientRef> = waiting.iter().filter(waited).copied().collect();
            let behind = kept.into_iter().filter(|c| Some(*c) != waiting.first());
            assert!(waiting.iter().skip(1).eq(behind), "a queue was reordered: {before:?} {waiting:?}");
        }
    }

    /// Notes which client it is that waits.
    fn note_name(&mut self, client: ClientRef) {
        if self.names.contains_key(&client) {
            return;
        }
        let is_it = |(_, owner, _): &(Conn, Option<Owner>, _)| *owner == Some(Owner::Client(client.id));
        let found = self.workers[usize::from(client.worker)].net().connections().find(is_it);
        if let Some(Peer::Client(id)) = found.and_then(|(_, _, socket)| Some(self.io.peer(socket?.pipe()))) {
            self.names.insert(client, id);
        }
    }

    /// All clients have gone, and time has passed.
    fn check_quiet(&mut self) {
        self.io.trace(|| "all should be quiet".to_owned());
        assert_eq!(self.hub.connections(), 0, "connections are still counted");
        let mut open = 0;
        for pool in self.hub.pools() {
            let counts = pool.state().counts();
            assert_eq!(counts.pinned, 0, "servers are counted as kept for clients that have gone");
            assert_eq!((counts.waiting, counts.connecting), (0, 0), "a pool is not at rest: {counts:?}");
            assert_eq!(counts.open, counts.idle, "a pool counts servers that are not idle: {counts:?}");
            open += counts.open;
        }
        assert_eq!(self.hub.servers(), open, "the process counts other servers than its pools");
        let held: usize = self.workers.iter().map(|w| w.engine().counts().1).sum();
        assert_eq!(held, open as usize, "workers have other servers than the pools count");
        assert!(self.workers.iter().all(|w| w.engine().counts().0 == 0), "a worker still has clients");
        let live = self.postgres.live().count();
        assert_eq!(live, open as usize, "there are other sessions on the server than the pools count");
        self.postgres.check_rest();
        assert_eq!(self.io.network.open_sockets(), open as usize, "connections were forgotten");
        let kept: u16 = self.workers.iter().map(|w| w.net().buffers().in_use()).sum();
        assert_eq!(kept, 0, "buffers are kept where nothing is to be sent");
        if self.io.plan.is_transaction_mode() {
            let (most, limit) = (self.postgres.statements_max(), self.io.plan.pool.prepared_per_server as usize);
            // An unnamed one may be there as well, and those of the pool's own: the one that stands in for others, and
            // the two that a failure has kept from being closed.
            assert!(most <= limit + 4, "a server has {most} prepared statements, the limit is {limit}");
        }
        let crashes = self.postgres.crashes as usize;
        let lost = |c: &&Client| c.lost.as_ref().is_some_and(|l| matches!(l.0.as_str(), "08006" | "08007" | "57P01"));
        let victims = self.clients.iter().filter(lost).count();
        let plan = &self.io.plan;
        let trouble = plan.connect_trouble || plan.login_trouble || plan.stops_after_micros.is_some();
        let trouble = trouble || plan.replaces_primaries();
        assert!(victims <= crashes || trouble, "{victims} clients lost their servers in {crashes} crashes");
    }

    /// After all that, a new client of each pool is served.
    fn probe(&mut self) {
        self.io.plan.trouble_until = Time(0);
        let plan = &mut self.io.plan;
        (plan.cancel_percent, plan.vanish_percent, plan.crashes, plan.steps) = (0, 0, 0, 3);
        (plan.connect_trouble, plan.login_trouble) = (false, false);
        // On a slow network one of these alone keeps a server for longer than others wait.
        (plan.copy_percent, plan.big_percent, plan.stall_percent) = (0, 0, 0);
        (plan.strange_percent, plan.long_percent, plan.settings_percent) = (0, 0, 0);
        let first = self.clients.len();
        for id in first..first + 3 {
            let client = Client::new(id, Kind::Good, &mut self.io);
            self.clients.push(client);
            self.io.after(0, Event::ClientArrives(id));
        }
        self.run_until(|world| world.clients.iter().all(Client::is_done));
        for client in &self.clients[first..] {
            assert_eq!(client.lost, None, "client {} was not served after all was quiet", client.id);
        }
    }

    /// The pool has another size, goes to the server in another way, or makes less of its clients' statements.
    fn configure(&mut self) {
        if self.io.plan.has_nodes() && self.io.rng.percent(80) {
            let all = [&ADDRESSES[..], &ADDRESSES[..1], &ADDRESSES[1..]];
            let seen = standbys(self.io.rng.pick(&all));
            return self.observe(seen);
        }
        let mut configuration = self.io.plan.configuration();
        let rng = &mut self.io.rng;
        let database = &mut configuration.databases[0];
        if !self.io.plan.has_nodes() {
            database.address = Address::Unix(rng.pick(&ADDRESSES).into());
        }
        database.pool.size += rng.below(2) as u32;
        if database.pool.sharing.mode == PoolMode::Transaction {
            database.pool.sharing.auto_prepare = rng.percent(50);
            database.pool.sharing.lazy_begin = rng.percent(50);
        }
        self.observe(Observation::Configured(configuration.into()));
    }

    fn observe(&mut self, observation: Observation) {
        let Some(published) = self.control.observe(observation) else { return };
        self.io.trace(|| published.changes.iter().map(|change| format!("{change}; ")).collect());
        self.hub.publish(published.snapshot);
        // They wait elsewhere now.
        self.queues.clear();
        for worker in 0..self.io.plan.workers {
            self.mailboxes.send(worker, Parcel::Mail(Mail::Published));
        }
    }

    /// All that can be closed is, now or as soon as it can be.
    fn operate(&mut self) {
        let called_in = if self.io.plan.in_cluster && self.io.rng.percent(50) {
            // It ends by itself, and then those who have waited are served.
            let length = Duration::from_micros(self.io.rng.below(300_000));
            self.hub.hold(self.io.now, &"main".into(), self.io.now + length)
        } else if self.io.rng.percent(50) {
            self.hub.renew(self.io.now, None)
        } else {
            let length = self.io.rng.below(300_000);
            self.io.after(length, Event::Resume);
            self.hub.pause(self.io.now, None)
        };
        self.mailboxes.call_in(called_in);
    }

    /// The service stops.
    fn stop(&mut self) {
        self.stopping = true;
        let grace = Duration::from_micros(self.io.rng.below(1_000_000));
        for worker in 0..self.io.plan.workers {
            self.mailboxes.send(worker, Parcel::Mail(Mail::Stop(self.io.now + grace)));
        }
    }

    fn check_end(&mut self) {
        let limit = self.io.now + SETTLING;
        self.run_until(|world| world.workers.iter().all(SimWorker::is_finished) || world.io.now > limit);
        assert!(self.workers.iter().all(SimWorker::is_finished), "a stopping service does not come to its end");
        assert_eq!(self.hub.servers(), 0, "servers are still counted at the end");
    }
}

/// The node that readers do not go to.
fn the_primary() -> Observation {
    let (node, address) = ("primary".to_owned(), Address::Unix(PRIMARY.into()));
    Observation::Primary("main".into(), Primary { node, address, timeline: 1, system: "7".to_owned() })
}

/// Standbys that will do, and no others.
fn standbys(addresses: &[&str]) -> Observation {
    let lag = Lag { time: Some(Duration::ZERO), bytes: Some(0) };
    let state =
        Standby { timeline: 1, system: "7".to_owned(), streams: true, is_paused: false, is_excluded: false, lag };
    let node = |address: &&str| Node {
        name: (*address).to_owned(),
        address: Address::Unix((*address).into()),
        state: NodeState::Standby(state.clone()),
    };
    Observation::Nodes("main".into(), addresses.iter().map(node).collect())
}
