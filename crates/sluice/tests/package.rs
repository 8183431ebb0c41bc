//! Debian's package of the pool: made of the program under test, unpacked, and where that can be done without harm,
//! installed and purged.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output},
    sync::OnceLock,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, Uid, User},
};
use sluice_testkit::{TestServer, Version, case::repository, eventually, port::free_port};

/// The package, made once; `None` where dpkg is missing.
fn package() -> Option<&'static Path> {
    static PACKAGE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        if Command::new("dpkg-deb").arg("--version").output().is_err() {
            eprintln!("skipped: there is no dpkg");
            return None;
        }
        let mut script = Command::new(repository().join("scripts/package.sh"));
        let output = good(script.args(["--program", env!("CARGO_BIN_EXE_sluice")]));
        let words = String::from_utf8(output.stdout).unwrap();
        Some(repository().join(words.lines().last().unwrap()))
    };
    PACKAGE.get_or_init(make).as_deref()
}

/// Runs a command, which must go well.
fn good(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let words = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{command:?} ended with {}:\n{}{}", output.status, words[0], words[1]);
    output
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// As README.Debian has it: the role `sluice`, which may read secrets, and users who log in by SCRAM.
#[test]
fn the_pool_serves_from_the_unpacked_package() {
    let Some(package) = package() else { return };
    let tree = tempfile::tempdir().unwrap();
    good(Command::new("dpkg-deb").arg("-x").arg(package).arg(tree.path()));
    let file = |name: &str| tree.path().join(name);
    for name in [
        "usr/lib/systemd/system/sluice-node.service",
        "usr/lib/systemd/system/sluice.service",
        "usr/lib/systemd/system/sluice.socket",
        "usr/share/man/man1/sluice-serve.1.gz",
        "usr/share/bash-completion/completions/sluice",
        "usr/share/zsh/vendor-completions/_sluice",
        "usr/share/fish/vendor_completions.d/sluice.fish",
        "usr/share/doc/sluice/copyright",
        "usr/share/doc/sluice/changelog.gz",
        "usr/share/doc/sluice/README.Debian",
        "usr/share/doc/sluice/configuration.md.gz",
        "usr/share/doc/sluice/examples/minimal.toml",
        "usr/share/doc/sluice/from-pgbouncer.md.gz",
        "usr/share/doc/sluice/grafana/sluice.json",
        "usr/share/doc/sluice/nodes.md.gz",
        "usr/share/doc/sluice/decisions/0014-a-session-follows-its-client.md.gz",
    ] {
        assert!(file(name).is_file(), "{name}");
    }
    good(Command::new("bash").arg("-n").arg(file("usr/share/bash-completion/completions/sluice")));
    let config = file("etc/sluice/sluice.toml");
    assert_eq!(fs::metadata(&config).unwrap().permissions().mode() & 0o777, 0o640);
    let sluice = file("usr/bin/sluice");
    good(Command::new(&sluice).args(["check", "-c"]).arg(&config));

    let server = TestServer::start(Version::V15, &[]);
    server.execute(
        "CREATE ROLE sluice LOGIN IN ROLE trusted; GRANT SELECT ON pg_authid TO sluice;
         SET password_encryption = 'scram-sha-256'; CREATE ROLE somebody LOGIN PASSWORD 'secret'",
    );
    // Only the places are others here.
    let port = free_port();
    let text = fs::read_to_string(&config).unwrap();
    let mut changed = text.clone();
    for (is, becomes) in [
        ("127.0.0.1:6432", format!("127.0.0.1:{port}")),
        ("\"/run/sluice\"", format!("{:?}", tree.path())),
        ("\"/var/run/postgresql\"", format!("{:?}", server.socket_dir())),
        ("port = 5432", format!("port = {}", server.port())),
        ("clients = 10000", "clients = 100".to_owned()),
    ] {
        assert!(changed.contains(is), "{is} in:\n{text}");
        changed = changed.replace(is, &becomes);
    }
    fs::write(&config, changed).unwrap();
    let mut running = Running(Command::new(&sluice).args(["serve", "-c"]).arg(&config).spawn().unwrap());
    eventually("the pool listens", || TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).is_ok());
    for host in ["127.0.0.1", &tree.path().display().to_string()] {
        let mut psql = server.program("psql");
        psql.args(["-X", "-A", "-t", "-h", host, "-p", &port.to_string(), "-U", "somebody", "-d", "postgres"]);
        let said = good(psql.args(["-c", "SELECT current_user"]).env("PGPASSWORD", "secret"));
        assert_eq!(String::from_utf8(said.stdout).unwrap(), "somebody\n");
    }
    kill(Pid::from_raw(running.0.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(running.0.wait().unwrap().success());
}

/// Takes the package away again, however a test ends, with what purging leaves: the user.
struct Installed;

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = Command::new("dpkg").args(["--no-triggers", "--purge", "sluice"]).output();
        if User::from_name("sluice").is_ok_and(|user| user.is_some()) {
            let _ = Command::new("deluser").args(["--quiet", "--system", "sluice"]).output();
        }
    }
}

/// Only where nothing of it is there: no package, no user, no configuration.
#[test]
fn the_package_is_installed_and_purged() {
    let Some(package) = package() else { return };
    let is_known = Command::new("dpkg-query").args(["-W", "sluice"]).output().unwrap().status.success();
    let has_adduser = Path::new("/usr/sbin/adduser").exists();
    let has_user = User::from_name("sluice").unwrap().is_some();
    if !Uid::effective().is_root() || is_known || has_user || !has_adduser || Path::new("/etc/sluice").exists() {
        eprintln!("skipped: the package can't be installed here without changing what is there");
        return;
    }
    let installed = Installed;
    // The index of manual pages is not made anew each time.
    let dpkg = |arguments: &[&str]| good(Command::new("dpkg").arg("--no-triggers").args(arguments));
    let file = package.to_str().unwrap();
    dpkg(&["-i", file]);
    let user = User::from_name("sluice").unwrap().expect("the package makes it");
    let config = fs::metadata("/etc/sluice/sluice.toml").unwrap();
    assert_eq!((config.uid(), config.gid(), config.mode() & 0o777), (0, user.gid.as_raw(), 0o640));
    let of = |user: &str| {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            user,
            "--clear-groups",
            "--regid",
            if user == "nobody" { "nogroup" } else { user },
            "/usr/bin/sluice",
            "check",
            "-c",
        ]);
        command.arg("/etc/sluice/sluice.toml").output().unwrap()
    };
    assert!(of("sluice").status.success());
    assert!(!of("nobody").status.success());
    // Once more, as a new version would be, and with a configuration that is kept.
    fs::OpenOptions::new()
        .append(true)
        .open("/etc/sluice/sluice.toml")
        .and_then(|mut file| std::io::Write::write_all(&mut file, b"# changed\n"))
        .unwrap();
    dpkg(&["--force-confdef", "--force-confold", "-i", file]);
    assert!(fs::read_to_string("/etc/sluice/sluice.toml").unwrap().ends_with("# changed\n"));
    dpkg(&["--remove", "sluice"]);
    assert!(!Path::new("/usr/bin/sluice").exists() && Path::new("/etc/sluice/sluice.toml").exists());
    dpkg(&["--purge", "sluice"]);
    assert!(!Path::new("/etc/sluice").exists());
    drop(installed);
    assert!(User::from_name("sluice").unwrap().is_none());
}

/// The tags of lintian's that are left as they are.
const KNOWN: [&str; 2] = [
    // deb-systemd-invoke has no word for the signal that hands over to a new version.
    "maintainer-script-calls-systemctl",
    // The configuration may hold passwords.
    "non-standard-file-perm 0640 != 0644 [etc/sluice/sluice.toml]",
];

#[test]
fn lintian_finds_no_error() {
    let Some(package) = package() else { return };
    if Command::new("lintian").arg("--version").output().is_err() {
        eprintln!("skipped: there is no lintian");
        return;
    }
    let output =
        Command::new("lintian").args(["--allow-root", "--no-tag-display-limit"]).arg(package).output().unwrap();
    let words = String::from_utf8(output.stdout).unwrap();
    let unknown = words.lines().filter(|line| !KNOWN.iter().any(|tag| line.contains(tag)));
    let unknown: Vec<&str> = unknown.filter(|line| line.starts_with("E:") || line.starts_with("W:")).collect();
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}
