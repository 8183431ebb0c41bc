mod ranges;

use std::time::Duration;

use sluice_control::settings::{ClientLog, PoolMode};

use super::*;
use crate::{Config, ServerAddress, parse};

/// The configuration that comes of a text, as Sluice reads it, and the notes.
fn converted(text: &str) -> (Config, Vec<String>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let Converted { toml, notes } = convert(file.path()).unwrap_or_else(|report| panic!("{report}"));
    let config = parse(&toml, Path::new("sluice.toml")).unwrap_or_else(|report| panic!("{toml}\n{report}"));
    (config, notes.iter().filter(|note| !is_of_sessions(note)).map(ToString::to_string).collect())
}

/// Whether a note is the one of each configuration with a pool in session mode.
fn is_of_sessions(note: &Note) -> bool {
    note.key == "pool_mode" && note.what.contains("takes a server with its log-in")
}

/// Settings without which something is said of PgBouncer's defaults.
const SAYING_LESS: &str = "unix_socket_dir = /run/pool\nquery_wait_timeout = 9\n";

/// These notes are there, each of its line, and no others.
fn assert_said(notes: &[String], expected: &[(usize, &str)]) {
    for (line, part) in expected {
        let is_said = notes.iter().any(|note| note.starts_with(&format!("line {line}, ")) && note.contains(part));
        assert!(is_said, "{line}, {part}: {notes:#?}");
    }
    assert_eq!(notes.len(), expected.len(), "{notes:#?}");
}

#[test]
fn what_has_a_counterpart_is_carried_over() {
    let (config, notes) = converted(
        "[databases]\n\
         app = host=10.0.0.1 port=5433 dbname=app_db pool_size=7 pool_mode=session\n\
         \"odd name\" = user=own password='it''s'\n\
         * = host=/run/postgresql\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1, ::1\nlisten_port = 6543\nunix_socket_dir = /run/here\n\
         auth_type = scram-sha-256\nauth_user = asker\nauth_dbname = app\n\
         auth_query = SELECT usename, passwd FROM pg_shadow WHERE usename=$1\n\
         pool_mode = transaction\ndefault_pool_size = 30\nmin_pool_size = 2\nmax_client_conn = 5000\n\
         query_wait_timeout = 2.5\nserver_lifetime = 7200\nserver_idle_timeout = 60\n\
         idle_transaction_timeout = 0\ntcp_user_timeout = 12500\n\
         client_idle_timeout = 600\nquery_timeout = 1.5\nserver_reset_query = DISCARD ALL\nlog_connections = 0\n",
    );
    assert_eq!(config.listen, ["127.0.0.1:6543".parse().unwrap(), "[::1]:6543".parse().unwrap()]);
    assert_eq!(config.unix_socket_dir.as_deref(), Some(Path::new("/run/here")));
    assert_eq!((config.limits.clients, config.limits.idle_transaction_timeout), (5000, None));
    let [app, odd, rest] = &config.databases[..] else { panic!("{:?}", config.databases) };
    assert_eq!(app.server, ServerAddress::Tcp { host: "10.0.0.1".to_owned(), port: 5433 });
    assert_eq!((app.dbname.as_deref(), app.pool.size, app.pool.sharing.mode), (Some("app_db"), 7, PoolMode::Session));
    assert_eq!((odd.name.as_deref(), odd.user.as_deref()), (Some("odd name"), Some("own")));
    assert_eq!(odd.password.as_ref().map(|password| &*password.0), Some("it's"));
    assert_eq!((rest.name.as_ref(), rest.pool.size, rest.pool.sharing.mode), (None, 30, PoolMode::Transaction));
    assert_eq!((rest.pool.min, rest.pool.wait_timeout), (2, Duration::from_millis(2500)));
    let Some(lookup) = &config.auth.lookup else { panic!("{:?}", config.auth) };
    assert_eq!(lookup.query, "SELECT usename, passwd FROM pg_shadow WHERE usename=$1");
    assert_eq!(config.tcp_user_timeout, Duration::from_millis(12_500));
    assert_eq!(config.client_log, ClientLog { connections: false, disconnections: true });
    let limits = (config.limits.idle_client_timeout, config.limits.query_timeout);
    assert_eq!(limits, (Some(Duration::from_secs(600)), Some(Duration::from_millis(1500))));
    assert_eq!((lookup.user.as_str(), lookup.database.as_str()), ("asker", "app"));
    assert_eq!(notes.len(), 2, "{notes:?}");
}

#[test]
fn defaults_that_clients_notice_are_written_out() {
    let (config, notes) = converted("[databases]\na = \n[pgbouncer]\nauth_type = trust\n");
    assert_eq!(config.databases[0].pool.sharing.mode, PoolMode::Session);
    assert_eq!(config.unix_socket_dir.as_deref(), Some(Path::new("/tmp")));
    assert!(config.auth.known_users_only && config.auth.policy.rules().is_some());
    assert_eq!(config.client_log, ClientLog { connections: true, disconnections: true });
    assert!(notes.iter().any(|note| note.starts_with("listen_addr: ")), "{notes:?}");
}

#[test]
fn what_has_none_is_said_where_it_is_set() {
    let (_, notes) = converted(&format!(
        "[databases]\na = host=x,y connect_query='select 1'\n[users]\nme = pool_mode=session\n[pgbouncer]\n\
         auth_type = trust\nlisten_addr = 127.0.0.1\nclient_tls_sslmode = require\nserver_tls_sslmode = disable\n\
         transaction_timeout = 9\nreserve_pool_size = 5\nnonsense = 1\nverbose = 2\n{SAYING_LESS}"
    ));
    assert_said(
        &notes,
        &[
            (2, "several hosts"),
            (2, "connect_query"),
            (4, "single users"),
            (8, "there is nothing to offer"),
            (10, "set transaction_timeout for the role"),
            (11, "no reserve"),
            (12, "not known"),
            (13, "RUST_LOG"),
        ],
    );
}

#[test]
fn of_lines_with_one_name_the_last_counts() {
    let (config, notes) = converted(&format!(
        "[databases]\na = host=x pool_size=2\nb = host=x\na = host=y\n\
         [pgbouncer]\nauth_type = trust\nlisten_addr = 127.0.0.1\n{SAYING_LESS}"
    ));
    let [_, a] = &config.databases[..] else { panic!("{:?}", config.databases) };
    assert_eq!((&a.server, a.pool.size), (&ServerAddress::Tcp { host: "y".to_owned(), port: 5432 }, 20));
    assert_said(&notes, &[(4, "the last one counts")]);
    // PgBouncer keeps the user, with its password, if none is given.
    let (config, notes) = converted(&format!(
        "[databases]\na = host=x user=own password=p\na = password=q\nb = user=own password=p\nb = user=other\n\
         * = user=own\n* = host=x\n[pgbouncer]\nauth_type = trust\nlisten_addr = 127.0.0.1\n{SAYING_LESS}"
    ));
    let user = |it: &crate::DatabaseConfig| (it.user.clone(), it.password.as_ref().map(|it| it.0.clone()));
    let users: Vec<_> = config.databases.iter().map(user).collect();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(users, [(text("own"), text("p")), (text("other"), None), (None, None)]);
    let last = "the last one counts";
    assert_said(
        &notes,
        &[(3, "password: has no effect"), (3, "but for user, which stays \"own\""), (5, last), (7, last)],
    );
}

#[test]
fn words_are_read_in_any_case_and_what_they_lose_is_said() {
    let (config, notes) = converted(
        "[databases]\na = host=x pool_mode=Statement\nb = host=x pool_mode=SESSION\n\
         [pgbouncer]\nauth_type = Trust\nlisten_addr = 127.0.0.1\npool_mode = STATEMENT\nunix_socket_dir = @abs\n\
         query_wait_timeout = 9\n",
    );
    let modes: Vec<_> = config.databases.iter().map(|database| database.pool.sharing.mode).collect();
    assert_eq!(modes, [PoolMode::Transaction, PoolMode::Session]);
    assert_eq!(config.unix_socket_dir, None);
    let becomes = "statement becomes transaction";
    assert_said(&notes, &[(2, becomes), (7, becomes), (8, "without a file")]);
}

#[test]
fn tls_is_said_once_for_clients_and_with_each_database_by_tcp() {
    let toml = |settings: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!("[databases]\na = host=db\nb =\n[pgbouncer]\nauth_type = trust\n{settings}");
        std::fs::write(file.path(), text).unwrap();
        convert(file.path()).unwrap()
    };
    let files = |side| {
        format!("{side}_tls_cert_file = {side}.crt\n{side}_tls_key_file = {side}.key\n{side}_tls_ca_file = ca.crt\n")
    };
    for (mode, expected) in [
        ("disable", ""),
        ("Disable", ""),
        ("allow", "cert_file = \"client.crt\"\nkey_file = \"client.key\"\nclient_ca_file = \"ca.crt\"\n"),
        (
            "require",
            "cert_file = \"client.crt\"\nkey_file = \"client.key\"\nrequired = true\nclient_ca_file = \"ca.crt\"\n",
        ),
        (
            "verify-full",
            "cert_file = \"client.crt\"\nkey_file = \"client.key\"\nrequired = true\n\
             client_certificates = \"verify-ca\"\nclient_ca_file = \"ca.crt\"\n",
        ),
    ] {
        let converted = toml(&format!("client_tls_sslmode = {mode}\n{}", files("client"))).toml;
        let table = converted.split("[tls]\n").nth(1).map_or("", |rest| rest.split("\n[").next().unwrap());
        assert_eq!(table, expected, "{converted}");
    }
    for (mode, expected) in [
        ("prefer", "name = \"a\"\nhost = \"db\"\nsslcert = \"server.crt\"\nsslkey = \"server.key\"\n"),
        // PgBouncer encrypts by it wherever the server can.
        ("allow", "name = \"a\"\nhost = \"db\"\nsslcert = \"server.crt\"\nsslkey = \"server.key\"\n"),
        ("disable", "name = \"a\"\nhost = \"db\"\nsslmode = \"disable\"\n"),
        (
            "verify-ca",
            "name = \"a\"\nhost = \"db\"\nsslmode = \"verify-ca\"\nsslrootcert = \"ca.crt\"\n\
             sslcert = \"server.crt\"\nsslkey = \"server.key\"\n",
        ),
    ] {
        let converted = toml(&format!("server_tls_sslmode = {mode}\n{}", files("server"))).toml;
        let databases: Vec<_> = converted.split("[[database]]\n").skip(1).map(str::trim_end).collect();
        assert_eq!(databases, [expected.trim_end(), "name = \"b\"\nhost = \"/tmp\""], "{converted}");
    }
    let notes = toml("server_tls_sslmode = verify-full\nclient_tls_protocols = all\n").notes;
    let said: Vec<_> = notes.iter().map(|note| (note.line, note.key.as_str())).collect();
    assert!(said.contains(&(Some(6), "server_tls_sslmode")) && said.contains(&(Some(7), "client_tls_protocols")));
}

#[test]
fn rules_take_the_place_of_the_method() {
    let auth = |settings: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("[databases]\na =\n[pgbouncer]\n{settings}")).unwrap();
        let converted = convert(file.path()).unwrap();
        let table = converted.toml.split("[auth]\n").nth(1).unwrap().split("\n[").next().unwrap().trim().to_owned();
        (table, converted.notes.iter().map(|note| note.key.clone()).collect::<Vec<_>>())
    };
    let files = "auth_hba_file = pg_hba.conf\nauth_ident_file = pg_ident.conf\n";
    let (table, _) = auth(&format!("auth_type = hba\n{files}"));
    assert_eq!(table, "hba_file = \"pg_hba.conf\"\nident_file = \"pg_ident.conf\"\nknown_users_only = true");
    let (table, notes) = auth(files);
    assert_eq!(table, "method = \"md5\"");
    assert!(notes.contains(&"auth_hba_file".to_owned()), "{notes:?}");
}

#[test]
fn rules_without_a_file_let_nobody_in() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for settings in ["auth_type = hba", "auth_type = hba\nauth_hba_file = x\nauth_hba_file ="] {
        std::fs::write(file.path(), format!("[databases]\na =\n[pgbouncer]\n{settings}\n")).unwrap();
        let report = convert(file.path()).unwrap_err();
        let [problem] = report.problems() else { panic!("{report}") };
        assert_eq!(problem.position.map(|position| position.line), Some(4), "{report}");
        assert!(problem.what.contains("lets nobody in") && problem.remedy.contains("auth_hba_file"), "{report}");
    }
}

#[test]
fn of_settings_with_one_name_the_last_counts_also_where_it_is_empty() {
    let (config, notes) = converted(
        "[databases]\na = host=x user=own\n[pgbouncer]\nauth_type = any\nlisten_addr = 127.0.0.1\n\
         admin_users = ann\nstats_users = bob\nauth_user = asks\nauth_hba_file = hba.conf\nlisten_port = none\n\
         admin_users =\nstats_users = carl\nauth_user =\nauth_hba_file =\nlisten_port = 6433\nauth_type = trust\n\
         unix_socket_dir = /run/pool\nquery_wait_timeout = 9\n",
    );
    let admin = config.admin.unwrap();
    assert_eq!((admin.users.len(), admin.stats_users.len()), (0, 1));
    assert!(config.auth.known_users_only && config.auth.users_file.is_none(), "{:?}", config.auth);
    assert_eq!(config.listen, ["127.0.0.1:6433".parse().unwrap()]);
    assert_eq!(notes, [""; 0]);
}

/// The notes of a configuration that begin with more people getting in, without what all of them begin with.
fn widening(databases: &str, settings: &str) -> Vec<String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("[databases]\n{databases}\n[pgbouncer]\n{settings}\n")).unwrap();
    let notes = convert(file.path()).unwrap().notes.into_iter().filter(|note| note.widens);
    let notes = notes.map(|note| {
        let what =
            note.what.strip_prefix("ADMITS CLIENTS THAT PGBOUNCER REFUSED: ").unwrap_or_else(|| panic!("{note}"));
        format!("{}: {what}", note.key)
    });
    notes.collect()
}

#[test]
fn methods_that_let_in_others_are_said_first() {
    let says = |databases: &str, settings: &str, expected: &[&str]| {
        let notes = widening(databases, settings);
        let fits = notes.iter().zip(expected).all(|(note, part)| note.contains(part));
        assert!(fits && notes.len() == expected.len(), "{settings}: {notes:#?}");
    };
    let tcp = "listen_addr = 127.0.0.1\nauth_type = ";
    says("a = user=own", &format!("{tcp}any"), &[]);
    says("a = user=own\nb =\n* =", &format!("{tcp}any"), &["auth_type: into databases without user"]);
    says("a = user=own", &format!("{tcp}cert"), &["auth_type: with PgBouncer by a certificate"]);
    says("a =", "auth_type = trust", &["listen_addr: PgBouncer listens on its Unix socket only"]);
    says(
        "a =",
        "auth_type = hba\nauth_hba_file = nowhere",
        &["listen_addr: PgBouncer listens on its Unix socket only"],
    );
    says("a =", "auth_type = md5", &[]);
    for (mode, expected) in [("0777", &[][..]), ("0666", &[]), ("0770", &["unix_socket_mode: the socket is open"])] {
        says("a =", &format!("{tcp}trust\nunix_socket_mode = {mode}"), expected);
    }
    says("a =", &format!("{tcp}trust\nunix_socket_mode = 0700\nunix_socket_dir ="), &[]);
    says("a =", &format!("{tcp}md5\nunix_socket_mode = 0700"), &[]);
    let (_, notes) =
        converted(&format!("[databases]\na =\n[pgbouncer]\n{tcp}trust\nunix_socket_mode = 0700\n{SAYING_LESS}"));
    assert_said(&notes, &[(6, "all local users")]);
}

#[test]
fn passwords_in_clear_become_md5_which_serves_every_secret() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[databases]\na =\n[pgbouncer]\nauth_type = plain\nauth_file = users.txt\n").unwrap();
    assert!(convert(file.path()).unwrap().toml.contains("method = \"md5\""));
}

#[test]
fn lines_of_other_files_that_pgbouncer_skips_are_said_first() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
    let ini = place.path().join("pgbouncer.ini");
    let mine = "[databases]\na =\n[pgbouncer]\nlisten_addr = 127.0.0.1\nauth_type = hba\n\
                auth_hba_file = hba.conf\nauth_file = users.txt\n";
    write("pgbouncer.ini", mine);
    let notes = convert(&ini).unwrap().notes;
    for key in ["auth_hba_file", "auth_file"] {
        let is_said =
            |note: &Note| note.key == key && note.what.contains("Convert where it can be read") && note.matters;
        assert!(notes.iter().any(is_said), "{notes:?}");
    }
    let many = "host all all samenet trust\n".repeat(25);
    write("hba.conf", &format!("host all all samehost md5\nlocal all @names peer\nhost a +b ::1/128 reject\n{many}"));
    write("names", "ann bob\n");
    write("users.txt", "\"ann\" \"x\"\n# gone\n\"bob\" \"x\"\n");
    let Converted { toml, notes } = convert(&ini).unwrap();
    let first: Vec<_> = notes.iter().filter(|note| note.widens).map(ToString::to_string).collect();
    let [addresses, lists, users] = &first[..] else { panic!("{first:#?}") };
    let path = |name: &str| place.path().join(name).display().to_string();
    let begins =
        |lines: &str, name: &str| format!("ADMITS CLIENTS THAT PGBOUNCER REFUSED: {lines} of {}: ", path(name));
    assert!(addresses.contains("REFUSED: lines 1, 4, 5, ") && addresses.contains(" 22, … of "), "{addresses}");
    assert!(lists.contains(&begins("line 2", "hba.conf")) && lists.contains("Remove it"), "{lists}");
    assert!(users.starts_with("auth_file: ") && users.contains(&begins("line 2", "users.txt")), "{users}");
    assert!(notes.iter().any(|note| !note.widens && note.what.contains("line 3 of ") && note.matters), "{notes:?}");
    assert!(toml.lines().nth(1).unwrap().contains("ADMITS CLIENTS"), "{toml}");
}

#[test]
fn nobody_gets_in_by_trust_who_is_not_known_to_pgbouncer() {
    let auth = |settings: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!(
            "[databases]\na = user=carol pool_mode=transaction\n[pgbouncer]\nlisten_addr = 127.0.0.1\n{SAYING_LESS}{settings}"
        );
        std::fs::write(file.path(), text).unwrap();
        let converted = convert(file.path()).unwrap();
        let table = converted.toml.split("[auth]\n").nth(1).unwrap().split("\n[").next().unwrap().trim().to_owned();
        (table, converted.toml, converted.notes)
    };
    let (table, _, notes) = auth("auth_type = trust\nauth_file = users.txt\n");
    assert_eq!(table, "method = \"trust\"\nusers_file = \"users.txt\"\nknown_users_only = true");
    assert!(notes.iter().all(|note| note.key == "auth_file" && !note.widens), "{notes:?}");
    let (table, _, _) = auth("auth_type = hba\nauth_file = users.txt\nauth_hba_file = hba.conf\n");
    assert_eq!(table, "users_file = \"users.txt\"\nhba_file = \"hba.conf\"\nknown_users_only = true");
    // It lets in whoever comes, too.
    let (table, _, _) = auth("auth_type = any\nauth_file = users.txt\n");
    assert_eq!(table, "method = \"trust\"\nusers_file = \"users.txt\"");
    // Those whom a query finds are not known beforehand.
    let (table, _, notes) = auth("auth_type = trust\nauth_user = asks\n");
    assert_eq!(table, "method = \"md5\"");
    assert!(notes.iter().any(|note| note.key == "auth_type" && note.matters), "{notes:?}");
    let (_, toml, notes) = auth("auth_type = hba\nauth_user = asks\nauth_hba_file = hba.conf\n");
    assert!(notes[0].widens && notes[0].what.contains("trust"), "{notes:?}");
    assert!(toml.lines().nth(1).unwrap().starts_with("# auth_hba_file: ADMITS CLIENTS"), "{toml}");
    let (_, _, notes) = auth("auth_type = trust\nlisten_addr = *\n");
    assert!(notes.iter().any(|note| note.what.contains("trust_anyone")), "{notes:?}");
}

#[test]
fn a_look_up_in_one_place_only_is_said_to_widen_access() {
    let first = |databases: &str, dbname: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!(
            "[databases]\n{databases}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nauth_type = md5\nauth_user = asks\n{dbname}"
        );
        std::fs::write(file.path(), text).unwrap();
        let notes = convert(file.path()).unwrap().notes;
        notes.iter().filter(|note| note.widens).map(|note| note.what.clone()).collect::<Vec<_>>()
    };
    let said = first("a = host=one\nb = host=two user=carol\nc = host=two\nd = host=one user=carol", "");
    assert!(said.len() == 1 && said[0].contains("\"b\""), "{said:?}");
    // PgBouncer asks there, too.
    assert_eq!(first("a = host=one user=carol\nb = host=two user=carol", "auth_dbname = a"), [""; 0]);
    assert_eq!(first("a = host=one user=carol\nb = host=one port=5432 user=dave", ""), [""; 0]);
}

#[test]
fn what_can_not_be_taken_as_it_is_is_said() {
    let (config, notes) = converted(
        "[databases] ; those of one server\na = host=x password=secret\n[pgbouncer]\nauth_type = trust\n\
         listen_addr = 127.0.0.1, 127.0.0.1\nmax_client_conn = 0\nclient_idle_timeout = 0.05\n",
    );
    assert_eq!((config.listen.len(), config.limits.clients), (1, 1));
    assert_eq!(config.limits.idle_client_timeout, Some(Duration::from_millis(100)));
    assert!(config.databases[0].password.is_none());
    for part in ["listen_addr: ", "line 2, a: password: ", "line 6, max_client_conn: ", "line 7, client_idle_timeout: "]
    {
        assert!(notes.iter().any(|note| note.starts_with(part)), "{part}: {notes:#?}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[databases]\na =\n[pgbouncer]\nlisten_addr = db.example.com\nauth_type = md5\n")
        .unwrap();
    let notes = convert(file.path()).unwrap().notes;
    for key in ["listen", "auth.method"] {
        assert!(notes.iter().any(|note| note.key == key && note.what.contains("sluice check")), "{key}: {notes:?}");
    }
}

#[test]
fn zeros_single_databases_and_sockets() {
    let (config, notes) = converted(
        "[databases]\na = dbname=b reserve_pool=0\nc = max_db_connections=5 timezone=UTC server_lifetime=0\n[pgbouncer]\n\
         auth_type = trust\nlisten_addr = 127.0.0.1\nunix_socket_dir =\nquery_wait_timeout = 0\n\
         server_lifetime = 0\nidle_transaction_timeout = 0\n",
    );
    assert_eq!(config.unix_socket_dir, None);
    assert_eq!(config.databases[0].pool.wait_timeout, Duration::from_secs(24 * 60 * 60));
    assert_eq!(config.databases[0].server, ServerAddress::Unix { dir: "/tmp".into(), port: 5432 });
    assert_eq!((config.databases[0].servers, config.databases[1].servers), (None, Some(5)));
    assert_said(
        &notes,
        &[
            (3, "timezone: has no counterpart: set it for the role"),
            (8, "0 means to wait for ever"),
            (8, "connect_timeout, 15s"),
            (9, "0 means to use a server once"),
        ],
    );
}

#[test]
fn limits_that_several_pools_share_are_carried_over() {
    let (config, notes) = converted(
        "[databases]\na = max_db_connections=5\nb = max_db_connections=0\nc =\nd = max_db_connections=-1\n\
         [users]\nann = max_user_connections=3 max_user_client_connections=30\nbob = max_user_connections=0\n\
         [pgbouncer]\nauth_type = trust\nlisten_addr = 127.0.0.1\nmax_db_connections = 9\n\
         max_db_client_connections = 0\nmax_user_connections = 7\nmax_user_client_connections = 70\n\
         unix_socket_dir = /run/pool\nquery_wait_timeout = 9\n",
    );
    let servers: Vec<_> = config.databases.iter().map(|database| (database.clients, database.servers)).collect();
    // A database's own 0 says that the limit of all holds for it.
    assert_eq!(servers, [(None, Some(5)), (None, Some(9)), (None, Some(9)), (None, Some(9))]);
    let limits = &config.limits;
    assert_eq!([limits.servers_as("ann"), limits.servers_as("bob"), limits.servers_as("carl")], [3, 7, 7].map(Some));
    assert_eq!([limits.clients_of("ann"), limits.clients_of("carl")], [30, 70].map(Some));
    assert_said(&notes, &[(8, "that of all users holds")]);
}

#[test]
fn what_is_wrong_is_said_at_once() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text =
        "[databases]\na = host\n[pgbouncer]\nlisten_port = x\npool_mode = mine\nauth_type = magic\n[odd]\nb = c\n";
    std::fs::write(file.path(), text).unwrap();
    let lines: Vec<_> = convert(file.path())
        .unwrap_err()
        .problems()
        .iter()
        .map(|problem| problem.position.map(|position| position.line))
        .collect();
    assert_eq!(lines, [Some(2), Some(4), Some(5), Some(6), Some(8)]);
}

#[test]
fn values_that_clients_notice_are_said_of_settings_that_are_not_needed_otherwise() {
    let said = |settings: &str| {
        let text = "[databases]\na = host=x\n[pgbouncer]\nauth_type = trust\nlisten_addr = 127.0.0.1\n";
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("{text}{SAYING_LESS}{settings}\n")).unwrap();
        let Converted { toml, notes } = convert(file.path()).unwrap();
        let notes = notes.iter().filter(|note| note.matters && !is_of_sessions(note));
        let notes: Vec<_> = notes.map(ToString::to_string).collect();
        // Whatever matters stands in the new file.
        assert!(notes.iter().all(|note| toml.contains(&format!("# {note}\n"))), "{toml}");
        notes
    };
    for (settings, parts) in [
        ("ignore_startup_parameters = extra_float_digits, DateStyle", &[][..]),
        ("ignore_startup_parameters = extra_float_digits,search_path", &["drops what clients send for search_path,"]),
        ("ignore_startup_parameters = IntervalStyle", &["send for IntervalStyle (before 1.20), and"]),
        ("disable_pqexec = 0", &[]),
        ("disable_pqexec = 1", &["simple queries, which PgBouncer refuses"]),
        ("client_tls_protocols = secure\nclient_tls_ciphers = fast\nclient_tls_ecdhcurve = auto", &[]),
        ("client_tls_protocols = tlsv1.3", &["TLS 1.2 can't be left out"]),
        ("server_tls_protocols = all", &["TLS 1.0 and TLS 1.1 is not there"]),
        ("client_tls_ciphers = ECDHE-RSA-AES256-SHA384", &["no choice of ciphers"]),
        ("client_tls_ecdhcurve = secp521r1", &["X25519"]),
        ("server_reset_query = DISCARD ALL", &[]),
        ("server_reset_query = SELECT app.leave()", &["it is not run"]),
        ("server_reset_query = SELECT app.leave()\npool_mode = transaction", &[]),
        (
            "server_reset_query = SELECT app.leave()\npool_mode = transaction\nserver_reset_query_always = 1",
            &["not run"],
        ),
        ("pool_mode = transaction\nserver_reset_query = SELECT 1\n[databases]\nb = pool_mode=session", &["not run"]),
        ("server_reset_query_always = 1", &[]),
        (
            "server_reset_query = SELECT app.leave()\n[databases]\na = host=x pool_mode=transaction",
            &["the last one counts"],
        ),
        ("server_fast_close = 0", &[]),
        ("server_fast_close = 1", &["in session mode a server that RECONNECT or a reload has called in stays"]),
        ("server_fast_close = 1\npool_mode = transaction", &[]),
    ] {
        let notes = said(settings);
        assert!(
            notes.len() == parts.len() && notes.iter().zip(parts).all(|(note, part)| note.contains(part)),
            "{notes:?}"
        );
    }
}

#[test]
fn clients_are_said_to_wait_for_a_server_that_is_not_there_as_long_as_connecting_may_take() {
    for (settings, expected, said) in [
        ("", (120_000, 15_000), Some("query_wait_timeout: while PostgreSQL can't be reached")),
        ("query_wait_timeout = 15", (15_000, 15_000), None),
        ("query_wait_timeout = 15.5", (15_500, 15_000), Some("line 7, query_wait_timeout: while")),
        ("query_wait_timeout = 60\nserver_connect_timeout = 60", (60_000, 60_000), None),
        ("query_wait_timeout = 60\nserver_connect_timeout = 2", (60_000, 2_000), Some("connect_timeout, 2s")),
        // Sluice's own limit holds then.
        ("query_wait_timeout = 6\nserver_connect_timeout = 0", (6_000, 5_000), Some("connect_timeout, 5s")),
    ] {
        let text =
            "[databases]\na = host=x\n[pgbouncer]\nauth_type = trust\nlisten_addr = 127.0.0.1\nunix_socket_dir =\n";
        let (config, notes) = converted(&format!("{text}{settings}\n"));
        let pool = &config.databases[0].pool;
        let times = (pool.wait_timeout.as_millis(), pool.connect_timeout.as_millis());
        assert_eq!(times, expected, "{settings}");
        let told = notes.iter().find(|note| note.contains("can't be reached"));
        assert_eq!(told.is_some(), said.is_some(), "{settings}: {notes:?}");
        assert!(told.is_none_or(|note| note.contains(said.unwrap())), "{settings}: {told:?}");
    }
}

#[test]
fn a_socket_that_the_packaged_service_keeps_to_itself_is_said() {
    for (settings, is_said) in [
        ("", true),
        ("unix_socket_dir = /tmp/", true),
        ("unix_socket_dir =", false),
        ("unix_socket_dir = /var/run/postgresql", false),
    ] {
        let (_, notes) = converted(&format!("[databases]\na = host=x\n[pgbouncer]\nauth_type = trust\n{settings}\n"));
        assert_eq!(notes.iter().any(|note| note.contains("PrivateTmp")), is_said, "{settings}: {notes:?}");
    }
}

#[test]
fn a_host_is_listened_on_by_all_its_own_addresses_that_it_has() {
    let [four, six, far] = ["127.0.0.1", "::1", "10.0.0.1"].map(|ip| ip.parse::<IpAddr>().unwrap());
    let all = |_| true;
    assert_eq!(localhost(&all, [six, four, four].into_iter()), [four, six]);
    assert_eq!(localhost(&|ip: IpAddr| ip.is_ipv4(), [six, four].into_iter()), [four]);
    assert_eq!(localhost(&all, [far].into_iter()), [four]);
    let (config, _) = converted("[databases]\na = host=x\n[pgbouncer]\nauth_type = trust\nlisten_addr = localhost\n");
    assert_eq!(config.listen[0], "127.0.0.1:6432".parse().unwrap());
}

#[test]
fn what_check_refuses_of_other_files_is_said_at_once() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(place.path().join(name), text).unwrap();
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(place.path().join(name), closed).unwrap();
    };
    let ini = place.path().join("pgbouncer.ini");
    write("hba.conf", "local all all peer\nhost all all 127.0.0.1/32 password\nhost all all ::1/128 password\n");
    write("users.txt", "\"ann\" \"x\" behind\n\"bob\" \"x\"\n");
    let settings = "auth_type = hba\nauth_hba_file = hba.conf\nauth_file = users.txt\n";
    write("pgbouncer.ini", &format!("[databases]\na =\n[pgbouncer]\nlisten_addr = 127.0.0.1\n{settings}"));
    let notes = convert(&ini).unwrap().notes;
    let path = |name: &str| place.path().join(name).display().to_string();
    for (key, lines, name) in [("auth_hba_file", "lines 2, 3", "hba.conf"), ("auth_file", "line 1", "users.txt")] {
        let begin = format!("\"sluice check\" refuses {lines} of {}: ", path(name));
        let is_said = |note: &Note| note.key == key && note.what.starts_with(&begin) && note.matters;
        assert!(notes.iter().any(is_said), "{key}: {notes:#?}");
    }
    write("hba.conf", "hostssl all all 127.0.0.1/32 cert\n");
    write("users.txt", "\"ann\" \"x\"\n");
    let tls = "client_tls_sslmode = require\nclient_tls_ca_file = nowhere.crt\n";
    write("pgbouncer.ini", &format!("[databases]\na =\n[pgbouncer]\nlisten_addr = 127.0.0.1\n{settings}{tls}"));
    let notes = convert(&ini).unwrap().notes;
    let is_said = |note: &Note| note.what.contains("alternative names, too") && !note.widens;
    assert!(notes.iter().any(is_said), "{notes:#?}");
}
