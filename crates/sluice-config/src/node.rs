//! The file of `sluice node`: reads it, and says which values may stand together.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use sluice_control::address::Network;

use crate::{
    document,
    files::Access,
    hba,
    kinds::Kind,
    reader::{Read, Section},
    report::{Fault, Report},
    schema::{self, Key},
};

/// Members at most: etcd's votes get no safer with more, and Sluice's are three nodes.
const MEMBERS_MAX: usize = 3;

pub(crate) const RULES: &[&str] = &[
    "One of the `[[member]]` entries is this host's (`name`), each with a name and an address of \
     its own; no port stands twice at one member.",
    "There are three members, or one alone, for a beginning: two can't outvote each other. At most one is a witness.",
    "On SIGHUP (`systemctl reload sluice-node`) the other members, this host's `sync_priority`, `hba` and \
     `client_networks` are read again, and PostgreSQL's rules written anew; all else counts from the next start on.",
    "A line of `hba` that PostgreSQL could not read is a mistake here too. Files that it names are not looked at.",
];

/// A host of a cluster, as its file has it.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The file.
    pub file: PathBuf,
    /// The cluster's name.
    pub cluster: String,
    /// The folder in which everything is kept.
    pub data: PathBuf,
    /// The folder of PostgreSQL's programs, if it is named.
    pub pg_bin: Option<PathBuf>,
    /// The system user that runs all of it, if it is named.
    pub run_as: Option<String>,
    /// The folder in which Patroni's packages are kept, if it is named.
    pub patroni_dir: Option<PathBuf>,
    /// From where everybody may log in.
    pub client_networks: Vec<Network>,
    /// Further lines of `pg_hba.conf`.
    pub hba: Vec<String>,
    /// Whether survivors end a lost primary's lease.
    pub fast_failover: bool,
    /// The authority of all hosts.
    pub ca_file: PathBuf,
    /// This host's certificate.
    pub cert_file: PathBuf,
    /// Its key.
    pub key_file: PathBuf,
    /// All members, in the file's order.
    pub members: Vec<NodeMember>,
    /// The place of this host among them.
    pub own: usize,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMember {
    /// Its name.
    pub name: String,
    /// Whether it has no data.
    pub is_witness: bool,
    /// Its rank among the standbys that commits may wait for, where they wait for certain ones.
    pub sync_priority: u8,
    /// PostgreSQL's address.
    pub postgres: SocketAddr,
    /// The address of Patroni's REST API.
    pub patroni: SocketAddr,
    /// etcd's, for clients.
    pub etcd_client: SocketAddr,
    /// etcd's, for other members.
    pub etcd_peer: SocketAddr,
}

impl NodeMember {
    /// Whether it is the same, at the same addresses: all but its rank.
    pub fn is_same_as(&self, other: &Self) -> bool {
        let other = Self { sync_priority: self.sync_priority, ..other.clone() };
        *self == other
    }
}

impl NodeConfig {
    /// This host.
    pub fn own(&self) -> &NodeMember {
        &self.members[self.own]
    }

    /// The other members that have data.
    pub fn other_nodes(&self) -> impl Iterator<Item = &NodeMember> {
        let others = self.members.iter().enumerate().filter(|(place, member)| *place != self.own && !member.is_witness);
        others.map(|(_, member)| member)
    }

    /// The number of members that have data.
    pub fn nodes(&self) -> usize {
        self.members.iter().filter(|member| !member.is_witness).count()
    }
}

/// Reads the file of `sluice node`.
///
/// # Errors
///
/// All problems at once, each with its place and its remedy.
pub fn load_node(path: &Path) -> Result<NodeConfig, Report> {
    let (text, access) = document::read_text(path)?;
    build(&text, path, access)
}

/// Parses its text; relative paths start at the folder of `file`.
///
/// # Errors
///
/// As [`load_node`].
pub fn parse_node(text: &str, file: &Path) -> Result<NodeConfig, Report> {
    build(text, file, Access::Private)
}

fn build(text: &str, file: &Path, access: Access) -> Result<NodeConfig, Report> {
    let read = document::build(text, file, &schema::NODE, access, read)?;
    // Where there is none, the problem has been noted.
    read.ok_or_else(|| Report::new(vec![Fault::new("no members", "add [[member]] for each host").at(file, None, "")]))
}

fn read(root: &Section<'_>) -> Option<NodeConfig> {
    let source = root.source();
    let name = root.read_required(&schema::OWN_NAME);
    let path =
        |section: &Section<'_>, key: &Key<_>| section.read(key).value().map(|path: PathBuf| source.resolve(&path));
    let tls = root.table(&schema::NODE_TLS);
    let file = |key: &Key<_>| tls.read_required(key).map(|(path, _): (PathBuf, usize)| source.resolve(&path));
    let (ca_file, cert_file, key_file) = (file(&schema::NODE_CA), file(&schema::NODE_CERT), file(&schema::NODE_KEY));
    let sections = root.tables(&schema::MEMBER);
    let members: Vec<NodeMember> = sections.iter().filter_map(read_member).collect();
    check_members(root, &sections, &members);
    let own = name.as_ref().and_then(|(name, offset)| {
        let own = members.iter().position(|member| member.name == *name);
        if own.is_none() && members.len() == sections.len() {
            let names: Vec<&str> = members.iter().map(|member| &*member.name).collect();
            let remedy = format!("name one of the members ({}), or add [[member]] for this host", names.join(", "));
            root.note(&schema::OWN_NAME, *offset, Fault::new(format!("no [[member]] is named {name:?}"), remedy));
        }
        own
    });
    Some(NodeConfig {
        file: source.file().to_owned(),
        cluster: root.read(&schema::CLUSTER_SCOPE).value().unwrap_or_else(|| "main".to_owned()),
        data: path(root, &schema::NODE_DATA).unwrap_or_else(|| PathBuf::from("/var/lib/sluice")),
        pg_bin: path(root, &schema::PG_BIN),
        run_as: root.read(&schema::RUN_AS).value(),
        patroni_dir: path(root, &schema::PATRONI_DIR),
        client_networks: read_list(root, &schema::CLIENT_NETWORKS, schema::CLIENT_NETWORKS.kind.count_max),
        hba: read_hba(root),
        fast_failover: root.read(&schema::FAST_FAILOVER).value().unwrap_or(true),
        ca_file: ca_file?,
        cert_file: cert_file?,
        key_file: key_file?,
        own: own?,
        members,
    })
}

fn read_list<K: Kind>(root: &Section<'_>, key: &Key<K>, count_max: usize) -> Vec<K::Value> {
    match root.read_list(key, count_max) {
        Read::Given(values, _) => values.into_iter().map(|(value, _)| value).collect(),
        Read::Absent | Read::Bad => Vec::new(),
    }
}

/// The lines, each one that PostgreSQL can read: it would not start with another one.
fn read_hba(root: &Section<'_>) -> Vec<String> {
    let Read::Given(lines, _) = root.read_list(&schema::NODE_HBA, schema::NODE_HBA.kind.count_max) else {
        return Vec::new();
    };
    let (lines, offsets): (Vec<String>, Vec<usize>) = lines.into_iter().unzip();
    for (line, fault) in hba::mistakes(&lines) {
        root.note(&schema::NODE_HBA, offsets[line], fault);
    }
    lines
}

fn read_member(section: &Section<'_>) -> Option<NodeMember> {
    let name = section.read_required(&schema::MEMBER_NAME);
    let address = section.read_required(&schema::MEMBER_ADDRESS);
    let port = |key: &Key<_>, usual: u16| match section.read(key) {
        Read::Given(port, _) => u16::try_from(port).ok(),
        Read::Absent => Some(usual),
        Read::Bad => None,
    };
    let ports = [
        port(&schema::POSTGRES_PORT, 5432),
        port(&schema::PATRONI_PORT, 8008),
        port(&schema::ETCD_CLIENT_PORT, 2379),
        port(&schema::ETCD_PEER_PORT, 2380),
    ];
    let is_witness = section.read(&schema::WITNESS).value().unwrap_or(false);
    let sync_priority = section.read(&schema::SYNC_PRIORITY).value().and_then(|it| u8::try_from(it).ok()).unwrap_or(1);
    let ((name, _), (address, offset)): (_, (IpAddr, usize)) = (name?, address?);
    let [Some(postgres), Some(patroni), Some(client), Some(peer)] = ports else { return None };
    if HashSet::from([postgres, patroni, client, peer]).len() < ports.len() {
        let what = format!("member {name:?} has two programs at one port");
        section.source().add(Some(offset), section.schema().path, Fault::new(what, "give each a port of its own"));
        return None;
    }
    let at = |port| SocketAddr::new(address, port);
    let (postgres, patroni, etcd_client, etcd_peer) = (at(postgres), at(patroni), at(client), at(peer));
    Some(NodeMember { name, is_witness, sync_priority, postgres, patroni, etcd_client, etcd_peer })
}

fn check_members(root: &Section<'_>, sections: &[Section<'_>], members: &[NodeMember]) {
    let add = |offset, fault| root.source().add(offset, schema::MEMBER.path, fault);
    if sections.is_empty() {
        return add(None, Fault::new("no members", "add [[member]] for each host, with name and address"));
    }
    if let Some(section) = sections.get(MEMBERS_MAX) {
        let what = format!("{} members", sections.len());
        return add(section.offset(), Fault::new(what, format!("leave {MEMBERS_MAX} at most")));
    }
    // One that could not be read has been noted.
    if members.len() < sections.len() {
        return;
    }
    for (index, (member, section)) in members.iter().zip(sections).enumerate() {
        let before = &members[..index];
        if before.iter().any(|other| other.name == member.name) {
            let what = format!("there are two members {:?}", member.name);
            add(section.offset(), Fault::new(what, "give each host a name of its own"));
        }
        if before.iter().any(|other| other.postgres.ip() == member.postgres.ip()) {
            let what = format!("{} is the address of two members", member.postgres.ip());
            add(section.offset(), Fault::new(what, "give each host its own; several nodes on one: sluice up --nodes"));
        }
        if member.is_witness && before.iter().any(|other| other.is_witness) {
            add(section.offset(), Fault::new("a second witness", "one votes where two have data: leave one"));
        }
    }
    if members.len() == 2 {
        let what = "two members: whichever is lost, the other one can't outvote it, and stops as well";
        add(sections[1].offset(), Fault::new(what, "add a third; one with witness = true needs no data"));
    }
    if members.iter().all(|member| member.is_witness) {
        add(None, Fault::new("no member has data", "add the hosts that have"));
    }
}
