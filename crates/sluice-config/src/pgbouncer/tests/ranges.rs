//! Values that Sluice takes only so far, lists, and what is said of modes.

use super::*;

#[test]
fn times_that_sluice_does_not_take_become_the_next_that_it_does() {
    for (ms, expected, said) in [
        ("0", None, Some("the system's own limits")),
        ("1", Some(1), Some("a second at least")),
        ("1000", Some(1), None),
        ("90000", Some(90), None),
        ("86400001", Some(86_400), Some("a day at most")),
    ] {
        let (config, notes) =
            converted(&format!("[databases]\na =\n[pgbouncer]\nauth_type = trust\ntcp_user_timeout = {ms}\n"));
        assert_eq!(config.tcp_user_timeout, Duration::from_secs(expected.unwrap_or(60)), "{ms}");
        let notes: Vec<_> = notes.iter().filter(|note| note.contains("tcp_user_timeout")).collect();
        match said {
            Some(said) => assert!(notes.len() == 1 && notes[0].contains(said), "{ms}: {notes:?}"),
            None => assert!(notes.is_empty(), "{ms}: {notes:?}"),
        }
    }
}

#[test]
fn times_beyond_what_sluice_takes_are_brought_within_and_said() {
    let (config, notes) = converted(
        "[databases]\na = host=x server_lifetime=0.5 query_wait_timeout=90000\n[pgbouncer]\nauth_type = trust\n\
         listen_addr = 127.0.0.1\nunix_socket_dir = /run/pool\nidle_transaction_timeout = 86401\n\
         query_wait_timeout = 100000\nclient_login_timeout = 3601\nserver_connect_timeout = 7200\n\
         server_login_retry = 0.05\nserver_lifetime = 0.5\nquery_timeout = 999999999\nstats_period = 86400\n",
    );
    let (pool, limits, seconds) = (&config.databases[0].pool, &config.limits, Duration::from_secs);
    assert_eq!((pool.wait_timeout, pool.server_lifetime), (seconds(86_400), seconds(1)));
    assert_eq!((pool.connect_timeout, limits.login_timeout), (seconds(3600), seconds(3600)));
    assert_eq!(limits.idle_transaction_timeout, Some(seconds(86_400)));
    assert_said(
        &notes,
        &[
            (2, "server_lifetime: Sluice takes 1s at least"),
            (2, "query_wait_timeout: Sluice takes 1d at most"),
            (7, "Sluice takes 1d at most"),
            (8, "Sluice takes 1d at most"),
            (8, "connect_timeout, 1h"),
            (9, "Sluice takes 1h at most"),
            (10, "Sluice takes 1h at most"),
            (11, "Sluice takes 100ms at least"),
            (12, "Sluice takes 1s at least"),
            (13, "Sluice takes 365d at most"),
        ],
    );
}

#[test]
fn names_are_separated_by_commas_and_by_blanks() {
    let (config, _) = converted(
        "[databases]\na =\n[pgbouncer]\nauth_type = trust\nadmin_users = dba other,third\nstats_users = ann\tbob, carl\n",
    );
    let admin = config.admin.unwrap();
    assert_eq!((admin.users.len(), admin.stats_users.len()), (3, 3), "{admin:?}");
}

#[test]
fn of_several_hosts_with_their_ports_the_first_is_taken() {
    let (config, _) = converted("[databases]\na = host=x,y port=5433,5434\n[pgbouncer]\nauth_type = trust\n");
    assert_eq!(config.databases[0].server, ServerAddress::Tcp { host: "x".to_owned(), port: 5433 });
}

#[test]
fn sizes_that_can_not_stand_together_are_made_to() {
    let (config, notes) = converted(&format!(
        "[databases]\n\
         a = host=x pool_size=0 min_pool_size=-1\nb = host=x pool_size=5 min_pool_size=10\n\
         c = host=x pool_size=1000\nd = host=x pool_size=-1\n\
         [pgbouncer]\nauth_type = trust\nlisten_addr = 127.0.0.1\ndefault_pool_size = -1\nmin_pool_size = 3\n\
         {SAYING_LESS}"
    ));
    let sizes: Vec<_> = config.databases.iter().map(|database| (database.pool.size, database.pool.min)).collect();
    assert_eq!(sizes, [(1, 1), (5, 5), (1000, 1), (1, 1)]);
    assert_eq!(config.limits.servers, 1000);
    let has = |part: &str| notes.iter().any(|note| note.contains(part));
    for part in [
        "line 2, a: pool_size: 0 becomes 1",
        ", default_pool_size: -1 becomes 1",
        "3 becomes 1",
        "10 of \"b\" becomes 5",
    ] {
        assert!(has(part), "{part}: {notes:#?}");
    }
    assert!(has("limits.servers") && notes.len() == 5, "{notes:#?}");
    let many: String = (0..60).map(|number| format!("d{number} = host=x\n")).collect();
    let (config, _) = converted(&format!("[databases]\n{many}[pgbouncer]\nauth_type = trust\nmin_pool_size = 10\n"));
    assert_eq!(config.limits.servers, 600);
}

#[test]
fn clients_in_session_mode_are_said_to_have_a_server_sooner() {
    for (databases, settings, expected) in [
        ("a =", "", true),
        ("a =", "pool_mode = Session", true),
        ("a =", "pool_mode = transaction", false),
        ("a =\nb = pool_mode=session", "pool_mode = transaction", true),
        ("a = pool_mode=transaction", "", false),
    ] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("[databases]\n{databases}\n[pgbouncer]\nauth_type = trust\n{settings}\n"))
            .unwrap();
        let notes = convert(file.path()).unwrap().notes;
        let said = notes.iter().filter(|note| is_of_sessions(note) && note.matters).count();
        assert_eq!(said, usize::from(expected), "{databases} {settings}: {notes:?}");
    }
}
