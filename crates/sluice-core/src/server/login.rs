//! A login to a server: each request of the server's is answered from what the pool knows of its role.

use sluice_wire::{
    BackendKind, ErrorResponse, FrontendKind, md5,
    message::{AuthenticationRequest, framed, put_cstr, put_sasl_initial, split_cstr},
    scram::{self, ClientBinding, ClientExchange, ClientFinal, ClientSecret},
    secret::Secret,
    sqlstate,
};

use sluice_control::{address::Address, server_auth::Channel};

use crate::{
    encryption::ServerEncryption,
    hub::{Pool, Upstream},
};

/// The stage of a login to a server.
#[derive(Debug)]
pub enum ServerLogin {
    /// The connection is being made.
    Connecting,
    /// It was asked whether it has TLS.
    Asked,
    /// The TLS handshake is under way.
    Securing,
    /// The StartupMessage is sent.
    Started,
    /// The first SASL message is sent.
    Challenged(ClientExchange),
    /// The proof is sent.
    Proven(ClientFinal),
    /// The server has proven itself too.
    Verified,
    /// AuthenticationOk has come.
    Accepted,
}

/// The notices that came with a server's log-in: of a trigger, or of a collation's version. Its clients in session mode
/// hear them, as far as there is room.
#[derive(Debug, Default)]
pub struct LoginNotices {
    /// Those ahead of its parameters.
    pub ahead: Vec<u8>,
    /// Those behind its BackendKeyData.
    pub behind: Vec<u8>,
}

/// The room for a server's notices, in bytes: far above what anybody says at a log-in.
const NOTICES_BYTES_MAX: usize = 64 << 10;

impl LoginNotices {
    /// One more; `has_key` says whether the BackendKeyData has come.
    pub fn add(&mut self, has_key: bool, body: &[u8]) {
        if self.ahead.len() + self.behind.len() + body.len() <= NOTICES_BYTES_MAX {
            let notices = if has_key { &mut self.behind } else { &mut self.ahead };
            framed(notices, BackendKind::NoticeResponse, |out| out.extend_from_slice(body));
        }
    }
}

impl ServerLogin {
    /// Takes a request of the server; appends the answer to `out`.
    pub fn answer(
        self,
        request: AuthenticationRequest<'_>,
        pool: &Pool,
        encryption: &ServerEncryption,
        random: [u8; 18],
        out: &mut Vec<u8>,
    ) -> Result<Self, ErrorResponse> {
        if matches!(self, Self::Started) {
            check(&request, &pool.upstream, encryption.secured().is_some())?;
        }
        match (self, request) {
            (Self::Started | Self::Verified, AuthenticationRequest::Ok) => Ok(Self::Accepted),
            (Self::Started, AuthenticationRequest::CleartextPassword) => {
                let password = plain_password(pool).ok_or_else(|| no_password(pool, "the password in clear text"))?;
                framed(out, FrontendKind::Password, |out| put_cstr(out, password.as_bytes()));
                Ok(Self::Started)
            }
            (Self::Started, AuthenticationRequest::Md5Password(salt)) => {
                let stored = md5_secret(pool).ok_or_else(|| no_password(pool, "an MD5 password"))?;
                framed(out, FrontendKind::Password, |out| put_cstr(out, md5::answer(&stored, salt).as_bytes()));
                Ok(Self::Started)
            }
            (Self::Started, AuthenticationRequest::Sasl(mechanisms)) => {
                let binding = match encryption.secured().and_then(|secured| secured.end_point.as_deref()) {
                    Some(end_point) if offers(mechanisms, scram::MECHANISM_PLUS) => ClientBinding::To(end_point),
                    Some(_) => ClientBinding::Unoffered,
                    None => ClientBinding::None,
                };
                if !offers(mechanisms, binding.mechanism()) {
                    return Err(unsupported("a SASL mechanism other than SCRAM-SHA-256"));
                }
                let secret = scram_secret(pool).ok_or_else(|| no_password(pool, "SCRAM-SHA-256"))?;
                let (exchange, first) = ClientExchange::begin(secret, binding, random);
                put_sasl_initial(out, binding.mechanism(), first.as_bytes());
                Ok(Self::Challenged(exchange))
            }
            (Self::Challenged(exchange), AuthenticationRequest::SaslContinue(challenge)) => {
                let (last, proof) = exchange.answer(challenge).map_err(scram_failed)?;
                framed(out, FrontendKind::Password, |out| out.extend_from_slice(proof.as_bytes()));
                Ok(Self::Proven(last))
            }
            (Self::Proven(last), AuthenticationRequest::SaslFinal(signature)) => {
                last.verify(signature).map_err(scram_failed)?;
                Ok(Self::Verified)
            }
            (_, AuthenticationRequest::Other(kind)) => {
                Err(unsupported(&format!("authentication request {kind} (GSSAPI, SSPI or OAuth)")))
            }
            _ => Err(ErrorResponse::fatal(
                sqlstate::PROTOCOL_VIOLATION,
                "the server sent an authentication request out of turn",
            )),
        }
    }
}

/// Refuses what is not to be answered.
fn check(request: &AuthenticationRequest<'_>, upstream: &Upstream, is_encrypted: bool) -> Result<(), ErrorResponse> {
    let channel = match upstream.address {
        Address::Unix(_) => Channel::Local,
        _ if is_encrypted => Channel::Encrypted,
        _ => Channel::Clear,
    };
    upstream.server_auth.check(request, channel).map_err(|error| {
        ErrorResponse::fatal(sqlstate::INVALID_AUTHORIZATION, error).hint(
            "Let pg_hba.conf ask for scram-sha-256 where the pool connects, or set \"sslmode\" so that the server is \
             verified. Where you trust the way to the server and whoever listens there, set server_auth = \"any\" for \
             this database in the pool's configuration.",
        )
    })
}

fn offers(mechanisms: &[u8], wanted: &str) -> bool {
    let mut rest = mechanisms;
    while let Some((name, tail)) = split_cstr(rest) {
        if name == wanted.as_bytes() {
            return true;
        }
        rest = tail;
    }
    false
}

fn plain_password(pool: &Pool) -> Option<String> {
    if let Some(password) = &pool.upstream.password {
        return Some(password.0.clone());
    }
    match &pool.login().secret {
        Some(Secret::Plain(password)) => Some(password.clone()),
        _ => None,
    }
}

fn md5_secret(pool: &Pool) -> Option<String> {
    if let Some(password) = plain_password(pool) {
        return Some(md5::hash_password(&pool.upstream.user, &password));
    }
    match &pool.login().secret {
        Some(Secret::Md5(stored)) => Some(stored.clone()),
        _ => None,
    }
}

fn scram_secret(pool: &Pool) -> Option<ClientSecret> {
    if let Some(password) = plain_password(pool) {
        return Some(ClientSecret::Password(password));
    }
    pool.login().keys.clone().map(ClientSecret::Keys)
}

fn no_password(pool: &Pool, wanted: &str) -> ErrorResponse {
    ErrorResponse::fatal(
        sqlstate::INVALID_AUTHORIZATION,
        format!(
            "the server asks for {wanted} of user \"{}\", and the pool has nothing to answer with",
            pool.upstream.user
        ),
    )
    .hint("Set \"user\" and \"password\" (or \"password_file\") of this database in the pool's configuration.")
}

fn unsupported(what: &str) -> ErrorResponse {
    ErrorResponse::fatal(sqlstate::FEATURE_NOT_SUPPORTED, format!("the server asks for {what}"))
        .hint("Let pg_hba.conf ask for scram-sha-256, md5, password, peer or trust where the pool connects.")
}

fn scram_failed(error: scram::ScramError) -> ErrorResponse {
    ErrorResponse::fatal(sqlstate::INVALID_PASSWORD, format!("logging in to the server failed: {error}"))
}
