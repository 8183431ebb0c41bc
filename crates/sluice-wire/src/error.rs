//! ErrorResponse and NoticeResponse (PostgreSQL documentation, 55.8), and the SQLSTATEs Sluice speaks.

use std::borrow::Cow;

/// The SQLSTATEs that Sluice itself sends or acts on (PostgreSQL documentation, appendix A).
pub mod sqlstate {
    /// The client asked for something this server can't do.
    pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
    /// A connection to the server can't be made.
    pub const CANNOT_CONNECT: &str = "08001";
    /// The server connection broke.
    pub const CONNECTION_FAILURE: &str = "08006";
    /// The transaction has to be run again.
    pub const SERIALIZATION_FAILURE: &str = "40001";
    /// The server connection broke, and with it a statement or a COMMIT was under way.
    pub const TRANSACTION_RESOLUTION_UNKNOWN: &str = "08007";
    /// The peer broke the protocol.
    pub const PROTOCOL_VIOLATION: &str = "08P01";
    /// A setting does not take that value.
    pub const INVALID_PARAMETER_VALUE: &str = "22023";
    /// The transaction has failed, and only its end is taken.
    pub const IN_FAILED_TRANSACTION: &str = "25P02";
    /// A client has left a transaction open for too long.
    pub const IDLE_IN_TRANSACTION_TIMEOUT: &str = "25P03";
    /// A prepared statement of that name does not exist.
    pub const INVALID_STATEMENT_NAME: &str = "26000";
    /// No such user, or a login without its password.
    pub const INVALID_AUTHORIZATION: &str = "28000";
    /// The password does not match.
    pub const INVALID_PASSWORD: &str = "28P01";
    /// No such database.
    pub const INVALID_CATALOG_NAME: &str = "3D000";
    /// A prepared statement of that name exists.
    pub const DUPLICATE_STATEMENT: &str = "42P05";
    /// There is no such thing.
    pub const UNDEFINED_OBJECT: &str = "42704";
    /// A text makes no sense where it stands.
    pub const SYNTAX_ERROR: &str = "42601";
    /// No connection is free.
    pub const TOO_MANY_CONNECTIONS: &str = "53300";
    /// A message is larger than the limit.
    pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
    /// The object is in no state for that.
    pub const OBJECT_NOT_IN_PREREQUISITE_STATE: &str = "55000";
    /// Others have not let go of something in time.
    pub const LOCK_NOT_AVAILABLE: &str = "55P03";
    /// An operation was canceled, or has taken too long.
    pub const QUERY_CANCELED: &str = "57014";
    /// The service is stopping.
    pub const ADMIN_SHUTDOWN: &str = "57P01";
    /// The service is not ready.
    pub const CANNOT_CONNECT_NOW: &str = "57P03";
    /// A client has been idle for too long.
    pub const IDLE_SESSION_TIMEOUT: &str = "57P05";
    /// A fault of Sluice's own.
    /// `config_file_error`.
    pub const CONFIG_FILE_ERROR: &str = "F0000";
    /// `insufficient_privilege`.
    pub const INSUFFICIENT_PRIVILEGE: &str = "42501";
    /// `internal_error`.
    pub const INTERNAL_ERROR: &str = "XX000";
}

/// The extent of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The statement.
    Error,
    /// The connection.
    Fatal,
}

impl Severity {
    fn text(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
        }
    }
}

/// An error as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorResponse {
    /// The thing that it ends.
    pub severity: Severity,
    /// Five characters, see [`sqlstate`].
    pub code: Cow<'static, str>,
    /// The primary message: one line, no full stop.
    pub message: String,
    /// More, if there is more to say.
    pub detail: Option<String>,
    /// Advice, if there is any.
    pub hint: Option<String>,
    /// The place where PostgreSQL raises it: drivers go by the routine's name.
    pub origin: Option<Box<Origin>>,
}

/// The place in PostgreSQL's source where an error is raised. One that Sluice raises in PostgreSQL's place has the
/// routine alone: files and lines are other ones in each version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The file.
    pub file: Option<String>,
    /// The line.
    pub line: Option<String>,
    /// The routine.
    pub routine: Cow<'static, str>,
}

impl ErrorResponse {
    /// An error that ends the connection.
    pub fn fatal(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Fatal,
            code: code.into(),
            message: message.into(),
            detail: None,
            hint: None,
            origin: None,
        }
    }

    /// An error that ends the statement.
    pub fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, ..Self::fatal(code, message) }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the circumstances.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds PostgreSQL's routine.
    #[must_use]
    pub fn routine(mut self, routine: &'static str) -> Self {
        self.origin = Some(Box::new(Origin { file: None, line: None, routine: routine.into() }));
        self
    }

    /// Appends the message to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        crate::message::framed(out, b'E', |out| {
            let severity = self.severity.text();
            let fields = [
                (b'S', Some(severity)),
                (b'V', Some(severity)),
                (b'C', Some(&*self.code)),
                (b'M', Some(self.message.as_str())),
                (b'D', self.detail.as_deref()),
                (b'H', self.hint.as_deref()),
                (b'F', self.origin.as_ref().and_then(|origin| origin.file.as_deref())),
                (b'L', self.origin.as_ref().and_then(|origin| origin.line.as_deref())),
                (b'R', self.origin.as_ref().map(|origin| &*origin.routine)),
            ];
            for (field, value) in fields {
                let Some(value) = value else { continue };
                out.push(field);
                crate::message::put_cstr(out, value.as_bytes());
            }
            out.push(0);
        });
    }

    /// The message as bytes of its own.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        self.write(&mut out);
        out
    }

    /// An error that a server sent, as far as it can be passed on in other words. `body` is without the header.
    pub fn from_body(body: &[u8]) -> Self {
        let text = |field| ErrorFields(body).get(field).map(|v| String::from_utf8_lossy(v).into_owned());
        let severity = text(b'V').or_else(|| text(b'S'));
        Self {
            severity: if severity.as_deref() == Some("ERROR") { Severity::Error } else { Severity::Fatal },
            code: text(b'C').map_or(Cow::Borrowed(sqlstate::INTERNAL_ERROR), Cow::Owned),
            message: text(b'M').unwrap_or_else(|| "the server gave no message".into()),
            detail: text(b'D'),
            hint: text(b'H'),
            origin: text(b'R')
                .map(|routine| Box::new(Origin { file: text(b'F'), line: text(b'L'), routine: routine.into() })),
        }
    }
}

/// The fields of an ErrorResponse's or NoticeResponse's body.
#[derive(Debug, Clone, Copy)]
pub struct ErrorFields<'a>(pub &'a [u8]);

impl<'a> ErrorFields<'a> {
    /// The value of the first field of that type.
    pub fn get(&self, field: u8) -> Option<&'a [u8]> {
        let mut rest = self.0;
        while let Some((&kind, tail)) = rest.split_first() {
            if kind == 0 {
                break;
            }
            let (value, tail) = crate::message::split_cstr(tail)?;
            if kind == field {
                return Some(value);
            }
            rest = tail;
        }
        None
    }

    /// Appends the same fields, with another value in those of that type, and their end.
    pub fn put_with(&self, out: &mut Vec<u8>, field: u8, value: &[u8]) {
        let mut rest = self.0;
        while let Some((&kind, tail)) = rest.split_first().filter(|(kind, _)| **kind != 0) {
            let Some((known, tail)) = crate::message::split_cstr(tail) else { break };
            out.push(kind);
            crate::message::put_cstr(out, if kind == field { value } else { known });
            rest = tail;
        }
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_fields_on_the_wire() {
        let sent = ErrorResponse::fatal(sqlstate::TOO_MANY_CONNECTIONS, "no server is free").hint("wait").detail("why");
        let bytes = sent.to_bytes();
        assert_eq!(bytes[0], b'E');
        assert_eq!(ErrorResponse::from_body(&bytes[5..]), sent);
        assert_eq!(ErrorFields(&bytes[5..]).get(b'C'), Some(&b"53300"[..]));
        assert_eq!(ErrorFields(&bytes[5..]).get(b'R'), None);
        let mut body = Vec::new();
        ErrorFields(&bytes[5..]).put_with(&mut body, b'H', b"stay");
        assert_eq!(ErrorResponse::from_body(&body), sent.hint("stay"));
    }
}
