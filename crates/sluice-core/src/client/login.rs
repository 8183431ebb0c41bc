//! A log-in that is not complete: what the client wants, and what it has to show for that.

use std::sync::Arc;

use sluice_control::access::{Access, Method};
use sluice_wire::{scram, secret::Secret, startup::SessionRequest};

use crate::secrets::{Credentials, Role};

/// A client's wish to log in, before it is known what it has to show for that.
#[derive(Debug)]
pub struct Wish {
    /// The request of its startup message.
    pub request: SessionRequest,
    /// Its user.
    pub user: String,
    /// Its database.
    pub database: String,
    /// The system's user at its end of a Unix socket, once a rule has asked.
    pub system_user: Option<Box<str>>,
}

/// The names that a client has given, of which it has proven nothing.
#[derive(Debug)]
pub struct Said {
    /// Its user.
    pub user: Box<str>,
    /// Its database.
    pub database: Box<str>,
}

/// A login that is not complete.
#[derive(Debug)]
pub struct LoginRequest {
    /// The wish.
    pub wish: Wish,
    /// The demand that it has to meet.
    pub demand: Demand,
    /// The credentials for its pool, once it has proven who it is.
    pub credentials: Credentials,
    /// The configuration that it was asked by.
    pub asked_by: Arc<Access>,
    /// The secret that was found by that.
    pub secret: Option<Secret>,
    /// The role that was found on the server.
    pub role: Option<Role>,
}

/// The demand on a client that wants to log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// The method by which it proves who it is.
    pub method: Method,
    /// The certificate that it has shown, which is looked at once it has proven that.
    pub certificate: Certificate,
}

/// A client's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certificate {
    /// It is as it has to be, or nobody asks.
    Fits,
    /// It is somebody else's, where it is to be the user's, besides another proof.
    Other,
    /// The same where there is no other proof.
    OtherAlone,
}

/// The proof that a client was asked for.
#[derive(Debug)]
pub enum Challenge {
    /// An MD5 hash with this salt, of this secret; `None` if no answer is right.
    Md5([u8; 4], Option<String>),
    /// The first message of SCRAM, to be checked against this verifier.
    ScramFirst(scram::Verifier),
    /// The proof.
    ScramProof(scram::ServerExchange),
}
