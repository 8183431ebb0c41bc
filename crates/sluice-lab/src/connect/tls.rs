//! TLS to a server, by libpq's words and its usual file of authorities.

use std::path::{Path, PathBuf};

use sluice_tls::{ClientFiles, ClientTls, MakeError, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

pub(super) use sluice_tls::SYSTEM;

/// TLS for a mode, with `sslrootcert`, or else libpq's usual file; without either, `verify-full` trusts the authorities
/// that the system does.
pub(super) fn load(mode: SslMode, authorities: Option<&str>, usual: Option<PathBuf>) -> Result<ClientTls, MakeError> {
    let root_cert = authorities.map(PathBuf::from).or(usual.filter(|usual| usual.exists()));
    let root_cert = root_cert.or((mode == SslMode::VerifyFull).then(|| Path::new(SYSTEM).to_owned()));
    ClientTls::load(mode, &ClientFiles { root_cert, own: None })
}

/// The words for why it can't be had, with the remedy.
pub(super) fn words(error: &MakeError) -> String {
    match error {
        MakeError::File(error) => format!(
            "cannot read the authorities that sslrootcert names: {error}\n\
             name a file of certificates in PEM, or sslrootcert=system"
        ),
        MakeError::NoAuthorities(_) => format!("{error}, or put it into ~/.postgresql/root.crt"),
        error => error.to_string(),
    }
}

/// The driver's means to connect by it.
pub(super) fn connector(tls: &ClientTls) -> MakeRustlsConnect {
    MakeRustlsConnect::new((**tls.config()).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_that_are_missing_are_named() {
        let error = |path: &str| load(SslMode::VerifyFull, Some(path), None).unwrap_err().to_string();
        assert!(error("/nowhere/ca.pem").contains("/nowhere/ca.pem"));
        assert!(load(SslMode::Require, None, Some("/nowhere".into())).is_ok());
        let error = words(&load(SslMode::VerifyCa, None, None).unwrap_err());
        assert!(error.contains("a file of authorities") && error.contains(".postgresql/root.crt"), "{error}");
    }
}
