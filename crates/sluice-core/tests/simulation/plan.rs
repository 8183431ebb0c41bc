//! The decisions of a seed about a run as a whole. The kind of run goes round with the seed, so that a failure can be
//! sought among few causes.

use std::{collections::HashMap, time::Duration};

use sluice_control::{
    Configuration, Database, Secret as Hidden,
    access::{Access, LookUp, Method, Policy, Users},
    address::Address,
    cluster::Cluster,
    reading::{Causal, Reading, Scope, Target},
    server_auth::ServerAuth,
    settings::{Limits, PinPolicy, PoolMode, PoolSettings, Sharing},
};
use sluice_core::time::Time;
use sluice_wire::{scram::Verifier, secret::Secret};

use sluice_sim::Rng;

use crate::postgres::SECRET;

pub(crate) const PASSWORD: &str = "geheim";
pub(crate) const DATABASES: [&str; 2] = ["one", "two"];
pub(crate) const USERS: [&str; 2] = ["alice", "bob"];

/// The largest Parse that the pool takes, in bytes.
pub(crate) const PARSE_BYTES_MAX: u32 = 100 << 10;

/// Two ways to the server.
pub(crate) const ADDRESSES: [&str; 2] = ["/simulated", "/the/same"];

/// The way to the primary of a cluster whose standbys these are.
pub(crate) const PRIMARY: &str = "/primary";

/// Any standby will do that is seen.
const READING: Reading = Reading { target: Target::Standby, lag_max: Duration::from_secs(1), lag_bytes_max: None };

/// They are waited for, and often not for long enough.
const CAUSAL: Causal = Causal { scope: Scope::Global, timeout: Duration::from_millis(200) };

/// The number of kinds of runs.
pub(crate) const KINDS: u64 = 16;

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) kind: &'static str,
    pub(crate) workers: u16,
    pub(crate) clients: usize,
    pub(crate) steps: u64,
    pub(crate) method: Method,
    pub(crate) look_up: bool,
    pub(crate) pool: PoolSettings,
    /// Whether servers are told where their clients are.
    tells: bool,
    /// Whether the database is that of a cluster: where its address changes, another node is the primary.
    pub(crate) in_cluster: bool,
    /// Whether clients are readers of that cluster: the addresses are those of its standbys, and another configuration is
    /// that others of them will do.
    pub(crate) reads: bool,
    /// Whether clients' blocks that only read are led to that cluster's standbys, and all others to its primary.
    pub(crate) leads: bool,
    /// Whether both find what was committed before, or go to the primary.
    pub(crate) is_causal: bool,
    /// Whether servers say by themselves what their sessions hold.
    pub(crate) reports: bool,
    pub(crate) servers: u32,
    /// The most of one host, of one role, and of one database.
    pub(crate) shares: [Option<u32>; 3],
    pub(crate) client_limit: u32,
    /// The buffers that a worker receives into: how many, and of how many bytes.
    pub(crate) buffers: (u16, usize),
    /// The room for bytes on their way to a peer, in bytes.
    pub(crate) room_bytes: usize,
    /// Of reads, sends and deliveries that are cut short.
    pub(crate) cut_percent: u64,
    pub(crate) delay_micros_max: u64,
    pub(crate) cancel_percent: u64,
    pub(crate) vanish_percent: u64,
    pub(crate) crashes: u64,
    pub(crate) schema_changes: u64,
    /// The number of times that the servers' configuration is reloaded, so that they say something unasked.
    pub(crate) reloads: u64,
    /// Times at which the pool is configured otherwise, without a client being able to tell.
    pub(crate) configurations: u64,
    /// Times at which an operator has the pool pause for a while, or open other servers.
    pub(crate) operations: u64,
    /// Of BEGINs that the server refuses, as a gate does where the wait is too long.
    pub(crate) refused_percent: u64,
    /// Of steps that keep a server for seconds.
    pub(crate) long_percent: u64,
    /// The time at which the service is told to stop, if its clients are not to be done by then.
    pub(crate) stops_after_micros: Option<u64>,
    pub(crate) connect_trouble: bool,
    pub(crate) login_trouble: bool,
    pub(crate) trouble_until: Time,
    pub(crate) strange_percent: u64,
    pub(crate) stall_percent: u64,
    /// Steps that use the extended protocol, COPY and large rows, in percent.
    pub(crate) extended_percent: u64,
    pub(crate) copy_percent: u64,
    pub(crate) big_percent: u64,
    pub(crate) settings_percent: u64,
    pub(crate) sequences_percent: u64,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let rng = &mut rng;
        let mut plan = Self::calm(rng);
        match seed % KINDS {
            0 => {}
            1 => {
                plan.kind = "prepared statements";
                plan.extended_percent = 90;
                plan.pool.prepared_per_server = rng.range(1, 3) as u32;
                plan.schema_changes = rng.below(15);
            }
            2 => {
                plan.kind = "cancels";
                plan.cancel_percent = 50;
                plan.pool.size = rng.range(1, 2) as u32;
            }
            3 => {
                plan.kind = "clients vanish";
                plan.vanish_percent = 15;
                plan.copy_percent = 20;
            }
            4 => {
                plan.kind = "servers crash";
                plan.crashes = rng.range(1, 16);
                plan.big_percent = rng.pick(&[3, 20]);
                plan.settings_percent = rng.pick(&[5, 60]);
                plan.workers = rng.range(2, 3) as u16;
            }
            5 => {
                plan.kind = "trouble with connecting";
                plan.connect_trouble = true;
                plan.login_trouble = rng.percent(50);
                plan.crashes = rng.below(3);
            }
            6 => {
                plan.kind = "session mode";
                plan.pool.sharing.mode = PoolMode::Session;
                plan.vanish_percent = rng.pick(&[0, 10]);
                plan.cancel_percent = rng.pick(&[0, 10]);
            }
            7 => {
                plan.kind = "large and slow";
                plan.big_percent = 30;
                plan.copy_percent = 30;
                plan.stall_percent = 30;
                plan.steps = 6;
                plan.clients = plan.clients.min(5);
            }
            8 => {
                plan.kind = "strange clients";
                plan.strange_percent = 30;
                plan.client_limit = rng.range(3, 20) as u32;
            }
            9 => {
                plan.kind = "settings";
                plan.settings_percent = 60;
                plan.pool.size = rng.range(1, 2) as u32;
            }
            10 => {
                plan.kind = "few servers, short lives";
                plan.servers = rng.range(1, 3) as u32;
                plan.shares = [(); 3].map(|()| rng.pick(&[None, None, Some(1), Some(2), Some(3)]));
                // Where they live shorter than a connect takes, there is always one that is being made.
                plan.pool.server_lifetime = Duration::from_millis(rng.range(100, 3000));
                plan.pool.server_idle_timeout = Duration::from_millis(rng.range(1, 3000));
            }
            11 => {
                plan.kind = "long waits";
                plan.pool.size = 1;
                plan.steps = 5;
                plan.long_percent = 25;
                plan.pool.sharing.mode = rng.pick(&[PoolMode::Transaction, PoolMode::Session]);
                plan.vanish_percent = rng.pick(&[0, 5]);
            }
            12 => {
                plan.kind = "the service stops";
                plan.stops_after_micros = Some(rng.below(300_000));
                plan.big_percent = 20;
                plan.cut_percent = 90;
            }
            13 => {
                plan.kind = "what can't follow";
                plan.settings_percent = 70;
                plan.pool.size = rng.range(1, 3) as u32;
                plan.pool.sharing.pins = rng.pick(&[PinPolicy::Pin, PinPolicy::Pin, PinPolicy::Refuse]);
                plan.pool.pinned_max = rng.pick(&[None, Some(0), Some(1), Some(2)]);
                plan.reloads = rng.pick(&[0, 100]);
                plan.vanish_percent = rng.pick(&[0, 5]);
                plan.cancel_percent = rng.pick(&[0, 20]);
            }
            14 => {
                plan.kind = "other configurations";
                plan.configurations = rng.range(1, 30);
                plan.pool.sharing.mode = rng.pick(&[PoolMode::Transaction, PoolMode::Transaction, PoolMode::Session]);
                (plan.schema_changes, plan.settings_percent) = rng.pick(&[(0, 5), (0, 40), (3, 5)]);
                plan.vanish_percent = rng.pick(&[0, 5]);
                plan.cancel_percent = rng.pick(&[0, 10]);
                plan.operations = rng.pick(&[0, 0, 10]);
            }
            _ => {
                plan.kind = "everything";
                plan.cancel_percent = rng.pick(&[0, 10]);
                plan.vanish_percent = rng.pick(&[0, 5]);
                plan.crashes = rng.below(3);
                plan.schema_changes = rng.below(3);
                plan.reloads = rng.below(10);
                plan.long_percent = rng.pick(&[0, 2]);
                plan.stall_percent = rng.pick(&[0, 5]);
                plan.strange_percent = rng.pick(&[0, 5]);
                plan.settings_percent = rng.pick(&[0, 20]);
                plan.copy_percent = rng.pick(&[0, 20]);
                plan.servers = rng.pick(&[2, 100]);
                plan.shares = [(); 3].map(|()| rng.pick(&[None, None, Some(2), Some(3)]));
                plan.configurations = rng.below(5);
                plan.operations = rng.below(5);
            }
        }
        if rng.percent(40) {
            plan.in_cluster = true;
            plan.pool.failover_timeout = Some(plan.pool.connect_timeout);
            plan.reads = rng.percent(40);
            plan.leads = !plan.reads && plan.is_transaction_mode() && rng.percent(50);
            // Where commits are told of, so is what a session holds.
            plan.reports |= plan.leads;
            plan.is_causal = plan.leads || plan.reads && plan.is_transaction_mode() && rng.percent(50);
        }
        plan
    }

    /// Whether servers may be lost at any moment.
    pub(crate) fn loses_servers(&self) -> bool {
        self.crashes > 0 || self.replaces_primaries()
    }

    /// Whether servers are closed with a primary that is replaced. Readers leave theirs between transactions.
    pub(crate) fn replaces_primaries(&self) -> bool {
        self.in_cluster && !self.has_nodes() && self.configurations > 0
    }

    /// Whether the cluster has a primary that stays, and standbys.
    pub(crate) fn has_nodes(&self) -> bool {
        self.reads || self.leads
    }

    fn calm(rng: &mut Rng) -> Self {
        let size = rng.range(1, 4) as u32;
        let pool = PoolSettings {
            size,
            min: rng.below(u64::from(size) + 1) as u32,
            wait_timeout: Duration::from_secs(rng.range(5, 12)),
            connect_timeout: Duration::from_secs(2),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_millis(500),
            parallel_connects: rng.range(1, 3) as u32,
            sharing: Sharing {
                mode: PoolMode::Transaction,
                auto_prepare: rng.percent(70),
                lazy_begin: rng.percent(80),
                pins: PinPolicy::Pin,
            },
            prepared_per_server: rng.pick(&[1, 2, 4, 100]),
            ..PoolSettings::default()
        };
        Self {
            kind: "calm",
            workers: rng.range(1, 3) as u16,
            clients: rng.range(2, 9) as usize,
            steps: rng.range(4, 14),
            method: rng.pick(&[Method::Trust, Method::Md5, Method::ScramSha256]),
            look_up: rng.percent(50),
            pool,
            tells: rng.percent(30),
            in_cluster: false,
            reads: false,
            leads: false,
            is_causal: false,
            reports: rng.percent(30),
            servers: 100,
            shares: [None; 3],
            client_limit: 1000,
            buffers: rng.pick(&[(512, 16 << 10), (8, 4 << 10), (16, 200)]),
            room_bytes: rng.pick(&[1 << 10, 16 << 10, 200 << 10]),
            cut_percent: rng.pick(&[5, 40, 90]),
            delay_micros_max: rng.pick(&[1_000, 5_000, 40_000]),
            cancel_percent: 0,
            vanish_percent: 0,
            crashes: 0,
            schema_changes: 0,
            configurations: 0,
            operations: 0,
            reloads: rng.pick(&[0, 0, 30]),
            refused_percent: rng.pick(&[0, 0, 0, 10]),
            long_percent: 0,
            stops_after_micros: None,
            connect_trouble: false,
            login_trouble: false,
            trouble_until: Time(rng.range(1, 8) * 1_000_000),
            strange_percent: 0,
            stall_percent: 0,
            extended_percent: rng.pick(&[10, 50, 90]),
            copy_percent: 5,
            big_percent: 3,
            settings_percent: 5,
            sequences_percent: rng.pick(&[0, 5, 30]),
        }
    }

    /// Whether servers are told where their clients are.
    pub(crate) fn tells(&self) -> bool {
        self.tells
    }

    /// Whether settings and temporary things must stay with a client's transaction.
    pub(crate) fn is_transaction_mode(&self) -> bool {
        self.pool.sharing.mode == PoolMode::Transaction
    }

    pub(crate) fn verifier() -> Verifier {
        Verifier::derive(PASSWORD, b"0123456789abcdef", 2)
    }

    pub(crate) fn secret(&self) -> Secret {
        match self.method {
            Method::Md5 => Secret::Plain(PASSWORD.into()),
            _ => Secret::Scram(Self::verifier()),
        }
    }

    /// The configuration of the pool.
    pub(crate) fn configuration(&self) -> Configuration {
        let users = if self.look_up {
            Users::LookedUp(
                LookUp {
                    cluster: None,
                    tls: None,
                    address: Address::Unix(ADDRESSES[0].into()),
                    dbname: "postgres".to_owned(),
                    user: "asks".to_owned(),
                    password: None,
                    server_auth: ServerAuth::default(),
                    query: "select $1".to_owned(),
                    asks_roles: false,
                    cache: Duration::from_millis(500),
                },
                HashMap::new(),
            )
        } else {
            Users::Listed(USERS.iter().map(|u| (u.to_string(), self.secret())).collect())
        };
        let limits = Limits {
            clients: self.client_limit,
            servers: self.servers,
            servers_per_host: self.shares[0],
            servers_per_user: self.shares[1],
            pools: 1000,
            login_timeout: Duration::from_secs(20),
            client_message_timeout: Duration::from_secs(20),
            idle_transaction_timeout: None,
            rewritten_message_bytes: PARSE_BYTES_MAX,
            ..Limits::default()
        };
        let address = match (self.reads, self.leads) {
            (true, _) => Address::Readers("main".into()),
            (_, true) => Address::Primary("main".into()),
            _ => Address::Unix(ADDRESSES[0].into()),
        };
        let database = Database {
            client_address_secret: self.tells.then(|| Hidden(SECRET.to_owned())),
            servers: self.shares[2],
            cluster: self.in_cluster.then(|| "main".into()),
            reading: self.reads.then_some(READING),
            read_only: self.leads.then_some(READING),
            causal: self.is_causal.then_some(CAUSAL),
            reports_commits: self.is_causal,
            ..Database::any_at(address, self.pool.clone())
        };
        let cluster = Cluster { name: "main".into(), members: Vec::new(), tls: None };
        Configuration {
            databases: vec![database],
            access: Access { policy: Policy::Method(self.method), users },
            encryption: None,
            admin: None,
            balancers: Vec::new(),
            client_log: sluice_control::settings::ClientLog::default(),
            clusters: self.has_nodes().then_some(cluster).into_iter().collect(),
            limits,
        }
    }
}
