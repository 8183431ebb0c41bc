//! Random statements, after each of which what the session has been told is what the server's own views say.

use sluice_testkit::{Random, Version, versions};

use crate::{
    server::{Gate, run},
    session::Session,
};

versions!(reports_agree_with_the_views);

const SESSIONS: u64 = 25;
const STATEMENTS: usize = 60;

const STATEMENT: &[&str] = &[
    "BEGIN",
    "BEGIN",
    "BEGIN",
    "COMMIT",
    "COMMIT",
    "ROLLBACK",
    "COMMIT AND CHAIN",
    "SAVEPOINT s",
    "SAVEPOINT s",
    "ROLLBACK TO s",
    "RELEASE s",
    "SELECT 1/0",
    "SELECT 1",
    "SET app.a = '1'",
    "SET app.a = '2'",
    "SET LOCAL app.a = '3'",
    "RESET app.a",
    "SET work_mem = '5MB'",
    "SET LOCAL work_mem = '6MB'",
    "RESET work_mem",
    "SET work_mem = DEFAULT",
    "SET enable_sort = off",
    "SET search_path = \"$user\", public, other",
    "SET TIME ZONE 'Europe/Berlin'",
    "SELECT set_config('app.b', '7', false)",
    "SELECT set_config('app.b', '8', true)",
    "SELECT set_config('work_mem', '7MB', false)",
    "UPDATE pg_settings SET setting = 'off' WHERE name = 'enable_hashjoin'",
    "SELECT set_and_fail()",
    "SELECT set_both()",
    "SELECT set_inside()",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    "SET ROLE app",
    "RESET ROLE",
    "RESET ALL",
    "DISCARD ALL",
    "DISCARD TEMP",
    "DISCARD SEQUENCES",
    "DISCARD PLANS",
    "CREATE TEMP TABLE t (a serial)",
    "CREATE TEMP TABLE u ON COMMIT DROP AS SELECT 1 AS a",
    "CREATE TEMP VIEW v AS SELECT * FROM u",
    "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "DROP TABLE t",
    "DROP FUNCTION pg_temp.f",
    "INSERT INTO t DEFAULT VALUES",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_advisory_xact_lock(2)",
    "SELECT pg_advisory_unlock(1)",
    "SELECT pg_advisory_unlock_all()",
    "LISTEN a",
    "LISTEN b",
    "UNLISTEN a",
    "UNLISTEN *",
    "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
    "DECLARE c CURSOR FOR SELECT 1",
    "DECLARE d CURSOR WITH HOLD FOR SELECT set_config('app.c', '9', false)",
    "FETCH c",
    "CLOSE c",
    "CLOSE ALL",
    "PREPARE p AS SELECT set_config('app.d', $1, false)",
    "PREPARE q AS SELECT 1",
    "EXECUTE p('10')",
    "EXECUTE q",
    "DEALLOCATE p",
    "DEALLOCATE ALL",
    "SELECT nextval('s')",
    "SELECT setval('s', 1)",
    "INSERT INTO kept (b) VALUES (1)",
    "CALL commits()",
    "CALL rolls_back()",
    "BEGIN; SET app.a = '11'; COMMIT",
    "BEGIN; SET app.a = '12'; SELECT 1/0; COMMIT",
    "SET app.a = '13'; SELECT 1/0",
    "SET app.a = '14'; COMMIT; BEGIN; SET app.b = '15'",
];

const FUNCTIONS: &str = "
    CREATE SEQUENCE s;
    CREATE TABLE kept (a int GENERATED ALWAYS AS IDENTITY, b int);
    CREATE FUNCTION set_and_fail() RETURNS void LANGUAGE plpgsql AS $$
      BEGIN
        SET app.a = '20';
        BEGIN SET app.a = '21'; PERFORM 1/0; EXCEPTION WHEN division_by_zero THEN SET app.b = '22'; END;
      END $$;
    CREATE FUNCTION set_both() RETURNS void LANGUAGE plpgsql AS $$
      DECLARE x text;
      BEGIN SET LOCAL app.a = '23'; x := set_config('app.b', '24', false); END $$;
    CREATE FUNCTION set_inside() RETURNS void LANGUAGE plpgsql SET work_mem = '8MB' AS $$ BEGIN SET app.a = '25'; END $$;
    CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$
      BEGIN SET app.a = '26'; PERFORM pg_advisory_lock(3); COMMIT; SET app.a = '27'; ROLLBACK; RESET app.b; END $$;
    CREATE PROCEDURE rolls_back() LANGUAGE plpgsql AS $$
      BEGIN SET app.a = '28'; CREATE TEMP TABLE t (a serial); ROLLBACK; SET app.b = '29'; END $$;
    CREATE FUNCTION has_last_value() RETURNS boolean LANGUAGE plpgsql AS $$
      BEGIN PERFORM lastval(); RETURN true; EXCEPTION WHEN object_not_in_prerequisite_state THEN RETURN false; END $$;";

/// The views' account of a session, in the words of a report with its names and values in plain text; before it
/// stands whether a sequence was used.
const VIEWS: &str = "
    SELECT public.has_last_value()::int || concat(
      (SELECT 'pins=' || string_agg(pin, ',' ORDER BY n) || ' ' FROM (VALUES
        (1, 'temp', EXISTS (SELECT FROM pg_class WHERE relnamespace = pg_my_temp_schema() UNION ALL
                            SELECT FROM pg_proc WHERE pronamespace = pg_my_temp_schema())),
        (2, 'lock', EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())),
        (3, 'listen', EXISTS (SELECT FROM pg_listening_channels())),
        (4, 'cursor', EXISTS (SELECT FROM pg_cursors WHERE is_holdable)),
        (5, 'prepare', EXISTS (SELECT FROM pg_prepared_statements WHERE from_sql))) v (n, pin, holds)
       WHERE holds),
      (SELECT 'set=' || string_agg(name || ':' || value, ',' ORDER BY name COLLATE \"C\") FROM
        (SELECT name, setting FROM pg_settings
         WHERE source = 'session' AND name NOT LIKE 'transaction\\_%'
         UNION ALL
         SELECT name, current_setting(name, true)
         FROM (VALUES ('app.a'), ('app.b'), ('app.c'), ('app.d'), ('role')) v (name)
         WHERE current_setting(name, true) NOT IN ('', 'none')) settings (name, value)))";

fn reports_agree_with_the_views(version: Version) {
    let gate = Gate::new(version, &[]);
    run(&mut gate.session(), FUNCTIONS);
    let mut compared = 0;
    for seed in 1..=SESSIONS {
        let mut random = Random::new(seed);
        let mut session = Session::new(&gate);
        let mut done = Vec::new();
        for _ in 0..STATEMENTS {
            let statement = STATEMENT[random.below(STATEMENT.len())];
            let said = session.run(statement);
            done.push(statement);
            if !said.ends_with("Z(I)") {
                continue;
            }
            // Sequences may be told of in vain, but never be left out.
            let told = session.held.clone();
            let views = session.value(VIEWS);
            let (has_sequence, views) = views.split_at(1);
            assert_eq!(session.held, told, "looking changes nothing");
            // No view counts DEALLOCATEs.
            let counted = told.split(' ').filter(|field| !field.starts_with("deallocated=")).collect::<Vec<_>>();
            let without_sequence = counted.join(" ").replace(",sequence", "").replace("pins=sequence", "");
            assert_eq!(without_sequence.trim(), views.trim(), "seed {seed}: {done:#?}");
            assert!(has_sequence == "0" || told.contains("sequence"), "seed {seed}: {done:#?}");
            compared += 1;
        }
    }
    assert!(compared > 300, "{compared}");
}
