//! Certificates made for the tests of a process, and TLS by them.

use std::{
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use rustls::pki_types::{CertificateDer, pem::PemObject};
use sluice_instance::RunAs;
use sluice_tls::{ClientFiles, ClientTls, SslMode};

use crate::place::{place, remove_after_us};

/// `new NAME FILE OPTIONS ENDING` makes a key, and a request for a certificate or one that it has signed itself; `sign
/// FILE OPTIONS` has the authority sign that request.
const COMMANDS: &str = "
new() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=$1 -keyout $2.key $3 -out $2.$4; }
sign() { openssl x509 -req -in $1.csr -CA authority.crt -CAkey authority.key -CAcreateserial -days 60 $2 -out $1.crt; }
";

/// An authority, with a server's certificate for `localhost` and a client's for `app`; and another authority that has
/// signed neither.
const CERTIFICATES: &str = "
new authority authority '-x509 -days 60' crt
new other other '-x509 -days 60' crt
echo subjectAltName=DNS:localhost > names
new localhost server '' csr
sign server '-extfile names'
new app client '' csr
sign client
cat client.crt client.key > client.pem
chmod 600 *.key client.pem
";

/// Another certificate for `localhost` of the authority in the folder `$1`.
const ANOTHER: &str = "
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost -keyout server.key -out server.csr
openssl x509 -req -in server.csr -CA $1/authority.crt -CAkey $1/authority.key -CAcreateserial -CAserial serial -days 60 \
    -extfile $1/names -out server.crt
chmod 600 server.key
";

/// A folder of certificates and keys in PEM: `NAME.crt` and `NAME.key` of `authority`, `other`, `server` and `client`.
#[derive(Debug)]
pub struct Certificates(PathBuf);

impl Certificates {
    /// Those of this process's tests. They go with it.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Certificates> = OnceLock::new();
        SHARED.get_or_init(|| {
            let place = place().keep();
            remove_after_us(&place);
            Self::make_in(place)
        })
    }

    /// Others, in a folder of the caller's.
    pub fn make_in(place: PathBuf) -> Self {
        run(CERTIFICATES, &place, &place);
        let certificates = Self(place);
        certificates.give_postgresql("server.key", "server-of-postgresql.key");
        certificates
    }

    /// Makes further ones in the folder, by commands of the shell: openssl's, and `new` and `sign`.
    pub fn make(&self, commands: &str) {
        static TURN: Mutex<()> = Mutex::new(());
        // They count in the same files.
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        run(commands, &self.0, &self.0);
    }

    /// Copies a file to one that belongs to the user that servers run as.
    pub fn give_postgresql(&self, from: &str, to: &str) {
        fs::copy(self.path(from), self.path(to)).unwrap();
        let run_as = RunAs::resolve(None).unwrap_or_else(|error| panic!("{error}"));
        if run_as.switches() {
            chown(self.path(to), Some(run_as.uid()), Some(run_as.gid())).unwrap();
        }
    }

    /// Makes another certificate for a server, `server.crt` and `server.key`, in a folder of the caller's. Gives it as
    /// clients see it.
    pub fn make_another_in(&self, place: &Path) -> Vec<u8> {
        run(ANOTHER, place, &self.0);
        CertificateDer::from_pem_file(place.join("server.crt")).unwrap().to_vec()
    }

    /// The path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A server's settings that have it use TLS.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let path = |name| self.path(name).to_str().expect("it is of this process's making").to_owned();
        vec![
            ("ssl", "on".to_owned()),
            ("ssl_cert_file", path("server.crt")),
            ("ssl_key_file", path("server-of-postgresql.key")),
            ("ssl_ca_file", path("authority.crt")),
        ]
    }

    /// `[tls]` of a pool, with further lines.
    pub fn of_pool(&self, more: &str) -> String {
        let path = |name| self.path(name).display().to_string();
        format!("[tls]\ncert_file = {:?}\nkey_file = {:?}\n{more}\n", path("server.crt"), path("server.key"))
    }

    /// TLS for a client that shows its certificate or not.
    pub fn client(&self, mode: SslMode, shows: bool) -> Arc<ClientTls> {
        let own = shows.then(|| (self.path("client.crt"), self.path("client.key")));
        let files = ClientFiles { root_cert: Some(self.path("authority.crt")), own };
        Arc::new(ClientTls::load(mode, &files).unwrap_or_else(|error| panic!("{error}")))
    }
}

/// Runs commands in a folder, with another one as their argument.
fn run(commands: &str, place: &Path, argument: &Path) {
    let mut shell = Command::new("sh");
    shell
        .args(["-e", "-c", &format!("{COMMANDS}{commands}"), "sh"])
        .arg(argument)
        .current_dir(place)
        .stdin(Stdio::null());
    let ran = shell.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
