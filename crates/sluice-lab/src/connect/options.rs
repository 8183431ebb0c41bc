//! Options of a connection string that libpq knows and the driver does not.
//!
//! They are taken out before the driver reads the rest. What Sluice can't do for a connection is refused by name;
//! what makes no difference to it is left out.
//! Source: PostgreSQL's documentation, sections 34.1.1 and 34.1.2 (connection strings, key words).

use std::collections::BTreeMap;

/// Options for the use of TLS and for the password file: handled here.
const TAKEN: [&str; 3] = ["sslmode", "sslrootcert", "passfile"];
/// Options without effect here: for other ways to encrypt, and for the client's own encoding and name.
const WITHOUT_EFFECT: [&str; 7] = [
    "krbsrvname",
    "gsslib",
    "gssdelegation",
    "sslcompression",
    "sslsni",
    "client_encoding",
    "fallback_application_name",
];
/// Without effect, unless they demand something.
const DEMANDS: [&str; 2] = ["gssencmode", "sslcertmode"];
const DEMAND: &str = "require";
const REFUSED: [&str; 11] = [
    "service",
    "sslcert",
    "sslkey",
    "sslpassword",
    "sslcrl",
    "sslcrldir",
    "requirepeer",
    "require_auth",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "sslnegotiation",
];
/// Variables that would be refused as options, or that choose the server in another way.
pub(super) const REFUSED_VARIABLES: [&str; 10] = [
    "PGSERVICE",
    "PGHOSTADDR",
    "PGSSLCERT",
    "PGSSLKEY",
    "PGSSLCRL",
    "PGSSLCRLDIR",
    "PGREQUIREPEER",
    "PGREQUIREAUTH",
    "PGSSLMINPROTOCOLVERSION",
    "PGSSLMAXPROTOCOLVERSION",
];

/// Whether a connection string is a URI, as libpq tells.
pub(super) fn is_uri(dsn: &str) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| dsn.starts_with(scheme))
}

/// A connection string, taken apart.
#[derive(Debug, PartialEq)]
pub(super) struct Options {
    /// The remaining options, for the driver.
    pub(super) rest: String,
    /// Those of [`TAKEN`] that are there.
    taken: BTreeMap<&'static str, String>,
}

impl Options {
    /// Takes a string apart; the error says what is wrong with it.
    pub(super) fn take(dsn: &str) -> Result<Self, String> {
        let mut options = Self { rest: String::new(), taken: BTreeMap::new() };
        if !is_uri(dsn) {
            for (name, value) in pairs(dsn)? {
                // For libpq, what is empty was not given.
                if options.keeps(&name, &value)? && !value.is_empty() {
                    options.rest += &quoted(&name, &value);
                }
            }
            return Ok(options);
        }
        let Some((place, query)) = split_uri(dsn) else {
            dsn.clone_into(&mut options.rest);
            return Ok(options);
        };
        let mut kept = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or("an option after \"?\" has no \"=\"")?;
            let name = decoded(name).ok_or("the name of an option is not UTF-8")?;
            let value = decoded(value).ok_or_else(|| format!("the value of {name} is not UTF-8"))?;
            if options.keeps(&name, &value)? {
                kept.push(pair);
            }
        }
        options.rest = [place, &kept.join("&")].join(if kept.is_empty() { "" } else { "?" });
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
        let is_demand = DEMANDS.contains(&name) && value == DEMAND;
        match is_demand || REFUSED.contains(&name) {
            true => Err(format!("Sluice can't do what the option {name} asks for yet")),
            false => Ok(!WITHOUT_EFFECT.contains(&name) && !DEMANDS.contains(&name)),
        }
    }
}

/// An option of a connection string, with quotes where libpq wants them.
pub fn parameter(name: &str, value: &str) -> String {
    quoted(name, value).trim_end().to_owned()
}

/// The same with a blank behind, before further ones.
pub(super) fn quoted(name: &str, value: &str) -> String {
    let is_plain = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || matches!(c, '\'' | '\\'));
    match is_plain {
        true => format!("{name}={value} "),
        false => format!("{name}='{}' ", value.replace('\\', r"\\").replace('\'', r"\'")),
    }
}

/// The parts before and behind the question mark. One before an `@` belongs to the password.
fn split_uri(uri: &str) -> Option<(&str, &str)> {
    let authority = uri.find("://")? + 3;
    let behind = uri[authority..].find(['@', '/']).filter(|place| uri[authority + place..].starts_with('@'));
    let from = authority + behind.unwrap_or(0);
    let mark = from + uri[from..].find('?')?;
    Some((&uri[..mark], &uri[mark + 1..]))
}

fn decoded(text: &str) -> Option<String> {
    Some(percent_encoding::percent_decode_str(text).decode_utf8().ok()?.into_owned())
}

/// `name = value` pairs; a value with blanks stands in single quotes, where a backslash takes the next character as it
/// is.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        // What stands there may be a part of a password, so it is not told.
        let wrong = || match pairs.last() {
            Some((name, _)) => {
                format!("after the value of {name} there is no NAME=VALUE; a value with blanks needs quotes")
            }
            None => "it does not begin with NAME=VALUE".to_owned(),
        };
        let (name, behind) = rest.split_once('=').ok_or_else(wrong)?;
        let name = name.trim();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(wrong());
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
            ("host=a  sslmode = verify-full dbname='my db'", "host=a dbname='my db' ", Some("verify-full")),
            (r"password='it\'s' host=a\ b", r"password='it\'s' host='a b' ", None),
            (
                "postgres://u@h/d?sslmode=require&connect_timeout=5",
                "postgres://u@h/d?connect_timeout=5",
                Some("require"),
            ),
            ("postgres://u@h/d?gssencmode=disable", "postgres://u@h/d", None),
            ("postgres://u@h/d", "postgres://u@h/d", None),
            ("postgres://u:pa?ss@h/d?sslmode=require", "postgres://u:pa?ss@h/d", Some("require")),
            ("host=h password=a://b sslmode=require", "host=h password=a://b ", Some("require")),
            ("host=h password='' user=", "host=h ", None),
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
            ("host=a gssencmode=require", "the option gssencmode"),
            ("host=a dbname", "after the value of host"),
            ("password=my secret port=1", "after the value of password"),
            ("secret", "does not begin"),
            ("host='a", "the quote of host"),
            ("postgres://h/?secret", "has no \"=\""),
            ("postgres://h/?password=secret%ff", "the value of password"),
        ] {
            let error = Options::take(dsn).unwrap_err();
            assert!(error.contains(expected) && !error.contains("secret"), "{dsn}: {error}");
        }
    }
}
