//! Certificates and keys as they stand in files.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use rustls::{
    RootCertStore,
    pki_types::{
        CertificateDer, CertificateRevocationListDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
};
use sha2::{Digest, Sha256};
use thiserror::Error;
use x509_cert::{
    der::{Decode, Tag, Tagged, asn1::AnyRef},
    ext::pkix::KeyUsage,
};

use crate::certificate::{self, parts};

/// A file that is not what it should be.
#[derive(Debug, Error)]
#[error("{}: {fault}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The fault.
    pub fault: String,
    /// The remedy.
    pub remedy: &'static str,
}

/// The reason why TLS can't be had by what was given for it. The fault is the operator's.
#[derive(Debug, Error)]
pub enum MakeError {
    /// A file is not what it should be.
    #[error("{0}")]
    File(#[from] FileError),
    /// `system` with a mode that would not look at the name: anybody has a certificate of some authority.
    #[error("sslrootcert=system asks for sslmode=verify-full: other modes take any name")]
    SystemAnyName,
    /// There is nothing to verify a server with.
    #[error("sslmode={0} asks for a file of authorities: name it in sslrootcert")]
    NoAuthorities(crate::SslMode),
    /// The system has no certificates of authorities.
    #[error("the system knows no authorities that could be trusted: apt-get install ca-certificates")]
    NoneTrusted,
    /// A certificate and a key do not belong together, or are of a kind that is not known.
    #[error("{}: {source}", path.display())]
    Pair {
        /// The file of the certificate.
        path: PathBuf,
        /// The library's reason.
        source: rustls::Error,
    },
    /// Another reason of the library's.
    #[error("TLS can't be used: {0}")]
    Library(#[from] rustls::Error),
}

/// A hash of what was read: TLS made of the same files is the same.
#[derive(Default)]
pub(crate) struct Fingerprint(Sha256);

impl Fingerprint {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// The largest file that is read, in bytes: all authorities of a system, several times.
const FILE_BYTES_MAX: u64 = 4 << 20;

fn read(path: &Path, fingerprint: &mut Fingerprint) -> Result<Vec<u8>, FileError> {
    let failed = |fault: String, remedy| FileError { path: path.to_owned(), fault, remedy };
    let cannot = |error: io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => "create it, or name another one",
            _ => "let the user that Sluice runs as read it",
        };
        failed(error.to_string(), remedy)
    };
    // Asked before the file is opened: opening a pipe would wait for its writer.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(failed("not a file".to_owned(), "give the path of a file"));
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(cannot)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(format!("larger than {FILE_BYTES_MAX} bytes"), "make it smaller"));
    }
    fingerprint.add(&bytes);
    Ok(bytes)
}

/// The certificates in a PEM file; there is at least one.
pub(crate) fn certificates(
    path: &Path,
    fingerprint: &mut Fingerprint,
) -> Result<Vec<CertificateDer<'static>>, FileError> {
    pem_items(path, fingerprint, "certificate", "give certificates in PEM: -----BEGIN CERTIFICATE-----")
}

/// The revocation lists in a PEM file; there is at least one, and none of version 1, which `rustls` does not take.
pub(crate) fn revocation_lists(
    path: &Path,
    fingerprint: &mut Fingerprint,
) -> Result<Vec<CertificateRevocationListDer<'static>>, FileError> {
    let remedy = "give certificate revocation lists in PEM: -----BEGIN X509 CRL-----";
    let lists = pem_items(path, fingerprint, "revocation list", remedy)?;
    if lists.iter().any(is_of_version_1) {
        let fault = "a list of version 1, which is not read".to_owned();
        let remedy = "make one of version 2: with crlnumber in openssl.cnf";
        return Err(FileError { path: path.to_owned(), fault, remedy });
    }
    Ok(lists)
}

/// Whether a revocation list is of version 1: such a one does not say of which version it is.
fn is_of_version_1(list: &CertificateRevocationListDer<'_>) -> bool {
    let begins_with = || parts(parts(&AnyRef::from_der(list).ok()?)?.first()?)?.first().map(|field| field.tag());
    begins_with() == Some(Tag::Sequence)
}

/// All of one kind in a PEM file; there is at least one.
fn pem_items<T: PemObject>(
    path: &Path,
    fingerprint: &mut Fingerprint,
    what: &str,
    remedy: &'static str,
) -> Result<Vec<T>, FileError> {
    let failed = |fault: String| FileError { path: path.to_owned(), fault, remedy };
    let bytes = read(path, fingerprint)?;
    let found: Result<Vec<_>, _> = T::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| failed(format!("not a {what} in PEM: {}", words(&error))))?;
    if found.is_empty() { Err(failed(format!("it holds no {what}"))) } else { Ok(found) }
}

/// The words for what is wrong with a PEM file: its lines as text, which the error has as numbers.
fn words(error: &pem::Error) -> String {
    let text = |line: &[u8]| String::from_utf8_lossy(line).trim_end().escape_debug().to_string();
    match error {
        pem::Error::MissingSectionEnd { end_marker } => format!("the section \"{}\" has no end", text(end_marker)),
        pem::Error::IllegalSectionStart { line } => format!("no section begins by \"{}\"", text(line)),
        other => other.to_string(),
    }
}

/// The private key in a PEM file that nobody but its owner, or a group of root's, may read: as PostgreSQL demands it.
pub(crate) fn private_key(path: &Path, fingerprint: &mut Fingerprint) -> Result<PrivateKeyDer<'static>, FileError> {
    let failed = |fault: &str, remedy| FileError { path: path.to_owned(), fault: fault.to_owned(), remedy };
    let bytes = read(path, fingerprint)?;
    check_mode(path)?;
    match PrivateKeyDer::from_pem_slice(&bytes) {
        Ok(key) => Ok(key),
        Err(_) if bytes.windows(9).any(|part| part == b"ENCRYPTED") => {
            let remedy = "keep it without one: openssl pkey -in KEY -out NEW, mode 0600";
            Err(failed("the private key has a passphrase", remedy))
        }
        Err(_) => Err(failed("it holds no private key in PEM", "give the key of the certificate")),
    }
}

fn check_mode(path: &Path) -> Result<(), FileError> {
    use std::os::unix::fs::MetadataExt;
    const OTHERS: u32 = 0o077;
    const OTHERS_THAN_GROUP: u32 = 0o037;
    // It has just been read.
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    let is_open = metadata.mode() & if metadata.uid() == 0 { OTHERS_THAN_GROUP } else { OTHERS } != 0;
    if !is_open {
        return Ok(());
    }
    let fault = format!("others may read the private key: its mode is {:04o}", metadata.mode() & 0o7777);
    Err(FileError { path: path.to_owned(), fault, remedy: "chmod 0600, or 0640 where root owns it" })
}

/// Authorities to trust.
#[derive(Debug)]
pub(crate) struct Trusted {
    pub(crate) roots: RootCertStore,
    /// Their certificates: a server may show one of these itself.
    pub(crate) own: Vec<CertificateDer<'static>>,
}

impl Trusted {
    pub(crate) fn from_file(path: &Path, fingerprint: &mut Fingerprint) -> Result<Self, FileError> {
        let own = certificates(path, fingerprint)?;
        let mut roots = RootCertStore::empty();
        for certificate in &own {
            roots.add(certificate.clone()).map_err(|error| FileError {
                path: path.to_owned(),
                fault: format!("a certificate can't be used: {error}"),
                remedy: "give certificates of authorities in X.509, version 3",
            })?;
        }
        Ok(Self { roots, own })
    }

    /// Those of them whose keys are for certificates, as OpenSSL has it of authorities.
    pub(crate) fn that_certify(self, path: &Path) -> Result<Self, FileError> {
        let mut roots = RootCertStore::empty();
        let certify = self.own.iter().filter(|it| certificate::is_for(it, KeyUsage::key_cert_sign));
        roots.add_parsable_certificates(certify.cloned());
        if roots.is_empty() {
            return Err(FileError {
                path: path.to_owned(),
                fault: "no certificate's key is for certificates (keyCertSign in its key usage)".to_owned(),
                remedy: "give those of the authorities by which clients' certificates are signed",
            });
        }
        Ok(Self { roots, ..self })
    }

    pub(crate) fn of_system() -> Result<Self, MakeError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() { Err(MakeError::NoneTrusted) } else { Ok(Self { roots, own: Vec::new() }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_certificate_is_said_to_be_one_in_words() {
        let folder = tempfile::tempdir().expect("a folder");
        for (text, fault) in [
            ("-----BEGIN CERTIFICATE-----\nMIIB\n", "the section \"CERTIFICATE\" has no end"),
            ("-----BEGIN CERTIFICATE\n", "no section begins by \"-----BEGIN CERTIFICATE\""),
        ] {
            let path = folder.path().join("half");
            fs::write(&path, text).expect("a file");
            let error = certificates(&path, &mut Fingerprint::default()).expect_err("it is half a certificate");
            assert!(error.fault.ends_with(fault), "{}", error.fault);
        }
    }

    #[test]
    fn what_is_no_file_or_too_large_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let large = folder.path().join("large");
        fs::File::create(&large).and_then(|file| file.set_len(FILE_BYTES_MAX + 1)).expect("a file");
        // A pipe would have its reader wait; whatever is no file is as good as one here.
        for (path, fault) in
            [(folder.path(), "not a file"), (Path::new("/dev/zero"), "not a file"), (&large, "larger than")]
        {
            let error = certificates(path, &mut Fingerprint::default()).expect_err("it is refused");
            assert!(error.fault.contains(fault), "{error}");
        }
    }
}
