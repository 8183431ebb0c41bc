//! The seeded simulation of the pool: clients, workers and servers in one thread, on virtual time, with bytes cut
//! anywhere, clients that vanish and servers that die.
//!
//! | file | what it is about |
//! |---|---|
//! | `session` | one session of PostgreSQL: a server's, and beside each client what it must see |
//! | `postgres` | the server: logins, processes, cancels, crashes |
//! | `language` | what clients say, and the pool |
//! | `client`, `script` | clients: what they do, and how they check what they get |
//! | `agenda` | what happens when |
//! | `plan` | what a seed decides about a run |
//! | `world` | a run, and what must hold |
//!
//! `SLUICE_SIM_SEED=N` replays one seed with a trace; `SLUICE_SIM_SEEDS=N` tries that many, for a soak,
//! `SLUICE_SIM_FIRST=N` from that one on, and `SLUICE_SIM_STEP=16` those of its kind.

mod agenda;
mod client;
mod figures;
mod language;
mod marks;
mod plan;
mod postgres;
mod script;
mod session;
mod world;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use figures::Figures;
use world::World;

/// Seeds tried by default.
const SEEDS: u64 = 600;

/// Failing seeds after which the search ends.
const FAILURES_MAX: usize = 5;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn sharing_servers_does_not_show() {
    if let Some(seed) = number("SLUICE_SIM_SEED") {
        println!("{:?}", World::new(seed, true).run());
        return;
    }
    let first = number("SLUICE_SIM_FIRST").unwrap_or(0);
    let last = first + number("SLUICE_SIM_SEEDS").unwrap_or(SEEDS);
    let step = number("SLUICE_SIM_STEP").unwrap_or(1);
    let next = AtomicU64::new(first);
    let failures = Mutex::new(Vec::new());
    let total = Mutex::new(Figures::default());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(8) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(step, Ordering::Relaxed);
                    if seed >= last || failures.lock().expect("no panic").len() >= FAILURES_MAX {
                        return;
                    }
                    match catch_unwind(AssertUnwindSafe(|| World::new(seed, false).run())) {
                        Ok(figures) => total.lock().expect("no panic").add(figures),
                        Err(_) => {
                            eprintln!("seed {seed} fails");
                            failures.lock().expect("no panic").push(seed);
                        }
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("no panic");
    failures.sort_unstable();
    let total = total.into_inner().expect("no panic");
    println!("seeds {first} to {last}: {total:?}");
    let replay = |seed: &u64| {
        let kind = plan::Plan::new(*seed).kind;
        format!("\n  SLUICE_SIM_SEED={seed} cargo test -p sluice-core --test simulation -- --nocapture   # {kind}")
    };
    assert!(failures.is_empty(), "seeds fail; replay with{}", failures.iter().map(replay).collect::<String>());
    if last - first >= SEEDS {
        total.check_extremes();
    }
}
