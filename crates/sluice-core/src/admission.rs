//! The clients that may be there at once: in all, from one address, of one user, of one database.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sluice_control::{address::PeerAddress, settings::Limits};

/// Clients of the admin console beyond the limit of clients (as PostgreSQL's `superuser_reserved_connections`).
const RESERVED_FOR_CONSOLE: u32 = 3;

/// The counts of the clients there are.
#[derive(Debug, Default)]
pub struct Admissions {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: u32,
    addresses: HashMap<IpAddr, u32>,
    users: HashMap<Arc<str>, u32>,
    databases: HashMap<Arc<str>, u32>,
}

/// The limit that a client is beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// That of all clients.
    Clients,
    /// That of its address.
    Address(IpAddr),
    /// That of its user.
    User,
    /// That of its database.
    Database,
}

/// A client's leave to be there; given back when this is dropped.
#[derive(Debug)]
pub struct Admitted {
    admissions: Arc<Admissions>,
    address: Option<IpAddr>,
    user: Option<Arc<str>>,
    database: Option<Arc<str>>,
}

impl Admissions {
    /// Counts a client in that has said who it wants to be, and has proven nothing yet.
    pub fn admit(self: &Arc<Self>, peer: PeerAddress, limits: &Limits) -> Result<Admitted, Full> {
        let address = match peer {
            PeerAddress::Local => None,
            PeerAddress::Tcp(address, _) => Some(address.to_canonical()),
        };
        let mut counts = self.counts();
        if counts.all >= limits.clients {
            return Err(Full::Clients);
        }
        if let Some(address) = address {
            join(&mut counts.addresses, address, limits.clients_per_address).ok_or(Full::Address(address))?;
        }
        counts.all += 1;
        Ok(Admitted { admissions: self.clone(), address, user: None, database: None })
    }

    /// Counts a client of the admin console in that is who it says. There is room for a few when there is none for others.
    pub fn admit_to_console(self: &Arc<Self>, limits: &Limits) -> Result<Admitted, Full> {
        let mut counts = self.counts();
        if counts.all >= limits.clients.saturating_add(RESERVED_FOR_CONSOLE) {
            return Err(Full::Clients);
        }
        counts.all += 1;
        Ok(Admitted { admissions: self.clone(), address: None, user: None, database: None })
    }

    /// The number of clients.
    pub fn count(&self) -> u32 {
        self.counts().all
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admitted {
    /// The client has proven who it is: only now does it count for its user and its database, so that nobody else uses up
    /// what these may have.
    pub fn identify(
        &mut self,
        (user, users_max): (&str, Option<u32>),
        (database, databases_max): (&str, Option<u32>),
    ) -> Result<(), Full> {
        let mut counts = self.admissions.counts();
        self.user = Some(join(&mut counts.users, user.into(), users_max).ok_or(Full::User)?);
        self.database = Some(join(&mut counts.databases, database.into(), databases_max).ok_or(Full::Database)?);
        Ok(())
    }

    /// The user that the client has proven to be.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut counts = self.admissions.counts();
        counts.all -= 1;
        leave(&mut counts.addresses, self.address.as_ref());
        leave(&mut counts.users, self.user.as_ref());
        leave(&mut counts.databases, self.database.as_ref());
    }
}

/// Counts one more of a kind; gives the key that all of it share, or `None` where there are as many as may be.
fn join<K: Eq + Hash + Clone>(counts: &mut HashMap<K, u32>, key: K, limit: Option<u32>) -> Option<K> {
    let entry = counts.entry(key);
    let key = entry.key().clone();
    let count = entry.or_default();
    // The least limit is one, so that what is refused has been counted before.
    if limit.is_some_and(|limit| *count >= limit.max(1)) {
        return None;
    }
    *count += 1;
    Some(key)
}

/// Counts one of a kind out, and forgets the kind with the last one.
fn leave<K: Eq + Hash>(counts: &mut HashMap<K, u32>, key: Option<&K>) {
    let Some((key, count)) = key.and_then(|key| Some((key, counts.get_mut(key)?))) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peer(last: u8) -> PeerAddress {
        PeerAddress::Tcp(Ipv4Addr::new(10, 0, 0, last).into(), 40_000)
    }

    #[test]
    fn each_limit_counts_what_it_names() {
        let admissions = Arc::<Admissions>::default();
        let limits = Limits { clients: 5, clients_per_address: Some(2), ..Limits::default() };
        let admit = |peer| admissions.admit(peer, &limits);
        let mut clients = vec![admit(peer(1)).unwrap(), admit(peer(1)).unwrap()];
        assert_eq!(admit(peer(1)).unwrap_err(), Full::Address(Ipv4Addr::new(10, 0, 0, 1).into()));
        // The same address, as a socket for both families has it.
        let mapped = PeerAddress::Tcp(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().into(), 1);
        assert!(matches!(admit(mapped), Err(Full::Address(_))));
        clients.extend([PeerAddress::Local, PeerAddress::Local, PeerAddress::Local].map(|peer| admit(peer).unwrap()));
        assert_eq!(admit(peer(2)).unwrap_err(), Full::Clients);

        let identify = |client: &mut Admitted, user, database| client.identify((user, Some(2)), (database, Some(3)));
        assert_eq!(identify(&mut clients[0], "ann", "app"), Ok(()));
        assert_eq!(identify(&mut clients[1], "ann", "app"), Ok(()));
        assert_eq!(identify(&mut clients[2], "ann", "app"), Err(Full::User));
        assert_eq!(identify(&mut clients[3], "bob", "app"), Ok(()));
        assert_eq!(identify(&mut clients[4], "bob", "app"), Err(Full::Database));
        assert_eq!(clients[0].user(), Some("ann"));

        clients.truncate(1);
        assert_eq!(admissions.count(), 1);
        clients.clear();
        let counts = admissions.counts();
        assert_eq!((counts.all, counts.addresses.len(), counts.users.len(), counts.databases.len()), (0, 0, 0, 0));
    }

    #[test]
    fn the_console_has_places_of_its_own() {
        let admissions = Arc::<Admissions>::default();
        let limits = Limits { clients: 1, ..Limits::default() };
        let _client = admissions.admit(PeerAddress::Local, &limits).unwrap();
        let consoles: Vec<_> = std::iter::from_fn(|| admissions.admit_to_console(&limits).ok()).collect();
        assert_eq!(consoles.len(), 3);
    }
}
