//! A host's certificates: whether they will do, and copies for the user that runs PostgreSQL and etcd, who need not be
//! able to read those of `/etc`.

use std::{fs, net::IpAddr, path::Path, sync::Arc, time::SystemTime};

use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier, verify_server_name},
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::{ParsedCertificate, WebPkiClientVerifier},
};
use sluice_config::NodeConfig;
use sluice_tls::{Expiry, FileError, MakeError};

use super::super::{error::ClusterError, folder::make_dir, rest, tls::TlsFiles};
use crate::{
    files::{self, Owner},
    run_as::RunAs,
};

/// Those that the file names.
pub(super) fn given(config: &NodeConfig) -> TlsFiles {
    TlsFiles { ca: config.ca_file.clone(), cert: config.cert_file.clone(), key: config.key_file.clone() }
}

/// Looks whether they are this host's, for both sides of a connection.
pub(super) fn check(config: &NodeConfig) -> Result<(), ClusterError> {
    let (files, own) = (given(config), config.own());
    let bad = |key: &str, path: &Path, why: String| ClusterError::BadFile {
        path: config.file.clone(),
        why: format!(
            "tls.{key}: {}: {why}\nsluice node ca makes certificates for all hosts; or bring one along whose common name \
             is {}, which is for {}, and for servers and clients alike",
            path.display(),
            own.name,
            own.postgres.ip()
        ),
    };
    let chain = read(&files.cert).map_err(|why| bad("cert_file", &files.cert, why))?;
    let roots = roots(&files.ca).map_err(|why| bad("ca_file", &files.ca, why))?;
    verify(&roots, &chain, own.postgres.ip().into()).map_err(|why| bad("cert_file", &files.cert, why))?;
    if sluice_tls::common_name(&chain[0]).as_deref() != Some(&*own.name) {
        let why = format!("its common name is not {}", own.name);
        return Err(bad("cert_file", &files.cert, why));
    }
    rest::client_tls(&files).map(drop).map_err(|error| match error {
        MakeError::File(error) => bad_file(config, &files, &error),
        error => bad("key_file", &files.key, error.to_string()),
    })
}

/// A file that can't be used as it is, which the fault names; other certificates are no remedy.
fn bad_file(config: &NodeConfig, files: &TlsFiles, fault: &FileError) -> ClusterError {
    let why = format!("tls.{}: {fault}\n{}", key_of(files, &fault.path), fault.remedy);
    ClusterError::BadFile { path: config.file.clone(), why }
}

/// The key of `[tls]` that names a file.
fn key_of(files: &TlsFiles, path: &Path) -> &'static str {
    if path == files.ca {
        "ca_file"
    } else if path == files.cert {
        "cert_file"
    } else {
        "key_file"
    }
}

/// Warnings of certificates that end soon, by the host's file; each with its date and the remedy.
pub fn certificate_ends(config: &NodeConfig) -> Vec<String> {
    ends(&given(config), SystemTime::now())
}

/// The same of these files, at that time.
pub(in super::super) fn ends(files: &TlsFiles, now: SystemTime) -> Vec<String> {
    all_ends(files, now).map(|(_, warning)| warning).collect()
}

/// Those of them that have ended.
pub(in super::super) fn expired(files: &TlsFiles, now: SystemTime) -> Vec<String> {
    all_ends(files, now).filter_map(|(is_over, warning)| is_over.then_some(warning)).collect()
}

/// Each warning, with whether it is of an end that has come. One that can't be read is others' business.
fn all_ends(files: &TlsFiles, now: SystemTime) -> impl Iterator<Item = (bool, String)> {
    let of = |path: &Path, remedy: &str, needs_all: bool| {
        let found = read(path).unwrap_or_default();
        let warning = format!("the certificate in {} {}: {remedy}", path.display(), Expiry::of(&found)?.warning(now)?);
        let has_ended = |it| Expiry::of(std::slice::from_ref(it)).is_some_and(|expiry| expiry.is_over(now));
        Some((if needs_all { found.iter().any(has_ended) } else { found.iter().all(has_ended) }, warning))
    };
    let own = "make a new one for this host (sluice node ca, its old folder moved away), copy it here, and start sluice node \
               again: without it no other host answers this one";
    let authority = "no host trusts another one then: give all of them another authority before, one after the other \
                     (docs/hosts.md, \"Other certificates\")";
    // Of authorities one will do.
    [of(&files.cert, own, true), of(&files.ca, authority, false)].into_iter().flatten()
}

/// The certificates of a file, one at least.
pub(super) fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(chain) if chain.is_empty() => Err("there is no certificate in it".to_owned()),
        Ok(chain) => Ok(chain),
        Err(error) => Err(error.to_string()),
    }
}

/// The authorities of a file.
pub(super) fn roots(path: &Path) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in read(path)? {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(Arc::new(roots))
}

/// Whether a certificate is for that address, be it valid or not.
pub(super) fn is_for(chain: &[CertificateDer<'_>], address: IpAddr) -> bool {
    let parsed = chain.first().and_then(|first| ParsedCertificate::try_from(first).ok());
    parsed.is_some_and(|parsed| verify_server_name(&parsed, &address.into()).is_ok())
}

/// Whether a certificate is by one of these authorities, for a host of that name or address, as a server and a client.
pub(super) fn verify(
    roots: &Arc<RootCertStore>,
    chain: &[CertificateDer<'_>],
    host: ServerName<'_>,
) -> Result<(), String> {
    let (provider, now) = (Arc::new(ring::default_provider()), UnixTime::now());
    let as_server = WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(&provider)).build();
    let as_client = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider).build();
    let (as_server, as_client) = (as_server.map_err(|it| it.to_string())?, as_client.map_err(|it| it.to_string())?);
    as_server.verify_server_cert(&chain[0], &chain[1..], &host, &[], now).map_err(|error| error.to_string())?;
    as_client.verify_client_cert(&chain[0], &chain[1..], now).map_err(|error| error.to_string())?;
    Ok(())
}

/// Whether a certificate is by one of these authorities.
pub(super) fn verify_trust(roots: &Arc<RootCertStore>, chain: &[CertificateDer<'_>]) -> Result<(), String> {
    let provider = Arc::new(ring::default_provider());
    let as_client = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider).build();
    let as_client = as_client.map_err(|error| error.to_string())?;
    as_client.verify_client_cert(&chain[0], &chain[1..], UnixTime::now()).map(drop).map_err(|error| error.to_string())
}

/// Copies them below the host's directory.
pub(super) fn copy(config: &NodeConfig, root: &Path, run_as: &RunAs) -> Result<TlsFiles, ClusterError> {
    let dir = root.join("tls");
    make_dir(&dir, run_as)?;
    let copies = copies(root);
    let given = given(config);
    for (from, to) in [(&given.ca, &copies.ca), (&given.cert, &copies.cert), (&given.key, &copies.key)] {
        let bytes = fs::read(from).map_err(ClusterError::io("read", from))?;
        files::write_private(to, &bytes, Owner::Postgres(run_as)).map_err(ClusterError::io("write", to))?;
    }
    Ok(copies)
}

/// The copies below a host's directory.
pub(in super::super) fn copies(root: &Path) -> TlsFiles {
    let dir = root.join("tls");
    TlsFiles { ca: dir.join("ca.crt"), cert: dir.join("node.crt"), key: dir.join("node.key") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn an_end_is_said_two_weeks_before() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_737_600);
        let write = |name: &str, days: &[u64]| {
            let text: String = days
                .iter()
                .map(|days| {
                    let mut params = CertificateParams::new(vec!["10.0.0.1".to_owned()]).unwrap();
                    params.not_after = (now + Duration::from_secs(days * 86_400)).into();
                    params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
                })
                .collect();
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let files =
            TlsFiles { ca: write("ca.crt", &[300]), cert: write("node.crt", &[15]), key: dir.path().join("key") };
        assert_eq!(ends(&files, now), [""; 0]);
        let said = ends(&files, now + Duration::from_secs(86_400));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("node.crt expires on 2026-12-12: make a new one"), "{said:?}");
        assert_eq!(expired(&files, now + Duration::from_secs(86_400)), [""; 0]);
        let said = expired(&files, now + Duration::from_secs(15 * 86_400));
        assert_eq!(said, ends(&files, now + Duration::from_secs(15 * 86_400)));
        assert!(said[0].contains("has expired, on 2026-12-12"), "{said:?}");
        // An authority that is to be replaced stands beside the one that comes.
        write("ca.crt", &[300, 10]);
        let said = ends(&files, now);
        assert!(said.len() == 1 && said[0].contains("ca.crt expires on 2026-12-07: no host trusts"), "{said:?}");
        assert_eq!(expired(&files, now + Duration::from_secs(12 * 86_400)), [""; 0]);
        assert_eq!(ends(&TlsFiles { ca: "/none".into(), cert: "/none".into(), key: "/none".into() }, now), [""; 0]);
    }
}
