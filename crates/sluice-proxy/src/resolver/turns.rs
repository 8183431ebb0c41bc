//! Whose look-up is next. Some are under way at once, and names that were slow last time are not all of them: however
//! many no name server answers, the others get their turn.

use std::collections::VecDeque;

/// Look-ups under way at once, at most. Each has a thread, and most of them a socket.
pub(crate) const AT_ONCE: usize = 64;

/// The same of names that were slow last time.
const SLOW_AT_ONCE: usize = AT_ONCE / 2;

/// The look-ups that wait, and the number of those under way.
#[derive(Debug, Default)]
pub(super) struct Turns {
    quick: VecDeque<String>,
    slow: VecDeque<String>,
    under_way: usize,
    slow_under_way: usize,
}

/// A look-up's turn, which is to be given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) host: String,
    is_slow: bool,
}

impl Turns {
    /// A look-up waits for its turn.
    pub(super) fn wait(&mut self, host: String, is_slow: bool) {
        if is_slow { self.slow.push_back(host) } else { self.quick.push_back(host) }
    }

    /// The next look-up, which begins now.
    pub(super) fn next(&mut self) -> Option<Turn> {
        if self.under_way >= AT_ONCE {
            return None;
        }
        let turn = match self.quick.pop_front() {
            Some(host) => Turn { host, is_slow: false },
            None if self.slow_under_way < SLOW_AT_ONCE => Turn { host: self.slow.pop_front()?, is_slow: true },
            None => return None,
        };
        self.under_way += 1;
        self.slow_under_way += usize::from(turn.is_slow);
        Some(turn)
    }

    /// A look-up has ended.
    pub(super) fn give_back(&mut self, turn: &Turn) {
        self.under_way -= 1;
        self.slow_under_way -= usize::from(turn.is_slow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_names_leave_room_for_others() {
        let mut turns = Turns::default();
        for number in 0..AT_ONCE {
            turns.wait(format!("slow{number}"), true);
        }
        let under_way: Vec<_> = std::iter::from_fn(|| turns.next()).collect();
        assert_eq!(under_way.len(), SLOW_AT_ONCE);
        for number in 0..AT_ONCE {
            turns.wait(format!("quick{number}"), false);
        }
        let others: Vec<_> = std::iter::from_fn(|| turns.next()).collect();
        assert_eq!((under_way.len() + others.len(), &*others[0].host), (AT_ONCE, "quick0"));
        turns.give_back(&under_way[0]);
        assert!(turns.next().is_some_and(|turn| turn.host == format!("quick{}", others.len())));
        assert_eq!(turns.next(), None);
    }
}
