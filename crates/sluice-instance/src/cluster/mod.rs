//! An instance of one, two or three nodes: Patroni and etcd on this machine, and the PostgreSQL of each node.
//!
//! Patroni elects, promotes, rewinds and decides how commits are waited for; nothing here does. This module writes
//! their configuration, starts them, keeps them running, waits until they are ready, and stops them.
//!
//! ```text
//! DIR/cluster.json             the cluster's name and ports
//! DIR/node1/pgdata/            a node's data directory: PostgreSQL's, until it is the first node of several DIR/pgdata
//! DIR/node1/run/               its Unix socket (elsewhere if the path would be too long)
//! DIR/node1/patroni.yml        Patroni's configuration, written at each start; pgpass is Patroni's own
//! DIR/node1/launch.py          the program that is its Patroni: the member of etcd on its own host comes first
//! DIR/etcd-tls/                the certificate by which etcd, and Patroni there, know each other
//! DIR/etcd1/                   a member's data, also of three with two nodes: two can't outvote each other
//! DIR/log/node1.log, etcd1.log what they say
//! DIR/…-password               the secrets that they show each other
//! ```
//!
//! PostgreSQL is Patroni's child in nothing but name: it goes on when Patroni ends without stopping it, and the next
//! Patroni takes it over. So a node is stopped by its Patroni, and only what that leaves is ended here.
//!
//! | file | owns |
//! |---|---|
//! | `environment.rs` | the Python environment |
//! | `state.rs` | `cluster.json` |
//! | `etcd.rs`, `patroni.rs` | configuration and commands |
//! | `process.rs`, `keeper.rs` | keeping a program running, and a node |
//! | `tls.rs` | the certificates of etcd |
//! | `roles.rs` | secrets, roles and rules for the nodes among themselves |
//! | `rest.rs` | asking Patroni and etcd, by `sluice-patroni` |
//! | `earlier.rs` | what a killed Sluice left |
//! | `half_copy.rs` | a copy of data that was interrupted |
//! | `known.rs` | how others find its nodes, and the pool before them |
//! | `prepare.rs` | folders and files before a start |
//! | `control.rs`, `resize.rs` | whose data they are, and how far they go; from one node to several and back |
//! | `ready.rs` | waiting for all of them |
//! | `stop.rs` | stopping |
//! | `shutdown.rs` | what makes a primary's shutdown short |
//! | `route.rs` | where the nodes reach each other, if not where they listen |
//! | `peer.rs` | asking a node's PostgreSQL, here or on another host |
//! | `judged.rs` | what PostgreSQL says of settings |
//! | `slots.rs` | whether a node could serve the slots of subscribers |
//! | `etcd_api.rs`, `hedge.rs` | etcd's keys and leases; which member is asked |
//! | `waker.rs` | telling Patroni of a postmaster that has ended |
//! | `reaper.rs` | adopting what Patroni leaves, and reaping it |
//! | `ports.rs` | addresses that are to be listened on |
//! | `host/` | one host of several |
//! | `survivors/` | the end of a lost primary's lease, where all standbys agree |

mod control;
mod earlier;
mod environment;
mod error;
mod etcd;
mod etcd_api;
mod folder;
mod half_copy;
mod hedge;
mod host;
mod judged;
mod keeper;
mod known;
mod needs;
mod patroni;
mod peer;
mod ports;
mod prepare;
mod process;
mod ready;
mod reaper;
mod resize;
pub mod rest;
mod roles;
mod route;
mod shutdown;
mod slots;
mod state;
mod stop;
mod survivors;
mod tls;
mod votes;
mod waker;

use std::{
    ffi::OsStr,
    io,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sluice_config::FileServer;

pub use self::{
    environment::{Environment, EnvironmentError, PATRONI_VERSION},
    error::{ClusterError, LogEnd},
    etcd::EtcdMember,
    host::{
        Again, AuthorityError, Bundle, Host, HostSpec, Pause, authority_ends, begin, certificate_ends, check,
        make_bundles, remove,
    },
    judged::{Judgement, Misread, TypeTold, judge, misread},
    known::{EtcdHere, EtcdHosts, Known, KnownEtcd},
    patroni::{Node, STANDBYS_REQUIRED},
    peer::Reach,
    resize::{is_cluster, to_one},
    rest::{Api, Member, Members},
    roles::{Secrets, drop_slots},
    shutdown::{checkpoint, shut_down},
    slots::{LogicalSlots, Unserved},
    tls::TlsFiles,
    votes::Votes,
};
use self::{
    etcd::Launch,
    etcd_api::EtcdClient,
    keeper::{NodeKeeper, Slot, Surroundings},
    process::Program,
    rest::{Answer, Method},
    state::State,
};
use crate::{
    data_dir::{DataDir, DataDirSpec},
    endpoint::Endpoint,
    event::{Event, Observer},
    kept_settings::KeptSettings,
    stop_mode::StopMode,
    tuning::Tuning,
};

/// All of a cluster is on this machine, and nobody else gets at its ports.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The settings that a cluster is started with.
#[derive(Debug, Clone)]
pub struct ClusterSpec {
    /// Its name, in etcd and to Patroni.
    pub scope: String,
    /// Nodes: 1 to 3.
    pub nodes: usize,
    /// The first node's data directory, with the programs and the user that run it.
    pub data_dir: DataDirSpec,
    /// The Python environment in which Patroni runs.
    pub environment: Environment,
    /// Written to each node's `sluice.conf` at each start.
    pub tuning: Tuning,
    /// Further settings of each PostgreSQL, name and value; they win over its files.
    pub settings: Vec<(String, String)>,
    /// The first port of a new cluster that is tried.
    pub ports_from: u16,
    /// The program whose `cluster hold` Patroni runs before it stops PostgreSQL, so that the pool's clients are held;
    /// `None`: nothing is run.
    pub program: Option<PathBuf>,
    /// Time limit for a start, from etcd to the last standby.
    pub start_timeout: Duration,
    /// Time limit for a node's shutdown, before it becomes an immediate one.
    pub stop_timeout: Duration,
    /// With three nodes: the two that are left end a lost primary's lease, instead of waiting for its end.
    pub fast_failover: bool,
}

impl ClusterSpec {
    /// With defaults for the name, ports and times.
    pub fn new(nodes: usize, data_dir: DataDirSpec, environment: Environment, tuning: Tuning) -> Self {
        Self {
            scope: "main".to_owned(),
            nodes,
            data_dir,
            environment,
            tuning,
            settings: Vec::new(),
            ports_from: 7400,
            program: None,
            start_timeout: Duration::from_secs(600),
            stop_timeout: Duration::from_secs(60),
            fast_failover: true,
        }
    }
}

/// The thing that this machine lacks for several nodes, as far as that can be seen without installing anything; with the
/// remedy.
pub fn lacks() -> Option<String> {
    etcd::find().is_none().then(|| ClusterError::NoEtcd.to_string())
}

/// A running cluster. Dropping it stops it, PostgreSQL by fast shutdowns.
pub struct Cluster {
    data_dir: Arc<DataDir>,
    etcd: PathBuf,
    etcd_tls: TlsFiles,
    scope: String,
    token: String,
    nodes: Vec<Node>,
    members: Vec<EtcdMember>,
    secrets: Secrets,
    observer: Arc<dyn Observer>,
    api: Api,
    keepers: Vec<NodeKeeper>,
    etcds: Vec<Slot>,
    /// Of each member of etcd, whether it has data by now.
    has_joined: Vec<Arc<AtomicBool>>,
    /// Held by whoever stops it.
    stopping: Mutex<()>,
    /// The mode of a stop that is under way, as `StopMode as u8`.
    haste: AtomicU8,
    /// Nobody wants its start any more.
    is_given_up: AtomicBool,
}

/// Says when it is dropped that something is over.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("nodes", &self.nodes).field("members", &self.members).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Starts it and waits until it is ready: a leader that accepts connections, and each other node streaming from it, or
    /// for a while in vain for one of them. A new one grows out of its first node.
    pub fn start(spec: ClusterSpec, observer: Arc<dyn Observer>) -> Result<Self, ClusterError> {
        let pause = |time| {
            thread::sleep(time);
            true
        };
        Self::start_unless(spec, observer, &pause)
    }

    /// The same, until it is given up: `pause` pauses for a time, and says false then; once more, and the stop of what has
    /// been started is hastened.
    ///
    /// # Errors
    ///
    /// [`ClusterError::GivenUp`] then, and all others; no program is left that was started.
    pub fn start_unless(
        spec: ClusterSpec,
        observer: Arc<dyn Observer>,
        pause: &(dyn Fn(Duration) -> bool + Sync),
    ) -> Result<Self, ClusterError> {
        let begin = Instant::now();
        let (cluster, state) = prepare::prepare(&spec, observer)?;
        let is_over = AtomicBool::new(false);
        let done = thread::scope(|scope| {
            let over = Over(&is_over);
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    if !pause(PAUSE) && cluster.is_given_up.swap(true, Ordering::AcqRel) {
                        cluster.request_stop(StopMode::Immediate);
                    }
                }
            });
            let done = cluster.start_all(&spec, state, begin + spec.start_timeout);
            if done.is_err() {
                cluster.stop(StopMode::Fast);
            }
            drop(over);
            done
        });
        let members = done?;
        cluster.check_wanted()?;
        cluster.observer.event(Event::ClusterReady { members: members.to_string(), took: begin.elapsed() });
        Ok(cluster)
    }

    fn start_all(&self, spec: &ClusterSpec, mut state: State, deadline: Instant) -> Result<Members, ClusterError> {
        for member in 0..self.members.len() {
            self.start_etcd(member)?;
        }
        self.wait_majority(deadline)?;
        if !state.is_formed {
            // Its data are what the others get.
            self.start_node(0)?;
            self.wait_leader(deadline)?;
            roles::make(&self.data_dir, &self.endpoint(0), Some(&self.secrets))?;
            state.is_formed = true;
            let root = self.data_dir.root();
            state.write(root)?;
            KeptSettings::remove(root).map_err(ClusterError::io("remove the settings of former nodes in", root))?;
        }
        for node in 0..self.nodes.len() {
            self.start_node(node)?;
        }
        let leader = self.wait_leader(deadline)?;
        roles::mend(&self.data_dir, &self.endpoint(leader), &self.secrets)?;
        self.share_settings(spec, deadline)?;
        let members = self.wait_service(deadline)?;
        let with_data = self.members.iter().zip(&self.has_joined).filter(|(member, _)| etcd::has_data(&member.data));
        with_data.for_each(|(_, has_joined)| has_joined.store(true, Ordering::Release));
        Ok(members)
    }

    /// Sees that a start has not been given up.
    fn check_wanted(&self) -> Result<(), ClusterError> {
        if self.is_given_up.load(Ordering::Acquire) { Err(ClusterError::GivenUp) } else { Ok(()) }
    }

    /// Its directory: the first node's, locked.
    pub fn data_dir(&self) -> &Arc<DataDir> {
        &self.data_dir
    }

    /// Its name, in etcd and to Patroni.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// The nodes, from `node1` on.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The primary of these nodes as a pool is told, which finds it by itself.
    pub fn for_pool(&self) -> FileServer {
        FileServer::Cluster { name: self.scope.clone(), members: self.nodes.iter().map(|node| node.rest).collect() }
    }

    /// etcd's members.
    pub fn etcd_members(&self) -> &[EtcdMember] {
        &self.members
    }

    /// The secrets.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The endpoint of a node's PostgreSQL.
    pub fn endpoint(&self, node: usize) -> Endpoint {
        let Node { socket_dir, postgres, .. } = &self.nodes[node];
        Endpoint { socket_dir: socket_dir.clone(), port: postgres.port(), tcp: Some(*postgres) }
    }

    /// The client of the nodes' REST APIs.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The process of a node's Patroni.
    pub fn patroni_pid(&self, node: usize) -> Option<u32> {
        self.keepers[node].patroni.pid()
    }

    /// The process of a node's postmaster.
    pub fn postmaster_pid(&self, node: usize) -> Option<u32> {
        self.keepers[node].postmaster_pid()
    }

    /// All processes of a node: its Patroni, and PostgreSQL's.
    pub fn processes(&self, node: usize) -> Vec<u32> {
        self.keepers[node].processes()
    }

    /// The process of a member of etcd.
    pub fn etcd_pid(&self, member: usize) -> Option<u32> {
        self.etcds[member].pid()
    }

    /// Starts a member of etcd, unless it is kept already.
    pub fn start_etcd(&self, member: usize) -> Result<(), ClusterError> {
        let own = self.members[member].clone();
        let launch = Launch {
            program: self.etcd.clone(),
            run_as: self.data_dir.run_as().clone(),
            member: own.clone(),
            peers: self.members.iter().map(|one| (one.name.clone(), format!("https://{}", one.peer))).collect(),
            is_new: true,
            has_joined: Arc::clone(&self.has_joined[member]),
            token: self.token.clone(),
            tls: self.etcd_tls.clone(),
        };
        let program = Program { name: own.name, log: own.log, command: Box::new(move || launch.command()) };
        self.etcds[member].keep(program, &self.observer)
    }

    /// Starts a node's Patroni, unless it is kept already, and by it PostgreSQL; one that runs there is taken over.
    pub fn start_node(&self, node: usize) -> Result<(), ClusterError> {
        self.keepers[node].start()
    }

    /// Tells the cluster the settings that its nodes share, which may have been others at its last start: another number of
    /// nodes, a larger pool. A new leader takes them a moment after its election only.
    fn share_settings(&self, spec: &ClusterSpec, deadline: Instant) -> Result<(), ClusterError> {
        let path = self.data_dir.root().join(state::NAME);
        loop {
            self.check_wanted()?;
            match self.share_again(spec) {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(ClusterError::io("share the settings in", &path)(error));
                }
                Err(_) => thread::sleep(SHARE_AGAIN),
            }
        }
    }

    fn share_again(&self, spec: &ClusterSpec) -> io::Result<()> {
        let now = serde_json::from_slice(&self.send(Method::Get, "/config", "")?.body)?;
        let settings = patroni::told_again(patroni::shared_settings(self.nodes.len(), &spec.tuning), &now);
        self.send(Method::Patch, "/config", &settings.to_string()).map(drop)
    }

    /// Sends a request that changes something to the first node that answers.
    pub fn send(&self, method: Method, path: &str, body: &str) -> io::Result<Answer> {
        let mut last = io::Error::other("no node");
        for node in &self.nodes {
            let answer = self.api.send(node.rest, method, path, body, REQUEST_TIME_MAX);
            match answer.and_then(Answer::good) {
                Ok(answer) => return Ok(answer),
                Err(error) => last = io::Error::other(error),
            }
        }
        Err(last)
    }
}

/// The interval at which it is looked whether a start is to be given up.
const PAUSE: Duration = Duration::from_millis(50);

/// The pause before the settings are sent again.
const SHARE_AGAIN: Duration = Duration::from_millis(200);

/// A request that changes something is answered when it is done, which a switchover is after some seconds.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop(StopMode::Fast);
    }
}

/// Takes variables out of a command's environment that would change what its program is told.
fn without_variables(command: &mut Command, prefix: &str) {
    let is_meant = |name: &OsStr| name.as_encoded_bytes().starts_with(prefix.as_bytes());
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_meant(name)) {
        command.env_remove(name);
    }
}

/// The state of a new cluster.
fn new_state(spec: &ClusterSpec) -> Result<State, ClusterError> {
    let token = crate::secret::Password::random().map_err(crate::bootstrap::BootstrapError::Random)?;
    State::new(&spec.scope, token.expose().to_owned(), ADDRESS, spec.ports_from)
}
