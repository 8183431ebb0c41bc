//! Session state, and the messages that are sent to servers for it: probes, settings, servers that are kept,
//! statements on exact terms.

use std::time::Duration;

use sluice_control::settings::{PinPolicy, PoolSettings, Sharing};
use sluice_wire::message;

use crate::{
    one, prepared, run, seated,
    table::{Side, Table, answers, bind, close, execute, own, parse, query, sync, terminate},
};

/// A setting that a probe finds: `TimeZone` is `X`.
pub(crate) const ZONE_X: &str = "set=54696d655a6f6e65:58";

/// A client carries a Query out, and what it leaves is seen by a probe. Gives what the client hears behind its answer.
pub(crate) fn leaves(table: &mut Table, (client, server): (Side, Side), sql: &str, tag: &str, holding: &str) -> String {
    table.hears(client);
    table.says(client, &query(sql));
    assert_eq!(table.hears(server), format!("Q({sql})"));
    table.says(server, &answers(&format!("C({tag}) Z(I)")));
    assert_eq!(table.hears(server), "Q(probe)", "{sql} may have left something");
    table.says(server, &answers(&format!("D({holding}) C(SELECT 1) Z(I)")));
    let heard = table.hears(client);
    heard.strip_prefix(&format!("C({tag}) Z(I)")).expect("the client has its answer").trim().to_owned()
}

#[test]
fn a_probe_follows_what_may_have_left_something() {
    let (mut table, client, server) = seated(one());
    for sql in ["SELECT 1", "UPDATE t SET a = 1", "SET LOCAL timezone = 'X'", "SELECT lower('X')"] {
        table.says(client, &query(sql));
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(server), format!("Q({sql})"), "it leaves nothing");
    }
    for sql in ["SET timezone = 'X'", "SELECT f()", "SELECT pg_advisory_lock(1)", "FROBNICATE"] {
        leaves(&mut table, (client, server), sql, "SELECT 1", "");
    }
    // Also where a transaction failed: a lock would stay.
    table.says(client, &query("SELECT f()"));
    table.says(server, &answers("E(22012) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT f()) Q(probe)");
}

#[test]
fn a_probe_is_brief_once_a_servers_own_values_are_known() {
    let (mut table, client, server) = seated(one());
    // Of `geqo` and `work_mem`: `on` and `4MB`.
    let own = "D(conf=a libraries= defaults=6765716f026f6e01776f726b5f6d656d02344d42) C(SELECT 1) Z(I)";
    // What values do not tell is asked for in full, and so is everything once a brief probe has failed.
    for (probes, answer) in [
        ("Q(probe)", ""),
        ("Q(untimed brief probe)", "D(was=0) C(SELECT 1) D(conf=b values=02) C(SELECT 1) Z(I)"),
        ("Q(untimed brief probe)", "E(57014) Z(I)"),
        ("Q(probe)", ""),
    ] {
        table.says(client, &query("SELECT f()"));
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(server), format!("Q(SELECT f()) {probes}"));
        if !answer.is_empty() {
            table.says(server, &answers(answer));
            assert_eq!(table.hears(server), "Q(probe)");
        }
        table.says(server, &answers(own));
        assert_eq!(table.hears(client), "C(SELECT 1) Z(I)", "it hears of none of that");
    }
}

#[test]
fn a_probe_behind_a_close_that_tells_too_little_is_followed_by_one_in_full() {
    let (mut table, client, server) = seated(one());
    let own = "conf=a libraries= defaults=6765716f026f6e01776f726b5f6d656d02344d42";
    let sql = "DECLARE c CURSOR WITH HOLD FOR SELECT 1";
    leaves(&mut table, (client, server), sql, "DECLARE CURSOR", &format!("pins=cursor {own}"));
    table.says(client, &[close("c"), sync()].concat());
    table.says(server, &answers("3 Z(I)"));
    assert_eq!(table.hears(server), "C(c) S Q(brief probe)");
    table.hears(client);
    table.says(client, &query("SELECT 1"));
    table.says(server, &answers("D(pins=cursor conf=b values=02) C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(server), "Q(probe)", "and the client waits for it");
    table.says(server, &answers(&format!("D(pins=cursor {own}) C(SELECT 1) Z(I)")));
    assert_eq!(table.hears(server), "Q(SELECT 1)");
}

#[test]
fn a_notification_reaches_its_client_also_behind_a_query_of_sluices_own() {
    let mut table = Table::new(one());
    let (client, number) = table.numbered_client();
    let server = table.servers()[0];
    table.says(client, &query("LISTEN news"));
    table.says(server, &answers("C(LISTEN) Z(I)"));
    assert_eq!(table.hears(server), "Q(LISTEN news) Q(probe)");
    table.says(server, &answers("D(pins=listen) C(SELECT 1) A(7) Z(I) A(8)"));
    assert_eq!(table.hears(client), "C(LISTEN) Z(I) A(7) A(8)");
    // One of the client's own: it knows itself by the number that it was told.
    table.says(client, &query("NOTIFY news"));
    table.says(server, &answers(&format!("C(NOTIFY) A({}) Z(I)", 1000 + server)));
    assert_eq!(table.hears(client), format!("C(NOTIFY) A({number}) Z(I)"));
}

#[test]
fn a_process_number_is_no_servers_and_not_given_again_at_once() {
    let mut table = Table::new(one());
    let (first, number) = table.numbered_client();
    table.says(first, &terminate());
    let (_, next) = table.numbered_client();
    assert_ne!(number, next, "they are two sessions");
    for number in [number, next] {
        // Linux numbers no process higher (PID_MAX_LIMIT), and some drivers read a signed number.
        assert!(number > 1 << 22 && i32::try_from(number).is_ok(), "{number}");
    }
}

#[test]
fn settings_are_in_place_before_the_next_message_goes() {
    let (mut table, client, server) = seated(one());
    let other = table.client();
    leaves(&mut table, (client, server), "SET timezone = 'X'", "SET", ZONE_X);
    // The other one began with none.
    table.says(other, &[query("SELECT 1"), query("SELECT 2")].concat());
    assert_eq!(table.hears(server), "Q(RESET \"timezone\";)", "what it says waits for that");
    table.says(server, &answers("C(RESET) S(TimeZone=UTC) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT 1) Q(SELECT 2)");
    table.says(server, &answers("C(SELECT 1) Z(I) C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(other), "C(SELECT 1) Z(I) C(SELECT 1) Z(I)");
    table.says(client, &query("BEGIN"));
    table.says(client, &query("SELECT 1"));
    let set = "Q(SELECT pg_catalog.set_config('timezone','X',false);)";
    assert_eq!(table.hears(server), set, "nor does it begin before");
    table.says(server, &answers("D(X) C(SELECT 1) S(TimeZone=X) Z(I)"));
    assert_eq!(table.hears(server), "P(: BEGIN) B() E C[] Q(SELECT 1)");
    assert_eq!(table.hears(client), "C(BEGIN) Z(T)");
}

#[test]
fn a_probe_is_not_ended_by_the_clients_time_out() {
    let (mut table, client, server) = seated(one());
    // `statement_timeout` is `1`.
    let timeout = "set=73746174656d656e745f74696d656f7574:31";
    leaves(&mut table, (client, server), "SET statement_timeout = 1", "SET", timeout);
    table.says(client, &query("SET application_name = 'a'"));
    table.says(server, &answers("C(SET) Z(I)"));
    assert_eq!(table.hears(server), "Q(SET application_name = 'a') Q(untimed probe)");
    // It sees its own time-out, and knows better.
    let seen = "set=6170706c69636174696f6e5f6e616d65:61,73746174656d656e745f74696d656f7574:30";
    table.says(server, &answers(&format!("C(SET) D({seen}) C(SELECT 1) Z(I)")));
    let other = table.client();
    table.says(other, &query("SELECT 1"));
    assert_eq!(table.hears(server), "Q(RESET \"statement_timeout\";RESET \"application_name\";)");
}

#[test]
fn a_temporary_table_keeps_its_server() {
    let (mut table, client, server) = seated(one());
    let other = table.client();
    leaves(&mut table, (client, server), "CREATE TEMP TABLE t (i int)", "CREATE TABLE", "pins=temp");
    table.says(other, &query("SELECT 1"));
    assert_eq!(table.hears(server), "", "the server is kept");
    table.says(client, &query("SELECT * FROM t"));
    table.says(server, &answers("C(SELECT 0) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT * FROM t)", "and not asked again without a reason");
    leaves(&mut table, (client, server), "DROP TABLE t", "DROP TABLE", "");
    assert_eq!(table.hears(server), "Q(SELECT 1)", "it is free");
}

#[test]
fn a_client_that_goes_leaves_nothing() {
    let (mut table, client, server) = seated(one());
    let other = table.client();
    leaves(&mut table, (client, server), "CREATE TEMP TABLE t (i int)", "CREATE TABLE", "pins=temp");
    table.says(other, &query("SELECT 1"));
    table.says(client, &terminate());
    assert_eq!(table.hears(server), "Q(DISCARD ALL)");
    table.says(server, &answers("C(DISCARD ALL) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT 1)");
}

#[test]
fn a_custom_setting_stays_known_where_its_client_goes_amid_the_probe() {
    // `app.a` is `x`, or it is there without a value.
    for holding in ["set=6170702e61:78", "made=6170702e61"] {
        let (mut table, client, server) = seated(one());
        let other = table.client();
        table.says(client, &query("SELECT set_config('app.a', 'x', false)"));
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        table.says(client, &terminate());
        table.hears(server);
        table.says(server, &answers(&format!("D({holding}) C(SELECT 1) Z(I) Z(I)")));
        assert_eq!(table.hears(server), "Q(DISCARD ALL)");
        table.says(server, &answers("C(DISCARD ALL) Z(I)"));
        table.says(other, &query("SELECT 1"));
        assert!(table.is_closed(server), "the other client has no such setting");
    }
}

#[test]
fn what_cannot_be_kept_is_refused() {
    for (settings, code) in [
        (PoolSettings { sharing: Sharing { pins: PinPolicy::Refuse, ..Sharing::default() }, ..one() }, "0A000"),
        (PoolSettings { pinned_max: Some(0), ..one() }, "53300"),
    ] {
        let (mut table, client, server) = seated(settings);
        let heard = leaves(&mut table, (client, server), "CREATE TEMP TABLE t (i int)", "CREATE TABLE", "pins=temp");
        assert_eq!((heard, table.is_closed(client)), (format!("E({code})"), true));
        assert_eq!(table.hears(server), "Q(DISCARD ALL)");
    }
}

#[test]
fn a_server_that_reports_is_not_asked() {
    let mut table = Table::reporting(one());
    let client = table.client();
    let server = table.servers()[0];
    let other = table.client();
    table.says(client, &query("SET timezone = 'X'"));
    table.says(server, &answers(&format!("C(SET) S(sluice.session={ZONE_X}) S(TimeZone=X) Z(I)")));
    assert_eq!(table.hears(client), "C(SET) S(TimeZone=X) Z(I)", "the report is not for the client");
    table.says(other, &query("SELECT f()"));
    assert_eq!(table.hears(server), "Q(SET timezone = 'X') Q(RESET \"timezone\";)");
    table.says(server, &answers("C(RESET) S(sluice.session=) S(TimeZone=UTC) Z(I)"));
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT f())", "it would have said what that left");
    table.says(other, &query("CREATE TEMP TABLE t (i int)"));
    table.says(server, &answers("C(CREATE TABLE) S(sluice.session=pins=temp) Z(I)"));
    table.hears(server);
    table.says(client, &query("SELECT 1"));
    assert_eq!(table.hears(server), "", "the server is kept");
}

#[test]
fn a_change_of_the_catalogs_makes_another_statement() {
    let (mut table, client, server) = prepared("SELECT 1");
    let other = table.client();
    table.says(other, &query("ALTER TABLE t ADD b int"));
    table.says(server, &answers("C(ALTER TABLE) Z(I)"));
    assert_eq!(table.hears(server), "Q(ALTER TABLE t ADD b int) Q(probe)");
    table.says(server, &answers("D() C(SELECT 1) Z(I)"));
    // What was prepared before stays what it is; what is prepared now is another one.
    table.says(client, &run("a"));
    assert_eq!(table.hears(server), "B(sluice_0) E S");
    table.says(server, &answers("2 C(SELECT 1) Z(I)"));
    table.says(other, &[parse("a", "SELECT 1"), sync()].concat());
    assert_eq!(table.hears(server), "P(sluice_1: SELECT 1) D(sluice_1) S");
}

#[test]
fn a_count_of_catalog_changes_makes_another_statement() {
    let mut table = Table::reporting(one());
    let client = table.client();
    let server = table.servers()[0];
    for (name, heard) in
        [("a", "P(sluice_0: SELECT 1) D(sluice_0) S"), ("b", "P(sluice_1: SELECT 1) D(sluice_1) S"), ("c", "")]
    {
        table.says(client, &[parse(name, "SELECT 1"), sync()].concat());
        assert_eq!(table.hears(server), heard, "{name}");
        if !heard.is_empty() {
            table.says(server, &answers("1 t n S(sluice.catalog=2) Z(I)"));
        }
        assert_eq!(table.hears(client), "1 Z(I)");
    }
}

#[test]
fn an_unnamed_statement_is_the_clients_own_within_a_transaction() {
    let (mut table, client, server) = seated(one());
    let batch = [parse("", "SELECT 1"), bind("", 0), execute(), sync()].concat();
    for heard in ["P(: SELECT 1) B() E S", "P(sluice_0: SELECT 1) B(sluice_0) E S", "B(sluice_0) E S"] {
        table.says(client, &batch);
        assert_eq!(table.hears(server), heard);
        let closes = if heard.starts_with('B') { "" } else { "1 " };
        table.says(server, &answers(&format!("{closes}2 C(SELECT 1) Z(I)")));
        assert_eq!(table.hears(client), "1 2 C(SELECT 1) Z(I)");
    }
    table.says(client, &query("BEGIN READ WRITE"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.hears(server);
    table.says(client, &batch);
    assert_eq!(table.hears(server), "P(: SELECT 1) B() E S", "it could not be prepared again unseen");
}

#[test]
fn what_serves_unnamed_statements_is_prepared_again_after_a_while() {
    let (mut table, client, server) = seated(one());
    let batch = [parse("", "SELECT 1"), bind("", 0), execute(), sync()].concat();
    for (waits, heard, said) in [
        (0, "P(: SELECT 1) B() E S", "1 2"),
        (0, "P(sluice_0: SELECT 1) B(sluice_0) E S", "1 2"),
        (1, "C(sluice_0) P(sluice_0: SELECT 1) B(sluice_0) E S", "3 1 2"),
    ] {
        table.passes(Duration::from_secs(waits));
        table.says(client, &batch);
        assert_eq!(table.hears(server), heard);
        table.says(server, &answers(&format!("{said} C(SELECT 1) Z(I)")));
        assert_eq!(table.hears(client), "1 2 C(SELECT 1) Z(I)");
    }
}

#[test]
fn a_client_is_told_of_a_statement_by_its_own_name_for_it() {
    let (mut table, client, server) = prepared("SELECT 1");
    table.says(client, &[parse("b", "SELECT 1"), sync()].concat());
    assert_eq!(table.hears(client), "1 Z(I)", "two names for one");
    let taken = answers("3 1 E(42P05: prepared statement \"sluice_stand_in\" already exists) Z(I)");
    for name in ["a", "b"] {
        table.says(client, &[parse(name, "SELECT 2"), sync()].concat());
        assert_eq!(
            table.hears(server),
            "C(sluice_stand_in) P(sluice_stand_in: ) P(sluice_stand_in: SELECT 2) S",
            "the server finds that the name is taken"
        );
        table.says(server, &taken);
        let told = format!("E(42P05: prepared statement \"{name}\" already exists) Z(I)");
        assert_eq!(table.hears(client), told);
    }
    // A syntax error comes before that.
    table.says(client, &[parse("a", "SELEC"), sync()].concat());
    assert_eq!(table.hears(server), "C(sluice_stand_in) P(sluice_stand_in: ) P(sluice_stand_in: SELEC) S");
    table.says(server, &answers("3 1 E(42601) Z(I)"));
    assert_eq!(table.hears(client), "E(42601) Z(I)");
    table.says(client, &run("a"));
    assert_eq!(table.hears(server), "B(sluice_0) E S", "it is what it was");
}

#[test]
fn a_statement_that_was_used_under_unknown_settings_is_closed() {
    let (mut table, client, server) = prepared("SELECT 1");
    table.says(client, &query("BEGIN; SELECT f()"));
    table.says(server, &answers("C(BEGIN) C(SELECT 1) Z(T)"));
    table.says(client, &[run("a"), query("COMMIT")].concat());
    table.says(server, &answers("2 C(SELECT 1) Z(T) C(COMMIT) Z(I)"));
    assert_eq!(table.hears(server), "Q(BEGIN; SELECT f()) B(sluice_0) E S Q(COMMIT) Q(probe)");
    table.says(server, &answers("D() C(SELECT 1) Z(I)"));
    table.says(client, &run("a"));
    assert_eq!(table.hears(server), "C(sluice_0) P(sluice_0: SELECT 1) B(sluice_0) E S");
}

const SWITCHED: &str = "3 1 2 D() C(SELECT 1) 3 3";

fn switch(value: &str) -> String {
    own(&format!("SELECT pg_catalog.set_config('timezone',{value},false)"))
}

#[test]
fn a_literal_means_what_it_did_when_it_was_parsed() {
    let (mut table, client, server) = prepared("SELECT 'x'");
    leaves(&mut table, (client, server), "SET timezone = 'X'", "SET", ZONE_X);
    table.says(client, &run("a"));
    let expected = format!("{} P(sluice_1: SELECT 'x') {} S", switch("NULL"), switch("'X'"));
    assert_eq!(table.hears(server), expected);
    table.says(server, &answers(&format!("{SWITCHED} 1 {SWITCHED} Z(I)")));
    assert_eq!(table.hears(server), "B(sluice_1) E S");
    table.says(server, &answers("2 C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "2 C(SELECT 1) Z(I)");
}

#[test]
fn what_a_block_has_set_stays_where_a_literal_is_read_as_before() {
    let (mut table, client, server) = prepared("SELECT 'x'");
    leaves(&mut table, (client, server), "SET timezone = 'X'", "SET", ZONE_X);
    table.says(client, &query("BEGIN READ WRITE"));
    assert_eq!(table.hears(server), "Q(BEGIN READ WRITE)");
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.says(client, &query("SET LOCAL timezone = 'Y'"));
    assert_eq!(table.hears(server), "Q(SET LOCAL timezone = 'Y')");
    table.says(server, &answers("C(SET) Z(T)"));
    table.hears(client);
    table.says(client, &run("a"));
    let heard = table.hears(server);
    assert!(heard.starts_with(&own("SAVEPOINT sluice_switch")), "{heard}");
    assert!(heard.contains("set_config('timezone',NULL,true)") && !heard.contains("false"), "{heard}");
    let back = ["ROLLBACK TO SAVEPOINT sluice_switch", "RELEASE SAVEPOINT sluice_switch"].map(own).join(" ");
    assert!(heard.ends_with(&format!("P(sluice_1: SELECT 'x') {back} S")), "{heard}");
    let done = |tag: &str| format!("3 1 2 C({tag}) 3 3");
    let ends = [done("ROLLBACK"), done("RELEASE")].join(" ");
    table.says(server, &answers(&format!("{} {SWITCHED} 1 {ends} Z(T)", done("SAVEPOINT"))));
    assert_eq!(table.hears(client), "");
    assert_eq!(table.hears(server), "B(sluice_1) E S");
    table.says(server, &answers("2 C(SELECT 1) Z(T)"));
    assert_eq!(table.hears(client), "2 C(SELECT 1) Z(T)");
}

#[test]
fn what_a_block_has_set_goes_where_preparing_a_statement_fails() {
    let (mut table, client, server) = prepared("SELECT 'x'");
    leaves(&mut table, (client, server), "SET timezone = 'X'", "SET", ZONE_X);
    table.says(client, &query("BEGIN; SET application_name = 'b'"));
    table.says(server, &answers("C(BEGIN) C(SET) S(application_name=b) Z(T)"));
    table.says(client, &query("SET LOCAL timezone = 'Y'"));
    table.says(server, &answers("C(SET) Z(T)"));
    table.hears(client);
    table.says(client, &run("a"));
    table.says(server, &answers("3 1 2 C(SAVEPOINT) 3 3 3 1 E(57014) S(application_name=) Z(E)"));
    assert_eq!(table.hears(client), "E(57014) S(application_name=) Z(E)");
}

#[test]
fn a_literal_means_that_within_a_batch_too() {
    let (mut table, client, server) = prepared("SELECT 'x'");
    leaves(&mut table, (client, server), "SET timezone = 'X'", "SET", ZONE_X);
    table.says(client, &[parse("", "SELECT 1"), bind("", 0), execute(), run("a")].concat());
    let expected =
        format!("P(: SELECT 1) B() E {} P(sluice_2: SELECT 'x') {} B(sluice_2) E S", switch("NULL"), switch("'X'"));
    assert_eq!(table.hears(server), expected);
    table.says(server, &answers(&format!("1 2 C(SELECT 1) {SWITCHED} 1 {SWITCHED} 2 C(SELECT 1) Z(I)")));
    assert_eq!(table.hears(client), "1 2 C(SELECT 1) 2 C(SELECT 1) Z(I)");
}

#[test]
fn a_statement_is_prepared_before_a_batch_that_has_run_nothing() {
    let (mut table, client, server) = prepared("VACUUM (INDEX_CLEANUP 'auto')");
    leaves(&mut table, (client, server), "SET timezone = 'X'", "SET", ZONE_X);
    // It has to stand alone in its batch.
    table.says(client, &[parse("", "SELECT 1"), run("a")].concat());
    assert_eq!(table.hears(server), "P(: SELECT 1) S");
    table.says(server, &answers("1 Z(I)"));
    let vacuum = "P(sluice_2: VACUUM (INDEX_CLEANUP 'auto'))";
    assert_eq!(table.hears(server), format!("{} {vacuum} {} S", switch("NULL"), switch("'X'")));
    table.says(server, &answers(&format!("{SWITCHED} 1 {SWITCHED} Z(I)")));
    assert_eq!(table.hears(server), "B(sluice_2) E S");
    table.says(server, &answers("2 C(VACUUM) Z(I)"));
    assert_eq!(table.hears(client), "1 2 C(VACUUM) Z(I)");
}

#[test]
fn a_literal_means_that_behind_an_unanswered_batch_too() {
    let (mut table, client, server) = prepared("SELECT 'x'");
    let function = [parse("", "SELECT f()"), run("")].concat();
    table.says(client, &[function, parse("", "SELECT 1"), bind("", 0), execute(), run("a")].concat());
    assert_eq!(table.hears(server), "P(: SELECT f()) B() E S", "what that sets is not known yet");
    table.says(server, &answers("1 2 D() C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(server), "Q(probe)");
    table.says(server, &answers(&format!("D({ZONE_X}) C(SELECT 1) Z(I)")));
    let expected =
        format!("P(: SELECT 1) B() E {} P(sluice_3: SELECT 'x') {} B(sluice_3) E S", switch("NULL"), switch("'X'"));
    assert_eq!(table.hears(server), expected);
}

#[test]
fn nothing_is_waited_for_in_a_copy() {
    let (mut table, client, server) = prepared("SELECT 'x'");
    table.says(client, &query("SELECT f(); COPY t FROM STDIN"));
    assert_eq!(table.hears(server), "Q(SELECT f(); COPY t FROM STDIN)");
    table.says(client, &parse("", "SELECT 1"));
    assert_eq!(table.hears(server), "");
    table.says(server, &answers("D() C(SELECT 1) G"));
    assert_eq!(table.hears(server), "P(: SELECT 1)", "the server refuses that");
}

#[test]
fn a_portal_that_is_suspended_before_settings_are_switched_is_the_clients() {
    let (mut table, client, server) = prepared("SELECT 'x'");
    leaves(&mut table, (client, server), "SET timezone = 'X'", "SET", ZONE_X);
    table.says(client, &[parse("", "SELECT 1"), bind("", 0), execute(), run("a")].concat());
    let heard = table.hears(server);
    assert!(heard.starts_with("P(: SELECT 1) B() E C(sluice_switch) P(sluice_switch"), "{heard}");
    table.says(server, &answers(&format!("1 2 s {SWITCHED} 1 {SWITCHED} 2 C(SELECT 1) Z(I)")));
    assert_eq!(table.hears(client), "1 2 s 2 C(SELECT 1) Z(I)");
}

#[test]
fn a_cancel_does_not_hit_a_probe() {
    let (mut table, client, server) = seated(one());
    table.says(client, &query("SET timezone = 'X'"));
    table.cancel(client);
    assert_eq!(table.cancels(), 1);
    table.says(server, &answers("C(SET) Z(I)"));
    table.says(client, &query("SELECT 1"));
    assert_eq!(table.hears(server), "Q(SET timezone = 'X')", "the cancel is still on its way");
    table.connects();
    table.cancels_arrive();
    assert_eq!(table.hears(server), "Q(probe)");
    table.says(server, &answers(&format!("D({ZONE_X}) C(SELECT 1) Z(I)")));
    assert_eq!(table.hears(server), "Q(SELECT 1)");
}

#[test]
fn a_pool_without_clients_is_not_in_the_way_of_its_databases_end() {
    let mut table = Table::reporting(one());
    let client = table.client();
    let guest = table.stranger("other");
    let server = table.connects()[0];
    table.hears(guest);
    let tick = Duration::from_millis(100);
    table.says(client, &query("DROP DATABASE app"));
    table.passes(tick);
    assert!(!table.is_closed(server), "it has a client, who would be in the way as well without a pool");
    table.says(guest, &terminate());
    table.passes(tick);
    assert!(table.is_closed(server), "nobody is connected any more, and PostgreSQL waits for that");
    assert!(!table.is_closed(table.servers()[0]), "the client's own is another pool's");

    let guest = table.stranger("other");
    table.says(guest, &query("SELECT 1"));
    let server = table.connects()[0];
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    table.passes(Duration::from_secs(5));
    table.says(guest, &terminate());
    table.passes(tick);
    assert!(!table.is_closed(server), "PostgreSQL has given up");
    table.says(table.servers()[0], &answers("E(55006) Z(I)"));
    table.passes(tick);
    assert!(table.is_closed(server), "log-ins may come to something else since, and nobody of before is there");
    let guest = table.stranger("other");
    let server = table.connects()[0];
    table.says(guest, &terminate());
    for sql in ["DROP TABLE app", "DROP DATABASE mail"] {
        table.says(client, &query(sql));
        table.passes(tick);
        assert!(!table.is_closed(server), "{sql} is no concern of this database's");
        table.says(table.servers()[0], &answers("C(DROP) Z(I)"));
    }
}

#[test]
fn a_server_is_reset_from_a_client_that_does_nothing_with_it() {
    let mut table = Table::new(PoolSettings { size: 2, pinned_max: Some(2), ..PoolSettings::default() });
    let (one, other, third) = (table.client(), table.client(), table.client());
    // Each keeps its server for the sake of a literal, if nobody needs it; the first is in a transaction.
    let servers: Vec<Side> = [one, other]
        .into_iter()
        .map(|client| {
            table.says(client, &[parse("a", "SELECT 'now'::timestamptz"), sync()].concat());
            table.connects();
            let server = *table.servers().last().expect("there is one");
            table.says(server, &answers("1 t T(x) Z(I)"));
            server
        })
        .collect();
    table.says(one, &query("BEGIN READ WRITE"));
    table.says(servers[0], &answers("C(BEGIN) Z(T)"));
    table.hears(servers[1]);
    table.says(third, &query("SELECT 1"));
    assert_eq!(table.hears(servers[1]), "Q(SELECT 1)");
}

#[test]
fn a_report_that_is_not_understood_stays_with_the_client_and_ends_with_it() {
    let mut table = Table::reporting(one());
    let (client, other) = (table.client(), table.client());
    let server = table.servers()[0];
    table.says(client, &query("SELECT 1"));
    table.says(server, &answers("C(SELECT 1) S(sluice.session=pins=frog) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I)");
    table.says(other, &query("SELECT 2"));
    // Whatever it says later: what the word means is not known.
    table.says(client, &query("SELECT 3"));
    table.says(server, &answers("C(SELECT 1) S(sluice.session=) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT 1) Q(SELECT 3)");
    table.says(client, &terminate());
    assert!(table.is_closed(server));
    table.passes(Duration::from_millis(200));
    assert_eq!(table.connects().len(), 1, "the other one gets another server");
}

#[test]
fn what_others_made_is_not_taken_on_with_settings() {
    let mut table = Table::reporting(one());
    let (client, other) = (table.client(), table.client());
    let server = table.servers()[0];
    table.says(client, &query("SET app.a = 'b'"));
    table.says(server, &answers("C(SET) S(sluice.session=set=6170702e61:62) Z(I)"));
    table.says(other, &query("SELECT 1"));
    // Its settings are put in place there before it is seen that it is not to have that server.
    assert_eq!(table.hears(server), "Q(SET app.a = 'b') Q(RESET \"app\".\"a\";)");
    table.says(server, &answers("C(RESET) S(sluice.session=made=6170702e61) Z(I)"));
    assert!(table.is_closed(server), "nobody else is to find that name there");
}

#[test]
fn settings_whose_names_are_hidden_end_with_their_server() {
    for hides in [query("SELECT set_config('app.' || 'a', 'b', false)"), query("SET app.\u{f6} = 'a'")] {
        let (mut table, client, server) = seated(one());
        table.says(client, &hides);
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        table.hears(server);
        table.says(server, &answers("D() C(SELECT 1) Z(I)"));
        table.says(client, &terminate());
        assert!(table.is_closed(server));
    }
}

#[test]
fn arguments_of_a_function_call_may_name_a_setting_or_give_a_seed() {
    // Of `setseed`, of `length`, and of `lowrite`, which writes bytes that are no name.
    for (function, is_spent, probes) in [(1599, true, " Q(probe)"), (1317, false, " Q(probe)"), (955, false, "")] {
        let (mut table, client, server) = seated(one());
        let mut call = Vec::new();
        let argument = if function == 955 { b"\x8d.\x84" } else { &b"app.a"[..] };
        message::put_function_call(&mut call, function, |out| out.extend_from_slice(argument));
        table.says(client, &call);
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(server), format!("F({function}){probes}"));
        if !probes.is_empty() {
            table.says(server, &answers("D() C(SELECT 1) Z(I)"));
        }
        table.says(client, &terminate());
        assert_eq!(table.is_closed(server), is_spent, "{function}");
    }
}

#[test]
fn a_server_is_asked_how_literals_are_read() {
    let (mut table, client, server) = seated(one());
    table.says(client, &query("BEGIN; SET LOCAL DateStyle = 'German'"));
    table.hears(server);
    table.says(server, &answers("C(BEGIN) C(SET) Z(T)"));
    table.hears(client);
    table.says(client, &[parse("a", "SELECT date '01/02/2024'"), sync()].concat());
    let asked = table.hears(server);
    assert!(asked.contains("current_setting('datestyle')") && asked.ends_with(" H"), "{asked}");
    // For its own values, and for those in place.
    let [own, in_place] = ["00", "6f6e"].map(|first| format!("3 1 2 D({first}{}) C(SELECT 1) 3 3", ",00".repeat(12)));
    table.says(server, &answers(&format!("{own} {in_place}")));
    assert_eq!(table.hears(server), "P(sluice_0: SELECT date '01/02/2024') D(sluice_0) S");
    assert_eq!(table.hears(client), "", "nothing of that is for the client");
    // One that has no literals means the same by all settings.
    table.says(server, &answers("1 t T Z(T)"));
    table.says(client, &[parse("b", "SELECT n FROM t"), sync()].concat());
    assert_eq!(table.hears(server), "P(sluice_1: SELECT n FROM t) D(sluice_1) S");
}
