//! Options of a connection string that libpq knows and the driver does not.
//!
//! They are taken out before the driver reads the rest. What Sluice can't do for a connection is refused by name;
//! what makes no difference to it is left out.
//! Source: PostgreSQL's documentation, sections 34.1.1 and 34.1.2 (connection strings, key words).

use std::collections::BTreeMap;

/// How TLS is used, and where passwords are.
const TAKEN: [&str; 3] = ["sslmode", "sslrootcert", "passfile"];
/// Of other ways to encrypt, of the client's own encoding and name.
const WITHOUT_EFFECT: [&str; 9] = [
    "gssencmode",
    "krbsrvname",
    "gsslib",
    "gssdelegation",
    "sslcompression",
    "sslsni",
    "sslcertmode",
    "client_encoding",
    "fallback_application_name",
];
const REFUSED: [&str; 9] = [
    "service",
    "sslcert",
    "sslkey",
    "sslpassword",
    "sslcrl",
    "sslcrldir",
    "requirepeer",
    "require_auth",
    "ssl_min_protocol_version",
];

/// A connection string, taken apart.
#[derive(Debug, PartialEq)]
pub(super) struct Options {
    /// What is left for the driver.
    pub(super) rest: String,
    /// Those of [`TAKEN`] that are there.
    taken: BTreeMap<&'static str, String>,
}

impl Options {
    /// Takes a string apart; the error says what is wrong with it.
    pub(super) fn take(dsn: &str) -> Result<Self, String> {
        let mut options = Self { rest: String::new(), taken: BTreeMap::new() };
        match dsn.split_once('?') {
            _ if !dsn.contains("://") => {
                for (name, value) in pairs(dsn)? {
                    if options.keeps(&name, &value)? {
                        let value = value.replace('\\', r"\\").replace('\'', r"\'");
                        options.rest += &format!("{name}='{value}' ");
                    }
                }
            }
            None => dsn.clone_into(&mut options.rest),
            Some((place, query)) => {
                let mut kept = Vec::new();
                for pair in query.split('&').filter(|pair| !pair.is_empty()) {
                    let (name, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} has no value"))?;
                    if options.keeps(&decoded(name)?, &decoded(value)?)? {
                        kept.push(pair);
                    }
                }
                options.rest = [place, &kept.join("&")].join(if kept.is_empty() { "" } else { "?" });
            }
        }
        Ok(options)
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.taken.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether the driver is to see an option.
    fn keeps(&mut self, name: &str, value: &str) -> Result<bool, String> {
        if let Some(known) = TAKEN.iter().find(|known| **known == name) {
            self.taken.insert(known, value.to_owned());
            return Ok(false);
        }
        match REFUSED.contains(&name) {
            true => Err(format!("Sluice does not know the option {name} yet")),
            false => Ok(!WITHOUT_EFFECT.contains(&name)),
        }
    }
}

fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| format!("{text:?} is not UTF-8"))
}

/// `name = value` pairs; a value with blanks stands in single quotes, where a backslash takes the next character as it
/// is.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, behind) = rest.split_once('=').ok_or_else(|| format!("there is no \"=\" behind {rest:?}"))?;
        let name = name.trim();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(format!("there is no \"=\" behind {:?}", name.split_whitespace().next().unwrap_or_default()));
        }
        let (value, behind) = value(behind.trim_start()).ok_or_else(|| format!("the quote of {name} has no end"))?;
        pairs.push((name.to_owned(), value));
        rest = behind.trim_start();
    }
    Ok(pairs)
}

/// The value that a text begins with, and what is behind it; none without its last quote.
fn value(text: &str) -> Option<(String, &str)> {
    let is_quoted = text.starts_with('\'');
    let body = if is_quoted { &text[1..] } else { text };
    let (mut value, mut is_escaped) = (String::new(), false);
    for (place, character) in body.char_indices() {
        match character {
            _ if is_escaped => {
                value.push(character);
                is_escaped = false;
            }
            '\\' => is_escaped = true,
            '\'' if is_quoted => return Some((value, &body[place + 1..])),
            blank if !is_quoted && blank.is_whitespace() => return Some((value, &body[place..])),
            other => value.push(other),
        }
    }
    (!is_quoted).then_some((value, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libpq_s_options_are_taken_out() {
        for (dsn, rest, mode) in [
            ("host=a  sslmode = verify-full dbname='my db'", "host='a' dbname='my db' ", Some("verify-full")),
            (r"password='it\'s' host=a\ b", r"password='it\'s' host='a b' ", None),
            (
                "postgres://u@h/d?sslmode=require&connect_timeout=5",
                "postgres://u@h/d?connect_timeout=5",
                Some("require"),
            ),
            ("postgres://u@h/d?gssencmode=disable", "postgres://u@h/d", None),
            ("postgres://u@h/d", "postgres://u@h/d", None),
            ("", "", None),
        ] {
            let options = Options::take(dsn).unwrap();
            assert_eq!((options.rest.as_str(), options.get("sslmode")), (rest, mode), "{dsn}");
        }
        let options = Options::take("postgres://h/?sslrootcert=%2Fetc%2Fmy%20ca.pem").unwrap();
        assert_eq!(options.get("sslrootcert"), Some("/etc/my ca.pem"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (dsn, expected) in [
            ("host=a sslcert=me.pem", "the option sslcert"),
            ("postgres://h/?service=shop", "the option service"),
            ("host=a dbname", "no \"=\" behind \"dbname\""),
            ("host=a oops port=1", "no \"=\" behind \"oops\""),
            ("host='a", "the quote of host"),
            ("postgres://h/?x", "\"x\" has no value"),
        ] {
            let error = Options::take(dsn).unwrap_err();
            assert!(error.contains(expected), "{dsn}: {error}");
        }
    }
}
