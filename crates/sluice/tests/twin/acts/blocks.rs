//! Transaction blocks: their beginnings, ends, and what may be said of them.

use crate::generate::Maker;

#[rustfmt::skip]
pub(crate) const BEGIN: &[&str] = &[
    "BEGIN", "BEGIN", "BEGIN", "BEGIN WORK", "START TRANSACTION", "BEGIN ISOLATION LEVEL SERIALIZABLE", "begin transaction read only",
    "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY, DEFERRABLE", "START TRANSACTION READ WRITE", "BEGIN; SELECT 1", "/* begins */ BEGIN -- so",
];

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "SAVEPOINT s", "ROLLBACK TO s", "RELEASE s", "COMMIT AND CHAIN", "ROLLBACK AND CHAIN",
    "BEGIN", "COMMIT", "ROLLBACK", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SHOW transaction_isolation", "SHOW transaction_read_only", "PREPARE TRANSACTION 'x{k}'", "ROLLBACK PREPARED 'x{k}'",
    "SELECT now() = statement_timestamp() AND false", "INSERT INTO log VALUES ('in a block')", "SELECT count(*) FROM log",
];

#[rustfmt::skip]
const SEVERAL: &[&str] = &[
    "BEGIN; INSERT INTO log VALUES ('several'); COMMIT", "BEGIN; SELECT 1; SELECT 1/0; COMMIT", "BEGIN; SELECT 2",
    "INSERT INTO log VALUES ('implicit'); SELECT 1/0", "SELECT 1; COMMIT; SELECT 2", "SELECT 1; BEGIN; SELECT 2", "BEGIN; COMMIT; BEGIN; ROLLBACK",
    "SAVEPOINT s; SELECT 1", "SELECT 1; ROLLBACK; SELECT 2", "", ";", "; ; SELECT 1 ;",
    "BEGIN; BEGIN; COMMIT; COMMIT",
];

pub(crate) fn act(maker: &mut Maker) {
    if maker.random.percent(40) {
        let text = maker.one_of(SEVERAL);
        maker.simple(&text);
        maker.in_block |= text.starts_with("BEGIN; SELECT") || text.contains("; BEGIN; SELECT");
        return;
    }
    let text = maker.one_of(TEXTS);
    maker.sql(&text);
    match text.as_str() {
        "BEGIN" => maker.in_block = true,
        "COMMIT" | "ROLLBACK" => maker.in_block = false,
        _ => (),
    }
}
