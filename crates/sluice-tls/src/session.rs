//! One connection's TLS: bytes in, bytes out.

use std::{borrow::Cow, fmt, sync::Arc};

use rustls::{
    AlertDescription, CertificateError, CommonState, ProtocolVersion,
    client::{ClientConnectionData, UnbufferedClientConnection},
    pki_types::ServerName,
    server::{ServerConnectionData, UnbufferedServerConnection},
    unbuffered::{
        ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError, UnbufferedStatus,
        WriteTraffic,
    },
};
use thiserror::Error;

use crate::{ClientTls, ServerTls, certificate};

/// The bytes of a record beside those that it carries, at most.
const RECORD_OVERHEAD_BYTES: usize = 64;

/// The most that a record carries.
const RECORD_BYTES: usize = 16 << 10;

/// The side of a connection that this process has.
#[derive(Debug, Clone)]
pub enum Side {
    /// The server's: a client has connected.
    Server(Arc<ServerTls>),
    /// The client's, of a server at that host.
    Client(Arc<ClientTls>, Box<str>),
}

/// The reason why a connection can't go on by TLS.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum TlsError {
    /// The library's reason.
    #[error("{0}")]
    Library(#[from] rustls::Error),
    /// So many bytes have come that make no whole.
    #[error("a handshake of more than {} bytes", Session::INCOMING_BYTES_MAX)]
    TooLong,
    /// The host can't stand in a certificate.
    #[error("\"{0}\" is no name or address that a certificate could be for")]
    Host(Box<str>),
    /// A fault of this program's own.
    #[error("the step of a handshake has panicked, which is a fault of Sluice's")]
    Panicked,
}

/// A fault by which a server can't be connected to until somebody mends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFault {
    /// Its certificate comes from nobody who is trusted.
    Authority,
    /// Its certificate is for other hosts.
    Name,
    /// Its certificate is no good otherwise: it has expired, say.
    Certificate,
    /// It does not take the certificate that it was shown, or wants one.
    Own,
}

impl TlsError {
    /// The fault by which a server can't be connected to, where that is known to last.
    pub fn server_fault(&self) -> Option<ServerFault> {
        use AlertDescription as A;
        use CertificateError as C;
        let Self::Library(error) = self else { return None };
        match error {
            rustls::Error::InvalidCertificate(C::UnknownIssuer | C::BadSignature) => Some(ServerFault::Authority),
            rustls::Error::InvalidCertificate(C::NotValidForName | C::NotValidForNameContext { .. }) => {
                Some(ServerFault::Name)
            }
            rustls::Error::InvalidCertificate(_) => Some(ServerFault::Certificate),
            rustls::Error::AlertReceived(
                A::BadCertificate
                | A::UnsupportedCertificate
                | A::CertificateRevoked
                | A::CertificateExpired
                | A::CertificateUnknown
                | A::CertificateRequired
                | A::UnknownCA
                | A::AccessDenied,
            ) => Some(ServerFault::Own),
            _ => None,
        }
    }

    /// The fault of the other side's certificate, in words, where that is what is refused.
    pub fn refused_certificate(&self) -> Option<Cow<'static, str>> {
        use CertificateError as C;
        let Self::Library(error) = self else { return None };
        let certificate = match error {
            rustls::Error::InvalidCertificate(certificate) => certificate,
            rustls::Error::InvalidCertRevocationList(list) => {
                return Some(format!("its authority's revocation list can't be used: {list:?}").into());
            }
            _ => return None,
        };
        Some(Cow::Borrowed(match certificate {
            C::Revoked => "revoked",
            C::Expired | C::ExpiredContext { .. } => "expired",
            C::NotValidYet | C::NotValidYetContext { .. } => "not valid yet",
            C::UnknownIssuer => "of an authority that is not trusted",
            C::UnknownRevocationStatus => {
                "whether it is revoked is not known: there is no list of its authority, or it is of version 1"
            }
            C::ExpiredRevocationList | C::ExpiredRevocationListContext { .. } => {
                "whether it is revoked is not known: its authority's list has expired"
            }
            C::InvalidPurpose | C::InvalidPurposeContext { .. } => "not made for a client",
            C::BadEncoding => "it can't be read",
            C::BadSignature => "a signature is wrong",
            C::Other(other) => return Some(format!("not of a kind that is taken: {}", other.0).into()),
            other => return Some(other.to_string().into()),
        }))
    }
}

/// The outcome of a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secured {
    /// The protocol's version, such as `TLSv1.3`.
    pub version: &'static str,
    /// The cipher suite, by its name of TLS.
    pub cipher: String,
    /// Whether the protocol above was agreed on (ALPN).
    pub agreed: bool,
    /// The hash of the other side's certificate for SCRAM's channel binding, if it has shown one that has it.
    pub end_point: Option<Box<[u8]>>,
    /// The common name in the other side's certificate, if that was shown and verified.
    pub common_name: Option<String>,
    /// Whether the other side has shown a certificate.
    pub has_certificate: bool,
}

/// A connection's TLS.
pub struct Session {
    connection: Connection,
    /// The beginning of what is not there as a whole yet.
    incoming: Vec<u8>,
    /// Whether the handshake is over.
    is_open: bool,
    /// Whether the other side has said that nothing more will come.
    is_over: bool,
    /// Whether it has come to an error: the library is not to see more.
    has_failed: bool,
}

enum Connection {
    /// Nothing has happened yet.
    New(Side),
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

impl Session {
    /// Bytes of the other side that are kept until they make a whole, at most: more than one record, and more than any
    /// chain of certificates that is worth looking at.
    pub const INCOMING_BYTES_MAX: usize = 64 << 10;

    /// One whose handshake begins with the first [`Session::take`].
    pub fn new(side: Side) -> Self {
        let connection = Connection::New(side);
        Self { connection, incoming: Vec::new(), is_open: false, is_over: false, has_failed: false }
    }

    /// Whether the handshake has begun.
    pub fn has_begun(&self) -> bool {
        !matches!(self.connection, Connection::New(_))
    }

    /// Whether the handshake is over, well.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether the other side has said that nothing more will come.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether there has been an error. What comes behind that is nobody's.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Gives it up.
    pub fn fail(&mut self) {
        self.has_failed = true;
    }

    /// Takes bytes of the other side, or none to begin with. What they carry is appended to `plain`, and what is to be
    /// sent for them to `out`, an alert for an error included. Nothing comes of what is behind an error.
    pub fn take(&mut self, bytes: &mut [u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), TlsError> {
        if self.is_over || self.has_failed {
            return Ok(());
        }
        let taken = self.take_more(bytes, plain, out);
        self.has_failed = taken.is_err();
        taken
    }

    fn take_more(&mut self, bytes: &mut [u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), TlsError> {
        self.begin()?;
        if self.incoming.is_empty() {
            let used = self.process(bytes, plain, out)?;
            self.incoming.extend_from_slice(&bytes[used..]);
        } else {
            let mut incoming = std::mem::take(&mut self.incoming);
            incoming.extend_from_slice(bytes);
            let used = self.process(&mut incoming, plain, out)?;
            incoming.drain(..used);
            self.incoming = incoming;
        }
        if self.incoming.is_empty() {
            // An idle connection holds no memory here.
            self.incoming = Vec::new();
        }
        if self.incoming.len() > Self::INCOMING_BYTES_MAX { Err(TlsError::TooLong) } else { Ok(()) }
    }

    /// Appends the records that carry `plain` to `out`. The handshake is over.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        debug_assert!(self.is_open, "a handshake carries nothing");
        let Self { connection, incoming, .. } = self;
        match connection {
            Connection::New(_) => Ok(()),
            Connection::Server(connection) => seal(connection, incoming, plain, out),
            Connection::Client(connection) => seal(connection, incoming, plain, out),
        }
    }

    /// Appends the word that nothing more will come.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        let Self { connection, incoming, .. } = self;
        // Whoever closes hears of no error any more.
        let _ = match connection {
            Connection::New(_) => Ok(()),
            Connection::Server(connection) => close(connection, incoming, out),
            Connection::Client(connection) => close(connection, incoming, out),
        };
    }

    /// The outcome of the handshake, once it is over.
    pub fn secured(&self) -> Option<Secured> {
        match &self.connection {
            _ if !self.is_open => None,
            Connection::New(_) => None,
            Connection::Server(connection) => Some(secured(connection)),
            Connection::Client(connection) => Some(secured(connection)),
        }
    }

    fn begin(&mut self) -> Result<(), TlsError> {
        let Connection::New(side) = &self.connection else { return Ok(()) };
        self.connection = match side {
            Side::Server(tls) => Connection::Server(UnbufferedServerConnection::new(tls.config.clone())?),
            Side::Client(tls, host) => {
                let name = ServerName::try_from(host.to_string()).map_err(|_| TlsError::Host(host.clone()))?;
                Connection::Client(UnbufferedClientConnection::new(tls.config().clone(), name)?)
            }
        };
        Ok(())
    }

    /// Goes as far as it can with these bytes; gives how many of them are done with.
    fn process(&mut self, bytes: &mut [u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<usize, TlsError> {
        let Self { connection, is_open, is_over, .. } = self;
        match connection {
            Connection::New(_) => Ok(0),
            Connection::Server(connection) => process(connection, bytes, (plain, out), (is_open, is_over)),
            Connection::Client(connection) => process(connection, bytes, (plain, out), (is_open, is_over)),
        }
    }
}

/// Either side's connection, as far as they are alike and the library does not say so.
trait Half {
    type Data;

    fn step<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn is_handshaking(&self) -> bool;
}

impl Half for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn step<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(bytes)
    }

    fn is_handshaking(&self) -> bool {
        (**self).is_handshaking()
    }
}

impl Half for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn step<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(bytes)
    }

    fn is_handshaking(&self) -> bool {
        (**self).is_handshaking()
    }
}

fn process(
    connection: &mut impl Half,
    bytes: &mut [u8],
    (plain, out): (&mut Vec<u8>, &mut Vec<u8>),
    (is_open, is_over): (&mut bool, &mut bool),
) -> Result<usize, TlsError> {
    let mut used = 0;
    let outcome = loop {
        let UnbufferedStatus { discard, state } = connection.step(&mut bytes[used..]);
        let goes_on = match state {
            Err(error) => {
                used += discard;
                break Err(error);
            }
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    plain.extend_from_slice(record?.payload);
                }
                true
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                encode(&mut data, out);
                true
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                true
            }
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                *is_over = true;
                false
            }
            // It waits for more. Early data is nothing that is ever asked for.
            Ok(_) => false,
        };
        used += discard;
        if !goes_on {
            break Ok(used);
        }
    };
    *is_open = !connection.is_handshaking();
    if outcome.is_err() {
        // The alert that says why, and what was to be said before it. Behind the alert, the library would look at the
        // same bytes again.
        let mut is_said = false;
        while !is_said
            && let UnbufferedStatus { discard, state: Ok(ConnectionState::EncodeTlsData(mut data)) } =
                connection.step(&mut bytes[used..])
        {
            let start = out.len();
            encode(&mut data, out);
            is_said = is_alert(&out[start..]);
            used += discard;
        }
    }
    Ok(outcome?)
}

/// Whether a record is an alert, or, as TLS 1.3 encrypts it, as long as nothing but an alert is.
fn is_alert(record: &[u8]) -> bool {
    const ALERT: u8 = 21;
    const ENCRYPTED: u8 = 23;
    const ENCRYPTED_ALERT_BYTES: usize = 5 + 2 + 1 + 16;
    match record.first() {
        Some(&ALERT) | None => true,
        Some(&ENCRYPTED) => record.len() == ENCRYPTED_ALERT_BYTES,
        Some(_) => false,
    }
}

fn encode<Data>(data: &mut EncodeTlsData<'_, Data>, out: &mut Vec<u8>) {
    let start = out.len();
    if let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) = data.encode(&mut []) {
        out.resize(start + required_size, 0);
        let written = data.encode(&mut out[start..]).unwrap_or_default();
        out.truncate(start + written);
    }
}

/// Has the connection write, which it may once its handshake is over. `incoming` is what it has been given and is not
/// done with: it has to see that each time.
fn write<H: Half>(
    connection: &mut H,
    incoming: &mut Vec<u8>,
    out: &mut Vec<u8>,
    write: impl FnOnce(WriteTraffic<'_, H::Data>, &mut Vec<u8>) -> Result<(), TlsError>,
) -> Result<(), TlsError> {
    loop {
        let UnbufferedStatus { discard, state } = connection.step(incoming);
        match state? {
            ConnectionState::WriteTraffic(traffic) => {
                write(traffic, out)?;
                incoming.drain(..discard);
                return Ok(());
            }
            ConnectionState::EncodeTlsData(mut data) => encode(&mut data, out),
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::PeerClosed => {}
            _ => return Ok(()),
        }
        incoming.drain(..discard);
    }
}

fn seal<H: Half>(connection: &mut H, incoming: &mut Vec<u8>, plain: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
    write(connection, incoming, out, |mut traffic, out| {
        let records = plain.len() / RECORD_BYTES + 1;
        append(out, plain.len() + records * RECORD_OVERHEAD_BYTES, |space| traffic.encrypt(plain, space))
    })
}

fn close<H: Half>(connection: &mut H, incoming: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), TlsError> {
    write(connection, incoming, out, |mut traffic, out| {
        append(out, RECORD_OVERHEAD_BYTES, |space| traffic.queue_close_notify(space))
    })
}

/// Appends what `write` makes, for which so much space is enough unless it says otherwise.
fn append(
    out: &mut Vec<u8>,
    space: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), TlsError> {
    let start = out.len();
    out.resize(start + space, 0);
    let written = match write(&mut out[start..]) {
        Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size })) => {
            out.resize(start + required_size, 0);
            write(&mut out[start..])
        }
        written => written,
    };
    out.truncate(start + *written.as_ref().unwrap_or(&0));
    // The keys are changed long before they have encrypted as much as they may.
    written.map(|_| ()).map_err(|_| rustls::Error::EncryptError.into())
}

fn secured(state: &CommonState) -> Secured {
    let version = match state.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "TLSv1.3",
    };
    let cipher = state.negotiated_cipher_suite().map_or_else(String::new, |suite| {
        // OpenSSL and PostgreSQL name those of 1.3 as the standard does: without the library's own beginning.
        format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
    });
    let own = state.peer_certificates().and_then(<[_]>::first);
    Secured {
        version,
        cipher,
        agreed: state.alpn_protocol().is_some(),
        end_point: own.and_then(certificate::end_point_hash),
        common_name: own.and_then(certificate::common_name),
        has_certificate: own.is_some(),
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("is_open", &self.is_open)
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}
