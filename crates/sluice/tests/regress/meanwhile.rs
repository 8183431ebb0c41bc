//! Other clients of the pool, so that the one that runs a file goes from server to server, and finds them as others have
//! left them.
//!
//! They only `SHOW` what they have set themselves: that needs no snapshot, which would be seen by VACUUM, and it shows
//! whether anything of the file's client is left on a server.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use postgres::{Client, SimpleQueryMessage};

use crate::{side::Side, suite::Suite};

/// Settings of each of these clients, and how PostgreSQL shows them. Most of them would change what a file prints.
const CLIENTS: [&[(&str, &str, &str)]; 3] = [
    &[
        ("timezone", "Asia/Tokyo", "Asia/Tokyo"),
        ("datestyle", "German", "German, DMY"),
        ("search_path", "nowhere", "nowhere"),
        ("standard_conforming_strings", "off", "off"),
    ],
    &[
        ("intervalstyle", "iso_8601", "iso_8601"),
        ("enable_seqscan", "off", "off"),
        ("client_encoding", "LATIN1", "LATIN1"),
        ("transform_null_equals", "on", "on"),
        ("bytea_output", "escape", "escape"),
    ],
    &[
        ("role", "pg_monitor", "pg_monitor"),
        ("default_transaction_isolation", "serializable", "serializable"),
        ("default_transaction_read_only", "on", "on"),
        ("row_security", "off", "off"),
        ("extra_float_digits", "-2", "-2"),
    ],
];

/// Between two of their statements.
const PAUSE: Duration = Duration::from_millis(3);

/// Does something while they come and go.
pub(crate) fn meanwhile<T>(side: &Side, suite: Suite, work: impl FnOnce() -> T) -> T {
    let Some(pool) = &side.pool else { return work() };
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let others: Vec<_> = CLIENTS
            .iter()
            .map(|settings| {
                let client = pool.connect("postgres", None, suite.database()).unwrap();
                let ended = &ended;
                scope.spawn(move || come_and_go(client, settings, ended))
            })
            .collect();
        let done = work();
        ended.store(true, Ordering::Relaxed);
        others.into_iter().for_each(|other| other.join().unwrap());
        done
    })
}

fn come_and_go(mut client: Client, settings: &[(&str, &str, &str)], ended: &AtomicBool) {
    for (name, value, _) in settings {
        client.batch_execute(&format!("SET {name} = '{value}'")).unwrap();
    }
    while !ended.load(Ordering::Relaxed) {
        // Takes a server at once, unlike a plain BEGIN.
        client.batch_execute("BEGIN READ WRITE").unwrap();
        for (name, _, shown) in settings {
            let answer = client.simple_query(&format!("SHOW {name}")).unwrap_or_else(|error| panic!("{error:?}"));
            let row = answer.iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            });
            assert_eq!(row, Some(*shown), "{name}, set by another client of the pool");
            thread::sleep(PAUSE);
        }
        client.batch_execute("COMMIT").unwrap();
        thread::sleep(PAUSE);
    }
}
