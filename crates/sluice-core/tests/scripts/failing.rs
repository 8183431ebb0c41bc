//! Queries of Sluice's own that fail: nothing of a client's runs on a server where its settings are not in place.

use std::time::Duration;

use sluice_control::settings::PoolSettings;

use crate::{
    one, prepared, prepared_apart, run, seated,
    table::{Side, Table, answers, close, parse, query, sync},
};

/// A setting that a probe finds: `TimeZone` is `X`.
const ZONE_X: &str = "set=54696d655a6f6e65:58";

/// The same of `session_replication_role`, which is `replica`.
const REPLICA: &str = "set=73657373696f6e5f7265706c69636174696f6e5f726f6c65:7265706c696361";

/// The beginning of a query that resets whatever is set.
const ANEW: &str = "Q(SET LOCAL statement_timeout = 0;RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL;";

/// The second of two clients of one server, where the first has set `TimeZone`: the server has been sent what takes it
/// back.
fn resetting() -> (Table, Side, Side) {
    let (mut table, first, server) = seated(one());
    let second = table.client();
    leaves(&mut table, (first, server), ZONE_X);
    table.says(second, &query("SELECT 1"));
    assert_eq!(table.hears(server), "Q(RESET \"timezone\";)");
    (table, second, server)
}

/// A client runs a function, and the probe finds this.
fn leaves(table: &mut Table, (client, server): (Side, Side), holding: &str) {
    table.hears(client);
    table.says(client, &query("SELECT f()"));
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    table.says(server, &answers(&format!("D({holding}) C(SELECT 1) Z(I)")));
    assert_eq!(table.hears(server), "Q(SELECT f()) Q(probe)");
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I)");
}

#[test]
fn settings_that_were_not_put_in_place_are_put_in_place_again() {
    for error in ["57014", "42501"] {
        let (mut table, client, server) = resetting();
        table.says(server, &answers(&format!("E({error}) Z(I)")));
        let heard = table.hears(server);
        assert!(heard.starts_with(ANEW) && !heard.contains("SELECT 1"), "{error}: {heard}");
        table.says(server, &answers("C(SET) C(RESET) C(RESET) C(RESET) C(SET) Z(I)"));
        assert_eq!(table.hears(server), "Q(SELECT 1)");
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(client), "C(SELECT 1) Z(I)", "it hears of none of that");
    }
}

#[test]
fn a_server_that_was_out_of_step_is_asked_again() {
    let (mut table, client, server) = seated(one());
    table.hears(client);
    table.says(client, &query("SELECT f()"));
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    // PostgreSQL 18, behind an Execute and a Query without a Sync between them.
    table.says(server, &answers("E(XX000: StartTransactionCommand: unexpected state STARTED) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT f()) Q(probe) Q(probe)");
    table.says(server, &answers("D() C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I)");
    table.says(client, &query("SELECT 2"));
    assert_eq!(table.hears(server), "Q(SELECT 2)");
}

#[test]
fn a_client_that_logs_in_goes_to_another_server_where_one_is_lost() {
    for with_words in [false, true] {
        let mut table = Table::new(PoolSettings { size: 1, ..one() });
        let client = table.stranger_with("app", &[("timezone", "X")]);
        let server = table.connects()[0];
        let puts = table.hears(server);
        assert!(puts.contains("timezone"), "its settings are put in place: {puts}");
        if with_words {
            table.says(server, &answers("E(57P01)"));
        }
        table.hangs_up(server);
        assert_eq!(table.hears(client), "R");
        let next = table.connects()[0];
        assert_eq!(table.hears(next), puts);
        table.says(next, &answers("C(SET) C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(next), "Q(probe)");
        table.says(next, &answers("D() C(SELECT 1) Z(I)"));
        let heard = table.hears(client);
        assert!(heard.ends_with("Z(I)") && !heard.contains("E("), "{heard}");
    }
}

#[test]
fn custom_settings_without_a_value_are_put_in_place_again() {
    // `app.a` is there, and empty.
    const MADE: &str = "made=6170702e61";
    let (mut table, first, server) = seated(one());
    let second = table.client();
    table.hears(first);
    table.says(first, &query("SET app.a = ''"));
    table.says(server, &answers("C(SET) Z(I)"));
    table.says(server, &answers(&format!("D({MADE}) C(SELECT 1) Z(I)")));
    table.says(second, &query("SELECT 1"));
    let server = table.connects()[0];
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    table.hears(server);
    table.says(first, &query("SELECT 2"));
    let makes = table.hears(server);
    assert!(makes.contains("set_config('app.a','',false)"), "the other server has it not: {makes}");
    table.says(server, &answers("E(57014) Z(I)"));
    let again = table.hears(server);
    assert!(again.starts_with(ANEW) && again.contains("set_config('app.a','',false)"), "{again}");
    table.says(server, &answers("C(SET) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT 2)");
}

/// The same of `x.y`, which is `1`.
const X_Y: &str = "set=782e79:31";

/// A client that has set `x.y` before a library of that name was loaded, and the server that it gets next, where another
/// client has been.
fn refused_by_library() -> (Table, Side, Side) {
    let (mut table, first, server) = seated(one());
    let second = table.client();
    table.hears(first);
    table.says(first, &query("SET x.y = '1'"));
    table.says(server, &answers("C(SET) Z(I)"));
    table.says(server, &answers(&format!("D({X_Y}) C(SELECT 1) Z(I)")));
    assert_eq!(table.hears(first), "C(SET) Z(I)");
    table.says(second, &query("SELECT 1"));
    table.says(server, &answers("C(RESET) Z(I)"));
    let server = table.connects()[0];
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT 1)", "it is not to find the other's setting");
    table.says(first, &query("SELECT 2"));
    assert_eq!(table.hears(server), "Q(SELECT pg_catalog.set_config('x.y','1',false);)");
    (table, first, server)
}

#[test]
fn settings_that_a_used_server_refuses_are_put_in_place_on_a_new_one() {
    for error in ["42501", "42602", "22023"] {
        let (mut table, client, server) = refused_by_library();
        let waiter = table.client();
        table.says(waiter, &query("SELECT 3"));
        table.says(server, &answers(&format!("E({error}) Z(I)")));
        assert_eq!((table.hears(server).as_str(), table.hears(client).as_str()), ("X", ""), "{error}");
        assert!(table.is_closed(server));
        let new = table.connects()[0];
        assert_eq!(table.hears(new), "Q(SELECT pg_catalog.set_config('x.y','1',false);)");
        table.says(new, &answers("D(1) C(SELECT 1) Z(I)"));
        table.says(new, &answers("C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(client), "C(SELECT 1) Z(I)", "{error}: it comes before those who wait");
    }
}

#[test]
fn a_client_whose_settings_a_used_server_has_refused_gets_no_other_used_one() {
    let mut table = Table::new(PoolSettings { size: 2, ..PoolSettings::default() });
    let clients = [table.client(), table.client()];
    let servers = clients.map(|client| {
        table.says(client, &query("BEGIN READ WRITE"));
        table.connects();
        let server = *table.servers().last().expect("there is one");
        table.says(server, &answers("C(BEGIN) Z(T)"));
        server
    });
    assert_ne!(servers[0], servers[1]);
    for (client, server) in clients.into_iter().zip(servers) {
        table.says(client, &query("COMMIT"));
        table.says(server, &answers("C(COMMIT) Z(I)"));
        assert_eq!(table.hears(server), "Q(BEGIN READ WRITE) Q(COMMIT)");
    }
    let login = table.stranger_with("app", &[("x.y", "1")]);
    let asked: Vec<Side> = servers.into_iter().filter(|server| table.hears(*server).contains("x.y")).collect();
    let refusal = "E(42602: invalid configuration parameter name \"x.y\")";
    table.says(asked[0], &answers(&format!("{refusal} Z(I)")));
    assert_eq!(servers.iter().filter(|server| table.hears(**server).contains("x.y")).count(), 0);
    let new = table.connects()[0];
    assert!(table.hears(new).contains("'x.y','1'"));
    // What a session of its own would not take either is refused.
    table.says(new, &answers(&format!("{refusal} Z(I)")));
    assert_eq!(table.hears(login), format!("R {refusal}"));
    assert!(table.is_closed(login) && table.connects().is_empty());
}

#[test]
fn a_log_in_that_is_refused_for_itself_costs_no_other_server() {
    let (mut table, first, server) = seated(one());
    leaves(&mut table, (first, server), ZONE_X);
    let login = table.stranger_with("app", &[("x.y", "1"), ("role", "nosuch")]);
    assert!(table.hears(server).contains("x.y"));
    let refusal = "E(22023: role \"nosuch\" does not exist)";
    // Once more, behind a reset.
    for _ in 0..2 {
        table.says(server, &answers(&format!("{refusal} Z(I)")));
    }
    let heard = table.hears(login);
    assert!(heard.ends_with(refusal), "{heard}");
    assert!(table.is_closed(login));
}

#[test]
fn a_session_whose_settings_are_refused_for_good_ends_before_anything_runs() {
    let (mut table, client, server) = resetting();
    for _ in 0..2 {
        table.says(server, &answers("E(22023) Z(I)"));
    }
    let heard = table.hears(server);
    assert!(heard.starts_with(ANEW) && !heard.contains("SELECT 1"), "{heard}");
    assert!(table.is_closed(server) && !table.is_closed(client), "another one may take them");
    // A role that has been dropped, for example.
    let (mut table, first, server) = seated(one());
    let second = table.client();
    leaves(&mut table, (first, server), ZONE_X);
    table.says(second, &query("SELECT 1"));
    for answer in ["C(RESET) Z(I)", "C(SELECT 1) Z(I)"] {
        table.says(server, &answers(answer));
    }
    table.hears(server);
    table.says(first, &query("SELECT 2"));
    table.says(server, &answers("E(22023) Z(I)"));
    let new = table.connects()[0];
    assert!(table.hears(new).contains("'timezone','X'"));
    table.says(new, &answers("E(22023) Z(I)"));
    assert_eq!((table.hears(new).as_str(), table.hears(first).as_str()), ("", "E(22023)"));
    assert!(table.is_closed(first) && !table.hears(server).contains("SELECT 2"));
}

#[test]
fn settings_that_are_always_cancelled_are_given_up() {
    let (mut table, client, server) = resetting();
    let mut times = 0;
    while !table.is_closed(client) {
        table.says(server, &answers("E(57014) Z(I)"));
        assert!(!table.hears(server).contains("SELECT 1"));
        times += 1;
        assert!(times < 100, "it goes on for ever");
    }
    assert!(times > 3, "it passes sooner or later");
    assert_eq!(table.hears(client), "E(57014)");
}

#[test]
fn a_server_that_puts_no_settings_in_place_in_time_is_cancelled_and_replaced() {
    let (mut table, client, server) = resetting();
    table.passes(Duration::from_secs(11));
    assert!(table.is_closed(server));
    assert_eq!(table.cancels(), 1, "its process waits on");
    let another = table.connects()[0];
    assert_eq!(table.hears(another), "Q(SELECT 1)");
    table.says(another, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I)");
}

#[test]
fn a_probe_that_was_cancelled_is_taken_again() {
    let (mut table, client, server) = seated(one());
    table.says(client, &query("SELECT f()"));
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    table.says(server, &answers("E(57014) Z(I)"));
    assert_eq!(table.hears(server), "Q(SELECT f()) Q(probe) Q(untimed brief probe)");
    table.says(server, &answers(&format!("D(was=0,0) C(SELECT 1) D({ZONE_X}) C(SELECT 1) Z(I)")));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I)");
}

#[test]
fn a_server_that_is_lost_while_settings_are_put_in_place_is_replaced() {
    let (mut table, client, server) = resetting();
    table.says(server, &answers("E(57P01)"));
    table.hangs_up(server);
    let another = table.connects()[0];
    table.says(another, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I)", "it has run there");
}

#[test]
fn a_setting_that_its_session_may_not_set_stays_with_its_client() {
    let (mut table, first, server) = seated(PoolSettings { size: 2, ..PoolSettings::default() });
    let second = table.client();
    leaves(&mut table, (first, server), REPLICA);
    table.says(second, &query("SELECT 1"));
    assert_eq!(table.connects().len(), 1, "it gets another server");
    assert_eq!(table.hears(server), "");
    table.says(first, &query("SELECT 2"));
    assert_eq!(table.hears(server), "Q(SELECT 2)");
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    table.hangs_up(first);
    assert_eq!(table.hears(server), "Q(DISCARD ALL)");
}

#[test]
fn a_cancel_hits_what_it_was_meant_for_and_not_what_goes_before() {
    // Settings that are put in place.
    let (mut table, client, server) = resetting();
    table.cancel(client);
    assert_eq!(table.cancels(), 0, "nobody has asked for that to be cancelled");
    table.says(server, &answers("C(RESET) Z(I)"));
    assert_eq!((table.hears(server).as_str(), table.cancels()), ("Q(SELECT 1)", 0), "it could come before that");
    table.passes(Duration::from_millis(2));
    assert_eq!(table.cancels(), 1);
    // The same within a block.
    let (mut table, other, server) = seated(one());
    let client = table.client();
    leaves(&mut table, (other, server), "");
    table.says(client, &query("BEGIN READ WRITE"));
    table.says(server, &answers("C(BEGIN) Z(T)"));
    table.hears(server);
    table.says(client, &[parse("", "SELECT f()"), run("")].concat());
    let heard = table.hears(server);
    assert!(heard.contains("P(sluice_own: DISCARD SEQUENCES)") && !heard.contains("f()"), "{heard}");
    table.cancel(client);
    assert_eq!(table.cancels(), 0, "nor that");
    table.says(server, &answers("3 1 2 C(DISCARD SEQUENCES) 3 3 Z(T)"));
    assert_eq!(table.hears(server), "P(: SELECT f()) B() E S");
    table.passes(Duration::from_millis(2));
    assert_eq!(table.cancels(), 1);
}

#[test]
fn who_asked_for_a_cancel_that_waits_hears_the_end_when_it_is_delivered() {
    for ends_first in [false, true] {
        let mut table = Table::reporting(one());
        let (client, number) = table.numbered_client();
        let key = table.key(client);
        let server = table.servers()[0];
        table.says(client, &query("SELECT f()"));
        table.says(server, &answers("C(SELECT 1) S(sluice.session=set=726f6c65:78) Z(I)"));
        let other = table.client();
        table.says(other, &query("SELECT 1"));
        let heard = table.hears(server);
        assert!(heard.ends_with("Q(RESET ROLE;)"), "{heard}");
        table.says(server, &answers("C(RESET) Z(I)"));
        assert_eq!(table.hears(server), "Q(SELECT 1)");
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        // Now the first one's role is to be put in place.
        table.says(client, &query("SELECT 2"));
        assert!(table.hears(server).contains("'x'"));
        let asker = table.asker(number, &key);
        table.says(server, &answers("D() C(SELECT 1) Z(I)"));
        assert_eq!((table.hears(server).as_str(), table.is_closed(asker)), ("Q(SELECT 2)", false));
        if ends_first {
            table.says(server, &answers("C(SELECT 1) Z(I)"));
        }
        table.passes(Duration::from_millis(2));
        assert_eq!((table.cancels(), table.is_closed(asker)), (usize::from(!ends_first), ends_first));
        table.cancels_arrive();
        assert!(table.is_closed(asker));
    }
    // Nor does it wait for a server that is gone.
    let mut table = Table::reporting(one());
    let (client, number) = table.numbered_client();
    let key = table.key(client);
    let server = table.servers()[0];
    table.says(client, &[query("BEGIN"), query("SELECT 1")].concat());
    let asker = table.asker(number, &key);
    assert!(!table.is_closed(asker));
    table.hangs_up(server);
    assert!(table.is_closed(asker));
}

#[test]
fn a_cancel_that_comes_while_the_pool_asks_hits_nothing_that_is_sent_later() {
    for comes_later in [0, 1] {
        let (mut table, client, server) = seated(one());
        let clients = [client, table.client()];
        table.says(client, &query("SELECT f()"));
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(server), "Q(SELECT f()) Q(probe)");
        table.cancel(client);
        table.says(clients[comes_later], &query("SELECT 1"));
        table.says(server, &answers("D() C(SELECT 1) Z(I)"));
        assert_eq!((table.hears(server).as_str(), table.cancels()), ("Q(SELECT 1)", 0));
    }
    // What is there by then is hit, and nobody else's.
    let (mut table, client, server) = seated(one());
    let other = table.client();
    table.says(client, &query("SELECT f()"));
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    table.says(client, &parse("", "SELECT 2")[..9]);
    table.cancel(client);
    table.says(other, &query("SELECT 1"));
    table.hears(server);
    table.says(server, &answers("D() C(SELECT 1) Z(I)"));
    assert_eq!((table.hears(server).as_str(), table.cancels()), ("Q(SELECT 1)", 0));
}

#[test]
fn the_end_of_a_server_that_has_nothing_of_a_client_is_no_concern_of_the_clients() {
    // Its settings have been put in place.
    let (mut table, client, server) = resetting();
    table.says(server, &answers("C(RESET) Z(I) E(57P01)"));
    let another = table.connects()[0];
    table.says(another, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I)");
    // It has just said that it holds nothing of the client's any more.
    let (mut table, client, server) = seated(one());
    leaves(&mut table, (client, server), "pins=cursor");
    table.says(client, &query("DISCARD ALL"));
    table.says(server, &answers("C(DISCARD ALL) Z(I)"));
    assert_eq!(table.hears(server), "Q(DISCARD ALL) Q(probe)");
    table.says(server, &answers("D() C(SELECT 1) Z(I) E(57P01)"));
    assert_eq!(table.hears(client), "C(DISCARD ALL) Z(I)");
    table.hangs_up(server);
    table.says(client, &query("SELECT 1"));
    let another = table.connects()[0];
    table.says(another, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I)");
}

#[test]
fn what_a_kept_server_did_last_is_not_lost_without_a_word() {
    // A sequence keeps the client there, which could do without.
    let (mut table, client, server) = seated(one());
    table.says(client, &query("SELECT lastval()"));
    table.says(server, &answers("E(55000) Z(I)"));
    table.says(client, &query("SELECT nextval('s')"));
    table.says(server, &answers("D(1) C(SELECT 1) Z(I)"));
    table.hears(client);
    table.hears(server);
    table.says(client, &query("SET timezone = 'X'"));
    assert_eq!(table.hears(server), "Q(SET timezone = 'X')");
    table.says(server, &answers("C(SET) Z(I) E(57P01)"));
    table.hangs_up(server);
    assert_eq!(table.hears(client), "C(SET) Z(I) E(08006)", "nobody knows what it has set");
    assert!(table.is_closed(client));
}

#[test]
fn behind_a_servers_last_word_the_pool_answers_nothing() {
    for says in [query("DEALLOCATE a"), [close("a"), sync()].concat()] {
        let (mut table, client, server) = prepared("SELECT 1");
        table.says(client, &query("BEGIN READ WRITE"));
        table.says(server, &answers("C(BEGIN) Z(T) E(57P01)"));
        assert_eq!(table.hears(client), "C(BEGIN) Z(T) E(57P01)");
        table.says(client, &says);
        assert_eq!(table.hears(client), "");
        table.hangs_up(server);
        assert_eq!((table.hears(client).as_str(), table.is_closed(client)), ("", true));
    }
}

#[test]
fn what_waits_for_a_cancel_goes_on_when_the_server_is_left() {
    let (mut table, client, server) = prepared_apart();
    table.says(client, &run("a"));
    assert_eq!(table.hears(server), "Q(SELECT pg_catalog.set_config('timezone','X',false);)");
    // The cancel is on its way when the settings are tried a second time, and may hit what comes then.
    table.cancel(client);
    table.says(server, &answers("E(57014) Z(I)"));
    assert!(table.hears(server).starts_with(ANEW));
    table.says(server, &answers("C(SET) C(RESET) C(RESET) C(RESET) C(SET) C(SELECT 1) Z(I)"));
    assert_eq!((table.hears(server).as_str(), table.hears(client).as_str()), ("", ""));
    table.passes(Duration::from_millis(2));
    assert_eq!(table.cancels(), 0, "there was nothing to be cancelled");
    let heard = table.hears(server);
    assert!(heard.contains("P(sluice_1: SELECT 'x')"), "{heard}");
}

#[test]
fn a_client_whose_server_is_lost_hears_what_may_have_become_of_its_work() {
    for (before, then, code) in [
        // The open transaction is gone for certain.
        ("BEGIN READ WRITE", None, "08006"),
        // A COMMIT that was under way may have come through, and so may a statement alone.
        ("BEGIN READ WRITE", Some("COMMIT"), "08007"),
        ("SELECT 1", Some("INSERT INTO t VALUES (1)"), "08007"),
    ] {
        let (mut table, client, server) = seated(one());
        table.says(client, &query(before));
        let status = if then == Some("COMMIT") || then.is_none() { "C(BEGIN) Z(T)" } else { "C(SELECT 1) Z(I)" };
        table.says(server, &answers(status));
        table.hears(client);
        if let Some(sql) = then {
            table.says(client, &query(sql));
        }
        table.hangs_up(server);
        assert_eq!(table.hears(client), format!("E({code})"), "{before}, {then:?}");
    }
}

#[test]
fn who_may_not_call_what_the_pool_needs_is_told_so() {
    let mut table = Table::new(one());
    let client = table.stranger_with("app", &[("application_name", "x")]);
    let server = table.connects()[0];
    table.says(server, &answers("E(42501: permission denied for function set_config) Z(I)"));
    let error = table.hears_error(client);
    assert!(error.contains("42501") && error.contains("GRANT EXECUTE"), "{error}");
}
