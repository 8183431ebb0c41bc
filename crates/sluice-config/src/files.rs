//! Reads the configuration file and the files of secrets that it names.
//!
//! A file of secrets that others may read is refused: a start that succeeds would hide the leak.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use crate::report::Fault;

/// The largest configuration that is read.
pub(crate) const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// The largest users file that is read: about 100,000 users with SCRAM verifiers.
pub(crate) const USERS_BYTES_MAX: u64 = 16 << 20;

/// The largest file with one password.
pub(crate) const PASSWORD_FILE_BYTES_MAX: u64 = 4 << 10;

/// The users who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Its owner, and perhaps its group.
    Private,
    /// Others too, or its group may write it.
    Shared,
}

/// Reads a whole text file.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<(Vec<u8>, Access), Fault> {
    let cannot = |error: &io::Error| {
        Fault::new(format!("cannot read {path:?}: {error}"), "create the file, or correct its path or its owner")
    };
    // Asked before the file is opened: opening a pipe would wait for its writer.
    let metadata = std::fs::metadata(path).map_err(|error| cannot(&error))?;
    if !metadata.is_file() {
        return Err(Fault::new(format!("{path:?} is not a file"), "give the path of a file"));
    }
    let file = File::open(path).map_err(|error| cannot(&error))?;
    let metadata = file.metadata().map_err(|error| cannot(&error))?;
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(|error| cannot(&error))?;
    if bytes.len() as u64 > bytes_max {
        return Err(Fault::new(format!("{path:?} is larger than {bytes_max} bytes"), "make it smaller"));
    }
    // The group may read, so that root can own a file that the service's group uses.
    let access = if metadata.permissions().mode() & 0o027 == 0 { Access::Private } else { Access::Shared };
    Ok((bytes, access))
}

/// A path as a shell takes it for one word.
fn shell_word(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:,@%".contains(&byte);
    match path.bytes().all(is_plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// Reads a text file of secrets; it must be closed to others.
pub(crate) fn read_private(path: &Path, bytes_max: u64) -> Result<String, Fault> {
    let (bytes, access) = read(path, bytes_max)?;
    if access == Access::Shared {
        let what = format!("{path:?} holds secrets, but others may read it or its group may write it");
        return Err(Fault::new(what, format!("run: chmod 600 {}", shell_word(path))));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line =
            1 + error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
        Fault::new(format!("{path:?} is not UTF-8 text in line {line}"), "write it as UTF-8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_for_a_shell() {
        assert_eq!(shell_word(Path::new("/etc/sluice/users.txt")), "/etc/sluice/users.txt");
        assert_eq!(shell_word(Path::new("/my files/o'neil; x")), r"'/my files/o'\''neil; x'");
    }
}
