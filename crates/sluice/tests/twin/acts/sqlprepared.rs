//! Prepared statements of SQL, which share their names with those of the protocol.

use crate::generate::{Maker, NAMES};

#[rustfmt::skip]
const MAKES: &[&str] = &[
    "PREPARE {n} AS SELECT 1 AS one", "PREPARE {n} (int) AS SELECT $1 + 1 AS next", "PREPARE {n} AS SELECT * FROM t ORDER BY id LIMIT 2",
    "PREPARE {n} AS SELECT '2024-03-04'::timestamptz AS at", "PREPARE {n} (text) AS INSERT INTO log VALUES ($1)", "PREPARE {n} AS SELECT no_such_column",
    "SELECT runs('PREPARE {n} AS SELECT 3 AS three')",
];

#[rustfmt::skip]
const USES: &[&str] = &[
    "EXECUTE {n}", "EXECUTE {n}", "EXECUTE {n}(4)", "EXECUTE {n}('x')", "EXPLAIN (COSTS OFF) EXECUTE {n}", "DEALLOCATE {n}", "DEALLOCATE PREPARE {n}", "DEALLOCATE ALL",
    "DISCARD ALL", "DISCARD PLANS", "CREATE TEMP TABLE executed AS EXECUTE {n}",
];

pub(crate) fn act(maker: &mut Maker) {
    let name = *maker.random.of(&NAMES);
    let text = maker.one_of(MAKES).replace("{n}", name);
    maker.sql(&text);
    for _ in 0..1 + maker.random.below(3) {
        if maker.random.percent(25) {
            maker.again(name);
        } else {
            let text = maker.one_of(USES).replace("{n}", name);
            maker.sql(&text);
        }
    }
}
