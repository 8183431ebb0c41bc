//! Secrets: a user's password, in the forms that PostgreSQL keeps (`pg_authid.rolpassword`).

use crate::scram::{self, Verifier};

/// A user's secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// A SCRAM-SHA-256 verifier: enough to check a client, without the password.
    Scram(Verifier),
    /// `md5` and 32 hexadecimal digits.
    Md5(String),
    /// The password itself.
    Plain(String),
    /// What begins as a verifier and is none. Nobody logs in with it, least of all by its text.
    Damaged,
}

impl Secret {
    /// Reads a secret as PostgreSQL stores it; what has the beginning of neither stored form is
    /// taken as the password itself.
    pub fn parse(text: &str) -> Self {
        if text.starts_with(scram::STORED_PREFIX) {
            return Verifier::parse(text).map_or(Self::Damaged, Self::Scram);
        }
        let digits = text.strip_prefix("md5").filter(|d| d.len() == 32 && d.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits {
            Some(_) => Self::Md5(text.to_owned()),
            None => Self::Plain(text.to_owned()),
        }
    }

    /// Whether it is enough to log in with: of a SCRAM verifier, the keys are shown by a client's proof only.
    pub fn is_enough_to_log_in(&self) -> bool {
        matches!(self, Self::Plain(_) | Self::Md5(_))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Scram(_) => "Secret::Scram(…)",
            Self::Md5(_) => "Secret::Md5(…)",
            Self::Plain(_) => "Secret::Plain(…)",
            Self::Damaged => "Secret::Damaged",
        })
    }
}
