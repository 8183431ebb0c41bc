//! An authority for the hosts of one cluster, and a certificate for each: `sluice node ca`.
//!
//! ```text
//! DIR/ca.crt, ca.key              the authority; its key stays with whoever makes certificates
//! DIR/NAME/ca.crt, node.crt, node.key   what goes to a host
//! ```
//!
//! Nothing is overwritten: what is there already is looked at, and kept if it is what was asked for.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::ServerName;

use super::certificates;
use crate::certificate::{BEFORE, LIFETIME};

/// The authority's name, by which certificates say who has signed them.
const AUTHORITY: &str = "sluice node authority";

/// A host's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// The folder.
    pub dir: PathBuf,
    /// It was made just now.
    pub is_new: bool,
}

/// Reasons why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A folder that is there already is not what was asked for.
    #[error("{}: {why}\nmove it away, and its certificate is made anew", path.display())]
    Other {
        /// The file or folder.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// The authority is not whole.
    #[error(
        "{}: {why}\nput back both ca.crt and ca.key; or name a new folder, and give all hosts new certificates",
        path.display()
    )]
    Authority {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// A file can't be made.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The action that failed, as a verb.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Certificates can't be made.
    #[error("a certificate can't be made: {0}")]
    Make(#[from] rcgen::Error),
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> AuthorityError {
    let path = path.to_owned();
    move |source| AuthorityError::Io { what, path, source }
}

/// Makes the authority in that folder, unless it is there, and a bundle for each host, by name and addresses.
///
/// # Errors
///
/// What is there already and is something else; files that can't be made.
pub fn make_bundles(dir: &Path, hosts: &[(String, Vec<IpAddr>)]) -> Result<Vec<Bundle>, AuthorityError> {
    make_dir(dir)?;
    let (issuer, ca) = authority(dir)?;
    hosts.iter().map(|(name, addresses)| bundle(dir, &issuer, &ca, name, addresses)).collect()
}

/// The authority: its key, with the certificate's text.
fn authority(dir: &Path) -> Result<(Issuer<'static, KeyPair>, String), AuthorityError> {
    let (cert_path, key_path) = (dir.join("ca.crt"), dir.join("ca.key"));
    let mut params = params(Vec::new(), AUTHORITY)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let bad = |path: &Path, why: &str| AuthorityError::Authority { path: path.to_owned(), why: why.to_owned() };
    let key = match (cert_path.exists(), key_path.exists()) {
        (false, false) => {
            let key = KeyPair::generate()?;
            let cert = params.self_signed(&key)?;
            write_new(&key_path, &key.serialize_pem(), 0o600)?;
            write_new(&cert_path, &cert.pem(), 0o644)?;
            key
        }
        (true, true) => {
            let text = fs::read_to_string(&key_path).map_err(io_error("read", &key_path))?;
            KeyPair::from_pem(&text).map_err(|error| bad(&key_path, &error.to_string()))?
        }
        (false, true) => return Err(bad(&cert_path, "is missing, and ca.key is there")),
        (true, false) => return Err(bad(&key_path, "is missing, and ca.crt is there")),
    };
    let text = fs::read_to_string(&cert_path).map_err(io_error("read", &cert_path))?;
    Ok((Issuer::new(params, key), text))
}

fn bundle(
    dir: &Path,
    issuer: &Issuer<'_, KeyPair>,
    ca: &str,
    name: &str,
    addresses: &[IpAddr],
) -> Result<Bundle, AuthorityError> {
    let place = dir.join(name);
    let names: Vec<String> = std::iter::once(name.to_owned()).chain(addresses.iter().map(IpAddr::to_string)).collect();
    let is_new = !place.exists();
    if is_new {
        // Whole or not at all: what an interrupted run has left is no bundle.
        let half = dir.join(format!("{name}.new"));
        match fs::remove_dir_all(&half) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", &half)(error)),
            _ => make_dir(&half)?,
        }
        let mut params = params(names.clone(), name)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, issuer)?;
        write_new(&half.join("ca.crt"), ca, 0o644)?;
        write_new(&half.join("node.crt"), &cert.pem(), 0o644)?;
        write_new(&half.join("node.key"), &key.serialize_pem(), 0o600)?;
        fs::rename(&half, &place).map_err(io_error("create", &place))?;
    }
    let cert = place.join("node.crt");
    let other = |why: String| AuthorityError::Other { path: cert.clone(), why };
    let chain = certificates::read(&cert).map_err(other)?;
    // Also a new one: an authority whose key and certificate don't belong together is found here.
    let roots = certificates::roots(&dir.join("ca.crt"));
    let roots = roots.map_err(|why| AuthorityError::Authority { path: dir.join("ca.crt"), why })?;
    for host in &names {
        let wrong = |why: String| {
            if is_new {
                // Nobody has it yet.
                let _ = fs::remove_dir_all(&place);
                return AuthorityError::Authority { path: dir.join("ca.key"), why };
            }
            AuthorityError::Other { path: place.clone(), why: format!("its certificate is not for {host}: {why}") }
        };
        let server = ServerName::try_from(host.clone()).map_err(|error| other(error.to_string()))?;
        certificates::verify(&roots, &chain, server).map_err(wrong)?;
    }
    Ok(Bundle { dir: place, is_new })
}

fn params(names: Vec<String>, common_name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = (SystemTime::now() - BEFORE).into();
    params.not_after = (SystemTime::now() + LIFETIME).into();
    Ok(params)
}

fn make_dir(path: &Path) -> Result<(), AuthorityError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io_error("create", path)(error)),
        _ => Ok(()),
    }
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), AuthorityError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(io_error("write", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn host(name: &str, address: &str) -> (String, Vec<IpAddr>) {
        (name.to_owned(), vec![address.parse().unwrap()])
    }

    #[test]
    fn a_further_host_gets_one_and_nothing_is_overwritten() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("ca");
        let made = make_bundles(&dir, &[host("node1", "10.0.0.1"), host("node2", "fd00::2")]).unwrap();
        assert!(made.iter().all(|bundle| bundle.is_new));
        let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
        let before = ["ca.crt", "ca.key", "node1/node.crt", "node1/node.key"].map(read);
        for name in ["ca.key", "node1/node.key", "node2/node.key"] {
            assert_eq!(fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
        }
        let made = make_bundles(&dir, &[host("node1", "10.0.0.1"), host("node3", "10.0.0.3")]).unwrap();
        assert_eq!(made.iter().map(|bundle| bundle.is_new).collect::<Vec<_>>(), [false, true]);
        assert_eq!(["ca.crt", "ca.key", "node1/node.crt", "node1/node.key"].map(read), before);
        assert_eq!(read("node3/ca.crt"), before[0]);
        assert!(!dir.join("node3/ca.key").exists());

        let error = make_bundles(&dir, &[host("node1", "10.0.0.9")]).unwrap_err().to_string();
        assert!(error.contains("not for 10.0.0.9") && error.contains("move it away"), "{error}");
        // Another authority's key.
        fs::write(dir.join("ca.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
        let error = make_bundles(&dir, &[host("node4", "10.0.0.4")]).unwrap_err().to_string();
        assert!(error.contains("put back both"), "{error}");
        assert!(!dir.join("node4").exists());
        fs::remove_file(dir.join("ca.key")).unwrap();
        let error = make_bundles(&dir, &[host("node4", "10.0.0.4")]).unwrap_err().to_string();
        assert!(error.contains("ca.key: is missing"), "{error}");
    }
}
