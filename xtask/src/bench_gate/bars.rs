//! The figures of a turn, and the bars that the gate has to meet, as data.

use std::fmt;

use crate::bench::bars::{self, Limit};
use crate::bench::results::{self, ratio};

use super::cases::Target;

/// The figures of one turn of pgbench.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) tps: f64,
    pub(crate) mean_ms: f64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    /// The transaction's statements between BEGIN and END.
    pub(crate) sql_ms: Option<f64>,
    /// BEGIN, and with it the wait at a gate.
    pub(crate) begin_ms: Option<f64>,
    pub(crate) postgres_cpu_us_per_tx: Option<f64>,
    /// Of those that passed a gate, the share that had to wait.
    pub(crate) waited_share: Option<f64>,
    /// The limit that an automatic search had come to.
    pub(crate) limit_at_end: Option<f64>,
}

/// The rest of a turn's line on the terminal.
impl fmt::Display for Figures {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tell = |figure: Option<f64>| figure.map_or("–".to_owned(), |figure| format!("{figure:.3}"));
        write!(out, "{:>8.0} tps  {:>8.3} ms  SQL {} ms", self.tps, self.mean_ms, tell(self.sql_ms))?;
        write!(out, "  CPU {} µs", self.postgres_cpu_us_per_tx.map_or("–".to_owned(), |us| format!("{us:.1}")))?;
        if let Some(share) = self.waited_share {
            write!(out, "  waited {:.1} %", share * 100.0)?;
        }
        if let Some(limit) = self.limit_at_end {
            write!(out, "  at {limit}")?;
        }
        Ok(())
    }
}

pub(crate) type Series = results::Series<Figures>;
pub(crate) type Results = results::Results<Target, Figures>;
pub(crate) type Verdict = bars::Verdict<Target>;

/// The ratio that a bar looks at; each is the larger the better the gate does.
#[derive(Clone, Copy, Debug)]
enum Measure {
    Tps,
    SqlTime,
}

impl fmt::Display for Measure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tps => write!(out, "tps / plain's"),
            Self::SqlTime => write!(out, "plain's SQL time / its own"),
        }
    }
}

struct Bar {
    case: &'static str,
    measure: Measure,
    at_least: f64,
}

const fn bar(case: &'static str, measure: Measure, at_least: f64) -> Bar {
    Bar { case, measure, at_least }
}

const BARS: &[Bar] = &[
    bar("tpcb-1000", Measure::Tps, 2.5),
    bar("tpcb-1000", Measure::SqlTime, 20.0),
    bar("tpcb-64", Measure::Tps, 1.0),
    bar("select-64", Measure::Tps, 1.1),
];

impl Bar {
    fn figure(&self, results: &Results, target: Target) -> Option<f64> {
        match self.measure {
            Measure::Tps => tps_over_plain(results, self.case, target),
            Measure::SqlTime => sql_time_under_plain(results, self.case, target),
        }
    }
}

/// The ratio of the transactions a second to plain PostgreSQL's.
pub(crate) fn tps_over_plain(results: &Results, case: &'static str, target: Target) -> Option<f64> {
    ratio(results, (case, target), (case, Target::Plain), |figures| Some(figures.tps))
}

/// The ratio of plain PostgreSQL's time for a transaction's statements to the target's.
pub(crate) fn sql_time_under_plain(results: &Results, case: &'static str, target: Target) -> Option<f64> {
    ratio(results, (case, Target::Plain), (case, target), |figures| figures.sql_ms)
}

/// The verdict on `target` for each bar; bars of cases that were not asked for are left out.
pub(crate) fn judge(results: &Results, target: Target) -> Vec<Verdict> {
    let verdict = |bar: &Bar| {
        let series = results.get(&(bar.case, target))?;
        let (limit, figure) = (Limit::AtLeast(bar.at_least), bar.figure(results, target));
        let measure = bar.measure.to_string();
        let outcome = limit.judge(series, figure);
        Some(Verdict { case: bar.case, target, measure, limit, figure, outcome })
    };
    BARS.iter().filter_map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use crate::bench::bars::Outcome;
    use crate::bench::results::Trouble;

    use super::super::cases::{CASES, Concurrency};
    use super::*;

    const GATE: Target = Target::Gate(Concurrency::Places(32));

    fn series(turns: &[(f64, f64)]) -> Series {
        let figures = |(tps, sql_ms): &(f64, f64)| Figures { tps: *tps, sql_ms: Some(*sql_ms), ..Figures::default() };
        Series { turns: (0..).zip(turns.iter().map(figures)).collect(), trouble: None }
    }

    fn results() -> Results {
        Results::from([
            (("tpcb-1000", Target::Plain), series(&[(1000.0, 600.0), (2000.0, 300.0)])),
            (("tpcb-1000", GATE), series(&[(3000.0, 20.0), (4000.0, 20.0)])),
        ])
    }

    #[test]
    fn bars_are_judged_round_by_round() {
        let verdicts = judge(&results(), GATE);
        let figures: Vec<_> = verdicts.iter().map(|verdict| (verdict.figure, verdict.outcome)).collect();
        assert_eq!(figures, [(Some(2.5), Outcome::Met), (Some(22.5), Outcome::Met)]);
    }

    #[test]
    fn without_plain_nothing_is_judged_and_what_broke_meets_no_bar() {
        let mut results = results();
        results.remove(&("tpcb-1000", Target::Plain));
        assert!(judge(&results, GATE).iter().all(|verdict| verdict.outcome == Outcome::NotMeasured));
        results.get_mut(&("tpcb-1000", GATE)).unwrap().trouble = Some(Trouble::Broken("aborted".to_owned()));
        assert!(judge(&results, GATE).iter().all(|verdict| verdict.outcome == Outcome::NotMet));
    }

    #[test]
    fn bars_name_real_cases() {
        for bar in BARS {
            assert!(CASES.iter().any(|case| case.name == bar.case), "{}", bar.case);
        }
    }
}
