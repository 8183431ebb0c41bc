//! The users file: a line `"user" "secret"` for each user, as in PgBouncer's `auth_file`, which is read as PgBouncer reads
//! it: a field behind the secret says nothing, and of several lines for one user the last one counts.
//!
//! It tells what a secret is by its form only; whoever checks passwords parses it.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::Path,
};

use crate::{
    Secret, files,
    kinds::{self, NAME_BYTES_MAX, PASSWORD_BYTES_MAX},
    report::{Fault, Position, Problem, Report},
};

/// The users of a file, each with a secret in one of its forms ([`SecretForm`]).
pub type Users = BTreeMap<String, Secret>;

/// The kind of a secret, by its beginning (PostgreSQL documentation, 52.8, `rolpassword`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretForm {
    /// `SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>`.
    Scram,
    /// `md5` and 32 hexadecimal digits.
    Md5,
    /// A password as it is typed.
    Plain,
}

/// Reads a users file, which must be closed to others.
///
/// # Errors
///
/// All problems of the file: it can't be read, or lines are malformed, or hold no valid secret.
pub fn load(path: &Path) -> Result<Users, Report> {
    let text = files::read_private(path, files::USERS_BYTES_MAX)
        .map_err(|fault| Report::new(vec![fault.at(path, None, "")]))?;
    parse(&text, path)
}

/// Parses the text of a users file; `file` is for messages only.
///
/// # Errors
///
/// All problems of the text.
pub fn parse(text: &str, file: &Path) -> Result<Users, Report> {
    let Lines { users: lines, problems, .. } = read_lines(text, file);
    if problems.is_empty() {
        return Ok(lines.into_iter().map(|(user, (secret, _))| (user, secret)).collect());
    }
    Err(Report::new(problems))
}

/// The lines of a file.
pub(crate) struct Lines {
    /// The users, with the lines on which they stand.
    pub(crate) users: BTreeMap<String, (Secret, usize)>,
    /// The faults of other lines.
    pub(crate) problems: Vec<Problem>,
    /// Lines of users that stand there before.
    pub(crate) repeated: Vec<Problem>,
}

/// Reads all lines.
pub(crate) fn read_lines(text: &str, file: &Path) -> Lines {
    let mut users: BTreeMap<String, (Secret, usize)> = BTreeMap::new();
    let (mut problems, mut repeated) = (Vec::new(), Vec::new());
    // Some editors put a byte order mark at the beginning.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        let place = |column| Some(Position { line: line_number, column });
        match read_line(line) {
            Ok(None) => {}
            Ok(Some((user, secret))) => match users.entry(user) {
                Entry::Vacant(entry) => {
                    entry.insert((Secret(secret), line_number));
                }
                Entry::Occupied(mut entry) => {
                    let what =
                        format!("the user {:?} already has line {}: this one counts", entry.key(), entry.get().1);
                    repeated.push(Fault::new(what, "leave one of the two lines").at(file, place(1), ""));
                    entry.insert((Secret(secret), line_number));
                }
            },
            Err((rest, fault)) => {
                let column = line[..line.len() - rest.len()].chars().count() + 1;
                problems.push(fault.at(file, place(column), ""));
            }
        }
    }
    Lines { users, problems, repeated }
}

/// The kind of a secret.
///
/// # Errors
///
/// A secret that begins as a verifier or hash and does not go on as one: it has been cut or mistyped.
pub(crate) fn form(secret: &str) -> Result<SecretForm, Fault> {
    let again = "copy rolpassword from pg_authid again";
    if let Some(verifier) = secret.strip_prefix("SCRAM-SHA-256$") {
        let fault = || Fault::new("the SCRAM verifier is damaged", again);
        return if is_verifier(verifier) { Ok(SecretForm::Scram) } else { Err(fault()) };
    }
    match secret.strip_prefix("md5") {
        Some(hash) if hash.len() != 32 => Ok(SecretForm::Plain),
        Some(hash) if hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => Ok(SecretForm::Md5),
        Some(_) => Err(Fault::new("the MD5 hash has something other than hexadecimal digits", again)),
        None => Ok(SecretForm::Plain),
    }
}

/// `<iterations>:<salt>$<stored key>:<server key>` (RFC 5803; the keys have 32 bytes).
fn is_verifier(verifier: &str) -> bool {
    let base64 = |text: &str| {
        let digits = text.trim_end_matches('=');
        text.len().is_multiple_of(4)
            && text.len() - digits.len() <= 2
            && !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
    };
    let key = |text: &str| text.len() == 44 && text.ends_with('=') && !text.ends_with("==") && base64(text);
    let parts = verifier.split_once('$').and_then(|(a, b)| Some((a.split_once(':')?, b.split_once(':')?)));
    parts.is_some_and(|((iterations, salt), (stored, server))| {
        let counted =
            iterations.bytes().all(|byte| byte.is_ascii_digit()) && iterations.parse().is_ok_and(|n: i32| n > 0);
        counted && base64(salt) && key(stored) && key(server)
    })
}

/// A fault, and the rest of the line from where it was seen.
type LineFault<'a> = (&'a str, Fault);

/// Reads one line: nothing, or a user and a secret.
fn read_line(line: &str) -> Result<Option<(String, String)>, LineFault<'_>> {
    let start = line.trim_start();
    if is_end(start) {
        return Ok(None);
    }
    let (user, after) = quoted(start, "the user")?;
    kinds::plain_text(&user, NAME_BYTES_MAX).map_err(|fault| (start, of("the user's name", &fault)))?;
    let secret_start = after.trim_start();
    let (secret, after) = quoted(secret_start, "the secret")?;
    if !secret.is_empty() {
        kinds::plain_text(&secret, PASSWORD_BYTES_MAX).map_err(|fault| (secret_start, of("the secret", &fault)))?;
    }
    form(&secret).map_err(|fault| (secret_start, fault))?;
    let end = after.trim_start();
    let is_third_field = end.len() < after.len() && end.starts_with('"');
    if is_end(end) || is_third_field {
        return Ok(Some((user, secret)));
    }
    let remedy = "write only \"user\" \"secret\" on a line; double a quote that is part of either";
    Err((end, Fault::new("something follows the secret", remedy)))
}

/// Whether nothing but a comment is left.
fn is_end(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with([';', '#'])
}

fn of(what: &str, fault: &Fault) -> Fault {
    Fault::new(format!("{what} is {}", fault.what), "write \"user\" \"secret\", or remove the line")
}

/// Reads a text in double quotes, in which `""` is one quote.
fn quoted<'a>(start: &'a str, what: &str) -> Result<(String, &'a str), LineFault<'a>> {
    let remedy = "write the line as \"user\" \"secret\", each in double quotes";
    let Some(mut rest) = start.strip_prefix('"') else {
        return Err((start, Fault::new(format!("{what} in double quotes was expected"), remedy)));
    };
    let mut text = String::new();
    while let Some((part, after)) = rest.split_once('"') {
        text.push_str(part);
        match after.strip_prefix('"') {
            Some(after_pair) => {
                text.push('"');
                rest = after_pair;
            }
            None => return Ok((text, after)),
        }
    }
    Err((start, Fault::new(format!("{what} has no closing quote"), remedy)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERIFIER: &str = "SCRAM-SHA-256$4096:c2FsdHNhbHRzYWx0c2FsdA==$\
        AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA=";

    fn parsed(text: &str) -> Result<Vec<(String, String)>, String> {
        let users = parse(text, Path::new("users.txt")).map_err(|report| report.to_string())?;
        Ok(users.into_iter().map(|(user, secret)| (user, secret.0)).collect())
    }

    #[test]
    fn good_lines() {
        let verifier_line = format!("\"scram\" \"{VERIFIER}\"");
        let cases: [(&str, &[(&str, &str)]); 11] = [
            ("", &[]),
            ("; a comment\n# another\n\n   \n", &[]),
            ("\"app\" \"s3cret\"", &[("app", "s3cret")]),
            ("\u{feff}\"app\" \"s3cret\"", &[("app", "s3cret")]),
            // As PgBouncer 1.18 has them: another field, no secret, and a user once more.
            ("\"app\" \"s3cret\" \"more\" and more", &[("app", "s3cret")]),
            ("\"app\" \"\"", &[("app", "")]),
            ("\"a\" \"x\"\n\"b\" \"x\"\n\"a\" \"y\"", &[("a", "y"), ("b", "x")]),
            (" \"app\"\t\"s3cret\"  # why\r\n", &[("app", "s3cret")]),
            ("\"a\"\"b\" \"\"\"\"", &[("a\"b", "\"")]),
            (
                "\"b\" \"md50123456789abcdef0123456789abcdef\"\n\"a\" \"md5\"",
                &[("a", "md5"), ("b", "md50123456789abcdef0123456789abcdef")],
            ),
            (&verifier_line, &[("scram", VERIFIER)]),
        ];
        for (text, expected) in cases {
            let expected = expected.iter().map(|(user, secret)| ((*user).to_owned(), (*secret).to_owned())).collect();
            assert_eq!(parsed(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn secrets_may_be_as_long_as_pgbouncers() {
        let long = |bytes: usize| parsed(&format!("\"app\" \"{}\"", "x".repeat(bytes))).map(|users| users.len());
        assert_eq!(long(2047), Ok(1));
        assert!(long(2048).is_err_and(|said| said.contains("the secret is 2048 bytes long")));
    }

    #[test]
    fn bad_lines() {
        let cases = [
            ("app s3cret", "users.txt:1:1: the user in double quotes was expected"),
            ("\"app\" s3cret", "users.txt:1:7: the secret in double quotes was expected"),
            ("\"app\"", "users.txt:1:6: the secret in double quotes was expected"),
            ("\"app\"\"s3cret\"", "users.txt:1:14: the secret in double quotes was expected"),
            ("\n\"app\" \"s3cret", "users.txt:2:7: the secret has no closing quote"),
            ("\"\" \"s3cret\"", "users.txt:1:1: the user's name is empty"),
            ("\"é\" \"x\" y", "users.txt:1:9: something follows the secret"),
            ("\"a\" \"x\"\"y\"z\"", "users.txt:1:11: something follows the secret"),
            ("\"a\" \"SCRAM-SHA-256$4096:c2E\"", "users.txt:1:5: the SCRAM verifier is damaged"),
            ("\"a\" \"md50123456789abcdef0123456789abcdeX\"", "users.txt:1:5: the MD5 hash has something"),
        ];
        for (text, expected) in cases {
            let message = parsed(text).expect_err(text);
            assert!(message.starts_with(expected), "{text}\n{message}");
            assert!(!message.contains("s3cret"), "{message}");
        }
    }

    #[test]
    fn damaged_verifiers() {
        assert_eq!(form(VERIFIER), Ok(SecretForm::Scram));
        for cut in "SCRAM-SHA-256$".len()..VERIFIER.len() {
            assert!(form(&VERIFIER[..cut]).is_err(), "{cut}");
        }
    }
}
