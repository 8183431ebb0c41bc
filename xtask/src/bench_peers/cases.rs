//! The cases as data: what pgbench runs, and before which targets.
//!
//! A case says nothing about how good a figure must be: that is in `bars`.

use super::targets::Target::{self, Haproxy, Pgbouncer, Postgres, SluiceEpoll, SluiceIoUring};

/// pgbench's built-in script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// `-S`: one select by primary key.
    Select,
    /// The default, TPC-B-like: three updates, a select and an insert in one transaction.
    TpcB,
}

/// pgbench's `-M`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    Simple,
    Extended,
    Prepared,
}

impl Protocol {
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Extended => "extended",
            Self::Prepared => "prepared",
        }
    }
}

/// One row of the benchmark.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) script: Script,
    pub(crate) protocol: Protocol,
    pub(crate) clients: u32,
    /// What runs by default.
    pub(crate) targets: &'static [Target],
    /// What runs only with `--all`, and why.
    pub(crate) on_request: &'static [(Target, &'static str)],
    /// Takes its turns in the same rounds as the case before, because figures of both are compared.
    pub(crate) beside_previous: bool,
    /// Part of `--quick`.
    pub(crate) quick: bool,
}

const ALL: &[Target] = &[Postgres, Haproxy, Pgbouncer, SluiceIoUring, SluiceEpoll];
const NO_PGBOUNCER: &[Target] = &[Postgres, Haproxy, SluiceIoUring, SluiceEpoll];
const SLUICE: &[Target] = &[SluiceIoUring, SluiceEpoll];
const NOT_PREPARED: &str = "PgBouncer 1.18 has no prepared statements in transaction mode";

/// Issue 2, line 10, in its order, and one more: selects of 64 simple clients, which the 16,000 are compared with.
pub(crate) static CASES: &[Case] = &[
    Case {
        name: "select-extended-64",
        script: Script::Select,
        protocol: Protocol::Extended,
        clients: 64,
        targets: ALL,
        on_request: &[],
        beside_previous: false,
        quick: true,
    },
    Case {
        name: "select-prepared-64",
        script: Script::Select,
        protocol: Protocol::Prepared,
        clients: 64,
        targets: NO_PGBOUNCER,
        on_request: &[(Pgbouncer, NOT_PREPARED)],
        beside_previous: false,
        quick: true,
    },
    Case {
        name: "tpcb-extended-64",
        script: Script::TpcB,
        protocol: Protocol::Extended,
        clients: 64,
        targets: ALL,
        on_request: &[],
        beside_previous: false,
        quick: false,
    },
    Case {
        name: "tpcb-prepared-64",
        script: Script::TpcB,
        protocol: Protocol::Prepared,
        clients: 64,
        targets: &[Postgres, SluiceIoUring, SluiceEpoll],
        on_request: &[(Haproxy, "no bar compares with it here"), (Pgbouncer, NOT_PREPARED)],
        beside_previous: false,
        quick: false,
    },
    Case {
        name: "select-prepared-1",
        script: Script::Select,
        protocol: Protocol::Prepared,
        clients: 1,
        targets: NO_PGBOUNCER,
        on_request: &[(Pgbouncer, NOT_PREPARED)],
        beside_previous: false,
        quick: true,
    },
    Case {
        name: "select-simple-64",
        script: Script::Select,
        protocol: Protocol::Simple,
        clients: 64,
        targets: SLUICE,
        on_request: &[(Postgres, "no bar compares with it here"), (Pgbouncer, "no bar compares with it here")],
        beside_previous: false,
        quick: false,
    },
    Case {
        name: "select-simple-16000",
        script: Script::Select,
        protocol: Protocol::Simple,
        clients: 16_000,
        targets: SLUICE,
        on_request: &[(Pgbouncer, "its logins take about a minute a turn")],
        beside_previous: true,
        quick: false,
    },
    Case {
        name: "tpcb-simple-1000",
        script: Script::TpcB,
        protocol: Protocol::Simple,
        clients: 1000,
        targets: &[Postgres, Pgbouncer, SluiceIoUring, SluiceEpoll],
        on_request: &[(Haproxy, "no bar compares with it here")],
        beside_previous: false,
        quick: false,
    },
];

impl Case {
    /// For the command line.
    pub(crate) fn parse(name: &str) -> Result<&'static Self, String> {
        CASES.iter().find(|case| case.name == name).ok_or_else(|| {
            let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
            format!("there is no such case; the cases are {}", names.join(", "))
        })
    }

    /// pgbench's threads: two, as DESIGN.md measured, or one for a single client.
    pub(crate) fn threads(&self) -> u32 {
        self.clients.min(2)
    }

    /// The share of transactions that pgbench logs for the percentiles: the same for all targets of a case, and so
    /// small that writing the log does not show in the figures (about 1,500 lines a second).
    pub(crate) fn log_share(&self) -> f64 {
        match self.script {
            Script::Select => 0.05,
            Script::TpcB => 0.25,
        }
    }

    /// The flags that tell this case from the others, as typed.
    pub(crate) fn flags(&self, clients: u32) -> String {
        let script = if self.script == Script::Select { "-S " } else { "" };
        format!("{script}-M {} -c {clients} -j {}", self.protocol.flag(), self.threads())
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn flags_as_in_the_issue() {
        assert_eq!(CASES[0].flags(64), "-S -M extended -c 64 -j 2");
        assert_eq!(CASES[2].flags(64), "-M extended -c 64 -j 2");
        assert_eq!(CASES[4].flags(1), "-S -M prepared -c 1 -j 1");
    }
}
