//! etcd: linearizable, with revisions, transactions that compare, and leases that end.

use std::collections::BTreeMap;

use crate::cluster::etcd_api::{Compare, KeyValue, Outcome, Step};

#[derive(Debug, Clone)]
struct Entry {
    value: String,
    revision: i64,
    lease: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Etcd {
    revision: i64,
    keys: BTreeMap<String, Entry>,
    /// The time at which each lease ends, in milliseconds, and its length.
    leases: BTreeMap<i64, (u64, u64)>,
    next_lease: i64,
    /// A defect: a lease that is revoked stays.
    pub(super) keeps_revoked: bool,
}

impl Etcd {
    fn expire(&mut self, now: u64) {
        let ended: Vec<i64> = self.leases.iter().filter(|(_, (end, _))| *end <= now).map(|(id, _)| *id).collect();
        ended.into_iter().for_each(|lease| self.end(lease));
    }

    pub(super) fn end(&mut self, lease: i64) {
        self.leases.remove(&lease);
        let before = self.keys.len();
        self.keys.retain(|_, entry| entry.lease != Some(lease));
        self.revision += i64::from(self.keys.len() != before);
    }

    pub(super) fn grant(&mut self, now: u64, millis: u64) -> i64 {
        self.next_lease += 1;
        self.leases.insert(self.next_lease, (now + millis, millis));
        self.next_lease
    }

    /// False if it has ended.
    pub(super) fn keep_alive(&mut self, now: u64, lease: i64) -> bool {
        self.expire(now);
        let found = self.leases.get_mut(&lease);
        found.map(|(end, millis)| *end = now + *millis).is_some()
    }

    /// Revokes the lease of a vote.
    pub(super) fn revoke(&mut self, lease: i64) {
        if !self.keeps_revoked {
            self.end(lease);
        }
    }

    /// The lease, kept alive, or another one if it has ended.
    pub(super) fn keep_or_grant(&mut self, now: u64, lease: i64, millis: u64) -> i64 {
        if self.keep_alive(now, lease) { lease } else { self.grant(now, millis) }
    }

    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.keys.get(key).map(|entry| &*entry.value)
    }

    /// None: a step names a lease that is no more.
    pub(super) fn transact(&mut self, now: u64, compare: &[Compare], steps: &[Step]) -> Option<Outcome> {
        self.expire(now);
        let holds =
            |condition: &Compare| self.keys.get(&condition.key).map_or(0, |entry| entry.revision) == condition.revision;
        let mut outcome = Outcome { is_done: compare.iter().all(holds), revision: self.revision, found: Vec::new() };
        if !outcome.is_done {
            return Some(outcome);
        }
        let is_gone =
            |step: &Step| matches!(step, Step::Put { lease: Some(lease), .. } if !self.leases.contains_key(lease));
        if steps.iter().any(is_gone) {
            return None;
        }
        if steps.iter().any(|step| !matches!(step, Step::Read { .. })) {
            self.revision += 1;
        }
        for step in steps {
            match step {
                Step::Put { key, value, lease } => {
                    let entry = Entry { value: value.clone(), revision: self.revision, lease: *lease };
                    self.keys.insert(key.clone(), entry);
                }
                Step::Delete { key } => _ = self.keys.remove(key),
                Step::Read { prefix } => outcome.found.push(self.read(prefix)),
            }
        }
        outcome.revision = self.revision;
        Some(outcome)
    }

    fn read(&self, prefix: &str) -> Vec<KeyValue> {
        let found = self.keys.iter().filter(|(key, _)| key.starts_with(prefix));
        let value = |(key, Entry { value, revision, lease }): (&String, &Entry)| KeyValue {
            key: key.clone(),
            value: value.clone(),
            revision: *revision,
            lease: lease.unwrap_or(0),
        };
        found.map(value).collect()
    }
}
