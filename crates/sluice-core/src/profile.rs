//! The settings a client starts its session with, and how to bring a server to them.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use sluice_wire::startup::SessionRequest;

/// Settings that differ from the server's own defaults, by lower-case name.
pub type Profile = Arc<BTreeMap<String, String>>;

/// Reported parameters that no client can set by `SET`, or that say who is asking rather than how.
const NOT_SETTABLE: [&str; 7] = [
    "in_hot_standby",
    "integer_datetimes",
    "is_superuser",
    "scram_iterations",
    "server_encoding",
    "server_version",
    "session_authorization",
];

/// The settings of a StartupMessage: its parameters that are settings, and those in `options`.
pub fn from_startup(request: &SessionRequest) -> Result<Profile, String> {
    let mut settings = BTreeMap::new();
    for (name, value) in &request.parameters {
        match name.as_str() {
            "user" | "database" | "replication" => {}
            "options" => read_options(value, &mut settings)?,
            name if name.starts_with("_pq_.") => {}
            name => {
                settings.insert(name.to_ascii_lowercase(), value.clone());
            }
        }
    }
    Ok(Arc::new(settings))
}

/// Reads `-c name=value` and `--name=value`, with `\` before a space that is part of a value (PostgreSQL
/// documentation, 20.1.3 and `PGOPTIONS`).
fn read_options(options: &str, settings: &mut BTreeMap<String, String>) -> Result<(), String> {
    let mut words = split_words(options).into_iter();
    while let Some(word) = words.next() {
        let assignment = match word.strip_prefix("--").or_else(|| word.strip_prefix("-c").filter(|w| !w.is_empty())) {
            Some(rest) => rest.to_owned(),
            None if word == "-c" => words.next().unwrap_or_default(),
            None => return Err(format!("startup option \"{word}\" is not supported: use \"-c name=value\"")),
        };
        let (name, value) = assignment
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| format!("startup option \"{assignment}\" is not of the form name=value"))?;
        settings.insert(name.trim().to_ascii_lowercase().replace('-', "_"), value.to_owned());
    }
    Ok(())
}

fn split_words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let last = words.len() - 1;
        match c {
            '\\' => words[last].extend(chars.next()),
            c if c.is_ascii_whitespace() => words.push(String::new()),
            c => words[last].push(c),
        }
    }
    words.retain(|w| !w.is_empty());
    words
}

/// `profile` with a reported parameter as the server now has it; the same profile if that changes nothing.
pub fn with_reported(profile: &Profile, name: &str, value: &str) -> Profile {
    let name = name.to_ascii_lowercase();
    if NOT_SETTABLE.contains(&name.as_str()) || profile.get(&name).is_some_and(|v| v == value) {
        return profile.clone();
    }
    let mut settings = BTreeMap::clone(profile);
    settings.insert(name, value.to_owned());
    Arc::new(settings)
}

/// The SQL that takes a server from one profile to another; `None` where they are the same.
///
/// `set_config` reads a value as the StartupMessage does, lists included, where `SET` would need each setting's syntax.
pub fn transition(from: &Profile, to: &Profile) -> Option<String> {
    if Arc::ptr_eq(from, to) || from == to {
        return None;
    }
    let mut sql = String::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        let _ = write!(sql, "RESET \"{}\";", name.replace('"', "\"\""));
    }
    let mut separator = "SELECT ";
    for (name, value) in to.iter().filter(|(name, value)| from.get(*name) != Some(*value)) {
        let _ = write!(sql, "{separator}pg_catalog.set_config({}, {}, false)", literal(name), literal(value));
        separator = ", ";
    }
    Some(sql)
}

/// An SQL string that means the same whatever `standard_conforming_strings` says.
fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(pairs: &[(&str, &str)]) -> Profile {
        Arc::new(pairs.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect())
    }

    #[test]
    fn options_are_read_as_postgresql_reads_them() {
        let mut settings = BTreeMap::new();
        read_options(r"-c geqo=off --work-mem=64MB -cDateStyle=ISO,\ DMY", &mut settings).expect("they are valid");
        let expected = [("datestyle", "ISO, DMY"), ("geqo", "off"), ("work_mem", "64MB")];
        assert_eq!(settings.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect::<Vec<_>>(), expected);
        for bad in ["-x", "-c", "-c geqo", "--=1"] {
            assert!(read_options(bad, &mut settings).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_transition_sets_what_differs_and_resets_what_is_gone() {
        let a = profile(&[("application_name", "a"), ("timezone", "UTC")]);
        let b = profile(&[("application_name", r"it's \o"), ("datestyle", "ISO")]);
        let sql = transition(&a, &b).expect("they differ");
        assert_eq!(
            sql,
            "RESET \"timezone\";SELECT pg_catalog.set_config('application_name', E'it''s \\\\o', false), \
             pg_catalog.set_config('datestyle', 'ISO', false)"
        );
        assert_eq!(transition(&a, &profile(&[("application_name", "a"), ("timezone", "UTC")])), None);
    }
}
