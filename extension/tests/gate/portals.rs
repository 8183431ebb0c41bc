//! Portals that outlive their statements: PostgreSQL alone may crash on them, with all sessions.

use sluice_testkit::{Raw, Script, TestServer, Version, versions};

versions!(what_a_failed_query_leaves_cannot_be_run);

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
                assert_eq!(client.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
            }
        }
    }
    assert_eq!(witness.value("SELECT 1"), "1", "a session of another's");
}
