//! `sluice cluster`, and switchovers that are held: by the command, and by Patroni's own API on a cluster that runs
//! `sluice cluster hold` before it stops PostgreSQL.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::Value;
use sluice_testkit::{Auth, Case, Driver, Mode, PoolConfig, TestCluster, TestPool, Version, eventually};

use crate::{GOING_ON, ONE_CLUSTER, SLUICE, connect, ledger::Ledger};

/// Clients that take their time between a BEGIN and a COMMIT.
const SLOW: u64 = 3;

/// A cluster as it is asked by who does not run it: its addresses, a password, and a pool's console.
pub(crate) struct Desk {
    dir: tempfile::TempDir,
    urls: Vec<String>,
}

impl Desk {
    pub(crate) fn new(cluster: &TestCluster, pool: &TestPool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("password"), format!("{}\n", cluster.cluster().secrets().rest.expose())).unwrap();
        let lookup = &cluster.bootstrapped().lookup;
        cluster.cluster().tell_pool(pool.address(), lookup).unwrap();
        fs::copy(cluster.cluster().data_dir().root().join("pools"), dir.path().join("pools")).unwrap();
        Self { dir, urls: cluster.rest_urls() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(SLUICE);
        command.arg("cluster").args(words);
        for url in &self.urls {
            command.args(["--rest", url]);
        }
        command.args(["--user", "sluice", "--password-file"]).arg(self.file("password"));
        command.arg("--pools-file").arg(self.file("pools"));
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Its output, if all goes well.
    pub(crate) fn says(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{words:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// Its error, if it fails.
    fn fails(&self, words: &[&str]) -> String {
        failure(&mut self.command(words))
    }
}

fn failure(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

pub(crate) fn pool(cluster: &TestCluster) -> TestPool {
    let sections = format!(
        "[admin]\nusers = [\"{}\"]\n[[cluster]]\nname = \"main\"\npatroni = [\"{}\"]\n\
         [[database]]\nname = \"*\"\ncluster = \"main\"\n",
        cluster.bootstrapped().lookup.user,
        cluster.rest_urls()[0]
    );
    let lookup = &cluster.bootstrapped().lookup;
    let users = vec![
        (cluster.app_name().to_owned(), cluster.password().to_owned()),
        (lookup.user.clone(), lookup.password.expose().to_owned()),
    ];
    let case = Case::new(Version::V15, Driver::Uring, Mode::Transaction);
    PoolConfig::without_databases(SLUICE, case).auth(Auth::Scram(users)).section(&sections).start()
}

/// Clients with transactions that are open for a while; none of them may ever hear of an error.
struct Slow {
    is_over: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Slow {
    fn begin(cluster: &TestCluster, pool: &TestPool) -> Self {
        connect(cluster, pool).batch_execute("CREATE TABLE slow (id bigint)").unwrap();
        let (is_over, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let client = |number: u64| {
            let (mut client, is_over, done) = (connect(cluster, pool), is_over.clone(), done.clone());
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let mut block = client.transaction().unwrap_or_else(|error| panic!("BEGIN: {error:?}"));
                    for _ in 0..4 {
                        block.execute("INSERT INTO slow VALUES (1)", &[]).unwrap_or_else(|error| panic!("{error:?}"));
                        thread::sleep(Duration::from_millis(20 + 30 * number));
                    }
                    block.commit().unwrap_or_else(|error| panic!("COMMIT: {error:?}"));
                    done.fetch_add(4, Ordering::Relaxed);
                }
            })
        };
        let clients = (0..SLOW).map(client).collect();
        Self { is_over, done, clients }
    }

    /// The entries that were acknowledged, once all have ended.
    fn end(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
        self.done.load(Ordering::Relaxed)
    }
}

/// No client hears of a switchover, whoever asks for it; and what is in the way of one is said.
#[test]
fn a_switchover_is_held_at_the_ends_of_transactions() {
    let _alone = ONE_CLUSTER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let cluster = TestCluster::start_with_program(3, Path::new(SLUICE));
    let pool = pool(&cluster);
    let desk = Desk::new(&cluster, &pool);
    let mut idle = connect(&cluster, &pool);
    idle.batch_execute("SET work_mem = '7MB'").unwrap();
    let (ledger, slow) = (Ledger::begin(&cluster, &pool), Slow::begin(&cluster, &pool));
    says_what_patroni_says(&cluster, &desk);
    refusals(&cluster, &pool, &desk);

    let mut waits = Vec::new();
    let (first, to) = (cluster.leader(), cluster.standby());
    let name = |node: usize| cluster.cluster().nodes()[node].name.clone();
    ledger.longest();
    let said = desk.says(&["switchover", "--to", &name(to)]);
    assert!(said.contains(&format!("{} is the primary, in the place of {}", name(to), name(first))), "{said}");
    assert!(said.contains("held its clients for "), "{said}");
    waits.push(("a switchover by the command", longest_wait(&ledger)));
    assert_eq!(cluster.leader(), to);

    // By anybody else: Patroni itself runs the command.
    cluster.wait_ready();
    ledger.longest();
    by_api(&cluster, cluster.standby());
    waits.push(("by Patroni's API", longest_wait(&ledger)));
    let held = pool.log().matches("there is another primary").count();
    assert!(held >= 2, "{}", pool.log());

    cluster.wait_ready();
    ledger.longest();
    let said = desk.says(&["config", "set", "postgresql.parameters.max_connections=110"]);
    assert!(said.contains("postgresql.parameters.max_connections=110"), "{said}");
    // A node that is busy says so later than the command waits for.
    eventually("all nodes have heard it", || {
        let status = desk.says(&["status"]);
        (0..3).all(|node| status.contains(&format!("{} has to be restarted: max_connections: 100 -> 110", name(node))))
    });
    let said = desk.says(&["restart", "--pending"]);
    assert!(said.contains("is restarted as a standby") && said.contains("held its clients for "), "{said}");
    waits.push(("a rolling restart", longest_wait(&ledger)));
    assert!(!desk.says(&["status"]).contains("has to be restarted"));
    assert_eq!(desk.says(&["restart", "--pending"]), "no node has to be restarted\n");

    desk.says(&["pause"]);
    let said = desk.fails(&["switchover"]);
    assert!(said.contains("the cluster is paused") && said.contains("sluice cluster resume"), "{said}");
    assert!(desk.says(&["status"]).contains("paused (sluice cluster resume ends that)"));
    desk.says(&["resume"]);

    let standby = name(cluster.standby());
    let said = desk.says(&["reinit", &standby]);
    assert!(said.contains(&format!("{standby} is being reinitialized, as a copy of ")), "{said}");

    let shown: String = idle.query_one("SELECT current_setting('work_mem')", &[]).unwrap().get(0);
    assert_eq!(shown, "7MB");
    let slow = slow.end();
    let told = ledger.end(&cluster);
    assert!(told.acknowledged > 100 && slow > 10, "{told}, {slow}");
    assert!(told.errors.is_empty() && told.refused == 0 && told.unknown == 0, "{told}");
    let there: i64 = connect(&cluster, &pool).query_one("SELECT count(*) FROM slow", &[]).unwrap().get(0);
    assert_eq!(there, i64::try_from(slow).unwrap());
    two_at_once(&cluster, &desk);
    with_one_synchronous_standby(&cluster, &desk);
    with_settings_that_can_not_be_read(&cluster, &pool, &desk);
    with_settings_that_postgresql_does_not_take(&cluster, &desk);
    without_a_majority(&cluster, &desk);
    let waits = waits.iter().map(|(how, wait)| format!("{how}: {:.1} s", wait.as_secs_f64()));
    println!("the longest waits: {}; {told}; {slow} slow entries", waits.collect::<Vec<_>>().join(", "));
}

/// A standby that can't read its settings any more becomes the primary, and names no standbys: nothing is acknowledged
/// that is on its disk only.
fn with_settings_that_can_not_be_read(cluster: &TestCluster, pool: &TestPool, desk: &Desk) {
    cluster.wait_ready();
    let (leader, next) = (cluster.leader(), cluster.standby());
    let name = cluster.cluster().nodes()[next].name.clone();
    let file = cluster.cluster().nodes()[next].pgdata.join("postgresql.base.conf");
    let as_it_was = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{as_it_was}\nwork_mem = 64 MB\n")).unwrap();
    desk.says(&["switchover", "--to", &name]);
    let error = connect(cluster, pool).batch_execute("CREATE TABLE alone (n int)").unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "55000", "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("pg_file_settings")), "{error}");
    let why: String = cluster
        .superuser(next)
        .query_one("SELECT error FROM pg_file_settings WHERE error IS NOT NULL", &[])
        .unwrap()
        .get(0);
    assert!(why.contains("syntax error"), "{why}");
    fs::write(&file, as_it_was).unwrap();
    cluster.superuser(next).execute("SELECT pg_reload_conf()", &[]).unwrap();
    eventually("commits go on", || connect(cluster, pool).batch_execute("CREATE TABLE alone (n int)").is_ok());
    cluster.wait_ready();
    // Another node becomes the primary while nodes are restarted one by one.
    let restarts = desk.command(&["restart"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("a restart has begun", || {
        cluster.look().members.iter().any(|member| member.state != "streaming" && member.role != "leader")
    });
    eventually("Patroni switches over", || cluster.leader() == leader || cluster.try_switchover(leader).is_ok());
    let output = restarts.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || said.contains("by somebody else's doing"), "{said}");
    cluster.wait_ready();
}

/// What Patroni hands on and PostgreSQL does not take is refused before it is stored, where a session can try it; else it
/// is said behind that, and no node is restarted with it.
fn with_settings_that_postgresql_does_not_take(cluster: &TestCluster, desk: &Desk) {
    cluster.wait_ready();
    let leader = cluster.leader();
    let here = |words: &[&str]| {
        let mut command = Command::new(SLUICE);
        command.arg("cluster").args(words).arg("--data").arg(cluster.cluster().data_dir().root());
        command
    };
    let set = |setting: &str| here(&["config", "set", &format!("postgresql.parameters.{setting}")]);
    let before = desk.says(&["config"]);
    for (setting, words) in [
        ("timezone=Nowhere/Atall", r#"invalid value for parameter "TimeZone""#),
        ("sluice.synchronous_commit_floor=bogus", "Available values: "),
        ("sluice.synchronous_commit_flor=on", r#""sluice" is a reserved prefix"#),
        ("sluice.transactions_per_admission=1001", "a whole number from 1 to 1000"),
    ] {
        let said = failure(&mut set(setting));
        assert!(said.contains(words) && said.contains("PostgreSQL"), "{setting}: {said}");
    }
    assert_eq!(desk.says(&["config"]), before);

    let said = failure(&mut set("log_timezone=Nowhere/Atall"));
    let wrong = r#"invalid value for parameter "log_timezone": "Nowhere/Atall""#;
    for node in cluster.cluster().nodes() {
        assert!(
            said.contains(&format!("{}: PostgreSQL does not take log_timezone=Nowhere/Atall", node.name)),
            "{said}"
        );
    }
    assert!(
        said.contains(wrong) && said.contains("config set postgresql.parameters.log_timezone= takes back"),
        "{said}"
    );
    for words in [&["switchover"][..], &["restart"]] {
        let said = failure(&mut here(words));
        assert!(said.contains(wrong) && said.contains("node3") && said.contains("--force"), "{words:?}: {said}");
    }
    assert_eq!(cluster.leader(), leader);
    // A change that waits for a restart is none of that, nor is what Patroni gives on the command line.
    for setting in ["log_timezone=", "track_activity_query_size=2kB", "max_connections=111"] {
        let output = set(setting).output().unwrap();
        assert!(output.status.success(), "{setting}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let output = here(&["restart", "--pending", "--no-hold"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Who can't ask PostgreSQL says so.
    let said = desk.says(&["config", "set", "postgresql.parameters.work_mem=5MB"]);
    assert!(said.contains("is not known of node1, node2, node3"), "{said}");
}

/// Of two switchovers at once one does what it was told, and the other one says that it came too late. The next one waits
/// until somebody can take over, and so does a restart.
fn two_at_once(cluster: &TestCluster, desk: &Desk) {
    cluster.wait_ready();
    let leader = cluster.leader();
    let standbys = (0..3).filter(|node| *node != leader).map(|node| cluster.cluster().nodes()[node].name.clone());
    let standbys: Vec<String> = standbys.collect();
    let done: Vec<(String, Output)> = thread::scope(|scope| {
        let asked: Vec<_> = standbys
            .iter()
            .map(|to| scope.spawn(move || (to.clone(), desk.run(&["switchover", "--to", to]))))
            .collect();
        asked.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let primary = cluster.cluster().nodes()[cluster.leader()].name.clone();
    for (to, output) in &done {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), *to == primary, "{to}: {said}");
        assert!(output.status.success() || said.contains("came first"), "{to}: {said}");
    }
    let said = desk.says(&["switchover"]);
    assert!(said.contains(&format!("in the place of {primary}")), "{said}");
    desk.says(&["restart"]);
}

/// Patroni keeps one synchronous standby of two, and another one once that is restarted, which it keeps then.
fn with_one_synchronous_standby(cluster: &TestCluster, desk: &Desk) {
    let synchronous = || cluster.look().members.into_iter().filter(|it| it.role == "sync_standby").map(|it| it.name);
    desk.says(&["config", "set", "synchronous_mode=on"]);
    eventually("one standby is synchronous", || synchronous().count() == 1);
    let first: Vec<String> = synchronous().collect();
    let said = desk.says(&["restart", "--timeout", "60s"]);
    assert!(said.contains(&format!("{} is restarted", first[0])) && said.contains("as a standby"), "{said}");
    assert_eq!(synchronous().count(), 1, "{said}");
    desk.says(&["config", "set", "synchronous_mode=quorum"]);
    cluster.wait_ready();
}

/// Nothing can be changed without a majority of etcd, and what the nodes tell is old: both are said.
fn without_a_majority(cluster: &TestCluster, desk: &Desk) {
    cluster.wait_ready();
    let root = cluster.cluster().data_dir().root();
    [0, 1].into_iter().for_each(|member| cluster.kill_etcd(member));
    let fails = |words: &[&str]| {
        let mut command = Command::new(SLUICE);
        let output = command.arg("cluster").args(words).arg("--data").arg(root).output().unwrap();
        assert!(!output.status.success(), "{words:?}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (page, said) = fails(&["status"]);
    assert!(page.contains("Not certain: etcd has no majority"), "{page}");
    assert!(said.contains("start the members of etcd that are down"), "{said}");
    for words in [&["pause"][..], &["switchover"], &["restart"], &["config", "set", "ttl=30"]] {
        let (_, said) = fails(words);
        assert!(said.contains("etcd has no majority"), "{words:?}: {said}");
    }
    // Whoever does not know etcd's members has Patroni's word only.
    let said = desk.fails(&["pause"]);
    assert!(!said.contains('<') && said.contains("(etcd)"), "{said}");
    [0, 1].into_iter().for_each(|member| cluster.start_etcd(member));
    cluster.wait_ready();
}

/// The longest time that an entry took from before a switchover on, once writers go on behind it.
fn longest_wait(ledger: &Ledger) -> Duration {
    // None is that quick, and no other entry that slow.
    const LEAST: Duration = Duration::from_millis(700);
    let mut longest = Duration::ZERO;
    eventually("writers go on", || {
        longest = longest.max(ledger.longest());
        longest > LEAST
    });
    thread::sleep(GOING_ON);
    longest.max(ledger.longest())
}

/// A switchover by Patroni's own API, which refuses one while the candidate is asynchronous for a moment.
fn by_api(cluster: &TestCluster, to: usize) {
    eventually("Patroni switches over", || cluster.leader() == to || cluster.try_switchover(to).is_ok());
}

/// The status is Patroni's, in a table and as JSON.
fn says_what_patroni_says(cluster: &TestCluster, desk: &Desk) {
    cluster.wait_ready();
    let status: Value = serde_json::from_str(&desk.says(&["status", "--json"])).unwrap();
    let members = cluster.look();
    assert_eq!(status["primary"].as_str(), members.leader());
    assert_eq!((&status["cluster"], &status["paused"]), (&Value::from("main"), &Value::from(false)));
    let nodes = status["nodes"].as_array().unwrap();
    let seen = nodes.iter().map(|node| {
        let text = |key: &str| node[key].as_str().unwrap().to_owned();
        (text("name"), text("role").replace(' ', "_"), text("state"), node["timeline"].as_u64())
    });
    let told = members.members.iter().map(|it| (it.name.clone(), it.role.clone(), it.state.clone(), it.timeline));
    assert_eq!(seen.collect::<Vec<_>>(), told.collect::<Vec<_>>());
    for node in nodes.iter().filter(|node| node["role"] != "leader") {
        assert_eq!(node["synchronous"], "quorum");
        assert!(node["replay_lag_bytes"].is_u64() && node["postgresql"].as_str().unwrap().starts_with("15."), "{node}");
    }
    let pool = &status["pools"][0];
    assert_eq!((&pool["held"], pool["primary"].as_str()), (&Value::from(false), members.leader()), "{status}");
    assert!(pool["clients"].as_u64().unwrap() >= SLOW, "{status}");

    let page = desk.says(&["status"]);
    assert!(page.contains(&format!("Cluster main: primary {}", members.leader().unwrap())), "{page}");
    assert!(
        page.contains("quorum standby") && page.contains("in a transaction") && page.contains("not held"),
        "{page}"
    );
}

/// Impossible requests are refused before anything is done, and leave all as it was.
fn refusals(cluster: &TestCluster, pool: &TestPool, desk: &Desk) {
    let leader = cluster.leader();
    let name = cluster.cluster().nodes()[leader].name.clone();
    let said = desk.fails(&["switchover", "--to", "node9"]);
    assert!(said.contains("no node \"node9\"") && said.contains("its nodes are node1, node2, node3"), "{said}");
    let said = desk.fails(&["switchover", "--to", &name]);
    assert!(said.contains("is the primary already"), "{said}");
    let said = desk.fails(&["reinit", &name]);
    assert!(said.contains("is the primary, whose data"), "{said}");
    let said = desk.fails(&["config", "set", "work_mem=64MB"]);
    assert!(said.contains("postgresql.parameters.work_mem=64MB"), "{said}");
    for (setting, words) in [
        ("synchronous_mode=banana", "quorum (a commit waits"),
        ("ttl=abc", "a whole number, 20 or more"),
        ("loop_wait=10", "at least loop_wait + 2 * retry_timeout, which is 26"),
        ("postgresql.parameters.listen_addresses=*", "each node's own"),
        ("postgresql.parameters.log_line_prefix=a\nb", "on one line"),
        ("postgresql.parameters.shared_buffers=-5", "from 128kB to"),
        ("postgresql.parameters.work_mem=64XB", "a whole number of kB"),
        ("postgresql.parameters.nonsense=3", "no setting of PostgreSQL 15"),
        ("postgresql.pg_hba=[]", "the lines by which the pool"),
        ("standby_cluster.host=elsewhere", "end all writes"),
    ] {
        let said = desk.fails(&["config", "set", setting]);
        assert!(said.contains(words), "{setting}: {said}");
    }
    assert!(desk.says(&["config"]).contains("synchronous_mode=quorum\nsynchronous_mode_strict=true\n"));
    // Options may stand before it, and behind it.
    let config = ["cluster", "config", "--rest", &desk.urls[0], "set", "ttl=30"];
    let said = failure(Command::new(SLUICE).args(config));
    assert!(said.contains("wants a user and a password"), "{said}");
    let said = failure(Command::new(SLUICE).args(config).args(["--data", "nowhere"]));
    assert!(said.contains("each name the cluster"), "{said}");

    fs::write(desk.file("wrong"), "nonsense\n").unwrap();
    let mut wrong = Command::new(SLUICE);
    wrong
        .args(["cluster", "pause", "--rest", &desk.urls[0], "--user", "sluice", "--password-file"])
        .arg(desk.file("wrong"));
    let said = failure(&mut wrong);
    assert!(said.contains("does not take the password of \"sluice\"") && said.contains("patroni.yml"), "{said}");
    let said = failure(Command::new(SLUICE).args(["cluster", "pause", "--rest", &desk.urls[0]]));
    assert!(said.contains("wants a user and a password") && said.contains("--password-file"), "{said}");
    let said = failure(Command::new(SLUICE).args(["cluster", "status", "--rest", "http://127.0.0.1:1"]));
    assert!(said.contains("no member of the cluster can be asked") && said.contains("127.0.0.1:1"), "{said}");
    let said = failure(Command::new(SLUICE).args(["cluster", "status", "--data"]).arg(desk.dir.path()));
    assert!(said.contains("there is no cluster in") && said.contains("--rest"), "{said}");

    // A transaction that does not end: it is called off, and nobody has lost anything.
    let mut long = connect(cluster, pool);
    long.batch_execute("BEGIN; CREATE TABLE long (id int)").unwrap();
    let said = desk.fails(&["switchover", "--wait", "300ms"]);
    assert!(said.contains("called off, and clients go on") && said.contains("--force"), "{said}");
    long.batch_execute("INSERT INTO long VALUES (1); COMMIT").unwrap();
    assert_eq!(cluster.leader(), leader);

    // A hold whose maker has died ends by itself. Half of its time is for the transactions of `Slow` to end.
    let said = desk.says(&["hold", "--longest", "6s"]);
    let is_primarys = said.contains("clients are held by one pool");
    assert!(is_primarys || said.contains("is not the primary"), "{said}");
    eventually("clients go on", || !desk.says(&["status"]).contains("; held for"));
}

/// The switchovers of a measurement, unless `SLUICE_SWITCHOVERS` says otherwise.
const MEASURED: usize = 20;

/// Measures how long clients wait in a switchover (docs/figures.md).
#[test]
#[ignore = "a measurement: cargo test --release -p sluice --test nodes -- --ignored switchovers --nocapture"]
fn switchovers_are_measured() {
    let _alone = ONE_CLUSTER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let count = std::env::var("SLUICE_SWITCHOVERS").map_or(MEASURED, |count| count.parse().unwrap());
    let cluster = TestCluster::start_with_program(3, Path::new(SLUICE));
    let pool = pool(&cluster);
    let desk = Desk::new(&cluster, &pool);
    let (ledger, slow) = (Ledger::begin(&cluster, &pool), Slow::begin(&cluster, &pool));
    let ways: [(&str, &dyn Fn(usize)); 3] = [
        ("sluice cluster switchover", &|_| println!("{}", desk.says(&["switchover"]).trim_end())),
        ("sluice cluster switchover --to", &|to| {
            let name = &cluster.cluster().nodes()[to].name;
            println!("{}", desk.says(&["switchover", "--to", name]).trim_end());
        }),
        ("Patroni's API, with a candidate", &|to| by_api(&cluster, to)),
    ];
    for (how, switch_over) in ways {
        let mut waits = Vec::new();
        for _ in 0..count {
            cluster.wait_ready();
            thread::sleep(GOING_ON);
            ledger.longest();
            switch_over(cluster.standby());
            waits.push(longest_wait(&ledger));
        }
        waits.sort();
        let seconds = |place: usize| waits[place].as_secs_f64();
        println!("{how}: median {:.2} s, worst {:.2} s, of {count}", seconds(count / 2), seconds(count - 1));
    }
    let holds: Vec<_> =
        pool.log().lines().filter(|line| line.contains("clients go on after")).map(str::to_owned).collect();
    println!("{}\n{} slow entries, {}", holds.join("\n"), slow.end(), ledger.end(&cluster));
}
