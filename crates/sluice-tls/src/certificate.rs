//! The parts of certificates that `rustls` does not read.

use std::time::{Duration, SystemTime};

use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use x509_cert::{
    Certificate,
    der::{
        Decode, Reader, SliceReader, Tag, TagNumber, Tagged,
        asn1::{AnyRef, ObjectIdentifier},
        oid::db::{
            rfc4519::COMMON_NAME,
            rfc5912::{
                ECDSA_WITH_SHA_224, ECDSA_WITH_SHA_256, ECDSA_WITH_SHA_384, ECDSA_WITH_SHA_512, ID_CE_SUBJECT_ALT_NAME,
                ID_RSASSA_PSS, ID_SHA_1, ID_SHA_224, ID_SHA_256, ID_SHA_384, ID_SHA_512, SHA_1_WITH_RSA_ENCRYPTION,
                SHA_224_WITH_RSA_ENCRYPTION, SHA_256_WITH_RSA_ENCRYPTION, SHA_384_WITH_RSA_ENCRYPTION,
                SHA_512_WITH_RSA_ENCRYPTION,
            },
        },
    },
    ext::pkix::KeyUsage,
    spki::AlgorithmIdentifierOwned,
};

const MD5_WITH_RSA_ENCRYPTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.4");
const ECDSA_WITH_SHA_1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.1");

/// The field `[0]` of a sequence.
const FIELD_0: Tag = Tag::ContextSpecific { constructed: true, number: TagNumber::N0 };

/// The parts of what is constructed.
pub(crate) fn parts<'a>(of: &AnyRef<'a>) -> Option<Vec<AnyRef<'a>>> {
    let mut reader = SliceReader::new(of.value()).ok()?;
    let mut parts = Vec::new();
    while !reader.is_finished() {
        parts.push(reader.decode().ok()?);
    }
    Some(parts)
}

/// The hash of a certificate that SCRAM's channel binding `tls-server-end-point` takes (RFC 5929, section 4.1): by the
/// hash of its signature, SHA-256 where that is MD5 or SHA-1. `None` where it has none of its own, as Ed25519.
pub(crate) fn end_point_hash(der: &CertificateDer<'_>) -> Option<Box<[u8]>> {
    let certificate = Certificate::from_der(der).ok()?;
    match signature_hash(&certificate.signature_algorithm)? {
        ID_SHA_1 | ID_SHA_256 => Some(Sha256::digest(der)[..].into()),
        ID_SHA_224 => Some(Sha224::digest(der)[..].into()),
        ID_SHA_384 => Some(Sha384::digest(der)[..].into()),
        ID_SHA_512 => Some(Sha512::digest(der)[..].into()),
        _ => None,
    }
}

/// The hash that is a part of a signature; SHA-1 for MD5, too, which are treated alike.
fn signature_hash(algorithm: &AlgorithmIdentifierOwned) -> Option<ObjectIdentifier> {
    match algorithm.oid {
        MD5_WITH_RSA_ENCRYPTION | SHA_1_WITH_RSA_ENCRYPTION | ECDSA_WITH_SHA_1 => Some(ID_SHA_1),
        SHA_224_WITH_RSA_ENCRYPTION | ECDSA_WITH_SHA_224 => Some(ID_SHA_224),
        SHA_256_WITH_RSA_ENCRYPTION | ECDSA_WITH_SHA_256 => Some(ID_SHA_256),
        SHA_384_WITH_RSA_ENCRYPTION | ECDSA_WITH_SHA_384 => Some(ID_SHA_384),
        SHA_512_WITH_RSA_ENCRYPTION | ECDSA_WITH_SHA_512 => Some(ID_SHA_512),
        ID_RSASSA_PSS => {
            // Its parameters say (RFC 4055, section 3.1), and SHA-1 is what they need not say.
            let parameters = parts(&algorithm.parameters.as_ref()?.into())?;
            let Some(hash) = parameters.iter().find(|field| field.tag() == FIELD_0) else { return Some(ID_SHA_1) };
            parts(parts(hash)?.first()?)?.first()?.decode_as().ok()
        }
        _ => None,
    }
}

/// The common name of a certificate's subject: the first one of several, in the order in which they are encoded, as
/// OpenSSL gives it to libpq and to PostgreSQL.
pub fn common_name(der: &CertificateDer<'_>) -> Option<String> {
    text(&encoded_common_name(der)?)
}

/// Whether a zero byte is in it. PostgreSQL lets nobody in by such a certificate, whatever its rules say.
pub(crate) fn has_zero_in_common_name(der: &CertificateDer<'_>) -> bool {
    encoded_common_name(der).is_some_and(|name| name.value().contains(&0))
}

fn encoded_common_name<'a>(der: &'a CertificateDer<'_>) -> Option<AnyRef<'a>> {
    let certificate = parts(&AnyRef::from_der(der).ok()?)?;
    let mut fields = parts(certificate.first()?)?;
    fields.retain(|field| field.tag() != FIELD_0);
    // Behind the serial number, the signature's algorithm, the issuer and the validity.
    for set in parts(fields.get(4)?)? {
        for attribute in parts(&set)? {
            let [kind, value] = parts(&attribute)?[..] else { return None };
            if kind.decode_as::<ObjectIdentifier>().ok()? == COMMON_NAME {
                return Some(value);
            }
        }
    }
    None
}

/// The end of the validity of a file's certificates: of the one that expires first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    at: SystemTime,
    date: String,
}

impl Expiry {
    /// The time before it from which on it is worth a warning.
    const WARN_BEFORE: Duration = Duration::from_secs(14 * 24 * 60 * 60);

    /// That of these certificates; `None` where there are none that can be read.
    pub fn of(certificates: &[CertificateDer<'_>]) -> Option<Self> {
        let ends = certificates.iter().filter_map(|der| Certificate::from_der(der).ok());
        let first = ends.map(|it| it.tbs_certificate.validity.not_after).min_by_key(|end| end.to_unix_duration())?;
        let date = first.to_date_time();
        let date = format!("{:04}-{:02}-{:02}", date.year(), date.month(), date.day());
        Some(Self { at: first.to_system_time(), date })
    }

    /// The moment.
    pub fn at(&self) -> SystemTime {
        self.at
    }

    /// Its date, in UTC: `2026-11-27`.
    pub fn date(&self) -> &str {
        &self.date
    }

    /// Whether it has come.
    pub fn is_over(&self, now: SystemTime) -> bool {
        self.at <= now
    }

    /// The warning in the last two weeks and behind them: `has expired, on 2026-11-27`.
    pub fn warning(&self, now: SystemTime) -> Option<String> {
        let is_near = self.at <= now + Self::WARN_BEFORE;
        let what = if self.is_over(now) { "has expired, on" } else { "expires on" };
        is_near.then(|| format!("{what} {}", self.date))
    }
}

/// A name as text. One with a zero byte is none, as for libpq and PostgreSQL.
fn text(value: &AnyRef<'_>) -> Option<String> {
    let is_of_bytes =
        matches!(value.tag(), Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::TeletexString);
    let text = str::from_utf8(value.value()).ok()?;
    (is_of_bytes && !text.contains('\0')).then(|| text.to_owned())
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

/// Whether a certificate's key is for some use: where the certificate does not say, it is for any (RFC 5280, section
/// 4.2.1.3). One that can't be read here, as its serial number is too long, is the library's alone to judge.
pub(crate) fn is_for(der: &CertificateDer<'_>, allows: impl Fn(&KeyUsage) -> bool) -> bool {
    let Ok(certificate) = Certificate::from_der(der) else { return true };
    match certificate.tbs_certificate.get::<KeyUsage>() {
        Ok(uses) => uses.is_none_or(|(_, uses)| allows(&uses)),
        Err(_) => false,
    }
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
