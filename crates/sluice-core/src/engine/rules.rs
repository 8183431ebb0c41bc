//! The rule of `pg_hba.conf` that counts for a client, and what it asks for: PostgreSQL's own answers
//! (`ClientAuthentication`, `auth_failed`).

use sluice_control::{
    access::{AccessRules, Method, Policy},
    address::PeerAddress,
};
use sluice_hba::{ClientCert, Connection, Decision, Mapping, Method as Asked, Roles, Rule, Rules, Transport};
use sluice_wire::{ErrorResponse, sqlstate};

use crate::{
    client::{Certificate, Client, Demand, LoginRequest, Wish},
    ids::ClientId,
    secrets::Role,
};

use super::Engine;

/// PostgreSQL's function that says so.
const AUTHENTICATES: &str = "ClientAuthentication";

/// The next thing that the rules have a client do.
pub(super) enum Verdict {
    /// It has to meet this demand.
    Asks(Demand),
    /// Nothing: the roles decide of which its user is a member.
    NeedsRoles,
    /// Nothing: the system's user decides who is at its end of a Unix socket.
    NeedsSystemUser,
}

impl Engine {
    /// The verdict on a client that wants to log in, or why it is turned away at once. `roles` are those of its user;
    /// with them it needs none.
    pub(super) fn verdict(
        &mut self,
        id: ClientId,
        wish: &Wish,
        roles: Option<&Roles>,
    ) -> Result<Verdict, ErrorResponse> {
        let snapshot = self.snapshot.clone();
        let rules = match &snapshot.access.policy {
            Policy::Method(method) => {
                return Ok(Verdict::Asks(Demand { method: *method, certificate: Certificate::Fits }));
            }
            Policy::Rules(rules) | Policy::TrustOfKnown(rules) => {
                return self.verdict_by(id, wish, &wish.database, rules, &rules.rules, roles);
            }
            Policy::ServerRules(Some(rules)) => rules,
            // A look-up on that server is answered when it has told its rules.
            Policy::ServerRules(None) if roles.is_none() => return Ok(Verdict::NeedsRoles),
            Policy::ServerRules(None) => return Err(unknown_rules()),
        };
        // The server knows the database by its own name.
        let database = snapshot.database(&wish.database).map_or(&*wish.database, |it| it.dbname_for(&wish.database));
        let verdict = self.verdict_by(id, wish, database, rules, &rules.rules, roles)?;
        let Some(unloaded) = &rules.unloaded else { return Ok(verdict) };
        let place = self.clients[id].rule.clone();
        let other = self.verdict_by(id, wish, database, rules, unloaded, roles).map_err(|_| unclear_rules())?;
        self.clients[id].rule = place;
        match (&verdict, &other) {
            (Verdict::Asks(one), Verdict::Asks(other)) if one != other => Err(unclear_rules()),
            (Verdict::Asks(_), _) => Ok(other),
            _ => Ok(verdict),
        }
    }

    fn verdict_by(
        &mut self,
        id: ClientId,
        wish: &Wish,
        database: &str,
        AccessRules { interfaces, .. }: &AccessRules,
        rules: &Rules,
        roles: Option<&Roles>,
    ) -> Result<Verdict, ErrorResponse> {
        let client = &mut self.clients[id];
        let user = wish.user.as_str();
        let connection = Connection { transport: transport_of(client), user, database, is_replication: false };
        let rule = match rules.decide(&connection, roles, interfaces) {
            Decision::Rule(rule) => rule,
            Decision::NeedsRoles => return Ok(Verdict::NeedsRoles),
            Decision::None => return Err(no_entry(client, wish)),
        };
        client.rule = Some(rule.place().clone());
        let is_known = rules.knows(user);
        // Who is not known hears what one hears whose certificate, or system's user, is another's.
        let maps = |system_user: &str| match is_known {
            true => rules.maps(rule.map(), system_user, user, roles),
            false => Mapping::Refused,
        };
        demanded(rule, client, wish, is_known, maps)
    }

    pub(super) fn goes_by_server_rules(&self) -> bool {
        matches!(self.snapshot.access.policy, Policy::ServerRules(_))
    }

    /// Whether the role of a client that has proven who it is may log in, as far as that is known: where the server's
    /// own rules count, it is as if the client had come to the server.
    pub(super) fn check_role(&self, login: &LoginRequest) -> Result<(), ErrorResponse> {
        if !self.goes_by_server_rules() {
            return Ok(());
        }
        let user = &login.wish.user;
        let said = match login.role {
            Some(Role { may_log_in: true, .. }) => return Ok(()),
            Some(_) => format!("role \"{user}\" is not permitted to log in"),
            None => format!("role \"{user}\" does not exist"),
        };
        Err(ErrorResponse::fatal(sqlstate::INVALID_AUTHORIZATION, said).routine("InitializeSessionUserId"))
    }
}

/// The demand of a rule. `maps` says whether a system's user, or a certificate's common name, may be that user.
fn demanded(
    rule: &Rule,
    client: &Client,
    wish: &Wish,
    is_known: bool,
    maps: impl Fn(&str) -> Mapping,
) -> Result<Verdict, ErrorResponse> {
    let secured = client.encryption.secured().map(|secured| &secured.secured);
    let has_certificate = secured.is_some_and(|secured| secured.has_certificate);
    if rule.client_cert() != ClientCert::None && !has_certificate {
        return Err(refused("connection requires a valid client certificate".to_owned()));
    }
    let method = match rule.method() {
        Asked::Reject => return Err(refused(format!("pg_hba.conf rejects connection {}", from(client, wish)))),
        Asked::Trust if !is_known => return Err(no_entry(client, wish)),
        Asked::Trust | Asked::Cert => Method::Trust,
        Asked::Md5 => Method::Md5,
        Asked::ScramSha256 => Method::ScramSha256,
        Asked::Peer => match wish.system_user.as_deref().map(&maps) {
            None => return Ok(Verdict::NeedsSystemUser),
            Some(Mapping::NeedsRoles) => return Ok(Verdict::NeedsRoles),
            Some(Mapping::Refused) => return Err(peer_failed(&wish.user)),
            Some(Mapping::Allowed) => Method::Trust,
        },
    };
    let certificate = match rule.client_cert() {
        ClientCert::VerifyFull => match secured.and_then(|secured| secured.common_name.as_deref()).map(maps) {
            Some(Mapping::NeedsRoles) => return Ok(Verdict::NeedsRoles),
            Some(Mapping::Allowed) => Certificate::Fits,
            Some(Mapping::Refused) | None => mismatch(rule),
        },
        _ => Certificate::Fits,
    };
    Ok(Verdict::Asks(Demand { method, certificate }))
}

/// Refuses a client that has proven who it is, but not by the certificate that it has to show besides.
pub(super) fn check_certificate(login: &LoginRequest) -> Result<(), ErrorResponse> {
    let (code, method) = match (login.demand.certificate, login.demand.method) {
        (Certificate::Fits, _) => return Ok(()),
        (Certificate::OtherAlone, _) => (sqlstate::INVALID_AUTHORIZATION, "certificate"),
        (Certificate::Other, Method::Trust) => (sqlstate::INVALID_AUTHORIZATION, "\"trust\""),
        (Certificate::Other, Method::Md5 | Method::ScramSha256) => (sqlstate::INVALID_PASSWORD, "password"),
    };
    Err(failed(code, method, &login.wish.user))
}

/// PostgreSQL's words for a client whose system's user may not be that user, or is not known.
pub(super) fn peer_failed(user: &str) -> ErrorResponse {
    failed(sqlstate::INVALID_AUTHORIZATION, "Peer", user)
}

fn failed(code: &'static str, method: &str, user: &str) -> ErrorResponse {
    ErrorResponse::fatal(code, format!("{method} authentication failed for user \"{user}\"")).routine("auth_failed")
}

fn unclear_rules() -> ErrorResponse {
    let said = "the server's access rules have been changed, and it is not known whether the server has loaded them";
    ErrorResponse::fatal(sqlstate::INVALID_AUTHORIZATION, said)
        .hint("Have the server read them: SELECT pg_reload_conf(). The pool's log says what keeps it from that.")
}

fn unknown_rules() -> ErrorResponse {
    ErrorResponse::fatal(sqlstate::CANNOT_CONNECT_NOW, "the server's access rules are not known to the pool yet")
        .hint("Try again. The pool's log says what it waits for.")
}

fn refused(error: String) -> ErrorResponse {
    ErrorResponse::fatal(sqlstate::INVALID_AUTHORIZATION, error).routine(AUTHENTICATES)
}

fn no_entry(client: &Client, wish: &Wish) -> ErrorResponse {
    refused(format!("no pg_hba.conf entry {}", from(client, wish)))
}

fn transport_of(client: &Client) -> Transport {
    match client.peer {
        PeerAddress::Local => Transport::Local,
        PeerAddress::Tcp(address, _) => Transport::Tcp { address, is_encrypted: client.encryption.secured().is_some() },
    }
}

/// PostgreSQL's words on where a client comes from, and what it wants.
fn from(client: &Client, Wish { user, database, .. }: &Wish) -> String {
    let host = match client.peer {
        PeerAddress::Local => "[local]".to_owned(),
        PeerAddress::Tcp(address, _) => address.to_string(),
    };
    let encryption = if client.encryption.secured().is_some() { "SSL encryption" } else { "no encryption" };
    format!("for host \"{host}\", user \"{user}\", database \"{database}\", {encryption}")
}

fn mismatch(rule: &Rule) -> Certificate {
    if rule.method() == Asked::Cert { Certificate::OtherAlone } else { Certificate::Other }
}
