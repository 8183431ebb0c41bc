//! The messages of a session (PostgreSQL documentation, 55.7): type bytes, the bodies that a pool must read, and the
//! ones it must write.

use memchr::memchr;
use thiserror::Error;

use crate::{BackendKind, FrontendKind, frame::HEADER_BYTES};

/// Type bytes of messages from the client, for whoever puts them together byte by byte.
pub mod frontend {
    #![allow(missing_docs, reason = "the names are the protocol's own")]
    use crate::FrontendKind;

    pub const BIND: u8 = FrontendKind::Bind.byte();
    pub const CLOSE: u8 = FrontendKind::Close.byte();
    pub const COPY_DATA: u8 = FrontendKind::CopyData.byte();
    pub const COPY_DONE: u8 = FrontendKind::CopyDone.byte();
    pub const COPY_FAIL: u8 = FrontendKind::CopyFail.byte();
    pub const DESCRIBE: u8 = FrontendKind::Describe.byte();
    pub const EXECUTE: u8 = FrontendKind::Execute.byte();
    pub const FLUSH: u8 = FrontendKind::Flush.byte();
    pub const FUNCTION_CALL: u8 = FrontendKind::FunctionCall.byte();
    pub const PARSE: u8 = FrontendKind::Parse.byte();
    pub const PASSWORD: u8 = FrontendKind::Password.byte();
    pub const QUERY: u8 = FrontendKind::Query.byte();
    pub const SYNC: u8 = FrontendKind::Sync.byte();
    pub const TERMINATE: u8 = FrontendKind::Terminate.byte();
}

/// Type bytes of messages from the server, for whoever puts them together byte by byte.
pub mod backend {
    #![allow(missing_docs, reason = "the names are the protocol's own")]
    use crate::BackendKind;

    pub const AUTHENTICATION: u8 = BackendKind::Authentication.byte();
    pub const BACKEND_KEY_DATA: u8 = BackendKind::BackendKeyData.byte();
    pub const BIND_COMPLETE: u8 = BackendKind::BindComplete.byte();
    pub const CLOSE_COMPLETE: u8 = BackendKind::CloseComplete.byte();
    pub const COMMAND_COMPLETE: u8 = BackendKind::CommandComplete.byte();
    pub const COPY_BOTH_RESPONSE: u8 = BackendKind::CopyBothResponse.byte();
    pub const COPY_DATA: u8 = BackendKind::CopyData.byte();
    pub const COPY_DONE: u8 = BackendKind::CopyDone.byte();
    pub const COPY_IN_RESPONSE: u8 = BackendKind::CopyInResponse.byte();
    pub const COPY_OUT_RESPONSE: u8 = BackendKind::CopyOutResponse.byte();
    pub const DATA_ROW: u8 = BackendKind::DataRow.byte();
    pub const EMPTY_QUERY_RESPONSE: u8 = BackendKind::EmptyQueryResponse.byte();
    pub const ERROR_RESPONSE: u8 = BackendKind::ErrorResponse.byte();
    pub const FUNCTION_CALL_RESPONSE: u8 = BackendKind::FunctionCallResponse.byte();
    pub const NEGOTIATE_PROTOCOL_VERSION: u8 = BackendKind::NegotiateProtocolVersion.byte();
    pub const NOTICE_RESPONSE: u8 = BackendKind::NoticeResponse.byte();
    pub const NOTIFICATION_RESPONSE: u8 = BackendKind::NotificationResponse.byte();
    pub const NO_DATA: u8 = BackendKind::NoData.byte();
    pub const PARAMETER_DESCRIPTION: u8 = BackendKind::ParameterDescription.byte();
    pub const PARAMETER_STATUS: u8 = BackendKind::ParameterStatus.byte();
    pub const PARSE_COMPLETE: u8 = BackendKind::ParseComplete.byte();
    pub const PORTAL_SUSPENDED: u8 = BackendKind::PortalSuspended.byte();
    pub const READY_FOR_QUERY: u8 = BackendKind::ReadyForQuery.byte();
    pub const ROW_DESCRIPTION: u8 = BackendKind::RowDescription.byte();
}

/// A body that does not have the shape its type byte promises: the sender's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("invalid {0} message")]
pub struct Malformed(pub &'static str);

/// The transaction status of ReadyForQuery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatus {
    /// No transaction is open.
    Idle,
    /// A transaction is open.
    InTransaction,
    /// A transaction is open and has failed.
    Failed,
}

impl TransactionStatus {
    /// The status of a ReadyForQuery's body.
    pub fn from_byte(byte: u8) -> Result<Self, Malformed> {
        match byte {
            b'I' => Ok(Self::Idle),
            b'T' => Ok(Self::InTransaction),
            b'E' => Ok(Self::Failed),
            _ => Err(Malformed("ReadyForQuery")),
        }
    }

    /// A whole ReadyForQuery message.
    pub fn ready_for_query(self) -> [u8; 6] {
        let byte = match self {
            Self::Idle => b'I',
            Self::InTransaction => b'T',
            Self::Failed => b'E',
        };
        [BackendKind::ReadyForQuery.byte(), 0, 0, 0, 5, byte]
    }
}

/// ParseComplete.
pub const PARSE_COMPLETE: [u8; 5] = [BackendKind::ParseComplete.byte(), 0, 0, 0, 4];
/// BindComplete.
pub const BIND_COMPLETE: [u8; 5] = [BackendKind::BindComplete.byte(), 0, 0, 0, 4];
/// CloseComplete.
pub const CLOSE_COMPLETE: [u8; 5] = [BackendKind::CloseComplete.byte(), 0, 0, 0, 4];
/// NoData.
pub const NO_DATA: [u8; 5] = [BackendKind::NoData.byte(), 0, 0, 0, 4];
/// Sync.
pub const SYNC: [u8; 5] = [FrontendKind::Sync.byte(), 0, 0, 0, 4];
/// Flush.
pub const FLUSH: [u8; 5] = [FrontendKind::Flush.byte(), 0, 0, 0, 4];
/// Terminate.
pub const TERMINATE: [u8; 5] = [FrontendKind::Terminate.byte(), 0, 0, 0, 4];
/// AuthenticationOk.
pub const AUTHENTICATION_OK: [u8; 9] = [BackendKind::Authentication.byte(), 0, 0, 0, 8, 0, 0, 0, 0];

/// The value before the first zero byte, and what follows it.
pub fn split_cstr(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    // Names are mostly empty.
    let end = if bytes.first() == Some(&0) { 0 } else { memchr(0, bytes)? };
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// Appends `value` and a zero byte; a zero inside `value` ends it early, since the protocol can't carry one.
pub fn put_cstr(out: &mut Vec<u8>, value: &[u8]) {
    let end = memchr(0, value).unwrap_or(value.len());
    out.extend_from_slice(&value[..end]);
    out.push(0);
}

/// Appends a message with the body that `body` writes.
pub fn framed(out: &mut Vec<u8>, kind: impl Into<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[kind.into(), 0, 0, 0, 0]);
    body(out);
    let length = (out.len() - start - 1) as u32;
    out[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
}

/// The body of Parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parse<'a> {
    /// The statement's name; empty for the unnamed one.
    pub name: &'a [u8],
    /// Text and parameter types, as they stand in the message: what makes two statements the same.
    pub definition: &'a [u8],
    /// The text alone.
    pub query: &'a [u8],
}

impl<'a> Parse<'a> {
    /// Reads a whole body.
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let malformed = Malformed("Parse");
        let (name, definition) = split_cstr(body).ok_or(malformed)?;
        let (query, types) = split_cstr(definition).ok_or(malformed)?;
        let (count, oids) = types.split_first_chunk::<2>().ok_or(malformed)?;
        if oids.len() != usize::from(u16::from_be_bytes(*count)) * 4 {
            return Err(malformed);
        }
        Ok(Self { name, definition, query })
    }

    /// Whether it gives types to parameters.
    pub fn has_types(&self) -> bool {
        self.definition.get(self.query.len() + 1..) != Some(&[0; 2])
    }

    /// Appends a Parse of `definition` under `name`.
    pub fn write(out: &mut Vec<u8>, name: &[u8], definition: &[u8]) {
        framed(out, FrontendKind::Parse, |out| {
            put_cstr(out, name);
            out.extend_from_slice(definition);
        });
    }
}

/// The beginning of a Bind's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindNames<'a> {
    /// The portal's name.
    pub portal: &'a [u8],
    /// The statement's name.
    pub statement: &'a [u8],
    /// The bytes of the body that both names take, with their zero bytes.
    pub bytes: usize,
}

impl<'a> BindNames<'a> {
    /// Reads the names, or `None` while `body`, which may be cut anywhere, does not hold them whole.
    pub fn read(body: &'a [u8]) -> Option<Self> {
        let (portal, rest) = split_cstr(body)?;
        let (statement, tail) = split_cstr(rest)?;
        Some(Self { portal, statement, bytes: body.len() - tail.len() })
    }

    /// Appends the header and the names, without zero bytes, of a Bind whose remaining body of `rest` bytes follows.
    pub fn write(out: &mut Vec<u8>, portal: &[u8], statement: &[u8], rest: usize) {
        let names = portal.len() + statement.len() + 2;
        let [a, b, c, d] = ((4 + names + rest) as u32).to_be_bytes();
        out.reserve(HEADER_BYTES + names);
        out.extend_from_slice(&[FrontendKind::Bind.byte(), a, b, c, d]);
        for name in [portal, statement] {
            out.extend_from_slice(name);
            out.push(0);
        }
    }
}

/// The statement or portal that Describe or Close names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named<'a> {
    /// A prepared statement.
    Statement(&'a [u8]),
    /// A portal.
    Portal(&'a [u8]),
}

impl<'a> Named<'a> {
    /// Reads the body of a Describe or Close; `message` is its name for the error.
    pub fn read(body: &'a [u8], message: &'static str) -> Result<Self, Malformed> {
        let (&kind, rest) = body.split_first().ok_or(Malformed(message))?;
        match (kind, split_cstr(rest)) {
            (b'S', Some((name, []))) => Ok(Self::Statement(name)),
            (b'P', Some((name, []))) => Ok(Self::Portal(name)),
            _ => Err(Malformed(message)),
        }
    }
}

/// Appends a Describe or Close (`kind`) of a statement.
pub fn put_statement_message(out: &mut Vec<u8>, kind: impl Into<u8>, name: &[u8]) {
    framed(out, kind, |out| {
        out.push(b'S');
        put_cstr(out, name);
    });
}

/// Appends a message that fails, whatever the server has, so that it skips and rolls back just as PostgreSQL does
/// behind an error: a Describe of nothing that can be described.
pub fn put_failure(out: &mut Vec<u8>) {
    framed(out, FrontendKind::Describe, |out| out.extend_from_slice(b"!\0"));
}

/// Appends a Describe or Close of a portal.
pub fn put_portal_message(out: &mut Vec<u8>, kind: impl Into<u8>, name: &[u8]) {
    framed(out, kind, |out| {
        out.push(b'P');
        put_cstr(out, name);
    });
}

/// Appends a Query.
pub fn put_query(out: &mut Vec<u8>, text: &str) {
    framed(out, FrontendKind::Query, |out| put_cstr(out, text.as_bytes()));
}

/// Appends a Parse of `text` under `name`, with parameter types by their OIDs; 0 leaves one open.
pub fn put_parse(out: &mut Vec<u8>, name: &[u8], text: &str, types: &[u32]) {
    framed(out, FrontendKind::Parse, |out| {
        put_cstr(out, name);
        put_cstr(out, text.as_bytes());
        out.extend_from_slice(&(types.len() as u16).to_be_bytes());
        types.iter().for_each(|oid| out.extend_from_slice(&oid.to_be_bytes()));
    });
}

/// Appends a Bind of a statement to a portal, parameters and results as text; NULL is `None`.
pub fn put_bind(out: &mut Vec<u8>, portal: &[u8], statement: &[u8], values: &[Option<&[u8]>]) {
    framed(out, FrontendKind::Bind, |out| {
        put_cstr(out, portal);
        put_cstr(out, statement);
        // Formats: none given, which is text.
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&(values.len() as u16).to_be_bytes());
        for value in values {
            let length = value.map_or(-1, |value| value.len() as i32);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(value.unwrap_or_default());
        }
        out.extend_from_slice(&[0, 0]);
    });
}

/// Appends an Execute of a portal, for as many rows at most; 0 for all.
pub fn put_execute(out: &mut Vec<u8>, portal: &[u8], rows_max: u32) {
    framed(out, FrontendKind::Execute, |out| {
        put_cstr(out, portal);
        out.extend_from_slice(&rows_max.to_be_bytes());
    });
}

/// Appends a FunctionCall with one argument, which `argument` writes; it and the result are binary.
pub fn put_function_call(out: &mut Vec<u8>, function: u32, argument: impl FnOnce(&mut Vec<u8>)) {
    framed(out, FrontendKind::FunctionCall, |out| {
        out.extend_from_slice(&function.to_be_bytes());
        // One format for all, binary; one argument.
        out.extend_from_slice(&[0, 1, 0, 1, 0, 1]);
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        argument(out);
        let length = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&[0, 1]);
    });
}

/// Appends Parse, Bind and Execute of a command without parameters or rows, by the unnamed statement and portal.
pub fn put_unnamed_command(out: &mut Vec<u8>, text: &str) {
    put_parse(out, b"", text, &[]);
    put_bind(out, b"", b"", &[]);
    put_execute(out, b"", 0);
}

/// Appends a CommandComplete.
pub fn put_command_complete(out: &mut Vec<u8>, tag: &str) {
    framed(out, BackendKind::CommandComplete, |out| put_cstr(out, tag.as_bytes()));
}

/// Appends a ParameterStatus.
pub fn put_parameter_status(out: &mut Vec<u8>, name: &str, value: &str) {
    framed(out, BackendKind::ParameterStatus, |out| {
        put_cstr(out, name.as_bytes());
        put_cstr(out, value.as_bytes());
    });
}

/// Appends a BackendKeyData; `key` has 4 bytes in protocol 3.0 and up to 256 in 3.2.
pub fn put_backend_key_data(out: &mut Vec<u8>, process_id: u32, key: &[u8]) {
    framed(out, BackendKind::BackendKeyData, |out| {
        out.extend_from_slice(&process_id.to_be_bytes());
        out.extend_from_slice(key);
    });
}

/// Name and value of a ParameterStatus's body.
pub fn read_parameter_status(body: &[u8]) -> Result<(&str, &str), Malformed> {
    let malformed = Malformed("ParameterStatus");
    let (name, rest) = split_cstr(body).ok_or(malformed)?;
    let (value, _) = split_cstr(rest).ok_or(malformed)?;
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| malformed);
    Ok((text(name)?, text(value)?))
}

/// An authentication request of a server (PostgreSQL documentation, 55.7, "Authentication…").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthenticationRequest<'a> {
    /// The login is complete.
    Ok,
    /// The password in clear.
    CleartextPassword,
    /// The password, hashed with this salt.
    Md5Password([u8; 4]),
    /// A choice of SASL mechanisms, each ended by a zero byte.
    Sasl(&'a [u8]),
    /// A SASL challenge.
    SaslContinue(&'a [u8]),
    /// The end of a SASL exchange.
    SaslFinal(&'a [u8]),
    /// A method Sluice does not speak, by its number.
    Other(u32),
}

impl<'a> AuthenticationRequest<'a> {
    /// Reads a whole body.
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let malformed = Malformed("Authentication");
        let (kind, rest) = body.split_first_chunk::<4>().ok_or(malformed)?;
        Ok(match u32::from_be_bytes(*kind) {
            0 => Self::Ok,
            3 => Self::CleartextPassword,
            5 => Self::Md5Password(*rest.first_chunk().ok_or(malformed)?),
            10 => Self::Sasl(rest),
            11 => Self::SaslContinue(rest),
            12 => Self::SaslFinal(rest),
            other => Self::Other(other),
        })
    }

    /// Appends the request.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (kind, data): (u32, &[u8]) = match self {
            Self::Ok => (0, &[]),
            Self::CleartextPassword => (3, &[]),
            Self::Md5Password(salt) => (5, salt),
            Self::Sasl(mechanisms) => (10, mechanisms),
            Self::SaslContinue(data) => (11, data),
            Self::SaslFinal(data) => (12, data),
            Self::Other(kind) => (*kind, &[]),
        };
        framed(out, BackendKind::Authentication, |out| {
            out.extend_from_slice(&kind.to_be_bytes());
            out.extend_from_slice(data);
        });
    }
}

/// Mechanism and first message of a SASLInitialResponse's body.
pub fn read_sasl_initial(body: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let malformed = Malformed("SASLInitialResponse");
    let (mechanism, rest) = split_cstr(body).ok_or(malformed)?;
    let (length, data) = rest.split_first_chunk::<4>().ok_or(malformed)?;
    match u32::from_be_bytes(*length) {
        u32::MAX => Ok((mechanism, &[])),
        length if length as usize == data.len() => Ok((mechanism, data)),
        _ => Err(malformed),
    }
}

/// Appends a SASLInitialResponse.
pub fn put_sasl_initial(out: &mut Vec<u8>, mechanism: &str, data: &[u8]) {
    framed(out, FrontendKind::Password, |out| {
        put_cstr(out, mechanism.as_bytes());
        out.extend_from_slice(&(data.len() as u32).to_be_bytes());
        out.extend_from_slice(data);
    });
}
