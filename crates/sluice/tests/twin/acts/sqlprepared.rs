//! Prepared statements of SQL, by names of their own or by those of the protocol.

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

/// Names that the protocol's own statements never have.
const OWN_NAMES: [&str; 2] = ["d", "e"];

pub(crate) fn act(maker: &mut Maker) {
    use_names(maker, &OWN_NAMES);
}

/// By the names that the protocol's have, too.
pub(crate) fn collide(maker: &mut Maker) {
    use_names(maker, &NAMES);
}

fn use_names(maker: &mut Maker, names: &[&'static str]) {
    let name = *maker.random.of(names);
    let text = maker.one_of(MAKES).replace("{n}", name);
    maker.sql(&text);
    for _ in 0..1 + maker.random.below(3) {
        if maker.random.percent(25) {
            maker.again(name);
        } else {
            let text = maker.one_of(USES).replace("{n}", name);
            // By a portal with a name it may be missed at its Bind (decision 0014, "What remains").
            if text.starts_with("DEALLOCATE") { maker.at_once(&text) } else { maker.sql(&text) }
        }
    }
}
