//! The pools' figures in the log, once in a while, by the control thread.

use std::{
    future,
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_core::{figures::PoolFigures, hub::Hub, time::Time};
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
        let up = epoch.elapsed();
        for pool in &hub.figures(Time(up.as_micros() as u64)).pools {
            line(pool, up);
        }
    }
}

fn line(pool: &PoolFigures, up: Duration) {
    let counts = &pool.counts;
    tracing::info!(
        target: TARGET,
        database = pool.database,
        user = pool.role,
        up_s = seconds(up),
        waiting = counts.waiting,
        longest_wait_s = seconds(pool.longest_wait),
        active = pool.active(),
        idle = counts.idle,
        connecting = counts.connecting,
        pinned = counts.pinned,
        pins = (counts.pinned > 0).then(|| pool.pins.to_string()),
        served = counts.waits.count(),
        waited_s = seconds(counts.waits.sum),
        "pool"
    );
}

/// Seconds to the millisecond.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}
