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
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, ServerName};
use sluice_tls::{Expiry, MakeError};

use super::{
    super::{rest, tls::TlsFiles},
    certificates,
};
use crate::{
    certificate::{BEFORE, LIFETIME},
    files::if_there,
};

/// The authority's name, by which certificates say who has signed them.
const AUTHORITY: &str = "sluice node authority";

/// A certificate that ends so much earlier than another is worth no word.
const SLACK: Duration = Duration::from_secs(365 * 24 * 60 * 60);

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
    /// Two hosts are named with the same address.
    #[error("{name} and {other} can't both have the address {address}\ngive each host its own")]
    Twice {
        /// The host.
        name: String,
        /// The one before it.
        other: String,
        /// The address.
        address: IpAddr,
    },
    /// An address is in the certificate of another host.
    #[error(
        "{name} can't have the address {address}: the certificate of {other} is for it\ngive {name} its own; or, where {other} \
         is gone for good, move {} out of that folder",
        place.display()
    )]
    Taken {
        /// The host.
        name: String,
        /// The one that has it.
        other: String,
        /// The address.
        address: IpAddr,
        /// The other one's folder.
        place: PathBuf,
    },
    /// A folder that is there already is not what was asked for.
    #[error("{}: {why}\nmove it away, and its certificate is made anew", path.display())]
    Other {
        /// The file or folder.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// A host's folder lacks the authority that its certificate is of.
    #[error("{}: {why}\ncopy {} there", path.display(), ca.display())]
    Copy {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
        /// The authority's certificate.
        ca: PathBuf,
    },
    /// The authority can't be used any more, or not here.
    #[error("{}: {why}", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The fault, and the remedy.
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
    check_addresses(dir, hosts)?;
    make_dir(dir)?;
    let authority = authority(dir)?;
    hosts.iter().map(|(name, addresses)| bundle(dir, &authority, name, addresses)).collect()
}

/// Sees that no address is two hosts', of those that are named and those that have a folder already: the one could pass
/// for the other.
fn check_addresses(dir: &Path, hosts: &[(String, Vec<IpAddr>)]) -> Result<(), AuthorityError> {
    let mut known = Vec::new();
    for entry in if_there(fs::read_dir(dir)).map_err(io_error("read", dir))?.into_iter().flatten() {
        let place = entry.map_err(io_error("read", dir))?.path();
        // What an interrupted run has left is no host's.
        if place.extension().is_some_and(|it| it == "new") {
            continue;
        }
        // A host's former certificate may have been put aside there.
        if let Ok(chain) = certificates::read(&place.join("node.crt"))
            && let Some(name) = sluice_tls::common_name(&chain[0])
        {
            known.push((name, chain, place));
        }
    }
    known.sort_by(|(_, _, one), (_, _, other)| one.cmp(other));
    for (index, (name, addresses)) in hosts.iter().enumerate() {
        for address in addresses {
            let (name, address) = (name.clone(), *address);
            if let Some((other, _)) =
                hosts[..index].iter().find(|(other, theirs)| *other != name && theirs.contains(&address))
            {
                return Err(AuthorityError::Twice { name, other: other.clone(), address });
            }
            let theirs = known.iter().find(|(other, chain, _)| *other != name && certificates::is_for(chain, address));
            if let Some((other, _, place)) = theirs {
                let (other, place) = (other.clone(), place.clone());
                return Err(AuthorityError::Taken { name, other, address, place });
            }
        }
    }
    Ok(())
}

/// The warning of an authority that ends long before a certificate would that is made now.
pub fn authority_ends(dir: &Path) -> Option<String> {
    let path = dir.join("ca.crt");
    let expiry = Expiry::of(&certificates::read(&path).ok()?)?;
    (expiry.at() + SLACK < SystemTime::now() + LIFETIME).then(|| {
        format!(
            "the authority in {} ends on {}, and all its certificates with it: give all hosts another one before \
             (docs/hosts.md, \"Other certificates\")",
            path.display(),
            expiry.date()
        )
    })
}

/// Sees that the authority is one of ours, and counts; returns its end.
fn check_authority(path: &Path) -> Result<SystemTime, AuthorityError> {
    let unfit = |why: String| AuthorityError::Unfit { path: path.to_owned(), why };
    let bad = |why| AuthorityError::Authority { path: path.to_owned(), why };
    let found = certificates::read(path).map_err(bad)?;
    let expiry = Expiry::of(&found).ok_or_else(|| bad("it can't be read".to_owned()))?;
    if sluice_tls::common_name(&found[0]).as_deref() != Some(AUTHORITY) {
        return Err(unfit(format!(
            "it was made by another program than sluice node ca: its common name is not {AUTHORITY:?}\nmake the hosts' \
             certificates with what has made it (docs/hosts.md, \"Certificates\"), or name a new folder"
        )));
    }
    if expiry.is_over(SystemTime::now()) {
        return Err(unfit(format!(
            "the authority has expired, on {}, and no host trusts another one by it\nname a new folder, and give all hosts new \
             certificates from there (docs/hosts.md, \"Other certificates\")",
            expiry.date()
        )));
    }
    Ok(expiry.at())
}

/// The authority: its key, with the certificate's text.
fn authority(dir: &Path) -> Result<Authority, AuthorityError> {
    let (cert_path, key_path) = (dir.join("ca.crt"), dir.join("ca.key"));
    let mut params = params(Vec::new(), AUTHORITY)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let bad = |path: &Path, why: &str| AuthorityError::Authority { path: path.to_owned(), why: why.to_owned() };
    let mut end = SystemTime::now() + LIFETIME;
    let key = match (cert_path.exists(), key_path.exists()) {
        (false, false) => {
            let key = KeyPair::generate()?;
            let cert = params.self_signed(&key)?;
            write_new(&key_path, &key.serialize_pem(), 0o600)?;
            write_new(&cert_path, &cert.pem(), 0o644)?;
            key
        }
        (true, true) => {
            end = check_authority(&cert_path)?;
            let text = fs::read_to_string(&key_path).map_err(io_error("read", &key_path))?;
            KeyPair::from_pem(&text).map_err(|error| bad(&key_path, &error.to_string()))?
        }
        (false, true) => return Err(bad(&cert_path, "is missing, and ca.key is there")),
        (true, false) => return Err(bad(&key_path, "is missing, and ca.crt is there")),
    };
    let text = fs::read_to_string(&cert_path).map_err(io_error("read", &cert_path))?;
    Ok(Authority { issuer: Issuer::new(params, key), text, end })
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    text: String,
    /// The end of its validity.
    end: SystemTime,
}

fn bundle(dir: &Path, authority: &Authority, name: &str, addresses: &[IpAddr]) -> Result<Bundle, AuthorityError> {
    let place = dir.join(name);
    let names: Vec<String> = std::iter::once(name.to_owned()).chain(addresses.iter().map(IpAddr::to_string)).collect();
    let is_new = !place.exists();
    if is_new {
        // Whole or not at all: what an interrupted run has left is no bundle.
        let half = dir.join(format!("{name}.new"));
        if_there(fs::remove_dir_all(&half)).map_err(io_error("remove", &half))?;
        make_dir(&half)?;
        let mut params = params(names.clone(), name)?;
        // It is worth nothing behind that.
        params.not_after = authority.end.min(SystemTime::now() + LIFETIME).into();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &authority.issuer)?;
        write_new(&half.join("ca.crt"), &authority.text, 0o644)?;
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
            let why = match Expiry::of(&chain).filter(|expiry| expiry.is_over(SystemTime::now())) {
                Some(expiry) => format!("its certificate has expired, on {}", expiry.date()),
                None => format!("its certificate is not for {host}: {why}"),
            };
            AuthorityError::Other { path: place.clone(), why }
        };
        let server = ServerName::try_from(host.clone()).map_err(|error| other(error.to_string()))?;
        certificates::verify(&roots, &chain, server).map_err(wrong)?;
    }
    check_bundle(&place, &chain, &dir.join("ca.crt"))?;
    Ok(Bundle { dir: place, is_new })
}

/// Sees that a host's folder has all that it needs: the key of its certificate, and the authority.
fn check_bundle(place: &Path, chain: &[CertificateDer<'_>], authority: &Path) -> Result<(), AuthorityError> {
    let [ca, cert, key] = ["ca.crt", "node.crt", "node.key"].map(|name| place.join(name));
    let lacking = |why| AuthorityError::Copy { path: ca.clone(), why, ca: authority.to_owned() };
    let roots = certificates::roots(&ca).map_err(lacking)?;
    certificates::verify_trust(&roots, chain).map_err(|why| lacking(format!("the certificate is not of it: {why}")))?;
    let files = TlsFiles { ca: ca.clone(), cert, key: key.clone() };
    rest::client_tls(&files).map(drop).map_err(|error| match error {
        // Its remedy is another one than a new certificate.
        MakeError::File(fault)
            if fault.path == key && key.exists() && !fs::read(&key).is_ok_and(|it| it.is_empty()) =>
        {
            AuthorityError::Unfit { path: key.clone(), why: format!("{fault}\n{}", fault.remedy) }
        }
        MakeError::File(fault) => AuthorityError::Other { path: place.to_owned(), why: fault.to_string() },
        error => AuthorityError::Other { path: place.to_owned(), why: error.to_string() },
    })
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

    /// Each fault of a folder that is there, with its remedy.
    #[test]
    fn a_folder_that_cannot_work_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("ca");
        let hosts = [host("node1", "10.0.0.1")];
        make_bundles(&dir, &hosts).unwrap();
        make_bundles(&dir, &hosts).unwrap();
        let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
        let (key, ca, ca_key) = (read("node1/node.key"), read("node1/ca.crt"), read("ca.key"));
        let refused = |words: [&str; 2]| {
            let error = make_bundles(&dir, &hosts).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        };
        fs::remove_file(dir.join("node1/node.key")).unwrap();
        refused(["node.key", "move it away"]);
        for other in ["", &KeyPair::generate().unwrap().serialize_pem()] {
            write_new(&dir.join("node1/node.key"), other, 0o600).unwrap();
            refused(["node1: ", "move it away"]);
            fs::remove_file(dir.join("node1/node.key")).unwrap();
        }
        write_new(&dir.join("node1/node.key"), &key, 0o600).unwrap();
        fs::remove_file(dir.join("node1/ca.crt")).unwrap();
        refused(["node1/ca.crt: ", "/ca/ca.crt there"]);
        fs::write(dir.join("node1/ca.crt"), ca).unwrap();
        make_bundles(&dir, &hosts).unwrap();
        assert_eq!(authority_ends(&dir), None);

        // The same authority, with another end or name.
        let authority = |name: &str, days: i64| {
            let mut params = params(Vec::new(), name).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            let days = Duration::from_secs(days.unsigned_abs() * 86_400);
            params.not_after = if name == AUTHORITY && days.is_zero() {
                (SystemTime::now() - Duration::from_secs(60)).into()
            } else {
                (SystemTime::now() + days).into()
            };
            fs::write(dir.join("ca.crt"), params.self_signed(&KeyPair::from_pem(&ca_key).unwrap()).unwrap().pem())
                .unwrap();
        };
        authority(AUTHORITY, 0);
        refused(["ca.crt: the authority has expired, on ", "name a new folder"]);
        authority("openssl's", 100);
        refused(["made by another program", "name a new folder"]);
        authority(AUTHORITY, 100);
        assert!(authority_ends(&dir).unwrap().contains("and all its certificates with it"));
        make_bundles(&dir, &[host("node2", "10.0.0.2")]).unwrap();
        let [of_authority, of_host] =
            ["ca.crt", "node2/node.crt"].map(|name| Expiry::of(&certificates::read(&dir.join(name)).unwrap()).unwrap());
        assert_eq!(of_authority, of_host);
    }

    fn host(name: &str, address: &str) -> (String, Vec<IpAddr>) {
        (name.to_owned(), vec![address.parse().unwrap()])
    }

    #[test]
    fn an_address_is_one_hosts_only() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("ca");
        let refused = |hosts: &[(String, Vec<IpAddr>)]| make_bundles(&dir, hosts).unwrap_err().to_string();
        let error = refused(&[host("node1", "10.0.0.1"), host("node2", "10.0.0.1")]);
        assert!(error.starts_with("node2 and node1 can't both have the address 10.0.0.1\n"), "{error}");
        assert!(!dir.exists());
        let both = ["10.0.0.1", "fd00::1"].map(|address| address.parse().unwrap());
        let first = ("node1".to_owned(), both.to_vec());
        make_bundles(&dir, std::slice::from_ref(&first)).unwrap();
        for address in ["10.0.0.1", "fd00::1"] {
            let error = refused(&[host("node5", address)]);
            assert!(error.starts_with(&format!("node5 can't have the address {address}: the certificate of node1 ")));
            assert!(!dir.join("node5").exists());
        }
        make_bundles(&dir, &[first, host("node5", "10.0.0.5")]).unwrap();
        // Its own former certificate is put aside.
        fs::rename(dir.join("node5"), dir.join("node5.old")).unwrap();
        make_bundles(&dir, &[host("node5", "10.0.0.5")]).unwrap();
        fs::remove_dir_all(dir.join("node1")).unwrap();
        make_bundles(&dir, &[host("node6", "10.0.0.1")]).unwrap();
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
