//! How long each statement of pgbench's script took, as `-r` tells at the end of a run.
//!
//! Format: PostgreSQL 15, "pgbench", section "Per-Statement Report". pgbench's threads add these figures up without a
//! lock: a few may get lost, which does not show in a mean.

const HEADING: &str = "statement latencies in milliseconds";

/// A statement's text and its mean latency.
#[derive(Debug, PartialEq)]
struct Statement {
    text: String,
    mean_ms: f64,
}

/// The SQL of a script, in its order.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Statements(Vec<Statement>);

impl Statements {
    /// From pgbench's output; empty if it tells nothing of statements.
    pub(crate) fn parse(output: &str) -> Self {
        let lines = output.lines().skip_while(|line| !line.contains(HEADING)).skip(1);
        let all = lines.map_while(parse_line);
        Self(all.filter(|statement| !statement.text.starts_with('\\')).collect())
    }

    /// Of BEGIN, if the script has one.
    pub(crate) fn begin_ms(&self) -> Option<f64> {
        self.0.iter().find(|statement| statement.is("BEGIN")).map(|statement| statement.mean_ms)
    }

    /// Of all but BEGIN and END, together: the work that the transaction is for.
    pub(crate) fn inside_ms(&self) -> Option<f64> {
        let inside = self.0.iter().filter(|statement| !statement.is("BEGIN") && !statement.is("END"));
        let sum_ms: f64 = inside.map(|statement| statement.mean_ms).sum();
        (sum_ms > 0.0).then_some(sum_ms)
    }
}

impl Statement {
    fn is(&self, command: &str) -> bool {
        self.text.trim_end_matches(';').eq_ignore_ascii_case(command)
    }
}

/// Latency, counts of failures (and retries), text.
fn parse_line(line: &str) -> Option<Statement> {
    let (mean_ms, mut text) = line.trim_start().split_once(' ')?;
    while let Some((count, rest)) = text.trim_start().split_once(' ')
        && count.parse::<u64>().is_ok()
    {
        text = rest;
    }
    Some(Statement { text: text.trim().to_owned(), mean_ms: mean_ms.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TPCB: &str = r"
tps = 5381.423125 (without initial connection time)
statement latencies in milliseconds and failures:
         0.001           0  \set aid random(1, 100000 * :scale)
         0.000           0  \set delta random(-5000, 5000)
         0.023           0  BEGIN;
         0.045           0  UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
         0.038           0  SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
       492.500           0  UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
         0.139           0  END;
";

    #[test]
    fn a_transaction_is_told_from_its_begin_and_end() {
        let statements = Statements::parse(TPCB);
        assert_eq!(statements.0.len(), 5);
        assert_eq!(statements.begin_ms(), Some(0.023));
        assert_eq!(statements.inside_ms(), Some(0.045 + 0.038 + 492.5));
    }

    #[test]
    fn a_single_statement_has_no_begin() {
        let output = "statement latencies in milliseconds and failures:\n\
                      \x20        0.000           0  \\set aid random(1, 100000 * :scale)\n\
                      \x20        0.058           0  SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n";
        let statements = Statements::parse(output);
        assert_eq!((statements.begin_ms(), statements.inside_ms()), (None, Some(0.058)));
    }

    #[test]
    fn retries_are_no_part_of_the_text() {
        let output = "statement latencies in milliseconds, failures and retries:\n    0.5   0   3  select 1;\n";
        let expected = Statement { text: "select 1;".to_owned(), mean_ms: 0.5 };
        assert_eq!(Statements::parse(output).0, [expected]);
    }

    #[test]
    fn without_a_report_nothing_is_known() {
        let statements = Statements::parse("tps = 5381.4 (without initial connection time)\n");
        assert_eq!((statements.begin_ms(), statements.inside_ms()), (None, None));
    }
}
