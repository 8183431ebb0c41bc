//! `host.json`: which host of which cluster a directory is of.

use std::{fs, io, net::SocketAddr, path::Path};

use serde::{Deserialize, Serialize};
use sluice_config::NodeConfig;

use super::super::{error::ClusterError, etcd};
use crate::files::{self, Owner, if_there};

/// The file's name in the host's directory.
pub(super) const NAME: &str = "host.json";

/// The contents of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostState {
    /// The cluster's name.
    pub(crate) cluster: String,
    /// The host's.
    pub(crate) name: String,
    pub(crate) stage: Stage,
    /// The REST APIs of all hosts that have data, as of the last start.
    pub(crate) patroni: Vec<SocketAddr>,
    /// The addresses at which the members of etcd answer, this host's first, as of the last start.
    #[serde(default)]
    pub(crate) etcd: Vec<SocketAddr>,
    /// The mark of the cluster that was begun again which this host begins, or has joined last (`again.rs`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) again: Option<String>,
}

/// The stage that the host has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// The cluster begins here: its etcd is a new one, and its data are here.
    Begins,
    /// Its etcd has begun here, and others may have joined it: it is never begun a second time. Its data are still to come.
    Begun,
    /// It belongs to a cluster, or will.
    Member,
}

impl HostState {
    /// Reads the file; `None` if there is none.
    pub(crate) fn read(root: &Path) -> Result<Option<Self>, ClusterError> {
        let path = root.join(NAME);
        let text = if_there(fs::read_to_string(&path)).map_err(ClusterError::io("read", &path))?;
        let Some(text) = text else { return Ok(None) };
        serde_json::from_str(&text).map(Some).map_err(|error| ClusterError::BadFile {
            why: format!("{error}\nput back what sluice had written there, or remove it: the host then joins anew"),
            path,
        })
    }

    /// The state of a host at its start: what the file in its directory says, with what the configuration says now.
    pub(super) fn of(config: &NodeConfig, root: &Path) -> Result<Self, ClusterError> {
        let (cluster, name) = (config.cluster.clone(), config.own().name.clone());
        let patroni = config.members.iter().filter(|member| !member.is_witness).map(|member| member.patroni).collect();
        let mut etcd: Vec<_> = config.members.iter().map(|member| member.etcd_client).collect();
        etcd.rotate_left(config.own);
        let state = Self::read(root)?;
        let is_same = |state: &Self| (&state.cluster, &state.name) == (&cluster, &name);
        let Some(state) = state.filter(|state| is_same(state) || !state.is_unused(root)) else {
            return Ok(Self { cluster, name, stage: Stage::Member, patroni, etcd, again: None });
        };
        if !is_same(&state) {
            return Err(ClusterError::BadFile {
                path: root.join(NAME),
                why: format!(
                    "this is the directory of host {} of cluster {}, and {} says {name} of {cluster}\n\
                     name another directory there (data), or correct name and cluster",
                    state.name,
                    state.cluster,
                    config.file.display()
                ),
            });
        }
        Ok(Self { patroni, etcd, ..state })
    }

    /// Whether the host has never joined anything: it has no data, neither PostgreSQL's nor etcd's. A name that was
    /// mistyped then binds nobody.
    fn is_unused(&self, root: &Path) -> bool {
        let lacks = |path: &str| matches!(root.join(path).try_exists(), Ok(false));
        self.stage == Stage::Member && !etcd::has_data(&root.join("etcd")) && lacks("node/pgdata/PG_VERSION")
    }

    pub(super) fn write(&self, root: &Path) -> Result<(), ClusterError> {
        let path = root.join(NAME);
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other);
        text.and_then(|text| files::write_private(&path, format!("{text}\n").as_bytes(), Owner::Us))
            .map_err(ClusterError::io("write", &path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(cluster: &str, name: &str) -> NodeConfig {
        let text = format!(
            r#"
            name = "{name}"
            cluster = "{cluster}"
            tls = {{ ca_file = "ca.crt", cert_file = "b.crt", key_file = "b.key" }}
            member = [{{ name = "a", address = "10.0.0.1" }}, {{ name = "b", address = "10.0.0.2" }},
                      {{ name = "c", address = "10.0.0.3" }}]
            "#
        );
        sluice_config::parse_node(&text, Path::new("/etc/sluice/node.toml")).unwrap()
    }

    #[test]
    fn a_name_that_was_mistyped_binds_nobody_who_never_joined() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        HostState::of(&config("mian", "b"), root).unwrap().write(root).unwrap();
        let state = HostState::of(&config("main", "b"), root).unwrap();
        assert_eq!((&*state.cluster, state.stage), ("main", Stage::Member));
        for file in ["node/pgdata/PG_VERSION", "etcd/member/wal/0.wal"] {
            let file = root.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            let error = HostState::of(&config("main", "b"), root).unwrap_err().to_string();
            assert!(error.contains("this is the directory of host b of cluster mian"), "{error}");
            fs::remove_file(file).unwrap();
        }
        // It was told to begin that one.
        HostState { stage: Stage::Begins, ..HostState::of(&config("mian", "b"), root).unwrap() }.write(root).unwrap();
        assert!(HostState::of(&config("main", "b"), root).is_err());
    }
}
