//! The differences between two snapshots, for whoever asked for the newer one: by the keys of the configuration file,
//! without any secret.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use sluice_tls::SslMode;
use sluice_units::Quantity;

use crate::{
    access::{Access, Encryption, Policy, Users},
    address::{Address, Network},
    cluster::{Cluster, Primary, Rest, Standing},
    reading::{Reader, Reading},
    settings::{Limits, PinPolicy, PoolMode, PoolSettings},
    snapshot::{Database, Snapshot},
};

/// A difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Clients may name a database that they could not name before.
    Added(String),
    /// Clients may not name that database any more.
    Removed(String),
    /// There is a cluster more.
    ClusterAdded(String),
    /// The cluster of that name is not there any more.
    ClusterRemoved(String),
    /// The users whose secrets are listed are others: so many of them.
    Users {
        /// New ones.
        added: usize,
        /// Those that have gone.
        removed: usize,
        /// Those with another secret.
        changed: usize,
    },
    /// A key has another value.
    Set {
        /// The key, with what it belongs to.
        key: String,
        /// The value before and now; `None` where it is a secret.
        values: Option<(String, String)>,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(name) => write!(f, "database \"{name}\" added"),
            Self::Removed(name) => write!(f, "database \"{name}\" removed"),
            Self::ClusterAdded(name) => write!(f, "cluster \"{name}\" added"),
            Self::ClusterRemoved(name) => write!(f, "cluster \"{name}\" removed"),
            Self::Users { added, removed, changed } => {
                let counts = [(added, "added"), (removed, "removed"), (changed, "with another secret")];
                let counts =
                    counts.iter().filter(|(count, _)| **count > 0).map(|(count, what)| format!("{count} {what}"));
                write!(f, "users: {}", counts.collect::<Vec<_>>().join(", "))
            }
            Self::Set { key, values: Some((before, now)) } => write!(f, "{key}: {now}, was {before}"),
            Self::Set { key, values: None } => write!(f, "{key} changed"),
        }
    }
}

/// The differences of `now` from `before`, in the order of the configuration file.
pub(crate) fn between(before: &Snapshot, now: &Snapshot) -> Vec<Change> {
    let mut found = Differences::default();
    found.compare("proxy_protocol_from", &shown_networks(&before.balancers), &shown_networks(&now.balancers));
    found.compare("log_connections", &before.client_log.connections, &now.client_log.connections);
    found.compare("log_disconnections", &before.client_log.disconnections, &now.client_log.disconnections);
    limits(&mut found, &before.limits, &now.limits);
    if !Arc::ptr_eq(&before.access, &now.access) {
        access(&mut found, &before.access, &now.access);
    }
    encryption(&mut found, before.encryption.as_ref(), now.encryption.as_ref());
    if before.admin != now.admin {
        found.0.push(Change::Set { key: "admin".to_owned(), values: None });
    }
    clusters(&mut found, &before.clusters, &now.clusters);
    let named = |snapshot: &Snapshot, name: &Option<String>| {
        snapshot.databases.iter().find(|database| database.name == *name).cloned()
    };
    for database in &before.databases {
        if named(now, &database.name).is_none() {
            found.0.push(Change::Removed(shown(database)));
        }
    }
    for database in &now.databases {
        match named(before, &database.name) {
            None => found.0.push(Change::Added(shown(database))),
            Some(before) if Arc::ptr_eq(&before, database) => {}
            Some(before) => self::database(&mut found, &before, database),
        }
    }
    found.0
}

fn clusters(found: &mut Differences, before: &[Standing], now: &[Standing]) {
    let named = |all: &[Standing], name: &str| all.iter().find(|it| &*it.cluster.name == name).cloned();
    for Standing { cluster, .. } in before.iter().filter(|it| named(now, &it.cluster.name).is_none()) {
        found.0.push(Change::ClusterRemoved(cluster.name.to_string()));
    }
    for Standing { cluster, primary, .. } in now {
        let Some(before) = named(before, &cluster.name) else {
            found.0.push(Change::ClusterAdded(cluster.name.to_string()));
            continue;
        };
        let key = |key: &str| format!("cluster \"{}\": {key}", cluster.name);
        let members = |cluster: &Cluster| cluster.members.iter().map(Rest::to_string).collect::<Vec<_>>().join(", ");
        found.compare(key("patroni"), &members(&before.cluster), &members(cluster));
        found.compare_secret(key("certificates of ca_file, cert_file or key_file"), &before.cluster.tls, &cluster.tls);
        found.compare(key("primary"), &before.primary, primary);
    }
}

/// The name as the configuration file has it.
fn shown(database: &Database) -> String {
    database.name.clone().unwrap_or_else(|| "*".to_owned())
}

fn shown_networks(networks: &[Network]) -> Option<String> {
    let shown: Vec<_> = networks.iter().map(Network::to_string).collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

fn shown_readers(readers: &[Reader]) -> Option<String> {
    let shown =
        |it: &Reader| format!("\"{}\" at {}{}", it.node, it.address, if it.is_primary { " (primary)" } else { "" });
    (!readers.is_empty()).then(|| readers.iter().map(shown).collect::<Vec<_>>().join(", "))
}

#[derive(Default)]
struct Differences(Vec<Change>);

impl Differences {
    /// Notes a key if its values differ.
    fn compare<T: PartialEq + Value>(&mut self, key: impl fmt::Display, before: &T, now: &T) {
        if before != now {
            self.0.push(Change::Set { key: key.to_string(), values: Some((before.show(), now.show())) });
        }
    }

    /// The same for one whose values are not to be shown.
    fn compare_secret<T: PartialEq>(&mut self, key: impl fmt::Display, before: &T, now: &T) {
        if before != now {
            self.0.push(Change::Set { key: key.to_string(), values: None });
        }
    }
}

fn limits(found: &mut Differences, before: &Limits, now: &Limits) {
    found.compare("limits.clients", &before.clients, &now.clients);
    found.compare("limits.clients_per_address", &before.clients_per_address, &now.clients_per_address);
    found.compare("limits.clients_per_user", &before.clients_per_user, &now.clients_per_user);
    found.compare("limits.servers", &before.servers, &now.servers);
    found.compare("limits.servers_per_host", &before.servers_per_host, &now.servers_per_host);
    found.compare("limits.servers_per_user", &before.servers_per_user, &now.servers_per_user);
    let users: BTreeSet<_> = before.users.keys().chain(now.users.keys()).collect();
    for user in users {
        let of = |limits: &Limits| limits.users.get(user).copied().unwrap_or_default();
        let (before, now) = (of(before), of(now));
        found.compare(format!("user \"{user}\": clients"), &before.clients, &now.clients);
        found.compare(format!("user \"{user}\": servers"), &before.servers, &now.servers);
    }
    found.compare("limits.pools", &before.pools, &now.pools);
    found.compare("limits.login_timeout", &before.login_timeout, &now.login_timeout);
    found.compare("limits.client_message_timeout", &before.client_message_timeout, &now.client_message_timeout);
    found.compare("limits.idle_transaction_timeout", &before.idle_transaction_timeout, &now.idle_transaction_timeout);
    found.compare("limits.idle_client_timeout", &before.idle_client_timeout, &now.idle_client_timeout);
    found.compare("limits.query_timeout", &before.query_timeout, &now.query_timeout);
    let bytes = |limits: &Limits| Quantity::from(u64::from(limits.rewritten_message_bytes));
    found.compare("limits.rewritten_message", &bytes(before), &bytes(now));
}

fn access(found: &mut Differences, before: &Access, now: &Access) {
    let method = |access: &Access| match &access.policy {
        Policy::Method(method) => method.name(),
        Policy::TrustOfKnown(_) => "trust, for known users only",
        Policy::Rules(_) => "by hba_file",
        Policy::ServerRules(_) => "by hba",
    };
    found.compare("auth.method", &method(before), &method(now));
    match (&before.policy, &now.policy) {
        (Policy::Rules(before), Policy::Rules(now)) => found.compare_secret("auth.hba_file", before, now),
        (Policy::TrustOfKnown(before), Policy::TrustOfKnown(now)) => {
            found.compare_secret("auth: known users", before, now);
        }
        (Policy::ServerRules(before), Policy::ServerRules(now)) => {
            found.compare_secret("auth.hba: the server's rules", before, now);
        }
        _ => {}
    }
    match (&before.users, &now.users) {
        (Users::Listed(before), Users::Listed(now)) => listed(found, before, now),
        (Users::LookedUp(before, listed_before), Users::LookedUp(now, listed_now)) => {
            listed(found, listed_before, listed_now);
            if let Some((before, now)) = moved((&before.cluster, &before.address), (&now.cluster, &now.address)) {
                found.compare("auth.lookup: server", &before, &now);
            }
            found.compare_secret("auth.lookup: encryption", &before.tls, &now.tls);
            found.compare("auth.lookup.database", &before.dbname, &now.dbname);
            found.compare("auth.lookup.user", &before.user, &now.user);
            found.compare_secret("auth.lookup.password", &before.password, &now.password);
            found.compare_secret("auth.lookup.query", &before.query, &now.query);
            found.compare("auth.lookup.cache", &before.cache, &now.cache);
        }
        (before, now) => {
            let source = |users: &Users| match users {
                Users::Listed(_) => "a file",
                Users::LookedUp(..) => "looked up",
            };
            found.compare("users", &source(before), &source(now));
        }
    }
}

/// Users with their secrets.
fn listed<S: PartialEq>(found: &mut Differences, before: &HashMap<String, S>, now: &HashMap<String, S>) {
    let added = now.keys().filter(|name| !before.contains_key(*name)).count();
    let removed = before.keys().filter(|name| !now.contains_key(*name)).count();
    let changed = now.iter().filter(|(name, secret)| before.get(*name).is_some_and(|before| before != *secret)).count();
    found.0.extend((added + removed + changed > 0).then_some(Change::Users { added, removed, changed }));
}

fn encryption(found: &mut Differences, before: Option<&Encryption>, now: Option<&Encryption>) {
    let (Some(before), Some(now)) = (before, now) else {
        let shown = |encryption: Option<_>| if encryption.is_some() { "given" } else { "none" };
        return found.compare("tls", &shown(before), &shown(now));
    };
    found.compare_secret("tls: certificates or key", &before.tls, &now.tls);
    found.compare("tls.required", &before.is_required, &now.is_required);
    found.compare("tls.client_certificates", &before.client_certificates.name(), &now.client_certificates.name());
}

fn database(found: &mut Differences, before: &Database, now: &Database) {
    let key = |key: &str| format!("database \"{}\": {key}", shown(now));
    if let Some((before, now)) = moved((&before.cluster, &before.address), (&now.cluster, &now.address)) {
        found.compare(key("server"), &before, &now);
    }
    let reading =
        |read: fn(&Reading) -> String| move |it: &Database| it.reading.as_ref().or(it.read_only.as_ref()).map(read);
    let read_only = |it: &Database| if it.read_only.is_some() { "standby" } else { "primary" };
    found.compare(key("read_only_transactions"), &read_only(before), &read_only(now));
    let reports = |it: &Database| if it.reports_commits { "yes" } else { "no" };
    found.compare(key("servers say where commits are"), &reports(before), &reports(now));
    let scope = |it: &Database| it.causal.map_or("none", |causal| causal.scope.name());
    found.compare(key("causal_reads"), &scope(before), &scope(now));
    let timeout = |it: &Database| it.causal.map(|causal| causal.timeout.show());
    found.compare(key("causal_reads_timeout"), &timeout(before), &timeout(now));
    for (name, of) in [
        ("target_session_attrs", reading(|it| it.target.name().to_owned())),
        ("max_lag", reading(|it| it.lag_max.show())),
        ("max_lag_bytes", reading(|it| it.lag_bytes_max.map(Quantity::from).show())),
    ] {
        found.compare(key(name), &of(before), &of(now));
    }
    found.compare(key("readers' nodes"), &shown_readers(&before.readers), &shown_readers(&now.readers));
    let mode = |database: &Database| database.tls.as_ref().map_or(SslMode::Disable, |tls| tls.mode).name();
    found.compare(key("sslmode"), &mode(before), &mode(now));
    if mode(before) == mode(now) {
        found.compare_secret(key("certificates of sslrootcert, sslcert or sslkey"), &before.tls, &now.tls);
    }
    found.compare(key("dbname"), &before.dbname, &now.dbname);
    found.compare(key("user"), &before.user, &now.user);
    found.compare_secret(key("password"), &before.password, &now.password);
    found.compare(key("server_auth"), &before.server_auth.name(), &now.server_auth.name());
    found.compare_secret(key("client address secret"), &before.client_address_secret, &now.client_address_secret);
    found.compare(key("clients"), &before.clients, &now.clients);
    found.compare(key("servers"), &before.servers, &now.servers);
    let PoolSettings { sharing: shared_before, .. } = before.pool;
    let PoolSettings { sharing: shared_now, .. } = now.pool;
    let (before, now) = (&before.pool, &now.pool);
    found.compare(key("mode"), &shared_before.mode, &shared_now.mode);
    found.compare(key("size"), &before.size, &now.size);
    found.compare(key("min"), &before.min, &now.min);
    found.compare(key("wait_timeout"), &before.wait_timeout, &now.wait_timeout);
    found.compare(key("failover_timeout"), &before.failover_timeout, &now.failover_timeout);
    found.compare(key("server_lifetime"), &before.server_lifetime, &now.server_lifetime);
    found.compare(key("server_idle_timeout"), &before.server_idle_timeout, &now.server_idle_timeout);
    found.compare(key("connect_timeout"), &before.connect_timeout, &now.connect_timeout);
    found.compare(key("backoff_min"), &before.backoff_min, &now.backoff_min);
    found.compare(key("backoff_max"), &before.backoff_max, &now.backoff_max);
    found.compare(key("parallel_connects"), &before.parallel_connects, &now.parallel_connects);
    found.compare(key("auto_prepare"), &shared_before.auto_prepare, &shared_now.auto_prepare);
    found.compare(key("lazy_begin"), &shared_before.lazy_begin, &shared_now.lazy_begin);
    found.compare(key("pins"), &shared_before.pins, &shared_now.pins);
    found.compare(key("pinned_max"), &before.pinned_max, &now.pinned_max);
    found.compare(key("prepared_per_server"), &before.prepared_per_server, &now.prepared_per_server);
    found.compare(key("log_min_duration_statement"), &before.log_min_duration, &now.log_min_duration);
}

/// The places of a server that is at another address for an operator: that a cluster has another primary is said of the
/// cluster.
fn moved(
    (cluster_before, before): (&Option<Arc<str>>, &Address),
    (cluster_now, now): (&Option<Arc<str>>, &Address),
) -> Option<(String, String)> {
    if cluster_before.is_some() && cluster_before == cluster_now {
        return None;
    }
    let shown = |cluster: &Option<Arc<str>>, address: &Address| match cluster {
        Some(cluster) => Address::Primary(cluster.clone()).to_string(),
        None => address.to_string(),
    };
    Some((shown(cluster_before, before), shown(cluster_now, now)))
}

/// A value as an operator reads it.
trait Value {
    fn show(&self) -> String;
}

macro_rules! shown_as_they_are {
    ($($kind:ty),*) => {
        $(impl Value for $kind {
            fn show(&self) -> String {
                self.to_string()
            }
        })*
    };
}

shown_as_they_are!(u32, bool, String, &str, Quantity);

impl Value for Duration {
    fn show(&self) -> String {
        if self.is_zero() { "0s".to_owned() } else { Quantity::from(*self).to_string() }
    }
}

impl Value for Primary {
    fn show(&self) -> String {
        let Self { node, address, timeline, .. } = self;
        format!("node \"{node}\" at {address}, timeline {timeline}")
    }
}

impl<T: Value> Value for Option<T> {
    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "none".to_owned(), T::show)
    }
}

impl Value for PoolMode {
    fn show(&self) -> String {
        match self {
            Self::Transaction => "transaction",
            Self::Session => "session",
        }
        .to_owned()
    }
}

impl Value for PinPolicy {
    fn show(&self) -> String {
        match self {
            Self::Pin => "pin",
            Self::Refuse => "refuse",
        }
        .to_owned()
    }
}
