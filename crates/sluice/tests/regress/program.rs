//! A program that runs one file: what it prints, and its end, which comes in any case.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, Instant},
};

use crate::{ignored::without_ignored, sessions, side::Side, suite::Suite};

/// No file takes as long.
const LONGEST: Duration = Duration::from_secs(120);

/// The output of one file.
pub(crate) struct Output {
    pub(crate) text: String,
    pub(crate) time: Duration,
    /// The state of its sessions, if it did not end.
    pub(crate) stuck: Option<String>,
}

/// Runs a file and waits for its end.
pub(crate) fn run(suite: Suite, side: &Side, name: &str, output: &Path) -> Output {
    if suite == Suite::Specs && side.pool.is_some() {
        sessions::announce(&side.server, name);
    }
    let to = File::create(output).unwrap();
    let mut command = suite.command(side, name);
    command.stdin(File::open(suite.path(name)).unwrap()).stdout(to.try_clone().unwrap()).stderr(to);
    let begin = Instant::now();
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stuck = None;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if stuck.is_none() && begin.elapsed() > LONGEST {
            stuck = Some(side.server.value(
                "SELECT string_agg(concat_ws(' / ', pid, state, wait_event, query), E'\n') FROM pg_stat_activity \
                 WHERE datname IS NOT NULL",
            ));
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // Some print bytes of other encodings.
    let mut text = without_ignored(suite, &String::from_utf8_lossy(&fs::read(output).unwrap()));
    if !status.success() {
        text.push_str(&format!("{status}\n"));
    }
    fs::write(output, &text).unwrap();
    Output { text, time: begin.elapsed(), stuck }
}
