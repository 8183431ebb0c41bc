//! Addresses of clients: as a file writes them, and as a connection has them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses that a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// All of both families.
    All,
    /// Those of this host.
    SameHost,
    /// Those of the networks that this host is in.
    SameNet,
    /// Those that are the same where the mask has ones, which need not be together.
    Range {
        /// An address of the range.
        address: IpAddr,
        /// The mask, of the same family.
        mask: IpAddr,
    },
}

/// An address of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface {
    /// The address.
    pub address: IpAddr,
    /// The mask of the network that it is in.
    pub netmask: IpAddr,
}

impl Address {
    /// True for a client's address.
    pub(crate) fn has(&self, client: IpAddr, interfaces: &[Interface]) -> bool {
        match *self {
            Self::All => true,
            Self::SameHost => interfaces.iter().any(|interface| interface.address == client),
            Self::SameNet => interfaces.iter().any(|interface| {
                let Interface { address, netmask } = *interface;
                let is_usable = netmask.is_ipv4() == address.is_ipv4() && bits(netmask) != 0;
                if is_usable { is_in(client, address, netmask) } else { client == address }
            }),
            Self::Range { address, mask } => is_in(client, address, mask),
        }
    }
}

fn is_in(client: IpAddr, address: IpAddr, mask: IpAddr) -> bool {
    client.is_ipv4() == address.is_ipv4() && (bits(client) ^ bits(address)) & bits(mask) == 0
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Reads an address as C's `getaddrinfo` reads numeric ones: IPv4 in the old ways as well (`127.1`, `0x7f000001`),
/// IPv6 with the number of a zone, which compares no different.
pub(crate) fn parse(text: &str) -> Option<IpAddr> {
    if let Some(address) = parse_v4(text) {
        return Some(address.into());
    }
    let (address, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    let is_zone = |zone: &str| zone.starts_with(|c: char| c.is_ascii_digit()) && zone.parse::<u32>().is_ok();
    if !zone.is_none_or(is_zone) {
        return None;
    }
    address.parse::<Ipv6Addr>().ok().map(Into::into)
}

/// One to four numbers, of which the last one fills the rest.
fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<_> = text.split('.').collect();
    let (last, bytes) = parts.split_last().filter(|(_, bytes)| bytes.len() <= 3)?;
    let mut address = 0_u64;
    for byte in bytes {
        address = address << 8 | parse_part(byte).filter(|byte| *byte <= 0xff)?;
    }
    let width = 8 * (4 - bytes.len());
    let last = parse_part(last).filter(|last| last >> width == 0)?;
    u32::try_from(address << width | last).ok().map(Ipv4Addr::from_bits)
}

/// A decimal, octal (`0…`) or hexadecimal (`0x…`) number.
fn parse_part(text: &str) -> Option<u64> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    let is_plain = digits.starts_with(|c: char| c.is_ascii_alphanumeric());
    u64::from_str_radix(digits, radix).ok().filter(|_| is_plain)
}

/// The mask of a CIDR suffix, read as C's `strtol` reads a number.
pub(crate) fn mask(suffix: &str, address: IpAddr) -> Option<IpAddr> {
    let number = suffix.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let number = number.strip_prefix('-').filter(|digits| is_zero(digits)).unwrap_or(number);
    let bits: u32 = number.parse().ok()?;
    match address {
        IpAddr::V4(_) => {
            let host = 32_u32.checked_sub(bits)?;
            Some(Ipv4Addr::from_bits(u32::MAX.checked_shl(host).unwrap_or(0)).into())
        }
        IpAddr::V6(_) => {
            let host = 128_u32.checked_sub(bits)?;
            Some(Ipv6Addr::from_bits(u128::MAX.checked_shl(host).unwrap_or(0)).into())
        }
    }
}

fn is_zero(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|digit| digit == b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_c_reads_them() {
        for (text, address) in [
            ("127.0.0.1", Some("127.0.0.1")),
            ("127.1", Some("127.0.0.1")),
            ("0x7f.0.1", Some("127.0.0.1")),
            ("2130706433", Some("127.0.0.1")),
            ("010.0.0.1", Some("8.0.0.1")),
            ("1.2.3.256", None),
            ("1.2.3", Some("1.2.0.3")),
            ("1.2.3.4.5", None),
            ("4294967296", None),
            ("0x", None),
            ("08", None),
            ("1.+2", None),
            ("", None),
            ("::1", Some("::1")),
            ("fe80::1%3", Some("fe80::1")),
            ("fe80::1%", None),
            ("::ffff:1.2.3.4", Some("::ffff:1.2.3.4")),
            ("host", None),
        ] {
            assert_eq!(parse(text), address.map(|address| address.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn suffixes_as_c_reads_them() {
        let v4 = IpAddr::from([1, 2, 3, 4]);
        for (text, wanted) in [
            ("0", Some("0.0.0.0")),
            ("32", Some("255.255.255.255")),
            ("9", Some("255.128.0.0")),
            (" +08", Some("255.0.0.0")),
            ("-0", Some("0.0.0.0")),
            ("-1", None),
            ("33", None),
            ("", None),
            ("8 ", None),
            ("+-0", None),
        ] {
            assert_eq!(mask(text, v4), wanted.map(|mask| mask.parse().unwrap()), "{text:?}");
        }
        assert_eq!(mask("64", Ipv6Addr::LOCALHOST.into()), Some("ffff:ffff:ffff:ffff::".parse().unwrap()));
    }
}
