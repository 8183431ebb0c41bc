//! The tables that `SHOW` shows. Where PgBouncer has one of that name, it has PgBouncer's columns, with zeros for what
//! Sluice has no counterpart of, and a row for the console itself, by which exporters see that there is somebody.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use sluice_control::{
    Database, Snapshot,
    address::Address,
    settings::{PoolMode, PoolSettings},
};
use sluice_core::{
    figures::{Figures, PoolFigures},
    hub::Hub,
    traffic::Counted,
};

use super::{
    listens::Listens,
    rows::{Table, Type, Value},
};

/// The mode of the console's own database, in PgBouncer's word: nobody has a server there.
const OWN_MODE: &str = "statement";

/// Everything that there is to show.
pub(super) struct Seen<'a> {
    pub(super) hub: &'a Hub,
    /// The databases that were paused or disabled by their names.
    pub(super) switched: Vec<String>,
    pub(super) figures: Figures,
    /// The console's own database.
    pub(super) console: String,
    pub(super) snapshot: Arc<Snapshot>,
    /// The settings of pools whose databases have none of their own.
    pub(super) pool: PoolSettings,
    pub(super) listens: &'a Listens,
    /// The number of servers' names.
    pub(super) names: u32,
    /// The figures at both ends of the last interval, and its length in seconds.
    pub(super) averages: Option<(Arc<Figures>, Arc<Figures>, u64)>,
}

/// The counts of a database.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    counted: Counted,
    waited: Duration,
}

impl Seen<'_> {
    pub(super) fn stats_totals(&self) -> Table {
        self.stats_brief(|_, sums| totals(sums))
    }

    pub(super) fn stats_averages(&self) -> Table {
        self.stats_brief(|name, _| self.averages(|figures| totals_of(figures, name)))
    }

    /// The totals of all databases together, and their averages.
    pub(super) fn totals(&self) -> Table {
        const NAMES: [&str; 7] =
            ["xact_count", "query_count", "client_bytes", "server_bytes", "xact_time", "query_time", "wait_time"];
        let mut table = Table::of(&["name", "value"], &["name"], Type::Numeric);
        for (prefix, values) in [("total", all_totals(&self.figures)), ("avg", self.averages(all_totals))] {
            for (name, value) in NAMES.into_iter().zip(values) {
                table.push([format!("{prefix}_{name}").into(), value.into()]);
            }
        }
        table
    }

    /// A database's sums each, the console's among them.
    fn sums(&self) -> BTreeMap<&str, Sums> {
        let mut sums = sums(&self.figures);
        sums.entry(&self.console).or_default();
        sums
    }

    fn stats_brief(&self, of: impl Fn(&str, &Sums) -> [u64; 7]) -> Table {
        const COLUMNS: [&str; 8] = [
            "database",
            "xact_count",
            "query_count",
            "bytes_received",
            "bytes_sent",
            "xact_time",
            "query_time",
            "wait_time",
        ];
        let mut table = Table::of(&COLUMNS, &["database"], Type::Numeric);
        for (name, sums) in self.sums() {
            let [a, b, c, d, e, f, g] = of(name, &sums).map(Value::from);
            table.push([name.into(), a, b, c, d, e, f, g]);
        }
        table
    }

    /// The databases that have entries, and those that the entry `"*"` serves or that are paused or disabled.
    fn named_databases(&self) -> Vec<(&str, &Database)> {
        let entries = &self.snapshot.databases;
        let mut all: Vec<_> = entries.iter().map(|database| (name_of(database), &**database)).collect();
        let in_use = self.figures.pools.iter().map(|pool| pool.database.as_str());
        let others: BTreeSet<_> = in_use.chain(self.switched.iter().map(String::as_str)).collect();
        let has_entry = |name: &str| entries.iter().any(|entry| entry.name.as_deref() == Some(name));
        let others = others.into_iter().filter(|name| !has_entry(name));
        all.extend(others.filter_map(|name| Some((name, &**self.snapshot.database(name)?))));
        all
    }

    pub(super) fn databases(&self) -> Table {
        const COLUMNS: [&str; 13] = [
            "name",
            "host",
            "port",
            "database",
            "force_user",
            "pool_size",
            "min_pool_size",
            "reserve_pool",
            "pool_mode",
            "max_connections",
            "current_connections",
            "paused",
            "disabled",
        ];
        let mut table = Table::of(&COLUMNS, &["name", "host", "database", "force_user", "pool_mode"], Type::Int4);
        for (name, database) in self.named_databases() {
            let (host, port) = places(database);
            let its = self.figures.pools.iter().filter(|pool| pool.database == name);
            let open: u32 = its.map(|pool| pool.counts.open).sum();
            let PoolSettings { size, min, sharing, .. } = &database.pool;
            table.push([
                name.into(),
                host.into(),
                port.into(),
                database.dbname.as_deref().unwrap_or(name).into(),
                database.user.clone().into(),
                (*size).into(),
                (*min).into(),
                0_u32.into(),
                Some(sharing.mode).filter(|own| *own != self.pool.sharing.mode).map(mode).into(),
                database.servers.unwrap_or_default().into(),
                open.into(),
                u32::from(self.hub.is_paused(name)).into(),
                u32::from(self.hub.is_disabled(name)).into(),
            ]);
        }
        table.push(self.own_database());
        table
    }

    /// The console's row, with PgBouncer's figures of its own one.
    fn own_database(&self) -> [Value; 13] {
        let own = || Value::from(self.console.as_str());
        let none = || Value::from(0_u32);
        let port = self.listens.port().map(u32::from).into();
        let (size, mode) = (2_u32.into(), OWN_MODE.into());
        [own(), Value::Null, port, own(), own(), size, none(), none(), mode, none(), none(), none(), none()]
    }

    pub(super) fn pools(&self) -> Table {
        const COLUMNS: [&str; 16] = [
            "database",
            "user",
            "cl_active",
            "cl_waiting",
            "cl_active_cancel_req",
            "cl_waiting_cancel_req",
            "sv_active",
            "sv_active_cancel",
            "sv_being_canceled",
            "sv_idle",
            "sv_used",
            "sv_tested",
            "sv_login",
            "maxwait",
            "maxwait_us",
            "pool_mode",
        ];
        let mut table = Table::of(&COLUMNS, &["database", "user", "pool_mode"], Type::Int4);
        // Readers have a pool at each node; programs that read this know a pool by its database and user.
        let is_one =
            |one: &PoolFigures, other: &PoolFigures| (&one.database, &one.role) == (&other.database, &other.role);
        for pools in self.figures.pools.chunk_by(is_one) {
            let sum = |count: fn(&PoolFigures) -> u32| pools.iter().map(count).sum::<u32>();
            let clients = sum(|pool| pool.clients.saturating_sub(pool.counts.waiting));
            let servers = [sum(PoolFigures::active), sum(|pool| pool.counts.idle), sum(|pool| pool.counts.connecting)];
            let longest = pools.iter().map(|pool| pool.longest_wait).max().unwrap_or_default();
            let pool = &pools[0];
            table.push(pool_row(
                [&pool.database, &pool.role, mode(pool.mode)],
                [clients, sum(|pool| pool.counts.waiting)],
                servers,
                (longest.as_secs(), longest.subsec_micros()),
            ));
        }
        let in_pools: u32 = self.figures.pools.iter().map(|pool| pool.clients).sum();
        let others = self.figures.clients.saturating_sub(in_pools);
        table.push(pool_row([&self.console, &self.console, OWN_MODE], [others, 0], [0; 3], (0, 0)));
        table
    }

    /// The clients that keep servers between transactions, and why: Sluice's own.
    pub(super) fn pins(&self) -> Table {
        let mut table = Table::new(&["database", "user", "pinned", "reasons"], &["database", "user", "reasons"]);
        for pool in self.figures.pools.iter().filter(|pool| pool.counts.pinned > 0) {
            table.push([
                pool.database.as_str().into(),
                pool.role.as_str().into(),
                pool.counts.pinned.into(),
                pool.pins.to_string().into(),
            ]);
        }
        table
    }

    pub(super) fn stats(&self) -> Table {
        const COLUMNS: [&str; 15] = [
            "database",
            "total_xact_count",
            "total_query_count",
            "total_received",
            "total_sent",
            "total_xact_time",
            "total_query_time",
            "total_wait_time",
            "avg_xact_count",
            "avg_query_count",
            "avg_recv",
            "avg_sent",
            "avg_xact_time",
            "avg_query_time",
            "avg_wait_time",
        ];
        let mut table = Table::of(&COLUMNS, &["database"], Type::Numeric);
        for (name, sums) in self.sums() {
            let [a, b, c, d, e, f, g] = totals(&sums).map(Value::from);
            let averages = self.averages(|figures| totals_of(figures, name));
            let [h, i, j, k, l, m, n] = averages.map(Value::from);
            table.push([name.into(), a, b, c, d, e, f, g, h, i, j, k, l, m, n]);
        }
        table
    }

    /// The averages of these totals over the last interval: a second's transactions, queries and bytes; microseconds of a
    /// transaction, of a query, and of waits in a second.
    fn averages(&self, of: impl Fn(&Figures) -> [u64; 7]) -> [u64; 7] {
        let Some((begin, end, seconds)) = &self.averages else { return [0; 7] };
        let (begin, end) = (of(begin), of(end));
        let [transactions, queries, received, sent, transaction_time, query_time, wait_time] =
            std::array::from_fn(|i| end[i].saturating_sub(begin[i]));
        let each = |time: u64, count: u64| time.checked_div(count).unwrap_or_default();
        [
            transactions / seconds,
            queries / seconds,
            received / seconds,
            sent / seconds,
            each(transaction_time, transactions),
            each(query_time, queries),
            wait_time / seconds,
        ]
    }

    pub(super) fn lists(&self) -> Table {
        let Figures { clients, servers, connections, .. } = &self.figures;
        let mut table = Table::of(&["list", "items"], &["list"], Type::Int4);
        for (list, items) in [
            ("databases", self.databases().len() as u32),
            ("users", self.known_users().len() as u32),
            ("pools", self.pools().len() as u32),
            ("free_clients", 0),
            ("used_clients", *clients),
            ("login_clients", connections.saturating_sub(*clients)),
            ("free_servers", 0),
            ("used_servers", *servers),
            ("dns_names", self.names),
            ("dns_zones", 0),
            ("dns_queries", 0),
            ("dns_pending", 0),
        ] {
            table.push([list.into(), items.into()]);
        }
        table
    }

    /// Users that are listed, or that have pools.
    fn known_users(&self) -> Vec<&str> {
        let mut users: Vec<&str> = self.snapshot.access.users.listed();
        users.extend(self.figures.pools.iter().map(|pool| pool.role.as_str()));
        users.sort_unstable();
        users.dedup();
        users
    }

    pub(super) fn users(&self) -> Table {
        let mut table = Table::new(&["name", "pool_mode"], &["name", "pool_mode"]);
        self.known_users().into_iter().for_each(|user| table.push([user.into(), Value::Null]));
        table
    }
}

/// A row of `SHOW POOLS`: names, clients that are active and that wait, servers that are active, idle and logging in, and
/// the longest wait.
fn pool_row(
    [database, user, mode]: [&str; 3],
    clients: [u32; 2],
    [active, idle, connecting]: [u32; 3],
    (seconds, micros): (u64, u32),
) -> [Value; 16] {
    let none = || Value::from(0_u32);
    let [clients, waiting] = clients.map(Value::from);
    let [active, idle, connecting] = [active, idle, connecting].map(Value::from);
    let (cancels, server_cancels) = ([none(), none()], [none(), none()]);
    let ([cancelling, cancels_wait], [sent, cancelled]) = (cancels, server_cancels);
    [
        database.into(),
        user.into(),
        clients,
        waiting,
        cancelling,
        cancels_wait,
        active,
        sent,
        cancelled,
        idle,
        none(),
        none(),
        connecting,
        seconds.into(),
        micros.into(),
        mode.into(),
    ]
}

pub(super) fn version() -> Table {
    let mut table = Table::new(&["version"], &["version"]);
    table.push([concat!("Sluice ", env!("CARGO_PKG_VERSION")).into()]);
    table
}

/// The counts of each database.
fn sums(figures: &Figures) -> BTreeMap<&str, Sums> {
    let mut all = BTreeMap::<&str, Sums>::new();
    for pool in &figures.pools {
        let sums = all.entry(&pool.database).or_default();
        sums.counted += pool.traffic;
        sums.waited += pool.counts.waits.sum;
    }
    all
}

/// The columns of a database's totals; times in microseconds.
fn totals(Sums { counted, waited }: &Sums) -> [u64; 7] {
    let micros = |time: Duration| time.as_micros() as u64;
    [
        counted.transactions.count(),
        counted.queries.count(),
        counted.received_bytes,
        counted.sent_bytes,
        micros(counted.transactions.sum),
        micros(counted.queries.sum),
        micros(*waited),
    ]
}

/// The totals of one database.
fn totals_of(figures: &Figures, name: &str) -> [u64; 7] {
    totals(&sums(figures).get(name).copied().unwrap_or_default())
}

/// The totals of all databases together.
fn all_totals(figures: &Figures) -> [u64; 7] {
    sums(figures).values().map(totals).fold([0; 7], |all, its| std::array::from_fn(|i| all[i] + its[i]))
}

fn name_of(database: &Database) -> &str {
    database.name.as_deref().unwrap_or("*")
}

pub(super) fn mode(mode: PoolMode) -> &'static str {
    match mode {
        PoolMode::Transaction => "transaction",
        PoolMode::Session => "session",
    }
}

/// The hosts of a database, and the port that all of them have.
fn places(database: &Database) -> (String, Option<u32>) {
    let (hosts, ports): (Vec<_>, Vec<_>) = database.places().iter().map(host_and_port).unzip();
    let port = ports.first().copied().flatten().filter(|port| ports.iter().all(|it| *it == Some(*port)));
    (hosts.join(","), port)
}

/// The host and the port; of a Unix socket its folder, and the port in its name.
pub(super) fn host_and_port(address: &Address) -> (String, Option<u32>) {
    match address {
        Address::Tcp(host, port) => (host.clone(), Some((*port).into())),
        // There is no server.
        Address::Primary(_) | Address::Readers(_) => (address.to_string(), None),
        Address::Unix(path) => {
            let port = path.extension().and_then(|port| port.to_str()?.parse().ok());
            let dir = path.parent().unwrap_or(path);
            (dir.display().to_string(), port)
        }
    }
}
