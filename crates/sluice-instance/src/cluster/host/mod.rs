//! A host of a cluster: its member of etcd, its Patroni and by that its PostgreSQL, among others that are kept
//! elsewhere. A witness has etcd only.
//!
//! ```text
//! DIR/host.json        which host of which cluster it is, and how the others are asked
//! DIR/tls/             copies of the certificates, for the user that runs all of it
//! DIR/etcd/            etcd's data
//! DIR/node/pgdata/     PostgreSQL's; DIR/node/ is as DIR/node1/ of several nodes on one machine
//! DIR/log/             node.log, etcd.log
//! ```
//!
//! A cluster begins on one host, which is told so once ([`begin`]); every other one joins it. A host never makes data
//! by itself, and never takes the word of its own disk for what the cluster is: it asks the others.
//!
//! | file | owns |
//! |---|---|
//! | `state.rs` | `host.json` |
//! | `authority.rs` | making certificates for all hosts |
//! | `certificates.rs` | this host's: whether they will do, and their copies |
//! | `rules.rs` | `pg_hba.conf` and `pg_ident.conf` |
//! | `prepare.rs` | folders and files before a start; beginning a cluster |
//! | `join.rs` | becoming a member of etcd |
//! | `members.rs` | etcd's members beside those of the file |
//! | `data.rs` | whether the data here are the cluster's |
//! | `again.rs` | a cluster that is begun again, and what others have more |
//! | `history.rs` | the timelines of data, and of the cluster |

mod again;
mod authority;
pub(super) mod certificates;
mod data;
mod history;
mod join;
pub(super) mod members;
mod prepare;
mod rules;
pub(super) mod state;

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use sluice_config::NodeConfig;

use self::state::{HostState, Stage};
pub use self::{
    authority::{AuthorityError, Bundle, authority_ends, make_bundles},
    certificates::certificate_ends,
    members::remove,
    prepare::{Again, begin, check},
};
use super::{
    environment::Environment,
    error::ClusterError,
    etcd::{EtcdMember, Launch},
    etcd_api::EtcdClient,
    half_copy,
    keeper::{NodeKeeper, Slot, stop_etcd},
    patroni::Node,
    process::Program,
    ready::PAUSED,
    rest::Api,
    roles,
    tls::TlsFiles,
};
use crate::{
    binaries::Binaries,
    bootstrap::{self, HostRoles},
    data_dir::DataDir,
    disk,
    endpoint::Endpoint,
    event::{Event, Observer},
    run_as::RunAs,
    server::StopReport,
    stop_mode::StopMode,
    tuning::Tuning,
};

/// A program that ends by itself so often in a row will not come up.
const FAILURES_MAX: u32 = 5;
const POLL: Duration = Duration::from_millis(200);
/// The interval at which it is told what is waited for.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Errors that end with the first start by themselves are told only after that.
const EARLY: Duration = Duration::from_secs(30);
/// A node answers at once, or not soon.
const ASK_TIME_MAX: Duration = Duration::from_secs(2);

/// Patroni's word.
const PRIMARY: &str = "primary";

/// Settings that a host is started with.
#[derive(Debug, Clone)]
pub struct HostSpec {
    /// Its file.
    pub config: NodeConfig,
    /// The user that runs everything.
    pub run_as: RunAs,
    /// PostgreSQL's programs and Patroni's place; a witness has neither.
    pub programs: Option<(Binaries, Environment)>,
    /// Written to `sluice.conf` at each start.
    pub tuning: Tuning,
    /// Time limit for PostgreSQL's shutdown, before it becomes an immediate one.
    pub stop_timeout: Duration,
}

/// Pauses for a time; false once the start is to be given up.
pub type Pause<'a> = &'a dyn Fn(Duration) -> bool;

/// A host that runs. Dropping it stops it.
pub struct Host {
    config: NodeConfig,
    state: HostState,
    /// Addresses of etcd's members that its file does not name, and did when it was started last.
    unnamed: Vec<SocketAddr>,
    root: PathBuf,
    run_as: RunAs,
    /// Of a host that has data.
    data: Option<(Arc<DataDir>, NodeKeeper)>,
    /// Of a witness: the directory's lock.
    _lock: Option<std::fs::File>,
    etcd_program: PathBuf,
    member: EtcdMember,
    tls: TlsFiles,
    api: Api,
    etcd: Slot,
    /// Whether its member of etcd has had data that others count on.
    has_joined: Arc<AtomicBool>,
    /// Whether that has its vote, as far as is known.
    is_voting: AtomicBool,
    observer: Arc<dyn Observer>,
    haste: AtomicU8,
    roles: Option<HostRoles>,
    tuning: Tuning,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Host {
    /// Starts it, and waits until its member of etcd belongs to a majority and its PostgreSQL has its place. That may
    /// take as long as it takes: others have to be there, and data to be copied. `None` if it was given up meanwhile.
    ///
    /// # Errors
    ///
    /// What waiting does not help with. Programs that were started are stopped.
    pub fn start(spec: HostSpec, observer: Arc<dyn Observer>, pause: Pause<'_>) -> Result<Option<Self>, ClusterError> {
        let begin = Instant::now();
        let mut host = prepare::prepare(spec, observer)?;
        if !host.join_etcd(pause)? || !host.check_members().and_then(|()| host.start_data(pause))? {
            host.stop();
            return Ok(None);
        }
        let role = if host.data.is_some() { host.role().unwrap_or_default() } else { "witness".to_owned() };
        let name = host.config.own().name.clone();
        host.observer.event(Event::HostReady { name, role, took: begin.elapsed() });
        Ok(Some(host))
    }

    /// Its node, unless it is a witness.
    pub fn node(&self) -> Option<&Node> {
        self.data.as_ref().map(|(_, keeper)| keeper.node())
    }

    /// The roles of the cluster, if it began here in this run.
    pub fn roles(&self) -> Option<&HostRoles> {
        self.roles.as_ref()
    }

    /// `primary` or `replica`, as Patroni says it; none if it says nothing.
    pub fn role(&self) -> Option<String> {
        let node = self.node()?;
        self.api.own(node.rest, ASK_TIME_MAX).ok().map(|own| own.role)
    }

    /// Warnings of the certificates that it was started with, if they end soon.
    pub fn certificate_ends(&self) -> Vec<String> {
        certificates::ends(&self.tls, SystemTime::now())
    }

    /// The warning of a disk that is full.
    pub fn full_disk(&self) -> Option<String> {
        disk::full(&self.root)
    }

    /// Takes over from its file, as it is now, who the other members are and what rules PostgreSQL has: `pg_hba.conf` and
    /// `pg_ident.conf` are written anew. All else counts from the next start on.
    ///
    /// # Errors
    ///
    /// It would be another host, members of etcd are missing, or a file can't be written. Then nothing is changed.
    pub fn reload(&mut self, config: NodeConfig) -> Result<(), ClusterError> {
        let is_same = (&config.cluster, &config.data) == (&self.config.cluster, &self.config.data)
            && config.own().is_same_as(self.config.own());
        if !is_same {
            return Err(ClusterError::BadFile {
                path: config.file.clone(),
                why: "cluster, data, and this host's name, address, ports and witness count from the next start on\n\
                      start sluice node again for them (systemctl restart sluice-node)"
                    .to_owned(),
            });
        }
        let before: Vec<_> = self.config.members.iter().map(|member| member.etcd_client).collect();
        self.check_named(&before, &config)?;
        HostState::of(&config, &self.root)?.write(&self.root)?;
        if let Some((data_dir, keeper)) = &self.data {
            prepare::write_files(&config, data_dir, keeper.node(), &self.tls, &self.tuning)?;
            keeper.reload();
        }
        self.config = config;
        Ok(())
    }

    /// Sees that its file names the members that it named at the last start, before PostgreSQL's rules go by it.
    fn check_members(&mut self) -> Result<(), ClusterError> {
        if self.unnamed.is_empty() {
            return Ok(());
        }
        self.check_named(&self.unnamed, &self.config)?;
        self.unnamed.clear();
        self.state.write(&self.root)
    }

    /// Sees that a file names the members of etcd at these addresses, which it had named before.
    fn check_named(&self, before: &[SocketAddr], config: &NodeConfig) -> Result<(), ClusterError> {
        if members::unnamed(before, config).is_empty() {
            return Ok(());
        }
        let found = self.etcd_client(self.config.own)?.members();
        let found = found.map_err(|error| ClusterError::BadFile {
            path: config.file.clone(),
            why: format!(
                "member: hosts that this file had named before are missing, and etcd does not say whether they are gone: {error}\n                 it has to name all hosts, as the files of the others do; try again when etcd answers"
            ),
        })?;
        members::check_named(&found, before, config)
    }

    /// Stops it: PostgreSQL by its Patroni, which hands over what it has to hand over, then etcd.
    pub fn stop(&self) -> StopReport {
        let begin = Instant::now();
        let haste = || StopMode::of(self.haste.load(Ordering::Relaxed));
        let mode = self.data.as_ref().and_then(|(_, keeper)| keeper.stop(&haste));
        stop_etcd(&self.etcd);
        StopReport { mode, took: begin.elapsed(), failed: None }
    }

    /// Asks a stop that is under way to be harder, without waiting for it.
    pub fn request_stop(&self, mode: StopMode) {
        self.haste.fetch_max(mode as u8, Ordering::Relaxed);
    }

    fn start_etcd(&self, peers: Vec<(String, String)>, is_new: bool) -> Result<(), ClusterError> {
        let launch = Launch {
            program: self.etcd_program.clone(),
            run_as: self.run_as.clone(),
            member: self.member.clone(),
            peers,
            is_new,
            has_joined: Arc::clone(&self.has_joined),
            token: format!("sluice-{}", self.config.cluster),
            tls: self.tls.clone(),
        };
        let EtcdMember { name, log, .. } = self.member.clone();
        let program = Program { name: format!("{name}'s etcd"), log, command: Box::new(move || launch.command()) };
        self.etcd.keep(program, &self.observer)
    }

    /// Starts Patroni, once the data here, if any, are known to be the cluster's; false if it was given up.
    fn start_data(&mut self, pause: Pause<'_>) -> Result<bool, ClusterError> {
        let Some((data_dir, keeper)) = &self.data else { return Ok(true) };
        let begins = self.state.stage != Stage::Member;
        let mut joined = HostState { stage: Stage::Member, ..self.state.clone() };
        if begins {
            if !self.tell_beginning(pause)? {
                return Ok(false);
            }
        } else {
            let Some(system) = self.wait_system(pause)? else { return Ok(false) };
            let Some(again) = self.wait_data(data_dir, &system, pause)? else { return Ok(false) };
            joined.again = again;
            let home = &keeper.node().home;
            half_copy::note(home).map_err(ClusterError::io("note that data are copied to", home))?;
        }
        keeper.start()?;
        let Some(role) = self.wait_running(keeper, begins, pause)? else { return Ok(false) };
        let home = &keeper.node().home;
        half_copy::forget(home).map_err(ClusterError::io("note that the data are whole in", home))?;
        if begins && role == PRIMARY {
            let endpoint = endpoint(keeper.node());
            roles::make(data_dir, &endpoint, None)?;
            self.roles = Some(bootstrap::bootstrap_host(data_dir, &endpoint)?);
        }
        if joined != self.state {
            self.state = joined;
            self.state.write(&self.root)?;
        }
        Ok(true)
    }

    /// Has etcd know that the cluster was begun again, if it was, before others hear of its data; false if that was given up.
    fn tell_beginning(&self, pause: Pause<'_>) -> Result<bool, ClusterError> {
        let Some(mark) = &self.state.again else { return Ok(true) };
        let etcd = self.etcd_client(self.config.own)?;
        let mut waiting = self.waiting();
        while let Err(error) = again::tell(&etcd, &self.config.cluster, mark) {
            if !self.mend_etcd(pause)? || !waiting.pause(format!("etcd does not answer: {error}"), pause) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until the data here can be said to be the cluster's; returns the mark of its beginning, if it has one.
    fn wait_data(
        &self,
        data_dir: &DataDir,
        system: &str,
        pause: Pause<'_>,
    ) -> Result<Option<Option<String>>, ClusterError> {
        let etcd = self.etcd_client(self.config.own)?;
        let mut waiting = self.waiting();
        loop {
            let why = match again::of_cluster(&etcd, &self.config.cluster) {
                Ok(mark) => {
                    match data::check(&self.config, data_dir, system, &self.api, self.is_before(mark.as_ref()))? {
                        Ok(()) => return Ok(Some(mark)),
                        Err(why) => why,
                    }
                }
                Err(error) => format!("etcd does not answer: {error}"),
            };
            if !self.mend_etcd(pause)? || !waiting.pause(why, pause) {
                return Ok(None);
            }
        }
    }

    /// Whether the cluster was begun again, by its mark, and this host has not joined it since.
    fn is_before(&self, mark: Option<&String>) -> bool {
        mark.is_some() && mark != self.state.again.as_ref()
    }

    /// Waits until the cluster has data; returns their system identifier.
    fn wait_system(&self, pause: Pause<'_>) -> Result<Option<String>, ClusterError> {
        let etcd = self.etcd_client(self.config.own)?;
        let mut waiting = self.waiting();
        loop {
            let why = match self.system(&etcd)? {
                Ok(Some(system)) => return Ok(Some(system)),
                Ok(None) => {
                    "the cluster has no data yet: its first host (sluice node init) has to be started".to_owned()
                }
                Err(error) => format!("etcd does not answer: {error}"),
            };
            if !self.mend_etcd(pause)? || !waiting.pause(why, pause) {
                return Ok(None);
            }
        }
    }

    /// Waits until PostgreSQL runs, where a cluster begins as its primary; returns its role.
    fn wait_running(
        &self,
        keeper: &NodeKeeper,
        begins: bool,
        pause: Pause<'_>,
    ) -> Result<Option<String>, ClusterError> {
        let node = keeper.node();
        let mut waiting = self.waiting();
        loop {
            let own = self.api.own(node.rest, ASK_TIME_MAX);
            let said = progress(own.as_ref().ok().map(|own| &*own.state));
            let is_paused = own.as_ref().is_ok_and(|own| own.pause);
            if let Ok(own) = own
                && own.state == "running"
                // If somebody else leads by now, it has begun: others come that far only behind what is made below.
                && (!begins || own.role == PRIMARY || self.is_led_by_another(node))
            {
                return Ok(Some(own.role));
            }
            if keeper.patroni.failures() >= FAILURES_MAX {
                let (waited, logs) = (waiting.begin.elapsed(), keeper.patroni.log_end().into_iter().collect());
                return Err(ClusterError::NotReady { waited, said, logs });
            }
            let log = node.log.display();
            let is_early = waiting.begin.elapsed() < EARLY;
            let error = keeper.patroni.log_end().and_then(|end| end.tail.last_error(is_early));
            let error = error.map_or_else(String::new, |error| format!("\nthe last error there: {error}"));
            let error = if is_paused { format!("\n{PAUSED}") } else { error };
            let why = format!("{said}; {log} says what it is doing{error}");
            if !self.mend_etcd(pause)? || !waiting.pause(why, pause) {
                return Ok(None);
            }
        }
    }

    fn is_led_by_another(&self, node: &Node) -> bool {
        let members = self.api.members(node.rest, ASK_TIME_MAX);
        members.is_ok_and(|members| members.leader().is_some_and(|leader| leader != node.name))
    }

    /// A client of etcd that begins with that member.
    fn etcd_client(&self, first: usize) -> Result<EtcdClient, ClusterError> {
        let mut addresses: Vec<_> = self.config.members.iter().map(|member| member.etcd_client).collect();
        addresses.rotate_left(first);
        members::etcd_client(addresses, &self.tls)
    }

    fn waiting(&self) -> Waiting<'_> {
        Waiting { begin: Instant::now(), told: None, observer: &*self.observer }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How far PostgreSQL has come that is not what is waited for, by what Patroni says of its state.
fn progress(state: Option<&str>) -> String {
    match state {
        Some("running") => "PostgreSQL runs, but is not the primary yet".to_owned(),
        Some(state) => format!("PostgreSQL is not running yet (Patroni: {state})"),
        None => "PostgreSQL is not running yet (Patroni does not answer yet)".to_owned(),
    }
}

fn endpoint(node: &Node) -> Endpoint {
    Endpoint { socket_dir: node.socket_dir.clone(), port: node.postgres.port(), tcp: Some(node.postgres) }
}

/// Something is waited for; what it is is told once in a while.
struct Waiting<'a> {
    begin: Instant,
    told: Option<Instant>,
    observer: &'a dyn Observer,
}

impl Waiting<'_> {
    fn pause(&mut self, why: String, pause: Pause<'_>) -> bool {
        let is_due = self.told.map_or(self.begin.elapsed() >= ASK_TIME_MAX, |told| told.elapsed() >= TELL_EVERY);
        if is_due {
            self.told = Some(Instant::now());
            self.observer.event(Event::HostWaiting { waited: self.begin.elapsed(), why });
        }
        pause(POLL)
    }
}
