//! Stalls that are provoked for real, each in its own way, and found with their causes.

use std::{
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sluice_lab::{
    result::Measured,
    stall::{Cause, Stall},
};

use crate::bench::{Run, alone, place, scenario};

/// A steady load far below what the machine can do, so that only what is provoked stops it.
const STEADY: &str = "
title = 'Steady'
description = 'An update and a log line.'
targets = ['straight']
[data]
schema = 'schema.sql'
rows = 1000
[load]
clients = [8]
seconds = 14
warm_up_seconds = 0
rate = 400.0
[[variant]]
name = 'update'
scripts = [{ file = 'update.sql' }]
[brief]
rows = 1000
clients = [8]
";

const SCHEMA: &str = "CREATE TABLE items (id int PRIMARY KEY, n int NOT NULL);
INSERT INTO items SELECT id, 0 FROM generate_series(1, :rows) AS id;
";

const UPDATE: &str = "\\set id random(1, :rows)\nUPDATE items SET n = n + 1 WHERE id = :id;\n";

/// Runs the steady load, has something done to it after five seconds, and returns the stalls that begin then.
fn provoke(toml: &str, schema: &str, disturb: impl FnOnce(&Run, u32)) -> (Measured, Vec<Stall>) {
    let place = place();
    let folder = scenario(place.path(), toml, &[("schema.sql", schema), ("update.sql", UPDATE)]);
    let mut run = Run::start(&place.path().join("run"), &[&folder, "--sample-hz", "5"]);
    let pgbench = run.pgbench_for(Duration::from_secs(5));
    disturb(&run, pgbench);
    let measured = run.only_turn();
    let stalls = measured.stalls.iter().filter(|stall| (2.5..10.0).contains(&stall.from_s)).cloned().collect();
    (measured, stalls)
}

fn assert_cause(cause: Cause, (measured, stalls): &(Measured, Vec<Stall>)) {
    let rates: Vec<f64> = measured.seconds.iter().map(|second| second.tps.round()).collect();
    let found: Vec<(Cause, &Stall)> = stalls.iter().map(|stall| (stall.cause(), stall)).collect();
    assert!(found.iter().any(|(found, _)| *found == cause), "{cause:?}: {found:#?}\n{rates:?}");
    let (_, stall) = found.iter().find(|(found, _)| *found == cause).unwrap();
    assert!(stall.findings[0].evidence.iter().all(|evidence| evidence.inside.is_finite()));
    assert!(!stall.findings[0].evidence.is_empty());
}

#[test]
fn a_lock_holder() {
    let _alone = alone();
    let found = provoke(STEADY, SCHEMA, |run, _| {
        let mut client = run.connect();
        let mut transaction = client.transaction().unwrap();
        transaction.batch_execute("LOCK TABLE items IN EXCLUSIVE MODE").unwrap();
        thread::sleep(Duration::from_secs(4));
        transaction.rollback().unwrap();
    });
    assert_cause(Cause::LockWaits, &found);
}

#[test]
fn a_trigger_that_sleeps() {
    let _alone = alone();
    let schema = format!(
        "{SCHEMA}CREATE TABLE delay (ms float8);
         CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_sleep(ms / 1000) FROM delay; RETURN NEW; END $$;
         CREATE TRIGGER wait BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION wait();"
    );
    let found = provoke(STEADY, &schema, |run, _| {
        let mut client = run.connect();
        client.batch_execute("INSERT INTO delay VALUES (500)").unwrap();
        thread::sleep(Duration::from_secs(4));
        client.batch_execute("DELETE FROM delay").unwrap();
    });
    assert_cause(Cause::Sleep, &found);
}

#[test]
fn a_client_that_is_stopped() {
    let _alone = alone();
    let found = provoke(STEADY, SCHEMA, |_, pgbench| {
        let pgbench = Pid::from_raw(pgbench.try_into().unwrap());
        kill(pgbench, Signal::SIGSTOP).unwrap();
        thread::sleep(Duration::from_secs(4));
        kill(pgbench, Signal::SIGCONT).unwrap();
    });
    assert_cause(Cause::Client, &found);
}

#[test]
fn processes_that_take_the_processors() {
    let _alone = alone();
    // As fast as it can: a load that leaves processors idle would not notice.
    let toml = STEADY.replace("rate = 400.0\n", "");
    let found = provoke(&toml, SCHEMA, |_, _| {
        let cores = thread::available_parallelism().unwrap().get();
        let hog = || {
            let loops = "while :; do :; done";
            Command::new("nice").args(["-n", "-15", "sh", "-c", loops]).stdout(Stdio::null()).spawn().unwrap()
        };
        let mut hogs: Vec<_> = (0..4 * cores).map(|_| hog()).collect();
        thread::sleep(Duration::from_secs(4));
        for hog in &mut hogs {
            hog.kill().unwrap();
            hog.wait().unwrap();
        }
    });
    assert_cause(Cause::CpuTaken, &found);
}

/// A commit waits for the disk; a checkpoint's pages use its requests up.
#[test]
fn a_checkpoint_that_uses_the_limit_of_requests_up() {
    let _alone = alone();
    let toml = STEADY.replace("rate = 400.0\n", "rate = 50.0\n") + "[class]\niops = '120'\n";
    let schema = format!(
        "{SCHEMA}CREATE TABLE pages (id int, filler text) WITH (fillfactor = 40);
         INSERT INTO pages SELECT id, repeat('x', 1000) FROM generate_series(1, 12000) AS id;"
    );
    let found = provoke(&toml, &schema, |run, _| {
        let mut client = run.connect();
        // Every eighth page: what lies side by side would be one request.
        client.batch_execute("UPDATE pages SET id = id + 1 WHERE id % 24 = 0").unwrap();
        // It may outlast the turn, which ends the server.
        let _ = client.batch_execute("CHECKPOINT");
    });
    let (measured, stalls) = &found;
    let named: Vec<Cause> = stalls.iter().flat_map(|stall| &stall.findings).map(|finding| finding.cause).collect();
    let wanted = [Cause::IoCap, Cause::CheckpointWrites, Cause::WalSync];
    assert!(wanted.iter().any(|cause| named.contains(cause)), "{named:?}\n{stalls:#?}\n{:?}", measured.seconds);
}

#[test]
fn a_steady_load_has_no_stalls() {
    let _alone = alone();
    let (measured, _) = provoke(STEADY, SCHEMA, |_, _| {});
    let rates: Vec<f64> = measured.seconds.iter().map(|second| second.tps.round()).collect();
    // The machine may have a bad moment of its own.
    let stalled_s: f64 = measured.stalls.iter().map(Stall::seconds).sum();
    assert!(stalled_s <= 3.0, "{:#?} {rates:?}", measured.stalls);
    let cost = measured.figures.sampler_cpu_percent.unwrap();
    assert!(cost > 0.0, "{cost}");
}
