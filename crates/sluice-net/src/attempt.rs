//! An attempt to connect to a server, by one after the other of the places at which it may be.

use std::io;

use sluice_core::io::Address;

use crate::Host;

/// The way to a server.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// The server's address.
    address: Address,
    /// The place of the connect that is under way.
    pub(crate) place: Option<Address>,
    /// Those that come next.
    pub(crate) rest: std::vec::IntoIter<Address>,
    /// The faults of those before, if there are several.
    pub(crate) wrong: Vec<String>,
    is_one_of_several: bool,
}

impl Attempt {
    pub(crate) fn to(address: &Address, places: Vec<Address>) -> Self {
        let is_one_of_several = places.len() > 1;
        let (address, rest) = (address.clone(), places.into_iter());
        Self { address, place: None, rest, wrong: Vec::new(), is_one_of_several }
    }

    /// The connect that is under way has failed.
    pub(crate) fn fails(&mut self, error: &io::Error, host: &mut impl Host) {
        let Some(place) = self.place.take() else { return };
        host.connect_failed(&self.address, &place);
        self.wrong.push(if self.is_one_of_several { format!("{place}: {error}") } else { error.to_string() });
    }
}
