//! Host names of servers, resolved where it may take its time: never by a worker.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::{PoisonError, RwLock},
};

use sluice_core::io::Address;

use crate::net::sockets::Target;

/// The known addresses of host names.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    names: RwLock<HashMap<String, Result<IpAddr, String>>>,
}

impl Resolver {
    /// Knows the names in `addresses`, as of now, and no others. Takes as long as it takes to resolve those that are new.
    pub(crate) fn know<'a>(&self, addresses: impl IntoIterator<Item = &'a Address>) {
        let hosts = addresses.into_iter().filter_map(|address| match address {
            Address::Tcp(host, _) if host.parse::<IpAddr>().is_err() => Some(host),
            _ => None,
        });
        let known = self.names.read().unwrap_or_else(PoisonError::into_inner).clone();
        let found = |host: &String| known.get(host).cloned().unwrap_or_else(|| look_up(host));
        let names = hosts.map(|host| (host.clone(), found(host))).collect();
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Knows the name in that address as well, if there is one.
    pub(crate) fn know_besides(&self, address: &Address) {
        if let Address::Tcp(host, _) = address
            && host.parse::<IpAddr>().is_err()
            && !self.names.read().unwrap_or_else(PoisonError::into_inner).contains_key(host)
        {
            let found = look_up(host);
            self.names.write().unwrap_or_else(PoisonError::into_inner).insert(host.clone(), found);
        }
    }

    /// The address to connect to.
    pub(crate) fn target(&self, address: &Address) -> io::Result<Target> {
        match address {
            Address::Unix(path) => Ok(Target::Unix(path.clone())),
            Address::Tcp(host, port) => {
                if let Ok(ip) = host.parse() {
                    return Ok(Target::Tcp(SocketAddr::new(ip, *port)));
                }
                match self.names.read().unwrap_or_else(PoisonError::into_inner).get(host) {
                    Some(Ok(ip)) => Ok(Target::Tcp(SocketAddr::new(*ip, *port))),
                    Some(Err(error)) => Err(io::Error::other(error.clone())),
                    None => Err(io::Error::other("the host name has not been resolved")),
                }
            }
            Address::Primary(_) => Err(io::Error::other(format!("{address} is not known"))),
        }
    }

    /// Whether there is any name to keep up to date.
    pub(crate) fn has_names(&self) -> bool {
        !self.names.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Resolves all names again; a name that does not resolve now keeps its last address.
    pub(crate) fn refresh(&self) {
        let names: Vec<String> = self.names.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        for name in names {
            let found = look_up(&name);
            let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
            let known = names.get(&name).is_some_and(Result::is_ok);
            if found.is_ok() || !known {
                names.insert(name, found);
            }
        }
    }
}

fn look_up(host: &str) -> Result<IpAddr, String> {
    let mut found = (host, 0).to_socket_addrs().map_err(|e| format!("the name \"{host}\" can't be resolved: {e}"))?;
    found.next().map(|a| a.ip()).ok_or_else(|| format!("the name \"{host}\" has no address"))
}
