//! `bench-floods`: the latency of clients that are served, while others who are nobody yet flood the pool with what costs
//! them little: connections that stop in the midst of a log-in, cancels that concern nobody, and TLS handshakes that are
//! given up; and while nine times as many clients as may log in keep trying to. Alone and in each flood, by turns, within
//! one run. Or, with `--full-handshakes`, the handshakes a second that servers do.

mod flood;
mod handshakes;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use sluice_instance::Class;
use sluice_lab::connect::Access;
use sluice_lab::pgbench::{Endpoint, Moment, Outcome, Pgbench};
use sluice_lab::process::{Interrupt, raise_open_files};
use sluice_lab::scenario::{Load, Protocol, Scenario, Script};
use sluice_lab::server::{Server, Tables};
use sluice_lab::stats::median;
use sluice_lab::table::table;
use sluice_lab::target::{Pool, PoolKind, SPARE_CLIENTS, Target};

use flood::{Flood, Flooded, Running as Flooding};
use handshakes::KeyKind;

/// The scenario whose tables and settings are used, so that figures can be held against its own.
const SCENARIO: &str = "peers";

/// The clients that are served.
const CLIENTS: u32 = 64;

/// The seconds at a turn's begin that count for nothing: those of an overload come when the others are connected.
const SETTLING_S: u32 = 2;

/// The pool has room for what comes in so many seconds: longer than any of a flood's connections stays.
const ROOM_S: u32 = 8;

/// The most that a flood may make of their p99.
const RATIO_MAX: f64 = 2.0;

/// The measurement that is wanted.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Sluice's program
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/sluice")]
    sluice: PathBuf,
    /// These pools, separated by commas: those by TLS can be flooded with handshakes [default: pool-tls,pgbouncer-tls]
    #[arg(long, value_name = "TARGET", value_delimiter = ',')]
    targets: Vec<Target>,
    /// Instead of floods: how many whole TLS handshakes a second the targets do, and what one costs them
    /// [targets: pool-tls,pgbouncer-tls,straight]
    #[arg(long)]
    full_handshakes: bool,
    /// The keys of the certificates that they show then, separated by commas
    #[arg(long, value_name = "KEY", value_delimiter = ',', default_values = ["ecdsa", "rsa"])]
    keys: Vec<KeyKind>,
    /// Connections a second that stop in the midst of a log-in; each stays for five seconds
    #[arg(long, value_name = "N", default_value_t = 500)]
    logins: u32,
    /// Cancels a second
    #[arg(long, value_name = "N", default_value_t = 1000)]
    cancels: u32,
    /// TLS handshakes a second
    #[arg(long, value_name = "N", default_value_t = 300)]
    handshakes: u32,
    /// Clients beyond the limit, who try to log in once a second each: with 64 that are served, 576 make ten
    /// times as many as may be there
    #[arg(long, value_name = "N", default_value_t = 9 * CLIENTS)]
    overload: u32,
    /// Floods, separated by commas; without any, the clients are alone
    #[arg(long, value_name = "FLOOD", value_delimiter = ',',
          default_values = ["log-ins", "cancels", "handshakes", "overload"])]
    floods: Vec<Flood>,
    /// Length of a turn
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u32).range(4..=3600))]
    seconds: u32,
    /// Turns of each target in each flood
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    turns: u32,
}

/// One turn of one target.
struct Figures {
    tps: f64,
    p99_ms: Option<f64>,
    /// The flood's connections a second, and the share of them that came to nothing.
    made_per_s: f64,
    failed: f64,
    /// The times within which half of them, and 99 of 100, were answered.
    answered_ms: [Option<f64>; 2],
}

/// The turns, by target and flood.
type Results = BTreeMap<(String, Flood), Vec<Figures>>;

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let targets = options.targets()?;
    let interrupt = Interrupt::install()?;
    // PgBouncer runs as another user, and reads its files there.
    let scratch = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir()?;
    if options.full_handshakes {
        let bench = handshakes::Bench {
            sluice: &options.sluice,
            targets: &targets,
            seconds: options.seconds,
            turns: options.turns,
            scratch: scratch.path(),
            interrupt: &interrupt,
        };
        for keys in &options.keys {
            println!("{}\n", bench.run(*keys)?);
        }
        return Ok(ExitCode::SUCCESS);
    }
    raise_open_files();
    let mut server = Server::create(&scratch.path().join("postgres"), None, &interrupt)?;
    let scenario = Scenario::find(SCENARIO)?;
    let settings = scenario.settings.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    server.ensure(&settings, Class::default())?;
    let rows = scenario.data.size.rows(0);
    let database = server.database(&Tables { data: scenario.data.clone(), rows, unlogged: false })?;
    let load = Load { protocol: Protocol::Extended, ..scenario.load };
    let mut results = Results::new();
    for round in 0..options.turns {
        for target in &targets {
            let found = target.pool().context("it is a pool")?;
            let kind = PoolKind { build: Some(options.sluice.clone()), ..found.clone() };
            for flood in Flood::of_round(round).filter(|flood| options.takes(*flood, &kind)) {
                let mut pool = Pool::start(&kind, &server, options.room(flood), scratch.path(), &interrupt)?;
                let served = Served {
                    server: &server,
                    load: &load,
                    endpoint: &server.endpoint_by(&database, pool.port, pool.tls)?,
                    spare: server.first_user(&database, pool.port)?,
                    scratch: scratch.path(),
                    interrupt: &interrupt,
                };
                served.pgbench(load.warm_up_seconds, |_| ()).context("warm-up")?;
                let measured =
                    served.meanwhile(options.seconds, flood, || Flooding::start(flood, pool.port, options.rate(flood)));
                pool.check()?;
                interrupt.check()?;
                let figures = measured?;
                eprintln!(
                    "{} {target:<15} {:<11} {:>8.0} tps, p99 {:.2} ms",
                    round + 1,
                    flood.name(),
                    figures.tps,
                    figures.p99_ms.unwrap_or(f64::NAN)
                );
                results.entry((target.name.clone(), flood)).or_default().push(figures);
            }
        }
    }
    ensure!(!results.is_empty(), "no turn was taken");
    println!("{}", summary(&results));
    Ok(ExitCode::SUCCESS)
}

/// The clients that are served, and the place where they are.
struct Served<'a> {
    server: &'a Server,
    load: &'a Load,
    endpoint: &'a Endpoint,
    /// For clients of our own, beside them.
    spare: Access,
    scratch: &'a Path,
    interrupt: &'a Interrupt,
}

impl Served<'_> {
    fn pgbench(&self, seconds: u32, see: impl FnMut(Moment)) -> Result<Outcome, sluice_lab::Error> {
        let pgbench = Pgbench {
            program: &self.server.bin().join("pgbench"),
            scripts: &[Script { name: "select-only".to_owned(), text: None, weight: 1 }],
            variables: Vec::new(),
            load: self.load,
            clients: CLIENTS,
            seconds,
            statements: false,
            endpoint: self.endpoint,
            scratch: self.scratch,
            interrupt: self.interrupt,
        };
        pgbench.run(see)
    }

    /// A turn in a flood.
    fn meanwhile(&self, seconds: u32, flood: Flood, begin: impl Fn() -> Result<Flooding>) -> Result<Figures> {
        let mut spare = Vec::new();
        let mut flooding = if flood == Flood::Overload { None } else { Some(begin()?) };
        let mut begun = Ok(());
        let measured = self.pgbench(seconds, |moment| match moment {
            // All are connected. The places that are left are taken by clients that are quiet, so that nobody else finds
            // one.
            Moment::Report(_) if flooding.is_none() && begun.is_ok() => {
                spare.extend((0..SPARE_CLIENTS).map(|_| self.spare.connect()));
                begun = begin().map(|running| flooding = Some(running));
            }
            // Those who are served are about to leave, and others would find their places.
            Moment::Ending => flooding.iter_mut().for_each(Flooding::end),
            _ => {}
        });
        let flooded = flooding.map(Flooding::stop);
        begun?;
        let measured = measured?;
        let spare: Result<Vec<_>, _> = spare.into_iter().collect();
        drop(spare.context("a place in the pool was not to be had")?);
        Ok(Figures::of(&measured, &flooded.context("pgbench has reported nothing")?, seconds))
    }
}

impl Options {
    /// The targets that are asked for, if this machine has them.
    fn targets(&self) -> Result<Vec<Target>> {
        let default: &[&str] = match self.full_handshakes {
            true => &["pool-tls", "pgbouncer-tls", "straight"],
            false => &["pool-tls", "pgbouncer-tls"],
        };
        let mut targets = self.targets.clone();
        if targets.is_empty() {
            targets = default.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
        }
        for target in &targets {
            let fits = self.full_handshakes || target.pool().is_some();
            ensure!(fits, "{target} is no pool: choose from pool, pool-tls, pgbouncer, pgbouncer-tls");
            if let Some(why) = target.lacks(false) {
                bail!("{target}: {why}");
            }
        }
        Ok(targets)
    }

    /// Whether clients of such a pool meet with that flood.
    fn takes(&self, flood: Flood, kind: &PoolKind) -> bool {
        match flood {
            Flood::None => true,
            Flood::Handshakes => kind.tls && self.floods.contains(&flood),
            _ => self.floods.contains(&flood),
        }
    }

    /// Clients that the pool has room for, its spare places aside: all that come, unless there are to be too many.
    fn room(&self, flood: Flood) -> u32 {
        match flood {
            Flood::Overload => CLIENTS,
            _ => CLIENTS + ROOM_S * self.rate(flood),
        }
    }

    /// Connections a second.
    fn rate(&self, flood: Flood) -> u32 {
        match flood {
            Flood::None => 0,
            Flood::Logins => self.logins,
            Flood::Cancels => self.cancels,
            Flood::Handshakes => self.handshakes,
            Flood::Overload => self.overload,
        }
    }
}

impl Figures {
    fn of(measured: &Outcome, flooded: &Flooded, seconds: u32) -> Self {
        let reports = measured.progress.iter().filter(|report| report.elapsed_s > f64::from(SETTLING_S) + 0.5);
        let (sum, count) = reports.fold((0.0, 0.0), |(sum, count), report| (sum + report.tps, count + 1.0));
        let settled = measured.latencies.within(SETTLING_S.into(), seconds.into());
        Self {
            tps: if count > 0.0 { sum / count } else { measured.summary.tps },
            p99_ms: settled.map(|(p99_ms, _)| p99_ms),
            made_per_s: flooded.made as f64 / flooded.seconds,
            failed: flooded.failed as f64 / flooded.made.max(1) as f64,
            answered_ms: [0.5, 0.99].map(|share| flooded.answered_ms(share)),
        }
    }
}

/// Medians, and each flood's beside those without one.
fn summary(results: &Results) -> String {
    let head = [
        "target",
        "flood",
        "connections/s",
        "failed",
        "answered in, ms: half, 99 %",
        "tps",
        "p99, ms",
        "p99 / alone (wanted: ≤ 2)",
    ];
    let row = |((target, flood), turns): (&(String, Flood), &Vec<Figures>)| {
        let of = |figure: fn(&Figures) -> Option<f64>| median(turns.iter().filter_map(figure));
        let alone = results.get(&(target.clone(), Flood::None)).filter(|_| *flood != Flood::None).into_iter().flatten();
        let ratio = of(|turn| turn.p99_ms).zip(median(alone.filter_map(|turn| turn.p99_ms)));
        let ratio = match ratio.map(|(flooded, alone)| flooded / alone) {
            Some(ratio) if ratio > RATIO_MAX => format!("**{ratio:.2}**"),
            Some(ratio) => format!("{ratio:.2}"),
            None => "–".to_owned(),
        };
        let show =
            |value: Option<f64>, digits: usize| value.map_or("–".to_owned(), |value| format!("{value:.digits$}"));
        vec![
            target.clone(),
            flood.name().to_owned(),
            show(of(|turn| Some(turn.made_per_s)), 0),
            show(of(|turn| Some(turn.failed * 100.0)), 0) + " %",
            match (of(|turn| turn.answered_ms[0]), of(|turn| turn.answered_ms[1])) {
                (Some(half_ms), Some(most_ms)) => format!("{half_ms:.1}, {most_ms:.1}"),
                _ => "–".to_owned(),
            },
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
        let answered_ms = [Some(1.5), Some(8.0)];
        let turn = |p99_ms| Figures { tps: 100.0, p99_ms: Some(p99_ms), made_per_s: 10.0, failed: 0.5, answered_ms };
        let results = Results::from([
            (("pool-tls".to_owned(), Flood::None), vec![turn(1.0), turn(9.0), turn(2.0)]),
            (("pool-tls".to_owned(), Flood::Cancels), vec![turn(3.0)]),
            (("pool-tls".to_owned(), Flood::Logins), vec![turn(5.0)]),
        ]);
        let table = summary(&results);
        for line in [
            "| pool-tls | none | 10 | 50 % | 1.5, 8.0 | 100 | 2.00 | – |",
            "| pool-tls | cancels | 10 | 50 % | 1.5, 8.0 | 100 | 3.00 | 1.50 |",
            "| pool-tls | log-ins | 10 | 50 % | 1.5, 8.0 | 100 | 5.00 | **2.50** |",
        ] {
            let is_it = |found: &str| found.split_whitespace().eq(line.split_whitespace());
            assert!(table.lines().any(is_it), "{table}");
        }
    }
}
