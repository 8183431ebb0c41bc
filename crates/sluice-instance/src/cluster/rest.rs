//! The nodes' and etcd's members' addresses, for the one client of Patroni's REST API (`sluice-patroni`): all are on this
//! machine, and none is encrypted.

use std::{net::SocketAddr, time::Duration};

use sluice_control::cluster::Rest;
pub use sluice_patroni::{Answer, AskError, Member, Members, Method};
use sluice_patroni::{Credentials, Own, Question};

use crate::secret::Password;

/// The user's name for requests that change something.
pub const USER: &str = "sluice";

/// The API at an address.
pub fn at(address: SocketAddr) -> Rest {
    Rest { is_encrypted: false, host: address.ip().to_string(), port: address.port() }
}

/// Asks for `path`.
///
/// # Errors
///
/// Why there is no answer.
pub fn get(address: SocketAddr, path: &str, time_max: Duration) -> Result<Answer, AskError> {
    Question { rest: &at(address), tls: None, credentials: None, time_max }.get(path)
}

/// Sends a request that changes something, with a body in JSON.
///
/// # Errors
///
/// Why there is no answer.
pub fn send(
    address: SocketAddr,
    method: Method,
    path: &str,
    password: &Password,
    body: &str,
    time_max: Duration,
) -> Result<Answer, AskError> {
    let credentials = Credentials { user: USER.to_owned(), password: password.expose().to_owned() };
    Question { rest: &at(address), tls: None, credentials: Some(&credentials), time_max }.ask(method, path, body)
}

/// Asks one node for all.
pub(super) fn members(address: SocketAddr, time_max: Duration) -> Result<Members, AskError> {
    Members::ask(&Question { rest: &at(address), tls: None, credentials: None, time_max })
}

/// Asks a node for its own PostgreSQL.
pub(super) fn own(address: SocketAddr, time_max: Duration) -> Result<Own, AskError> {
    Own::ask(&Question { rest: &at(address), tls: None, credentials: None, time_max })
}
