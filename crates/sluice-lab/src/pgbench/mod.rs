//! One run of pgbench, as an ordinary client: it knows nothing of who answers.
//!
//! pgbench counts `-T` from before its first connection, so that a thousand log-ins would leave nothing of a short
//! run; so it gets a long time, and is ended by its own alarm signal once all clients have worked for as long as they
//! were meant to. It reports once a second (`-P 1`), tells each statement's mean on request (`-r`), and logs
//! transactions (`-l`) for the percentiles. Formats: PostgreSQL's documentation, "pgbench", Options and Notes.

mod log;
mod progress;
mod statements;
mod summary;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use rustix::process::Signal;

pub use self::{
    log::Latencies,
    progress::{Complaints, Progress},
    statements::{ScriptReport, StatementReport, script_reports},
    summary::Summary,
};
use crate::{
    clock,
    connect::Dsn,
    error::Error,
    proc,
    process::{self, Interrupt, Process},
    scenario::{Load, Script},
};

/// A thread of pgbench's looks at all its connections whenever one of them has news, so it gets no more than these, as
/// in the report of the concurrency ladder.
const CLIENTS_A_THREAD: u32 = 64;
/// The interval at which the caller is called between two reports.
const TICK: Duration = Duration::from_millis(200);
/// By how much pgbench's last report may come behind the alarm: later ones are of clients that wait for their last
/// transactions, while the others have gone.
const REPORT_LATE: Duration = Duration::from_millis(400);

/// The place that clients connect to.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// libpq's connection string, without the password.
    pub conninfo: String,
    /// By the environment, since arguments are for all to see.
    pub password: Option<String>,
}

impl From<&Dsn> for Endpoint {
    fn from(dsn: &Dsn) -> Self {
        Self { conninfo: dsn.conninfo_for_tables(), password: dsn.password() }
    }
}

impl Endpoint {
    /// One of PostgreSQL's programs, to connect there. Nobody's `PG*` variables lead it elsewhere.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = process::command(program, "KILL");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
            command.env_remove(name);
        }
        if let Some(password) = &self.password {
            command.env("PGPASSWORD", password);
        }
        command
    }
}

/// One run, to be.
pub struct Pgbench<'a> {
    /// pgbench's own program.
    pub program: &'a Path,
    /// The scripts to run.
    pub scripts: &'a [Script],
    /// Variables for the scripts, besides pgbench's own.
    pub variables: Vec<(String, String)>,
    /// Protocol, threads, rate and the like.
    pub load: &'a Load,
    /// Clients at once.
    pub clients: u32,
    /// Length of the run, counted from when all clients are connected.
    pub seconds: u32,
    /// Whether each statement's mean is asked for, which takes pgbench a look at the clock more for each.
    pub statements: bool,
    /// The server or pool to connect to.
    pub endpoint: &'a Endpoint,
    /// For scripts and logs.
    pub scratch: &'a Path,
    /// Ends it.
    pub interrupt: &'a Interrupt,
}

/// pgbench's output from a run that went well.
#[derive(Debug)]
pub struct Outcome {
    /// Its last words.
    pub summary: Summary,
    /// By second, as it reported.
    pub progress: Vec<Progress>,
    /// By script.
    pub scripts: Vec<ScriptReport>,
    /// From its log.
    pub latencies: Latencies,
    /// The moment when all clients were connected, in seconds since 1970: the zero of the turn's axis.
    pub begin_unix_s: f64,
}

/// An event while pgbench runs.
pub enum Moment {
    /// It has been started; its process.
    Started(u32),
    /// A report has come; the first one comes when all clients are connected.
    Report(Progress),
    /// A moment without a report, some times a second.
    Tick,
    /// Its time is over; it is about to be told so.
    Ending,
    /// It has ended, having been told to at this moment.
    Ended(Instant),
}

impl Pgbench<'_> {
    /// The command line as one would type it, passwords aside.
    pub fn command_line(&self) -> String {
        let mut words = vec!["pgbench".to_owned()];
        words.extend(self.arguments(self.seconds, None));
        words.push(process::shell_word(&self.endpoint.conninfo));
        words.join(" ")
    }

    /// Runs it; `see` is told what happens.
    pub fn run(&self, mut see: impl FnMut(Moment)) -> Result<Outcome, Error> {
        let dir = tempfile::Builder::new().prefix("pgbench-").tempdir_in(self.scratch);
        let dir = dir.map_err(Error::file("create a directory in", self.scratch))?;
        let spawned_unix_s = clock::unix_s();
        let mut process = self.spawn(dir.path())?;
        see(Moment::Started(process.id()));
        let stdout = process::collect(process.child().stdout.take());
        let lines = process::lines(process.child().stderr.take());
        let mut complaints = Complaints::default();
        let followed = self.follow(&process, &lines, dir.path(), &mut complaints, &mut see);
        let (progress, told_to_end) = match followed {
            Ok(followed) => followed,
            Err(error) => {
                process.stop();
                return Err(complaints.explain(error, self.clients));
            }
        };
        let status = process.wait(self.end_max(), self.interrupt)?;
        see(Moment::Ended(told_to_end));
        let stdout = stdout.join().unwrap_or_default();
        if !status.success() || complaints.any_aborted() {
            let said = complaints.describe(self.clients);
            return Err(Error::Failed { program: "pgbench".to_owned(), status, said });
        }
        let unreadable = || Error::Unreadable { what: "pgbench's summary", text: process::tail(&stdout) };
        let summary = Summary::parse(&stdout).ok_or_else(unreadable)?;
        let begin_unix_s = spawned_unix_s + summary.connect_s;
        let latencies = Latencies::read(dir.path(), begin_unix_s)?;
        let names: Vec<&str> = self.scripts.iter().map(|script| script.name.as_str()).collect();
        let scripts = script_reports(&stdout, &names);
        Ok(Outcome { summary, progress, scripts, latencies, begin_unix_s })
    }

    /// Listens until pgbench closes its standard error, which it does at its end.
    fn follow(
        &self,
        process: &Process,
        lines: &Receiver<String>,
        dir: &Path,
        complaints: &mut Complaints,
        see: &mut impl FnMut(Moment),
    ) -> Result<(Vec<Progress>, Instant), Error> {
        let mut reports: Vec<Progress> = Vec::new();
        // Known from when all clients are connected.
        let mut turn_end: Option<Instant> = None;
        let mut told_to_end: Option<Instant> = None;
        let connect_end = Instant::now() + self.connect_max();
        loop {
            self.interrupt.check()?;
            match lines.recv_timeout(TICK) {
                Ok(line) => match Progress::parse(&line) {
                    Some(report) => {
                        turn_end.get_or_insert_with(|| self.turn_end(&report, dir));
                        if told_to_end.is_none_or(|told| told.elapsed() < REPORT_LATE) {
                            reports.push(report.clone());
                            see(Moment::Report(report));
                        }
                    }
                    None => complaints.hear(line),
                },
                Err(RecvTimeoutError::Timeout) => see(Moment::Tick),
                Err(RecvTimeoutError::Disconnected) => return Ok((reports, told_to_end.unwrap_or_else(Instant::now))),
            }
            let now = Instant::now();
            match (turn_end, told_to_end) {
                (Some(end), None) if now >= end => {
                    see(Moment::Ending);
                    process.signal(Signal::ALARM);
                    told_to_end = Some(Instant::now());
                }
                (None, None) if now >= connect_end => {
                    let what = format!("connecting {} clients", self.clients);
                    return Err(Error::TimedOut { what, limit: self.connect_max() });
                }
                (_, Some(told)) if now >= told + self.end_max() => {
                    let what = "pgbench's last transaction".to_owned();
                    return Err(Error::TimedOut { what, limit: self.end_max() });
                }
                _ => {}
            }
        }
    }

    fn duration(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds.max(1)))
    }

    /// The end of the turn, by pgbench's first report. That comes a second after it was started, or, if not all were
    /// connected by then, right behind the last log-in. Its log tells when transactions began.
    fn turn_end(&self, first: &Progress, logs: &Path) -> Instant {
        let now = Instant::now();
        let since_start_s = if first.elapsed_s < 1.5 { 1.0 } else { 0.0 };
        let begun_s = log::first_begin_unix_s(logs).map_or(since_start_s, |begin| clock::unix_s() - begin);
        // A clock may have been set meanwhile.
        now + self.duration() - Duration::from_secs_f64(begun_s.clamp(0.0, since_start_s))
    }

    /// 50 ms for each log-in; 16,384 of them took 342 s in the report of the concurrency ladder.
    fn connect_max(&self) -> Duration {
        Duration::from_secs(u64::from(30 + self.clients / 20))
    }

    /// Time limit for pgbench's end after its alarm: its last report, its connections, and, where clients wait for one
    /// another, 20 ms for the last transaction of each.
    fn end_max(&self) -> Duration {
        Duration::from_secs(u64::from(60 + self.clients / 50))
    }

    /// All arguments but the database; without `dir`, as typed.
    fn arguments(&self, seconds: u32, dir: Option<&Path>) -> Vec<String> {
        let (load, mut words) = (self.load, Vec::new());
        let mut put = |flag: &str, value: &str| words.extend([flag.to_owned(), value.to_owned()]);
        put("-M", load.protocol.flag());
        put("-c", &self.clients.to_string());
        put("-j", &threads(load, self.clients).to_string());
        put("-T", &seconds.to_string());
        put("-P", "1");
        for script in self.scripts {
            let place = dir.map(|dir| dir.join(&script.name).display().to_string());
            let place = place.unwrap_or_else(|| script.name.clone());
            let flag = if script.text.is_some() { "-f" } else { "-b" };
            let name = if script.text.is_some() { place } else { script.name.clone() };
            put(flag, &format!("{name}@{}", script.weight));
        }
        for (name, value) in &self.variables {
            put("-D", &format!("{name}={value}"));
        }
        if let Some(rate) = load.rate {
            put("--rate", &rate.to_string());
        }
        if let Some(limit_ms) = load.latency_limit_ms {
            put("--latency-limit", &limit_ms.to_string());
        }
        if let Some(tries) = load.max_tries {
            put("--max-tries", &tries.to_string());
        }
        if load.log_share < 1.0 {
            put("--sampling-rate", &load.log_share.to_string());
        }
        words.extend(["-n", "-l"].map(str::to_owned));
        if self.statements {
            words.push("-r".to_owned());
        }
        if let Some(dir) = dir {
            words.extend(["--log-prefix".to_owned(), dir.join(log::PREFIX).display().to_string()]);
        }
        words
    }

    fn spawn(&self, dir: &Path) -> Result<Process, Error> {
        for script in self.scripts {
            if let Some(text) = &script.text {
                let path: PathBuf = dir.join(&script.name);
                // A script may lie in a folder of its scenario's.
                path.parent()
                    .map(fs::create_dir_all)
                    .transpose()
                    .map_err(Error::file("create the folder of", &path))?;
                fs::write(&path, text).map_err(Error::file("write", &path))?;
            }
        }
        let mut command = self.endpoint.command(self.program);
        let seconds = self.connect_max() + self.duration() + self.end_max();
        command.args(self.arguments(u32::try_from(seconds.as_secs()).unwrap_or(u32::MAX), Some(dir)));
        command.arg(&self.endpoint.conninfo);
        command.env("PGAPPNAME", APPLICATION).stdout(Stdio::piped()).stderr(Stdio::piped());
        Process::spawn("pgbench", &mut command, Signal::KILL, Duration::from_secs(5))
    }
}

/// Number of threads that share the clients; each has a log of its own.
pub fn threads(load: &Load, clients: u32) -> u32 {
    let threads = load.threads.unwrap_or_else(|| proc::cores().max(clients / CLIENTS_A_THREAD));
    threads.clamp(1, clients.max(1))
}

/// By which name the server knows the clients.
pub const APPLICATION: &str = "sluice-lab";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn command_line(clients: u32, threads: Option<u32>) -> String {
        let scenario = Scenario::find("session-log").unwrap();
        let endpoint = Endpoint { conninfo: "host=/tmp/it's dbname=bench".to_owned(), password: Some("secret".into()) };
        let pgbench = Pgbench {
            program: Path::new("/usr/bin/pgbench"),
            scripts: &scenario.variants[0].scripts,
            variables: vec![("rows".to_owned(), "7".to_owned())],
            load: &Load { threads, rate: Some(100.0), ..scenario.load.clone() },
            clients,
            seconds: 300,
            statements: true,
            endpoint: &endpoint,
            scratch: Path::new("/tmp"),
            interrupt: &Interrupt::never(),
        };
        pgbench.command_line()
    }

    #[test]
    fn command_lines_can_be_typed() {
        assert_eq!(
            command_line(16, Some(2)),
            "pgbench -M prepared -c 16 -j 2 -T 300 -P 1 -f with-update.sql@1 -D rows=7 --rate 100 -n -l -r \
             'host=/tmp/it'\\''s dbname=bench'"
        );
    }

    #[test]
    fn threads_follow_the_clients() {
        assert!(command_line(16_384, None).contains(" -j 256 "));
        assert!(command_line(16_384, Some(8)).contains(" -j 8 "));
        assert!(command_line(1, None).contains(" -j 1 "));
    }
}
