//! A pool that has everything switched on, of which the measured clients use nothing: what features cost those who do not
//! need them.
//!
//! TLS is offered, and clients come without; rules and balancers are those of other networks; limits and times are too
//! high to be met. The server lacks the extension, so no address is told to it. What stands in `everything.toml` is held
//! against the reference by a test, so that a new key is switched on here as well, or has its reason below.

use toml_edit::{DocumentMut, Item, Table, value};

use crate::error::Error;

/// The keys that are switched on.
const KEYS: &str = include_str!("everything.toml");
/// The access rules.
const RULES: &str = include_str!("everything.hba");
/// A map that a rule names.
const MAPS: &str = "site root postgres\nsite /^(.*)@example\\.com$ \\1\n";
/// A user who is not looked up.
const USERS: &str = "\"reporter\" \"md5d41d8cd98f00b204e9800998ecf8427e\"\n";
/// The server does not know it: it lacks the extension.
const SECRET: &str = "a secret that no server has been told\n";

/// The files that the keys name, besides the certificate's.
pub(super) const FILES: [(&str, &str); 4] =
    [("pool_hba.conf", RULES), ("pool_ident.conf", MAPS), ("pool_users.txt", USERS), ("pool.secret", SECRET)];

/// The arguments of `sluice serve` that belong to it.
pub(super) const ARGUMENTS: [&str; 2] = ["--log-format", "json"];

/// A pool's file with everything switched on, and metrics told at that port.
pub(super) fn switched_on(file: &str, metrics_port: u16) -> Result<String, Error> {
    let read =
        |text: &str| text.parse::<DocumentMut>().map_err(|error| Error::Input(format!("a pool's file: {error}")));
    let (mut document, keys) = (read(file)?, read(KEYS)?);
    merge(document.as_table_mut(), keys.as_table());
    if let Some(auth) = document.get_mut("auth").and_then(Item::as_table_mut) {
        // The rules say it.
        auth.remove("method");
    }
    document["http_listen"] = value(toml_edit::Array::from_iter([format!("127.0.0.1:{metrics_port}")]));
    Ok(document.to_string())
}

/// Adds keys, in tables that may be there already; of several tables of one name, to the first.
fn merge(into: &mut Table, keys: &Table) {
    for (name, item) in keys {
        match (into.get_mut(name), item) {
            (Some(Item::Table(into)), Item::Table(keys)) => merge(into, keys),
            (Some(Item::ArrayOfTables(into)), Item::ArrayOfTables(keys)) => {
                into.iter_mut().zip(keys).for_each(|(into, keys)| merge(into, keys));
            }
            _ => {
                into.insert(name, item.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _};

    use sluice_instance::certificate_in;

    use super::*;

    /// As a pool's file begins, before anything is switched on.
    const FILE: &str = "listen = [\"127.0.0.1:6432\"]\ndriver = \"epoll\"\n[limits]\nclients = 74\nservers = 25\n\
                        [auth]\nmethod = \"scram-sha-256\"\n[auth.lookup]\nuser = \"a\"\ndatabase = \"postgres\"\n\
                        query = \"SELECT $1\"\ncache = \"10s\"\n[admin]\nstats_users = [\"sluice\"]\n\
                        [[database]]\nname = \"*\"\nhost = \"/tmp\"\nport = 5432\n";

    /// Keys that stay as they are, and the reason.
    const LEFT: &[(&str, &[&str])] = &[
        ("the lengths of paths are bounded, and a run's folder may be anywhere", &["unix_socket_dir"]),
        ("one machine for all", &["workers"]),
        ("it is in the place of hba_file", &["auth.hba", "auth.method"]),
        ("it would let in whoever comes, or nobody who is measured", &["auth.known_users_only", "auth.trust_anyone"]),
        ("the password is not in this test's file", &["auth.lookup.password", "auth.lookup.password_file"]),
        ("lists of revoked certificates are for clients by TLS", &["tls.client_crl_file"]),
        ("all clients would work as one role", &["database.user", "database.password", "database.password_file"]),
        ("names are those that clients use", &["database.dbname"]),
        (
            "they take several nodes: the scenario follow has what those cost",
            &[
                "cluster.name",
                "cluster.patroni",
                "cluster.failover_timeout",
                "cluster.ca_file",
                "cluster.cert_file",
                "cluster.key_file",
                "database.cluster",
                "database.target_session_attrs",
                "database.max_lag",
                "database.max_lag_bytes",
                "database.read_only_transactions",
                "database.causal_reads",
                "database.causal_reads_timeout",
            ],
        ),
    ];

    /// All keys of the reference but those of [database.pool], which are [pool]'s.
    fn keys_of_the_reference() -> BTreeSet<String> {
        let mut table = None;
        let mut keys = BTreeSet::new();
        for line in sluice_config::reference().lines() {
            if let Some(title) = line.strip_prefix("## ") {
                let name = title.trim_matches(['`', '[', ']']);
                let is_table = title.starts_with("`[") && name != "database.pool";
                table = match title {
                    "The top of the file" => Some(String::new()),
                    _ => is_table.then(|| format!("{name}.")),
                };
            }
            let key = line.strip_prefix("| `").and_then(|rest| rest.split_once('`')).map(|(key, _)| key);
            keys.extend(table.iter().zip(key).map(|(table, key)| format!("{table}{key}")));
        }
        keys
    }

    fn keys_of(table: &Table, prefix: &str) -> BTreeSet<String> {
        let of = |(name, item): (&str, &Item)| match item {
            Item::Table(table) => keys_of(table, &format!("{prefix}{name}.")),
            Item::ArrayOfTables(tables) => {
                tables.iter().flat_map(|table| keys_of(table, &format!("{prefix}{name}."))).collect()
            }
            _ => BTreeSet::from([format!("{prefix}{name}")]),
        };
        table.iter().flat_map(of).collect()
    }

    #[test]
    fn every_key_is_switched_on_or_has_its_reason() {
        let on = keys_of(switched_on(FILE, 9932).unwrap().parse::<DocumentMut>().unwrap().as_table(), "");
        let left: BTreeSet<String> = LEFT.iter().flat_map(|(_, keys)| *keys).map(|key| (*key).to_owned()).collect();
        let all = keys_of_the_reference();
        assert!(all.len() > 80, "{all:?}");
        assert_eq!(all.difference(&on).cloned().collect::<BTreeSet<_>>(), left);
    }

    #[test]
    fn the_file_is_one_that_a_pool_takes() {
        let dir = tempfile::tempdir().unwrap();
        certificate_in(dir.path(), "127.0.0.1".parse().unwrap()).unwrap();
        for (name, text) in FILES {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let path = dir.path().join("sluice.toml");
        fs::write(&path, switched_on(FILE, 9932).unwrap()).unwrap();
        let config = sluice_config::load(&path).unwrap();
        assert_eq!((config.limits.clients, config.http_listen.len(), config.databases.len()), (74, 1, 1));
        assert_eq!(config.admin.unwrap().users, ["operator"]);
    }
}
