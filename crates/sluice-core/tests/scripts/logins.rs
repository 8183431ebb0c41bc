//! Log-ins that come after a change to what PostgreSQL decides at a log-in.

use sluice_control::settings::PoolSettings;

use crate::{
    one, run,
    table::{Side, Table, answers, parse, query},
};

/// A table with a client and a server, where the client has changed what log-ins go by.
fn changed(settings: PoolSettings, sql: &str) -> (Table, Side, Side) {
    let mut table = Table::reporting(settings);
    let client = table.client();
    let server = table.servers()[0];
    // Another one needs no server to be let in.
    let other = table.stranger("app");
    assert!(table.hears(other).ends_with("Z(I)"));
    table.says(client, &query(sql));
    table.says(server, &answers("C(ALTER ROLE) Z(I)"));
    assert_eq!(table.hears(client), "C(ALTER ROLE) Z(I)");
    (table, client, server)
}

#[test]
fn a_client_that_comes_later_is_let_in_by_a_server_that_comes_later() {
    for sql in [
        "ALTER ROLE app SET work_mem = '5MB'",
        "ALTER USER app NOLOGIN",
        "ALTER DATABASE app SET work_mem = '5MB'",
        "DROP ROLE other",
        "REVOKE CONNECT ON DATABASE app FROM PUBLIC",
        "GRANT one TO other",
        "DO $$ BEGIN EXECUTE 'alter role app reset all'; END $$",
    ] {
        let (mut table, client, server) = changed(PoolSettings { size: 2, ..one() }, sql);
        let later = table.stranger("app");
        assert_eq!(table.hears(later), "R", "{sql}");
        let servers = table.connects();
        assert_eq!(servers.len(), 1, "{sql}");
        assert!(table.hears(later).ends_with("Z(I)"), "{sql}");
        // A client that was there before stays with what it knows.
        table.hears(server);
        table.says(client, &query("SELECT 1"));
        assert_eq!(table.hears(server), "Q(SELECT 1)", "{sql}");
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        table.says(later, &query("SELECT 2"));
        assert_eq!(table.hears(servers[0]), "Q(SELECT 2)", "{sql}");
        // The next one is let in at once.
        let another = table.stranger("app");
        assert!(table.hears(another).ends_with("Z(I)"), "{sql}");
    }
}

#[test]
fn another_function_of_a_trigger_at_log_ins_is_a_change_to_them() {
    for (version, sql, changes) in [
        ("17.0", "CREATE OR REPLACE FUNCTION t() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'", true),
        ("17.0", "ALTER FUNCTION t() SET search_path = s", true),
        ("17.0", "DROP FUNCTION t() CASCADE", true),
        ("17.0", "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", false),
        // There is no such trigger before 17.
        ("16.0", "ALTER FUNCTION t() SET search_path = s", false),
    ] {
        let mut table = Table::of_version(version, PoolSettings { size: 2, ..one() });
        table.reports = true;
        let client = table.client();
        let server = table.servers()[0];
        table.says(client, &query(sql));
        table.says(server, &answers("C(ALTER FUNCTION) Z(I)"));
        let later = table.stranger("app");
        table.hears(later);
        assert_eq!(table.connects().len(), usize::from(changes), "{version}, {sql}");
    }
}

#[test]
fn a_change_that_is_sent_behind_another_request_ends_with_its_own_answer() {
    for first in [query("SELECT 1"), [parse("", "SELECT 1"), run("")].concat()] {
        let mut table = Table::reporting(PoolSettings { size: 3, ..one() });
        let client = table.client();
        let server = table.servers()[0];
        table.says(client, &[first.clone(), query("ALTER ROLE app SET work_mem = '5MB'")].concat());
        let answer = if first[0] == b'Q' { "C(SELECT 1) Z(I)" } else { "1 2 C(SELECT 1) Z(I)" };
        table.says(server, &answers(answer));
        // What this one is told is as of before the change.
        let early = table.stranger("app");
        table.connects();
        assert!(table.hears(early).ends_with("Z(I)"));
        table.says(server, &answers("C(ALTER ROLE) Z(I)"));
        let late = table.stranger("app");
        assert_eq!(table.hears(late), "R", "it is let in by a server that comes later");
    }
}

#[test]
fn a_reload_is_seen_by_what_a_server_reports() {
    let mut table = Table::reporting(PoolSettings { size: 2, ..one() });
    let client = table.client();
    let server = table.servers()[0];
    table.says(client, &query("SET TimeZone = 'Asia/Tokyo'"));
    table.says(server, &answers("S(TimeZone=Asia/Tokyo) C(SET) Z(I)"));
    let later = table.stranger("app");
    assert!(table.hears(later).ends_with("Z(I)"), "a SET accounts for that");
    table.says(client, &query("SELECT 1"));
    table.says(server, &answers("D(1) C(SELECT 1) S(TimeZone=Asia/Seoul) Z(I)"));
    assert!(table.hears(client).contains("S(TimeZone=Asia/Seoul)"));
    let later = table.stranger("app");
    assert_eq!(table.hears(later), "R", "it is let in by a server that has logged in since");
    assert_eq!(table.connects().len(), 1);
    assert!(table.hears(later).ends_with("Z(I)"));
}

#[test]
fn a_reload_is_seen_by_what_a_server_reports_that_is_opened_later() {
    let mut table = Table::reporting(PoolSettings { size: 2, ..one() });
    let client = table.client();
    let server = table.servers()[0];
    table.hangs_up(server);
    table.reports_at_login("TimeZone", "Asia/Seoul");
    table.says(client, &query("SELECT 1"));
    let server = table.connects()[0];
    assert_eq!(table.hears(server), "Q(SELECT 1)");
    table.says(server, &answers("D(1) C(SELECT 1) Z(I)"));
    let later = table.stranger("app");
    assert_eq!(table.hears(later), "R", "what was reported before is not told any more");
    table.connects();
    assert!(table.hears(later).contains("S(TimeZone=Asia/Seoul)"));
}

#[test]
fn a_reload_is_seen_by_what_a_server_counts() {
    let mut table = Table::reporting(PoolSettings { size: 2, ..one() });
    let client = table.client();
    let server = table.servers()[0];
    let counts = |table: &mut Table, count: u32| {
        table.says(client, &query("SELECT 1"));
        table.says(server, &answers(&format!("D(1) C(SELECT 1) S(sluice.configuration=1.{count}) Z(I)")));
        assert_eq!(table.hears(client), "D C(SELECT 1) Z(I)");
    };
    // The first count is no news, and the same again is none.
    counts(&mut table, 7);
    counts(&mut table, 7);
    let second = table.stranger("app");
    assert!(table.hears(second).ends_with("Z(I)"));
    counts(&mut table, 8);
    let third = table.stranger("app");
    assert_eq!(table.hears(third), "R", "it is let in by a server that has logged in since");
    table.connects();
    assert!(table.hears(third).ends_with("Z(I)"));
}

#[test]
fn what_was_parsed_before_a_reload_is_parsed_again_for_others() {
    let mut table = Table::reporting(one());
    let [first, second, third] = [(); 3].map(|()| table.client());
    let server = table.servers()[0];
    let uses = |table: &mut Table, client, count: u32| {
        table.says(client, &[parse("a", "SELECT '01/02/2020'::date"), run("a")].concat());
        let heard = table.hears(server);
        let parsed = if heard.contains("P(") { "1 t T(date) " } else { "" };
        table.says(server, &answers(&format!("{parsed}2 D(x) C(SELECT 1) S(sluice.configuration=1.{count}) Z(I)")));
        table.hears(client);
        heard.matches("P(").count()
    };
    assert_eq!(uses(&mut table, first, 7), 1);
    assert_eq!(uses(&mut table, second, 8), 0);
    assert_eq!(uses(&mut table, third, 8), 1, "it may mean something else");
}

#[test]
fn clients_hear_of_a_reload_that_others_have_brought_to_light() {
    let mut table = Table::reporting(one());
    table.reports_at_login("TimeZone", "UTC");
    let [first, second] = [(); 2].map(|()| table.client());
    let server = table.servers()[0];
    let answer = |table: &mut Table, client, reports: &str| {
        table.says(client, &query("SELECT 1"));
        table.says(server, &answers(&format!("D(1) C(SELECT 1) {reports}Z(I)")));
        table.hears(client)
    };
    answer(&mut table, first, "S(sluice.configuration=1.7) ");
    // It hears from its server, and no second time.
    let heard = answer(&mut table, first, "S(TimeZone=Asia/Seoul) S(sluice.configuration=1.8) ");
    assert_eq!(heard, "D C(SELECT 1) S(TimeZone=Asia/Seoul) Z(I)");
    assert_eq!(answer(&mut table, first, ""), "D C(SELECT 1) Z(I)");
    // The other one, to which the server has nothing to report, is told as well, once.
    assert_eq!(answer(&mut table, second, ""), "D C(SELECT 1) S(TimeZone=Asia/Seoul) Z(I)");
    assert_eq!(answer(&mut table, second, ""), "D C(SELECT 1) Z(I)");
}

#[test]
fn what_a_query_of_the_pools_own_reports_and_has_not_caused_is_a_reload() {
    let mut table = Table::reporting(one());
    table.reports_at_login("TimeZone", "UTC");
    let [first, second] = [(); 2].map(|()| table.client());
    let server = table.servers()[0];
    table.says(first, &query("SET DateStyle = 'ISO, DMY'"));
    let set = "S(DateStyle=ISO, DMY) C(SET) S(sluice.session=set=646174657374796c65:49534f2c20444d59) Z(I)";
    table.says(server, &answers(set));
    table.hears(first);
    table.hears(server);
    table.says(second, &query("SELECT 1"));
    let taken_back = table.hears(server);
    assert!(taken_back.to_lowercase().contains("datestyle"), "the setting of the first: {taken_back}");
    table.says(server, &answers("S(DateStyle=ISO, MDY) S(TimeZone=Asia/Seoul) S(sluice.session=) C(RESET) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT 1)");
    table.says(server, &answers("D(1) C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(second), "D C(SELECT 1) S(TimeZone=Asia/Seoul) Z(I)");
}

#[test]
fn what_a_client_resets_to_it_knows() {
    let mut table = Table::reporting(one());
    table.reports_at_login("TimeZone", "UTC");
    let [first, second] = [(); 2].map(|()| table.client());
    let server = table.servers()[0];
    let answer = |table: &mut Table, client, sql: &str, answer: &str| {
        table.says(client, &query(sql));
        table.says(server, &answers(answer));
        table.hears(server);
        table.hears(client)
    };
    answer(&mut table, first, "SELECT 1", "D(1) C(SELECT 1) S(sluice.configuration=1.1) Z(I)");
    let set = "S(TimeZone=Asia/Tokyo) C(SET) S(sluice.session=set=74696d657a6f6e65:417369612f546f6b796f) Z(I)";
    answer(&mut table, first, "SET TimeZone = 'Asia/Tokyo'", set);
    // Reloaded, so that it is reset to something that nobody has told the client.
    let reset = "C(RESET) S(TimeZone=Asia/Seoul) S(sluice.session=) S(sluice.configuration=1.2) Z(I)";
    answer(&mut table, first, "RESET TimeZone", reset);
    let back = "D(1) C(SELECT 1) S(TimeZone=UTC) S(sluice.configuration=1.3) Z(I)";
    answer(&mut table, second, "SELECT 1", back);
    let heard = answer(&mut table, first, "SELECT 1", "D(1) C(SELECT 1) Z(I)");
    assert_eq!(heard, "D C(SELECT 1) S(TimeZone=UTC) Z(I)");
}

#[test]
fn a_reload_takes_nothing_from_what_a_client_has_set() {
    let mut table = Table::reporting(one());
    table.reports_at_login("TimeZone", "UTC");
    let [first, second] = [(); 2].map(|()| table.client());
    let server = table.servers()[0];
    table.says(first, &query("SET TimeZone = 'Asia/Tokyo'"));
    let set = "S(TimeZone=Asia/Tokyo) C(SET) S(sluice.session=set=74696d657a6f6e65:417369612f546f6b796f) Z(I)";
    table.says(server, &answers(set));
    table.hears(first);
    table.says(second, &query("SELECT 1"));
    assert!(table.hears(server).contains("RESET") || table.hears(server).contains("set_config"));
    table.says(server, &answers("D() C(SELECT 1) S(sluice.session=) S(TimeZone=UTC) Z(I)"));
    table.says(server, &answers("D(1) C(SELECT 1) S(sluice.configuration=1.7) Z(I)"));
    table.says(second, &query("SELECT 1"));
    table.says(server, &answers("D(1) C(SELECT 1) S(TimeZone=Asia/Seoul) S(sluice.configuration=1.8) Z(I)"));
    assert!(table.hears(second).ends_with("S(TimeZone=Asia/Seoul) Z(I)"));
    table.hears(server);
    table.says(first, &query("SELECT 1"));
    table.says(server, &answers("D() C(SELECT 1) S(TimeZone=Asia/Tokyo) Z(I)"));
    table.says(server, &answers("D(1) C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(first), "D C(SELECT 1) Z(I)");
}

#[test]
fn a_role_that_was_made_again_is_set_again() {
    let mut table = Table::reporting(PoolSettings { size: 2, ..one() });
    let [a, b, c] = [(); 3].map(|()| table.client());
    let first = table.servers()[0];
    let says = |table: &mut Table, server, client, sql: &str, answer: &str| {
        table.says(client, &query(sql));
        let heard = table.hears(server);
        if heard.starts_with("Q(RESET") || heard.starts_with("Q(SET ROLE") && !sql.starts_with("SET") {
            table.says(server, &answers("C(RESET) Z(I)"));
        }
        table.hears(server);
        table.says(server, &answers(answer));
        heard
    };
    // `role` is `x`, as the extension reports it.
    let role = "C(SET) S(sluice.session=set=726f6c65:78) Z(I)";
    says(&mut table, first, a, "SET ROLE x", role);
    says(&mut table, first, a, "BEGIN READ WRITE", "C(BEGIN) Z(T)");
    table.says(b, &query("DROP ROLE x; CREATE ROLE x"));
    let second = table.connects()[0];
    assert_eq!(table.hears(second), "Q(DROP ROLE x; CREATE ROLE x)");
    table.says(second, &answers("C(DROP ROLE) C(CREATE ROLE) Z(I)"));
    says(&mut table, second, c, "SET ROLE x", role);
    says(&mut table, second, b, "BEGIN READ WRITE", "C(BEGIN) Z(T)");
    says(&mut table, first, a, "COMMIT", "C(COMMIT) Z(I)");
    // On that server the name stands for the role that is gone.
    table.says(c, &query("SELECT 1"));
    let heard = table.hears(first);
    assert!(heard.contains("RESET ROLE") && heard.contains("'x'"), "{heard}");
}

#[test]
fn a_role_that_was_made_again_is_set_again_for_the_client_that_had_it_there() {
    let mut table = Table::reporting(PoolSettings { size: 2, ..one() });
    let [a, b] = [(); 2].map(|()| table.client());
    let first = table.servers()[0];
    let role = "C(SET) S(sluice.session=set=726f6c65:78) Z(I)";
    // The first server is taken: the client sets its role on the second.
    table.says(b, &query("BEGIN READ WRITE"));
    table.says(first, &answers("C(BEGIN) Z(T)"));
    table.says(a, &query("SET ROLE x"));
    let second = table.connects()[0];
    table.says(second, &answers(role));
    table.says(b, &query("DROP ROLE x; CREATE ROLE x; COMMIT"));
    table.says(first, &answers("C(DROP ROLE) C(CREATE ROLE) C(COMMIT) Z(I)"));
    // Now it does so on the first, where `x` is the new one.
    table.says(a, &query("RESET ROLE"));
    assert!(table.hears(first).contains("'x'"));
    table.says(first, &answers("D() C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(first), "Q(RESET ROLE)");
    table.says(first, &answers("C(RESET) S(sluice.session=) Z(I)"));
    table.says(a, &query("SET ROLE x"));
    assert_eq!(table.hears(first), "Q(SET ROLE x)");
    table.says(first, &answers(role));
    table.says(b, &query("BEGIN READ WRITE"));
    table.says(first, &answers("C(RESET) Z(I)"));
    // On the second the name stands for the role that is gone, which the client was before.
    table.hears(second);
    table.says(a, &query("SELECT 1"));
    let heard = table.hears(second);
    assert!(heard.contains("RESET ROLE") && heard.contains("'x'"), "{heard}");
}

#[test]
fn what_ends_with_its_transaction_is_no_reload() {
    let mut table = Table::reporting(PoolSettings { size: 2, ..one() });
    let client = table.client();
    let server = table.servers()[0];
    for (sql, answer) in [
        ("BEGIN READ WRITE", "C(BEGIN) Z(T)"),
        ("SET LOCAL TimeZone = 'Asia/Tokyo'", "S(TimeZone=Asia/Tokyo) C(SET) Z(T)"),
        ("COMMIT", "C(COMMIT) S(TimeZone=UTC) Z(I)"),
        (
            "SET LOCAL TimeZone = 'Asia/Tokyo'; SELECT 1",
            "S(TimeZone=Asia/Tokyo) C(SET) S(TimeZone=UTC) C(SELECT 1) Z(I)",
        ),
        // By a trigger.
        (
            "INSERT INTO t VALUES (1)",
            "C(INSERT 0 1) S(TimeZone=Asia/Seoul) S(sluice.session=set=74696d657a6f6e65:58) Z(I)",
        ),
    ] {
        table.says(client, &query(sql));
        table.says(server, &answers(answer));
    }
    let later = table.stranger("app");
    assert!(table.hears(later).ends_with("Z(I)"), "the server is as good as before");
    assert!(table.connects().is_empty());
}

#[test]
fn other_commands_are_no_change_for_log_ins() {
    for sql in ["ALTER TABLE t ADD c int", "GRANT SELECT ON t TO other", "DROP TABLE t", "DO $$ BEGIN NULL; END $$"] {
        let (mut table, ..) = changed(one(), sql);
        let later = table.stranger("app");
        assert!(table.hears(later).ends_with("Z(I)"), "{sql}");
    }
}

#[test]
fn a_server_gives_way_to_a_later_one_where_there_can_be_no_more() {
    let (mut table, client, server) = changed(one(), "ALTER ROLE app SET work_mem = '5MB'");
    // It waits for the end of what is under way.
    table.says(client, &query("BEGIN READ WRITE"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    let later = table.stranger("app");
    assert!(table.connects().is_empty());
    table.says(client, &query("COMMIT"));
    table.says(server, &answers("C(COMMIT) Z(I)"));
    assert!(table.is_closed(server));
    let servers = table.connects();
    assert_eq!(servers.len(), 1);
    assert!(table.hears(later).ends_with("Z(I)"));
    // There is none of the time of the one who came before.
    table.says(client, &query("SELECT 1"));
    assert_eq!(table.hears(servers[0]), "Q(SELECT 1)");
}

#[test]
fn a_log_in_that_postgresql_refuses_is_refused_and_nothing_else() {
    let (mut table, client, server) = changed(PoolSettings { size: 2, ..one() }, "ALTER ROLE app NOLOGIN");
    let later = table.stranger("app");
    table.refuses("E(28000: role \"app\" is not permitted to log in)");
    assert_eq!(table.hears(later), "R E(28000: role \"app\" is not permitted to log in)");
    assert!(table.is_closed(later));
    table.hears(server);
    table.says(client, &query("SELECT 1"));
    assert_eq!(table.hears(server), "Q(SELECT 1)");
}
