//! The bars that Sluice has to meet, as data, and the verdicts on a run.

use std::fmt;

use crate::bench::bars::{self, Limit};
use crate::bench::results::{self, ratio};

use super::targets::Target::{self, Haproxy, Pgbouncer, Postgres};

/// The figures of one turn of pgbench. A figure that a target lacks (a pool, many logins) is absent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) tps: f64,
    pub(crate) mean_ms: f64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) pool_cpu_us_per_tx: Option<f64>,
    pub(crate) postgres_cpu_us_per_tx: Option<f64>,
    pub(crate) rss_kb: Option<f64>,
    pub(crate) logins_per_s: Option<f64>,
    pub(crate) cpu_us_per_login: Option<f64>,
}

/// The rest of a turn's line on the terminal.
impl fmt::Display for Figures {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = |us: Option<f64>| us.map_or("–".to_owned(), |us| format!("{us:.1}"));
        write!(
            out,
            "{:>8.0} tps  {:>8.3} ms  CPU µs: pool {}, PostgreSQL {}",
            self.tps,
            self.mean_ms,
            cpu(self.pool_cpu_us_per_tx),
            cpu(self.postgres_cpu_us_per_tx)
        )
    }
}

impl Figures {
    /// PostgreSQL's and the pool's processor time together.
    pub(crate) fn host_cpu_us_per_tx(&self) -> Option<f64> {
        Some(self.postgres_cpu_us_per_tx? + self.pool_cpu_us_per_tx.unwrap_or(0.0))
    }
}

pub(crate) type Series = results::Series<Figures>;
pub(crate) type Results = results::Results<Target, Figures>;
pub(crate) type Verdict = bars::Verdict<Target>;

/// The figure or ratio that a bar looks at.
#[derive(Clone, Copy, Debug)]
enum Measure {
    TpsOf(Target),
    TpsOfOwn(&'static str),
    PoolCpuOf(Target),
    HostCpuOf(Target),
    MeanOf(Target),
    MemoryMb,
    LoginCpuMs,
    Ends,
}

impl fmt::Display for Measure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TpsOf(target) => write!(out, "tps / {target}'s"),
            Self::TpsOfOwn(case) => write!(out, "tps / its own at {case}"),
            Self::PoolCpuOf(target) => write!(out, "pool CPU / {target}'s"),
            Self::HostCpuOf(target) => write!(out, "PostgreSQL's + pool's CPU / {target}'s"),
            Self::MeanOf(target) => write!(out, "mean / {target}'s"),
            Self::MemoryMb => write!(out, "memory, MB"),
            Self::LoginCpuMs => write!(out, "pool CPU a login, ms"),
            Self::Ends => write!(out, "turns that end"),
        }
    }
}

struct Bar {
    case: &'static str,
    measure: Measure,
    limit: Limit,
}

const fn bar(case: &'static str, measure: Measure, limit: Limit) -> Bar {
    Bar { case, measure, limit }
}

const BARS: &[Bar] = &[
    bar("select-extended-64", Measure::TpsOf(Postgres), Limit::AtLeast(1.1)),
    bar("select-extended-64", Measure::TpsOf(Pgbouncer), Limit::AtLeast(1.3)),
    bar("select-extended-64", Measure::PoolCpuOf(Pgbouncer), Limit::AtMost(0.6)),
    bar("select-extended-64", Measure::HostCpuOf(Postgres), Limit::AtMost(0.85)),
    bar("select-prepared-64", Measure::TpsOf(Haproxy), Limit::AtLeast(1.2)),
    bar("select-prepared-64", Measure::PoolCpuOf(Haproxy), Limit::AtMost(0.7)),
    bar("tpcb-extended-64", Measure::TpsOf(Postgres), Limit::AtLeast(1.15)),
    bar("tpcb-extended-64", Measure::HostCpuOf(Postgres), Limit::AtMost(0.85)),
    bar("tpcb-prepared-64", Measure::Ends, Limit::AtLeast(1.0)),
    bar("tpcb-prepared-64", Measure::TpsOf(Postgres), Limit::AtLeast(0.85)),
    bar("select-prepared-1", Measure::MeanOf(Postgres), Limit::AtMost(1.12)),
    bar("select-simple-16000", Measure::TpsOfOwn("select-simple-64"), Limit::AtLeast(0.85)),
    bar("select-simple-16000", Measure::MemoryMb, Limit::AtMost(64.0)),
    bar("select-simple-16000", Measure::LoginCpuMs, Limit::AtMost(0.1)),
    bar("tpcb-simple-1000", Measure::TpsOf(Postgres), Limit::AtLeast(2.8)),
    bar("tpcb-simple-1000", Measure::TpsOf(Pgbouncer), Limit::AtLeast(1.0)),
    bar("tpcb-simple-1000", Measure::PoolCpuOf(Pgbouncer), Limit::AtMost(0.75)),
];

/// The verdict on `target` for each bar; bars of cases that were not asked for are left out.
pub(crate) fn judge(results: &Results, target: Target) -> Vec<Verdict> {
    BARS.iter()
        .filter_map(|bar| {
            let series = results.get(&(bar.case, target))?;
            let figure = bar.figure(results, target, series);
            Some(Verdict {
                case: bar.case,
                target,
                measure: bar.measure.to_string(),
                limit: bar.limit,
                figure,
                outcome: bar.limit.judge(series, figure),
            })
        })
        .collect()
}

impl Bar {
    fn figure(&self, results: &Results, target: Target, series: &Series) -> Option<f64> {
        let own = (self.case, target);
        match self.measure {
            Measure::TpsOf(other) => ratio(results, own, (self.case, other), |figures| Some(figures.tps)),
            Measure::TpsOfOwn(case) => ratio(results, own, (case, target), |figures| Some(figures.tps)),
            Measure::PoolCpuOf(other) => ratio(results, own, (self.case, other), |figures| figures.pool_cpu_us_per_tx),
            Measure::HostCpuOf(other) => ratio(results, own, (self.case, other), Figures::host_cpu_us_per_tx),
            Measure::MeanOf(other) => ratio(results, own, (self.case, other), |figures| Some(figures.mean_ms)),
            Measure::MemoryMb => series.median(|figures| figures.rss_kb).map(|kb| kb / 1024.0),
            Measure::LoginCpuMs => series.median(|figures| figures.cpu_us_per_login).map(|us| us / 1000.0),
            Measure::Ends => {
                let ended = series.turns.len() as f64;
                let broken = f64::from(u8::from(series.is_broken()));
                (ended + broken > 0.0).then(|| ended / (ended + broken))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::bench::bars::Outcome;
    use crate::bench::results::Trouble;

    use super::super::cases::CASES;
    use super::*;

    const CASE: &str = "select-extended-64";
    const SLUICE: Target = Target::SluiceIoUring;

    fn series(tps: &[f64], pool_us: Option<f64>, postgres_us: f64) -> Series {
        let turn = |(round, tps): (usize, &f64)| {
            let figures = Figures {
                tps: *tps,
                pool_cpu_us_per_tx: pool_us,
                postgres_cpu_us_per_tx: Some(postgres_us),
                ..Figures::default()
            };
            (round as u32, figures)
        };
        Series { turns: tps.iter().enumerate().map(turn).collect(), trouble: None }
    }

    fn results() -> Results {
        Results::from([
            ((CASE, Postgres), series(&[100.0, 200.0, 400.0], None, 40.0)),
            ((CASE, Pgbouncer), series(&[80.0, 160.0], Some(20.0), 30.0)),
            ((CASE, SLUICE), series(&[150.0, 220.0, 480.0], Some(10.0), 20.0)),
        ])
    }

    #[test]
    fn bars_are_judged() {
        let verdicts = judge(&results(), SLUICE);
        let figures: Vec<_> = verdicts.iter().map(|verdict| (verdict.figure, verdict.outcome)).collect();
        let expected = [(1.2, Outcome::Met), (1.625, Outcome::Met), (0.5, Outcome::Met), (0.75, Outcome::Met)];
        assert_eq!(figures, expected.map(|(figure, outcome)| (Some(figure), outcome)));
    }

    #[test]
    fn a_broken_turn_meets_no_bar_and_a_missing_peer_leaves_it_open() {
        let mut results = results();
        results.remove(&(CASE, Pgbouncer));
        assert_eq!(judge(&results, SLUICE)[1].outcome, Outcome::NotMeasured);
        results.get_mut(&(CASE, SLUICE)).unwrap().trouble = Some(Trouble::Broken("aborted".to_owned()));
        assert!(judge(&results, SLUICE).iter().all(|verdict| verdict.outcome == Outcome::NotMet));
    }

    #[test]
    fn bars_name_real_cases() {
        for bar in BARS {
            assert!(CASES.iter().any(|case| case.name == bar.case), "{}", bar.case);
            if let Measure::TpsOfOwn(case) = bar.measure {
                assert!(CASES.iter().any(|other| other.name == case), "{case}");
            }
        }
    }
}
