//! Queries that a standby answers as its primary would, as far as the text shows.

use super::effects::{Effects, effects};

/// Whether a text is one query, of tables and of functions that mean the same on each server of a cluster.
pub(crate) fn is_the_same_at_standby(text: &[u8]) -> bool {
    let text = text.trim_ascii_end();
    let text = text.strip_suffix(b";").unwrap_or(text);
    let begins = |verb: &&[u8]| {
        let (first, rest) = text.trim_ascii_start().split_at_checked(verb.len()).unwrap_or_default();
        first.eq_ignore_ascii_case(verb)
            && !rest.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    };
    [&b"select"[..], b"with", b"values", b"table"].iter().any(begins)
        && !text.contains(&b';')
        && !effects(text).intersects(NOT_ELSEWHERE)
        && !NAMES.iter().any(|name| text.windows(name.len()).any(|part| part.eq_ignore_ascii_case(name)))
}

/// It leaves something in its session, reads what the session has left before, or calls a function of which nothing is
/// known.
const NOT_ELSEWHERE: Effects = Effects::STATE
    .union(Effects::CONTEXT)
    .union(Effects::CATALOG)
    .union(Effects::READS_SEQUENCE)
    .union(Effects::SPENDS_SERVER)
    .union(Effects::SEED)
    .union(Effects::SESSION)
    .union(Effects::CUSTOM)
    .union(Effects::UNPROBEABLE)
    .union(Effects::NAMES)
    .union(Effects::PREPARES);

/// Parts of the names of what tells of the server itself, or is there for that server's sessions alone: advisory locks,
/// transaction ids, places in the log, statistics, large objects, the upkeep of indexes.
const NAMES: [&[u8]; 7] = [b"pg_", b"txid_", b"inet_", b"lo_", b"current_setting", b"brin_", b"gin_"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_of_tables_are_the_same() {
        for text in [
            "SELECT 1",
            "select * from t where id = $1 ;",
            "WITH a AS (SELECT 1) TABLE a",
            "VALUES (1, lower('A'))",
            "TABLE t",
            "SELECT count(*), now() FROM t GROUP BY x",
        ] {
            assert!(is_the_same_at_standby(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_may_be_another_thing_there_stays() {
        for text in [
            "",
            "SHOW search_path",
            "SET LOCAL work_mem = '1MB'",
            "SET TRANSACTION READ WRITE",
            "SAVEPOINT a",
            "SELECT 1; COMMIT; INSERT INTO t VALUES (1)",
            "SELECT f(1)",
            "SELECT pg_advisory_xact_lock(1)",
            "SELECT pg_is_in_recovery()",
            "SELECT brin_summarize_new_values('i')",
            "SELECT txid_current()",
            "SELECT inet_server_addr()",
            "SELECT currval('s')",
            "SELECT set_config('a.b', '1', true)",
            "SELECT lo_creat(-1)",
            "INSERT INTO t VALUES (1)",
            "LISTEN a",
            "PREPARE a AS SELECT 1",
            "EXECUTE a",
            "FETCH a",
            "selection",
            "(SELECT 1)",
        ] {
            assert!(!is_the_same_at_standby(text.as_bytes()), "{text}");
        }
    }
}
