//! The clients that may be there at once: in all, from one address, of one user, of one database.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sluice_control::{address::PeerAddress, settings::Limits};

/// Clients of the admin console at once, besides all others.
const CONSOLES_MAX: u32 = 10;

/// As many more of those who may do everything there (PostgreSQL's `superuser_reserved_connections`).
const CONSOLES_RESERVED: u32 = 3;

/// Connections beyond the limit of clients: each has time to say what it wants, since a CancelRequest is always heard,
/// and a client that asks for encryption first understands an error behind the answer to that only.
pub const STRANGERS_MAX: u32 = 100;

/// As many more, which are by Unix sockets and no clients of the pool: strangers by TCP, however many, and the pool's
/// clients leave them to whoever comes from this host, so that an administrator gets to the console.
pub const SOCKET_STRANGERS_MAX: u32 = 100;

/// Connections from an address beyond its limit, which have not said who they want to be: a CancelRequest is heard.
const STRANGERS_OF_ADDRESS_MAX: u32 = 10;

/// The counts of the clients there are.
#[derive(Debug, Default)]
pub struct Admissions {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: u32,
    consoles: u32,
    /// Connections by TCP.
    by_tcp: u32,
    /// Clients of the pool by Unix sockets.
    by_socket: u32,
    connections: HashMap<IpAddr, u32>,
    addresses: HashMap<IpAddr, u32>,
    users: HashMap<Arc<str>, u32>,
    databases: HashMap<Arc<str>, u32>,
}

/// The limit that a client is beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The limit of all clients.
    Clients,
    /// The limit of its address.
    Address(IpAddr),
    /// The limit of its user.
    User,
    /// The limit of its database.
    Database,
    /// The limit of the console's clients.
    Consoles,
}

/// A client's leave to be there; given back when this is dropped.
#[derive(Debug)]
pub struct Admitted {
    admissions: Arc<Admissions>,
    kind: Kind,
    address: Option<IpAddr>,
    user: Option<Arc<str>>,
    database: Option<Arc<str>>,
}

/// The thing that a client is counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A client of the pool.
    Client,
    /// One that wants to talk to the console, and has not proven who it is.
    Stranger,
    /// One of the console.
    Console,
}

/// A connection's leave to be there, by its address; given back when this is dropped.
#[derive(Debug)]
pub struct Connected {
    admissions: Arc<Admissions>,
    /// None while a balancer has not said for whom it is.
    address: Option<IpAddr>,
}

impl Admissions {
    /// Counts a connection in, of which nothing is known but its address; `None` where that is not counted.
    pub fn connect(self: &Arc<Self>, peer: PeerAddress, limits: &Limits) -> Result<Option<Connected>, Full> {
        if counted(peer).is_none() {
            return Ok(None);
        }
        let mut connected = self.connect_balancer(limits)?;
        connected.comes_from(peer, limits)?;
        Ok(Some(connected))
    }

    /// The same of a balancer's, which has many clients: it will say for whom it is ([`Connected::comes_from`]).
    pub fn connect_balancer(self: &Arc<Self>, limits: &Limits) -> Result<Connected, Full> {
        let mut counts = self.counts();
        if counts.are_open_taken(limits) {
            return Err(Full::Clients);
        }
        counts.by_tcp += 1;
        Ok(Connected { admissions: self.clone(), address: None })
    }

    /// Counts a client in that has said who it wants to be, and has proven nothing yet.
    pub fn admit(self: &Arc<Self>, peer: PeerAddress, limits: &Limits) -> Result<Admitted, Full> {
        self.admit_as(Kind::Client, peer, limits)
    }

    /// The same of one that wants to talk to the console: it takes none of the clients' places.
    pub fn admit_stranger(self: &Arc<Self>, peer: PeerAddress, limits: &Limits) -> Result<Admitted, Full> {
        self.admit_as(Kind::Stranger, peer, limits)
    }

    fn admit_as(self: &Arc<Self>, kind: Kind, peer: PeerAddress, limits: &Limits) -> Result<Admitted, Full> {
        let address = counted(peer);
        let mut counts = self.counts();
        let is_client_by_socket = kind == Kind::Client && peer == PeerAddress::Local;
        if kind == Kind::Client && counts.all >= limits.clients || is_client_by_socket && counts.are_open_taken(limits)
        {
            return Err(Full::Clients);
        }
        if let Some(address) = address {
            join(&mut counts.addresses, address, limits.clients_per_address).ok_or(Full::Address(address))?;
        }
        counts.all += u32::from(kind == Kind::Client);
        counts.by_socket += u32::from(is_client_by_socket);
        Ok(Admitted { admissions: self.clone(), kind, address, user: None, database: None })
    }

    /// The number of clients, those of the console among them.
    pub fn count(&self) -> u32 {
        let counts = self.counts();
        counts.all + counts.consoles
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Whether all connections are there that may be besides strangers by Unix sockets.
    fn are_open_taken(&self, limits: &Limits) -> bool {
        self.by_tcp.saturating_add(self.by_socket) >= limits.clients.saturating_add(STRANGERS_MAX)
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

    /// The client has proven who it is, and talks to the console; `is_reserved_for` says whether it may do everything there.
    pub fn enter_console(&mut self, is_reserved_for: bool) -> Result<(), Full> {
        let mut counts = self.admissions.counts();
        let most = if is_reserved_for { CONSOLES_MAX + CONSOLES_RESERVED } else { CONSOLES_MAX };
        if counts.consoles >= most {
            return Err(Full::Consoles);
        }
        counts.consoles += 1;
        self.kind = Kind::Console;
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
        match self.kind {
            Kind::Client => {
                counts.all -= 1;
                // A client by TCP has an address.
                counts.by_socket -= u32::from(self.address.is_none());
            }
            Kind::Stranger => {}
            Kind::Console => counts.consoles -= 1,
        }
        leave(&mut counts.addresses, self.address.as_ref());
        leave(&mut counts.users, self.user.as_ref());
        leave(&mut counts.databases, self.database.as_ref());
    }
}

impl Connected {
    /// It is known where the connection comes from.
    pub fn comes_from(&mut self, peer: PeerAddress, limits: &Limits) -> Result<(), Full> {
        let Some(address) = counted(peer) else { return Ok(()) };
        let most = limits.clients_per_address.map(|most| most.saturating_add(STRANGERS_OF_ADDRESS_MAX));
        let mut counts = self.admissions.counts();
        self.address = Some(join(&mut counts.connections, address, most).ok_or(Full::Address(address))?);
        Ok(())
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut counts = self.admissions.counts();
        counts.by_tcp -= 1;
        leave(&mut counts.connections, self.address.as_ref());
    }
}

/// The address of a client that is counted by it.
fn counted(peer: PeerAddress) -> Option<IpAddr> {
    match peer {
        PeerAddress::Local => None,
        PeerAddress::Tcp(address, _) => Some(address.to_canonical()),
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
        let limits = Limits { clients: 2, ..Limits::default() };
        let _client = admissions.admit(PeerAddress::Local, &limits).unwrap();
        let enter = |may_do_everything| {
            let mut console = admissions.admit_stranger(PeerAddress::Local, &limits).unwrap();
            console.enter_console(may_do_everything).ok().map(|()| console)
        };
        let others: Vec<_> = std::iter::from_fn(|| enter(false)).collect();
        let masters: Vec<_> = std::iter::from_fn(|| enter(true)).collect();
        assert_eq!((others.len(), masters.len(), admissions.count()), (10, 3, 14));
        assert!(admissions.admit(PeerAddress::Local, &limits).is_ok(), "they take nobody's place");
        drop((others, masters));
        assert!(enter(false).is_some());
    }

    #[test]
    fn strangers_by_tcp_leave_room_for_those_of_this_host() {
        let admissions = Arc::<Admissions>::default();
        let limits = Limits { clients: 2, ..Limits::default() };
        let addresses = (0..).map(|number| PeerAddress::Tcp(Ipv4Addr::from_bits(number).into(), 1));
        let silent: Vec<_> = addresses.map_while(|peer| admissions.connect(peer, &limits).ok()).collect();
        assert_eq!(silent.len(), 102);
        assert_eq!(admissions.connect(peer(1), &limits).unwrap_err(), Full::Clients);
        // The pool's clients of this host have no more than before, and its administrators get in.
        assert!(admissions.connect(PeerAddress::Local, &limits).is_ok());
        assert_eq!(admissions.admit(PeerAddress::Local, &limits).unwrap_err(), Full::Clients);
        let mut console = admissions.admit_stranger(PeerAddress::Local, &limits).unwrap();
        assert_eq!(console.enter_console(true), Ok(()));
        drop(silent);
        // Nor can clients by sockets and strangers by TCP take that room together.
        let client = admissions.admit(PeerAddress::Local, &limits).unwrap();
        let silent: Vec<_> = std::iter::from_fn(|| admissions.connect(peer(1), &limits).ok()).collect();
        assert_eq!(silent.len(), 101);
        drop((silent, client));
        let counts = admissions.counts();
        assert_eq!((counts.by_tcp, counts.by_socket), (0, 0));
    }

    #[test]
    fn a_balancer_that_is_silent_is_a_stranger_too() {
        let admissions = Arc::<Admissions>::default();
        let limits = Limits { clients: 2, clients_per_address: Some(1), ..Limits::default() };
        let mut silent: Vec<_> = std::iter::from_fn(|| admissions.connect_balancer(&limits).ok()).collect();
        assert_eq!(silent.len(), 102);
        let mut console = admissions.admit_stranger(PeerAddress::Local, &limits).unwrap();
        assert_eq!(console.enter_console(true), Ok(()));
        // Those that speak are counted where their clients are.
        let spoken = silent.iter_mut().map_while(|connected| connected.comes_from(peer(1), &limits).ok()).count();
        assert_eq!(spoken, 11);
        drop(silent);
        let counts = admissions.counts();
        assert_eq!((counts.by_tcp, counts.connections.len()), (0, 0));
    }

    #[test]
    fn an_address_has_a_few_connections_more_than_clients() {
        let admissions = Arc::<Admissions>::default();
        let limits = Limits { clients_per_address: Some(2), ..Limits::default() };
        let silent: Vec<_> = std::iter::from_fn(|| admissions.connect(peer(1), &limits).ok()).collect();
        assert_eq!(silent.len(), 12);
        assert!(admissions.connect(peer(2), &limits).is_ok_and(|connected| connected.is_some()));
        assert!(admissions.connect(PeerAddress::Local, &limits).is_ok_and(|connected| connected.is_none()));
        drop(silent);
        assert!(admissions.connect(peer(1), &limits).is_ok());
        // Those who want to talk to the console are clients of their address.
        let _two = [(); 2].map(|()| admissions.admit_stranger(peer(1), &limits).unwrap());
        assert!(matches!(admissions.admit(peer(1), &limits), Err(Full::Address(_))));
    }
}
