//! Headers of the PROXY protocol: those of its specification, those that are none, and all cut at any byte.

use std::net::SocketAddr;

use proptest::{collection::vec, prelude::*};
use sluice_wire::proxy::{self, HEADER_BYTES_MAX, Header, ProxyError};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A header of version 2, whose length is that of what it holds.
fn binary(version_and_command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = (rest.len() as u16).to_be_bytes();
    [SIGNATURE, &[version_and_command, family], &length, rest].concat()
}

/// The header of version 2 for two addresses of the same family.
fn binary_of(source: SocketAddr, destination: SocketAddr, extensions: &[u8]) -> Vec<u8> {
    let octets = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => v4.ip().octets().to_vec(),
        SocketAddr::V6(v6) => v6.ip().octets().to_vec(),
    };
    let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
    let family = if source.is_ipv4() { 0x11 } else { 0x21 };
    binary(0x21, family, &[octets(source), octets(destination), ports, extensions.to_vec()].concat())
}

/// The header of version 1 for two addresses of the same family.
fn line_of(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let (from, to) = (source.ip(), destination.ip());
    format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port()).into_bytes()
}

#[test]
fn lines_of_version_1() {
    use ProxyError::{Endless, Line, Missing};
    let longest =
        "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
    assert_eq!(longest.len(), 107);
    let endless = format!("PROXY UNKNOWN {}", "x".repeat(200));
    for (line, source) in [
        ("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", Ok(Some("255.255.255.255:65535"))),
        ("PROXY TCP4 192.0.2.1 10.0.0.1 0 5432\r\n", Ok(Some("192.0.2.1:0"))),
        ("PROXY TCP6 2001:db8::7 ::1 51000 6432\r\n", Ok(Some("[2001:db8::7]:51000"))),
        ("PROXY UNKNOWN\r\n", Ok(None)),
        (longest, Ok(None)),
        (&endless, Err(Endless)),
        ("PROXY \r\n", Err(Line("another protocol than TCP4, TCP6 and UNKNOWN"))),
        ("PROXY tcp4 1.2.3.4 1.2.3.4 1 1\r\n", Err(Line("another protocol than TCP4, TCP6 and UNKNOWN"))),
        ("PROXY UNKNOWNS\r\n", Err(Line("another protocol than TCP4, TCP6 and UNKNOWN"))),
        ("PROXY TCP4 1.2.3.4 ::1 1 1\r\n", Err(Line("an address that is none of its protocol"))),
        ("PROXY TCP6 1.2.3.4 1.2.3.4 1 1\r\n", Err(Line("an address that is none of its protocol"))),
        ("PROXY TCP4 1.2.3.04 1.2.3.4 1 1\r\n", Err(Line("an address that is none of its protocol"))),
        ("PROXY TCP4 host 1.2.3.4 1 1\r\n", Err(Line("an address that is none of its protocol"))),
        ("PROXY TCP4  1.2.3.4 1.2.3.4 1 1\r\n", Err(Line("an address that is none of its protocol"))),
        ("PROXY TCP4\r\n", Err(Line("an address that is none of its protocol"))),
        ("PROXY TCP4 1.2.3.4 1.2.3.4\r\n", Err(Line("a port that is none"))),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 +1 1\r\n", Err(Line("a port that is none"))),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 01 1\r\n", Err(Line("a port that is none"))),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n", Err(Line("a port that is none"))),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 1 1 \r\n", Err(Line("something after its ports"))),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 1 1\n\r\n", Err(Line("a port that is none"))),
        ("proxy TCP4 1.2.3.4 1.2.3.4 1 1\r\n", Err(Missing)),
        (" PROXY UNKNOWN\r\n", Err(Missing)),
        ("\0\0\0\x08", Err(Missing)),
        ("\x16\x03\x01", Err(Missing)),
    ] {
        let found = proxy::read(line.as_bytes());
        let wanted = source.map(|source: Option<&str>| {
            Some(Header { source: source.map(|source| source.parse().unwrap()), bytes: line.len() })
        });
        assert_eq!(found, wanted, "{line:?}");
    }
    assert_eq!(proxy::read(b"PROXY TCP4 \xff\r\n"), Err(Line("bytes that are not ASCII")));
}

#[test]
fn headers_of_version_2() {
    let tcp4 = [192, 0, 2, 1, 10, 0, 0, 1, 0xc7, 0x38, 0x15, 0x38];
    let from = Some("192.0.2.1:51000".parse().unwrap());
    let with_extension = [&tcp4[..], &[0x02, 0, 1, b'x']].concat();
    let long = vec![0; HEADER_BYTES_MAX];
    for (header, wanted) in [
        (binary(0x21, 0x11, &tcp4), Ok(from)),
        (binary(0x21, 0x11, &with_extension), Ok(from)),
        (binary(0x21, 0x11, &[&tcp4[..], &long[12 + 16..]].concat()), Ok(from)),
        // What is valid and has no address by TCP leaves the connection its own.
        (binary(0x20, 0x11, &tcp4), Ok(None)),
        (binary(0x20, 0x00, &[]), Ok(None)),
        (binary(0x20, 0xff, b"anything"), Ok(None)),
        (binary(0x21, 0x00, &[]), Ok(None)),
        (binary(0x21, 0x00, b"extensions"), Ok(None)),
        (binary(0x21, 0x12, &tcp4), Ok(None)),
        (binary(0x21, 0x22, &[0; 36]), Ok(None)),
        (binary(0x21, 0x31, &[b'/'; 216]), Ok(None)),
        (binary(0x21, 0x32, &[b'/'; 216]), Ok(None)),
        (binary(0x11, 0x11, &tcp4), Err(ProxyError::Version(1))),
        (binary(0x22, 0x11, &tcp4), Err(ProxyError::Command(2))),
        (binary(0x21, 0x13, &tcp4), Err(ProxyError::Family(0x13))),
        (binary(0x21, 0x41, &[0; 216]), Err(ProxyError::Family(0x41))),
        (binary(0x21, 0x11, &tcp4[1..]), Err(ProxyError::Short(11, 12))),
        (binary(0x21, 0x21, &[0; 35]), Err(ProxyError::Short(35, 36))),
        (binary(0x21, 0x31, &[0; 215]), Err(ProxyError::Short(215, 216))),
        (binary(0x21, 0x11, &long), Err(ProxyError::Long(HEADER_BYTES_MAX + 16))),
        (binary(0x20, 0x00, &long), Err(ProxyError::Long(HEADER_BYTES_MAX + 16))),
    ] {
        let wanted = wanted.map(|source| Some(Header { source, bytes: header.len() }));
        assert_eq!(proxy::read(&header), wanted, "{header:?}");
    }
}

fn addresses() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    let v4 = any::<([u8; 4], u16)>().prop_map(SocketAddr::from);
    let v6 = any::<([u8; 16], u16)>().prop_map(SocketAddr::from);
    prop_oneof![(v4.clone(), v4).boxed(), (v6.clone(), v6).boxed()]
}

proptest! {
    #[test]
    fn the_source_comes_back((source, destination) in addresses(), more in vec(any::<u8>(), 0..200), behind in vec(any::<u8>(), 0..40)) {
        for header in [line_of(source, destination), binary_of(source, destination, &more)] {
            let wanted = Header { source: Some(source), bytes: header.len() };
            prop_assert_eq!(proxy::read(&[&header[..], &behind].concat()), Ok(Some(wanted)));
            for end in 0..header.len() {
                prop_assert_eq!(proxy::read(&header[..end]), Ok(None), "cut at {}", end);
            }
        }
    }

    #[test]
    fn what_is_wrong_stays_wrong(mut header in prop_oneof![vec(any::<u8>(), 0..60), any::<([u8; 4], u8)>().prop_map(|(bytes, rest)| binary(bytes[0], bytes[1], &vec![bytes[2]; rest.into()])), "PROXY (TCP4|TCP6|UNKNOWN) [0-9a-f.: ]{0,100}\r\n".prop_map(String::into_bytes)], behind in vec(any::<u8>(), 0..200)) {
        let found = proxy::read(&header);
        let before = header.len();
        header.extend_from_slice(&behind);
        match found {
            Ok(None) => {}
            Ok(Some(Header { bytes, .. })) => {
                prop_assert!(bytes <= before && bytes <= HEADER_BYTES_MAX);
                prop_assert_eq!(proxy::read(&header), found);
            }
            Err(_) => prop_assert_eq!(proxy::read(&header), found),
        }
        // What is not decided yet is bounded.
        if header.len() >= HEADER_BYTES_MAX {
            prop_assert!(proxy::read(&header) != Ok(None));
        }
    }
}
