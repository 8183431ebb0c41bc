//! Host names of servers, resolved where it may take its time: never by a worker.
//!
//! Of a name with several addresses each is a place where the server may be. They are tried in the order in which the
//! system gives them, as libpq does, but from the one on at which a connect that failed at another was tried next.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::{Mutex, PoisonError, RwLock},
    time::{Duration, Instant},
};

use sluice_core::io::Address;

use crate::net::sockets::Target;

/// The addresses of a name that are tried, at most.
const ADDRESSES_MAX: usize = 16;

/// The interval at which names are resolved again.
pub(crate) const RESOLVE_EVERY: Duration = Duration::from_secs(10);

/// The known addresses of host names.
#[derive(Debug)]
pub(crate) struct Resolver {
    /// The time at which all names were resolved last.
    refreshed_at: Mutex<Instant>,
    names: RwLock<HashMap<String, Result<Name, String>>>,
    look_up: fn(&str) -> io::Result<Vec<IpAddr>>,
}

/// The addresses of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Name {
    /// In the order in which they were found; there is one at least.
    addresses: Vec<IpAddr>,
    /// The one to begin with where a connect to another one has failed.
    preferred: Option<IpAddr>,
}

impl Default for Resolver {
    fn default() -> Self {
        Self { refreshed_at: Mutex::new(Instant::now()), names: RwLock::default(), look_up: of_system }
    }
}

impl Resolver {
    /// Knows the names in `addresses`, as of now, and no others. Takes as long as it takes to resolve those that are new.
    pub(crate) fn know<'a>(&self, addresses: impl IntoIterator<Item = &'a Address>) {
        let hosts = addresses.into_iter().filter_map(|address| match address {
            Address::Tcp(host, _) if host.parse::<IpAddr>().is_err() => Some(host),
            _ => None,
        });
        let known = self.names.read().unwrap_or_else(PoisonError::into_inner).clone();
        let found = |host: &String| known.get(host).cloned().unwrap_or_else(|| self.find(host));
        let names = hosts.map(|host| (host.clone(), found(host))).collect();
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Knows the name in that address as well, if there is one.
    pub(crate) fn know_besides(&self, address: &Address) {
        if let Address::Tcp(host, _) = address
            && host.parse::<IpAddr>().is_err()
            && !self.names.read().unwrap_or_else(PoisonError::into_inner).contains_key(host)
        {
            let found = self.find(host);
            self.names.write().unwrap_or_else(PoisonError::into_inner).insert(host.clone(), found);
        }
    }

    /// The places to connect to, one after the other until one works: the addresses of a name, or else what is given.
    pub(crate) fn places(&self, address: &Address) -> Vec<Address> {
        if let Address::Tcp(host, port) = address
            && let Some(Ok(name)) = self.names.read().unwrap_or_else(PoisonError::into_inner).get(host)
        {
            return name.in_order().map(|ip| Address::Tcp(ip.to_string(), *port)).collect();
        }
        vec![address.clone()]
    }

    /// A connect to that place of an address has failed: others are tried first from now on.
    pub(crate) fn failed(&self, address: &Address, place: &Address) {
        let (Address::Tcp(host, _), Address::Tcp(ip, _)) = (address, place) else { return };
        let (false, Ok(ip)) = (host == ip, ip.parse::<IpAddr>()) else { return };
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(Ok(name)) = names.get_mut(host) {
            name.failed(ip);
        }
    }

    /// The target at a place. A name is one that has no address, and the error says why.
    pub(crate) fn target(&self, place: &Address) -> io::Result<Target> {
        match place {
            Address::Unix(path) => Ok(Target::Unix(path.clone())),
            Address::Tcp(host, port) => {
                if let Ok(ip) = host.parse() {
                    return Ok(Target::Tcp(SocketAddr::new(ip, *port)));
                }
                match self.names.read().unwrap_or_else(PoisonError::into_inner).get(host) {
                    Some(Err(error)) => Err(io::Error::other(error.clone())),
                    _ => Err(io::Error::other("the host name has not been resolved")),
                }
            }
            Address::Primary(_) | Address::Readers(_) => Err(io::Error::other(format!("{place} is not known"))),
        }
    }

    /// The names with their addresses; one that does not resolve has none.
    pub(crate) fn known(&self) -> BTreeMap<String, Vec<IpAddr>> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let addresses = |name: &Result<Name, String>| name.as_ref().map(|it| it.addresses.clone()).unwrap_or_default();
        names.iter().map(|(host, name)| (host.clone(), addresses(name))).collect()
    }

    /// The time until names are resolved again.
    pub(crate) fn time_to_refresh(&self) -> Duration {
        let refreshed_at = *self.refreshed_at.lock().unwrap_or_else(PoisonError::into_inner);
        RESOLVE_EVERY.saturating_sub(refreshed_at.elapsed())
    }

    /// Whether there is any name to keep up to date.
    pub(crate) fn has_names(&self) -> bool {
        !self.names.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Resolves all names again; a name that does not resolve now keeps its last addresses.
    pub(crate) fn refresh(&self) {
        let names: Vec<String> = self.names.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        for name in names {
            let found = self.find(&name);
            let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
            match (found, names.get_mut(&name)) {
                (Ok(found), Some(Ok(known))) => known.become_now(found.addresses),
                (Err(_), Some(Ok(_))) => {}
                (found, _) => _ = names.insert(name, found),
            }
        }
        *self.refreshed_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn find(&self, host: &str) -> Result<Name, String> {
        let found = (self.look_up)(host).map_err(|e| format!("the name \"{host}\" can't be resolved: {e}"))?;
        let mut addresses = Vec::new();
        for ip in found {
            if addresses.len() < ADDRESSES_MAX && !addresses.contains(&ip) {
                addresses.push(ip);
            }
        }
        match addresses.is_empty() {
            true => Err(format!("the name \"{host}\" has no address")),
            false => Ok(Name { addresses, preferred: None }),
        }
    }
}

impl Name {
    /// The place in the list to begin with.
    fn first(&self) -> usize {
        let preferred = |preferred| self.addresses.iter().position(|ip| *ip == preferred);
        self.preferred.and_then(preferred).unwrap_or_default()
    }

    fn in_order(&self) -> impl Iterator<Item = IpAddr> {
        let (before, first) = self.addresses.split_at(self.first());
        first.iter().chain(before).copied()
    }

    /// The next one is the first from now on, unless another one is already.
    fn failed(&mut self, ip: IpAddr) {
        let first = self.first();
        if self.addresses.get(first) == Some(&ip) {
            let next = (first + 1) % self.addresses.len();
            self.preferred = self.addresses.get(next).copied();
        }
    }

    /// These are its addresses now.
    fn become_now(&mut self, addresses: Vec<IpAddr>) {
        self.preferred = self.preferred.filter(|preferred| addresses.contains(preferred));
        self.addresses = addresses;
    }
}

fn of_system(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn server() -> Address {
        Address::Tcp("db".to_owned(), 5432)
    }

    fn shown(resolver: &Resolver) -> String {
        let places = resolver.places(&server());
        match resolver.target(&places[0]) {
            Ok(_) => places.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    }

    /// The answer to all questions, as addresses with spaces between them; of none it is an error.
    static ANSWER: Mutex<&str> = Mutex::new("");

    fn answer(_: &str) -> io::Result<Vec<IpAddr>> {
        match *ANSWER.lock().unwrap() {
            "" => Err(io::Error::other("nobody answers")),
            answer => Ok(answer.split(' ').filter_map(|ip| ip.parse().ok()).collect()),
        }
    }

    #[test]
    fn each_address_of_a_name_gets_its_turn() {
        let resolver = Resolver { look_up: answer, ..Resolver::default() };
        let refreshed = |addresses: &'static str| {
            *ANSWER.lock().unwrap() = addresses;
            resolver.refresh();
            shown(&resolver)
        };
        resolver.know(&[server()]);
        assert_eq!(shown(&resolver), "the name \"db\" can't be resolved: nobody answers");
        assert_eq!(refreshed("none"), "the name \"db\" has no address");
        let failed = |ip: &str| resolver.failed(&server(), &Address::Tcp(ip.to_owned(), 5432));
        assert_eq!(refreshed("::1 10.0.0.1 10.0.0.2 ::1"), "[::1]:5432 10.0.0.1:5432 10.0.0.2:5432");
        // While none has failed, the order is that of the last answer.
        assert_eq!(refreshed("10.0.0.1 10.0.0.2 ::1"), "10.0.0.1:5432 10.0.0.2:5432 [::1]:5432");
        failed("10.0.0.1");
        assert_eq!(shown(&resolver), "10.0.0.2:5432 [::1]:5432 10.0.0.1:5432");
        // Others may hear later that the same one has failed.
        failed("10.0.0.1");
        assert_eq!(shown(&resolver), "10.0.0.2:5432 [::1]:5432 10.0.0.1:5432");
        assert_eq!(refreshed("::1 10.0.0.2 10.0.0.3"), "10.0.0.2:5432 10.0.0.3:5432 [::1]:5432");
        assert_eq!(refreshed(""), "10.0.0.2:5432 10.0.0.3:5432 [::1]:5432");
        // When all have failed, it begins anew.
        ["10.0.0.2", "10.0.0.3", "::1"].into_iter().for_each(failed);
        assert_eq!(shown(&resolver), "10.0.0.2:5432 10.0.0.3:5432 [::1]:5432");
        failed("10.0.0.2");
        assert_eq!(refreshed("10.0.0.4 10.0.0.5"), "10.0.0.4:5432 10.0.0.5:5432");
        // The configuration read again changes nothing.
        failed("10.0.0.4");
        resolver.know(&[server()]);
        assert_eq!(shown(&resolver), "10.0.0.5:5432 10.0.0.4:5432");
    }

    #[test]
    fn what_is_no_name_is_one_place() {
        let resolver = Resolver::default();
        for address in [Address::Unix("/run/.s.PGSQL.5432".into()), Address::Tcp("::1".to_owned(), 5432)] {
            assert_eq!(resolver.places(&address), std::slice::from_ref(&address));
            resolver.failed(&address, &address);
            assert!(resolver.target(&address).is_ok());
        }
        assert_eq!(resolver.places(&server()), [server()]);
        assert!(resolver.target(&server()).is_err());
    }
}
