//! TLS to a server, as libpq's `sslmode` means it: encryption alone, or with a look at who is at the other end.
//!
//! Source: PostgreSQL's documentation, section 34.19 ("SSL Support").

use std::{
    fmt, io,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// `sslmode`. `allow` is taken as `prefer`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    Disable,
    /// If the server has it.
    #[default]
    Prefer,
    Require,
    /// The certificate has to come from an authority that is trusted.
    VerifyCa,
    /// And to be the host's.
    VerifyFull,
}

impl Mode {
    /// libpq's word.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }
}

/// No such word.
#[derive(Debug, PartialEq)]
pub(super) struct UnknownMode;

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        Ok(match text {
            "disable" => Self::Disable,
            "allow" | "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => return Err(UnknownMode),
        })
    }
}

/// The TLS connector, with what connections verify.
#[derive(Clone)]
pub(super) struct Tls(MakeRustlsConnect);

impl fmt::Debug for Tls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Tls")
    }
}

/// Why there is nothing to verify a server with. The fault is the operator's.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsError {
    /// The file of authorities can't be had.
    #[error(
        "cannot read the authorities that sslrootcert names: {}: {source}\n\
         name a file of certificates in PEM, or sslrootcert=system", path.display()
    )]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `system` with a mode that would not look at the name: anybody has a certificate from some authority.
    #[error("sslrootcert=system asks for sslmode=verify-full: other modes take any name")]
    SystemAnyName,
    /// There is nothing to look at.
    #[error(
        "sslmode=verify-ca asks for a file of authorities: name it in sslrootcert, or put it into ~/.postgresql/root.crt"
    )]
    NoAuthorities,
    /// The system has no certificates of authorities.
    #[error("the system knows no authorities that could be trusted: apt-get install ca-certificates")]
    NoneTrusted,
    /// The library's own.
    #[error("TLS can't be used: {0}")]
    Library(#[from] rustls::Error),
}

/// `sslrootcert=system`: the authorities that the system trusts.
pub(super) const SYSTEM: &str = "system";

impl Tls {
    /// For a mode, with `sslrootcert`, or else libpq's usual file.
    pub(super) fn new(mode: Mode, authorities: Option<&str>, usual: Option<&Path>) -> Result<Self, TlsError> {
        let authorities = authorities.map(Path::new).or(usual.filter(|usual| usual.exists()));
        let provider = Arc::new(ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let is_system = authorities == Some(Path::new(SYSTEM));
        let trusted = match (mode, authorities) {
            (Mode::VerifyFull, None) => Some(system()?),
            (Mode::VerifyFull, Some(_)) if is_system => Some(system()?),
            (_, Some(_)) if is_system => return Err(TlsError::SystemAnyName),
            (Mode::VerifyCa, None) => return Err(TlsError::NoAuthorities),
            (Mode::Disable | Mode::Prefer, _) | (Mode::Require, None) => None,
            (Mode::Require | Mode::VerifyCa | Mode::VerifyFull, Some(path)) => Some(file(path)?),
        };
        let mut config = match (mode, trusted) {
            (Mode::VerifyFull, trusted) => {
                builder.with_root_certificates(trusted.ok_or(TlsError::NoAuthorities)?).with_no_client_auth()
            }
            (_, trusted) => {
                let verifier = AnyName { trusted, provider };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
            }
        };
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Self(MakeRustlsConnect::new(config)))
    }

    pub(super) fn connector(&self) -> MakeRustlsConnect {
        self.0.clone()
    }
}

fn file(path: &Path) -> Result<RootCertStore, TlsError> {
    let failed = |source| TlsError::Authorities { path: path.to_owned(), source };
    let mut trusted = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| failed(io::Error::other(error)))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| failed(io::Error::other(error)))?;
        trusted.add(certificate).map_err(|error| failed(io::Error::other(error)))?;
    }
    match trusted.is_empty() {
        true => Err(failed(io::Error::other("it holds no certificate"))),
        false => Ok(trusted),
    }
}

fn system() -> Result<RootCertStore, TlsError> {
    let mut trusted = RootCertStore::empty();
    trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if trusted.is_empty() { Err(TlsError::NoneTrusted) } else { Ok(trusted) }
}

/// A server by whatever name: from a trusted authority, or, without any, whoever answers.
#[derive(Debug)]
struct AnyName {
    trusted: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(trusted) = &self.trusted {
            let own = ParsedCertificate::try_from(own)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&own, trusted, intermediates, now, algorithms)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        assert_eq!("verify-full".parse(), Ok(Mode::VerifyFull));
        assert_eq!("allow".parse(), Ok(Mode::Prefer));
        assert_eq!("Require".parse::<Mode>(), Err(UnknownMode));
    }

    #[test]
    fn authorities_that_are_missing_are_named() {
        let error = |path: &str| Tls::new(Mode::VerifyFull, Some(path), None).unwrap_err().to_string();
        assert!(error("/nowhere/ca.pem").contains("/nowhere/ca.pem"));
        assert!(error("/dev/null").contains("holds no certificate"));
        assert!(Tls::new(Mode::Require, None, Some(Path::new("/nowhere"))).is_ok());
        let refused = |mode, authorities| Tls::new(mode, authorities, None).unwrap_err().to_string();
        assert!(refused(Mode::VerifyCa, Some(SYSTEM)).contains("sslmode=verify-full"));
        assert!(refused(Mode::VerifyCa, None).contains("a file of authorities"));
    }
}
