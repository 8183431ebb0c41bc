//! Rounds: every target takes a turn in each, in an order that rotates, until it breaks.

use std::fmt;

use anyhow::{Context, Result};

use super::Case;
use super::cluster::Cluster;
use super::results::{Results, Trouble};
use sluice_lab::process::Interrupt;

/// A benchmark, which takes turns.
pub(crate) trait Bench {
    type Case: Case;
    type Target: Copy + Ord + fmt::Display;
    /// Displays as the rest of a turn's line on the terminal.
    type Figures: fmt::Display;

    fn interrupt(&self) -> &Interrupt;

    /// The PostgreSQL that a target stands before, or is.
    fn cluster(&self, target: Self::Target) -> &Cluster;

    fn turn(&self, case: &'static Self::Case, target: Self::Target) -> Result<Self::Figures>;
}

type Run<B> = (&'static <B as Bench>::Case, <B as Bench>::Target);

/// All rounds of cases that belong together. What breaks takes no more turns; an error ends the benchmark.
pub(crate) fn take_turns<B: Bench>(
    bench: &B,
    runs: &[Run<B>],
    turns: u32,
    results: &mut Results<B::Target, B::Figures>,
) -> Result<()> {
    for round in 0..turns {
        for (case, target) in rotated(runs, round) {
            let series = results.entry((case.name(), target)).or_default();
            if series.trouble.is_some() {
                continue;
            }
            let turn = bench.turn(case, target);
            bench.interrupt().check()?;
            let name = format!("{} {}/{turns} {:<15}", case.name(), round + 1, target.to_string());
            match turn {
                Ok(figures) => {
                    eprintln!("{name} {figures}");
                    series.turns.insert(round, figures);
                }
                Err(error) => {
                    eprintln!("{name} broke: {error:#}");
                    bench.cluster(target).sql("postgres", "select 1").context("PostgreSQL itself is gone")?;
                    series.trouble = Some(Trouble::Broken(format!("{error:#}")));
                }
            }
        }
    }
    Ok(())
}

/// The order of a round: everyone moves up by one, the first goes to the end.
pub(crate) fn rotated<T: Copy>(runs: &[T], round: u32) -> Vec<T> {
    let mut runs = runs.to_vec();
    if !runs.is_empty() {
        let places = round as usize % runs.len();
        runs.rotate_left(places);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_comes_first_in_turn() {
        assert_eq!(rotated(&[1, 2, 3], 0), [1, 2, 3]);
        assert_eq!(rotated(&[1, 2, 3], 1), [2, 3, 1]);
        assert_eq!(rotated(&[1, 2, 3], 5), [3, 1, 2]);
        assert!(rotated::<u8>(&[], 1).is_empty());
    }
}
