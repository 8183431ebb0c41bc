//! PostgreSQL's own settings as Patroni checks them: a name that PostgreSQL does not have and a value that can't be read it
//! leaves out, a number out of its range it adjusts, and says so in each node's log only. They are refused here.

use std::fmt;

use anyhow::{Result, anyhow, bail};
use sluice_instance::cluster::TypeTold;
use sluice_units::{Quantity, Unit, respelled};

/// A setting a line; the file's head says what is in it.
const TABLE: &str = include_str!("parameters.txt");

/// The newest PostgreSQL that the table knows. A newer one may have settings that it lacks.
const NEWEST: u32 = 18;

/// The type of a setting's values.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Type<'a> {
    Bool,
    /// A whole number or any, in a unit.
    Number {
        is_whole: bool,
        least: &'a str,
        largest: &'a str,
        unit: &'a str,
    },
    /// One of these words, with commas between them; perhaps also on and off.
    Enum {
        words: &'a str,
        is_bool: bool,
    },
    Text,
}

/// A line of the table.
struct Line<'a> {
    name: &'a str,
    first: u32,
    till: Option<u32>,
    values: Type<'a>,
}

fn line(text: &str) -> Option<Line<'_>> {
    // An enum's words have spaces in them.
    let mut parts = text.splitn(5, ' ');
    let (name, kind, first, till) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let more = parts.next().unwrap_or_default();
    let values = match (kind, more) {
        ("bool", "") => Type::Bool,
        ("string", "") => Type::Text,
        ("integer" | "real", more) => {
            let (least, (largest, unit)) = more.split_once(' ').and_then(|(a, b)| Some((a, b.split_once(' ')?)))?;
            Type::Number { is_whole: kind == "integer", least, largest, unit: if unit == "-" { "" } else { unit } }
        }
        ("enum" | "enumbool", words) if !words.is_empty() => Type::Enum { words, is_bool: kind == "enumbool" },
        _ => return None,
    };
    Some(Line { name, first: first.parse().ok()?, till: till.parse().ok(), values })
}

/// The error for a value that Patroni would drop or adjust. It names the value that is meant, where only its unit is
/// spelled in another case.
pub(super) fn not_accepted(
    name: &str,
    value: &str,
    allowed: &dyn fmt::Display,
    takes: impl Fn(&str) -> bool,
) -> anyhow::Error {
    let meant = respelled(value).filter(|meant| takes(meant));
    let meant = meant.map_or_else(String::new, |meant| format!("; as a unit's case counts, write {meant}"));
    anyhow!("{name}={value} is not a value that Patroni accepts\nallowed is {allowed}{meant}")
}

/// Sees that Patroni gives a setting to a PostgreSQL of that version (150015 is 15.15) as it was said. Names with a dot are
/// extensions', which it knows nothing of.
pub(super) fn check(name: &str, value: &str, version: u32) -> Result<()> {
    let lower = name.to_ascii_lowercase();
    let major = version / 10_000;
    if lower.contains('.') {
        return Ok(());
    }
    let is_it =
        |line: &Line<'_>| line.name == lower && version >= line.first && line.till.is_none_or(|till| version < till);
    match TABLE.lines().filter_map(line).find(is_it) {
        Some(line) if line.values.takes(value.trim()) => Ok(()),
        Some(line) => Err(not_accepted(name, value, &line.values, |meant| line.values.takes(meant))),
        None if major > NEWEST => Ok(()),
        None => bail!(
            "{name} is no setting of PostgreSQL {major}: Patroni would leave it out\nan extension's setting is written \
             EXTENSION.NAME; if your PostgreSQL is a fork that has this setting, use patronictl edit-config"
        ),
    }
}

/// Sees that an extension's setting has a value of its type, as PostgreSQL tells that.
pub(super) fn check_told(name: &str, value: &str, told: &TypeTold) -> Result<()> {
    let TypeTold { vartype, unit, least, largest, words } = told;
    let is_switch = |word: &&str| matches!(*word, "on" | "off");
    let others = words.split(',').filter(|word| !is_switch(word)).collect::<Vec<_>>().join(",");
    let values = match &**vartype {
        "bool" => Type::Bool,
        "enum" => Type::Enum { words: &others, is_bool: words.split(',').filter(is_switch).count() == 2 },
        kind @ ("integer" | "real") => Type::Number { is_whole: kind == "integer", least, largest, unit },
        _ => return Ok(()),
    };
    if values.takes(value.trim()) {
        return Ok(());
    }
    bail!("{name}={value} is not a value that PostgreSQL accepts\nallowed is {values}")
}

impl Type<'_> {
    fn takes(self, value: &str) -> bool {
        match self {
            Self::Text => true,
            Self::Bool => is_switch(value),
            Self::Enum { words, is_bool } => {
                is_bool && is_switch(value) || words.split(',').any(|word| word.eq_ignore_ascii_case(value))
            }
            Self::Number { is_whole, least, largest, unit } => {
                let amount = amount(value, unit).map(|amount| if is_whole { amount.round() } else { amount });
                let bound = |text: &str| text.parse::<f64>().ok();
                amount
                    .zip(bound(least).zip(bound(largest)))
                    .is_some_and(|(amount, (least, largest))| (least..=largest).contains(&amount))
            }
        }
    }
}

/// Patroni's words for true and false; PostgreSQL would take more of them.
fn is_switch(value: &str) -> bool {
    ["on", "off", "true", "false", "yes", "no", "1", "0"].iter().any(|word| word.eq_ignore_ascii_case(value))
}

/// A number in a setting's unit. One with a unit of its own is of the same dimension.
fn amount(value: &str, unit: &str) -> Option<f64> {
    if let Some(digits) = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        return u32::from_str_radix(digits, 16).ok().map(f64::from);
    }
    if let Ok(number) = value.parse::<f64>() {
        return number.is_finite().then_some(number);
    }
    let end = value.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '-' | '+'))?;
    let (own, unit) = (Unit::parse(&value[end..])?, Unit::parse(unit)?);
    let is_of_it = own.dimension == unit.dimension && unit != Unit::PLAIN;
    value[..end].parse::<f64>().ok().filter(|_| is_of_it).map(|number| number * own.size / unit.size)
}

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("any text"),
            Self::Bool => f.write_str("on or off"),
            Self::Enum { words, is_bool } => {
                let switch = if *is_bool { "on, off, " } else { "" };
                write!(f, "one of {switch}{}", words.replace(',', ", "))
            }
            Self::Number { is_whole, least, largest, unit } => {
                let what = if *is_whole { "a whole number" } else { "a number" };
                let shown = |text: &str| match (text.parse(), Unit::parse(unit)) {
                    (Ok(number), Some(unit)) if unit != Unit::PLAIN => Quantity::new(number, unit).to_string(),
                    _ => text.to_owned(),
                };
                let (least, largest) = (shown(least), shown(largest));
                match *unit {
                    "" => write!(f, "{what} from {least} to {largest}"),
                    unit => write!(f, "{what} of {unit}, or one with its unit, from {least} to {largest}"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_whole() {
        let lines = || TABLE.lines().filter(|line| !line.starts_with('#'));
        assert!(lines().count() > 380);
        for text in lines() {
            let Some(line) = line(text) else { panic!("{text}") };
            if let Type::Number { least, largest, unit, .. } = line.values {
                assert!(least.parse::<f64>().unwrap() <= largest.parse::<f64>().unwrap(), "{text}");
                assert!(Unit::parse(unit).is_some(), "{text}");
            }
        }
    }

    #[test]
    fn what_patroni_gives_as_it_is() {
        for (name, value) in [
            ("shared_buffers", "128MB"),
            ("shared_buffers", "16384"),
            ("Work_Mem", "64 MB"),
            ("work_mem", "0x40"),
            ("checkpoint_timeout", "15min"),
            ("checkpoint_timeout", "0.5h"),
            ("log_min_duration_statement", "-1"),
            ("random_page_cost", "1.1"),
            ("autovacuum_vacuum_cost_delay", "2ms"),
            ("vacuum_cost_delay", "500us"),
            ("wal_compression", "lz4"),
            ("wal_compression", "on"),
            ("synchronous_commit", "Remote_Apply"),
            ("default_transaction_isolation", "repeatable read"),
            ("autovacuum", "off"),
            ("log_line_prefix", "%m "),
            ("auto_explain.log_min_duration", "anything"),
        ] {
            assert!(check(name, value, 150_015).is_ok(), "{name}={value}");
        }
        // A newer one's.
        assert!(check("nonsense", "3", 190_000).is_ok() && check("io_method", "worker", 180_000).is_ok());
    }

    #[test]
    fn an_extensions_setting_is_checked_by_its_type() {
        let told = |vartype: &str, more: [&str; 4]| {
            let [unit, least, largest, words] = more.map(str::to_owned);
            TypeTold { vartype: vartype.to_owned(), unit, least, largest, words }
        };
        let time = told("integer", ["ms", "0", "2147483647", ""]);
        let level = told("enum", ["", "", "", "off,local,on"]);
        for (value, told, said) in [
            ("5s", &time, None),
            ("5MB", &time, Some("a whole number of ms")),
            ("-1", &time, Some("from 0 to 2147483647ms")),
            ("local", &level, None),
            ("true", &level, None),
            ("bogus", &level, Some("allowed is one of on, off, local")),
            ("maybe", &told("bool", [""; 4]), Some("on or off")),
            ("anything", &told("string", [""; 4]), None),
        ] {
            let found = check_told("a.b", value, told).map_err(|error| error.to_string());
            match said {
                None => assert_eq!(found, Ok(()), "{value}"),
                Some(said) => assert!(found.as_ref().is_err_and(|it| it.contains(said)), "{value}: {found:?}"),
            }
        }
    }

    #[test]
    fn what_patroni_leaves_out_or_adjusts_is_refused() {
        for (name, value, said) in [
            ("shared_buffers", "-5", "from 128kB to 8589934584kB"),
            ("shared_buffers", "64kB", "a whole number of 8kB, or one with its unit, from 128kB"),
            ("work_mem", "64XB", "a whole number of kB"),
            ("work_mem", "64mb", "to 2147483647kB; as a unit's case counts, write 64MB"),
            ("work_mem", "64s", "a whole number of kB"),
            ("work_mem", "-5MB", "a whole number of kB"),
            ("max_parallel_workers", "4MB", "a whole number from 0 to 1024"),
            ("random_page_cost", "nan", "a number from 0"),
            ("autovacuum", "maybe", "allowed is on or off"),
            ("wal_compression", "zip", "one of on, off, pglz"),
            ("synchronous_commit", "sometimes", "remote_apply"),
            ("nonsense", "3", "no setting of PostgreSQL 15: Patroni would leave it out"),
            ("io_method", "worker", "no setting of PostgreSQL 15"),
        ] {
            let error = check(name, value, 150_015).unwrap_err().to_string();
            assert!(error.contains(said), "{name}={value}: {error}");
        }
    }
}
