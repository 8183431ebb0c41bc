//! Session mode: a client has a server for all of its session, which was opened as that client has asked.

use sluice_control::settings::{PoolMode, PoolSettings, Sharing};

use crate::table::{Side, Table, answers, bind, execute, parse, query, sync, terminate};

/// A pool of so many servers.
fn of(size: u32) -> PoolSettings {
    PoolSettings { sharing: Sharing { mode: PoolMode::Session, ..Sharing::default() }, size, ..PoolSettings::default() }
}

/// The questions that a server is asked behind a client's session.
const DISCARDS: &str = "Q(DISCARD ALL) Q(SELECT EXISTS (SELECT FROM pg_catalog.pg_proc \
    WHERE oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid))";

/// Its answer, where there are functions in the database, or none.
fn discarded(has_functions: bool) -> Vec<u8> {
    let has = if has_functions { "t" } else { "f" };
    answers(&format!("C(DISCARD ALL) Z(I) D({has}) C(SELECT 1) Z(I)"))
}

/// A client that begins with these settings, and its server, which was opened for it.
fn opened(table: &mut Table, settings: &[(&str, &str)]) -> (Side, Side) {
    let client = table.stranger_with("app", settings);
    let server = table.connects()[0];
    assert!(table.hears(client).ends_with("Z(I)"), "it is let in by its server");
    (client, server)
}

#[test]
fn a_server_is_opened_with_what_its_client_asks_for() {
    let mut table = Table::new(of(1));
    let settings = [("options", "-c work_mem=7MB"), ("DateStyle", "German"), ("application_name", "it")];
    let (client, server) = opened(&mut table, &settings);
    let sent = settings.map(|(name, value)| format!("{name}={value}")).join(" ");
    assert_eq!(table.opened_with(server), sent, "in that order, and PostgreSQL reads it");
    // What is reset goes back to that by itself: nothing of the pool's comes between.
    let reset = [parse("r", "RESET ALL"), bind("r", 0), execute(), sync()].concat();
    table.says(client, &[query("RESET ALL"), query("SELECT 1"), reset].concat());
    assert_eq!(table.hears(server), "Q(RESET ALL) Q(SELECT 1) P(r: RESET ALL) B(r) E S");
    table.says(server, &answers("C(RESET) S(DateStyle=German) Z(I) C(SELECT 1) Z(I) 1 2 C(RESET) Z(I)"));
    assert_eq!(table.hears(client), "C(RESET) S(DateStyle=German) Z(I) C(SELECT 1) Z(I) 1 2 C(RESET) Z(I)");
}

#[test]
fn a_server_serves_the_next_client_that_asks_for_the_same() {
    let mut table = Table::new(of(1));
    let (client, server) = opened(&mut table, &[("application_name", "a")]);
    table.says(client, &terminate());
    assert_eq!(table.hears(server), DISCARDS);
    table.says(server, &discarded(false));
    let same = table.stranger_with("app", &[("application_name", "a")]);
    assert!(table.hears(same).ends_with("Z(I)"), "at once");
    table.says(same, &query("SELECT 1"));
    assert_eq!(table.hears(server), "Q(SELECT 1)");
    // Another one waits until it can have its own.
    let other = table.stranger_with("app", &[("application_name", "b")]);
    assert_eq!(table.hears(other), "R");
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    table.says(same, &terminate());
    table.hears(server);
    table.says(server, &discarded(false));
    assert!(table.is_closed(server));
    let servers = table.connects();
    assert_eq!(table.opened_with(servers[0]), "application_name=b");
    assert!(table.hears(other).ends_with("Z(I)"));
}

#[test]
fn what_functions_may_have_left_ends_with_the_server() {
    let mut table = Table::new(of(1));
    let (client, server) = opened(&mut table, &[]);
    table.says(client, &query("INSERT INTO t VALUES (1)"));
    table.says(server, &answers("C(INSERT 0 1) Z(I)"));
    table.says(client, &terminate());
    table.says(server, &discarded(true));
    assert!(table.is_closed(server), "a trigger may have called one");
    // With the extension it is known whether one was called.
    for (report, is_closed) in [("ran=functions", true), ("pins=sequence", false)] {
        let mut table = Table::new(of(1));
        let (client, server) = opened(&mut table, &[]);
        table.says(client, &query("INSERT INTO t VALUES (1)"));
        table.says(server, &answers(&format!("C(INSERT 0 1) S(sluice.session={report}) Z(I)")));
        table.says(client, &terminate());
        assert!(!table.hears(server).contains("pg_proc"), "{report}");
        if !is_closed {
            table.says(server, &answers("C(DISCARD ALL) Z(I)"));
        }
        assert_eq!(table.is_closed(server), is_closed, "{report}");
    }
}

#[test]
fn a_server_that_does_not_fit_gives_way() {
    let mut table = Table::new(of(1));
    let (client, server) = opened(&mut table, &[]);
    table.says(client, &terminate());
    table.says(server, &discarded(false));
    let (_, other) = opened(&mut table, &[("application_name", "b")]);
    assert_eq!((table.is_closed(server), table.opened_with(other)), (true, "application_name=b".to_owned()));
}

#[test]
fn what_discard_all_does_not_bring_back_ends_with_its_client() {
    for settings in [[("role", "app")], [("options", "-c idle_session_timeout=1s")], [("seed", "0.5")]] {
        let mut table = Table::new(of(1));
        let (client, server) = opened(&mut table, &settings);
        table.says(client, &terminate());
        assert!(table.is_closed(server), "{settings:?}");
    }
}

#[test]
fn a_client_hears_why_its_server_could_not_be_opened() {
    let mut table = Table::new(of(2));
    let client = table.stranger_with("app", &[("work_mem", "no")]);
    table.refuses("E(22023: invalid value)");
    assert_eq!(table.hears(client), "R E(22023)", "PostgreSQL's own words");
    // Nobody else has to wait for that.
    opened(&mut table, &[]);
}

#[test]
fn where_log_ins_run_triggers_each_session_has_its_own() {
    for (has, is_closed) in [("t", true), ("f", false)] {
        let mut table = Table::of_version("17.0", of(1));
        let (client, server) = opened(&mut table, &[]);
        table.says(client, &terminate());
        let asked = table.hears(server);
        assert!(asked.starts_with("Q(DISCARD ALL) Q(SELECT (SELECT dathasloginevt "), "{asked}");
        table.says(server, &answers(&format!("C(DISCARD ALL) Z(I) D({has}) C(SELECT 1) Z(I)")));
        assert_eq!(table.is_closed(server), is_closed, "{has}");
    }
}
