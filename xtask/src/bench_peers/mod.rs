//! `bench-peers`: straight PostgreSQL, HAProxy, PgBouncer and Sluice, by the same pgbench, in turns within one run.

mod bars;
mod cases;
mod report;
pub(crate) mod targets;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::bench::bars::bars_table;
use crate::bench::cluster::Cluster;
use crate::bench::ground::{Ground, scratch_dir};
use crate::bench::machine::Machine;
use crate::bench::options::Common;
use crate::bench::results::Trouble;
use crate::bench::rounds::take_turns;
use crate::bench::turn::{Turn, WARM_UP_CLIENTS, WARM_UP_SECONDS};
use crate::bench::{self, Case as _};
use sluice_lab::process::Interrupt;

use bars::{Figures, Results, Verdict};
use cases::{CASES, Case};
use targets::{Programs, Running, Target};

/// With fewer clients, connecting is too short a moment to be measured.
const LOGINS_MEASURED_FROM: u32 = 1000;

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these cases, by name, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = Case::parse)]
    cases: Vec<&'static Case>,
    /// Only these targets, separated by commas
    #[arg(long, value_delimiter = ',', value_enum)]
    targets: Vec<Target>,
    /// Also run what takes long, is known to stop, or no bar compares with
    #[arg(long)]
    all: bool,
    /// Sluice's program
    #[arg(long, env = "SLUICE", default_value = "target/release/sluice")]
    sluice: PathBuf,
    /// Also measure another build of Sluice, in the same rounds
    #[arg(long, value_name = "PROGRAM")]
    before: Option<PathBuf>,
    /// Also measure Sluice before a PostgreSQL that has its extension, which must be installed
    #[arg(long)]
    extension: bool,
    /// Also measure PgBouncer and Sluice with clients by TLS
    #[arg(long)]
    tls: bool,
    #[command(flatten)]
    common: Common,
}

impl Options {
    /// The targets that run in every case where Sluice does, because they were asked for.
    fn extra(&self) -> impl Iterator<Item = Target> {
        let before = self.before.as_ref().map(|_| Target::SluiceBefore);
        let by_tls: &[Target] = if self.tls { &[Target::PgbouncerTls, Target::SluiceTls] } else { &[] };
        before.into_iter().chain(self.extension.then_some(Target::SluiceExtension)).chain(by_tls.iter().copied())
    }

    fn wants(&self, target: Target) -> bool {
        self.targets.is_empty() || self.targets.contains(&target)
    }
}

/// The cases that take their turns together.
fn groups(cases: &[&'static Case]) -> Vec<Vec<&'static Case>> {
    let mut groups: Vec<Vec<&'static Case>> = Vec::new();
    for case in cases {
        match groups.last_mut() {
            Some(group) if case.beside_previous => group.push(case),
            _ => groups.push(vec![case]),
        }
    }
    groups
}

/// Measures, prints, and stores. Fails if a target broke that should not have; bars that are not met are only said.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let ground = Ground::prepare(&options.common)?;
    let programs = Programs::find(&options.sluice, options.before.as_deref());
    let machine = Machine::describe(ground.postgres_version().into_iter().chain(programs.versions()).collect());
    let cluster = ground.cluster("postgres", "")?;
    let reporting = options.extension.then(|| ground.cluster("extension", "sluice")).transpose()?;
    machine.warning().inspect(|warning| eprintln!("{warning}"));

    let cases = options.common.cases(&options.cases);
    let bench = Bench { options, cases, programs, machine, cluster, reporting, ground };
    let mut results = Results::new();
    for group in groups(&bench.cases) {
        bench.run_group(&group, &mut results)?;
        bench.store(&results)?;
        for case in group {
            println!("\n{}", report::case_table(&results, case, options.common.load(case.load)));
        }
    }
    if !options.common.quick {
        println!("{}", bars_table(&bench.verdicts(&results)));
    }
    println!("Stored in {0}.json and {0}.md", bench.output().display());
    Ok(if has_broken(&results) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A target that runs only on request may break: that is why it runs only on request.
fn has_broken(results: &Results) -> bool {
    results.iter().any(|((name, target), series)| {
        let expected = CASES.iter().any(|case| case.name == *name && case.targets.contains(target));
        expected && series.is_broken()
    })
}

/// All that a turn needs. Fields are dropped in order: PostgreSQL stops before its directory goes.
struct Bench<'a> {
    options: &'a Options,
    cases: Vec<&'static Case>,
    programs: Programs,
    machine: Machine,
    cluster: Cluster,
    /// The one with the extension.
    reporting: Option<Cluster>,
    ground: Ground,
}

impl Bench<'_> {
    /// All rounds of cases that belong together.
    fn run_group(&self, group: &[&'static Case], results: &mut Results) -> Result<()> {
        let mut runs: Vec<(&'static Case, Target)> = Vec::new();
        for case in group {
            let on_request = case.on_request.iter().map(|(target, why)| (*target, Some(*why)));
            let extra = self.options.extra().map(|target| (target, None));
            for (target, why) in case.targets.iter().map(|target| (*target, None)).chain(on_request).chain(extra) {
                if !self.options.wants(target) {
                    continue;
                }
                let series = results.entry((case.name, target)).or_default();
                match self.obstacle(case, target, why) {
                    Some(why) => {
                        eprintln!("{}: {target} is skipped: {why}", case.name);
                        series.trouble = Some(Trouble::Skipped(why));
                    }
                    None => runs.push((case, target)),
                }
            }
        }
        self.cluster.tidy()?;
        self.reporting.as_ref().map_or(Ok(()), Cluster::tidy)?;
        take_turns(self, &runs, self.options.common.turns(), results)
    }

    /// Why a target can't or needn't run in a case.
    fn obstacle(&self, case: &Case, target: Target, on_request: Option<&str>) -> Option<String> {
        if let Some(why) = on_request.filter(|_| !self.options.all) {
            return Some(format!("{why} (--all runs it)"));
        }
        let lack = self.ground.lack_of_files(self.options.common.load(case.load).clients);
        lack.or_else(|| self.programs.of(target).err())
    }

    fn verdicts(&self, results: &Results) -> Vec<Verdict> {
        [Target::SluiceIoUring, Target::SluiceEpoll]
            .into_iter()
            .flat_map(|target| bars::judge(results, target))
            .collect()
    }

    fn output(&self) -> PathBuf {
        bench::output("bench-peers", self.options.common.quick)
    }

    /// After each group of cases, so that what was measured survives an interruption.
    fn store(&self, results: &Results) -> Result<()> {
        let common = &self.options.common;
        let mut markdown = report::head(&self.machine, common.seconds(), common.turns(), common.scale());
        for case in &self.cases {
            if results.keys().any(|(name, _)| *name == case.name) {
                markdown += &report::case_table(results, case, common.load(case.load));
            }
        }
        if !common.quick {
            markdown += &bars_table(&self.verdicts(results));
        }
        bench::store(&self.output(), &report::records(results, &self.cases), &markdown)
    }
}

impl bench::rounds::Bench for Bench<'_> {
    type Case = Case;
    type Target = Target;
    type Figures = Figures;

    fn interrupt(&self) -> &Interrupt {
        &self.ground.interrupt
    }

    fn cluster(&self, target: Target) -> &Cluster {
        self.reporting.as_ref().filter(|_| target == Target::SluiceExtension).unwrap_or(&self.cluster)
    }

    fn turn(&self, case: &'static Case, target: Target) -> Result<Figures> {
        let cluster = self.cluster(target);
        cluster.quiesce()?;
        let dir = scratch_dir(Some(self.ground.scratch.path()))?;
        let mut running = Running::start(target, &self.programs, cluster, dir.path(), &self.ground.interrupt)?;
        let (load, endpoint) = (self.options.common.load(case.load), running.endpoint.clone());
        let turn = Turn {
            cluster,
            endpoint: &endpoint,
            pool: running.pool(),
            load,
            statements: false,
            interrupt: &self.ground.interrupt,
        };
        let watched =
            turn.warm_up(WARM_UP_CLIENTS, WARM_UP_SECONDS).and_then(|()| turn.measure(self.options.common.seconds()));
        running.check()?;
        let (outcome, cost) = watched?;

        let logins = (load.clients >= LOGINS_MEASURED_FROM).then_some(f64::from(load.clients));
        Ok(Figures {
            tps: outcome.summary.tps,
            mean_ms: outcome.summary.mean_ms,
            p50_ms: outcome.latencies.quantile_ms(0.5),
            p99_ms: outcome.latencies.quantile_ms(0.99),
            pool_cpu_us_per_tx: cost.pool_cpu_us_per_tx,
            postgres_cpu_us_per_tx: cost.postgres_cpu_us_per_tx,
            rss_kb: cost.rss_kb,
            logins_per_s: logins.map(|logins| logins / outcome.summary.connect_s),
            cpu_us_per_login: logins.zip(cost.login_cpu_us).map(|(logins, us)| us / logins),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crowd_takes_its_turns_beside_the_few_it_is_compared_with() {
        let groups = groups(&CASES.iter().collect::<Vec<_>>());
        let names: Vec<Vec<&str>> = groups.iter().map(|group| group.iter().map(|case| case.name).collect()).collect();
        assert!(names.contains(&vec!["select-simple-64", "select-simple-16000"]), "{names:?}");
        assert_eq!(groups.len(), CASES.len() - 1);
    }
}
