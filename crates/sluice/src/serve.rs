//! The pool, as this command sees it: a configuration file in, a running service out.
//!
//! The one file that calls `sluice-proxy`.

use std::{net::SocketAddr, path::Path};

use anyhow::{Result, anyhow};
use sluice_proxy::Service;

use crate::signals::{Signals, Wake};

/// A running pool.
pub(crate) struct Pool {
    service: Service,
}

impl Pool {
    /// Starts the pool on a configuration file.
    pub(crate) fn start(file: &Path) -> Result<Self> {
        Ok(Self { service: Service::start(file)? })
    }

    /// The addresses at which it tells metrics and health, with the ports that the system chose for port 0.
    pub(crate) fn http_addrs(&self) -> &[SocketAddr] {
        self.service.http_addrs()
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

    /// Reads its configuration file again; the log says what has come of it.
    pub(crate) fn reload(&self) {
        self.service.reload();
    }

    /// Ends it: new clients are refused, transactions may finish within `shutdown_grace`.
    pub(crate) fn shutdown(self) {
        self.service.shutdown();
    }
}

/// `sluice serve`: the pool alone, until a signal.
pub(crate) fn serve(path: &Path) -> Result<()> {
    let signals = Signals::install()?;
    let pool = Pool::start(path)?;
    for address in pool.http_addrs() {
        tracing::info!("metrics at http://{address}/metrics");
    }
    for address in pool.listen_addrs() {
        tracing::info!("listening on {address} ({})", pool.driver());
    }
    if let Some(path) = pool.unix_socket() {
        tracing::info!("listening on {} ({})", path.display(), pool.driver());
    }
    signals.running();
    while signals.wait() == Wake::Reload {
        pool.reload();
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
    let config = sluice_config::load(path).map_err(|report| anyhow!("{report}"))?;
    for warning in &config.warnings {
        eprintln!("warning: {warning}");
    }
    println!("{}: good", path.display());
    Ok(())
}
