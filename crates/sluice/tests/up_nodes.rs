//! `sluice up --nodes` as a user meets it: the real command with the real Patroni, etcd and PostgreSQL.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::{MetadataExt, chown},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

use common::{Up, eventually, failure, place, sluice};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sluice_testkit::cluster::environment;

/// The time in which processes end that have lost their postmaster.
const SETTLING: Duration = Duration::from_millis(300);

fn up(data: &Path, nodes: usize) -> Command {
    let environment = environment();
    let mut command = sluice(data);
    command.args(["--nodes", &nodes.to_string(), "--ports-from", &ports().to_string(), "--patroni-dir"]);
    // Of the environment's interpreter, below the folder that has all environments.
    command.arg(environment.python().ancestors().nth(3).unwrap());
    command
}

/// Other ports for each cluster that is made.
fn ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = u16::try_from(std::process::id() % 20).unwrap();
    19_100 + process * 200 + NEXT.fetch_add(20, Ordering::Relaxed)
}

/// The output of psql, typed as the command says it.
fn ask(typed: &str, query: &str) -> String {
    let mut shell = Command::new("sh");
    let output =
        shell.args(["-c", &format!("{typed} -w -X -At -c \"{query}\"")]).stdin(Stdio::null()).output().unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr)
}

/// The words of a command for the cluster there.
fn cluster(data: &Path, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    let said = command.arg("cluster").args(words).arg("--data").arg(data).output().unwrap();
    String::from_utf8(said.stdout).unwrap() + &String::from_utf8_lossy(&said.stderr)
}

/// The processes that have the instance's folder in their command line or as their place of work.
fn processes(data: &Path) -> Vec<String> {
    let data = data.display().to_string();
    let text = |path: std::path::PathBuf| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let entries = fs::read_dir("/proc").unwrap().flatten().filter(|entry| entry.path().join("cmdline").exists());
    let found = entries.filter_map(|entry| {
        let command = text(entry.path().join("cmdline")).unwrap_or_default();
        let cwd = fs::read_link(entry.path().join("cwd")).unwrap_or_default().display().to_string();
        (command.contains(&data) || cwd.contains(&data)).then_some(command)
    });
    found.collect()
}

/// The process of a standby that receives from the primary; none of a primary.
fn receiver(data: &Path) -> Option<Pid> {
    let pid_file = fs::read_to_string(data.join("postmaster.pid")).unwrap();
    let postmaster = pid_file.lines().next().unwrap().parse().unwrap();
    let is_receiver =
        |pid: &i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|title| title.contains("walreceiver"));
    children(postmaster).into_iter().find(is_receiver).map(Pid::from_raw)
}

fn stop(mut up: Up, data: &Path) {
    up.signal(Signal::SIGINT);
    up.line("stopped");
    assert!(up.wait().success());
    assert_eq!(processes(data), [""; 0]);
}

#[test]
fn one_node_becomes_three_and_one_again() {
    let place = place();
    let data = place.path().join("data");
    let mut one = Up::start(&mut up(&data, 1));
    let typed = one.line("PGPASSFILE=");
    one.ready();
    assert_eq!(ask(&typed, "CREATE TABLE t AS SELECT 1 AS id"), "SELECT 1\n");
    stop(one, &data);

    is_interrupted(&data);
    let mut three = Up::start(&mut up(&data, 3));
    three.line("node1 leader running, node2 quorum_standby streaming, node3 quorum_standby streaming");
    let typed = three.line("PGPASSFILE=");
    three.line("Nodes     node1: leader, PostgreSQL on 127.0.0.1:");
    three.line("Commits   wait for one of the two other nodes, always (quorum, strict)");
    three.line("Readers   the same line with the database sluice:ro reads from standbys");
    three.ready();
    assert_eq!(ask(&typed, "INSERT INTO t VALUES (2); SHOW synchronous_commit"), "INSERT 0 1\non\n");
    let reading = format!("{}:ro", typed.trim_end());
    eventually("standbys are seen", || ask(&reading, "SELECT pg_is_in_recovery()") == "t\n");
    // The pool finds the primary, whichever it is then.
    let pid_file = fs::read_to_string(data.join("node1/pgdata/postmaster.pid")).unwrap();
    let postmaster: i32 = pid_file.lines().next().unwrap().parse().unwrap();
    loses_a_block(&typed, &data, postmaster);
    // A process that has not noticed yet would take a statement, and its answer with it.
    thread::sleep(SETTLING);
    assert_eq!(ask(&typed, "INSERT INTO t VALUES (3)"), "INSERT 0 1\n");
    // What a killed one leaves ends by itself, in order: the next may be of one node.
    three.signal(Signal::SIGKILL);
    three.wait();
    eventually("the end of all nodes", || processes(&data).is_empty());

    // Not by mistake.
    let ports = fs::read_to_string(data.join("cluster.json")).unwrap();
    let mut again = Up::start(&mut up(&data, 3));
    let typed = again.line("PGPASSFILE=");
    again.ready();
    assert_eq!(fs::read_to_string(data.join("cluster.json")).unwrap(), ports);
    // The pool's clients are held for a switchover, whoever asks for it: by its directory, all is known.
    let said = cluster(&data, &["switchover", "--cluster", "other"]);
    assert!(said.contains("does not have that cluster; its clusters: ") && !said.contains("checkpoint"), "{said}");
    let said = cluster(&data, &["switchover"]);
    assert!(said.contains("is the primary, in the place of node") && said.contains("held its clients for"), "{said}");
    assert!(said.contains("has made a checkpoint first"), "{said}");
    // The old primary's Patroni itself would, before it stops PostgreSQL; here it has been done already.
    let logs =
        ["node1", "node2", "node3"].map(|node| fs::read_to_string(data.join(format!("log/{node}.log"))).unwrap());
    assert!(logs.concat().contains("holds its clients already"), "{logs:?}");
    // By it, and not by the Patroni that ran it.
    let shut = ["PostgreSQL has been shut down", "PostgreSQL is being shut down"];
    assert!(shut.iter().any(|said| logs.concat().contains(said)), "{logs:?}");
    is_hastened(&mut again, &typed);
    again.line("stopped");
    assert!(again.wait().success());
    assert_eq!(processes(&data), [""; 0]);

    let mut one = Up::start(&mut up(&data, 1));
    one.line("moved the data");
    let typed = one.line("PGPASSFILE=");
    one.ready();
    assert_eq!(ask(&typed, "SELECT string_agg(id::text, ',') FROM t"), "1,2,3\n");
    let names = "SELECT count(*) || current_setting('synchronous_standby_names') FROM pg_replication_slots";
    assert_eq!(ask(&typed, names), "0\n");
    let said = cluster(&data, &["status"]);
    assert!(said.contains("there is no cluster in") && said.contains("sluice up --nodes 3"), "{said}");
    stop(one, &data);

    // A port that somebody has is found before anything is moved.
    let port: u16 = ports.split("\"peer\": ").nth(2).unwrap().split(',').next().unwrap().parse().unwrap();
    let _taken = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    let said = failure(&mut up(&data, 3));
    assert!(said.contains(&format!("127.0.0.1:{port} is in use, where etcd2 has to listen")), "{said}");
    let copies = ["node1", "node2", "node3"].into_iter().filter(|node| data.join(node).join("pgdata").exists());
    assert_eq!((data.join("pgdata/PG_VERSION").exists(), copies.count()), (true, 2));
}

/// The port of a node's PostgreSQL.
fn port_of(node: &Path) -> String {
    let pid_file = fs::read_to_string(node.join("pgdata/postmaster.pid")).unwrap();
    pid_file.lines().nth(3).unwrap().to_owned()
}

/// What a switchover says once somebody could take over: a standby that was restarted has to come back first.
fn switch_over(data: &Path) -> String {
    let mut said = String::new();
    eventually("somebody can take over", || {
        said = cluster(data, &["switchover"]);
        !said.contains("nobody can take over")
    });
    said
}

#[test]
fn settings_and_slots_go_along() {
    let place = place();
    let data = place.path().join("data");
    let mut three = Up::start(&mut up(&data, 3));
    let typed = three.line("PGPASSFILE=");
    three.ready();
    let settings = ["wal_level=logical", "max_prepared_transactions=50", "work_mem=7MB", "statement_timeout=70s"];
    let settings = settings.map(|setting| format!("postgresql.parameters.{setting}"));
    let settings: Vec<&str> = ["config", "set"].into_iter().chain(settings.iter().map(String::as_str)).collect();
    let said = cluster(&data, &settings);
    assert!(said.contains("sluice cluster restart --pending"), "{said}");
    cluster(&data, &["restart", "--pending"]);
    let slot = ["type=logical", "database=sluice", "plugin=pgoutput"].map(|it| format!("slots.warehouse.{it}"));
    cluster(&data, &["config", "set", &slot[0], &slot[1], &slot[2]]);
    let slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'warehouse'";
    eventually("the primary has the slot", || ask(&typed, slots) == "1\n");
    // Nobody has read from it yet, so standbys have nothing that its decoding could begin with.
    let said = switch_over(&data);
    assert!(said.contains("subscribers would not be served") && said.contains("--force"), "{said}");
    let said = cluster(&data, &["status"]);
    assert!(said.contains("Note: node") && said.contains("slot warehouse"), "{said}");
    let primary = data
        .join(["node1", "node2", "node3"].into_iter().find(|name| said.contains(&format!("primary {name}"))).unwrap());
    let superuser = format!("psql -h {} -p {} -U postgres -d sluice", primary.join("run").display(), port_of(&primary));
    let advance = "SELECT pg_replication_slot_advance('warehouse', pg_current_wal_flush_lsn()) IS NOT NULL";
    for _ in 0..3 {
        ask(&superuser, "CHECKPOINT");
        assert_eq!(ask(&superuser, advance), "t\n");
    }
    let said = switch_over(&data);
    assert!(said.contains("is the primary, in the place of node"), "{said}");
    let prepare = |typed: &str, name: &str| {
        ask(typed, &format!("BEGIN; CREATE TABLE {name} (id int); PREPARE TRANSACTION '{name}'"))
    };
    let said = prepare(&typed, "kept");
    assert!(said.contains("PREPARE TRANSACTION"), "{said}");
    stop(three, &data);

    // What PostgreSQL would not start on is not moved.
    let lowered = |lines: &str| {
        for node in ["node1", "node2", "node3"] {
            let conf = data.join(node).join("pgdata/postgresql.base.conf");
            let text = fs::read_to_string(&conf).unwrap();
            fs::write(&conf, text.split("# LOWERED").next().unwrap().to_owned() + lines).unwrap();
        }
    };
    for line in ["max_prepared_transactions = 0", "wal_level = replica"] {
        lowered(&format!("# LOWERED\n{line}\n"));
        let said = failure(&mut up(&data, 1));
        assert!(said.contains(line.split(' ').next().unwrap()) && said.contains("postgresql.base.conf"), "{said}");
        assert!(said.contains("nothing is moved") && !data.join("pgdata").exists(), "{said}");
    }
    lowered("# LOWERED\nwork_mem = 9MB\n");

    let mut one = Up::start(&mut up(&data, 1));
    let typed = one.line("PGPASSFILE=");
    one.ready();
    let shows = "SELECT string_agg(setting, ' ' ORDER BY name) FROM pg_settings \
                 WHERE name IN ('max_prepared_transactions', 'statement_timeout', 'wal_level', 'work_mem')";
    // Its own file wins.
    assert_eq!(ask(&typed, shows), "50 70000 logical 9216\n");
    assert_eq!(ask(&typed, slots), "1\n");
    assert_eq!(ask(&typed, "COMMIT PREPARED 'kept'"), "COMMIT PREPARED\n");
    assert_eq!(ask(&typed, "SELECT count(*) FROM kept"), "0\n");
    stop(one, &data);
    let conf = data.join("pgdata/postgresql.conf");
    let text = fs::read_to_string(&conf).unwrap();
    fs::write(&conf, text + "max_prepared_transactions = 60\n").unwrap();
    let mut one = Up::start(&mut up(&data, 1));
    let typed = one.line("PGPASSFILE=");
    one.ready();
    assert_eq!(ask(&typed, shows), "60 70000 logical 9216\n");
    prepare(&typed, "later");
    stop(one, &data);

    // Killed amid the removal of old copies, it leaves none by halves.
    let mut killed = Up::start(&mut up(&data, 3));
    killed.line("removed the old copy of the data in");
    killed.signal(Signal::SIGKILL);
    killed.wait();
    eventually("the end of all nodes", || processes(&data).is_empty());
    let mut three = Up::start(&mut up(&data, 3));
    three.line("node1 leader running, node2 quorum_standby streaming, node3 quorum_standby streaming");
    let typed = three.line("PGPASSFILE=");
    three.ready();
    assert_eq!(ask(&typed, shows), "60 70000 logical 9216\n");
    assert_eq!(ask(&typed, slots), "1\n");
    assert_eq!(ask(&typed, "COMMIT PREPARED 'later'"), "COMMIT PREPARED\n");
    assert_eq!(ask(&typed, "SELECT count(*) FROM later"), "0\n");
    assert!(!data.join("cluster-settings.json").exists());
    let said = cluster(&data, &["config", "--json"]);
    assert!(said.contains("statement_timeout") && said.contains("warehouse") && !said.contains("work_mem"), "{said}");
    stop(three, &data);
}

/// A primary is lost with the first statement of a block under way: its client can try again. The server hears first where
/// the client is, since another one had it before.
fn loses_a_block(typed: &str, data: &Path, postmaster: i32) {
    let port = typed.split(" -p ").nth(1).unwrap().split(' ').next().unwrap();
    let password = fs::read_to_string(data.join("password")).unwrap();
    let url = format!("host=127.0.0.1 port={port} user=sluice dbname=sluice password={}", password.trim());
    let connect = || {
        let mut client = postgres::Client::connect(&url, postgres::NoTls).unwrap();
        client.batch_execute("SELECT 1").unwrap();
        client
    };
    let (mut client, _other) = (connect(), connect());
    let all = [&children(postmaster)[..], &[postmaster]].concat();
    let signal = |signal| all.iter().for_each(|process| kill(Pid::from_raw(*process), signal).unwrap_or_default());
    signal(Signal::SIGSTOP);
    let error = thread::scope(|scope| {
        let block = scope.spawn(|| {
            client.batch_execute("BEGIN").unwrap();
            client.batch_execute("INSERT INTO t VALUES (4)").unwrap_err()
        });
        thread::sleep(SETTLING);
        signal(Signal::SIGKILL);
        block.join().unwrap()
    });
    assert_eq!(error.code().map(postgres::error::SqlState::code), Some("40001"), "{error}");
    client.batch_execute("ROLLBACK").unwrap();
}

/// The processes that have that one as their parent.
fn children(parent: i32) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |process: &i32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        fields.split(' ').nth(1) == Some(&*parent.to_string())
    };
    processes.filter(is_child).collect()
}

/// Ctrl-C while nodes start: none of their programs is left when the command has ended.
fn is_interrupted(data: &Path) {
    for line in ["starting etcd3", "starting node2"] {
        let mut three = Up::start(&mut up(data, 3));
        three.line(line);
        three.signal(Signal::SIGINT);
        assert!(!three.wait().success());
        assert_eq!(processes(data), [""; 0], "{line}");
    }
}

/// A second signal ends transactions at once, as with one node: nobody waits for their ten seconds.
fn is_hastened(up: &mut Up, typed: &str) {
    let sleep = |seconds: u32| format!("{} -w -X -c \"SELECT pg_sleep({seconds})\"", typed.trim_end());
    let mut shell = Command::new("sh");
    let client = shell.args(["-c", &sleep(60)]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let client = client.spawn().unwrap();
    let at_work = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)' AND state = 'active'";
    // With nothing to wait for, the nodes would be stopping by then, and a second signal be one for haste.
    eventually("the transaction is under way", || ask(typed, at_work) == "1\n");
    up.signal(Signal::SIGINT);
    up.line("stopping: transactions may finish");
    thread::sleep(Duration::from_millis(500));
    up.signal(Signal::SIGINT);
    let begun = Instant::now();
    let said = client.wait_with_output().unwrap();
    let (said, took) = (String::from_utf8_lossy(&said.stderr).into_owned(), begun.elapsed());
    assert!(took < Duration::from_secs(4), "{took:?}: {said}");
    assert!(said.contains("terminating connection") || said.contains("40001"), "{said}");
}

#[test]
fn two_nodes_and_what_is_wrong_with_them() {
    let place = place();
    let data = place.path().join("data");
    let mut two = Up::start(&mut up(&data, 2));
    two.line("node1 leader running, node2 sync_standby streaming");
    two.line("Commits   wait for the other node while it is there (synchronous)");
    two.ready();
    // Maintenance goes on behind a stop: whoever has begun it ends it.
    assert!(cluster(&data, &["pause"]).contains("is paused"));
    // With a floor, which Sluice's own roles are made below.
    let floor = "postgresql.parameters.sluice.synchronous_commit_floor=on";
    cluster(&data, &["config", "set", "ttl=26", "postgresql.parameters.max_connections=130", floor]);
    stop(two, &data);
    let mut two = Up::start(&mut up(&data, 2));
    two.line("the cluster is paused (maintenance), so Patroni starts no PostgreSQL");
    assert_eq!(cluster(&data, &["resume"]), "the cluster is no longer paused\n");
    let superuser = two.line("Superuser").replace("Superuser", "");
    two.ready();
    // What was set stays.
    assert_eq!(ask(&superuser, "SHOW max_connections"), "130\n");
    assert!(cluster(&data, &["config", "--json"]).contains("\"ttl\": 26"));
    // The nodes' own roles have their own passwords again, whoever has given them others, and whatever they may.
    for role in ["sluice_replication", "sluice_rewind", "sluice_auth"] {
        assert_eq!(ask(&superuser, &format!("ALTER ROLE {role} NOLOGIN PASSWORD 'other'")), "ALTER ROLE\n");
    }
    stop(two, &data);
    let mut two = Up::start(&mut up(&data, 2));
    two.line("sync_standby streaming");
    let typed = two.line("PGPASSFILE=");
    two.ready();
    assert_eq!(ask(&typed, "SELECT 1"), "1\n");
    // A standby that stands still: commits go on without it, and whoever looks is told what that means.
    eventually("all is well", || !cluster(&data, &["status"]).contains("Note:"));
    let receivers = ["node1", "node2"].map(|node| receiver(&data.join(node).join("pgdata")));
    let receiver = receivers.into_iter().flatten().next().unwrap();
    kill(receiver, Signal::SIGSTOP).unwrap();
    assert_eq!(ask(&typed, "CREATE TABLE written_alone ()"), "CREATE TABLE\n");
    let note = "commits go on without, and are on the primary's disk only. Until then nobody may take";
    eventually("that is noted", || cluster(&data, &["status"]).contains(note));
    kill(receiver, Signal::SIGCONT).unwrap();
    eventually("it is as before", || !cluster(&data, &["status"]).contains("Note:"));
    stop(two, &data);

    let state = fs::read_to_string(data.join("cluster.json")).unwrap();
    let port: u16 =
        state.split("\"rest\": ").nth(1).unwrap().split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
    let taken = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    let said = failure(&mut up(&data, 2));
    assert!(said.contains(&format!("127.0.0.1:{port} is in use, where Patroni of node1 has to listen")), "{said}");
    drop(taken);

    // Another cluster's data in the place of a node's.
    let (other, own) = (place.path().join("other"), data.join("node2/pgdata"));
    let mut one = Up::start(&mut up(&other, 1));
    one.ready();
    stop(one, &other);
    fs::rename(&own, place.path().join("aside")).unwrap();
    fs::rename(other.join("pgdata"), &own).unwrap();
    let said = failure(&mut up(&data, 2));
    assert!(said.contains("has data of another PostgreSQL") && said.contains("move the folder away"), "{said}");
    fs::rename(&own, other.join("pgdata")).unwrap();
    fs::rename(place.path().join("aside"), &own).unwrap();

    // etcd's data are what the cluster knows of itself.
    fs::rename(data.join("etcd1"), place.path().join("etcd1")).unwrap();
    let said = failure(&mut up(&data, 2));
    assert!(said.contains("the data of etcd1 are gone") && said.contains("--nodes 1"), "{said}");
    assert_eq!(processes(&data), [""; 0]);
}

/// A node that is on its way, as the last primary is behind a switchover, says late that it has to be restarted.
fn are_all_restarted(data: &Path) {
    assert!(cluster(data, &["switchover"]).contains("is the primary"));
    cluster(data, &["config", "set", "postgresql.parameters.max_connections=140"]);
    let said = cluster(data, &["restart", "--pending"]);
    for name in ["node1", "node2", "node3"] {
        let node = data.join(name);
        let superuser = format!("psql -h {} -p {} -U postgres -d sluice", node.join("run").display(), port_of(&node));
        assert_eq!(ask(&superuser, "SHOW max_connections"), "140\n", "{name}: {said}");
    }
    assert!(cluster(data, &["switchover", "--to", "node1"]).contains("node1 is the primary"));
}

/// As a loss of power leaves it while a node's data are copied.
#[test]
fn one_node_without_its_data_does_not_keep_clients_away() {
    let place = place();
    let data = place.path().join("data");
    let mut three = Up::start(&mut up(&data, 3));
    three.line("node1 leader running");
    three.ready();
    are_all_restarted(&data);
    stop(three, &data);

    // A copy of which the end is missing is made again. It was the last primary, stopped in order, so Patroni takes nobody
    // else by itself.
    let first = data.join("node1/pgdata");
    fs::write(first.join("backup_label"), "").unwrap();
    for file in ["PG_VERSION", "global/pg_control", "postmaster.opts"] {
        fs::remove_file(first.join(file)).unwrap();
    }
    let mut three = Up::start(&mut up(&data, 3));
    three.line("node1/pgdata, which had not come to its end");
    three.line("node1 replica stopped, node2 replica running, node3 replica running");
    let said = cluster(&data, &["failover", "node1", "--force"]);
    assert!(said.contains("PostgreSQL does not run on node1"), "{said}");
    let said = cluster(&data, &["failover", "node2"]);
    assert!(said.contains("none has more than node2, and node1 can't be asked"), "{said}");
    let said = cluster(&data, &["failover", "node2", "--force"]);
    assert!(said.contains("node2 is the primary"), "{said}");
    let said = cluster(&data, &["failover", "node3", "--force"]);
    assert!(said.contains("node2 is the primary\nsluice cluster switchover"), "{said}");
    three.line("node1 quorum_standby streaming");
    three.ready();
    stop(three, &data);

    // One whose Patroni ends at once, again and again, is for whoever runs this to look at: the others serve meanwhile.
    let third = data.join("node3/pgdata");
    let owner = fs::metadata(&third).unwrap();
    chown(&third, Some(0), Some(0)).unwrap();
    let mut three = Up::start(&mut up(&data, 3));
    three.line("node3 ended by itself");
    three.line("node3 replica stopped");
    let typed = three.line("PGPASSFILE=");
    three.ready();
    assert_eq!(ask(&typed, "CREATE TABLE t AS SELECT 1 AS id"), "SELECT 1\n");
    chown(&third, Some(owner.uid()), Some(owner.gid())).unwrap();
    let is_whole = || {
        let said = cluster(&data, &["status"]);
        said.lines().any(|line| line.contains("node3") && line.contains("streaming"))
    };
    eventually("it is there again", is_whole);
    stop(three, &data);
}

#[test]
fn a_class_is_for_one_node() {
    let place = place();
    let said = failure(up(&place.path().join("data"), 3).args(["--connections", "50"]));
    assert!(said.contains("for one node") && said.contains("leave out --nodes"), "{said}");
}
