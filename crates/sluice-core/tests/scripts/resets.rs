//! Settings that are reset to what a client began with, which the server does not know.

use sluice_core::settings::{PoolMode, PoolSettings};

use crate::{
    one, seated,
    table::{Side, Table, answers, bind, execute, parse, query, sync},
};

/// The settings that a probe tells of: `application_name` is `start`, and `timezone` is `Start`.
const STARTED: &str = "set=6170706c69636174696f6e5f6e616d65:7374617274,74696d657a6f6e65:5374617274";

const NAME: &str = "SET \"application_name\" = 'start';";
const ZONE: &str = "SET \"timezone\" = 'Start';";

/// A client that began with these settings, and the pool's server.
fn started(settings: PoolSettings) -> (Table, Side, Side) {
    let mode = settings.mode;
    let reported = "S(application_name=start) S(TimeZone=Start) Z(I)";
    let mut table = Table::new(settings);
    let client = table.stranger_with("app", &[("TimeZone", "Start"), ("application_name", "start")]);
    let server = table.connects()[0];
    table.hears(server);
    table.says(server, &answers(&format!("C(SET) {reported}")));
    if mode == PoolMode::Transaction {
        assert_eq!(table.hears(server), "Q(probe)");
        table.says(server, &answers(&format!("D({STARTED}) C(SELECT 1) Z(I)")));
    } else {
        // It has its server from its first statement on.
        table.says(server, &answers("C(DISCARD ALL) Z(I)"));
        table.says(client, &query("SELECT 0"));
        table.says(server, &answers(&format!("C(SELECT 1) {reported}")));
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        table.hears(server);
    }
    table.hears(client);
    (table, client, server)
}

/// The same in a block.
fn started_in_block() -> (Table, Side, Side) {
    let (mut table, client, server) = started(one());
    table.says(client, &query("BEGIN READ WRITE"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.hears(server);
    table.hears(client);
    (table, client, server)
}

#[test]
fn what_one_reset_takes_back_is_not_all() {
    let (mut table, client, server) = started_in_block();
    let sql = "SET work_mem = 1; SET timezone = 'Mine'; RESET application_name";
    table.says(client, &query(sql));
    table.says(server, &answers("C(SET) C(SET) C(RESET) S(application_name=) S(TimeZone=Mine) Z(T)"));
    // It has taken itself for `start` all along.
    assert_eq!(table.hears(client), "C(SET) C(SET) C(RESET) S(TimeZone=Mine) Z(T)");
    let back = format!("C(sluice_own) P(sluice_own: {NAME}) B(sluice_own) E C[sluice_own] C(sluice_own) S");
    assert_eq!(table.hears(server), format!("Q({sql}) {back}"));
    // What it sends meanwhile waits.
    table.says(client, &query("SELECT 1"));
    assert_eq!(table.hears(server), "");
    table.says(server, &answers("3 1 2 C(SET) 3 3 Z(T)"));
    assert_eq!((table.hears(server), table.hears(client)), ("Q(SELECT 1)".into(), String::new()));
    // Where that fails, the client hears why, and the session ends.
    table.says(server, &answers("C(SELECT 1) Z(T)"));
    table.says(client, &query("RESET application_name"));
    table.says(server, &answers("C(RESET) S(application_name=) Z(T)"));
    table.hears(client);
    table.hears(server);
    table.says(server, &answers("3 1 2 E(22023) Z(E)"));
    assert_eq!(table.hears(client), "E(22023)");
    assert!(table.is_closed(client));
}

#[test]
fn what_follows_a_reset_in_its_query_goes_by_the_clients_start() {
    for (begun, tail) in [(started(one()), "Z(I)"), (started_in_block(), "Z(T)")] {
        let (mut table, client, server) = begun;
        table.says(client, &[query("SET work_mem = 1; RESET ALL; SELECT f()"), query("SELECT 2")].concat());
        // What comes next need not wait.
        assert_eq!(table.hears(server), format!("Q(SET work_mem = 1; RESET ALL;{NAME}{ZONE} SELECT f()) Q(SELECT 2)"));
        let told = "T D C(SELECT 1) S(TimeZone=Other)";
        table.says(server, &answers(&format!("C(SET) C(RESET) C(SET) C(SET) {told} {tail}")));
        assert_eq!(table.hears(client), format!("C(SET) C(RESET) {told} {tail}"));
        table.says(server, &answers(&format!("C(SELECT 1) {tail}")));
        let sent = table.hears(server);
        assert_eq!(sent, if tail == "Z(I)" { "Q(probe)" } else { "" }, "nothing is left to be put in place");
    }
}

#[test]
fn what_is_added_to_a_query_may_be_a_query_itself() {
    let mut table = Table::new(one());
    let client = table.stranger_with("app", &[("search_path", "a,b")]);
    let server = table.connects()[0];
    table.hears(server);
    table.says(server, &answers("C(SET) Z(I)"));
    // `search_path` is `a,b`, which no SET leaves so.
    table.says(server, &answers("D(set=7365617263685f70617468:612c62) C(SELECT 1) Z(I)"));
    table.hears(server);
    table.hears(client);
    table.says(client, &query("RESET search_path; SELECT f() -- so"));
    let set = "SELECT pg_catalog.set_config('search_path','a,b',false);";
    assert_eq!(table.hears(server), format!("Q(RESET search_path;{set} SELECT f() -- so)"));
    table.says(server, &answers("C(RESET) T(set_config) D(a,b) C(SELECT 1) T(f) D(1) C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(RESET) T D C(SELECT 1) Z(I)");
}

#[test]
fn a_query_fails_with_what_was_added_to_it() {
    let (mut table, client, server) = started_in_block();
    table.says(client, &query("RESET ALL; SELECT f()"));
    table.says(server, &answers("C(RESET) C(SET) E(22012) Z(E)"));
    assert_eq!(table.hears(client), "C(RESET) E(22012) Z(E)");
    table.hears(server);
    table.says(client, &query("ROLLBACK"));
    assert_eq!(table.hears(server), "Q(ROLLBACK)");
}

#[test]
fn in_session_mode_a_reset_is_followed_by_what_the_client_began_with() {
    let (mut table, client, server) = started(PoolSettings { mode: PoolMode::Session, ..one() });
    table.says(client, &[query("RESET ALL"), query("SELECT 1")].concat());
    table.says(server, &answers("C(RESET) S(application_name=) S(TimeZone=UTC) Z(I)"));
    assert_eq!(table.hears(client), "C(RESET) Z(I)");
    assert_eq!(table.hears(server), format!("Q(RESET ALL) {} S", put()), "the next one waits for that");
    table.says(server, &answers("3 1 2 C(SET) 3 3 3 1 2 C(SET) 3 3 S(application_name=start) S(TimeZone=Start) Z(I)"));
    assert_eq!((table.hears(client), table.hears(server)), (String::new(), "Q(SELECT 1)".into()));
}

/// The statements that bring both settings back within a batch.
fn put() -> String {
    let put = |sql| format!("C(sluice_own) P(sluice_own: {sql}) B(sluice_own) E C[sluice_own] C(sluice_own)");
    format!("{} {}", put(NAME), put(ZONE))
}

#[test]
fn what_is_brought_back_takes_no_unnamed_portal_away() {
    let (mut table, client, server) = started(PoolSettings { mode: PoolMode::Session, ..one() });
    // Its texts are not read: the answer tells.
    let reset = [parse("r", "RESET ALL"), bind("r", 0), execute(), sync()].concat();
    table.says(client, &[reset, parse("", "SELECT 1"), bind("", 0)].concat());
    assert_eq!(table.hears(server), "P(r: RESET ALL) B(r) E S P(: SELECT 1) B()");
    table.says(server, &answers("1 2 C(RESET) S(application_name=) S(TimeZone=UTC) Z(I)"));
    let fill = table.hears(server);
    let query = "SELECT pg_catalog.set_config(v.n,v.v,false) FROM pg_catalog.pg_settings s";
    assert!(fill.starts_with(&format!("C(sluice_own) P(sluice_own: {query}")), "{fill}");
    assert!(fill.ends_with(" B(sluice_own) E C[sluice_own] C(sluice_own)"), "the batch is the client's: {fill}");
    table.says(client, &[execute(), sync()].concat());
    assert_eq!(table.hears(server), "E S");
    table.says(server, &answers("1 2 3 1 2 D(start) C(SELECT 1) 3 3 D(1) C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "1 2 C(RESET) Z(I) 1 2 D C(SELECT 1) Z(I)");
}

#[test]
fn a_reset_that_fails_takes_nothing_back() {
    let (mut table, client, server) = seated(one());
    table.says(client, &query("BEGIN READ WRITE"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.says(client, &[query("RESET ALL"), query("SELECT 1")].concat());
    // What the client began with may have to be brought back before its next statement.
    assert_eq!(table.hears(server), "Q(BEGIN READ WRITE) Q(RESET ALL)");
    table.says(server, &answers("E(57014) S(application_name=a) Z(E)"));
    assert_eq!(table.hears(server), "Q(SELECT 1)");
    assert_eq!(table.hears(client), "C(BEGIN) Z(T) E(57014) S(application_name=a) Z(E)", "as it was before");
}
