//! The seeded simulation of the control plane: whatever is observed, in whatever order, a snapshot is what the last
//! configuration says, with primaries and access rules as they have been told since.
//!
//! | file | what it is about |
//! |---|---|
//! | `operator` | configurations: what comes, goes and changes from one to the next |
//! | `world` | the other observations, and a model of what has to come of all of them |
//! | `checks` | what must hold after each |
//!
//! `SLUICE_SIM_SEED=N` replays one seed with a trace; `SLUICE_SIM_SEEDS=N` tries that many, for a soak, and
//! `SLUICE_SIM_FIRST=N` from that one on.

mod checks;
mod operator;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use world::{Figures, World};

/// Seeds tried by default.
const SEEDS: u64 = 150;

/// Failing seeds after which the search ends.
const FAILURES_MAX: usize = 5;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn a_snapshot_is_what_has_been_observed() {
    if let Some(seed) = number("SLUICE_SIM_SEED") {
        println!("{:?}", World::new(seed, true).run());
        return;
    }
    let first = number("SLUICE_SIM_FIRST").unwrap_or(0);
    let last = first + number("SLUICE_SIM_SEEDS").unwrap_or(SEEDS);
    let (mut total, mut failures) = (Figures::default(), Vec::new());
    for seed in first..last {
        match catch_unwind(AssertUnwindSafe(|| World::new(seed, false).run())) {
            Ok(figures) => total.add(&figures),
            Err(_) => failures.push(seed),
        }
        if failures.len() >= FAILURES_MAX {
            break;
        }
    }
    println!("seeds {first} to {last}: {total:?}");
    let replay = |seed: &u64| {
        format!("\n  SLUICE_SIM_SEED={seed} cargo test -p sluice-control --test simulation -- --nocapture")
    };
    assert!(failures.is_empty(), "seeds fail; replay with{}", failures.iter().map(replay).collect::<String>());
    if last - first >= SEEDS {
        total.check_extremes();
    }
}
