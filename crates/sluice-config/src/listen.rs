//! The addresses that clients connect to: `listen` and `unix_socket_dir`.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};
use sluice_control::address::Network;

use crate::{
    reader::{Read, Section},
    report::Fault,
    schema,
};

pub(crate) const RULES: &[&str] = &[
    "Two `listen` addresses may not be equal, nor may one cover another (`0.0.0.0` covers all IPv4 addresses, `[::]` \
     all IPv6 addresses).",
    "Nor may an `http_listen` address be, or cover, one of these or another one of its own.",
    "With `unix_socket_dir`, the port of the first `listen` address can't be 0: it is part of the socket's name.",
    "The path of a Unix socket, of `unix_socket_dir` as of `host`, has at most 107 bytes.",
];

/// `sun_path` without its closing zero byte (`unix(7)`).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The addresses that clients connect to.
pub(crate) struct Listen {
    /// The addresses with their offsets in the file; offset 0 for the default.
    pub(crate) addresses: Vec<(SocketAddr, usize)>,
    pub(crate) unix_socket_dir: Option<PathBuf>,
}

/// The address that clients connect to if the file does not say.
const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 6432);

/// Reads the keys at the top of the file.
pub(crate) fn read(section: &Section<'_>) -> Listen {
    let (addresses, known) = match section.read_list(&schema::LISTEN, schema::LISTEN.kind.count_max) {
        Read::Given(addresses, _) => (addresses, true),
        Read::Absent => (vec![(DEFAULT, 0)], true),
        Read::Bad => (Vec::new(), false),
    };
    check_overlaps(section, &addresses);
    let dir = section.read(&schema::UNIX_SOCKET_DIR).given();
    let dir = dir.map(|(dir, offset)| (section.source().resolve(&dir), offset));
    if let Some((dir, offset)) = &dir
        && known
        && let Some((first, _)) = addresses.first()
    {
        if first.port() == 0 {
            let what = "the socket's name needs a port, but that of the first listen address is 0";
            section.note(&schema::UNIX_SOCKET_DIR, *offset, Fault::new(what, "give that address a port"));
        } else if let Err(fault) = check_socket_path(dir, first.port()) {
            section.note(&schema::UNIX_SOCKET_DIR, *offset, fault);
        } else if let Some(fault) = unfit_now(dir) {
            section.source().warn(*offset, schema::UNIX_SOCKET_DIR.name, fault);
        }
    }
    Listen { addresses, unix_socket_dir: dir.map(|(dir, _)| dir) }
}

/// Reads `http_listen`, whose addresses are no others'.
pub(crate) fn read_http(section: &Section<'_>, listen: &[(SocketAddr, usize)]) -> Vec<SocketAddr> {
    let addresses = section.read_list(&schema::HTTP_LISTEN, schema::HTTP_LISTEN.kind.count_max).value();
    let addresses = addresses.unwrap_or_default();
    for (index, (address, offset)) in addresses.iter().enumerate() {
        let others = listen.iter().chain(&addresses[..index]);
        if let Some((other, _)) = others.into_iter().find(|(other, _)| covers(other, address)) {
            let fault = Fault::new(format!("{address} overlaps {other}"), "choose another port");
            section.note(&schema::HTTP_LISTEN, *offset, fault);
        }
    }
    addresses.into_iter().map(|(address, _)| address).collect()
}

/// Reads `proxy_protocol_from`.
pub(crate) fn read_balancers(section: &Section<'_>) -> Vec<Network> {
    let networks = section.read_list(&schema::PROXY_PROTOCOL_FROM, schema::PROXY_PROTOCOL_FROM.kind.count_max).value();
    let networks = networks.unwrap_or_default();
    for (network, offset) in networks.iter().filter(|(network, _)| network.has_all()) {
        let fault = Fault::new(
            format!("{network} has all clients say where they come from, so that each may claim any address"),
            "list the balancers alone",
        );
        section.source().warn(*offset, schema::PROXY_PROTOCOL_FROM.name, fault);
    }
    networks.into_iter().map(|(network, _)| network).collect()
}

/// Whether only one of two addresses can be listened on.
fn covers(earlier: &SocketAddr, later: &SocketAddr) -> bool {
    let same_port = earlier.port() == later.port() && later.port() != 0;
    let wide = earlier.ip().is_unspecified() || later.ip().is_unspecified();
    same_port && (earlier.ip() == later.ip() || (wide && earlier.is_ipv4() == later.is_ipv4()))
}

fn check_overlaps(section: &Section<'_>, addresses: &[(SocketAddr, usize)]) {
    for (index, (later, offset)) in addresses.iter().enumerate() {
        if let Some((earlier, _)) = addresses[..index].iter().find(|(earlier, _)| covers(earlier, later)) {
            let what = if earlier == later { format!("{later} twice") } else { format!("{later} overlaps {earlier}") };
            section.note(&schema::LISTEN, *offset, Fault::new(what, "leave one of the two"));
        }
    }
}

/// The reason why whoever reads the file can't make a socket in a folder now. No error: systemd may make it for the service
/// (`RuntimeDirectory=`), or let that alone write there.
fn unfit_now(dir: &Path) -> Option<Fault> {
    let error = match fs::metadata(dir) {
        Ok(found) if !found.is_dir() => {
            return Some(Fault::new(format!("{dir:?} is no folder"), "name a folder that clients may enter"));
        }
        Ok(_) => access(dir, Access::WRITE_OK | Access::EXEC_OK).err()?.into(),
        Err(error) => error,
    };
    let (what, remedy) = match error.kind() {
        io::ErrorKind::NotFound => (
            format!("there is no folder {dir:?}"),
            "create it, or name another one; the packaged service makes /run/sluice when it starts",
        ),
        _ => (
            format!("no socket can be made in {dir:?}: {error}"),
            "let the user that Sluice runs as write there, and check as that user; or name another folder",
        ),
    };
    Some(Fault::new(what, remedy))
}

/// Checks that a Unix socket named as PostgreSQL names it can exist in a folder.
pub(crate) fn check_socket_path(dir: &Path, port: u16) -> Result<(), Fault> {
    let path = dir.join(format!(".s.PGSQL.{port}"));
    let bytes = path.as_os_str().as_bytes().len();
    if bytes <= SOCKET_PATH_BYTES_MAX {
        return Ok(());
    }
    let what = format!("{path:?} is a path of {bytes} bytes, but a Unix socket's has at most {SOCKET_PATH_BYTES_MAX}");
    Err(Fault::new(what, "choose a folder with a shorter path"))
}

impl Listen {
    /// The listening address that a server at this place would be, if it would: then clients would be sent in a ring.
    pub(crate) fn own_tcp(&self, host: &str, port: u16) -> Option<SocketAddr> {
        let host_ip = host.parse::<std::net::IpAddr>().ok();
        let local = host == "localhost" || host_ip.is_some_and(|ip| ip.is_loopback());
        let same = |own: &SocketAddr| {
            let reaches_all = own.ip().is_unspecified() && local;
            own.port() == port
                && (host_ip == Some(own.ip()) || reaches_all || (host_ip.is_none() && local && own.ip().is_loopback()))
        };
        self.addresses.iter().map(|(own, _)| *own).find(same)
    }

    /// Whether a Unix socket is the own one.
    pub(crate) fn is_own_unix(&self, dir: &Path, port: u16) -> bool {
        let own_port = self.addresses.first().map(|(address, _)| address.port());
        self.unix_socket_dir.as_deref() == Some(dir) && own_port == Some(port)
    }
}
