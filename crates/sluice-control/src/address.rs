//! The addresses of servers and of clients.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    sync::Arc,
};

/// A server's address: nothing left to resolve but a host's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// A host name or address, and a port.
    Tcp(String, u16),
    /// The primary of that cluster, as long as nobody knows which node that is: there is no connecting to it.
    Primary(Arc<str>),
    /// A node of that cluster for readers, as long as none will do: likewise.
    Readers(Arc<str>),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Primary(cluster) => write!(f, "the primary of cluster \"{cluster}\""),
            Self::Readers(cluster) => write!(f, "the readers' node of cluster \"{cluster}\""),
        }
    }
}

/// A client's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAddress {
    /// A Unix socket.
    Local,
    /// An address and a port.
    Tcp(IpAddr, u16),
}

impl std::fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local => f.write_str("[local]"),
            Self::Tcp(ip, port) => write!(f, "{ip}:{port}"),
        }
    }
}

/// The addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// The network of all addresses that have the first `bits` bits of this one; `None` if the family has fewer bits.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) => {
                let host = 32_u32.checked_sub(bits.into())?;
                Ipv4Addr::from_bits(v4.to_bits() & u32::MAX.checked_shl(host).unwrap_or(0)).into()
            }
            IpAddr::V6(v6) => {
                let host = 128_u32.checked_sub(bits.into())?;
                Ipv6Addr::from_bits(v6.to_bits() & u128::MAX.checked_shl(host).unwrap_or(0)).into()
            }
        };
        Some(Self { address, bits })
    }

    /// The network of that address alone.
    pub fn of(address: IpAddr) -> Self {
        Self { address, bits: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// True if it has all addresses of its family.
    pub fn has_all(&self) -> bool {
        self.bits == 0
    }

    /// True for an address in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && Self::new(address, self.bits) == Some(*self)
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Self::of(self.address) {
            write!(f, "{}", self.address)
        } else {
            write!(f, "{}/{}", self.address, self.bits)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_the_addresses_that_begin_alike() {
        for (network, bits, inside, outside) in [
            ("10.0.0.0", 8, "10.255.1.2", "11.0.0.0"),
            ("192.0.2.7", 32, "192.0.2.7", "192.0.2.6"),
            ("0.0.0.0", 0, "255.255.255.255", "::"),
            ("2001:db8::", 33, "2001:db8:7fff::1", "2001:db8:8000::"),
            ("::1", 128, "::1", "127.0.0.1"),
            ("::", 0, "ffff::", "0.0.0.0"),
        ] {
            let network = Network::new(network.parse().unwrap(), bits).unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{network} has {inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{network} has not {outside}");
        }
        assert_eq!(Network::new(Ipv4Addr::LOCALHOST.into(), 33), None);
        assert_eq!(Network::new([10, 1, 2, 3].into(), 8).unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(Network::of([10, 1, 2, 3].into()).to_string(), "10.1.2.3");
    }
}
