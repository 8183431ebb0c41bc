//! Messages of `sluice serve` to systemd, and the sockets that it gets from it. The test plays systemd.

use std::{
    fs,
    net::{TcpListener, UdpSocket},
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram, UnixListener},
    },
    time::{Duration, Instant},
};

use nix::{
    sys::{ptrace, wait},
    unistd::Pid,
};
use sluice_testkit::{Case, PATIENCE, Raw, eventually, matrix, proc};

use crate::{SLUICE, config, database};

matrix!(transaction:
    systemd_hears_what_it_does,
    a_socket_without_a_file_hears_it_too,
    a_worker_that_hangs_starves_the_watchdog,
    a_watchdog_of_no_time_floods_no_log,
    passed_sockets_are_used,
    an_upgrade_keeps_passed_sockets_and_tells_the_new_process,
);

/// The socket that systemd hears by.
struct Systemd {
    socket: UnixDatagram,
    place: tempfile::TempDir,
}

impl Systemd {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(place.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, place }
    }

    fn path(&self) -> String {
        self.place.path().join("notify").display().to_string()
    }

    /// The lines of a message.
    fn hear(&self) -> Vec<String> {
        let mut message = [0; 4096];
        let length = self.socket.recv(&mut message).expect("it says something");
        String::from_utf8(message[..length].to_vec()).unwrap().lines().map(str::to_owned).collect()
    }

    /// The messages that come within a time.
    fn hear_for(&self, time: Duration) -> Vec<Vec<String>> {
        let end = Instant::now() + time;
        let mut heard = Vec::new();
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.socket.set_read_timeout(Some(left)).unwrap();
            let mut message = [0; 4096];
            let Ok(length) = self.socket.recv(&mut message) else { break };
            let text = String::from_utf8(message[..length].to_vec()).unwrap();
            heard.push(text.lines().map(str::to_owned).collect());
        }
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        heard
    }
}

fn a_socket_without_a_file_hears_it_too(case: Case) {
    // Systemd in a container has such a one.
    let place = tempfile::tempdir().unwrap();
    let name = place.path().join("notify").display().to_string();
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let pool = config(case).start_with(&[("NOTIFY_SOCKET", &format!("@{name}"))], Vec::new());
    let heard = Systemd { socket, place }.hear();
    assert_eq!(heard, ["READY=1", &format!("STATUS=Listening on {}", pool.address())]);
}

fn systemd_hears_what_it_does(case: Case) {
    let systemd = Systemd::new();
    let mut pool = config(case).start_with(&[("NOTIFY_SOCKET", &systemd.path())], Vec::new());
    let listening = format!("STATUS=Listening on {}", pool.address());
    assert_eq!(systemd.hear(), ["READY=1", &listening]);
    pool.reload(&config(case).size(3));
    let reloading = systemd.hear();
    let at = reloading[1].strip_prefix("MONOTONIC_USEC=").and_then(|usec| usec.parse::<u64>().ok());
    assert!(reloading[0] == "RELOADING=1" && at.is_some_and(|usec| usec > 0), "{reloading:?}");
    assert_eq!(systemd.hear(), ["READY=1", &listening]);
    pool.reload(&config(case).pool("size = 0"));
    assert_eq!(systemd.hear()[0], "RELOADING=1");
    assert_eq!(systemd.hear(), ["READY=1", &format!("{listening}; the last reload failed, see the log")]);
    pool.signal(proc::Kind::SIGTERM);
    assert_eq!(systemd.hear(), ["STOPPING=1", "STATUS=Stopping: transactions may finish"]);
    assert!(pool.wait().success());
    assert!(systemd.hear_for(Duration::from_millis(100)).is_empty());
}

fn a_worker_that_hangs_starves_the_watchdog(case: Case) {
    let systemd = Systemd::new();
    let environment = [("NOTIFY_SOCKET", &*systemd.path()), ("WATCHDOG_USEC", "2000000")];
    let pool = config(case).workers(2).start_with(&environment, Vec::new());
    assert_eq!(systemd.hear()[0], "READY=1");
    // Workers with nothing to do are alive.
    for _ in 0..3 {
        assert_eq!(systemd.hear(), ["WATCHDOG=1"]);
    }
    // One thread alone is stopped, as one that is stuck would be.
    let worker = Pid::from_raw(thread_of(pool.pid(), "worker-1"));
    ptrace::seize(worker, ptrace::Options::empty()).unwrap();
    ptrace::interrupt(worker).unwrap();
    wait::waitpid(worker, Some(wait::WaitPidFlag::__WALL)).unwrap();
    // One may have been on its way.
    let fed = systemd.hear_for(Duration::from_millis(3500));
    assert!(fed.len() <= 1, "{fed:?}");
    assert!(pool.log().contains("the watchdog is not fed: worker 1 has not come round"), "{}", pool.log());
    ptrace::detach(worker, None).unwrap();
    assert_eq!(systemd.hear(), ["WATCHDOG=1"]);
}

fn a_watchdog_of_no_time_floods_no_log(case: Case) {
    let systemd = Systemd::new();
    let start = |usec: &str| {
        let pool = config(case).start_with(&[("NOTIFY_SOCKET", &*systemd.path()), ("WATCHDOG_USEC", usec)], Vec::new());
        assert_eq!(systemd.hear()[0], "READY=1");
        pool
    };
    let pool = start("0");
    assert!(systemd.hear_for(Duration::from_millis(300)).is_empty());
    assert_eq!(pool.log().matches("no watchdog is fed: WATCHDOG_USEC=0 makes no sense").count(), 1, "{}", pool.log());
    drop(pool);
    assert_eq!(systemd.hear()[0], "STOPPING=1");
    let pool = start("1");
    let fed = systemd.hear_for(Duration::from_secs(1)).len();
    assert!((1..=21).contains(&fed), "{fed} times");
    // A machine that has much to do may be late.
    assert!(pool.log().matches("watchdog").count() <= 1, "{}", pool.log());
}

fn thread_of(pid: u32, name: &str) -> i32 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let is_it =
        |task: &fs::DirEntry| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name);
    let task = tasks.flatten().find(is_it).unwrap_or_else(|| panic!("no thread {name}"));
    task.file_name().to_str().unwrap().parse().unwrap()
}

fn passed_sockets_are_used(case: Case) {
    let database = database(case);
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("pool");
    let [first, second, http] = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = [&first, &second, &http].map(|listener| listener.local_addr().unwrap());
    let unix = UnixListener::bind(&path).unwrap();
    let sockets = vec![
        ("sluice.socket", first.into()),
        ("http", http.into()),
        ("sluice.socket", second.into()),
        ("", OwnedFd::from(unix)),
    ];
    let pool = config(case).port(1).top("unix_socket_dir = \"/nonexistent\"").workers(2).start_with(&[], sockets);
    assert_eq!(pool.address(), addresses[0]);
    for mut raw in
        [Raw::tcp(addresses[0]), Raw::tcp(addresses[1]), Raw::unix(&path)].map(|raw| raw.login("app", &database.name))
    {
        assert_eq!(raw.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    }
    let log = pool.log();
    assert!(log.contains(&format!("listening on {} (", addresses[1])), "{log}");
    assert!(log.contains("a socket that this process was started with"), "{log}");
    assert!(log.contains(&format!("metrics at http://{}/metrics", addresses[2])), "{log}");
    drop(pool);
    assert!(path.exists(), "the file is systemd's");
}

/// It says which descriptor can't be used, and why.
#[test]
fn descriptors_that_are_no_listening_sockets_stop_the_start() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("sluice.toml");
    fs::write(&file, "auth.method = \"trust\"\n[[database]]\nname = \"*\"\n").unwrap();
    let start = |count: u32, names: &str, socket: OwnedFd| {
        use command_fds::{CommandFdExt, FdMapping};
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "LISTEN_PID=$$ exec \"$0\" \"$@\"", SLUICE, "serve", "-c"]).arg(&file);
        command.env("LISTEN_FDS", count.to_string()).env("LISTEN_FDNAMES", names);
        command.fd_mappings(vec![FdMapping { parent_fd: socket, child_fd: 3 }]).unwrap();
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let udp = || OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
    let error = start(1, "of-mine", udp());
    assert!(error.contains("descriptor 3 (\"of-mine\")") && error.contains("no stream socket"), "{error}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = start(2, "a:b", listener.into());
    assert!(error.contains("descriptor 4 (\"b\")") && error.contains("is not open"), "{error}");
    let error = start(1, "a:b", udp());
    assert!(error.contains("LISTEN_FDNAMES=\"a:b\"") && error.contains("1 names"), "{error}");
    let unix = UnixListener::bind(place.path().join("http")).unwrap();
    let error = start(1, "http", unix.into());
    assert!(error.contains("descriptor 3 (\"http\")") && error.contains("is a Unix socket"), "{error}");
}

fn an_upgrade_keeps_passed_sockets_and_tells_the_new_process(case: Case) {
    let database = database(case);
    let systemd = Systemd::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let environment = [("NOTIFY_SOCKET", &*systemd.path()), ("WATCHDOG_USEC", "2000000")];
    let mut pool = config(case).start_with(&environment, vec![("sluice.socket", listener.into())]);
    let listening = format!("STATUS=Listening on {}", pool.address());
    assert_eq!(systemd.hear(), ["READY=1", &listening]);
    let mut client = pool.raw_app(&database);
    let old = pool.upgrade().unwrap();
    let heard = systemd.hear_for(Duration::from_millis(1500));
    let at = |wanted: &[String]| {
        heard.iter().position(|message| message == wanted).unwrap_or_else(|| panic!("{wanted:?} in {heard:?}"))
    };
    let main_pid = at(&[format!("MAINPID={}", pool.pid())]);
    let ready = at(&["READY=1".to_owned(), listening]);
    assert!(main_pid < ready && heard[ready..].contains(&vec!["WATCHDOG=1".to_owned()]), "{heard:?}");
    assert_eq!(pool.raw_app(&database).query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    assert_eq!(client.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    drop(client);
    eventually("the old process ends", || !proc::is_alive(old));
    // Its end is its own affair: it is not the service any more.
    assert!(systemd.hear_for(Duration::from_millis(300)).iter().all(|message| message == &["WATCHDOG=1"]));
}
