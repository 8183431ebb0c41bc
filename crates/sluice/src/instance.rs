//! PostgreSQL behind the pool of `sluice up`: one server, or a cluster of several nodes.

use std::{env, net::SocketAddr, path::PathBuf, sync::Arc, thread::Scope};

use anyhow::{Result, anyhow, bail};
use sluice_config::FileServer;
use sluice_instance::{
    ClassReport, DataDir, DataDirSpec, Endpoint, Observer, Postgres, PostgresConfig, RunAs, State, StopMode,
    bootstrap::Lookup,
    cluster::{self, Cluster, ClusterSpec, Environment, Node},
};

use crate::signals::{Signals, Wake};

/// Root's folder for environments of Patroni.
const SYSTEM_CACHE: &str = "/var/cache/sluice";

/// A server that runs, or a cluster.
pub(crate) enum Instance {
    One(Postgres),
    Several(Box<Cluster>),
}

/// One of several nodes, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeLine {
    pub(crate) name: String,
    /// In Patroni's words.
    pub(crate) role: String,
    pub(crate) postgres: SocketAddr,
    pub(crate) patroni: SocketAddr,
}

impl Instance {
    /// Starts one server; a directory that was of several nodes becomes one of one. `configure` adds to its settings.
    pub(crate) fn one(
        spec: DataDirSpec,
        observer: Arc<dyn Observer>,
        configure: impl FnOnce(&mut PostgresConfig),
    ) -> Result<Self> {
        cluster::to_one(&spec, &*observer)?;
        let data_dir = Arc::new(DataDir::open(spec, &*observer)?);
        let mut config = PostgresConfig::new(data_dir);
        configure(&mut config);
        let server = Postgres::start(config, observer)?;
        if cluster::is_cluster(server.data_dir().root()) {
            cluster::drop_slots(server.data_dir(), server.endpoint())?;
        }
        Ok(Self::One(server))
    }

    /// Starts several nodes; `patroni` is the folder for environments. A signal meanwhile stops what has been started, and is
    /// an error then.
    pub(crate) fn several(
        spec: impl FnOnce(Environment) -> ClusterSpec,
        run_as: &RunAs,
        patroni: Option<PathBuf>,
        observer: Arc<dyn Observer>,
        signals: &Signals,
    ) -> Result<Self> {
        let base = patroni.map_or_else(|| default_cache(run_as.switches()), Ok)?;
        let environment = Environment::prepare(&base, run_as, &*observer)?;
        // From now on there is something to end in order.
        signals.running();
        let pause = |time| {
            let is_asked = matches!(signals.wait_for(time), Some(Wake::Signal | Wake::End | Wake::Down(_)));
            if is_asked {
                tracing::info!("stopping what has been started; press Ctrl-C again to hasten that");
            }
            !is_asked
        };
        Ok(Self::Several(Box::new(Cluster::start_unless(spec(environment), observer, &pause)?)))
    }

    pub(crate) fn data_dir(&self) -> &Arc<DataDir> {
        match self {
            Self::One(server) => server.data_dir(),
            Self::Several(cluster) => cluster.data_dir(),
        }
    }

    /// The endpoint of the server that may be written to, as of now.
    pub(crate) fn primary(&self) -> Result<Endpoint> {
        match self {
            Self::One(server) => Ok(server.endpoint().clone()),
            Self::Several(cluster) => {
                let leader =
                    cluster.leader().ok_or_else(|| anyhow!("the cluster has lost its leader while starting"))?;
                Ok(cluster.endpoint(leader))
            }
        }
    }

    /// PostgreSQL's log.
    pub(crate) fn log(&self) -> PathBuf {
        match self {
            Self::One(server) => server.data_dir().log_file(),
            Self::Several(cluster) => cluster.nodes()[0].log.with_file_name("node*.log"),
        }
    }

    /// The nodes with their roles, where there are several.
    pub(crate) fn nodes(&self) -> Vec<NodeLine> {
        let Self::Several(cluster) = self else { return Vec::new() };
        let members = cluster.look();
        let role = |name: &str| members.members.iter().find(|member| member.name == name).map(|member| &*member.role);
        let line = |node: &Node| NodeLine {
            name: node.name.clone(),
            role: role(&node.name).unwrap_or("unknown").replace('_', " "),
            postgres: node.postgres,
            patroni: node.rest,
        };
        cluster.nodes().iter().map(line).collect()
    }

    /// The same as the pool is told: it finds the primary of a cluster by itself.
    pub(crate) fn for_pool(&self) -> FileServer {
        match self {
            Self::One(server) => server.endpoint().for_pool(),
            Self::Several(cluster) => cluster.for_pool(),
        }
    }

    /// Tells the nodes of a cluster where the pool's console is, by which clients are held before one is stopped.
    pub(crate) fn tell_pool(&self, listen: SocketAddr, lookup: &Lookup) -> Result<()> {
        match self {
            Self::One(_) => Ok(()),
            Self::Several(cluster) => Ok(cluster.tell_pool(listen, lookup)?),
        }
    }

    /// The limits of the class, enforced or not.
    pub(crate) fn class(&self) -> ClassReport {
        match self {
            Self::One(server) => server.class(),
            Self::Several(_) => ClassReport::default(),
        }
    }

    /// While the pool waits for transactions: ends these with a fast shutdown of PostgreSQL. After that: an immediate
    /// one. Several nodes are shut down one after the other, the primary last, and Patroni waits for its transactions
    /// first: they are ended before.
    pub(crate) fn hasten<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        match self {
            Self::One(server) => {
                let is_stopping = server.state() == State::Stopping;
                server.request_stop(if is_stopping { StopMode::Immediate } else { StopMode::Fast });
            }
            Self::Several(cluster) if cluster.is_stopping() => cluster.request_stop(StopMode::Immediate),
            Self::Several(cluster) => {
                scope.spawn(|| {
                    cluster.end_sessions();
                    cluster.stop(StopMode::Fast)
                });
            }
        }
    }

    /// Stops all of it.
    pub(crate) fn stop(&self) -> Result<()> {
        let killed = "PostgreSQL had to be killed; the next start recovers its data from the log";
        let report = match self {
            Self::One(server) => server.stop(StopMode::Fast),
            Self::Several(cluster) => cluster.stop(StopMode::Fast),
        };
        if let Self::One(server) = self {
            match server.state() {
                State::Stopped(_) => {}
                // It was down before; the reason is told by the caller.
                State::Failed { .. } => return Ok(()),
                state => bail!("PostgreSQL did not end in time ({state:?})"),
            }
        }
        if report.mode == Some(StopMode::Kill) {
            bail!("{killed}");
        }
        if let Some(status) = report.failed {
            bail!(
                "PostgreSQL did not shut down in order ({status}); the next start recovers its data from the log\n\
                 {} says why",
                self.log().display()
            );
        }
        tracing::info!("stopped");
        Ok(())
    }
}

pub(crate) fn default_cache(root: bool) -> Result<PathBuf> {
    if root {
        return Ok(SYSTEM_CACHE.into());
    }
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|dir| dir.join("sluice"))
        .ok_or_else(|| anyhow!("neither XDG_CACHE_HOME nor HOME names a folder\nchoose one with --patroni-dir DIR"))
}
