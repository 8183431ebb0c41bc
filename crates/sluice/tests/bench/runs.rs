//! Runs: every scenario, what breaks, what is interrupted and goes on.

use std::{fs, thread, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sluice_lab::{
    result::{Measured, Outcome, RunResult, Turn},
    sample::metrics,
    scenario,
    target::Target,
};
use sluice_testkit::case::repository;

use crate::bench::{Run, bench, beside_others, place, read, stdout};

fn measured(result: &RunResult) -> Vec<String> {
    result.measured().map(|(turn, _)| format!("{} {}", turn.case.variant, turn.case.target)).collect()
}

#[test]
fn every_scenario_in_seconds() {
    let _beside_others = beside_others();
    thread::scope(|scope| {
        for name in scenario::names() {
            scope.spawn(move || in_seconds(name));
        }
    });
}

#[test]
fn handshakes_in_seconds() {
    let _beside_others = beside_others();
    let targets = ["--target", "pool-tls", "--target", "straight"];
    let output = bench(&[&["handshakes", "--seconds", "1", "--turns", "1"], &targets[..]].concat());
    let text = stdout(&output);
    for row in ["| ecdsa | pool-tls", "| ecdsa | straight", "| rsa   | pool-tls", "| rsa   | straight"] {
        let is_it = |line: &str| line.split_whitespace().take(4).eq(row.split_whitespace().take(4));
        assert!(text.lines().any(is_it), "{text}");
    }
}

fn in_seconds(name: &str) {
    let place = place();
    let dir = place.path().join("run");
    // Of many variants two are enough to see that it works: all targets are in one of them.
    let some: &[&str] = match name {
        "peers" => &["--variant", "select, extended", "--variant", "TPC-B, prepared"],
        "everything-on" => &["--variant", "select, extended"],
        // Its other pool is one of the peers.
        "floods" => &["--target", "pool-tls"],
        "sessions" => &["--variant", "a setting"],
        // Two nodes are as many more processes.
        "follow" => &["--variant", "select, extended", "--target", "pool-nodes-2"],
        "sync-matrix" => &["--variant", "write-only", "--target", "nodes-1", "--target", "nodes-3-2ms"],
        _ => &[],
    };
    let patroni = repository().join("target/patroni");
    let folders = ["--output", dir.to_str().unwrap(), "--patroni-dir", patroni.to_str().unwrap()];
    let output = bench(&[&["run", name, "--brief"], &folders[..], some].concat());
    let text = stdout(&output);
    assert!(text.contains("report.html"), "{text}");
    let result = read(&dir);
    for turn in &result.turns {
        let Outcome::Measured(measured) = &turn.outcome else { panic!("{name}: {turn:?}") };
        let figures = &measured.figures;
        // Of a part of the transactions, none may be logged in so short a time.
        let is_sampled = measured.commands[0].contains("--sampling-rate");
        assert!(is_sampled || figures.p99_ms.is_some(), "{figures:?}");
        let is_right = |p99_ms: f64| p99_ms > 0.0 && figures.max_ms.is_none_or(|max_ms| max_ms >= p99_ms);
        assert!(figures.tps > 0.0 && figures.p99_ms.is_none_or(is_right), "{figures:?}");
        let target: Target = turn.case.target.parse().unwrap();
        let is_flooded = name == "floods" && turn.case.variant != "alone";
        assert_eq!(figures.flood_per_s.is_some_and(|rate| rate > 0.0), is_flooded, "{name}: {figures:?}");
        assert!(figures.flood_failed_percent.is_none_or(|failed| failed < 100.0), "{figures:?}");
        // Pools keep their connections.
        assert_eq!(figures.close_s.is_none(), target.shares(), "{name}: {figures:?}");
        assert!(figures.failed == 0 && figures.postgres_cpu_us_per_tx.is_some(), "{figures:?}");
        assert_eq!(figures.pool_cpu_us_per_tx.is_some(), target.pool().is_some(), "{name}: {figures:?}");
        assert!(!measured.seconds.is_empty() && !measured.samples.t_s.is_empty(), "{name}: {measured:?}");
        let tells = measured.samples.columns.contains_key(metrics::POOL_ACTIVE);
        assert_eq!(tells, target.shares(), "{name}: {measured:?}");
        assert!(measured.commands[0].starts_with("pgbench "), "{:?}", measured.commands);
        // One BEGIN and END, or none of both.
        assert_eq!(figures.begin_ms.is_some(), figures.end_ms.is_some(), "{name}");
    }
    for file in ["report.html", "summary.csv", "series.csv"] {
        assert!(fs::metadata(dir.join(file)).is_ok_and(|file| file.len() > 200), "{name}: {file}");
    }
    assert!(!dir.join(".work").exists(), "{name} leaves its server behind");
    if name == "sync-matrix" {
        let flushes = |target: &str| result.servers[target].commit.as_ref().unwrap().flushes;
        assert_eq!((flushes("nodes-1"), flushes("nodes-3-2ms")), (1, 2), "{text}");
        let round_trip_us = result.servers["nodes-3-2ms"].commit.as_ref().unwrap().nodes_round_trip_us.unwrap();
        // On a busy machine a standby may have fallen behind: then it is not one of those that are waited for.
        let says_which = ["whichever of", "which is waited for each time"].iter().any(|words| text.contains(words));
        assert!(round_trip_us > 2000.0 && says_which, "{round_trip_us}: {text}");
        // The relays' way there and back.
        let commit_ms = |target: &str| {
            let of =
                |(turn, measured): (&Turn, &Measured)| (turn.case.target == target).then_some(measured.figures.mean_ms);
            result.measured().find_map(of).unwrap()
        };
        assert!(commit_ms("nodes-3-2ms") > 2.0, "{text}");
    }
    let server = result.servers.values().next().unwrap();
    assert!(server.versions[0].starts_with("PostgreSQL ") && server.settings.contains_key("shared_buffers"));
}

#[test]
fn pools_tell_their_figures() {
    let _beside_others = beside_others();
    let place = place();
    let dir = place.path().join("run");
    let args = ["run", "quick", "--brief", "--variant", "tpcb", "--protocol", "extended", "--clients", "40"];
    // A rate takes two samples: on a machine that is busy with other tests they may come seconds apart.
    let targets = ["--target", "pool", "--target", "pgbouncer", "--seconds", "8", "--output", dir.to_str().unwrap()];
    stdout(&bench(&[&args[..], &targets].concat()));
    let result = read(&dir);
    assert_eq!(measured(&result), ["tpcb pool", "tpcb pgbouncer"]);
    for (turn, measured) in result.measured() {
        let mean = |column| measured.samples.mean(column, |_| true).unwrap_or_else(|| panic!("{turn:?}: {column}"));
        let (waiting, active) = (mean(metrics::POOL_WAITING), mean(metrics::POOL_ACTIVE));
        assert!(waiting > 0.0 && active > 0.0 && active <= 20.0, "{turn:?}: {waiting} wait, {active} in use");
        assert!(mean(metrics::POOL_SERVED) > 1.0 && mean(metrics::POOL_WAIT) > 0.0, "{turn:?}");
        assert!(measured.commands[0].contains(" -M extended "), "{:?}", measured.commands);
    }
}

#[test]
fn pools_by_tls_and_other_builds() {
    let _beside_others = beside_others();
    let place = place();
    let dir = place.path().join("run");
    let build = format!("build={}", env!("CARGO_BIN_EXE_sluice"));
    let targets = ["pool-tls", "pgbouncer-tls", &build, "gone=/no/such/sluice"].map(|target| ["--target", target]);
    let args = ["run", "peers", "--brief", "--variant", "select, simple", "--output", dir.to_str().unwrap()];
    stdout(&bench(&[&args[..], targets.as_flattened()].concat()));
    let result = read(&dir);
    let variant = "select, simple";
    assert_eq!(measured(&result), ["pool-tls", "pgbouncer-tls", "build"].map(|target| format!("{variant} {target}")));
    for (turn, measured) in result.measured() {
        let by_tls = measured.commands[0].contains("sslmode=require");
        assert_eq!(by_tls, turn.case.target.ends_with("-tls"), "{:?}", measured.commands);
        assert!(measured.samples.columns.contains_key(metrics::POOL_ACTIVE), "{turn:?}");
    }
    let Outcome::Skipped(why) = &result.turns[3].outcome else { panic!("{:?}", result.turns[3]) };
    assert!(why.contains("there is no program /no/such/sluice"), "{why}");
}

#[test]
fn what_breaks_is_recorded_and_the_rest_goes_on() {
    let _beside_others = beside_others();
    let place = place();
    let dir = place.path().join("run");
    let args = ["run", "quick", "--brief", "--variant", "select", "--target", "nobody=host=127.0.0.1 port=1 user=x"];
    let output = bench(&[&args[..], &["--target", "straight", "--output", dir.to_str().unwrap()]].concat());
    stdout(&output);
    let result = read(&dir);
    let Outcome::Broken(why) = &result.turns[0].outcome else { panic!("{:?}", result.turns[0]) };
    assert!(why.contains("connect"), "{why}");
    assert_eq!(measured(&result), ["select straight"]);
    // Nothing but what breaks is no success.
    let dir = place.path().join("again");
    let output = bench(&[&args[..], &["--output", dir.to_str().unwrap()]].concat());
    assert!(!output.status.success());
}

#[test]
fn what_was_interrupted_goes_on() {
    let _beside_others = beside_others();
    let place = place();
    let dir = place.path().join("run");
    let args = ["quick", "--brief", "--target", "straight", "--turns", "2", "--seconds", "2"];
    let mut run = Run::start(&dir, &args);
    // In the second turn, when the first is stored.
    run.pgbench_for(Duration::ZERO);
    while !dir.join("result.json").exists() {
        thread::sleep(Duration::from_millis(20));
    }
    run.pgbench_for(Duration::from_millis(200));
    let other = bench(&[&["run"], &args[..], &["--resume", dir.to_str().unwrap()]].concat());
    assert!(String::from_utf8_lossy(&other.stderr).contains("a run is at work in"), "{other:?}");
    kill(Pid::from_raw(run.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let output = run.finish();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("--resume"), "{said}");
    let before = read(&dir);
    assert!(before.cut_short.is_some() && (1..4).contains(&before.turns.len()), "{:?}", before.turns.len());
    let left = [".work", ".lock"].map(|name| dir.join(name).exists());
    assert!(dir.join("report.html").exists() && left == [false, false], "{left:?}");

    let output = bench(&[&["run"], &args[..], &["--resume", dir.to_str().unwrap()]].concat());
    stdout(&output);
    let after = read(&dir);
    assert_eq!((after.cut_short.clone(), after.turns.len()), (None, 4));
    let figures = |result: &RunResult| result.measured().next().map(|(_, measured)| measured.figures.clone());
    assert_eq!(figures(&before), figures(&after));

    // Figures of another load would not go with these.
    let other = ["--seconds", "1", "--resume", dir.to_str().unwrap()];
    let other = bench(&[&["run"], &args[..args.len() - 2], &other].concat());
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(said.contains("seconds was 2, and is 1") && said.contains("--seconds 2"), "{said}");
    let other = bench(&["run", "session-log", "--brief", "--resume", dir.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&other.stderr).contains("the scenario was quick, and is session-log"), "{other:?}");
}

#[test]
fn runs_are_compared() {
    let _beside_others = beside_others();
    let place = place();
    let dirs = ["a", "b"].map(|name| place.path().join(name).to_str().unwrap().to_owned());
    for dir in &dirs {
        let target = ["--target", "straight", "--variant", "select", "--output", dir];
        stdout(&bench(&[&["run", "quick", "--brief"], &target[..]].concat()));
    }
    let page = place.path().join("compare.html");
    let text = stdout(&bench(&["compare", &dirs[0], &dirs[1], "--html", page.to_str().unwrap()]));
    assert!(text.contains("select") && text.contains("straight"), "{text}");
    assert!(fs::read_to_string(page).unwrap().contains("<html"));

    // One run, against what is required of it.
    let file = place.path().join("require.toml");
    let required = |of: &str, bar: &str| {
        fs::write(&file, format!("[[limit]]\nfigure = \"tps\"\nof = \"{of}\"\n{bar}\n")).unwrap();
        bench(&["compare", &dirs[0], "--require", file.to_str().unwrap()])
    };
    let met = stdout(&required("straight", "at_least = 1"));
    assert!(met.contains("met") && met.contains("All requirements are met."), "{met}");
    for (of, bar, outcome) in
        [("straight", "at_least = 1000000000.0", "missed"), ("pool", "at_most = 1", "not measured")]
    {
        let output = required(of, bar);
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(outcome), "{of} {bar}: {said}");
        assert!(said.contains("1 of 1 requirements are not met"), "{said}");
    }
}

#[test]
fn bad_input_is_refused_before_anything_starts() {
    for (args, expected) in [
        (&["run", "no-such"][..], "there is no scenario"),
        (&["run", "quick", "--target", "straigt"], "there is no target"),
        (&["run", "quick", "--variant", "none"], "has no variant"),
        (&["run", "quick", "--rate", "0"], "rate: transactions a second, above 0"),
        (&["run", "quick", "--memory", "256MB", "--set", "shared_buffers=1GB"], "do not fit into the class's 256MB"),
        (&["run", "quick", "--pg-bin", "/nowhere"], "there is no pgbench in /nowhere"),
        (&["run", "quick", "--clients", "60000", "--target", "straight"], " need"),
        (&["run", "quick", "--clients", "0"], "a whole number from 1 to 65536 is needed"),
        (&["compare", "/nowhere", "/nowhere"], "/nowhere"),
        (&["compare", "/nowhere", "--require", "/none.toml"], "/none.toml"),
    ] {
        let place = place();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"))
            .arg("bench")
            .args(args)
            .current_dir(place.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(expected), "{args:?}: {said}");
        let left = fs::read_dir(place.path().join("sluice-bench")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{args:?} leaves a directory behind");
    }
    assert!(stdout(&bench(&["list"])).contains("session-log"));
}
