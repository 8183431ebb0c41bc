//! Certificates of every kind, as libpq and PostgreSQL take them: their names, their hashes, and lists of revoked ones.

use std::{
    fs,
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use sluice_testkit::{Auth, Case, Certificates, PoolConfig, TestServer, Version, eventually, matrix};

use crate::{CONNECT_TIMEOUT, SLUICE, config};

matrix!(servers_with_tls:
    a_server_is_its_first_common_name,
    channels_are_bound_to_certificates_as_by_postgresql,
);
matrix!(transaction:
    an_own_one_that_expires_soon_is_warned_of,
    lists_that_can_not_be_used_are_named,
    who_shows_a_certificate_that_is_refused_is_told_of_in_the_log,
);

fn certificates() -> &'static Certificates {
    Certificates::shared()
}

fn path(name: &str) -> String {
    certificates().path(name).display().to_string()
}

/// A server that shows the certificate that was put before it, one after the other.
fn server() -> MutexGuard<'static, TestServer> {
    static SERVER: OnceLock<Mutex<TestServer>> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        put("server.crt", "server.key");
        let settings = [("ssl_cert_file", &path("shown.crt")), ("ssl_key_file", &path("shown.key"))];
        let settings = settings.map(|(name, value)| (name, value.as_str()));
        let server = TestServer::start_with_tls_for_process(Version::V15, &settings);
        server.execute("SET password_encryption = 'scram-sha-256'; CREATE ROLE bound LOGIN PASSWORD 'secret'");
        Mutex::new(server)
    });
    // A test that has failed is no reason for the others to.
    server.lock().unwrap_or_else(PoisonError::into_inner)
}

fn put(certificate: &str, key: &str) {
    certificates().give_postgresql(certificate, "shown.crt");
    certificates().give_postgresql(key, "shown.key");
}

/// Has the server show a certificate.
fn show(server: &TestServer, certificate: &str, key: &str) {
    put(certificate, key);
    let loaded = server.try_value("SELECT pg_conf_load_time()::text");
    server.execute("SELECT pg_reload_conf()");
    eventually("the server has read its files", || server.try_value("SELECT pg_conf_load_time()::text") != loaded);
}

/// Logs in to `localhost` by psql; gives its complaint.
fn log_in(port: u16, user: &str, options: &str) -> Result<(), String> {
    let to = format!("host=localhost port={port} user={user} dbname=postgres gssencmode=disable {options}");
    let mut psql = Command::new("psql");
    psql.args(["-X", "-w", "-At", "-c", "SELECT 1", &to]).stdin(Stdio::null());
    let output = psql.env("PGPASSWORD", "secret").env("PGCONNECT_TIMEOUT", CONNECT_TIMEOUT).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// A pool for the role `bound`, before the server by TLS.
fn before(case: Case, server: &TestServer, lines: &str) -> PoolConfig {
    PoolConfig::without_databases(SLUICE, case)
        .auth(Auth::Scram(vec![("bound".to_owned(), "secret".to_owned())]))
        .database_at("*", "localhost", server.port(), lines)
}

fn a_server_is_its_first_common_name(case: Case) {
    let server = server();
    let authority = path("authority.crt");
    let mut accepted = Vec::new();
    for (number, name) in
        ["localhost/CN=db.example", "db.example/CN=localhost", "db.example+CN=localhost"].iter().enumerate()
    {
        let file = format!("named-{number}-{:?}", case.driver);
        certificates().make(&format!("new {name} {file} '' csr; sign {file}"));
        show(&server, &format!("{file}.crt"), &format!("{file}.key"));
        let by_libpq = log_in(server.port(), "bound", &format!("sslmode=verify-full sslrootcert={authority}"));
        let pool = before(case, &server, &format!("sslmode = \"verify-full\"\nsslrootcert = {authority:?}")).start();
        let by_pool = log_in(pool.address().port(), "bound", "sslmode=disable");
        assert_eq!(by_pool.is_ok(), by_libpq.is_ok(), "{name}: {by_pool:?} {by_libpq:?}");
        accepted.push(by_pool.is_ok());
    }
    assert_eq!(accepted[..2], [true, false]);
}

fn channels_are_bound_to_certificates_as_by_postgresql(case: Case) {
    let server = server();
    let pss = "-newkey rsa:2048 -sigopt rsa_padding_mode:pss";
    let ecdsa = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1";
    for (number, (options, is_bound)) in [
        (format!("{pss} -sha256"), true),
        (format!("{pss} -sha384 -sigopt rsa_pss_saltlen:digest"), true),
        (format!("{pss} -sha512"), true),
        (format!("{pss} -sha224"), true),
        (format!("{pss} -sha1"), true),
        ("-newkey rsa:2048 -sha384".to_owned(), true),
        ("-newkey rsa:2048 -sha224".to_owned(), true),
        (format!("{ecdsa} -sha512"), true),
        (format!("{ecdsa} -sha224"), true),
        (format!("{ecdsa} -sha1"), true),
        ("-newkey ed25519".to_owned(), false),
    ]
    .iter()
    .enumerate()
    {
        let file = format!("bound-{number}-{:?}", case.driver);
        let [certificate, key] = ["crt", "key"].map(|ending| format!("{file}.{ending}"));
        let to = format!("-days 2 -nodes -subj /CN=localhost -keyout {key} -out {certificate}");
        certificates().make(&format!("openssl req -x509 {options} {to}; chmod 600 {key}"));
        show(&server, &certificate, &key);
        let tls = format!("[tls]\ncert_file = {:?}\nkey_file = {:?}\n", path(&certificate), path(&key));
        let pool = before(case, &server, "sslmode = \"require\"").section(&tls).start();
        let by = |port, binding| log_in(port, "bound", &format!("sslmode=require channel_binding={binding}"));
        let alone = by(server.port(), "require");
        let pooled = by(pool.address().port(), "require");
        assert_eq!((alone.is_ok(), pooled.is_ok()), (*is_bound, *is_bound), "{options}: {alone:?} {pooled:?}");
        // Also where the client does not bind, the pool has logged in to the server.
        assert_eq!(by(pool.address().port(), "prefer"), Ok(()), "{options}");
        if !is_bound {
            // libpq itself does not get so far.
            assert!(by(server.port(), "prefer").is_err(), "{options}");
        }
    }
}

/// Makes lists of the authority's: `old` of version 1, `none` and `revoked` of version 2; the last one has `FILE.crt`.
fn make_lists(prefix: &str, file: &str) {
    certificates().make(&format!(
        "
list() {{ openssl ca -config $1.cnf -keyfile authority.key -cert authority.crt $2 $3; }}
: > {prefix}.index
printf '[ca]\\ndefault_ca=it\\n[it]\\ndatabase={prefix}.index\\ndefault_md=sha256\\ndefault_crl_days=2\\n' > {prefix}-1.cnf
(cat {prefix}-1.cnf; echo crlnumber={prefix}.number) > {prefix}-2.cnf
echo 01 > {prefix}.number
list {prefix}-1 -gencrl '-out {prefix}-old.crl'
list {prefix}-2 -gencrl '-out {prefix}-none.crl'
list {prefix}-2 '-revoke {file}.crt'
list {prefix}-2 -gencrl '-out {prefix}-revoked.crl'
"
    ));
}

fn lists_that_can_not_be_used_are_named(case: Case) {
    let prefix = format!("lists-{:?}", case.driver);
    make_lists(&prefix, "client");
    fs::write(certificates().path(&format!("{prefix}-no.crl")), "nothing").unwrap();
    let broken = "-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n";
    fs::write(certificates().path(&format!("{prefix}-broken.crl")), broken).unwrap();
    let with_list = |name: &str| {
        let files = [path("authority.crt"), path(&format!("{prefix}-{name}.crl"))];
        config(case).tls(certificates(), &format!("client_ca_file = {:?}\nclient_crl_file = {:?}", files[0], files[1]))
    };
    let pool = with_list("none").start();
    for (name, fault, remedy) in [
        ("old", "a list of version 1, which is not read", "make one of version 2: with crlnumber in openssl.cnf"),
        ("broken", "a revocation list can't be read", "give lists as RFC 5280 has them"),
        ("no", "it holds no revocation list", "give certificate revocation lists in PEM"),
        ("missing", "No such file", "create it"),
    ] {
        let words = pool.reload(&with_list(name));
        for expected in ["tls.client_crl_file: ", &format!("{prefix}-{name}.crl: {fault}"), remedy] {
            assert!(words.contains(expected), "{expected}\n{words}");
        }
    }
}

fn an_own_one_that_expires_soon_is_warned_of(case: Case) {
    let file = format!("own-{:?}", case.driver);
    certificates().make(&format!("new localhost {file} '' csr; sign {file}; chmod 600 {file}.key"));
    let tls = format!(
        "[tls]\ncert_file = {:?}\nkey_file = {:?}\n",
        path(&format!("{file}.crt")),
        path(&format!("{file}.key"))
    );
    let config = config(case).section(&tls);
    let pool = config.start();
    assert!(!pool.log().contains("expires on"), "{}", pool.log());
    certificates().make(&format!(
        "openssl x509 -req -in {file}.csr -CA authority.crt -CAkey authority.key -set_serial 9 -days 5 -out {file}.crt"
    ));
    pool.reload(&config);
    let log = pool.log();
    let said = log.lines().find(|line| line.contains("tls.cert_file")).unwrap_or_else(|| panic!("{log}"));
    assert!(said.contains("WARN") && said.contains(&format!("{file}.crt expires on 20")), "{said}");
}

fn who_shows_a_certificate_that_is_refused_is_told_of_in_the_log(case: Case) {
    let file = format!("refused-{:?}", case.driver);
    certificates().make(&format!(
        "
new app {file} '' csr; sign {file} '-extfile names'; chmod 600 {file}.key
"
    ));
    make_lists(&file, &file);
    certificates().make(&format!(
        "
cp {file}.key {file}-old.key; cp {file}.key {file}-unknown.key
openssl x509 -req -in {file}.csr -CA other.crt -CAkey other.key -set_serial 7 -days 2 -extfile names -out {file}-unknown.crt
(cat {file}-1.cnf; printf 'policy=whose\nnew_certs_dir=.\nrand_serial=yes\n[whose]\ncommonName=supplied\n') > {file}.cnf
openssl ca -config {file}.cnf -batch -notext -in {file}.csr -keyfile authority.key -cert authority.crt -extfile names \\
    -startdate 200101000000Z -enddate 200102000000Z -out {file}-old.crt
"
    ));
    let lines = |list: &str| {
        format!(
            "client_ca_file = {:?}\nclient_crl_file = {:?}",
            path("authority.crt"),
            path(&format!("{file}-{list}.crl"))
        )
    };
    let pool = config(case).tls(certificates(), &lines("none")).start();
    let attempt = |name: &str| {
        let [certificate, key] = ["crt", "key"].map(|ending| path(&format!("{name}.{ending}")));
        log_in(pool.address().port(), "app", &format!("sslmode=require sslcert={certificate} sslkey={key}"))
    };
    assert_eq!(attempt(&file), Ok(()));
    let told = |name: &str, words: &str| {
        assert!(attempt(name).is_err(), "{name}");
        let words = format!("client certificate refused: {words}");
        let is_it = |line: &str| line.contains("WARN") && line.contains(&words) && line.contains("peer=127.0.0.1");
        eventually(&words, || pool.log().lines().any(is_it));
    };
    told(&format!("{file}-unknown"), "of an authority that is not trusted");
    told("other", "not of a kind that is taken: CaUsedAsEndEntity");
    told(&format!("{file}-old"), "expired");
    told("client", "whether it is revoked is not known");
    pool.reload(&config(case).tls(certificates(), &lines("revoked")));
    told(&file, "revoked");
    assert!(!pool.log().contains("client not encrypted"), "{}", pool.log());
}
