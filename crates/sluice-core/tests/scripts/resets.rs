//! Settings that are reset to what a client began with, which the server does not know.

use crate::{
    one, seated,
    table::{Side, Table, answers, query},
};

/// The settings that a probe tells of: `application_name` is `start`, and `timezone` is `Start`.
const STARTED: &str = "set=6170706c69636174696f6e5f6e616d65:7374617274,74696d657a6f6e65:5374617274";

const NAME: &str = "SET \"application_name\" = 'start';";
const ZONE: &str = "SET \"timezone\" = 'Start';";

/// A client that began with these settings, and the pool's server.
fn started() -> (Table, Side, Side) {
    let reported = "S(application_name=start) S(TimeZone=Start) Z(I)";
    let mut table = Table::new(one());
    let client = table.stranger_with("app", &[("TimeZone", "Start"), ("application_name", "start")]);
    let server = table.connects()[0];
    table.hears(server);
    table.says(server, &answers(&format!("C(SET) {reported}")));
    assert_eq!(table.hears(server), "Q(probe)");
    table.says(server, &answers(&format!("D({STARTED}) C(SELECT 1) Z(I)")));
    table.hears(client);
    (table, client, server)
}

/// The same in a block.
fn started_in_block() -> (Table, Side, Side) {
    let (mut table, client, server) = started();
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
    for (begun, tail) in [(started(), "Z(I)"), (started_in_block(), "Z(T)")] {
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

#[test]
fn what_a_client_began_with_is_reported_as_the_server_shows_it() {
    let mut table = Table::reporting(one());
    let client = table.stranger_with("app", &[("TimeZone", "utc")]);
    let server = table.connects()[0];
    table.hears(server);
    // `TimeZone` is `utc`, as the extension reports it, and as it can be set again.
    table.says(server, &answers("C(SET) S(TimeZone=UTC) S(sluice.session=set=54696d655a6f6e65:757463) Z(I)"));
    assert!(table.hears(client).contains("S(TimeZone=UTC)"));
    for (sql, reports) in
        [("RESET ALL", ""), ("SET timezone = 'X'", "S(TimeZone=X) "), ("RESET timezone", "S(TimeZone=UTC) ")]
    {
        table.says(client, &query(sql));
        let heard = table.hears(server);
        assert!(heard.starts_with(&format!("Q({sql}")), "{heard}");
        let said = if sql.starts_with("SET") { "S(TimeZone=X)" } else { "S(TimeZone=Server)" };
        table.says(server, &answers(&format!("C({sql}) {said} Z(I)")));
        assert_eq!(table.hears(client), format!("C({sql}) {reports}Z(I)"));
    }
}
