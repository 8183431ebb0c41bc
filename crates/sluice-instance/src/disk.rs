//! Free room on a disk.

use std::{io, path::Path};

use nix::sys::statvfs::statvfs;

/// Free space, in bytes, below which PostgreSQL can be said to have run out of it: less than one segment of its log.
pub(crate) const FULL_BYTES: u64 = 16 << 20;

/// The room that an ordinary user may still fill on the disk that `path` is on, in bytes.
///
/// # Errors
///
/// The system's, if `path` can't be looked at.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = statvfs(path)?;
    Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
}
