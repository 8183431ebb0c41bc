//! Sequences and random numbers: state that only the session knows.

use crate::generate::Maker;

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "SELECT nextval('s')", "SELECT nextval('s')", "SELECT currval('s')", "SELECT lastval()", "SELECT setval('s', 500)", "SELECT setval('s', 600, false)",
    "ALTER SEQUENCE c{k}.s RESTART", "DISCARD SEQUENCES", "SELECT nextval('c{k}.s'), currval('c{k}.s'), lastval()",
    "CREATE TABLE IF NOT EXISTS c{k}.auto (id serial, v text)", "INSERT INTO c{k}.auto (v) VALUES ('x') RETURNING id", "SELECT currval(pg_get_serial_sequence('c{k}.auto', 'id'))",
    "SELECT last_value, is_called FROM c{k}.s", "SELECT setseed(0.25)", "SET seed = 0.5",
];

pub(crate) fn act(maker: &mut Maker) {
    for _ in 0..1 + maker.random.below(3) {
        let text = maker.one_of(TEXTS);
        if text.contains("seed") {
            maker.simple(&text);
            maker.simple("SELECT random(), random()");
        } else if text.contains(';') {
            maker.simple(&text)
        } else {
            maker.sql(&text)
        }
    }
}
