//! etcd's members: a child process each, with data and ports of our own. The service that Debian's package starts is
//! left alone.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use nix::sys::signal::Signal;

use super::rest;
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
    /// Where Patroni asks it.
    pub client: SocketAddr,
    /// Where the other members find it.
    pub peer: SocketAddr,
}

impl EtcdMember {
    /// Whether it answers, and belongs to a majority.
    pub(super) fn is_healthy(&self) -> bool {
        rest::get(self.client, "/health", HEALTH_TIME_MAX)
            .is_ok_and(|answer| answer.status == 200 && answer.body.contains("\"true\""))
    }
}

/// Finds etcd.
pub(super) fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("etcd"));
    std::iter::once(PathBuf::from(PROGRAM)).chain(on_path).find(|program| program.is_file())
}

/// The command that starts a member among all of them.
pub(super) fn command(program: &Path, run_as: &RunAs, member: &EtcdMember, all: &[EtcdMember], token: &str) -> Command {
    // It takes the time to leave in order, which is short.
    let mut command = run_as.command(program, Signal::SIGTERM);
    super::without_variables(&mut command, "ETCD_");
    // Where etcd counts a kind of processor as not tested, it asks for this word.
    if std::env::consts::ARCH == "aarch64" {
        command.env("ETCD_UNSUPPORTED_ARCH", "arm64");
    }
    let client = format!("http://{}", member.client);
    let peer = format!("http://{}", member.peer);
    let cluster: Vec<String> = all.iter().map(|one| format!("{}=http://{}", one.name, one.peer)).collect();
    command.current_dir("/").args(["--name", &member.name]).arg("--data-dir").arg(&member.data);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &cluster.join(","), "--initial-cluster-token", token]);
    // Whether it is new is decided by its data directory, where there is one.
    command.args(["--initial-cluster-state", "new"]);
    // Patroni writes a key each few seconds, and etcd keeps every version until it is told not to.
    command.args(["--auto-compaction-mode", "periodic", "--auto-compaction-retention", "1h"]);
    command.args(["--log-outputs", "stderr", "--logger", "zap"]);
    command
}

/// The members of a cluster on one machine: `etcd1` and so on, data below `root`.
pub(super) fn members(root: &Path, ip: IpAddr, ports: &[(u16, u16)]) -> Vec<EtcdMember> {
    let member = |(index, (client, peer)): (usize, &(u16, u16))| {
        let name = format!("etcd{}", index + 1);
        EtcdMember {
            data: root.join(&name),
            log: root.join("log").join(format!("{name}.log")),
            client: SocketAddr::new(ip, *client),
            peer: SocketAddr::new(ip, *peer),
            name,
        }
    };
    ports.iter().enumerate().map(member).collect()
}
