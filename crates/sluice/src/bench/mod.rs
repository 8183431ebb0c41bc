//! `sluice bench`: arguments in, a report out. What is measured and how is `sluice-lab`'s.

mod display;
mod handshakes;

use std::{
    fs,
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail};
use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use sluice_instance::RunAs;
use sluice_lab::{
    compare::{self, Named},
    plan::{Choices, Plan},
    process::{Interrupt, shell_word},
    report,
    require::Requirements,
    result::RunResult,
    run::{self, Order},
    sample,
    scenario::{self, Protocol, Scenario},
    server::Settings,
    target::{Kind, Target},
};

use self::{
    display::Display,
    handshakes::{HandshakesArgs, handshakes},
};
use crate::{class::ClassArgs, instance::default_cache, number::number};

/// The directory for runs, unless told otherwise.
const RESULTS: &str = "sluice-bench";

/// Arguments of `sluice bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Run a scenario and write a report
    Run(Box<RunArgs>),
    /// Count the whole TLS handshakes that servers do in a second, and measure what one costs them
    Handshakes(HandshakesArgs),
    /// List the scenarios
    List,
    /// Compare stored runs: the first with each of the others; or the targets of a run with what is required of them
    Compare {
        /// Their directories, result.json or report.html
        #[arg(required = true, value_name = "RUN")]
        runs: Vec<PathBuf>,
        /// Fail unless each run's targets stand to each other as this file requires
        #[arg(long, value_name = "FILE")]
        require: Option<PathBuf>,
        /// Also write the comparison as a page
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Write the report of a stored run anew
    Report {
        /// Its directory
        dir: PathBuf,
    },
}

/// Arguments of `sluice bench run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A scenario's name, or a folder with a scenario.toml
    #[arg(value_name = "SCENARIO")]
    scenario: String,
    /// Clients at once, a step of the ladder each
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = number::<u32, _>(1..=65536))]
    clients: Option<Vec<u32>>,
    /// Length of a turn, from when all clients are connected
    #[arg(long, value_name = "S", value_parser = number::<u32, _>(1..=86400))]
    seconds: Option<u32>,
    /// Turns of each target at each step
    #[arg(long, value_name = "N", value_parser = number::<u32, _>(1..=100))]
    turns: Option<u32>,
    /// Who answers: straight, gate, gate-LIMIT, pool, pool-epoll, pool-tls, pool-extension, pool-everything (all
    /// features switched on), pgbouncer, pgbouncer-tls, haproxy, nodes-1, nodes-2 and nodes-3 (also nodes-3-2ms, so far
    /// from each other), pool-nodes-3 and pool-nodes-3-fixed (a pool that follows them or does not), NAME=DSN, or
    /// NAME=PROGRAM for another build of Sluice; may be given several times
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<Target>,
    /// Only these variants of the scenario
    #[arg(long = "variant", value_name = "NAME")]
    variants: Vec<String>,
    /// Rows of the tables, or pgbench's scale
    #[arg(long, value_name = "N", value_parser = number::<u64, _>(1..))]
    rows: Option<u64>,
    /// How pgbench sends statements
    #[arg(long, value_name = "PROTOCOL", value_parser = protocols())]
    protocol: Option<Protocol>,
    /// Transactions a second that become due; latencies count from then
    #[arg(long, value_name = "TPS")]
    rate: Option<f64>,
    /// A setting of the servers, NAME=VALUE; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_setting)]
    settings: Vec<(String, String)>,
    /// A setting to vary, NAME=VALUE,VALUE,…; multiplies the variants
    #[arg(long, value_name = "NAME=VALUES", value_parser = parse_vary)]
    vary: Vec<(String, Vec<String>)>,
    /// Server samples per second; 0 disables sampling
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u32, _>(0..=sample::HZ_MAX))]
    sample_hz: u32,
    /// Run again with each cause of a stall taken away, and say whether the stall went with it
    #[arg(long)]
    confirm: bool,
    /// A run of seconds: less of everything, to see that it works
    #[arg(long)]
    brief: bool,
    /// Fail unless the targets stand to each other as this file requires
    #[arg(long, value_name = "FILE")]
    require: Option<PathBuf>,
    /// Where the results go [default: sluice-bench/SCENARIO-N, the next free N]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    output: Option<PathBuf>,
    /// Go on with a run that was cut short: its directory
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    #[command(flatten)]
    class: ClassArgs,
    /// The folder of PostgreSQL's programs
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,
    /// Where Patroni's Python packages are kept, for several nodes; made once [default: /var/cache/sluice for root, else
    /// $XDG_CACHE_HOME/sluice or ~/.cache/sluice]
    #[arg(long, value_name = "DIR")]
    patroni_dir: Option<PathBuf>,
}

fn protocols() -> impl TypedValueParser<Value = Protocol> {
    let named = |word: String| Protocol::ALL.into_iter().find(|protocol| protocol.flag() == word);
    PossibleValuesParser::new(Protocol::ALL.map(Protocol::flag)).map(move |word| named(word).unwrap_or_default())
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a setting is NAME=VALUE, for example work_mem=64MB")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn parse_vary(text: &str) -> Result<(String, Vec<String>), String> {
    let (name, values) = parse_setting(text)?;
    let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
    Ok((name, values))
}

/// Carries a command out.
pub(crate) fn bench(command: BenchCommand) -> Result<()> {
    match command {
        BenchCommand::Run(args) => run(*args),
        BenchCommand::Handshakes(args) => handshakes(args),
        BenchCommand::List => list(),
        BenchCommand::Compare { runs, require, html } => compare_runs(&runs, require.as_deref(), html.as_deref()),
        BenchCommand::Report { dir } => {
            let result = read(&dir)?;
            let written = report::write(&result, &dir)?;
            say(&format!("{}\n", written.html.display()))
        }
    }
}

fn run(args: RunArgs) -> Result<()> {
    let scenario = Scenario::find(&args.scenario)?;
    let (output, resume) = (args.output.clone(), args.resume.clone());
    let requirements = args.require.as_deref().map(Requirements::read).transpose()?;
    let plan = Plan::new(scenario, choices(args))?;
    let (dir, earlier) = match resume {
        Some(dir) => {
            let earlier = read(&dir)?;
            run::check_resumed(&plan, &earlier)?;
            (dir, Some(earlier))
        }
        None => (new_dir(output.as_deref(), &plan.scenario.name)?, None),
    };
    let interrupt = Interrupt::install()?;
    let display = Display::new(std::io::stderr().is_terminal());
    let order = Order {
        plan: &plan,
        dir: &dir,
        command: command_line(std::env::args_os().map(|word| word.to_string_lossy().into_owned())),
        earlier,
        progress: &display,
        interrupt: &interrupt,
    };
    let done = run::run(&order);
    display.finish();
    let result = done.inspect_err(|_| {
        // Nothing was begun, if it is empty.
        let _ = fs::remove_dir(&dir);
    })?;
    let written = report::write(&result, &dir)?;
    say(&format!("{}\nReport: {}\n", report::summary(&result), written.html.display()))?;
    match &result.cut_short {
        None if result.measured().next().is_none() => bail!("no target went through a turn; the report says why"),
        None => requirements.map_or(Ok(()), |required| {
            check_required(&required, &[Named { name: &plan.scenario.name, result: &result }])
        }),
        Some(why) => {
            let resume = shell_word(&dir.display().to_string());
            Err(anyhow!("{why}; what was measured is kept\ngo on with: {} --resume {resume}", result.command))
        }
    }
}

fn choices(args: RunArgs) -> Choices {
    let some = |list: Vec<_>| if list.is_empty() { None } else { Some(list) };
    Choices {
        clients: args.clients,
        seconds: args.seconds,
        targets: if args.targets.is_empty() { None } else { Some(args.targets) },
        variants: some(args.variants),
        turns: args.turns,
        rows: args.rows,
        protocol: args.protocol,
        rate: args.rate,
        settings: args.settings.into_iter().collect::<Settings>(),
        vary: args.vary,
        brief: args.brief,
        sample_hz: args.sample_hz,
        confirm: args.confirm,
        class: args.class.into(),
        pg_bin: args.pg_bin,
        // Without one, whoever asks for several nodes is told.
        patroni_dir: args.patroni_dir.or_else(|| default_cache(RunAs::resolve(None).ok()?.switches()).ok()),
    }
}

/// The command line as typed, but for DSNs: as they were understood, and without their passwords, which nobody should
/// find in a report. The directory for the results is left out, too: the same run again goes elsewhere.
fn command_line(words: impl Iterator<Item = String>) -> String {
    let mut shown = vec!["sluice".to_owned()];
    let mut is_target = false;
    let mut words = words.skip(1);
    while let Some(word) = words.next() {
        if WHERE.contains(&word.as_str()) {
            words.next();
            continue;
        }
        if WHERE.iter().any(|flag| word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='))) {
            continue;
        }
        let (flag, value) = match word.strip_prefix(TARGET_IS) {
            Some(value) => (TARGET_IS, value),
            None => ("", word.as_str()),
        };
        let is_value = is_target || !flag.is_empty();
        let target = is_value.then(|| value.parse::<Target>().ok()).flatten();
        shown.push(match target.map(|target| (target.kind, target.name)) {
            Some((Kind::Dsn(dsn), name)) => shell_word(&format!("{flag}{name}={}", dsn.conninfo())),
            _ => shell_word(&word),
        });
        is_target = word == TARGET;
    }
    shown.join(" ")
}

/// Options that say where results go.
const WHERE: [&str; 2] = ["--output", "--resume"];
const TARGET: &str = "--target";
const TARGET_IS: &str = "--target=";

/// The next free directory, made.
fn new_dir(told: Option<&Path>, scenario: &str) -> Result<PathBuf> {
    let make = |dir: &Path| {
        fs::create_dir_all(dir).map_err(|error| {
            anyhow!(
                "cannot create {}: {error}\nrun it where you may write, or name another folder by --output",
                dir.display()
            )
        })
    };
    if let Some(dir) = told {
        if dir.join(run::RESULT_FILE).exists() {
            bail!("{} holds a run already\ngo on with it by --resume, or choose another --output", dir.display());
        }
        make(dir)?;
        return Ok(dir.to_owned());
    }
    let free = (1..).map(|number| Path::new(RESULTS).join(format!("{scenario}-{number}"))).find(|dir| !dir.exists());
    let dir = free.context("there is no free number for the run's directory")?;
    make(&dir)?;
    Ok(dir)
}

fn list() -> Result<()> {
    let mut text = String::new();
    for name in scenario::names() {
        let scenario = Scenario::find(name)?;
        text += &format!("{name:<15} {}\n", scenario.title);
    }
    say(&text)
}

fn compare_runs(runs: &[PathBuf], require: Option<&Path>, html: Option<&Path>) -> Result<()> {
    let requirements = require.map(Requirements::read).transpose()?;
    let results = runs.iter().map(|run| read(run)).collect::<Result<Vec<_>>>()?;
    let names = compare::names_of(runs);
    let named: Vec<Named> = names.iter().zip(&results).map(|(name, result)| Named { name, result }).collect();
    // One alone can be held against what is required.
    if runs.len() > 1 || requirements.is_none() || html.is_some() {
        let comparison = compare::compare(&named)?;
        say(&comparison.text())?;
        html.map(|path| comparison.write(path)).transpose()?;
    }
    requirements.map_or(Ok(()), |requirements| check_required(&requirements, &named))
}

/// Says of each run whether it meets what is required, and fails if one does not.
fn check_required(requirements: &Requirements, runs: &[Named<'_>]) -> Result<()> {
    let (mut missed, mut count) = (0, 0);
    for Named { name, result } in runs {
        let judgement = requirements.judge(result);
        say(&format!("# {name}: what is required\n\n{}\n", judgement.text()))?;
        (missed, count) = (missed + judgement.missed(), count + judgement.count());
    }
    if missed > 0 {
        bail!("{missed} of {count} requirements are not met");
    }
    say("All requirements are met.\n")
}

/// A stored run, by its directory or by one of its files.
fn read(path: &Path) -> Result<RunResult> {
    let file = if path.is_dir() { path.join(run::RESULT_FILE) } else { path.to_owned() };
    Ok(report::read(&file)?)
}

/// To standard output; who closes it has heard enough.
fn say(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_do_not_get_into_reports() {
        let shown = |words: &[&str]| command_line(words.iter().map(|word| (*word).to_owned()));
        for target in [
            &["--target", "a=host=b user=u password='top secret' dbname=c"][..],
            &["--target", "a=postgres://u:secret@b/c"],
            &["--target=a=host=b user=u password = secret dbname=c"],
        ] {
            let words = [&["/bin/sluice", "bench", "run", "quick"], target, &["--clients", "4"]].concat();
            let shown = shown(&words);
            let target = "a=host=b port=5432 user=u dbname=c sslmode=prefer' --clients 4";
            assert!(shown.starts_with("sluice bench run quick ") && shown.ends_with(target), "{shown}");
        }
        assert_eq!(shown(&["sluice", "--target", "pool"]), "sluice --target pool");
        let words =
            ["sluice", "bench", "run", "quick", "--output", "/tmp/a", "--brief", "--resume=/tmp/b", "--turns", "2"];
        assert_eq!(shown(&words), "sluice bench run quick --brief --turns 2");
    }

    #[test]
    fn settings() {
        assert_eq!(parse_setting("work_mem = 64MB"), Ok(("work_mem".to_owned(), "64MB".to_owned())));
        assert!(parse_setting("work_mem").is_err());
        assert_eq!(parse_vary("a=1, 2").unwrap().1, ["1", "2"]);
    }
}
