//! `bench-peers`: straight PostgreSQL, HAProxy, PgBouncer and Sluice, by the same pgbench, in turns within one run.
//!
//! Machines drift: they heat, neighbours come and go. So no target is measured at a stretch; each round runs every
//! target once, in an order that rotates, and what is compared is compared within a round. It starts all it needs on
//! free ports, touches no service of the machine, and leaves no process behind.

mod bars;
mod cases;
mod cluster;
mod machine;
mod measure;
mod pgbench;
mod process;
mod report;
mod targets;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use tempfile::TempDir;

use bars::{Figures, Results, Trouble};
use cases::{CASES, Case, Script};
use cluster::Cluster;
use machine::Machine;
use measure::Watch;
use pgbench::Pgbench;
use process::Interrupt;
use targets::{Programs, Running, Target};

/// With fewer clients, connecting is too short a moment to be measured.
const LOGINS_MEASURED_FROM: u32 = 1000;

/// Clients of a warm-up and of `--quick`: more would add only logins.
const WARM_UP_CLIENTS: u32 = 64;
const QUICK_CLIENTS: u32 = 8;

/// pgbench reports once a second; two are the least that have a first and a last report apart.
const SECONDS_MIN: u32 = 2;

/// Enough to open a pool's servers and fill their caches.
const WARM_UP_SECONDS: u32 = 2;

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

    fn clients(&self, case: &Case) -> u32 {
        if self.quick { case.clients.min(QUICK_CLIENTS) } else { case.clients }
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

/// The order of a round: everyone moves up by one, the first goes to the end.
fn rotated<T: Copy>(runs: &[T], round: u32) -> Vec<T> {
    let mut runs = runs.to_vec();
    if !runs.is_empty() {
        let places = round as usize % runs.len();
        runs.rotate_left(places);
    }
    runs
}

/// Measures, prints, and stores. Fails if a target broke that should not have; bars that are not met are only said.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let plan = Plan::new(options);
    let interrupt = Interrupt::install()?;
    measure::check_kernel()?;
    let open_files = process::raise_open_files();
    let bin = cluster::find_bin(options.pg_bin.as_deref())?;
    let programs = Programs::find(&options.sluice);
    let machine = Machine::describe(&bin, &programs);
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
            println!("\n{}", report::case_table(&results, case, bench.plan.clients(case)));
        }
    }
    if !bench.plan.quick {
        println!("{}", report::bars_table(&bench.verdicts(&results)));
    }
    println!("Stored in {0}.json and {0}.md", bench.output("").display());
    Ok(if has_broken(&results) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What runs only on request may break: that is why it runs only on request.
fn has_broken(results: &Results) -> bool {
    results.iter().any(|((name, target), series)| {
        let expected = CASES.iter().any(|case| case.name == *name && case.targets.contains(target));
        expected && series.trouble.as_ref().is_some_and(Trouble::is_broken)
    })
}

/// Servers that don't run as root must be able to pass through it.
fn scratch_dir(parent: Option<&Path>) -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("sluice-bench-").permissions(fs::Permissions::from_mode(0o755));
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    builder.tempdir_in(&parent).with_context(|| format!("can't create a directory in {}", parent.display()))
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
        for round in 0..self.plan.turns {
            for (case, target) in rotated(&runs, round) {
                let series = results.entry((case.name, target)).or_default();
                if series.trouble.is_none() {
                    match self.report_turn(case, target, round)? {
                        Ok(figures) => drop(series.turns.insert(round, figures)),
                        Err(error) => series.trouble = Some(Trouble::Broken(error)),
                    }
                }
            }
        }
        Ok(())
    }

    /// Why a target can't or needn't run in a case.
    fn obstacle(&self, case: &Case, target: Target, on_request: Option<&str>) -> Option<String> {
        let files_needed = u64::from(self.plan.clients(case)) + 100;
        if let Some(why) = on_request.filter(|_| !self.plan.all) {
            return Some(format!("{why} (--all runs it)"));
        }
        if files_needed > self.open_files {
            return Some(format!("needs {files_needed} open files, the limit (ulimit -Hn) is {}", self.open_files));
        }
        self.programs.of(target).err()
    }

    /// A turn with its line on the terminal. The outer error ends the benchmark, the inner one this target's case.
    fn report_turn(&self, case: &Case, target: Target, round: u32) -> Result<Result<Figures, String>> {
        let turn = self.turn(case, target);
        self.interrupt.check()?;
        let name = format!("{} {}/{} {target:<15}", case.name, round + 1, self.plan.turns);
        match turn {
            Ok(figures) => {
                let cpu = |us: Option<f64>| us.map_or("–".to_owned(), |us| format!("{us:.1}"));
                eprintln!(
                    "{name} {:>8.0} tps  {:>8.3} ms  CPU µs: pool {}, PostgreSQL {}",
                    figures.tps,
                    figures.mean_ms,
                    cpu(figures.pool_cpu_us_per_tx),
                    cpu(figures.postgres_cpu_us_per_tx)
                );
                Ok(Ok(figures))
            }
            Err(error) => {
                eprintln!("{name} broke: {error:#}");
                self.cluster.sql("postgres", "select 1").context("PostgreSQL itself is gone")?;
                Ok(Err(format!("{error:#}")))
            }
        }
    }

    fn turn(&self, case: &Case, target: Target) -> Result<Figures> {
        self.cluster.quiesce()?;
        let dir = scratch_dir(Some(self.scratch.path()))?;
        let mut running = Running::start(target, &self.programs, &self.cluster, dir.path(), &self.interrupt)?;
        let (clients, endpoint) = (self.plan.clients(case), running.endpoint.clone());
        let pgbench = |clients, seconds| Pgbench {
            program: self.cluster.pgbench(),
            case,
            clients,
            seconds,
            endpoint: &endpoint,
            interrupt: &self.interrupt,
        };
        let watch = |seconds| Watch::new(running.pool(), self.cluster.postmaster(), seconds);
        let (warm_up, seconds) = (pgbench(clients.min(WARM_UP_CLIENTS), WARM_UP_SECONDS), self.plan.seconds);
        let warm = warm_up.run(&mut watch(WARM_UP_SECONDS)).context("warm-up");
        let watched = warm.and_then(|_| {
            if case.script == Script::TpcB {
                self.cluster.tidy()?;
            }
            let mut watch = watch(seconds);
            Ok((pgbench(clients, seconds).run(&mut watch)?, watch))
        });
        running.check()?;
        let (outcome, watch) = watched?;
        let cost = watch.finish(outcome.summary.connect_ms);

        let latency_ms = |share| measure::percentile(&outcome.latencies_us, share).map(|us| us as f64 / 1000.0);
        let logins = (clients >= LOGINS_MEASURED_FROM).then_some(f64::from(clients));
        Ok(Figures {
            tps: outcome.summary.tps,
            mean_ms: outcome.summary.mean_ms,
            p50_ms: latency_ms(0.5),
            p99_ms: latency_ms(0.99),
            pool_cpu_us_per_tx: cost.pool_cpu_us_per_tx,
            postgres_cpu_us_per_tx: cost.postgres_cpu_us_per_tx,
            rss_kb: cost.rss_kb,
            logins_per_s: logins.map(|logins| logins * 1000.0 / outcome.summary.connect_ms),
            cpu_us_per_login: logins.zip(cost.login_cpu_us).map(|(logins, us)| us / logins),
        })
    }

    fn verdicts(&self, results: &Results) -> Vec<bars::Verdict> {
        [Target::SluiceIoUring, Target::SluiceEpoll]
            .into_iter()
            .flat_map(|target| bars::judge(results, target))
            .collect()
    }

    /// `--quick` measures nothing, so it does not write over what was measured.
    fn output(&self, extension: &str) -> PathBuf {
        let name = if self.plan.quick { "bench-peers-quick" } else { "bench-peers" };
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
        target.canonicalize().unwrap_or(target).join(format!("{name}{extension}"))
    }

    /// After each group of cases, so that what was measured survives an interruption.
    fn store(&self, results: &Results) -> Result<()> {
        let records = report::records(results, &self.plan.cases);
        let json = serde_json::to_string_pretty(&records).context("can't write the records as JSON")?;
        let mut markdown = report::head(&self.machine, self.plan.seconds, self.plan.turns, self.plan.scale);
        for case in &self.plan.cases {
            if results.keys().any(|(name, _)| *name == case.name) {
                markdown += &report::case_table(results, case, self.plan.clients(case));
            }
        }
        if !self.plan.quick {
            markdown += &report::bars_table(&self.verdicts(results));
        }
        for (extension, text) in [(".json", json + "\n"), (".md", markdown)] {
            let path = self.output(extension);
            fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            fs::write(&path, text).with_context(|| format!("can't write {}", path.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_comes_first_in_turn() {
        assert_eq!(rotated(&[1, 2, 3], 0), [1, 2, 3]);
        assert_eq!(rotated(&[1, 2, 3], 1), [2, 3, 1]);
        assert_eq!(rotated(&[1, 2, 3], 5), [3, 1, 2]);
        assert!(rotated::<u8>(&[], 1).is_empty());
    }

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
