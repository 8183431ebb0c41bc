//! Errors of each kind: told with all their fields, and leaving the session as PostgreSQL leaves it.

use crate::generate::{Maker, Statement};

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "SELEC 1", "SELECT FROM WHERE", "SELECT 'open", "SELECT no_such_column FROM t", "SELECT * FROM no_such_table", "SELECT no_such_function(1)",
    "SELECT 1 / 0", "SELECT 1 / (id - 3) FROM shared ORDER BY id", "INSERT INTO t (id) VALUES (1)", "INSERT INTO t (id, v) VALUES (NULL, 'x')",
    "SELECT 'x'::int", "SELECT 99999999999::int", "SELECT 0::positive", "SELECT ('x'::text)::mood", "SELECT fails('so')", "SELECT tells('so')",
    "SELECT catches('SELECT 1/0')", "SELECT * FROM pg_authid", "SELECT set_config('no.such', NULL, false)", "SELECT id, sum(n) FROM t",
    "UPDATE shared SET id = 1 WHERE id = 2", "SELECT $1", "SELECT $2::int", "DROP TABLE no_such_table", "DROP TABLE IF EXISTS no_such_table",
    "SELECT 1 UNION SELECT 'x'", "CALL commits('c')", "CALL gives(1)", "CALL no_such_procedure()", "DO $$ BEGIN RAISE NOTICE 'done'; END $$",
    "DO $$ BEGIN RAISE division_by_zero; END $$", "LOCK TABLE t", "VACUUM t", "EXPLAIN (COSTS OFF) SELECT 1", "SELECT 'Grüße'::int",
    "TRUNCATE log", "SELECT repeat('x', 3000)",
];

const BAD_VALUES: &[(&str, &str)] = &[
    ("SELECT $1::int", "x"),
    ("SELECT $1::date", "no day"),
    ("SELECT 1 / $1::int", "0"),
    ("INSERT INTO t (id) VALUES ($1)", "1"),
    ("SELECT $1::mood", "angry"),
];

pub(crate) fn act(maker: &mut Maker) {
    let in_savepoint = maker.in_block && maker.random.percent(60);
    if in_savepoint {
        maker.sql("SAVEPOINT e");
    }
    if maker.random.percent(20) {
        let (sql, value) = *maker.random.of(BAD_VALUES);
        maker.any(&Statement { values: vec![Some(value.as_bytes().to_vec())], ..sql.into() });
    } else {
        let text = maker.one_of(TEXTS);
        maker.sql(&text);
    }
    if in_savepoint {
        maker.sql("ROLLBACK TO e");
    }
}
