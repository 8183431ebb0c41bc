//! MD5 passwords (PostgreSQL documentation, 55.2.1): for old drivers and old secrets only.

use md5::{Digest, Md5};
use subtle::ConstantTimeEq;

/// `md5` and 32 hexadecimal digits: the form PostgreSQL stores.
pub fn hash_password(user: &str, password: &str) -> String {
    format!("md5{}", hex(&[password.as_bytes(), user.as_bytes()]))
}

/// The client's answer to a challenge with `salt`; `stored` is in the form of [`hash_password`].
pub fn answer(stored: &str, salt: [u8; 4]) -> String {
    let digits = stored.strip_prefix("md5").unwrap_or(stored);
    format!("md5{}", hex(&[digits.as_bytes(), &salt]))
}

/// Whether a client's `answer` to `salt` comes from the password behind `stored`.
pub fn verify(stored: &str, salt: [u8; 4], given: &[u8]) -> bool {
    answer(stored, salt).as_bytes().ct_eq(given).into()
}

fn hex(parts: &[&[u8]]) -> String {
    let mut hash = Md5::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_as_postgresql_stores_them() {
        // SELECT 'md5' || md5('secret' || 'alice')
        assert_eq!(hash_password("alice", "secret"), "md54a0a68b43b6cd5cf266fa02f196e2371");
    }

    #[test]
    fn an_answer_holds_for_its_own_salt_only() {
        let stored = hash_password("alice", "secret");
        let given = answer(&stored, [1, 2, 3, 4]);
        assert!(verify(&stored, [1, 2, 3, 4], given.as_bytes()));
        assert!(!verify(&stored, [1, 2, 3, 5], given.as_bytes()));
        assert!(!verify(&stored, [1, 2, 3, 4], b""));
    }
}
