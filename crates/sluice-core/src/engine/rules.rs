//! The rule of `pg_hba.conf` that counts for a client, and what it asks for: PostgreSQL's own answers
//! (`ClientAuthentication`, `auth_failed`).

use sluice_control::{
    access::{AccessRules, Method},
    address::PeerAddress,
};
use sluice_hba::{ClientCert, Connection, Decision, Mapping, Method as Asked, Rule, Transport};
use sluice_wire::{ErrorResponse, sqlstate};

use crate::{
    client::{Certificate, Client, Demand, LoginRequest},
    ids::ClientId,
};

use super::Engine;

/// PostgreSQL's function that says so.
const AUTHENTICATES: &str = "ClientAuthentication";

impl Engine {
    /// The demand on a client that wants to be that user in that database, or why it is turned away at once.
    pub(super) fn demand_on(&self, id: ClientId, user: &str, database: &str) -> Result<Demand, ErrorResponse> {
        let access = &self.snapshot.access;
        match &access.rules {
            None => Ok(Demand { method: access.method, certificate: Certificate::Fits }),
            Some(rules) => demand_of(rules, &self.clients[id], user, database),
        }
    }
}

/// Refuses a client that has proven who it is, but not by the certificate that it has to show besides.
pub(super) fn check_certificate(login: &LoginRequest) -> Result<(), ErrorResponse> {
    let (code, method) = match (login.demand.certificate, login.demand.method) {
        (Certificate::Fits, _) => return Ok(()),
        (Certificate::OtherAlone, _) => (sqlstate::INVALID_AUTHORIZATION, "certificate"),
        (Certificate::Other, Method::Trust) => (sqlstate::INVALID_AUTHORIZATION, "\"trust\""),
        (Certificate::Other, Method::Md5 | Method::ScramSha256) => (sqlstate::INVALID_PASSWORD, "password"),
    };
    let error = format!("{method} authentication failed for user \"{}\"", login.user);
    Err(ErrorResponse::fatal(code, error).routine("auth_failed"))
}

fn demand_of(
    AccessRules { rules, interfaces, .. }: &AccessRules,
    client: &Client,
    user: &str,
    database: &str,
) -> Result<Demand, ErrorResponse> {
    let secured = client.encryption.secured().map(|secured| &secured.secured);
    let transport = match client.peer {
        PeerAddress::Local => Transport::Local,
        PeerAddress::Tcp(address, _) => Transport::Tcp { address, is_encrypted: secured.is_some() },
    };
    let refused = |error: String| ErrorResponse::fatal(sqlstate::INVALID_AUTHORIZATION, error).routine(AUTHENTICATES);
    let from = || {
        let host = match client.peer {
            PeerAddress::Local => "[local]".to_owned(),
            PeerAddress::Tcp(address, _) => address.to_string(),
        };
        let encryption = if secured.is_some() { "SSL encryption" } else { "no encryption" };
        format!("for host \"{host}\", user \"{user}\", database \"{database}\", {encryption}")
    };
    let connection = Connection { transport, user, database, is_replication: false };
    let rule = match rules.decide(&connection, None, interfaces) {
        Decision::Rule(rule) => rule,
        // A configuration with rules that ask for roles is not taken.
        Decision::None | Decision::NeedsRoles => return Err(refused(format!("no pg_hba.conf entry {}", from()))),
    };
    let has_certificate = secured.is_some_and(|secured| secured.has_certificate);
    if rule.client_cert() != ClientCert::None && !has_certificate {
        return Err(refused("connection requires a valid client certificate".to_owned()));
    }
    let is_the_users = || {
        let name = secured.and_then(|secured| secured.common_name.as_deref());
        name.is_some_and(|name| rules.maps(rule.map(), name, user, None) == Mapping::Allowed)
    };
    let method = match rule.method() {
        Asked::Reject | Asked::Peer => return Err(refused(format!("pg_hba.conf rejects connection {}", from()))),
        Asked::Trust | Asked::Cert => Method::Trust,
        Asked::Md5 => Method::Md5,
        Asked::ScramSha256 => Method::ScramSha256,
    };
    let certificate = match rule.client_cert() {
        ClientCert::VerifyFull if !is_the_users() => mismatch(rule),
        _ => Certificate::Fits,
    };
    Ok(Demand { method, certificate })
}

fn mismatch(rule: &Rule) -> Certificate {
    if rule.method() == Asked::Cert { Certificate::OtherAlone } else { Certificate::Other }
}
