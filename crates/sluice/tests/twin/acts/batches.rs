//! Several batches sent at once, with errors and Flush in between.

use sluice_testkit::Script;

use crate::generate::{Maker, NAMES};

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "SELECT 1 AS one", "SELECT 2 AS two, NULL AS none", "INSERT INTO log VALUES ('piped')", "SELECT 1 / 0", "SELEC", "BEGIN", "COMMIT", "ROLLBACK", "SELECT count(*) FROM log",
    "SELECT generate_series(1, 3) AS i", "SET LOCAL work_mem = '2MB'", "SHOW work_mem", "", "SELECT '2024-03-04'::timestamptz AS at", "SAVEPOINT s", "ROLLBACK TO s", "SELECT tells('piped')",
    "SET TimeZone = 'Asia/Tokyo'", "SET TimeZone = 'UTC'",
];

pub(crate) fn act(maker: &mut Maker) {
    let mut script = Script::new();
    for _ in 0..1 + maker.random.below(4) {
        script = batch(maker, script);
    }
    maker.say(script);
    // Whatever the last of them left open.
    if !maker.in_block {
        maker.simple("ROLLBACK");
    }
}

/// A simple query, or some messages up to a Sync.
fn batch(maker: &mut Maker, script: Script) -> Script {
    if maker.random.percent(20) {
        let text = maker.one_of(TEXTS);
        return script.query(&text);
    }
    let mut script = script;
    for _ in 0..1 + maker.random.below(4) {
        let text = maker.one_of(TEXTS);
        let name = *maker.random.of(&NAMES);
        script = match maker.random.below(8) {
            0..4 => script.unnamed(&text, &[]),
            4 => script.close(name).parse(name, &text).describe(name).bind(name, &[]).execute(),
            5 => script.bind(name, &[]).describe_portal("").execute(),
            6 => script.parse("", &text).bind("", &[]).execute_some("", 1).execute_some("", 1).flush(),
            _ => script.flush().describe("").close_portal("").close(name),
        };
    }
    script.sync()
}
