//! Free room on a disk.

use std::{io, path::Path};

use nix::sys::statvfs::statvfs;

/// Free space, in bytes, below which PostgreSQL can be said to have run out of it: less than one segment of its log.
pub(crate) const FULL_BYTES: u64 = 16 << 20;

/// The warning of a disk on which PostgreSQL has no room for its log any more.
pub fn full(path: &Path) -> Option<String> {
    let free = free_bytes(path).ok().filter(|free| *free < FULL_BYTES)?;
    Some(format!(
        "the disk of {} is full ({} kB are free): make room, or PostgreSQL there does not go on, and its replication neither; it \
         goes on by itself then",
        path.display(),
        free / 1024
    ))
}

/// The room that an ordinary user may still fill on the disk that `path` is on, in bytes.
///
/// # Errors
///
/// The system's, if `path` can't be looked at.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = statvfs(path)?;
    Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
}
