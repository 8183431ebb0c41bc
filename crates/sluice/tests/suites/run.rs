//! Running a suite's program, and reading how each of its tests ended.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use sluice_testkit::{case::repository, proc};

/// How each test ended, by its name.
pub(crate) type Outcomes = BTreeMap<String, String>;

/// How long a suite may take, an installation of its dependencies included.
const TIME_MAX: Duration = Duration::from_secs(900);

/// The exit code of a program under `tests/drivers` that can't run here.
const SKIPPED: i32 = 77;

/// Runs parts of a suite, or all of it; `None` if this machine lacks the language.
pub(crate) fn run(suite: &str, log: &str, port: u16, database: &str, parts: &[&str]) -> Option<Outcomes> {
    let logs = repository().join("target/driver-suites");
    fs::create_dir_all(&logs).unwrap();
    let log = logs.join(format!("{log}.log"));
    let begin = Instant::now();
    let mut command = Command::new(repository().join("tests/drivers/suites").join(suite).join("run"));
    command.args(parts).env("PGHOST", "127.0.0.1").env("PGPORT", port.to_string()).env("PGUSER", "suite");
    command.env("PGPASSWORD", "secret").env("PGDATABASE", database).env_remove("PGOPTIONS").stdin(Stdio::null());
    fs::write(&log, "").unwrap();
    // Appending, so that both streams can go to one file.
    let append = fs::OpenOptions::new().append(true).open(&log).unwrap();
    let mut child = command.stdout(append.try_clone().unwrap()).stderr(append).spawn().unwrap();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begin.elapsed() > TIME_MAX {
            proc::send(child.id(), proc::Kind::SIGKILL);
            child.wait().unwrap();
            panic!("{suite} is not done after {TIME_MAX:?}; see {}", log.display());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned();
    if status.code() == Some(SKIPPED) {
        // Past the harness, which shows only what failed.
        let _ = std::io::stderr().write_all(format!("{suite}: {said}").as_bytes());
        return None;
    }
    assert!(status.success(), "{suite} ended with {status}:\n{said}");
    let outcomes: Outcomes = said.lines().filter_map(outcome).collect();
    assert!(!outcomes.is_empty(), "{suite} tested nothing:\n{said}");
    Some(outcomes)
}

/// Reads `outcome<TAB>passed<TAB>name`.
fn outcome(line: &str) -> Option<(String, String)> {
    let (outcome, name) = line.strip_prefix("outcome\t")?.split_once('\t')?;
    Some((name.to_owned(), outcome.to_owned()))
}
