//! The authentication of clients: its methods, and the sources of their secrets.

use std::{collections::HashMap, sync::Arc, time::Duration};

use sluice_hba::{Interface, Rules};
use sluice_tls::{ClientCertificates, ClientTls, ServerTls};
use sluice_wire::secret::Secret as StoredSecret;

use crate::{Secret, address::Address, server_auth::ServerAuth};

/// The authentication of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The proof that a client is asked for.
    pub policy: Policy,
    /// The source of the secrets that they are checked by.
    pub users: Users,
}

impl Access {
    /// The secret that is listed for `role`, where it is enough to log in to a server: of a SCRAM verifier, the keys are
    /// shown by a client's proof only.
    pub fn for_servers(&self, role: &str) -> Option<&StoredSecret> {
        let listed = match &self.users {
            Users::Listed(users) => users.get(role),
            Users::LookedUp(_, listed) => listed.get(role)?.as_ref(),
        };
        listed.filter(|secret| secret.is_enough_to_log_in())
    }

    /// Whether users are looked up as by another one, and let in by the same policy: others may be listed.
    pub fn looks_up_as(&self, other: &Self) -> bool {
        let are_alike =
            matches!((&self.users, &other.users), (Users::LookedUp(one, _), Users::LookedUp(two, _)) if one == two);
        are_alike && self.policy == other.policy
    }
}

/// The proof of who they are that clients are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Policy {
    /// The same of every client.
    Method(Method),
    /// By the rules of a file.
    Rules(Arc<AccessRules>),
    /// Nothing, of known users: rules that say so, which no file has.
    TrustOfKnown(Arc<AccessRules>),
    /// By the rules of the server where secrets are looked up; `None` until they are known.
    ServerRules(Option<Arc<AccessRules>>),
}

impl Policy {
    /// The rules, if there are some and they are known.
    pub fn rules(&self) -> Option<&Arc<AccessRules>> {
        match self {
            Self::Method(_) | Self::ServerRules(None) => None,
            Self::Rules(rules) | Self::TrustOfKnown(rules) | Self::ServerRules(Some(rules)) => Some(rules),
        }
    }
}

/// The authentication methods, by PostgreSQL's names (PostgreSQL documentation, 21.3 to 21.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Whoever connects is believed.
    Trust,
    /// An MD5 challenge, or SCRAM for users whose secret is a SCRAM verifier.
    Md5,
    /// SCRAM-SHA-256.
    ScramSha256,
}

impl Method {
    /// Its name in `pg_hba.conf`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trust => "trust",
            Self::Md5 => "md5",
            Self::ScramSha256 => "scram-sha-256",
        }
    }
}

/// The rules of a `pg_hba.conf`, and what they are decided by.
#[derive(Debug)]
pub struct AccessRules {
    /// The rules and maps.
    pub rules: Rules,
    /// Those of a server's files, where they are others than it has loaded, as far as it says: it may have.
    pub unloaded: Option<Rules>,
    /// This host's own addresses.
    pub interfaces: Vec<Interface>,
    /// All that was read.
    pub text: String,
}

/// They are equal if all that was read is.
impl PartialEq for AccessRules {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.interfaces == other.interfaces
    }
}

impl Eq for AccessRules {}

/// The encryption of clients' connections by TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encryption {
    /// The certificate that clients see, and what they have to know of it.
    pub tls: Arc<ServerTls>,
    /// Whether a client without it is refused.
    pub is_required: bool,
    /// The certificates that clients have to show.
    pub client_certificates: ClientCertificates,
}

/// The source of secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Users {
    /// All of them are known, by the users' names.
    Listed(HashMap<String, StoredSecret>),
    /// They are asked for one by one, but for those that are listed: without a secret, nobody can prove to be that user.
    LookedUp(LookUp, HashMap<String, Option<StoredSecret>>),
}

impl Users {
    /// The names of those whose secrets are not asked for.
    pub fn listed(&self) -> Vec<&str> {
        match self {
            Self::Listed(users) => users.keys().map(String::as_str).collect(),
            Self::LookedUp(_, listed) => listed.keys().map(String::as_str).collect(),
        }
    }

    /// The users whose passwords are listed in clear, with these.
    pub fn in_clear(&self) -> Vec<(String, String)> {
        let in_clear = |(user, secret): (&String, &StoredSecret)| match secret {
            StoredSecret::Plain(password) => Some((user.clone(), password.clone())),
            StoredSecret::Md5(_) | StoredSecret::Scram(_) | StoredSecret::Damaged => None,
        };
        match self {
            Self::Listed(users) => users.iter().filter_map(in_clear).collect(),
            Self::LookedUp(_, listed) => {
                listed.iter().filter_map(|(user, secret)| in_clear((user, secret.as_ref()?))).collect()
            }
        }
    }
}

/// The users of the admin console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// The name of the database by which clients reach it.
    pub database: String,
    /// The users that may do everything there.
    pub users: Vec<String>,
    /// The users that may look only.
    pub stats_users: Vec<String>,
}

/// The rights of a user of the admin console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Everything.
    All,
    /// `SHOW`.
    Show,
}

impl Admin {
    /// The rights of that user; `None`: none.
    pub fn rights_of(&self, user: &str) -> Option<Rights> {
        let is_among = |users: &[String]| users.iter().any(|name| name == user);
        match () {
            () if is_among(&self.users) => Some(Rights::All),
            () if is_among(&self.stats_users) => Some(Rights::Show),
            () => None,
        }
    }
}

/// A look-up of secrets on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookUp {
    /// The server to ask.
    pub address: Address,
    /// The cluster whose primary that is; `None`: it is one server.
    pub cluster: Option<Arc<str>>,
    /// The encryption on the way to it; `None`: none.
    pub tls: Option<Arc<ClientTls>>,
    /// The database's name there.
    pub dbname: String,
    /// The role that asks.
    pub user: String,
    /// The role's password; `None`: peer or trust on the server's side.
    pub password: Option<Secret>,
    /// The ways in which the server may have it log in.
    pub server_auth: ServerAuth,
    /// Takes the user's name as `$1`; returns no row, or one with the secret, before which the name may stand.
    pub query: String,
    /// Whether the roles that the user is a member of are asked for as well.
    pub asks_roles: bool,
    /// The time for which an answer is believed.
    pub cache: Duration,
}
