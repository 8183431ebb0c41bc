//! Clients' addresses, reported to a server whose extension lets a pool do that (`extension/src/client_address.c`).
//!
//! A transaction's first message is preceded by a FunctionCall with the client's address, unless that is the last one
//! reported. It is sent together with what follows it, so it costs no round trip. Where the function is not there, or
//! does not believe the pool, nothing is reported.

use std::net::IpAddr;

use sluice_wire::message;

use sluice_control::{CLIENT_ADDRESS_SECRET_BYTES, address::PeerAddress};

/// Finds the function. Only a superuser can make one in C that is part of that extension, so no other one gets to see
/// the secret; and nothing here is looked up on the `search_path`, which is the user's own.
pub const FIND: &str = "SELECT p.oid FROM pg_catalog.pg_proc p, pg_catalog.pg_language l, pg_catalog.pg_depend d, \
    pg_catalog.pg_extension e \
    WHERE p.proname OPERATOR(pg_catalog.=) 'sluice_set_client'::pg_catalog.name \
        AND l.oid OPERATOR(pg_catalog.=) p.prolang AND l.lanname OPERATOR(pg_catalog.=) 'c'::pg_catalog.name \
        AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid \
        AND d.objid OPERATOR(pg_catalog.=) p.oid AND d.deptype OPERATOR(pg_catalog.=) 'e'::pg_catalog.\"char\" \
        AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass::pg_catalog.oid \
        AND e.oid OPERATOR(pg_catalog.=) d.refobjid \
        AND e.extname OPERATOR(pg_catalog.=) 'sluice'::pg_catalog.name";

/// The server's function to which a client's address is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressFunction {
    /// It has not been looked for.
    Unknown,
    /// There is none, or none that believes the pool.
    None,
    /// The one with this OID; the address that was reported to it last.
    Known(u32, Option<PeerAddress>),
}

impl AddressFunction {
    /// Its OID, if it is to be called for a client, which is not the one it was called for last; it counts as called.
    pub fn take_call(&mut self, peer: PeerAddress) -> Option<u32> {
        match self {
            Self::Known(oid, last) if *last != Some(peer) => {
                *last = Some(peer);
                Some(*oid)
            }
            _ => None,
        }
    }
}

/// Appends the call.
pub fn put_call(out: &mut Vec<u8>, function: u32, secret: &[u8], peer: PeerAddress) {
    let secret = &secret[..secret.len().min(*CLIENT_ADDRESS_SECRET_BYTES.end())];
    message::put_function_call(out, function, |out| {
        // No longer than that, see above.
        out.push(secret.len() as u8);
        out.extend_from_slice(secret);
        match peer {
            PeerAddress::Local => out.extend_from_slice(&[0, 0, 0]),
            PeerAddress::Tcp(IpAddr::V4(ip), port) => {
                out.push(4);
                out.extend_from_slice(&port.to_be_bytes());
                out.extend_from_slice(&ip.octets());
            }
            PeerAddress::Tcp(IpAddr::V6(ip), port) => {
                out.push(6);
                out.extend_from_slice(&port.to_be_bytes());
                out.extend_from_slice(&ip.octets());
            }
        }
    });
}

/// The text of a DataRow's only column.
pub(crate) fn read_text(row: &[u8]) -> Option<&str> {
    let (columns, rest) = row.split_first_chunk::<2>()?;
    let (bytes, rest) = rest.split_first_chunk::<4>()?;
    let text = rest.get(..usize::try_from(u32::from_be_bytes(*bytes)).ok()?)?;
    (u16::from_be_bytes(*columns) == 1).then(|| std::str::from_utf8(text).ok())?
}

/// The OID that a DataRow's only column says.
pub(crate) fn read_oid(row: &[u8]) -> Option<u32> {
    read_text(row)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_reported_once() {
        let (one, other) = (PeerAddress::Local, PeerAddress::Tcp(IpAddr::from([10, 0, 0, 1]), 7));
        let mut function = AddressFunction::Known(5, None);
        let calls: Vec<_> = [one, one, other, one].map(|peer| function.take_call(peer)).into();
        assert_eq!(calls, [Some(5), None, Some(5), Some(5)]);
        assert_eq!((AddressFunction::None.take_call(one), AddressFunction::Unknown.take_call(one)), (None, None));
    }

    #[test]
    fn a_call_has_the_address_in_network_order() {
        for (peer, address) in [
            (PeerAddress::Local, &[0, 0, 0][..]),
            (PeerAddress::Tcp(IpAddr::from([10, 1, 2, 3]), 0x1234), &[4, 0x12, 0x34, 10, 1, 2, 3]),
            (
                PeerAddress::Tcp("2001:db8::5".parse().unwrap(), 443),
                &[6, 1, 187, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5],
            ),
        ] {
            let mut out = Vec::new();
            put_call(&mut out, 0x0102_0304, b"secret", peer);
            let argument = [&[6][..], b"secret", address].concat();
            let length = (argument.len() as u32).to_be_bytes();
            let body = [&[1, 2, 3, 4, 0, 1, 0, 1, 0, 1][..], &length, &argument, &[0, 1]].concat();
            assert_eq!(out, [&b"F"[..], &(body.len() as u32 + 4).to_be_bytes(), &body].concat());
        }
    }

    #[test]
    fn oids_of_rows() {
        for (row, oid) in [
            (&b"\0\x01\0\0\0\x0516384"[..], Some(16384)),
            (b"\0\x01\xff\xff\xff\xff", None),
            (b"\0\x02\0\0\0\x017\0\0\0\x017", None),
            (b"\0\x01\0\0\0\x09x", None),
            (b"", None),
        ] {
            assert_eq!(read_oid(row), oid, "{row:?}");
        }
    }
}
