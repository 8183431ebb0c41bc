//! The messages of clients, as bytes.

use sluice_wire::message;

pub(crate) fn query(sql: &str) -> Vec<u8> {
    let mut out = Vec::new();
    message::put_query(&mut out, sql);
    out
}

pub(crate) fn parse(name: &str, sql: &str) -> Vec<u8> {
    parse_typed(name, sql, &[])
}

pub(crate) fn parse_typed(name: &str, sql: &str, types: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    message::put_parse(&mut out, name.as_bytes(), sql, types);
    out
}

/// A Bind to the unnamed portal, with a parameter of that many bytes if there are any.
pub(crate) fn bind(name: &str, bytes: usize) -> Vec<u8> {
    let value = vec![b'x'; bytes];
    let values: &[Option<&[u8]>] = if bytes > 0 { &[Some(&value)] } else { &[] };
    let mut out = Vec::new();
    message::put_bind(&mut out, b"", name.as_bytes(), values);
    out
}

pub(crate) fn execute() -> Vec<u8> {
    let mut out = Vec::new();
    message::put_execute(&mut out, b"", 0);
    out
}

pub(crate) fn close(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    message::put_statement_message(&mut out, message::frontend::CLOSE, name.as_bytes());
    out
}

pub(crate) fn describe(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    message::put_statement_message(&mut out, message::frontend::DESCRIBE, name.as_bytes());
    out
}

pub(crate) fn sync() -> Vec<u8> {
    message::SYNC.to_vec()
}

pub(crate) fn flush() -> Vec<u8> {
    b"H\0\0\0\x04".to_vec()
}

pub(crate) fn terminate() -> Vec<u8> {
    message::TERMINATE.to_vec()
}

/// Describe of the unnamed portal.
pub(crate) fn describe_portal() -> Vec<u8> {
    let mut out = Vec::new();
    message::put_portal_message(&mut out, message::frontend::DESCRIBE, b"");
    out
}
