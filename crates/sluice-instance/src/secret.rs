//! Random passwords.

use std::fmt;

const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// 32 letters and digits hold 190 bits, and need no quoting anywhere.
const LENGTH: usize = 32;

/// A password; never printed by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// A new one, from the system's random source.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut password = String::with_capacity(LENGTH);
        while password.len() < LENGTH {
            let mut bytes = [0_u8; 64];
            getrandom::fill(&mut bytes)?;
            // Bytes from 248 on are dropped: 248 is the largest multiple of 62 that fits, so that all letters are
            // equally likely.
            let letters = bytes.iter().filter(|byte| **byte < 248).map(|byte| ALPHABET[usize::from(*byte) % 62]);
            password.extend(letters.map(char::from).take(LENGTH - password.len()));
        }
        Ok(Self(password))
    }

    /// One that was read from a file; `None` if it is empty or holds a control character.
    pub(crate) fn from_file(text: &str) -> Option<Self> {
        let text = text.trim_end_matches(['\r', '\n']);
        (!text.is_empty() && !text.chars().any(char::is_control)).then(|| Self(text.to_owned()))
    }

    /// The password itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ones_are_long_and_differ() {
        let (one, other) = (Password::random().unwrap(), Password::random().unwrap());
        assert_eq!(one.expose().len(), LENGTH);
        assert!(one.expose().bytes().all(|byte| ALPHABET.contains(&byte)));
        assert_ne!(one, other);
        assert_eq!(format!("{one:?}"), "Password(…)");
    }

    #[test]
    fn from_files() {
        for (text, expected) in [("abc\n", Some("abc")), ("a b", Some("a b")), ("", None), ("\n", None), ("a\nb", None)]
        {
            let read = Password::from_file(text);
            assert_eq!(read.as_ref().map(Password::expose), expected, "{text:?}");
        }
    }
}
