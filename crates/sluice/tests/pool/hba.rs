//! Access rules: whoever PostgreSQL would let in by a `pg_hba.conf` is let in, and whoever it turns away hears the same.

use std::{
    env,
    fmt::Write as _,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use nix::unistd::{Uid, User};
use sluice_instance::StopMode;
use sluice_testkit::{
    Auth, Case, Certificates, PoolConfig, TestServer, Version, becomes, eventually, matrix, port::free_address,
    random::Random,
};

use crate::{CONNECT_TIMEOUT, SLUICE};

matrix!(servers_with_tls:
    whoever_is_let_in_by_postgresql_is_let_in,
    a_certificate_is_its_first_common_names,
    rules_are_read_again,
    the_servers_own_rules_are_followed,
    members_of_roles_are_let_in_as_by_postgresql,
    members_are_looked_up_again,
);
matrix!(transaction: after_a_failover_the_rules_of_the_other_server_count, peers_are_let_in_as_by_postgresql);

/// The users: each way of keeping a secret, and none.
const USERS: [&str; 4] = ["app", "hashed_user", "scram_user", "nobody_s"];

/// A server of a test's own, whose rules it sets.
fn server() -> TestServer {
    let server = TestServer::start_with_tls(Version::V15, &[]);
    server.execute(
        "SET password_encryption = md5; CREATE ROLE hashed_user LOGIN PASSWORD 'secret';
         SET password_encryption = 'scram-sha-256'; CREATE ROLE scram_user LOGIN PASSWORD 'secret';
         CREATE ROLE nobody_s LOGIN;
         CREATE ROLE g2; CREATE ROLE g1; CREATE ROLE boss LOGIN SUPERUSER PASSWORD 'secret';
         GRANT g2 TO g1; GRANT g1 TO app; GRANT g2 TO scram_user;
         ALTER ROLE scram_user NOINHERIT; GRANT scram_user TO nobody_s",
    );
    for database in ["app", "elsewhere", "g1", "scram_user"] {
        server.execute(&format!("CREATE DATABASE {database}"));
    }
    server
}

/// The users and their secrets, as the server has them.
fn users(server: &TestServer) -> Vec<(String, String)> {
    let secret = |user: &str| {
        let sql = format!("SELECT rolpassword FROM pg_authid WHERE rolname = '{user}'");
        server.try_value(&sql).filter(|secret| !secret.is_empty()).map(|secret| (user.to_owned(), secret))
    };
    USERS.iter().filter_map(|user| secret(user)).collect()
}

/// Has the server go by these rules, which its own pool need not mind.
fn set_rules(server: &TestServer, rules: &str, maps: &str) {
    let data = server.data();
    let marked = format!("local all postgres,lookup trust\n{rules}local all all trust\n");
    fs::write(data.join("pg_hba.conf"), &marked).unwrap();
    fs::write(data.join("pg_ident.conf"), maps).unwrap();
    let loaded = server.try_value("SELECT pg_conf_load_time()::text");
    server.execute("SELECT pg_reload_conf()");
    eventually("the server has read its rules", || server.try_value("SELECT pg_conf_load_time()::text") != loaded);
}

/// psql's words on a log-in: the role that it has come to be, or why not.
fn log_in(port: u16, user: &str, database: &str, more: &str) -> String {
    let to = format!("host=127.0.0.1 port={port} user={user} dbname={database} gssencmode=disable {more}");
    let mut psql = Command::new("psql");
    psql.args(["-X", "-w", "-At", "-c", "SELECT current_user, current_database()", &to]);
    let output = psql.env("PGCONNECT_TIMEOUT", CONNECT_TIMEOUT).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    said.replace(&format!("port {port}"), "port N")
}

/// Ways to connect: in clear, by TLS, with a certificate of the user `app`; with the right password, a wrong one, none.
fn ways() -> Vec<String> {
    let certificates = Certificates::shared();
    let path = |name: &str| certificates.path(name).display().to_string();
    let shown = format!("sslmode=require sslcert={} sslkey={}", path("client.crt"), path("client.key"));
    let unshown = "sslmode=require sslcert=/nowhere/none.crt";
    let encryption = ["sslmode=disable", unshown, &shown];
    let passwords = ["password=secret", "password=wrong", ""];
    encryption.iter().flat_map(|way| passwords.map(|password| format!("{way} {password}"))).collect()
}

/// Rules by a seed, which PostgreSQL takes.
fn rules(random: &mut Random) -> String {
    let mut rules = String::new();
    for _ in 0..1 + random.below(5) {
        let kind = *random.of(&["host", "host", "hostssl", "hostnossl", "hostgssenc", "hostnogssenc"]);
        let database =
            *random.of(&["all", "all", "app", "elsewhere,app", "sameuser", "\"all\"", "replication", "nothing"]);
        let user = *random.of(&["all", "all", "app", "scram_user, hashed_user", "nobody_s", "\"all\"", "somebody"]);
        let address = *random.of(&[
            "127.0.0.1/32",
            "127.0.0.0/8",
            "all",
            "0.0.0.0/0",
            "127.0.0.1 255.255.255.255",
            "samehost",
            "samenet",
            "10.0.0.0/8",
            "::1/128",
            "::/0",
            "127.0.0.2/32",
            "127.0.0.1/31",
        ]);
        let method = match kind {
            "hostssl" => *random.of(&[
                "trust",
                "reject",
                "md5",
                "scram-sha-256",
                "cert",
                "cert map=alias",
                "trust clientcert=verify-ca",
                "trust clientcert=verify-full",
                "scram-sha-256 clientcert=verify-full",
                "md5 clientcert=verify-ca",
                "cert map=missing",
            ]),
            _ => *random.of(&["trust", "trust", "reject", "md5", "scram-sha-256", "scram-sha-256"]),
        };
        writeln!(rules, "{kind} {database} {user} {address} {method}").unwrap();
    }
    rules
}

/// The files of rules that are tried, if nobody says by `SLUICE_HBA_FILES`.
const FILES: u32 = 10;

const MAPS: &str = "alias app scram_user\nalias app nobody_s\nalias \"/^(.*)p$\" hashed_user\n";

fn whoever_is_let_in_by_postgresql_is_let_in(case: Case) {
    let server = server();
    let users = users(&server);
    let config = |rules: &str| {
        PoolConfig::new(SLUICE, case, &server)
            .tls(
                Certificates::shared(),
                &format!("client_ca_file = {:?}", Certificates::shared().path("authority.crt")),
            )
            .auth(Auth::Rules(rules.to_owned(), MAPS.to_owned(), users.clone()))
            .size(2)
    };
    let pool = config("host all all all trust\n").start();
    let mut random = Random::new(case.driver as u64);
    let ways = ways();
    let files = env::var("SLUICE_HBA_FILES").map_or(FILES, |text| text.parse().unwrap());
    for _ in 0..files {
        let rules = rules(&mut random);
        set_rules(&server, &rules, MAPS);
        let said = pool.reload(&config(&rules));
        assert!(!said.contains("not reloaded"), "{rules}{said}");
        for _ in 0..8 {
            let (user, way) = (*random.of(&USERS), random.of(&ways));
            let database = *random.of(&["app", "app", "elsewhere"]);
            let [alone, pooled] = [server.port(), pool.address().port()].map(|port| log_in(port, user, database, way));
            assert_eq!(pooled, alone, "{user} in {database} by {way}:\n{rules}");
        }
    }
}

fn a_certificate_is_its_first_common_names(case: Case) {
    let server = server();
    let certificates = Certificates::shared();
    // The last one has both in one part of its subject, where the shorter one comes first.
    let names = ["app/CN=scram_user", "scram_user/CN=app", "scram_user+CN=app"];
    let file = |number: usize| format!("names-{number}-{:?}", case.driver);
    for (number, name) in names.iter().enumerate() {
        certificates.make(&format!("new {name} {0} '' csr; sign {0}; chmod 600 {0}.key", file(number)));
    }
    let authority = format!("client_ca_file = {:?}", certificates.path("authority.crt"));
    let config = |rules: &str, lines: &str| {
        let auth = Auth::Rules(rules.to_owned(), MAPS.to_owned(), users(&server));
        PoolConfig::new(SLUICE, case, &server).tls(certificates, &format!("{authority}\n{lines}")).auth(auth)
    };
    let pool = config("host all all all trust\n", "").start();
    let mut let_in = Vec::new();
    for rules in ["cert", "trust clientcert=verify-full", "cert map=alias"] {
        let rules = format!("hostssl all all 127.0.0.1/32 {rules}\n");
        set_rules(&server, &rules, MAPS);
        pool.reload(&config(&rules, ""));
        for (number, name) in names.iter().enumerate() {
            let path = |ending| certificates.path(&format!("{}.{ending}", file(number))).display().to_string();
            let way = format!("sslmode=require sslcert={} sslkey={}", path("crt"), path("key"));
            for user in ["app", "scram_user"] {
                let [alone, pooled] =
                    [server.port(), pool.address().port()].map(|port| log_in(port, user, "app", &way));
                assert_eq!(pooled, alone, "{user} by {name}:\n{rules}");
                let_in.push(alone == format!("{user}|app\n"));
            }
        }
    }
    let by_name = [true, false, false, true, true, false];
    assert_eq!(let_in[..12], [by_name, by_name].concat());
    // Nor does `client_certificates` take another one.
    pool.reload(&config("hostssl all all all trust\n", "client_certificates = \"verify-full\""));
    for (number, user) in [(0, "scram_user"), (1, "app"), (2, "scram_user")] {
        let path = |ending| certificates.path(&format!("{}.{ending}", file(number))).display().to_string();
        let way = format!("sslmode=require sslcert={} sslkey={}", path("crt"), path("key"));
        let said = log_in(pool.address().port(), user, "app", &way);
        assert!(said.contains("certificate"), "{said}");
    }
}

fn rules_are_read_again(case: Case) {
    let server = server();
    let config = |rules: &str| {
        let auth = Auth::Rules(rules.to_owned(), String::new(), vec![("app".to_owned(), "secret".to_owned())]);
        PoolConfig::new(SLUICE, case, &server).auth(auth)
    };
    set_rules(&server, "host all all all trust\n", "");
    let pool = config("host all app 127.0.0.1/32 trust\n").start();
    let let_in = "app|app\n";
    assert_eq!(log_in(pool.address().port(), "app", "app", ""), let_in);
    assert!(pool.reload(&config("host all app 127.0.0.1/32 reject\n")).contains("auth.hba_file"));
    let refused = log_in(pool.address().port(), "app", "app", "");
    assert!(refused.contains("pg_hba.conf rejects connection for host \"127.0.0.1\""), "{refused}");
    // What is wrong is told by line, and nothing changes.
    let said = pool.reload(&config("host all all 127.0.0.1/32 trust\nhost all all 127.0.0.1/64 ldap\n"));
    assert!(said.contains("not reloaded") && said.contains("pg_hba.conf:2"), "{said}");
    let said = pool.reload(&config("host all +app all trust\n"));
    assert!(said.contains("pg_hba.conf:1:1: members of roles") && said.contains("[auth.lookup]"), "{said}");
    assert_eq!(log_in(pool.address().port(), "app", "app", ""), refused);
}

/// Rules by a seed that ask for members.
fn rules_of_members(random: &mut Random) -> String {
    let mut rules = String::new();
    for _ in 0..1 + random.below(4) {
        let database = *random.of(&["all", "samerole", "samegroup", "sameuser", "g1,app", "elsewhere", "samerole,app"]);
        let user = *random.of(&[
            "all",
            "+g1",
            "+g2",
            "+scram_user",
            "+app",
            "+missing",
            "\"+g1\"",
            "app,+scram_user",
            "+boss",
        ]);
        let method = *random.of(&["trust", "reject", "md5", "scram-sha-256"]);
        writeln!(rules, "host {database} {user} 127.0.0.1/32 {method}").unwrap();
    }
    rules
}

fn members_of_roles_are_let_in_as_by_postgresql(case: Case) {
    let server = server();
    let config = |rules: &str, maps: &str| {
        let authority = format!("client_ca_file = {:?}", Certificates::shared().path("authority.crt"));
        PoolConfig::new(SLUICE, case, &server)
            .tls(Certificates::shared(), &authority)
            .auth(Auth::RulesLookUp(rules.to_owned(), maps.to_owned(), String::new()))
            .size(2)
    };
    let pool = config("host all all all trust\n", "").start();
    let mut random = Random::new(case.driver as u64);
    let files = env::var("SLUICE_HBA_FILES").map_or(FILES, |text| text.parse().unwrap());
    let both = |user: &str, database: &str, way: &str| {
        [server.port(), pool.address().port()].map(|port| log_in(port, user, database, way))
    };
    let mut let_in = 0;
    for _ in 0..files {
        let rules = rules_of_members(&mut random);
        set_rules(&server, &rules, "");
        let said = pool.reload(&config(&rules, ""));
        assert!(!said.contains("not reloaded"), "{rules}{said}");
        for _ in 0..8 {
            let user = *random.of(&["app", "scram_user", "nobody_s", "boss", "hashed_user"]);
            let database = *random.of(&["app", "elsewhere", "g1", "scram_user"]);
            let way =
                *random.of(&["sslmode=disable password=secret", "sslmode=require password=secret", "password=wrong"]);
            let [alone, pooled] = both(user, database, way);
            assert_eq!(pooled, alone, "{user} in {database} by {way}:\n{rules}");
            let_in += u32::from(alone.starts_with(user));
        }
    }
    assert!(let_in > 0, "nobody was ever let in");
    // Of those who do not exist nothing is told that PostgreSQL does not tell.
    let rules = "host all +g1 127.0.0.1/32 trust\nhost app all 127.0.0.1/32 scram-sha-256\n";
    set_rules(&server, rules, "");
    pool.reload(&config(rules, ""));
    for (database, way) in [("app", "password=secret"), ("g1", "password=secret"), ("app", "")] {
        let [alone, pooled] = both("ghost", database, way);
        assert_eq!(pooled, alone, "{database} by {way}");
    }
    // A certificate's name is mapped to members, as PostgreSQL 16 and later have it.
    let (rules, maps) = ("hostssl all all 127.0.0.1/32 cert map=m\n", "m app +g2\n");
    pool.reload(&config(rules, maps));
    set_rules(&server, "host all all 127.0.0.1/32 trust\n", "");
    let way = &ways()[6];
    for (user, is_member) in [("app", true), ("scram_user", true), ("hashed_user", false), ("boss", false)] {
        let said = log_in(pool.address().port(), user, "app", way);
        let failed = format!("certificate authentication failed for user \"{user}\"");
        assert!(if is_member { said.starts_with(user) } else { said.contains(&failed) }, "{user}: {said}");
    }
}

fn members_are_looked_up_again(case: Case) {
    let server = server();
    let rules = "host all +newcomers 127.0.0.1/32 trust\n";
    set_rules(&server, "host all all 127.0.0.1/32 trust\n", "");
    server.execute("DROP ROLE IF EXISTS newcomers; CREATE ROLE newcomers");
    let auth = Auth::RulesLookUp(rules.to_owned(), String::new(), "cache = \"1s\"".to_owned());
    let pool = PoolConfig::new(SLUICE, case, &server).auth(auth).start();
    let attempt = || log_in(pool.address().port(), "app", "app", "");
    let refused = "no pg_hba.conf entry for host \"127.0.0.1\", user \"app\"";
    assert!(attempt().contains(refused), "{}", attempt());
    // Past the pool: whoever was refused is looked up anew.
    server.execute("GRANT newcomers TO app");
    assert_eq!(attempt(), "app|app\n");
    server.execute("REVOKE newcomers FROM app");
    eventually("a membership that has gone is believed for a while only", || attempt().contains(refused));
    eventually("the log has it", || pool.log().contains("no pg_hba.conf entry"));
    // A refusal by a rule names it, in the log alone.
    let auth = Auth::RulesLookUp("\nhost all +newcomers all reject\n".to_owned(), String::new(), String::new());
    server.execute("GRANT newcomers TO app");
    pool.reload(&PoolConfig::new(SLUICE, case, &server).auth(auth));
    let said = attempt();
    assert!(said.contains("pg_hba.conf rejects connection") && !said.contains("pg_hba.conf:2"), "{said}");
    eventually("the log names the rule", || {
        pool.log().lines().any(|line| line.contains("pg_hba.conf:2") && line.contains("rejects connection"))
    });
}

fn the_servers_own_rules_are_followed(case: Case) {
    let server = server();
    let rights = |verb: &str| {
        server.execute(&format!(
            "{verb} SELECT ON pg_hba_file_rules, pg_ident_file_mappings {0} lookup;
             {verb} EXECUTE ON FUNCTION pg_hba_file_rules(), pg_ident_file_mappings() {0} lookup",
            if verb == "GRANT" { "TO" } else { "FROM" }
        ));
    };
    rights("GRANT");
    let authority = format!("client_ca_file = {:?}", Certificates::shared().path("authority.crt"));
    let pool = PoolConfig::new(SLUICE, case, &server)
        .tls(Certificates::shared(), &authority)
        .auth(Auth::ServerRules)
        .size(2)
        .start();
    let both = |user: &str, database: &str, way: &str| {
        [server.port(), pool.address().port()].map(|port| log_in(port, user, database, way))
    };
    let times = |words: &str| pool.log().matches(words).count();
    let followed = |rules: &str| {
        let before = times("clients are let in by the");
        set_rules(&server, rules, MAPS);
        eventually("the pool has read the server's rules", || times("clients are let in by the") > before);
    };
    let (mut random, ways) = (Random::new(case.driver as u64), ways());
    let mut let_in = 0;
    let files = env::var("SLUICE_HBA_FILES").map_or(FILES / 2, |text| text.parse().unwrap());
    for file in 0..files {
        let rules = if file % 2 == 0 { rules(&mut random) } else { rules_of_members(&mut random) };
        // PostgreSQL tells names without their quotes. Each file is another one: it has its rules on other lines.
        let rules = "\n".repeat(file as usize + 1) + &rules.replace('"', "");
        followed(&rules);
        for _ in 0..8 {
            let user = *random.of(&["app", "scram_user", "nobody_s", "boss", "hashed_user", "ghost"]);
            let (database, way) = (*random.of(&["app", "elsewhere", "g1", "scram_user"]), random.of(&ways));
            let [alone, pooled] = both(user, database, way);
            assert_eq!(pooled, alone, "{user} in {database} by {way}:\n{rules}");
            let_in += u32::from(alone.starts_with(user));
        }
    }
    assert!(let_in > 0, "nobody was ever let in");
    // A line that is wrong, and the server keeps those of before; so it does of the one file where the other is wrong.
    followed("host all app 127.0.0.1/32 trust\n");
    let (way, words) = (&*ways[0], "as for the server, those of before count");
    let same = |what: &str| {
        for user in ["app", "scram_user", "ghost"] {
            let [alone, pooled] = both(user, "app", way);
            assert_eq!(pooled, alone, "{user}: {what}");
        }
    };
    // Of the second one, whose server's name leads nowhere, PostgreSQL 15 tells neither what it is nor what is wrong.
    let radius = "host all app 127.0.0.1/32 reject\nhost all ghost all radius radiusservers=a..b radiussecrets=c\n";
    for mistake in ["host all all 127.0.0.1/32 nonsense\n", radius] {
        let before = times(words);
        set_rules(&server, mistake, MAPS);
        eventually("the log says so", || times(words) > before);
        same("a mistake");
    }
    let before = times(words);
    let read = times("clients are let in by the");
    set_rules(&server, "host all scram_user 127.0.0.1/32 trust\nhost all app 127.0.0.1/32 reject\n", "nothing\n");
    eventually("the log says so", || times(words) > before && times("clients are let in by the") > read);
    same("a mistake in the maps");
    // Lines that are for nobody are no mistakes: this server has no GSSAPI.
    followed("hostgssenc all all all reject\nhost all app 127.0.0.1/32 trust\n");
    same("a line for nobody");
    // What has not been loaded, as far as the server says: whoever is treated alike is.
    let changed = "local all all trust\nhost all scram_user 127.0.0.1/32 trust\nhost all app 127.0.0.1/32 reject\n";
    fs::write(server.data().join("pg_hba.conf"), changed).unwrap();
    let unclear = "the server's access rules have been changed";
    let attempt = |user: &str| log_in(pool.address().port(), user, "app", way);
    eventually("whoever was let in before is not", || attempt("app").contains(unclear));
    assert!(attempt("scram_user").contains("no pg_hba.conf entry"), "{}", attempt("scram_user"));
    // A server that has another mistake in its configuration loads them, and does not say so.
    let configuration = server.data().join("postgresql.conf");
    let good = fs::read_to_string(&configuration).unwrap();
    fs::write(&configuration, format!("{good}\nno_such_setting = on\n")).unwrap();
    server.execute("SELECT pg_reload_conf()");
    eventually("the server has loaded them", || log_in(server.port(), "app", "app", way).contains("rejects"));
    assert!(attempt("app").contains(unclear) && attempt("scram_user").contains("no pg_hba.conf entry"));
    fs::write(&configuration, good).unwrap();
    // The connection by which they are read may end: what was not loaded is not taken for loaded.
    server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sluice: secrets'");
    std::thread::sleep(Duration::from_millis(2500));
    assert!(attempt("app").contains(unclear), "{}", attempt("app"));
    // Whoever Sluice can't ask as the server would is turned away.
    followed("host all app 127.0.0.1/32 ldap ldapserver=localhost ldapprefix=cn\nhost all all 127.0.0.1/32 trust\n");
    let [app, other] = ["app", "scram_user"].map(attempt);
    assert!(app.contains("pg_hba.conf rejects connection") && other.starts_with("scram_user|app"), "{app}{other}");
    assert!(pool.log().contains("turns away whoever it is for") && pool.log().contains("no ldap authentication"));
    // Names that are not UTF-8 are nobody's.
    let odd = [b"local all all trust\nhost all ren\xe9 all reject\nhost all app,ghost all trust\n".as_slice()].concat();
    fs::write(server.data().join("pg_hba.conf"), odd).unwrap();
    let read = times("clients are let in by the");
    server.execute("SELECT pg_reload_conf()");
    eventually("they are read", || times("clients are let in by the") > read);
    same("a name that is no UTF-8");
    // Who may not log in, and who is another one by now.
    server.execute("ALTER ROLE app NOLOGIN");
    eventually("it is seen", || attempt("app").contains("role \"app\" is not permitted to log in"));
    server.execute("ALTER ROLE app LOGIN");
    eventually("it is seen", || attempt("app").starts_with("app|app"));
    // Without the right to read them nobody is let in, now or at the start of a pool.
    rights("REVOKE");
    eventually("the log says which rights it needs", || pool.log().contains("GRANT SELECT ON pg_hba_file_rules"));
    let said = attempt("app");
    assert!(said.contains("could not look up"), "{said}");
    let ignorant = PoolConfig::new(SLUICE, case, &server).auth(Auth::ServerRules).start();
    let said = log_in(ignorant.address().port(), "app", "app", way);
    assert!(said.contains("could not look up"), "{said}");
    rights("GRANT");
    eventually("they are read", || log_in(ignorant.address().port(), "app", "app", way).starts_with("app|app"));
}

/// psql's words on a log-in by a Unix socket, by a user of the system.
fn log_in_by_socket(folder: &Path, port: u16, system_user: Option<&str>, user: &str) -> String {
    let to = format!("host={} port={port} user={user} dbname=app", folder.display());
    let mut psql = match system_user {
        None => Command::new("psql"),
        Some(system_user) => {
            let mut command = Command::new("setpriv");
            command.args([&format!("--reuid={system_user}"), "--clear-groups", "psql"]);
            command
        }
    };
    psql.args(["-X", "-w", "-At", "-c", "SELECT 'in'", &to]).current_dir("/");
    let output = psql.env("PGCONNECT_TIMEOUT", CONNECT_TIMEOUT).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    said.replace(&folder.display().to_string(), "FOLDER").replace(&format!(".{port}\""), ".N\"")
}

fn peers_are_let_in_as_by_postgresql(case: Case) {
    // Of a version whose maps know members of roles, and whose socket everybody reaches. Who is let in by the pool goes
    // on to another server, whose own rules let the pool in.
    let server = TestServer::start(Version::V18, &[]);
    server.execute(
        "CREATE ROLE g2; CREATE ROLE g1 IN ROLE g2; GRANT g1 TO app WITH INHERIT FALSE, SET FALSE;
         CREATE ROLE scram_user LOGIN IN ROLE g2;
         CREATE ROLE boss LOGIN SUPERUSER",
    );
    server.execute("CREATE DATABASE app OWNER app");
    for folder in server.socket_dir().ancestors().take_while(|folder| *folder != env::temp_dir()) {
        let mode = fs::metadata(folder).unwrap().permissions().mode();
        fs::set_permissions(folder, fs::Permissions::from_mode(mode | 0o055)).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let free = free_address();
    let config = |rules: &str, maps: &str| {
        PoolConfig::without_databases(SLUICE, case)
            .database("postgres", &server, "")
            .database("app", TestServer::shared(case.version), "user = \"app\"\ndbname = \"postgres\"")
            .listen(free)
            .top(&format!("unix_socket_dir = {:?}", folder.path()))
            .auth(Auth::RulesLookUp(rules.to_owned(), maps.to_owned(), String::new()))
    };
    let own = User::from_uid(Uid::current()).unwrap().unwrap().name;
    // Others than the one that runs the tests, one of whom the system does not know, where that one may become them.
    let others: &[Option<&str>] =
        if Uid::current().is_root() { &[None, Some("nobody"), Some("postgres"), Some("54321")] } else { &[None] };
    if server.try_value(&format!("SELECT 1 FROM pg_roles WHERE rolname = '{own}'")).is_none_or(|it| it.is_empty()) {
        server.execute(&format!("CREATE ROLE \"{own}\" LOGIN"));
    }
    let pool = config("local all all trust\n", "").start();
    for (rules, maps) in [
        ("local all all peer\n".to_owned(), String::new()),
        ("local all all ident map=m\n".to_owned(), format!("m {own} app\nm nobody scram_user\n")),
        ("local all all peer map=m\n".to_owned(), format!("m {own} +g2\nm /^nob(.*)$ all\n")),
        ("local all all peer map=missing\n".to_owned(), format!("m {own} app\n")),
        ("local all +g1 peer map=m\nlocal all all reject\n".to_owned(), "m /^(.*)$ app\n".to_owned()),
        (
            "local all +g2 peer map=m\nlocal all +boss trust\nlocal all all reject\n".to_owned(),
            "m /^(.*)$ all\n".to_owned(),
        ),
        // Who owns the database is no member of it before there is a session.
        ("local samerole,all +pg_database_owner trust\nlocal all all reject\n".to_owned(), String::new()),
    ] {
        set_rules(&server, &rules, &maps);
        let said = pool.reload(&config(&rules, &maps));
        assert!(!said.contains("not reloaded"), "{rules}{said}");
        for system_user in others {
            for user in ["app", "scram_user", "boss", &own] {
                let alone = log_in_by_socket(server.socket_dir(), server.port(), *system_user, user);
                let pooled = log_in_by_socket(folder.path(), free.port(), *system_user, user);
                assert_eq!(pooled, alone, "{system_user:?} as {user}: {rules}{maps}");
            }
        }
    }
    if Uid::current().is_root() {
        assert!(pool.log().contains("could not look up local user ID 54321: user does not exist"));
    }
}

/// Two servers behind one address, one after the other, as behind an address that moves.
fn after_a_failover_the_rules_of_the_other_server_count(case: Case) {
    let servers = [(); 2].map(|()| TestServer::start(case.version, &[]));
    for server in &servers {
        server.execute(
            "CREATE ROLE first LOGIN; CREATE ROLE second LOGIN;
             GRANT SELECT ON pg_hba_file_rules TO lookup; GRANT EXECUTE ON FUNCTION pg_hba_file_rules() TO lookup",
        );
        server.execute("CREATE DATABASE app");
        if server.value("SELECT to_regclass('pg_ident_file_mappings') IS NOT NULL") == "t" {
            server.execute(
                "GRANT SELECT ON pg_ident_file_mappings TO lookup;
                 GRANT EXECUTE ON FUNCTION pg_ident_file_mappings() TO lookup",
            );
        }
    }
    let [one, other] = &servers;
    // The other one has loaded its own before.
    set_rules(other, "host all second 127.0.0.1/32 trust\n", "");
    set_rules(one, "host all first 127.0.0.1/32 trust\n", "");
    let folder = tempfile::tempdir().unwrap();
    let moves_to = |server: &TestServer| {
        let new = folder.path().join("new");
        let socket = server.socket_dir().join(format!(".s.PGSQL.{}", server.port()));
        std::os::unix::fs::symlink(socket, &new).unwrap();
        fs::rename(&new, folder.path().join(".s.PGSQL.5432")).unwrap();
    };
    // Nobody is there at the start.
    let pool = PoolConfig::without_databases(SLUICE, case)
        .database_at("*", &folder.path().display().to_string(), 5432, "")
        .auth(Auth::ServerRules)
        .start();
    eventually("the log says that", || pool.log().contains("the server can't be asked"));
    let log = pool.log();
    moves_to(one);
    let who = || ["first", "second"].map(|user| log_in(pool.address().port(), user, "app", "").starts_with(user));
    becomes("the first server's rules count", [true, false], who);
    moves_to(other);
    one.down(StopMode::Immediate);
    becomes("the other server's rules count", [false, true], who);
    assert!(!pool.log().contains("the files have been changed"), "{}", pool.log());
    // What a start loads has been loaded.
    fs::write(other.data().join("pg_hba.conf"), "local all all trust\nhost all first 127.0.0.1/32 trust\n").unwrap();
    eventually("the log says that", || pool.log().contains("the files have been changed"));
    other.down(StopMode::Fast);
    other.up();
    becomes("it has loaded them", [true, false], who);
    assert!(log.contains("until it can, nobody is let in") && !log.contains("of before"), "{log}");
}
