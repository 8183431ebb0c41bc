//! Ways to log in to a server that reveal a password: they are taken where the connection, or the configuration, allows.

use std::fs;

use sluice_testkit::{Case, PoolConfig, TestPool, TestServer, eventually, matrix};

use crate::SLUICE;

matrix!(servers_with_tls: a_password_is_not_for_whoever_asks);

/// Has the server ask its only user so.
fn ask_for(server: &TestServer, method: &str) {
    let rules =
        format!("local all postgres peer map=sluice\nlocal all worker {method}\nhost all worker all {method}\n");
    fs::write(server.data().join("pg_hba.conf"), rules).unwrap();
    let loaded = server.try_value("SELECT pg_conf_load_time()::text");
    server.execute("SELECT pg_reload_conf()");
    eventually("the server has read its rules", || server.try_value("SELECT pg_conf_load_time()::text") != loaded);
}

fn a_password_is_not_for_whoever_asks(case: Case) {
    let server = TestServer::start_with_tls(case.version, &[]);
    server.execute("SET password_encryption = md5; CREATE ROLE worker LOGIN PASSWORD 'secret'");
    let socket = server.socket_dir().display().to_string();
    let ways = [("socket", socket.as_str(), ""), ("clear", "127.0.0.1", "disable"), ("tls", "127.0.0.1", "require")];
    let mut config = PoolConfig::without_databases(SLUICE, case);
    for word in ["protected", "any", "scram-sha-256"] {
        for (way, host, sslmode) in ways {
            // The first is what holds where nothing is said.
            let auth = if word == "protected" { String::new() } else { format!("server_auth = \"{word}\"\n") };
            let sslmode = if sslmode.is_empty() { String::new() } else { format!("sslmode = \"{sslmode}\"\n") };
            let lines = format!("dbname = \"postgres\"\nuser = \"worker\"\npassword = \"secret\"\n{auth}{sslmode}");
            config = config.database_at(&format!("{word} {way}"), host, server.port(), &lines);
        }
    }
    let log_in = |pool: &TestPool, database: &str| {
        let outcome = pool.connect("app", None, database).and_then(|mut client| client.simple_query("SELECT 1"));
        outcome.map(drop).map_err(|error| format!("{error:?}"))
    };
    for (method, asked, protected) in [
        ("password", "the password in clear text", [true, false, true]),
        ("md5", "an MD5 hash of the password", [true, true, true]),
        ("trust", "nothing", [true, true, true]),
    ] {
        ask_for(&server, method);
        let pool = config.start();
        for ((way, ..), is_protected) in ways.into_iter().zip(protected) {
            for (word, is_answered) in [("protected", is_protected), ("any", true), ("scram-sha-256", false)] {
                let outcome = log_in(&pool, &format!("{word} {way}"));
                assert_eq!(outcome.is_ok(), is_answered, "{method} {way} {word}: {outcome:?}");
                if let Err(error) = outcome {
                    assert!(error.contains(&format!("the server asks for {asked}, and")), "{error}");
                    assert!(error.contains("server_auth"), "{error}");
                }
            }
        }
    }
    // The server's verifier.
    server.execute("SET password_encryption = 'scram-sha-256'; ALTER ROLE worker PASSWORD 'secret'");
    ask_for(&server, "scram-sha-256");
    let pool = config.start();
    for word in ["protected", "any", "scram-sha-256"] {
        for (way, ..) in ways {
            assert_eq!(log_in(&pool, &format!("{word} {way}")), Ok(()), "{word} {way}");
        }
    }
}
