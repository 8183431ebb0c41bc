//! Whether the pool's address is free, asked before the steps that take long; and if it is not, who has it.
//!
//! A look only: the pool binds the address itself, later.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr, TcpListener},
    os::unix::fs::MetadataExt,
};

use anyhow::{Result, anyhow};

/// Tells whether the address can be listened on.
pub(crate) fn check(address: SocketAddr) -> Result<()> {
    let Err(error) = TcpListener::bind(address) else { return Ok(()) };
    Err(match error.kind() {
        io::ErrorKind::AddrInUse => {
            let holder = holder(address).map_or_else(String::new, |(pid, name)| format!(" by {name} (process {pid})"));
            let other = SocketAddr::new(address.ip(), address.port().checked_add(1).unwrap_or(6432));
            anyhow!("{address} is in use{holder}\nstop that program, or choose another address: --listen {other}")
        }
        io::ErrorKind::AddrNotAvailable => {
            anyhow!(
                "{} is no address of this machine\nchoose one with --listen, for example 127.0.0.1:6432",
                address.ip()
            )
        }
        io::ErrorKind::PermissionDenied => {
            anyhow!("only root may listen on port {}\nchoose a port from 1024 on with --listen", address.port())
        }
        _ => anyhow!("cannot listen on {address}: {error}\nchoose another address with --listen"),
    })
}

/// The process that listens there, if the system lets us see it.
fn holder(address: SocketAddr) -> Option<(u32, String)> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let inodes = tables.iter().filter_map(|path| fs::read_to_string(path).ok());
    let inodes: Vec<u64> = inodes.flat_map(|table| listeners(&table, address)).collect();
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| has_socket(*pid, &inodes))?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some((pid, name.trim().to_owned()))
}

/// The inodes of the sockets in a table (proc(5), /proc/net/tcp) that keep others from listening on `address`.
fn listeners(table: &str, address: SocketAddr) -> Vec<u64> {
    const LISTEN: &str = "0A";
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        let (ip, port) = local.split_once(':')?;
        let same_port = u16::from_str_radix(port, 16) == Ok(address.port());
        let ip = parse_ip(ip)?;
        let overlap = ip.is_unspecified() || address.ip().is_unspecified() || ip == address.ip();
        (*state == LISTEN && same_port && overlap).then(|| inode.parse().ok())?
    };
    table.lines().skip(1).filter_map(row).collect()
}

/// An address as the table has it: 32-bit words in the machine's byte order, in hexadecimal digits.
fn parse_ip(hex: &str) -> Option<IpAddr> {
    let word = |part: &[u8]| u32::from_str_radix(std::str::from_utf8(part).ok()?, 16).ok().map(u32::to_ne_bytes);
    let bytes: Vec<u8> = hex.as_bytes().chunks(8).map(word).collect::<Option<Vec<_>>>()?.concat();
    if let Ok(v4) = <[u8; 4]>::try_from(bytes.as_slice()) {
        return Some(IpAddr::from(v4));
    }
    <[u8; 16]>::try_from(bytes.as_slice()).ok().map(IpAddr::from)
}

fn has_socket(pid: u32, inodes: &[u64]) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    files.flatten().any(|file| {
        let is_socket =
            fs::read_link(file.path()).is_ok_and(|link| link.as_os_str().as_encoded_bytes().starts_with(b"socket:"));
        is_socket && fs::metadata(file.path()).is_ok_and(|metadata| inodes.contains(&metadata.ino()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1920 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0 100 0 0 10 0
   1: 00000000:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 222 1 0 100 0 0 10 0
   2: 0100007F:1920 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 333 1 0 100 0 0 10 0
";

    #[test]
    fn who_is_in_the_way() {
        for (address, expected) in [
            ("127.0.0.1:6432", vec![111]),
            ("0.0.0.0:6432", vec![111]),
            ("127.0.0.2:6432", vec![]),
            ("127.0.0.2:5432", vec![222]),
            ("127.0.0.1:6433", vec![]),
        ] {
            assert_eq!(listeners(TABLE, address.parse().unwrap()), expected, "{address}");
        }
        assert_eq!(parse_ip("00000000000000000000000001000000"), "::1".parse().ok());
    }

    #[test]
    fn an_address_in_use_is_told_with_its_holder() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = check(address).unwrap_err().to_string();
        let us = format!("(process {})", std::process::id());
        assert!(error.contains("is in use by") && error.contains(&us) && error.contains("--listen"), "{error}");
        drop(taken);
        check(address).unwrap();
        assert!(check("203.0.113.1:6432".parse().unwrap()).unwrap_err().to_string().contains("no address of this"));
    }
}
