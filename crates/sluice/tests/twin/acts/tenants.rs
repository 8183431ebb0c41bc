//! Tables of the same names in several schemas: one text, other tables, other types.

use crate::generate::{Maker, Statement};

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "SET search_path = tenant_{x}", "SET search_path = tenant_{x}, public", "SET search_path = c{k}, tenant_{x}, public",
    "SET LOCAL search_path = tenant_{x}",
    "SELECT * FROM item ORDER BY id", "SELECT * FROM item ORDER BY id", "SELECT value FROM item WHERE id = 2", "SELECT value FROM item WHERE id = 2",
    "SELECT max(value::text), count(*) FROM item", "SELECT pg_typeof(value) FROM item LIMIT 1", "SELECT 'item'::regclass::text",
    "SELECT counts_item()", "SELECT public.counts_item()", "SELECT * FROM tenant_{x}.item WHERE id = 1",
    "SELECT * FROM t ORDER BY id", "SELECT count(*) FROM t", "SELECT v FROM t WHERE id = 1",
    "UPDATE t SET n = n + 1 WHERE id = 3", "INSERT INTO log VALUES ('a line')", "SELECT count(*), min(line) FROM log",
    "INSERT INTO t (id, v) SELECT max(id) + 1, 'new' FROM t RETURNING id, v, n", "DELETE FROM t WHERE id > 8",
    "SELECT t.id, t.v, item.value FROM t JOIN item USING (id) ORDER BY id",
];

pub(crate) fn act(maker: &mut Maker) {
    if maker.random.percent(25) {
        let value = maker.random.of(&["1", "2", "0"]).as_bytes().to_vec();
        let sql = *maker.random.of(&["SELECT value FROM item WHERE id = $1", "SELECT v, n FROM t WHERE id = $1"]);
        let binary = maker.random.percent(40);
        let value = if binary { 2_u32.to_be_bytes().to_vec() } else { value };
        maker.any(&Statement { types: vec![23], values: vec![Some(value)], binary, ..sql.into() });
    } else {
        let text = maker.one_of(TEXTS);
        maker.sql(&text);
    }
}
