//! Target of `sluice-tls`: two sides of a connection, between which anybody may change, lose, repeat and insert bytes.
//! Neither side panics, nobody reads what the other has not written, and where nothing was changed everything arrives.
//!
//! The handshake draws random numbers, so an input that was found may need some runs to fail again.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{Arc, OnceLock},
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use sluice_tls::{ClientFiles, ClientTls, ServerFiles, ServerTls, Session, Side, SslMode};

use crate::Input;

/// As much is repeated at most: bytes that double each time would fill the memory.
const REPEATED_BYTES_MAX: usize = 64 << 10;

/// One side, and its books.
struct End {
    session: Session,
    /// Bytes that it has sent and the other side has not got.
    on_the_way: Vec<u8>,
    /// The plaintext that it has written, and that it has read.
    written: Vec<u8>,
    read: Vec<u8>,
    /// Whether it can't go on.
    has_failed: bool,
}

/// A client and a server; who is in between does as the bytes say.
pub fn tls(data: &[u8]) {
    let mut input = Input::new(data);
    let (server, clients) = settings();
    let client = &clients[input.below(clients.len())];
    let mut ends = [End::new(Side::Client(client.clone(), "localhost".into())), End::new(Side::Server(server.clone()))];
    ends[0].take(&mut []);
    let mut is_changed = false;
    while !input.is_empty() {
        let (what, from) = (input.below(16), input.below(2));
        let to = 1 - from;
        match what {
            0..8 => {
                let count = input.below(256) * (1 + what);
                deliver(&mut ends, from, count);
            }
            8 | 9 => deliver(&mut ends, from, usize::MAX),
            10 | 11 => {
                let text = input.bytes().to_vec();
                ends[from].write(&text);
            }
            12 => is_changed |= ends[from].change(&mut input),
            13 => {
                is_changed = true;
                let garbage = input.bytes();
                ends[from].on_the_way.extend_from_slice(garbage);
            }
            14 => {
                is_changed = true;
                let length = ends[from].on_the_way.len();
                ends[from].on_the_way.truncate(length - input.below(256).min(length));
            }
            _ => {
                is_changed = true;
                let bytes = &mut ends[from].on_the_way;
                bytes.extend_from_within(..bytes.len().min(REPEATED_BYTES_MAX));
            }
        }
        for (reader, writer) in [(to, from), (from, to)] {
            let (read, written) = (&ends[reader].read, &ends[writer].written);
            assert!(written.starts_with(read), "it has read what nobody wrote");
        }
    }
    if is_changed {
        return;
    }
    // Left alone, both come to an end, and what is written then arrives.
    for _ in 0..8 {
        (0..2).for_each(|from| deliver(&mut ends, from, usize::MAX));
    }
    assert!(ends.iter().all(|end| end.session.is_open() && !end.has_failed), "the handshake has not come to its end");
    ends.iter_mut().for_each(|end| end.write(b"at the end"));
    (0..2).for_each(|from| deliver(&mut ends, from, usize::MAX));
    for (reader, writer) in [(0, 1), (1, 0)] {
        assert_eq!(ends[reader].read, ends[writer].written);
    }
}

/// The other side gets so many of the bytes that are on the way.
fn deliver(ends: &mut [End; 2], from: usize, count: usize) {
    let count = count.min(ends[from].on_the_way.len());
    let mut bytes: Vec<u8> = ends[from].on_the_way.drain(..count).collect();
    ends[1 - from].take(&mut bytes);
}

impl End {
    fn new(side: Side) -> Self {
        let (on_the_way, written, read) = (Vec::new(), Vec::new(), Vec::new());
        Self { session: Session::new(side), on_the_way, written, read, has_failed: false }
    }

    fn take(&mut self, bytes: &mut [u8]) {
        if !self.has_failed {
            self.has_failed = self.session.take(bytes, &mut self.read, &mut self.on_the_way).is_err();
        }
    }

    fn write(&mut self, text: &[u8]) {
        if self.session.is_open() && !self.has_failed {
            self.written.extend_from_slice(text);
            self.session.seal(text, &mut self.on_the_way).expect("what is written can be sealed");
        }
    }

    /// Changes a byte that is on the way; `false` if there is none.
    fn change(&mut self, input: &mut Input<'_>) -> bool {
        let (place, by) = (usize::from(input.byte()) << 4 | usize::from(input.byte()), input.byte());
        let length = self.on_the_way.len();
        if length == 0 || by == 0 {
            return false;
        }
        self.on_the_way[place % length] ^= by;
        true
    }
}

/// A server that asks for certificates, a client without one, and one with.
fn settings() -> &'static (Arc<ServerTls>, [Arc<ClientTls>; 2]) {
    static SETTINGS: OnceLock<(Arc<ServerTls>, [Arc<ClientTls>; 2])> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        make_certificates(folder.path());
        let path = |name: &str| folder.path().join(name);
        let files = ServerFiles {
            cert: path("server.crt"),
            key: path("server.key"),
            client_ca: Some(path("ca.crt")),
            client_crl: None,
        };
        let server = Arc::new(ServerTls::load(&files).expect("the server's files are good"));
        let client = |own| {
            let files = ClientFiles { root_cert: Some(path("ca.crt")), own };
            Arc::new(ClientTls::load(SslMode::VerifyFull, &files).expect("the client's files are good"))
        };
        (server, [client(None), client(Some((path("client.crt"), path("client.key"))))])
    })
}

fn make_certificates(folder: &Path) {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("the file can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    };
    let mut params = CertificateParams::new([]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    write("ca.crt", &params.self_signed(&key).expect("a certificate").pem());
    let issuer = Issuer::new(params, key);
    for (name, common_name) in [("server", "localhost"), ("client", "alice")] {
        let mut params = CertificateParams::new([common_name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate().expect("a key");
        write(&format!("{name}.crt"), &params.signed_by(&key, &issuer).expect("a certificate").pem());
        write(&format!("{name}.key"), &key.serialize_pem());
    }
}
