//! The server's side of TLS: the certificate that clients see, and what is asked of them.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring},
    pki_types::{CertificateDer, UnixTime},
    server::{
        NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use x509_cert::ext::pkix::KeyUsage;

use crate::{
    ALPN, Expiry, FileError, MakeError, certificate,
    files::{self, Fingerprint, Trusted},
    version1::{self, Protocol},
};

/// The files of the server's side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// The certificate, followed by those between it and an authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities that clients' certificates have to come from; `None`: clients are not asked for one.
    pub client_ca: Option<PathBuf>,
    /// The revocation lists of those authorities; `None`: revocation is not checked.
    pub client_crl: Option<PathBuf>,
}

/// TLS for clients that connect.
pub struct ServerTls {
    pub(crate) config: Arc<ServerConfig>,
    /// The hash of the certificate for SCRAM's channel binding, if it has one.
    pub end_point: Option<Box<[u8]>>,
    /// The end of its validity.
    pub expiry: Option<Expiry>,
    fingerprint: [u8; 32],
}

impl ServerTls {
    /// Reads the files.
    pub fn load(files: &ServerFiles) -> Result<Self, MakeError> {
        let mut fingerprint = Fingerprint::default();
        let chain = files::certificates(&files.cert, &mut fingerprint)?;
        let key = files::private_key(&files.key, &mut fingerprint)?;
        let end_point = chain.first().and_then(certificate::end_point_hash);
        let expiry = Expiry::of(&chain);
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let trusted = Trusted::from_file(path, &mut fingerprint)?.that_certify(path)?;
                let inner = verifier(&trusted, files.client_crl.as_deref(), &provider, &mut fingerprint)?;
                let algorithms = provider.signature_verification_algorithms;
                let looks_at_lists = files.client_crl.is_some();
                let verifier = ClientVerifier { inner, trusted, algorithms, looks_at_lists };
                builder.with_client_cert_verifier(Arc::new(verifier))
            }
        };
        let own = version1::own(chain, key, &provider);
        let own = own.map_err(|source| MakeError::Pair { path: files.cert.clone(), source })?;
        let mut config = builder.with_cert_resolver(own);
        config.alpn_protocols = vec![ALPN.to_vec()];
        // As PostgreSQL: nobody comes back to a session of before, and nobody waits for the means to.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { config: Arc::new(config), end_point, expiry, fingerprint: fingerprint.finish() })
    }
}

/// The library's look at clients' certificates.
fn verifier(
    trusted: &Trusted,
    lists: Option<&Path>,
    provider: &Arc<CryptoProvider>,
    fingerprint: &mut Fingerprint,
) -> Result<Arc<dyn ClientCertVerifier>, MakeError> {
    let roots = Arc::new(trusted.roots.clone());
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).allow_unauthenticated();
    let failed = |error: VerifierBuilderError| MakeError::Library(rustls::Error::General(error.to_string()));
    let Some(path) = lists else { return builder.build().map_err(failed) };
    // As OpenSSL for PostgreSQL: each certificate's authority has a list, which has not expired.
    let builder = builder.with_crls(files::revocation_lists(path, fingerprint)?).enforce_revocation_expiration();
    builder.build().map_err(|error| match error {
        VerifierBuilderError::InvalidCrl(error) => MakeError::File(FileError {
            path: path.to_owned(),
            fault: format!("a revocation list can't be read: {error:?}"),
            remedy: "give lists as RFC 5280 has them: complete ones of version 2, with a number and the time of the next",
        }),
        error => failed(error),
    })
}

impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for ServerTls {}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls(…)")
    }
}

/// The look at a client's certificate, of whatever version that is. None is asked for that must be there: who has none is
/// told so in PostgreSQL's protocol.
#[derive(Debug)]
struct ClientVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    trusted: Trusted,
    algorithms: WebPkiSupportedAlgorithms,
    looks_at_lists: bool,
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if certificate::has_zero_in_common_name(own) {
            return Err(rustls::Error::General("the certificate's common name has a zero byte".to_owned()));
        }
        if !version1::is_one(own) {
            // The library does not look at what keys are for; OpenSSL does, and so PostgreSQL.
            let certifies = |it: &&CertificateDer<'_>| certificate::is_for(it, KeyUsage::key_cert_sign);
            let intermediates: Vec<_> = intermediates.iter().filter(certifies).cloned().collect();
            let verified = self.inner.verify_client_cert(own, &intermediates, now)?;
            return match certificate::is_for(own, |uses| uses.digital_signature() || uses.key_agreement()) {
                true => Ok(verified),
                false => Err(CertificateError::InvalidPurpose.into()),
            };
        }
        if self.looks_at_lists {
            // Nobody knows such a one's list here.
            return Err(CertificateError::UnknownRevocationStatus.into());
        }
        version1::check(own, &self.trusted, now, &self.algorithms)?;
        Ok(ClientCertVerified::assertion())
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
        self.inner.supported_verify_schemes()
    }
}
