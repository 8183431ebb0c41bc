//! Patroni's REST APIs of a cluster, for the one client of them (`sluice-patroni`): in clear on one machine, where a
//! password is shown by whoever changes something; by TLS between hosts, where a certificate is.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use sluice_control::cluster::Rest;
pub use sluice_patroni::{Answer, AskError, Member, Members, Method};
use sluice_patroni::{Credentials, Own, Question};
use sluice_tls::{ClientFiles, ClientTls, SslMode};

use super::tls::TlsFiles;
use crate::secret::Password;

/// The user's name for requests that change something.
pub const USER: &str = "sluice";

/// A client of the APIs of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Api {
    tls: Option<Arc<ClientTls>>,
    credentials: Option<Credentials>,
}

impl Api {
    /// In clear; by that password something may be changed.
    pub(super) fn with_password(password: &Password) -> Self {
        let credentials = Credentials { user: USER.to_owned(), password: password.expose().to_owned() };
        Self { tls: None, credentials: Some(credentials) }
    }

    /// By TLS, with a certificate.
    ///
    /// # Errors
    ///
    /// Files that are not what they should be; the message names the file.
    pub(super) fn with_certificate(files: &TlsFiles) -> Result<Self, sluice_tls::MakeError> {
        Ok(Self { tls: Some(Arc::new(client_tls(files)?)), credentials: None })
    }

    /// TLS to the other hosts, with this one's certificate.
    pub(super) fn tls(&self) -> Option<&ClientTls> {
        self.tls.as_deref()
    }

    /// The API at an address.
    pub fn at(&self, address: SocketAddr) -> Rest {
        Rest { is_encrypted: self.tls.is_some(), host: address.ip().to_string(), port: address.port() }
    }

    /// Asks for `path`.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub fn get(&self, address: SocketAddr, path: &str, time_max: Duration) -> Result<Answer, AskError> {
        self.question(&self.at(address), time_max).get(path)
    }

    /// Sends a request that changes something, with a body in JSON.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub fn send(
        &self,
        address: SocketAddr,
        method: Method,
        path: &str,
        body: &str,
        time_max: Duration,
    ) -> Result<Answer, AskError> {
        let rest = self.at(address);
        let question = self.question(&rest, time_max);
        Question { credentials: self.credentials.as_ref(), ..question }.ask(method, path, body)
    }

    /// Asks one node for all.
    pub(super) fn members(&self, address: SocketAddr, time_max: Duration) -> Result<Members, AskError> {
        Members::ask(&self.question(&self.at(address), time_max))
    }

    /// Asks a node for its own PostgreSQL.
    pub(super) fn own(&self, address: SocketAddr, time_max: Duration) -> Result<Own, AskError> {
        Own::ask(&self.question(&self.at(address), time_max))
    }

    fn question<'a>(&'a self, rest: &'a Rest, time_max: Duration) -> Question<'a> {
        Question { rest, addresses: &[], tls: self.tls.as_deref(), credentials: None, time_max }
    }
}

/// TLS to the nodes of a cluster, each of which has to show that it is one.
pub(super) fn client_tls(files: &TlsFiles) -> Result<ClientTls, sluice_tls::MakeError> {
    let own = Some((files.cert.clone(), files.key.clone()));
    ClientTls::load(SslMode::VerifyFull, &ClientFiles { root_cert: Some(files.ca.clone()), own })
}
