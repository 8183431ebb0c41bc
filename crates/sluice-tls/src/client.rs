//! The client's side of TLS, as libpq's `sslmode` means it: encryption alone, or with a look at who is at the other end.
//!
//! Source: PostgreSQL's documentation, section 34.19 ("SSL Support").

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor, verify_server_name,
    },
    crypto::{WebPkiSupportedAlgorithms, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use x509_cert::ext::pkix::KeyUsage;

use crate::{
    ALPN, Expiry, MakeError, SslMode, certificate,
    files::{self, Fingerprint, Trusted},
    version1::{self, Protocol},
};

/// `sslrootcert=system`: the authorities that the system trusts.
pub const SYSTEM: &str = "system";

/// The files of the client's side, by libpq's names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// `sslrootcert`: the authorities to trust.
    pub root_cert: Option<PathBuf>,
    /// `sslcert` and `sslkey`: the certificate to show, and its private key.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// TLS to servers.
#[derive(Clone)]
pub struct ClientTls {
    /// The demands on a server.
    pub mode: SslMode,
    /// The end of the validity of the certificate that it shows, if it has one.
    pub expiry: Option<Expiry>,
    config: Arc<ClientConfig>,
    fingerprint: [u8; 32],
}

impl ClientTls {
    /// Reads the files.
    pub fn load(mode: SslMode, files: &ClientFiles) -> Result<Self, MakeError> {
        let mut fingerprint = Fingerprint::default();
        let provider = Arc::new(ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let is_system = files.root_cert.as_deref() == Some(Path::new(SYSTEM));
        let trusted = match (mode, &files.root_cert) {
            (SslMode::VerifyFull, Some(_)) if is_system => Some(Trusted::of_system()?),
            (_, Some(_)) if is_system => return Err(MakeError::SystemAnyName),
            (SslMode::VerifyCa | SslMode::VerifyFull, None) => return Err(MakeError::NoAuthorities(mode)),
            (SslMode::Disable | SslMode::Allow | SslMode::Prefer, _) | (SslMode::Require, None) => None,
            (SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull, Some(path)) => {
                Some(Trusted::from_file(path, &mut fingerprint)?)
            }
        };
        fingerprint.add(mode.name().as_bytes());
        let algorithms = provider.signature_verification_algorithms;
        let verifier = Verifier { trusted, checks_name: mode == SslMode::VerifyFull, algorithms };
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        let mut expiry = None;
        let mut config = match &files.own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = files::certificates(cert, &mut fingerprint)?;
                let key = files::private_key(key, &mut fingerprint)?;
                expiry = Expiry::of(&chain);
                let own = version1::own(chain, key, &provider);
                builder.with_client_cert_resolver(own.map_err(|source| MakeError::Pair { path: cert.clone(), source })?)
            }
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self { mode, expiry, config: Arc::new(config), fingerprint: fingerprint.finish() })
    }

    /// The library's configuration.
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for ClientTls {}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientTls({})", self.mode)
    }
}

/// The look at a server's certificate: none at all, at who has signed it, or at its name as well.
#[derive(Debug)]
struct Verifier {
    trusted: Option<Trusted>,
    checks_name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The uses of a server's key in TLS.
fn is_for_servers(uses: &KeyUsage) -> bool {
    uses.digital_signature() || uses.key_encipherment() || uses.key_agreement()
}

impl Verifier {
    fn check_name(&self, own: &CertificateDer<'_>, host: &ServerName<'_>) -> Result<(), rustls::Error> {
        if !self.checks_name || certificate::is_named_by_common_name(own, host) {
            return Ok(());
        }
        if version1::is_one(own) {
            // It has no other name.
            return Err(CertificateError::NotValidForName.into());
        }
        verify_server_name(&ParsedCertificate::try_from(own)?, host)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(trusted) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        // PostgreSQL's documentation (19.9.5) has a server's own certificate be the one to trust.
        if trusted.own.iter().any(|certificate| certificate == own) {
            if !certificate::is_valid_at(own, now) {
                return Err(CertificateError::Expired.into());
            }
        } else if version1::is_one(own) {
            version1::check(own, trusted, now, &self.algorithms)?;
        } else {
            let parsed = ParsedCertificate::try_from(own)?;
            let (roots, algorithms) = (&trusted.roots, self.algorithms.all);
            let certifies = |it: &&CertificateDer<'_>| certificate::is_for(it, KeyUsage::key_cert_sign);
            let intermediates: Vec<_> = intermediates.iter().filter(certifies).cloned().collect();
            verify_server_cert_signed_by_trust_anchor(&parsed, roots, &intermediates, now, algorithms)?;
        }
        // The library does not look at what keys are for; OpenSSL does, and so libpq.
        if !version1::is_one(own) && !certificate::is_for(own, is_for_servers) {
            return Err(CertificateError::InvalidPurpose.into());
        }
        self.check_name(own, host)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        version1::check_handshake(Protocol::Tls12, message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        version1::check_handshake(Protocol::Tls13, message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_that_are_missing_are_named() {
        let refused = |mode, authorities: Option<&str>| {
            let files = ClientFiles { root_cert: authorities.map(PathBuf::from), own: None };
            ClientTls::load(mode, &files).expect_err("there is nothing to trust").to_string()
        };
        assert!(refused(SslMode::VerifyFull, Some("/nowhere/ca.pem")).contains("/nowhere/ca.pem"));
        let empty = tempfile::NamedTempFile::new().expect("a file");
        assert!(refused(SslMode::VerifyFull, empty.path().to_str()).contains("holds no certificate"));
        assert!(refused(SslMode::VerifyCa, Some(SYSTEM)).contains("sslmode=verify-full"));
        assert!(refused(SslMode::VerifyCa, None).contains("sslmode=verify-ca asks for a file of authorities"));
        assert!(ClientTls::load(SslMode::Require, &ClientFiles::default()).is_ok());
    }
}
