//! Files that a command is told to write: new ones only.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use anyhow::{Result, anyhow};

/// Writes a file that is not there yet, whole or not at all.
pub(crate) fn write_new(path: &Path, text: &str, mode: u32) -> Result<()> {
    let failed = |error: &io::Error| anyhow!("cannot write {}: {}", path.display(), words(error));
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(|error| failed(&error))?;
    file.write_all(text.as_bytes()).map_err(|error| {
        // Half a file would be in the way of the next attempt.
        let _ = fs::remove_file(path);
        failed(&error)
    })
}

/// The system's refusal, with the remedy.
fn words(error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::AlreadyExists => {
            return "it is there already, and nothing is overwritten\nmove it away, or name another file (--output FILE)"
                .to_owned();
        }
        io::ErrorKind::NotFound => "\nmake its folder first, or name another file (--output FILE)",
        io::ErrorKind::NotADirectory => "\na part of this path is a file: name another one (--output FILE)",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "\nname a file where you can write (--output FILE)"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "\nthe disk is full: make room, or name a file on another one (--output FILE)"
        }
        _ => "",
    };
    format!("{error}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_files_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        write_new(&path, "one", 0o600).unwrap();
        let error = write_new(&path, "two", 0o600).unwrap_err().to_string();
        assert!(error.contains("nothing is overwritten") && error.contains("--output"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        let error = write_new(&dir.path().join("none/new"), "", 0o600).unwrap_err().to_string();
        assert!(error.contains("make its folder"), "{error}");
    }
}
