//! The first packet of a connection: StartupMessage, CancelRequest, SSLRequest, GSSENCRequest, and the negotiation of
//! the protocol's version (PostgreSQL documentation, 55.2.1 and 55.7).

use thiserror::Error;

use crate::{
    BackendKind,
    message::{framed, put_cstr, split_cstr},
};

/// The largest first packet that PostgreSQL accepts, in bytes: `MAX_STARTUP_PACKET_LENGTH`, and the length itself.
pub const STARTUP_BYTES_MAX: u32 = 10_004;

/// The longest key a CancelRequest may carry, in bytes.
pub const CANCEL_KEY_BYTES_MAX: usize = 256;

const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;

/// An SSLRequest.
pub const SSL_REQUEST_PACKET: [u8; 8] = {
    let [a, b, c, d] = SSL_REQUEST.to_be_bytes();
    [0, 0, 0, 8, a, b, c, d]
};

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProtocolVersion {
    /// 3 in all that Sluice speaks.
    pub major: u16,
    /// 0 or 2 in all that Sluice speaks.
    pub minor: u16,
}

impl ProtocolVersion {
    /// Version 3.0: cancel keys of four bytes.
    pub const V3_0: Self = Self { major: 3, minor: 0 };
    /// Version 3.2, since PostgreSQL 18: cancel keys of any length up to 256 bytes.
    pub const V3_2: Self = Self { major: 3, minor: 2 };

    fn from_code(code: u32) -> Self {
        Self { major: (code >> 16) as u16, minor: code as u16 }
    }

    fn code(self) -> u32 {
        u32::from(self.major) << 16 | u32::from(self.minor)
    }
}

/// The fault of a first packet.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StartupError {
    /// The length can't be that of a first packet: not PostgreSQL's protocol, most likely.
    #[error("invalid length of startup packet: {0} bytes")]
    Length(u32),
    /// The body is not what its code promises.
    #[error("invalid startup packet layout: {0}")]
    Layout(&'static str),
    /// A major version that Sluice does not speak.
    #[error("unsupported frontend protocol {}.{}: server supports 3.0 to 3.2", .0.major, .0.minor)]
    Version(ProtocolVersion),
}

/// A first packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Startup {
    /// A session is wanted.
    Session(SessionRequest),
    /// A running query is to be cancelled.
    Cancel {
        /// The number that BackendKeyData gave.
        process_id: u32,
        /// The key that BackendKeyData gave.
        key: Vec<u8>,
    },
    /// Encryption by TLS is wanted.
    Ssl,
    /// Encryption by GSSAPI is wanted.
    GssEnc,
}

/// A StartupMessage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRequest {
    /// The version asked for.
    pub version: ProtocolVersion,
    /// Names and values, in order; `user` is among them.
    pub parameters: Vec<(String, String)>,
}

impl SessionRequest {
    /// All values given for `name`, in their order.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.parameters.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The last value given for `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The version the session will use, and the protocol options that are not known here.
    pub fn negotiate(&self) -> (ProtocolVersion, Vec<&str>) {
        let version = self.version.min(ProtocolVersion::V3_2);
        let unknown = self.parameters.iter().map(|(n, _)| n.as_str()).filter(|n| n.starts_with("_pq_.")).collect();
        (version, unknown)
    }
}

/// Reads a first packet from the beginning of `input`: the packet and its length, or `None` while it is incomplete.
pub fn read(input: &[u8]) -> Result<Option<(Startup, usize)>, StartupError> {
    let Some((length, rest)) = input.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length);
    if !(8..=STARTUP_BYTES_MAX).contains(&length) {
        return Err(StartupError::Length(length));
    }
    let Some(packet) = rest.get(..length as usize - 4) else { return Ok(None) };
    let (code, body) = packet.split_first_chunk::<4>().ok_or(StartupError::Length(length))?;
    let startup = match u32::from_be_bytes(*code) {
        SSL_REQUEST => Startup::Ssl,
        GSSENC_REQUEST => Startup::GssEnc,
        CANCEL_REQUEST => read_cancel(body),
        code => Startup::Session(read_session(ProtocolVersion::from_code(code), body)?),
    };
    Ok(Some((startup, length as usize)))
}

/// A malformed one has no key: it is nobody's, and PostgreSQL answers none of them.
fn read_cancel(body: &[u8]) -> Startup {
    match body.split_first_chunk::<4>() {
        Some((process_id, key)) if key.len() <= CANCEL_KEY_BYTES_MAX => {
            Startup::Cancel { process_id: u32::from_be_bytes(*process_id), key: key.to_vec() }
        }
        _ => Startup::Cancel { process_id: 0, key: Vec::new() },
    }
}

fn read_session(version: ProtocolVersion, body: &[u8]) -> Result<SessionRequest, StartupError> {
    if version.major != 3 {
        return Err(StartupError::Version(version));
    }
    let text = |bytes: &[u8]| {
        String::from_utf8(bytes.to_vec()).map_err(|_| StartupError::Layout("a parameter is not valid UTF-8"))
    };
    let mut parameters = Vec::new();
    let mut rest = body;
    loop {
        let (name, tail) = split_cstr(rest).ok_or(StartupError::Layout("expected terminator as last byte"))?;
        if name.is_empty() {
            if tail.is_empty() {
                return Ok(SessionRequest { version, parameters });
            }
            return Err(StartupError::Layout("expected terminator as last byte"));
        }
        let (value, tail) = split_cstr(tail).ok_or(StartupError::Layout("a parameter has no value"))?;
        parameters.push((text(name)?, text(value)?));
        rest = tail;
    }
}

/// Appends a StartupMessage.
pub fn put_session<'a>(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
) {
    put_packet(out, version.code(), |out| {
        for (name, value) in parameters {
            put_cstr(out, name.as_bytes());
            put_cstr(out, value.as_bytes());
        }
        out.push(0);
    });
}

/// Appends a CancelRequest.
pub fn put_cancel(out: &mut Vec<u8>, process_id: u32, key: &[u8]) {
    put_packet(out, CANCEL_REQUEST, |out| {
        out.extend_from_slice(&process_id.to_be_bytes());
        out.extend_from_slice(key);
    });
}

fn put_packet(out: &mut Vec<u8>, code: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&code.to_be_bytes());
    body(out);
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a NegotiateProtocolVersion: the newest minor version spoken, and the options that are not.
pub fn put_negotiate(out: &mut Vec<u8>, version: ProtocolVersion, unknown: &[&str]) {
    framed(out, BackendKind::NegotiateProtocolVersion, |out| {
        out.extend_from_slice(&version.code().to_be_bytes());
        out.extend_from_slice(&(unknown.len() as u32).to_be_bytes());
        for name in unknown {
            put_cstr(out, name.as_bytes());
        }
    });
}
