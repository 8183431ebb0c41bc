//! The keys in etcd: Patroni's, which are read, and those of the survivors, beside them.
//!
//! ```text
//! /service/SCOPE/leader, sync, config, failover, members/NODE     Patroni's
//! /sluice/SCOPE/survivors/runs/NODE                               written by each run, without a lease
//! /sluice/SCOPE/survivors/votes/NODE                              a vote, under its lease
//! /sluice/SCOPE/survivors/ending                                  a leader's lease has to end, under that lease
//! ```

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    super::{
        etcd_api::{Compare, KeyValue, SERVICE, Step},
        votes::Votes,
    },
    machine::EndLease,
    view::{Addresses, Config, Failover, LeaderKey, Sync, View, Vote},
};

/// The prefix of the keys of a cluster, and the names of some.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    patroni: String,
    own: String,
}

/// A vote's value.
#[derive(Debug, Serialize, Deserialize)]
struct VoteValue {
    /// The leader key's revision.
    about: i64,
    fenced: bool,
}

impl Keys {
    pub(super) fn new(scope: &str) -> Self {
        Self { patroni: format!("{SERVICE}{scope}/"), own: format!("/sluice/{scope}/survivors/") }
    }

    fn run(&self, node: &str) -> String {
        format!("{}runs/{node}", self.own)
    }

    fn vote(&self, node: &str) -> String {
        format!("{}votes/{node}", self.own)
    }

    fn ending(&self) -> String {
        format!("{}ending", self.own)
    }

    /// The transaction that begins a run: a vote of the run before is deleted, and one that is still on its way finds
    /// another run.
    pub(super) fn register(&self, node: &str, run: &str) -> [Step; 2] {
        let put = Step::Put { key: self.run(node), value: run.to_owned(), lease: None };
        [put, Step::Delete { key: self.vote(node) }]
    }

    pub(super) fn read(&self) -> [Step; 2] {
        [Step::Read { prefix: self.patroni.clone() }, Step::Read { prefix: self.own.clone() }]
    }

    pub(super) fn put_vote(
        &self,
        node: &str,
        registration: i64,
        lease: i64,
        about: i64,
        fenced: bool,
    ) -> (Compare, Step) {
        // A value of numbers and truths can always be written.
        let value = serde_json::to_string(&VoteValue { about, fenced }).unwrap_or_default();
        let compare = Compare { key: self.run(node), revision: registration };
        (compare, Step::Put { key: self.vote(node), value, lease: Some(lease) })
    }

    /// What Patroni has of the leader, without its REST API, if that is there: a key and its value. Patroni asks each node
    /// with one before it elects, and waits two seconds for one that says nothing; a Patroni that lives writes it again.
    pub(super) fn hide_rest(&self, patroni: &[KeyValue]) -> Option<(Vec<Compare>, (String, String))> {
        let find = |key: &str| patroni.iter().find(|value| value.key == key);
        let leader = find(&format!("{}leader", self.patroni))?;
        let member = find(&format!("{}members/{}", self.patroni, leader.value))?;
        let mut value: Value = serde_json::from_str(&member.value).ok()?;
        value.as_object_mut()?.remove("api_url")?;
        let compare = [leader, member].map(|one| Compare { key: one.key.clone(), revision: one.revision });
        Some((compare.to_vec(), (member.key.clone(), value.to_string())))
    }

    /// The transaction that has the leader's lease end. Written under that very lease, the mark is there as long as the
    /// lease is.
    pub(super) fn end_lease(&self, end: &EndLease) -> (Vec<Compare>, Step) {
        let at = |key: String, revision| Compare { key, revision };
        let mut compare = vec![
            at(format!("{}leader", self.patroni), end.leader.revision),
            at(format!("{}sync", self.patroni), end.sync),
            at(format!("{}config", self.patroni), end.config),
            at(format!("{}failover", self.patroni), end.failover),
            at(self.ending(), 0),
        ];
        compare.extend(end.votes.iter().map(|vote| at(self.vote(&vote.node), vote.revision)));
        let value = end.leader.holder.clone();
        (compare, Step::Put { key: self.ending(), value, lease: Some(end.leader.lease) })
    }

    /// The view of what both reads have found. What can't be read is as good as not there.
    pub(super) fn view(&self, patroni: &[KeyValue], own: &[KeyValue]) -> View {
        let mut view = View::default();
        for KeyValue { key, value, revision, lease } in patroni {
            let Some(name) = key.strip_prefix(&self.patroni) else { continue };
            match name {
                "leader" => view.leader = Some(LeaderKey { holder: value.clone(), revision: *revision, lease: *lease }),
                "sync" => view.sync = sync(value, *revision),
                "config" => view.config = config(value, *revision),
                "failover" => view.failover = failover(value, *revision),
                _ => {
                    if let Some(node) = name.strip_prefix("members/")
                        && let Some(addresses) = addresses(value)
                    {
                        view.members.insert(node.to_owned(), addresses);
                    }
                }
            }
        }
        for KeyValue { key, value, revision, lease } in own {
            if *key == self.ending() {
                view.ending = Some(*lease);
            } else if let Some(node) = key.strip_prefix(&self.vote(""))
                && let Ok(VoteValue { about, fenced }) = serde_json::from_str(value)
            {
                view.votes.insert(node.to_owned(), Vote { revision: *revision, about, is_fenced: fenced });
            }
        }
        view
    }
}

/// Where it names no primary, or no quorum, nothing follows from it.
fn sync(text: &str, revision: i64) -> Option<Sync> {
    let Votes { leader, standbys, quorum } = Votes::parse(text)?;
    Some(Sync { revision, leader: leader?, voters: standbys.into_iter().collect(), quorum: quorum? })
}

fn config(text: &str, revision: i64) -> Option<Config> {
    let value: Value = serde_json::from_str(text).ok()?;
    let is_true = |name: &str| value[name].as_bool() == Some(true);
    Some(Config {
        revision,
        is_strict_quorum: value["synchronous_mode"].as_str() == Some("quorum") && is_true("synchronous_mode_strict"),
        // Written in any other way, it is taken for a pause.
        is_paused: !matches!(value["pause"], Value::Null | Value::Bool(false)),
    })
}

/// Reads a failover request; one that can't be read counts as a request.
fn failover(text: &str, revision: i64) -> Failover {
    let is_empty = |value: &Value| value.as_object().is_some_and(|members| members.values().all(Value::is_null));
    Failover { revision, is_asked_for: !serde_json::from_str(text).is_ok_and(|value| is_empty(&value)) }
}

fn addresses(text: &str) -> Option<Addresses> {
    let value: Value = serde_json::from_str(text).ok()?;
    Some(Addresses { postgres: host_port(value["conn_url"].as_str()?)?, rest: host_port(value["api_url"].as_str()?)? })
}

/// The host and the port of a URL: `postgres://HOST:PORT/DATABASE`, `http://[HOST]:PORT/patroni`.
fn host_port(url: &str) -> Option<(String, u16)> {
    let authority = url.split_once("://")?.1.split(['/', '?']).next()?;
    let (host, port) = authority.rsplit('@').next()?.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(key: &str, value: &str, revision: i64) -> KeyValue {
        KeyValue { key: key.to_owned(), value: value.to_owned(), revision, lease: 0 }
    }

    #[test]
    fn a_view_of_patronis_keys() {
        let keys = Keys::new("main");
        let member = r#"{"conn_url":"postgres://127.0.0.1:7400/postgres","api_url":"http://[::1]:7403/patroni"}"#;
        let patroni = [
            value("/service/main/leader", "node1", 7),
            value("/service/main/sync", r#"{"leader":"node1","sync_standby":"node2,node3","quorum":1}"#, 8),
            value("/service/main/config", r#"{"synchronous_mode":"quorum","synchronous_mode_strict":true}"#, 9),
            value("/service/main/members/node1", member, 10),
            value("/service/main/members/node2", "{}", 10),
            value("/service/main/status", "{}", 11),
        ];
        let votes = [
            value("/sluice/main/survivors/votes/node2", r#"{"about":7,"fenced":true}"#, 12),
            value("/sluice/main/survivors/votes/node3", "yes", 12),
            value("/sluice/main/survivors/runs/node3", "zC", 5),
            KeyValue { lease: 99, ..value("/sluice/main/survivors/ending", "node1", 13) },
        ];
        let view = keys.view(&patroni, &votes);
        assert_eq!(view.ending, Some(99));
        let primary = Addresses { postgres: ("127.0.0.1".to_owned(), 7400), rest: ("::1".to_owned(), 7403) };
        assert_eq!((view.primary(), view.members.len()), (Some(&primary), 1));
        let sync = view.sync.unwrap();
        assert_eq!((&*sync.leader, sync.quorum, sync.voters.len(), sync.revision), ("node1", 1, 2, 8));
        let config = view.config.unwrap();
        assert!(config.is_strict_quorum && !config.is_paused && view.failover == Failover::default());
        assert_eq!(view.votes.len(), 1);
        assert_eq!(view.votes["node2"], Vote { revision: 12, about: 7, is_fenced: true });
    }

    #[test]
    fn a_leader_without_its_rest_api() {
        let keys = Keys::new("main");
        let member = r#"{"conn_url":"postgres://127.0.0.1:7400/postgres","api_url":"http://[::1]:7403/patroni","x":1}"#;
        let mut patroni = [value("/service/main/leader", "node1", 7), value("/service/main/members/node1", member, 10)];
        let (compare, (key, value)) = keys.hide_rest(&patroni).unwrap();
        assert_eq!(compare.iter().map(|one| one.revision).collect::<Vec<_>>(), [7, 10]);
        assert_eq!(key, "/service/main/members/node1");
        assert_eq!(value, r#"{"conn_url":"postgres://127.0.0.1:7400/postgres","x":1}"#);
        patroni[1].value = value;
        assert_eq!(keys.hide_rest(&patroni), None);
        assert_eq!(keys.hide_rest(&patroni[1..]), None);
    }

    #[test]
    fn configurations_that_forbid_it() {
        for (text, expected) in [
            (r#"{"synchronous_mode":"quorum"}"#, (false, false)),
            (r#"{"synchronous_mode":true,"synchronous_mode_strict":true}"#, (false, false)),
            (r#"{"synchronous_mode":"quorum","synchronous_mode_strict":true,"pause":true}"#, (true, true)),
            (r#"{"synchronous_mode":"quorum","synchronous_mode_strict":true,"pause":"on"}"#, (true, true)),
            (r#"{"synchronous_mode":"quorum","synchronous_mode_strict":true,"pause":false}"#, (true, false)),
        ] {
            let config = config(text, 1).unwrap();
            assert_eq!((config.is_strict_quorum, config.is_paused), expected, "{text}");
        }
    }

    #[test]
    fn a_switchover_leaves_an_empty_key() {
        for (text, is_asked_for) in [
            ("{}", false),
            (r#"{"leader":null}"#, false),
            (r#"{"leader":"node1","member":"node2"}"#, true),
            (r#"{"scheduled_at":"2030-01-01T00:00+00:00"}"#, true),
            ("", true),
        ] {
            assert_eq!(failover(text, 3), Failover { revision: 3, is_asked_for }, "{text}");
        }
    }

    #[test]
    fn an_empty_set_of_voters_has_none() {
        let sync = sync(r#"{"leader":"node1","sync_standby":"","quorum":0}"#, 1).unwrap();
        assert!(sync.voters.is_empty());
        assert_eq!(super::sync(r#"{"leader":null,"sync_standby":null,"quorum":0}"#, 1), None);
    }
}
