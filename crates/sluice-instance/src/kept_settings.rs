//! The settings that all nodes of a cluster shared, while there is one node: etcd has forgotten them then, and the data may
//! not start without them (a logical slot wants its `wal_level`, a prepared transaction its place).
//!
//! The file holds what Patroni calls the dynamic configuration, but for what Sluice itself writes there. One node has its
//! parameters of PostgreSQL in `sluice.conf`, so that its own `postgresql.conf` wins; several nodes begin with all of it, in
//! etcd, and the file is gone. Nothing here talks to etcd.

use std::{collections::BTreeSet, fs, io, path::Path};

use serde_json::{Map, Value, json};

use crate::files::{self, Owner, if_there};

/// The file's name in the instance's directory.
const NAME: &str = "cluster-settings.json";

/// Patroni's own copy, in each node's data directory.
pub(crate) const PATRONIS: &str = "patroni.dynamic.json";

/// What Sluice gives each cluster by the number of its nodes, and a state that ends with a cluster.
const NOT_KEPT: [&str; 7] = [
    "loop_wait",
    "pause",
    "retry_timeout",
    "synchronous_mode",
    "synchronous_mode_strict",
    "synchronous_node_count",
    "ttl",
];

/// The same of PostgreSQL's parameters; and those by which a server is a node of a cluster.
const PARAMETERS_NOT_KEPT: [&str; 14] = [
    "cluster_name",
    "data_directory",
    "hba_file",
    "hot_standby",
    "ident_file",
    "listen_addresses",
    "max_connections",
    "port",
    "primary_conninfo",
    "primary_slot_name",
    "synchronous_standby_names",
    "unix_socket_directories",
    "wal_retrieve_retry_interval",
    "wal_sender_timeout",
];

/// The same for all that the extension requires of a cluster's primary.
const REQUIRED: &str = "sluice.synchronous_standbys_required";

/// The settings, as Patroni has them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct KeptSettings(Map<String, Value>);

impl KeptSettings {
    /// Those of an instance that was a cluster; none where there is no file.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        Ok(read(&root.join(NAME))?.map(Self).unwrap_or_default())
    }

    /// Those of a cluster, by the data of one of its nodes; `None` where Patroni has not been there yet.
    pub(crate) fn of_node(pgdata: &Path) -> io::Result<Option<Self>> {
        let Some(mut settings) = read(&pgdata.join(PATRONIS))? else { return Ok(None) };
        settings.retain(|name, _| !NOT_KEPT.contains(&&**name));
        if let Some(parameters) = parameters_mut(&mut settings) {
            let is_left = |name: &str| name == REQUIRED || PARAMETERS_NOT_KEPT.contains(&name);
            parameters.retain(|name, value| !value.is_null() && !is_left(&name.to_ascii_lowercase()));
        }
        Ok(Some(Self(settings)))
    }

    /// Keeps them in an instance's directory.
    pub(crate) fn write(&self, root: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(&self.0).map_err(io::Error::other)?;
        files::write_private(&root.join(NAME), format!("{text}\n").as_bytes(), Owner::Us)
    }

    /// Forgets them: a cluster has them now.
    pub(crate) fn remove(root: &Path) -> io::Result<()> {
        if_there(fs::remove_file(root.join(NAME))).map(drop)
    }

    /// The parameters of PostgreSQL, as lines of a configuration file.
    pub(crate) fn to_conf(&self) -> String {
        let Some(parameters) = self.0.get("postgresql").and_then(|it| it["parameters"].as_object()) else {
            return String::new();
        };
        let lines = parameters.iter().filter_map(|(name, value)| Some(format!("{name} = {}\n", quoted(value)?)));
        let lines: String = lines.collect();
        let head = "\n# Set for all nodes by sluice cluster config set, when there were several.\n";
        if lines.is_empty() { lines } else { format!("{head}{lines}") }
    }

    /// Those that a cluster begins with which grows out of one node: without what that node's own files have set since, and
    /// without slots that were dropped there.
    #[must_use]
    pub(crate) fn growing_from(mut self, pgdata: &Path) -> Self {
        let own = own_names(pgdata);
        if let Some(parameters) = parameters_mut(&mut self.0) {
            parameters.retain(|name, _| !own.contains(&name.to_ascii_lowercase()));
        }
        if let Some(slots) = self.0.get_mut("slots").and_then(Value::as_object_mut) {
            slots.retain(|name, _| pgdata.join("pg_replslot").join(name).is_dir());
        }
        self
    }

    /// Adds parameters of PostgreSQL.
    #[must_use]
    pub(crate) fn with_parameters(mut self, more: &[(&str, String)]) -> Self {
        if more.is_empty() {
            return self;
        }
        let parameters = more.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect::<Value>();
        let mut all = Value::Object(self.0);
        merge(&mut all, &json!({ "postgresql": { "parameters": parameters } }));
        self.0 = if let Value::Object(all) = all { all } else { Map::new() };
        self
    }

    /// A cluster's settings, with these below them.
    pub(crate) fn under(self, shared: &Value) -> Value {
        let mut all = Value::Object(self.0);
        merge(&mut all, shared);
        all
    }
}

fn read(path: &Path) -> io::Result<Option<Map<String, Value>>> {
    let text = if_there(fs::read_to_string(path))?;
    text.map(|text| serde_json::from_str(&text)).transpose().map_err(io::Error::other)
}

fn parameters_mut(settings: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
    settings.get_mut("postgresql")?.get_mut("parameters")?.as_object_mut()
}

/// A value as `postgresql.conf` takes it ("Parameter Names and Values" in PostgreSQL's documentation).
fn quoted(value: &Value) -> Option<String> {
    let text = match value {
        Value::Bool(value) => if *value { "on" } else { "off" }.to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return None,
    };
    let text = text.replace('\\', "\\\\").replace('\'', "''").replace('\n', "\\n").replace('\r', "\\r");
    Some(format!("'{text}'"))
}

/// The names that a server's own files set: below the line that includes Sluice's, and by `ALTER SYSTEM`.
fn own_names(pgdata: &Path) -> BTreeSet<String> {
    let text = |name: &str| fs::read_to_string(pgdata.join(name)).ok();
    let conf = text("postgresql.base.conf").or_else(|| text("postgresql.conf")).unwrap_or_default();
    let below = conf.rsplit_once("sluice.conf").map_or(&*conf, |(_, below)| below);
    let system = text("postgresql.auto.conf").unwrap_or_default();
    let name = |line: &str| {
        let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || "_.$".contains(c))).unwrap_or(line.len());
        line[..end].to_ascii_lowercase()
    };
    let all = below.lines().chain(system.lines()).map(|line| name(line.trim_start()));
    all.filter(|name| !name.is_empty()).collect()
}

fn merge(into: &mut Value, over: &Value) {
    match (into, over) {
        (Value::Object(into), Value::Object(over)) => {
            for (name, value) in over {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, over) => *into = over.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with what Patroni knew, and `own` below the line that includes Sluice's settings.
    fn place(own: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let patronis = json!({
            "ttl": 20, "pause": true, "synchronous_mode": "quorum", "failsafe_mode": true,
            "slots": { "warehouse": { "type": "logical", "database": "app", "plugin": "sluice" },
                       "gone": { "type": "logical", "database": "app", "plugin": "sluice" } },
            "postgresql": { "use_slots": true, "parameters": {
                "max_connections": 100, "wal_level": "logical", "work_mem": "64MB", "max_prepared_transactions": 50,
                "jit": false, "archive_command": "cp '%p' \\\\x\ny", "synchronous_standby_names": "*",
                REQUIRED: "on", "wal_sender_timeout": null,
            } },
        });
        fs::write(dir.path().join(PATRONIS), patronis.to_string()).unwrap();
        let conf = format!("work_mem = 1MB\ninclude_if_exists = 'sluice.conf'\n{own}");
        fs::write(dir.path().join("postgresql.conf"), conf).unwrap();
        fs::create_dir_all(dir.path().join("pg_replslot/warehouse")).unwrap();
        dir
    }

    #[test]
    fn one_node_has_the_parameters_of_several() {
        let place = place("");
        let kept = KeptSettings::of_node(place.path()).unwrap().unwrap();
        let expected = "
# Set for all nodes by sluice cluster config set, when there were several.
archive_command = 'cp ''%p'' \\\\\\\\x\\ny'
jit = 'off'
max_prepared_transactions = '50'
wal_level = 'logical'
work_mem = '64MB'
";
        assert_eq!(kept.to_conf(), expected);
        kept.write(place.path()).unwrap();
        assert_eq!(KeptSettings::read(place.path()).unwrap(), kept);
        KeptSettings::remove(place.path()).unwrap();
        KeptSettings::remove(place.path()).unwrap();
        assert_eq!(KeptSettings::read(place.path()).unwrap().to_conf(), "");
        fs::remove_file(place.path().join(PATRONIS)).unwrap();
        assert_eq!(KeptSettings::of_node(place.path()).unwrap(), None);
        fs::write(place.path().join(PATRONIS), "[").unwrap();
        assert!(KeptSettings::of_node(place.path()).is_err());
    }

    #[test]
    fn several_nodes_begin_with_what_one_has_not_changed() {
        let place = place("# jit = on\n Work_Mem=32MB\n");
        fs::write(place.path().join("postgresql.auto.conf"), "archive_command = 'true'\n").unwrap();
        let kept = KeptSettings::of_node(place.path()).unwrap().unwrap().growing_from(place.path());
        let kept = kept.with_parameters(&[("max_prepared_transactions", "70".to_owned())]);
        let shared = json!({ "ttl": 20, "postgresql": { "parameters": { "max_connections": 200 } } });
        let expected = json!({
            "ttl": 20, "failsafe_mode": true,
            "slots": { "warehouse": { "type": "logical", "database": "app", "plugin": "sluice" } },
            "postgresql": { "use_slots": true, "parameters": {
                "max_connections": 200, "wal_level": "logical", "max_prepared_transactions": "70", "jit": false,
            } },
        });
        assert_eq!(kept.under(&shared), expected);
        let nothing = KeptSettings::default().with_parameters(&[]).under(&shared);
        assert_eq!(nothing, shared);
        assert_eq!(
            KeptSettings::default().with_parameters(&[("a", "1".to_owned())]).to_conf().lines().last(),
            Some("a = '1'")
        );
    }
}
