//! `sluice cluster`: what an operator does with a cluster of Patroni's, one of `sluice up --nodes` or somebody else's, with
//! the clients of the pools before it held where that spares them an error.
//!
//! Patroni decides and does; nothing here elects, promotes or copies.
//!
//! | file | what it is about |
//! |---|---|
//! | `target` | which cluster, and how its members are asked |
//! | `pools` | the pools before it, by their admin consoles |
//! | `status` | what its nodes and pools are doing |
//! | `hold` | holding clients, and letting them go on |
//! | `switchover` | another primary |
//! | `failover` | a primary where there is none |
//! | `slots` | whether it could serve the slots of subscribers |
//! | `restart` | each node in turn |
//! | `config` | the settings that all nodes share |
//! | `settings` | the values that Patroni takes for them |
//! | `parameters` | PostgreSQL's own settings, as Patroni checks them |
//! | `judged` | and as PostgreSQL takes them |
//! | `maintenance` | pause, resume, and a node that is copied anew |
//! | `moment` | times as PostgreSQL writes them |

mod config;
mod failover;
mod hold;
mod judged;
mod maintenance;
mod moment;
mod parameters;
mod pools;
mod restart;
mod settings;
mod slots;
mod status;
mod switchover;
mod target;

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use sluice_units::{Dimension, Quantity};

use self::target::{Target, Where};

/// The time that transactions have to end where nobody says otherwise.
const WAIT: Duration = Duration::from_secs(10);

/// The time after which clients go on where nobody says otherwise, and transactions have no longer than [`WAIT`].
const LONGEST: Duration = Duration::from_secs(30);

/// The time that is left for a switchover when transactions have had theirs.
const BEHIND: Duration = Duration::from_secs(20);

/// The longest time that the pools' consoles take with HOLD.
const HOLD_MAX: Duration = Duration::from_secs(3600);

/// A command for a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show the nodes, how far each is behind, and what the pools hold
    Status(StatusArgs),
    /// Make another node the primary, with clients held at the ends of their transactions
    Switchover(SwitchoverArgs),
    /// Make a node the primary where there is none, and Patroni makes nobody one
    ///
    /// When all nodes have been stopped in order, Patroni takes the last primary only; and it takes nobody who may lack what
    /// was acknowledged. Where that node is gone for good, this chooses another one. It refuses a node that lacks what
    /// another one has that answers.
    Failover(FailoverArgs),
    /// Restart all nodes, one after the other: standbys first, the primary last
    ///
    /// For a setting that needs a restart, or a minor upgrade of PostgreSQL. Another node becomes the primary before the old
    /// one is restarted, where there is one; clients are held for that moment.
    Restart(RestartArgs),
    /// Maintenance: Patroni starts, stops and promotes nothing by itself until it is resumed
    Pause(PlainArgs),
    /// End maintenance
    Resume(PlainArgs),
    /// Make a standby anew, as a copy of the primary; what it has is removed
    Reinit(ReinitArgs),
    /// Show or change the settings that all nodes share (Patroni's dynamic configuration)
    Config(Box<ConfigArgs>),
    /// Hold the clients of the pools before a cluster: those in a transaction finish it, others wait
    ///
    /// For "postgresql.before_stop" in patroni.yml, which Patroni runs before it stops PostgreSQL: a switchover or a restart
    /// by patronictl then is no error to anybody either. With --rest, nothing is held unless that member is the primary. The
    /// hold ends with another primary, with the primary's restart, or after --longest.
    Hold(HoldArgs),
    /// End a hold
    Release(PlainArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PlainArgs {
    #[command(flatten)]
    at: Where,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: Where,
}

/// For how long, where clients are held.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct PatienceArgs {
    /// Time that open transactions have to end [default: 10s, or half of --longest where that is less]
    #[arg(long, value_name = "TIME", value_parser = parse_patience)]
    wait: Option<Duration>,
    /// Time after which clients go on, whatever has happened, 1h at most [default: 30s, or 20s more than --wait]
    #[arg(long, value_name = "TIME", value_parser = parse_patience)]
    longest: Option<Duration>,
}

/// The times for which clients are held: the one for transactions is the shorter one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Patience {
    wait: Duration,
    longest: Duration,
}

impl PatienceArgs {
    fn checked(self) -> Result<Patience> {
        let wait = self.wait.unwrap_or_else(|| WAIT.min(self.longest.unwrap_or(LONGEST) / 2));
        let longest = self.longest.unwrap_or_else(|| LONGEST.max(wait + BEHIND).min(HOLD_MAX));
        if longest <= wait {
            let [wait, longest] = [wait, longest].map(|time| time.as_secs_f64());
            bail!(
                "clients would go on after {longest} s (--longest), when transactions have not had their {wait} s (--wait) yet\n\
                 give a --longest that is more than --wait; the pools take 1h at most"
            );
        }
        Ok(Patience { wait, longest })
    }
}

#[derive(Debug, Args)]
pub(crate) struct SwitchoverArgs {
    /// The node that becomes the primary [default: Patroni chooses]
    #[arg(long, value_name = "NODE")]
    to: Option<String>,
    #[command(flatten)]
    how: HoldingArgs,
    #[command(flatten)]
    at: Where,
}

/// The treatment of transactions that do not end in time.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct HoldingArgs {
    #[command(flatten)]
    patience: PatienceArgs,
    /// Go on though transactions are still open then: they fail with 40001; or though a subscriber would not be served, or
    /// a node's PostgreSQL does not take its settings
    #[arg(long)]
    force: bool,
    /// Do not hold clients first
    #[arg(long, conflicts_with = "force")]
    no_hold: bool,
}

/// The same, as it is done.
#[derive(Debug, Clone, Copy)]
struct Holding {
    patience: Patience,
    force: bool,
    no_hold: bool,
}

impl HoldingArgs {
    fn checked(self) -> Result<Holding> {
        Ok(Holding { patience: self.patience.checked()?, force: self.force, no_hold: self.no_hold })
    }
}

#[derive(Debug, Args)]
pub(crate) struct FailoverArgs {
    /// The node
    node: String,
    /// Though what another node alone has is lost then
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    at: Where,
}

#[derive(Debug, Args)]
pub(crate) struct RestartArgs {
    /// Only the nodes whose settings need it
    #[arg(long)]
    pending: bool,
    /// Time that a node has to be in its place again
    #[arg(long, value_name = "TIME", default_value = "5min", value_parser = parse_time_limit)]
    timeout: Duration,
    #[command(flatten)]
    how: HoldingArgs,
    #[command(flatten)]
    at: Where,
}

#[derive(Debug, Args)]
pub(crate) struct ReinitArgs {
    /// The node
    node: String,
    /// Also if Patroni is busy with it otherwise
    #[arg(long)]
    force: bool,
    /// Time that it has to stream again
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_time_limit)]
    timeout: Duration,
    #[command(flatten)]
    at: Where,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: Where,
    #[command(subcommand)]
    change: Option<ConfigCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Change settings: synchronous_mode=quorum postgresql.parameters.work_mem=64MB; without a value one is removed
    Set {
        /// The settings
        #[arg(required = true, value_name = "NAME=VALUE")]
        settings: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct HoldArgs {
    #[command(flatten)]
    patience: PatienceArgs,
    /// The member's data directory: then also begin the fast shutdown of its PostgreSQL that Patroni asks for next
    ///
    /// Patroni looks once a second whether PostgreSQL has ended, and clients wait for that. One that has ended before is not
    /// waited for.
    #[arg(long, value_name = "PGDATA", requires = "rest")]
    shut_down: Option<PathBuf>,
    #[command(flatten)]
    at: Where,
}

/// Carries out a command.
pub(crate) fn cluster(command: ClusterCommand) -> Result<()> {
    match command {
        ClusterCommand::Status(StatusArgs { json, at }) => status::show(&Target::find(at)?, json),
        ClusterCommand::Switchover(SwitchoverArgs { to, how, at }) => {
            let how = how.checked()?;
            switchover::command(&Target::find(at)?, to.as_deref(), how)
        }
        ClusterCommand::Failover(FailoverArgs { node, force, at }) => {
            failover::command(&Target::find(at)?, &node, force)
        }
        ClusterCommand::Restart(RestartArgs { pending, timeout, how, at }) => {
            let how = how.checked()?;
            restart::rolling(&Target::find(at)?, pending, timeout, how)
        }
        ClusterCommand::Pause(PlainArgs { at }) => maintenance::pause(&Target::find(at)?, true),
        ClusterCommand::Resume(PlainArgs { at }) => maintenance::pause(&Target::find(at)?, false),
        ClusterCommand::Reinit(ReinitArgs { node, force, timeout, at }) => {
            maintenance::reinit(&Target::find(at)?, &node, force, timeout)
        }
        ClusterCommand::Config(args) => match *args {
            ConfigArgs { json, at, change: None } => config::show(&Target::find(at)?, json),
            ConfigArgs { json: true, .. } => {
                bail!("--json is for showing the settings\nleave it out where they are set")
            }
            ConfigArgs { at, change: Some(ConfigCommand::Set { settings }), .. } => {
                config::set(&Target::find(at)?, &settings)
            }
        },
        ClusterCommand::Hold(HoldArgs { patience, shut_down, at }) => {
            hold::hold(at, patience.checked()?, shut_down.as_deref())
        }
        ClusterCommand::Release(PlainArgs { at }) => hold::release(at),
    }
}

fn parse_time_limit(text: &str) -> Result<Duration, &'static str> {
    const MS_MAX: f64 = 24.0 * 3600.0 * 1000.0;
    let time = Quantity::with_unit(text, Dimension::Time).filter(|time| (0.0..=MS_MAX).contains(&time.amount));
    time.map(|time| Duration::from_secs_f64(time.amount / 1000.0)).ok_or("a time is needed, as in 500ms, 10s or 5min")
}

/// A time as the pools' consoles take it with HOLD.
fn parse_patience(text: &str) -> Result<Duration, &'static str> {
    let time = parse_time_limit(text)?;
    if time > HOLD_MAX { Err("the pools take 1h at most") } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    #[test]
    fn clients_are_held_for_an_hour_at_most() {
        assert_eq!(parse_patience("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(parse_patience("10h"), Err("the pools take 1h at most"));
    }

    #[test]
    fn clients_are_held_for_longer_than_transactions_have_to_end() {
        let checked = |wait: Option<u64>, longest: Option<u64>| {
            let [wait, longest] = [wait, longest].map(|seconds| seconds.map(Duration::from_secs));
            let checked = PatienceArgs { wait, longest }.checked();
            checked.map(|it| (it.wait.as_secs_f64(), it.longest.as_secs_f64())).map_err(|error| error.to_string())
        };
        assert_eq!(checked(None, None), Ok((10.0, 30.0)));
        assert_eq!(checked(Some(0), None), Ok((0.0, 30.0)));
        assert_eq!(checked(Some(60), None), Ok((60.0, 80.0)));
        assert_eq!(checked(Some(3590), None), Ok((3590.0, 3600.0)));
        assert_eq!(checked(Some(60), Some(61)), Ok((60.0, 61.0)));
        assert_eq!(checked(None, Some(60)), Ok((10.0, 60.0)));
        assert_eq!(checked(None, Some(5)), Ok((2.5, 5.0)));
        for (wait, longest) in [(Some(60), Some(60)), (Some(60), Some(30)), (Some(3600), None), (None, Some(0))] {
            let error = checked(wait, longest).unwrap_err();
            assert!(error.contains("--longest that is more than --wait"), "{error}");
        }
    }

    #[test]
    fn a_cluster_is_named_before_set_or_behind_it() {
        let command = ConfigArgs::augment_args(clap::Command::new("config"));
        for words in ["config --data d --cluster c set a=1", "config --data d set a=1 --cluster c"] {
            let found = command.clone().try_get_matches_from(words.split(' ')).unwrap();
            let args = ConfigArgs::from_arg_matches(&found).unwrap();
            let said = format!("{:?}", args.at);
            assert!(said.contains(r#"data: Some("d")"#) && said.contains(r#"cluster: Some("c")"#), "{said}");
            assert!(matches!(args.change, Some(ConfigCommand::Set { settings }) if settings == ["a=1"]), "{words}");
        }
    }
}
