//! A snapshot of a server's settings, wherever it comes from: the server, or a file.
//!
//! Only types and how values compare; nothing here judges a value.

use serde::Serialize;

use super::{evidence::Evidence, rule::SettingContext};
use sluice_units::{Dimension, Quantity, Unit};

/// The settings of one server at one time.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Their origin, for the report's head.
    pub origin: String,
    /// The server's version: `15.14`; empty if unknown.
    pub version: String,
    /// Its major version; 0 if unknown.
    pub major: u32,
    /// The settings, in no order.
    pub settings: Vec<Setting>,
    /// Evidence from its counters.
    pub evidence: Evidence,
    /// Notes that a reader of the report must know.
    pub notes: Vec<String>,
    /// Whether these are all settings that the server has: a file may hold a part.
    pub complete: bool,
}

/// One setting, as `pg_settings` has it. What a file lacks is empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value, without a unit.
    pub value: String,
    /// The value's unit.
    pub unit: String,
    /// The context, which tells when a change takes effect.
    pub context: Option<SettingContext>,
    /// The origin of the value: `default`, `configuration file`, `command line` …
    pub source: String,
    /// The file that set it, where the role may see that.
    pub source_file: String,
    /// The least value.
    pub min: Option<f64>,
    /// The greatest value.
    pub max: Option<f64>,
    /// The words that it takes, if it takes words only.
    pub words: Vec<String>,
    /// Whether a changed value waits for a restart.
    pub pending_restart: bool,
    /// Whether the value may have been cut where it ends.
    pub maybe_cut: bool,
    /// A reviewer's remark that stood beside it.
    pub remark: Option<String>,
}

/// The origin of a setting's value, as far as a script must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SetBy {
    /// `ALTER SYSTEM`.
    AlterSystem,
    /// The command line or the environment of the server, which wins over every file.
    CommandLine,
    /// A role, a database or the session itself, which wins over the file for this session.
    Session,
    /// A file, or nobody.
    Other,
}

impl Snapshot {
    /// A setting by its name.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.name == name)
    }

    /// A setting's number, in bytes, milliseconds or things.
    pub fn amount(&self, name: &str) -> Option<f64> {
        self.get(name)?.quantity().map(|quantity| quantity.amount)
    }
}

impl Setting {
    /// The unit; one that PostgreSQL does not have counts as none.
    pub fn unit(&self) -> Unit {
        Unit::parse(&self.unit).unwrap_or(Unit::PLAIN)
    }

    /// The value as a number, if it is one.
    pub fn quantity(&self) -> Option<Quantity> {
        Quantity::parse(&self.value, self.unit())
    }

    /// Whether the value is this one, which may have a unit of its own.
    pub fn is(&self, literal: &str) -> bool {
        if let (Some(own), Some(other)) = (self.quantity(), Quantity::parse(literal, self.unit())) {
            return own == other;
        }
        let (own, other) = (canonical(&self.value), canonical(literal));
        own == other || (self.maybe_cut && other.starts_with(&own))
    }

    /// The value as `SHOW` prints it; with an ellipsis where it may have been cut.
    pub fn display(&self) -> String {
        match self.quantity() {
            Some(quantity) if quantity.dimension != Dimension::Plain => quantity.to_string(),
            _ if self.maybe_cut => format!("{}…", self.value),
            _ => self.value.clone(),
        }
    }

    /// The origin of its value.
    pub fn set_by(&self) -> SetBy {
        match self.source.as_str() {
            "command line" | "environment variable" | "override" => SetBy::CommandLine,
            "client" | "session" | "user" | "database" | "database user" => SetBy::Session,
            _ if self.source_file.ends_with("postgresql.auto.conf") => SetBy::AlterSystem,
            _ => SetBy::Other,
        }
    }
}

/// A word without what makes no difference to PostgreSQL: case, and the spellings of yes and no.
fn canonical(word: &str) -> String {
    let word = word.trim().to_lowercase();
    match word.as_str() {
        "true" | "yes" => "on".to_owned(),
        "false" | "no" => "off".to_owned(),
        _ => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(value: &str, unit: &str) -> Setting {
        Setting { value: value.to_owned(), unit: unit.to_owned(), ..Setting::default() }
    }

    #[test]
    fn values_compare_as_postgresql_reads_them() {
        for (value, unit, literal, same) in [
            ("32768", "8kB", "256MB", true),
            ("32768", "8kB", "257MB", false),
            ("60", "s", "1min", true),
            ("0.9", "", "0.90", true),
            ("on", "", "TRUE", true),
            ("off", "", "on", false),
            ("replica", "", "Replica", true),
            ("", "", "", true),
            ("", "", "off", false),
        ] {
            assert_eq!(setting(value, unit).is(literal), same, "{value} {unit} {literal}");
        }
    }

    #[test]
    fn a_cut_value_may_be_any_that_begins_so() {
        let cut = Setting { maybe_cut: true, ..setting("read commi", "") };
        assert!(cut.is("read committed") && !cut.is("serializable"));
        assert_eq!(cut.display(), "read commi…");
    }
}
