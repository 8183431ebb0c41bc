//! Encodings of the client, with text that is not the same in all of them.

use crate::{
    generate::{Maker, Statement},
    wire,
};

#[rustfmt::skip]
const CHANGES: &[&str] = &[
    "SET client_encoding = 'LATIN1'", "SET client_encoding TO SJIS", "SET client_encoding = 'UTF8'", "SET NAMES 'LATIN1'", "SET NAMES 'EUC_JP'", "SET NAMES", "SET LOCAL NAMES", "RESET client_encoding", "SET LOCAL client_encoding = 'LATIN1'",
    "SELECT set_config('client_encoding', 'LATIN1', false)", "SET client_encoding = 'no such'",
];

/// Texts in LATIN1, UTF-8 and SJIS.
#[rustfmt::skip]
const TEXTS: &[&[u8]] = &[
    b"SELECT 'Gr\xfc\xdfe' AS words, length('Gr\xfc\xdfe') AS long", "SELECT 'Grüße' AS words, length('Grüße') AS long".as_bytes(),
    b"SELECT '\x93\xfa\x96\x7b' AS words, length('\x93\xfa\x96\x7b') AS long", "SELECT '日本' AS words, length('日本') AS long".as_bytes(),
    b"SELECT name FROM shared WHERE id = 13", b"SELECT name FROM shared WHERE id = 14", b"SELECT name AS \"Gr\xfc\xdfe\" FROM shared WHERE id = 1", b"SELECT 'a\x83\x5c' AS words", b"SELECT pg_client_encoding()",
    b"SELECT 'bad \xff\xfe'", b"SELECT 'x' -- Gr\xfc\xdfe",
];

const VALUES: &[&[u8]] = &[b"Gr\xfc\xdfe", "Grüße".as_bytes(), b"\x93\xfa\x96\x7b", b"plain"];

pub(crate) fn act(maker: &mut Maker) {
    if maker.random.percent(50) {
        let text = maker.one_of(CHANGES);
        maker.sql(&text);
    }
    for _ in 0..1 + maker.random.below(2) {
        let text = *maker.random.of(TEXTS);
        if maker.random.percent(30) {
            let value = maker.random.of(VALUES).to_vec();
            let sql = "SELECT $1::text AS words, length($1) AS long";
            maker.any(&Statement { types: vec![25], values: vec![Some(value)], ..sql.into() });
        } else if maker.random.percent(20) {
            maker.say(wire::query(text));
        } else {
            maker.any(&Statement { sql: text.to_vec(), ..Statement::default() });
        }
        // A Query of bytes that are none of the encoding leaves the unnamed statement there (decision 0014, "What
        // remains"), another one does not.
        maker.simple("SELECT 1");
    }
}
