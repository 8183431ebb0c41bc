//! A member's own words about its PostgreSQL, just asked (`GET /patroni`, and `GET /primary` of one that is).

use serde::Deserialize;

use crate::{Answer, AskError, Question};

/// A member's own words. One whose PostgreSQL does not answer says little.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Own {
    /// `running`, `starting`, `stopped` or another of Patroni's words.
    #[serde(default)]
    pub state: String,
    /// `primary` or `replica`, by whether it is in recovery.
    #[serde(default)]
    pub role: String,
    /// The timeline that it writes, or replays.
    #[serde(default)]
    pub timeline: Option<u32>,
    /// The system identifier of its data, which all nodes of a cluster have in common.
    #[serde(default, rename = "database_system_identifier")]
    pub system: Option<String>,
    /// The time at which its postmaster was started, in PostgreSQL's words.
    #[serde(default, rename = "postmaster_start_time")]
    pub started: Option<String>,
    /// PostgreSQL's version, as a number: 150015 is 15.15.
    #[serde(default)]
    pub server_version: Option<u32>,
    /// The end of its log.
    #[serde(default, rename = "xlog")]
    pub log: Option<Replayed>,
    /// The time at which it heard from etcd last, by its own clock, in seconds since 1970: some seconds ago where all is well.
    #[serde(default)]
    pub dcs_last_seen: Option<u64>,
    /// Whether the cluster is in maintenance.
    #[serde(default)]
    pub pause: bool,
    /// Whether settings have been changed that a restart is needed for.
    #[serde(default)]
    pub pending_restart: bool,
    /// The way in which a standby gets what the primary writes: `streaming`, or another of Patroni's words.
    #[serde(default)]
    pub replication_state: Option<String>,
    /// The tags in the node's configuration.
    #[serde(default)]
    pub tags: Tags,
    #[serde(default)]
    patroni: Option<Itself>,
}

/// Patroni's tags, as far as they count here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Tags {
    /// Whether readers are to be kept away.
    #[serde(default)]
    pub noloadbalance: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Itself {
    #[serde(default)]
    name: String,
}

/// The end of a node's log: of a primary what is on its disk, of a standby what it has received and replayed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Replayed {
    /// A primary's, in bytes.
    #[serde(default)]
    pub location: Option<u64>,
    /// In bytes.
    #[serde(default)]
    pub received_location: Option<u64>,
    /// In bytes.
    #[serde(default)]
    pub replayed_location: Option<u64>,
    /// The time at which the last transaction was committed that has been replayed, in PostgreSQL's words.
    #[serde(default)]
    pub replayed_timestamp: Option<String>,
    /// Whether somebody has the replay wait.
    #[serde(default)]
    pub paused: bool,
}

impl Own {
    /// Asks a member.
    ///
    /// # Errors
    ///
    /// Why it does not say.
    pub fn ask(question: &Question<'_>) -> Result<Self, AskError> {
        // Its status says no more than the body does.
        Self::read(&question.get("/patroni")?)
    }

    /// Asks a member that is the primary; any other has no answer.
    ///
    /// # Errors
    ///
    /// [`AskError::Status`] of one that is not, and why it does not say.
    pub fn ask_primary(question: &Question<'_>) -> Result<Self, AskError> {
        Self::read(&question.get("/primary")?.good()?)
    }

    fn read(answer: &Answer) -> Result<Self, AskError> {
        serde_json::from_slice(&answer.body).map_err(AskError::NotPatroni)
    }

    /// The member's name.
    pub fn name(&self) -> Option<&str> {
        self.patroni.as_ref().map(|itself| &*itself.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_says_its_timeline() {
        let body = br#"{"state": "running", "role": "primary", "server_version": 150015, "timeline": 7,
            "postmaster_start_time": "2026-11-26 07:00:00.000001+00:00", "xlog": {"location": 50331648},
            "database_system_identifier": "7430000000000000001", "patroni": {"name": "a", "scope": "main"}}"#;
        let own = Own::read(&Answer { status: 200, body: body.to_vec() }).unwrap();
        assert_eq!((own.timeline, own.name(), own.server_version), (Some(7), Some("a"), Some(150_015)));
        assert_eq!(own.system.as_deref(), Some("7430000000000000001"));
        assert_eq!(own.log.and_then(|log| log.location), Some(50_331_648));
        let body = br#"{"state": "running", "role": "replica", "timeline": 7, "replication_state": "streaming",
            "xlog": {"received_location": 67109216, "replayed_location": 67109216,
            "replayed_timestamp": "2026-11-26 07:00:01.000001+00:00", "paused": true},
            "tags": {"noloadbalance": true, "nosync": false}}"#;
        let own = Own::read(&Answer { status: 200, body: body.to_vec() }).unwrap();
        assert_eq!((own.replication_state.as_deref(), own.tags.noloadbalance), (Some("streaming"), true));
        let log = own.log.unwrap();
        assert_eq!((log.replayed_location, log.paused), (Some(67_109_216), true));
        let silent = br#"{"state": "stopping", "role": "primary", "dcs_last_seen": 1}"#;
        let own = Own::read(&Answer { status: 503, body: silent.to_vec() }).unwrap();
        assert_eq!((&*own.state, own.timeline, own.started), ("stopping", None, None));
    }
}
