//! Finds stalls in a series of seconds (or of longer spans), by nothing but its transactions a second.
//!
//! The ordinary rate is the median rate of the turn, its head and tail left out. A stall begins with a span that did
//! less than [`BEGINS_BELOW`] of that and ends before the first of [`CALM_S`] seconds at [`ENDS_ABOVE`] of it: a
//! burst between two standstills is part of the stall, as a catch-up after a wait is. A slow span that begins with
//! the turn and is over within [`START_S`] seconds is no stall: sessions are new, and nothing is under way yet that
//! could end. A turn that is slow for more than half of its time has no ordinary rate; its stalls are what the rest
//! is compared with, so none are found.

use super::Stall;
use crate::{result::Second, stats};

/// The share of the ordinary rate that only a stall falls below. Noise of a shared machine stays above it.
const BEGINS_BELOW: f64 = 0.6;
/// The share that a stall's end has to come back to.
const ENDS_ABOVE: f64 = 0.8;
/// The time that a series has to be calm again, in seconds or in spans, whichever is longer.
const CALM_S: f64 = 2.0;
const CALM_SPANS: usize = 2;
/// The time that a load may take to begin: in its first second at the latest, and up to here.
const START_S: f64 = 5.0;
const STARTS_WITHIN_S: f64 = 1.0;
/// A series that is shorter than this has nothing ordinary.
const SPANS_MIN: usize = 5;

/// The stalls of a series, in order, without causes yet.
pub fn detect(seconds: &[Second]) -> Vec<Stall> {
    if seconds.len() < SPANS_MIN {
        return Vec::new();
    }
    let Some(ordinary_tps) = stats::median(seconds[1..seconds.len() - 1].iter().map(|second| second.tps)) else {
        return Vec::new();
    };
    let mut stalls = Vec::new();
    let mut open: Option<Open> = None;
    for (index, second) in seconds.iter().enumerate() {
        let rate = if ordinary_tps > 0.0 { second.tps / ordinary_tps } else { 1.0 };
        if rate < BEGINS_BELOW {
            open.get_or_insert(Open { first: index, last: index }).last = index;
        } else if let Some(stall) = open
            && rate >= ENDS_ABOVE
            && is_calm(&seconds[stall.last + 1..=index])
        {
            stalls.push(stall.close(seconds, ordinary_tps));
            open = None;
        }
    }
    stalls.extend(open.map(|stall| stall.close(seconds, ordinary_tps)));
    stalls.retain(|stall| stall.from_s >= STARTS_WITHIN_S || stall.to_s > START_S);
    stalls
}

/// A stall that has not ended: its first and its last slow span.
#[derive(Clone, Copy)]
struct Open {
    first: usize,
    last: usize,
}

/// Whether spans since the last slow one are enough for an end.
fn is_calm(since: &[Second]) -> bool {
    let calm_s: f64 = since.iter().map(|second| second.span_s).sum();
    since.len() >= CALM_SPANS && calm_s >= CALM_S
}

impl Open {
    fn close(self, seconds: &[Second], ordinary_tps: f64) -> Stall {
        let within = &seconds[self.first..=self.last];
        let span_s: f64 = within.iter().map(|second| second.span_s).sum();
        let transactions: f64 = within.iter().map(|second| second.tps * second.span_s).sum();
        Stall {
            from_s: within[0].t_s - within[0].span_s,
            to_s: within[within.len() - 1].t_s,
            tps: if span_s > 0.0 { transactions / span_s } else { 0.0 },
            ordinary_tps,
            max_ms: within.iter().filter_map(|second| second.max_ms).reduce(f64::max),
            findings: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;

    fn series(rates: &[f64]) -> Vec<Second> {
        let second = |(index, tps): (usize, &f64)| Second {
            t_s: index as f64 + 1.0,
            span_s: 1.0,
            tps: *tps,
            ..Second::default()
        };
        rates.iter().enumerate().map(second).collect()
    }

    fn spans(seconds: &[Second]) -> Vec<(f64, f64)> {
        detect(seconds).iter().map(|stall| (stall.from_s, stall.to_s)).collect()
    }

    #[test]
    fn the_reports_stalls() {
        let stalls = detect(&reference::session_log_with_update());
        let first = &stalls[0];
        assert!(first.from_s <= 118.0 && first.to_s >= 204.0, "{stalls:?}");
        assert!(stalls.iter().all(|stall| stall.from_s >= 115.0 && stall.to_s <= 215.0), "{stalls:?}");
        assert_eq!(detect(&reference::session_log_without_update()), []);
    }

    #[test]
    fn a_burst_between_two_standstills_belongs_to_the_stall() {
        let rates = [100.0, 98.0, 103.0, 99.0, 5.0, 0.0, 180.0, 10.0, 140.0, 101.0, 97.0, 100.0, 99.0];
        assert_eq!(spans(&series(&rates)), [(4.0, 8.0)]);
    }

    #[test]
    fn two_stalls_with_calm_between() {
        let rates = [100.0, 98.0, 10.0, 99.0, 101.0, 100.0, 102.0, 7.0, 8.0, 140.0, 101.0, 97.0, 100.0];
        assert_eq!(spans(&series(&rates)), [(2.0, 3.0), (7.0, 9.0)]);
    }

    #[test]
    fn noise_is_no_stall_and_an_open_end_is_one() {
        assert_eq!(spans(&series(&[100.0, 70.0, 130.0, 65.0, 110.0, 90.0, 100.0])), []);
        assert_eq!(spans(&series(&[100.0, 101.0, 99.0, 98.0, 100.0, 100.0, 0.0, 0.0])), [(6.0, 8.0)]);
    }

    #[test]
    fn how_a_load_begins_is_no_stall() {
        let rates = |slow: usize| {
            let rate = |second: usize| if second < slow { 15.0 } else { 100.0 };
            (0..20).map(rate).collect::<Vec<f64>>()
        };
        assert_eq!(spans(&series(&rates(5))), []);
        assert_eq!(spans(&series(&rates(6))), [(0.0, 6.0)]);
        let later = [&[100.0], &rates(1)[..]].concat();
        assert_eq!(spans(&series(&later)), [(1.0, 2.0)]);
    }

    #[test]
    fn what_has_nothing_ordinary_has_no_stalls() {
        assert_eq!(spans(&series(&[])), []);
        assert_eq!(spans(&series(&[100.0, 0.0, 100.0])), []);
        assert_eq!(spans(&series(&[0.0; 20])), []);
    }
}
