//! The sockets that the service listens on: those that it was started with where there are any, its own otherwise.

use std::{
    fmt, fs, io,
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener},
    os::{fd::OwnedFd, unix::fs::FileTypeExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::io::Errno;
use sluice_config::Config;
use socket2::SockRef;
use thiserror::Error;

use crate::{http, net::sockets};

/// The time that an address has to become free: the kernel closes the sockets of a process with io_uring some milliseconds
/// after that was killed.
const PATIENCE: Duration = Duration::from_secs(1);

/// The pause between two attempts.
const AGAIN: Duration = Duration::from_millis(20);

/// An address can't be listened on.
#[derive(Debug, Error)]
#[error("can't listen on {place}: {error}{}", self.remedy())]
pub struct ListenError {
    place: Place,
    /// The system's error.
    error: io::Error,
}

impl ListenError {
    fn remedy(&self) -> &'static str {
        let is_unix = matches!(self.place, Place::Unix(_));
        match self.error.kind() {
            io::ErrorKind::AddrInUse if self.place.path().is_some_and(|path| !is_socket(path)) => {
                "\n  something that is no socket has that name: remove it, or have \"unix_socket_dir\" name another folder"
            }
            io::ErrorKind::AddrInUse => "\n  another process listens there: stop it, or choose another address",
            io::ErrorKind::PermissionDenied if is_unix => {
                "\n  the user that Sluice runs as may not write to that folder: let it, or have \"unix_socket_dir\" name \
                 one that is its own (/run/sluice, with the packaged service)"
            }
            io::ErrorKind::ReadOnlyFilesystem if is_unix => {
                "\n  nobody may write to that folder, or the service may not (ProtectSystem= in its unit): have \
                 \"unix_socket_dir\" name another one (/run/sluice, with the packaged service)"
            }
            io::ErrorKind::PermissionDenied => {
                "\n  ports below 1024 need root or CAP_NET_BIND_SERVICE: choose a higher one"
            }
            io::ErrorKind::NotFound => "\n  there is no such folder: create it, or change \"unix_socket_dir\"",
            io::ErrorKind::AddrNotAvailable => "\n  this machine has no such address",
            _ if self.lacks_family() => "\n  this machine has no IPv6: leave the address out",
            _ => "",
        }
    }

    /// Whether the machine does not know addresses of that kind.
    fn lacks_family(&self) -> bool {
        let is_six = matches!(self.place, Place::Tcp(SocketAddr::V6(_)));
        is_six && self.error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error())
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

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
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
        let until = Instant::now() + PATIENCE;
        let mut listeners: Vec<Listener> = passed.extract_if(.., |listener| !listener.kind.is_own()).collect();
        if !listeners.iter().any(|listener| listener.kind == Kind::Pool) {
            let mut port = None;
            let mut take = |address| take_or(&mut passed, Kind::OwnPool, Place::Tcp(address), until);
            for &address in &config.listen {
                let Some(listener) = unless_there_is_no_ipv6(take(address), &config.listen)? else { continue };
                if let Place::Tcp(address) = listener.place {
                    port.get_or_insert(address.port());
                }
                listeners.push(listener);
            }
            if let Some(dir) = &config.unix_socket_dir {
                let path = dir.join(format!(".s.PGSQL.{}", port.unwrap_or(5432)));
                listeners.push(take_or(&mut passed, Kind::OwnPool, Place::Unix(path), until)?);
            }
        }
        if !listeners.iter().any(|listener| listener.kind == Kind::Http) {
            for &address in &config.http_listen {
                listeners.push(take_or(&mut passed, Kind::OwnHttp, Place::Tcp(address), until)?);
            }
        }
        // Whoever has opened them.
        for Listener { place, socket, .. } in &listeners {
            if let Place::Tcp(address) = place {
                let failed = |error| ListenError { place: Place::Tcp(*address), error };
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

    /// Closes them, and removes the files of those that were opened by ourselves. Nobody listens at these any more,
    /// whoever has them by a start that came to nothing.
    pub(crate) fn close(self) {
        for listener in self.listeners.iter().filter(|it| it.kind.is_own()) {
            let _ = SockRef::from(&listener.socket).shutdown(Shutdown::Both);
            if let Some(path) = listener.place.path() {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// What has come of listening on an address, which is left out if it is all of IPv6's beside all of IPv4's, and the
/// machine has no IPv6.
fn unless_there_is_no_ipv6<T>(
    listened: Result<T, ListenError>,
    listen: &[SocketAddr],
) -> Result<Option<T>, ListenError> {
    let error = match listened {
        Ok(listener) => return Ok(Some(listener)),
        Err(error) => error,
    };
    let is_beside = |all: &SocketAddr| {
        all.ip().is_unspecified() && listen.contains(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, all.port())))
    };
    match &error.place {
        Place::Tcp(all) if error.lacks_family() && is_beside(all) => {
            tracing::warn!("this machine has no IPv6: not listening on {all}");
            Ok(None)
        }
        _ => Err(error),
    }
}

/// The socket that a predecessor has for a place, or a new one; until then, one that is in use may become free.
fn take_or(passed: &mut Vec<Listener>, kind: Kind, place: Place, until: Instant) -> Result<Listener, ListenError> {
    if let Some(at) = passed.iter().position(|it| it.kind == kind && it.place.is_as(&place)) {
        let taken = passed.swap_remove(at);
        // Nobody reaches one whose file was removed, or has something else in its place.
        if taken.place.path().is_none_or(is_socket) {
            return Ok(taken);
        }
        tracing::warn!("the file of the Unix socket {place} is gone: it is made anew");
    }
    match place {
        Place::Tcp(address) => {
            let opened = patiently(until, || match kind.is_http() {
                true => http::listen(address),
                false => sockets::listen_tcp(address).map(TcpListener::from),
            });
            let listener = opened.map_err(|error| ListenError { place, error })?;
            // The port that the system has chosen, where it was asked to.
            let place = Place::Tcp(listener.local_addr().unwrap_or(address));
            Ok(Listener { kind, place, socket: listener.into() })
        }
        Place::Unix(ref path) => match patiently(until, || sockets::listen_unix(path)) {
            Ok(socket) => Ok(Listener { kind, place, socket: socket.into() }),
            Err(error) => Err(ListenError { place, error }),
        },
    }
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

/// Tries again until then while the address is in use.
fn patiently<T>(until: Instant, listen: impl Fn() -> io::Result<T>) -> io::Result<T> {
    loop {
        match listen() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => thread::sleep(AGAIN),
            done => return done,
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

    #[test]
    fn all_of_ipv6_is_left_out_beside_all_of_ipv4_where_there_is_none() {
        let failed = |place: &str, errno: Errno| {
            let place = Place::Tcp(place.parse().unwrap());
            Err::<(), _>(ListenError { place, error: errno.into() })
        };
        let listen: Vec<SocketAddr> = ["0.0.0.0:1", "[::]:1", "[::1]:1", "[::]:2"].map(|it| it.parse().unwrap()).into();
        assert!(unless_there_is_no_ipv6(failed("[::]:1", Errno::AFNOSUPPORT), &listen).unwrap().is_none());
        assert!(unless_there_is_no_ipv6(Ok(()), &listen).unwrap().is_some());
        for (place, errno) in
            [("[::1]:1", Errno::AFNOSUPPORT), ("[::]:2", Errno::AFNOSUPPORT), ("[::]:1", Errno::ADDRINUSE)]
        {
            let error = unless_there_is_no_ipv6(failed(place, errno), &listen).unwrap_err().to_string();
            assert!(error.starts_with(&format!("can't listen on {place}: ")), "{error}");
            assert_eq!(error.contains("no IPv6"), errno == Errno::AFNOSUPPORT, "{error}");
        }
    }

    #[test]
    fn a_socket_without_its_file_is_made_anew() {
        let place = std::env::temp_dir().join(format!("sluice-listening-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let path = place.join(".s.PGSQL.1");
        let until = Instant::now();
        let take = |passed: &mut Vec<Listener>| take_or(passed, Kind::OwnPool, Place::Unix(path.clone()), until);
        let reaches = || std::os::unix::net::UnixStream::connect(&path).is_ok();
        let first = take(&mut Vec::new()).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&first.socket);
        let mut passed = vec![first];
        let same = take(&mut passed).unwrap();
        assert_eq!(std::os::fd::AsRawFd::as_raw_fd(&same.socket), number);
        fs::remove_file(&path).unwrap();
        let other = take(&mut vec![same]).unwrap();
        assert!(reaches());
        drop(other);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        let error = take(&mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("something that is no socket has that name"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn a_folder_that_is_closed_is_no_matter_of_ports() {
        for (place, expected) in [
            (Place::Unix("/run/.s.PGSQL.6432".into()), "may not write to that folder"),
            (Place::Tcp("127.0.0.1:80".parse().unwrap()), "ports below 1024"),
        ] {
            let error = ListenError { place, error: Errno::ACCESS.into() }.to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
