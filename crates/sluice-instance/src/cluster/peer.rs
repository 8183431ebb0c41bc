//! The PostgreSQL of a node as it is asked: as the superuser where its data are, by its Unix socket; of another host of
//! the cluster as pg_rewind's role, which a host's certificate lets in, and which may read what pg_rewind reads.

use std::{error::Error as _, io, path::Path, sync::mpsc, thread, time::Duration};

use postgres::{Client, Config, NoTls, config::SslMode, error::DbError};
use sluice_tls::ClientTls;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{roles::REWIND, shutdown::superuser};
use crate::bootstrap::{SEARCH_PATH, words};

/// The time for an answer. One that is stopped where it is says nothing.
const ASK_TIME_MAX: Duration = Duration::from_secs(5);

/// A way to a node's PostgreSQL.
#[derive(Debug, Clone, Copy)]
pub enum Reach<'a> {
    /// Its data directory is on this machine.
    Here(&'a Path),
    /// On another host, at this address.
    Host {
        /// Its name or IP address.
        host: &'a str,
        /// PostgreSQL's port.
        port: u16,
        /// This host's certificate.
        tls: &'a ClientTls,
    },
}

impl Reach<'_> {
    /// Asks it; `None` where none runs.
    pub(super) fn ask<T: Send + 'static>(
        self,
        ask: impl FnOnce(&mut Client) -> Result<T, postgres::Error> + Send + 'static,
    ) -> io::Result<Option<T>> {
        self.ask_and_hear(|_| {}, ask)
    }

    /// The same, with what it says besides its answers.
    pub(super) fn ask_and_hear<T: Send + 'static>(
        self,
        hear: impl Fn(DbError) + Send + Sync + 'static,
        ask: impl FnOnce(&mut Client) -> Result<T, postgres::Error> + Send + 'static,
    ) -> io::Result<Option<T>> {
        let (host, port, tls) = match self {
            Self::Here(pgdata) => {
                let Some(mut config) = superuser(pgdata)? else { return Ok(None) };
                config.notice_callback(hear);
                return within_time(move || ask(&mut config.connect(NoTls)?)).map(Some);
            }
            Self::Host { host, port, tls } => (host, port, tls),
        };
        match ask_host(host, port, tls, hear, ask) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(None),
            told => told.map(Some),
        }
    }
}

/// Asks the PostgreSQL at that address.
pub(super) fn ask<T: Send + 'static>(
    host: &str,
    port: u16,
    tls: &ClientTls,
    ask: impl FnOnce(&mut Client) -> Result<T, postgres::Error> + Send + 'static,
) -> io::Result<T> {
    ask_host(host, port, tls, |_| {}, ask)
}

fn ask_host<T: Send + 'static>(
    host: &str,
    port: u16,
    tls: &ClientTls,
    hear: impl Fn(DbError) + Send + Sync + 'static,
    ask: impl FnOnce(&mut Client) -> Result<T, postgres::Error> + Send + 'static,
) -> io::Result<T> {
    let mut config = Config::new();
    config.host(host).port(port).user(REWIND).dbname("postgres").application_name("sluice cluster");
    config.ssl_mode(SslMode::Require).connect_timeout(ASK_TIME_MAX).options(SEARCH_PATH).notice_callback(hear);
    let tls = MakeRustlsConnect::new((**tls.config()).clone());
    within_time(move || ask(&mut config.connect(tls)?))
}

/// An answer, within the time for one.
fn within_time<T: Send + 'static>(ask: impl FnOnce() -> Result<T, postgres::Error> + Send + 'static) -> io::Result<T> {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let _nobody_waits = done.send(ask());
    });
    is_done.recv_timeout(ASK_TIME_MAX).map_err(io::Error::other)?.map_err(|error| with_words(&error))
}

/// The driver's error, of the kind that its cause is of.
fn with_words(error: &postgres::Error) -> io::Error {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    io::Error::new(cause.map_or(io::ErrorKind::Other, io::Error::kind), words(error))
}
