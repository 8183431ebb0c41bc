//! One turn of one target: a warm-up, then a run of pgbench under the eyes of a watch.

use anyhow::{Context, Result, bail};

use super::cluster::Cluster;
use super::load::{Load, Script};
use super::measure::{Cost, Watch};
use sluice_lab::pgbench::{Endpoint, Outcome, Pgbench};
use sluice_lab::process::Interrupt;

/// Clients of a warm-up: more would add only logins.
pub(crate) const WARM_UP_CLIENTS: u32 = 64;

/// Enough to open a pool's servers and fill their caches.
pub(crate) const WARM_UP_SECONDS: u32 = 2;

/// The ground of a turn: the cluster, the endpoint, and the load.
pub(crate) struct Turn<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) endpoint: &'a Endpoint,
    /// The pool's process, if the target has one.
    pub(crate) pool: Option<u32>,
    pub(crate) load: Load,
    /// Whether each statement's latency is asked for.
    pub(crate) statements: bool,
    pub(crate) interrupt: &'a Interrupt,
}

impl Turn<'_> {
    /// The warm-up before a turn, which is not measured.
    pub(crate) fn warm_up(&self, clients_max: u32, seconds: u32) -> Result<()> {
        self.run(self.load.at_most(clients_max), seconds).context("warm-up").map(drop)
    }

    /// The turn itself, from tables as each turn finds them.
    pub(crate) fn measure(&self, seconds: u32) -> Result<(Outcome, Cost)> {
        if self.load.script == Script::TpcB {
            self.cluster.tidy()?;
        }
        self.run(self.load, seconds)
    }

    fn run(&self, load: Load, seconds: u32) -> Result<(Outcome, Cost)> {
        let pgbench = Pgbench {
            program: &self.cluster.pgbench(),
            scripts: &[load.script.of_pgbench()],
            variables: Vec::new(),
            load: &load.of_pgbench(),
            clients: load.clients,
            seconds,
            statements: self.statements,
            endpoint: self.endpoint,
            scratch: &std::env::temp_dir(),
            interrupt: self.interrupt,
        };
        let mut watch = Watch::new(self.pool, self.cluster.postmaster());
        let outcome = pgbench.run(|moment| watch.see(&moment))?;
        if outcome.summary.failed > 0 {
            bail!("{} transactions failed", outcome.summary.failed);
        }
        let cost = watch.finish(outcome.summary.connect_s);
        Ok((outcome, cost))
    }
}
