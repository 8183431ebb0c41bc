//! The cluster that has the gate: its limits, and what it has counted.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::bench::cluster::Cluster;
use crate::bench::ground::Ground;
use crate::bench::load::Script;
use crate::bench::machine;
use sluice_lab::process::Interrupt;

use super::cases::Concurrency;

/// The library that the server loads.
const LIBRARY: &str = "sluice";

/// The classes that pgbench's transactions belong to.
const CLASSES: [&str; 3] = ["transaction", "autocommit", "query"];

/// The keeper reads new settings at once; if not by then, never.
const RELOAD_MAX: Duration = Duration::from_secs(15);

/// While it looks for a limit, the gate tries another one every other second. It goes back to the one it holds for the
/// best when it has seen a second without load.
pub(crate) const SEARCH_ENDS: Duration = Duration::from_secs(3);

/// A cluster whose server has loaded the gate. Its database `postgres` has the extension.
pub(crate) struct Gate {
    pub(crate) cluster: Cluster,
    interrupt: Interrupt,
}

/// Since the server's start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counts {
    admitted: f64,
    waited: f64,
}

impl Counts {
    /// Of those admitted since `before`, the share that had to wait.
    pub(crate) fn waited_share_since(self, before: Self) -> Option<f64> {
        let admitted = self.admitted - before.admitted;
        (admitted > 0.0).then(|| (self.waited - before.waited) / admitted)
    }
}

/// Says before anything is filled that the server could not start.
pub(crate) fn check_installed(bin: &Path) -> Result<()> {
    let pg_config = bin.join("pg_config");
    let Some(dir) = machine::first_line(&pg_config, "--pkglibdir") else {
        bail!("{} does not say where libraries are", pg_config.display());
    };
    let library = Path::new(&dir).join(LIBRARY).with_extension("so");
    if !library.is_file() {
        bail!("no {}: run scripts/extension.sh {}", library.display(), pg_config.display());
    }
    Ok(())
}

impl Gate {
    pub(crate) fn start(ground: &Ground) -> Result<Self> {
        let gate = Self { cluster: ground.cluster("gate", LIBRARY)?, interrupt: ground.interrupt.clone() };
        gate.sql("create extension sluice")?;
        Ok(gate)
    }

    fn sql(&self, statement: &str) -> Result<String> {
        self.cluster.sql("postgres", statement)
    }

    pub(crate) fn version(&self) -> Result<String> {
        let version = self.sql("select extversion from pg_extension where extname = 'sluice'")?;
        Ok(format!("sluice {} (extension)", version.trim()))
    }

    /// Gives all classes this limit, and waits until it is in force. An automatic one begins its search anew.
    pub(crate) fn set(&self, limit: Concurrency) -> Result<()> {
        if limit == Concurrency::Auto {
            self.put(Concurrency::Places(0))?;
        }
        self.put(limit)
    }

    fn put(&self, limit: Concurrency) -> Result<()> {
        self.sql(&settings(limit))?;
        let in_force = in_force(limit);
        let end = Instant::now() + RELOAD_MAX;
        while self.sql(&in_force)?.trim() != "t" {
            if Instant::now() >= end {
                bail!("the gate's limit does not become {limit}");
            }
            self.interrupt.sleep(Duration::from_millis(50))?;
        }
        Ok(())
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> Result<Counts> {
        let row = self.sql("select sum(admitted), sum(waited) from sluice_gate where kind = 'class'")?;
        parse_counts(&row).with_context(|| format!("can't read the gate's counts: {row}"))
    }

    /// The limit that an automatic search has come to; right only when [`SEARCH_ENDS`] has passed since the load's end.
    pub(crate) fn limit_found(&self, script: Script) -> Result<f64> {
        let class = match script {
            Script::Select | Script::Own(_) => "query",
            Script::TpcB => "transaction",
        };
        let limit =
            self.sql(&format!("select concurrency from sluice_gate where kind = 'class' and name = '{class}'"))?;
        limit.trim().parse().with_context(|| format!("can't read the gate's limit: {limit}"))
    }
}

fn settings(limit: Concurrency) -> String {
    let set = CLASSES.map(|class| format!("alter system set sluice.{class}_concurrency = '{limit}';\n"));
    format!("{}select pg_reload_conf()", set.concat())
}

/// Asks whether all classes have the limit.
fn in_force(limit: Concurrency) -> String {
    let condition = match limit {
        Concurrency::Places(places) => format!("concurrency = {places} and not is_auto"),
        Concurrency::Auto => "concurrency > 0 and is_auto".to_owned(),
    };
    let classes = CLASSES.map(|class| format!("'{class}'")).join(", ");
    format!("select bool_and({condition}) from sluice_gate where kind = 'class' and name in ({classes})")
}

fn parse_counts(row: &str) -> Option<Counts> {
    let (admitted, waited) = row.trim().split_once('|')?;
    Some(Counts { admitted: admitted.parse().ok()?, waited: waited.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_classes_get_the_limit() {
        let statements = settings(Concurrency::Places(32));
        let lines: Vec<&str> = statements.lines().collect();
        assert_eq!(lines[0], "alter system set sluice.transaction_concurrency = '32';");
        assert_eq!((lines.len(), lines[3]), (4, "select pg_reload_conf()"));
        assert!(settings(Concurrency::Auto).contains("sluice.query_concurrency = 'auto';"));
    }

    #[test]
    fn the_view_is_asked_for_the_limit() {
        let question = in_force(Concurrency::Places(0));
        assert!(question.contains("bool_and(concurrency = 0 and not is_auto)"), "{question}");
        assert!(question.ends_with("name in ('transaction', 'autocommit', 'query')"), "{question}");
    }

    #[test]
    fn shares_are_those_of_a_turn() {
        let before = parse_counts("100|50\n").unwrap();
        let after = parse_counts("300|100\n").unwrap();
        assert_eq!(after.waited_share_since(before), Some(0.25));
        assert_eq!(after.waited_share_since(after), None);
        assert_eq!(parse_counts("|\n"), None);
    }
}
