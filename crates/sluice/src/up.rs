//! `sluice up`: PostgreSQL on this machine and the pool before it, from one command to a line to type.

use std::{env, io::Write, net::SocketAddr, path::PathBuf, sync::Arc, thread, time::Duration};

use anyhow::{Result, anyhow, bail};
use clap::{ArgAction, Args};
use sluice_config::{CertificateFiles, DriverChoice, FileServer, ServerFile};
use sluice_instance::{
    Binaries, Class, DataDir, DataDirSpec, Host, Observer, POOL_SECRET, RunAs, Tuning,
    bootstrap::{self, Bootstrapped},
    certificate_in,
    cluster::ClusterSpec,
    write_pool_file,
};

use crate::{
    class::ClassArgs,
    console::Console,
    instance::Instance,
    listen,
    number::number,
    ready::Ready,
    serve::Pool,
    signals::{Signals, Wake},
};

/// Root's data directory.
const SYSTEM_DATA: &str = "/var/lib/sluice";

/// Additional time that a stop may take because of the class, at most.
const STOP_EXTRA_MAX: Duration = Duration::from_secs(600);

/// Arguments of `sluice up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Where everything is kept; created if missing [default: /var/lib/sluice for root, else
    /// $XDG_DATA_HOME/sluice or ~/.local/share/sluice]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where clients connect
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6432", value_parser = parse_listen)]
    listen: SocketAddr,
    /// The folder of PostgreSQL's programs [default: pg_config's, else the newest in /usr/lib/postgresql, else PATH]
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,
    /// The system user that runs PostgreSQL; for root only [default: postgres]
    #[arg(long, value_name = "USER")]
    run_as: Option<String>,
    /// Server connections for each pair of database and user
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = number::<u32, _>(1..=1000))]
    pool_size: u32,
    /// PostgreSQL servers on this machine: one, or two or three that Patroni and etcd keep in step
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<usize, _>(1..=3))]
    nodes: usize,
    /// Where Patroni's Python packages are kept; made once, for several nodes [default: /var/cache/sluice for root, else
    /// $XDG_CACHE_HOME/sluice or ~/.cache/sluice]
    #[arg(long, value_name = "DIR")]
    patroni_dir: Option<PathBuf>,
    /// The first port that is tried when several nodes are made; they keep the fifteen that are free from there on
    #[arg(long, value_name = "PORT", default_value_t = 7400, value_parser = number::<u16, _>(1024..=60000))]
    ports_from: u16,
    /// With three nodes: end a lost primary's lease as soon as the two others agree that it is gone, instead of waiting
    /// for its end
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = parse_switch, action = ArgAction::Set)]
    fast_failover: bool,
    #[command(flatten)]
    class: ClassArgs,
}

/// Runs the service until a signal, or until PostgreSQL can't be kept up.
pub(crate) fn up(args: UpArgs) -> Result<()> {
    let signals = Signals::install()?;
    let console = Arc::new(Console::new(signals.sender()));
    let binaries = Binaries::find(args.pg_bin.as_deref())?;
    let run_as = RunAs::resolve(args.run_as.as_deref())?;
    let data = args.data.map_or_else(|| default_data(run_as.switches()), Ok)?;
    let class = Class::from(args.class);
    if args.nodes > 1 && !class.is_unlimited() {
        bail!("the limits of a class are for one node\nleave them out, or leave out --nodes");
    }
    let tuning = Tuning::for_class(&class, Host::current(), args.pool_size)?;
    listen::check(args.listen)?;
    console.line(&format!("PostgreSQL {} in {}", binaries.version, binaries.dir.display()));

    let tuning = tuning.with_gate_of(&binaries);
    let spec = DataDirSpec::new(data, binaries, run_as);
    let observer: Arc<dyn Observer> = Arc::<Console>::clone(&console);
    let instance = if args.nodes == 1 {
        Instance::one(spec, observer, |config| {
            config.tuning = Some(tuning);
            config.class = class;
            // Else a slow disk by choice would turn every stop into a crash.
            config.stop_timeout += class.time_to_write(tuning.shared_buffers_bytes).min(STOP_EXTRA_MAX);
        })?
    } else {
        let program = holding_program(&spec.run_as, &console);
        let several = |environment| ClusterSpec {
            ports_from: args.ports_from,
            fast_failover: args.fast_failover,
            program,
            ..ClusterSpec::new(args.nodes, spec.clone(), environment, tuning)
        };
        Instance::several(several, &spec.run_as, args.patroni_dir, observer, &signals)?
    };
    console.begin("preparing roles and the pool");
    let (data_dir, primary) = (Arc::clone(instance.data_dir()), instance.primary()?);
    let roles = bootstrap::bootstrap(&data_dir, &primary)?;
    let certificate = certificate_in(data_dir.root(), args.listen.ip())
        .map_err(|error| anyhow!("no certificate can be made in {}: {error}", data_dir.root().display()))?;
    let pool = start_pool(&data_dir, instance.for_pool(), &roles, &certificate, args.listen, args.pool_size, tuning)?;

    let listen = pool.listen_addrs().first().copied().unwrap_or(args.listen);
    instance.tell_pool(listen, &roles.lookup)?;

    console.ready();
    signals.running();
    let ready = Ready {
        binaries: data_dir.binaries(),
        listen,
        pool_size: args.pool_size,
        pgpass: &roles.pgpass_file,
        password: &roles.password_file,
        data: data_dir.root(),
        postgres: &primary,
        certificate: &certificate.cert,
        log: &instance.log(),
        login_refused: roles.login_refused.as_deref(),
        gate: roles.gate,
        without_extension: &roles.without_extension,
        class,
        class_report: &instance.class(),
        nodes: instance.nodes(),
        processors: thread::available_parallelism().ok(),
        memory_bytes: Host::current().memory_bytes,
    };
    // The service goes on even if nobody reads this.
    let _ = writeln!(std::io::stdout(), "{ready}");
    let reason = loop {
        match signals.wait() {
            Wake::Reload => {
                // What has come of it is in the log.
                let _ = pool.reload();
            }
            Wake::Upgrade => tracing::warn!("SIGUSR2 is for \"sluice serve\": \"sluice up\" has to be started again"),
            reason => break reason,
        }
    };
    stop(&signals, pool, &instance)?;
    match reason {
        Wake::Down(why) => bail!("{why}"),
        _ => Ok(()),
    }
}

/// This program, which Patroni runs before it stops PostgreSQL, if its user can.
fn holding_program(run_as: &RunAs, console: &Console) -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let Some(place) = run_as.blocked_at(&program) else { return Some(program) };
    console.line(&format!(
        "warning: {} can't run {}, so only \"sluice cluster switchover\" holds clients, and no other switchover\n\
         put the program where others may run it ({} is closed to them)",
        run_as.name(),
        program.display(),
        place.display()
    ));
    None
}

/// Writes the pool's configuration and starts the pool on it, as `sluice serve` would.
fn start_pool(
    data_dir: &DataDir,
    server: FileServer,
    roles: &Bootstrapped,
    certificate: &CertificateFiles,
    listen: SocketAddr,
    pool_size: u32,
    tuning: Tuning,
) -> Result<Pool> {
    let path = data_dir.root().join("sluice.toml");
    let is_cluster = matches!(server, FileServer::Cluster { .. });
    let file = ServerFile {
        listen: vec![listen],
        driver: DriverChoice::Auto,
        server,
        client_address_secret_file: roles.gate.then(|| data_dir.root().join(POOL_SECRET)),
        lookup: roles.lookup.to_config(),
        certificate: Some(certificate.clone()),
        admin_users: if is_cluster { vec![roles.lookup.user.clone()] } else { Vec::new() },
        stats_users: vec![bootstrap::FIRST_USER.to_owned()],
        pool_size,
        wait_timeout: None,
        servers_max: tuning.pool_servers_max(),
        clients_max: tuning.pool_clients_max,
    };
    write_pool_file(&path, &file).map_err(|error| anyhow!("cannot write {}: {error}", path.display()))?;
    Pool::start(&path)
}

/// Stops the pool, whose clients' transactions may finish, then PostgreSQL. Each further signal makes it quicker.
fn stop(signals: &Signals, pool: Pool, instance: &Instance) -> Result<()> {
    tracing::info!("stopping: transactions may finish; press Ctrl-C again to end them at once");
    thread::scope(|scope| {
        scope.spawn(|| {
            while signals.wait_again() {
                instance.hasten(scope);
            }
        });
        pool.shutdown();
        let stopped = instance.stop();
        signals.end();
        stopped
    })
}

fn parse_listen(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "an address and a port are needed, for example 127.0.0.1:6432 or [::1]:6432")
}

fn parse_switch(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off is needed"),
    }
}

/// The data directory of whoever runs this, where none is named.
pub(crate) fn usual_data() -> Result<PathBuf> {
    default_data(RunAs::resolve(None)?.switches())
}

fn default_data(root: bool) -> Result<PathBuf> {
    if root {
        return Ok(SYSTEM_DATA.into());
    }
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
        .map(|dir| dir.join("sluice"))
        .ok_or_else(|| anyhow!("neither XDG_DATA_HOME nor HOME names a folder\nchoose a directory with --data DIR"))
}
