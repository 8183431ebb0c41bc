//! The values that Patroni takes from its dynamic configuration (its documentation, "Dynamic Configuration Settings"). What
//! it would not take it drops or adjusts in silence, up to synchronous replication itself: it is refused here, before
//! anything is written.

use anyhow::{Result, bail};
use serde_json::{Value, json};
use sluice_instance::cluster::STANDBYS_REQUIRED;
use sluice_units::{Dimension, Quantity};

use super::parameters::not_accepted;

/// The kind of a setting's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A whole number, at least so large.
    Number(i64),
    /// A whole number of seconds, or a time with its unit.
    Seconds,
    /// A size in whole megabytes, or with its unit, at least so large.
    Megabytes(i64),
    Switch,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Always on.
    On,
    /// `on`, `off` or `quorum`.
    Synchronous,
    /// A JSON object, or a list of them.
    Objects,
    /// Anything.
    Any,
}

/// The settings of Patroni's own, by their whole names.
const PATRONIS: [(&str, Kind); 21] = [
    ("check_timeline", Kind::Switch),
    ("failsafe_mode", Kind::Switch),
    ("ignore_slots", Kind::Objects),
    ("loop_wait", Kind::Number(1)),
    ("max_timelines_history", Kind::Number(0)),
    ("maximum_lag_on_failover", Kind::Number(0)),
    ("maximum_lag_on_syncnode", Kind::Number(-1)),
    ("member_slots_ttl", Kind::Seconds),
    ("postgresql.pg_ctl_timeout", Kind::Number(0)),
    ("postgresql.remove_data_directory_on_diverged_timelines", Kind::Switch),
    ("postgresql.remove_data_directory_on_rewind_failure", Kind::Switch),
    ("postgresql.use_pg_rewind", Kind::Switch),
    ("postgresql.use_slots", Kind::Switch),
    ("primary_start_timeout", Kind::Number(0)),
    ("primary_stop_timeout", Kind::Number(0)),
    ("retry_timeout", Kind::Number(3)),
    ("slots", Kind::Objects),
    ("synchronous_mode", Kind::Synchronous),
    ("synchronous_mode_strict", Kind::Switch),
    ("synchronous_node_count", Kind::Number(1)),
    ("ttl", Kind::Number(20)),
];

/// Those with names below them that are not all known here.
const GROUPS: [&str; 4] = ["postgresql", "standby_cluster", "slots", "ignore_slots"];

/// What Patroni takes from each node's own file only, and leaves out of what they share.
const EACH_NODES: [&str; 9] = [
    "connect_address",
    "proxy_address",
    "listen",
    "bin_dir",
    "bin_name",
    "config_dir",
    "data_dir",
    "pgpass",
    "authentication",
];

/// The rules and maps of log-ins. Patroni replaces a node's file by them, and nothing brings back what was in it: the
/// lines by which the pool, Patroni and the standbys log in are among that.
const RULES: [&str; 2] = ["pg_hba", "pg_ident"];

/// Settings of PostgreSQL's that Patroni makes itself, by which node follows which.
const FOLLOWING: [&str; 9] = [
    "archive_cleanup_command",
    "hba_file",
    "ident_file",
    "primary_conninfo",
    "primary_slot_name",
    "promote_trigger_file",
    "recovery_end_command",
    "recovery_min_apply_delay",
    "restore_command",
];

/// Settings of PostgreSQL that Patroni gives on the command line, if their values are of these kinds; else its own default.
const POSTGRESQLS: [(&str, Kind); 12] = [
    ("hot_standby", Kind::On),
    ("max_connections", Kind::Number(25)),
    ("max_locks_per_transaction", Kind::Number(32)),
    ("max_prepared_transactions", Kind::Number(0)),
    ("max_replication_slots", Kind::Number(4)),
    ("max_wal_senders", Kind::Number(3)),
    ("max_worker_processes", Kind::Number(2)),
    ("track_commit_timestamp", Kind::Switch),
    ("wal_keep_segments", Kind::Number(1)),
    ("wal_keep_size", Kind::Megabytes(16)),
    ("wal_level", Kind::Word(&["hot_standby", "replica", "logical"])),
    ("wal_log_hints", Kind::Switch),
];

/// The timing that Patroni begins with where nothing is set, in seconds.
const TIMING: [(&str, i64); 3] = [("ttl", 30), ("loop_wait", 10), ("retry_timeout", 10)];

/// A value of one of Patroni's own settings, as it is written; `None` removes the setting.
pub(super) fn of_patroni(path: &[&str], value: Option<&str>) -> Result<Value> {
    let name = path.join(".");
    if let ["postgresql", local, ..] = path
        && EACH_NODES.contains(local)
    {
        bail!(
            "{name}: Patroni takes postgresql.{local} from each node's own patroni.yml only\nset it there, and have that \
             Patroni read it again (patronictl reload)"
        );
    }
    if let ["postgresql", rules, ..] = path
        && RULES.contains(rules)
        && value.is_some()
    {
        bail!(
            "{name} would take the place of each node's own file, with the lines by which the pool and the standbys log in\n\
             change the nodes' {rules}.conf themselves, or postgresql.{rules} in their files; where a cluster is meant that \
             Sluice does not keep, patronictl edit-config sets it"
        );
    }
    if let ["standby_cluster", ..] = path
        && value.is_some()
    {
        bail!(
            "{name} would make all of this cluster a standby of another one, and end all writes\nwhere that is meant, \
             patronictl edit-config sets it; sluice cluster config set standby_cluster= ends it"
        );
    }
    if matches!(path, ["postgresql"] | ["postgresql", "parameters"]) {
        bail!(
            "{name} has settings below it, and is not set or removed as a whole\nname one, as in postgresql.parameters.work_mem"
        );
    }
    let kind = PATRONIS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    let below = match path {
        ["slots", _] => Some(Kind::Objects),
        [group] if *group == "standby_cluster" => Some(Kind::Any),
        [group, _, ..] if GROUPS.contains(group) => Some(Kind::Any),
        _ => None,
    };
    let kind = kind.or(below);
    let Some(kind) = kind else {
        let written = value.unwrap_or_default();
        bail!(
            "{name:?} is no setting of Patroni's\none of PostgreSQL's is written postgresql.parameters.{name}={written}"
        );
    };
    match value {
        None if kind == Kind::Synchronous => bail!(
            "{name} without a value would end synchronous replication\nsynchronous_mode=off does that, if it is meant; else \
             synchronous_mode=quorum or synchronous_mode=on"
        ),
        None => Ok(Value::Null),
        Some(value) => kind.read(&name, value),
    }
}

/// A value of one of PostgreSQL's settings, as it is written; `None` removes the setting.
pub(super) fn of_postgresql(name: &str, value: Option<&str>) -> Result<Value> {
    let lower = name.to_ascii_lowercase();
    match &*lower {
        "listen_addresses" | "port" => bail!(
            "{name} is each node's own, and Patroni does not take it from what all nodes share: it is postgresql.listen in a \
             node's patroni.yml\nof sluice up, cluster.json has the ports; of sluice node, node.toml has address and ports"
        ),
        "cluster_name" => bail!("{name} is Patroni's to set: it is the cluster's scope, in each node's patroni.yml"),
        "synchronous_standby_names" => bail!(
            "{name} is Patroni's to set, by which standbys are there\nsynchronous_mode and synchronous_node_count say what it is \
             to be"
        ),
        _ => {}
    }
    if FOLLOWING.contains(&&*lower) || lower.starts_with("recovery_target") {
        bail!("{name} is Patroni's to set, and not taken from what all nodes share\nits documentation says by what");
    }
    let is_name = |name: &str| {
        let mut bytes = name.bytes();
        bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.'))
    };
    if !is_name(name) {
        bail!("{name:?} is no setting's name: letters, digits and underscores");
    }
    let Some(value) = value else { return Ok(Value::Null) };
    if let Some(control) = value.chars().find(|character| character.is_control() && *character != '\t') {
        bail!(
            "{name}: the value has the character {control:?} in it, which PostgreSQL can't read in its configuration file: it \
             would refuse all other settings with it\nwrite it on one line"
        );
    }
    let known = POSTGRESQLS.iter().find(|(known, _)| *known == lower);
    match known {
        // It is written as it was said, which is PostgreSQL's own way.
        Some((_, kind)) => kind.read(name, value.trim()).map(|_| plain(value.trim())),
        None => Ok(as_written(value)),
    }
}

/// A value of PostgreSQL's: its own way to read it is another one than JSON's, by which `1.10` would be 1.1.
fn as_written(value: &str) -> Value {
    match value.trim().parse::<i64>() {
        Ok(number) if number.to_string() == value.trim() => number.into(),
        _ => Value::String(value.to_owned()),
    }
}

/// The value of [`STANDBYS_REQUIRED`] that goes with a change: whether commits need standbys is said in two places, one
/// for Patroni and one for PostgreSQL, which may not hear of the other. Only where it has been said there.
pub(super) fn requirement(now: &Value, change: &Value) -> Option<&'static str> {
    let said = |name: &str| change.get(name).or_else(|| now.get(name)).cloned().unwrap_or_default();
    let is_said = ["synchronous_mode", "synchronous_mode_strict"].iter().any(|name| change.get(name).is_some());
    let needed = is_on(&said("synchronous_mode")) && is_on(&said("synchronous_mode_strict"));
    let before = &now["postgresql"]["parameters"][STANDBYS_REQUIRED];
    let is_known = !before.is_null();
    let becomes = if needed { "on" } else { "off" };
    let is_said_itself = !change["postgresql"]["parameters"][STANDBYS_REQUIRED].is_null();
    (is_said && is_known && !is_said_itself && *before != becomes).then_some(becomes)
}

/// Whether one of Patroni's switches is on, by any of its words: `config` writes none for off.
pub(super) fn is_on(value: &Value) -> bool {
    *value == json!(true) || value.is_string()
}

/// Sees that the lease allows for the retries, in the settings that a change leaves. Patroni makes others of them else.
pub(super) fn check_timing(now: &Value, change: &Value) -> Result<()> {
    if !TIMING.iter().any(|(name, _)| change.get(name).is_some()) {
        return Ok(());
    }
    let [ttl, loop_wait, retry_timeout] = TIMING.map(|(name, default)| {
        let said = change.get(name).map_or_else(|| now.get(name), Some);
        said.and_then(Value::as_i64).unwrap_or(default)
    });
    let needed = 2i64.saturating_mul(retry_timeout).saturating_add(loop_wait);
    if needed > ttl {
        bail!(
            "ttl={ttl} is too short for loop_wait={loop_wait} and retry_timeout={retry_timeout}: it has to be at least \
             loop_wait + 2 * retry_timeout, which is {needed}\nset them together, as in ttl={needed} loop_wait={loop_wait} \
             retry_timeout={retry_timeout}"
        );
    }
    Ok(())
}

/// Sees that slots are what Patroni makes, in the settings that a change leaves. What it can't make it leaves out, and
/// says so in its own log only.
pub(super) fn check_slots(now: &Value, change: &Value) -> Result<()> {
    let Some(changed) = change.get("slots").and_then(Value::as_object) else { return Ok(()) };
    let level = "/postgresql/parameters/wal_level";
    let level = change.pointer(level).or_else(|| now.pointer(level)).and_then(Value::as_str).unwrap_or("replica");
    for (name, changed) in changed.iter().filter(|(_, changed)| !changed.is_null()) {
        let is_name = (1..=63).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        if !is_name {
            bail!("slots.{name}: a slot's name is of lower-case letters, digits and underscores, 63 at most");
        }
        let said = |key: &str| {
            let value = changed.get(key).or_else(|| now["slots"][name].get(key));
            value.filter(|value| !value.is_null()).map(|value| value.as_str().unwrap_or_default())
        };
        let example = format!(
            "slots.{name}.type=logical slots.{name}.database=app slots.{name}.plugin=sluice, or slots.{name}.type=physical"
        );
        match said("type") {
            Some("physical") => continue,
            Some("logical") => {}
            Some(other) => bail!("slots.{name}.type={other} is not a value that Patroni accepts\nwrite {example}"),
            None => bail!("slots.{name} has no type\nwrite {example}"),
        }
        if let Some(missing) = ["database", "plugin"].into_iter().find(|key| said(key).is_none_or(str::is_empty)) {
            bail!("slots.{name} has no {missing}, which a logical slot needs\nwrite {example}");
        }
        if level != "logical" {
            bail!(
                "slots.{name} is a logical slot, and wal_level is {level}\nset postgresql.parameters.wal_level=logical first, \
                 and restart all nodes: sluice cluster restart --pending"
            );
        }
    }
    Ok(())
}

/// The promises that a change gives up, in words.
pub(super) fn given_up(change: &Value) -> Vec<&'static str> {
    const OWN: &str = "sluice";
    let is_off = |name: &str| change.get(name).is_some_and(|value| *value == json!(false) || value.is_null());
    let mut all = Vec::new();
    if is_off("synchronous_mode") {
        all.push(
            "commits no longer wait for a standby: when the primary is lost, commits that were acknowledged may be lost \
             (synchronous_mode=quorum has them wait again)",
        );
    }
    if is_off("synchronous_mode_strict") {
        all.push(
            "commits no longer wait while no standby is there: what is acknowledged then is on the primary only \
             (synchronous_mode_strict=on has them wait again)",
        );
    }
    let commit = change.pointer("/postgresql/parameters/synchronous_commit").and_then(Value::as_str);
    if commit.is_some_and(|value| matches!(&*value.to_ascii_lowercase(), "off" | "local" | "false" | "no" | "0")) {
        all.push(
            "commits no longer wait for a standby, unless a role, a database or a session says otherwise: when the primary is \
             lost, commits that were acknowledged may be lost (postgresql.parameters.synchronous_commit=on has them wait again)",
        );
    }
    let mut slots = change.get("slots").and_then(Value::as_object).into_iter().flat_map(|slots| slots.values());
    if slots.any(|slot| slot.get("plugin").and_then(Value::as_str).is_some_and(|plugin| plugin != OWN)) {
        all.push(
            "an output plugin other than sluice sends what is on the primary's disk, be it nowhere else: a subscriber may have \
             rows then that a failover has undone, and lack others (plugin=sluice sends what a standby has)",
        );
    }
    all
}

impl Kind {
    /// The values that it allows, in words.
    fn allows(self) -> String {
        match self {
            Self::Number(least) => format!("a whole number, {least} or more"),
            Self::Seconds => "a time: a whole number of seconds, or with a unit, as in 30min".to_owned(),
            Self::Megabytes(least) => format!("a size of {least}MB or more: in megabytes, or with a unit"),
            Self::Switch => "on or off".to_owned(),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::On => "on: a standby that nobody can ask would not be known to Patroni".to_owned(),
            Self::Synchronous => {
                "quorum (a commit waits for any of the standbys), on (for one that is chosen) or off (for none)"
                    .to_owned()
            }
            Self::Objects => r#"JSON, as Patroni's documentation has it: slots.app={"type": "physical"}"#.to_owned(),
            Self::Any => "anything".to_owned(),
        }
    }

    fn read(self, name: &str, value: &str) -> Result<Value> {
        let number = || value.parse::<i64>().ok();
        let word = value.to_ascii_lowercase();
        let read = match self {
            Self::Number(least) => number().filter(|number| *number >= least).map(Value::from),
            Self::Seconds => match Quantity::with_unit(value, Dimension::Time) {
                Some(time) if time.amount >= 0.0 => Some(plain(value)),
                _ => number().filter(|number| *number >= 0).map(Value::from),
            },
            Self::Megabytes(least) => {
                const MEGABYTE: f64 = 1024.0 * 1024.0;
                let bytes = Quantity::with_unit(value, Dimension::Bytes).map(|size| size.amount);
                let bytes = bytes.or_else(|| number().map(|number| number as f64 * MEGABYTE));
                bytes.filter(|bytes| *bytes >= least as f64 * MEGABYTE).map(|_| plain(value))
            }
            Self::Switch => switch(&word).map(Value::from),
            Self::Word(words) => words.contains(&&*word).then(|| plain(value)),
            Self::On => switch(&word).filter(|is_on| *is_on).map(Value::from),
            Self::Synchronous if word == "quorum" => Some(json!("quorum")),
            // Plainly: what it gives up is not to be had by a number.
            Self::Synchronous if matches!(&*word, "0" | "1") => None,
            Self::Synchronous => switch(&word).map(Value::from),
            Self::Objects => Some(plain(value)).filter(|value| value.is_object() || value.is_array()),
            Self::Any => Some(plain(value)),
        };
        match read {
            Some(value) => Ok(value),
            None => Err(not_accepted(name, value, &self.allows(), |meant| self.read(name, meant).is_ok())),
        }
    }
}

/// Patroni's words for true and false (`parse_bool`).
fn switch(word: &str) -> Option<bool> {
    match word {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// A value as JSON: a number, true or false, a text.
fn plain(value: &str) -> Value {
    // PostgreSQL's on and off mean nothing to Patroni but as texts, which its parameters are.
    serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_what_patroni_makes() {
        let logical = json!({ "postgresql": { "parameters": { "wal_level": "logical" } } });
        let app = json!({ "type": "logical", "database": "app", "plugin": "sluice" });
        let now = json!({ "slots": { "app": app }, "postgresql": logical["postgresql"] });
        for (now, slots, problem) in [
            (&logical, json!({ "app": app }), None),
            (&logical, json!({ "app": { "type": "physical" } }), None),
            (&now, json!({ "app": { "plugin": "pgoutput" } }), None),
            (&now, json!({ "app": null }), None),
            (&now, json!({ "app": { "plugin": null } }), Some("slots.app has no plugin")),
            (&logical, json!({ "app": {} }), Some("slots.app has no type")),
            (&logical, json!({ "app": { "type": "other" } }), Some("slots.app.type=other is not a value")),
            (&logical, json!({ "app": { "type": "logical", "plugin": "sluice" } }), Some("slots.app has no database")),
            (&logical, json!({ "App": app }), Some("slots.App: a slot's name")),
            (&json!({}), json!({ "app": app }), Some("wal_level is replica")),
        ] {
            let found = check_slots(now, &json!({ "slots": slots })).map_err(|error| error.to_string());
            match problem {
                None => assert_eq!(found, Ok(()), "{slots}"),
                Some(problem) => assert!(
                    found.clone().unwrap_err().starts_with("slots.") && found.unwrap_err().contains(problem),
                    "{slots}"
                ),
            }
        }
        // Both in one change: the restart is what is said then.
        assert!(
            check_slots(&json!({}), &json!({ "slots": { "app": app }, "postgresql": logical["postgresql"] })).is_ok()
        );
    }

    #[test]
    fn values_are_read_by_their_kinds() {
        for (name, value, expected) in [
            ("ttl", "30", json!(30)),
            ("synchronous_mode", "quorum", json!("quorum")),
            ("synchronous_mode", "on", json!(true)),
            ("synchronous_mode", "off", json!(false)),
            ("failsafe_mode", "true", json!(true)),
            ("maximum_lag_on_syncnode", "-1", json!(-1)),
            ("member_slots_ttl", "30min", json!("30min")),
            ("member_slots_ttl", "1800", json!(1800)),
            ("postgresql.use_slots", "off", json!(false)),
            ("slots.audit.type", "physical", json!("physical")),
            ("slots.audit", r#"{"type": "physical"}"#, json!({ "type": "physical" })),
            ("ignore_slots", r#"[{"name": "a"}]"#, json!([{ "name": "a" }])),
        ] {
            let path: Vec<_> = name.split('.').collect();
            assert_eq!(of_patroni(&path, Some(value)).unwrap(), expected, "{name}={value}");
        }
        for (name, value, expected) in [
            ("work_mem", "64MB", json!("64MB")),
            ("max_connections", "200", json!(200)),
            ("wal_keep_size", "1GB", json!("1GB")),
            ("wal_level", "logical", json!("logical")),
            ("track_commit_timestamp", "on", json!("on")),
            // As PostgreSQL would read them.
            ("log_line_prefix", "%m [%p] ", json!("%m [%p] ")),
            ("search_path", "\"Bank\"", json!("\"Bank\"")),
            ("app.version", "1.10", json!("1.10")),
            ("geqo", "true", json!("true")),
        ] {
            assert_eq!(of_postgresql(name, Some(value)).unwrap(), expected, "{name}={value}");
        }
        assert_eq!(of_patroni(&["ttl"], None).unwrap(), Value::Null);
        assert_eq!(of_postgresql("work_mem", None).unwrap(), Value::Null);
    }

    #[test]
    fn what_patroni_would_drop_or_adjust_is_refused() {
        for (name, value, said) in [
            ("synchronous_mode", Some("banana"), "allowed is quorum"),
            ("synchronous_mode", Some("0"), "allowed is quorum"),
            ("synchronous_mode", None, "synchronous_mode=off does that"),
            ("ttl", Some("abc"), "allowed is a whole number, 20 or more"),
            ("ttl", Some("5"), "20 or more"),
            ("ttl", Some("20.5"), "20 or more"),
            ("loop_wait", Some("0"), "1 or more"),
            ("retry_timeout", Some("2"), "3 or more"),
            ("synchronous_node_count", Some("0"), "1 or more"),
            ("failsafe_mode", Some("maybe"), "allowed is on or off"),
            ("member_slots_ttl", Some("-1"), "a time"),
            ("postgresql", None, "name one"),
            ("postgresql.parameters", Some("{}"), "name one"),
            ("postgresql.listen", Some("*:5432"), "each node's own patroni.yml"),
            ("postgresql.bin_dir", Some("/bin"), "each node's own patroni.yml"),
            ("postgresql.pg_hba", Some(r#"["local all all trust"]"#), "the lines by which the pool"),
            ("standby_cluster.host", Some("other"), "end all writes"),
            ("standby_cluster", Some("{}"), "end all writes"),
            ("slots.a", Some("1"), "allowed is JSON"),
            ("ignore_slots", Some("x"), "allowed is JSON"),
            ("work_mem", Some("64MB"), "is written postgresql.parameters.work_mem=64MB"),
        ] {
            let path: Vec<_> = name.split('.').collect();
            let error = of_patroni(&path, value).unwrap_err().to_string();
            assert!(error.contains(said), "{name}={value:?}: {error}");
        }
        for (name, value, said) in [
            ("listen_addresses", Some("*"), "postgresql.listen"),
            ("PORT", None, "cluster.json"),
            ("synchronous_standby_names", Some("*"), "synchronous_node_count"),
            ("hot_standby", Some("off"), "allowed is on"),
            ("max_connections", Some("10"), "25 or more"),
            ("wal_keep_size", Some("1MB"), "16MB or more"),
            ("wal_level", Some("minimal"), "one of hot_standby, replica, logical"),
            ("log_line_prefix", Some("a\nb"), "write it on one line"),
            ("primary_conninfo", Some("host=a"), "Patroni's to set"),
            ("work mem", Some("1"), "no setting's name"),
        ] {
            let error = of_postgresql(name, value).unwrap_err().to_string();
            assert!(error.contains(said), "{name}={value:?}: {error}");
        }
    }

    #[test]
    fn the_lease_allows_for_the_retries() {
        let now = json!({ "ttl": 20, "loop_wait": 2, "retry_timeout": 8 });
        for change in [json!({ "ttl": 17 }), json!({ "loop_wait": 10 }), json!({ "retry_timeout": 10 })] {
            assert!(check_timing(&now, &change).is_err(), "{change}");
        }
        let error = check_timing(&now, &json!({ "loop_wait": 10 })).unwrap_err().to_string();
        assert!(error.contains("which is 26") && error.contains("ttl=26"), "{error}");
        for change in
            [json!({ "ttl": 30, "loop_wait": 10 }), json!({ "loop_wait": 4 }), json!({ "failsafe_mode": true })]
        {
            check_timing(&now, &change).unwrap();
        }
        // Removed, it is Patroni's default.
        assert!(check_timing(&now, &json!({ "loop_wait": null })).is_err());
        check_timing(&json!({ "loop_wait": 60 }), &json!({ "failsafe_mode": true })).unwrap();
    }

    #[test]
    fn postgresql_is_told_whether_standbys_are_required() {
        let now = |mode: Value, strict: bool, required: Value| {
            json!({ "synchronous_mode": mode, "synchronous_mode_strict": strict,
                "postgresql": { "parameters": { (STANDBYS_REQUIRED): required } } })
        };
        let becomes = |now: &Value, change: Value| requirement(now, &change);
        let kept = now(json!("quorum"), true, json!("on"));
        assert_eq!(becomes(&kept, json!({ "synchronous_mode": false })), Some("off"));
        assert_eq!(becomes(&kept, json!({ "synchronous_mode_strict": null })), Some("off"));
        assert_eq!(becomes(&kept, json!({ "synchronous_mode": true })), None);
        assert_eq!(becomes(&kept, json!({ "ttl": 30 })), None);
        let given_up = now(json!(false), true, json!("off"));
        assert_eq!(becomes(&given_up, json!({ "synchronous_mode": "quorum" })), Some("on"));
        // That of a cluster without the extension is left alone.
        assert_eq!(becomes(&now(json!("quorum"), true, json!(null)), json!({ "synchronous_mode": false })), None);
    }

    #[test]
    fn what_is_given_up_is_said() {
        assert_eq!(given_up(&json!({ "synchronous_mode": "quorum", "synchronous_mode_strict": true })).len(), 0);
        assert!(given_up(&json!({ "synchronous_mode": false }))[0].contains("may be lost"));
        for (value, count) in [("local", 1), ("off", 1), ("on", 0), ("remote_write", 0)] {
            let change = json!({ "postgresql": { "parameters": { "synchronous_commit": value } } });
            assert_eq!(given_up(&change).len(), count, "{value}");
        }
        for off in [json!(false), json!(null)] {
            assert!(given_up(&json!({ "synchronous_mode_strict": off }))[0].contains("on the primary only"));
        }
    }
}
