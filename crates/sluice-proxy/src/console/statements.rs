//! `SHOW STATEMENTS`: what the pools know of the statements that their clients share, like `pg_stat_statements`, but with
//! the wait before the server, of all servers together, and without constants: whoever may look at the console need not
//! see other users' data.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use sluice_core::{hub::Pool, uses::Used};

use super::rows::Table;

/// The statements of these pools, those that have taken most time first. Times are in microseconds.
pub(super) fn table(pools: &[Arc<Pool>]) -> Table {
    const COLUMNS: [&str; 8] = ["database", "user", "calls", "rows", "total_time", "mean_time", "wait_time", "query"];
    let of_pool = |pool: &Arc<Pool>| {
        let pool = pool.clone();
        let used = pool.statements.used();
        used.into_iter().map(move |(text, used)| (used, pool.database.clone(), pool.upstream.user.clone(), text))
    };
    let mut all: Vec<_> = pools.iter().flat_map(of_pool).collect();
    all.sort_by_key(|(used, ..)| Reverse(used.time));
    let mut table = Table::new(&COLUMNS, &["database", "user", "query"]);
    let micros = |time: Duration| time.as_micros() as u64;
    for (Used { calls, rows, time, waited }, database, user, text) in all {
        table.push([
            database.into(),
            user.into(),
            calls.into(),
            rows.into(),
            micros(time).into(),
            micros(time).checked_div(calls).unwrap_or_default().into(),
            micros(waited).into(),
            text.into(),
        ]);
    }
    table
}
