//! Cancels in a string of several transactions.

use super::*;

versions!(what_follows_a_commit_in_its_string_is_cancelled);

/// A cancel that was too late for the commit is not lost, and leaves nothing for what comes later.
fn what_follows_a_commit_in_its_string_is_cancelled(version: Version) {
    let server = start(version);
    for (entry, goes_on) in [
        "BEGIN; INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (-1)",
        "BEGIN; INSERT INTO t VALUES (2); COMMIT; BEGIN; INSERT INTO t VALUES (-1); COMMIT",
        "BEGIN; INSERT INTO t VALUES (3); COMMIT; CREATE TEMP TABLE x (n int)",
        "BEGIN; INSERT INTO t VALUES (4); PREPARE TRANSACTION 'a'; SELECT 1",
        "BEGIN; INSERT INTO t VALUES (5); COMMIT AND CHAIN; SELECT 1; COMMIT",
        "BEGIN; INSERT INTO t VALUES (6); COMMIT; -- done",
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = session(&server, "");
        let pid = pid_of(&mut client);
        lose_standby(&server);
        let running = meanwhile_run(client, goes_on);
        becomes("it waits", true, || waits(&server, pid));
        server.value(&format!("SELECT pg_cancel_backend({pid})"));
        thread::sleep(Duration::from_millis(20));
        assert!(waits(&server, pid) && !running.is_finished(), "{goes_on}");
        need_no_standby(&server);
        let (mut client, outcome) = running.join().unwrap();
        if goes_on.ends_with("done") {
            outcome.unwrap();
        } else {
            assert_eq!(code(outcome), SqlState::QUERY_CANCELED, "{goes_on}");
        }
        run(&mut client, "ROLLBACK; SELECT 1; BEGIN; SELECT 1; COMMIT");
        let _ = client.batch_execute("COMMIT PREPARED 'a'");
        let is_there = format!("SELECT count(*) FROM t WHERE n = {}", entry + 1);
        assert_eq!(server.value(&is_there), "1", "{goes_on}");
    }
    assert_eq!(server.value("SELECT count(*) FROM t WHERE n < 0"), "0");
}
