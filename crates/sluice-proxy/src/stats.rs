//! The pools' figures in the log, once in a while, by the control thread.

use std::{
    future,
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_core::{
    hub::{Hub, Pool},
    pool::Counts,
    time::Time,
};
use tokio::time::{MissedTickBehavior, interval};

/// The name of these lines in `RUST_LOG`.
const TARGET: &str = "sluice::stats";

/// Writes a line for each pool, every `period`, for ever.
pub(crate) async fn log(hub: Arc<Hub>, period: Option<Duration>, epoch: Instant) {
    let Some(period) = period else { return future::pending().await };
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        for pool in hub.pools() {
            line(&pool, epoch.elapsed());
        }
    }
}

fn line(pool: &Pool, up: Duration) {
    let (Counts { open, idle, connecting, waiting, pinned, served, waited }, pins, longest) = {
        let state = pool.state();
        (state.counts(), state.pins(), state.longest_wait(Time(up.as_micros() as u64)))
    };
    tracing::info!(
        target: TARGET,
        database = pool.database,
        user = pool.upstream.user,
        up_s = seconds(up),
        waiting,
        longest_wait_s = seconds(longest),
        active = open - idle - connecting,
        idle,
        connecting,
        pinned,
        pins = (pinned > 0).then(|| pins.to_string()),
        served,
        waited_s = seconds(waited),
        "pool"
    );
}

/// Seconds to the millisecond.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}
