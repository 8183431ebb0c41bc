//! Advisory locks, of the session and of the transaction.

use crate::generate::Maker;

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "SELECT pg_advisory_lock({k})", "SELECT pg_advisory_lock(1, {k})", "SELECT pg_try_advisory_lock({k})", "SELECT pg_advisory_lock_shared({k})",
    "SELECT pg_advisory_unlock({k})", "SELECT pg_advisory_unlock(1, {k})", "SELECT pg_advisory_unlock_all()", "SELECT pg_advisory_xact_lock({k})",
    "SELECT locks({k})", "SELECT pg_catalog . \"pg_advisory_lock\"({k})", "DO $$ BEGIN PERFORM pg_advisory_lock({k}); END $$",
];

/// A query for the number of the session's advisory locks.
const LOOK: &str = "SELECT count(*), min(mode) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";

pub(crate) fn act(maker: &mut Maker) {
    for _ in 0..1 + maker.random.below(2) {
        let text = maker.one_of(TEXTS);
        maker.sql(&text);
        maker.sql(LOOK);
    }
}
