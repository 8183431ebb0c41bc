//! Certificates of X.509 version 1, which `rustls` does not take: they are what `openssl x509 -req` makes unless it is
//! told otherwise, as in PostgreSQL's own documentation (19.9.5), so that many servers have one.
//!
//! Such a certificate says nothing of what it is for, and can't be an authority's. It is accepted where one of the
//! trusted authorities has signed it itself.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, InconsistentKeys,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, SignatureVerificationAlgorithm, UnixTime},
    sign::{CertifiedKey, SingleCertAndKey},
};
use x509_cert::{
    Certificate, Version,
    der::{Decode, Encode, asn1::AnyRef},
    spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned},
};

use crate::{certificate, files::Trusted};

fn parse(der: &CertificateDer<'_>) -> Option<Certificate> {
    Certificate::from_der(der).ok().filter(|certificate| certificate.tbs_certificate.version == Version::V1)
}

/// Whether it is one of version 1.
pub(crate) fn is_one(der: &CertificateDer<'_>) -> bool {
    parse(der).is_some()
}

/// Checks that it is one that a trusted authority has signed, and that its time has come and has not gone.
pub(crate) fn check(
    der: &CertificateDer<'_>,
    trusted: &Trusted,
    now: UnixTime,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), CertificateError> {
    let certificate = parse(der).ok_or(CertificateError::BadEncoding)?;
    if !certificate::is_valid_at(der, now) {
        return Err(CertificateError::Expired);
    }
    let signed = certificate.tbs_certificate.to_der().map_err(|_| CertificateError::BadEncoding)?;
    let signature = certificate.signature.raw_bytes();
    let has_signed = |authority: &CertificateDer<'_>| {
        let Ok(authority) = Certificate::from_der(authority) else { return false };
        let authority = authority.tbs_certificate;
        authority.subject == certificate.tbs_certificate.issuer
            && algorithms
                .all
                .iter()
                .filter(|it| is_id(&certificate.signature_algorithm, it.signature_alg_id()))
                .any(|algorithm| is_signed(&authority.subject_public_key_info, *algorithm, &signed, signature))
    };
    if trusted.own.iter().any(has_signed) { Ok(()) } else { Err(CertificateError::UnknownIssuer) }
}

fn is_signed(
    key: &SubjectPublicKeyInfoOwned,
    algorithm: &dyn SignatureVerificationAlgorithm,
    message: &[u8],
    signature: &[u8],
) -> bool {
    is_id(&key.algorithm, algorithm.public_key_alg_id())
        && algorithm.verify_signature(key.subject_public_key.raw_bytes(), message, signature).is_ok()
}

/// Whether an algorithm is the one with that id, which the library writes without its outermost header.
fn is_id(algorithm: &AlgorithmIdentifierOwned, id: rustls::pki_types::AlgorithmIdentifier) -> bool {
    let Ok(der) = algorithm.to_der() else { return false };
    AnyRef::from_der(&der).is_ok_and(|any| any.value() == id.as_ref())
}

/// The version of the protocol in which something was signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Tls12,
    Tls13,
}

/// Checks what the other side has signed in a handshake with the key of its certificate, of whatever version that is.
pub(crate) fn check_handshake(
    protocol: Protocol,
    message: &[u8],
    der: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let Some(certificate) = parse(der) else {
        return match protocol {
            Protocol::Tls12 => verify_tls12_signature(message, der, signature, algorithms),
            Protocol::Tls13 => verify_tls13_signature(message, der, signature, algorithms),
        };
    };
    let known = algorithms.mapping.iter().find(|(scheme, _)| *scheme == signature.scheme).map(|(_, known)| *known);
    let mut known = known.unwrap_or_default();
    if protocol == Protocol::Tls13 {
        if !is_of_tls13(signature.scheme) {
            return Err(rustls::PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
        }
        // The scheme says all there; in 1.2 the curve is the key's own.
        known = known.get(..1).unwrap_or_default();
    }
    let key = &certificate.tbs_certificate.subject_public_key_info;
    match known.iter().any(|algorithm| is_signed(key, *algorithm, message, signature.signature())) {
        true => Ok(HandshakeSignatureValid::assertion()),
        false => Err(CertificateError::BadSignature.into()),
    }
}

/// Whether TLS 1.3 has that scheme (RFC 8446, section 4.2.3): none by PKCS #1 or by SHA-1.
fn is_of_tls13(scheme: rustls::SignatureScheme) -> bool {
    use rustls::SignatureScheme as S;
    matches!(
        scheme,
        S::ECDSA_NISTP256_SHA256
            | S::ECDSA_NISTP384_SHA384
            | S::ECDSA_NISTP521_SHA512
            | S::RSA_PSS_SHA256
            | S::RSA_PSS_SHA384
            | S::RSA_PSS_SHA512
            | S::ED25519
    )
}

/// A certificate of whatever version with its key, as it is shown to the other side.
pub(crate) fn own(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<Arc<SingleCertAndKey>, Error> {
    let certificate = chain.first().and_then(parse);
    let Some(certificate) = certificate else {
        return Ok(Arc::new(CertifiedKey::from_der(chain, key, provider)?.into()));
    };
    let key = provider.key_provider.load_private_key(key)?;
    let public = certificate.tbs_certificate.subject_public_key_info.to_der().ok();
    let matches = key.public_key().zip(public).is_none_or(|(of_key, of_certificate)| of_key.as_ref() == of_certificate);
    if !matches {
        return Err(InconsistentKeys::KeyMismatch.into());
    }
    Ok(Arc::new(CertifiedKey::new(chain, key).into()))
}
