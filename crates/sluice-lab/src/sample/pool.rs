//! A pool's own figures, from its admin console: Sluice's and PgBouncer's have the same columns (PgBouncer's
//! documentation, "Admin console").
//!
//! The laboratory's clients are of one database and one user, so there is one pool.

use std::time::Instant;

use postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

use super::{Rates, Value, metrics};
use crate::connect::Access;

/// The database that is the console, in Sluice unless its configuration says otherwise.
pub const CONSOLE: &str = "pgbouncer";

/// A pool that is listened to.
pub(super) struct Pool {
    /// The session at its console, which takes simple queries only; or why there is none.
    console: Result<Client, String>,
    rates: Rates,
}

/// Its figures at one moment. Totals are since the pool's start.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Told {
    waiting: f64,
    active: f64,
    idle: f64,
    transactions: f64,
    waited_us: f64,
}

impl Pool {
    pub(super) fn new(console: &Access) -> Self {
        Self { console: super::connect(console).map_err(|error| error.to_string()), rates: Rates::default() }
    }

    /// The figures that it does not tell, and why.
    pub(super) fn missing(&self) -> Option<String> {
        self.console.as_ref().err().map(|why| format!("the pool's own figures: {why}"))
    }

    /// Its figures of now; none if it has no console.
    pub(super) fn sample(&mut self) -> Result<Vec<Value>, postgres::Error> {
        let Ok(console) = &mut self.console else { return Ok(Vec::new()) };
        let told = Told::by(console)?;
        Ok(told.map_or_else(Vec::new, |told| self.values(Instant::now(), told)))
    }

    fn values(&mut self, at: Instant, told: Told) -> Vec<Value> {
        let mut values = vec![
            (metrics::POOL_WAITING, told.waiting),
            (metrics::POOL_ACTIVE, told.active),
            (metrics::POOL_IDLE, told.idle),
        ];
        let totals = [("transactions", told.transactions), ("waited_us", told.waited_us)];
        let totals = totals.map(|(name, value)| (name.to_owned(), value)).to_vec();
        if let Some(rise) = self.rates.rise(at, totals) {
            values.extend(rise.rate("transactions").map(|rate| (metrics::POOL_SERVED, rate)));
            let served = rise.of("transactions").filter(|served| *served > 0.0);
            let wait_ms = rise.of("waited_us").zip(served).map(|(waited_us, served)| waited_us / served / 1000.0);
            values.extend(wait_ms.map(|wait_ms| (metrics::POOL_WAIT, wait_ms)));
        }
        values.into_iter().map(|(column, value)| (column.to_owned(), value)).collect()
    }
}

impl Told {
    /// `None` if the console does not show the columns that are looked for.
    fn by(console: &mut Client) -> Result<Option<Self>, postgres::Error> {
        let pools = sums(console, "SHOW POOLS", ["cl_waiting", "sv_active", "sv_idle", "sv_used"])?;
        let totals = sums(console, "SHOW STATS", ["total_xact_count", "total_wait_time"])?;
        let (Some([waiting, active, idle, used]), Some([transactions, waited_us])) = (pools, totals) else {
            return Ok(None);
        };
        Ok(Some(Self { waiting, active, idle: idle + used, transactions, waited_us }))
    }
}

/// These columns, over all pools but the console's own.
fn sums<const N: usize>(
    console: &mut Client,
    query: &str,
    columns: [&str; N],
) -> Result<Option<[f64; N]>, postgres::Error> {
    let answer = console.simple_query(query)?;
    let number = |row: &SimpleQueryRow, column| row.try_get(column).ok()??.parse::<f64>().ok();
    let rows = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) if row.get("database") != Some(CONSOLE) => Some(row),
        _ => None,
    });
    let mut sums = [0.0; N];
    for row in rows {
        for (sum, column) in sums.iter_mut().zip(columns) {
            let Some(value) = number(row, column) else { return Ok(None) };
            *sum += value;
        }
    }
    Ok(Some(sums))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn totals_become_rates_and_means() {
        let mut pool = Pool { console: Err(String::new()), rates: Rates::default() };
        let told = |transactions, waited_us| Told { waiting: 44.0, active: 20.0, idle: 0.0, transactions, waited_us };
        let columns = |values: &[(&str, f64)]| -> Vec<Value> {
            values.iter().map(|(column, value)| ((*column).to_owned(), *value)).collect()
        };
        let now = [(metrics::POOL_WAITING, 44.0), (metrics::POOL_ACTIVE, 20.0), (metrics::POOL_IDLE, 0.0)];
        let begin = Instant::now();
        assert_eq!(pool.values(begin, told(1000.0, 10e6)), columns(&now));
        let rates = [(metrics::POOL_SERVED, 1000.0), (metrics::POOL_WAIT, 10.0)];
        let after = begin + Duration::from_secs(2);
        assert_eq!(pool.values(after, told(3000.0, 30e6)), columns(&[&now[..], &rates].concat()));
        // Nobody was served: there is no wait to take the mean of.
        let still = [(metrics::POOL_SERVED, 0.0)];
        let after = after + Duration::from_secs(1);
        assert_eq!(pool.values(after, told(3000.0, 30e6)), columns(&[&now[..], &still].concat()));
    }
}
