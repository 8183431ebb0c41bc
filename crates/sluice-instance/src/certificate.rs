//! The certificate that an instance's pool shows its clients: one of its own making, until somebody puts another one in
//! its place.

use std::{
    fs::{self, Permissions},
    io,
    net::IpAddr,
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, SystemTime},
};

use rcgen::{CertificateParams, DnType, KeyPair};
use sluice_config::CertificateFiles;

use crate::files::{self, Owner};

/// The names of the files, which are PostgreSQL's.
const CERT: &str = "server.crt";
const KEY: &str = "server.key";

/// The time for which a certificate of its own counts: nobody is there who would think of another one.
pub(crate) const LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Clocks of clients may be behind.
pub(crate) const BEFORE: Duration = Duration::from_secs(24 * 60 * 60);

/// The certificate in that folder; makes one if there is none, for this host by its names and for that address.
///
/// # Errors
///
/// Files that can't be written, or no random numbers.
pub fn certificate_in(folder: &Path, listen: IpAddr) -> io::Result<CertificateFiles> {
    let files = CertificateFiles { cert: folder.join(CERT), key: folder.join(KEY) };
    // The key is written first: one that stands alone is of a start that was cut short.
    if !files.cert.try_exists()? {
        let (cert, key) = make(listen).map_err(io::Error::other)?;
        files::write_private(&files.key, key.as_bytes(), Owner::Us)?;
        files::write_private(&files.cert, cert.as_bytes(), Owner::Us)?;
        // It is for all who want to verify the pool by it.
        fs::set_permissions(&files.cert, Permissions::from_mode(0o644))?;
    }
    Ok(files)
}

/// A certificate that signs itself, and its key, in PEM.
fn make(listen: IpAddr) -> Result<(String, String), rcgen::Error> {
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let host = host.filter(|name| !name.is_empty()).unwrap_or_else(|| "localhost".to_owned());
    let mut names = vec![host.clone(), "localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    if !listen.is_unspecified() {
        names.push(listen.to_string());
    }
    names.sort();
    names.dedup();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, host);
    let now = SystemTime::now();
    (params.not_before, params.not_after) = ((now - BEFORE).into(), (now + LIFETIME).into());
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn one_is_made_once_and_whatever_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let listen = Ipv4Addr::new(10, 0, 0, 1).into();
        let files = certificate_in(folder.path(), listen).unwrap();
        let first = fs::read_to_string(&files.cert).unwrap();
        assert!(first.starts_with("-----BEGIN CERTIFICATE-----"), "{first}");
        let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&files.cert), mode(&files.key)), (0o644, 0o600));
        assert_eq!(certificate_in(folder.path(), listen).unwrap(), files);
        assert_eq!(fs::read_to_string(&files.cert).unwrap(), first);

        fs::remove_file(&files.cert).unwrap();
        certificate_in(folder.path(), listen).unwrap();
        assert_ne!(fs::read_to_string(&files.cert).unwrap(), first, "a key without its certificate is replaced");
        fs::write(&files.cert, "somebody's own").unwrap();
        fs::remove_file(&files.key).unwrap();
        certificate_in(folder.path(), listen).unwrap();
        assert_eq!(fs::read_to_string(&files.cert).unwrap(), "somebody's own");
    }
}
