//! Prepared statements of the protocol: names that come again, are closed, or were never there.

use sluice_testkit::Script;

use crate::generate::{Maker, NAMES, Statement};

const INT4: u32 = 23;
const TEXT: u32 = 25;

#[rustfmt::skip]
const WITH: &[(&str, u32, &[&str])] = &[
    ("SELECT $1::int + 1 AS next", INT4, &["1", "41", "x"]),
    ("SELECT 10 / $1::int AS part", INT4, &["0", "3", "5"]),
    ("SELECT $1 AS same", TEXT, &["one", "two", ""]),
    ("SELECT plus($1, 2), $1 IS NULL AS none", INT4, &["1", "2"]),
    ("SELECT id, name FROM shared WHERE id < $1 ORDER BY id", INT4, &["3", "8"]),
    ("INSERT INTO log VALUES ($1) RETURNING line", TEXT, &["a", "b"]),
    ("SELECT count(*) FROM t WHERE v LIKE $1", TEXT, &["%", "row %"]),
    ("UPDATE t SET v = v || $1 WHERE id = 4 RETURNING v", TEXT, &["!"]),
    ("SELECT generate_series(1, $1::int)", INT4, &["2", "5"]),
];

pub(crate) fn act(maker: &mut Maker) {
    let name = *maker.random.of(&NAMES);
    match maker.random.below(10) {
        0..4 => {
            let statement = statement(maker);
            maker.any(&statement);
        }
        4..7 => maker.again(name),
        7 => maker.say(Script::new().describe(name).sync()),
        8 => maker.say(Script::new().close(name).sync()),
        _ => {
            let sql = *maker.random.of(&["DEALLOCATE a", "DEALLOCATE b", "DEALLOCATE ALL", "DEALLOCATE \"never\""]);
            // By a portal with a name it is missed at its Bind (decision 0014, "What remains").
            maker.at_once(sql);
        }
    }
}

fn statement(maker: &mut Maker) -> Statement {
    let (sql, oid, values) = *maker.random.of(WITH);
    let text = *maker.random.of(values);
    let binary = maker.random.percent(30);
    let number = text.parse::<u32>().ok().filter(|_| oid == INT4);
    let value = number.filter(|_| binary).map_or(text.as_bytes().to_vec(), |number| number.to_be_bytes().to_vec());
    let value = (!maker.random.percent(8)).then_some(value);
    Statement { types: vec![oid], values: vec![value], binary, ..sql.into() }
}
