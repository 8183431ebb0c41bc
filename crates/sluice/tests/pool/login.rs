//! From the first packet to the first ReadyForQuery: who is let in, and with what in place.

use std::time::{Duration, Instant};

use sluice_testkit::{
    Auth, Case, Database, Message, Raw, TestPool, becomes, eventually, matrix,
    raw::{Script, transcript},
};
use sluice_wire::startup::{self, ProtocolVersion};

use crate::{HOLD, SLUICE, config, database};

matrix!(transaction:
    trust_lets_anyone_in,
    trust_with_passwords_for_servers,
    md5_from_a_users_file,
    scram_from_a_users_file,
    scram_by_look_up,
    who_stands_in_the_file_is_not_looked_up,
    md5_by_look_up,
    a_changed_password_is_seen,
    logins_to_the_server,
    unknown_databases,
    protocol_versions,
    encryption_is_declined_and_the_rest_refused,
    startup_settings_are_in_place_on_every_server,
    reported_parameters_are_postgresqls,
    bad_settings_are_fatal,
    a_query_may_give_the_name_before_the_secret,
    a_role_that_was_made_again_has_its_own_servers,
    long_names_are_cut,
    who_does_not_exist_is_asked_as_who_does,
    as_many_settings_as_a_packet_holds,
    limits_on_logins,
    strangers_are_heard_at_the_limit,
);
matrix!(both_modes: a_seed_at_the_start_sows_nothing);
matrix!(session: startup_settings_in_session_mode);

/// A role of this test's own with the password `secret`, in a group that says how the server lets it in.
pub(crate) fn role(database: &Database<'_>, suffix: &str, encryption: &str, group: &str) -> String {
    let name = format!("{}_{suffix}", database.name);
    database.server.execute(&format!(
        "SET password_encryption = '{encryption}'; CREATE ROLE {name} LOGIN PASSWORD 'secret' {group}; \
         RESET password_encryption"
    ));
    name
}

pub(crate) fn secret(database: &Database<'_>, role: &str) -> String {
    database.server.value(&format!("SELECT rolpassword FROM pg_authid WHERE rolname = '{role}'"))
}

pub(crate) fn current_user(
    pool: &TestPool,
    user: &str,
    password: &str,
    database: &Database<'_>,
) -> Result<String, String> {
    match pool.connect(user, Some(password), &database.name) {
        Ok(mut client) => Ok(client.query_one("SELECT current_user::text", &[]).unwrap().get(0)),
        Err(error) => match error.as_db_error() {
            Some(error) => Err(format!("{} {}", error.code().code(), error.message())),
            None => Err(format!("{error:?}")),
        },
    }
}

/// The right password is let in, and anything else is told the same.
pub(crate) fn check_passwords(pool: &TestPool, role: &str, database: &Database<'_>) {
    assert_eq!(current_user(pool, role, "secret", database), Ok(role.to_owned()));
    let refused = |user: &str| Err(format!("28P01 password authentication failed for user \"{user}\""));
    assert_eq!(current_user(pool, role, "wrong", database), refused(role));
    assert_eq!(current_user(pool, "nobody_at_all", "secret", database), refused("nobody_at_all"));
    assert_eq!(current_user(pool, role, "secret", database), Ok(role.to_owned()));
}

fn trust_lets_anyone_in(case: Case) {
    let database = database(case);
    let pool = config(case).start();
    let mut client = pool.app(&database);
    assert_eq!(client.query_one("SELECT current_user::text", &[]).unwrap().get::<_, String>(0), "app");
    // The server has the last word on who exists.
    let error = pool.connect("nobody_at_all", None, &database.name).err().unwrap();
    let error = error.as_db_error().unwrap();
    assert!(error.severity() == "FATAL" && error.code().code().starts_with("28"), "{error}");
}

fn trust_with_passwords_for_servers(case: Case) {
    let database = database(case);
    let plain = role(&database, "plain", "scram-sha-256", "");
    let hashed = role(&database, "md5", "md5", "IN ROLE hashed");
    let verified = role(&database, "verifier", "scram-sha-256", "");
    let [hash, verifier] = [&hashed, &verified].map(|role| (role.clone(), secret(&database, role)));
    let users = vec![(plain.clone(), "secret".to_owned()), hash, verifier];
    let pool = config(case).auth(Auth::TrustListed(users)).start();
    for role in [plain, hashed] {
        assert_eq!(current_user(&pool, &role, "anything", &database), Ok(role));
    }
    // A verifier opens no server.
    let error = current_user(&pool, &verified, "secret", &database).unwrap_err();
    assert!(error.contains("the server asks for SCRAM-SHA-256"), "{error}");
}

fn md5_from_a_users_file(case: Case) {
    let database = database(case);
    let hashed = role(&database, "md5", "md5", "IN ROLE hashed");
    let plain = role(&database, "plain", "md5", "IN ROLE hashed");
    let users = vec![(hashed.clone(), secret(&database, &hashed)), (plain.clone(), "secret".to_owned())];
    let verified = role(&database, "verifier", "scram-sha-256", "");
    let users = [users, vec![(verified.clone(), secret(&database, &verified))]].concat();
    let pool = config(case).auth(Auth::Md5(users.clone())).start();
    // A verifier is checked by SCRAM, as PostgreSQL does.
    for role in [&hashed, &plain, &verified] {
        check_passwords(&pool, role, &database);
    }
    // With scram-sha-256 an MD5 hash can't be checked, but a plain password can.
    let pool = config(case).auth(Auth::Scram(users)).start();
    assert_eq!(current_user(&pool, &plain, "secret", &database), Ok(plain));
    let error = format!("28P01 password authentication failed for user \"{hashed}\"");
    assert_eq!(current_user(&pool, &hashed, "secret", &database), Err(error));
}

fn scram_from_a_users_file(case: Case) {
    let database = database(case);
    let verified = role(&database, "verifier", "scram-sha-256", "");
    let plain = role(&database, "plain", "scram-sha-256", "");
    let users = vec![(verified.clone(), secret(&database, &verified)), (plain.clone(), "secret".to_owned())];
    let pool = config(case).auth(Auth::Scram(users)).start();
    // Upstream as well: with the keys that the client's proof showed, and with the password.
    check_passwords(&pool, &verified, &database);
    check_passwords(&pool, &plain, &database);
}

fn scram_by_look_up(case: Case) {
    let database = database(case);
    let user = role(&database, "u", "scram-sha-256", "");
    let pool = config(case).auth(Auth::LookUp(String::new())).start();
    check_passwords(&pool, &user, &database);
    // A role that can't log in, and one whose password has expired, are as good as unknown.
    let expired = role(&database, "expired", "scram-sha-256", "VALID UNTIL '2000-01-01'");
    let error = format!("28P01 password authentication failed for user \"{expired}\"");
    assert_eq!(current_user(&pool, &expired, "secret", &database), Err(error));
    // One that is made later is found.
    let later = role(&database, "later", "scram-sha-256", "");
    assert_eq!(current_user(&pool, &later, "secret", &database), Ok(later));
}

/// As with PgBouncer's `auth_file` beside `auth_user`.
fn who_stands_in_the_file_is_not_looked_up(case: Case) {
    let database = database(case);
    let [listed, locked, looked_up] =
        ["listed", "locked", "looked_up"].map(|suffix| role(&database, suffix, "scram-sha-256", "IN ROLE trusted"));
    let users = vec![(listed.clone(), "of the file".to_owned()), (locked.clone(), String::new())];
    let pool = config(case).auth(Auth::ScramAndLookUp(users)).start();
    check_passwords(&pool, &looked_up, &database);
    let refused = |user: &str| Err(format!("28P01 password authentication failed for user \"{user}\""));
    for _ in 0..2 {
        // The server's password is another one.
        assert_eq!(current_user(&pool, &listed, "of the file", &database), Ok(listed.clone()));
        assert_eq!(current_user(&pool, &listed, "secret", &database), refused(&listed));
        assert_eq!(current_user(&pool, &locked, "secret", &database), refused(&locked));
    }
}

/// PgBouncer's queries give the name first.
fn a_query_may_give_the_name_before_the_secret(case: Case) {
    let database = database(case);
    let user = role(&database, "u", "scram-sha-256", "");
    let pool = |query: &str| config(case).auth(Auth::LookUp(format!("query = {query:?}"))).start();
    let good = pool("SELECT rolname, rolpassword FROM pg_authid WHERE rolname = $1");
    check_passwords(&good, &user, &database);
    // A function with OUT parameters, as in PgBouncer's manual, gives a row of NULLs for who does not exist.
    let one_row = pool("SELECT rolname, rolpassword FROM (SELECT $1::text) a (n) LEFT JOIN pg_authid ON rolname = n");
    check_passwords(&one_row, &user, &database);
    assert!(!one_row.log().contains("another user's secret"), "{}", one_row.log());
    for (query, said) in [
        // A name is no secret, whoever says it.
        ("SELECT rolpassword, rolname FROM pg_authid WHERE rolname = $1", "the query gives another user's secret"),
        ("SELECT 'other', rolpassword FROM pg_authid WHERE rolname = $1", "the query gives another user's secret"),
        ("SELECT NULL::text, rolpassword FROM pg_authid WHERE rolname = $1", "the query gives another user's secret"),
        ("SELECT rolname, rolpassword, 1 FROM pg_authid WHERE rolname = $1", "the query gives 3 columns"),
    ] {
        let pool = pool(query);
        for password in [user.as_str(), "other", "secret"] {
            let error = current_user(&pool, &user, password, &database).unwrap_err();
            assert!(error.contains("could not look up the user's secret"), "{query}: {error}");
        }
        assert!(pool.log().contains(said) && !pool.log().contains("SCRAM-SHA-256$"), "{query}: {}", pool.log());
    }
}

fn a_role_that_was_made_again_has_its_own_servers(case: Case) {
    let database = database(case);
    let user = role(&database, "u", "scram-sha-256", "");
    let pool = config(case).auth(Auth::LookUp("cache = \"1s\"".to_owned())).start();
    assert_eq!(current_user(&pool, &user, "secret", &database), Ok(user.clone()));
    database.server.execute(&format!("DROP ROLE {user}"));
    role(&database, "u", "scram-sha-256", "");
    std::thread::sleep(Duration::from_millis(1_100));
    assert_eq!(current_user(&pool, &user, "secret", &database), Ok(user));
}

fn long_names_are_cut(case: Case) {
    let database = database(case);
    let user = role(&database, &"x".repeat(80), "scram-sha-256", "");
    let known = &user[..63];
    // A name with one more character would be cut in the midst of that.
    let left = 62 - database.name.len() - 1;
    let umlauts = role(&database, &["x".repeat(left % 2), "ü".repeat(left / 2)].concat(), "scram-sha-256", "");
    let listed = Auth::Scram([known, &umlauts].map(|role| (role.to_owned(), secret(&database, role))).to_vec());
    for auth in [Auth::LookUp(String::new()), listed] {
        let pool = config(case).auth(auth).start();
        assert_eq!(current_user(&pool, &user, "secret", &database), Ok(known.to_owned()));
        assert_eq!(current_user(&pool, known, "secret", &database), Ok(known.to_owned()));
        let error = current_user(&pool, &format!("{umlauts}ü"), "secret", &database).unwrap_err();
        assert!(error.starts_with("28P01"), "{error}");
    }
}

fn who_does_not_exist_is_asked_as_who_does(case: Case) {
    let database = database(case);
    let asked = |pool: &TestPool, user: &str| {
        let mut raw = pool.raw();
        let mut packet = Vec::new();
        startup::put_session(&mut packet, ProtocolVersion::V3_0, [("user", user), ("database", &*database.name)]);
        raw.send_bytes(&packet);
        raw.message().map(|message| message.body[..4].to_vec()).unwrap()
    };
    let (scram, md5) = (vec![0, 0, 0, 10], vec![0, 0, 0, 5]);
    let hashed = role(&database, "md5", "md5", "IN ROLE hashed");
    let verified = role(&database, "scram", "scram-sha-256", "");
    let pool = config(case).auth(Auth::LookUpMd5(String::new())).start();
    // As PostgreSQL asks who does not exist: by the secret that it would make, whoever else was asked.
    for (user, kind) in [(&verified, &scram), (&hashed, &md5), (&verified, &scram)] {
        assert_eq!((&asked(&pool, user), &asked(&pool, &format!("no_{user}"))), (kind, &scram), "{user}");
    }
    for (user, kind) in [(&verified, &scram), (&hashed, &md5)] {
        let listed = Auth::Md5(vec![(user.clone(), secret(&database, user))]);
        assert_eq!(&asked(&config(case).auth(listed).start(), "nobody_at_all"), kind, "{user}");
    }
}

fn md5_by_look_up(case: Case) {
    let database = database(case);
    let hashed = role(&database, "md5", "md5", "IN ROLE hashed");
    let verified = role(&database, "scram", "scram-sha-256", "");
    let pool = config(case).auth(Auth::LookUpMd5(String::new())).start();
    check_passwords(&pool, &hashed, &database);
    // A verifier can only be checked by SCRAM, and so it is.
    check_passwords(&pool, &verified, &database);
}

fn a_changed_password_is_seen(case: Case) {
    let database = database(case);
    let user = role(&database, "u", "scram-sha-256", "");
    let pool =
        config(case).auth(Auth::LookUp("cache = \"1h\"".to_owned())).pool("server_idle_timeout = \"1s\"").start();
    assert_eq!(current_user(&pool, &user, "secret", &database), Ok(user.clone()));
    database.server.execute(&format!("ALTER ROLE {user} PASSWORD 'changed'"));
    // What is believed for an hour is doubted as soon as a login fails.
    let first = current_user(&pool, &user, "changed", &database);
    assert!(first.is_ok() || first.as_ref().is_err_and(|e| e.starts_with("28P01")), "{first:?}");
    assert_eq!(current_user(&pool, &user, "changed", &database), Ok(user.clone()));
    assert!(current_user(&pool, &user, "secret", &database).is_err_and(|e| e.starts_with("28P01")));
    // New server connections are opened with the new keys.
    eventually("the old server connection is gone", || database.connections() == 0);
    assert_eq!(current_user(&pool, &user, "changed", &database), Ok(user));
}

fn logins_to_the_server(case: Case) {
    let database = database(case);
    let server = database.server;
    let scram = role(&database, "scram", "scram-sha-256", "");
    let md5 = role(&database, "md5", "md5", "IN ROLE hashed");
    let at = |name: &str, user: &str, more: &str| {
        let dbname = &database.name;
        (name.to_owned(), format!("dbname = \"{dbname}\"\nuser = \"{user}\"\n{more}"))
    };
    let entries = [
        at("by_password", &scram, "password = \"secret\""),
        at("by_md5", &md5, "password = \"secret\""),
        at("by_peer", "peered_app", ""),
        at("by_wrong_password", &scram, "password = \"wrong\""),
        at("by_nothing", &scram, ""),
    ];
    let base = sluice_testkit::PoolConfig::without_databases(SLUICE, case);
    let pool = entries.iter().fold(base, |config, (name, lines)| config.database(name, server, lines)).start();
    let connect = |name: &str| pool.connect("whoever", None, name);
    for (name, user) in [("by_password", &*scram), ("by_md5", &*md5), ("by_peer", "peered_app")] {
        let row = connect(name).unwrap().query_one("SELECT current_user::text", &[]).unwrap();
        assert_eq!(row.get::<_, String>(0), user, "{name}");
    }
    for (name, code) in [("by_wrong_password", "28P01"), ("by_nothing", "28000")] {
        let begin = Instant::now();
        let error = connect(name).err().unwrap();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), code, "{name}: {error}");
        // There is no point in waiting: it would fail again.
        assert!(begin.elapsed() < Duration::from_secs(20), "{name}: {:?}", begin.elapsed());
    }
}

fn unknown_databases(case: Case) {
    let database = database(case);
    // PostgreSQL says so where all names are passed on.
    let pool = config(case).start();
    let error = pool.connect("app", None, "no_such_database").err().unwrap();
    assert_eq!(error.as_db_error().unwrap().code().code(), "3D000");
    assert!(pool.connect("app", None, &database.name).is_ok());
    drop(pool);
    // The pool says so where they are listed.
    let listed = sluice_testkit::PoolConfig::without_databases(SLUICE, case);
    let alias = format!("dbname = \"{}\"", database.name);
    let pool = listed.database("alias", database.server, &alias).start();
    let error = pool.connect("app", None, &database.name).err().unwrap();
    assert_eq!(error.as_db_error().unwrap().code().code(), "3D000");
    let mut client = pool.connect("app", None, "alias").unwrap();
    assert_eq!(client.query_one("SELECT current_database()::text", &[]).unwrap().get::<_, String>(0), database.name);
}

/// The messages of a login without those that report parameters.
fn login(raw: &mut Raw, version: (u16, u16), parameters: &[(&str, &str)]) -> Vec<Message> {
    let messages = raw.login_with(ProtocolVersion { major: version.0, minor: version.1 }, parameters);
    messages.into_iter().filter(|message| message.tag != b'S').collect()
}

/// The request (version and parameters), the expected answer, and the length of the key.
type LoginCase<'a> = ((u16, u16), &'a [(&'a str, &'a str)], &'a str, usize);

fn protocol_versions(case: Case) {
    let database = database(case);
    let pool = config(case).start();
    let app = [("user", "app"), ("database", &*database.name)];
    let with = |name| [app[0], app[1], (name, "1")];
    let cases: [LoginCase<'_>; 8] = [
        ((3, 0), &app, "R K Z(I)", 4),
        ((3, 2), &app, "R K Z(I)", 32),
        ((3, 9999), &app, "v R K Z(I)", 32),
        ((3, 1), &app, "R K Z(I)", 4),
        ((3, 1), &with("_pq_.x"), "v R K Z(I)", 4),
        ((3, 0), &with("_pq_.x"), "v R K Z(I)", 4),
        ((3, 2), &with("_pq_.command_tag"), "v R K Z(I)", 32),
        ((3, 3), &with("_pq_.x"), "v R K Z(I)", 32),
    ];
    for (version, parameters, expected, key_bytes) in cases {
        let mut raw = pool.raw();
        let messages = login(&mut raw, version, parameters);
        assert_eq!(transcript(&messages), expected, "{version:?}");
        assert_eq!(raw.key.1.len(), key_bytes, "{version:?}");
        assert_ne!(raw.key.0, 0);
        if let Some(negotiation) = messages.iter().find(|message| message.tag == b'v') {
            let minor = version.1.min(2) as u8;
            let unknown = parameters.iter().filter(|(name, _)| name.starts_with("_pq_.")).collect::<Vec<_>>();
            let mut body = vec![0, 3, 0, minor, 0, 0, 0, unknown.len() as u8];
            unknown.iter().for_each(|(name, _)| body.extend_from_slice(&[name.as_bytes(), b"\0"].concat()));
            assert_eq!(negotiation.body, body, "{version:?}");
        }
        assert_eq!(raw.query("SELECT 1"), "T(?column?) D(1) C(SELECT 1) Z(I)");
    }
}

fn encryption_is_declined_and_the_rest_refused(case: Case) {
    const SSL: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
    const GSSENC: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 48];
    let database = database(case);
    let pool = config(case).start();
    let app = [("user", "app"), ("database", &*database.name)];
    for requests in [&[SSL][..], &[GSSENC], &[GSSENC, SSL], &[SSL, GSSENC]] {
        let mut raw = pool.raw();
        for request in requests {
            raw.send_bytes(request);
            assert_eq!(raw.byte(), Some(b'N'));
        }
        assert_eq!(transcript(&login(&mut raw, (3, 0), &app)), "R K Z(I)");
    }
    // What comes behind the request in the same packet was not meant to be read in clear.
    let mut raw = pool.raw();
    raw.send_bytes(&[&SSL[..], &[0, 0, 0, 9]].concat());
    assert_eq!(raw.byte(), Some(b'N'));
    assert_eq!(transcript(&raw.until_end()), "E(FATAL 08P01)");
    // A CancelRequest has no answer, however malformed.
    for body in [&[][..], &[0, 0, 0, 1], &[0; 4 + 257]] {
        let mut raw = pool.raw();
        let length = u32::try_from(8 + body.len()).unwrap();
        raw.send_bytes(&[&length.to_be_bytes(), &[4, 210, 22, 46], body].concat());
        assert_eq!(raw.until_end(), []);
    }

    let refused = |version, parameters: &[(&str, &str)]| {
        let messages = login(&mut pool.raw(), version, parameters);
        assert_eq!(messages.len(), 1, "{}", transcript(&messages));
        (messages[0].to_string(), messages[0].field(b'M'))
    };
    for version in [(2, 0), (1, 0), (4, 0)] {
        let (what, message) = refused(version, &app);
        assert_eq!(what, "E(FATAL 0A000)");
        let (major, minor) = version;
        assert_eq!(message, format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2"));
    }
    for kind in ["true", "1", "database"] {
        let (what, message) = refused((3, 0), &[app[0], app[1], ("replication", kind)]);
        assert!(what == "E(FATAL 0A000)" && message.contains("replication"), "{what} {message}");
    }
    assert_eq!(refused((3, 0), &[("database", "postgres")]).0, "E(FATAL 28000)");
    // A packet that is cut, and one that is no packet at all.
    let mut raw = pool.raw();
    raw.send_bytes(&[0, 0, 0, 20, 0, 3, 0, 0, b'u']);
    raw.end_sending();
    assert_eq!(raw.until_end(), []);
    let mut raw = pool.raw();
    raw.send_bytes(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    assert_eq!(transcript(&raw.until_end()), "E(FATAL 08P01)");
    // The same bit by bit.
    let mut raw = pool.raw();
    let mut packet = Vec::new();
    sluice_wire::startup::put_session(&mut packet, ProtocolVersion::V3_0, app);
    raw.send_in_pieces(&packet, 1);
    assert_eq!(transcript(&raw.until_ready(1)).rsplit(' ').next(), Some("Z(I)"));
}

const SETTINGS: &str = "SELECT concat_ws('|', current_setting('work_mem'), current_setting('geqo'), \
                        current_setting('search_path'), current_setting('timezone'), \
                        current_setting('application_name'), current_setting('client_encoding'), \
                        current_setting('datestyle'))";

type Settings = [(&'static str, &'static str)];

const PLAIN: &Settings = &[];
const RICH: &Settings = &[
    ("options", "-c work_mem=7MB --geqo=off -csearch_path=a,\\ b"),
    ("TimeZone", "Asia/Tokyo"),
    ("application_name", "it's \\ rich"),
    ("client_encoding", "LATIN1"),
    ("DateStyle", "German"),
];
const OTHER: &Settings = &[("application_name", "other"), ("options", "-c work_mem=9MB"), ("timezone", "UTC")];

fn with_settings(mut raw: Raw, database: &Database<'_>, settings: &Settings) -> Raw {
    let mut parameters = vec![("user", "app"), ("database", &*database.name)];
    parameters.extend_from_slice(settings);
    let messages = raw.login_with(ProtocolVersion::V3_0, &parameters);
    assert_eq!(messages.last().map(Message::to_string), Some("Z(I)".to_owned()), "{}", transcript(&messages));
    raw
}

fn startup_settings_are_in_place_on_every_server(case: Case) {
    let database = database(case);
    let pool = config(case).size(2).start();
    let all = [PLAIN, RICH, OTHER];
    let expected: Vec<String> =
        all.iter().map(|s| with_settings(database.server.raw(), &database, s).value(SETTINGS)).collect();
    assert!(expected[1].starts_with("7MB|off|a, b|Asia/Tokyo|it's \\ rich|LATIN1|"), "{}", expected[1]);
    let mut clients: Vec<Raw> = all.iter().map(|s| with_settings(pool.raw(), &database, s)).collect();
    // In all orders, so that each server has been everybody's before.
    for round in 0..6 {
        let mut held = pool.raw_app(&database);
        if round % 2 == 1 {
            assert_eq!(held.query(HOLD), "C(BEGIN) Z(T)");
        }
        for place in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [1, 0, 2], [2, 0, 1]][round] {
            assert_eq!(clients[place].value(SETTINGS), expected[place], "round {round}");
            // With an extended query just the same, unnamed and in one packet with the settings.
            let talk = clients[place].talk(&Script::new().unnamed("SELECT current_setting('work_mem')", &[]).sync());
            let work_mem = expected[place].split('|').next().unwrap();
            assert_eq!(talk, format!("1 2 T(current_setting) D({work_mem}) C(SELECT 1) Z(I)"));
        }
    }
}

fn startup_settings_in_session_mode(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).start();
    for settings in [PLAIN, RICH, OTHER, RICH, PLAIN] {
        let expected = with_settings(database.server.raw(), &database, settings).value(SETTINGS);
        let mut client = with_settings(pool.raw(), &database, settings);
        assert_eq!(client.value(SETTINGS), expected);
        assert_eq!(client.query("SET work_mem = '5MB'"), "C(SET) Z(I)");
        assert!(client.value(SETTINGS).starts_with("5MB|"));
        // The value that RESET goes back to.
        assert_eq!(client.query("RESET work_mem"), "C(RESET) Z(I)");
    }
}

fn reported_parameters_are_postgresqls(case: Case) {
    let database = database(case);
    let pool = config(case).size(2).start();
    for settings in [PLAIN, RICH, OTHER] {
        let sorted = |raw: Raw| {
            let mut parameters = with_settings(raw, &database, settings).parameters;
            parameters.sort();
            parameters
        };
        let expected = sorted(database.server.raw());
        // From a server at the first login, from what the pool remembers at the second.
        for _ in 0..3 {
            assert_eq!(sorted(pool.raw()), expected);
        }
    }
}

fn bad_settings_are_fatal(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).start();
    let backend = pool.raw_app(&database).backend();
    let bad: [&Settings; 7] = [
        &[("TimeZone", "Nowhere/At_All")],
        &[("client_encoding", "klingon")],
        &[("options", "-c work_mem=much")],
        &[("no_such_setting", "1")],
        &[("options", "-c shared_buffers=1GB")],
        &[("options", "-x")],
        &[("options", "-c")],
    ];
    for settings in bad {
        let mut parameters = vec![("user", "app"), ("database", &*database.name)];
        parameters.extend_from_slice(settings);
        let last = |mut raw: Raw| {
            let messages = raw.login_with(ProtocolVersion::V3_0, &parameters);
            assert_eq!(raw.message(), None, "the connection has ended");
            messages.last().unwrap().to_string()
        };
        assert_eq!(last(pool.raw()), last(database.server.raw()), "{settings:?}");
        // The server connection is none the worse for it.
        assert_eq!(pool.raw_app(&database).backend(), backend, "{settings:?}");
    }
}

/// More than a query of PostgreSQL's may have columns. Of one name, the last one counts.
fn as_many_settings_as_a_packet_holds(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).start();
    let mut parameters = vec![("user", "app"), ("database", &*database.name)];
    parameters.resize(1900, ("a.b", ""));
    parameters.push(("A.b", "last"));
    let value = |mut raw: Raw| {
        let messages = raw.login_with(ProtocolVersion::V3_0, &parameters);
        assert_eq!(messages.last().unwrap().to_string(), "Z(I)");
        raw.value("SHOW a.b")
    };
    assert_eq!((value(pool.raw()), value(database.server.raw())), ("last".to_owned(), "last".to_owned()));
}

/// PostgreSQL sows by a seed when it is set, and not by one that a session starts with.
fn a_seed_at_the_start_sows_nothing(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).start();
    let mut straight = with_settings(database.server.raw(), &database, PLAIN);
    let sown = straight.query("SELECT setseed(0.5); SELECT random()");
    for start in [&[("options", "-c seed=0.5")][..], PLAIN] {
        let number = with_settings(pool.raw(), &database, start).value("SELECT random()");
        assert!(!sown.contains(&number), "{sown}, and with {start:?} {number}");
    }
}

fn strangers_are_heard_at_the_limit(case: Case) {
    let database = database(case);
    let pool = config(case).limit("clients = 1").start();
    let mut client = pool.raw_app(&database);
    // One that asks for encryption first hears of that first, or it would not understand the error.
    let mut raw = pool.raw();
    raw.send_bytes(&[0, 0, 0, 8, 4, 210, 22, 47]);
    assert_eq!(raw.byte(), Some(b'N'));
    let refused = raw.login_with(ProtocolVersion::V3_0, &[("user", "app"), ("database", &database.name)]);
    assert_eq!(transcript(&refused), "E(FATAL 53300)");
    client.send(&Script::new().query("SELECT pg_sleep(60)"));
    becomes("sleepers", 1, || database.count("wait_event = 'PgSleep'"));
    client.cancel(pool.raw());
    assert!(transcript(&client.until_ready(1)).contains("E(57014)"));
}

fn limits_on_logins(case: Case) {
    let database = database(case);
    let limited = config(case).limit("clients = 3").limit("login_timeout = \"1s\"");
    let pool = limited.auth(Auth::Scram(vec![("app".to_owned(), "secret".to_owned())])).start();
    let connect = || pool.connect("app", Some("secret"), &database.name);
    let clients: Vec<_> = (0..3).map(|_| connect().unwrap()).collect();
    let error = connect().err().unwrap();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "53300");
    assert!(error.hint().unwrap_or_default().contains("\"clients\""), "{error:?}");
    drop(clients);
    eventually("there is room again", || connect().is_ok());
    // Those who say nothing, or never answer, are sent away.
    let mut packet = Vec::new();
    sluice_wire::startup::put_session(&mut packet, ProtocolVersion::V3_0, [("user", "app")]);
    for begun in [&[][..], &packet[..5], &packet] {
        let mut raw = pool.raw();
        raw.send_bytes(begun);
        let begin = Instant::now();
        let messages = raw.until_end();
        assert_eq!(messages.last().map(Message::to_string), Some("E(FATAL 57014)".to_owned()));
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    }
    assert!(connect().is_ok());
}
