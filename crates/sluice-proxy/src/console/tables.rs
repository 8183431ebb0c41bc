//! The tables that `SHOW` shows. Where PgBouncer has one of that name, it has PgBouncer's columns, with zeros for what
//! Sluice has no counterpart of.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sluice_control::{
    Database, Snapshot,
    access::Users,
    address::Address,
    settings::{PoolMode, PoolSettings},
};
use sluice_core::{
    figures::{Figures, PoolFigures},
    traffic::Counted,
};

use super::{
    command::Show,
    rows::{Table, Value},
};

/// What there is to show.
pub(super) struct Seen {
    pub(super) figures: Figures,
    pub(super) snapshot: Arc<Snapshot>,
    /// The figures at both ends of the last interval, and its length in seconds.
    pub(super) averages: Option<(Arc<Figures>, Arc<Figures>, u64)>,
}

/// The counts of a database.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    counted: Counted,
    waited: Duration,
}

impl Seen {
    pub(super) fn table(&self, show: Show) -> Table {
        match show {
            Show::Help => Table::new(&[], &[]),
            Show::Version => version(),
            Show::Databases => self.databases(),
            Show::Pools => self.pools(),
            Show::Pins => self.pins(),
            Show::Stats => self.stats(),
            Show::StatsTotals => {
                let mut table = Table::new(&STATS_BRIEF, &["database"]);
                sums(&self.figures).into_iter().for_each(|(name, sums)| table.push(brief(name, totals(&sums))));
                table
            }
            Show::StatsAverages => {
                let mut table = Table::new(&STATS_BRIEF, &["database"]);
                for name in sums(&self.figures).keys() {
                    table.push(brief(name, self.averages(name)));
                }
                table
            }
            Show::Lists => self.lists(),
            Show::Users => self.users(),
            Show::Config => self.config(),
        }
    }

    fn databases(&self) -> Table {
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
        let mut table = Table::new(&COLUMNS, &["name", "host", "database", "force_user", "pool_mode"]);
        for database in &self.snapshot.databases {
            let (host, port) = host_and_port(&database.address);
            let is_its = |pool: &&PoolFigures| {
                self.snapshot.database(&pool.database).is_some_and(|other| Arc::ptr_eq(other, database))
            };
            let open: u32 = self.figures.pools.iter().filter(is_its).map(|pool| pool.counts.open).sum();
            let PoolSettings { size, min, sharing, .. } = &database.pool;
            table.push([
                name_of(database).into(),
                host.into(),
                port.into(),
                database.dbname.clone().or_else(|| database.name.clone()).into(),
                database.user.clone().into(),
                (*size).into(),
                (*min).into(),
                0_u32.into(),
                mode(sharing.mode).into(),
                0_u32.into(),
                open.into(),
                0_u32.into(),
                0_u32.into(),
            ]);
        }
        table
    }

    fn pools(&self) -> Table {
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
        let mut table = Table::new(&COLUMNS, &["database", "user", "pool_mode"]);
        for pool in &self.figures.pools {
            let waiting = pool.counts.waiting;
            table.push([
                pool.database.as_str().into(),
                pool.role.as_str().into(),
                (pool.clients - waiting.min(pool.clients)).into(),
                waiting.into(),
                0_u32.into(),
                0_u32.into(),
                pool.active().into(),
                0_u32.into(),
                0_u32.into(),
                pool.counts.idle.into(),
                0_u32.into(),
                0_u32.into(),
                pool.counts.connecting.into(),
                pool.longest_wait.as_secs().into(),
                pool.longest_wait.subsec_micros().into(),
                mode(pool.mode).into(),
            ]);
        }
        table
    }

    /// The clients that keep servers between transactions, and why: Sluice's own.
    fn pins(&self) -> Table {
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

    fn stats(&self) -> Table {
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
        let mut table = Table::new(&COLUMNS, &["database"]);
        for (name, sums) in sums(&self.figures) {
            let [a, b, c, d, e, f, g] = totals(&sums).map(Value::from);
            let [h, i, j, k, l, m, n] = self.averages(name).map(Value::from);
            table.push([name.into(), a, b, c, d, e, f, g, h, i, j, k, l, m, n]);
        }
        table
    }

    /// A database's averages over the last interval: a second's transactions, queries and bytes; microseconds of a
    /// transaction, of a query, and of waits in a second.
    fn averages(&self, name: &str) -> [u64; 7] {
        let Some((begin, end, seconds)) = &self.averages else { return [0; 7] };
        let at = |figures: &Figures| totals(&sums(figures).get(name).copied().unwrap_or_default());
        let (begin, end) = (at(begin), at(end));
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

    fn lists(&self) -> Table {
        let Figures { pools, clients, servers, connections, .. } = &self.figures;
        let idle: u32 = pools.iter().map(|pool| pool.counts.idle).sum();
        let mut table = Table::new(&["list", "items"], &["list"]);
        for (list, items) in [
            ("databases", self.snapshot.databases.len() as u32),
            ("users", self.known_users().len() as u32),
            ("pools", pools.len() as u32),
            ("free_clients", 0),
            ("used_clients", *clients),
            ("login_clients", connections.saturating_sub(*clients)),
            ("free_servers", idle),
            ("used_servers", servers.saturating_sub(idle)),
            ("dns_names", 0),
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
        let mut users: Vec<&str> = match &self.snapshot.access.users {
            Users::Listed(users) => users.keys().map(String::as_str).collect(),
            Users::LookedUp(_) => Vec::new(),
        };
        users.extend(self.figures.pools.iter().map(|pool| pool.role.as_str()));
        users.sort_unstable();
        users.dedup();
        users
    }

    fn users(&self) -> Table {
        let mut table = Table::new(&["name", "pool_mode"], &["name", "pool_mode"]);
        self.known_users().into_iter().for_each(|user| table.push([user.into(), Value::Null]));
        table
    }

    /// The settings of the process that PgBouncer has as well, by its names.
    fn config(&self) -> Table {
        let Snapshot { limits, access, admin, version, .. } = &*self.snapshot;
        let names = |names: Option<&Vec<String>>| names.map(|names| names.join(", ")).unwrap_or_default();
        let seconds = |time: Duration| time.as_secs_f64().to_string();
        const COLUMNS: [&str; 4] = ["key", "value", "default", "changeable"];
        let mut table = Table::new(&COLUMNS, &COLUMNS);
        for (key, value) in [
            ("admin_users", names(admin.as_ref().map(|admin| &admin.users))),
            ("auth_type", access.method.name().to_owned()),
            ("client_login_timeout", seconds(limits.login_timeout)),
            ("configuration_version", version.to_string()),
            ("idle_transaction_timeout", limits.idle_transaction_timeout.map_or_else(|| "0".to_owned(), seconds)),
            ("max_client_conn", limits.clients.to_string()),
            ("max_packet_size", limits.rewritten_message_bytes.to_string()),
            ("max_server_conn", limits.servers.to_string()),
            ("stats_users", names(admin.as_ref().map(|admin| &admin.stats_users))),
        ] {
            table.push([key.into(), value.into(), Value::Null, "yes".into()]);
        }
        table
    }
}

const STATS_BRIEF: [&str; 8] =
    ["database", "xact_count", "query_count", "bytes_received", "bytes_sent", "xact_time", "query_time", "wait_time"];

fn brief(name: &str, values: [u64; 7]) -> [Value; 8] {
    let [a, b, c, d, e, f, g] = values.map(Value::from);
    [name.into(), a, b, c, d, e, f, g]
}

fn version() -> Table {
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
        sums.waited += pool.counts.waited;
    }
    all
}

/// The columns of a database's totals; times in microseconds.
fn totals(Sums { counted, waited }: &Sums) -> [u64; 7] {
    let micros = |time: Duration| time.as_micros() as u64;
    [
        counted.transactions,
        counted.queries,
        counted.received_bytes,
        counted.sent_bytes,
        micros(counted.transaction_time),
        micros(counted.query_time),
        micros(*waited),
    ]
}

fn name_of(database: &Database) -> &str {
    database.name.as_deref().unwrap_or("*")
}

fn mode(mode: PoolMode) -> &'static str {
    match mode {
        PoolMode::Transaction => "transaction",
        PoolMode::Session => "session",
    }
}

/// The host and the port; of a Unix socket its folder, and the port in its name.
fn host_and_port(address: &Address) -> (String, Option<u32>) {
    match address {
        Address::Tcp(host, port) => (host.clone(), Some((*port).into())),
        Address::Unix(path) => {
            let port = path.extension().and_then(|port| port.to_str()?.parse().ok());
            let dir = path.parent().unwrap_or(path);
            (dir.display().to_string(), port)
        }
    }
}
