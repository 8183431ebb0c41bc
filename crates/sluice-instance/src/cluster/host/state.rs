//! `host.json`: which host of which cluster a directory is of.

use std::{fs, io, net::SocketAddr, path::Path};

use serde::{Deserialize, Serialize};
use sluice_config::NodeConfig;

use super::super::error::ClusterError;
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
        let Some(state) = Self::read(root)? else {
            return Ok(Self { cluster, name, stage: Stage::Member, patroni, etcd });
        };
        if (&state.cluster, &state.name) != (&cluster, &name) {
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

    pub(super) fn write(&self, root: &Path) -> Result<(), ClusterError> {
        let path = root.join(NAME);
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other);
        text.and_then(|text| files::write_private(&path, format!("{text}\n").as_bytes(), Owner::Us))
            .map_err(ClusterError::io("write", &path))
    }
}
