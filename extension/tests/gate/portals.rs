//! Portals that outlive their statements: PostgreSQL alone may crash on them, with all sessions.

use sluice_testkit::{Raw, Script, TestServer, Version, raw::Message, versions};
use sluice_wire::message::backend;

versions!(what_a_failed_query_leaves_cannot_be_run, a_query_goes_on_behind_an_exception_that_is_caught);

fn what_a_failed_query_leaves_cannot_be_run(version: Version) {
    let server = TestServer::start(version, &[("shared_preload_libraries", "sluice")]);
    let mut witness = server.raw().login("app", "postgres");
    // Texts for which memory is taken that is given back, and such for which it is kept.
    for length in [1, 3_000, 300_000, 3_000_000] {
        let long = "x".repeat(length);
        let columns = "1, ".repeat(length.min(4_500) / 3);
        for query in [
            format!("SELECT '{long}', 1 / (random() * 0)::int"),
            format!("SELECT 1; SELECT '{long}', 1 / (random() * 0)::int; SELECT 2"),
            format!("SELECT {columns} 1 / (random() * 0)::int"),
        ] {
            for begin in ["BEGIN", "BEGIN; SAVEPOINT a"] {
                let mut client: Raw = server.raw().login("app", "postgres");
                client.query(begin);
                let said = client.query(&query);
                assert!(said.ends_with("E(22012) Z(E)"), "{said}");
                let said = client.talk_to(&Script::new().execute().sync(), 1);
                assert_eq!(said, "E(25P02) Z(E)", "{begin}, {length}");
                // It fails once more, and no transaction with it.
                let said = client.query(&format!("ROLLBACK TO SAVEPOINT none /* {long} */"));
                assert!(said.ends_with("E(3B001) Z(E)"), "{said}");
                let said = client.talk_to(&Script::new().execute().sync(), 1);
                assert!(said.starts_with("E(") && said.ends_with(" Z(E)"), "{said}");
                assert_eq!(client.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
            }
        }
    }
    assert_eq!(witness.value("SELECT 1"), "1", "a session of another's");
}

/// What catches an exception, or rolls back, within a Query of which more is to follow.
const CATCHING: &[&str] = &[
    "CREATE FUNCTION pg_temp.safe(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM 1 / (i - i); \
     EXCEPTION WHEN division_by_zero THEN RETURN i; END $$",
    "CREATE PROCEDURE pg_temp.back() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO b VALUES (8); ROLLBACK; \
     INSERT INTO b VALUES (9); END $$",
    "CREATE TEMP TABLE a (n int); CREATE TEMP TABLE b (n int); INSERT INTO a VALUES (1), (2)",
    "CREATE RULE log AS ON DELETE TO a DO ALSO INSERT INTO b VALUES (pg_temp.safe(OLD.n))",
    "CREATE RULE copy AS ON INSERT TO a DO ALSO INSERT INTO b VALUES (pg_temp.safe(NEW.n))",
    "DELETE FROM a WHERE n = 1",
    "SELECT * FROM a; SELECT * FROM b",
    "INSERT INTO a VALUES (pg_temp.safe(3)); SELECT pg_temp.safe(4); DELETE FROM a WHERE n = 2; SELECT n FROM a",
    "UPDATE b SET n = pg_temp.safe(n + 1) RETURNING n, pg_temp.safe(n), (SELECT count(*) FROM a)",
    "INSERT INTO b VALUES (pg_temp.safe(5)) RETURNING n",
    "DO $$ BEGIN PERFORM pg_temp.safe(1); END $$; SELECT pg_temp.safe(n) FROM b",
    "CALL pg_temp.back()",
    "BEGIN; SAVEPOINT s; SELECT pg_temp.safe(1); ROLLBACK TO s; SELECT pg_temp.safe(2); COMMIT",
    "DO $$ BEGIN CALL pg_temp.back(); END $$",
    "SELECT * FROM a; SELECT * FROM b",
];

fn a_query_goes_on_behind_an_exception_that_is_caught(version: Version) {
    let answers = |settings: &[(&str, &str)]| -> Vec<Vec<Message>> {
        let server = TestServer::start(version, settings);
        let mut client = server.raw().login("app", "postgres");
        let ask = |text: &&str| {
            client.send(&Script::new().query(text));
            let mut messages = client.until_ready(1);
            messages.retain(|message| message.tag != backend::PARAMETER_STATUS);
            messages
        };
        CATCHING.iter().map(ask).collect()
    };
    let pairs = answers(&[]).into_iter().zip(answers(&[("shared_preload_libraries", "sluice")]));
    for (text, (alone, with)) in CATCHING.iter().zip(pairs) {
        assert!(alone.iter().all(|message| message.tag != backend::ERROR_RESPONSE), "{text}: {alone:?}");
        assert_eq!(with, alone, "{text}");
    }
}
