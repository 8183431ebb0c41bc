//! Differences from PostgreSQL that reviewers once found by hand, by the numbers they gave them, each as a script that is
//! run beside PostgreSQL: by clients of a pool of two servers, and by the same clients with connections of their own.
//!
//! | number | what was found | where else it is tested |
//! |---|---|---|
//! | 1 to 13 | wrong answers, leaks, and what differs in the protocol | here |
//! | none | what was found later | `later.rs` |
//! | 14, 15, 16 | memory and servers without a bound | `tests/pool/bounds.rs`, `tests/scripts/bounds.rs` of the core |
//! | 17 | look-ups of secrets that wait for each other | `tests/pool/bounds.rs`, `look_ups_do_not_wait_for_each_other` |
//! | 18 | a registry that walks while it is locked | `statement.rs` of the core, `a_registry_stays_bounded_and_keeps_what_clients_hold` |
//! | 19 | the age of a secret, compared in two ways | `secrets.rs` of the core |

use sluice_testkit::{Case, Script, matrix};
use sluice_wire::{FrontendKind, message::framed};

use crate::beside::{Beside, Startup, beside, query_of, s};

matrix!(transaction:
    case_01_literals_under_other_settings,
    case_02_types_that_have_changed,
    case_03_literals_of_their_time,
    case_04_tables_that_have_come_since,
    case_05_unnamed_statements_after_ddl_and_for_tenants,
    case_06_unnamed_statements_in_a_transaction_with_ddl,
    case_07_names_of_statements,
    case_08_function_calls,
    case_09_what_hides_in_a_text,
    case_10_time_outs_of_others,
    case_11_settings_in_other_encodings,
    case_12_a_copy_that_fails_behind_a_sync,
    case_13_malformed_and_out_of_order,
);

fn case_01_literals_under_other_settings(case: Case) {
    let new_york: Startup<'_> = &[("TimeZone", "America/New_York"), ("DateStyle", "ISO, DMY")];
    let sql = "SELECT extract(epoch FROM timestamptz '2024-06-01 00:00')::int8, date '01/02/2024', $1::int";
    let unnamed = s().unnamed(sql, &[Some("1")]).sync();
    let run = s().bind("q", &[Some("1")]).execute().sync();
    beside(case, &[&[("TimeZone", "UTC")], new_york, &[]], |b| {
        for client in [0, 0, 0, 1, 1, 0, 1] {
            let answer = b.says(client, &unnamed);
            assert!(answer.contains(["D(1717200000,2024-01-02,1)", "D(1717214400,2024-02-01,1)"][client]), "{answer}");
        }
        for client in [0, 1] {
            b.says(client, &s().parse("q", sql).sync());
        }
        // One client after its own SET: what it prepared before keeps its meaning, wherever it runs.
        b.query(0, "SET TimeZone = 'America/New_York'; SET DateStyle = 'DMY'");
        assert!(b.says(0, &unnamed).contains("D(1717214400,2024-02-01,1)"));
        b.on_each_server(0, 2, &run);
        assert!(b.says(0, &run).contains("D(1717200000,2024-01-02,1)"));
        b.says(0, &s().close("q").parse("q", sql).bind("q", &[Some("1")]).execute().sync());
        // Behind a SET LOCAL, too.
        b.query(1, "BEGIN; SET LOCAL TimeZone = 'Asia/Tokyo'; SET LOCAL DateStyle = 'MDY'");
        b.says(1, &unnamed);
        b.says(1, &run);
        b.query(1, "ROLLBACK");
        b.says(1, &unnamed);
        b.says(1, &run);
    });
    // Also on a server that has not seen it yet.
    beside(case, &[&[], &[], &[]], |b| {
        let holds = |b: &mut Beside, client| b.query(client, "BEGIN READ WRITE");
        holds(b, 1);
        b.says(0, &s().parse("q", sql).parse("n", "SELECT 1 = NULL").sync());
        holds(b, 2);
        b.query(1, "COMMIT");
        b.query(0, "BEGIN; SET LOCAL TimeZone = 'Asia/Tokyo'; SET LOCAL DateStyle = 'DMY'; SET LOCAL transform_null_equals = on");
        b.says(0, &run);
        b.says(0, &s().bind("n", &[]).execute().sync());
        b.query(0, "SHOW DateStyle; SHOW TimeZone; SHOW transform_null_equals; COMMIT");
        b.says(0, &run);
    });
    const SETTINGS: [(&str, &str, &str); 9] = [
        ("IntervalStyle", "sql_standard", "SELECT interval '-1 2:03:04', $1::int"),
        ("standard_conforming_strings", "off", "SELECT 'a\\nb', $1::int"),
        ("client_encoding", "LATIN1", "SELECT 'é', length('é'), $1::int"),
        ("transform_null_equals", "on", "SELECT 1 = NULL, $1::int"),
        ("extra_float_digits", "0", "SELECT float8 '0.1' + float8 '0.2', $1::int"),
        ("bytea_output", "escape", "SELECT bytea '\\x4100', $1::int"),
        ("xmloption", "document", "SELECT pg_typeof($1::int)"),
        ("array_nulls", "off", "SELECT $1::int, '{NULL}'::text[]"),
        ("search_path", "pg_catalog", "SELECT to_regclass('pg_class'), $1::int, 'public'::regnamespace"),
    ];
    beside(case, &[], |b| {
        for (setting, value, sql) in SETTINGS {
            b.clients(&[&[], &[], &[]]);
            let unnamed = s().unnamed(sql, &[Some("1")]).sync();
            let named = s().bind("q", &[Some("1")]).execute().sync();
            for client in [0, 1, 0, 1] {
                b.says(client, &unnamed);
            }
            b.says(0, &s().parse("q", sql).sync());
            b.query(0, &format!("SET {setting} = {value}"));
            for client in [0, 1, 0, 0, 1] {
                b.says(client, &unnamed);
            }
            b.on_each_server(0, 2, &named);
            b.query(0, &format!("RESET {setting}"));
            b.says(0, &unnamed);
            b.on_each_server(0, 2, &named);
        }
    });
}

fn case_02_types_that_have_changed(case: Case) {
    // 250 as an int8, in binary.
    let mut bound = Vec::new();
    framed(&mut bound, FrontendKind::Bind, |out| {
        out.extend_from_slice(b"\0q\0\0\x01\0\x01\0\x01\0\0\0\x08");
        out.extend_from_slice(&250_i64.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
    });
    let insert = Script(bound).execute().sync();
    for describe in [false, true] {
        beside(case, &[&[], &[], &[]], |b| {
            b.query(1, "CREATE TABLE numbers (n int8)");
            let parse = s().parse("q", "INSERT INTO numbers VALUES ($1)");
            b.says(0, &if describe { parse.describe("q").sync() } else { parse.sync() });
            b.says(0, &insert);
            b.query(1, "ALTER TABLE numbers ALTER n TYPE double precision");
            b.on_each_server(0, 2, &insert);
            b.query(1, "SELECT n FROM numbers");
            // A client that prepares it now has another one.
            b.says(1, &s().parse("q", "INSERT INTO numbers VALUES ($1)").describe("q").sync());
        });
    }
}

fn case_03_literals_of_their_time(case: Case) {
    let sql = "SELECT 'now'::timestamptz = transaction_timestamp(), 'today'::date = current_date, \
               'tomorrow'::date - 'yesterday'::date, $1::int";
    let unnamed = s().unnamed(sql, &[Some("1")]).sync();
    beside(case, &[&[], &[]], |b| {
        for client in [0, 1, 0, 1, 0] {
            assert!(b.says(client, &unnamed).contains("D(t,t,2,1)"));
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        b.query(0, "BEGIN");
        b.says(0, &unnamed);
        b.says(0, &unnamed);
        b.query(0, "COMMIT");
        // By name it is that of its Parse, in every later transaction.
        b.says(0, &s().parse("q", sql).sync());
        b.says(0, &s().bind("q", &[Some("1")]).execute().sync());
    });
}

fn case_04_tables_that_have_come_since(case: Case) {
    let unnamed = s().unnamed("SELECT v, $1::int FROM seen", &[Some("1")]).sync();
    beside(case, &[&[("search_path", "early, public")], &[("search_path", "early, public")]], |b| {
        b.query(0, "CREATE TABLE public.seen AS SELECT 'real' AS v; CREATE SCHEMA early");
        (0..3).for_each(|_| drop(b.says(0, &unnamed)));
        b.query(0, "CREATE TEMP TABLE seen AS SELECT 'temporary' AS v");
        for (client, v) in [(0, "temporary"), (1, "real"), (0, "temporary")] {
            assert!(b.says(client, &unnamed).contains(&format!("D({v},1)")));
        }
        b.query(0, "DROP TABLE seen");
        b.says(0, &unnamed);
        b.query(1, "CREATE TABLE early.seen AS SELECT 'early' AS v");
        for client in [0, 1, 0] {
            assert!(b.says(client, &unnamed).contains("D(early,1)"));
        }
        b.query(1, "BEGIN; ALTER TABLE early.seen RENAME TO unseen");
        b.says(1, &unnamed);
        b.query(1, "ROLLBACK");
        b.says(1, &unnamed);
    });
}

fn case_05_unnamed_statements_after_ddl_and_for_tenants(case: Case) {
    let uuid = "00000000-0000-0000-0000-000000000001";
    let find = |id: &str| s().unnamed("SELECT id, v FROM kept WHERE id = $1", &[Some(id)]).sync();
    beside(case, &[&[("search_path", "five_a")], &[("search_path", "five_b")], &[]], |b| {
        b.query(2, "CREATE SCHEMA five_a; CREATE TABLE five_a.kept (id uuid, v text)");
        b.query(
            2,
            &format!(
                "CREATE SCHEMA five_b; CREATE TABLE five_b.kept (id text, v text); \
             INSERT INTO five_a.kept VALUES ('{uuid}', 'a'); INSERT INTO five_b.kept VALUES ('one', 'b')"
            ),
        );
        for _ in 0..3 {
            b.says(0, &find(uuid));
            b.says(1, &find("one"));
            b.says(1, &find(uuid));
            b.says(0, &find("one"));
        }
        // `text = integer`, if the older one's type were kept.
        b.query(2, "ALTER TABLE five_b.kept ALTER id TYPE int USING 1");
        for client in [1, 0, 1] {
            b.says(client, &find("1"));
        }
        b.query(2, "SET search_path = five_b; DROP TABLE five_b.kept; CREATE TABLE five_b.kept (v text, id date)");
        for client in [2, 1, 2] {
            b.says(client, &find("2024-01-01"));
        }
        b.query(
            2,
            "DROP TABLE five_b.kept; CREATE TYPE five_b.mood AS ENUM ('glad'); \
                    CREATE TABLE five_b.kept (id five_b.mood, v int); INSERT INTO five_b.kept VALUES ('glad', 1)",
        );
        (0..3).for_each(|_| drop(b.says(1, &find("glad"))));
        b.query(
            2,
            "DROP TYPE five_b.mood CASCADE; CREATE TYPE five_b.mood AS ENUM ('sad'); \
                    ALTER TABLE five_b.kept ADD id five_b.mood",
        );
        (0..3).for_each(|_| drop(b.says(1, &find("sad"))));
    });
}

fn case_06_unnamed_statements_in_a_transaction_with_ddl(case: Case) {
    let all = s().unnamed("SELECT * FROM grown WHERE $1::int = 1", &[Some("1")]).sync();
    beside(case, &[&[], &[]], |b| {
        b.query(0, "CREATE TABLE grown AS SELECT 1 AS a");
        for client in [0, 1, 0] {
            b.says(client, &all);
        }
        b.query(0, "BEGIN");
        b.says(0, &all);
        b.query(0, "ALTER TABLE grown ADD b int");
        b.says(0, &all);
        b.query(0, "SAVEPOINT here");
        b.query(0, "ALTER TABLE grown ADD c int");
        b.says(0, &all);
        b.query(0, "ROLLBACK TO here");
        b.says(0, &all);
        b.query(0, "COMMIT");
        // Another client's, before the transaction and within.
        b.query(1, "BEGIN");
        assert!(b.says(1, &all).contains("T(a,b)"));
        b.query(1, "COMMIT");
        b.query(1, "BEGIN ISOLATION LEVEL READ COMMITTED");
        b.query(0, "ALTER TABLE grown ADD d int");
        assert!(b.says(1, &all).contains("T(a,b,d)"));
        b.query(1, "COMMIT");
    });
}

fn case_07_names_of_statements(case: Case) {
    let run = |name: &str| s().bind(name, &[]).execute().sync();
    beside(case, &[&[], &[], &[]], |b| {
        // A name whose Parse fails is free.
        b.query(0, "CREATE TABLE going (a int)");
        let parse = s().parse("q", "SELECT * FROM going").sync();
        b.says(0, &parse);
        b.query(1, "DROP TABLE going");
        b.says(2, &parse);
        b.query(1, "CREATE TABLE going (a int)");
        b.says(2, &parse);
        b.says(2, &parse);
        b.says(2, &run("q"));
        // DEALLOCATE and DISCARD ALL by the extended protocol, in a pipeline, and from a named statement.
        b.says(0, &s().parse("", "DEALLOCATE q").bind("", &[]).execute().sync());
        b.says(0, &run("q"));
        for sql in ["DEALLOCATE ALL", "DISCARD ALL", "DEALLOCATE a"] {
            for name in ["", "d"] {
                b.says(0, &s().parse("a", "SELECT 'a'").sync());
                b.says(0, &s().parse("b", "SELECT 'b'").parse(name, sql).bind(name, &[]).execute().sync());
                b.says(0, &run("a"));
                b.says(0, &run("b"));
                b.until(0, &s().parse("a", "SELECT 'again'").sync().query(sql).then(&run("a")).then(&run("b")), 4);
                b.query(0, "DEALLOCATE ALL");
            }
        }
        // What it is bound to is there up to the block's end, also where no server has seen the block's begin.
        for between in [s().sync(), s().parse("", "SELECT 1").sync(), s().parse("no", "SELECT nothing").sync()] {
            b.says(0, &s().parse("a", "SELECT 'a'").sync());
            b.query(0, "BEGIN");
            b.says(0, &s().parse("", "DEALLOCATE a").bind("", &[]).sync());
            b.says(0, &between);
            b.says(0, &s().describe_portal("").execute().sync());
            b.query(0, "ROLLBACK");
            b.says(0, &run("a"));
            b.query(0, "DEALLOCATE ALL");
        }
        // Nobody can name a statement of the pool's.
        b.query(0, "BEGIN READ WRITE");
        b.says(0, &s().parse("q", "SELECT 7").sync());
        for name in ["sluice_0", "sluice_1", "sluice_00000001_1f"] {
            b.query(1, &format!("DEALLOCATE {name}"));
            b.says(1, &run(name));
        }
        b.says(0, &run("q"));
        b.query(0, "COMMIT");
        // Errors name the client's own.
        b.says(0, &s().parse("mine", "SELECT $1::int").sync());
        let heard = b.says(0, &run("mine"));
        assert!(heard.contains("prepared statement \"mine\" requires 1"), "{heard}");
        b.says(0, &s().parse("mine", "SELECT 1").sync());
        b.says(0, &s().bind("", &[]).execute().sync());
        b.says(0, &s().bind("nowhere", &[]).execute().sync());
    });
}

fn case_08_function_calls(case: Case) {
    const SET_CONFIG: u32 = 2078;
    const LOCK: u32 = 2880;
    const UNLOCK: u32 = 2884;
    let key = 7_i64.to_be_bytes();
    beside(case, &[&[], &[], &[]], |b| {
        b.says(0, &s().call(SET_CONFIG, &[b"work_mem", b"7MB", b"\0"]));
        for client in [1, 0, 2, 0] {
            b.query(client, "SHOW work_mem");
        }
        b.says(0, &s().call(LOCK, &[&key]));
        b.says(0, &s().call(LOCK, &[&key]));
        b.query(1, "SELECT pg_try_advisory_lock(7)");
        for _ in 0..3 {
            b.says(0, &s().call(UNLOCK, &[&key]));
            b.query(1, "SELECT pg_try_advisory_lock(7), pg_advisory_unlock(7)");
        }
        b.query(0, "SHOW work_mem");
    });
}

fn case_09_what_hides_in_a_text(case: Case) {
    let long = format!("SELECT length('{}'); CREATE TEMP TABLE left_behind AS SELECT 1 AS a", "x".repeat(200_000));
    let makes = "CREATE FUNCTION makes() RETURNS text LANGUAGE plpgsql AS \
                 'BEGIN PERFORM set_config(''work_mem'', ''9MB'', false); CREATE TEMP TABLE left_behind AS SELECT 1 AS a; \
                  RETURN ''made''; END'; CREATE PROCEDURE made() LANGUAGE plpgsql AS 'BEGIN PERFORM makes(); END'; \
                 CREATE SEQUENCE numbered; CREATE SEQUENCE lettered START 500";
    let acts = [
        "UPDATE pg_settings SET setting = '8192' WHERE name = 'work_mem'",
        "CREATE TABLE pg_temp.left_behind AS SELECT 1 AS a",
        "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "create/* a comment */temp table left_behind as select 1 as a",
        "CREATE -- another one\nTEMPORARY VIEW left_behind AS SELECT 1 AS a",
        &long,
        "SELECT makes()",
        "CALL made()",
        "DO 'BEGIN PERFORM makes(); END'",
        "SELECT nextval('numbered')",
        "SELECT set_config('work_mem', '6MB', false)",
        "SELECT pg_catalog.set_config(name, '6MB', false) FROM (VALUES ('work_mem')) names (name)",
        "WITH made AS (SELECT set_config('work_mem', '6MB', false)) SELECT * FROM made",
    ];
    beside(case, &[&[]], |b| {
        b.query(0, makes);
        // Where somebody asks for that, what sequences gave is kept from the next use on.
        b.query(0, "SELECT lastval()");
        for act in acts {
            b.clients(&[&[], &[]]);
            b.query(1, "SELECT nextval('lettered')");
            b.query(0, act);
            for client in [1, 0, 1, 0] {
                b.query(client, "SHOW work_mem");
                b.query(client, "SELECT * FROM left_behind");
                b.query(client, "SELECT count(*) FROM pg_proc WHERE pronamespace = pg_my_temp_schema()");
            }
            if act.contains("nextval") {
                for client in [1, 0, 1, 0] {
                    b.query(client, "SELECT lastval(), currval('numbered')");
                }
            }
            b.query(0, "DISCARD ALL");
            for client in [0, 1] {
                b.query(client, "SHOW work_mem");
                b.query(client, "SELECT * FROM left_behind");
            }
        }
    });
}

fn case_10_time_outs_of_others(case: Case) {
    let hasty: Startup<'_> = &[("statement_timeout", "150ms"), ("options", "-c idle_session_timeout=2s")];
    beside(case, &[hasty, &[], &[("options", "-c statement_timeout=20s")]], |b| {
        assert!(b.query(0, "SELECT pg_sleep(0.6)").contains("57014"));
        for client in [1, 2, 1] {
            assert!(b.query(client, "SELECT pg_sleep(0.3)").contains("C(SELECT 1)"));
            b.query(client, "SHOW statement_timeout");
            b.query(client, "SHOW idle_session_timeout");
        }
        std::thread::sleep(std::time::Duration::from_millis(2500));
        for client in [1, 2] {
            b.query(client, "SELECT 1");
        }
    });
}

fn case_11_settings_in_other_encodings(case: Case) {
    // あ in Shift JIS: a schema of that name; and one in LATIN1.
    beside(case, &[], |b| {
        for (encoding, name) in [("SJIS", &b"\x82\xa0"[..]), ("LATIN1", b"gr\xfc\xdfe"), ("EUC_JP", b"\xa4\xa2")] {
            b.clients(&[&[], &[], &[("client_encoding", "LATIN1")]]);
            b.query(0, &format!("SET client_encoding = '{encoding}'"));
            b.says(0, &query_of(&[b"CREATE SCHEMA \"", name, b"\""].concat()));
            b.says(0, &query_of(&[b"SET search_path = \"", name, b"\""].concat()));
            b.says(0, &query_of(&[b"SET application_name = '", name, b"'"].concat()));
            for client in [1, 0, 2, 0, 1] {
                b.query(client, "SHOW search_path");
                b.query(client, "SHOW client_encoding");
                b.query(client, "SELECT current_schema(), $$x$$");
            }
            b.query(2, "BEGIN READ WRITE");
            b.query(0, "SELECT current_schema()");
            b.query(2, "COMMIT");
        }
    });
}

fn case_12_a_copy_that_fails_behind_a_sync(case: Case) {
    beside(case, &[&[], &[]], |b| {
        b.query(0, "CREATE TABLE copied (a int)");
        let copy = s().parse("", "COPY copied FROM STDIN").bind("", &[]).execute().sync();
        let failing = copy.clone().copy_data(b"nonsense\n").copy_done().sync();
        b.until(0, &failing, 1);
        b.query(0, "SELECT count(*) FROM copied");
        let failing = copy.clone().copy_data(b"1\n").copy_fail("no more").sync();
        b.until(0, &failing, 1);
        b.until(0, &copy.copy_data(b"1\n").copy_done().sync(), 1);
        b.query(0, "SELECT count(*) FROM copied");
        b.query(1, "SELECT 1");
        // It fails before it reads anything, and the Sync behind it is not ignored.
        b.query(0, "CREATE VIEW seen AS SELECT 1 AS a");
        b.query(
            0,
            "CREATE FUNCTION refuses() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.05); RAISE ''no''; \
             END'; CREATE TRIGGER refuses BEFORE INSERT ON copied FOR EACH STATEMENT EXECUTE FUNCTION refuses()",
        );
        for table in ["seen", "copied"] {
            let copy = s().parse("", &format!("COPY {table} FROM STDIN")).bind("", &[]).execute().sync();
            b.until(0, &copy, 1);
            b.query(0, "SELECT 1");
            b.until(0, &copy.clone().copy_data(b"1\n").copy_done().sync(), 2);
            b.query(1, "SELECT 2");
            b.query(0, "SELECT 3");
            b.query(0, "BEGIN");
            b.until(0, &copy.clone().copy_data(b"1\n").copy_done().sync(), 2);
            b.query(0, "ROLLBACK");
        }
        b.query(0, "SELECT count(*) FROM copied");
        // One that SQL executes by its name, which the text does not show.
        b.says(0, &s().parse("named", "COPY copied FROM STDIN").sync());
        b.until(0, &s().query("EXECUTE named").sync(), 2);
        b.until(0, &s().unnamed("EXECUTE named", &[]).sync().copy_data(b"1\n").copy_done().sync(), 2);
        b.query(0, "DROP TRIGGER refuses ON copied");
        b.until(0, &s().query("EXECUTE named").copy_data(b"2\n").copy_done().query("SELECT 6"), 2);
        b.query(1, "SELECT 7");
        b.query(0, "SELECT count(*) FROM copied");
    });
}

fn case_13_malformed_and_out_of_order(case: Case) {
    let message = |kind: FrontendKind, body: &[u8]| {
        let mut out = Vec::new();
        framed(&mut out, kind, |out| out.extend_from_slice(body));
        Script(out)
    };
    beside(case, &[&[], &[]], |b| {
        for (kind, body) in [
            (FrontendKind::Close, &b"Xq\0"[..]),
            (FrontendKind::Close, b"Sq"),
            (FrontendKind::Close, b""),
            (FrontendKind::Describe, b"Xq\0"),
            (FrontendKind::Describe, b"P\0more"),
            (FrontendKind::Parse, b"q\0SELECT 1\0\0\x01"),
            (FrontendKind::Bind, b"\0\0\0\0\0\x01"),
            (FrontendKind::Execute, b"\0"),
        ] {
            let bad = message(kind, body);
            b.says(0, &s().parse("", "SELECT 1").then(&bad).sync());
            b.query(0, "SELECT 1");
            b.says(0, &bad.sync());
        }
        // A BEGIN that no server knows of yet has a portal like any other.
        b.query(0, "BEGIN");
        b.says(0, &s().describe_portal("").sync());
        b.query(0, "ROLLBACK");
        b.says(0, &s().parse("", "BEGIN").bind("", &[]).describe_portal("").execute().describe_portal("").sync());
        b.says(0, &s().describe_portal("").sync());
        b.query(0, "ROLLBACK");
        // The first of several errors.
        b.query(0, "BEGIN");
        b.query(0, "SELECT 1 / 0");
        let pipeline = s().parse("", "SELECT 1").sync().parse("", "SELEC").sync().parse("n", "COMMIT").sync();
        b.until(0, &pipeline.bind("n", &[]).execute().sync(), 4);
        b.until(0, &s().unnamed("SELECT 1 / $1::int", &[Some("0")]).parse("", "SELEC").sync().query("SELECT 2"), 2);
        b.says(0, &s().parse("", "SELECT 1").bind("", &[]).close_portal("").execute().sync());
        b.query(1, "SELECT 1");
    });
}
