//! Drivers by their ordinary APIs, through a pool in transaction mode with few servers: they must see no difference. With
//! PostgreSQL 18 they come by TLS, with `SLUICE_DRIVERS_TLS=all` with both.

use std::{env, time::Duration};

use sluice_testkit::{
    Auth, Case, Certificates, Driver, Mode, Version,
    program::{self, Target},
};

use crate::{config, database};

/// Time limit for a driver's checks, an installation of its dependencies included.
const TIME_MAX: Duration = Duration::from_secs(900);

macro_rules! drivers {
    ($($name:ident $folder:literal),+ $(,)?) => {
        $(mod $name {
            #[test]
            fn pg15_io_uring() {
                super::run($folder, super::Case::new(super::Version::V15, super::Driver::Uring, super::Mode::Transaction));
            }

            #[test]
            fn pg18_epoll() {
                super::run($folder, super::Case::new(super::Version::V18, super::Driver::Epoll, super::Mode::Transaction));
            }
        })+
    };
}

drivers!(
    psql "psql",
    libpq "libpq",
    psycopg "psycopg",
    asyncpg "asyncpg",
    pgx "pgx",
    node_postgres "node-postgres",
    pgjdbc "pgjdbc",
    tokio_postgres "",
);

/// Runs a driver's checks against a pool of five servers that asks for a password.
fn run(folder: &str, case: Case) {
    let database = database(case);
    let user = format!("{}_driver", database.name);
    database.server.execute(&format!(
        "CREATE ROLE {user} LOGIN PASSWORD 'secret'; ALTER DATABASE {} OWNER TO {user}",
        database.name
    ));
    let is_by_tls = case.version == Version::V18 || env::var_os("SLUICE_DRIVERS_TLS").is_some();
    let authority = is_by_tls.then(|| Certificates::shared().path("authority.crt"));
    let config = config(case).size(5).auth(Auth::LookUp(String::new()));
    if folder.is_empty() {
        run_tokio_postgres(&config.start(), &user, &database.name);
    } else {
        let config = if is_by_tls { config.tls(Certificates::shared(), "required = true") } else { config };
        let pool = config.start();
        let port = pool.address().port();
        run_program(folder, Target { port, user: &user, database: &database.name, authority: authority.as_deref() });
    }
    sluice_testkit::becomes("busy servers", 0, || database.count("state <> 'idle'"));
}

fn run_tokio_postgres(pool: &sluice_testkit::TestPool, user: &str, database: &str) {
    let mut config = ::tokio_postgres::Config::new();
    config.host("127.0.0.1").port(pool.address().port()).user(user).password("secret").dbname(database);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcomes = runtime.block_on(sluice_testkit::tokio_checks::run(config));
    let failed: Vec<_> = outcomes.iter().filter(|(_, outcome)| outcome.is_err()).collect();
    assert!(!outcomes.is_empty() && failed.is_empty(), "{failed:#?}");
}

fn run_program(folder: &str, target: Target<'_>) {
    let output = tempfile::NamedTempFile::new().unwrap();
    let Some(said) = program::run(folder, &[], target, output.path(), TIME_MAX) else { return };
    assert!(said.lines().any(|line| line.starts_with("ok ")), "{folder} checked nothing:\n{said}");
}
