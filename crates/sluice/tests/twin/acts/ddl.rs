//! Changes to the client's own tables, with the same texts before and behind. None comes to hide a table that a function
//! reads: whether that notices depends on what the server's session has run before (docs/decisions/0014).

use crate::generate::Maker;

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS c{k}.d (id int, v int)", "CREATE TABLE c{k}.d (id int, v int)", "DROP TABLE IF EXISTS c{k}.d", "DROP TABLE c{k}.d",
    "ALTER TABLE c{k}.d ALTER v TYPE text", "ALTER TABLE c{k}.d ALTER v TYPE int USING 0", "ALTER TABLE c{k}.d ALTER v TYPE numeric USING 1.5",
    "ALTER TABLE c{k}.d ADD COLUMN IF NOT EXISTS w date DEFAULT '03/04/2024'", "ALTER TABLE c{k}.d DROP COLUMN IF EXISTS w", "ALTER TABLE c{k}.d RENAME v TO u",
    "ALTER TABLE c{k}.d RENAME u TO v", "CREATE INDEX ON c{k}.d (id)", "TRUNCATE c{k}.d", "CREATE OR REPLACE VIEW c{k}.seen AS SELECT id FROM c{k}.t WHERE id < 3",
    "CREATE OR REPLACE FUNCTION c{k}.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "CREATE OR REPLACE FUNCTION c{k}.f() RETURNS int LANGUAGE sql AS 'SELECT 2'",
    "DROP FUNCTION IF EXISTS c{k}.f()", "ALTER TABLE c{k}.t ADD COLUMN IF NOT EXISTS extra text DEFAULT 'e'", "ALTER TABLE c{k}.t DROP COLUMN IF EXISTS extra",
    "CREATE TABLE IF NOT EXISTS c{k}.thing (id int, own text)", "DROP TABLE IF EXISTS c{k}.thing", "COMMENT ON TABLE c{k}.t IS 'own'",
    "CREATE TABLE IF NOT EXISTS c{k}.made AS SELECT id, v FROM c{k}.t", "SELECT id, v INTO c{k}.into_{x} FROM c{k}.t", "CREATE TYPE c{k}.kind AS ENUM ('x')",
];

#[rustfmt::skip]
const LOOKS: &[&str] = &[
    "SELECT * FROM d", "SELECT * FROM d", "INSERT INTO d VALUES (1, '2')", "INSERT INTO d (id) VALUES (2)", "SELECT v FROM d WHERE id = 1", "SELECT * FROM t ORDER BY id LIMIT 2",
    "SELECT * FROM seen ORDER BY 1", "SELECT f()", "SELECT * FROM item ORDER BY id LIMIT 2", "SELECT count(*) FROM made", "UPDATE d SET v = NULL RETURNING *",
];

pub(crate) fn act(maker: &mut Maker) {
    for _ in 0..1 + maker.random.below(3) {
        let texts = if maker.random.percent(50) { LOOKS } else { TEXTS };
        let text = maker.one_of(texts);
        maker.sql(&text);
    }
}
