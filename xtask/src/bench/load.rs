//! The load that pgbench makes: one of its own scripts or one of ours, by one of its protocols, with so many clients.

use std::fmt;

use sluice_lab::scenario::{self, Protocol};

/// A script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// `-S`: one select by primary key.
    Select,
    /// The default, TPC-B-like: three updates, a select and an insert in one transaction.
    TpcB,
    /// One of ours, in pgbench's language.
    Own(&'static str),
}

impl Script {
    pub(crate) fn of_pgbench(self) -> scenario::Script {
        let (name, text) = match self {
            Self::Select => ("select-only", None),
            Self::TpcB => ("tpcb-like", None),
            Self::Own(text) => ("own", Some(text.to_owned())),
        };
        scenario::Script { name: name.to_owned(), text, weight: 1 }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Select => "select",
            Self::TpcB => "TPC-B",
            Self::Own(_) => "own",
        })
    }
}

/// The load of a turn on PostgreSQL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) script: Script,
    pub(crate) protocol: Protocol,
    pub(crate) clients: u32,
}

impl Load {
    /// The same from no more clients than these.
    pub(crate) fn at_most(self, clients: u32) -> Self {
        Self { clients: self.clients.min(clients), ..self }
    }

    /// pgbench's threads: two, since one alone would bound a run of selects, or one for a single client.
    pub(crate) fn threads(self) -> u32 {
        self.clients.min(2)
    }

    /// The share of transactions that pgbench logs for the percentiles: the same for all targets of a case, and so
    /// small that writing the log does not show in the figures (about 1,500 lines a second).
    pub(crate) fn log_share(self) -> f64 {
        match self.script {
            Script::Select | Script::Own(_) => 0.05,
            Script::TpcB => 0.25,
        }
    }

    pub(crate) fn of_pgbench(self) -> scenario::Load {
        scenario::Load {
            clients: vec![self.clients],
            threads: Some(self.threads()),
            protocol: self.protocol,
            // A turn brings its own.
            seconds: 0,
            warm_up_seconds: 0,
            rate: None,
            latency_limit_ms: None,
            log_share: self.log_share(),
            max_tries: None,
        }
    }

    /// The flags that tell this load from others, as typed.
    pub(crate) fn flags(self) -> String {
        let script = match self.script {
            Script::Select => "-S ".to_owned(),
            Script::TpcB => String::new(),
            Script::Own(text) => format!("-f <(echo \"{}\") ", text.replace('\n', " ")),
        };
        format!("{script}-M {} -c {} -j {}", self.protocol.flag(), self.clients, self.threads())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_as_typed() {
        let load = Load { script: Script::Select, protocol: Protocol::Extended, clients: 64 };
        assert_eq!(load.flags(), "-S -M extended -c 64 -j 2");
        assert_eq!(Load { script: Script::TpcB, ..load }.flags(), "-M extended -c 64 -j 2");
        let one = Load { protocol: Protocol::Prepared, ..load }.at_most(1);
        assert_eq!(one.flags(), "-S -M prepared -c 1 -j 1");
    }
}
