//! The parts of certificates that `rustls` does not read.

use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_cert::{
    Certificate,
    der::{
        Decode, Encode,
        asn1::{Ia5StringRef, ObjectIdentifier, PrintableStringRef, Utf8StringRef},
        oid::db::{
            rfc4519::COMMON_NAME,
            rfc5912::{
                ECDSA_WITH_SHA_256, ECDSA_WITH_SHA_384, ECDSA_WITH_SHA_512, ID_CE_SUBJECT_ALT_NAME,
                SHA_1_WITH_RSA_ENCRYPTION, SHA_256_WITH_RSA_ENCRYPTION, SHA_384_WITH_RSA_ENCRYPTION,
                SHA_512_WITH_RSA_ENCRYPTION,
            },
        },
    },
};

const MD5_WITH_RSA_ENCRYPTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.4");

/// The hash of a certificate that SCRAM's channel binding `tls-server-end-point` takes (RFC 5929, section 4.1): by the
/// hash of its signature, SHA-256 where that is MD5 or SHA-1. `None` where it has none of its own, as Ed25519.
pub(crate) fn end_point_hash(der: &CertificateDer<'_>) -> Option<Box<[u8]>> {
    let certificate = Certificate::from_der(der).ok()?;
    match certificate.signature_algorithm.oid {
        MD5_WITH_RSA_ENCRYPTION | SHA_1_WITH_RSA_ENCRYPTION | SHA_256_WITH_RSA_ENCRYPTION | ECDSA_WITH_SHA_256 => {
            Some(Sha256::digest(der)[..].into())
        }
        SHA_384_WITH_RSA_ENCRYPTION | ECDSA_WITH_SHA_384 => Some(Sha384::digest(der)[..].into()),
        SHA_512_WITH_RSA_ENCRYPTION | ECDSA_WITH_SHA_512 => Some(Sha512::digest(der)[..].into()),
        _ => None,
    }
}

/// The common name of a certificate's subject, the last one of several.
pub(crate) fn common_name(der: &CertificateDer<'_>) -> Option<String> {
    let certificate = Certificate::from_der(der).ok()?;
    let names = certificate.tbs_certificate.subject.0.iter().flat_map(|set| set.0.iter());
    let name = names.rev().find(|name| name.oid == COMMON_NAME)?;
    let der = name.value.to_der().ok()?;
    let text = Utf8StringRef::from_der(&der).map(|text| text.as_str().to_owned());
    let text = text.or_else(|_| PrintableStringRef::from_der(&der).map(|text| text.as_str().to_owned()));
    text.or_else(|_| Ia5StringRef::from_der(&der).map(|text| text.as_str().to_owned())).ok()
}

/// Whether a certificate without alternative names is for that host by its common name, as libpq takes it (PostgreSQL
/// documentation, 34.19.1).
pub(crate) fn is_named_by_common_name(der: &CertificateDer<'_>, host: &ServerName<'_>) -> bool {
    let has_alternatives = Certificate::from_der(der).map_or(true, |certificate| {
        let extensions = certificate.tbs_certificate.extensions.unwrap_or_default();
        extensions.iter().any(|extension| extension.extn_id == ID_CE_SUBJECT_ALT_NAME)
    });
    match common_name(der) {
        Some(name) if !has_alternatives => is_match(&name, &host.to_str()),
        _ => false,
    }
}

/// Whether a name, of which the first label may be `*`, is that host's.
fn is_match(name: &str, host: &str) -> bool {
    if name.eq_ignore_ascii_case(host) {
        return true;
    }
    let Some(domain) = name.strip_prefix("*.") else { return false };
    host.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && domain.eq_ignore_ascii_case(rest))
}

/// Whether a certificate is valid at that time, by its own word.
pub(crate) fn is_valid_at(der: &CertificateDer<'_>, now: UnixTime) -> bool {
    let Ok(certificate) = Certificate::from_der(der) else { return false };
    let validity = certificate.tbs_certificate.validity;
    let seconds = |time: x509_cert::time::Time| time.to_unix_duration().as_secs();
    (seconds(validity.not_before)..=seconds(validity.not_after)).contains(&now.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_label() {
        for (name, host, matches) in [
            ("db.example", "DB.example", true),
            ("*.example", "db.example", true),
            ("*.example", "a.db.example", false),
            ("*.example", ".example", false),
            ("*.example", "example", false),
            ("db*.example", "db1.example", false),
        ] {
            assert_eq!(is_match(name, host), matches, "{name} {host}");
        }
    }
}
