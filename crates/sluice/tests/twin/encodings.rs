//! Prepared statements whose characters were read by other settings than those in place: PostgreSQL reads them once.

use sluice_testkit::{Case, matrix};

use crate::beside::{beside, s};

matrix!(transaction:
    names_in_another_encoding,
    results_in_another_encoding,
    characters_where_a_table_was_changed,
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
