//! `bench-gate`: PostgreSQL with the gate and without it, by the same pgbench, in turns within one run.
//!
//! There are two clusters, made and filled in the same way; one of them has loaded the gate. Only one is under load at
//! a time. The gate's limit is changed by a reload between turns.

mod bars;
mod cases;
mod gate;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::bench::bars::bars_table;
use crate::bench::cluster::Cluster;
use crate::bench::ground::Ground;
use crate::bench::load::Load;
use crate::bench::machine::Machine;
use crate::bench::options::{Common, SECONDS_MIN};
use crate::bench::results::{Series, Trouble};
use crate::bench::rounds::take_turns;
use crate::bench::turn::{Turn, WARM_UP_CLIENTS, WARM_UP_SECONDS};
use crate::bench::{self, Case as _};
use sluice_lab::pgbench::ScriptReport;
use sluice_lab::process::Interrupt;

use bars::{Figures, Results, Verdict};
use cases::{Case, Concurrency, Kind, Target};
use gate::Gate;

/// With `--quick`, lower than its clients: somebody has to wait.
const QUICK_LIMIT: u32 = 2;

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these cases, by name, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = Case::parse)]
    cases: Vec<&'static Case>,
    /// The gate's limit in comparisons, for all classes; 0 for none
    #[arg(long, default_value_t = 64, conflicts_with = "quick")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=0x3FFFF))]
    limit: u32,
    /// Seconds of load before each turn in which an automatic limit settles
    #[arg(long, default_value_t = 30, conflicts_with = "quick")]
    #[arg(value_parser = clap::value_parser!(u32).range(i64::from(SECONDS_MIN)..=3600))]
    auto_warm_up: u32,
    /// Length of a turn of the ladder
    #[arg(long, default_value_t = 5, conflicts_with = "quick")]
    #[arg(value_parser = clap::value_parser!(u32).range(i64::from(SECONDS_MIN)..=3600))]
    ladder_seconds: u32,
    /// Turns of each limit in the ladder
    #[arg(long, default_value_t = 1, conflicts_with = "quick")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=99))]
    ladder_turns: u32,
    #[command(flatten)]
    common: Common,
}

impl Options {
    fn limit(&self) -> u32 {
        if self.common.quick { QUICK_LIMIT } else { self.limit }
    }

    fn seconds(&self, case: &Case) -> u32 {
        match case.kind {
            Kind::Ladder if !self.common.quick => self.ladder_seconds,
            _ => self.common.seconds(),
        }
    }

    fn turns(&self, case: &Case) -> u32 {
        match case.kind {
            Kind::Ladder if !self.common.quick => self.ladder_turns,
            _ => self.common.turns(),
        }
    }

    fn load(&self, case: &Case) -> Load {
        self.common.load(case.load)
    }

    /// Clients and seconds of what comes before a turn.
    fn warm_up(&self, target: Target) -> Option<(u32, u32)> {
        match target {
            _ if self.common.quick => None,
            Target::Gate(Concurrency::Auto) => Some((u32::MAX, self.auto_warm_up)),
            _ => Some((WARM_UP_CLIENTS, WARM_UP_SECONDS)),
        }
    }
}

/// Measures, prints, and stores. Fails if a turn broke; bars that are not met are only said.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let ground = Ground::prepare(&options.common)?;
    gate::check_installed(&ground.bin)?;
    let mut machine = Machine::describe(ground.postgres_version().into_iter().collect());
    let plain = ground.cluster("plain", "")?;
    let gate = Gate::start(&ground)?;
    machine.versions.push(gate.version()?);
    machine.warning().inspect(|warning| eprintln!("{warning}"));

    let cases = options.common.cases(&options.cases);
    let bench = Bench { options, cases, machine, plain, gate, ground };
    let mut results = Results::new();
    for case in &bench.cases {
        bench.run_case(case, &mut results)?;
        bench.store(&results)?;
        if case.kind == Kind::Comparison {
            println!("\n{}", report::case_table(&results, case, options.load(case)));
        }
    }
    println!("\n{}", bench.ladder(&results));
    if options.common.quick {
        let waited = results.values().any(|series| series.median(|figures| figures.waited_share) > Some(0.0));
        ensure!(waited, "nobody has waited at the gate");
    } else {
        println!("{}", bars_table(&bench.verdicts(&results)));
    }
    println!("Stored in {0}.json and {0}.md", bench.output().display());
    let has_broken = results.values().any(Series::is_broken);
    Ok(if has_broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// All that a turn needs. Fields are dropped in order: servers stop before their directory goes.
struct Bench<'a> {
    options: &'a Options,
    cases: Vec<&'static Case>,
    machine: Machine,
    plain: Cluster,
    gate: Gate,
    ground: Ground,
}

impl Bench<'_> {
    /// All rounds of a case.
    fn run_case(&self, case: &'static Case, results: &mut Results) -> Result<()> {
        let targets = case.targets(self.options.limit(), self.options.common.quick);
        if let Some(why) = self.ground.lack_of_files(self.options.load(case).clients) {
            eprintln!("{} is skipped: {why}", case.name);
            let skipped = |target| ((case.name, target), skipped(&why));
            results.extend(targets.into_iter().map(skipped));
            return Ok(());
        }
        self.plain.tidy()?;
        self.gate.cluster.tidy()?;
        let runs: Vec<(&'static Case, Target)> = targets.into_iter().map(|target| (case, target)).collect();
        take_turns(self, &runs, self.options.turns(case), results)
    }

    fn ladder(&self, results: &Results) -> String {
        let ladder = self.cases.iter().filter(|case| case.kind == Kind::Ladder);
        let columns: Vec<(&'static Case, Load)> = ladder.map(|case| (*case, self.options.load(case))).collect();
        report::ladder_table(results, &columns)
    }

    fn verdicts(&self, results: &Results) -> Vec<Verdict> {
        let limits = [Concurrency::Places(self.options.limit()), Concurrency::Auto];
        limits.into_iter().flat_map(|limit| bars::judge(results, Target::Gate(limit))).collect()
    }

    fn output(&self) -> PathBuf {
        bench::output("bench-gate", self.options.common.quick)
    }

    /// After each case, so that what was measured survives an interruption.
    fn store(&self, results: &Results) -> Result<()> {
        let mut markdown = report::head(&self.machine, self.options);
        for case in self.cases.iter().filter(|case| case.kind == Kind::Comparison) {
            if results.keys().any(|(name, _)| *name == case.name) {
                markdown += &report::case_table(results, case, self.options.load(case));
            }
        }
        markdown += &self.ladder(results);
        if !self.options.common.quick {
            markdown += &bars_table(&self.verdicts(results));
        }
        bench::store(&self.output(), &report::records(results, &self.cases), &markdown)
    }
}

fn skipped(why: &str) -> Series<Figures> {
    Series { trouble: Some(Trouble::Skipped(why.to_owned())), ..Series::default() }
}

impl bench::rounds::Bench for Bench<'_> {
    type Case = Case;
    type Target = Target;
    type Figures = Figures;

    fn interrupt(&self) -> &Interrupt {
        &self.ground.interrupt
    }

    fn cluster(&self, target: Target) -> &Cluster {
        match target {
            Target::Plain => &self.plain,
            Target::Gate(_) => &self.gate.cluster,
        }
    }

    fn turn(&self, case: &'static Case, target: Target) -> Result<Figures> {
        let cluster = self.cluster(target);
        cluster.quiesce()?;
        let limit = target.limit();
        limit.map(|limit| self.gate.set(limit)).transpose()?;
        let turn = Turn {
            cluster,
            endpoint: &cluster.endpoint_by_socket(),
            pool: None,
            load: self.options.load(case),
            statements: true,
            interrupt: &self.ground.interrupt,
        };
        if let Some((clients, seconds)) = self.options.warm_up(target) {
            turn.warm_up(clients, seconds)?;
        }

        let counts = || limit.map(|_| self.gate.counts()).transpose();
        let before = counts()?;
        let (outcome, cost) = turn.measure(self.options.seconds(case))?;
        let after = counts()?;
        let is_auto = limit == Some(Concurrency::Auto);
        if is_auto && !self.options.common.quick {
            self.interrupt().sleep(gate::SEARCH_ENDS)?;
        }
        Ok(Figures {
            tps: outcome.summary.tps,
            mean_ms: outcome.summary.mean_ms,
            p50_ms: outcome.latencies.quantile_ms(0.5),
            p99_ms: outcome.latencies.quantile_ms(0.99),
            sql_ms: outcome.scripts.first().and_then(ScriptReport::sql_ms),
            begin_ms: outcome.scripts.first().and_then(ScriptReport::begin_ms),
            postgres_cpu_us_per_tx: cost.postgres_cpu_us_per_tx,
            waited_share: after.zip(before).and_then(|(after, before)| after.waited_share_since(before)),
            limit_at_end: is_auto.then(|| self.gate.limit_found(case.load.script)).transpose()?,
        })
    }
}
