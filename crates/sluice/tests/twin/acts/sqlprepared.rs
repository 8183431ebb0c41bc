//! Prepared statements of SQL, which share their names with those of the protocol.

use sluice_testkit::Script;

use crate::generate::{Maker, NAMES};

#[rustfmt::skip]
const MAKES: &[&str] = &[
    "PREPARE {n} AS SELECT 1 AS one", "PREPARE {n} (int) AS SELECT $1 + 1 AS next", "PREPARE {n} AS SELECT * FROM t ORDER BY id LIMIT 2",
    "PREPARE {n} AS SELECT '2024-03-04'::timestamptz AS at", "PREPARE {n} (text) AS INSERT INTO log VALUES ($1)", "PREPARE {n} AS SELECT no_such_column",
    "DEALLOCATE {n}; PREPARE {n} AS SELECT 2 AS two; EXECUTE {n}", "EXECUTE {n}; PREPARE {n} AS SELECT 3",
];

/// Statements about the name `hidden`: the pool does not see how functions use names, so nothing else uses this one.
#[rustfmt::skip]
const HIDDEN: &[&str] = &[
    "SELECT runs('PREPARE hidden AS SELECT 3 AS three')", "EXECUTE hidden", "DEALLOCATE hidden", "SELECT runs('DEALLOCATE hidden')", "EXPLAIN (COSTS OFF) EXECUTE hidden",
];

#[rustfmt::skip]
const USES: &[&str] = &[
    "EXECUTE {n}", "EXECUTE {n}", "EXECUTE {n}(4)", "EXECUTE {n}('x')", "EXPLAIN (COSTS OFF) EXECUTE {n}", "CREATE TEMP TABLE executed AS EXECUTE {n}", "DISCARD PLANS",
    "SELECT 1; EXECUTE {n}; SELECT 2",
];

/// By a portal with a name they differ (decision 0014, "What remains").
const ENDS: &[&str] = &["DEALLOCATE {n}", "DEALLOCATE PREPARE {n}", "DEALLOCATE ALL", "DISCARD ALL"];

pub(crate) fn act(maker: &mut Maker) {
    let name = *maker.random.of(&NAMES);
    match maker.random.below(10) {
        0..5 => {
            // One that is lent is parsed again before the text, by what its names mean then (decision 0016, "What remains").
            maker.close_if_of_tables(name);
            use_of(maker, MAKES, name);
        }
        5 => {
            let text = maker.one_of(HIDDEN);
            maker.sql(&text);
        }
        _ => {}
    }
    for _ in 0..1 + maker.random.below(3) {
        match maker.random.below(8) {
            0..2 => maker.again(name),
            2 => maker.say(run().sync()),
            3 => {
                let text = maker.one_of(ENDS).replace("{n}", name);
                maker.at_once(&text);
            }
            _ => {
                // The same (decision 0016).
                maker.close_if_moved(name);
                use_of(maker, USES, name);
            }
        }
    }
}

/// A statement that executes itself is more than PostgreSQL can take, so none that executes has a name that is
/// executed.
fn use_of(maker: &mut Maker, texts: &[&str], name: &str) {
    let text = maker.one_of(texts).replace("{n}", name);
    if text == "DISCARD PLANS" {
        // PostgreSQL reads the literals of named statements again (decision 0014, "What remains").
        maker.close_named();
    }
    if !text.contains("EXECUTE") {
        maker.sql(&text);
    } else if text.contains(';') || maker.random.percent(80) {
        maker.nameless(&text);
    } else {
        let mut script = Script::new().close("user").parse("user", &text);
        if maker.random.percent(50) {
            script = script.describe("user");
        }
        if maker.random.percent(50) {
            script = script.then(&run());
        }
        maker.say(script.sync());
    }
}

fn run() -> Script {
    Script::new().bind("user", &[]).describe_portal("").execute()
}
