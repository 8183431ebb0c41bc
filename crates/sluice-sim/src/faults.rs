//! Faults of a network, by chance.

use crate::Rng;

/// The most that a write of a peer or a delivery to one moves at once, in bytes.
const PIECE_BYTES_MAX: u64 = 16 << 10;

/// The faults of a network, each with its chance in percent.
#[derive(Debug, Clone)]
pub struct Faults {
    /// The source of chance.
    pub rng: Rng,
    /// Of reads, sends and deliveries that move only a part.
    pub cut_percent: u64,
    /// Of sends that end before all is sent, though there is room.
    pub short_send_percent: u64,
    /// Of readings that bring more after they were asked to stop.
    pub late_percent: u64,
    /// Of readings that stop by themselves.
    pub stop_percent: u64,
    /// Of connects that fail before they begin.
    pub no_socket_percent: u64,
    /// Of connections that can't be accepted yet.
    pub no_accept_percent: u64,
}

impl Faults {
    /// A network where nothing goes wrong.
    pub fn none() -> Self {
        Self {
            rng: Rng::new(0),
            cut_percent: 0,
            short_send_percent: 0,
            late_percent: 0,
            stop_percent: 0,
            no_socket_percent: 0,
            no_accept_percent: 0,
        }
    }

    pub(crate) fn fails_to_accept(&mut self) -> bool {
        self.happens(self.no_accept_percent)
    }

    pub(crate) fn happens(&mut self, percent: u64) -> bool {
        percent > 0 && self.rng.percent(percent)
    }

    /// The number of `available` bytes that are moved at once.
    pub(crate) fn cut(&mut self, available: usize) -> usize {
        if !self.happens(self.cut_percent) {
            return available;
        }
        let most = (available as u64).min(PIECE_BYTES_MAX);
        let cut = match available {
            0 => 0,
            1..=2000 if self.rng.percent(50) => self.rng.range(1, most.min(9)),
            1..=2000 => self.rng.range(1, most),
            _ => self.rng.range(most / 4, most),
        };
        cut as usize
    }
}
