//! The ways in which a server may have the pool log in.
//!
//! A server that is none, or that somebody else listens in the place of, may ask for more than the right one would: for
//! the password itself. libpq has `require_auth` against that (PostgreSQL documentation, 34.1.2).

use sluice_wire::message::AuthenticationRequest;

/// The ways to log in that are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServerAuth {
    /// SCRAM alone, by which the server proves that it knows the role's verifier.
    Scram,
    /// Any, but what gives the password itself to whoever listens on the way or in the server's place: that goes by TLS or
    /// a Unix socket only.
    #[default]
    Protected,
    /// Any.
    Any,
}

/// The way to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// A Unix socket.
    Local,
    /// TCP, in clear.
    Clear,
    /// TLS.
    Encrypted,
}

impl ServerAuth {
    /// All of them by their words.
    pub const WORDS: [(&'static str, Self); 3] =
        [("scram-sha-256", Self::Scram), ("protected", Self::Protected), ("any", Self::Any)];

    /// Its word.
    pub fn name(self) -> &'static str {
        Self::WORDS[self as usize].0
    }

    /// Refuses a server's first request, where it is not to be answered.
    ///
    /// # Errors
    ///
    /// What is asked for, and the reason not to answer it.
    pub fn check(self, request: &AuthenticationRequest<'_>, channel: Channel) -> Result<(), String> {
        let (what, is_protected) = match request {
            AuthenticationRequest::Sasl(_) => return Ok(()),
            AuthenticationRequest::Ok => ("nothing", true),
            AuthenticationRequest::CleartextPassword => ("the password in clear text", channel != Channel::Clear),
            AuthenticationRequest::Md5Password(_) => ("an MD5 hash of the password", true),
            _ => ("another way to log in", true),
        };
        let why = match self {
            Self::Any => return Ok(()),
            Self::Protected if is_protected => return Ok(()),
            Self::Protected => "and the connection is not encrypted",
            Self::Scram => "and \"server_auth\" of this database is \"scram-sha-256\"",
        };
        Err(format!("the server asks for {what}, {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_for_whoever_asks() {
        use Channel::{Clear, Encrypted, Local};
        for (request, protected) in [
            (AuthenticationRequest::CleartextPassword, &[Local, Encrypted][..]),
            (AuthenticationRequest::Md5Password([0; 4]), &[Local, Clear, Encrypted]),
            (AuthenticationRequest::Ok, &[Local, Clear, Encrypted]),
            (AuthenticationRequest::Other(7), &[Local, Clear, Encrypted]),
        ] {
            for channel in [Local, Clear, Encrypted] {
                assert!(ServerAuth::Any.check(&request, channel).is_ok());
                assert!(ServerAuth::Scram.check(&request, channel).is_err());
                assert_eq!(ServerAuth::Protected.check(&request, channel).is_ok(), protected.contains(&channel));
            }
        }
        let sasl = AuthenticationRequest::Sasl(b"SCRAM-SHA-256\0\0");
        assert!(ServerAuth::WORDS.iter().all(|(word, auth)| auth.check(&sasl, Clear).is_ok() && auth.name() == *word));
    }
}
