//! Runs pgbench as an ordinary client and reads what it prints; it knows nothing of who answers.
//!
//! pgbench counts `-T` from before its first connection, so that a thousand logins would leave nothing of a short run;
//! so it gets a long time and is ended by the watch. It reports once a second (`-P 1`), which gives the moments for the
//! processor time; a share of transactions is logged (`-l --sampling-rate`) for the percentiles. Formats: PostgreSQL
//! 15, "pgbench", sections Options and Notes.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use sluice_lab::pgbench::{Complaints, Progress, ScriptReport, Summary, script_reports};
use sluice_lab::process::{self, Interrupt, Process};

use super::load::{Load, Script};
use super::measure::{self, Phase, SAMPLE_EVERY, Watch};

/// The latency, µs, of a line of the transaction log: its third field. Failed transactions have a word there.
fn parse_log_line(line: &str) -> Option<u64> {
    line.split(' ').nth(2)?.parse().ok()
}

/// Where a target listens.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// An address, or the directory of a Unix socket.
    pub(crate) host: PathBuf,
    pub(crate) port: u16,
    pub(crate) password: String,
}

/// One run of pgbench, to be.
pub(crate) struct Pgbench<'a> {
    pub(crate) program: PathBuf,
    pub(crate) load: Load,
    pub(crate) seconds: u32,
    /// `-r`: tells each statement's latency, which takes a look at the clock more for each.
    pub(crate) statements: bool,
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) interrupt: &'a Interrupt,
}

/// What pgbench told of a run that went well.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) summary: Summary,
    /// Each statement's mean, if it was asked for.
    pub(crate) script: Option<ScriptReport>,
    /// Of the logged share of transactions, sorted, µs.
    pub(crate) latencies_us: Vec<u64>,
}

impl Outcome {
    /// The latency that `share` of the transactions do not exceed.
    pub(crate) fn latency_ms(&self, share: f64) -> Option<f64> {
        measure::percentile(&self.latencies_us, share).map(|us| us as f64 / 1000.0)
    }
}

impl Pgbench<'_> {
    /// Runs it; `watch` sees it go by, and says when it has lasted long enough.
    pub(crate) fn run(&self, watch: &mut Watch) -> Result<Outcome> {
        let logs = tempfile::tempdir().context("can't create a directory for pgbench's log")?;
        let mut process = self.spawn(logs.path())?;
        let stdout = process::collect(process.child().stdout.take());
        let lines = process::lines(process.child().stderr.take());
        let mut complaints = Complaints::default();
        let ended = self.follow(&process, &lines, watch, &mut complaints);
        if let Err(error) = ended {
            process.stop();
            let said = complaints.describe(self.load.clients);
            return Err(if said.is_empty() { error } else { error.context(said) });
        }
        let status = process.wait(Duration::from_secs(5), self.interrupt)?;
        let stdout = stdout.join().unwrap_or_default();
        if !status.success() || complaints.any_aborted() {
            bail!("pgbench: {status}: {}", complaints.describe(self.load.clients));
        }
        let summary = Summary::parse(&stdout)
            .with_context(|| format!("can't read pgbench's summary: {}", process::tail(&stdout)))?;
        if summary.failed > 0 {
            bail!("{} transactions failed", summary.failed);
        }
        Ok(Outcome { summary, script: script_reports(&stdout, &[]).pop(), latencies_us: read_logs(logs.path())? })
    }

    /// Feeds the watch until pgbench closes its standard error, which it does at its end.
    fn follow(
        &self,
        process: &Process,
        lines: &Receiver<String>,
        watch: &mut Watch,
        complaints: &mut Complaints,
    ) -> Result<()> {
        let limit = self.limit();
        let end = Instant::now() + limit;
        let mut next_sample = Instant::now() + SAMPLE_EVERY;
        loop {
            self.interrupt.check()?;
            match lines.recv_timeout(next_sample.saturating_duration_since(Instant::now())) {
                Ok(line) => match Progress::parse(&line) {
                    // What ends a run is the alarm that pgbench sets itself by `-T`; here it comes by hand.
                    Some(report) if watch.progress(&report) == Phase::Over => process.signal(Signal::ALARM),
                    Some(_) => {}
                    None => complaints.hear(line),
                },
                Err(RecvTimeoutError::Timeout) => {
                    watch.sample();
                    next_sample = Instant::now() + SAMPLE_EVERY;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if Instant::now() >= end {
                bail!("stopped dead: no end within {} s", limit.as_secs());
            }
        }
    }

    /// A run that takes longer has stopped: its time, as much again, and 20 ms for each login (PgBouncer needs 3).
    fn limit(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds * 2 + 20 + self.load.clients / 50))
    }

    fn spawn(&self, logs: &Path) -> Result<Process> {
        let mut command = process::command(&self.program, "KILL");
        command
            .arg("-h")
            .arg(&self.endpoint.host)
            .args(["-p", &self.endpoint.port.to_string(), "-U", "bench", "-n", "-P", "1"])
            .args(["-M", self.load.protocol.flag(), "-T", &self.limit().as_secs().to_string()])
            .args(["-c", &self.load.clients.to_string(), "-j", &self.load.threads().to_string()])
            .args(["-l", "--sampling-rate", &self.load.log_share().to_string(), "--log-prefix"])
            .arg(logs.join("log"));
        if self.load.script == Script::Select {
            command.arg("-S");
        }
        if self.statements {
            command.arg("-r");
        }
        command.arg("bench").env("PGPASSWORD", &self.endpoint.password);
        // No target here speaks TLS; asking for it would only add a round trip to each login.
        command.env("PGSSLMODE", "disable").env("PGGSSENCMODE", "disable");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Process::spawn("pgbench", &mut command, Signal::KILL, Duration::from_secs(5))?)
    }
}

/// pgbench writes one file a thread.
fn read_logs(dir: &Path) -> Result<Vec<u64>> {
    let mut latencies_us = Vec::new();
    for entry in std::fs::read_dir(dir).context("can't read pgbench's logs")? {
        let file = File::open(entry?.path()).context("can't read pgbench's log")?;
        latencies_us
            .extend(BufReader::new(file).lines().map_while(Result::ok).filter_map(|line| parse_log_line(&line)));
    }
    latencies_us.sort_unstable();
    Ok(latencies_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines() {
        assert_eq!(parse_log_line("0 199 2241 0 1175850568 995598"), Some(2241));
        assert_eq!(parse_log_line("0 199 failed 0 1175850568 995598"), None);
        assert_eq!(parse_log_line(""), None);
    }
}
