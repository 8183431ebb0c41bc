//! COPY, both ways, by both protocols, and failing at several points.

use sluice_testkit::Script;

use crate::{generate::Maker, wire};

#[rustfmt::skip]
const OUT: &[&str] = &[
    "COPY t TO STDOUT", "COPY t (id, v) TO STDOUT (FORMAT csv, HEADER)", "COPY (SELECT id, at, day, span, raw FROM shared WHERE id < 4 ORDER BY id) TO STDOUT",
    "COPY (SELECT id FROM t ORDER BY id) TO STDOUT (FORMAT binary)", "COPY no_such_table TO STDOUT", "COPY (SELECT 1 / (id - 3) FROM t ORDER BY id) TO STDOUT",
    "COPY (SELECT name FROM shared ORDER BY id) TO STDOUT", "COPY (SELECT repeat('x', 900) FROM generate_series(1, 20)) TO STDOUT",
];

#[rustfmt::skip]
const IN: &[(&str, &[u8])] = &[
    ("COPY log FROM STDIN", b"one\ntwo\n"), ("COPY log FROM STDIN", b"un"), ("COPY log (line) FROM STDIN (FORMAT csv)", b"\"a, b\"\nc\n"),
    ("COPY t (id, v) FROM STDIN", b"no number\tx\n"), ("COPY t (id, v) FROM STDIN", b"1\ttwice\n"), ("COPY no_such_table FROM STDIN", b"x\n"),
    ("COPY log FROM STDIN", b"Gr\xc3\xbc\xc3\x9fe\n"), ("COPY log FROM STDIN", b"bad \xfc\n"), ("COPY log FROM STDIN", b"too\tmany\n"), ("COPY t (id) FROM STDIN", b"901\n902\n\\.\n"),
];

pub(crate) fn act(maker: &mut Maker) {
    if maker.random.percent(40) {
        let text = maker.one_of(OUT);
        let extended = maker.random.percent(40);
        if extended { maker.say(Script::new().unnamed(&text, &[]).sync()) } else { maker.simple(&text) }
    } else {
        let (sql, data) = *maker.random.of(IN);
        let extended = maker.random.percent(50);
        let begin = if extended { Script::new().unnamed(sql, &[]) } else { wire::query(sql.as_bytes()) };
        let (first, second) = data.split_at(data.len() / 2);
        let data = begin.copy_data(first).copy_data(second);
        let data = if maker.random.percent(15) { data.copy_fail("no more of it") } else { data.copy_done() };
        maker.say(if extended { data.sync() } else { data });
    }
    maker.sql("SELECT count(*) FROM log");
}
