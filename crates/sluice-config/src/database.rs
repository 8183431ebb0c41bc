//! `[[database]]`: reads the entries, and checks names, servers and logins.

use std::{collections::HashMap, path::PathBuf, time::Duration};

use sluice_control::{CLIENT_ADDRESS_SECRET_BYTES, reading::Reading, settings::PoolSettings};

use crate::{
    DatabaseConfig, Secret, ServerAddress, cluster, credentials,
    kinds::HostValue,
    listen::{self, Listen},
    pool::Pool,
    reader::{Origin, Read, Section, Setting, Source},
    report::Fault,
    schema, tls,
};

pub(crate) const RULES: &[&str] = &[
    "At least one `[[database]]` is needed; no name, `\"*\"` included, may come twice.",
    "A `password` or `password_file` needs `user`: without it, every client would log in with the same password as \
     another user.",
    "`target_session_attrs` needs `cluster`; `max_lag` and `max_lag_bytes` need `target_session_attrs`.",
    "A server can't be the place where Sluice itself listens.",
];

/// The folder of a server's sockets if the file does not say: Debian's place.
const SOCKET_DIR: &str = "/var/run/postgresql";

/// The time that a standby may be behind if the file does not say.
const LAG_MAX: Duration = Duration::from_secs(30);

/// PostgreSQL's port.
const PORT: u32 = 5432;

/// An entry, with what is needed to check it against others.
pub(crate) struct Database {
    pub(crate) config: DatabaseConfig,
    pub(crate) pool: Pool,
    /// The name, `"*"` included, and where it is given.
    pub(crate) name: Option<(String, usize)>,
}

/// Reads one entry; what is missing has been noted, and the configuration will not be used.
pub(crate) fn read(section: &Section<'_>, defaults: &Pool, listen: &Listen, clusters: &[cluster::Entry]) -> Database {
    let name = section.read_required(&schema::DATABASE_NAME);
    let user = section.read(&schema::DATABASE_USER);
    let has_user = !matches!(user, Read::Absent);
    let password = credentials::read(section, &schema::DATABASE_PASSWORD, &schema::DATABASE_PASSWORD_FILE);
    if let Some((_, offset)) = &password
        && !has_user
    {
        let what = "a password without a user: all clients' users would log in with it";
        section.note(&schema::DATABASE_PASSWORD, *offset, Fault::new(what, "add user, or leave out the password"));
    }
    let pool = Pool::read(&section.table(&schema::DATABASE_POOL), defaults);
    let cluster = read_cluster(section, clusters);
    let reading = read_reading(section);
    let config = DatabaseConfig {
        name: name.as_ref().map(|(name, _)| name.clone()).filter(|name| name != "*"),
        server: match &cluster {
            Read::Given(entry, _) => ServerAddress::Primary(entry.cluster.name.clone()),
            Read::Absent | Read::Bad => read_server(section, listen),
        },
        reading,
        tls: tls::read_database(section),
        dbname: section.read(&schema::DBNAME).value(),
        user: user.value(),
        password: password.map(|(password, _)| password),
        client_address_secret: read_client_address_secret(section),
        clients: section.read(&schema::DATABASE_CLIENTS).value(),
        servers: section.read(&schema::DATABASE_SERVERS).value(),
        pool: PoolSettings { failover_timeout: cluster.value().map(|entry| entry.failover_timeout), ..pool.settings() },
    };
    Database { config, pool, name }
}

/// Reads `client_address_secret_file`, and the file.
fn read_client_address_secret(section: &Section<'_>) -> Option<Secret> {
    let key = &schema::CLIENT_ADDRESS_SECRET_FILE;
    let (secret, offset) = credentials::read_file(section, key)?;
    let bytes = CLIENT_ADDRESS_SECRET_BYTES;
    if !bytes.contains(&secret.0.len()) {
        let what = format!("the secret in the file has {} bytes", secret.0.len());
        let remedy = format!("write a random one of {} to {} bytes there", bytes.start(), bytes.end());
        section.note(key, offset, Fault::new(what, remedy));
        return None;
    }
    Some(secret)
}

/// Reads `cluster`, which stands in the place of `host` and `port`.
fn read_cluster<'a>(section: &Section<'_>, clusters: &'a [cluster::Entry]) -> Read<&'a cluster::Entry> {
    let key = &schema::DATABASE_CLUSTER;
    let (name, offset) = match section.read(key) {
        Read::Given(name, offset) => (name, offset),
        Read::Absent => return Read::Absent,
        Read::Bad => return Read::Bad,
    };
    for place in [schema::HOST.name, schema::PORT.name].into_iter().filter(|place| section.has(place)) {
        let what = format!("{place} is given as well, and the cluster says where its primary is");
        section.note(key, offset, Fault::new(what, format!("leave out {place}, or cluster")));
    }
    match clusters.iter().find(|entry| *entry.cluster.name == *name) {
        Some(entry) => Read::Given(entry, offset),
        None => {
            let what = format!("no [[cluster]] is named {name:?}");
            section.note(key, offset, Fault::new(what, "add one with this name, or give the name of another"));
            Read::Bad
        }
    }
}

/// Reads `target_session_attrs`, and what there is to say of readers.
fn read_reading(section: &Section<'_>) -> Option<Reading> {
    let target = section.read(&schema::TARGET);
    let (lag, bytes) = (section.read(&schema::MAX_LAG), section.read(&schema::MAX_LAG_BYTES));
    let reads = matches!(target, Read::Given(Some(_), _));
    if let Read::Given(Some(_), offset) = target
        && !section.has(schema::DATABASE_CLUSTER.name)
    {
        let what = "there are no other nodes than the server";
        section.note(&schema::TARGET, offset, Fault::new(what, "give the cluster as well, or leave it out"));
    }
    if !reads && !matches!(target, Read::Bad) {
        let fault = || {
            let what = "it says how far a standby may be behind, and clients are led to none";
            Fault::new(what, "give target_session_attrs as well, or leave it out")
        };
        if let Read::Given(_, offset) = lag {
            section.note(&schema::MAX_LAG, offset, fault());
        }
        if let Read::Given(_, offset) = bytes {
            section.note(&schema::MAX_LAG_BYTES, offset, fault());
        }
    }
    Some(Reading {
        target: target.value().flatten()?,
        lag_max: lag.value().unwrap_or(LAG_MAX),
        lag_bytes_max: bytes.value().map(u64::from),
    })
}

/// Reads `host` and `port`.
fn read_server(section: &Section<'_>, listen: &Listen) -> ServerAddress {
    let host = section.read(&schema::HOST).or_default(HostValue::Dir(PathBuf::from(SOCKET_DIR)));
    let port = section.read(&schema::PORT).or_default(PORT);
    let usable = host.origin != Origin::Bad && port.origin != Origin::Bad;
    // Where to say that a server is wrong: at its host, else at its port, else at the entry.
    let offset =
        [offset_of(&host), offset_of(&port), section.offset()].into_iter().flatten().next().unwrap_or_default();
    // The schema lets nothing larger through.
    let port = u16::try_from(port.value).unwrap_or(u16::MAX);
    let note = |fault| {
        if usable {
            section.note(&schema::HOST, offset, fault);
        }
    };
    let ring = |place: String| {
        let remedy = "give the host and port of PostgreSQL, or listen elsewhere";
        Fault::new(format!("{place} is where Sluice itself listens"), remedy)
    };
    match host.value {
        HostValue::Dir(dir) => {
            if let Err(fault) = listen::check_socket_path(&dir, port) {
                note(fault);
            }
            if listen.is_own_unix(&dir, port) {
                note(ring(format!("{}/.s.PGSQL.{port}", dir.display())));
            }
            ServerAddress::Unix { dir, port }
        }
        HostValue::Name(host) => {
            if let Some(own) = listen.own_tcp(&host, port) {
                note(ring(own.to_string()));
            }
            ServerAddress::Tcp { host, port }
        }
    }
}

fn offset_of<T>(setting: &Setting<T>) -> Option<usize> {
    match setting.origin {
        Origin::Given(offset) => Some(offset),
        _ => None,
    }
}

/// Checks that no name comes twice.
pub(crate) fn check_names(databases: &[Database], source: &Source<'_>) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (name, offset) in databases.iter().filter_map(|database| database.name.as_ref()) {
        match seen.get(name.as_str()) {
            Some(first) => {
                let what = format!("{name:?} already has an entry, in line {}", source.line(*first));
                let path = schema::DATABASE.path_of(schema::DATABASE_NAME.name);
                source.add(Some(*offset), path, Fault::new(what, "give each entry a name of its own"));
            }
            None => {
                seen.insert(name, *offset);
            }
        }
    }
}
