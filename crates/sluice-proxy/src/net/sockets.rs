//! Sockets, made and set up as PostgreSQL's own are.

use std::{
    fs, io,
    net::{Shutdown, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    io::retry_on_intr,
    net::{SocketFlags, accept_with},
};
use sluice_core::io::{Address, PeerAddress};
use sluice_net::Delivery;
use socket2::{Domain, SockAddr, SockRef, TcpKeepalive, Type};

use super::delivery;

/// As long a queue as the kernel allows (`net.core.somaxconn`): thousands of clients may come at once.
const BACKLOG: i32 = 4096;

/// Listens on an address.
pub(crate) fn listen_tcp(address: SocketAddr) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Listens on a Unix socket. One that is left over from a process that has died is replaced.
pub(crate) fn listen_unix(path: &Path) -> io::Result<socket2::Socket> {
    let address = SockAddr::unix(path)?;
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    if fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
        let probe = socket2::Socket::new(Domain::UNIX, Type::STREAM.cloexec(), None)?;
        if probe.connect(&address).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        fs::remove_file(path)?;
    }
    socket.bind(&address)?;
    // As PostgreSQL's `unix_socket_permissions` is by default: who may log in is for the authentication to say.
    fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Sets a TCP socket up, whose peer is considered dead when it has not answered for so long. Of a listening one, those
/// that it accepts inherit that.
pub(crate) fn set_up_tcp(socket: &socket2::Socket, user_timeout: Duration) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(user_timeout))?;
    // The kernel counts in seconds. How often it asks is of no account beside the other limit.
    let seconds = |time: Duration| Duration::from_secs(time.as_secs().max(1));
    let keepalive = TcpKeepalive::new().with_time(seconds(user_timeout / 2)).with_interval(seconds(user_timeout / 8));
    socket.set_tcp_keepalive(&keepalive)
}

/// Accepts whoever waits at a listening socket that does not block.
pub(crate) fn accept_waiting(listener: &OwnedFd) -> impl Iterator<Item = Socket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    std::iter::from_fn(move || retry_on_intr(|| accept_with(listener, flags)).ok().map(Socket))
}

/// The address of a server, with nothing left to resolve.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// A Unix socket.
    Unix(PathBuf),
    /// An address and a port.
    Tcp(SocketAddr),
}

/// Begins a connect; its end shows when the socket becomes writable.
pub(crate) fn begin_connect(target: &Target, user_timeout: Duration) -> io::Result<Socket> {
    let (socket, address) = match target {
        Target::Unix(path) => {
            (socket2::Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?, SockAddr::unix(path)?)
        }
        Target::Tcp(address) => {
            let socket =
                socket2::Socket::new(Domain::for_address(*address), Type::STREAM.nonblocking().cloexec(), None)?;
            set_up_tcp(&socket, user_timeout)?;
            (socket, SockAddr::from(*address))
        }
    };
    match socket.connect(&address) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(Socket(socket.into())),
    }
}

/// A connection's socket.
#[derive(Debug)]
pub(crate) struct Socket(pub(crate) OwnedFd);

impl sluice_net::Socket for Socket {
    fn shutdown(&self, how: Shutdown) {
        // It fails where the socket is not connected any more, and then there is nothing to end.
        let _ = SockRef::from(&self.0).shutdown(how);
    }

    fn connect_result(&self) -> io::Result<()> {
        SockRef::from(&self.0).take_error()?.map_or(Ok(()), Err)
    }

    fn delivery(&self) -> Delivery {
        delivery::of(self.0.as_fd())
    }

    fn set_user_timeout(&self, time: Duration) {
        // It fails where the connection is one by a Unix socket, or has ended.
        let _ = SockRef::from(&self.0).set_tcp_user_timeout(Some(time));
    }

    /// Only a Unix socket is local: a connection by TCP that was reset at once has no address left, and its bytes can
    /// still be read.
    fn peer(&self) -> io::Result<PeerAddress> {
        known(&SockRef::from(&self.0).peer_addr()?)
    }

    fn local(&self) -> io::Result<PeerAddress> {
        known(&SockRef::from(&self.0).local_addr()?)
    }
}

/// The core's address for one of the system.
fn known(address: &SockAddr) -> io::Result<PeerAddress> {
    match address.as_socket() {
        Some(address) => Ok(PeerAddress::Tcp(address.ip().to_canonical(), address.port())),
        None if address.is_unix() => Ok(PeerAddress::Local),
        None => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// The core's address for one of the configuration.
pub(crate) fn address(server: &sluice_config::ServerAddress) -> Address {
    match server {
        sluice_config::ServerAddress::Unix { dir, port } => Address::Unix(dir.join(format!(".s.PGSQL.{port}"))),
        sluice_config::ServerAddress::Tcp { host, port } => Address::Tcp(host.clone(), *port),
        sluice_config::ServerAddress::Primary(cluster) => Address::Primary(cluster.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpStream,
    };

    use sluice_net::Socket as _;

    use super::*;

    #[test]
    fn a_connection_that_was_reset_at_once_is_nobodys() {
        let listener = listen_tcp(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"words").unwrap();
        SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        std::thread::sleep(Duration::from_millis(100));
        let (mut accepted, _) = listener.accept().unwrap();
        let mut words = [0; 5];
        let is_read = accepted.read(&mut words);
        let peer = Socket(accepted.into()).peer();
        assert!(peer.is_err(), "{peer:?}, whose words could be read: {is_read:?}");
    }
}
