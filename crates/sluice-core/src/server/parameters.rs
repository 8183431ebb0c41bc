//! The parameters that a server reports (PostgreSQL documentation, 55.2.7).

use std::{collections::BTreeMap, hash::BuildHasher};

use sluice_wire::{Frame, Framer, message};

use crate::profile::Profile;

/// The parameter by which a server says that it is in recovery (PostgreSQL 14 and later). It says so of itself, whatever
/// sessions do.
pub const IN_HOT_STANDBY: &str = "in_hot_standby";

/// Beginnings of the names of encodings in which each character is a byte (PostgreSQL documentation, 24.3).
const SINGLE_BYTE: [&str; 4] = ["LATIN", "ISO_8859", "KOI8", "WIN"];

/// The parameters that a server has reported.
#[derive(Debug, Default)]
pub struct Parameters {
    values: BTreeMap<String, String>,
    /// The values that were reported at the server's own log-in.
    logged_in_with: BTreeMap<String, String>,
    /// Values that its client was told of settings that it reset to what it began with, where those are not there yet.
    told: BTreeMap<String, String>,
    /// Those that were reported while it reset them up to its transaction's end only, with what they were before.
    deferred: Vec<(String, Option<String>)>,
    /// Those that have changed in this transaction though no statement shows why, with what they were before.
    unexplained: BTreeMap<String, String>,
    /// Those that have been reported to its client.
    passed: Vec<String>,
    /// Those that have changed in the block which is open, with what they were before: there, losing it loses that.
    in_block: BTreeMap<String, String>,
}

impl Parameters {
    /// The value last reported.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// PostgreSQL's major version.
    pub fn version(&self) -> Option<u32> {
        self.get("server_version")?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The server has logged in.
    pub fn note_log_in(&mut self) {
        self.logged_in_with = self.values.clone();
    }

    /// Names and values as they were reported at its log-in.
    pub fn logged_in_with(&self) -> impl Iterator<Item = (&str, &str)> {
        self.logged_in_with.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A hash of all names and values.
    pub fn fingerprint(&self) -> u64 {
        foldhash::quality::FixedState::default().hash_one(&self.values)
    }

    /// Whether texts and names are in UTF-8, on their way and in the database.
    pub fn are_utf8(&self) -> bool {
        ["client_encoding", "server_encoding"].iter().all(|name| self.get(name) == Some("UTF8"))
    }

    /// The number of characters in a text of the client's, as PostgreSQL counts them where an error names a place;
    /// `None` in encodings in which that takes a table.
    pub fn count_characters(&self, text: &[u8]) -> Option<usize> {
        if text.is_ascii() {
            return Some(text.len());
        }
        let [client, server] = ["client_encoding", "server_encoding"].map(|name| self.get(name).unwrap_or_default());
        // With this one, nothing is converted.
        let encoding = if client == "SQL_ASCII" { server } else { client };
        let is_in_bytes = |name: &str| SINGLE_BYTE.iter().any(|prefix| name.starts_with(prefix));
        match encoding {
            _ if server == "SQL_ASCII" || is_in_bytes(encoding) => Some(text.len()),
            "UTF8" => Some(std::str::from_utf8(text).ok()?.chars().count()),
            _ => None,
        }
    }

    /// It is reported to be that.
    pub fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }

    /// The value that its client knows.
    pub fn told(&self, name: &str) -> Option<&str> {
        self.told.get(name).map(String::as_str).or_else(|| self.get(name))
    }

    /// Its client is told that value instead of the one last reported.
    pub fn tell(&mut self, name: &str, value: &str) {
        self.told.insert(name.to_owned(), value.to_owned());
    }

    /// Its client knows the value last reported of that one.
    pub fn tells_truth(&mut self, name: &str) {
        self.told.remove(name);
    }

    /// Its client knows nothing of what it was told, or is another one.
    pub fn forget_told(&mut self) {
        self.told.clear();
        self.passed.clear();
    }

    /// It is being reported to its client.
    pub fn note_passed(&mut self, name: &str) {
        if !self.has_passed(name) {
            self.passed.push(name.to_owned());
        }
    }

    /// Those that its client has heard of since it has the server.
    pub fn passed(&self) -> impl Iterator<Item = &str> {
        self.passed.iter().map(String::as_str)
    }

    /// Whether its client has heard of it from the server itself.
    pub fn has_passed(&self, name: &str) -> bool {
        self.passed.iter().any(|passed| passed == name)
    }

    /// Those that its client takes for something else, with what it was told: they are what was last reported.
    pub fn take_told(&mut self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.told)
    }

    /// It has been reported where a client resets it up to its transaction's end, and was that before.
    pub fn defer(&mut self, name: &str, before: Option<&str>) {
        self.deferred.push((name.to_owned(), before.map(str::to_owned)));
    }

    /// Those whose report waits for the transaction's status.
    pub fn take_deferred(&mut self) -> Vec<(String, Option<String>)> {
        std::mem::take(&mut self.deferred)
    }

    /// Notes that it is no longer what it was before; `None` if a statement accounts for that.
    pub fn changed(&mut self, name: &str, before: Option<String>) {
        match before {
            Some(before) => _ = self.unexplained.entry(name.to_owned()).or_insert(before),
            None => _ = self.unexplained.remove(name),
        }
    }

    /// It has changed in a block that may be lost with its server, and was that before.
    pub fn note_in_block(&mut self, name: &str, before: &str) {
        self.in_block.entry(name.to_owned()).or_insert_with(|| before.to_owned());
    }

    /// No block is open.
    pub fn end_block(&mut self) {
        self.in_block.clear();
    }

    /// What the block has changed, and is gone with it, as it is then.
    pub fn before_block(&self) -> impl Iterator<Item = (&str, &str)> {
        let only_told = self.told.keys().filter(|name| !self.in_block.contains_key(*name));
        let only_told = only_told.filter_map(|name| Some((name, self.values.get(name)?)));
        let changed = self.in_block.iter().chain(only_told).map(|(name, before)| (name.as_str(), before.as_str()));
        changed.filter(|(name, before)| self.told(name) != Some(*before))
    }

    /// Whether one of those that changed without a statement to show why is still another than before, now that the
    /// transaction has ended, and the session has not set it, either: the configuration has been reloaded.
    pub fn take_reload(&mut self, profile: &Profile) -> bool {
        if self.unexplained.is_empty() {
            return false;
        }
        let unexplained = std::mem::take(&mut self.unexplained);
        let differs = |(name, before): (&String, &String)| {
            self.get(name) != Some(before) && profile.get(&name.to_ascii_lowercase()).is_none()
        };
        unexplained.iter().any(differs)
    }
}

/// Names and values as ParameterStatus messages.
pub fn parameter_statuses<'a>(parameters: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    for (name, value) in parameters {
        message::put_parameter_status(&mut out, name, value);
    }
    out
}

/// The value of a parameter in messages as [`parameter_statuses`] gives them.
pub fn value_in_messages<'a>(mut messages: &'a [u8], name: &str) -> Option<&'a str> {
    while !messages.is_empty()
        && let Ok(Frame::Message { total, here, .. }) = Framer::default().next(messages)
        && here == total
    {
        let (message, rest) = messages.split_at(total);
        if let Ok((told, value)) = message::read_parameter_status(&message[5..])
            && told == name
        {
            return Some(value);
        }
        messages = rest;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_counted_by_their_encoding() {
        for (client, server, text, expected) in [
            ("SJIS", "UTF8", &b"abc"[..], Some(3)),
            ("UTF8", "UTF8", "é€".as_bytes(), Some(2)),
            ("UTF8", "UTF8", b"\xe9", None),
            ("LATIN1", "UTF8", b"\xe9\xe9", Some(2)),
            ("SQL_ASCII", "UTF8", "é€".as_bytes(), Some(2)),
            ("SQL_ASCII", "WIN1252", b"\xe9\xe9", Some(2)),
            ("UTF8", "SQL_ASCII", "é€".as_bytes(), Some(5)),
            ("SJIS", "UTF8", b"\x95\x5c", None),
        ] {
            let mut parameters = Parameters::default();
            parameters.set("client_encoding", client);
            parameters.set("server_encoding", server);
            assert_eq!(parameters.count_characters(text), expected, "{client}, {server}");
        }
    }
}
