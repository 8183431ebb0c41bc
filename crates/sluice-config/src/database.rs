//! `[[database]]`: reads the entries, and checks names, servers and logins.

use std::{collections::HashMap, path::PathBuf, time::Duration};

use sluice_control::{
    CLIENT_ADDRESS_SECRET_BYTES,
    reading::{Causal, Reading, Scope, Target},
    settings::{PoolMode, PoolSettings},
};

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
    "`target_session_attrs` needs `cluster`, and so does `read_only_transactions = \"standby\"`, which goes with \
     `target_session_attrs = \"primary\"` only, and needs `lazy_begin` in transaction mode. `max_lag` and `max_lag_bytes` \
     need one of them.",
    "`causal_reads` of a database with `read_only_transactions = \"standby\"` may be `\"local\"` or `\"global\"`; of one with \
     `target_session_attrs = \"prefer-standby\"` or `\"any\"`, `\"none\"` or `\"global\"`, and `\"global\"` needs transaction \
     mode there.",
    "A server can't be the place where Sluice itself listens.",
];

/// The folder of a server's sockets if the file does not say: Debian's place.
const SOCKET_DIR: &str = "/var/run/postgresql";

/// The time that a standby may be behind if the file does not say.
const LAG_MAX: Duration = Duration::from_secs(30);

/// The time that a transaction waits for its standby if the file does not say.
const CAUSAL_READS_TIMEOUT: Duration = Duration::from_secs(1);

/// PostgreSQL's port.
const PORT: u32 = 5432;

/// An entry, with what is needed to check it against others.
pub(crate) struct Database {
    pub(crate) config: DatabaseConfig,
    pub(crate) pool: Pool,
    /// The name, `"*"` included, and where it is given.
    pub(crate) name: Option<(String, usize)>,
    /// The place where `user` is given.
    pub(crate) user_offset: Option<usize>,
}

/// Reads one entry; what is missing has been noted, and the configuration will not be used.
pub(crate) fn read(section: &Section<'_>, defaults: &Pool, listen: &Listen, clusters: &[cluster::Entry]) -> Database {
    let name = section.read_required(&schema::DATABASE_NAME);
    let user = section.read(&schema::DATABASE_USER);
    let has_user = !matches!(user, Read::Absent);
    let user = user.given();
    let password = credentials::read(section, &schema::DATABASE_PASSWORD, &schema::DATABASE_PASSWORD_FILE);
    if let Some((_, offset)) = &password
        && !has_user
    {
        let what = "a password without a user: all clients' users would log in with it";
        section.note(&schema::DATABASE_PASSWORD, *offset, Fault::new(what, "add user, or leave out the password"));
    }
    let pool = Pool::read(&section.table(&schema::DATABASE_POOL), defaults);
    let cluster = read_cluster(section, clusters);
    let standbys = read_standbys(section);
    let settings = pool.settings();
    let causal = read_causal(section, &standbys, &settings);
    let config = DatabaseConfig {
        name: name.as_ref().map(|(name, _)| name.clone()).filter(|name| name != "*"),
        server: match &cluster {
            Read::Given(entry, _) => ServerAddress::Primary(entry.cluster.name.clone()),
            Read::Absent | Read::Bad => read_server(section, listen),
        },
        reading: standbys.reading,
        read_only: standbys.read_only,
        causal,
        tls: tls::read_database(section),
        dbname: section.read(&schema::DBNAME).value(),
        user: user.as_ref().map(|(user, _)| user.clone()),
        password: password.map(|(password, _)| password),
        server_auth: section.read(&schema::SERVER_AUTH).value().unwrap_or_default(),
        client_address_secret: read_client_address_secret(section),
        clients: section.read(&schema::DATABASE_CLIENTS).value(),
        servers: section.read(&schema::DATABASE_SERVERS).value(),
        pool: PoolSettings { failover_timeout: cluster.value().map(|entry| entry.failover_timeout), ..settings },
    };
    Database { config, pool, name, user_offset: user.map(|(_, offset)| offset) }
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

/// The transactions that are led to standbys.
struct Standbys {
    /// All transactions of sessions that are for reading.
    reading: Option<Reading>,
    /// Transactions that say that they are read-only.
    read_only: Option<Reading>,
}

/// Reads `target_session_attrs` and `read_only_transactions`, and how far standbys may be behind.
fn read_standbys(section: &Section<'_>) -> Standbys {
    let target = section.read(&schema::TARGET);
    let read_only = section.read(&schema::READ_ONLY_TRANSACTIONS);
    let (lag, bytes) = (section.read(&schema::MAX_LAG), section.read(&schema::MAX_LAG_BYTES));
    let reads = matches!(target, Read::Given(Some(_), _));
    let has_cluster = section.has(schema::DATABASE_CLUSTER.name);
    let alone = || {
        let what = "there are no other nodes than the server";
        Fault::new(what, "give the cluster as well, or leave it out")
    };
    if let Read::Given(Some(_), offset) = target
        && !has_cluster
    {
        section.note(&schema::TARGET, offset, alone());
    }
    if let Read::Given(true, offset) = read_only {
        if !has_cluster {
            section.note(&schema::READ_ONLY_TRANSACTIONS, offset, alone());
        } else if reads {
            let what = "clients of this name read at standbys anyway, as target_session_attrs says";
            section.note(&schema::READ_ONLY_TRANSACTIONS, offset, Fault::new(what, "leave out one of the two"));
        }
    }
    let leads = reads || matches!(read_only, Read::Given(true, _));
    if !leads && !matches!(target, Read::Bad) && !matches!(read_only, Read::Bad) {
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
    let (lag_max, lag_bytes_max) = (lag.value().unwrap_or(LAG_MAX), bytes.value().map(u64::from));
    let of = |target| Reading { target, lag_max, lag_bytes_max };
    Standbys {
        reading: target.value().flatten().map(of),
        read_only: read_only.value().filter(|leads| *leads).map(|_| of(Target::Standby)),
    }
}

/// Reads `causal_reads`, and for how long a standby is waited for.
fn read_causal(section: &Section<'_>, standbys: &Standbys, settings: &PoolSettings) -> Option<Causal> {
    let leads = standbys.read_only.is_some();
    if leads && !settings.sharing.lazy_begin {
        let what = "a client keeps the server that its BEGIN has gone to";
        let fault = Fault::new(what, "use mode = \"transaction\" and lazy_begin = true, or \"primary\"");
        if let Read::Given(_, offset) = section.read(&schema::READ_ONLY_TRANSACTIONS) {
            section.note(&schema::READ_ONLY_TRANSACTIONS, offset, fault);
        }
    }
    let given = section.read(&schema::CAUSAL_READS);
    let timeout = section.read(&schema::CAUSAL_READS_TIMEOUT);
    if let Read::Given(scope, offset) = &given
        && let Some(fault) = not_causal(*scope, standbys, settings)
    {
        section.note(&schema::CAUSAL_READS, *offset, fault);
    }
    let is_bad = matches!(given, Read::Bad);
    let scope = given.value().unwrap_or(leads.then_some(Scope::Local));
    if let (Read::Given(_, offset), None) = (&timeout, scope)
        && !is_bad
    {
        let what = "no transaction waits for a standby";
        let fault = Fault::new(what, "give causal_reads as well, or leave it out");
        section.note(&schema::CAUSAL_READS_TIMEOUT, *offset, fault);
    }
    Some(Causal { scope: scope?, timeout: timeout.value().unwrap_or(CAUSAL_READS_TIMEOUT) })
}

/// The reason why these can't be the commits that transactions find, if there is one.
fn not_causal(scope: Option<Scope>, standbys: &Standbys, settings: &PoolSettings) -> Option<Fault> {
    let fault = |what, remedy| Some(Fault::new(what, remedy));
    if standbys.read_only.is_some() {
        return match scope {
            None => fault("a client would not find what it has written itself", "give \"local\" or \"global\""),
            Some(_) => None,
        };
    }
    match (scope?, standbys.reading.as_ref().map(|reading| reading.target)) {
        (_, None) => fault(
            "no transaction is led to a standby",
            "give target_session_attrs or read_only_transactions as well, or leave it out",
        ),
        (Scope::Local, Some(_)) => {
            fault("clients of this name write nothing that they could find", "give \"global\", or leave it out")
        }
        (Scope::Global, Some(Target::Standby)) => fault(
            "clients are led to standbys only, and go to the primary where one is too far behind",
            "use target_session_attrs = \"prefer-standby\" or \"any\", or leave it out",
        ),
        (Scope::Global, Some(_)) if settings.sharing.mode != PoolMode::Transaction => {
            fault("a client keeps one server for all of its session", "use mode = \"transaction\", or leave it out")
        }
        (Scope::Global, Some(_)) => None,
    }
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
