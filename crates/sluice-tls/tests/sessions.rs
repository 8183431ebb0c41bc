//! Both sides of a connection against each other, with certificates made for the purpose.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, DnValue, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd, string::BmpString,
};
use sluice_tls::{ClientFiles, ClientTls, ServerFiles, ServerTls, Session, Side, SslMode, TlsError};

/// Of all certificates.
const SERIAL: u64 = 7;

/// An authority, with servers' certificates for `localhost` and a client's for `alice`, all with a second common name.
struct Files {
    dir: tempfile::TempDir,
}

/// An authority's certificate, not yet signed.
fn authority() -> CertificateParams {
    let mut params = CertificateParams::new([]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

impl Files {
    fn new() -> Self {
        let files = Self { dir: tempfile::tempdir().expect("a folder") };
        let params = authority();
        let key = KeyPair::generate().expect("a key");
        files.write("ca.crt", &params.self_signed(&key).expect("a certificate").pem());
        files.write("ca.key", &key.serialize_pem());
        let issuer = Issuer::new(params, key);
        for (name, alternatives, common_name, second) in [
            ("server", &["localhost"][..], "ignored", "localhost"),
            ("unnamed", &[][..], "localhost", "elsewhere"),
            ("second", &[][..], "db.example", "localhost"),
            ("client", &[][..], "alice", "bob"),
        ] {
            let alternatives: Vec<String> = alternatives.iter().map(ToString::to_string).collect();
            let mut params = CertificateParams::new(alternatives).expect("names");
            params.serial_number = Some(SerialNumber::from(SERIAL));
            params.distinguished_name.push(DnType::CommonName, common_name);
            // Another one of the same kind.
            params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 3]), second);
            let key = KeyPair::generate().expect("a key");
            let certificate = params.signed_by(&key, &issuer).expect("a certificate");
            files.write(&format!("{name}.crt"), &certificate.pem());
            files.write(&format!("{name}.key"), &key.serialize_pem());
        }
        for (name, revoked, year) in
            [("none.crl", None, 2100), ("all.crl", Some(SERIAL), 2100), ("old.crl", None, 2020)]
        {
            let revoked = revoked.map(|serial| RevokedCertParams {
                serial_number: SerialNumber::from(serial),
                revocation_time: date_time_ymd(2019, 1, 1),
                reason_code: None,
                invalidity_date: None,
            });
            let list = CertificateRevocationListParams {
                this_update: date_time_ymd(2019, 1, 1),
                next_update: date_time_ymd(year, 1, 1),
                crl_number: SerialNumber::from(1_u64),
                issuing_distribution_point: None,
                revoked_certs: revoked.into_iter().collect(),
                key_identifier_method: KeyIdMethod::Sha256,
            };
            files.write(name, &list.signed_by(&issuer).expect("a list").pem().expect("PEM"));
        }
        files
    }

    /// The authority, for more certificates.
    fn issuer(&self) -> Issuer<'static, KeyPair> {
        let key = fs::read_to_string(self.path("ca.key")).expect("written");
        Issuer::new(authority(), KeyPair::from_pem(&key).expect("a key"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).expect("set");
    }

    /// A certificate of the authority's, with a key of its own.
    fn write_signed(&self, name: &str, params: &CertificateParams) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer()).expect("a certificate");
        self.write(&format!("{name}.crt"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    fn server(&self, name: &str) -> Arc<ServerTls> {
        let client_ca = Some(self.path("ca.crt"));
        let files = ServerFiles {
            cert: self.path(&format!("{name}.crt")),
            key: self.path(&format!("{name}.key")),
            client_ca,
            client_crl: None,
        };
        Arc::new(ServerTls::load(&files).expect("it can be had"))
    }

    fn client(&self, mode: SslMode, root: &str) -> Arc<ClientTls> {
        self.client_by("client", mode, root)
    }

    fn client_by(&self, name: &str, mode: SslMode, root: &str) -> Arc<ClientTls> {
        let own = Some((self.path(&format!("{name}.crt")), self.path(&format!("{name}.key"))));
        let files = ClientFiles { root_cert: Some(self.path(root)), own };
        Arc::new(ClientTls::load(mode, &files).expect("it can be had"))
    }
}

/// A connection in memory: what each side has to say goes to the other, in pieces of that size.
struct Pair {
    sides: [Session; 2],
    pieces: usize,
}

impl Pair {
    fn new(server: Arc<ServerTls>, client: Arc<ClientTls>, host: &str, pieces: usize) -> Self {
        let sides = [Session::new(Side::Client(client, host.into())), Session::new(Side::Server(server))];
        Self { sides, pieces }
    }

    fn shake_hands(&mut self) -> Result<(), (usize, TlsError)> {
        let mut out = Vec::new();
        self.sides[0].take(&mut [], &mut Vec::new(), &mut out).map_err(|error| (0, error))?;
        let mut to = 1;
        while !out.is_empty() {
            let (plain, answer) = self.deliver(to, &out)?;
            assert!(plain.is_empty());
            (out, to) = (answer, 1 - to);
        }
        assert!(self.sides.iter().all(Session::is_open));
        Ok(())
    }

    fn deliver(&mut self, to: usize, bytes: &[u8]) -> Result<(Vec<u8>, Vec<u8>), (usize, TlsError)> {
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(self.pieces) {
            self.sides[to].take(&mut piece.to_vec(), &mut plain, &mut out).map_err(|error| (to, error))?;
        }
        Ok((plain, out))
    }

    fn carry(&mut self, from: usize, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.sides[from].seal(plain, &mut out).expect("it is open");
        self.deliver(1 - from, &out).expect("it is whole").0
    }
}

#[test]
fn what_one_side_says_the_other_hears_however_it_is_cut() {
    let files = Files::new();
    for pieces in [1, 7, 1000, usize::MAX] {
        let client = files.client(SslMode::VerifyFull, "ca.crt");
        let mut pair = Pair::new(files.server("server"), client, "localhost", pieces);
        pair.shake_hands().expect("they agree");
        let long: Vec<u8> = (0..100_000).map(|i| i as u8).collect();
        for from in [0, 1, 0] {
            assert_eq!(pair.carry(from, b"x"), b"x");
            assert!(pair.carry(from, &long) == long);
        }
        let [client, server] = &pair.sides;
        let (client, server) = (client.secured().expect("it is open"), server.secured().expect("it is open"));
        assert_eq!((client.version, client.agreed, server.agreed), ("TLSv1.3", true, true));
        assert!(client.cipher.starts_with("TLS_"), "{}", client.cipher);
        assert_eq!(server.common_name.as_deref(), Some("alice"));
        assert_eq!(client.end_point, files.server("server").end_point);
        assert!(client.end_point.is_some());
        let mut out = Vec::new();
        pair.sides[1].close(&mut out);
        pair.deliver(0, &out).expect("it is whole");
        assert!(pair.sides[0].is_over() && !pair.sides[1].is_over());
    }
}

#[test]
fn a_server_is_looked_at_as_the_mode_says() {
    let files = Files::new();
    let attempt = |mode, root, server, host| {
        Pair::new(files.server(server), files.client(mode, root), host, usize::MAX).shake_hands()
    };
    assert_eq!(attempt(SslMode::VerifyFull, "ca.crt", "server", "localhost"), Ok(()));
    assert_eq!(attempt(SslMode::VerifyFull, "ca.crt", "unnamed", "localhost"), Ok(()), "by its common name");
    assert_eq!(attempt(SslMode::VerifyCa, "ca.crt", "server", "elsewhere"), Ok(()));
    assert_eq!(attempt(SslMode::VerifyFull, "server.crt", "server", "localhost"), Ok(()), "it is trusted itself");
    let refused = |mode, root, server, host| {
        let (by, error) = attempt(mode, root, server, host).expect_err("it is not to be trusted");
        assert_eq!(by, 0);
        error.to_string()
    };
    for host in ["elsewhere", "127.0.0.1"] {
        for server in ["server", "unnamed"] {
            let error = refused(SslMode::VerifyFull, "ca.crt", server, host);
            assert!(error.contains("not valid for name"), "{error}");
        }
    }
    let error = refused(SslMode::VerifyFull, "ca.crt", "second", "localhost");
    assert!(error.contains("not valid for name"), "by its second common name: {error}");
    let error = refused(SslMode::VerifyCa, "client.crt", "server", "localhost");
    assert!(error.contains("UnknownIssuer"), "{error}");
    let error = refused(SslMode::Require, "client.crt", "server", "localhost");
    assert!(error.contains("UnknownIssuer"), "authorities that are given are heeded: {error}");
    assert_eq!(attempt(SslMode::Prefer, "client.crt", "server", "localhost"), Ok(()));
}

#[test]
fn what_is_no_tls_is_an_error_with_an_alert() {
    let files = Files::new();
    let mut session = Session::new(Side::Server(files.server("server")));
    let mut out = Vec::new();
    let error = session.take(&mut b"GET / HTTP/1.0\r\n\r\n".to_vec(), &mut Vec::new(), &mut out);
    assert!(error.is_err() && !session.is_open());
    assert_eq!(out.first(), Some(&0x15), "an alert");
    // What comes behind that is nobody's: the library must not see it.
    out.clear();
    for _ in 0..3 {
        let more = session.take(&mut b"\x16\x03\x01\0\x04\x01\xff\xff\xff".to_vec(), &mut Vec::new(), &mut out);
        assert_eq!((more, session.has_failed(), out.len()), (Ok(()), true, 0));
    }
    let mut session = Session::new(Side::Server(files.server("server")));
    let mut fed = 0;
    // The beginning of a handshake message that says that it is very long, again and again.
    let mut record = [&[22, 3, 1, 0x40, 0][..], &[1, 0, 0xff, 0xff], &[0; (16 << 10) - 4]].concat();
    while session.take(&mut record.clone(), &mut Vec::new(), &mut out).is_ok() {
        record[5..9].copy_from_slice(&[0; 4]);
        fed += 1;
        assert!(fed < 10, "it takes no end of it");
    }
}

#[test]
fn files_that_do_not_fit_are_named() {
    let files = Files::new();
    let refused = |cert: &str, key: &str| {
        let files = ServerFiles { cert: files.path(cert), key: files.path(key), client_ca: None, client_crl: None };
        ServerTls::load(&files).expect_err("it can't be used").to_string()
    };
    assert!(refused("server.crt", "client.key").contains("server.crt: "), "{}", refused("server.crt", "client.key"));
    assert!(refused("server.key", "server.key").contains("it holds no certificate"));
    assert!(refused("server.crt", "ca.crt").contains("no private key"));
    assert!(refused("server.crt", "nothing").contains("nothing: No such file"));
    fs::set_permissions(files.path("server.key"), fs::Permissions::from_mode(0o644)).expect("set");
    assert!(refused("server.crt", "server.key").contains("others may read the private key: its mode is 0644"));
}

#[test]
fn an_idle_session_takes_a_few_kilobytes() {
    assert!(size_of::<Session>() <= 2048, "{}", size_of::<Session>());
}

/// As OpenSSL looks at it for PostgreSQL.
#[test]
fn a_certificate_for_other_uses_is_refused() {
    let files = Files::new();
    for (uses, is_let_in) in [
        (&[KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment][..], true),
        (&[KeyUsagePurpose::KeyAgreement], true),
        (&[KeyUsagePurpose::KeyEncipherment], false),
    ] {
        let mut params = CertificateParams::new([]).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "alice");
        params.key_usages = uses.to_vec();
        files.write_signed("used", &params);
        let client = files.client_by("used", SslMode::VerifyFull, "ca.crt");
        let done = Pair::new(files.server("server"), client, "localhost", 1000).shake_hands();
        assert_eq!(done.is_ok(), is_let_in, "{uses:?}: {done:?}");
    }
}

/// As PostgreSQL looks at it, whatever its rules say.
#[test]
fn a_client_whose_name_has_a_zero_byte_is_refused() {
    let files = Files::new();
    for (name, is_let_in) in [
        (DnValue::from("alice"), true),
        (DnValue::from("alice\0"), false),
        (DnValue::from("alice\0.elsewhere"), false),
        (DnValue::BmpString(BmpString::try_from("alice").expect("letters")), false),
    ] {
        let mut params = CertificateParams::new([]).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name.clone());
        files.write_signed("named", &params);
        let client = files.client_by("named", SslMode::VerifyFull, "ca.crt");
        let done = Pair::new(files.server("server"), client, "localhost", 1000).shake_hands();
        assert_eq!(done.is_ok(), is_let_in, "{name:?}: {done:?}");
    }
}

/// As OpenSSL looks at it for libpq.
#[test]
fn a_server_s_certificate_for_other_uses_is_refused() {
    let files = Files::new();
    for (uses, is_trusted) in [
        (&[][..], true),
        (&[KeyUsagePurpose::DigitalSignature], true),
        (&[KeyUsagePurpose::KeyEncipherment], true),
        (&[KeyUsagePurpose::KeyAgreement], true),
        (&[KeyUsagePurpose::KeyCertSign], false),
        (&[KeyUsagePurpose::ContentCommitment, KeyUsagePurpose::CrlSign], false),
    ] {
        let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        params.key_usages = uses.to_vec();
        files.write_signed("used", &params);
        for (mode, root) in [(SslMode::VerifyFull, "ca.crt"), (SslMode::VerifyCa, "used.crt")] {
            let done = Pair::new(files.server("used"), files.client(mode, root), "localhost", 1000).shake_hands();
            assert_eq!(done.is_ok(), is_trusted, "{uses:?}, {root}: {done:?}");
        }
    }
}

/// As for OpenSSL, too.
#[test]
fn nobody_is_let_in_by_an_authority_whose_key_is_for_other_uses() {
    let files = Files::new();
    for (uses, is_let_in) in
        [(&[KeyUsagePurpose::KeyCertSign][..], true), (&[], true), (&[KeyUsagePurpose::CrlSign], false)]
    {
        let mut between = CertificateParams::new([]).expect("no names");
        between.distinguished_name.push(DnType::CommonName, "between");
        between.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        between.key_usages = uses.to_vec();
        let key = KeyPair::generate().expect("a key");
        let shown = between.signed_by(&key, &files.issuer()).expect("a certificate").pem();
        let issuer = Issuer::new(between, key);
        let mut params = CertificateParams::new([]).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "alice");
        let key = KeyPair::generate().expect("a key");
        let own = params.signed_by(&key, &issuer).expect("a certificate").pem();
        files.write("chain.crt", &format!("{own}{shown}"));
        files.write("chain.key", &key.serialize_pem());
        let client = files.client_by("chain", SslMode::VerifyFull, "ca.crt");
        let done = Pair::new(files.server("server"), client, "localhost", 1000).shake_hands();
        assert_eq!(done.is_ok(), is_let_in, "{uses:?}: {done:?}");
    }
}

#[test]
fn a_certificate_that_is_revoked_is_refused() {
    let files = Files::new();
    for (list, is_let_in) in [("none.crl", true), ("all.crl", false), ("old.crl", false)] {
        let of_server = ServerFiles {
            cert: files.path("server.crt"),
            key: files.path("server.key"),
            client_ca: Some(files.path("ca.crt")),
            client_crl: Some(files.path(list)),
        };
        let server = Arc::new(ServerTls::load(&of_server).expect("it can be had"));
        let client = files.client(SslMode::VerifyFull, "ca.crt");
        let done = Pair::new(server, client, "localhost", 1000).shake_hands();
        assert_eq!(done.is_ok(), is_let_in, "{list}: {done:?}");
        let words = done.err().and_then(|(_, error)| error.refused_certificate());
        let expected = match list {
            "all.crl" => Some("revoked"),
            "old.crl" => Some("whether it is revoked is not known: its authority's list has expired"),
            _ => None,
        };
        assert_eq!(words.as_deref(), expected);
    }
    let wrong = ServerFiles {
        cert: files.path("server.crt"),
        key: files.path("server.key"),
        client_ca: Some(files.path("ca.crt")),
        client_crl: Some(files.path("ca.crt")),
    };
    let error = ServerTls::load(&wrong).expect_err("it is no list").to_string();
    assert!(error.contains("ca.crt: it holds no revocation list"), "{error}");
}
