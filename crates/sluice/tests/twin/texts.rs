//! Texts that are not what they seem, and what nobody reads of them: each as a script that is run beside PostgreSQL.

use sluice_testkit::{Case, matrix};

use crate::beside::{Startup, beside, query_of, s};

matrix!(transaction:
    explained_statements_run,
    names_of_users_functions,
    names_that_are_keywords_elsewhere,
    characters_that_look_like_escapes,
    customs_that_are_hard_to_read,
    seeds_that_are_hard_to_see,
    remarks_on_a_parse,
    commented_commands,
    backslashes_in_literals,
    unicode_escapes,
    times_in_escapes,
);

/// Two clients after each other on the same server: the second is told what it was told before.
const ASKS: &str = "SELECT current_setting('work_mem'), pg_try_advisory_lock(42), pg_advisory_unlock(42), \
                    current_setting('app.tenant', true), current_setting('app.größe', true)";

fn explained_statements_run(case: Case) {
    beside(case, &[&[], &[], &[]], |b| {
        b.query(0, "BEGIN READ WRITE");
        for sql in [
            "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) (SELECT set_config('work_mem','1234kB',false))",
            "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ((SELECT set_config('app.tenant','a',false)))",
            "EXPLAIN ANALYZE (SELECT pg_advisory_lock(42) WHERE false)",
        ] {
            // Its times differ.
            let ran = s().query(&format!("DO $$ BEGIN EXECUTE '{}'; END $$", sql.replace('\'', "''")));
            b.says(1, &ran);
            b.query(2, ASKS);
            b.query(1, "DISCARD ALL");
            for raw in [&mut b.pooled[1], &mut b.alone[1]] {
                raw.send(&s().query(sql));
                raw.until_ready(1);
            }
            b.query(2, ASKS);
            b.query(1, ASKS);
            b.query(1, "DISCARD ALL");
        }
        b.query(0, "COMMIT");
    });
}

fn names_of_users_functions(case: Case) {
    let body = "RETURNS text LANGUAGE sql AS $$ SELECT set_config('work_mem', '1234kB', false) $$";
    beside(case, &[&[], &[], &[]], |b| {
        b.query(1, &format!("CREATE SCHEMA version; CREATE FUNCTION version.version() {body}"));
        b.query(1, &format!("CREATE FUNCTION isnull(int) {body}"));
        b.query(0, "BEGIN READ WRITE");
        for sql in ["SELECT version.version()", "SELECT isnull(1)", "SELECT version . \"version\" ()"] {
            b.query(1, sql);
            b.query(2, ASKS);
            b.query(1, "RESET work_mem");
        }
        b.query(0, "COMMIT");
    });
}

fn names_that_are_keywords_elsewhere(case: Case) {
    let sets = |name: &str, kind: &str| {
        format!(
            "CREATE FUNCTION {name}(int) RETURNS {kind} LANGUAGE sql AS \
             $$ SELECT (set_config('work_mem', '1234kB', false) = '')::int::{kind} $$"
        )
    };
    beside(case, &[&[], &[], &[]], |b| {
        for (name, kind) in [
            ("materialized", "bool"),
            ("conflict", "bool"),
            ("\"filter\"", "int"),
            ("\"over\"", "int"),
            ("\"join\"", "int"),
            ("\"cube\"", "int"),
        ] {
            b.query(1, &sets(name, kind));
        }
        b.query(1, "CREATE TABLE t (i int PRIMARY KEY); INSERT INTO t VALUES (1)");
        b.query(0, "BEGIN READ WRITE");
        for sql in [
            "SELECT NOT materialized(1)",
            "SELECT x.i FROM t x JOIN t y ON conflict(1)",
            "INSERT INTO t SELECT 2 FROM t x JOIN t y ON conflict(1) WHERE true ON CONFLICT (i) DO NOTHING",
            "SELECT x.i FROM t x JOIN t y ON conflict(1) WHERE true UNION SELECT 3 DO",
            "SELECT DISTINCT ON (1) filter(1)",
            "SELECT DISTINCT ON (1) over(1)",
            "SELECT DISTINCT ON (1) join(1)",
            "SELECT 1 BETWEEN SYMMETRIC join(1) AND 2",
            "SELECT 1 FETCH FIRST join(1) + 1 ROWS ONLY",
            "SELECT 1 FETCH FIRST join(1) ROWS ONLY",
            "SELECT i FROM t ORDER BY cube(1), i",
            "SET transaction.tenant = 'a'",
            "SET constraints.tenant = 'a'",
        ] {
            b.query(1, sql);
            b.query(2, ASKS);
            b.query(
                2,
                "SELECT current_setting('transaction.tenant', true), current_setting('constraints.tenant', true)",
            );
            b.query(1, "DISCARD ALL");
        }
        b.query(0, "COMMIT");
        // Each keeps its server, which leaves one for the two others.
        for sql in [
            "SELECT 1 AS insert INTO TEMP tt",
            "SELECT 1 merge INTO TEMP tt",
            "SELECT i insert INTO TEMP tt FROM t",
            "WITH x AS (SELECT 1) SELECT (1) insert INTO TEMP tt",
        ] {
            b.query(1, sql);
            b.query(2, "SELECT to_regclass('pg_temp.tt') IS NULL");
            b.query(0, "BEGIN READ WRITE");
            b.query(0, "SELECT to_regclass('pg_temp.tt') IS NULL");
            b.query(1, "TABLE tt");
            b.query(0, "COMMIT");
            b.query(1, "DISCARD ALL");
        }
    });
}

fn characters_that_look_like_escapes(case: Case) {
    let sjis: &[(&str, &str)] = &[("client_encoding", "SJIS")];
    beside(case, &[&[], sjis, &[]], |b| {
        b.query(0, "BEGIN READ WRITE");
        b.says(1, &query_of(b"SELECT length(E'\x95\x5c'), set_config('work_mem','99kB',false) --'"));
        b.query(2, ASKS);
        b.query(1, "SHOW work_mem");
        b.says(
            1,
            &query_of(b"CREATE FUNCTION \x95\x5c(int) RETURNS int LANGUAGE sql AS $$SELECT setseed(0.5); SELECT 1$$"),
        );
        b.says(1, &query_of(b"SELECT \x95\x5c(1)"));
        b.query(0, "COMMIT");
    });
}

fn customs_that_are_hard_to_read(case: Case) {
    const SET_CONFIG: u32 = 2078;
    let long = "application_context_of_the_service.current_tenant_identifier_value";
    let part = "p".repeat(70);
    let cut = &part[..63];
    let filler = "x".repeat(40_000);
    let german = "app.größe";
    let asks = s().unnamed(
        &format!(
            "SELECT current_setting('{long}', true), current_setting('app.{part}', true), \
             current_setting('app.{cut}', true), current_setting('{german}', true), current_setting('app.fc', true), \
             current_setting('app.longq', true), current_setting('app.tenant', true)"
        ),
        &[],
    );
    let asks = asks.sync();
    let by_parameters = |name: &str, value: &str| {
        s().unnamed("SELECT length(set_config($1, $2, false))", &[Some(name), Some(value)]).sync()
    };
    let acts = [
        s().query(&format!("SET {long} = 'a'")),
        s().query(&format!("SET app.{part} = 'a'")),
        s().query(&format!("SELECT set_config('app.{part}', 'a', false)")),
        s().query(&format!("SET {german} = 'a'")),
        by_parameters(german, "a"),
        by_parameters(long, "a"),
        by_parameters(&format!("app.{}", "t".repeat(61)), "a"),
        by_parameters("app.tenant", &filler),
        s().query("SELECT set_config('app.' || 'tenant', 'a', false)"),
        s().query("SELECT set_config(E'app\\x2etenant', 'a', false)"),
        s().call(SET_CONFIG, &[b"app.fc", b"a", b"\0"]),
        s().query(&format!("SELECT length('{filler}'); SET app.longq = 'a'")),
    ];
    for act in &acts {
        beside(case, &[&[], &[], &[]], |b| {
            b.query(0, "BEGIN READ WRITE");
            b.says(1, act);
            b.says(1, &asks);
            b.query(0, "COMMIT");
            b.query(0, "SELECT 1");
            b.says(2, &asks);
            b.says(1, &asks);
            b.query(1, "BEGIN READ WRITE");
            b.says(2, &asks);
            b.says(1, &asks);
            b.query(1, "COMMIT");
            b.query(1, "RESET ALL");
            b.says(1, &asks);
        });
    }
}

fn seeds_that_are_hard_to_see(case: Case) {
    const SETSEED: u32 = 1599;
    let long = format!("SELECT length('{}'); SELECT setseed(0.5)", "x".repeat(40_000));
    for act in [s().call(SETSEED, &[&0.5_f64.to_be_bytes()]), s().query(&long)] {
        beside(case, &[&[], &[], &[]], |b| {
            b.query(0, "BEGIN READ WRITE");
            b.says(1, &act);
            let own = b.query(1, "SELECT random()");
            b.query(0, "COMMIT");
            for _ in 0..4 {
                for raw in [&mut b.pooled[2], &mut b.alone[2]] {
                    raw.send(&s().query("SELECT random() = 0.9851677175347999, random()"));
                    let said = raw.until_ready(1);
                    let said = sluice_testkit::raw::transcript(&said);
                    assert!(!own.contains("D()") && said.contains("D(f,"), "{said}");
                }
            }
            b.query(1, "SELECT random()");
        });
    }
}

fn remarks_on_a_parse(case: Case) {
    let remarked = format!("SELECT 1 AS \"{}\"", "a".repeat(70));
    let quiet: &[(&str, &str)] = &[("client_min_messages", "error")];
    beside(case, &[&[], &[], quiet], |b| {
        b.says(2, &s().parse("q", &remarked).sync());
        for client in [0, 0, 0, 0, 1, 2, 2, 2] {
            let said = b.says(client, &s().unnamed(&remarked, &[]).sync());
            assert_eq!(said.contains("N("), client != 2, "{said}");
        }
        for client in [0, 1] {
            let said = b.says(client, &s().parse("q", &remarked).sync());
            assert!(said.contains("N("), "{said}");
            b.on_each_server(client, 2, &s().bind("q", &[]).execute().sync());
        }
    });
}

fn commented_commands(case: Case) {
    let trace = "/*traceparent='00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01',route='%2Fpolls'*/".repeat(4);
    beside(case, &[&[], &[]], |b| {
        for command in ["DEALLOCATE q -- done", "/* app */ DEALLOCATE q", "DEALLOCATE \"q\" /* one /* two */ */;"] {
            for command in [command.to_owned(), format!("{command}\n{trace}")] {
                let prepare = s().parse("q", "SELECT 1").sync();
                let run = s().bind("q", &[]).execute().sync();
                b.says(0, &prepare);
                b.query(0, &command);
                b.says(0, &run);
                b.says(0, &prepare);
                b.says(0, &s().unnamed(&command, &[]).sync());
                b.says(0, &run);
                b.says(0, &prepare);
                b.query(0, &command);
            }
        }
        for text in ["BEGIN /* one */", "SELECT 1", "-- two\nCOMMIT", "/* so */ BEGIN", "x", "/* 1 */ ROLLBACK -- 2"] {
            b.query(0, text);
        }
        b.says(0, &s().parse("q", "SELECT 1").sync());
        b.query(0, &format!("DISCARD ALL {trace}"));
        b.says(0, &s().bind("q", &[]).execute().sync());
    });
}

fn backslashes_in_literals(case: Case) {
    let asks = "SELECT current_setting('app.tenant', true), current_setting('app.user', true), $$'\\$$";
    let escaping: Startup<'_> = &[("options", "-c standard_conforming_strings=off -c escape_string_warning=off")];
    for start in [&[][..], escaping] {
        beside(case, &[&[], start, &[]], |b| {
            b.query(0, "BEGIN READ WRITE");
            for act in [
                r"SELECT 'C:\temp'; SET app.tenant = 'secret'",
                r"SELECT set_config('app.user', 'DOM\alice', false), set_config('app.tenant', 't1', false)",
                r"SELECT 'a\', set_config('app.tenant', 'other', false) --', set_config('app.user', 'other', false)",
                r"SET standard_conforming_strings = off; SELECT 'it\'s'; SELECT set_config('app.user', 'o\'o', false)",
                "SELECT E'a'\n'b\\', set_config('app.tenant', 'E', false) --', set_config('app.user', 'E', false)",
            ] {
                b.clients(&[&[], start, &[]]);
                b.query(0, "BEGIN READ WRITE");
                b.query(1, act);
                b.query(2, asks);
                b.query(1, asks);
                b.says(2, &s().unnamed(asks, &[]).sync());
                b.says(1, &s().unnamed(act, &[]).sync());
                b.query(2, asks);
                b.query(1, asks);
                b.query(0, "COMMIT");
            }
        });
    }
}

fn unicode_escapes(case: Case) {
    let off: Startup<'_> = &[("options", "-c standard_conforming_strings=off")];
    beside(case, &[&[], &[], &[], off], |b| {
        // They tie nobody to a server: there are two for three clients, and a refusal once more of them are kept.
        for text in [
            r"SELECT U&'\0041' AS letter, U&'it''s!' UESCAPE '!'",
            r"SELECT U&'d!0061ta' /* so */ UESCAPE '!' AS dat, U&'a' || U&'\+01F600' || U&'\d83d\de00'",
            "SELECT U&'\\0041'\n'\\0042' AS letters",
            r#"SELECT U&"s\0065t_config"('work_mem', '17MB', false)"#,
            r#"SELECT U&"pg_catalog".U&"set_confi!0067" UESCAPE '!'(U&'app\002etenant', U&'\0062', false)"#,
            r#"SET U&"w\006frk_mem" = U&'18MB'"#,
            r#"SET U&"app".U&"t\0065nant" = 'c'"#,
            r#"RESET U&"work_m\0065m""#,
            r"SELECT U&'\00'",
            r"SELECT U&'\0000'",
            "SELECT U&'a' UESCAPE 'b'",
            "SELECT U&'a' UESCAPE x; SET work_mem = '19MB'",
            "SELECT U&'open",
        ] {
            for client in [0, 1, 2, 3, 1] {
                b.query(client, text);
                b.query(client, ASKS);
                b.says(client, &s().unnamed(text, &[]).sync());
                b.query(client, ASKS);
            }
        }
        b.query(3, "SET standard_conforming_strings = on");
        b.query(3, r"SELECT 'a\', U&'\0041'; SET work_mem = '20MB'");
        b.query(3, ASKS);
        // Names of statements, of the protocol and of SQL.
        b.says(1, &s().parse("A", "SELECT 1 AS one").sync());
        for text in [r#"EXECUTE U&"\0041""#, r#"DEALLOCATE U&"\0041""#, r#"PREPARE U&"\0041" AS SELECT 2"#] {
            b.query(1, text);
            b.says(1, &s().bind("A", &[]).execute().sync());
        }
        b.query(1, "DEALLOCATE ALL");
    });
}

fn times_in_escapes(case: Case) {
    beside(case, &[&[], &[]], |b| {
        // Both servers are there: nobody waits for one, and takes that of the client which keeps its own.
        b.query(0, "BEGIN READ WRITE");
        b.query(1, "SELECT 1");
        b.query(0, "COMMIT");
        for text in [
            "SELECT 'now'::timestamptz = now()",
            r"SELECT U&'n\006fw'::timestamptz = now()",
            "SELECT U&'n!006fw' UESCAPE '!'::timestamptz = now()",
            r"SELECT E'n\x6fw'::timestamptz = now()",
            r"SELECT E'\156o\u0077'::timestamptz = now()",
        ] {
            b.says(1, &s().parse("now", text).bind("now", &[]).execute().sync());
            b.on_each_server(1, 0, &s().bind("now", &[]).execute().sync());
            b.says(0, &s().parse("now", text).bind("now", &[]).execute().sync());
            b.says(0, &s().close("now").sync());
            b.says(1, &s().close("now").sync());
        }
    });
}
