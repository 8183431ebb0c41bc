//! The encryption of connections: what was asked for, and what it has come to.

use std::sync::Arc;

use sluice_tls::{Secured, ServerTls};

/// The encryption of a client's connection.
#[derive(Debug, Default)]
pub enum ClientEncryption {
    /// None, and it has not asked for any.
    #[default]
    None,
    /// None: it was told no.
    Refused {
        /// Whether it has asked for TLS.
        ssl: bool,
        /// Whether it has asked for GSSAPI.
        gss: bool,
    },
    /// The handshake is under way.
    Begun(Request, Arc<ServerTls>),
    /// It is in place.
    Secured(Box<ClientSecured>),
}

/// A request for encryption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// An SSLRequest.
    Ssl,
    /// A GSSENCRequest.
    GssEnc,
    /// The handshake itself, unannounced.
    Direct,
}

/// A client's connection that is encrypted.
#[derive(Debug)]
pub struct ClientSecured {
    /// The certificate that the client has seen.
    pub tls: Arc<ServerTls>,
    /// The outcome of the handshake.
    pub secured: Secured,
}

impl ClientEncryption {
    /// Whether it may ask in that way now: PostgreSQL hears no request twice, and none in an encrypted connection
    /// (`ProcessStartupPacket`).
    pub fn admits(&self, request: Request) -> bool {
        match self {
            Self::None => true,
            Self::Refused { ssl, gss } => match request {
                Request::Ssl => !ssl,
                Request::GssEnc => !gss,
                Request::Direct => false,
            },
            Self::Begun(..) | Self::Secured(_) => false,
        }
    }

    /// It has asked in that way and was told no.
    pub fn refuse(&mut self, request: Request) {
        let (ssl, gss) = match self {
            Self::Refused { ssl, gss } => (*ssl, *gss),
            _ => (false, false),
        };
        *self = Self::Refused { ssl: ssl || request == Request::Ssl, gss: gss || request == Request::GssEnc };
    }

    /// The encryption, if it is in place.
    pub fn secured(&self) -> Option<&ClientSecured> {
        match self {
            Self::Secured(secured) => Some(secured),
            _ => None,
        }
    }

    /// The hash of the certificate that a client may bind its log-in to.
    pub fn end_point(&self) -> Option<&[u8]> {
        self.secured()?.tls.end_point.as_deref()
    }
}

/// The encryption of a server's connection.
#[derive(Debug, Default)]
pub enum ServerEncryption {
    /// None.
    #[default]
    None,
    /// By TLS.
    Secured(Box<Secured>),
}

impl ServerEncryption {
    /// The outcome of the handshake, if there was one.
    pub fn secured(&self) -> Option<&Secured> {
        match self {
            Self::None => None,
            Self::Secured(secured) => Some(secured),
        }
    }
}
