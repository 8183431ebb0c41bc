//! The certificates of etcd on one machine: whoever can write there decides about the cluster, and so could become PostgreSQL's
//! superuser. Other users of this machine reach its ports, and are refused.
//!
//! An authority is made for one certificate, which all members and all of Patroni show each other; the authority's key
//! is never written, so that there will be no second one. Lost or expired, the folder can be removed: the next start
//! makes another.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use super::{ADDRESS, ClusterError, folder::make_dir};
use crate::{
    certificate::{BEFORE, LIFETIME},
    files::{self, Owner},
    run_as::RunAs,
};

/// A certificate, its key and the authority that both sides trust, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authority's certificate.
    pub ca: PathBuf,
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// The folder of those on one machine, in the instance's directory.
const DIR: &str = "etcd-tls";

impl TlsFiles {
    /// The files of etcd on one machine, whether they are there or not.
    pub(super) fn here(root: &Path) -> Self {
        let dir = root.join(DIR);
        Self { ca: dir.join("ca.crt"), cert: dir.join("etcd.crt"), key: dir.join("etcd.key") }
    }

    /// Finds the files of etcd on one machine below the instance's directory, or makes them; PostgreSQL's user can read
    /// them.
    pub(super) fn prepare(root: &Path, run_as: &RunAs) -> Result<Self, ClusterError> {
        let (dir, tls) = (root.join(DIR), Self::here(root));
        make_dir(&dir, run_as)?;
        // The last that is written.
        if tls.key.exists() {
            return Ok(tls);
        }
        let failed = |error: rcgen::Error| ClusterError::io("make", &dir)(std::io::Error::other(error.to_string()));
        let [ca, cert, key] = make().map_err(failed)?;
        for (path, text) in [(&tls.ca, ca), (&tls.cert, cert), (&tls.key, key)] {
            files::write_private(path, text.as_bytes(), Owner::Postgres(run_as))
                .map_err(ClusterError::io("write", path))?;
        }
        fs::File::open(&dir).and_then(|dir| dir.sync_all()).map_err(ClusterError::io("sync", &dir))?;
        Ok(tls)
    }
}

/// The authority's certificate, another one by it, and the key of that, in PEM.
fn make() -> Result<[String; 3], rcgen::Error> {
    let params = |names: Vec<String>, name: &str| -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = (SystemTime::now() - BEFORE).into();
        params.not_after = (SystemTime::now() + LIFETIME).into();
        Ok(params)
    };
    let mut authority = params(Vec::new(), "sluice etcd authority")?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_key = KeyPair::generate()?;
    let ca = authority.self_signed(&authority_key)?;
    let mut own = params(vec![ADDRESS.to_string()], "sluice etcd")?;
    own.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    // etcd's own gateway shows the server's certificate as a client.
    own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    let cert = own.signed_by(&key, &Issuer::new(authority, authority_key))?;
    Ok([ca.pem(), cert.pem(), key.serialize_pem()])
}
