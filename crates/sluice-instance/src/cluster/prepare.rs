//! Folders and files before a start: after this, programs only have to be started.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU8},
    },
};

use serde_json::Value;

use super::{
    ADDRESS, Cluster, ClusterError, ClusterSpec, EtcdClient, EtcdMember, Node, NodeKeeper, Secrets, Slot, State,
    Surroundings, etcd,
    folder::make_dir,
    needs, new_state,
    patroni::{self, Access},
    ports::{check_port, make_log},
    resize,
    rest::Api,
    roles, state,
    survivors::Electorate,
    tls::TlsFiles,
};
use crate::{
    data_dir::{DataDir, DataDirSpec, FIRST_NODE, Layout, LockedDir, POOL_SECRET},
    event::Observer,
    files::{self, Owner},
    kept_settings::KeptSettings,
    pid_file::{self, Runner},
    server::conf,
    socket_dir,
};

/// Makes everything that a start needs, and nothing that runs.
pub(super) fn prepare(spec: &ClusterSpec, observer: Arc<dyn Observer>) -> Result<(Cluster, State), ClusterError> {
    let etcd = etcd::find().ok_or(ClusterError::NoEtcd)?;
    resize::to_several(&spec.data_dir, &*observer, &|root| check_ports_of_several(spec, root))?;
    let locked = LockedDir::take(&spec.data_dir.root, &spec.data_dir.run_as)?;
    resize::clear_earlier(locked.root(), &*observer);
    let is_formed = State::read(locked.root())?.is_some_and(|state| state.is_formed);
    if is_formed {
        resize::remove_half_copies(locked.root(), &*observer)?;
    }
    // A node of a cluster that has lost its data gets the leader's.
    let first = DataDirSpec { layout: Layout::First { may_create: !is_formed }, ..spec.data_dir.clone() };
    let data_dir = Arc::new(DataDir::open_locked(locked, first, &*observer)?);
    let (root, run_as) = (data_dir.root(), data_dir.run_as());
    let state = match State::read(root)? {
        Some(state) => state,
        None => {
            let state = new_state(spec)?;
            state.write(root)?;
            state
        }
    };
    let members_count = if spec.nodes == 1 { 1 } else { state::NODES_MAX };
    let members = etcd::members(root, ADDRESS, &state.etcd[..members_count]);
    let nodes = (0..spec.nodes).map(|index| node(&data_dir, &state, index)).collect::<Result<Vec<_>, _>>()?;
    let secrets = Secrets::prepare(root)?;
    let etcd_tls = TlsFiles::prepare(root, run_as)?;

    resize::check_nodes(data_dir.binaries(), root)?;
    check_ports(root, &nodes, &members)?;
    check_etcd(&state, &members)?;
    let shared = begins_with(spec, &data_dir, &state, &nodes)?;
    for member in &members {
        make_dir(&member.data, run_as)?;
        make_log(&member.log)?;
    }
    for (index, node) in nodes.iter().enumerate() {
        make_log(&node.log)?;
        let etcd = own_first(index, &members);
        write_files(spec, &data_dir, node, &etcd, &etcd_tls, (&state, &shared), &secrets)?;
    }
    let api = Api::with_password(&secrets.rest);
    let around = Surroundings {
        scope: state.scope.clone(),
        run_as: run_as.clone(),
        environment: spec.environment.clone(),
        api: api.clone(),
        stop_timeout: spec.stop_timeout,
    };
    // Survivors that agree are at least two.
    let has_survivors = spec.fast_failover && spec.nodes == state::NODES_MAX;
    let mut keepers = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let survivor = if has_survivors {
            Some(Electorate { etcd: survivor(index, &members, &etcd_tls)?, nodes: spec.nodes })
        } else {
            None
        };
        keepers.push(NodeKeeper::new(node.clone(), around.clone(), survivor, Arc::clone(&observer)));
    }
    let cluster = Cluster {
        etcd,
        etcd_tls,
        scope: state.scope.clone(),
        token: state.token.clone(),
        nodes,
        etcds: members.iter().map(|_| Slot::default()).collect(),
        has_joined: members.iter().map(|_| Arc::default()).collect(),
        members,
        secrets,
        observer,
        api,
        keepers,
        stopping: Mutex::new(()),
        haste: AtomicU8::new(0),
        is_given_up: AtomicBool::new(false),
        data_dir,
    };
    Ok((cluster, state))
}

/// The settings that a new cluster begins with: also those that its one node has kept of earlier nodes, or has in its own
/// files where Patroni would lower them.
fn begins_with(spec: &ClusterSpec, data_dir: &DataDir, state: &State, nodes: &[Node]) -> Result<Value, ClusterError> {
    let shared = patroni::shared_settings(spec.nodes, &spec.tuning);
    let Some(first) = nodes.first().filter(|_| !state.is_formed) else { return Ok(shared) };
    let (root, pgdata) = (data_dir.root(), &first.pgdata);
    let kept = KeptSettings::read(root).map_err(ClusterError::io("read the settings of all nodes in", root))?;
    let own = needs::above_patronis(data_dir.binaries(), data_dir.run_as(), pgdata);
    Ok(kept.growing_from(pgdata).with_parameters(&own).under(&shared))
}

/// The addresses of etcd's members, from the node's own on.
fn own_first(index: usize, members: &[EtcdMember]) -> Vec<SocketAddr> {
    let mut addresses: Vec<SocketAddr> = members.iter().map(|member| member.client).collect();
    addresses.rotate_left(index % members.len().max(1));
    addresses
}

/// A client of etcd that begins with the node's own member.
fn survivor(index: usize, members: &[EtcdMember], tls: &TlsFiles) -> Result<EtcdClient, ClusterError> {
    EtcdClient::new(own_first(index, members), tls)
        .map_err(ClusterError::io("read the certificate of etcd in", &tls.ca))
}

/// A node's places and addresses; its folder is made.
fn node(data_dir: &DataDir, state: &State, index: usize) -> Result<Node, ClusterError> {
    let name = format!("node{}", index + 1);
    let (root, run_as) = (data_dir.root(), data_dir.run_as());
    let home = root.join(&name);
    let is_first = name == FIRST_NODE;
    let socket_dir = if is_first {
        data_dir.socket_dir().to_owned()
    } else {
        make_dir(&home, run_as)?;
        socket_dir::prepare(&home, run_as)
            .map_err(ClusterError::io("prepare the folder of the Unix socket for", &home))?
    };
    let ports = state.nodes[index];
    Ok(Node {
        // PostgreSQL's processes are known by this path, without links.
        pgdata: home.join("pgdata").canonicalize().unwrap_or_else(|_| home.join("pgdata")),
        home,
        socket_dir,
        log: root.join("log").join(format!("{name}.log")),
        postgres: SocketAddr::new(ADDRESS, ports.postgres),
        rest: SocketAddr::new(ADDRESS, ports.rest),
        name,
    })
}

/// Each port is free, or PostgreSQL's on that node, which Patroni takes over.
fn check_ports(root: &Path, nodes: &[Node], members: &[EtcdMember]) -> Result<(), ClusterError> {
    let is_live = |node: &Node| matches!(pid_file::runner(&node.pgdata), Ok(Runner::Live(_)));
    let postgres = nodes.iter().filter(|node| !is_live(node)).map(|node| (node.postgres, "PostgreSQL of ", &node.name));
    let rest = nodes.iter().map(|node| (node.rest, "Patroni of ", &node.name));
    let etcd = members.iter().flat_map(|one| {
        [Some(one.client), Some(one.peer), one.health].into_iter().flatten().map(|address| (address, "", &one.name))
    });
    let file = root.join(state::NAME);
    let mut all = postgres.chain(rest).chain(etcd);
    all.try_for_each(|(address, what, name)| check_port(address, &format!("{what}{name}"), &file))
}

/// The ports that the nodes will have are free, before one node's data are moved for them. Nothing runs there by now.
fn check_ports_of_several(spec: &ClusterSpec, root: &Path) -> Result<(), ClusterError> {
    let Some(state) = State::read(root)? else { return new_state(spec).map(drop) };
    let postgres = state.nodes.iter().map(|ports| (ports.postgres, "PostgreSQL of node"));
    let nodes: Vec<_> = postgres.zip(state.nodes.iter().map(|ports| (ports.rest, "Patroni of node"))).collect();
    let nodes = nodes.into_iter().take(spec.nodes).map(|(postgres, rest)| vec![postgres, rest]);
    let etcd = state.etcd.iter().map(|one| [one.client, one.peer, one.health].map(|port| (port, "etcd")).to_vec());
    let numbered = nodes.enumerate().chain(etcd.enumerate());
    let file = root.join(state::NAME);
    for (index, ports) in numbered {
        for (port, what) in ports {
            check_port(SocketAddr::new(ADDRESS, port), &format!("{what}{}", index + 1), &file)?;
        }
    }
    Ok(())
}

/// A cluster that etcd has forgotten must not be made anew by whichever node comes first: it may be behind.
fn check_etcd(state: &State, members: &[EtcdMember]) -> Result<(), ClusterError> {
    let missing = members.iter().find(|member| !etcd::has_data(&member.data));
    match missing.filter(|_| state.is_formed && members.len() > 1) {
        Some(member) => Err(ClusterError::BadFile {
            path: member.data.clone(),
            why: format!(
                "the data of {} are gone, with which the cluster knows who may lead\nput them back, or make one node \
                 of it and then several again: sluice up --nodes 1 takes the data of the last leader",
                member.name
            ),
        }),
        None => Ok(()),
    }
}

fn write_files(
    spec: &ClusterSpec,
    data_dir: &DataDir,
    node: &Node,
    etcd: &[SocketAddr],
    tls: &TlsFiles,
    (state, shared): (&State, &Value),
    secrets: &Secrets,
) -> Result<(), ClusterError> {
    let run_as = data_dir.run_as();
    let write = |path: PathBuf, text: &str| {
        files::write_private(&path, text.as_bytes(), Owner::Postgres(run_as)).map_err(ClusterError::io("write", &path))
    };
    let config = patroni::Config {
        scope: &state.scope,
        node,
        etcd,
        etcd_tls: tls,
        binaries: data_dir.binaries(),
        shared: shared.clone(),
        settings: &spec.settings,
        program: spec.program.as_deref(),
        sync_priority: patroni::SYNC_PRIORITY,
        access: Access::Passwords(secrets),
    };
    write(node.config_file(), &config.text())?;
    let (launcher, text) = node.launcher();
    write(launcher, text)?;
    if spec.tuning.gate {
        // One secret for all of them, which the pool has.
        let secret =
            conf::pool_secret(data_dir).map_err(ClusterError::io("write", &data_dir.root().join(POOL_SECRET)))?;
        write(node.home.join(POOL_SECRET), &secret)?;
    }
    if node.pgdata.join("PG_VERSION").exists() {
        write(node.pgdata.join("sluice.conf"), &spec.tuning.to_conf())?;
        roles::allow(&node.pgdata, run_as).map_err(ClusterError::io("allow replication in", &node.pgdata))?;
    }
    Ok(())
}
