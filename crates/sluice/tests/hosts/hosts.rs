//! Hosts of one cluster, each with the real `sluice node`, as an operator sets them up.

use std::{
    fs,
    io::Write,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use postgres::{Client, NoTls};
use sluice_testkit::{
    Auth, Case, Driver, Mode, Network, PoolConfig, TestPool, Version, case::repository, cluster::environment, proc,
};

use crate::{SLUICE, disk::Disk, ledger::Servers};

/// The time for what takes long on a busy machine: copies, elections, recoveries.
pub(crate) const PATIENCE: Duration = Duration::from_secs(150);

/// With which the folders of tests begin, before their processes' numbers.
const PREFIX: &str = "sluice-hosts-";

/// The hosts.
pub(crate) struct Hosts {
    pub(crate) network: Network,
    running: Mutex<Vec<Option<Child>>>,
    /// By which each tells systemd how it is.
    notices: Vec<UnixDatagram>,
    /// Whether the last one only votes.
    has_witness: bool,
    /// Of each host one; none where this machine does not allow them.
    disks: Vec<Disk>,
    place: tempfile::TempDir,
}

impl Hosts {
    /// So many, with certificates and files; the last one may be a witness. None where network namespaces can't be had.
    pub(crate) fn new(count: usize, has_witness: bool) -> Option<Self> {
        let network = Network::new(count)?;
        Disk::remove_left(PREFIX);
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let place = tempfile::Builder::new().prefix(&prefix).tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let running = Mutex::new((0..count).map(|_| None).collect());
        let notice = |host| UnixDatagram::bind(place.path().join(name(host)).with_extension("notify")).unwrap();
        let notices: Vec<_> = (0..count).map(notice).collect();
        notices.iter().for_each(|notice| notice.set_nonblocking(true).unwrap());
        let disks: Result<_, _> = (0..count).map(|host| Disk::new(&place.path().join(name(host)))).collect();
        let disks = disks.unwrap_or_else(|why: String| {
            eprintln!("hosts have no disks of their own: this machine allows none: {why}");
            (0..count).for_each(|host| fs::create_dir_all(place.path().join(name(host))).unwrap());
            Vec::new()
        });
        let hosts = Self { network, running, notices, has_witness, disks, place };
        let mut ca = Command::new(SLUICE);
        ca.args(["node", "ca"]).arg(hosts.place.path().join("ca"));
        ca.args((0..count).map(|host| format!("{}={}", name(host), hosts.network.address(host))));
        let made = ca.output().unwrap();
        assert!(made.status.success(), "{made:?}");
        for host in 0..count {
            hosts.set_members(host, &(0..count).collect::<Vec<_>>());
        }
        Some(hosts)
    }

    /// Writes a host's file, with these members.
    pub(crate) fn set_members(&self, host: usize, members: &[usize]) {
        fs::write(self.file(host), self.text(host, members)).unwrap();
    }

    /// Has a host read its file again.
    pub(crate) fn reload(&self, host: usize) {
        self.hang_up(host);
        self.wait_said(host, "is read again");
    }

    pub(crate) fn hang_up(&self, host: usize) {
        let pid = self.lock()[host].as_ref().unwrap().id();
        proc::send(pid, proc::Kind::SIGHUP);
    }

    fn text(&self, host: usize, members: &[usize]) -> String {
        let (data, name) = (self.data(host), name(host));
        // Of the environment's interpreter, below the folder that has all environments.
        let patroni = environment().python().ancestors().nth(3).unwrap().display().to_string();
        let mut text = format!(
            "name = \"{name}\"\ndata = \"{}\"\npg_bin = \"{}\"\npatroni_dir = \"{patroni}\"\n\
             client_networks = [\"{}\"]\n[tls]\nca_file = \"ca/{name}/ca.crt\"\ncert_file = \"ca/{name}/node.crt\"\n\
             key_file = \"ca/{name}/node.key\"\n",
            data.display(),
            Version::V15.bin_dir().display(),
            self.network.test_address(),
        );
        for &member in members {
            let (name, address) = (self::name(member), self.network.address(member));
            let witness = self.has_witness && member == self.count() - 1;
            text += &format!("[[member]]\nname = \"{name}\"\naddress = \"{address}\"\nwitness = {witness}\n");
        }
        text
    }

    /// A host's file.
    pub(crate) fn file(&self, host: usize) -> PathBuf {
        self.place.path().join(format!("{}.toml", name(host)))
    }

    /// A host's directory, on its disk.
    pub(crate) fn data(&self, host: usize) -> PathBuf {
        self.place.path().join(name(host)).join("data")
    }

    /// A host's disk.
    pub(crate) fn disk(&self, host: usize) -> Option<&Disk> {
        self.disks.get(host)
    }

    /// A file of the authority's folder.
    pub(crate) fn ca(&self, file: &str) -> PathBuf {
        self.place.path().join("ca").join(file)
    }

    fn notify_socket(&self, host: usize) -> PathBuf {
        self.place.path().join(name(host)).with_extension("notify")
    }

    fn log(&self, host: usize) -> PathBuf {
        self.place.path().join(format!("{}.log", name(host)))
    }

    /// Its log before it was started last.
    fn earlier(&self, host: usize) -> PathBuf {
        self.log(host).with_extension("earlier.log")
    }

    /// The log of a host since it was started last.
    pub(crate) fn said(&self, host: usize) -> String {
        fs::read_to_string(self.log(host)).unwrap_or_default()
    }

    /// `sluice node` with these arguments on a host, to its end; what it says, and whether all was well.
    pub(crate) fn command(&self, host: usize, arguments: &[&str]) -> (String, bool) {
        let mut command = self.network.command(host, SLUICE);
        command.arg("node").args(arguments).arg("-c").arg(self.file(host)).stdin(Stdio::null());
        let output = command.env_remove("RUST_LOG").output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (String::from_utf8_lossy(&said).into_owned(), output.status.success())
    }

    /// Has the cluster begin on the first host.
    pub(crate) fn init(&self) {
        let (said, is_good) = self.command(0, &["init"]);
        assert!(is_good, "{said}");
    }

    /// Starts `sluice node` on a host.
    pub(crate) fn start(&self, host: usize) {
        let before = fs::read(self.log(host)).unwrap_or_default();
        let mut earlier = fs::OpenOptions::new().append(true).create(true).open(self.earlier(host)).unwrap();
        earlier.write_all(&before).unwrap();
        let log = fs::File::create(self.log(host)).unwrap();
        // It ends with the thread that started it, even if that is killed.
        let mut command = self.network.command(host, "setpriv");
        command.args(["--pdeathsig", "TERM", "--", SLUICE]);
        command.arg("node").arg("-c").arg(self.file(host)).env_remove("RUST_LOG").stdin(Stdio::null());
        command.env("NOTIFY_SOCKET", self.notify_socket(host));
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.lock()[host] = Some(child);
    }

    /// Waits until a host says something.
    pub(crate) fn wait_said(&self, host: usize, words: &str) {
        assert!(self.says(host, words), "{} has ended:\n{}", name(host), self.said(host));
    }

    /// Waits until a host says something, or has ended by itself without having said it.
    pub(crate) fn says(&self, host: usize, words: &str) -> bool {
        let begin = Instant::now();
        while !self.said(host).contains(words) {
            assert!(begin.elapsed() < PATIENCE, "{} does not say {words:?}:\n{}", name(host), self.said(host));
            let mut running = self.lock();
            let ended = running[host].as_mut().is_none_or(|child| child.try_wait().unwrap().is_some());
            drop(running);
            if ended {
                return self.said(host).contains(words);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        true
    }

    /// Waits until a host has its place.
    pub(crate) fn wait_placed(&self, host: usize) {
        self.wait_said(host, "has its place in the cluster");
    }

    /// Messages of a host to systemd since this was asked last.
    pub(crate) fn told(&self, host: usize) -> String {
        let mut told = String::new();
        let mut message = [0; 4096];
        while let Ok(length) = self.notices[host].recv(&mut message) {
            told += &String::from_utf8_lossy(&message[..length]);
            told.push('\n');
        }
        told
    }

    /// Waits for a host's end by itself; says whether it was a good one.
    pub(crate) fn wait_end(&self, host: usize) -> bool {
        let mut child = self.lock()[host].take().unwrap();
        let begin = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.success();
            }
            assert!(begin.elapsed() < PATIENCE, "{} does not end:\n{}", name(host), self.said(host));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Stops a host in order.
    pub(crate) fn stop(&self, host: usize) {
        let pid = self.lock()[host].as_ref().unwrap().id();
        proc::send(pid, proc::Kind::SIGTERM);
        assert!(self.wait_end(host), "{}", self.said(host));
        assert_eq!(self.network.processes(host), [0; 0], "{}", self.said(host));
    }

    /// Kills all of a host at once.
    pub(crate) fn kill(&self, host: usize) {
        self.network.kill(host);
        if let Some(mut child) = self.lock()[host].take() {
            child.wait().unwrap();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<Child>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what was started on a host has not ended by itself.
    pub(crate) fn is_running(&self, host: usize) -> bool {
        self.lock()[host].as_mut().is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// A pool on this test's own host, before the cluster.
    pub(crate) fn pool(&self) -> TestPool {
        self.pool_config(Driver::Uring).start()
    }

    /// The configuration of the pool.
    pub(crate) fn pool_config(&self, driver: Driver) -> PoolConfig {
        let urls: Vec<_> = self.addresses().map(|address| format!("\"https://{address}:8008\"")).collect();
        let ca = self.ca("ca.crt");
        let ca = ca.display();
        let sections = format!(
            "[[cluster]]\nname = \"main\"\npatroni = [{}]\nca_file = \"{ca}\"\nfailover_timeout = \"2min\"\n\
             [[database]]\nname = \"*\"\ncluster = \"main\"\nsslmode = \"verify-full\"\nsslrootcert = \"{ca}\"\n",
            urls.join(", ")
        );
        let app = (self.app_name().to_owned(), self.password().to_owned());
        let case = Case::new(Version::V15, driver, Mode::Transaction);
        PoolConfig::without_databases(SLUICE, case).auth(Auth::Scram(vec![app])).section(&sections)
    }

    fn addresses(&self) -> impl Iterator<Item = std::net::Ipv4Addr> {
        (0..self.nodes()).map(|host| self.network.address(host))
    }

    /// Makes the role that clients come as.
    pub(crate) fn make_app(&self) {
        let roles = format!(
            "SET synchronous_commit = local; CREATE ROLE app LOGIN PASSWORD '{}'; GRANT CREATE ON SCHEMA public TO app",
            self.password()
        );
        self.try_superuser(self.leader()).unwrap().batch_execute(&roles).unwrap();
    }

    /// Waits until so many other hosts stream from the primary, and Patroni counts on them: it promotes no other.
    pub(crate) fn wait_streaming(&self, standbys: usize) {
        let begin = Instant::now();
        loop {
            let status = self.try_leader().map(|leader| self.status(leader)).unwrap_or_default();
            let is_counted_on = |line: &&str| {
                (line.contains(" quorum standby ") || line.contains(" sync standby ")) && line.contains(" streaming ")
            };
            if status.lines().filter(is_counted_on).count() == standbys {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{standbys} standbys: {status}\n{}", self.all_said());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// `sluice cluster status` on a host.
    pub(crate) fn status(&self, host: usize) -> String {
        let mut status = Command::new(SLUICE);
        let output = status.args(["cluster", "status", "--data"]).arg(self.data(host)).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// The host whose PostgreSQL takes writes, if there is one.
    pub(crate) fn try_leader(&self) -> Option<usize> {
        (0..self.nodes()).find(|host| self.is_primary(*host))
    }

    /// Whether a host's PostgreSQL takes writes.
    pub(crate) fn is_primary(&self, host: usize) -> bool {
        let asked = self.try_superuser(host).and_then(|mut client| client.query_one("SELECT pg_is_in_recovery()", &[]));
        asked.is_ok_and(|row| !row.get::<_, bool>(0))
    }

    pub(crate) fn all_said(&self) -> String {
        (0..self.count()).map(|host| format!("\n== {}\n{}", name(host), self.said(host))).collect()
    }

    /// Copies what all have said to a folder, where it stays.
    pub(crate) fn keep_logs(&self, kept: &Path) {
        for host in 0..self.count() {
            let to = kept.join(name(host));
            let _ = fs::create_dir_all(&to);
            let from = [self.log(host), self.earlier(host), self.data(host).join("log")];
            let _ = Command::new("cp").arg("-r").args(from).arg(&to).status();
        }
    }
}

impl Servers for Hosts {
    /// Those that have data.
    fn nodes(&self) -> usize {
        self.count() - usize::from(self.has_witness)
    }

    fn leader(&self) -> usize {
        let begin = Instant::now();
        loop {
            if let Some(leader) = self.try_leader() {
                return leader;
            }
            assert!(begin.elapsed() < PATIENCE, "no primary: {}", self.all_said());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn try_superuser(&self, host: usize) -> Result<Client, postgres::Error> {
        let mut config = postgres::Config::new();
        config.host_path(self.data(host).join("node/run")).port(5432).user("postgres").dbname("postgres");
        config.connect_timeout(Duration::from_secs(5)).options("-c statement_timeout=20s").connect(NoTls)
    }

    fn app_name(&self) -> &str {
        "app"
    }

    fn password(&self) -> &str {
        "not-a-secret"
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.disks.iter().for_each(Disk::answer);
        if std::thread::panicking() {
            let kept = repository().join(format!("target/tests/hosts-{}", std::process::id()));
            self.keep_logs(&kept);
            eprintln!("the hosts' logs are kept in {}", kept.display());
        }
        for host in 0..self.count() {
            self.kill(host);
        }
    }
}

/// A host's name.
pub(crate) fn name(host: usize) -> String {
    format!("node{}", host + 1)
}

/// Whether a path is private to its owner.
pub(crate) fn is_private(path: &Path) -> bool {
    fs::metadata(path).unwrap().permissions().mode() & 0o077 == 0
}
