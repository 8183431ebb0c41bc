//! `[tls]`, and the keys of a `[[database]]` that say how its server is reached: reads them, and the files that they name.

use std::{path::PathBuf, sync::Arc, time::SystemTime};

use sluice_control::access::Encryption;
use sluice_tls::{
    ClientCertificates, ClientFiles, ClientTls, Expiry, MakeError, SYSTEM, ServerFiles, ServerTls, SslMode,
};

use crate::{
    kinds::FilePath,
    reader::{Read, Section},
    report::Fault,
    schema::{self, Key},
};

pub(crate) const RULES: &[&str] = &[
    "`tls.client_certificates` and `tls.client_crl_file` need `client_ca_file`; where a certificate is demanded, \
     `tls.required` can't be `false`.",
    "`\"verify-ca\"` and `\"verify-full\"` need `sslrootcert`; `sslcert` and `sslkey` need each other.",
];

/// A file that a key names, and where.
struct Named {
    key: &'static Key<FilePath>,
    path: PathBuf,
    offset: usize,
}

impl Named {
    fn read(section: &Section<'_>, key: &'static Key<FilePath>) -> Option<Self> {
        Self::of(section, key, section.read(key).given())
    }

    fn read_required(section: &Section<'_>, key: &'static Key<FilePath>) -> Option<Self> {
        Self::of(section, key, section.read_required(key))
    }

    fn of(section: &Section<'_>, key: &'static Key<FilePath>, value: Option<(PathBuf, usize)>) -> Option<Self> {
        let (path, offset) = value?;
        let is_system = path.as_os_str() == SYSTEM;
        Some(Self { key, path: if is_system { path } else { section.source().resolve(&path) }, offset })
    }
}

/// Reads `[tls]`.
pub(crate) fn read(section: &Section<'_>) -> Option<Encryption> {
    if !section.is_given() {
        return None;
    }
    let cert = Named::read_required(section, &schema::CERT_FILE);
    let key = Named::read_required(section, &schema::KEY_FILE);
    let client_ca = section.read(&schema::CLIENT_CA_FILE);
    let has_client_ca = !matches!(client_ca, Read::Absent);
    let client_ca = Named::of(section, &schema::CLIENT_CA_FILE, client_ca.given());
    let client_crl = Named::read(section, &schema::CLIENT_CRL_FILE);
    if let Some(Named { key, offset, .. }) = client_crl.as_ref().filter(|_| !has_client_ca) {
        let fault = Fault::new("a revocation list of authorities that nobody trusts", "add client_ca_file to [tls]");
        section.note(key, *offset, fault);
    }
    let required = section.read(&schema::REQUIRED);
    let client_certificates = section.read(&schema::CLIENT_CERTIFICATES);
    // Whoever does not encrypt shows none.
    let mut is_required = false;
    if let Read::Given(ClientCertificates::VerifyCa | ClientCertificates::VerifyFull, offset) = client_certificates {
        is_required = true;
        if !has_client_ca {
            let fault = Fault::new("nobody is trusted to give clients certificates", "add client_ca_file to [tls]");
            section.note(&schema::CLIENT_CERTIFICATES, offset, fault);
        }
        if let Read::Given(false, offset) = required {
            let fault = Fault::new(
                "a client that does not encrypt shows no certificate, and client_certificates demands one",
                "remove this, or set client_certificates = \"none\"",
            );
            section.note(&schema::REQUIRED, offset, fault);
        }
    }
    is_required |= required.value().unwrap_or(false);
    let (Some(cert), Some(key)) = (cert, key) else { return None };
    let files = ServerFiles {
        cert: cert.path.clone(),
        key: key.path.clone(),
        client_ca: client_ca.as_ref().map(|file| file.path.clone()),
        client_crl: client_crl.as_ref().map(|file| file.path.clone()),
    };
    let tls = match ServerTls::load(&files) {
        Ok(tls) => Arc::new(tls),
        Err(error) => {
            note(section, &error, &[Some(cert), Some(key), client_ca, client_crl]);
            return None;
        }
    };
    warn(section, &cert, tls.expiry.as_ref(), "clients that verify it connect no more then");
    Some(Encryption { tls, is_required, client_certificates: client_certificates.value().unwrap_or_default() })
}

/// Reads the keys of a `[[cluster]]`, of which some members are asked by HTTPS, or none.
pub(crate) fn read_cluster(section: &Section<'_>, is_encrypted: bool) -> Option<Arc<ClientTls>> {
    let ca = Named::read(section, &schema::CLUSTER_CA_FILE);
    let own = (Named::read(section, &schema::CLUSTER_CERT_FILE), Named::read(section, &schema::CLUSTER_KEY_FILE));
    if let (Some(Named { key, offset, .. }), None) | (None, Some(Named { key, offset, .. })) = &own {
        let fault = Fault::new("a certificate without its key, or the other way round", "give cert_file and key_file");
        section.note(key, *offset, fault);
        return None;
    }
    if !is_encrypted {
        for Named { key, offset, .. } in [&ca, &own.0, &own.1].into_iter().flatten() {
            let fault = Fault::new("no member is asked by HTTPS", "leave it out, or write https:// in patroni");
            section.note(key, *offset, fault);
        }
        return None;
    }
    let files = ClientFiles {
        root_cert: Some(ca.as_ref().map_or_else(|| PathBuf::from(SYSTEM), |file| file.path.clone())),
        own: own.0.as_ref().zip(own.1.as_ref()).map(|(cert, key)| (cert.path.clone(), key.path.clone())),
    };
    match ClientTls::load(SslMode::VerifyFull, &files) {
        Ok(tls) => {
            warn_own(section, own.0.as_ref(), &tls);
            Some(Arc::new(tls))
        }
        Err(error) => {
            note(section, &error, &[ca, own.0, own.1]);
            None
        }
    }
}

/// Reads the keys of a `[[database]]`.
pub(crate) fn read_database(section: &Section<'_>) -> Option<Arc<ClientTls>> {
    let mode = section.read(&schema::SSLMODE).or_default(SslMode::default());
    let root_cert = Named::read(section, &schema::SSLROOTCERT);
    let own = (Named::read(section, &schema::SSLCERT), Named::read(section, &schema::SSLKEY));
    if let (Some(Named { key, offset, .. }), None) | (None, Some(Named { key, offset, .. })) = &own {
        let fault = Fault::new("a certificate without its key, or the other way round", "give sslcert and sslkey");
        section.note(key, *offset, fault);
        return None;
    }
    let files = ClientFiles {
        root_cert: root_cert.as_ref().map(|file| file.path.clone()),
        own: own.0.as_ref().zip(own.1.as_ref()).map(|(cert, key)| (cert.path.clone(), key.path.clone())),
    };
    if mode.value == SslMode::Disable {
        return None;
    }
    match ClientTls::load(mode.value, &files) {
        Ok(tls) => {
            warn_own(section, own.0.as_ref(), &tls);
            Some(Arc::new(tls))
        }
        Err(error) => {
            note(section, &error, &[root_cert, own.0, own.1]);
            None
        }
    }
}

/// Warns of the pool's own certificate.
fn warn_own(section: &Section<'_>, cert: Option<&Named>, tls: &ClientTls) {
    if let Some(cert) = cert {
        warn(section, cert, tls.expiry.as_ref(), "who asks for it lets nobody in then");
    }
}

/// Warns of a certificate that expires soon, or has expired, at the key that names its file.
fn warn(section: &Section<'_>, cert: &Named, expiry: Option<&Expiry>, consequence: &str) {
    if let Some(warning) = expiry.and_then(|expiry| expiry.warning(SystemTime::now())) {
        let what = format!("the certificate in {} {warning}", cert.path.display());
        let fault = Fault::new(what, format!("put another one in its place and reload: {consequence}"));
        section.source().warn(cert.offset, section.path_of(cert.key), fault);
    }
}

/// Notes why TLS can't be had, at the key that names the file at fault.
fn note(section: &Section<'_>, error: &MakeError, named: &[Option<Named>]) {
    let (path, fault) = match error {
        MakeError::File(error) => (Some(&error.path), Fault::new(error.to_string(), error.remedy)),
        MakeError::Pair { path, .. } => {
            (Some(path), Fault::new(error.to_string(), "give a certificate and the key that belongs to it"))
        }
        MakeError::NoAuthorities(_) => {
            let remedy = "add sslrootcert: a file of the authorities to trust, or \"system\"";
            (None, Fault::new(error.to_string(), remedy))
        }
        MakeError::SystemAnyName => {
            let remedy = "set sslmode = \"verify-full\", or name a file";
            (None, Fault::new("sslrootcert = \"system\" trusts any server that some authority knows", remedy))
        }
        MakeError::NoneTrusted | MakeError::Library(_) => {
            (None, Fault::new(error.to_string(), "install the package ca-certificates, or name a file"))
        }
    };
    match named.iter().flatten().find(|named| Some(&named.path) == path) {
        Some(named) => section.note(named.key, named.offset, fault),
        None => section.source().add(section.offset(), section.path_of(&schema::SSLMODE), fault),
    }
}
