//! etcd's members: a child process each, with data and ports of our own. The service that Debian's package starts is
//! left alone.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use nix::sys::signal::Signal;

use super::{rest, state::MemberPorts, tls::EtcdTls};
use crate::run_as::RunAs;

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
    /// Where Patroni asks it, by TLS.
    pub client: SocketAddr,
    /// Where it tells of its health and its metrics, to everybody on this machine.
    pub health: SocketAddr,
    /// Where the other members find it.
    pub peer: SocketAddr,
}

impl EtcdMember {
    /// Whether it answers, and belongs to a majority.
    pub(super) fn is_healthy(&self) -> bool {
        rest::get(self.health, "/health", HEALTH_TIME_MAX)
            .is_ok_and(|answer| answer.status == 200 && answer.text().contains("\"true\""))
    }
}

/// Finds etcd.
pub(super) fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("etcd"));
    std::iter::once(PathBuf::from(PROGRAM)).chain(on_path).find(|program| program.is_file())
}

/// The command that starts a member among all of them.
pub(super) fn command(
    program: &Path,
    run_as: &RunAs,
    member: &EtcdMember,
    all: &[EtcdMember],
    token: &str,
    tls: &EtcdTls,
) -> Command {
    // It takes the time to leave in order, which is short.
    let mut command = run_as.command(program, Signal::SIGTERM);
    super::without_variables(&mut command, "ETCD_");
    // Where etcd counts a kind of processor as not tested, it asks for this word.
    if std::env::consts::ARCH == "aarch64" {
        command.env("ETCD_UNSUPPORTED_ARCH", "arm64");
    }
    let client = format!("https://{}", member.client);
    let peer = format!("https://{}", member.peer);
    let cluster: Vec<String> = all.iter().map(|one| format!("{}=https://{}", one.name, one.peer)).collect();
    command.current_dir("/").args(["--name", &member.name]).arg("--data-dir").arg(&member.data);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &cluster.join(","), "--initial-cluster-token", token]);
    command.arg("--listen-metrics-urls").arg(format!("http://{}", member.health));
    for (prefix, ca) in [("--", "--trusted-ca-file"), ("--peer-", "--peer-trusted-ca-file")] {
        command.arg(ca).arg(&tls.ca).arg(format!("{prefix}client-cert-auth"));
        command.arg(format!("{prefix}cert-file")).arg(&tls.cert).arg(format!("{prefix}key-file")).arg(&tls.key);
    }
    // Whether it is new is decided by its data directory, where there is one.
    command.args(["--initial-cluster-state", "new"]);
    // Patroni writes a key each few seconds, and etcd keeps every version until it is told not to.
    command.args(["--auto-compaction-mode", "periodic", "--auto-compaction-retention", "1h"]);
    command.args(["--log-outputs", "stderr", "--logger", "zap", "--log-level", "warn"]);
    command
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
            health: SocketAddr::new(ip, ports.health),
            name,
        }
    };
    ports.iter().enumerate().map(member).collect()
}
