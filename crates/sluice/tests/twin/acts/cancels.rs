//! Cancels of statements that run or wait for a server, of nothing, and of others; and servers that somebody ends.

use sluice_testkit::Script;

use crate::{
    generate::Maker,
    plan::{Key, Meanwhile, What},
};

/// Each sleeps once, and is still asleep when the cancel comes.
#[rustfmt::skip]
const LONG: &[&str] = &[
    "SELECT pg_sleep(60)", "SELECT pg_sleep(60)", "SELECT id, pg_sleep(60) FROM shared ORDER BY id", "INSERT INTO log SELECT pg_sleep(60)::text",
    "UPDATE t SET n = 7 WHERE id = 1 AND pg_sleep(60) IS NULL RETURNING v", "DO $$ BEGIN PERFORM pg_sleep(60); END $$", "SELECT catches('SELECT pg_sleep(60)')",
    "COPY (SELECT id, pg_sleep(60) FROM shared) TO STDOUT", "WITH slow AS MATERIALIZED (SELECT pg_sleep(60)) SELECT count(*) FROM slow", "SELECT runs('SELECT pg_sleep(60)')",
    "CREATE TABLE c{k}.slow AS SELECT pg_sleep(60)::text", "SET LOCAL work_mem = '3MB'; SELECT pg_sleep(60)", "INSERT INTO log VALUES ('before'); SELECT pg_sleep(60); SELECT 'never'",
    "BEGIN; SELECT pg_sleep(60)",
];

/// Those that end by themselves, soon.
#[rustfmt::skip]
const SHORT: &[&str] = &["SELECT pg_sleep(0.05)", "INSERT INTO log SELECT pg_sleep(0.05)::text", "SELECT id, pg_sleep(0.02) FROM shared WHERE id < 4 ORDER BY id"];

#[rustfmt::skip]
const LOOKS: &[&str] = &[
    "SELECT count(*) FROM log", "SELECT v, n FROM t WHERE id = 1", "SHOW work_mem", "SELECT to_regclass('c{k}.slow')", "SELECT 1 AS one",
    "SELECT pg_cancel_backend(pg_backend_pid())", "SELECT id, pg_cancel_backend(pg_backend_pid()) FROM shared ORDER BY id",
];

/// Ends of its own server by the client itself.
const ENDS: &[&str] = &[
    "SELECT pg_terminate_backend(pg_backend_pid())",
    "DO $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); END $$",
];

pub(crate) fn act(maker: &mut Maker) {
    match maker.random.below(20) {
        0..7 => runs_and(maker, LONG, Meanwhile::Cancel),
        7..10 => runs_and(maker, SHORT, Meanwhile::CancelOthers),
        10..12 => {
            let extended = maker.random.percent(50);
            let copy = "COPY log FROM STDIN";
            let script = if extended { Script::new().unnamed(copy, &[]) } else { Script::new().query(copy) };
            let script = script.copy_data(b"one\n").copy_done();
            maker.say(if extended { script.sync() } else { script });
            maker.meanwhile(Meanwhile::CancelCopy);
        }
        12..14 => maker.event(What::Cancel(Key::Own)),
        14 => maker.event(What::Cancel(Key::Wrong)),
        15..18 => maker.event(What::EndIdle),
        18 if maker.random.percent(50) => runs_and(maker, LONG, Meanwhile::End),
        18 => {
            let text = maker.one_of(ENDS);
            maker.sql(&text);
        }
        _ if maker.in_block => maker.event(What::EndServer),
        _ => maker.event(What::Cancel(Key::Own)),
    }
    let look = maker.one_of(LOOKS);
    maker.sql(&look);
}

fn runs_and(maker: &mut Maker, texts: &[&str], meanwhile: Meanwhile) {
    let text = maker.one_of(texts);
    if text.contains("; ") && !text.starts_with("DO") {
        maker.simple(&text);
        maker.in_block |= text.starts_with("BEGIN");
    } else {
        maker.sql(&text);
    }
    maker.meanwhile(meanwhile);
}
