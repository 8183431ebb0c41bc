//! Cursors, with and without HOLD, and portals across batches of a transaction.

use sluice_testkit::Script;

use crate::generate::Maker;

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "DECLARE c CURSOR FOR SELECT id, name FROM shared ORDER BY id", "DECLARE c CURSOR WITH HOLD FOR SELECT id, at FROM shared ORDER BY id", "DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT * FROM t ORDER BY id",
    "DECLARE c BINARY CURSOR FOR SELECT id FROM shared ORDER BY id", "DECLARE c CURSOR FOR UPDATE", "FETCH c", "FETCH 2 FROM c", "FETCH ALL FROM c", "FETCH BACKWARD 1 FROM c", "MOVE 2 IN c", "CLOSE c", "CLOSE ALL",
    "SELECT name, is_holdable FROM pg_cursors WHERE name = 'c'", "UPDATE t SET n = 0 WHERE CURRENT OF c",
];

pub(crate) fn act(maker: &mut Maker) {
    if maker.random.percent(30) {
        return portals(maker);
    }
    let begins = !maker.in_block && maker.random.percent(50);
    if begins {
        maker.sql("BEGIN");
    }
    for text in [&TEXTS[..5], &TEXTS[5..], &TEXTS[5..]] {
        let text = maker.one_of(text);
        if text.starts_with("FETCH") { fetch(maker, &text) } else { maker.sql(&text) }
    }
    if begins {
        maker.sql("COMMIT");
        fetch(maker, "FETCH c");
    }
}

/// A FETCH, of which no statement is left: where one is described, or another that executes it, and the cursor is gone,
/// PostgreSQL has crashed up to a recent minor version.
fn fetch(maker: &mut Maker, text: &str) {
    maker.nameless(text);
    maker.simple("SELECT 1");
}

/// A portal that is used in several batches, and once the transaction is over.
fn portals(maker: &mut Maker) {
    let begins = !maker.in_block;
    if begins {
        maker.sql("BEGIN");
    }
    let bind = Script::new().parse("", "SELECT id, name FROM shared ORDER BY id").bind_to("q", "", &[]);
    maker.say(bind.execute_some("q", 2).sync());
    maker.say(Script::new().describe_portal("q").execute_some("q", 3).sync());
    fetch(maker, "FETCH 1 FROM q");
    maker.say(Script::new().execute_some("q", 0).execute_some("q", 1).close_portal("q").execute_some("q", 1).sync());
    if begins {
        maker.sql("COMMIT");
        maker.say(Script::new().execute_some("q", 1).sync());
    }
}
