//! etcd's API by its JSON gateway: keys with revisions, leases, and transactions that compare.
//!
//! Keys and values are base64, numbers are texts (etcd's documentation, "gRPC gateway"). An answer that does not come
//! says nothing of whether the request was carried out, or will be.

use std::{fs, io, net::SocketAddr, sync::Arc, thread, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use ureq::{
    Agent,
    tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem},
};

use super::{
    hedge::{Members, race},
    tls::TlsFiles,
};

/// The place of all clusters of Patroni's in etcd.
pub(super) const SERVICE: &str = "/service/";

/// Time limit for an answer, with the connection. A member that has lost its leader makes its clients wait.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(1500);

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyValue {
    pub(super) key: String,
    pub(super) value: String,
    /// The revision at which it was written last.
    pub(super) revision: i64,
    /// The lease that it ends with; 0 if there is none.
    pub(super) lease: i64,
}

/// A condition of a transaction: the key was last written at this revision; 0 if there is no such key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Compare {
    pub(super) key: String,
    pub(super) revision: i64,
}

/// A step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Put {
        key: String,
        value: String,
        lease: Option<i64>,
    },
    Delete {
        key: String,
    },
    /// All keys that begin so.
    Read {
        prefix: String,
    },
}

/// A transaction's outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// All conditions held, and the steps were taken.
    pub(super) is_done: bool,
    pub(super) revision: i64,
    /// Values that each [`Step::Read`] has found, in order.
    pub(super) found: Vec<Vec<KeyValue>>,
}

/// A client of all members, of which the first is asked as long as it answers: on a host, its own.
#[derive(Debug, Clone)]
pub(super) struct EtcdClient {
    agent: Agent,
    members: Arc<Members>,
}

impl EtcdClient {
    pub(super) fn new(members: Vec<SocketAddr>, tls: &TlsFiles) -> io::Result<Self> {
        let read = |path| fs::read(path).map_err(|error| io::Error::other(format!("{path:?}: {error}")));
        // An authority and the one that replaces it; a certificate and those between it and the authority.
        let all = |path| -> io::Result<Vec<Certificate<'static>>> {
            let items = parse_pem(&read(path)?).collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
            let certificates = items.into_iter().filter_map(|item| match item {
                PemItem::Certificate(certificate) => Some(certificate),
                _ => None,
            });
            Ok(certificates.collect())
        };
        let (ca, cert) = (all(&tls.ca)?, all(&tls.cert)?);
        let key = PrivateKey::from_pem(&read(&tls.key)?).map_err(io::Error::other)?;
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::new_with_certs(&ca))
            .client_cert(Some(ClientCert::new_with_certs(&cert, key)))
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .proxy(None)
            .https_only(true)
            .http_status_as_error(false)
            .timeout_global(Some(ANSWER_TIME_MAX))
            .build();
        Ok(Self { agent: config.new_agent(), members: Arc::new(Members::new(members)) })
    }

    /// A lease of so many seconds; etcd may make it longer.
    pub(super) fn grant(&self, seconds: u32) -> io::Result<i64> {
        let answer = self.ask("lease/grant", &json!({ "TTL": seconds.to_string() }))?;
        number(&answer["ID"]).ok_or_else(|| unexpected(&answer))
    }

    /// Keeps a lease alive; false if it has ended.
    pub(super) fn keep_alive(&self, lease: i64) -> io::Result<bool> {
        let answer = self.ask("lease/keepalive", &json!({ "ID": lease.to_string() }))?;
        Ok(number(&answer["result"]["TTL"]).is_some_and(|seconds| seconds > 0))
    }

    /// Ends a lease, and with it its keys. It is no error that it has ended before.
    pub(super) fn revoke(&self, lease: i64) -> io::Result<()> {
        match self.ask("lease/revoke", &json!({ "ID": lease.to_string() })) {
            Err(error) if is_lease_gone(&error) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Takes all steps at once if all conditions hold.
    pub(super) fn transact(&self, compare: &[Compare], steps: &[Step]) -> io::Result<Outcome> {
        let is_read = steps.iter().all(|step| matches!(step, Step::Read { .. }));
        let compare: Vec<Value> = compare.iter().map(Compare::to_json).collect();
        let steps: Vec<Value> = steps.iter().map(Step::to_json).collect();
        let body = json!({ "compare": compare, "success": steps });
        let answer = if is_read { self.ask_any("kv/txn", &body) } else { self.ask("kv/txn", &body) }?;
        Outcome::parse(&answer).ok_or_else(|| unexpected(&answer))
    }

    /// The value of a key, as of now: a majority has answered.
    pub(super) fn value(&self, key: &str) -> io::Result<Option<String>> {
        let answer = self.ask("kv/range", &json!({ "key": encoded(key) }))?;
        match answer["kvs"].as_array().and_then(|found| found.first()) {
            Some(found) => decoded(&found["value"]).map(Some).ok_or_else(|| unexpected(&answer)),
            None => Ok(None),
        }
    }

    /// All keys that begin so, as of now. The prefix ends with a slash.
    pub(super) fn keys(&self, prefix: &str) -> io::Result<Vec<String>> {
        let range = json!({ "key": encoded(prefix), "range_end": end_of(prefix), "keys_only": true });
        let answer = self.ask("kv/range", &range)?;
        let found = answer["kvs"].as_array().map_or(&[][..], Vec::as_slice);
        found.iter().map(|key| decoded(&key["key"]).ok_or_else(|| unexpected(&answer))).collect()
    }

    /// etcd's members.
    pub(super) fn members(&self) -> io::Result<Vec<EtcdPeer>> {
        let answer = self.ask("cluster/member/list", &json!({}))?;
        let members = answer["members"].as_array().ok_or_else(|| unexpected(&answer))?;
        members.iter().map(|member| EtcdPeer::parse(member).ok_or_else(|| unexpected(&answer))).collect()
    }

    /// Adds a member, which has no vote before it has caught up and [`Self::promote_member`].
    pub(super) fn add_member(&self, peer: SocketAddr) -> io::Result<()> {
        let peers = [format!("https://{peer}")];
        self.ask("cluster/member/add", &json!({ "peerURLs": peers, "isLearner": true })).map(drop)
    }

    /// Gives a member its vote.
    pub(super) fn promote_member(&self, id: u64) -> io::Result<()> {
        self.ask("cluster/member/promote", &json!({ "ID": id.to_string() })).map(drop)
    }

    /// Takes a member out.
    pub(super) fn remove_member(&self, id: u64) -> io::Result<()> {
        self.ask("cluster/member/remove", &json!({ "ID": id.to_string() })).map(drop)
    }

    /// Asks a member, and others as well while it says nothing, if the request may be repeated.
    fn ask(&self, path: &str, body: &Value) -> io::Result<Value> {
        if MAY_BE_REPEATED.iter().any(|asked| path.starts_with(asked)) {
            return self.ask_any(path, body);
        }
        // Asked a second time, a transaction would find its own conditions changed.
        let first = self.members.in_order().into_iter().take(1).collect::<Vec<_>>();
        self.ask_some(path, body, &first)
    }

    fn ask_any(&self, path: &str, body: &Value) -> io::Result<Value> {
        self.ask_some(path, body, &self.members.in_order().repeat(ROUNDS))
    }

    fn ask_some(&self, path: &str, body: &Value, members: &[SocketAddr]) -> io::Result<Value> {
        let (client, path, body) = (self.clone(), path.to_owned(), body.clone());
        let ask = move |member| match client.ask_member(member, &path, &body)? {
            (200, answer) => Ok(Ok(answer)),
            // No other one would answer something else.
            (_, answer) if answer["code"].as_i64() == Some(NOT_FOUND) => Ok(Err(Refused::error(&answer))),
            (_, answer) => Err(Refused::error(&answer)),
        };
        race(&self.members, members, ask)?
    }

    /// The members that do not answer by themselves, whether there is a majority or not.
    pub(super) fn silent(&self) -> Vec<SocketAddr> {
        let answers = |member| matches!(self.ask_member(member, "maintenance/status", &json!({})), Ok((200, _)));
        thread::scope(|scope| {
            let all = self.members.all();
            let asked: Vec<_> = all.iter().map(|member| (member, scope.spawn(|| answers(*member)))).collect();
            let silent = asked.into_iter().filter_map(|(member, thread)| (!thread.join().ok()?).then_some(*member));
            silent.collect()
        })
    }

    /// Has the member that is asked first hand over to another one, if it is etcd's leader and all of them are there; says
    /// whether it has.
    pub(super) fn hand_over(&self) -> io::Result<bool> {
        let Some((own, others)) = self.members.all().split_first() else { return Ok(false) };
        let status = |member: &SocketAddr| -> io::Result<Status> {
            let (_, answer) = self.ask_member(*member, "maintenance/status", &json!({}))?;
            Status::parse(&answer).ok_or_else(|| unexpected(&answer))
        };
        let own_status = status(own)?;
        if own_status.leader != own_status.id {
            return Ok(false);
        }
        let others = others.iter().map(status).collect::<io::Result<Vec<_>>>()?;
        let Some(successor) = successor(&own_status, &others) else { return Ok(false) };
        let target = json!({ "targetID": successor.to_string() });
        match self.ask_member(*own, "maintenance/transfer-leadership", &target)? {
            (200, _) => Ok(true),
            (_, answer) => Err(Refused::error(&answer)),
        }
    }

    fn ask_member(&self, member: SocketAddr, path: &str, body: &Value) -> io::Result<(u16, Value)> {
        let request = self.agent.post(format!("https://{member}/v3/{path}")).content_type("application/json");
        let mut answer = request.send(body.to_string()).map_err(ureq::Error::into_io)?;
        let text = answer.body_mut().read_to_string().map_err(ureq::Error::into_io)?;
        let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok((answer.status().as_u16(), value))
    }
}

/// Each member is asked that often, at most, by a request that may be repeated: one that was sent to a member which had
/// lost its leader, and did not know it yet, is answered by nobody, and the next one is.
const ROUNDS: usize = 2;

/// Requests that do no harm if they are carried out twice.
const MAY_BE_REPEATED: [&str; 3] = ["lease/", "kv/range", "cluster/member/list"];

/// A member's word about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Status {
    id: u64,
    /// The leader that it follows; 0 if it knows of none.
    leader: u64,
    /// The last entry of its log.
    index: u64,
    /// Whether it has no vote.
    is_learner: bool,
}

impl Status {
    fn parse(value: &Value) -> Option<Self> {
        let number = |value: &Value| value.as_str().map_or(Some(0), |text| text.parse().ok());
        Some(Self {
            id: value["header"]["member_id"].as_str()?.parse().ok()?,
            leader: number(&value["leader"])?,
            index: number(&value["raftIndex"])?,
            is_learner: value["isLearner"].as_bool().unwrap_or(false),
        })
    }
}

/// The member that a leader hands over to: one that follows it, is not far behind, and of those the furthest. None unless
/// all others follow it: one that has just come back has enough to do.
fn successor(leader: &Status, others: &[Status]) -> Option<u64> {
    let follows = |one: &Status| {
        one.leader == leader.id && !one.is_learner && one.index.saturating_add(BEHIND_MAX) >= leader.index
    };
    let are_whole = others.iter().all(follows);
    others.iter().filter(|_| are_whole).max_by_key(|one| one.index).map(|one| one.id)
}

/// A member that follows is a few entries behind at most, which come while it is asked.
const BEHIND_MAX: u64 = 100;

/// A member of etcd, as etcd has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EtcdPeer {
    pub(super) id: u64,
    /// Empty until it has been started.
    pub(super) name: String,
    /// URLs for the other members.
    pub(super) peer_urls: Vec<String>,
    /// URLs for clients; none until it has been started.
    pub(super) client_urls: Vec<String>,
    /// Whether it has no vote.
    pub(super) is_learner: bool,
}

impl EtcdPeer {
    fn parse(value: &Value) -> Option<Self> {
        let urls = |value: &Value| -> Option<Vec<String>> {
            value.as_array()?.iter().map(|url| url.as_str().map(str::to_owned)).collect()
        };
        Some(Self {
            id: value["ID"].as_str()?.parse().ok()?,
            name: value["name"].as_str().unwrap_or_default().to_owned(),
            peer_urls: urls(&value["peerURLs"])?,
            client_urls: urls(&value["clientURLs"]).unwrap_or_default(),
            is_learner: value["isLearner"].as_bool().unwrap_or(false),
        })
    }
}

/// gRPC's code of a lease that is no more, among others.
const NOT_FOUND: i64 = 5;

/// etcd's answer was a refusal.
#[derive(Debug, thiserror::Error)]
#[error("etcd answered: {message}")]
struct Refused {
    code: Option<i64>,
    message: String,
}

impl Refused {
    fn error(answer: &Value) -> io::Error {
        let message = answer["message"].as_str().or_else(|| answer["error"].as_str());
        let message = message.map_or_else(|| answer.to_string(), str::to_owned);
        io::Error::other(Self { code: answer["code"].as_i64(), message })
    }
}

fn is_lease_gone(error: &io::Error) -> bool {
    let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<Refused>());
    refused.is_some_and(|refused| refused.code == Some(NOT_FOUND))
}

fn unexpected(answer: &Value) -> io::Error {
    io::Error::other(format!("etcd answered {answer}"))
}

/// A number, which is a text; zero is left out.
fn number(value: &Value) -> Option<i64> {
    value.as_str().and_then(|text| text.parse().ok()).or_else(|| value.as_i64())
}

fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

/// The first key behind all that begin with a prefix, which ends with a slash.
fn end_of(prefix: &str) -> String {
    let mut end = prefix.to_owned().into_bytes();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    STANDARD.encode(end)
}

fn decoded(value: &Value) -> Option<String> {
    String::from_utf8(STANDARD.decode(value.as_str().unwrap_or_default()).ok()?).ok()
}

impl Compare {
    fn to_json(&self) -> Value {
        json!({ "key": encoded(&self.key), "target": "MOD", "mod_revision": self.revision.to_string() })
    }
}

impl Step {
    fn to_json(&self) -> Value {
        match self {
            Self::Put { key, value, lease } => {
                let mut put = json!({ "key": encoded(key), "value": encoded(value) });
                if let Some(lease) = lease {
                    put["lease"] = json!(lease.to_string());
                }
                json!({ "request_put": put })
            }
            Self::Delete { key } => json!({ "request_delete_range": { "key": encoded(key) } }),
            Self::Read { prefix } => {
                json!({ "request_range": { "key": encoded(prefix), "range_end": end_of(prefix) } })
            }
        }
    }
}

impl Outcome {
    fn parse(answer: &Value) -> Option<Self> {
        let none = Vec::new();
        let responses = answer["responses"].as_array().unwrap_or(&none);
        let ranges = responses.iter().filter_map(|response| response.get("response_range"));
        let found = ranges.map(|range| range["kvs"].as_array().unwrap_or(&none).iter().map(KeyValue::parse).collect());
        Some(Self {
            is_done: answer["succeeded"].as_bool().unwrap_or(false),
            revision: number(&answer["header"]["revision"])?,
            found: found.collect::<Option<_>>()?,
        })
    }
}

impl KeyValue {
    fn parse(value: &Value) -> Option<Self> {
        let revision = number(&value["mod_revision"])?;
        let lease = number(&value["lease"]).unwrap_or(0);
        Some(Self { key: decoded(&value["key"])?, value: decoded(&value["value"])?, revision, lease })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes() {
        let answer = json!({
            "header": { "revision": "12", "raft_term": "2" },
            "succeeded": true,
            "responses": [{ "response_range": { "header": {}, "kvs": [
                { "key": "YS9i", "create_revision": "3", "mod_revision": "11", "value": "eHk=",
                  "lease": "7587895362814926343" },
                { "key": "YS9j", "mod_revision": "4" },
            ] } }, { "response_range": {} }],
        });
        let key = |key: &str, value: &str, revision, lease| KeyValue {
            key: key.to_owned(),
            value: value.to_owned(),
            revision,
            lease,
        };
        let found = vec![vec![key("a/b", "xy", 11, 7_587_895_362_814_926_343), key("a/c", "", 4, 0)], vec![]];
        assert_eq!(Outcome::parse(&answer), Some(Outcome { is_done: true, revision: 12, found }));
        let refused = Outcome::parse(&json!({ "header": { "revision": "12" } })).unwrap();
        assert!(!refused.is_done && refused.found.is_empty());
        assert_eq!(Outcome::parse(&json!({ "error": "no leader" })), None);
    }

    #[test]
    fn members_are_read() {
        let learner = json!({ "ID": "17237436991929493444", "name": "node2", "peerURLs": ["https://10.0.0.2:2380"],
                              "clientURLs": ["https://10.0.0.2:2379"], "isLearner": true });
        let peer = EtcdPeer::parse(&learner).unwrap();
        assert_eq!(peer.client_urls, ["https://10.0.0.2:2379"]);
        assert_eq!((peer.id, &*peer.name, peer.is_learner), (17_237_436_991_929_493_444, "node2", true));
        let not_started = EtcdPeer::parse(&json!({ "ID": "7", "peerURLs": ["https://10.0.0.2:2380"] })).unwrap();
        assert_eq!((&*not_started.name, not_started.is_learner), ("", false));
        assert_eq!(EtcdPeer::parse(&json!({ "name": "node2" })), None);
    }

    #[test]
    fn who_succeeds_a_leader() {
        let status = |id: &str, leader: &str, index: &str| {
            Status::parse(&json!({ "header": { "member_id": id }, "leader": leader, "raftIndex": index })).unwrap()
        };
        let leader = status("17237436991929493444", "17237436991929493444", "5000");
        let follower = |id, index| status(id, "17237436991929493444", index);
        assert_eq!(successor(&leader, &[follower("7", "4999"), follower("8", "5001")]), Some(8));
        assert_eq!(successor(&leader, &[follower("7", "4899"), follower("8", "5000")]), None, "one is far behind");
        assert_eq!(successor(&leader, &[follower("7", "5000"), status("8", "0", "5000")]), None, "one has no leader");
        let learner = Status { is_learner: true, ..follower("8", "5000") };
        assert_eq!(successor(&leader, &[follower("7", "5000"), learner]), None);
        assert_eq!(successor(&leader, &[]), None);
        let knows_no_leader = Status::parse(&json!({ "header": { "member_id": "7" } })).unwrap();
        assert_eq!((knows_no_leader.leader, knows_no_leader.index), (0, 0));
        assert_eq!(Status::parse(&json!({ "error": "no such thing" })), None);
    }

    #[test]
    fn prefixes_end_at_the_next_one() {
        let read = Step::Read { prefix: "/a/".to_owned() }.to_json();
        assert_eq!(read["request_range"]["range_end"], STANDARD.encode("/a0"));
    }
}
