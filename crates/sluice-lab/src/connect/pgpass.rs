//! Passwords from a file like `~/.pgpass`, as libpq finds them (section 34.16).
//!
//! A file that others may read is not used, and that is said.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Bits of a file's mode that let others than the owner in.
const OTHERS: u32 = 0o077;
/// Far more than anybody has passwords.
const BYTES_MAX: u64 = 1 << 20;

/// Reasons why a password file was not used. The fault is the operator's.
#[derive(Debug, thiserror::Error)]
pub(super) enum PgpassError {
    /// Others may read it.
    #[error("the password file {} is open to others, so it is not used\nchmod 0600 {}", .0.display(), .0.display())]
    Open(PathBuf),
    /// It can't be read.
    #[error("cannot read the password file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// It is too large to be one.
    #[error("the password file {} is larger than 1 MiB, so it is none\nname another one in PGPASSFILE", .0.display())]
    TooLarge(PathBuf),
}

/// The key that a password is looked up by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key<'a> {
    /// The host, or the folder of the Unix socket.
    pub(super) host: &'a str,
    /// The port.
    pub(super) port: u16,
    /// The database.
    pub(super) database: &'a str,
    /// The role.
    pub(super) user: &'a str,
}

/// The password for a connection, if there is such a file and it has one.
///
/// # Errors
///
/// [`PgpassError`]; a file that is not there is none.
pub(super) fn find(path: &Path, key: Key<'_>) -> Result<Option<String>, PgpassError> {
    let path = path.to_owned();
    let metadata = match fs::metadata(&path) {
        Ok(metadata) if metadata.is_file() => metadata,
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(PgpassError::Read { path, source }),
    };
    if metadata.mode() & OTHERS != 0 {
        return Err(PgpassError::Open(path));
    }
    if metadata.len() > BYTES_MAX {
        return Err(PgpassError::TooLarge(path));
    }
    match fs::read_to_string(&path) {
        Ok(text) => Ok(look_up(&text, key)),
        Err(source) => Err(PgpassError::Read { path, source }),
    }
}

/// The password of the first line that fits: `host:port:database:user:password`, where `*` fits all.
fn look_up(text: &str, key: Key<'_>) -> Option<String> {
    let port = key.port.to_string();
    let wanted = [key.host, &port, key.database, key.user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let (password, names) = fields.split_last()?;
        let fits = |(name, wanted): (&String, &&str)| name == "*" || name == wanted;
        (names.len() == wanted.len() && names.iter().zip(&wanted).all(fits)).then(|| password.clone())
    })
}

/// The fields of a line; a backslash takes the next character as it is.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let last = fields.len() - 1;
        match character {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields[last].extend(characters.next()),
            other => fields[last].push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits() {
        let text = "# host:port:database:user:password\n\
                    other:5432:*:app:no\n\
                    db\\:1:*:shop:app:with\\\\back:and\\:colon\n\
                    too:few:fields\n\
                    db:6432:shop:app:one\n\
                    *:*:*:app:any\n";
        for (host, port, database, user, expected) in [
            ("db", 6432, "shop", "app", Some("one")),
            ("db", 5432, "shop", "app", Some("any")),
            ("db:1", 1, "shop", "app", Some("with\\back:and:colon")),
            ("db", 6432, "shop", "root", None),
        ] {
            let key = Key { host, port, database, user };
            assert_eq!(look_up(text, key).as_deref(), expected, "{key:?}");
        }
    }
}
