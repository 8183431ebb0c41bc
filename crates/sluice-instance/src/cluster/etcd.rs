//! etcd's members: a child process each, with data and ports of our own. The service that Debian's package starts is
//! left alone.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nix::sys::signal::Signal;

use super::{error::ClusterError, rest::Api, state::MemberPorts, tls::TlsFiles};
use crate::{files::if_there, run_as::RunAs};

/// Debian's place, then `PATH`.
const PROGRAM: &str = "/usr/bin/etcd";

/// A member's answer to a question about its health comes at once, or it waits for a majority.
const HEALTH_TIME_MAX: Duration = Duration::from_secs(2);

/// One member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdMember {
    /// `etcd1`.
    pub name: String,
    /// Its data directory.
    pub data: PathBuf,
    /// Its output.
    pub log: PathBuf,
    /// The address at which Patroni asks it, by TLS.
    pub client: SocketAddr,
    /// The address of its health and metrics, for everybody on this machine; none on a host of several.
    pub health: Option<SocketAddr>,
    /// The address for the other members.
    pub peer: SocketAddr,
}

impl EtcdMember {
    /// Whether it answers, and belongs to a majority.
    pub(super) fn is_healthy(&self) -> bool {
        self.health.is_some_and(is_healthy)
    }
}

/// Whether the member answers whose health is at that address, and belongs to a majority.
pub(super) fn is_healthy(health: SocketAddr) -> bool {
    let answer = Api::default().get(health, "/health", HEALTH_TIME_MAX);
    answer.is_ok_and(|answer| answer.status == 200 && answer.text().contains("\"true\""))
}

/// Whether a member has data in that directory: its log, by which it knows how it has voted. The log comes whole, and what
/// else an interrupted start has left is nothing without it. What can't be read may be one.
pub(super) fn has_data(dir: &Path) -> bool {
    match fs::read_dir(dir.join("member/wal")) {
        Ok(mut files) => files.any(|file| file.map_or(true, |file| file.path().extension() == Some("wal".as_ref()))),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Notes that a member is one of its cluster from now on. An error where it has no data yet: it may not have started,
/// and never starts without data from then on.
pub(super) fn join(dir: &Path, has_joined: &AtomicBool) -> io::Result<()> {
    if !has_data(dir) {
        return Err(io::Error::other("it has no data yet"));
    }
    has_joined.store(true, Ordering::Release);
    Ok(())
}

/// Sets aside what a member without a log has left, in the place of what was set aside before: a new member would take it
/// for what it has carried out itself.
pub(super) fn set_aside(dir: &Path) -> Result<(), ClusterError> {
    let (left, aside) = (dir.join("member"), dir.join("member.old"));
    if has_data(dir) || !left.exists() {
        return Ok(());
    }
    if_there(fs::remove_dir_all(&aside)).map_err(ClusterError::io("remove", &aside))?;
    fs::rename(&left, &aside).map_err(ClusterError::io("set aside", &left))
}

/// Errors that are shown of a log, in lines.
const ERRORS_MAX: usize = 4;

/// The last errors in the end of a log; its last lines where it has none.
pub(super) fn errors(log: &str) -> String {
    let lines: Vec<(bool, String)> = log.lines().filter(|line| !line.trim().is_empty()).map(of_line).collect();
    let mut shown: Vec<&str> = lines.iter().filter_map(|(is_error, text)| is_error.then_some(&**text)).collect();
    if shown.is_empty() {
        shown = lines.iter().map(|(_, text)| &**text).collect();
    }
    // Each start says the same.
    let mut last: Vec<&str> = Vec::new();
    for text in shown.into_iter().rev() {
        if last.len() < ERRORS_MAX && !last.contains(&text) {
            last.push(text);
        }
    }
    last.reverse();
    last.join("\n")
}

/// A line of its log in short, and whether it tells of an error that ends it.
fn of_line(line: &str) -> (bool, String) {
    let Ok(entry) = serde_json::from_str::<serde_json::Value>(line) else {
        return (line.starts_with("panic:"), line.trim().chars().take(LINE_CHARS_MAX).collect());
    };
    let of = |key: &str| entry[key].as_str().unwrap_or_default();
    let (message, error) = (of("msg"), of("error"));
    let is_error = matches!(of("level"), "error" | "dpanic" | "panic" | "fatal") && !message.contains("systemd")
        || message == "server error"
        || message.starts_with("data-dir used");
    let text = if error.is_empty() { message.to_owned() } else { format!("{message}: {error}") };
    (is_error, text.chars().take(LINE_CHARS_MAX).collect())
}

/// The part of one line of a log that is shown, in characters.
const LINE_CHARS_MAX: usize = 300;

/// Finds etcd.
pub(super) fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("etcd"));
    std::iter::once(PathBuf::from(PROGRAM)).chain(on_path).find(|program| program.is_file())
}

/// The oldest version that adds members without a vote.
const OLDEST: (u32, u32) = (3, 4);

/// Finds etcd for a host of several, which joins others.
pub(super) fn find_for_host() -> Result<PathBuf, ClusterError> {
    let program = find().ok_or(ClusterError::NoEtcd)?;
    let output = Command::new(&program).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(ClusterError::io("run", &program))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match version(&said) {
        Some(version) if version >= OLDEST => Ok(program),
        _ => Err(ClusterError::OldEtcd { program, said: said.lines().next().unwrap_or_default().to_owned() }),
    }
}

/// `etcd Version: 3.4.23`, as numbers.
fn version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.lines().find_map(|line| line.strip_prefix("etcd Version: "))?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The way in which a member is started.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub(super) program: PathBuf,
    pub(super) run_as: RunAs,
    pub(super) member: EtcdMember,
    /// The names and URLs of all members that a new one is to find. Once it has data, those decide.
    pub(super) peers: Vec<(String, String)>,
    /// Whether these are a new cluster, where the member has no data yet.
    pub(super) is_new: bool,
    /// Whether it is one of them, with data. From then on it never starts without: it would go on as the voter that it was,
    /// and have forgotten how it voted and what it acknowledged.
    pub(super) has_joined: Arc<AtomicBool>,
    pub(super) token: String,
    pub(super) tls: TlsFiles,
}

impl Launch {
    /// The command. An error if the data of a member are gone.
    pub(super) fn command(&self) -> io::Result<Command> {
        let Self { member, tls, .. } = self;
        if has_data(&member.data) {
            self.has_joined.store(true, Ordering::Release);
        } else if self.has_joined.load(Ordering::Acquire) {
            let dir = member.data.display();
            return Err(io::Error::other(format!(
                "its data in {dir} are gone, and without them it could vote a second time"
            )));
        }
        // It takes the time to leave in order, which is short.
        let mut command = self.run_as.command(&self.program, Signal::SIGTERM);
        super::without_variables(&mut command, "ETCD_");
        // Where etcd counts a kind of processor as not tested, it asks for this word.
        if std::env::consts::ARCH == "aarch64" {
            command.env("ETCD_UNSUPPORTED_ARCH", "arm64");
        }
        let client = format!("https://{}", member.client);
        let peer = format!("https://{}", member.peer);
        let own = (member.name.clone(), peer.clone());
        // With itself alone it would not start if its data vanished at this very moment.
        let (peers, state) = match self.has_joined.load(Ordering::Acquire) {
            true => (std::slice::from_ref(&own), "existing"),
            false => (&*self.peers, if self.is_new { "new" } else { "existing" }),
        };
        let cluster: Vec<String> = peers.iter().map(|(name, peer)| format!("{name}={peer}")).collect();
        command.current_dir("/").args(["--name", &member.name]).arg("--data-dir").arg(&member.data);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &cluster.join(","), "--initial-cluster-token", &self.token]);
        if let Some(health) = member.health {
            command.arg("--listen-metrics-urls").arg(format!("http://{health}"));
        }
        for (prefix, ca) in [("--", "--trusted-ca-file"), ("--peer-", "--peer-trusted-ca-file")] {
            command.arg(ca).arg(&tls.ca).arg(format!("{prefix}client-cert-auth"));
            command.arg(format!("{prefix}cert-file")).arg(&tls.cert).arg(format!("{prefix}key-file")).arg(&tls.key);
        }
        command.args(["--initial-cluster-state", state]);
        // A member that was cut off would force an election on the others when it is back (as from 3.5 on by default).
        command.arg("--pre-vote");
        // Patroni writes a key each few seconds, and etcd keeps every version until it is told not to.
        command.args(["--auto-compaction-mode", "periodic", "--auto-compaction-retention", "1h"]);
        command.args(["--log-outputs", "stderr", "--logger", "zap", "--log-level", "warn"]);
        Ok(command)
    }
}

/// The members of a cluster on one machine: `etcd1` and so on, data below `root`.
pub(super) fn members(root: &Path, ip: IpAddr, ports: &[MemberPorts]) -> Vec<EtcdMember> {
    let member = |(index, ports): (usize, &MemberPorts)| {
        let name = format!("etcd{}", index + 1);
        EtcdMember {
            data: root.join(&name),
            log: root.join("log").join(format!("{name}.log")),
            client: SocketAddr::new(ip, ports.client),
            peer: SocketAddr::new(ip, ports.peer),
            health: Some(SocketAddr::new(ip, ports.health)),
            name,
        }
    };
    ports.iter().enumerate().map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_whose_data_are_gone_is_not_started() {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("etcd");
        let at = |port: u16| SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port);
        let member = EtcdMember {
            name: "a".to_owned(),
            data: data.clone(),
            log: place.path().join("log"),
            client: at(1),
            health: None,
            peer: at(2),
        };
        let peers = [("a", "https://127.0.0.1:2"), ("b", "https://127.0.0.1:3")];
        let [ca, cert, key] = ["ca", "cert", "key"].map(|name| place.path().join(name));
        let launch = Launch {
            program: PROGRAM.into(),
            run_as: RunAs::resolve(None).unwrap(),
            member,
            peers: peers.map(|(name, url)| (name.to_owned(), url.to_owned())).to_vec(),
            is_new: true,
            has_joined: Arc::default(),
            token: "t".to_owned(),
            tls: TlsFiles { ca, cert, key },
        };
        let told = || -> io::Result<String> {
            let command = launch.command()?;
            Ok(command.get_args().map(|it| it.to_string_lossy()).collect::<Vec<_>>().join(" "))
        };
        let among_all = "--initial-cluster a=https://127.0.0.1:2,b=https://127.0.0.1:3 ";
        // Also what a start has left that came to nothing.
        fs::create_dir_all(data.join("member/snap")).unwrap();
        fs::create_dir_all(data.join("member/wal")).unwrap();
        fs::write(data.join("member/snap/db"), "").unwrap();
        for _ in 0..2 {
            // One whose first start comes to nothing has no data that could be gone.
            assert!(join(&data, &launch.has_joined).is_err());
            let told = told().unwrap();
            assert!(told.contains(among_all) && told.contains("--initial-cluster-state new"), "{told}");
        }
        let log = data.join("member/wal/0000000000000000-0000000000000000.wal");
        fs::write(&log, "").unwrap();
        set_aside(&data).unwrap();
        let as_member = told().unwrap();
        assert!(as_member.contains("--initial-cluster a=https://127.0.0.1:2 "), "{as_member}");
        assert!(as_member.contains("--initial-cluster-state existing"), "{as_member}");
        fs::remove_file(&log).unwrap();
        let refused = told().unwrap_err().to_string();
        assert!(refused.contains("are gone, and without them it could vote a second time"), "{refused}");
        set_aside(&data).unwrap();
        assert!(!data.join("member").exists() && data.join("member.old/snap/db").exists());
        assert!(told().is_err());
    }

    #[test]
    fn the_errors_of_a_log() {
        let start = "{\"level\":\"error\",\"msg\":\"failed to notify systemd for readiness\",\"error\":\"x\"}\n\
                     {\"level\":\"warn\",\"msg\":\"server error\",\"error\":\"the member has been permanently removed\"}\n\
                     {\"level\":\"warn\",\"msg\":\"data-dir used by this member must be removed\"}\n";
        let said =
            "server error: the member has been permanently removed\ndata-dir used by this member must be removed";
        assert_eq!(errors(&start.repeat(3)), said);
        let panic = "{\"level\":\"panic\",\"msg\":\"tocommit(9) is out of range [lastIndex(0)]\",\"stacktrace\":\"y\"}\n\
                     panic: tocommit(9) is out of range [lastIndex(0)]\n\ngoroutine 7 [running]:\n";
        let said = "tocommit(9) is out of range [lastIndex(0)]\npanic: tocommit(9) is out of range [lastIndex(0)]";
        assert_eq!(errors(panic), said);
        assert_eq!(
            errors("{\"level\":\"warn\",\"msg\":\"slow\"}\nflag provided but not defined\n"),
            "slow\nflag provided but not defined"
        );
    }

    #[test]
    fn versions() {
        assert_eq!(version("etcd Version: 3.4.23\nGit SHA: x\n"), Some((3, 4)));
        assert_eq!(version("etcd Version: 3.10.0-rc.1\n"), Some((3, 10)));
        assert_eq!(version("etcd: not found"), None);
    }
}
