//! Folders and files of a host before a start, and the beginning of a cluster.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8},
    },
};

use sluice_config::NodeConfig;

use super::{
    super::{
        earlier,
        error::ClusterError,
        etcd::{self, EtcdMember},
        folder::make_tree,
        half_copy,
        keeper::{NodeKeeper, Slot, Surroundings},
        patroni::{self, Access, Node},
        ports::{check_port, make_log},
        rest::Api,
        survivors::Electorate,
        tls::TlsFiles,
    },
    Host, HostSpec, again, certificates,
    members::{self, etcd_client},
    rules,
    state::{HostState, Stage},
};
use crate::{
    binaries::Binaries,
    data_dir::{DataDir, DataDirSpec, HOST, Layout, LockedDir},
    event::{Event, Observer},
    files::{self, Owner},
    pid_file::{self, Runner},
    run_as::RunAs,
    tuning::Tuning,
};

/// The number of nodes from which on survivors can agree.
const SURVIVORS_FROM: usize = 3;

/// The addresses at which the other members' etcd answers.
pub(super) fn others(config: &NodeConfig) -> Vec<SocketAddr> {
    let members = config.members.iter().enumerate().filter(|(place, _)| *place != config.own);
    members.map(|(_, member)| member.etcd_client).collect()
}

/// Looks whether a host can be started by its file: its certificate is the right one, etcd is there, and has no members
/// that the file named when the host was started last and does not name now, as far as they answer.
///
/// # Errors
///
/// What is in the way.
pub fn check(config: &NodeConfig) -> Result<(), ClusterError> {
    certificates::check(config)?;
    etcd::find_for_host()?;
    // Who checks may not be able to read it.
    let before = HostState::read(&config.data).ok().flatten().map_or_else(Vec::new, |state| state.etcd);
    if members::unnamed(&before, config).is_empty() {
        return Ok(());
    }
    match etcd_client(before.clone(), &certificates::given(config))?.members() {
        Ok(members) => members::check_named(&members, &before, config),
        Err(_) => Ok(()),
    }
}

/// Whether a host may begin a cluster though it belonged to one before, whose etcd is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// Never.
    No,
    /// If it was its primary, and was shut down in order.
    Whole,
    /// Whatever its data are.
    Force,
}

/// Has a cluster begin on this host, at its next start: with the data that are here, or with new ones. Returns words for
/// those of a cluster that begins again.
///
/// # Errors
///
/// A cluster that is there, or may be; or data that may lack what another host has.
pub fn begin(
    config: &NodeConfig,
    run_as: &RunAs,
    binaries: Binaries,
    observer: &dyn Observer,
    again: Again,
) -> Result<Option<String>, ClusterError> {
    check(config)?;
    let bad = |why: String| ClusterError::BadFile { path: config.file.clone(), why };
    if config.own().is_witness {
        return Err(bad(
            "this host is the witness, and a cluster begins where its data are: on another host".to_owned()
        ));
    }
    let others = others(config);
    if !others.is_empty() && etcd_client(others, &certificates::given(config))?.members().is_ok() {
        return Err(bad("the other hosts have a cluster already\nsluice node has this one join it".to_owned()));
    }
    if again != Again::No {
        again::check_stopped(config)?;
    }
    let mut said = None;
    // Its lock is held to the end.
    let layout = Layout::Host { may_create: true };
    let spec = DataDirSpec { layout, ..DataDirSpec::new(&config.data, binaries, run_as.clone()) };
    if let Ok(root) = config.data.canonicalize() {
        let state = HostState::of(config, &root)?;
        let etcd_data = root.join("etcd");
        if etcd::has_data(&etcd_data) {
            let why = "etcd has data here: this host belongs to a cluster, or has begun one\n\
                       sluice node starts it; where that cluster is lost, move the folder away, on all hosts";
            return Err(ClusterError::BadFile { path: etcd_data, why: why.to_owned() });
        }
        let pgdata = root.join(HOST).join("pgdata");
        let has_data = pgdata.join("PG_VERSION").exists();
        if has_data && again != Again::No {
            let is_alone = config.nodes() == 1;
            said = Some(again::beginning(&spec.binaries, &pgdata, is_alone || again == Again::Force)?);
        } else if has_data && state.stage == Stage::Member {
            let why = "this host's data are a cluster's, and its etcd's are gone\n\
                       sluice node has it join that cluster again; if etcd is lost on all hosts, begin anew with the data \
                       of the host that was the last primary (docs/hosts.md, \"etcd is lost on all hosts\"): sluice node init \
                       --again";
            return Err(ClusterError::BadFile { path: root, why: why.to_owned() });
        }
    }
    let data_dir = DataDir::open(spec, observer)?;
    let before = HostState::of(config, data_dir.root())?;
    let mark =
        if said.is_some() { Some(again::mark()?) } else { before.again.filter(|_| before.stage != Stage::Member) };
    let state = HostState { stage: Stage::Begins, again: mark, ..before };
    state.write(data_dir.root())?;
    Ok(said)
}

/// Makes everything that a start needs, and nothing that runs.
pub(super) fn prepare(spec: HostSpec, observer: Arc<dyn Observer>) -> Result<Host, ClusterError> {
    let HostSpec { config, run_as, programs, tuning, stop_timeout } = spec;
    let etcd_program = etcd::find_for_host()?;
    certificates::check(&config)?;
    let locked = LockedDir::take(&config.data, &run_as)?;
    let before = HostState::read(locked.root())?.map_or_else(Vec::new, |state| state.etcd);
    let unnamed = members::unnamed(&before, &config);
    let state = HostState::of(&config, locked.root())?;
    let home = locked.root().join(HOST);
    let etcd_data = locked.root().join("etcd");
    let count = earlier::clear(&[home.join(patroni::FILE), etcd_data.clone()]);
    if count > 0 {
        observer.event(Event::EndedEarlier { count });
    }
    // Data that a cluster begins with are nobody's copy.
    if state.stage == Stage::Member {
        half_copy::clear(&home, &*observer)?;
    }
    let (root, opened, lock) = match programs {
        None => {
            let (root, lock) = locked.open_witness(&run_as)?;
            (root, None, Some(lock))
        }
        Some((binaries, environment)) => {
            let layout = Layout::Host { may_create: false };
            let spec = DataDirSpec { layout, ..DataDirSpec::new(&config.data, binaries, run_as.clone()) };
            let data_dir = Arc::new(DataDir::open_locked(locked, spec, &*observer)?);
            (data_dir.root().to_owned(), Some((data_dir, environment)), None)
        }
    };
    let own = config.own();
    let member = EtcdMember {
        name: own.name.clone(),
        data: etcd_data,
        log: root.join("log/etcd.log"),
        client: own.etcd_client,
        health: None,
        peer: own.etcd_peer,
    };
    let node = opened.as_ref().map(|(data_dir, _)| node(&config, data_dir));
    check_ports(&config, node.as_ref())?;
    let tls = certificates::copy(&config, &root, &run_as)?;
    let api = Api::with_certificate(&tls)
        .map_err(|error| ClusterError::BadFile { path: tls.cert.clone(), why: error.to_string() })?;
    make_tree(&member.data, &run_as)?;
    make_log(&member.log)?;
    if unnamed.is_empty() {
        state.write(&root)?;
    }
    let data = match opened.zip(node) {
        None => None,
        Some(((data_dir, environment), node)) => {
            write_files(&config, &data_dir, &node, &tls, &tuning)?;
            make_log(&node.log)?;
            let around = Surroundings {
                scope: config.cluster.clone(),
                run_as: run_as.clone(),
                environment,
                api: api.clone(),
                stop_timeout,
            };
            let survivor = if config.fast_failover && config.nodes() >= SURVIVORS_FROM {
                let mut addresses = vec![own.etcd_client];
                addresses.extend(others(&config));
                Some(Electorate { etcd: etcd_client(addresses, &tls)?, nodes: config.nodes() })
            } else {
                None
            };
            Some((data_dir, NodeKeeper::new(node, around, survivor, Arc::clone(&observer))))
        }
    };
    Ok(Host {
        config,
        state,
        unnamed,
        root,
        run_as,
        data,
        _lock: lock,
        etcd_program,
        member,
        tls,
        api,
        etcd: Slot::default(),
        has_joined: Arc::default(),
        is_voting: AtomicBool::new(false),
        observer,
        haste: AtomicU8::new(0),
        roles: None,
        tuning,
    })
}

fn node(config: &NodeConfig, data_dir: &DataDir) -> Node {
    let own = config.own();
    Node {
        name: own.name.clone(),
        home: data_dir.root().join(HOST),
        pgdata: data_dir.pgdata().to_owned(),
        socket_dir: data_dir.socket_dir().to_owned(),
        log: data_dir.root().join("log/node.log"),
        postgres: own.postgres,
        rest: own.patroni,
    }
}

/// Each port is free, or PostgreSQL's that runs on these data, which Patroni takes over.
fn check_ports(config: &NodeConfig, node: Option<&Node>) -> Result<(), ClusterError> {
    let own = config.own();
    let mut ports = vec![(own.etcd_client, "etcd (etcd_client_port)"), (own.etcd_peer, "etcd (etcd_peer_port)")];
    if let Some(node) = node {
        ports.push((own.patroni, "Patroni (patroni_port)"));
        if !matches!(pid_file::runner(&node.pgdata), Ok(Runner::Live(_))) {
            ports.push((own.postgres, "PostgreSQL (postgres_port)"));
        }
    }
    ports.into_iter().try_for_each(|(address, what)| check_port(address, what, &config.file))
}

/// `patroni.yml`, by which Patroni writes PostgreSQL's configuration.
pub(super) fn write_files(
    config: &NodeConfig,
    data_dir: &DataDir,
    node: &Node,
    tls: &TlsFiles,
    tuning: &Tuning,
) -> Result<(), ClusterError> {
    let run_as = data_dir.run_as();
    let write = |path: &Path, text: &str| {
        files::write_private(path, text.as_bytes(), Owner::Postgres(run_as)).map_err(ClusterError::io("write", path))
    };
    let mut etcd = vec![config.own().etcd_client];
    etcd.extend(others(config));
    let patroni = patroni::Config {
        scope: &config.cluster,
        node,
        etcd: &etcd,
        etcd_tls: tls,
        binaries: data_dir.binaries(),
        shared: patroni::shared_settings(config.nodes(), tuning),
        settings: &[],
        program: None,
        sync_priority: config.own().sync_priority,
        access: Access::Certificates { tls, hba: &rules::hba(config), ident: &rules::ident(config, run_as) },
    };
    write(&node.config_file(), &patroni.text())?;
    let (launcher, text) = node.launcher();
    write(&launcher, text)?;
    if node.pgdata.join("PG_VERSION").exists() {
        write(&node.pgdata.join("sluice.conf"), &tuning.to_conf())?;
    }
    Ok(())
}
