//! The pool, as this command sees it: a configuration file in, a running service out.
//!
//! The one file that calls `sluice-proxy`.

use std::{net::SocketAddr, path::Path};

use anyhow::{Result, anyhow};
use sluice_config::Config;
use sluice_proxy::{Reloaded, Service};

use crate::signals::{Signals, Wake};

/// A running pool.
pub(crate) struct Pool {
    service: Service,
}

impl Pool {
    /// Starts the pool on a configuration.
    pub(crate) fn start(config: Config) -> Result<Self> {
        Ok(Self { service: Service::start(config)? })
    }

    /// The addresses that it listens on, with the ports that the system chose for port 0.
    pub(crate) fn listen_addrs(&self) -> Vec<SocketAddr> {
        self.service.listen_addrs()
    }

    /// The Unix socket that it listens on, if there is one.
    pub(crate) fn unix_socket(&self) -> Option<&Path> {
        self.service.unix_socket()
    }

    /// The system interface that moves the bytes.
    pub(crate) fn driver(&self) -> &'static str {
        self.service.driver()
    }

    /// Reads the configuration file again and applies it as a whole, or not at all if anything in it is wrong. The log
    /// says what has changed.
    pub(crate) fn reload(&self, path: &Path) {
        match load(path).and_then(|config| Ok(self.service.reload(&config)?)) {
            Ok(reloaded) => report(path, &reloaded),
            Err(error) => tracing::error!("not reloaded, and everything stays as it was: {error:#}"),
        }
    }

    /// Ends it: new clients are refused, transactions may finish within `shutdown_grace`.
    pub(crate) fn shutdown(self) {
        self.service.shutdown();
    }
}

fn report(path: &Path, reloaded: &Reloaded) {
    let Reloaded { changes, after_restart } = reloaded;
    tracing::info!(
        "{} read again: {}",
        path.display(),
        match changes.len() {
            0 => "nothing has changed".to_owned(),
            1 => "1 change".to_owned(),
            count => format!("{count} changes"),
        }
    );
    for change in changes {
        tracing::info!("  {change}");
    }
    for key in after_restart {
        tracing::warn!("  \"{key}\" can't change before a restart");
    }
}

/// Reads and checks a configuration; the error lists all that is wrong with it.
pub(crate) fn load(path: &Path) -> Result<Config> {
    sluice_config::load(path).map_err(|report| anyhow!("{report}"))
}

/// `sluice serve`: the pool alone, until a signal.
pub(crate) fn serve(path: &Path) -> Result<()> {
    let config = load(path)?;
    let signals = Signals::install()?;
    let pool = Pool::start(config)?;
    for address in pool.listen_addrs() {
        tracing::info!("listening on {address} ({})", pool.driver());
    }
    if let Some(path) = pool.unix_socket() {
        tracing::info!("listening on {} ({})", path.display(), pool.driver());
    }
    signals.running();
    while signals.wait() == Wake::Reload {
        pool.reload(path);
    }
    tracing::info!("stopping: transactions may finish; a second signal ends at once");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Returns when `signals` is told to end, or with the second signal.
            if signals.wait_again() {
                tracing::warn!("ending at once");
                std::process::exit(1);
            }
        });
        pool.shutdown();
        signals.end();
    });
    Ok(())
}

/// `sluice check`: tells whether `serve` would accept the file.
pub(crate) fn check(path: &Path) -> Result<()> {
    load(path)?;
    println!("{}: good", path.display());
    Ok(())
}
