//! The members of a cluster, as any of them tells (`GET /cluster`).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_control::{address::Address, cluster::Rest};

use crate::{Answer, AskError, Question};

/// A cluster, as the place that its members keep it in has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Members {
    /// Each node that has its key there.
    #[serde(default)]
    pub members: Vec<Member>,
    /// The cluster's name to Patroni.
    #[serde(default)]
    pub scope: String,
    /// Whether it is in maintenance: nothing is started, stopped or promoted by itself.
    #[serde(default)]
    pub pause: bool,
}

/// A node, as the cluster knows it; one that is just coming up has not said all of it.
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
    /// The URL of its REST API.
    #[serde(default)]
    pub api_url: Option<String>,
    /// PostgreSQL's address there.
    #[serde(default)]
    pub host: Option<String>,
    /// PostgreSQL's port there.
    #[serde(default)]
    pub port: Option<u16>,
    /// The bytes that a standby has not received yet, as of its last word.
    #[serde(default)]
    pub receive_lag: Option<Lag>,
    /// The bytes that a standby has not replayed yet, as of its last word.
    #[serde(default)]
    pub replay_lag: Option<Lag>,
    /// Whether settings have been changed that a restart is needed for.
    #[serde(default)]
    pub pending_restart: bool,
    /// Those settings, with their values.
    #[serde(default)]
    pub pending_restart_reason: Value,
    /// The tags in the node's configuration, as they were written there.
    #[serde(default)]
    pub tags: Value,
}

/// A lag in bytes, or Patroni's word for one that it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Lag {
    /// In bytes.
    Bytes(u64),
    /// `unknown`.
    Word(String),
}

impl Lag {
    /// In bytes, if it is known.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(*bytes),
            Self::Word(_) => None,
        }
    }
}

impl Member {
    /// Whether it holds the lock by which it is the primary, or is about to be.
    pub fn is_leader(&self) -> bool {
        self.role == "leader"
    }

    /// Whether its PostgreSQL runs, as the primary or as a standby.
    pub fn is_up(&self) -> bool {
        matches!(&*self.state, "running" | "streaming")
    }

    /// Whether commits are waited for on it, or may be.
    pub fn is_synchronous(&self) -> bool {
        matches!(&*self.role, "sync_standby" | "quorum_standby")
    }

    /// Whether its tags keep it from being one that commits are waited for on.
    pub fn is_never_synchronous(&self) -> bool {
        let is_on = |tag: &str| match &self.tags[tag] {
            Value::String(word) => matches!(&*word.to_ascii_lowercase(), "on" | "true" | "yes" | "1"),
            value => value.as_bool().or_else(|| value.as_i64().map(|number| number != 0)).unwrap_or(false),
        };
        let is_last = |tag: &str| self.tags[tag].as_i64().is_some_and(|priority| priority <= 0);
        // A quorum is not of nodes that can't become the primary.
        ["nosync", "nofailover"].into_iter().any(is_on)
            || ["sync_priority", "failover_priority"].into_iter().any(is_last)
    }

    /// Whether its tags keep it from becoming the primary. `nofailover` counts before `failover_priority`, and any text in
    /// it is true to Patroni.
    pub fn is_never_primary(&self) -> bool {
        match &self.tags["nofailover"] {
            Value::Null => {
                let priority = &self.tags["failover_priority"];
                let priority = priority.as_i64().or_else(|| priority.as_str()?.trim().parse().ok());
                priority.is_some_and(|priority| priority <= 0)
            }
            Value::Bool(is_so) => *is_so,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::String(word) => !word.is_empty(),
            _ => true,
        }
    }

    /// Its REST API, once it has said where that is.
    pub fn rest(&self) -> Option<Rest> {
        Rest::parse(self.api_url.as_deref()?)
    }

    /// PostgreSQL's address there, once it has said it.
    pub fn address(&self) -> Option<Address> {
        Some(Address::Tcp(self.host.clone()?, self.port?))
    }
}

impl Members {
    /// Asks one member.
    ///
    /// # Errors
    ///
    /// Why it does not say.
    pub fn ask(question: &Question<'_>) -> Result<Self, AskError> {
        Self::read(&question.get("/cluster")?.good()?)
    }

    pub(crate) fn read(answer: &Answer) -> Result<Self, AskError> {
        serde_json::from_slice(&answer.body).map_err(AskError::NotPatroni)
    }

    /// The member that holds the leader's lock.
    pub fn holder(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.is_leader())
    }

    /// The leader, once it runs as one.
    pub fn leader(&self) -> Option<&str> {
        self.holder().filter(|leader| leader.state == "running").map(|leader| &*leader.name)
    }

    /// The member of that name.
    pub fn named(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }

    /// The number of nodes that a commit is waited for on, or may be.
    pub fn synchronous(&self) -> usize {
        self.members.iter().filter(|member| member.is_synchronous() && member.state == "streaming").count()
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

    fn read(body: &str) -> Result<Members, AskError> {
        Members::read(&Answer { status: 200, body: body.as_bytes().to_vec() })
    }

    #[test]
    fn members() {
        let members = read(
            r#"{"members": [
            {"name": "node1", "role": "leader", "state": "running", "timeline": 1, "host": "10.0.0.1", "port": 5432,
             "api_url": "http://10.0.0.1:8008/patroni", "pending_restart": true,
             "pending_restart_reason": {"max_connections": {"old_value": "100", "new_value": "200"}}},
            {"name": "node2", "role": "quorum_standby", "state": "streaming", "receive_lag": 0, "replay_lag": 16,
             "host": "::1", "port": 5433, "api_url": "https://[::1]:8008/patroni"},
            {"name": "node3", "role": "quorum_standby", "state": "starting", "receive_lag": "unknown"},
            {"name": "c", "role": "replica", "state": "creating replica"}], "scope": "main", "pause": true}"#,
        )
        .unwrap();
        assert_eq!((members.leader(), members.synchronous(), members.pause), (Some("node1"), 1, true));
        let shown = "node1 leader running, node2 quorum_standby streaming, node3 quorum_standby starting, \
                     c replica creating replica";
        assert_eq!(members.to_string(), shown);
        let places = members.members.iter().map(|it| Some((it.rest()?.to_string(), it.address()?.to_string())));
        let place = |rest: &str, address: &str| Some((rest.to_owned(), address.to_owned()));
        let expected =
            [place("http://10.0.0.1:8008", "10.0.0.1:5432"), place("https://[::1]:8008", "[::1]:5433"), None, None];
        assert_eq!(places.collect::<Vec<_>>(), expected);
        let lags = members.members.iter().map(|it| it.receive_lag.as_ref().and_then(Lag::bytes));
        assert_eq!(lags.collect::<Vec<_>>(), [None, Some(0), None, None]);
        assert!(members.named("node1").is_some_and(|node| node.pending_restart));
    }

    #[test]
    fn tags_keep_a_node_from_being_synchronous() {
        for (tags, never) in [
            (r#"{"nosync": true}"#, true),
            (r#"{"nosync": "yes"}"#, true),
            (r#"{"sync_priority": 0}"#, true),
            (r#"{"nofailover": true, "nosync": false}"#, true),
            (r#"{"sync_priority": 2, "noloadbalance": true}"#, false),
            ("null", false),
        ] {
            let body = format!(r#"{{"members": [{{"name": "a", "tags": {tags}}}]}}"#);
            assert_eq!(read(&body).unwrap().members[0].is_never_synchronous(), never, "{tags}");
        }
    }

    #[test]
    fn tags_keep_a_node_from_becoming_the_primary() {
        for (tags, never) in [
            (r#"{"nofailover": true}"#, true),
            (r#"{"nofailover": "false"}"#, true),
            (r#"{"failover_priority": 0}"#, true),
            (r#"{"failover_priority": "-1"}"#, true),
            (r#"{"nofailover": false, "failover_priority": 0}"#, false),
            (r#"{"failover_priority": 2, "nosync": true}"#, false),
            ("null", false),
        ] {
            let body = format!(r#"{{"members": [{{"name": "a", "tags": {tags}}}]}}"#);
            assert_eq!(read(&body).unwrap().members[0].is_never_primary(), never, "{tags}");
        }
    }

    #[test]
    fn others_are_not_taken_for_patroni() {
        assert_eq!(read("{}").unwrap().leader(), None);
        assert!(read("<html>").unwrap_err().to_string().starts_with("the answer is not Patroni's"));
    }
}
