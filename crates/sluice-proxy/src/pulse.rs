//! Proof that the threads come round which clients depend on: the workers, and the control thread.
//!
//! A worker counts its turns, in each of which it handles whatever has come. Whoever asks wakes it, so that one with
//! nothing to do has a turn too, and waits for the count to move: a worker that is stuck in a turn does not answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc as std_mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use sluice_net::Bell;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::{control::Order, mailbox::Mailboxes};

/// The interval at which a count is looked at.
const LOOKS_EVERY: Duration = Duration::from_millis(2);

/// A thread that does not come round.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Silent {
    /// A worker.
    #[error("worker {0} has not come round for {1:?}")]
    Worker(u16, Duration),
    /// The control thread.
    #[error("the control thread has not come round for {0:?}")]
    Control(Duration),
}

/// A worker's count of its turns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns(Arc<AtomicU64>);

impl Turns {
    /// A turn is over.
    pub(crate) fn count(&self) {
        // One thread writes: no read-modify-write is needed.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// A means to ask whether all is alive.
#[derive(Debug, Clone)]
pub struct Pulse {
    pub(crate) turns: Vec<Turns>,
    pub(crate) mailboxes: Arc<Mailboxes>,
    pub(crate) orders: mpsc::Sender<Order>,
}

impl Pulse {
    /// Waits until each thread has come round, at most for that time.
    pub fn check(&self, within: Duration) -> Result<(), Silent> {
        let begin = Instant::now();
        let before: Vec<u64> = self.turns.iter().map(Turns::now).collect();
        for worker in 0..self.turns.len() as u16 {
            self.mailboxes.bell(worker).ring();
        }
        let (answer, answered) = std_mpsc::channel();
        let asked = self.orders.try_send(Order::Answer(answer)).is_ok();
        for (number, turns) in self.turns.iter().enumerate() {
            while turns.now() == before[number] {
                if begin.elapsed() >= within {
                    return Err(Silent::Worker(number as u16, within));
                }
                thread::sleep(LOOKS_EVERY);
            }
        }
        let left = within.saturating_sub(begin.elapsed());
        if asked && answered.recv_timeout(left).is_ok() { Ok(()) } else { Err(Silent::Control(within)) }
    }
}
