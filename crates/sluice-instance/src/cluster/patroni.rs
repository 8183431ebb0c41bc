//! The Patroni of one node: its configuration, and the command that starts it.
//!
//! The file is written as JSON, which is YAML as well: no word in it can be taken for something else. It holds
//! passwords, and is readable by PostgreSQL's user only. What counts for all nodes is in etcd; `bootstrap.dcs` is what
//! a new cluster begins with (Patroni's documentation, "Dynamic Configuration Settings").

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Secrets, environment::Environment, rest::USER, roles, tls::TlsFiles};
use crate::{binaries::Binaries, bootstrap::SUPERUSER, run_as::RunAs, tuning::Tuning};

/// The leader's lease in seconds; Patroni takes no shorter one.
const TTL_SECONDS: u32 = 20;
/// The pause between two looks, in seconds.
const LOOP_WAIT_SECONDS: u32 = 2;
/// The time for which etcd or PostgreSQL may not answer before a leader steps down, in seconds. The longest that
/// Patroni allows: `loop_wait + 2 * retry_timeout` must not exceed `ttl`.
const RETRY_TIMEOUT_SECONDS: u32 = 8;

/// The first line of that file; the rest is JSON.
pub(super) const HEADER: &str =
    "# Written by sluice at each start: changes made here are lost. JSON, which is YAML as well.\n";

/// The name of a node's configuration file.
pub(super) const FILE: &str = "patroni.yml";

/// The name of the program that is its Patroni.
const LAUNCHER: &str = "launch.py";

/// The text of that program. It relies on the version of Patroni that is pinned.
const LAUNCHER_TEXT: &str = include_str!("../../../../packaging/patroni/launch.py");

/// The file that says where the admin consoles of the pools are, one a line; in the instance's directory, and in each
/// node's for its Patroni.
pub(super) const POOLS: &str = "pools";

/// One node's places and addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// `node1`.
    pub name: String,
    /// Its folder, of PostgreSQL's user: Patroni's configuration, and what it writes beside the data.
    pub home: PathBuf,
    /// PostgreSQL's data directory.
    pub pgdata: PathBuf,
    /// The folder of PostgreSQL's Unix socket.
    pub socket_dir: PathBuf,
    /// The log of Patroni and PostgreSQL.
    pub log: PathBuf,
    /// The address at which PostgreSQL listens; the port is in the socket's name as well.
    pub postgres: SocketAddr,
    /// The address at which Patroni's REST API listens.
    pub rest: SocketAddr,
}

impl Node {
    /// Patroni's configuration.
    pub(super) fn config_file(&self) -> PathBuf {
        self.home.join(FILE)
    }

    /// The program that is its Patroni, with its text.
    pub(super) fn launcher(&self) -> (PathBuf, &'static str) {
        (self.home.join(LAUNCHER), LAUNCHER_TEXT)
    }

    /// Its own copy of the file with the consoles.
    pub(super) fn pools_file(&self) -> PathBuf {
        self.home.join(POOLS)
    }
}

/// The standbys that a commit waits for, by the number of nodes.
///
/// Three: either of the two others, and never none, so that whichever node is lost, another one has everything
/// that was acknowledged. Two: the other one while it is there; Patroni writes to etcd that it is not before commits
/// go on alone.
pub(super) fn synchronous(nodes: usize) -> Value {
    match nodes {
        0 | 1 => json!({}),
        2 => json!({ "synchronous_mode": true, "synchronous_mode_strict": false }),
        _ => json!({ "synchronous_mode": "quorum", "synchronous_mode_strict": true, "synchronous_node_count": 1 }),
    }
}

/// The settings of the leader's lease.
const TIMING: [&str; 3] = ["ttl", "loop_wait", "retry_timeout"];

/// The rank of a standby that none is given to, which is Patroni's own default.
pub(super) const SYNC_PRIORITY: u8 = 1;

/// The extension's: a primary that does not know of its standbys, by a configuration that it can't read, commits nothing.
pub const STANDBYS_REQUIRED: &str = "sluice.synchronous_standbys_required";

/// With two nodes, the time for which a standby may be silent before the leader takes it for gone, and commits go on
/// without it. Patroni notices within a loop.
const STANDBY_SILENT_MAX: &str = "2s";

/// A standby that has lost its primary tries again that often. PostgreSQL's 5 s would be what commits wait for behind a
/// crash of the primary, which is back in one.
const RECONNECT_EVERY: &str = "500ms";

/// Patroni waits so long for a standby's start before it looks again whom to follow; a primary's has another limit. A
/// standby that was rewound takes no connections before it has the log up to where it was rewound to: if the node that
/// has it is lost just then, by Patroni's own 60 s it would call that node for as long.
const STANDBY_START_SECONDS: u32 = 5;

/// The settings that all nodes share, which a new cluster begins with. What is null is PostgreSQL's default.
pub(super) fn shared_settings(nodes: usize, tuning: &Tuning) -> Value {
    let mut shared = json!({
        "ttl": TTL_SECONDS,
        "loop_wait": LOOP_WAIT_SECONDS,
        "retry_timeout": RETRY_TIMEOUT_SECONDS,
        "postgresql": {
            "use_pg_rewind": true,
            "use_slots": true,
            // Patroni gives these on the command line, the same on each node: nowhere else are they looked for.
            "parameters": {
                "max_connections": tuning.connections,
                "wal_retrieve_retry_interval": RECONNECT_EVERY,
                // With three, another standby is there; one that is slow for a moment should not have to begin anew.
                "wal_sender_timeout": (nodes == 2).then_some(STANDBY_SILENT_MAX),
                (STANDBYS_REQUIRED): (nodes > 2).then_some("on"),
            },
        },
    });
    merge(&mut shared, synchronous(nodes));
    shared
}

/// Those of them that are told to a cluster which has settings already. How commits are waited for goes by the number of
/// nodes, which may have been another one. What else operators have set stays: the lease with its retries, which go
/// together, and connections that suffice for the pool.
pub(super) fn told_again(mut shared: Value, now: &Value) -> Value {
    let number = |value: &Value| value.as_str().map_or_else(|| value.as_i64(), |text| text.trim().parse().ok());
    if let Some(settings) = shared.as_object_mut()
        && TIMING.iter().any(|name| !now[*name].is_null())
    {
        settings.retain(|name, _| !TIMING.contains(&&**name));
    }
    let found = &now["postgresql"]["parameters"];
    if let Some(parameters) = shared["postgresql"]["parameters"].as_object_mut() {
        parameters.retain(|name, wanted| match &**name {
            "max_connections" => number(&found[name]) < number(wanted),
            "wal_retrieve_retry_interval" => found[name].is_null(),
            _ => true,
        });
    }
    shared
}

/// The same without what is null: that removes a setting which is there, and is none to begin with.
fn without_null(settings: &Value) -> Value {
    let Value::Object(object) = settings else { return settings.clone() };
    object
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.clone(), without_null(value)))
        .collect()
}

fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}

/// The means by which nodes show each other who they are.
#[derive(Debug, Clone, Copy)]
pub(super) enum Access<'a> {
    /// On one machine: passwords, in clear. Patroni leaves the rules of PostgreSQL alone.
    Passwords(&'a Secrets),
    /// Between hosts: certificates, and TLS for all. Patroni writes PostgreSQL's rules and maps.
    Certificates { tls: &'a TlsFiles, hba: &'a [String], ident: &'a [String] },
}

/// The parts of a node's configuration.
#[derive(Debug)]
pub(super) struct Config<'a> {
    pub(super) scope: &'a str,
    pub(super) node: &'a Node,
    /// The addresses at which etcd answers: first that of this node's own member, which its Patroni prefers.
    pub(super) etcd: &'a [SocketAddr],
    pub(super) etcd_tls: &'a TlsFiles,
    pub(super) binaries: &'a Binaries,
    /// The settings that a new cluster begins with.
    pub(super) shared: Value,
    /// Further settings of PostgreSQL here.
    pub(super) settings: &'a [(String, String)],
    /// The program that holds the pool's clients.
    pub(super) program: Option<&'a Path>,
    /// Its rank among the standbys that commits may wait for.
    pub(super) sync_priority: u8,
    pub(super) access: Access<'a>,
}

impl Config<'_> {
    /// Its text.
    pub(super) fn text(&self) -> String {
        let Self { scope, node, etcd_tls, .. } = self;
        let etcd: Vec<String> = self.etcd.iter().map(SocketAddr::to_string).collect();
        let mut config = json!({
            "scope": scope,
            "name": node.name,
            "restapi": self.rest(),
            "etcd3": { "hosts": etcd, "protocol": "https", "cacert": etcd_tls.ca, "cert": etcd_tls.cert,
                       "key": etcd_tls.key },
            "bootstrap": {
                "dcs": without_null(&self.shared),
                // Patroni makes no data: whichever node came first would.
                "method": "none",
                "none": { "command": "/bin/false" },
            },
            "postgresql": self.postgresql(),
            "watchdog": { "mode": "off" },
        });
        if self.sync_priority != SYNC_PRIORITY {
            config["tags"] = json!({ "sync_priority": self.sync_priority });
        }
        if let Access::Certificates { tls, .. } = self.access {
            config["ctl"] = json!({ "cacert": tls.ca, "certfile": tls.cert, "keyfile": tls.key });
        }
        // A value can always be written, and its keys are texts.
        let text = serde_json::to_string_pretty(&config).unwrap_or_default();
        format!("{HEADER}{text}\n")
    }

    /// Asking is everybody's; what changes something takes a password, or a certificate.
    fn rest(&self) -> Value {
        let api = self.node.rest.to_string();
        let mut rest = json!({ "listen": api, "connect_address": api });
        match self.access {
            Access::Passwords(secrets) => {
                rest["authentication"] = json!({ "username": USER, "password": secrets.rest.expose() });
            }
            Access::Certificates { tls, .. } => merge(
                &mut rest,
                json!({ "certfile": tls.cert, "keyfile": tls.key, "cafile": tls.ca, "verify_client": "optional" }),
            ),
        }
        rest
    }

    fn postgresql(&self) -> Value {
        let Self { node, scope, .. } = self;
        let postgres = node.postgres.to_string();
        let mut parameters = json!({ "unix_socket_directories": node.socket_dir });
        let role = |name: &str| match self.access {
            Access::Passwords(secrets) => {
                let password = if name == roles::REPLICATION { &secrets.replication } else { &secrets.rewind };
                json!({ "username": name, "password": password.expose() })
            }
            Access::Certificates { tls, .. } => json!({
                "username": name, "sslmode": "verify-full", "sslcert": tls.cert, "sslkey": tls.key,
                "sslrootcert": tls.ca,
            }),
        };
        let authentication = json!({
            // The superuser has no password: it comes by the socket.
            "superuser": { "username": SUPERUSER },
            "replication": role(roles::REPLICATION),
            "rewind": role(roles::REWIND),
        });
        if let Access::Certificates { tls, .. } = self.access {
            merge(
                &mut parameters,
                json!({ "ssl": "on", "ssl_ca_file": tls.ca, "ssl_cert_file": tls.cert, "ssl_key_file": tls.key }),
            );
        }
        merge(&mut parameters, self.settings.iter().map(|(name, value)| (name.clone(), json!(value))).collect());
        let mut postgresql = json!({
            "listen": postgres,
            "connect_address": postgres,
            "data_dir": node.pgdata,
            "bin_dir": self.binaries.dir,
            "pgpass": node.home.join("pgpass"),
            "use_unix_socket": true,
            "authentication": authentication,
            "parameters": parameters,
            // Patroni waits for it, after its checkpoint and before it tells PostgreSQL to stop.
            "before_stop": self.program.map(|program| hold_command(program, scope, node)),
            "basebackup": [{ "checkpoint": "fast" }],
            "pg_ctl_timeout": STANDBY_START_SECONDS,
            // A node whose data can't be brought in line stays as it is, for somebody to look at.
            "remove_data_directory_on_rewind_failure": false,
            "remove_data_directory_on_diverged_timelines": false,
        });
        if let Access::Certificates { hba, ident, .. } = self.access {
            merge(&mut postgresql, json!({ "pg_hba": hba, "pg_ident": ident }));
        }
        postgresql
    }
}

/// The command that holds the pool's clients before this node is stopped, if it is the primary, and begins its shutdown
/// then.
fn hold_command(program: &Path, scope: &str, node: &Node) -> String {
    let (program, pools) = (program.display().to_string(), node.pools_file().display().to_string());
    let (rest, pgdata) = (format!("http://{}", node.rest), node.pgdata.display().to_string());
    let words = [
        &*program,
        "cluster",
        "hold",
        "--cluster",
        scope,
        "--rest",
        &rest,
        "--pools-file",
        &pools,
        "--shut-down",
        &pgdata,
    ];
    words.map(quoted).join(" ")
}

/// A word as Python's `shlex` reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\"'\"'"))
    }
}

/// The command that starts a node's Patroni. If Sluice ends without stopping it, the kernel asks it to shut PostgreSQL
/// down and leave.
pub(super) fn command(environment: &Environment, run_as: &RunAs, node: &Node) -> Command {
    let mut command = run_as.command(environment.python(), Signal::SIGTERM);
    for prefix in ["PATRONI_", "PYTHON", "ETCD_"] {
        super::without_variables(&mut command, prefix);
    }
    command.env_remove("NOTIFY_SOCKET").current_dir("/");
    command.arg("-I").arg(node.launcher().0).arg(node.config_file());
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binaries::Version;

    #[test]
    fn the_lease_allows_for_the_retries() {
        const { assert!(LOOP_WAIT_SECONDS + 2 * RETRY_TIMEOUT_SECONDS <= TTL_SECONDS) };
    }

    #[test]
    fn words_are_quoted_for_pythons_shlex() {
        for (word, expected) in [
            ("/usr/bin/sluice", "/usr/bin/sluice"),
            ("a b", "'a b'"),
            ("", "''"),
            ("it's", "'it'\"'\"'s'"),
            ("$x", "'$x'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }

    #[test]
    fn a_rank_is_told_where_one_is_given() {
        let place = Path::new("/nowhere");
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let [ca, cert, key] = ["ca", "cert", "key"].map(|name| place.join(name));
        let tls = TlsFiles { ca, cert, key };
        let node = Node {
            name: "a".to_owned(),
            home: place.join("a"),
            pgdata: place.join("a/pgdata"),
            socket_dir: place.join("a/run"),
            log: place.join("log"),
            postgres: at(1),
            rest: at(2),
        };
        let [postgres, initdb] = ["postgres", "initdb"].map(|name| place.join(name));
        let version = Version { major: 18, number: "18.0".to_owned() };
        let binaries = Binaries { dir: place.to_owned(), postgres, initdb, psql: None, version };
        let told = |sync_priority| {
            let config = Config {
                scope: "main",
                node: &node,
                etcd: &[at(3)],
                etcd_tls: &tls,
                binaries: &binaries,
                shared: json!({}),
                settings: &[],
                program: None,
                sync_priority,
                access: Access::Certificates { tls: &tls, hba: &[], ident: &[] },
            };
            let text = config.text();
            let config: Value = serde_json::from_str(text.strip_prefix(HEADER).unwrap()).unwrap();
            config["tags"].clone()
        };
        assert_eq!((told(SYNC_PRIORITY), told(2)), (Value::Null, json!({ "sync_priority": 2 })));
    }

    #[test]
    fn what_operators_have_set_stays_but_for_how_commits_are_waited_for() {
        let tuning = Tuning::new(crate::Host { memory_bytes: 1 << 30, open_files: 1024 }, 20);
        let shared = || shared_settings(3, &tuning);
        assert_eq!(told_again(shared(), &json!({})), shared());
        let mut set = without_null(&shared());
        // The retries were taken back to Patroni's own, for which Sluice's lease would be too short.
        (set["ttl"], set["retry_timeout"], set["synchronous_mode"]) = (json!(40), Value::Null, json!(true));
        set["postgresql"]["parameters"]["max_connections"] = json!("150");
        set["postgresql"]["parameters"]["wal_retrieve_retry_interval"] = json!("3s");
        let told = told_again(shared(), &set);
        assert_eq!([&told["ttl"], &told["loop_wait"], &told["retry_timeout"]], [&Value::Null; 3]);
        assert_eq!((&told["synchronous_mode"], &told["synchronous_mode_strict"]), (&json!("quorum"), &json!(true)));
        let parameters = json!({ "wal_sender_timeout": null, (STANDBYS_REQUIRED): "on" });
        assert_eq!(told["postgresql"]["parameters"], parameters);
        set["postgresql"]["parameters"]["max_connections"] = json!(90);
        assert_eq!(told_again(shared(), &set)["postgresql"]["parameters"]["max_connections"], 100);
        // From two nodes to three, and back.
        let two = without_null(&shared_settings(2, &tuning));
        assert_eq!(told_again(shared(), &two)["synchronous_mode"], "quorum");
        let told = told_again(shared_settings(2, &tuning), &without_null(&shared()));
        assert_eq!((&told["synchronous_mode"], &told["synchronous_mode_strict"]), (&json!(true), &json!(false)));
        let parameters = &told["postgresql"]["parameters"];
        assert_eq!((&parameters["wal_sender_timeout"], &parameters[STANDBYS_REQUIRED]), (&json!("2s"), &Value::Null));
    }

    #[test]
    fn commits_are_waited_for_by_the_number_of_nodes() {
        let tuning = Tuning::new(crate::Host { memory_bytes: 1 << 30, open_files: 1024 }, 20);
        for (nodes, mode, strict) in
            [(1, Value::Null, Value::Null), (2, json!(true), json!(false)), (3, json!("quorum"), json!(true))]
        {
            let shared = shared_settings(nodes, &tuning);
            assert_eq!((&shared["synchronous_mode"], &shared["synchronous_mode_strict"]), (&mode, &strict));
            assert_eq!(shared["postgresql"]["parameters"]["max_connections"], 100);
            let begins = without_null(&shared);
            assert_eq!(begins["postgresql"]["parameters"]["max_connections"], 100);
            let timeout = begins["postgresql"]["parameters"].get("wal_sender_timeout");
            assert_eq!(timeout, (nodes == 2).then(|| json!("2s")).as_ref());
            let required = begins["postgresql"]["parameters"].get(STANDBYS_REQUIRED);
            assert_eq!(required, (nodes > 2).then(|| json!("on")).as_ref());
        }
    }
}
