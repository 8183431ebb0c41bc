//! Blocks that are lost when their end had been sent, and its answer had not come: what is said of them is what the
//! portal that was run would have said, or that it is unknown.

use sluice_wire::message;

use std::time::Duration;

use crate::{
    clusters::{asked, in_marked_block},
    losing::{has_another, in_block},
    one, seated,
    table::{Side, Table, answers, bind, close, describe_portal, execute, parse, parse_typed, query, sync},
};

/// A Bind of a statement to a portal.
fn bind_to(portal: &str, statement: &str) -> Vec<u8> {
    let mut out = Vec::new();
    message::put_bind(&mut out, portal.as_bytes(), statement.as_bytes(), &[]);
    out
}

fn execute_portal(portal: &str) -> Vec<u8> {
    let mut out = Vec::new();
    message::put_execute(&mut out, portal.as_bytes(), 0);
    out
}

/// In a block that has written something, that statement is bound to a portal, and that is answered.
fn with_portal(portal: &str, text: &str) -> (Table, Side, Side) {
    let (mut table, client, server) = in_marked_block("");
    table.says(client, &[parse("s", text), bind_to(portal, "s"), sync()].concat());
    table.says(server, &answers("1 t n 2 Z(T)"));
    assert_eq!(table.hears(client), "1 2 Z(T)");
    table.hears(server);
    (table, client, server)
}

#[test]
fn the_portal_that_is_run_ends_the_block_and_no_other() {
    for text in ["PREPARE TRANSACTION 'x'", "COMMIT AND CHAIN", "COMMIT", "ROLLBACK", "EXECUTE p"] {
        for decoy in ["COMMIT", "ROLLBACK", "SELECT 1"] {
            let (mut table, client, server) = with_portal("a", text);
            table.says(client, &[parse("", decoy), bind("", 0), execute_portal("a"), sync()].concat());
            table.hangs_up(server);
            assert_eq!(table.hears(client), "E(08007)", "{text} behind a Bind of {decoy}");
        }
    }
}

#[test]
fn a_portal_of_an_end_that_is_not_run_ends_nothing() {
    let (mut table, client, server) = with_portal("a", "COMMIT");
    table.says(client, &[parse("", "SELECT 1"), bind("", 0), execute(), sync()].concat());
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(40001) Z(E)");
    let (mut table, client, server) = in_block();
    table.says(client, &[parse("", "COMMIT"), bind("", 0), sync()].concat());
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(40001) Z(E)");
}

#[test]
fn a_portal_that_is_one_of_too_many_may_be_anything() {
    let (mut table, client, server) = in_marked_block("");
    let portals: Vec<u8> = (0..65).flat_map(|at| bind_to(&format!("p{at}"), "s")).collect();
    table.says(client, &[parse("s", "COMMIT"), portals, sync()].concat());
    table.says(server, &answers(&format!("1 t n {} Z(T)", "2 ".repeat(65))));
    table.says(client, &[parse("", "SELECT 1"), bind("", 0), execute_portal("p64"), sync()].concat());
    table.hangs_up(server);
    assert!(table.hears(client).ends_with("Z(T) E(08007)"));
}

#[test]
fn what_would_have_come_ahead_of_a_commit_is_known_or_all_is_unknown() {
    let commit = || [parse("", "COMMIT"), bind("", 0), execute(), sync()].concat();
    for (asked, why) in [
        ([parse("", "SELECT 1"), bind("", 0), describe_portal(), commit()].concat(), "rows are described"),
        ([parse("b", "SELEC"), commit()].concat(), "a Parse fails"),
        ([parse_typed("", "COMMIT", &[0]), bind("", 0), execute(), sync()].concat(), "a type is not known"),
        ([parse("", "COMMIT"), bind("", 1), execute(), sync()].concat(), "there is no parameter"),
        (
            [parse("", "COMMIT"), bind_to("a", ""), bind_to("a", ""), execute_portal("a"), sync()].concat(),
            "a name is taken",
        ),
    ] {
        let (mut table, client, server) = in_marked_block("");
        table.says(client, &asked);
        table.hangs_up(server);
        assert_eq!(table.hears(client), "E(08007)", "{why}");
    }
}

#[test]
fn a_close_ahead_of_a_commit_is_answered_and_done() {
    let (mut table, client, server) = in_marked_block("");
    table.says(client, &[parse("b", "SELECT 1"), sync()].concat());
    table.says(server, &answers("1 t n Z(T)"));
    assert_eq!(table.hears(client), "1 Z(T)");
    table.says(client, &[close("b"), parse("", "COMMIT"), bind("", 0), execute(), sync()].concat());
    table.hangs_up(server);
    let server = asked(&mut table);
    table.says(server, &answers("T(set_config) D(committed) C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "3 1 2 C(COMMIT) Z(I)");
    table.says(client, &[bind("b", 0), execute(), sync()].concat());
    let server = table.servers()[0];
    assert_eq!(table.hears(server), "B(b) E S", "it is not the pool's any more");
    table.says(server, &answers("E(26000) Z(I)"));
    assert_eq!(table.hears(client), "E(26000) Z(I)");
}

#[test]
fn a_description_in_the_request_before_says_nothing_of_the_end() {
    let (mut table, client, server) = in_block();
    let select = [parse("", "SELECT 1"), bind("", 0), describe_portal(), execute(), sync()].concat();
    let rollback = [parse("", "ROLLBACK"), bind("", 0), describe_portal(), execute(), sync()].concat();
    table.says(client, &[select, rollback].concat());
    table.says(server, &answers("1 2 T(a) C(SELECT 0) Z(T)"));
    assert_eq!(table.hears(client), "1 2 T C(SELECT 0) Z(T)");
    table.hangs_up(server);
    assert_eq!(table.hears(client), "1 2 n C(ROLLBACK) Z(I)");
}

#[test]
fn a_commit_that_was_sent_behind_the_first_write_is_asked_for() {
    let (mut table, client, server) = in_block();
    table.says(client, &[query("INSERT INTO t VALUES (1)"), query("COMMIT")].concat());
    table.says(server, &answers("C(INSERT 0 1) S(sluice.transaction=xid=7 at=0/A system=9 key=5) Z(T)"));
    assert_eq!(table.hears(client), "C(INSERT 0 1) Z(T)");
    table.hangs_up(server);
    let server = asked(&mut table);
    table.says(server, &answers("T(set_config) D(committed) C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(COMMIT) Z(I)");
}

#[test]
fn what_has_been_heard_ahead_of_a_commit_is_not_told_again() {
    for (said, rest) in [("1", "2 n "), ("1 2", "n "), ("1 2 n", "")] {
        let (mut table, client, server) = in_marked_block("");
        table.says(client, &[parse("", "COMMIT"), bind("", 0), describe_portal(), execute(), sync()].concat());
        table.says(server, &answers(said));
        assert_eq!(table.hears(client), said);
        table.hangs_up(server);
        let server = asked(&mut table);
        table.says(server, &answers("T(set_config) D(committed) C(SELECT 1) Z(I)"));
        assert_eq!(table.hears(client), format!("{rest}C(COMMIT) Z(I)"));
    }
}

#[test]
fn a_rollback_whose_answer_is_lost_is_done() {
    for (asked, heard) in [
        (query("ROLLBACK"), "C(ROLLBACK) Z(I)"),
        (query("abort work;"), "C(ROLLBACK) Z(I)"),
        ([parse("", "ROLLBACK"), bind("", 0), execute(), sync()].concat(), "1 2 C(ROLLBACK) Z(I)"),
        ([parse("", "ROLLBACK"), bind("", 0), describe_portal(), execute(), sync()].concat(), "1 2 n C(ROLLBACK) Z(I)"),
    ] {
        let (mut table, client, server) = in_block();
        table.says(client, &asked);
        table.hangs_up(server);
        assert_eq!(table.hears(client), heard);
        has_another(&mut table, client);
    }
}

#[test]
fn a_commit_of_a_block_that_has_failed_rolls_it_back() {
    for end in ["ROLLBACK", "COMMIT"] {
        let (mut table, client, server) = in_block();
        table.says(client, &query("SELECT 1/0"));
        table.says(server, &answers("E(22012) Z(E)"));
        assert_eq!(table.hears(client), "E(22012) Z(E)");
        table.says(client, &query(end));
        table.hangs_up(server);
        assert_eq!(table.hears(client), "C(ROLLBACK) Z(I)");
        has_another(&mut table, client);
    }
}

#[test]
fn of_a_rollback_that_has_been_heard_in_part_the_rest_is_told() {
    for (said, rest) in [("1", "2 C(ROLLBACK) Z(I)"), ("1 2", "C(ROLLBACK) Z(I)"), ("1 2 C(ROLLBACK)", "E(08007)")] {
        let (mut table, client, server) = in_block();
        table.says(client, &[parse("", "ROLLBACK"), bind("", 0), execute(), sync()].concat());
        table.says(server, &answers(said));
        assert_eq!(table.hears(client), said);
        table.hangs_up(server);
        assert_eq!(table.hears(client), rest);
    }
}

#[test]
fn a_rollback_that_may_have_begun_another_block_ends_its_client() {
    for asked in [query("ROLLBACK AND CHAIN"), [query("ROLLBACK"), query("SELECT 1")].concat()] {
        let (mut table, client, server) = in_block();
        table.says(client, &asked);
        table.hangs_up(server);
        assert_eq!(table.hears(client), "E(08007)");
        assert!(table.is_closed(client));
    }
}

#[test]
fn what_a_block_has_set_is_reported_to_be_what_it_was_when_it_is_rolled_back() {
    let (mut table, client, server) = in_block();
    table.says(client, &query("SET application_name = 'x'"));
    table.says(server, &answers("C(SET) S(application_name=x) Z(T)"));
    assert_eq!(table.hears(client), "C(SET) S(application_name=x) Z(T)");
    table.says(client, &query("ROLLBACK"));
    table.hangs_up(server);
    assert_eq!(table.hears(client), "C(ROLLBACK) S(application_name=) Z(I)");
    has_another(&mut table, client);
}

#[test]
fn a_rollback_to_a_savepoint_ends_no_block() {
    let (mut table, client, server) = in_marked_block("");
    for (asked, tag) in [("SAVEPOINT s", "SAVEPOINT"), ("ROLLBACK TO s", "ROLLBACK")] {
        table.says(client, &query(asked));
        table.says(server, &answers(&format!("C({tag}) Z(T)")));
        assert_eq!(table.hears(client), format!("C({tag}) Z(T)"));
    }
    table.says(client, &query("COMMIT"));
    table.hangs_up(server);
    let server = asked(&mut table);
    table.says(server, &answers("T(set_config) D(committed) C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(COMMIT) Z(I)");
}

/// Closes a portal.
fn close_portal(portal: &str) -> Vec<u8> {
    let mut out = Vec::new();
    message::put_portal_message(&mut out, message::frontend::CLOSE, portal.as_bytes());
    out
}

#[test]
fn a_portal_is_there_where_its_close_was_skipped() {
    for skipped in [close_portal("a"), bind_to("a", "")] {
        let (mut table, client, server) = with_portal("a", "COMMIT");
        table.says(client, &query("SAVEPOINT s"));
        table.says(server, &answers("C(SAVEPOINT) Z(T)"));
        table.says(client, &[parse("", "SELECT 1/0"), bind("", 0), execute(), skipped, sync()].concat());
        table.says(server, &answers("1 2 E(22012) Z(E)"));
        table.says(client, &query("ROLLBACK TO s"));
        table.says(server, &answers("C(ROLLBACK) Z(T)"));
        assert_eq!(table.hears(client), "C(SAVEPOINT) Z(T) 1 2 E(22012) Z(E) C(ROLLBACK) Z(T)");
        table.says(client, &[execute_portal("a"), sync()].concat());
        table.hangs_up(server);
        assert_eq!(table.hears(client), "E(08007)");
    }
}

#[test]
fn a_portal_that_is_one_of_too_many_is_one_when_the_others_are_closed() {
    let (mut table, client, server) = in_marked_block("");
    let portals: Vec<u8> = (0..65).flat_map(|at| bind_to(&format!("p{at}"), "s")).collect();
    table.says(client, &[parse("s", "COMMIT"), portals, sync()].concat());
    table.says(server, &answers(&format!("1 t n {} Z(T)", "2 ".repeat(65))));
    let closes: Vec<u8> = (0..64).flat_map(|at| close_portal(&format!("p{at}"))).collect();
    table.says(client, &[closes, sync()].concat());
    table.says(server, &answers(&format!("{} Z(T)", "3 ".repeat(64))));
    table.says(client, &[execute_portal("p64"), sync()].concat());
    table.hangs_up(server);
    assert!(table.hears(client).ends_with("Z(T) E(08007)"));
}

#[test]
fn a_commit_whose_client_has_gone_has_its_time() {
    let commit = [parse("", "COMMIT"), bind("", 0), execute(), sync()].concat();
    for (said, may_commit) in [
        (query("COMMIT"), true),
        (commit, true),
        (query("SELECT 1; END"), true),
        (query("RESET ALL; COMMIT"), true),
        (query("PREPARE TRANSACTION 'x'"), true),
        ([query("SELECT 1"), query("COMMIT")].concat(), true),
        (query("ROLLBACK"), false),
        (query("SELECT 'commit'"), false),
    ] {
        let (mut table, client, server) = seated(one());
        table.says(client, &query("BEGIN READ WRITE"));
        table.says(server, &answers("C(BEGIN) Z(T)"));
        table.says(client, &said);
        table.hangs_up(client);
        assert_eq!(table.cancels(), usize::from(!may_commit), "{}", said.escape_ascii());
        table.passes(Duration::from_secs(9));
        assert_eq!(table.cancels(), usize::from(!may_commit), "{}", said.escape_ascii());
        table.passes(Duration::from_secs(2));
        assert_eq!(table.cancels(), 1, "{}", said.escape_ascii());
    }
    // What was answered counts no more.
    let (mut table, client, server) = seated(one());
    table.says(client, &query("COMMIT"));
    table.says(server, &answers("C(COMMIT) Z(I)"));
    table.says(client, &query("SELECT 1"));
    table.hangs_up(client);
    assert_eq!(table.cancels(), 1);
}
