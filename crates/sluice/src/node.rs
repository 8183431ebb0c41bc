//! `sluice node`: one host of a cluster, with its etcd, its Patroni and its PostgreSQL, in the foreground; and what has
//! to be done once, for all hosts or for one.

use std::{
    cell::Cell,
    io::Write,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, bail};
use clap::{Args, Subcommand};
use sluice_config::{NodeConfig, load_node};
use sluice_instance::{
    Binaries, Observer, RunAs, StopMode, Tuning,
    bootstrap::{self, HostRoles, PasswordCopy, PasswordFile},
    cluster::{self, Again, Environment, HostSpec, Node, make_bundles},
};

use crate::{
    console::Console,
    instance::default_cache,
    signals::{Signals, Wake},
    systemd::Systemd,
};

/// The usual place of a host's file.
const FILE: &str = "/etc/sluice/node.toml";

/// The user of a witness, which Debian's package of etcd makes.
const WITNESS_USER: &str = "etcd";

/// Time limit for PostgreSQL's shutdown, before it becomes an immediate one.
const STOP_TIME_MAX: Duration = Duration::from_secs(60);

/// The interval at which it is looked whether the node has another role.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The interval at which it is told that something can't be mended.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// The interval at which certificates and the disk are looked at.
const WARN_LOOK_EVERY: Duration = Duration::from_secs(20);

/// The interval at which it is warned of certificates that end soon, while nothing else is to be said of them.
const WARN_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// Arguments of `sluice node`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    file: FileArg,
    #[command(subcommand)]
    command: Option<NodeCommand>,
}

#[derive(Debug, Args)]
struct FileArg {
    /// This host's file
    #[arg(short, long, value_name = "FILE", default_value = FILE)]
    config: PathBuf,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    /// Make an authority, and a folder with certificates for each host
    ///
    /// What is there already is kept: for a further host, name it with the same folder.
    Ca {
        /// The folder; its ca.key is the cluster's most precious secret, and no host needs it
        dir: PathBuf,
        /// The hosts, each with its addresses
        #[arg(required = true, value_name = "NAME=ADDRESS[,ADDRESS]", value_parser = parse_host)]
        hosts: Vec<(String, Vec<IpAddr>)>,
    },
    /// Have a new cluster begin on this host, when "sluice node" is started next; once, and on one host only
    ///
    /// With an empty data directory it makes one. The data of a single node ("sluice up"), stopped, become the cluster's.
    Init {
        /// Though it belonged to a cluster before: etcd's data are lost on all hosts, and this one was the last primary
        #[arg(long)]
        again: bool,
        /// Though it was no primary that was shut down in order: it has been compared with the other hosts, and goes furthest
        #[arg(long, requires = "again")]
        force: bool,
        #[command(flatten)]
        file: FileArg,
    },
    /// Check this host's file and its certificates, without starting anything
    Check {
        #[command(flatten)]
        file: FileArg,
    },
    /// Take a host out of etcd that is gone for good
    Remove {
        /// The host
        name: String,
        /// Though it answers: its etcd ends, and its PostgreSQL takes no writes any more
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        file: FileArg,
    },
}

/// Carries out a command.
pub(crate) fn node(args: NodeArgs) -> Result<()> {
    match args.command {
        None => run(&args.file.config),
        Some(NodeCommand::Ca { dir, hosts }) => ca(&dir, &hosts),
        Some(NodeCommand::Init { again, force, file }) => init(
            &file.config,
            match (again, force) {
                (false, _) => Again::No,
                (true, false) => Again::Whole,
                (true, true) => Again::Force,
            },
        ),
        Some(NodeCommand::Check { file }) => check(&file.config),
        Some(NodeCommand::Remove { name, force, file }) => {
            cluster::remove(&load(&file.config)?, &name, force)?;
            say!("{name} is no longer a member of etcd, and Patroni forgets it by itself");
            say!(
                "there is one vote less until its successor is there (sluice cluster status says what that means): put its"
            );
            say!(
                "[[member]] in the place of {name}'s in all hosts' files, systemctl reload sluice-node there, and start it"
            );
            Ok(())
        }
    }
}

fn load(file: &Path) -> Result<NodeConfig> {
    load_node(file).map_err(|report| anyhow!("{report}"))
}

fn ca(dir: &Path, hosts: &[(String, Vec<IpAddr>)]) -> Result<()> {
    for bundle in make_bundles(dir, hosts)? {
        let what = if bundle.is_new { "made" } else { "was there, and is kept" };
        say!("{} {what}", bundle.dir.display());
    }
    cluster::authority_ends(dir).iter().for_each(|end| say!("warning: {end}"));
    say!(
        "Each host gets its own folder (ca_file, cert_file and key_file in its node.toml). Keep {} elsewhere.",
        dir.join("ca.key").display()
    );
    Ok(())
}

fn check(file: &Path) -> Result<()> {
    let config = load(file)?;
    cluster::check(&config)?;
    run_as(&config)?;
    if !config.own().is_witness {
        binaries(&config)?;
        check_patroni_dir(&config)?;
    }
    cluster::certificate_ends(&config).iter().for_each(|end| say!("warning: {end}"));
    say!("{}: good", file.display());
    Ok(())
}

/// A folder that is named has to be there, or to be one that can be made in another: a path that is mistyped would have pip
/// fetch everything to it.
fn check_patroni_dir(config: &NodeConfig) -> Result<()> {
    let Some(dir) = &config.patroni_dir else { return Ok(()) };
    if dir.is_dir() {
        return Ok(());
    }
    if dir.exists() || !dir.parent().is_some_and(Path::is_dir) {
        bail!(
            "{}: patroni_dir: there is no folder {}\nname one that is there; or leave it out: it is then /var/cache/sluice",
            config.file.display(),
            dir.display()
        );
    }
    say!("{} is made at the first start, which has pip fetch Patroni's packages", dir.display());
    Ok(())
}

fn init(file: &Path, again: Again) -> Result<()> {
    let config = load(file)?;
    let signals = Signals::install()?;
    let console = Console::new(signals.sender());
    let data = cluster::begin(&config, &run_as(&config)?, binaries(&config)?, &console, again)?;
    drop(console);
    if let Some(data) = data {
        say!("{data}");
        say!("A host that goes further is refused when it is started. Then begin again there, instead of here.");
    }
    say!("Cluster {} begins here. Start sluice node on this host, then on the others.", config.cluster);
    Ok(())
}

fn run_as(config: &NodeConfig) -> Result<RunAs> {
    let is_root = RunAs::resolve(None).map_or(true, |oneself| oneself.switches());
    let usual = (is_root && config.own().is_witness).then_some(WITNESS_USER);
    RunAs::resolve(config.run_as.as_deref().or(usual))
        .map_err(|error| anyhow!("{}: run_as: {error}", config.file.display()))
}

fn binaries(config: &NodeConfig) -> Result<Binaries> {
    Binaries::find(config.pg_bin.as_deref()).map_err(|error| anyhow!("{}: pg_bin: {error}", config.file.display()))
}

/// Keeps the host until a signal.
fn run(file: &Path) -> Result<()> {
    let signals = Signals::install()?;
    let console = Arc::new(Console::new(signals.sender()));
    let config = load(file)?;
    let run_as = run_as(&config)?;
    let observer: Arc<dyn Observer> = Arc::<Console>::clone(&console);
    let mut tuning = Tuning { has_pool_secret: false, ..Tuning::new(sluice_instance::Host::current(), POOL_SIZE) };
    let programs = if config.own().is_witness {
        None
    } else {
        let binaries = binaries(&config)?;
        console.line(&format!("PostgreSQL {} in {}", binaries.version, binaries.dir.display()));
        tuning = tuning.with_gate_of(&binaries);
        let base = config.patroni_dir.clone().map_or_else(|| default_cache(run_as.switches()), Ok)?;
        Some((binaries, Environment::prepare(&base, &run_as, &*observer)?))
    };
    let spec = HostSpec { config: config.clone(), run_as, programs, tuning, stop_timeout: STOP_TIME_MAX };
    // From now on there is something to end in order.
    signals.running();
    let pause = |time| !matches!(signals.wait_for(time), Some(Wake::Signal | Wake::End | Wake::Down(_)));
    let systemd = Systemd::default();
    let Some(mut host) = cluster::Host::start(spec, observer, &pause)? else {
        systemd.stopping("Stopped while starting");
        console.line("stopped while starting");
        return Ok(());
    };
    console.ready();
    let name = &config.own().name;
    let (mut warned, mut told): (Option<Warned>, Option<Instant>) = (None, None);
    let mut role = host.role();
    systemd.ready(&status(&host, role.as_deref()));
    if let (Some(roles), Some(node)) = (host.roles(), host.node()) {
        // The host goes on even if nobody reads this.
        let _ = writeln!(std::io::stdout(), "{}", beginning(&config, node, roles));
    }
    loop {
        Warned::warn(&mut warned, &host);
        match mend(&host, &signals, &mut told).or_else(|| signals.wait_for(LOOK_EVERY)) {
            None => {}
            Some(Wake::Reload) => match load(file).and_then(|config| Ok(host.reload(config)?)) {
                Ok(()) => tracing::info!(
                    "{} is read again: members, hba and client_networks count now, all else from the next start on",
                    file.display()
                ),
                Err(error) => tracing::warn!("the file is not taken, and nothing is changed: {error}"),
            },
            Some(Wake::Upgrade) => {
                tracing::warn!("SIGUSR2 is for \"sluice serve\": sluice node has to be started again")
            }
            Some(_) => break,
        }
        let now = host.role();
        if now != role {
            role = now;
            tracing::info!("{name}: {}", status(&host, role.as_deref()));
            systemd.ready(&status(&host, role.as_deref()));
        }
    }
    tracing::info!("stopping: PostgreSQL shuts down in order; a second signal makes it quicker");
    systemd.stopping("Stopping: PostgreSQL shuts down in order");
    thread::scope(|scope| {
        scope.spawn(|| {
            while signals.wait_again() {
                host.request_stop(StopMode::Immediate);
            }
        });
        let report = host.stop();
        signals.end();
        tracing::info!("stopped ({:.1} s)", report.took.as_secs_f64());
    });
    Ok(())
}

/// Warnings of certificates that end soon, or have ended, and of a disk that is full.
struct Warned {
    looked: Instant,
    said: Instant,
    ends: Vec<String>,
    is_full: bool,
}

impl Warned {
    /// Warns once a day, and when something else is to be said than before: one has ended, or the disk has become full.
    fn warn(last: &mut Option<Self>, host: &cluster::Host) {
        if last.as_ref().is_some_and(|last| last.looked.elapsed() < WARN_LOOK_EVERY) {
            return;
        }
        let (now, ends, full) = (Instant::now(), host.certificate_ends(), host.full_disk());
        if let Some(full) = full.as_ref().filter(|_| !last.as_ref().is_some_and(|last| last.is_full)) {
            tracing::warn!("{full}");
        }
        let is_said = last.take().filter(|last| last.ends == ends && last.said.elapsed() < WARN_EVERY);
        let said = is_said.map_or_else(
            || {
                ends.iter().for_each(|end| tracing::warn!("{end}"));
                now
            },
            |last| last.said,
        );
        *last = Some(Self { looked: now, said, ends, is_full: full.is_some() });
    }
}

/// Has an etcd whose data are gone join anew; ends with that, or with what comes in between.
fn mend(host: &cluster::Host, signals: &Signals, told: &mut Option<Instant>) -> Option<Wake> {
    let wake = Cell::new(None);
    let pause = |time| {
        let came = signals.wait_for(time);
        let goes_on = came.is_none();
        wake.set(came);
        goes_on
    };
    if let Err(error) = host.mend_etcd(&pause)
        && told.is_none_or(|at| at.elapsed() >= TELL_EVERY)
    {
        *told = Some(Instant::now());
        tracing::error!("{error}");
    }
    wake.into_inner()
}

/// Connections that a pool may have: with the reserve they are PostgreSQL's own default, which the cluster begins with.
const POOL_SIZE: u32 = 20;

fn status(host: &cluster::Host, role: Option<&str>) -> String {
    match role {
        Some(role) => format!("its PostgreSQL is {role}"),
        None if host.node().is_some() => "its Patroni does not answer".to_owned(),
        None => "it votes".to_owned(),
    }
}

/// The lines that describe a cluster that has begun.
fn beginning(config: &NodeConfig, node: &Node, roles: &HostRoles) -> String {
    let (socket, port) = (node.socket_dir.display(), node.postgres.port());
    let mut text = format!(
        "\nCluster {} has begun. {}\n\n\
         Superuser here   psql -h {socket} -p {port} -U {}\n\
         First user       {}, {}\n\
         For the pool     [auth.lookup] user = \"{}\", {}, query = \"{}\"\n\
         Its nodes        sluice cluster status --data {}",
        config.cluster,
        waits_for(config.members.len()),
        bootstrap::SUPERUSER,
        roles.first_user.role,
        place(&roles.first_user),
        roles.lookup.role,
        place(&roles.lookup),
        roles.lookup_query,
        config.data.display(),
    );
    for file in [&roles.first_user, &roles.lookup] {
        text += &kept(file);
    }
    for refused in &roles.without_extension {
        text += &format!("\n\nCREATE EXTENSION {} fails in database {refused}", bootstrap::GATE);
    }
    text
}

/// The hosts that the commits of a cluster of so many wait for: there are three, or one alone.
fn waits_for(hosts: usize) -> &'static str {
    match hosts {
        1 => "It has this host alone, and its data are on one disk.",
        _ => "Its commits wait for a second host: start the others.",
    }
}

fn place(file: &PasswordFile) -> String {
    match file.copy {
        PasswordCopy::Good => format!("password in {}", file.path.display()),
        PasswordCopy::None | PasswordCopy::Other(_) => "password as before (see below)".to_owned(),
    }
}

/// Words for a role that has kept its password, which this host does not know.
fn kept(file: &PasswordFile) -> String {
    let (role, path) = (file.role, file.path.display());
    let what = match &file.copy {
        PasswordCopy::Good => return String::new(),
        PasswordCopy::None => format!("{role} has kept its password, of which this host has no copy."),
        PasswordCopy::Other(why) => format!("{role} has kept its password, which is not the one in {path} ({why})."),
    };
    format!(
        "\n\n{what} The right one is in the same file of the host on which the cluster first began, and with the pools:\n\
         copy it to {path}. If it is lost: ALTER ROLE {role} PASSWORD '…', and the same in that file and with the pools."
    )
}

fn parse_host(text: &str) -> Result<(String, Vec<IpAddr>), String> {
    let form = "a name and its addresses are needed, as in node1=10.0.0.1 or node1=10.0.0.1,fd00::1";
    let (name, addresses) = text.split_once('=').ok_or(form)?;
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(is_plain) || name.len() > 32 {
        return Err(format!("{name:?} is no name of a host: at most 32 of a to z, 0 to 9, - and _, a letter first"));
    }
    let addresses: Vec<IpAddr> =
        addresses.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| form.to_owned())?;
    Ok((name.to_owned(), addresses))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_on_the_command_line() {
        let (name, addresses) = parse_host("db-1=10.0.0.1,fd00::1").unwrap();
        assert_eq!((&*name, addresses.len()), ("db-1", 2));
        for bad in ["db1", "db1=", "DB1=10.0.0.1", "1db=10.0.0.1", "a/b=10.0.0.1", "db1=host"] {
            assert!(parse_host(bad).is_err(), "{bad}");
        }
    }
}
