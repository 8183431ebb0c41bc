//! The parameters that a client is to hear of ahead of its next ReadyForQuery: it is there that PostgreSQL reports them,
//! each with its last value, and those alone that are not what it reported last. What ends there may be several batches
//! to the servers, or have come from several of them.

use std::collections::BTreeMap;

use sluice_wire::message;

/// What one client is to hear of.
#[derive(Debug, Default)]
pub struct Reports(BTreeMap<String, Report>);

#[derive(Debug)]
struct Report {
    /// What the client knows, if that is known.
    known: Option<String>,
    value: String,
}

impl Reports {
    /// A client that knows that of a parameter is to hear of its value. What it is to hear of already, it does not know.
    pub fn put_off(&mut self, name: &str, known: Option<&str>, value: &str) {
        let new = || Report { known: known.map(str::to_owned), value: String::new() };
        value.clone_into(&mut self.0.entry(name.to_owned()).or_insert_with(new).value);
    }

    /// Whether that one is among them.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// All that are news, as ParameterStatus messages: the client knows them from now on.
    pub fn take(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, Report { known, value }) in std::mem::take(&mut self.0) {
            if known.as_ref() != Some(&value) {
                message::put_parameter_status(&mut out, &name, &value);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_is_reported_where_it_is_news() {
        let mut reports = Reports::default();
        reports.put_off("TimeZone", Some("UTC"), "Asia/Tokyo");
        reports.put_off("DateStyle", Some("ISO"), "German");
        reports.put_off("application_name", None, "a");
        assert!(reports.has("TimeZone") && !reports.has("IntervalStyle"));
        reports.put_off("TimeZone", Some("Asia/Tokyo"), "UTC");
        reports.put_off("DateStyle", Some("German"), "SQL");
        let mut expected = Vec::new();
        message::put_parameter_status(&mut expected, "DateStyle", "SQL");
        message::put_parameter_status(&mut expected, "application_name", "a");
        assert_eq!(reports.take(), expected);
        assert!(reports.take().is_empty());
    }
}
