//! Connections that are encrypted by TLS: clients', servers', and those that carry a CancelRequest to a server.

use std::sync::Arc;

use sluice_control::address::{Address, PeerAddress};
use sluice_tls::{ClientCertificates, ClientTls, Secured, ServerFault, Side, SslMode, TlsError};
use sluice_wire::{
    ErrorResponse, sqlstate,
    startup::{ProtocolVersion, StartupError},
};

use crate::{
    client::Phase,
    encryption::{ClientEncryption, ClientSecured, Request, ServerEncryption},
    hub::Upstream,
    ids::{CancelId, ClientId, Owner, ServerId},
    io::{Io, LogEvent, Loss},
    pool::Lasts,
    server::{Attempt, Role, ServerLogin},
    time::Time,
};

use super::{Engine, login::READS_STARTUP};

/// The first byte of a TLS handshake, which no packet of PostgreSQL's begins with.
pub(super) const HANDSHAKE: u8 = 0x16;

impl Engine {
    /// A client has asked for encryption, by a packet of so many bytes at the beginning of `bytes` or, where it is
    /// `Direct`, by all of them. Returns how many bytes that takes. `None`: the client is gone.
    pub(super) fn encryption_asked(
        &mut self,
        now: Time,
        id: ClientId,
        request: Request,
        (packet, bytes): (usize, &[u8]),
        io: &mut impl Io,
    ) -> Option<usize> {
        let client = self.clients.get_mut(id)?;
        if !client.encryption.admits(request) {
            self.refuse_client(now, id, &unknown_version(request), io);
            return None;
        }
        let by_tcp = matches!(client.peer, PeerAddress::Tcp(..));
        let offered = self.snapshot.encryption.as_ref().filter(|_| by_tcp && request != Request::GssEnc);
        // What came behind the request in the same packet was not meant to be read in clear.
        if request != Request::Direct && packet < bytes.len() {
            if offered.is_none() {
                io.send(client.conn, b"N");
            }
            self.refuse_client(now, id, &unencrypted(request), io);
            return None;
        }
        match offered {
            Some(encryption) => {
                let tls = encryption.tls.clone();
                client.encryption = ClientEncryption::Begun(request, tls.clone());
                if request == Request::Direct {
                    io.secure(client.conn, Side::Server(tls), bytes);
                    return Some(bytes.len());
                }
                io.send(client.conn, b"S");
                io.secure(client.conn, Side::Server(tls), &[]);
            }
            // No encryption, go on in clear (PostgreSQL documentation, 55.2.10).
            None => {
                client.encryption.refuse(request);
                io.send(client.conn, b"N");
            }
        }
        Some(packet)
    }

    /// Whether a client that says nothing of it, but begins a handshake at once, is understood.
    pub(super) fn takes_direct_tls(&self, id: ClientId, bytes: &[u8]) -> bool {
        let client = self.clients.get(id).filter(|client| matches!(client.encryption, ClientEncryption::None));
        bytes.first() == Some(&HANDSHAKE)
            && self.snapshot.encryption.is_some()
            && client.is_some_and(|client| matches!(client.peer, PeerAddress::Tcp(..)))
    }

    /// A connection is encrypted.
    pub fn secured(&mut self, now: Time, owner: Owner, secured: Secured, io: &mut impl Io) {
        match owner {
            Owner::Client(id) => self.client_secured(now, id, secured, io),
            Owner::Server(id) => self.server_secured(id, secured, io),
            Owner::Cancel(id) => self.cancel_connected(id, io),
        }
        self.work(now, io);
    }

    fn client_secured(&mut self, now: Time, id: ClientId, secured: Secured, io: &mut impl Io) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let ClientEncryption::Begun(request, tls) = std::mem::take(&mut client.encryption) else { return };
        let has_agreed = secured.agreed;
        client.encryption = ClientEncryption::Secured(Box::new(ClientSecured { tls, secured }));
        if request == Request::Direct && !has_agreed {
            let error = "received direct SSL connection request without ALPN protocol negotiation extension";
            self.refuse_client(now, id, &ErrorResponse::fatal(sqlstate::PROTOCOL_VIOLATION, error), io);
        }
    }

    /// A client's connection has ended: if in the midst of its handshake, that is worth a word.
    pub(super) fn note_handshake_failed(&self, id: ClientId, loss: &Loss, io: &mut impl Io) {
        if let Some(client) = self.clients.get(id)
            && let (Phase::Startup, ClientEncryption::Begun(..)) = (&client.phase, &client.encryption)
        {
            io.log(LogEvent::HandshakeFailed { peer: client.peer, loss });
        }
    }

    /// Checks that a client that wants to log in as `user` has encrypted its connection as the configuration demands.
    pub(super) fn check_encryption(&self, id: ClientId, user: &str) -> Result<(), ErrorResponse> {
        let (Some(client), Some(demanded)) = (self.clients.get(id), &self.snapshot.encryption) else { return Ok(()) };
        let refused = |message: &str| Err(ErrorResponse::fatal(sqlstate::INVALID_AUTHORIZATION, message));
        let Some(ClientSecured { secured, .. }) = client.encryption.secured() else {
            let is_refused = demanded.is_required && matches!(client.peer, PeerAddress::Tcp(..));
            return match is_refused {
                false => Ok(()),
                true => refused("SSL connection is required").map_err(|error| {
                    error.hint("Set sslmode=require, or better sslmode=verify-full, where the client connects.")
                }),
            };
        };
        match demanded.client_certificates {
            ClientCertificates::VerifyCa | ClientCertificates::VerifyFull if !secured.has_certificate => {
                refused("connection requires a valid client certificate")
            }
            ClientCertificates::VerifyFull if secured.common_name.as_deref() != Some(user) => {
                refused(&format!("certificate authentication failed for user \"{user}\""))
            }
            _ => Ok(()),
        }
    }

    /// A server has said whether it has TLS: returns how many bytes that took. `None`: the server is gone, or nothing is
    /// to be done until the handshake is over.
    pub(super) fn tls_answered(&mut self, now: Time, id: ServerId, bytes: &[u8], io: &mut impl Io) -> Option<usize> {
        let server = self.servers.get_mut(id)?;
        let Role::Opening { login, attempt, .. } = &mut server.role else { return None };
        let (tls, host) = wanted(&server.pool.upstream, *attempt)?;
        let failed = |message: &str| ErrorResponse::fatal(sqlstate::CANNOT_CONNECT, message);
        let error = match bytes {
            [b'S'] => {
                *login = ServerLogin::Securing;
                io.secure(server.conn, Side::Client(tls, host), &[]);
                return None;
            }
            [b'S', ..] => failed("received unencrypted data after SSL response"),
            [b'N', ..] if tls.mode.requires_encryption() => failed("server does not support SSL, but SSL was required")
                .hint("Set ssl = on there, or another \"sslmode\" of this database in the pool's configuration."),
            [b'N', ..] => {
                self.start_session(id, io);
                return Some(1);
            }
            [b'E', ..] => failed("server sent an error response during SSL exchange"),
            _ => not_postgresql(),
        };
        self.open_failed(now, id, error, io);
        None
    }

    fn server_secured(&mut self, id: ServerId, secured: Secured, io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(id) else { return };
        server.encryption = ServerEncryption::Secured(Box::new(secured));
        self.start_session(id, io);
    }

    pub(super) fn is_opening(&self, id: ServerId) -> bool {
        self.servers.get(id).is_some_and(|server| matches!(server.role, Role::Opening { .. }))
    }

    /// A server that is being opened can't be talked to by TLS. What has to be mended first is not waited for; of a
    /// cluster, another node may be the primary meanwhile.
    pub(super) fn server_unsecured(&mut self, now: Time, id: ServerId, error: &TlsError, io: &mut impl Io) {
        let Some(server) = self.servers.get(id) else { return };
        let (upstream, fault) = (&server.pool.upstream, error.server_fault());
        let lasts = if fault.is_some() && upstream.cluster.is_none() { Lasts::ForAll } else { Lasts::ForNobody };
        let message = format!("could not connect to the server at {}: TLS: {error}", upstream.address);
        let error = ErrorResponse::fatal(sqlstate::CANNOT_CONNECT, message).hint(match fault {
            Some(ServerFault::Authority) => {
                "In the pool's configuration, \"sslrootcert\" of this database has to name a file with the authority that \
                 the server's certificate comes from."
            }
            Some(ServerFault::Name) => {
                "In the pool's configuration, \"host\" of this database has to be a name that the server's certificate is \
                 for; or \"sslmode\" \"verify-ca\", if any name will do."
            }
            Some(ServerFault::Certificate) => "The server needs another certificate: its ssl_cert_file.",
            Some(ServerFault::Own) => {
                "In the pool's configuration, \"sslcert\" and \"sslkey\" of this database have to be a certificate that the \
                 server takes: by its ssl_ca_file, and still valid."
            }
            None => "See \"sslmode\" of this database in the pool's configuration, and what the server's log says of it.",
        });
        self.open_failed_for(now, id, error, Some(lasts), io);
    }

    /// A server can't be opened in the way that was tried: tries the other one, with encryption or without it, if the
    /// configuration leaves that open and the server has not said more than that this way is not its own.
    pub(super) fn try_other_way(&mut self, id: ServerId, error: &ErrorResponse, io: &mut impl Io) -> bool {
        let Some(server) = self.servers.get_mut(id) else { return false };
        let Role::Opening { login, attempt, .. } = &mut server.role else { return false };
        let mode = server.pool.upstream.tls.as_ref().map_or(SslMode::Disable, |tls| tls.mode);
        let is_open = matches!(server.pool.upstream.address, Address::Tcp(..)) && *attempt == Attempt::First;
        let is_other = match (mode, &*login) {
            // By `pg_hba.conf`, most likely.
            (SslMode::Allow, ServerLogin::Started) => *error.code == *sqlstate::INVALID_AUTHORIZATION,
            (SslMode::Prefer, ServerLogin::Started) => {
                server.encryption.secured().is_some() && *error.code == *sqlstate::INVALID_AUTHORIZATION
            }
            (SslMode::Prefer, ServerLogin::Securing) => true,
            _ => false,
        };
        if !is_open || !is_other {
            return false;
        }
        io.close(server.conn);
        *login = ServerLogin::Connecting;
        *attempt = Attempt::Second;
        server.encryption = ServerEncryption::None;
        server.stream = Default::default();
        server.pending.clear();
        server.conn = io.connect(Owner::Server(id), &server.pool.upstream.address);
        true
    }

    /// The encryption that is wanted on the way of a CancelRequest: the same as on the way of the connection that it is about.
    pub(super) fn cancel_encryption(&self, id: ServerId) -> Option<(Arc<ClientTls>, Box<str>)> {
        let server = self.servers.get(id).filter(|server| server.encryption.secured().is_some())?;
        let Address::Tcp(host, _) = &server.pool.upstream.address else { return None };
        Some((server.pool.upstream.tls.clone()?, host.as_str().into()))
    }

    /// Bytes have come on the way of a CancelRequest: the answer to whether the server has TLS.
    pub(super) fn cancel_bytes(&mut self, now: Time, id: CancelId, bytes: &[u8], io: &mut impl Io) {
        let Some(canceller) = self.cancels.get_mut(id) else { return };
        match (canceller.tls.take(), canceller.conn, bytes) {
            (Some((tls, host)), Some(conn), b"S") => io.secure(conn, Side::Client(tls, host), &[]),
            // It had it a moment ago, and the key is not sent in clear.
            (Some(_), Some(_), _) => self.cancel_undelivered(now, id, io),
            _ => {}
        }
    }
}

/// The encryption that is wanted on the way to a server in that attempt, and its host.
pub(super) fn wanted(upstream: &Upstream, attempt: Attempt) -> Option<(Arc<ClientTls>, Box<str>)> {
    let (Some(tls), Address::Tcp(host, _)) = (&upstream.tls, &upstream.address) else { return None };
    let is_wanted = tls.mode.ways().get(attempt as usize).is_some_and(|encrypted| *encrypted);
    is_wanted.then(|| (tls.clone(), host.as_str().into()))
}

/// PostgreSQL takes the code of a request that it does not expect for a version.
fn unknown_version(request: Request) -> ErrorResponse {
    let minor = if request == Request::GssEnc { 5680 } else { 5679 };
    let error = StartupError::Version(ProtocolVersion { major: 1234, minor });
    ErrorResponse::fatal(sqlstate::FEATURE_NOT_SUPPORTED, error.to_string()).routine(READS_STARTUP)
}

/// PostgreSQL's words for what came unencrypted behind a request for encryption.
fn unencrypted(request: Request) -> ErrorResponse {
    let name = if request == Request::GssEnc { "GSSAPI encryption" } else { "SSL" };
    ErrorResponse::fatal(sqlstate::PROTOCOL_VIOLATION, format!("received unencrypted data after {name} request"))
        .detail("This could be either a client-software bug or evidence of an attempted man-in-the-middle attack.")
        .routine(READS_STARTUP)
}

/// The error of a server whose answer is none.
pub(super) fn not_postgresql() -> ErrorResponse {
    ErrorResponse::fatal(sqlstate::PROTOCOL_VIOLATION, "what listens there does not speak PostgreSQL's protocol")
}
