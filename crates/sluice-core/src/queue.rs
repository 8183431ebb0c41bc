//! Waiters in order. Leaving early costs as little as being served.

use std::collections::VecDeque;

/// A place in a [`Queue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// First come, first served; any waiter may leave at any time.
///
/// A waiter that leaves from the middle leaves an empty place, which goes when the front reaches it. So every
/// operation takes constant time on average, and the memory is bounded by the span between the oldest waiter and the
/// newest.
#[derive(Debug)]
pub struct Queue<T> {
    places: VecDeque<Option<T>>,
    first: u64,
    waiting: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        // In the middle, so that there are places before the first one, too.
        Self { places: VecDeque::new(), first: u64::MAX / 2, waiting: 0 }
    }
}

impl<T> Queue<T> {
    /// The number of those who wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Joins at the end.
    pub fn push(&mut self, value: T) -> Ticket {
        self.places.push_back(Some(value));
        self.waiting += 1;
        Ticket(self.first + self.places.len() as u64 - 1)
    }

    /// Joins before all others: it was served before them, and not well.
    pub fn push_front(&mut self, value: T) -> Ticket {
        self.places.push_front(Some(value));
        self.first -= 1;
        self.waiting += 1;
        Ticket(self.first)
    }

    /// Leaves; `None` if that waiter has been served or has left.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let place = usize::try_from(ticket.0.checked_sub(self.first)?).ok()?;
        let value = self.places.get_mut(place)?.take()?;
        self.waiting -= 1;
        self.trim();
        Some(value)
    }

    /// The one that has waited longest.
    pub fn front(&self) -> Option<&T> {
        self.places.front()?.as_ref()
    }

    /// All who wait, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// Serves the one that has waited longest.
    pub fn pop(&mut self) -> Option<T> {
        let value = self.places.pop_front()??;
        self.first += 1;
        self.waiting -= 1;
        self.trim();
        Some(value)
    }

    /// Serves the first one of a kind.
    pub fn pop_where(&mut self, is_meant: impl Fn(&T) -> bool) -> Option<T> {
        let place = self.places.iter().position(|place| place.as_ref().is_some_and(&is_meant))?;
        let value = self.places.get_mut(place)?.take();
        self.waiting -= 1;
        self.trim();
        value
    }

    /// Keeps the invariant that the front place is never empty.
    fn trim(&mut self) {
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serves_in_order_and_forgets_who_left() {
        let mut queue = Queue::default();
        let tickets: Vec<_> = (0..5).map(|i| queue.push(i)).collect();
        assert_eq!(queue.remove(tickets[0]), Some(0));
        assert_eq!(queue.remove(tickets[2]), Some(2));
        assert_eq!(queue.remove(tickets[2]), None);
        assert_eq!((queue.len(), queue.front()), (3, Some(&1)));
        assert_eq!((queue.pop(), queue.pop(), queue.pop(), queue.pop()), (Some(1), Some(3), Some(4), None));
        assert_eq!(queue.remove(tickets[4]), None);
        let next = queue.push(9);
        assert_eq!(queue.remove(next), Some(9));
        assert!(queue.is_empty());
    }
}
