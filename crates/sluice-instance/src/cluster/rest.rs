//! Patroni's REST API and etcd's health, asked by plain HTTP on this machine.
//!
//! HTTP/1.0: one request a connection, and the answer ends with it. Patroni's documentation, "Patroni REST API".

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;

use crate::secret::Password;

/// The user's name for requests that change something.
pub(crate) const USER: &str = "sluice";

/// An answer that is longer is cut, and then is none.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// A request's time limits: to connect, and then for each read.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);

/// Asks for `path`; `time_max` is for each read of the answer.
pub fn get(address: SocketAddr, path: &str, time_max: Duration) -> io::Result<Answer> {
    request(address, "GET", path, "", "", time_max)
}

/// Sends a request that changes something, as `POST` or `PATCH`, with a body in JSON.
pub fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    password: &Password,
    body: &str,
    time_max: Duration,
) -> io::Result<Answer> {
    let credentials = STANDARD.encode(format!("{USER}:{}", password.expose()));
    let headers = format!("Authorization: Basic {credentials}\r\nContent-Type: application/json\r\n");
    request(address, method, path, &headers, body, time_max)
}

fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
    time_max: Duration,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIME_MAX)?;
    stream.set_read_timeout(Some(time_max))?;
    stream.set_write_timeout(Some(time_max))?;
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\n{headers}Content-Length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    parse(&String::from_utf8_lossy(&answer)).ok_or_else(|| io::Error::other("no HTTP answer"))
}

fn parse(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, body: body.to_owned() })
}

/// The members of a cluster, as `GET /cluster` tells them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Members {
    /// Each node that has its key in etcd.
    #[serde(default)]
    pub members: Vec<Member>,
}

/// A node, as the cluster knows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// `leader`, `replica`, `sync_standby`, `quorum_standby` or another of Patroni's words.
    #[serde(default)]
    pub role: String,
    /// `running`, `streaming`, `starting`, `stopped` or another of Patroni's words.
    #[serde(default)]
    pub state: String,
    /// The timeline that it is on, once it runs.
    #[serde(default)]
    pub timeline: Option<u64>,
}

/// What a node says of its own PostgreSQL, which it has just asked.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Own {
    /// `running`, `starting`, `stopped` or another of Patroni's words.
    #[serde(default)]
    pub(super) state: String,
    /// `primary` or `replica`, by whether it is in recovery.
    #[serde(default)]
    pub(super) role: String,
}

impl Own {
    pub(super) fn ask(address: SocketAddr, time_max: Duration) -> io::Result<Self> {
        let answer = get(address, "/patroni", time_max)?;
        serde_json::from_str(&answer.body).map_err(io::Error::other)
    }
}

impl Members {
    /// Asks one node.
    pub fn ask(address: SocketAddr, time_max: Duration) -> io::Result<Self> {
        let answer = get(address, "/cluster", time_max)?;
        serde_json::from_str(&answer.body).map_err(io::Error::other)
    }

    /// The leader, once it runs as one.
    pub fn leader(&self) -> Option<&str> {
        let leader = self.members.iter().find(|member| member.role == "leader" && member.state == "running")?;
        Some(&leader.name)
    }

    /// The number of nodes that a commit is waited for on, or may be.
    pub fn synchronous(&self) -> usize {
        let counts = |member: &&Member| matches!(&*member.role, "sync_standby" | "quorum_standby");
        self.members.iter().filter(counts).filter(|member| member.state == "streaming").count()
    }
}

impl std::fmt::Display for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.members.is_empty() {
            return f.write_str("no node has told anything yet");
        }
        for (index, Member { name, role, state, .. }) in self.members.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {role} {state}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let answer = parse("HTTP/1.0 503 Service Unavailable\r\nA: b\r\n\r\n{\"a\": 1}").unwrap();
        assert_eq!((answer.status, &*answer.body), (503, "{\"a\": 1}"));
        for bad in ["", "HTTP/1.0 200 OK", "HTTP/1.0 x OK\r\n\r\n", "SSH-2.0\r\n\r\n"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn members() {
        let text = r#"{"members": [
            {"name": "node1", "role": "leader", "state": "running", "timeline": 1, "port": 5432, "lag": 0},
            {"name": "node2", "role": "quorum_standby", "state": "streaming", "lag": "unknown"},
            {"name": "node3", "role": "quorum_standby", "state": "starting"}], "scope": "main"}"#;
        let members: Members = serde_json::from_str(text).unwrap();
        assert_eq!((members.leader(), members.synchronous()), (Some("node1"), 1));
        let shown = "node1 leader running, node2 quorum_standby streaming, node3 quorum_standby starting";
        assert_eq!(members.to_string(), shown);
        assert_eq!(serde_json::from_str::<Members>("{}").unwrap().leader(), None);
    }
}
