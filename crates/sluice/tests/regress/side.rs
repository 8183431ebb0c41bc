//! The two sides of a comparison: a server of its own each, one of them with a pool before it.

use std::path::PathBuf;

use sluice_testkit::{Case, PoolConfig, TestPool, TestServer};

use crate::{SLUICE, place, sessions, suite::Suite};

/// Settings of PostgreSQL's own test driver, and defaults that the testkit changes and the tests show.
const SETTINGS: [(&str, &str); 4] =
    [("max_prepared_transactions", "2"), ("wal_level", "replica"), ("max_wal_senders", "10"), ("track_counts", "on")];

/// A server, and the pool before it.
pub(crate) struct Side {
    pub(crate) server: TestServer,
    pub(crate) pool: Option<TestPool>,
    /// The directory where the server finds data, and writes results.
    pub(crate) place: tempfile::TempDir,
}

impl Side {
    /// Clients go straight to this one.
    pub(crate) fn straight(case: Case, suite: Suite) -> Self {
        Self::new(case, suite, false)
    }

    /// Clients go through a pool.
    pub(crate) fn pooled(case: Case, suite: Suite, extension: bool) -> Self {
        let mut side = Self::new(case, suite, extension);
        let pool = PoolConfig::new(SLUICE, case, &side.server)
            .size(suite.servers())
            .pool(&format!("pinned_max = {}", suite.servers()));
        side.pool = Some(pool.start());
        // What currval and lastval tell of is kept from when a client of the pool has asked for the first time.
        let pool = side.pool.as_ref().expect("it has just been started");
        let asked = pool.connect("postgres", None, suite.database()).unwrap().simple_query("SELECT lastval()");
        assert!(asked.is_err(), "nobody has used a sequence");
        if suite == Suite::Specs {
            sessions::prepare(&side.server);
        }
        side
    }

    fn new(case: Case, suite: Suite, extension: bool) -> Self {
        let mut settings = SETTINGS.to_vec();
        if extension {
            settings.push(("shared_preload_libraries", "sluice"));
        }
        let server = TestServer::start(case.version, &settings);
        let name = suite.database();
        server.execute(&format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'"));
        for setting in [
            "lc_messages TO 'C'",
            "lc_monetary TO 'C'",
            "lc_numeric TO 'C'",
            "lc_time TO 'C'",
            "bytea_output TO 'hex'",
            "timezone_abbreviations TO 'Default'",
        ] {
            server.execute(&format!("ALTER DATABASE {name} SET {setting}"));
        }
        Self { server, pool: None, place: place::copy() }
    }

    /// The host that clients connect to: an address, or the folder of a socket.
    pub(crate) fn host(&self) -> PathBuf {
        match &self.pool {
            Some(pool) => pool.address().ip().to_string().into(),
            None => self.server.socket_dir().to_owned(),
        }
    }

    /// The port, by TCP or in the socket's name.
    pub(crate) fn port(&self) -> u16 {
        self.pool.as_ref().map_or(self.server.port(), |pool| pool.address().port())
    }
}
