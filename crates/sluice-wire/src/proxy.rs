//! The header by which a balancer says where a connection that it passes on comes from: the PROXY protocol, versions 1
//! and 2 (HAProxy's `doc/proxy-protocol.txt`).
//!
//! Nothing here knows who may send one: whoever reads a header of anybody else believes a stranger's word.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

/// The largest header that is read, in bytes. The protocol allows 64 KiB of extensions; a client's certificate in PEM
/// fits below this.
pub const HEADER_BYTES_MAX: usize = 4096;

/// The largest header of version 1, its CRLF included, in bytes (2.1).
const LINE_BYTES_MAX: usize = 107;

/// The beginning of a header of version 1.
const LINE: &[u8] = b"PROXY ";

/// The beginning of a header of version 2 (2.2).
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The bytes of a header of version 2 before its addresses.
const FIXED_BYTES: usize = 16;

/// The command of a balancer that speaks for itself, as in its health checks.
const LOCAL: u8 = 0;

/// The command of a balancer that speaks for a client.
const PROXY: u8 = 1;

const UNSPECIFIED: u8 = 0x00;
const TCP4: u8 = 0x11;
const UDP4: u8 = 0x12;
const TCP6: u8 = 0x21;
const UDP6: u8 = 0x22;
const UNIX_STREAM: u8 = 0x31;
const UNIX_DATAGRAM: u8 = 0x32;

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The client's address and port; `None` where the balancer speaks for itself (LOCAL), does not know (UNKNOWN), or
    /// was reached by something else than TCP: the connection's own address is the client's then.
    pub source: Option<SocketAddr>,
    /// The header's length in bytes.
    pub bytes: usize,
}

/// The fault of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProxyError {
    /// Something else begins the connection.
    #[error("there is no PROXY header at its beginning")]
    Missing,
    /// A line of version 1 that goes on and on.
    #[error("the PROXY header of version 1 does not end within {LINE_BYTES_MAX} bytes")]
    Endless,
    /// A line of version 1 that is none.
    #[error("the PROXY header of version 1 has {0}")]
    Line(&'static str),
    /// A version that was never specified.
    #[error("the PROXY header is of version {0}; 1 and 2 are understood")]
    Version(u8),
    /// A command that was never specified.
    #[error("the PROXY header has the unknown command {0}")]
    Command(u8),
    /// A family or a transport that was never specified.
    #[error("the PROXY header has the unknown address family and transport {0:#04x}")]
    Family(u8),
    /// Fewer bytes than the addresses take.
    #[error("the PROXY header has {0} bytes of addresses, and needs {1}")]
    Short(usize, usize),
    /// More than is read.
    #[error("the PROXY header has {0} bytes, and at most {HEADER_BYTES_MAX} are read")]
    Long(usize),
}

/// Reads a header at the beginning of `input`; `None` while it is incomplete.
///
/// # Errors
///
/// The balancer's fault, or that of whoever speaks in its place. Nothing that follows makes it right.
pub fn read(input: &[u8]) -> Result<Option<Header>, ProxyError> {
    if begins(input, LINE) {
        read_line(input)
    } else if begins(input, SIGNATURE) {
        read_binary(input)
    } else {
        Err(ProxyError::Missing)
    }
}

/// True if `input` begins so, as far as it has come.
fn begins(input: &[u8], beginning: &[u8]) -> bool {
    let both = input.len().min(beginning.len());
    input[..both] == beginning[..both]
}

fn read_line(input: &[u8]) -> Result<Option<Header>, ProxyError> {
    let within = &input[..input.len().min(LINE_BYTES_MAX)];
    let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
        return if within.len() < LINE_BYTES_MAX { Ok(None) } else { Err(ProxyError::Endless) };
    };
    // It begins with `LINE`, which has no CRLF.
    let fields = str::from_utf8(&input[LINE.len()..end]).map_err(|_| ProxyError::Line("bytes that are not ASCII"))?;
    let mut fields = fields.split(' ');
    let read_ip: fn(&str) -> Option<IpAddr> = match fields.next() {
        Some("TCP4") => |text| text.parse::<Ipv4Addr>().ok().map(Into::into),
        Some("TCP6") => |text| text.parse::<Ipv6Addr>().ok().map(Into::into),
        // Whatever follows is not to be looked at.
        Some("UNKNOWN") => return Ok(Some(Header { source: None, bytes: end + 2 })),
        _ => return Err(ProxyError::Line("another protocol than TCP4, TCP6 and UNKNOWN")),
    };
    let mut ip = || fields.next().and_then(read_ip).ok_or(ProxyError::Line("an address that is none of its protocol"));
    let (source, _) = (ip()?, ip()?);
    let mut port = || fields.next().and_then(read_port).ok_or(ProxyError::Line("a port that is none"));
    let (port, _) = (port()?, port()?);
    if fields.next().is_some() {
        return Err(ProxyError::Line("something after its ports"));
    }
    Ok(Some(Header { source: Some(SocketAddr::new(source, port)), bytes: end + 2 }))
}

/// A decimal number from 0 to 65535, without a sign and without zeros before it.
fn read_port(text: &str) -> Option<u16> {
    let is_plain = text == "0" || text.starts_with(|first: char| matches!(first, '1'..='9'));
    text.parse().ok().filter(|_| is_plain)
}

fn read_binary(input: &[u8]) -> Result<Option<Header>, ProxyError> {
    let Some(fixed) = input.first_chunk::<FIXED_BYTES>() else { return Ok(None) };
    let [version_and_command, family, high, low] = fixed[SIGNATURE.len()..] else { return Ok(None) };
    let (version, command) = (version_and_command >> 4, version_and_command & 0x0f);
    if version != 2 {
        return Err(ProxyError::Version(version));
    }
    if !matches!(command, LOCAL | PROXY) {
        return Err(ProxyError::Command(command));
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    let bytes = FIXED_BYTES + length;
    if bytes > HEADER_BYTES_MAX {
        return Err(ProxyError::Long(bytes));
    }
    if command == LOCAL {
        // The family says nothing.
        return Ok((input.len() >= bytes).then_some(Header { source: None, bytes }));
    }
    // Those of Unix sockets are two paths.
    let addresses_bytes = match family {
        UNSPECIFIED => 0,
        TCP4 | UDP4 => 12,
        TCP6 | UDP6 => 36,
        UNIX_STREAM | UNIX_DATAGRAM => 216,
        _ => return Err(ProxyError::Family(family)),
    };
    if length < addresses_bytes {
        return Err(ProxyError::Short(length, addresses_bytes));
    }
    let Some(behind) = input.get(FIXED_BYTES..bytes) else { return Ok(None) };
    let source = match family {
        TCP4 | TCP6 => read_source(&behind[..addresses_bytes]),
        _ => None,
    };
    Ok(Some(Header { source, bytes }))
}

/// The source of two addresses, which come first, and two ports.
fn read_source(addresses: &[u8]) -> Option<SocketAddr> {
    let (both, ports) = addresses.split_at_checked(addresses.len().checked_sub(4)?)?;
    let source = &both[..both.len() / 2];
    let ip = match source.first_chunk::<16>() {
        Some(octets) => IpAddr::from(*octets),
        None => IpAddr::from(*source.first_chunk::<4>()?),
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes(*ports.first_chunk()?)))
}
