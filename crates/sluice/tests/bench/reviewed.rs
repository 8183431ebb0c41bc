//! A server by its DSN: `quick` before and after what `sluice review` advises, and what is left alone.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use sluice_instance::StopMode;
use sluice_testkit::{TestServer, Version, traps};

use crate::bench::{bench, beside_others, place, read, stdout};

fn dsn(server: &TestServer, database: &str) -> String {
    format!("host={} port={} user=postgres dbname={database}", server.socket_dir().display(), server.port())
}

#[test]
fn quick_before_and_after_the_script() {
    let _beside_others = beside_others();
    let (server, place) = (TestServer::start(Version::V15, &[]), place());
    server.execute("CREATE DATABASE bench");
    server.execute("CREATE ROLE bencher SUPERUSER LOGIN PASSWORD 'top secret'");
    let run = |name: &str| {
        let dir = place.path().join(name).to_str().unwrap().to_owned();
        let dsn = dsn(&server, "bench").replace("user=postgres", "user=bencher password='top secret'");
        let target = format!("reviewed={dsn}");
        stdout(&bench(&["run", "quick", "--brief", "--target", &target, "--output", &dir]));
        dir
    };
    let before = run("before");

    let script = place.path().join("review.sql");
    let review = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["review", &dsn(&server, "postgres"), "--format", "sql", "--output"])
        .arg(&script)
        .output()
        .unwrap();
    stdout(&review);
    let mut psql = server.program("psql");
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(&script).arg(dsn(&server, "postgres"));
    let applied = psql.stdout(Stdio::null()).output().unwrap();
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    server.down(StopMode::Fast);
    server.up();

    // The tables are still there: they are not made anew.
    let after = run("after");
    let (old, new) = (read(before.as_ref()), read(after.as_ref()));
    assert_eq!((old.measured().count(), new.measured().count()), (2, 2), "{:?}\n{:?}", old.turns, new.turns);
    assert_ne!(old.servers["reviewed"].settings, new.servers["reviewed"].settings);
    for file in ["result.json", "report.html", "summary.csv", "series.csv"] {
        assert!(!fs::read_to_string(Path::new(&before).join(file)).unwrap().contains("secret"), "{file}");
    }
    let compared = stdout(&bench(&["compare", &before, &after]));
    assert!(compared.contains("reviewed") && compared.contains("checkpoint_timeout"), "{compared}");
}

#[test]
fn a_ladder_on_a_server_of_somebody_else() {
    let _beside_others = beside_others();
    let (server, place) = (TestServer::start(Version::V18, &[]), place());
    server.execute("CREATE DATABASE bench");
    let dir = place.path().join("run");
    let target = format!("theirs={}", dsn(&server, "bench"));
    let args = ["run", "tpcb-ladder", "--brief", "--clients", "4", "--cpus", "1", "--target", &target, "--output"];
    stdout(&bench(&[&args[..], &[dir.to_str().unwrap()]].concat()));
    let result = read(&dir);
    let measured: Vec<&str> = result.measured().map(|(turn, _)| turn.case.variant.as_str()).collect();
    assert_eq!(measured, ["logged", "unlogged"], "{:?}", result.turns);
    let persistence = "SELECT relpersistence FROM pg_class WHERE relname = 'pgbench_accounts'";
    assert_eq!(server.connect("postgres", "bench").query_one(persistence, &[]).unwrap().get::<_, i8>(0), b'u' as i8);
    assert!(result.servers["theirs"].round_trip_us.is_some_and(|us| us > 0.0), "{:?}", result.servers);
    for said in ["class not enforced: cpus 1 (theirs", "settings of variants were not made at theirs"] {
        assert!(result.remarks.iter().any(|remark| remark.contains(said)), "{said}: {:?}", result.remarks);
    }
}

#[test]
fn what_others_have_in_their_database_is_left_alone() {
    let _beside_others = beside_others();
    let (server, place) = (TestServer::start(Version::V15, &[]), place());
    server.execute("CREATE TABLE payroll (salary int)");
    let dir = place.path().join("run");
    let target = format!("theirs={}", dsn(&server, "postgres"));
    let output = bench(&["run", "quick", "--brief", "--target", &target, "--output", dir.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("name an empty database"), "{said}");
    assert_eq!(server.value("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"), "1");
    assert!(fs::metadata(dir.join("report.html")).is_ok());
}

/// No function of a database's owner is run by a superuser who measures there, and no table of the owner's is taken for
/// one of the laboratory's.
#[test]
fn a_database_s_own_code_is_not_run() {
    let _beside_others = beside_others();
    let (server, place) = (TestServer::start(Version::V15, &[]), place());
    traps::set(&server);
    let target = format!("shop={}", dsn(&server, "shop").replace("user=postgres", "user=boss"));
    let run = |dir: &str| {
        let dir = place.path().join(dir);
        bench(&[
            "run",
            "quick",
            "--brief",
            "--variant",
            "select",
            "--target",
            &target,
            "--output",
            dir.to_str().unwrap(),
        ])
    };
    for (nth, path) in traps::PATHS.into_iter().enumerate() {
        traps::set_path(&server, path);
        stdout(&run(&nth.to_string()));
        assert!(!traps::has_caught(&server), "{path}");
    }
    let swap = "DROP TABLE pgbench_history; CREATE TABLE pgbench_history (tid int)";
    server.connect("eve", "shop").batch_execute(&format!("SET search_path = public; {swap}")).unwrap();
    let output = run("swapped");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("tables of others"), "{text}");
}
