//! The `sluice` command: arguments in, exit code out. A library, so that manual pages and completions can be made of its
//! command line.
//!
//! It decides nothing about PostgreSQL (`sluice-instance`), the pool (`sluice-proxy`) or what is measured and reviewed
//! (`sluice-lab`); it puts them together and talks to the terminal.

#[macro_use]
mod say;

mod bench;
mod class;
mod cluster;
mod console;
mod convert;
mod instance;
mod json_lines;
mod listen;
mod node;
mod number;
mod output;
mod ready;
mod review;
mod serve;
mod signals;
mod systemd;
mod top;
mod up;
mod upgrade;

use std::{io::IsTerminal, path::PathBuf, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

/// A connection pool for PostgreSQL, and PostgreSQL behind it.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a PostgreSQL on this machine and the pool in front of it; Ctrl-C stops both
    Up(up::UpArgs),
    /// Start the pool in front of a PostgreSQL that is already running
    ///
    /// SIGHUP has it read the configuration again, all or nothing. SIGUSR2 starts the program anew: the new process takes
    /// over without a refused connection, and this one ends with its last client. SIGTERM and SIGINT end it once
    /// transactions have finished, or after shutdown_grace; a second one ends it at once.
    ///
    /// It tells systemd when it is ready (NOTIFY_SOCKET), feeds its watchdog (WATCHDOG_USEC), and takes its sockets
    /// (LISTEN_FDS). RUST_LOG chooses what is logged to standard error.
    Serve {
        /// The configuration
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
        /// The form of the log
        #[arg(long, value_enum, value_name = "FORM", default_value_t, env = "SLUICE_LOG_FORMAT")]
        log_format: LogFormat,
    },
    /// Check a configuration without starting anything
    Check {
        /// The configuration
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Turn a configuration of PgBouncer's into one of Sluice's, and say what is not carried over
    Convert(convert::ConvertArgs),
    /// Show what goes on in a pool now, from its admin console: databases, waits, and what runs most
    Top(top::TopArgs),
    /// Look at a cluster, and switch over, restart or configure its nodes with clients held
    #[command(subcommand)]
    Cluster(Box<cluster::ClusterCommand>),
    /// Keep one host of a cluster: its etcd, Patroni and PostgreSQL; the certificates for all hosts, and more
    ///
    /// SIGTERM and SIGINT end it: PostgreSQL shuts down in order, and a primary hands over; a second one makes that quicker.
    /// It tells systemd when the host has its place (NOTIFY_SOCKET). RUST_LOG chooses what is logged to standard error.
    Node(node::NodeArgs),
    /// Measure PostgreSQL, the gate and pools with pgbench, and explain what is seen
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Review the settings of a PostgreSQL: what should change, why, and at what risk
    Review(review::ReviewArgs),
}

/// The form of the log's lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object each.
    Json,
}

/// Carries out the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    start_log(match &cli.command {
        Command::Serve { log_format, .. } => *log_format,
        _ => LogFormat::Text,
    });
    let done = match cli.command {
        Command::Up(args) => up::up(args),
        Command::Serve { config, .. } => serve::serve(&config),
        Command::Check { config } => serve::check(&config),
        Command::Convert(args) => convert::convert(&args),
        Command::Top(args) => top::top(&args),
        Command::Cluster(command) => cluster::cluster(*command),
        Command::Node(args) => node::node(args),
        Command::Bench(command) => bench::bench(command),
        Command::Review(args) => review::review(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<serve::Told>() => ExitCode::FAILURE,
        Err(error) => {
            say_aside!("sluice: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The command line, as manual pages and completions are made of it.
pub fn command_line() -> clap::Command {
    Cli::command()
}

/// The log goes to standard error; `RUST_LOG` chooses what.
fn start_log(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| say::Log);
    match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
        LogFormat::Json => log.event_format(json_lines::JsonLines).init(),
    }
}
