//! Files that load.

use std::{path::Path, time::Duration};

use sluice_config::{Config, DriverChoice, Method, Policy, ServerAddress};
use sluice_control::{
    reading::{Causal, Scope, Target},
    settings::{Limits, PoolMode, PoolSettings, Sharing},
};

fn parse(text: &str) -> Config {
    sluice_config::parse(text, Path::new("sluice.toml")).unwrap_or_else(|report| panic!("{text}\n{report}"))
}

#[test]
fn what_is_absent_has_the_documented_default() {
    let config = parse("auth.method = \"trust\"\n[[database]]\nname = \"*\"");
    assert_eq!(config.listen, ["127.0.0.1:6432".parse().expect("an address")]);
    assert_eq!((config.unix_socket_dir, config.driver, config.workers), (None, DriverChoice::Auto, None));
    assert_eq!(config.shutdown_grace, Duration::from_secs(10));
    assert_eq!(config.stats_period, None);
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.auth.policy, Policy::Method(Method::Trust));
    assert!(config.auth.users_file.is_none() && config.auth.lookup.is_none());
    let database = &config.databases[0];
    assert_eq!((&database.name, &database.dbname, &database.user), (&None, &None, &None));
    assert_eq!(database.server, ServerAddress::Unix { dir: "/var/run/postgresql".into(), port: 5432 });
    assert_eq!(database.pool, PoolSettings::default());
}

#[test]
fn a_database_overrides_the_pool_settings_that_it_names() {
    let config = parse(
        r#"
        auth.method = "trust"
        [pool]
        size = 30
        min = 5
        auto_prepare = true
        backoff_min = "250ms"
        [[database]]
        name = "app"
        [[database]]
        name = "jobs"
        pool = { mode = "session", size = 3, min = 0 }
        "#,
    );
    let common = PoolSettings { size: 30, min: 5, backoff_min: Duration::from_millis(250), ..PoolSettings::default() };
    assert_eq!(config.databases[0].pool, common);
    let sharing = Sharing { mode: PoolMode::Session, auto_prepare: false, lazy_begin: false, ..common.sharing };
    let session = PoolSettings { sharing, size: 3, min: 0, ..common };
    assert_eq!(config.databases[1].pool, session);
}

#[test]
fn pool_settings_that_no_database_uses_are_not_compared() {
    let config = parse(
        r#"
        auth.method = "trust"
        [limits]
        servers = 10
        [pool]
        min = 5
        auto_prepare = true
        [[database]]
        name = "app"
        pool = { size = 8, mode = "session" }
        "#,
    );
    assert_eq!((config.databases[0].pool.size, config.databases[0].pool.min), (8, 5));
}

#[test]
fn servers_and_logins() {
    let config = parse(
        r#"
        listen = ["0.0.0.0:6432", "[::1]:6433"]
        unix_socket_dir = "sockets"
        driver = "io_uring"
        workers = 3
        limits = { rewritten_message = "1GB", clients = 1 }
        database = [
          { name = "a", host = "10.0.0.5", port = 5433, dbname = "b", user = "u", password = "p" },
          { name = "b", host = "::1" },
          { name = "c", host = "db-1.example.net" },
        ]
        [auth.lookup]
        user = "sluice"
        password = "p"
        database = "a"
        query = "SELECT secret($1)"
        cache = "1min"
        "#,
    );
    assert_eq!(config.unix_socket_dir.as_deref(), Some(Path::new("sockets")));
    assert_eq!((config.driver, config.workers), (DriverChoice::IoUring, Some(3)));
    assert_eq!((config.limits.rewritten_message_bytes, config.limits.clients), (1 << 30, 1));
    let servers: Vec<&ServerAddress> = config.databases.iter().map(|database| &database.server).collect();
    let tcp = |host: &str, port| ServerAddress::Tcp { host: host.to_owned(), port };
    assert_eq!(servers, [&tcp("10.0.0.5", 5433), &tcp("::1", 5432), &tcp("db-1.example.net", 5432)]);
    assert_eq!(config.databases[0].password.as_ref().map(|password| password.0.as_str()), Some("p"));
    let Some(lookup) = config.auth.lookup else { panic!("no look-up") };
    assert_eq!((lookup.user.as_str(), lookup.query.as_str()), ("sluice", "SELECT secret($1)"));
    assert_eq!(lookup.cache, Duration::from_secs(60));
}

#[test]
fn transactions_at_standbys_find_what_is_said_or_their_clients_own() {
    let config = parse(
        r#"
        auth.method = "trust"
        [[cluster]]
        name = "main"
        patroni = ["http://10.0.0.1:8008"]
        [[database]]
        name = "app"
        cluster = "main"
        read_only_transactions = "standby"
        max_lag = "10s"
        [[database]]
        name = "strict"
        cluster = "main"
        read_only_transactions = "standby"
        causal_reads = "global"
        causal_reads_timeout = "50ms"
        [[database]]
        name = "app:ro"
        cluster = "main"
        target_session_attrs = "prefer-standby"
        causal_reads = "global"
        [[database]]
        name = "plain:ro"
        cluster = "main"
        target_session_attrs = "standby"
        "#,
    );
    let causal = |scope, ms| Some(Causal { scope, timeout: Duration::from_millis(ms) });
    let expected = [
        (true, causal(Scope::Local, 1000)),
        (true, causal(Scope::Global, 50)),
        (false, causal(Scope::Global, 1000)),
        (false, None),
    ];
    let read = config.databases.iter().map(|it| (it.read_only.is_some(), it.causal));
    assert_eq!(read.collect::<Vec<_>>(), expected);
    let read_only = config.databases[0].read_only.as_ref().expect("it is there");
    assert_eq!((read_only.target, read_only.lag_max), (Target::Standby, Duration::from_secs(10)));
}
