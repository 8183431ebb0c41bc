//! `[tls]`, and the keys of a `[[database]]` about the encryption on the way to its server.

use sluice_tls::{ClientCertificates, SslMode};

use super::{Absent, Key, Table};
use crate::kinds::{FilePath, Flag, Words};

pub(crate) static TLS: Table = Table {
    path: "tls",
    many: false,
    meaning: "Encryption of what clients send by TCP; without this table there is none. Files are read again by a \
              reload: new connections see the new certificate, and the others stay. Keys may be RSA of 2048 to 8192 \
              bits, ECDSA by P-256 or P-384, or Ed25519, and what an authority signs by ECDSA it has to sign with \
              SHA-256 or SHA-384. P-521 and Ed448, which OpenSSL takes, are refused, here and before servers.",
    keys: &[&CERT_FILE, &KEY_FILE, &REQUIRED, &CLIENT_CA_FILE, &CLIENT_CRL_FILE, &CLIENT_CERTIFICATES],
    tables: &[],
};

pub(crate) static CERT_FILE: Key<FilePath> = Key {
    name: "cert_file",
    kind: FilePath,
    absent: Absent::Required,
    meaning: "The certificate that clients see, in PEM, followed by any intermediate ones up to the authority that \
              clients know. PostgreSQL's `ssl_cert_file`.",
};

pub(crate) static KEY_FILE: Key<FilePath> = Key {
    name: "key_file",
    kind: FilePath,
    absent: Absent::Required,
    meaning: "Its private key, in PEM and without a passphrase: mode 0600, or 0640 where root owns it. PostgreSQL's \
              `ssl_key_file`.",
};

pub(crate) static REQUIRED: Key<Flag> = Key {
    name: "required",
    kind: Flag,
    absent: Absent::Means("`true` where `client_certificates` demands one, `false` otherwise"),
    meaning: "Refuses TCP clients that do not use TLS. Clients by the Unix socket are not affected.",
};

pub(crate) static CLIENT_CA_FILE: Key<FilePath> = Key {
    name: "client_ca_file",
    kind: FilePath,
    absent: Absent::Means("clients are asked for no certificate"),
    meaning: "The authorities that clients' certificates have to come from, in PEM. A certificate that is shown is \
              checked, whatever `client_certificates` says. PostgreSQL's `ssl_ca_file`.",
};

pub(crate) static CLIENT_CRL_FILE: Key<FilePath> = Key {
    name: "client_crl_file",
    kind: FilePath,
    absent: Absent::Means("revocation is not checked"),
    meaning: "The revocation lists (CRLs) of those authorities, in PEM: each authority's, and none that has expired, or \
              its certificates are refused. A new list takes effect at the next reload. PostgreSQL's `ssl_crl_file`, but \
              lists have to be of version 2 (`crlnumber` in `openssl.cnf`), and where there are lists, certificates of \
              version 1 are refused.",
};

pub(crate) static CLIENT_CERTIFICATES: Key<Words<ClientCertificates>> = Key {
    name: "client_certificates",
    kind: Words(&ClientCertificates::WORDS),
    absent: Absent::Default("\"none\""),
    meaning: "The certificate that a client has to show besides its password: any of those authorities', or one whose \
              common name is its user. TCP clients have to use TLS then. `clientcert` of PostgreSQL's `pg_hba.conf`.",
};

pub(crate) static SSLMODE: Key<Words<SslMode>> = Key {
    name: "sslmode",
    kind: Words(&SslMode::WORDS),
    absent: Absent::Default("\"prefer\""),
    meaning: "Encryption on the way to the server, as libpq's `sslmode`. Only the last two verify the server's \
              certificate, and only `\"verify-full\"` its host name. A Unix socket is never encrypted, whatever is set here.",
};

pub(crate) static SSLROOTCERT: Key<FilePath> = Key {
    name: "sslrootcert",
    kind: FilePath,
    absent: Absent::Means("no authority is known"),
    meaning: "The authorities that the server's certificate has to come from, in PEM, or that certificate itself; \
              `\"system\"` for those that this host trusts, with `\"verify-full\"` only. With `\"require\"`, it makes that \
              `\"verify-ca\"`, as in libpq.",
};

pub(crate) static SSLCERT: Key<FilePath> = Key {
    name: "sslcert",
    kind: FilePath,
    absent: Absent::Means("the server is shown no certificate"),
    meaning: "The certificate that the server is shown, in PEM.",
};

pub(crate) static SSLKEY: Key<FilePath> = Key {
    name: "sslkey",
    kind: FilePath,
    absent: Absent::Means("the server is shown no certificate"),
    meaning: "Its private key, in PEM and without a passphrase.",
};
