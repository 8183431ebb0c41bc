//! The values that settings have on a server by themselves.

use std::fmt::Write;

use super::STATEMENT_TIMEOUT;

/// A setting's value, as PostgreSQL shows it, in the encoding of the server's database.
pub(super) type Value = Box<[u8]>;

/// The mark of a setting that is not there, in place of its value.
pub(super) const ABSENT: &[u8] = b"\x02";

/// The mark between two.
const SEPARATOR: u8 = 1;

/// Settings that some roles may not even read, and other roles set.
const GUARDED: [&str; 5] = [
    "dynamic_library_path",
    "extension_control_path",
    "extension_destdir",
    "output_plugin_libraries",
    "session_preload_libraries",
];

/// Libraries that functions may load, and a setting by which it shows that one is loaded, if it brings any.
const LIBRARIES: [(&str, &str); 59] = [
    ("_int", ""),
    ("adminpack", ""),
    ("amcheck", ""),
    ("auto_explain", "auto_explain.log_min_duration"),
    ("autoinc", ""),
    ("bloom", ""),
    ("btree_gin", ""),
    ("btree_gist", ""),
    ("citext", ""),
    ("cube", ""),
    ("dblink", ""),
    ("dict_int", ""),
    ("dict_xsyn", ""),
    ("earthdistance", ""),
    ("file_fdw", ""),
    ("fuzzystrmatch", ""),
    ("hstore", ""),
    ("hstore_plperl", ""),
    ("hstore_plpython3", ""),
    ("insert_username", ""),
    ("isn", "isn.weak"),
    ("jsonb_plperl", ""),
    ("jsonb_plpython3", ""),
    ("lo", ""),
    ("ltree", ""),
    ("ltree_plpython3", ""),
    ("moddatetime", ""),
    ("old_snapshot", ""),
    ("pageinspect", ""),
    ("pg_buffercache", ""),
    ("pg_freespacemap", ""),
    ("pg_logicalinspect", ""),
    ("pg_prewarm", ""),
    ("pg_stat_statements", ""),
    ("pg_surgery", ""),
    ("pg_trgm", "pg_trgm.similarity_threshold"),
    ("pg_visibility", ""),
    ("pg_walinspect", ""),
    ("pgcrypto", "pgcrypto.builtin_crypto_enabled"),
    ("pgrowlocks", ""),
    ("pgstattuple", ""),
    ("pgxml", ""),
    ("plperl", "plperl.use_strict"),
    ("plpgsql", "plpgsql.variable_conflict"),
    ("plpython3", ""),
    ("pltcl", "pltcl.start_proc"),
    ("postgres_fdw", "postgres_fdw.application_name"),
    ("refint", ""),
    ("seg", ""),
    ("sluice", ""),
    ("sslinfo", ""),
    ("tablefunc", ""),
    ("tcn", ""),
    ("test_decoding", ""),
    ("tsm_system_rows", ""),
    ("tsm_system_time", ""),
    ("unaccent", ""),
    ("uuid-ossp", ""),
    ("vector", "hnsw.ef_search"),
];

/// Whether a setting is one of a library that functions may load, by its lower-case name: no session makes it.
pub fn is_of_library(name: &str) -> bool {
    let Some((prefix, _)) = name.split_once('.') else { return false };
    LIBRARIES.iter().any(|(_, setting)| setting.split_once('.').is_some_and(|(known, _)| known == prefix))
}

/// The values that settings have on a server by themselves, as its configuration said when it was last read.
#[derive(Debug, PartialEq, Eq)]
pub struct Defaults {
    /// The time of that.
    pub(super) conf: String,
    /// Settings by their lower-case names, the guarded ones last; without a value where a session had set its own.
    values: Vec<(String, Option<Value>)>,
    guarded: usize,
    /// An SQL expression for the array of the names.
    pub(super) names: String,
}

impl Defaults {
    /// Reads what a probe in full has told: names with values, or without. `timeout` is the `statement_timeout` where
    /// the probe has set another one for itself.
    pub(super) fn read(conf: String, list: &[u8], timeout: Option<Value>) -> Option<Self> {
        let mut values: Vec<(String, Option<Value>)> = Vec::new();
        for entry in list.split(|byte| *byte == SEPARATOR) {
            let mut parts = entry.splitn(2, |byte| *byte == ABSENT[0]);
            let name = std::str::from_utf8(parts.next()?).ok().filter(|name| is_name(name))?.to_ascii_lowercase();
            let value = parts.next().map(Value::from);
            if !super::OF_TRANSACTION.contains(&name.as_str()) && !GUARDED.contains(&name.as_str()) {
                let value = if name == STATEMENT_TIMEOUT { value.or_else(|| timeout.clone()) } else { value };
                values.push((name, value));
            }
        }
        for (_, setting) in LIBRARIES.iter().filter(|(_, setting)| !setting.is_empty()) {
            if !values.iter().any(|(name, _)| name == setting) {
                values.push(((*setting).to_owned(), Some(ABSENT.into())));
            }
        }
        values.sort();
        values.dedup_by(|a, b| a.0 == b.0);
        let mut names = "pg_catalog.array_cat('{".to_owned();
        put_names(&mut names, values.iter().map(|(name, _)| name.as_str()));
        names
            .push_str("}'::pg_catalog.text[],CASE WHEN pg_catalog.pg_has_role('pg_read_all_settings','USAGE') THEN '{");
        put_names(&mut names, GUARDED.into_iter());
        names.push_str("}'::pg_catalog.text[] END)");
        let guarded = GUARDED.into_iter().map(|name| (name.to_owned(), guarded_value(list, name)));
        values.extend(guarded);
        Some(Self { conf, values, guarded: GUARDED.len(), names })
    }

    /// The value of a setting by its lower-case name, if it is known.
    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        let plain = &self.values[..self.values.len() - self.guarded];
        let place = plain.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        plain[place].1.as_ref()
    }

    /// The settings with their own values and those that were seen; `None` if these are not theirs.
    pub(super) fn compare<'a>(
        &'a self,
        seen: &'a [u8],
    ) -> Option<impl Iterator<Item = (&'a str, Option<&'a Value>, &'a [u8])>> {
        // One that has a separator within makes them too many.
        let count = seen.iter().filter(|byte| **byte == SEPARATOR).count() + 1;
        let all = self.values.len();
        if count != all && count != all - self.guarded {
            return None;
        }
        let seen = seen.split(|byte| *byte == SEPARATOR);
        Some(self.values.iter().zip(seen).map(|((name, own), seen)| (name.as_str(), own.as_ref(), seen)))
    }
}

/// The value of a guarded setting in what a probe in full has told: there may be none.
fn guarded_value(list: &[u8], name: &str) -> Option<Value> {
    let mut entries = list.split(|byte| *byte == SEPARATOR);
    match entries.find(|entry| entry.split(|byte| *byte == ABSENT[0]).next() == Some(name.as_bytes())) {
        Some(entry) => entry.splitn(2, |byte| *byte == ABSENT[0]).nth(1).map(Value::from),
        None => Some(ABSENT.into()),
    }
}

fn put_names<'a>(sql: &mut String, names: impl Iterator<Item = &'a str>) {
    for (place, name) in names.enumerate() {
        let _ = write!(sql, "{}{name}", if place > 0 { "," } else { "" });
    }
}

/// Whether a name may stand in an array, and in SQL, as it is.
fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$');
    !name.is_empty() && name.bytes().all(is_part)
}

/// Whether one of the libraries of functions may bring settings that nobody knows of.
pub(super) fn is_foreign(list: &[u8]) -> bool {
    let paths = list.split(|byte| *byte == SEPARATOR).filter(|path| !path.is_empty());
    paths.map(library).any(|name| !LIBRARIES.iter().any(|(known, _)| known.as_bytes() == name))
}

/// A library's name without its folder and its suffix.
fn library(path: &[u8]) -> &[u8] {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.strip_suffix(b".so").unwrap_or(name)
}
