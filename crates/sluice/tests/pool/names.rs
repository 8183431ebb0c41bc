//! Host names that no name server answers: the system's resolver takes 10 s for each, and that is nobody else's time.
//!
//! The name server is the test's own, in a network that the test has to itself, and says nothing of names that it does
//! not know.

use std::{
    collections::BTreeSet,
    env, fs,
    net::UdpSocket,
    os::unix::fs::PermissionsExt,
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use sluice_testkit::{Case, PoolConfig, TestServer, eventually, matrix, proc};

use crate::{
    SLUICE,
    network::{INSIDE, ONE, in_namespace, set},
};

matrix!(transaction: names_that_nobody_answers_keep_nobody_waiting);

/// The file that says which name server is asked, for the process within the network.
const RESOLV: &str = "SLUICE_TEST_RESOLV";

/// The time of two look-ups that nobody answers.
const TWO_SILENCES: Duration = Duration::from_secs(20);

/// Names of which no name server says anything.
const DEAD: usize = 4;

fn names_that_nobody_answers_keep_nobody_waiting(case: Case) {
    if env::var_os(INSIDE).is_some() {
        return inside(case);
    }
    let resolv = tempfile::NamedTempFile::new().unwrap();
    fs::write(&resolv, "nameserver 127.0.0.1\n").unwrap();
    fs::set_permissions(&resolv, fs::Permissions::from_mode(0o644)).unwrap();
    let script = format!("mount --bind \"${RESOLV}\" /etc/resolv.conf && exec \"$@\"");
    let mut command = Command::new("unshare");
    in_namespace(command.args(["--net", "--mount", "sh", "-c", &script, "sh"]).env(RESOLV, resolv.path()));
}

fn inside(case: Case) {
    set("up");
    let names = Names::serve();
    names.learn("good.test");
    let server = TestServer::start_with_tcp(case.version, &[]);
    let config = |dead: usize| {
        let lines = "dbname = \"postgres\"\nsslmode = \"disable\"";
        let mut config = PoolConfig::without_databases(SLUICE, case).pool("wait_timeout = \"2s\"");
        for number in 0..dead {
            config = config.database_at(&format!("d{number}"), &format!("dead{number}.test"), server.port(), lines);
        }
        for (name, host) in [("good", "good.test"), ("late", "late.test")] {
            config = config.database_at(name, host, server.port(), lines);
        }
        for number in 0..5 {
            let members = ["a", "b", "c"].map(|member| format!("\"http://member{number}{member}.test:8008\""));
            config = config.section(&format!(
                "[[cluster]]\nname = \"m{number}\"\npatroni = [{}]\n[[database]]\nname = \"cl{number}\"\ncluster = \"m{number}\"\n",
                members.join(", ")
            ));
        }
        config
    };
    let one = |pool: &sluice_testkit::TestPool, database: &str| pool.raw().login("app", database).query("SELECT 1");

    let begun = Instant::now();
    let mut pool = config(DEAD).start();
    assert_eq!(one(&pool, "good"), ONE);
    assert!(begun.elapsed() < TWO_SILENCES, "the start took {:?}", begun.elapsed());
    let reason = "the name \"dead0.test\" can't be resolved: there is no answer yet";
    eventually("the log has the name", || pool.log().contains(reason));
    let refused = pool.connect("app", None, "d0").and_then(|mut client| client.batch_execute("SELECT 1"));
    let refused = format!("{:?}", refused.expect_err("nobody knows where that is"));
    assert!(refused.contains("the name \\\"dead0.test\\\" can't be resolved"), "{refused}");

    let begun = Instant::now();
    pool.reload(&config(2 * DEAD));
    assert!(begun.elapsed() < TWO_SILENCES, "the reload took {:?}", begun.elapsed());
    assert_eq!(one(&pool, "good"), ONE);

    // By now members have been asked for some time.
    names.learn("late.test");
    let login = || pool.connect("app", None, "late").and_then(|mut client| client.batch_execute("SELECT 1"));
    eventually("a name is tried again", || login().is_ok());
    let status = fs::read_to_string(format!("/proc/{}/status", pool.pid())).unwrap();
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")?.trim().parse::<usize>().ok());
    let of_names = 15 + 2 * DEAD;
    assert!(threads.unwrap() < of_names + 30, "{threads:?} threads");

    pool.write(&config(3 * DEAD));
    pool.signal(proc::Kind::SIGHUP);
    let begun = Instant::now();
    pool.signal(proc::Kind::SIGTERM);
    pool.wait();
    assert!(begun.elapsed() < TWO_SILENCES, "the end took {:?}", begun.elapsed());
}

/// A name server that says of the names that it knows that they are at 127.0.0.1, and of others nothing.
struct Names(Arc<Mutex<BTreeSet<String>>>);

impl Names {
    fn serve() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:53").unwrap();
        let known = Arc::<Mutex<BTreeSet<String>>>::default();
        let names = known.clone();
        thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((length, peer)) = socket.recv_from(&mut question) {
                if let Some(answer) = answer(&question[..length], &names.lock().unwrap()) {
                    socket.send_to(&answer, peer).unwrap();
                }
            }
        });
        Self(known)
    }

    fn learn(&self, name: &str) {
        self.0.lock().unwrap().insert(name.to_owned());
    }
}

/// The answer to a question (RFC 1035, section 4.1).
fn answer(question: &[u8], known: &BTreeSet<String>) -> Option<Vec<u8>> {
    const ADDRESS: [u8; 2] = [0, 1];
    let (mut labels, mut at) = (Vec::new(), 12);
    while question[at] > 0 {
        let next = at + 1 + usize::from(question[at]);
        labels.push(String::from_utf8_lossy(&question[at + 1..next]).into_owned());
        at = next;
    }
    let end = at + 5;
    let is_of_address = question[at + 1..at + 3] == ADDRESS;
    known.contains(&labels.join(".")).then(|| {
        let found = u8::from(is_of_address);
        let mut answer = [&question[..2], &[0x81, 0x80, 0, 1, 0, found, 0, 0, 0, 0], &question[12..end]].concat();
        if is_of_address {
            // The name as above, an address, of the Internet, for a second, of four bytes.
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1]);
        }
        answer
    })
}
