//! The time that each statement of the scripts took, as `-r` tells at the end of a run.
//!
//! pgbench's threads add these figures up without a lock: a few may get lost, which does not show in a mean.

const HEADING: &str = "statement latencies in milliseconds";

/// One script.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptReport {
    /// Its name.
    pub name: String,
    /// Number of runs of this script, where several share a run of pgbench.
    pub transactions: Option<u64>,
    /// Its SQL, in order.
    pub statements: Vec<StatementReport>,
}

/// One statement.
#[derive(Clone, Debug, PartialEq)]
pub struct StatementReport {
    /// Its first line.
    pub text: String,
    /// Mean latency.
    pub mean_ms: f64,
    /// Failures.
    pub failed: u64,
}

/// From pgbench's output, which tells of scripts in the order in which they were given; by these names.
pub fn script_reports(output: &str, names: &[&str]) -> Vec<ScriptReport> {
    let mut reports: Vec<ScriptReport> = Vec::new();
    let mut transactions = None;
    let mut lines = output.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some((count, _)) = line.strip_prefix(" - ").and_then(|line| line.split_once(" transactions (")) {
            transactions = count.parse().ok();
        }
        if !line.contains(HEADING) {
            continue;
        }
        let mut statements = Vec::new();
        while let Some(statement) = lines.peek().and_then(|line| parse_line(line)) {
            statements.push(statement);
            lines.next();
        }
        statements.retain(|statement| !statement.text.starts_with('\\'));
        let name = names.get(reports.len()).copied().unwrap_or_default().to_owned();
        reports.push(ScriptReport { name, transactions: transactions.take(), statements });
    }
    reports
}

/// Latency; counts of failures, and of retries, if it tells them; text.
fn parse_line(line: &str) -> Option<StatementReport> {
    let (mean_ms, mut text) = line.trim_start().split_once(' ')?;
    let mut failed = None;
    while let Some((count, rest)) = text.trim_start().split_once(' ')
        && let Ok(count) = count.parse::<u64>()
    {
        failed.get_or_insert(count);
        text = rest;
    }
    let text = text.trim().to_owned();
    Some(StatementReport { text, mean_ms: mean_ms.parse().ok()?, failed: failed.unwrap_or(0) })
}

impl ScriptReport {
    fn mean_of(&self, is_meant: impl Fn(&StatementReport) -> bool) -> Option<f64> {
        let mut meant = self.statements.iter().filter(|statement| is_meant(statement)).peekable();
        meant.peek()?;
        Some(meant.map(|statement| statement.mean_ms).sum())
    }

    /// Of all but BEGIN and END, together: the work that the transaction is for.
    pub fn sql_ms(&self) -> Option<f64> {
        self.mean_of(|statement| !statement.is_begin() && !statement.is_end())
    }

    /// Of BEGIN, if the script has one.
    pub fn begin_ms(&self) -> Option<f64> {
        self.mean_of(StatementReport::is_begin)
    }

    /// Of END.
    pub fn end_ms(&self) -> Option<f64> {
        self.mean_of(StatementReport::is_end)
    }
}

impl StatementReport {
    fn is_one_of(&self, commands: &[&str]) -> bool {
        let text = self.text.trim_end_matches(';');
        commands.iter().any(|command| text.eq_ignore_ascii_case(command))
    }

    fn is_begin(&self) -> bool {
        self.is_one_of(&["BEGIN", "START TRANSACTION"])
    }

    fn is_end(&self) -> bool {
        self.is_one_of(&["END", "COMMIT"])
    }
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
         0.038           2  SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
       492.500           0  UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
         0.139           0  END;
";

    #[test]
    fn a_transaction_is_told_from_its_begin_and_end() {
        let reports = script_reports(TPCB, &["tpcb-like"]);
        assert_eq!((reports.len(), reports[0].name.as_str(), reports[0].statements.len()), (1, "tpcb-like", 5));
        assert_eq!(reports[0].begin_ms(), Some(0.023));
        assert_eq!(reports[0].sql_ms(), Some(0.045 + 0.038 + 492.5));
        assert_eq!(reports[0].end_ms(), Some(0.139));
        assert_eq!(reports[0].statements[2].failed, 2);
    }

    #[test]
    fn several_scripts() {
        let output = "SQL script 1: a.sql\n - weight: 1 (targets 50.0% of total)\n - 30 transactions (60.0% of total, tps = 3)\n - statement latencies in milliseconds and failures:\n         0.058           0  SELECT 1;\nSQL script 2: b.sql\n - 20 transactions (40.0% of total, tps = 2)\n - statement latencies in milliseconds and failures:\n         0.5           0  SELECT 2;\n         0.5           0  SELECT 3;\n";
        let reports = script_reports(output, &["a.sql", "b.sql"]);
        let told: Vec<_> = reports.iter().map(|report| (report.name.as_str(), report.transactions)).collect();
        assert_eq!(told, [("a.sql", Some(30)), ("b.sql", Some(20))]);
        assert_eq!((reports[0].begin_ms(), reports[1].sql_ms()), (None, Some(1.0)));
    }

    #[test]
    fn columns_by_version() {
        let parse_one = |heading: &str, line: &str| {
            script_reports(&format!("{heading}\n{line}\n"), &["a"]).remove(0).statements.remove(0)
        };
        let expected = StatementReport { text: "select 1;".to_owned(), mean_ms: 0.5, failed: 0 };
        assert_eq!(parse_one("statement latencies in milliseconds:", "    0.5  select 1;"), expected);
        let heading = "statement latencies in milliseconds, failures and retries:";
        assert_eq!(parse_one(heading, "    0.5   0   3  select 1;"), expected);
    }

    #[test]
    fn without_a_report_nothing_is_known() {
        assert_eq!(script_reports("tps = 5381.4 (without initial connection time)\n", &["a"]), []);
    }
}
