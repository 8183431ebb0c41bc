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
    /// All of them by libpq's words, the least demanding first.
    pub const WORDS: [(&'static str, Self); 6] = [
        ("disable", Self::Disable),
        ("allow", Self::Allow),
        ("prefer", Self::Prefer),
        ("require", Self::Require),
        ("verify-ca", Self::VerifyCa),
        ("verify-full", Self::VerifyFull),
    ];

    /// libpq's word.
    pub fn name(self) -> &'static str {
        Self::WORDS[self as usize].0
    }

    /// The ways to connect, in the order in which they are tried: each one says whether it is encrypted.
    pub fn ways(self) -> &'static [bool] {
        match self {
            Self::Disable => &[false],
            Self::Allow => &[false, true],
            Self::Prefer => &[true, false],
            Self::Require | Self::VerifyCa | Self::VerifyFull => &[true],
        }
    }

    /// Whether a connection without encryption is refused.
    pub fn requires_encryption(self) -> bool {
        !self.ways().contains(&false)
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
        Self::WORDS.into_iter().find(|(word, _)| *word == text).map(|(_, mode)| mode).ok_or(UnknownMode)
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
    /// All of them by their words.
    pub const WORDS: [(&'static str, Self); 3] =
        [("none", Self::None), ("verify-ca", Self::VerifyCa), ("verify-full", Self::VerifyFull)];

    /// Its word.
    pub fn name(self) -> &'static str {
        Self::WORDS[self as usize].0
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

    #[test]
    fn each_has_its_own_word() {
        assert!(SslMode::WORDS.iter().all(|(word, mode)| mode.name() == *word));
        assert!(ClientCertificates::WORDS.iter().all(|(word, demanded)| demanded.name() == *word));
    }
}
