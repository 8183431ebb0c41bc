//! Transactions at standbys that find what was committed before: which ones are led there, what they wait for, and when
//! the primary is taken.

use std::time::Duration;

use sluice_control::{
    Database,
    address::Address,
    reading::{Causal, Lag, Node, NodeState, Reading, Scope, Standby, Target},
    settings::PoolSettings,
};

use crate::{
    one,
    table::{Side, Table, answers, bind, describe, execute, parse, query, scripted, sync},
};

const TIMEOUT: Duration = Duration::from_secs(1);

/// The texts by which a server is asked how far it has replayed, for the first time and again.
pub(crate) const HOW_FAR: &str = "Q(SELECT pg_catalog.pg_last_wal_replay_lsn())";
const AGAIN: &str = "Q(SET LOCAL statement_timeout = 0; SELECT pg_catalog.pg_sleep(0.001); \
    SELECT pg_catalog.pg_last_wal_replay_lsn())";

/// The messages of a block's beginning, as a server hears them.
pub(crate) const BEGIN: &str = "P(: BEGIN READ ONLY) B() E C[] ";

pub(crate) fn settings() -> PoolSettings {
    PoolSettings { failover_timeout: Some(Duration::from_secs(45)), size: 3, ..one() }
}

fn reading(target: Target) -> Reading {
    Reading { target, lag_max: Duration::from_secs(10), lag_bytes_max: None }
}

pub(crate) fn database(scope: Scope) -> Database {
    Database {
        cluster: Some("main".into()),
        address: Address::Primary("main".into()),
        read_only: Some(reading(Target::Standby)),
        causal: Some(Causal { scope, timeout: TIMEOUT }),
        reports_commits: true,
        ..scripted(settings())
    }
}

/// A database whose readers find the commits of all.
pub(crate) fn of_readers() -> Database {
    Database {
        address: Address::Readers("main".into()),
        reading: Some(reading(Target::PreferStandby)),
        read_only: None,
        ..database(Scope::Global)
    }
}

pub(crate) fn standby(name: &str) -> Node {
    let lag = Lag { time: Some(Duration::ZERO), bytes: Some(0) };
    let standby =
        Standby { timeline: 1, system: "7".to_owned(), streams: true, is_paused: false, is_excluded: false, lag };
    Node { name: name.to_owned(), address: Address::Tcp(name.to_owned(), 5432), state: NodeState::Standby(standby) }
}

/// A client, and its server at the primary, "p"; there is a standby, "s", whose servers come next.
pub(crate) fn seated(database: Database) -> (Table, Side, Side) {
    let mut table = Table::reporting(settings());
    table.reports_at_login("in_hot_standby", "off");
    table.reports_at_login("sluice.commit_lsn", "0/0");
    table.has_primary(database, Some("p"));
    let client = table.client();
    let primary = table.servers()[0];
    table.has_nodes(vec![standby("s")]);
    table.reports_at_login("in_hot_standby", "on");
    (table, client, primary)
}

fn begins(table: &mut Table, client: Side) {
    table.says(client, &query("BEGIN READ ONLY"));
    assert_eq!(table.hears(client), "C(BEGIN) Z(T)");
}

/// The same, and its first query.
pub(crate) fn reads(table: &mut Table, client: Side) {
    begins(table, client);
    table.says(client, &query("SELECT 1"));
}

/// The server answers the block's BEGIN and a query, and the client hears of the query.
pub(crate) fn answers_first(table: &mut Table, server: Side, client: Side) {
    table.says(server, &answers("1 2 C(BEGIN) 3 D(1) C(SELECT 1) Z(T)"));
    assert_eq!(table.hears(client), "D C(SELECT 1) Z(T)");
}

/// The same, and the block ends there.
pub(crate) fn ends(table: &mut Table, server: Side, client: Side) {
    answers_first(table, server, client);
    commits(table, server, client);
}

fn commits(table: &mut Table, server: Side, client: Side) {
    table.says(client, &query("COMMIT"));
    assert_eq!(table.hears(server), "Q(COMMIT)");
    table.says(server, &answers("C(COMMIT) Z(I)"));
    assert_eq!(table.hears(client), "C(COMMIT) Z(I)");
}

/// The client writes at the primary, and the commit ends there.
fn writes(table: &mut Table, primary: Side, client: Side, end: &str) {
    table.says(client, &query("INSERT INTO t VALUES (1)"));
    assert_eq!(table.hears(primary), "Q(INSERT INTO t VALUES (1))");
    table.says(primary, &answers(&format!("C(INSERT 0 1) S(sluice.commit_lsn={end}) Z(I)")));
    assert_eq!(table.hears(client), "C(INSERT 0 1) Z(I)");
}

/// The client reads in a block at the primary.
pub(crate) fn reads_at_primary(table: &mut Table, primary: Side, client: Side, first: &str) {
    begins(table, client);
    table.says(client, &query(first));
    assert_eq!(table.hears(primary), format!("{BEGIN}Q({first})"), "{first}");
    answers_first(table, primary, client);
    commits(table, primary, client);
}

fn replayed(end: &str) -> Vec<u8> {
    answers(&format!("D({end}) C(SELECT 1) Z(I)"))
}

fn replayed_again(end: &str) -> Vec<u8> {
    answers(&format!("C(SET) D() C(SELECT 1) D({end}) C(SELECT 1) Z(I)"))
}

/// The server that is opened at the standby. It is asked once how far it has replayed, whoever comes first.
pub(crate) fn opened(table: &mut Table) -> Side {
    let opened = table.connects();
    let [server] = opened[..] else { panic!("{} servers are opened", opened.len()) };
    assert_eq!(table.hears(server), HOW_FAR);
    table.says(server, &replayed("0/40"));
    server
}

#[test]
fn a_block_that_reads_goes_to_a_standby_and_the_next_transaction_back() {
    let (mut table, client, primary) = seated(database(Scope::Local));
    assert_eq!(table.opened_with(primary), "sluice.report_transactions=on sluice.report_commits=on");
    for turn in 0..3 {
        reads(&mut table, client);
        if turn == 0 {
            opened(&mut table);
        }
        let server = table.servers()[1];
        assert_eq!(table.opened_with(server), "sluice.report_transactions=on");
        // It has written nothing, so nothing is waited for.
        assert_eq!(table.hears(server), format!("{BEGIN}Q(SELECT 1)"));
        answers_first(&mut table, server, client);
        // Whatever comes next in the block.
        table.says(client, &query("SELECT f()"));
        assert_eq!(table.hears(server), "Q(SELECT f())");
        table.says(server, &answers("C(SELECT 1) Z(T)"));
        table.hears(client);
        assert_eq!(table.places(), [("p:5432".to_owned(), 1), ("s:5432".to_owned(), 1)], "it is away from the first");
        commits(&mut table, server, client);
        assert_eq!(table.places(), [("p:5432".to_owned(), 1)]);
        table.says(client, &query("SELECT 2"));
        assert_eq!(table.hears(primary), "Q(SELECT 2)", "outside of a block it has its own server");
        table.says(primary, &answers("C(SELECT 1) Z(I)"));
        table.hears(client);
    }
}

#[test]
fn a_block_that_may_be_another_thing_at_a_standby_stays() {
    let (mut table, client, primary) = seated(database(Scope::Local));
    for first in [
        "SET TRANSACTION READ WRITE",
        "SAVEPOINT a",
        "SELECT f(1)",
        "SELECT pg_advisory_xact_lock(1)",
        "SELECT 1; SELECT 2",
        "SHOW search_path",
    ] {
        reads_at_primary(&mut table, primary, client, first);
    }
    table.says(client, &[query("BEGIN"), query("SELECT 1")].concat());
    assert_eq!(table.hears(primary), "P(: BEGIN) B() E C[] Q(SELECT 1)", "it may write");
    table.says(primary, &answers("1 2 C(BEGIN) 3 C(SELECT 1) Z(T)"));
    table.hears(client);
    commits(&mut table, primary, client);
    assert!(table.connects().is_empty(), "nobody has been to the standby");
}

#[test]
fn prepared_statements_are_led_by_their_texts() {
    let (mut table, client, primary) = seated(database(Scope::Local));
    table.says(client, &[parse("a", "SELECT 1"), parse("b", "SELECT f()"), sync()].concat());
    table.hears(primary);
    table.says(primary, &answers("1 t n 1 t n Z(I)"));
    table.hears(client);
    begins(&mut table, client);
    table.says(client, &[bind("a", 0), execute(), sync()].concat());
    let server = opened(&mut table);
    let heard = table.hears(server);
    assert!(heard.starts_with(BEGIN) && heard.contains("SELECT 1) ") && heard.ends_with(" E S"), "{heard}");
    let parsed = if heard.contains(" D(") { "1 t n 2 C(SELECT 1) Z(T)" } else { "1 2 C(SELECT 1) Z(T)" };
    table.says(server, &answers(&format!("1 2 C(BEGIN) 3 {parsed}")));
    assert_eq!(table.hears(client), "2 C(SELECT 1) Z(T)");
    commits(&mut table, server, client);
    // Drivers ask for the result's shape first.
    begins(&mut table, client);
    table.says(client, &[parse("c", "SELECT 1"), describe("c"), sync()].concat());
    assert_eq!(table.hears(server), format!("{BEGIN}S"));
    table.says(server, &answers("1 2 C(BEGIN) 3 Z(T)"));
    assert_eq!(table.hears(client), "1 t n Z(T)");
    commits(&mut table, server, client);
    begins(&mut table, client);
    table.says(client, &[bind("b", 0), execute(), sync()].concat());
    assert!(table.hears(primary).starts_with(BEGIN), "nobody knows what f() does");
    table.says(primary, &answers("1 2 C(BEGIN) 3 2 C(SELECT 1) Z(T)"));
    table.hears(client);
    commits(&mut table, primary, client);
    // To describe one takes no snapshot: SET TRANSACTION READ WRITE may still come.
    begins(&mut table, client);
    table.says(client, &[describe("c"), sync()].concat());
    assert!(table.hears(primary).starts_with(BEGIN), "it may write yet");
}

#[test]
fn a_standby_whose_sessions_are_serializable_is_for_nobody() {
    let (mut table, client, primary) = seated(database(Scope::Local));
    for turn in 0..2 {
        reads(&mut table, client);
        if turn == 0 {
            table.connects();
        }
        let server = table.servers()[1];
        assert_eq!(table.hears(server), HOW_FAR, "though it has written nothing");
        table.says(server, &answers("E(0A000) Z(I)"));
        assert_eq!(table.hears(primary), format!("{BEGIN}Q(SELECT 1)"));
        ends(&mut table, primary, client);
    }
}

/// The client's COMMIT is lost with the primary, and its next one says that it was committed and where its log ends.
fn commits_without_answer(table: &mut Table, primary: Side, client: Side, end: &str) -> Side {
    table.says(client, &[query("BEGIN"), query("INSERT INTO t VALUES (1)")].concat());
    table.hears(primary);
    let mark = "xid=7 at=0/A system=9 key=5";
    table.says(primary, &answers(&format!("1 2 C(BEGIN) 3 C(INSERT 0 1) S(sluice.transaction={mark}) Z(T)")));
    table.hears(client);
    table.says(client, &query("COMMIT"));
    table.hears(primary);
    table.reports_at_login("in_hot_standby", "off");
    table.hangs_up(primary);
    table.passes(Duration::from_millis(200));
    let next = table.connects()[0];
    table.reports_at_login("in_hot_standby", "on");
    assert_eq!(
        table.hears(next),
        format!(
            "Q(SET LOCAL statement_timeout = 0; SELECT pg_catalog.set_config('sluice.outcome', '{mark}', true); \
             SELECT pg_catalog.pg_current_wal_flush_lsn())"
        )
    );
    table.says(next, &answers(&format!("C(SET) D(committed) C(SELECT 1) D({end}) C(SELECT 1) Z(I)")));
    assert_eq!(table.hears(client), "C(COMMIT) Z(I)");
    next
}

#[test]
fn a_commit_whose_answer_was_lost_is_found() {
    for scope in [Scope::Local, Scope::Global] {
        let (mut table, client, primary) = seated(database(scope));
        table.looks_at_log(0x30);
        commits_without_answer(&mut table, primary, client, "0/50");
        let reader = if scope == Scope::Global { table.client() } else { client };
        reads(&mut table, reader);
        let server = opened(&mut table);
        assert_eq!(table.hears(server), AGAIN, "0/40 is not far enough");
    }
}

#[test]
fn a_client_finds_what_it_has_written() {
    let (mut table, client, primary) = seated(database(Scope::Local));
    writes(&mut table, primary, client, "0/50");
    reads(&mut table, client);
    table.connects();
    let server = table.servers()[1];
    assert_eq!(table.hears(server), HOW_FAR);
    for end in ["0/40", "0/4F"] {
        table.says(server, if end == "0/40" { replayed(end) } else { replayed_again(end) }.as_slice());
        assert_eq!(table.hears(server), AGAIN, "it has not come so far");
    }
    table.says(server, &replayed_again("0/50"));
    assert_eq!(table.hears(server), format!("{BEGIN}Q(SELECT 1)"));
    ends(&mut table, server, client);
    // It is known by now that it has come so far.
    reads(&mut table, client);
    assert_eq!(table.hears(server), format!("{BEGIN}Q(SELECT 1)"));
    ends(&mut table, server, client);
    // Others have written nothing.
    writes(&mut table, primary, client, "0/60");
    let other = table.client();
    reads(&mut table, other);
    assert_eq!(table.hears(server), format!("{BEGIN}Q(SELECT 1)"));
}

#[test]
fn the_primary_is_taken_where_a_standby_takes_too_long() {
    let (mut table, client, primary) = seated(database(Scope::Local));
    writes(&mut table, primary, client, "0/50");
    reads(&mut table, client);
    table.connects();
    let server = table.servers()[1];
    assert_eq!(table.hears(server), HOW_FAR);
    table.passes(TIMEOUT / 2);
    table.says(server, &replayed("0/40"));
    assert_eq!(table.hears(server), AGAIN);
    table.passes(TIMEOUT / 2 - Duration::from_millis(1));
    table.says(server, &replayed_again("0/40"));
    assert_eq!(table.hears(server), AGAIN);
    // It does not answer any more.
    table.passes(Duration::from_millis(600));
    assert!(table.is_closed(server));
    assert_eq!(table.hears(primary), format!("{BEGIN}Q(SELECT 1)"));
    ends(&mut table, primary, client);
    // Or it fails, or is lost.
    for how in ["fails", "is lost"] {
        reads(&mut table, client);
        let server = table.connects()[0];
        assert_eq!(table.hears(server), HOW_FAR);
        match how {
            "fails" => table.says(server, &answers("E(57014) Z(I)")),
            _ => table.hangs_up(server),
        }
        assert_eq!(table.hears(primary), format!("{BEGIN}Q(SELECT 1)"), "{how}");
        ends(&mut table, primary, client);
        if how == "fails" {
            assert!(!table.is_closed(server));
            table.hangs_up(server);
        }
    }
}

#[test]
fn a_client_that_has_half_a_message_of_a_lost_standby_does_not_go_on_at_the_primary() {
    let (mut table, client, primary) = seated(database(Scope::Local));
    writes(&mut table, primary, client, "0/50");
    reads(&mut table, client);
    let server = table.connects()[0];
    assert_eq!(table.hears(server), HOW_FAR);
    let notice = [&b"N"[..], &100_000_u32.to_be_bytes(), &[b'M'; 40_000]].concat();
    table.says(server, &[replayed("0/60"), notice].concat());
    table.hangs_up(server);
    assert!(table.is_closed(client), "it would take what follows for the rest of the notice");
    assert_eq!(table.hears(primary), "");
}

#[test]
fn a_cancel_takes_no_client_away_amid_a_message_of_its_standbys() {
    let (mut table, client, primary) = seated(database(Scope::Local));
    writes(&mut table, primary, client, "0/50");
    reads(&mut table, client);
    let server = table.connects()[0];
    assert_eq!(table.hears(server), HOW_FAR);
    let notice = [&b"N"[..], &100_000_u32.to_be_bytes(), &[b'M'; 99_995], &[0]].concat();
    let (half, rest) = notice.split_at(40_000);
    table.says(server, &[&replayed("0/40")[..], half].concat());
    table.cancel(client);
    table.says(server, rest);
    assert!(table.hears(client).starts_with('N'), "the rest is the client's as well");
    table.says(server, &replayed_again("0/60"));
    table.hears(server);
    answers_first(&mut table, server, client);
}

#[test]
fn the_primary_is_taken_where_a_standby_lets_nobody_in() {
    let (mut table, client, primary) = seated(database(Scope::Local));
    for how in ["refuses", "does not answer", "leaves"] {
        reads(&mut table, client);
        match how {
            "refuses" => table.refuses("E(28P01)"),
            "does not answer" => table.passes(TIMEOUT + Duration::from_millis(200)),
            _ => table.has_nodes(Vec::new()),
        }
        assert_eq!(table.hears(primary), format!("{BEGIN}Q(SELECT 1)"), "{how}");
        ends(&mut table, primary, client);
    }
}

#[test]
fn a_client_of_a_server_that_tells_of_no_commits_stays_at_the_primary() {
    let mut table = Table::reporting(settings());
    table.reports_at_login("in_hot_standby", "off");
    table.has_primary(database(Scope::Local), Some("p"));
    let client = table.client();
    let primary = table.servers()[0];
    table.has_nodes(vec![standby("s")]);
    table.says(client, &query("INSERT INTO t VALUES (1)"));
    table.hears(primary);
    table.says(primary, &answers("C(INSERT 0 1) Z(I)"));
    table.hears(client);
    reads_at_primary(&mut table, primary, client, "SELECT 1");
}

#[test]
fn what_would_tie_a_client_to_a_standby_ends_it() {
    for pins in ["prepare", "cursor", "lock"] {
        let (mut table, client, _) = seated(database(Scope::Local));
        reads(&mut table, client);
        let server = opened(&mut table);
        table.hears(server);
        answers_first(&mut table, server, client);
        table.says(client, &query("COMMIT"));
        table.says(server, &answers(&format!("C(COMMIT) S(sluice.session=pins={pins}) Z(I)")));
        assert!(table.hears_error(client).contains("0A000"), "{pins}");
    }
}

#[test]
fn an_advisory_lock_is_never_one_of_a_standby() {
    let (mut table, client, _) = seated(database(Scope::Local));
    reads(&mut table, client);
    let server = opened(&mut table);
    table.hears(server);
    answers_first(&mut table, server, client);
    table.says(client, &query("SELECT pg_advisory_xact_lock(1)"));
    assert!(!table.hears(server).contains("advisory"));
    assert!(table.hears_error(client).contains("0A000"));
}

#[test]
fn a_block_that_is_lost_with_its_standby_fails_and_its_client_goes_home() {
    let (mut table, client, primary) = seated(database(Scope::Local));
    reads(&mut table, client);
    let server = opened(&mut table);
    table.hears(server);
    answers_first(&mut table, server, client);
    table.says(client, &query("SELECT 2"));
    table.hangs_up(server);
    assert_eq!(table.hears(client), "E(40001) Z(E)");
    assert_eq!(table.places(), [("p:5432".to_owned(), 1)]);
    table.says(client, &query("ROLLBACK"));
    assert_eq!(table.hears(client), "C(ROLLBACK) Z(I)");
    writes(&mut table, primary, client, "0/50");
}

#[test]
fn a_standby_that_will_not_do_any_more_keeps_what_is_open_there() {
    let (mut table, client, primary) = seated(database(Scope::Local));
    reads(&mut table, client);
    let server = opened(&mut table);
    table.hears(server);
    answers_first(&mut table, server, client);
    table.has_nodes(Vec::new());
    commits(&mut table, server, client);
    assert!(table.is_closed(server));
    reads_at_primary(&mut table, primary, client, "SELECT 1");
}

#[test]
fn where_reads_are_global_a_client_finds_what_others_have_written() {
    let (mut table, client, primary) = seated(database(Scope::Global));
    // What others were told of before this process began, nobody knows yet.
    reads_at_primary(&mut table, primary, client, "SELECT 1");
    table.looks_at_log(0x30);
    let writer = table.client();
    writes(&mut table, primary, writer, "0/50");
    reads(&mut table, client);
    let server = table.connects()[0];
    assert_eq!(table.hears(server), HOW_FAR);
    table.says(server, &replayed("0/4F"));
    assert_eq!(table.hears(server), AGAIN);
    table.says(server, &replayed_again("0/60"));
    assert_eq!(table.hears(server), format!("{BEGIN}Q(SELECT 1)"));
    ends(&mut table, server, client);
}

/// A client of readers, its server at the standby, and one that reads at the primary.
pub(crate) fn readers(table: &mut Table) -> (Side, Side) {
    let client = table.client();
    (client, table.servers()[0])
}

#[test]
fn readers_find_what_others_have_written() {
    let mut table = Table::reporting(settings());
    table.reports_at_login("in_hot_standby", "on");
    table.has_primary(of_readers(), Some("p"));
    table.has_nodes(vec![standby("s")]);
    table.looks_at_log(0x50);
    let (client, server) = readers(&mut table);
    let select = [parse("", "SELECT 1"), bind("", 0), execute(), sync()].concat();
    table.says(client, &select);
    assert_eq!(table.hears(server), HOW_FAR);
    table.says(server, &replayed("0/50"));
    assert_eq!(table.hears(server), "P(: SELECT 1) B() E S");
    table.says(server, &answers("1 2 C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "1 2 C(SELECT 1) Z(I)");
    // Nothing has been written since.
    table.says(client, &query("SELECT 2"));
    assert_eq!(table.hears(server), "Q(SELECT 2)");
    table.says(server, &answers("C(SELECT 1) Z(I)"));
    table.hears(client);
    table.looks_at_log(0x60);
    table.says(client, &query("SELECT 3"));
    assert_eq!(table.hears(server), HOW_FAR);
    table.says(server, &replayed("0/50"));
    assert_eq!(table.hears(server), AGAIN);
    table.passes(TIMEOUT);
    table.says(server, &replayed_again("0/50"));
    // The primary is taken for this one.
    table.reports_at_login("in_hot_standby", "off");
    table.reports_at_login("sluice.commit_lsn", "0/0");
    let primary = table.connects()[0];
    assert!(table.opened_with(primary).contains("default_transaction_read_only=on"));
    assert_eq!(table.hears(primary), "Q(SELECT 3)");
    table.says(primary, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I)");
    assert_eq!(table.places(), [("s:5432".to_owned(), 1)]);
    table.says(client, &query("SELECT 4"));
    assert_eq!(table.hears(server), HOW_FAR, "the next one is asked for again");
}

#[test]
fn readers_are_at_the_primary_as_long_as_nobody_knows_what_was_written() {
    let mut table = Table::reporting(settings());
    table.reports_at_login("in_hot_standby", "on");
    table.has_primary(of_readers(), Some("p"));
    table.has_nodes(vec![standby("s")]);
    let (client, _) = readers(&mut table);
    table.says(client, &query("SELECT 1"));
    table.reports_at_login("in_hot_standby", "off");
    let primary = table.connects()[0];
    assert_eq!(table.hears(primary), "Q(SELECT 1)");
    table.says(primary, &answers("C(SELECT 1) Z(I)"));
    assert_eq!(table.hears(client), "C(SELECT 1) Z(I)");
    // It is asked for, and does not say where its commits are.
    table.looks_at_log(0x50);
    table.says(client, &query("SELECT 2"));
    assert_eq!(table.hears(primary), "Q(SELECT 2)");
}
