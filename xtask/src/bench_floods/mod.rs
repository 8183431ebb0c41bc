//! `bench-floods`: the latency of clients that are served, while others who are nobody yet flood the pool with what costs
//! them little: connections that stop in the midst of a log-in, cancels that concern nobody, and TLS handshakes that are
//! given up. Alone and in each flood, by turns, within one run.

mod flood;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::bench::ground::{Ground, scratch_dir};
use crate::bench::load::{Load, Script};
use crate::bench::machine::Machine;
use crate::bench::options::Common;
use crate::bench::turn::{Turn, WARM_UP_CLIENTS, WARM_UP_SECONDS};
use crate::bench_peers::targets::{Programs, Running, Target};
use sluice_lab::scenario::Protocol;
use sluice_lab::stats::median;
use sluice_lab::table::table;

use flood::{Flood, Running as Flooding};

/// The work of the clients that are served.
const LOAD: Load = Load { script: Script::Select, protocol: Protocol::Extended, clients: 64 };

/// The most that a flood may make of their p99.
const RATIO_MAX: f64 = 2.0;

/// The measurement that is wanted.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Sluice's program
    #[arg(long, env = "SLUICE", default_value = "target/release/sluice")]
    sluice: PathBuf,
    /// These targets, separated by commas: those by TLS can be flooded with handshakes
    #[arg(long, value_delimiter = ',', value_enum, default_values = ["sluice-tls", "pgbouncer-tls"])]
    targets: Vec<Target>,
    /// Connections a second that stop in the midst of a log-in; each stays for five seconds
    #[arg(long, value_name = "N", default_value_t = 500)]
    logins: u32,
    /// Cancels a second
    #[arg(long, value_name = "N", default_value_t = 1000)]
    cancels: u32,
    /// TLS handshakes a second
    #[arg(long, value_name = "N", default_value_t = 300)]
    handshakes: u32,
    #[command(flatten)]
    common: Common,
}

/// One turn of one target.
struct Figures {
    tps: f64,
    p99_ms: Option<f64>,
    /// The flood's connections a second, and the share of them that came to nothing.
    made_per_s: f64,
    failed: f64,
}

/// The turns, by target and flood.
type Results = BTreeMap<(Target, Flood), Vec<Figures>>;

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let ground = Ground::prepare(&options.common)?;
    let programs = Programs::find(&options.sluice, None);
    let machine = Machine::describe(ground.postgres_version().into_iter().chain(programs.versions()).collect());
    let cluster = ground.cluster("postgres", "")?;
    machine.warning().inspect(|warning| eprintln!("{warning}"));
    let mut results = Results::new();
    for round in 0..options.common.turns() {
        for &target in &options.targets {
            let dir = scratch_dir(Some(ground.scratch.path()))?;
            let mut running = Running::start(target, &programs, &cluster, dir.path(), &ground.interrupt)?;
            let endpoint = running.endpoint.clone();
            let turn = Turn {
                cluster: &cluster,
                endpoint: &endpoint,
                pool: running.pool(),
                load: options.common.load(LOAD),
                statements: false,
                interrupt: &ground.interrupt,
            };
            turn.warm_up(WARM_UP_CLIENTS, WARM_UP_SECONDS)?;
            for flood in Flood::of_round(round).filter(|flood| target.is_encrypted() || *flood != Flood::Handshakes) {
                let flooding = Flooding::start(flood, running.port, options.rate(flood))?;
                let measured = turn.measure(options.common.seconds());
                let flooded = flooding.stop();
                running.check()?;
                ground.interrupt.check()?;
                let (outcome, _) = measured?;
                let figures = Figures {
                    tps: outcome.summary.tps,
                    p99_ms: outcome.latencies.quantile_ms(0.99),
                    made_per_s: flooded.made as f64 / flooded.seconds,
                    failed: flooded.failed as f64 / flooded.made.max(1) as f64,
                };
                eprintln!(
                    "{} {target:<15} {:<11} {:>8.0} tps, p99 {:.2} ms",
                    round + 1,
                    flood.name(),
                    figures.tps,
                    figures.p99_ms.unwrap_or(f64::NAN)
                );
                results.entry((target, flood)).or_default().push(figures);
            }
        }
    }
    ensure!(!results.is_empty(), "no turn was taken");
    println!("{}", summary(&results));
    Ok(ExitCode::SUCCESS)
}

impl Options {
    /// Connections a second.
    fn rate(&self, flood: Flood) -> u32 {
        match flood {
            Flood::None => 0,
            Flood::Logins => self.logins,
            Flood::Cancels => self.cancels,
            Flood::Handshakes => self.handshakes,
        }
    }
}

/// Medians, and each flood's beside those without one.
fn summary(results: &Results) -> String {
    let head = ["target", "flood", "connections/s", "failed", "tps", "p99, ms", "p99 / alone (wanted: ≤ 2)"];
    let row = |((target, flood), turns): (&(Target, Flood), &Vec<Figures>)| {
        let of = |figure: fn(&Figures) -> Option<f64>| median(turns.iter().filter_map(figure));
        let alone = results.get(&(*target, Flood::None)).filter(|_| *flood != Flood::None).into_iter().flatten();
        let ratio = of(|turn| turn.p99_ms).zip(median(alone.filter_map(|turn| turn.p99_ms)));
        let ratio = match ratio.map(|(flooded, alone)| flooded / alone) {
            Some(ratio) if ratio > RATIO_MAX => format!("**{ratio:.2}**"),
            Some(ratio) => format!("{ratio:.2}"),
            None => "–".to_owned(),
        };
        let show =
            |value: Option<f64>, digits: usize| value.map_or("–".to_owned(), |value| format!("{value:.digits$}"));
        vec![
            target.to_string(),
            flood.name().to_owned(),
            show(of(|turn| Some(turn.made_per_s)), 0),
            show(of(|turn| Some(turn.failed * 100.0)), 0) + " %",
            show(of(|turn| Some(turn.tps)), 0),
            show(of(|turn| turn.p99_ms), 2),
            ratio,
        ]
    };
    table(&head, &results.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_compared_with_the_turns_without_one() {
        let turn = |p99_ms| Figures { tps: 100.0, p99_ms: Some(p99_ms), made_per_s: 10.0, failed: 0.5 };
        let results = Results::from([
            ((Target::SluiceTls, Flood::None), vec![turn(1.0), turn(9.0), turn(2.0)]),
            ((Target::SluiceTls, Flood::Cancels), vec![turn(3.0)]),
            ((Target::SluiceTls, Flood::Logins), vec![turn(5.0)]),
        ]);
        let table = summary(&results);
        for line in [
            "| sluice-tls | none | 10 | 50 % | 100 | 2.00 | – |",
            "| sluice-tls | cancels | 10 | 50 % | 100 | 3.00 | 1.50 |",
            "| sluice-tls | log-ins | 10 | 50 % | 100 | 5.00 | **2.50** |",
        ] {
            let is_it = |found: &str| found.split_whitespace().eq(line.split_whitespace());
            assert!(table.lines().any(is_it), "{table}");
        }
    }
}
