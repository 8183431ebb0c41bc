//! A name that follows from an instance's directory, for what has to be outside of it: the same at every start.

use std::{os::unix::ffi::OsStrExt, path::Path};

/// `sluice-` and 16 hexadecimal digits.
pub(crate) fn of(root: &Path) -> String {
    format!("sluice-{:016x}", fnv1a(root.as_os_str().as_bytes()))
}

/// FNV-1a: no two directories of one machine with the same.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_at_every_start() {
        assert_eq!(of(Path::new("")), "sluice-cbf29ce484222325");
        assert_eq!(of(Path::new("a")), "sluice-af63dc4c8601ec8c");
        assert_ne!(of(Path::new("/var/lib/sluice")), of(Path::new("/var/lib/sluice2")));
    }
}
