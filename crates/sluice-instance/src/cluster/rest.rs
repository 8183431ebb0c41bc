//! Patroni's REST API and etcd's health, asked by plain HTTP on this machine.
//!
//! Patroni's documentation, "Patroni REST API".

use std::{io, net::SocketAddr, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use ureq::{
    Agent,
    http::{
        self,
        header::{AUTHORIZATION, CONTENT_TYPE},
    },
};

use crate::secret::Password;

/// The user's name for requests that change something.
pub(crate) const USER: &str = "sluice";

/// An answer that is longer is none.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// Time limit to connect.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);

/// Asks for `path`; `time_max` is for the connection, the answer and its body each.
pub fn get(address: SocketAddr, path: &str, time_max: Duration) -> io::Result<Answer> {
    request(address, "GET", path, None, "", time_max)
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
    request(address, method, path, Some(&format!("Basic {credentials}")), body, time_max)
}

fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    credentials: Option<&str>,
    body: &str,
    time_max: Duration,
) -> io::Result<Answer> {
    let config = Agent::config_builder()
        .proxy(None)
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_connect(Some(CONNECT_TIME_MAX.min(time_max)))
        .timeout_recv_response(Some(time_max))
        .timeout_recv_body(Some(time_max));
    // One request a connection: a node that was killed may be another one by the next.
    let agent = config.max_idle_connections(0).build().new_agent();
    let mut request = http::Request::builder().method(method).uri(format!("http://{address}{path}"));
    if let Some(credentials) = credentials {
        request = request.header(AUTHORIZATION, credentials).header(CONTENT_TYPE, "application/json");
    }
    let request = request.body(body.to_owned()).map_err(io::Error::other)?;
    let mut answer = agent.run(request).map_err(ureq::Error::into_io)?;
    let status = answer.status().as_u16();
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).lossy_utf8(true).read_to_string();
    Ok(Answer { status, body: body.map_err(ureq::Error::into_io)? })
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
