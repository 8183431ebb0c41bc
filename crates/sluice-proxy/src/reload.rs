//! The configuration file read again: applied as a whole, or not at all.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use sluice_config::{Config, Problem, Report};
use sluice_control::{Change, settings::PoolSettings};
use sluice_core::hub::Hub;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use crate::{
    control::Order,
    files,
    open_files::{OpenFiles, check_open_files},
    resolver::Resolver,
};

/// The reason why a configuration is not applied. Nothing of it is.
#[derive(Debug, Error)]
pub(crate) enum ReloadError {
    /// Something is wrong with it, or with a file that it names.
    #[error("{0}")]
    Files(#[from] Report),
    /// The process may not have as many files open as it demands.
    #[error("{0}")]
    OpenFiles(#[from] OpenFiles),
    /// The service is ending.
    #[error("the service is ending")]
    Ending,
}

/// The effect of a reload.
#[derive(Debug)]
struct Reloaded {
    /// The differences from before.
    changes: Vec<Change>,
    /// Keys whose new values count after a restart only.
    after_restart: Vec<&'static str>,
    /// Things that are worth a word.
    warnings: Vec<Problem>,
}

/// Whoever has the configuration read again.
#[derive(Debug)]
pub(crate) struct Reloader {
    pub(crate) file: PathBuf,
    /// The configuration that the service was started with.
    pub(crate) started: Config,
    /// The settings of pools whose databases have none of their own, as they were read last.
    pub(crate) pool: Mutex<PoolSettings>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) orders: mpsc::Sender<Order>,
    /// Taken by whoever reads the file: the one that is read last is the one that counts.
    pub(crate) turn: Mutex<()>,
}

impl Reloader {
    /// Reads the file again, and says in the log what has come of it. The error is in the log, too.
    pub(crate) fn reload_and_log(&self) -> Result<(), String> {
        match self.reload() {
            Ok(reloaded) => {
                self.log(&reloaded);
                Ok(())
            }
            Err(error) => {
                tracing::error!("not reloaded, and everything stays as it was: {error}");
                Err(error.to_string())
            }
        }
    }

    /// Work that is under way by what has gone ends in its own time.
    fn reload(&self) -> Result<Reloaded, ReloadError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let config = sluice_config::load(&self.file)?;
        check_open_files(&config)?;
        let configuration = Box::new(files::configuration(&config)?);
        let snapshot = self.hub.snapshot();
        let primaries = snapshot.clusters.iter().filter_map(|it| it.primary.as_ref()).map(|it| &it.address);
        let readers = snapshot.databases.iter().flat_map(|it| &it.readers).map(|it| &it.address);
        self.resolver.know(files::addresses(&config).iter().chain(primaries).chain(readers));
        files::derive(&self.hub, &configuration.access);
        let (done, changes) = oneshot::channel();
        let order = Order::Configure(configuration, done);
        self.orders.blocking_send(order).map_err(|_| ReloadError::Ending)?;
        let changes = changes.blocking_recv().map_err(|_| ReloadError::Ending)?;
        *self.pool.lock().unwrap_or_else(PoisonError::into_inner) = config.pool.clone();
        Ok(Reloaded { changes, after_restart: after_restart(&self.started, &config), warnings: config.warnings })
    }

    /// The settings of pools whose databases have none of their own.
    pub(crate) fn pool(&self) -> PoolSettings {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn log(&self, Reloaded { changes, after_restart, warnings }: &Reloaded) {
        let count = match (changes.len(), after_restart.len()) {
            (0, 0) => "nothing has changed".to_owned(),
            (0, _) => "no change takes effect now".to_owned(),
            (1, _) => "1 change".to_owned(),
            (count, _) => format!("{count} changes"),
        };
        tracing::info!("{} read again: {count}", self.file.display());
        for change in changes {
            tracing::info!("  {change}");
        }
        for key in after_restart {
            tracing::warn!("  \"{key}\" has changed, which counts after a restart only");
        }
        for warning in warnings {
            tracing::warn!("  {}", warning.in_one_line());
        }
    }
}

/// The keys that differ and are read at the start only.
fn after_restart(started: &Config, now: &Config) -> Vec<&'static str> {
    let differ = [
        ("listen", started.listen != now.listen),
        ("unix_socket_dir", started.unix_socket_dir != now.unix_socket_dir),
        ("driver", started.driver != now.driver),
        ("workers", started.workers != now.workers),
        ("shutdown_grace", started.shutdown_grace != now.shutdown_grace),
        ("upgrade_grace", started.upgrade_grace != now.upgrade_grace),
        ("tcp_user_timeout", started.tcp_user_timeout != now.tcp_user_timeout),
        ("stats_period", started.stats_period != now.stats_period),
        ("http_listen", started.http_listen != now.http_listen),
    ];
    differ.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
}
