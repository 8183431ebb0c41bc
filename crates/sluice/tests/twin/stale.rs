//! Tables that change past the pool while clients share statements which use them.

use std::{thread, time::Duration};

use sluice_testkit::{Case, Script, matrix};

use crate::beside::{Beside, beside, s};

matrix!(transaction:
    what_is_parsed_behind_a_change_means_what_it_means_then,
    what_was_parsed_before_a_change_means_what_it_meant,
    functions_that_others_ran_before_a_change,
);

const MADE: &str = "CREATE TABLE kept (a int, b text); INSERT INTO kept SELECT i, i::text FROM generate_series(1, 3) i";

/// The texts that are shared, and the number of their parameters.
const SHARED: &[(&str, usize)] = &[
    ("SELECT a FROM kept WHERE a = $1", 1),
    ("SELECT * FROM kept WHERE a < $1 AND b <> $2 ORDER BY 1", 2),
    ("SELECT * FROM kept WHERE b IS NOT NULL ORDER BY a, b", 0),
    ("UPDATE kept SET a = $1 WHERE a = $2", 2),
    ("INSERT INTO kept (a) VALUES ($1)", 1),
    ("UPDATE kept SET a = a WHERE a = $1 RETURNING a", 1),
    ("SELECT count(*) FROM kept WHERE a = $1::int", 1),
];

const CHANGES: &[&str] = &[
    "ALTER TABLE kept ALTER a TYPE text",
    "ALTER TABLE kept ALTER a TYPE bigint",
    "ALTER TABLE kept ADD c int",
    "ALTER TABLE kept DROP b",
    "ALTER TABLE kept DROP a, ADD a real",
    "ALTER TABLE kept RENAME a TO c",
    "DROP TABLE kept; CREATE TABLE kept (b text, a numeric)",
];

/// The ways in which a client parses a statement and uses it, in one batch or in several.
type Way = fn(name: &str, sql: &str, values: &[Option<&str>]) -> Vec<Script>;

const WAYS: &[Way] = &[
    |name, sql, values| vec![s().parse(name, sql).bind(name, values).execute().sync()],
    |name, sql, values| vec![s().parse(name, sql).describe(name).bind(name, values).execute().sync()],
    |name, sql, values| vec![s().parse(name, sql).describe(name).sync(), s().bind(name, values).execute().sync()],
    |name, sql, values| vec![s().parse(name, sql).bind(name, values).describe_portal("").execute().sync()],
    |name, sql, values| vec![s().parse(name, sql).sync(), s().bind(name, values).execute().sync()],
    |name, sql, values| {
        let all = s().parse(name, sql).bind(name, values).describe_portal("").execute().sync();
        vec![all, s().bind(name, values).execute().sync()]
    },
    |name, sql, values| vec![s().parse(name, sql).describe(name).flush().bind(name, values).execute().sync()],
];

/// Without the extension, the pool answers a Parse as a server has within the last second.
const UNSEEN_MAX: Duration = Duration::from_secs(1);

/// Each client's own Parse comes behind the change, whoever has shared the statement before.
fn what_is_parsed_behind_a_change_means_what_it_means_then(case: Case) {
    beside(case, &[&[]], |b| {
        for change in CHANGES {
            b.past_the_pool(&format!("DROP TABLE IF EXISTS kept; {MADE}"));
            thread::sleep(UNSEEN_MAX);
            says_all(b);
            b.past_the_pool(change);
            thread::sleep(UNSEEN_MAX);
            says_all(b);
        }
    });
}

/// A client's Parse came before the change: what it was told, or has used, is what it has, whatever others have shared.
fn what_was_parsed_before_a_change_means_what_it_meant(case: Case) {
    beside(case, &[&[]], |b| {
        for change in CHANGES {
            b.past_the_pool(&format!("DROP TABLE IF EXISTS kept; {MADE}"));
            thread::sleep(UNSEEN_MAX);
            b.clients(&vec![&[][..]; 1 + 2 * SHARED.len()]);
            for (place, (sql, parameters)) in SHARED.iter().enumerate() {
                let values = &[Some("1"), Some("2")][..*parameters];
                let (told, used) = (1 + 2 * place, 2 + 2 * place);
                b.says(0, &s().parse(&format!("q{place}"), sql).describe(&format!("q{place}")).sync());
                b.says(told, &s().parse("q", sql).describe("q").sync());
                b.says(used, &s().parse("q", sql).bind("q", values).execute().sync());
            }
            b.past_the_pool(change);
            for _ in 0..2 {
                for (place, (_, parameters)) in SHARED.iter().enumerate() {
                    let values = &[Some("1"), Some("2")][..*parameters];
                    for client in [1 + 2 * place, 2 + 2 * place] {
                        b.says(client, &s().bind("q", values).execute().sync());
                        b.says(client, &s().describe("q").sync());
                    }
                }
            }
        }
    });
}

/// PL/pgSQL keeps what it has compiled to a session's end: that of others is not for those who come later.
fn functions_that_others_ran_before_a_change(case: Case) {
    beside(case, &[&[], &[]], |b| {
        b.past_the_pool(
            "CREATE TABLE prices (id int, b text); INSERT INTO prices VALUES (1, 'x'); GRANT ALL ON prices TO app; \
             ALTER TABLE prices OWNER TO app; \
             CREATE FUNCTION price(i int) RETURNS text LANGUAGE plpgsql AS \
             $$DECLARE r prices; BEGIN SELECT * INTO r FROM prices WHERE id = i; RETURN r.b; END$$",
        );
        for change in [
            "ALTER TABLE prices ALTER b TYPE varchar(20)",
            "ALTER TABLE prices ADD c int",
            "BEGIN; ALTER TABLE prices ALTER b TYPE text; COMMIT",
        ] {
            b.on_each_server(0, 1, &s().query("SELECT price(1)"));
            b.clients(&[&[], &[]]);
            b.query(1, change);
            b.clients(&[&[], &[]]);
            b.on_each_server(0, 1, &s().query("SELECT price(1)"));
        }
    });
}

/// New clients prepare and use all texts, in all ways, by a name and without.
fn says_all(b: &mut Beside) {
    for (sql, parameters) in SHARED {
        let values = &[Some("1"), Some("2")][..*parameters];
        for (name, way) in ["", "q"].into_iter().flat_map(|name| WAYS.iter().map(move |way| (name, way))) {
            b.clients(&[&[]]);
            for batch in way(name, sql, values) {
                b.says(0, &batch);
            }
            // And what has been prepared so goes on as it is.
            if !name.is_empty() {
                b.says(0, &s().bind(name, values).execute().sync());
                b.says(0, &s().describe(name).sync());
            }
        }
    }
}
