//! The sockets that the service listens on: those that it was started with where there are any, its own otherwise.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use sluice_config::Config;
use socket2::SockRef;
use thiserror::Error;

use crate::{http, net::sockets};

/// An address can't be listened on.
#[derive(Debug, Error)]
#[error("can't listen on {address}: {error}{}", listen_remedy(.error))]
pub struct ListenError {
    /// The address or the socket's path.
    address: String,
    /// The system's error.
    error: io::Error,
}

fn listen_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "\n  another process listens there: stop it, or choose another address",
        io::ErrorKind::PermissionDenied => {
            "\n  ports below 1024 need root or CAP_NET_BIND_SERVICE: choose a higher one"
        }
        io::ErrorKind::NotFound => "\n  there is no such folder: create it, or change \"unix_socket_dir\"",
        io::ErrorKind::AddrNotAvailable => "\n  this machine has no such address",
        _ => "",
    }
}

/// The use of a listening socket, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Systemd's, for clients: in the place of `listen` and `unix_socket_dir`.
    Pool,
    /// Systemd's, for metrics and health: in the place of `http_listen`.
    Http,
    /// Opened for clients by this process or one that it takes over from.
    OwnPool,
    /// The same for metrics and health.
    OwnHttp,
}

impl Kind {
    /// The name by which a successor gets it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Http => "http",
            Self::OwnPool => "own-pool",
            Self::OwnHttp => "own-http",
        }
    }

    /// The kind of a descriptor by its name; only a predecessor passes what it has opened itself.
    pub(crate) fn of(name: &str, has_predecessor: bool) -> Self {
        match name {
            "http" => Self::Http,
            "own-pool" if has_predecessor => Self::OwnPool,
            "own-http" if has_predecessor => Self::OwnHttp,
            _ => Self::Pool,
        }
    }

    pub(crate) fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::OwnHttp)
    }

    fn is_own(self) -> bool {
        matches!(self, Self::OwnPool | Self::OwnHttp)
    }
}

/// The address of a listening socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A Unix socket; an empty path where its address is not in the file system.
    Unix(PathBuf),
}

impl Place {
    fn path(&self) -> Option<&Path> {
        match self {
            Self::Unix(path) => Some(path),
            Self::Tcp(_) => None,
        }
    }

    /// Whether a socket that listens here is what the configuration asks for by `wanted`.
    fn is_as(&self, wanted: &Place) -> bool {
        match (self, wanted) {
            (Self::Tcp(here), Self::Tcp(wanted)) => {
                here.ip() == wanted.ip() && (wanted.port() == 0 || here.port() == wanted.port())
            }
            (here, wanted) => here == wanted,
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) kind: Kind,
    pub(crate) place: Place,
    pub(crate) socket: OwnedFd,
}

/// The sockets that the service listens on.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    listeners: Vec<Listener>,
    /// Unix sockets of a predecessor's that the configuration names no more.
    left_over: Vec<PathBuf>,
}

impl Listening {
    /// Takes what was passed, and opens what the configuration names beyond that.
    pub(crate) fn open(config: &Config, mut passed: Vec<Listener>) -> Result<Self, ListenError> {
        let mut listeners: Vec<Listener> = passed.extract_if(.., |listener| !listener.kind.is_own()).collect();
        if !listeners.iter().any(|listener| listener.kind == Kind::Pool) {
            let mut port = None;
            for &address in &config.listen {
                let listener = take_or(&mut passed, Kind::OwnPool, Place::Tcp(address))?;
                if let Place::Tcp(address) = listener.place {
                    port.get_or_insert(address.port());
                }
                listeners.push(listener);
            }
            if let Some(dir) = &config.unix_socket_dir {
                let path = dir.join(format!(".s.PGSQL.{}", port.unwrap_or(5432)));
                listeners.push(take_or(&mut passed, Kind::OwnPool, Place::Unix(path))?);
            }
        }
        if !listeners.iter().any(|listener| listener.kind == Kind::Http) {
            for &address in &config.http_listen {
                listeners.push(take_or(&mut passed, Kind::OwnHttp, Place::Tcp(address))?);
            }
        }
        // Whoever has opened them.
        for Listener { place, socket, .. } in &listeners {
            if let Place::Tcp(address) = place {
                let failed = |error| ListenError { address: address.to_string(), error };
                sockets::set_up_tcp(&SockRef::from(socket), config.tcp_user_timeout).map_err(failed)?;
            }
        }
        let left_over = passed.iter().filter_map(|listener| listener.place.path().map(Path::to_owned)).collect();
        Ok(Self { listeners, left_over })
    }

    /// All of them.
    pub(crate) fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// The sockets that clients come by, once more, for a worker.
    pub(crate) fn for_clients(&self) -> io::Result<Vec<OwnedFd>> {
        self.listeners.iter().filter(|it| !it.kind.is_http()).map(|it| it.socket.try_clone()).collect()
    }

    /// The sockets for metrics and health, once more.
    pub(crate) fn for_http(&self) -> io::Result<Vec<TcpListener>> {
        let http = self.listeners.iter().filter(|it| it.kind.is_http());
        http.map(|it| Ok(TcpListener::from(it.socket.try_clone()?))).collect()
    }

    /// The addresses, of clients or for metrics and health.
    pub(crate) fn addresses(&self, is_http: bool) -> Vec<SocketAddr> {
        let of = |listener: &Listener| match listener.place {
            Place::Tcp(address) if listener.kind.is_http() == is_http => Some(address),
            _ => None,
        };
        self.listeners.iter().filter_map(of).collect()
    }

    /// The Unix sockets' paths.
    pub(crate) fn unix_sockets(&self) -> Vec<&Path> {
        self.listeners.iter().filter_map(|listener| listener.place.path()).collect()
    }

    /// Whether systemd's are there in place of what the configuration says, for clients or for metrics and health.
    pub(crate) fn is_activated(&self, is_http: bool) -> bool {
        self.listeners.iter().any(|it| !it.kind.is_own() && it.kind.is_http() == is_http)
    }

    /// All of them once more, for a successor, with the names that tell it what they are.
    pub(crate) fn bequest(&self) -> io::Result<Vec<(&'static str, OwnedFd)>> {
        self.listeners.iter().map(|it| Ok((it.kind.name(), it.socket.try_clone()?))).collect()
    }

    /// Removes the files of a predecessor's sockets that nobody listens on any more.
    pub(crate) fn remove_left_over(&mut self) {
        for path in self.left_over.drain(..) {
            let _ = fs::remove_file(path);
        }
    }

    /// Closes them, and removes the files of those that were opened by ourselves.
    pub(crate) fn close(self) {
        for listener in self.listeners.iter().filter(|it| it.kind.is_own()) {
            if let Some(path) = listener.place.path() {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// The socket that a predecessor has for a place, or a new one.
fn take_or(passed: &mut Vec<Listener>, kind: Kind, place: Place) -> Result<Listener, ListenError> {
    if let Some(at) = passed.iter().position(|it| it.kind == kind && it.place.is_as(&place)) {
        return Ok(passed.swap_remove(at));
    }
    let failed = |address: String, error| ListenError { address, error };
    match place {
        Place::Tcp(address) => {
            let failed = |error| failed(address.to_string(), error);
            let opened = match kind.is_http() {
                true => http::listen(address),
                false => sockets::listen_tcp(address).map(TcpListener::from),
            };
            let listener = opened.map_err(failed)?;
            // The port that the system has chosen, where it was asked to.
            let place = Place::Tcp(listener.local_addr().unwrap_or(address));
            Ok(Listener { kind, place, socket: listener.into() })
        }
        Place::Unix(path) => {
            let socket = sockets::listen_unix(&path).map_err(|error| failed(path.display().to_string(), error))?;
            Ok(Listener { kind, place: Place::Unix(path), socket: socket.into() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_the_system_chose_is_as_port_0() {
        let tcp = |address: &str| Place::Tcp(address.parse().unwrap());
        for (here, wanted, expected) in [
            ("127.0.0.1:6432", "127.0.0.1:6432", true),
            ("127.0.0.1:6432", "127.0.0.1:0", true),
            ("127.0.0.1:6432", "127.0.0.1:6433", false),
            ("127.0.0.1:6432", "0.0.0.0:6432", false),
        ] {
            assert_eq!(tcp(here).is_as(&tcp(wanted)), expected, "{here} {wanted}");
        }
        let unix = |path: &str| Place::Unix(path.into());
        assert!(unix("/a").is_as(&unix("/a")) && !unix("/a").is_as(&unix("/b")));
        assert!(!unix("/a").is_as(&tcp("127.0.0.1:0")));
    }
}
