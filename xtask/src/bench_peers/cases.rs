//! The cases as data: what pgbench runs, and before which targets.
//!
//! A case says nothing about how good a figure must be: that is in `bars`.

use crate::bench;
use crate::bench::load::{Load, Script};
use sluice_lab::scenario::Protocol;

use super::targets::Target::{self, Haproxy, Pgbouncer, Postgres, SluiceEpoll, SluiceIoUring};

/// One row of the benchmark.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) load: Load,
    /// The targets that run by default.
    pub(crate) targets: &'static [Target],
    /// The targets that run only with `--all`, each with the reason.
    pub(crate) on_request: &'static [(Target, &'static str)],
    /// Takes its turns in the same rounds as the case before, because figures of both are compared.
    pub(crate) beside_previous: bool,
    /// Part of `--quick`.
    pub(crate) quick: bool,
    /// Runs only where its name is given.
    pub(crate) on_demand: bool,
}

const ALL: &[Target] = &[Postgres, Haproxy, Pgbouncer, SluiceIoUring, SluiceEpoll];
const NO_PGBOUNCER: &[Target] = &[Postgres, Haproxy, SluiceIoUring, SluiceEpoll];
const SLUICE: &[Target] = &[SluiceIoUring, SluiceEpoll];
const NOT_PREPARED: &str = "PgBouncer 1.18 has no prepared statements in transaction mode";

/// All cases. Figures that a bar compares are side by side: selects of 64 simple clients beside those of 16,000.
pub(crate) static CASES: &[Case] = &[
    Case {
        name: "select-extended-64",
        load: Load { script: Script::Select, protocol: Protocol::Extended, clients: 64 },
        targets: ALL,
        on_request: &[],
        beside_previous: false,
        quick: true,
        on_demand: false,
    },
    Case {
        name: "select-prepared-64",
        load: Load { script: Script::Select, protocol: Protocol::Prepared, clients: 64 },
        targets: NO_PGBOUNCER,
        on_request: &[(Pgbouncer, NOT_PREPARED)],
        beside_previous: false,
        quick: true,
        on_demand: false,
    },
    Case {
        name: "tpcb-extended-64",
        load: Load { script: Script::TpcB, protocol: Protocol::Extended, clients: 64 },
        targets: ALL,
        on_request: &[],
        beside_previous: false,
        quick: false,
        on_demand: false,
    },
    Case {
        name: "tpcb-prepared-64",
        load: Load { script: Script::TpcB, protocol: Protocol::Prepared, clients: 64 },
        targets: &[Postgres, SluiceIoUring, SluiceEpoll],
        on_request: &[(Haproxy, "no bar compares with it here"), (Pgbouncer, NOT_PREPARED)],
        beside_previous: false,
        quick: false,
        on_demand: false,
    },
    Case {
        name: "select-prepared-1",
        load: Load { script: Script::Select, protocol: Protocol::Prepared, clients: 1 },
        targets: NO_PGBOUNCER,
        on_request: &[(Pgbouncer, NOT_PREPARED)],
        beside_previous: false,
        quick: true,
        on_demand: false,
    },
    Case {
        name: "select-simple-64",
        load: Load { script: Script::Select, protocol: Protocol::Simple, clients: 64 },
        targets: SLUICE,
        on_request: &[(Postgres, "no bar compares with it here"), (Pgbouncer, "no bar compares with it here")],
        beside_previous: false,
        quick: false,
        on_demand: false,
    },
    Case {
        name: "select-simple-16000",
        load: Load { script: Script::Select, protocol: Protocol::Simple, clients: 16_000 },
        targets: SLUICE,
        on_request: &[(Pgbouncer, "its logins take about a minute a turn")],
        beside_previous: true,
        quick: false,
        on_demand: false,
    },
    Case {
        name: "tpcb-simple-1000",
        load: Load { script: Script::TpcB, protocol: Protocol::Simple, clients: 1000 },
        targets: &[Postgres, Pgbouncer, SluiceIoUring, SluiceEpoll],
        on_request: &[(Haproxy, "no bar compares with it here")],
        beside_previous: false,
        quick: false,
        on_demand: false,
    },
    // What it costs that a session follows its client: beside a statement that leaves nothing, one that may leave something,
    // one that sets something (64 clients with settings of their own on 20 servers), and one that keeps its server.
    session("session-plain-64", "SELECT 1;", 64),
    session("session-function-64", "SELECT bench_one();", 64),
    session("session-setting-64", "SET application_name = 'client :client_id';\nSELECT 1;", 64),
    session("session-lock-16", "SELECT pg_advisory_lock(:client_id);\nSELECT pg_advisory_unlock(:client_id);", 16),
];

const fn session(name: &'static str, script: &'static str, clients: u32) -> Case {
    Case {
        name,
        load: Load { script: Script::Own(script), protocol: Protocol::Simple, clients },
        targets: &[Postgres, SluiceIoUring],
        on_request: &[],
        beside_previous: false,
        quick: false,
        on_demand: true,
    }
}

impl bench::Case for Case {
    fn all() -> &'static [Self] {
        CASES
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn is_quick(&self) -> bool {
        self.quick
    }

    fn is_on_demand(&self) -> bool {
        self.on_demand
    }
}

#[cfg(test)]
mod tests {
    use crate::bench::Case as _;

    use super::*;

    #[test]
    fn names_are_unique_and_parse() {
        for case in CASES {
            assert!(Case::parse(case.name).unwrap().name == case.name, "{}", case.name);
        }
        assert!(Case::parse("tpcb").unwrap_err().contains("tpcb-extended-64"));
    }

    #[test]
    fn no_target_is_listed_twice() {
        for case in CASES {
            for (target, _) in case.on_request {
                assert!(!case.targets.contains(target), "{} {target}", case.name);
            }
        }
    }
}
