//! The command, run to its end or interrupted, and the server that it made.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::{Duration, Instant},
};

use postgres::{Client, Config, NoTls};
use sluice_lab::result::{Measured, RunResult};

/// A run of seconds is given so long, on a busy machine.
const END_MAX: Duration = Duration::from_secs(300);

static MACHINE: RwLock<()> = RwLock::new(());

/// Held by each test whose figures others would disturb, for as long as it measures.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held by the other tests: any figures are good for them.
pub(crate) fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// `sluice bench` with arguments, to its end.
pub(crate) fn bench(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("bench").args(args).stdin(Stdio::null()).env_remove("RUST_LOG");
    command
}

/// The standard output of a command that went well.
pub(crate) fn stdout(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

pub(crate) fn read(dir: &Path) -> RunResult {
    serde_json::from_slice(&fs::read(dir.join("result.json")).unwrap()).unwrap()
}

/// `sluice bench run` under way.
pub(crate) struct Run {
    child: Child,
    pub(crate) dir: PathBuf,
}

impl Run {
    /// Starts it; results go to `dir`.
    pub(crate) fn start(dir: &Path, args: &[&str]) -> Self {
        let mut command = command(&["run"]);
        command.args(args).arg("--output").arg(dir).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { child: command.spawn().unwrap(), dir: dir.to_owned() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until pgbench has been at work for so long; its process.
    pub(crate) fn pgbench_for(&mut self, time: Duration) -> u32 {
        let begin = Instant::now();
        loop {
            let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.id())).unwrap_or_default();
            let pgbench = children.split_ascii_whitespace().find(|pid| {
                let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                // Not the one that fills the tables.
                command.starts_with(b"/") && find(&command, b"pgbench\0") && find(&command, b"\0-P\0")
            });
            if let Some(pid) = pgbench {
                let pid = pid.parse().unwrap();
                std::thread::sleep(time);
                return pid;
            }
            assert!(self.child.try_wait().unwrap().is_none() && begin.elapsed() < END_MAX, "pgbench does not come");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A superuser's session at the server that the run has made, in the scenario's first database.
    pub(crate) fn connect(&self) -> Client {
        let (dir, port) = self.socket();
        Config::new().host_path(dir).port(port).user("postgres").dbname("bench1").connect(NoTls).unwrap()
    }

    /// The folder of that server's socket, and its port.
    pub(crate) fn socket(&self) -> (PathBuf, u16) {
        let dir = self.dir.join(".work/postgres/run");
        let port = fs::read_dir(&dir).unwrap().find_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_prefix(".s.PGSQL.")?.parse().ok()
        });
        (dir, port.unwrap())
    }

    pub(crate) fn finish(self) -> Output {
        self.child.wait_with_output().unwrap()
    }

    /// Its end, and its only turn.
    pub(crate) fn only_turn(self) -> Measured {
        let dir = self.dir.clone();
        stdout(&self.finish());
        let result = read(&dir);
        let (_, measured) = result.measured().next().unwrap_or_else(|| panic!("{:?}", result.turns));
        measured.clone()
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// A scenario of a few lines, in a folder of its own.
pub(crate) fn scenario(dir: &Path, toml: &str, files: &[(&str, &str)]) -> String {
    let folder = dir.join("scenario");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("scenario.toml"), toml).unwrap();
    for (name, text) in files {
        fs::write(folder.join(name), text).unwrap();
    }
    folder.to_str().unwrap().to_owned()
}

/// A directory that PostgreSQL's own user can pass through.
pub(crate) fn place() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::Builder::new().prefix("sb-").tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    place
}
