//! The words for how a connection is encrypted, and how the other side has to show who it is.

use std::{fmt, str::FromStr};

/// libpq's `sslmode`: what a client of a server demands (PostgreSQL documentation, 34.19.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SslMode {
    /// No encryption.
    Disable,
    /// Encryption if the server lets nobody in without.
    Allow,
    /// Encryption if the server has it.
    #[default]
    Prefer,
    /// Encryption. The server's certificate is looked at only where there are authorities to trust.
    Require,
    /// Encryption, and a certificate of a trusted authority.
    VerifyCa,
    /// Encryption, and a certificate of a trusted authority for the host that was meant.
    VerifyFull,
}

impl SslMode {
    /// All of them, the least demanding first.
    pub const ALL: [Self; 6] =
        [Self::Disable, Self::Allow, Self::Prefer, Self::Require, Self::VerifyCa, Self::VerifyFull];

    /// libpq's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Allow => "allow",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }

    /// Whether a connection without encryption is refused.
    pub fn requires_encryption(self) -> bool {
        matches!(self, Self::Require | Self::VerifyCa | Self::VerifyFull)
    }
}

impl fmt::Display for SslMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No such word.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownMode;

impl FromStr for SslMode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        Self::ALL.into_iter().find(|mode| mode.name() == text).ok_or(UnknownMode)
    }
}

/// The certificates that clients have to show, in the words of `clientcert` in `pg_hba.conf` (PostgreSQL
/// documentation, 21.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// None: one that is shown has to be valid all the same.
    #[default]
    None,
    /// One of a trusted authority.
    VerifyCa,
    /// One of a trusted authority whose common name is the user's.
    VerifyFull,
}

impl ClientCertificates {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_by_libpqs_words() {
        assert_eq!("verify-full".parse(), Ok(SslMode::VerifyFull));
        assert_eq!("allow".parse(), Ok(SslMode::Allow));
        assert_eq!("Require".parse::<SslMode>(), Err(UnknownMode));
    }
}
