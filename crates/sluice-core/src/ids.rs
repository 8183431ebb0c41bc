//! Numbers of what an engine has. Each kind is a type of its own, so that a client's number can't be taken for a
//! server's.

use std::{
    marker::PhantomData,
    ops::{Index, IndexMut},
};

use slab::Slab;

/// A number that says of what kind its owner is.
pub trait Id: Copy {
    /// The id of a slot.
    fn of_slot(slot: usize) -> Self;

    /// The slot that it names.
    fn slot(self) -> usize;
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl Id for $name {
            fn of_slot(slot: usize) -> Self {
                Self(slot as u32)
            }

            fn slot(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id! {
    /// A client of one engine. Used again once that client is gone.
    ClientId
}

id! {
    /// A server connection of one engine. Used again once that connection is gone.
    ServerId
}

id! {
    /// A CancelRequest on its way from one engine to a server. Used again once it is delivered.
    CancelId
}

/// A client, anywhere in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientRef {
    /// Its worker.
    pub worker: u16,
    /// Its number there.
    pub id: ClientId,
    /// Tells it from others that had the same number.
    pub serial: u32,
}

/// A server connection, anywhere in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerRef {
    /// The worker that has it.
    pub worker: u16,
    /// Its number there.
    pub id: ServerId,
    /// Tells it from others that had the same number.
    pub serial: u32,
}

/// A connection, by the driver's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Conn(pub u32);

/// The owner of a connection, by the engine's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A client's.
    Client(ClientId),
    /// A server's.
    Server(ServerId),
    /// One that carries a CancelRequest to a server.
    Cancel(CancelId),
}

/// Values in slots, each known by its id until it is removed.
#[derive(Debug)]
pub struct Slots<I, T> {
    slab: Slab<T>,
    id: PhantomData<fn(I)>,
}

impl<I, T> Default for Slots<I, T> {
    fn default() -> Self {
        Self { slab: Slab::new(), id: PhantomData }
    }
}

impl<I: Id, T> Slots<I, T> {
    /// The number of values.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// The value of an id.
    pub fn get(&self, id: I) -> Option<&T> {
        self.slab.get(id.slot())
    }

    /// The value of an id.
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.slab.get_mut(id.slot())
    }

    /// Adds a value.
    pub fn insert(&mut self, value: T) -> I {
        I::of_slot(self.slab.insert(value))
    }

    /// The id of the value that is added next.
    pub fn next_id(&self) -> I {
        I::of_slot(self.slab.vacant_key())
    }

    /// Removes the value of an id.
    pub fn remove(&mut self, id: I) -> Option<T> {
        self.slab.try_remove(id.slot())
    }

    /// The values with their ids, in the order of these.
    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.slab.iter().map(|(slot, value)| (I::of_slot(slot), value))
    }

    /// The values.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slab.iter_mut().map(|(_, value)| value)
    }

    /// The ids of the values that fit, in a list of their own, so that the values can be changed meanwhile.
    pub fn ids(&self, fits: impl Fn(&T) -> bool) -> Vec<I> {
        self.iter().filter(|(_, value)| fits(value)).map(|(id, _)| id).collect()
    }
}

impl<I: Id, T> Index<I> for Slots<I, T> {
    type Output = T;

    fn index(&self, id: I) -> &T {
        &self.slab[id.slot()]
    }
}

impl<I: Id, T> IndexMut<I> for Slots<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.slab[id.slot()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_id_is_that_of_the_value_added_next_and_the_removed_are_used_again() {
        let mut slots: Slots<ClientId, char> = Slots::default();
        for value in ['a', 'b', 'c'] {
            let next = slots.next_id();
            assert_eq!(slots.insert(value), next);
        }
        assert_eq!(slots.remove(ClientId(1)), Some('b'));
        assert_eq!((slots.remove(ClientId(1)), slots.get(ClientId(1)), slots.len()), (None, None, 2));
        assert_eq!(slots.next_id(), ClientId(1));
        assert_eq!(slots.ids(|value| *value > 'a'), [ClientId(2)]);
    }
}
