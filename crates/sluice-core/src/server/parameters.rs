//! The parameters that a server reports (PostgreSQL documentation, 55.2.7).

use std::collections::{BTreeMap, BTreeSet};

use sluice_wire::message;

use crate::profile::Profile;

/// The parameters that a server has reported.
#[derive(Debug, Default)]
pub struct Parameters {
    values: BTreeMap<String, String>,
    /// Those that were reported while its client took them back to what it began with, by their lower-case names.
    taken_back: BTreeSet<String>,
    /// Those that have changed in this transaction though no statement shows why, with what they were before.
    unexplained: BTreeMap<String, String>,
}

impl Parameters {
    /// The value last reported.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether texts and names are in UTF-8, on their way and in the database.
    pub fn are_utf8(&self) -> bool {
        ["client_encoding", "server_encoding"].iter().all(|name| self.get(name) == Some("UTF8"))
    }

    /// It is reported to be that.
    pub fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }

    /// It has been reported in answer to a client that takes it back. The name is in lower case.
    pub fn took_back(&mut self, name: String) {
        self.taken_back.insert(name);
    }

    /// Those that have been, since the last call.
    pub fn take_taken_back(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.taken_back)
    }

    /// Notes that it is no longer what it was before; `None` if a statement accounts for that.
    pub fn changed(&mut self, name: &str, before: Option<String>) {
        match before {
            Some(before) => _ = self.unexplained.entry(name.to_owned()).or_insert(before),
            None => _ = self.unexplained.remove(name),
        }
    }

    /// Whether one of those that changed without a statement to show why is still another than before, now that the
    /// transaction has ended, and the session has not set it, either: the configuration has been reloaded.
    pub fn take_reload(&mut self, profile: &Profile) -> bool {
        let unexplained = std::mem::take(&mut self.unexplained);
        let differs = |(name, before): (&String, &String)| {
            self.get(name) != Some(before) && profile.get(&name.to_ascii_lowercase()).is_none()
        };
        unexplained.iter().any(differs)
    }

    /// As ParameterStatus messages.
    pub fn to_messages(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        for (name, value) in &self.values {
            message::put_parameter_status(&mut out, name, value);
        }
        out
    }
}
