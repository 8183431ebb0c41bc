//! The real `sluice up`, as tests use it.

#![allow(dead_code, clippy::unwrap_used, reason = "each test program uses a part; tests may panic")]

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, Uid, User},
};

const TIME_MAX: Duration = Duration::from_secs(180);

/// A folder that PostgreSQL's user can enter.
pub(crate) fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

pub(crate) fn sluice(data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("up").arg("--data").arg(data).args(["--listen", "127.0.0.1:0"]).env_remove("RUST_LOG");
    command
}

/// `sluice up` as an ordinary user, with everything by default but the address; that user, and its home. `None` where
/// the tests run as an ordinary user themselves.
pub(crate) fn ordinary_user(place: &Path) -> Option<(Command, User, PathBuf)> {
    if !Uid::effective().is_root() {
        return None;
    }
    let user = User::from_name("postgres").unwrap().unwrap();
    let home = place.join("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
    // The build's folder may be closed to others.
    let program = place.join("sluice");
    // By another process: a file that a thread of ours has just written may be open in some fork, and so not be run.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_sluice")).arg(&program).status().unwrap();
    assert!(copied.success());
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={}", user.uid)).arg(format!("--regid={}", user.gid)).arg("--clear-groups");
    command.arg(&program).args(["up", "--listen", "127.0.0.1:0"]).current_dir("/").process_group(0);
    command.env_remove("XDG_DATA_HOME").env_remove("XDG_RUNTIME_DIR").env("HOME", &home);
    Some((command, user, home))
}

/// A running `sluice up`; killed when dropped, which takes its PostgreSQL along.
pub(crate) struct Up {
    child: Child,
    lines: Receiver<String>,
    pub(crate) seen: Vec<String>,
}

impl Up {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let forward = |reader: Box<dyn BufRead + Send>, sender: mpsc::Sender<String>| {
            thread::spawn(move || reader.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line))));
        };
        forward(Box::new(BufReader::new(out)), sender.clone());
        forward(Box::new(BufReader::new(err)), sender);
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits for a line with `text` in it.
    pub(crate) fn line(&mut self, text: &str) -> String {
        let deadline = Instant::now() + TIME_MAX;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("no line with {text:?} in:\n{}", self.seen.join("\n"));
            };
            self.seen.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    pub(crate) fn ready(&mut self) {
        self.line("Ctrl-C stops the pool and PostgreSQL");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        eventually("the end of sluice", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < TIME_MAX, "not after {} s: {what}", TIME_MAX.as_secs());
        thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn postmaster(data: &Path) -> Pid {
    let text = fs::read_to_string(data.join("pgdata/postmaster.pid")).unwrap();
    Pid::from_raw(text.lines().next().unwrap().parse().unwrap())
}

pub(crate) fn processes_on(pgdata: &Path) -> usize {
    let pgdata = pgdata.canonicalize().unwrap();
    let on_it = |entry: &fs::DirEntry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == pgdata);
    fs::read_dir("/proc").unwrap().flatten().filter(on_it).count()
}

pub(crate) fn failure(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}
