//! `[[cluster]]`: reads the entries.

use std::{collections::HashMap, sync::Arc, time::Duration};

use sluice_control::cluster::{Cluster, FAILOVER_TIMEOUT, Rest};

use crate::{
    reader::{Read, Section},
    report::Fault,
    schema, tls,
};

pub(crate) const RULES: &[&str] = &[
    "No two `[[cluster]]` entries may have the same name. A `[[database]]` with `cluster` takes no `host` and no `port`, \
     and there must be such a cluster.",
    "`cluster.ca_file`, `cert_file` and `key_file` are for members by `https`; the last two need each other.",
];

/// An entry, with the time that its clients wait for a primary.
pub(crate) struct Entry {
    pub(crate) cluster: Cluster,
    pub(crate) failover_timeout: Duration,
}

/// Reads the entries; what is missing has been noted, and the configuration will not be used.
pub(crate) fn read(sections: &[Section<'_>]) -> Vec<Entry> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut entries = Vec::new();
    for section in sections {
        let name = section.read_required(&schema::CLUSTER_NAME);
        let members = read_members(section);
        let is_encrypted = members.iter().any(|rest| rest.is_encrypted);
        let tls = tls::read_cluster(section, is_encrypted);
        let failover_timeout = section.read(&schema::FAILOVER_TIMEOUT).value().unwrap_or(FAILOVER_TIMEOUT);
        let Some((name, offset)) = name else { continue };
        if let Some(first) = seen.get(&name) {
            let what = format!("{name:?} already has an entry, in line {}", section.source().line(*first));
            section.note(&schema::CLUSTER_NAME, offset, Fault::new(what, "give each entry a name of its own"));
            continue;
        }
        seen.insert(name.clone(), offset);
        entries.push(Entry { cluster: Cluster { name: Arc::from(name), members, tls }, failover_timeout });
    }
    entries
}

fn read_members(section: &Section<'_>) -> Vec<Rest> {
    let key = &schema::PATRONI;
    match section.read_list(key, key.kind.count_max) {
        Read::Given(members, _) => members.into_iter().map(|(rest, _)| rest).collect(),
        Read::Bad => Vec::new(),
        Read::Absent => {
            // It says that it is missing.
            let _ = section.read_required(key);
            Vec::new()
        }
    }
}
