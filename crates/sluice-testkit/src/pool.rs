//! The real `sluice serve`, as a child process with a configuration of the test's own.

use std::{
    fmt::Write,
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use command_fds::{CommandFdExt, FdMapping};
use postgres::{Client, NoTls};
use sluice_tls::{ClientTls, SslMode};

use crate::{
    case::{Case, Driver, Mode},
    eventually,
    place::of_process,
    proc,
    raw::Raw,
    server::{Database, TestServer},
    tls::Certificates,
};

/// The authentication of clients.
#[derive(Debug, Clone)]
pub enum Auth {
    /// They need not.
    Trust,
    /// They need not; with these users and secrets in a file, for the servers.
    TrustListed(Vec<(String, String)>),
    /// `md5`, with these users and secrets in a file.
    Md5(Vec<(String, String)>),
    /// `scram-sha-256`, with these users and secrets in a file.
    Scram(Vec<(String, String)>),
    /// By the rules of these files, `pg_hba.conf` and `pg_ident.conf`, with these users and secrets in a file.
    Rules(String, String, Vec<(String, String)>),
    /// By the rules of these files, secrets and roles looked up by the role `lookup`; with these further keys.
    RulesLookUp(String, String, String),
    /// By the server's own rules, which the role `lookup` reads as well.
    ServerRules,
    /// `scram-sha-256`, secrets looked up by the role `lookup`; with these further keys.
    LookUp(String),
    /// `scram-sha-256`, with these users and secrets in a file, and all others looked up by the role `lookup`.
    ScramAndLookUp(Vec<(String, String)>),
    /// `md5`, secrets looked up by the role `lookup`; with these further keys.
    LookUpMd5(String),
}

/// The configuration of `sluice serve`.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    program: PathBuf,
    driver: Driver,
    mode: Mode,
    workers: u32,
    listen: SocketAddr,
    auth: Auth,
    top: String,
    limits: String,
    tls: Option<(&'static Certificates, String)>,
    sections: String,
    pool: String,
    databases: String,
    open_files: Option<u32>,
}

impl PoolConfig {
    /// One worker, trust, everything else by default; before all databases of a server.
    pub fn new(program: impl Into<PathBuf>, case: Case, server: &TestServer) -> Self {
        Self::without_databases(program, case).database("*", server, "")
    }

    /// The same without a database.
    pub fn without_databases(program: impl Into<PathBuf>, case: Case) -> Self {
        Self {
            program: program.into(),
            driver: case.driver,
            mode: case.mode,
            workers: 1,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            auth: Auth::Trust,
            top: String::new(),
            limits: String::new(),
            tls: None,
            sections: String::new(),
            pool: String::new(),
            databases: String::new(),
            open_files: None,
        }
    }

    /// Sets the number of files that it may have open, by the soft and the hard limit.
    pub fn open_files(mut self, most: u32) -> Self {
        self.open_files = Some(most);
        self
    }

    /// Sets the number of workers.
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// Sets the port, which the system chooses otherwise. A Unix socket needs one.
    pub fn port(mut self, port: u16) -> Self {
        self.listen.set_port(port);
        self
    }

    /// Sets the authentication of clients.
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// Sets the address that it listens on, which is any free port of this host otherwise.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// A line for the top of the file.
    pub fn top(mut self, line: &str) -> Self {
        self.top.push_str(line);
        self.top.push('\n');
        self
    }

    /// A line for `[limits]`.
    pub fn limit(mut self, line: &str) -> Self {
        self.limits.push_str(line);
        self.limits.push('\n');
        self
    }

    /// Offers TLS to clients, by these certificates and with further lines for `[tls]`; its own raw clients take it.
    pub fn tls(mut self, certificates: &'static Certificates, lines: &str) -> Self {
        self.tls = Some((certificates, lines.to_owned()));
        self
    }

    /// A table of its own.
    pub fn section(mut self, text: &str) -> Self {
        self.sections.push_str(text);
        self
    }

    /// A line for `[pool]`.
    pub fn pool(mut self, line: &str) -> Self {
        self.pool.push_str(line);
        self.pool.push('\n');
        self
    }

    /// The size of each pool.
    pub fn size(self, size: u32) -> Self {
        self.pool(&format!("size = {size}"))
    }

    /// A `[[database]]` on a server, with further lines.
    pub fn database(self, name: &str, server: &TestServer, lines: &str) -> Self {
        let host = server.socket_dir().display().to_string();
        self.database_at(name, &host, server.port(), lines)
    }

    /// A `[[database]]` anywhere, with further lines.
    pub fn database_at(mut self, name: &str, host: &str, port: u16, lines: &str) -> Self {
        let _ = writeln!(self.databases, "[[database]]\nname = \"{name}\"\nhost = \"{host}\"\nport = {port}\n{lines}");
        self
    }

    fn toml(&self) -> String {
        let (method, secrets) = match &self.auth {
            Auth::Rules(..) => ("", "users_file = \"users.txt\"\n".to_owned()),
            Auth::RulesLookUp(_, _, more) => ("", look_up(more)),
            Auth::ServerRules => ("server", look_up("cache = \"1s\"")),
            Auth::Trust if self.listen.ip().is_loopback() => ("trust", String::new()),
            // On a network of the test's own.
            Auth::Trust => ("trust", "trust_anyone = true\n".to_owned()),
            Auth::TrustListed(_) => ("trust", "users_file = \"users.txt\"\n".to_owned()),
            Auth::Md5(_) => ("md5", "users_file = \"users.txt\"\n".to_owned()),
            Auth::Scram(_) => ("scram-sha-256", "users_file = \"users.txt\"\n".to_owned()),
            Auth::LookUp(more) => ("scram-sha-256", look_up(more)),
            Auth::ScramAndLookUp(_) => ("scram-sha-256", format!("users_file = \"users.txt\"\n{}", look_up(""))),
            Auth::LookUpMd5(more) => ("md5", look_up(more)),
        };
        let mut toml = format!("listen = [\"{}\"]\nworkers = {}\n", self.listen, self.workers);
        let _ = writeln!(toml, "driver = \"{}\"\n{}", self.driver.name(), self.top);
        if !self.top.contains("shutdown_grace") {
            toml.push_str("shutdown_grace = \"2s\"\n");
        }
        let how = match method {
            "" => "hba_file = \"pg_hba.conf\"\nident_file = \"pg_ident.conf\"".to_owned(),
            "server" => "hba = \"server\"".to_owned(),
            method => format!("method = \"{method}\""),
        };
        let _ = writeln!(toml, "[limits]\n{}\n[auth]\n{how}\n{secrets}", self.limits);
        if let Some((certificates, lines)) = &self.tls {
            toml.push_str(&certificates.of_pool(lines));
        }
        toml.push_str(&self.sections);
        let _ = writeln!(toml, "[pool]\nmode = \"{}\"\n{}\n{}", self.mode.name(), self.pool, self.databases);
        toml
    }

    /// Writes the configuration, starts the pool, and waits until it listens.
    pub fn start(&self) -> TestPool {
        self.start_with(&[], Vec::new())
    }

    /// The same with variables in its environment, and with sockets and their names, as systemd passes them.
    pub fn start_with(&self, environment: &[(&str, &str)], sockets: Vec<(&str, OwnedFd)>) -> TestPool {
        let place = of_process("sluice-pool-");
        let file = self.write(place.path());
        let log = place.path().join("log");
        // The pool ends with the thread that started it, even if that is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        if let Some(most) = self.open_files {
            command.args(["prlimit", &format!("--nofile={most}"), "--"]);
        }
        pass(&mut command, sockets);
        command.arg(&self.program).arg("serve").arg("-c").arg(&file).env("RUST_LOG", "info,sluice_proxy=debug");
        command.envs(environment.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
        let mut pool = TestPool {
            child: Some(child),
            successors: Vec::new(),
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            log,
            server_processes: Vec::new(),
            tls: self.tls.as_ref().map(|(certificates, _)| certificates.client(SslMode::VerifyFull, true)),
            place,
        };
        pool.address = pool.wait_until_it_listens();
        pool
    }

    /// Writes the configuration, with the files that it names.
    fn write(&self, place: &Path) -> PathBuf {
        let file = place.join("sluice.toml");
        write_private(&file, &self.toml());
        if let Auth::Rules(rules, maps, _) | Auth::RulesLookUp(rules, maps, _) = &self.auth {
            write_private(&place.join("pg_hba.conf"), rules);
            write_private(&place.join("pg_ident.conf"), maps);
        }
        if let Auth::Md5(users)
        | Auth::Scram(users)
        | Auth::ScramAndLookUp(users)
        | Auth::TrustListed(users)
        | Auth::Rules(_, _, users) = &self.auth
        {
            let lines: String = users.iter().map(|(user, secret)| format!("\"{user}\" \"{secret}\"\n")).collect();
            write_private(&place.join("users.txt"), &lines);
        }
        file
    }
}

/// Has a command pass sockets on to what it runs by its further arguments.
fn pass(command: &mut Command, sockets: Vec<(&str, OwnedFd)>) {
    if sockets.is_empty() {
        return;
    }
    let (names, sockets): (Vec<&str>, Vec<OwnedFd>) = sockets.into_iter().unzip();
    command.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
    // The number of the process is known in that process only.
    command.args(["sh", "-c", "LISTEN_PID=$$ exec \"$0\" \"$@\""]);
    let mappings = (3..).zip(sockets).map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd });
    command.fd_mappings(mappings.collect()).unwrap();
}

fn look_up(more: &str) -> String {
    format!("[auth.lookup]\nuser = \"lookup\"\ndatabase = \"postgres\"\n{more}\n")
}

fn write_private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A running `sluice serve`. Dropped, it must end well on SIGTERM.
pub struct TestPool {
    child: Option<Child>,
    /// The processes that have taken over, the last one last.
    successors: Vec<u32>,
    address: SocketAddr,
    log: PathBuf,
    server_processes: Vec<u32>,
    tls: Option<Arc<ClientTls>>,
    place: tempfile::TempDir,
}

/// Time limit for a pool's end, beyond the time that its clients are given.
const END_TIME_MAX: Duration = Duration::from_secs(15);

impl TestPool {
    fn wait_until_it_listens(&mut self) -> SocketAddr {
        let begin = Instant::now();
        loop {
            let log = self.log();
            let line = log.lines().find_map(|line| line.split_once("listening on ")).filter(|_| log.ends_with('\n'));
            if let Some((_, rest)) = line {
                let address = rest.split_whitespace().next().unwrap_or_default();
                return address.parse().unwrap_or_else(|error| panic!("{address}: {error}"));
            }
            let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
            assert!(ended.is_none(), "sluice ended ({ended:?}):\n{log}{}", self.config());
            assert!(begin.elapsed() < crate::PATIENCE, "sluice does not listen:\n{log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn config(&self) -> String {
        fs::read_to_string(self.place.path().join("sluice.toml")).unwrap_or_default()
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id; after an upgrade, that of the new process.
    pub fn pid(&self) -> u32 {
        if let Some(pid) = self.successors.last() {
            return *pid;
        }
        self.child.as_ref().expect("it has not been waited for").id()
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its resident memory, in KiB.
    pub fn rss_kb(&self) -> u64 {
        proc::rss_kb(self.pid())
    }

    /// The number of files that it has open.
    pub fn open_files(&self) -> usize {
        proc::open_files(self.pid())
    }

    /// A raw connection to it, encrypted if it has TLS.
    pub fn raw(&self) -> Raw {
        let clear = self.raw_in_clear();
        match &self.tls {
            Some(tls) => clear.secure(tls),
            None => clear,
        }
    }

    /// A raw connection to it that is not encrypted.
    pub fn raw_in_clear(&self) -> Raw {
        Raw::tcp(self.address)
    }

    /// A raw connection, logged in as `app`.
    pub fn raw_app(&self, database: &Database<'_>) -> Raw {
        self.raw().login("app", &database.name)
    }

    /// The configuration with which a client connects to it.
    pub fn client_config(&self, user: &str, database: &str) -> postgres::Config {
        let mut config = postgres::Config::new();
        config.host("127.0.0.1").port(self.address.port()).user(user).dbname(database);
        config.connect_timeout(crate::PATIENCE);
        config
    }

    /// A client, logged in as `app`.
    pub fn app(&self, database: &Database<'_>) -> Client {
        self.connect("app", None, &database.name).unwrap_or_else(|error| panic!("app to {}: {error:?}", database.name))
    }

    /// A login.
    pub fn connect(&self, user: &str, password: Option<&str>, database: &str) -> Result<Client, postgres::Error> {
        let mut config = self.client_config(user, database);
        if let Some(password) = password {
            config.password(password);
        }
        config.connect(NoTls)
    }

    /// Writes another configuration in place of its own, which it does not read by itself.
    pub fn write(&self, config: &PoolConfig) {
        config.write(self.place.path());
    }

    /// Has it read another configuration in place of its own; gives the lines that it logs for that.
    pub fn reload(&self, config: &PoolConfig) -> String {
        let before = self.log().len();
        self.write(config);
        self.signal(proc::Kind::SIGHUP);
        let words = || self.log()[before..].to_owned();
        // What is said of changes is written behind that, at once.
        eventually("a word on the reload", || {
            ["read again", "everything stays as it was"].iter().any(|it| words().contains(it))
        });
        std::thread::sleep(Duration::from_millis(50));
        words()
    }

    /// Has a new process take over from it; gives the old one's process id, or what the log says of a failure.
    pub fn upgrade(&mut self) -> Result<u32, String> {
        let (before, old) = (self.log().len(), self.pid());
        self.signal(proc::Kind::SIGUSR2);
        let words = || self.log()[before..].to_owned();
        eventually("a word on the upgrade", || {
            let words = words();
            [" has taken over;", "this one goes on as before\n"].iter().any(|it| words.contains(it))
        });
        let words = words();
        let Some((line, _)) = words.split_once(" has taken over;") else { return Err(words) };
        let pid = line.rsplit(' ').next().and_then(|pid| pid.parse().ok());
        self.successors.push(pid.unwrap_or_else(|| panic!("no process id: {words}")));
        eventually("the new process is alone", || self.log()[before..].contains("taken over from process"));
        Ok(old)
    }

    /// Sends a signal to it.
    pub fn signal(&self, signal: proc::Kind) {
        proc::send(self.pid(), signal);
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it has not been waited for");
        let begin = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            if begin.elapsed() > END_TIME_MAX {
                let _ = child.kill();
                let _ = child.wait();
                panic!("sluice does not end:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it, whatever it is doing. It is not expected to end well any more.
    pub fn kill(&mut self) {
        self.end_successors(true);
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Remembers the server connections that it has now, for [`TestPool`]'s end: they must end with it.
    pub fn note_servers(&mut self, database: &Database<'_>) {
        let sql = format!(
            "SELECT coalesce(string_agg(pid::text, ' '), '') FROM pg_stat_activity \
                           WHERE datname = '{}' AND usename <> 'postgres'",
            database.name
        );
        let pids = database.server.value(&sql);
        self.server_processes = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    }
}

impl TestPool {
    /// Those of before may be waiting for their clients.
    fn end_successors(&self, at_once: bool) {
        let signal = if at_once { proc::Kind::SIGKILL } else { proc::Kind::SIGTERM };
        let Some((last, others)) = self.successors.split_last() else { return };
        for pid in others.iter().copied().chain(self.child.as_ref().map(Child::id)) {
            if proc::is_alive(pid) {
                proc::try_send(pid, signal);
            }
        }
        proc::try_send(*last, signal);
        if !at_once {
            eventually("the end of the last process", || !proc::is_alive(*last));
        }
    }
}

impl Drop for TestPool {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        if failed {
            eprintln!("--- the pool's configuration\n{}--- its log\n{}---", self.config(), self.log());
        }
        if self.child.is_none() {
            return;
        }
        let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
        self.end_successors(failed);
        if ended.is_none() && self.successors.is_empty() {
            self.signal(proc::Kind::SIGTERM);
        }
        if failed {
            // One panic is enough.
            let mut child = self.child.take().expect("it has been seen above");
            std::thread::sleep(Duration::from_millis(100));
            let _ = child.kill();
            let _ = child.wait();
            return;
        }
        let status = self.wait();
        let is_early = ended.is_some() && self.successors.is_empty();
        assert!(!is_early && status.success(), "sluice ended with {status}:\n{}", self.log());
        let log = self.log();
        assert!(!log.contains("panicked"), "a panic:\n{log}");
        let left = std::mem::take(&mut self.server_processes);
        eventually("the pool's server connections end", || left.iter().all(|pid| !proc::is_alive(*pid)));
    }
}
