//! `SHOW CONFIG`: the settings that count for the whole pool, under PgBouncer's names where it has such, with Sluice's
//! values and defaults.

use std::time::Duration;

use sluice_control::{
    Snapshot,
    access::{Method, Policy},
    settings::{ClientLog, Limits, PoolSettings},
};

use super::{
    rows::{Table, Value},
    tables::{Seen, mode},
};

/// The value of a setting, its default where it has one, and whether a reload changes it.
type Row = (&'static str, String, Option<String>, bool);

impl Seen<'_> {
    pub(super) fn config(&self) -> Table {
        const COLUMNS: [&str; 4] = ["key", "value", "default", "changeable"];
        let mut table = Table::new(&COLUMNS, &COLUMNS);
        let groups = [self.places_and_users(), of_limits(&self.snapshot), of_pools(&self.pool)];
        let mut rows: Vec<Row> = groups.into_iter().flatten().collect();
        rows.sort_unstable_by_key(|(key, ..)| *key);
        for (key, value, default, is_changeable) in rows {
            let changeable = if is_changeable { "yes" } else { "no" };
            table.push([key.into(), value.into(), default.map_or(Value::Null, Value::Text), changeable.into()]);
        }
        table
    }

    /// Where clients come to, and who may do what.
    fn places_and_users(&self) -> Vec<Row> {
        let Snapshot { access, admin, client_log, version, .. } = &*self.snapshot;
        let ClientLog { connections, disconnections } = client_log;
        let names = |names: Option<&Vec<String>>| names.map(|names| names.join(", ")).unwrap_or_default();
        let port = self.listens.port().map(|port| port.to_string()).unwrap_or_default();
        let (nobody, off) = (|| Some(String::new()), || Some(flag(false)));
        vec![
            ("listen_addr", self.listens.hosts(), Some("127.0.0.1".to_owned()), false),
            ("listen_port", port, Some("6432".to_owned()), false),
            ("unix_socket_dir", self.listens.dirs(), nobody(), false),
            ("admin_users", names(admin.as_ref().map(|admin| &admin.users)), nobody(), true),
            ("stats_users", names(admin.as_ref().map(|admin| &admin.stats_users)), nobody(), true),
            ("auth_type", auth_type(&access.policy).to_owned(), None, true),
            ("log_connections", flag(*connections), off(), true),
            ("log_disconnections", flag(*disconnections), off(), true),
            ("configuration_version", version.to_string(), None, true),
        ]
    }
}

/// The limits of the process.
fn of_limits(Snapshot { limits, .. }: &Snapshot) -> Vec<Row> {
    const NAMES: [&str; 9] = [
        "max_client_conn",
        "max_user_client_connections",
        "max_server_conn",
        "max_user_connections",
        "max_packet_size",
        "client_login_timeout",
        "client_idle_timeout",
        "idle_transaction_timeout",
        "query_timeout",
    ];
    let most = |number: Option<u32>| number.unwrap_or_default().to_string();
    let time = |time: Option<Duration>| time.map_or_else(|| "0".to_owned(), seconds);
    let values = |limits: &Limits| {
        [
            limits.clients.to_string(),
            most(limits.clients_per_user),
            limits.servers.to_string(),
            most(limits.servers_per_user),
            limits.rewritten_message_bytes.to_string(),
            seconds(limits.login_timeout),
            time(limits.idle_client_timeout),
            time(limits.idle_transaction_timeout),
            time(limits.query_timeout),
        ]
    };
    let mut rows = rows(NAMES, values(limits), values(&Limits::default()));
    // Databases have limits of their own only, which SHOW DATABASES tells.
    rows.push(("max_db_connections", most(None), Some(most(None)), false));
    rows
}

/// The settings of pools whose databases have none of their own.
fn of_pools(pool: &PoolSettings) -> Vec<Row> {
    const NAMES: [&str; 9] = [
        "pool_mode",
        "default_pool_size",
        "min_pool_size",
        "query_wait_timeout",
        "server_lifetime",
        "server_idle_timeout",
        "server_connect_timeout",
        "server_login_retry",
        "max_prepared_statements",
    ];
    let values = |pool: &PoolSettings| {
        [
            mode(pool.sharing.mode).to_owned(),
            pool.size.to_string(),
            pool.min.to_string(),
            seconds(pool.wait_timeout),
            seconds(pool.server_lifetime),
            seconds(pool.server_idle_timeout),
            seconds(pool.connect_timeout),
            seconds(pool.backoff_max),
            pool.prepared_per_server.to_string(),
        ]
    };
    rows(NAMES, values(pool), values(&PoolSettings::default()))
}

/// Settings that a reload changes.
fn rows<const N: usize>(names: [&'static str; N], values: [String; N], defaults: [String; N]) -> Vec<Row> {
    let values = values.into_iter().zip(defaults);
    names.into_iter().zip(values).map(|(name, (value, default))| (name, value, Some(default), true)).collect()
}

/// A time as PgBouncer writes it.
fn seconds(time: Duration) -> String {
    time.as_secs_f64().to_string()
}

fn flag(is_on: bool) -> String {
    u32::from(is_on).to_string()
}

/// PgBouncer's name for what clients are asked for.
fn auth_type(policy: &Policy) -> &'static str {
    match policy {
        Policy::Method(method) => method.name(),
        Policy::TrustOfKnown(_) => Method::Trust.name(),
        Policy::Rules(_) | Policy::ServerRules(_) => "hba",
    }
}
