//! `bench-peers`: straight PostgreSQL, HAProxy, PgBouncer and Sluice, by the same pgbench, in turns within one run.

mod bars;
mod cases;
mod report;
mod targets;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use tempfile::TempDir;

use crate::bench::bars::bars_table;
use crate::bench::cluster::{self, Cluster};
use crate::bench::load::Load;
use crate::bench::machine::{self, Machine};
use crate::bench::process::{self, Interrupt};
use crate::bench::results::Trouble;
use crate::bench::rounds::take_turns;
use crate::bench::turn::{Turn, WARM_UP_CLIENTS, WARM_UP_SECONDS};
use crate::bench::{self, Case as _, QUICK_CLIENTS, SECONDS_MIN, measure, scratch_dir};

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
    /// Length of a turn
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(i64::from(SECONDS_MIN)..=3600))]
    seconds: u32,
    /// Turns of each target in each case
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    turns: u32,
    /// Also run what takes long, is known to stop, or no bar compares with
    #[arg(long)]
    all: bool,
    /// One short turn of the select cases with few clients: shows that all works, measures nothing
    #[arg(long, conflicts_with_all = ["seconds", "turns", "scale"])]
    quick: bool,
    /// Sluice's program
    #[arg(long, env = "SLUICE", default_value = "target/release/sluice")]
    sluice: PathBuf,
    /// Directory of PostgreSQL's programs (Debian's PostgreSQL 15, or what `pg_config` says)
    #[arg(long)]
    pg_bin: Option<PathBuf>,
    /// pgbench's scale; 50 is 0.75 GB, and more branches than servers
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=60))]
    scale: u32,
    /// Where the database is put, for its time; a fast disk
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// [`Options`] after `--quick` and the rest have been worked out.
struct Plan {
    cases: Vec<&'static Case>,
    targets: Vec<Target>,
    seconds: u32,
    turns: u32,
    scale: u32,
    all: bool,
    quick: bool,
}

impl Plan {
    fn new(options: &Options) -> Self {
        let wanted = |case: &&'static Case| match options.cases.as_slice() {
            [] => !options.quick || case.quick,
            cases => cases.iter().any(|wanted| wanted.name == case.name),
        };
        Self {
            cases: CASES.iter().filter(wanted).collect(),
            targets: options.targets.clone(),
            seconds: if options.quick { SECONDS_MIN } else { options.seconds },
            turns: if options.quick { 1 } else { options.turns },
            scale: if options.quick { 1 } else { options.scale },
            all: options.all,
            quick: options.quick,
        }
    }

    fn load(&self, case: &Case) -> Load {
        if self.quick { case.load.at_most(QUICK_CLIENTS) } else { case.load }
    }

    fn wants(&self, target: Target) -> bool {
        self.targets.is_empty() || self.targets.contains(&target)
    }

    /// The cases that take their turns together.
    fn groups(&self) -> Vec<Vec<&'static Case>> {
        let mut groups: Vec<Vec<&'static Case>> = Vec::new();
        for case in &self.cases {
            match groups.last_mut() {
                Some(group) if case.beside_previous => group.push(case),
                _ => groups.push(vec![case]),
            }
        }
        groups
    }
}

/// Measures, prints, and stores. Fails if a target broke that should not have; bars that are not met are only said.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let plan = Plan::new(options);
    let interrupt = Interrupt::install()?;
    measure::check_kernel()?;
    let open_files = process::raise_open_files();
    let bin = cluster::find_bin(options.pg_bin.as_deref())?;
    let programs = Programs::find(&options.sluice);
    let postgres = machine::first_line(&bin.join("postgres"), "--version");
    let machine = Machine::describe(postgres.into_iter().chain(programs.versions()).collect());
    let scratch = scratch_dir(options.dir.as_deref())?;

    let shared_buffers = if plan.quick { "128MB" } else { "1GB" };
    eprintln!("Filling PostgreSQL at scale {} in {}", plan.scale, scratch.path().display());
    let cluster = Cluster::start(&bin, scratch.path(), shared_buffers, &interrupt)?;
    cluster.fill(plan.scale)?;
    machine.warning().inspect(|warning| eprintln!("{warning}"));

    let bench = Bench { plan, programs, machine, cluster, scratch, open_files, interrupt };
    let mut results = Results::new();
    for group in bench.plan.groups() {
        bench.run_group(&group, &mut results)?;
        bench.store(&results)?;
        for case in group {
            println!("\n{}", report::case_table(&results, case, bench.plan.load(case)));
        }
    }
    if !bench.plan.quick {
        println!("{}", bars_table(&bench.verdicts(&results)));
    }
    println!("Stored in {0}.json and {0}.md", bench.output().display());
    Ok(if has_broken(&results) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What runs only on request may break: that is why it runs only on request.
fn has_broken(results: &Results) -> bool {
    results.iter().any(|((name, target), series)| {
        let expected = CASES.iter().any(|case| case.name == *name && case.targets.contains(target));
        expected && series.is_broken()
    })
}

/// All that a turn needs. Fields are dropped in order: PostgreSQL stops before its directory goes.
struct Bench {
    plan: Plan,
    programs: Programs,
    machine: Machine,
    cluster: Cluster,
    scratch: TempDir,
    open_files: u64,
    interrupt: Interrupt,
}

impl Bench {
    /// All rounds of cases that belong together.
    fn run_group(&self, group: &[&'static Case], results: &mut Results) -> Result<()> {
        let mut runs: Vec<(&'static Case, Target)> = Vec::new();
        for case in group {
            let on_request = case.on_request.iter().map(|(target, why)| (*target, Some(*why)));
            for (target, why) in case.targets.iter().map(|target| (*target, None)).chain(on_request) {
                if !self.plan.wants(target) {
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
        take_turns(self, &runs, self.plan.turns, results)
    }

    /// Why a target can't or needn't run in a case.
    fn obstacle(&self, case: &Case, target: Target, on_request: Option<&str>) -> Option<String> {
        if let Some(why) = on_request.filter(|_| !self.plan.all) {
            return Some(format!("{why} (--all runs it)"));
        }
        bench::lack_of_files(self.plan.load(case).clients, self.open_files).or_else(|| self.programs.of(target).err())
    }

    fn verdicts(&self, results: &Results) -> Vec<Verdict> {
        [Target::SluiceIoUring, Target::SluiceEpoll]
            .into_iter()
            .flat_map(|target| bars::judge(results, target))
            .collect()
    }

    /// `--quick` measures nothing, so it does not write over what was measured.
    fn output(&self) -> PathBuf {
        bench::output(if self.plan.quick { "bench-peers-quick" } else { "bench-peers" })
    }

    /// After each group of cases, so that what was measured survives an interruption.
    fn store(&self, results: &Results) -> Result<()> {
        let mut markdown = report::head(&self.machine, self.plan.seconds, self.plan.turns, self.plan.scale);
        for case in &self.plan.cases {
            if results.keys().any(|(name, _)| *name == case.name) {
                markdown += &report::case_table(results, case, self.plan.load(case));
            }
        }
        if !self.plan.quick {
            markdown += &bars_table(&self.verdicts(results));
        }
        bench::store(&self.output(), &report::records(results, &self.plan.cases), &markdown)
    }
}

impl bench::rounds::Bench for Bench {
    type Case = Case;
    type Target = Target;
    type Figures = Figures;

    fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    fn cluster(&self, _: Target) -> &Cluster {
        &self.cluster
    }

    fn turn(&self, case: &'static Case, target: Target) -> Result<Figures> {
        self.cluster.quiesce()?;
        let dir = scratch_dir(Some(self.scratch.path()))?;
        let mut running = Running::start(target, &self.programs, &self.cluster, dir.path(), &self.interrupt)?;
        let (load, endpoint) = (self.plan.load(case), running.endpoint.clone());
        let turn = Turn {
            cluster: &self.cluster,
            endpoint: &endpoint,
            pool: running.pool(),
            load,
            interrupt: &self.interrupt,
        };
        let watched = turn.warm_up(WARM_UP_CLIENTS, WARM_UP_SECONDS).and_then(|()| turn.measure(self.plan.seconds));
        running.check()?;
        let (outcome, cost) = watched?;

        let logins = (load.clients >= LOGINS_MEASURED_FROM).then_some(f64::from(load.clients));
        Ok(Figures {
            tps: outcome.summary.tps,
            mean_ms: outcome.summary.mean_ms,
            p50_ms: outcome.latency_ms(0.5),
            p99_ms: outcome.latency_ms(0.99),
            pool_cpu_us_per_tx: cost.pool_cpu_us_per_tx,
            postgres_cpu_us_per_tx: cost.postgres_cpu_us_per_tx,
            rss_kb: cost.rss_kb,
            logins_per_s: logins.map(|logins| logins * 1000.0 / outcome.summary.connect_ms),
            cpu_us_per_login: logins.zip(cost.login_cpu_us).map(|(logins, us)| us / logins),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crowd_takes_its_turns_beside_the_few_it_is_compared_with() {
        let plan = Plan {
            cases: CASES.iter().collect(),
            targets: vec![],
            seconds: 10,
            turns: 3,
            scale: 50,
            all: false,
            quick: false,
        };
        let groups = plan.groups();
        let names: Vec<Vec<&str>> = groups.iter().map(|group| group.iter().map(|case| case.name).collect()).collect();
        assert!(names.contains(&vec!["select-simple-64", "select-simple-16000"]), "{names:?}");
        assert_eq!(groups.len(), CASES.len() - 1);
    }
}
