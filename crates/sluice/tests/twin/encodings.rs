//! Prepared statements whose characters were read by other settings than those in place: PostgreSQL reads them once.

use sluice_testkit::{Case, matrix};
use sluice_wire::message::frontend;

use crate::{
    beside::{beside, query_of, s},
    wire,
};

matrix!(transaction:
    names_in_another_encoding,
    results_in_another_encoding,
    characters_where_a_table_was_changed,
    commands_with_bytes_that_are_no_characters,
);

/// Of each the same bytes are another name.
const ENCODINGS: [&str; 3] = ["UTF8", "WIN1251", "KOI8R"];

fn set(encoding: &str) -> String {
    format!("SET client_encoding = '{encoding}'")
}

fn names_in_another_encoding(case: Case) {
    beside(case, &[&[], &[], &[]], |b| {
        for encoding in ENCODINGS {
            b.query(1, &set(encoding));
            b.query(1, "CREATE TABLE \"Я\" (n int)");
        }
        let mut number = 0;
        for sql in [
            "INSERT INTO \"Я\" VALUES ($1)",
            "INSERT INTO \"Я\" VALUES ($1) RETURNING n, 'Я' AS l",
            "UPDATE Я SET n = n + 1 WHERE n = $1",
            "DELETE FROM \"Я\" WHERE n = $1",
        ] {
            for (from, to) in [("WIN1251", "KOI8R"), ("UTF8", "WIN1251"), ("KOI8R", "UTF8")] {
                for name in ["a", ""] {
                    b.clients(&[&[], &[], &[]]);
                    let parse = s().parse(name, sql);
                    let set_by_protocol = |encoding: &str| s().parse("set", &set(encoding)).bind("set", &[]).execute();
                    for script in [
                        set_by_protocol(from).sync(),
                        parse.clone().describe(name).sync(),
                        s().close("set").then(&set_by_protocol(to)).sync(),
                        // In one batch with what sets another.
                        s().close("a").close("set").then(&set_by_protocol(from)).then(&parse).sync(),
                        s().close("set").then(&set_by_protocol(to)).sync(),
                    ] {
                        number += 1;
                        b.says(0, &script);
                        b.on_each_server(0, 1, &s().bind(name, &[Some(&number.to_string())]).execute().sync());
                    }
                }
            }
        }
        for encoding in ENCODINGS {
            b.query(1, &set(encoding));
            b.query(1, "SELECT n FROM \"Я\" ORDER BY n");
        }
    });
}

fn results_in_another_encoding(case: Case) {
    beside(case, &[&[], &[], &[]], |b| {
        b.query(1, "CREATE TABLE c (\"Я\" text, b int); INSERT INTO c VALUES ('я', 1)");
        for sql in ["SELECT * FROM c", "SELECT 'я'::text AS \"Я\", date '01/02/2020'"] {
            b.clients(&[&[], &[], &[]]);
            let run = s().bind("a", &[]).execute().sync();
            b.says(0, &s().parse("a", sql).describe("a").sync());
            for encoding in ["WIN1251", "KOI8R", "UTF8"] {
                b.query(0, &set(encoding));
                b.on_each_server(0, 1, &run);
                b.on_each_server(0, 1, &s().describe("a").sync());
                b.query(0, "SET DateStyle = 'ISO, DMY'");
                b.on_each_server(0, 1, &run);
                b.query(0, "RESET DateStyle");
            }
        }
    });
}

fn characters_where_a_table_was_changed(case: Case) {
    beside(case, &[&[], &[], &[]], |b| {
        b.query(1, "CREATE TABLE t (n int, t text)");
        for (sql, then) in [
            ("INSERT INTO t VALUES ($1, 'C:\\\\new') RETURNING *", "SET standard_conforming_strings = off"),
            ("INSERT INTO t VALUES ($1, E'a\\'b') RETURNING *", "SET backslash_quote = off"),
            ("INSERT INTO t VALUES ($1, 'Я') RETURNING *", "SET client_encoding = 'WIN1251'"),
        ] {
            for describes in [true, false] {
                b.clients(&[&[], &[], &[]]);
                let parse = s().parse("a", sql);
                b.says(0, &if describes { parse.describe("a") } else { parse }.sync());
                let run = s().bind("a", &[Some("1")]).execute().sync();
                b.says(0, &run);
                b.query(0, then);
                b.query(1, "ALTER TABLE t ADD z int");
                b.on_each_server(0, 2, &run);
                b.query(1, "ALTER TABLE t DROP z");
                b.on_each_server(0, 2, &run);
            }
        }
        b.query(1, "SELECT * FROM t ORDER BY ctid");
    });
}

fn commands_with_bytes_that_are_no_characters(case: Case) {
    beside(case, &[&[], &[]], |b| {
        for text in [&b"DEALLOCATE \"p\x95\\\""[..], b"DEALLOCATE p -- \xff", b"BEGIN -- \xff", b"COMMIT -- \xff"] {
            for name in [&b"a"[..], b""] {
                let parse = wire::message(frontend::PARSE, |out| {
                    out.extend_from_slice(&[name, b"\0", text, b"\0\0\0"].concat());
                });
                assert!(b.says(0, &s().then(&parse).sync()).contains("22021"));
                b.query(1, "SELECT 1");
                assert!(b.says(0, &s().then(&parse).sync()).contains("22021"));
            }
            b.says(0, &query_of(text));
            b.query(0, "SELECT 1");
        }
        // Other characters than ASCII are names as any.
        b.says(0, &s().parse("gr\u{fc}n", "SELECT 1").parse("d", "DEALLOCATE \"gr\u{fc}n\"").sync());
        b.on_each_server(0, 1, &s().bind("gr\u{fc}n", &[]).execute().sync());
        b.says(0, &s().bind("d", &[]).execute().sync());
        b.on_each_server(0, 1, &s().bind("gr\u{fc}n", &[]).execute().sync());
        b.says(0, &s().bind("d", &[]).execute().sync());
        b.query(0, "BEGIN -- gr\u{fc}n");
        b.query(0, "COMMIT -- gr\u{fc}n");
    });
}
