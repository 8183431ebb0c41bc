//! Temporary tables, views, sequences and functions, which may hide others of the same name.

use crate::generate::Maker;

#[rustfmt::skip]
const MAKES: &[&str] = &[
    "CREATE TEMP TABLE t (id int, v text)", "CREATE TEMPORARY TABLE item (id int, mine text)", "CREATE TEMP TABLE t AS SELECT 77 AS id, 'temporary' AS v",
    "SELECT 78 AS id, 'into' AS v INTO TEMP t", "CREATE TABLE pg_temp.t (id int)", "CREATE /* a comment */ TEMP -- and one\n TABLE x (n int)",
    "CREATE LOCAL TEMPORARY TABLE x (n int) ON COMMIT DELETE ROWS", "CREATE TEMP TABLE x (n int) ON COMMIT DROP", "CREATE TEMP VIEW t AS SELECT 1 AS view",
    "CREATE TEMP SEQUENCE s START 5000", "SELECT makes_temporary(1)", "SELECT runs('CREATE TEMP TABLE IF NOT EXISTS t (made int)')",
    "DO $$ BEGIN CREATE TEMP TABLE x AS SELECT 5 AS n; END $$", "CREATE FUNCTION pg_temp.plus(int, int) RETURNS int LANGUAGE sql AS 'SELECT 100'",
    "CREATE TEMP TABLE IF NOT EXISTS t (id int, kept bool)", "CREATE TYPE pg_temp.kind AS ENUM ('temporary')", "CREATE UNLOGGED TABLE pg_temp.u (n int)",
];

#[rustfmt::skip]
const USES: &[&str] = &[
    "SELECT * FROM t ORDER BY 1", "SELECT * FROM t ORDER BY 1", "SELECT count(*) FROM item", "INSERT INTO x VALUES (1)", "SELECT * FROM x", "SELECT * FROM pg_temp.t", "SELECT nextval('s')",
    "SELECT * FROM made", "SELECT pg_temp.plus(1, 2)", "SELECT plus(1, 2)", "DROP TABLE t", "DROP TABLE IF EXISTS x", "DROP TABLE IF EXISTS pg_temp.t", "DISCARD TEMP", "SELECT 't'::regclass = 'c{k}.t'::regclass",
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS more int", "SELECT n.nspname LIKE 'pg_temp%' FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = to_regclass('t')",
    "SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relnamespace = pg_my_temp_schema()",
];

pub(crate) fn act(maker: &mut Maker) {
    // Whether a statement that was prepared before sees what hides its tables depends on what the server's session had
    // before (docs/decisions/0014).
    maker.close_named();
    let text = maker.one_of(MAKES);
    maker.sql(&text);
    for _ in 0..1 + maker.random.below(3) {
        let text = maker.one_of(USES);
        maker.sql(&text);
    }
}
