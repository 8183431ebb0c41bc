//! Passwords with which Sluice logs in to PostgreSQL: in the configuration, or in a file of their own.

use crate::{
    Secret,
    files::{self, Access},
    kinds::{self, FilePath, PASSWORD_BYTES_MAX, Password},
    reader::{Read, Section},
    report::Fault,
    schema::Key,
};

pub(crate) const RULES: &[&str] = &[
    "`password` and `password_file` exclude each other.",
    "Files with secrets must be closed to others (`chmod 600`; the group may read, so 640 is possible): a `users_file`, \
     a `password_file`, a `client_address_secret_file`, and the configuration file itself if a `password` stands in it.",
];

/// Reads `password` or `password_file`.
pub(crate) fn read(
    section: &Section<'_>,
    password: &'static Key<Password>,
    file: &'static Key<FilePath>,
) -> Option<(Secret, usize)> {
    let inline = section.read(password).given();
    if let Some((_, offset)) = &inline
        && section.source().access() == Access::Shared
    {
        let config = section.source().file().display();
        let remedy = format!("run: chmod 600 {config}, or move the password to a file with password_file");
        section.note(password, *offset, Fault::new("others may read this file, and so the password", remedy));
    }
    if inline.is_none() {
        return read_file(section, file);
    }
    if let Read::Given(_, offset) = section.read(file) {
        section.note(file, offset, Fault::new("password is given too", "keep one of the two"));
    }
    inline
}

/// Reads a key that names a file, and the secret in it.
pub(crate) fn read_file(section: &Section<'_>, file: &'static Key<FilePath>) -> Option<(Secret, usize)> {
    let Read::Given(path, offset) = section.read(file) else { return None };
    let path = section.source().resolve(&path);
    let text = files::read_private(&path, files::PASSWORD_FILE_BYTES_MAX);
    match text.and_then(|text| only_line(&text).map(Secret)) {
        Ok(secret) => Some((secret, offset)),
        Err(fault) => {
            section.note(file, offset, fault);
            None
        }
    }
}

/// The one line of a password file; the end of the line is not part of the password.
fn only_line(text: &str) -> Result<String, Fault> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.contains('\n') {
        return Err(Fault::new("the file has more than one line", "leave only the password in it"));
    }
    kinds::plain_text(line, PASSWORD_BYTES_MAX)
        .map_err(|fault| Fault::new(format!("the password in the file is {}", fault.what), "write it on one line"))?;
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_file_has_one_line() {
        let cases = [("s3cret\n", Some("s3cret")), ("s3cret", Some("s3cret")), (" a b \r\n", Some(" a b "))];
        let bad = [("", None), ("\n", None), ("a\nb\n", None), ("a\n\n", None)];
        for (text, password) in cases.into_iter().chain(bad) {
            assert_eq!(only_line(text).ok().as_deref(), password, "{text:?}");
        }
    }
}
