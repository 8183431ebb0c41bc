//! The PostgreSQL of a node as another host of the cluster asks it: as pg_rewind's role, which a host's certificate lets
//! in, and which may read what pg_rewind reads.

use std::{error::Error as _, io, sync::mpsc, thread, time::Duration};

use postgres::{Client, Config, config::SslMode};
use sluice_tls::ClientTls;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::roles::REWIND;
use crate::bootstrap::{SEARCH_PATH, words};

/// The time for an answer. One that is stopped where it is says nothing.
const ASK_TIME_MAX: Duration = Duration::from_secs(5);

/// Asks the PostgreSQL at that address.
pub(super) fn ask<T: Send + 'static>(
    host: &str,
    port: u16,
    tls: &ClientTls,
    ask: impl FnOnce(&mut Client) -> Result<T, postgres::Error> + Send + 'static,
) -> io::Result<T> {
    let mut config = Config::new();
    config.host(host).port(port).user(REWIND).dbname("postgres").application_name("sluice cluster");
    config.ssl_mode(SslMode::Require).connect_timeout(ASK_TIME_MAX).options(SEARCH_PATH);
    let tls = MakeRustlsConnect::new((**tls.config()).clone());
    within_time(move || ask(&mut config.connect(tls)?))
}

/// The same for any way to it.
pub(super) fn within_time<T: Send + 'static>(
    ask: impl FnOnce() -> Result<T, postgres::Error> + Send + 'static,
) -> io::Result<T> {
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
