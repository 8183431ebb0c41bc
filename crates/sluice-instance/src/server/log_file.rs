//! The file that PostgreSQL's standard error goes to, kept within bounds: the log and one older part.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// A log that is longer than this is put aside.
const BYTES_MAX: u64 = 64 << 20;

fn older(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

/// Opens the log for a new server, and says where in the file that server's part begins.
pub(crate) fn open(path: &Path) -> io::Result<(File, u64)> {
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() > BYTES_MAX) {
        fs::rename(path, older(path))?;
    }
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let start = file.metadata()?.len();
    Ok((file, start))
}

/// Puts a running server's log aside if it has grown too long. The server appends to the same file all along, so it
/// is copied and cut; what is written between the two is lost.
pub(crate) fn trim(path: &Path) -> io::Result<bool> {
    if fs::metadata(path)?.len() <= BYTES_MAX {
        return Ok(false);
    }
    fs::copy(path, older(path))?;
    OpenOptions::new().write(true).open(path)?.set_len(0)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn stays_within_bounds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("postgres.log");
        let (mut file, start) = open(&path).unwrap();
        assert_eq!(start, 0);
        file.write_all(b"one\n").unwrap();
        assert!(!trim(&path).unwrap());
        assert_eq!(open(&path).unwrap().1, 4);

        // Sparse: no 64 MiB are written.
        file.set_len(BYTES_MAX + 1).unwrap();
        assert!(trim(&path).unwrap());
        file.write_all(b"two\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two\n");

        file.set_len(BYTES_MAX + 1).unwrap();
        assert_eq!(open(&path).unwrap().1, 0);
        assert_eq!(fs::metadata(dir.path().join("postgres.log.1")).unwrap().len(), BYTES_MAX + 1);
    }
}
