//! The page that two samples make: what has gone on between them, and how it stands now.

use std::{cmp::Reverse, time::Duration};

use console::{Alignment, measure_text_width, pad_str, truncate_str};
use sluice_units::readable_bytes;

use super::sample::{Database, Sample, Statement};

/// A page, before its size is known.
#[derive(Debug)]
pub(super) struct Page {
    heading: Vec<String>,
    databases: Vec<Vec<String>>,
    statements: Vec<Vec<String>>,
}

const DATABASE_COLUMNS: [&str; 13] = [
    "DATABASE", "CLIENTS", "WAITING", "MAXWAIT", "ACTIVE", "IDLE", "TX/S", "QUERY/S", "TX_MS", "QUERY_MS", "WAIT_MS",
    "IN/S", "OUT/S",
];
const STATEMENT_COLUMNS: [&str; 6] = ["CALLS/S", "ROWS/S", "MS/CALL", "WAIT_MS", "DATABASE", "STATEMENT"];

impl Page {
    /// The page of what has gone on between two samples of the console at that address.
    pub(super) fn new(console: &str, interval: Duration, before: &Sample, now: &Sample) -> Self {
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64();
        let sum = |of: fn(&Database) -> u64| now.databases.values().map(of).sum::<u64>();
        let servers = format!(
            "{} clients, {} of them waiting for a server; {} servers at work, {} idle, {} connecting",
            sum(|database| database.clients),
            sum(|database| database.waiting),
            sum(|database| database.active),
            sum(|database| database.idle),
            sum(|database| database.connecting),
        );
        let mut databases: Vec<_> = now
            .databases
            .iter()
            .map(|(name, database)| {
                let since = before.databases.get(name).copied().unwrap_or(*database);
                (Reverse(database.queries.saturating_sub(since.queries)), name, database, since)
            })
            .collect();
        databases.sort_by_key(|(queries, name, ..)| (*queries, *name));
        let mut statements: Vec<_> = now
            .statements
            .iter()
            .map(|(key, statement)| (key, since(before.statements.get(key), statement)))
            .filter(|(_, gone)| gone.calls > 0)
            .collect();
        statements.sort_by_key(|(_, gone)| Reverse(gone.time));
        Self {
            heading: vec![title(console, interval), servers],
            databases: databases
                .into_iter()
                .map(|(_, name, now, before)| database_row(name, &before, now, seconds))
                .collect(),
            statements: statements
                .into_iter()
                .map(|((database, _, text), gone)| statement_row(database, text, &gone, seconds))
                .collect(),
        }
    }

    /// The console does not answer.
    pub(super) fn of_error(console: &str, interval: Duration, error: &str) -> Self {
        let line = format!("no answer: {error}; trying again");
        Self { heading: vec![title(console, interval), line], databases: Vec::new(), statements: Vec::new() }
    }

    /// Its lines, for so many columns and at most so many lines. Databases have half of what there is, or what the
    /// statements leave.
    pub(super) fn lines(&self, columns: usize, lines: usize) -> Vec<String> {
        let mut out = self.heading.clone();
        if !self.databases.is_empty() {
            // An empty line and a line of names for each table.
            let room = lines.saturating_sub(out.len() + 4);
            let databases = self.databases.len().min((room / 2).max(room.saturating_sub(self.statements.len())));
            put_table(&mut out, &DATABASE_COLUMNS, &self.databases[..databases], 1);
            let statements = self.statements.len().min(room.saturating_sub(databases));
            put_table(&mut out, &STATEMENT_COLUMNS, &self.statements[..statements], 0);
        }
        out.truncate(lines);
        out.iter_mut().for_each(|line| *line = truncate_str(line.trim_end(), columns, "…").into_owned());
        out
    }
}

fn title(console: &str, interval: Duration) -> String {
    format!("sluice top: {console}, every {} s; Ctrl-C ends it", interval.as_secs())
}

/// The counts since; a statement that was forgotten and has come again began with nothing.
fn since(before: Option<&Statement>, now: &Statement) -> Statement {
    let before = before.copied().filter(|before| before.calls <= now.calls).unwrap_or_default();
    Statement {
        calls: now.calls - before.calls,
        rows: now.rows.saturating_sub(before.rows),
        time: now.time.saturating_sub(before.time),
        waited: now.waited.saturating_sub(before.waited),
    }
}

fn database_row(name: &str, before: &Database, now: &Database, seconds: f64) -> Vec<String> {
    let gone = |of: fn(&Database) -> u64| of(now).saturating_sub(of(before));
    let transactions = gone(|database| database.transactions);
    let queries = gone(|database| database.queries);
    let bytes = |of| readable_bytes(gone(of) as f64 / seconds);
    vec![
        one_line(name),
        now.clients.to_string(),
        now.waiting.to_string(),
        format!("{:.1}s", now.longest_wait as f64 / 1e6),
        now.active.to_string(),
        now.idle.to_string(),
        rate(transactions, seconds),
        rate(queries, seconds),
        each_ms(gone(|database| database.transaction_time), transactions),
        each_ms(gone(|database| database.query_time), queries),
        each_ms(gone(|database| database.wait_time), transactions),
        bytes(|database| database.received),
        bytes(|database| database.sent),
    ]
}

fn statement_row(database: &str, text: &str, gone: &Statement, seconds: f64) -> Vec<String> {
    vec![
        rate(gone.calls, seconds),
        rate(gone.rows, seconds),
        each_ms(gone.time, gone.calls),
        each_ms(gone.waited, gone.calls),
        one_line(database),
        one_line(text),
    ]
}

/// So many a second; few of them with a decimal.
fn rate(count: u64, seconds: f64) -> String {
    match count as f64 / seconds {
        rate if rate > 0.0 && rate < 10.0 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    }
}

/// The mean time of one, in milliseconds; a dash where there was none.
fn each_ms(micros: u64, count: u64) -> String {
    if count == 0 { "-".to_owned() } else { format!("{:.2}", micros as f64 / count as f64 / 1000.0) }
}

/// A text of somebody else's on one line: nothing in it moves the cursor.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().map(|c| if sluice_proxy::is_unseen(c) { '\u{fffd}' } else { c }).collect()
}

/// Appends a table behind an empty line: numbers to the right, the first `named` columns and the last one's texts to the
/// left.
fn put_table(out: &mut Vec<String>, columns: &[&str], rows: &[Vec<String>], named: usize) {
    let width = |at: usize| {
        let cells = rows.iter().map(|row| measure_text_width(&row[at]));
        cells.chain([columns[at].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let is_text = |at: usize| at < named || matches!(columns[at], "DATABASE" | "STATEMENT");
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.enumerate().map(|(at, cell)| {
            let alignment = if is_text(at) { Alignment::Left } else { Alignment::Right };
            pad_str(cell, widths[at], alignment, None)
        });
        padded.collect::<Vec<_>>().join("  ")
    };
    out.push(String::new());
    out.push(line(&mut columns.iter().copied()));
    out.extend(rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Instant};

    use super::*;

    fn sample(at: Instant, times: u64) -> Sample {
        let database = Database {
            clients: 12,
            waiting: 2,
            longest_wait: 1_250_000,
            active: 3,
            idle: 1,
            connecting: 0,
            transactions: 100 * times,
            queries: 200 * times,
            transaction_time: 300_000 * times,
            query_time: 200_000 * times,
            wait_time: 1_000 * times,
            received: 2048 * times,
            sent: 4096 * times,
        };
        let statement = Statement { calls: 10 * times, rows: 30 * times, time: 25_000 * times, waited: 500 * times };
        let idle = Statement { calls: 7, ..Statement::default() };
        let key = |text: &str| ("shop".to_owned(), "app".to_owned(), text.to_owned());
        Sample {
            at,
            databases: BTreeMap::from([("shop".to_owned(), database)]),
            statements: BTreeMap::from([
                (key("select *\n  from \x1b[2Jitems"), statement),
                (key("nobody runs this"), idle),
            ]),
        }
    }

    fn page() -> Page {
        let begin = Instant::now();
        Page::new("postgresql://sluice@localhost/pgbouncer", Duration::from_secs(2), &sample(begin, 1), &{
            sample(begin + Duration::from_secs(2), 3)
        })
    }

    #[test]
    fn rates_are_of_what_has_come_since() {
        let expected = "\
sluice top: postgresql://sluice@localhost/pgbouncer, every 2 s; Ctrl-C ends it
12 clients, 2 of them waiting for a server; 3 servers at work, 1 idle, 0 connecting

DATABASE  CLIENTS  WAITING  MAXWAIT  ACTIVE  IDLE  TX/S  QUERY/S  TX_MS  QUERY_MS  WAIT_MS  IN/S  OUT/S
shop           12        2     1.2s       3     1   100      200   3.00      1.00     0.01  2 kB   4 kB

CALLS/S  ROWS/S  MS/CALL  WAIT_MS  DATABASE  STATEMENT
     10      30     2.50     0.05  shop      select * from \u{fffd}[2Jitems";
        assert_eq!(page().lines(132, 50).join("\n"), expected);
    }

    #[test]
    fn a_page_fits_its_screen() {
        for (columns, lines) in [(40, 24), (80, 5), (10, 3), (1, 1)] {
            let page = page().lines(columns, lines);
            assert!(page.len() <= lines && page.iter().all(|line| measure_text_width(line) <= columns), "{page:?}");
        }
    }

    #[test]
    fn what_was_forgotten_begins_anew() {
        let [before, now] = [9, 4].map(|calls| Statement { calls, rows: calls, time: calls, waited: 0 });
        assert_eq!(since(Some(&before), &now), now);
        assert_eq!(since(Some(&now), &before).calls, 5);
        assert_eq!(since(None, &now), now);
    }
}
