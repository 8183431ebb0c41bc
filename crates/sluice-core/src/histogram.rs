//! Times, counted by how long they were: what a mean hides, a histogram shows.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The number of buckets; each but the last reaches to twice the time of the one before it.
pub const BUCKETS: usize = 22;

/// The longest time in the first bucket, in microseconds, as a power of 2.
const FIRST_BITS: u32 = 6;

/// Times that are counted by several threads.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_micros: AtomicU64,
}

/// Times that were counted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// The times in each bucket.
    pub buckets: [u64; BUCKETS],
    /// All of them together.
    pub sum: Duration,
}

/// The longest time in a bucket; `None`: there is no longest.
pub fn bucket_end(bucket: usize) -> Option<Duration> {
    (bucket + 1 < BUCKETS).then(|| Duration::from_micros(1 << (FIRST_BITS as usize + bucket)))
}

fn bucket_of(micros: u64) -> usize {
    let beyond_first = micros.saturating_sub(1) >> FIRST_BITS;
    ((u64::BITS - beyond_first.leading_zeros()) as usize).min(BUCKETS - 1)
}

impl Histogram {
    /// Counts a time.
    pub fn count(&self, time: Duration) {
        let micros = time.as_micros() as u64;
        self.buckets[bucket_of(micros)].fetch_add(1, Ordering::Relaxed);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The times so far.
    pub fn times(&self) -> Times {
        Times {
            buckets: std::array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed)),
            sum: Duration::from_micros(self.sum_micros.load(Ordering::Relaxed)),
        }
    }
}

impl Times {
    /// Counts a time.
    pub fn add(&mut self, time: Duration) {
        self.buckets[bucket_of(time.as_micros() as u64)] += 1;
        self.sum += time;
    }

    /// The number of times.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

impl std::ops::AddAssign for Times {
    fn add_assign(&mut self, other: Self) {
        for (bucket, more) in self.buckets.iter_mut().zip(other.buckets) {
            *bucket += more;
        }
        self.sum += other.sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_that_reaches_so_far() {
        let micros = [0, 1, 63, 64, 65, 128, 129, 1_000, 67_108_864, 67_108_865, u64::MAX / 2];
        for micros in micros {
            let bucket = bucket_of(micros);
            let time = Duration::from_micros(micros);
            assert!(bucket_end(bucket).is_none_or(|end| time <= end), "{micros} is too long for {bucket}");
            assert!(bucket == 0 || bucket_end(bucket - 1).is_some_and(|end| time > end), "{micros} is in {bucket}");
        }
    }

    #[test]
    fn what_is_counted_is_there() {
        let (histogram, mut times) = (Histogram::default(), Times::default());
        for micros in [10, 100, 1_000, 1_000] {
            histogram.count(Duration::from_micros(micros));
            times.add(Duration::from_micros(micros));
        }
        assert_eq!(histogram.times(), times);
        assert_eq!((times.count(), times.sum), (4, Duration::from_micros(2_110)));
        times += histogram.times();
        assert_eq!(times.count(), 8);
    }
}
