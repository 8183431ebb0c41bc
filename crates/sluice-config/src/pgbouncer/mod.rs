//! A configuration of PgBouncer's, turned into one of Sluice's (PgBouncer's documentation: `config.html`).
//!
//! What has a counterpart is carried over with its value; of everything else it is said why it is not, by line. Where
//! PgBouncer's default changes what clients see, it is written out.

mod access;
mod hba;
mod ini;
mod known;
mod lookup;
mod secrets;
mod sessions;
mod settings;
mod sizes;
mod tls;
mod values;
mod waits;

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs},
    path::Path,
};

use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, Value, value};

use crate::report::{Fault, Problem, Report};

use access::{place_of, refusals};
use ini::Entry;
use lookup::OfDatabase;
use settings::{Counterpart, Kind, counterpart, meaning_of_zero};

/// A configuration that was converted.
#[derive(Debug)]
pub struct Converted {
    /// The text of Sluice's configuration.
    pub toml: String,
    /// Notes on settings that were not carried over, or mean something else.
    pub notes: Vec<Note>,
}

/// A setting that was not carried over as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Its line; `None`: PgBouncer's default is meant.
    pub line: Option<usize>,
    /// Its name.
    pub key: String,
    /// Its fate.
    pub what: String,
    /// Whether clients may notice.
    pub matters: bool,
    /// Whether somebody may get in who could not before; such notes come first.
    pub widens: bool,
}

/// Converts PgBouncer's configuration.
///
/// # Errors
///
/// All that is wrong with the file, or that Sluice can't be told.
pub fn convert(path: &Path) -> Result<Converted, Report> {
    let contents = ini::read(path).map_err(|problem| Report::new(vec![problem]))?;
    let entries = ini::that_count(contents.entries);
    let mut conversion = Conversion::default();
    conversion.restarts(&contents.restarts);
    for entry in &entries {
        match entry.section.as_str() {
            "pgbouncer" => conversion.setting(entry),
            "databases" => conversion.database(entry),
            "users" => conversion.user(entry),
            "peers" => conversion.note(entry, "peers have no counterpart: one process serves all cores"),
            _ => conversion.wrong(entry, "unknown section", "name it databases, users or pgbouncer"),
        }
    }
    conversion.waits(&entries);
    conversion.end(path)
}

#[derive(Default)]
struct Conversion {
    top: Table,
    limits: Table,
    auth: Table,
    lookup: Table,
    admin: Table,
    pool: Table,
    client_tls: tls::Side,
    server_tls: tls::Side,
    databases: Vec<Table>,
    /// The look-up of each line of `[databases]`.
    lookups: Vec<OfDatabase>,
    each_database: Table,
    users: Vec<Table>,
    /// The users that it names besides those of `auth_file`.
    known: known::Known,
    listen_addr: Option<String>,
    listen_port: Option<u16>,
    /// `auth_type = hba`, if rules count.
    by_rules: Option<Entry>,
    /// It has `auth_type = any`: users need not be known.
    knows_no_users: bool,
    /// It asks for certificates, or PAM, for which passwords stand in.
    asks_otherwise: bool,
    /// The `unix_socket_mode`, if it keeps local users from the socket.
    socket_mode: Option<Entry>,
    /// It has no address to listen on, and gets one.
    lacks_address: bool,
    /// It has a `unix_socket_dir` that is empty: no Unix sockets.
    lacks_socket: bool,
    /// The `server_reset_query`, and whether it is run behind transactions, too.
    reset_query: Option<Entry>,
    resets_always: bool,
    /// The `server_fast_close`.
    fast_close: Option<Entry>,
    notes: Vec<Note>,
    problems: Vec<Problem>,
}

impl Conversion {
    /// Says of a setting what clients may notice.
    fn note(&mut self, entry: &Entry, what: &str) {
        self.say(Some(entry.line), &entry.key, what, true);
    }

    /// Says first of all that more people may get in.
    fn first(&mut self, line: Option<usize>, key: &str, what: &str) {
        self.notes.push(Note {
            line,
            key: key.to_owned(),
            what: format!("ADMITS CLIENTS THAT PGBOUNCER REFUSED: {what}"),
            matters: true,
            widens: true,
        });
    }

    fn say(&mut self, line: Option<usize>, key: &str, what: impl Into<String>, matters: bool) {
        self.notes.push(Note { line, key: key.to_owned(), what: what.into(), matters, widens: false });
    }

    /// The number of a port, or a problem.
    fn port(&mut self, entry: &Entry, text: &str) -> Option<u16> {
        let port = text.parse().ok();
        if port.is_none() {
            self.wrong(entry, format!("{text:?} is no port"), "write a number from 1 to 65535");
        }
        port
    }

    /// The value of a setting in TOML, unless it says nothing, or is a problem. `key` may be a part of the entry's value.
    fn value(&mut self, entry: &Entry, key: &str, kind: &Kind, text: &str) -> Option<Value> {
        let of_part = |what: String| if key == entry.key { what } else { format!("{key}: {what}") };
        if matches!(kind, Kind::Mode) && text.eq_ignore_ascii_case("statement") {
            let what = "statement becomes transaction: transactions of several statements are let through";
            self.note(entry, &of_part(what.to_owned()));
        }
        match kind.convert(text) {
            Ok(None) => {
                if let Some(meaning) = meaning_of_zero(key) {
                    let what = format!("0 means {meaning}, which can't be said here: Sluice's default holds");
                    self.note(entry, &of_part(what));
                }
                None
            }
            Ok(converted) => {
                if let Some(what) = kind.otherwise(text) {
                    self.note(entry, &of_part(what));
                }
                converted
            }
            Err(what) => {
                self.wrong(entry, of_part(what), "write it as PgBouncer's documentation says");
                None
            }
        }
    }

    fn wrong(&mut self, entry: &Entry, what: impl Into<String>, remedy: &str) {
        self.problems.push(entry.problem(Fault::new(what, remedy)));
    }

    fn table(&mut self, path: &str) -> &mut Table {
        match path {
            "limits" => &mut self.limits,
            "auth" => &mut self.auth,
            "auth.lookup" => &mut self.lookup,
            "admin" => &mut self.admin,
            "pool" => &mut self.pool,
            settings::EACH_DATABASE => &mut self.each_database,
            _ => &mut self.top,
        }
    }

    /// Says which lines do not count, since `[pgbouncer]` begins once more behind them.
    fn restarts(&mut self, restarts: &[ini::Restart]) {
        for ini::Restart { line, forgotten } in restarts {
            let mut places: Vec<(&Path, Vec<usize>)> = Vec::new();
            for entry in forgotten {
                match places.iter_mut().find(|(file, _)| *file == entry.file) {
                    Some((_, lines)) => lines.push(entry.line),
                    None => places.push((&entry.file, vec![entry.line])),
                }
            }
            let places: Vec<_> = places.iter().map(|(file, lines)| place_of(lines, file)).collect();
            if !places.is_empty() {
                let what = format!(
                    "begins once more, and PgBouncer gives all settings but auth_file, auth_user and a few others \
                     their defaults there. So what stands before it does not count: {}",
                    places.join("; ")
                );
                self.say(Some(*line), "[pgbouncer]", what, false);
            }
        }
    }

    /// A setting of `[pgbouncer]`.
    fn setting(&mut self, entry: &Entry) {
        let text = entry.value.as_str();
        if self.tls_setting(entry) {
            return;
        }
        match entry.key.as_str() {
            key @ ("default_pool_size" | "min_pool_size") => {
                let number = self.size(entry, key, text);
                put(&mut self.pool, if key == "min_pool_size" { "min" } else { "size" }, number);
            }
            "unix_socket_dir" if text.starts_with('@') => {
                self.note(entry, "sockets without a file have no counterpart: name a folder, or none is opened");
                self.lacks_socket = true;
            }
            "listen_addr" => self.listen_addr = Some(text.to_owned()),
            "listen_port" => self.listen_port = self.port(entry, text),
            "auth_type" => self.auth_type(entry),
            "unix_socket_dir" if text.is_empty() => self.lacks_socket = true,
            "unix_socket_mode" => self.socket_mode(entry),
            "server_reset_query" => self.reset_query = Some(entry.clone()),
            "server_fast_close" => self.fast_close = Some(entry.clone()),
            "server_reset_query_always" => {
                self.resets_always = text != "0";
                self.say(Some(entry.line), &entry.key, values::IN_ORDER, false);
            }
            // It gives the name before the secret, which is understood.
            "auth_query" => _ = self.lookup.insert("query", value(text)),
            key => match counterpart(key) {
                Some(Counterpart::Key(table, name, kind)) => {
                    if let Some(converted) = self.value(entry, key, &kind, text) {
                        self.table(table).insert(name, converted.into());
                    }
                }
                Some(Counterpart::Unneeded(why)) => self.say(Some(entry.line), key, why, false),
                Some(Counterpart::Mostly(why, means)) => match means(text) {
                    Some(what) => self.note(entry, &what),
                    None => self.say(Some(entry.line), key, why, false),
                },
                Some(Counterpart::Missing(why)) if !matches!(text, "0" | "" | "disable" | "0.0") => {
                    self.note(entry, why)
                }
                Some(Counterpart::Missing(_)) => {}
                None => self.note(entry, "not known: PgBouncer 1.26 has no such setting"),
            },
        }
    }

    /// A setting for TLS; `false` if it is none that has a counterpart.
    fn tls_setting(&mut self, entry: &Entry) -> bool {
        let of_clients = entry.key.strip_prefix("client_tls_").map(|end| (&mut self.client_tls, end));
        let side = of_clients.or_else(|| entry.key.strip_prefix("server_tls_").map(|end| (&mut self.server_tls, end)));
        let taken = side.map_or(Ok(false), |(side, end)| side.take(end, entry));
        taken.unwrap_or_else(|what| {
            self.wrong(entry, what, "write it as PgBouncer's documentation says");
            true
        })
    }

    /// `[tls]`, and the keys of the databases whose servers are reached by TCP.
    fn tls(&mut self) -> Table {
        let (of_clients, complaints) = self.client_tls.for_clients();
        let (of_servers, of_server) = self.server_tls.for_server();
        let is_remote = |database: &&mut Table| {
            database.get("host").and_then(Item::as_str).is_some_and(|host| !host.starts_with(['/', '@']))
        };
        for database in self.databases.iter_mut().filter(is_remote) {
            database.extend(of_servers.iter().map(|(key, item)| (key, item.clone())));
        }
        for (line, key, what) in complaints.into_iter().chain(of_server) {
            self.say(line, key, what, true);
        }
        of_clients
    }

    /// A line of `[databases]`.
    fn database(&mut self, entry: &Entry) {
        let Some(parts) = ini::parts(&entry.value) else {
            return self.wrong(entry, "not a connection string", "write host=… port=… dbname=…");
        };
        let of_name = |database: &Table| database.get("name").and_then(Item::as_str) == Some(&entry.key);
        let before = self.databases.extract_if(.., |database| of_name(database)).last();
        self.lookups.retain(|it| it.database != entry.key);
        let (mut database, mut pool) = (Table::new(), Table::new());
        let mut lookup = OfDatabase::new(entry);
        database.insert("name", value(entry.key.as_str()));
        for (key, text) in &parts {
            match key.as_str() {
                key if is_that_of_all(key, text) => {}
                "target_session_attrs" if text == "any" => {}
                "host" if text.contains(',') => {
                    let first = text.split(',').next().unwrap_or_default();
                    database.insert("host", value(first));
                    self.note(entry, "several hosts have no counterpart: the first one is taken");
                }
                "host" if text.starts_with('@') => {
                    self.wrong(
                        entry,
                        "sockets without a file have no counterpart",
                        "name the folder of another socket",
                    );
                }
                "host" | "dbname" | "user" | "password" => _ = database.insert(key, value(text.as_str())),
                "port" => {
                    // That of the host that is taken.
                    let first = text.split(',').next().unwrap_or_default();
                    if let Some(port) = self.port(entry, first) {
                        database.insert("port", value(i64::from(port)));
                    }
                }
                "pool_size" => put(&mut pool, "size", self.size(entry, key, text)),
                "min_pool_size" => put(&mut pool, "min", self.size(entry, key, text)),
                "pool_mode" | "server_lifetime" | "query_wait_timeout" => {
                    let Some(Counterpart::Key(_, name, kind)) = counterpart(key) else { continue };
                    if let Some(converted) = self.value(entry, key, &kind, text) {
                        pool.insert(name, converted.into());
                    }
                }
                "max_db_connections" | "max_db_client_connections" => {
                    let Some(Counterpart::Key(_, name, kind)) = counterpart(key) else { continue };
                    if let Some(converted) = self.value(entry, key, &kind, text) {
                        database.insert(name, converted.into());
                    }
                }
                "auth_user" | "auth_query" | "auth_dbname" => {
                    if key == "auth_user" && !text.is_empty() {
                        self.known.askers.insert(text.clone());
                    }
                    lookup.take(key, text);
                }
                key => {
                    let why = match (key, counterpart(key)) {
                        ("reserve_pool", _) => "there is no reserve: make the pool larger",
                        ("connect_query", _) => "has no counterpart",
                        ("load_balance_hosts", _) => "has no counterpart: one host is taken",
                        ("target_session_attrs", _) => {
                            "is for clusters here: name one in cluster, and its primary is followed; with \
                             target_session_attrs its standbys are read from"
                        }
                        (_, Some(Counterpart::Missing(why) | Counterpart::Unneeded(why))) => why,
                        (_, Some(Counterpart::Mostly(why, _))) => why,
                        (_, Some(Counterpart::Key(..))) => "is not for single databases",
                        (_, None) => "has no counterpart: set it for the role or the database by ALTER … SET",
                    };
                    self.note(entry, &format!("{key}: {why}"));
                }
            }
        }
        if database.contains_key("password") && !database.contains_key("user") {
            database.remove("password");
            self.note(entry, "password: has no effect without user, and is left out");
        }
        if let Some(before) = before {
            self.stands_again(entry, &before, &mut database);
        }
        if !pool.is_empty() {
            database.insert("pool", pool.into());
        }
        self.databases.push(database);
        self.lookups.push(lookup);
    }

    /// A database that has a line before, of which PgBouncer keeps the user with its password if the new one has none
    /// (`parse_database` in its `loader.c`); nothing of that for all others (`*`).
    fn stands_again(&mut self, entry: &Entry, before: &Table, database: &mut Table) {
        let again = "stands here once more: of several lines with one name, the last one counts";
        let keeps = entry.key != "*" && !database.contains_key("user") && before.contains_key("user");
        if !keeps {
            return self.note(entry, again);
        }
        for key in ["user", "password"] {
            if let Some(kept) = before.get(key) {
                database.insert(key, kept.clone());
            }
        }
        let user = before.get("user").and_then(Item::as_str).unwrap_or_default();
        self.note(entry, &format!("{again}, but for user, which stays {user:?}, as PgBouncer has it"));
    }

    /// The addresses to listen on.
    fn listen(&mut self) -> Array {
        let port = self.listen_port.unwrap_or(6432);
        let mut addresses = Array::new();
        let list = self.listen_addr.clone().unwrap_or_default();
        for address in list.split(',').map(str::trim) {
            match address {
                "" => {}
                "*" => addresses.extend([format!("0.0.0.0:{port}"), format!("[::]:{port}")]),
                "localhost" => {
                    let here = localhost(&|ip| TcpListener::bind((ip, 0)).is_ok(), localhost_addresses());
                    if here.len() > 1 {
                        let what = "localhost is 127.0.0.1 and ::1 on this host: change listen for another";
                        self.say(None, "listen_addr", what, true);
                    }
                    addresses.extend(here.iter().map(|&ip| SocketAddr::new(ip, port).to_string()));
                }
                address if address.contains(':') => addresses.push(format!("[{address}]:{port}")),
                address => addresses.push(format!("{address}:{port}")),
            }
        }
        let mut seen = BTreeSet::new();
        let given = addresses.len();
        addresses.retain(|address| seen.insert(address.to_string().trim().to_owned()));
        if addresses.len() < given {
            self.say(None, "listen_addr", "an address that is given twice is listened on once", true);
        }
        if addresses.is_empty() {
            self.lacks_address = true;
            addresses.push(format!("127.0.0.1:{port}"));
        }
        addresses
    }

    /// The whole file, which Sluice has to accept but for files that are not here.
    fn end(mut self, path: &Path) -> Result<Converted, Report> {
        let listen = self.listen();
        let asks_everywhere = self.lookup(path);
        for key in ["log_connections", "log_disconnections"] {
            // As PgBouncer does it by default.
            self.top.entry(key).or_insert_with(|| value(true));
        }
        let sockets = self.top.get("unix_socket_dir").and_then(Item::as_str).unwrap_or("/tmp").to_owned();
        for database in self.databases.iter_mut().filter(|database| !database.contains_key("host")) {
            // Servers' sockets are looked for where its own are.
            database.insert("host", value(sockets.as_str()));
        }
        if asks_everywhere {
            self.elsewhere();
        }
        for database in &mut self.databases {
            for (key, item) in &self.each_database {
                database.entry(key).or_insert_with(|| item.clone());
            }
        }
        self.fit_sizes();
        let tls = self.tls();
        if !self.lacks_socket {
            self.private_folder(&sockets);
            self.top.insert("unix_socket_dir", value(sockets));
        }
        if !self.pool.contains_key("mode") {
            // PgBouncer's default; Sluice's is another.
            self.pool.insert("mode", value("session"));
        }
        self.reset();
        self.sessions();
        self.rules();
        self.known_users(path);
        self.trust(&listen);
        self.widened();
        self.read_otherwise(path);
        if !self.problems.is_empty() {
            return Err(Report::new(self.problems));
        }
        let mut document = DocumentMut::new();
        document.insert("listen", value(listen));
        document.extend(self.top);
        if !self.lookup.is_empty() {
            self.auth.insert("lookup", self.lookup.into());
        }
        let databases: ArrayOfTables = self.databases.into_iter().collect();
        let users: ArrayOfTables = self.users.into_iter().collect();
        for (name, item) in [
            ("limits", Item::from(self.limits)),
            ("auth", self.auth.into()),
            ("tls", tls.into()),
            ("admin", self.admin.into()),
            ("pool", self.pool.into()),
            ("database", Item::ArrayOfTables(databases)),
            ("user", Item::ArrayOfTables(users)),
        ] {
            let is_empty = match &item {
                Item::Table(table) => table.is_empty(),
                Item::ArrayOfTables(tables) => tables.is_empty(),
                _ => false,
            };
            if !is_empty {
                document.insert(name, item);
            }
        }
        self.notes.extend(refusals(&document, path));
        self.notes.sort_by_key(|note| (!note.widens, !note.matters, note.line));
        let comment: String = self.notes.iter().filter(|note| note.matters).map(|note| format!("# {note}\n")).collect();
        let comment =
            if comment.is_empty() { comment } else { format!("# Not as in {}:\n{comment}\n", path.display()) };
        document.decor_mut().set_prefix(comment);
        Ok(Converted { toml: document.to_string(), notes: self.notes })
    }
}

/// Whether a database's own value says that the one of all databases holds (`database_max_connections` and the functions
/// beside it in PgBouncer's `server.c`).
fn is_that_of_all(key: &str, text: &str) -> bool {
    let is_unset = |number: f64| match key {
        "max_db_connections" | "max_db_client_connections" => number <= 0.0,
        "server_lifetime" => number == 0.0,
        "query_wait_timeout" => number < 0.0,
        // Here 0 is none, which is all that there is.
        "reserve_pool" | "reserve_pool_size" => number <= 0.0,
        _ => false,
    };
    text.parse().is_ok_and(is_unset)
}

/// The addresses by the name `localhost` that this host can listen on, as PgBouncer takes them; at least one.
fn localhost(can_listen: &dyn Fn(IpAddr) -> bool, known: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut here: Vec<IpAddr> = known.filter(|ip| ip.is_loopback() && can_listen(*ip)).collect();
    here.sort_unstable();
    here.dedup();
    if here.is_empty() {
        here.push(Ipv4Addr::LOCALHOST.into());
    }
    here
}

/// The addresses by the name `localhost`.
fn localhost_addresses() -> impl Iterator<Item = IpAddr> {
    ("localhost", 0).to_socket_addrs().into_iter().flatten().map(|address| address.ip())
}

fn put(table: &mut Table, key: &str, number: Option<i64>) {
    if let Some(number) = number {
        table.insert(key, value(number));
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}, {}: {}", self.key, self.what),
            None => write!(f, "{}: {}", self.key, self.what),
        }
    }
}

#[cfg(test)]
mod tests;
