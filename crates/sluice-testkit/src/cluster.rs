//! Throwaway clusters: nodes with Patroni and the real PostgreSQL, and etcd, all on this machine.
//!
//! Durable but for `fsync`: a killed process loses nothing that way, only a machine would. Roles log in by SCRAM on
//! 127.0.0.1: `postgres` and `app`, by [`TestCluster::password`]; the first also by the Unix socket, without one.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use postgres::{Client, NoTls};
use sluice_instance::{
    Binaries, DataDirSpec, Event, Host, Observer, RunAs, Silent, StopMode, Tuning,
    bootstrap::{self, Bootstrapped},
    cluster::{Cluster, ClusterSpec, Environment, Members, rest},
};

use crate::{case::Version, eventually, place::place, proc};

/// Time for what a failover takes at the longest: the leader's lease, and the next leader's start.
pub const FAILOVER_PATIENCE: Duration = Duration::from_secs(150);

const PASSWORD: &str = "not-a-secret";

const SETTINGS: [(&str, &str); 4] =
    [("fsync", "off"), ("shared_buffers", "32MB"), ("log_checkpoints", "off"), ("shared_preload_libraries", "sluice")];

/// Databases and roles of tests: as for an instance that `sluice up` makes, and a superuser and a role by TCP.
const ROLES: &str = "\
ALTER ROLE postgres PASSWORD 'not-a-secret';
CREATE ROLE app LOGIN PASSWORD 'not-a-secret';
GRANT CREATE ON SCHEMA public TO app;";

/// A cluster. Dropping it kills all of it.
pub struct TestCluster {
    cluster: Cluster,
    bootstrapped: Bootstrapped,
    ended_leases: Arc<AtomicUsize>,
    _place: tempfile::TempDir,
}

impl TestCluster {
    /// Starts a cluster of so many nodes with Debian's PostgreSQL, and waits until all of them are in their places.
    pub fn start(nodes: usize) -> Self {
        Self::start_version(nodes, Version::V15, &[])
    }

    /// The same with another PostgreSQL, and further settings.
    pub fn start_version(nodes: usize, version: Version, settings: &[(&str, &str)]) -> Self {
        Self::start_spec(nodes, version, settings, |_| {})
    }

    /// The same as [`Self::start`], where Patroni runs `program`'s `cluster hold` before it stops PostgreSQL.
    pub fn start_with_program(nodes: usize, program: &Path) -> Self {
        Self::start_spec(nodes, Version::V15, &[], |spec| spec.program = Some(program.to_owned()))
    }

    /// The same, with changes to how it is made.
    pub fn start_spec(
        nodes: usize,
        version: Version,
        settings: &[(&str, &str)],
        change: impl FnOnce(&mut ClusterSpec),
    ) -> Self {
        let place = place();
        let ended_leases = Arc::new(AtomicUsize::new(0));
        let ended = Arc::clone(&ended_leases);
        let observer = move |event: Event| {
            ended.fetch_add(usize::from(matches!(event, Event::EndedLease { .. })), Ordering::Relaxed);
            // What a failed test shows.
            eprintln!("cluster: {event}");
        };
        let cluster = start(&place.path().join("data"), nodes, version, settings, Arc::new(observer), change);
        let leader = cluster.leader().expect("a cluster that is ready has a leader");
        let bootstrapped = bootstrap::bootstrap(cluster.data_dir(), &cluster.endpoint(leader));
        let bootstrapped = bootstrapped.unwrap_or_else(|error| panic!("{error}"));
        let cluster = Self { cluster, bootstrapped, ended_leases, _place: place };
        let mut superuser = cluster.superuser(leader);
        superuser.batch_execute(ROLES).unwrap_or_else(|error| panic!("{error:?}"));
        cluster
    }

    /// The cluster itself.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The roles that `sluice up` makes: the first user, and the look-up of secrets for the pool.
    pub fn bootstrapped(&self) -> &Bootstrapped {
        &self.bootstrapped
    }

    /// The number of leases that survivors have ended.
    pub fn ended_leases(&self) -> usize {
        self.ended_leases.load(Ordering::Relaxed)
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.cluster.nodes().len()
    }

    /// The address at which a node's Patroni answers.
    pub fn rest(&self, node: usize) -> SocketAddr {
        self.cluster.nodes()[node].rest
    }

    /// All of these, as the pool's configuration has them.
    pub fn rest_urls(&self) -> Vec<String> {
        self.cluster.nodes().iter().map(|node| format!("http://{}", node.rest)).collect()
    }

    /// The address at which a node's PostgreSQL listens.
    pub fn postgres(&self, node: usize) -> SocketAddr {
        self.cluster.nodes()[node].postgres
    }

    /// The folder of a node's Unix socket.
    pub fn socket_dir(&self, node: usize) -> &Path {
        &self.cluster.nodes()[node].socket_dir
    }

    /// The log of a node's Patroni and PostgreSQL.
    pub fn log(&self, node: usize) -> PathBuf {
        self.cluster.nodes()[node].log.clone()
    }

    /// The superuser's name.
    pub fn superuser_name(&self) -> &'static str {
        bootstrap::SUPERUSER
    }

    /// The application's role.
    pub fn app_name(&self) -> &'static str {
        "app"
    }

    /// The password of both.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// A connection as the superuser, to the database `postgres` of a node.
    pub fn superuser(&self, node: usize) -> Client {
        self.try_superuser(node).unwrap_or_else(|error| panic!("to node {node}: {error:?}"))
    }

    /// The same, if it takes one now.
    pub fn try_superuser(&self, node: usize) -> Result<Client, postgres::Error> {
        let mut config = postgres::Config::new();
        config.host_path(self.socket_dir(node)).port(self.postgres(node).port());
        config.user(bootstrap::SUPERUSER).dbname("postgres").connect_timeout(Duration::from_secs(5));
        config.connect(NoTls)
    }

    /// A connection by TCP as the application's role, to the database `postgres` of a node.
    pub fn app(&self, node: usize) -> Result<Client, postgres::Error> {
        let (address, mut config) = (self.postgres(node), postgres::Config::new());
        config.host(&address.ip().to_string()).port(address.port()).user("app").password(PASSWORD);
        config.dbname("postgres").connect_timeout(Duration::from_secs(5)).connect(NoTls)
    }

    /// The nodes as they see each other.
    pub fn look(&self) -> Members {
        self.cluster.look()
    }

    /// The leader.
    pub fn leader(&self) -> usize {
        let deadline = Instant::now() + FAILOVER_PATIENCE;
        self.cluster.wait_leader(deadline).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A node that is not the leader.
    pub fn standby(&self) -> usize {
        let leader = self.leader();
        (0..self.nodes()).find(|node| *node != leader).expect("there are several nodes")
    }

    /// Waits until all nodes are in their places: a leader, the others streaming and synchronous.
    pub fn wait_ready(&self) -> Members {
        let deadline = Instant::now() + FAILOVER_PATIENCE;
        self.cluster.wait_ready(deadline).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Makes a standby the leader, by Patroni's REST API; returns when Patroni says that it is done.
    pub fn switchover(&self, to: usize) {
        self.try_switchover(to).unwrap_or_else(|error| panic!("switchover: {error}"));
    }

    /// The same, if Patroni does it.
    pub fn try_switchover(&self, to: usize) -> Result<(), String> {
        let (from, names) = (self.leader(), self.cluster.nodes());
        let body = format!(r#"{{"leader": "{}", "candidate": "{}"}}"#, names[from].name, names[to].name);
        let api = self.cluster.api();
        let answer = api.send(self.rest(from), rest::Method::Post, "/switchover", &body, FAILOVER_PATIENCE);
        match answer {
            Ok(answer) if answer.status == 200 => Ok(()),
            Ok(answer) => Err(format!("{}: {}", answer.status, answer.text())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Has a node's PostgreSQL listen at another address of this machine as well, and the node announce that one, once it
    /// is restarted.
    pub fn move_postgres(&self, node: usize, host: &str) {
        let (postgres, file) = (self.postgres(node), self.cluster.nodes()[node].home.join("patroni.yml"));
        let mut text = fs::read_to_string(&file).expect("it is there");
        let there = format!("{host}:{}", postgres.port());
        for (key, address) in [("listen", format!("{},{there}", postgres.ip())), ("connect_address", there)] {
            let [before, after] = [postgres.to_string(), address].map(|address| format!("\"{key}\": \"{address}\""));
            assert_eq!(text.matches(&before).count(), 1, "{before} in {text}");
            text = text.replace(&before, &after);
        }
        fs::write(&file, text).expect("it can be written");
        self.tell(node, "/reload");
        let name = &self.cluster.nodes()[node].name;
        eventually("it is to be restarted", || self.look().named(name).is_some_and(|it| it.pending_restart));
    }

    /// Restarts a node's PostgreSQL in its place, by Patroni's REST API.
    pub fn restart_postgres(&self, node: usize) {
        self.tell(node, "/restart");
    }

    fn tell(&self, node: usize, path: &str) {
        let answer = self.cluster.api().send(self.rest(node), rest::Method::Post, path, "{}", FAILOVER_PATIENCE);
        let answer = answer.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(matches!(answer.status, 200 | 202), "{path}: {}: {}", answer.status, answer.text());
    }

    /// Kills a node's postmaster with SIGKILL; its Patroni lives.
    pub fn kill_postmaster(&self, node: usize) {
        proc::send(self.postmaster_pid(node), proc::Kind::SIGKILL);
    }

    /// Kills a node's Patroni with SIGKILL; its PostgreSQL lives, and Patroni is started again.
    pub fn kill_patroni(&self, node: usize) {
        proc::send(self.patroni_pid(node), proc::Kind::SIGKILL);
    }

    /// Kills all of a node, as when its host is lost. It stays down until [`TestCluster::start_node`].
    pub fn kill_node(&self, node: usize) {
        self.cluster.kill_node(node);
    }

    /// Starts a node that was killed.
    pub fn start_node(&self, node: usize) {
        self.cluster.start_node(node).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Kills a member of etcd. It stays down until [`TestCluster::start_etcd`].
    pub fn kill_etcd(&self, member: usize) {
        self.cluster.kill_etcd(member);
    }

    /// Starts a member of etcd that was killed.
    pub fn start_etcd(&self, member: usize) {
        self.cluster.start_etcd(member).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Stops all processes of a node where they are (SIGSTOP).
    pub fn freeze(&self, node: usize) {
        let stop = |pid| proc::try_send(pid, proc::Kind::SIGSTOP);
        // The postmaster first: what it started after the others were listed would go on.
        self.cluster.postmaster_pid(node).into_iter().for_each(stop);
        self.cluster.processes(node).into_iter().for_each(stop);
    }

    /// Stops a node's Patroni where it is; its PostgreSQL goes on.
    pub fn freeze_patroni(&self, node: usize) {
        proc::send(self.patroni_pid(node), proc::Kind::SIGSTOP);
    }

    /// Has them go on.
    pub fn thaw(&self, node: usize) {
        self.cluster.processes(node).into_iter().for_each(|pid| proc::try_send(pid, proc::Kind::SIGCONT));
    }

    /// The process of a node's Patroni.
    pub fn patroni_pid(&self, node: usize) -> u32 {
        self.cluster.patroni_pid(node).expect("Patroni runs")
    }

    /// The process of a node's postmaster.
    pub fn postmaster_pid(&self, node: usize) -> u32 {
        self.cluster.postmaster_pid(node).expect("PostgreSQL runs")
    }

    /// The process of a member of etcd.
    pub fn etcd_pid(&self, member: usize) -> u32 {
        self.cluster.etcd_pid(member).expect("etcd runs")
    }

    /// All processes: of each node, and of etcd.
    pub fn processes(&self) -> Vec<u32> {
        let nodes = (0..self.nodes()).flat_map(|node| self.cluster.processes(node));
        let members = (0..self.cluster.etcd_members().len()).filter_map(|member| self.cluster.etcd_pid(member));
        nodes.chain(members).collect()
    }

    /// Copies what Patroni, PostgreSQL and etcd have said to where it stays, and says where.
    fn keep_logs(&self) {
        let kept = crate::case::repository().join(format!("target/tests/cluster-{}", std::process::id()));
        let from = self.log(0);
        let copied = Command::new("cp").arg("-r").arg(from.parent().unwrap_or(&from)).arg(&kept).status();
        eprintln!("the cluster's logs are kept in {} ({copied:?})", kept.display());
    }

    /// Stops all of it in order.
    pub fn stop(&self) {
        self.cluster.stop(StopMode::Fast);
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep_logs();
        }
        (0..self.nodes()).for_each(|node| self.cluster.kill_node(node));
        (0..self.cluster.etcd_members().len()).for_each(|member| self.cluster.kill_etcd(member));
    }
}

/// The environment for Patroni that `scripts/test.sh` makes; it is made here if that has not run.
pub fn environment() -> Environment {
    let run_as = RunAs::resolve(None).unwrap_or_else(|error| panic!("{error}"));
    let base = crate::case::repository().join("target/patroni");
    Environment::prepare(&base, &run_as, &Silent).unwrap_or_else(|error| panic!("{error}"))
}

fn start(
    root: &Path,
    nodes: usize,
    version: Version,
    settings: &[(&str, &str)],
    observer: Arc<dyn Observer>,
    change: impl FnOnce(&mut ClusterSpec),
) -> Cluster {
    let binaries = Binaries::find(Some(&version.bin_dir())).unwrap_or_else(|error| panic!("{error}"));
    let run_as = RunAs::resolve(None).unwrap_or_else(|error| panic!("{error}"));
    let data_dir = DataDirSpec { sync: false, ..DataDirSpec::new(root, binaries, run_as) };
    let mut spec = ClusterSpec::new(nodes, data_dir, environment(), Tuning::new(Host::current(), 40));
    spec.settings = SETTINGS.iter().chain(settings).map(|(n, v)| (n.to_string(), v.to_string())).collect();
    spec.ports_from = some_ports();
    spec.start_timeout = Duration::from_secs(180);
    spec.stop_timeout = Duration::from_secs(20);
    change(&mut spec);
    let cluster = Cluster::start(spec, observer).unwrap_or_else(|error| panic!("{error}"));
    cluster.wait_ready(Instant::now() + FAILOVER_PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    cluster
}

/// A place to look for ports from: another one for each cluster of a process, and for most processes.
fn some_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = u16::try_from(std::process::id() % 500).expect("it is small");
    18_000 + (process + NEXT.fetch_add(25, Ordering::Relaxed)) % 500 * 2
}
