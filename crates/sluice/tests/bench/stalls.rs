//! Stalls that are provoked for real, each in its own way, and found with their causes.
//!
//! A turn is disturbed several times, with calm between: what has to be found is the cause of each, and nothing in the
//! calm.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use postgres::Client;
use sluice_instance::{Binaries, Controller, Disk, GroupDir, Hierarchies};
use sluice_lab::{
    result::Measured,
    sample::metrics,
    stall::{Cause, Stall},
};
use tempfile::TempDir;

use crate::bench::{Run, alone, place, read, scenario};

/// A steady load far below what the machine can do, so that only what is provoked stops it.
const STEADY: &str = "
title = 'Steady'
description = 'An update.'
targets = ['straight']
[data]
schema = 'schema.sql'
rows = 1000
[load]
clients = [8]
seconds = 14
warm_up_seconds = 0
rate = 200.0
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

/// The length of each disturbance.
const DISTURBED: Duration = Duration::from_secs(3);
/// The time before each disturbance: enough for a stall's end, and to know what is ordinary.
const CALM: Duration = Duration::from_secs(5);
/// A stall may begin a little before the disturbance, in the same second, and last a little longer.
const SLACK_S: f64 = 2.0;

/// A turn under way.
struct Turn {
    run: Run,
    place: TempDir,
    pgbench: u32,
    begin: Instant,
    disturbed: Vec<Disturbed>,
}

/// From when to when, and for which causes.
struct Disturbed {
    from_s: f64,
    to_s: f64,
    causes: &'static [Cause],
}

impl Turn {
    fn begin(toml: &str, schema: &str, update: &str) -> Self {
        let place = place();
        let folder = scenario(place.path(), toml, &[("schema.sql", schema), ("update.sql", update)]);
        let mut run = Run::start(&place.path().join("run"), &[&folder, "--sample-hz", "5"]);
        let pgbench = run.pgbench_for(Duration::ZERO);
        Self { run, place, pgbench, begin: Instant::now(), disturbed: Vec::new() }
    }

    /// Leaves the turn alone for a while, then does what stops it. All of `causes` have to be found.
    fn disturb(&mut self, causes: &'static [Cause], how: impl FnOnce(&Self)) {
        thread::sleep(CALM);
        let from_s = self.begin.elapsed().as_secs_f64();
        how(self);
        self.disturbed.push(Disturbed { from_s, to_s: self.begin.elapsed().as_secs_f64(), causes });
    }

    fn execute(&self, sql: &str) {
        self.run.connect().batch_execute(sql).unwrap();
    }

    /// Its end. Each disturbance has stopped it, for the causes that it had to; the first cause that is named is one of
    /// them.
    fn finish(self) -> Measured {
        let measured = self.run.only_turn();
        let rates: Vec<f64> = measured.seconds.iter().map(|second| second.tps.round()).collect();
        for Disturbed { from_s, to_s, causes } in &self.disturbed {
            let is_meant = |stall: &&Stall| stall.from_s < to_s + SLACK_S && stall.to_s > from_s - SLACK_S;
            let stalls: Vec<&Stall> = measured.stalls.iter().filter(is_meant).collect();
            let named = |cause: &Cause| stalls.iter().any(|stall| stall.findings.iter().any(|one| one.cause == *cause));
            let is_named_first = stalls.iter().any(|stall| {
                // What else runs on the machine may weigh more, and the images of the pages that a vacuum changes.
                let may_come_first = |cause| match cause {
                    Cause::CpuTaken => true,
                    Cause::FullPageImages => causes.contains(&Cause::Autovacuum),
                    _ => false,
                };
                let mut found = stall.findings.iter().map(|finding| finding.cause);
                found
                    .find(|cause| causes.contains(cause) || !may_come_first(*cause))
                    .is_some_and(|cause| causes.contains(&cause))
            });
            let waits = waits(&measured, *from_s, *to_s);
            assert!(
                causes.iter().all(named) && is_named_first,
                "{causes:?} at {from_s:.1} s: {stalls:#?}\n{waits:?}\n{rates:?}"
            );
            let evidence = stalls.iter().flat_map(|stall| &stall.findings).flat_map(|finding| &finding.evidence);
            assert!(evidence.clone().count() > 0 && evidence.clone().all(|one| one.inside.is_finite()), "{stalls:#?}");
        }
        // The machine may have a bad moment of its own.
        let is_calm = |stall: &&Stall| {
            let meets = |one: &Disturbed| stall.from_s < one.to_s + SLACK_S && stall.to_s > one.from_s - SLACK_S;
            !self.disturbed.iter().any(meets)
        };
        let stalled_s: f64 = measured.stalls.iter().filter(is_calm).map(Stall::seconds).sum();
        assert!(stalled_s <= 3.0, "stalls without a reason: {:#?}\n{rates:?}", measured.stalls);
        measured
    }
}

/// Wait events and their types, each with the mean number of sessions that waited for it meanwhile.
fn waits(measured: &Measured, from_s: f64, to_s: f64) -> Vec<(&str, f64)> {
    let columns = measured.samples.columns.keys().map(String::as_str);
    let means = columns.filter(|column| column.starts_with(metrics::EVENT) || column.starts_with(metrics::WAIT));
    means.filter_map(|name| Some((name, measured.samples.mean(name, |t_s| t_s > from_s && t_s < to_s)?))).collect()
}

/// Once more, if it failed: a shared machine may have a bad moment of its own in any turn, but not in each.
fn twice(provoke: fn()) {
    if std::panic::catch_unwind(provoke).is_err() {
        provoke();
    }
}

/// A process that is stopped, not ended, while something is done.
fn stopped(pid: u32) {
    let pid = Pid::from_raw(pid.try_into().unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    thread::sleep(DISTURBED);
    kill(pid, Signal::SIGCONT).unwrap();
}

/// A process that ends with the test, however it ends.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id().try_into().unwrap()), Signal::SIGCONT);
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A standby that confirms what it has written, as far as commits can tell.
fn standby(turn: &Turn) -> Ending {
    turn.execute("CREATE ROLE standby REPLICATION LOGIN PASSWORD 'standby'");
    let (socket_dir, port) = turn.run.socket();
    let directory = turn.place.path().join("received");
    fs::create_dir(&directory).unwrap();
    let mut command = Command::new(Binaries::find(None).unwrap().dir.join("pg_receivewal"));
    command.args(["--synchronous", "--no-loop", "-D"]).arg(directory).env("PGPASSWORD", "standby");
    command.arg("-d").arg(format!("host={} port={port} user=standby application_name=standby", socket_dir.display()));
    let standby = Ending(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let end = Instant::now() + Duration::from_secs(20);
    let mut client = turn.run.connect();
    while client.query("SELECT FROM pg_stat_replication WHERE state = 'streaming'", &[]).unwrap().is_empty() {
        assert!(Instant::now() < end, "the standby does not come");
        thread::sleep(Duration::from_millis(50));
    }
    standby
}

fn set(client: &mut Client, name: &str, value: &str) {
    client.batch_execute(&format!("ALTER SYSTEM SET {name} = '{value}'")).unwrap();
    client.batch_execute("SELECT pg_reload_conf()").unwrap();
}

#[test]
fn what_sessions_wait_for() {
    let _alone = alone();
    twice(sessions_wait);
}

fn sessions_wait() {
    let schema = format!(
        "{SCHEMA}CREATE TABLE delay (ms float8);
         CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_sleep(ms / 1000) FROM delay; RETURN NEW; END $$;
         CREATE TRIGGER wait BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION wait();"
    );
    let toml = STEADY.replace("seconds = 14", "seconds = 50") + "[class]\ncpus = '1'\n";
    let mut turn = Turn::begin(&toml, &schema, UPDATE);
    turn.disturb(&[Cause::LockWaits], |turn| {
        let mut client = turn.run.connect();
        let mut transaction = client.transaction().unwrap();
        transaction.batch_execute("LOCK TABLE items IN EXCLUSIVE MODE").unwrap();
        thread::sleep(DISTURBED);
        transaction.rollback().unwrap();
    });
    turn.disturb(&[Cause::Sleep], |turn| {
        turn.execute("INSERT INTO delay VALUES (500)");
        thread::sleep(DISTURBED);
        turn.execute("DELETE FROM delay");
    });
    let standby = standby(&turn);
    turn.disturb(&[Cause::ReplicaWaits], |turn| {
        let mut client = turn.run.connect();
        set(&mut client, "synchronous_standby_names", "standby");
        stopped(standby.0.id());
        set(&mut client, "synchronous_standby_names", "");
    });
    drop(standby);
    turn.disturb(&[Cause::Client], |turn| stopped(turn.pgbench));
    let limits = Limits::of(&mut turn.run.connect());
    turn.disturb(&[Cause::CpuThrottling], |_| limits.throttle());
    let measured = turn.finish();
    let cost = measured.figures.sampler_cpu_percent.unwrap();
    assert!(cost > 0.0, "{cost}");
}

/// A turn that its processors were taken away from, and of which the cause is looked into.
fn throttled(place: &TempDir, dir: &str) -> Run {
    let toml = STEADY.replace("seconds = 14", "seconds = 10") + "[class]\ncpus = '1'\n";
    let folder = place.path().join("scenario");
    if !folder.exists() {
        scenario(place.path(), &toml, &[("schema.sql", SCHEMA), ("update.sql", UPDATE)]);
    }
    let args = [folder.to_str().unwrap(), "--sample-hz", "5", "--confirm"];
    let mut run = Run::start(&place.path().join(dir), &args);
    run.pgbench_for(CALM);
    Limits::of(&mut run.connect()).throttle();
    run
}

#[test]
fn causes_are_taken_away() {
    let _alone = alone();
    twice(a_cause_is_taken_away);
    // What was measured stays, even if nobody waits for the confirmation.
    let place = place();
    let mut run = throttled(&place, "interrupted");
    let first = run.pgbench_for(Duration::ZERO);
    while run.pgbench_for(Duration::ZERO) == first {
        thread::sleep(Duration::from_millis(50));
    }
    kill(Pid::from_raw(run.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let dir = run.dir.clone();
    run.finish();
    let result = read(&dir);
    assert_eq!(result.measured().count(), 1, "{:?}", result.turns);
    assert!(result.remarks.iter().any(|remark| remark.contains("no confirmation with ")), "{:?}", result.remarks);
}

fn a_cause_is_taken_away() {
    let place = place();
    let run = throttled(&place, "confirmed");
    let dir = run.dir.clone();
    let measured = run.only_turn();
    let findings: Vec<_> = measured.stalls.iter().flat_map(|stall| &stall.findings).collect();
    let throttling = findings.iter().find(|finding| finding.cause == Cause::CpuThrottling);
    let confirmation = throttling.and_then(|finding| finding.confirmation.as_ref());
    assert!(confirmation.is_some_and(|one| one.without == "no limit on processors"), "{findings:?}");
    // The server without processor time answers nobody, and the machine was looked at five times a second.
    let within = |t_s| measured.stalls.iter().any(|stall| stall.covers(t_s));
    let looks = measured.samples.points(metrics::THROTTLED).filter(|(t_s, _)| within(*t_s)).count();
    assert!(looks >= 5, "{looks} looks at the machine in {:?}", measured.stalls);
    let result = read(&dir);
    assert!(result.remarks.iter().any(|remark| remark.contains("class enforced: cpus 1")), "{:?}", result.remarks);
    assert_eq!(result.servers["straight"].cores, Some(1.0), "the server is told as it was in its turn");
}

#[test]
fn processes_that_take_the_processors() {
    let _alone = alone();
    twice(processors_are_taken);
}

fn processors_are_taken() {
    // As fast as it can: a load that leaves processors idle would not notice.
    let mut turn = Turn::begin(&STEADY.replace("rate = 200.0\n", ""), SCHEMA, UPDATE);
    turn.disturb(&[Cause::CpuTaken], |_| {
        let cores = thread::available_parallelism().unwrap().get();
        let hog = || {
            let loops = "while :; do :; done";
            Command::new("nice").args(["-n", "-15", "sh", "-c", loops]).stdout(Stdio::null()).spawn().unwrap()
        };
        let _hogs: Vec<Ending> = (0..4 * cores).map(|_| Ending(hog())).collect();
        thread::sleep(DISTURBED);
    });
    turn.finish();
}

/// A limit that the kernel imposes on a server.
#[derive(Clone, Copy)]
enum Allowed {
    /// Writes a second.
    Requests(u64),
    /// Bytes written a second.
    Bytes(u64),
    /// Processor time.
    Processors(f64),
}

/// The limits of a run's server. They are found while it still answers at once.
struct Limits {
    groups: Hierarchies,
    /// The disk that its data are on.
    disk: Disk,
}

impl Limits {
    fn of(client: &mut Client) -> Self {
        let row = client.query_one("SELECT pg_backend_pid(), current_setting('data_directory')", &[]).unwrap();
        let groups = Hierarchies::of(row.get::<_, i32>(0).try_into().unwrap());
        Self { groups, disk: Disk::below(Path::new(row.get::<_, &str>(1))).unwrap() }
    }

    /// Makes the disk or the processors of the server slower, or fast again, by the control group of its class.
    fn allow(&self, what: Allowed) {
        let disk = self.disk;
        let (controller, v1, v2) = match what {
            Allowed::Requests(count) => {
                let v1 = ("blkio.throttle.write_iops_device", format!("{disk} {count}"));
                (Controller::Io, v1, ("io.max", format!("{disk} wiops={count}")))
            }
            Allowed::Bytes(count) => {
                let v1 = ("blkio.throttle.write_bps_device", format!("{disk} {count}"));
                (Controller::Io, v1, ("io.max", format!("{disk} wbps={count}")))
            }
            Allowed::Processors(share) => {
                let quota_us = (share * 100_000.0) as u64;
                (Controller::Cpu, ("cpu.cfs_quota_us", quota_us.to_string()), ("cpu.max", format!("{quota_us} 100000")))
            }
        };
        let (dir, (file, text)) = match self.groups.own(controller) {
            Some(GroupDir::V1(dir)) => (dir, v1),
            Some(GroupDir::V2(dir)) => (dir, v2),
            None => panic!("the server has no control group: {:?}", self.groups),
        };
        fs::write(dir.join(file), text).unwrap();
    }

    /// Takes the server's processors away for a while.
    fn throttle(&self) {
        self.allow(Allowed::Processors(0.01));
        thread::sleep(DISTURBED);
        self.allow(Allowed::Processors(1.0));
    }

    /// Somebody else in the server's control group, who writes as fast as its limit lets him: requests of all queue up.
    fn writer(&self, turn: &Turn) -> Ending {
        let Some(GroupDir::V1(group) | GroupDir::V2(group)) = self.groups.own(Controller::Io) else {
            panic!("{:?}", self.groups)
        };
        let file = tempfile::NamedTempFile::new_in(turn.place.path()).unwrap().into_temp_path().keep().unwrap();
        let script = "echo $$ > \"$0/cgroup.procs\" && exec dd if=/dev/zero of=\"$1\" bs=4096 count=4096 oflag=direct";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(group).arg(file).stdout(Stdio::null()).stderr(Stdio::null());
        Ending(command.spawn().unwrap())
    }
}

/// Rows that fill a page each, of which a transaction changes twenty: cheap, but for images of pages. And dead rows, which
/// nobody takes away yet.
const PAGES: &str = "CREATE TABLE items (id int PRIMARY KEY, n int NOT NULL, filler text)
    WITH (fillfactor = 40, autovacuum_enabled = false);
ALTER TABLE items ALTER filler SET STORAGE PLAIN;
INSERT INTO items SELECT id, 0, repeat('x', 3000) FROM generate_series(1, :rows) AS id;
CREATE TABLE dead (id int, filler text) WITH (autovacuum_enabled = false, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE dead ALTER filler SET STORAGE PLAIN;
INSERT INTO dead SELECT id, repeat('x', 3000) FROM generate_series(1, 3000) AS id;
";
const UPDATE_TWENTY: &str = "\\set id random(1, :rows - 19)\n\
    UPDATE items SET n = n + 1 WHERE id BETWEEN :id AND :id + 19;\n";

/// Bytes a second that images of pages use up, and the load alone does not.
const SLOW: Allowed = Allowed::Bytes(500_000);
const FAST: Allowed = Allowed::Bytes(1_000_000_000);

#[test]
fn a_disk_that_is_slow_or_busy() {
    let _alone = alone();
    twice(the_disk_is_slow);
}

fn the_disk_is_slow() {
    let toml = STEADY.replace("seconds = 14", "seconds = 37").replace("rate = 200.0", "rate = 30.0");
    let toml = toml + "[class]\niops = '200'\n[settings]\nautovacuum_naptime = '1s'\n";
    let mut turn = Turn::begin(&toml, PAGES, UPDATE_TWENTY);
    let mut client = turn.run.connect();
    // Every second row: their pages are what autovacuum will find.
    client.batch_execute("DELETE FROM dead WHERE id % 2 = 0; CHECKPOINT").unwrap();
    let limits = Limits::of(&mut client);
    turn.disturb(&[Cause::WalSync], |_| {
        limits.allow(Allowed::Requests(1));
        thread::sleep(DISTURBED);
        limits.allow(Allowed::Requests(200));
    });
    turn.disturb(&[Cause::IoCap], |turn| {
        let _hogs: Vec<Ending> = (0..64).map(|_| limits.writer(turn)).collect();
        thread::sleep(DISTURBED);
    });
    turn.disturb(&[Cause::Autovacuum, Cause::WalSync], |_| {
        limits.allow(SLOW);
        client.batch_execute("ALTER TABLE dead RESET (autovacuum_enabled)").unwrap();
        let at_work = "SELECT FROM pg_stat_progress_vacuum WHERE relid = 'dead'::regclass";
        let end = Instant::now() + Duration::from_secs(8);
        while client.query(at_work, &[]).unwrap().is_empty() {
            assert!(Instant::now() < end, "autovacuum does not come");
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(DISTURBED);
        limits.allow(FAST);
    });
    turn.finish();
}

#[test]
fn a_checkpoint_on_a_disk_that_is_slow() {
    let _alone = alone();
    twice(the_checkpoint_is_slow);
}

/// The turn is long: its own begin is behind a checkpoint too, and has images of pages.
fn the_checkpoint_is_slow() {
    let toml = STEADY.replace("seconds = 14", "seconds = 30").replace("rate = 200.0", "rate = 50.0");
    let toml = toml + "[class]\niops = '1000'\n";
    let mut turn = Turn::begin(&toml, PAGES, UPDATE_TWENTY);
    let limits = Limits::of(&mut turn.run.connect());
    turn.disturb(&[Cause::CheckpointWrites, Cause::FullPageImages, Cause::WalSync], |turn| {
        limits.allow(SLOW);
        thread::scope(|scope| {
            let checkpoint = scope.spawn(|| turn.execute("CHECKPOINT"));
            thread::sleep(DISTURBED);
            limits.allow(FAST);
            checkpoint.join().unwrap();
        });
    });
    let measured = turn.finish();
    assert!(!measured.samples.checkpoints.is_empty(), "{:?}", measured.samples);
}
