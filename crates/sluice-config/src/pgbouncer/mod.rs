//! A configuration of PgBouncer's, turned into one of Sluice's (PgBouncer's documentation: `config.html`).
//!
//! What has a counterpart is carried over with its value; of everything else it is said why it is not, by line. Where
//! PgBouncer's default changes what clients see, it is written out.

mod ini;
mod settings;
mod tls;

use std::path::Path;

use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, Value, value};

use crate::report::{Fault, Problem, Report};

use ini::Entry;
use settings::{Counterpart, Kind, counterpart, meaning_of_zero};

/// A configuration that was converted.
#[derive(Debug)]
pub struct Converted {
    /// The text of Sluice's configuration.
    pub toml: String,
    /// What was not carried over, or means something else.
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
}

/// Converts PgBouncer's configuration.
///
/// # Errors
///
/// All that is wrong with the file, or that Sluice can't be told.
pub fn convert(path: &Path) -> Result<Converted, Report> {
    let entries = ini::read(path).map_err(|problem| Report::new(vec![problem]))?;
    let mut conversion = Conversion::default();
    for entry in &entries {
        match entry.section.as_str() {
            "pgbouncer" => conversion.setting(entry),
            "databases" => conversion.database(entry),
            "users" => conversion.note(entry, "settings of single users have no counterpart yet"),
            "peers" => conversion.note(entry, "peers have no counterpart: one process serves all cores"),
            _ => conversion.wrong(entry, "unknown section", "name it databases, users or pgbouncer"),
        }
    }
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
    listen_addr: Option<String>,
    listen_port: Option<u16>,
    /// The line of `auth_type = hba`, if rules count.
    by_rules: Option<usize>,
    /// It has a `unix_socket_dir` that is empty: no Unix sockets.
    lacks_socket: bool,
    notes: Vec<Note>,
    problems: Vec<Problem>,
}

impl Conversion {
    /// Says of a setting what clients may notice.
    fn note(&mut self, entry: &Entry, what: &str) {
        self.say(Some(entry.line), &entry.key, what, true);
    }

    fn say(&mut self, line: Option<usize>, key: &str, what: impl Into<String>, matters: bool) {
        self.notes.push(Note { line, key: key.to_owned(), what: what.into(), matters });
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
        match kind.convert(text) {
            Ok(None) => {
                if let Some(meaning) = meaning_of_zero(key) {
                    let what = format!("0 means {meaning}, which can't be said here: Sluice's default holds");
                    self.note(entry, &of_part(what));
                }
                None
            }
            Ok(converted) => converted,
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
            _ => &mut self.top,
        }
    }

    /// A setting of `[pgbouncer]`.
    fn setting(&mut self, entry: &Entry) {
        let text = entry.value.as_str();
        if self.tls_setting(entry) {
            return;
        }
        match entry.key.as_str() {
            "listen_addr" => self.listen_addr = Some(text.to_owned()),
            "listen_port" => self.listen_port = self.port(entry, text),
            "auth_type" => self.auth_type(entry),
            "unix_socket_dir" if text.is_empty() => self.lacks_socket = true,
            "auth_query" => {
                // PgBouncer's gives the name first.
                let query = format!("SELECT secret FROM ({text}) AS found (name, secret)");
                self.lookup.insert("query", value(query));
            }
            key => match counterpart(key) {
                Some(Counterpart::Key(table, name, kind)) => {
                    if let Some(converted) = self.value(entry, key, &kind, text) {
                        self.table(table).insert(name, converted.into());
                    }
                }
                Some(Counterpart::Unneeded(why)) => self.say(Some(entry.line), key, why, false),
                Some(Counterpart::Missing(why)) if !matches!(text, "0" | "" | "disable" | "0.0") => {
                    self.note(entry, why)
                }
                Some(Counterpart::Missing(_)) => {}
                None => self.note(entry, "not known: PgBouncer 1.24 has no such setting"),
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

    fn auth_type(&mut self, entry: &Entry) {
        let method = match entry.value.as_str() {
            "trust" => "trust",
            "any" => {
                self.note(entry, "as trust: give each database the user that it logs in as");
                "trust"
            }
            "md5" => "md5",
            "scram-sha-256" => "scram-sha-256",
            "plain" => {
                self.note(entry, "passwords are not sent in clear: scram-sha-256 in its place");
                "scram-sha-256"
            }
            "hba" => {
                self.by_rules = Some(entry.line);
                return;
            }
            "cert" | "pam" => {
                let what = "has no counterpart yet: scram-sha-256 in its place, for all clients";
                self.note(entry, what);
                "scram-sha-256"
            }
            other => {
                return self.wrong(entry, format!("{other:?} is no auth_type"), "write one that PgBouncer knows");
            }
        };
        self.auth.insert("method", value(method));
    }

    /// A line of `[databases]`.
    fn database(&mut self, entry: &Entry) {
        let Some(parts) = ini::parts(&entry.value) else {
            return self.wrong(entry, "not a connection string", "write host=… port=… dbname=…");
        };
        let (mut database, mut pool) = (Table::new(), Table::new());
        database.insert("name", value(entry.key.as_str()));
        for (key, text) in &parts {
            match key.as_str() {
                "host" if text.contains(',') => {
                    let first = text.split(',').next().unwrap_or_default();
                    database.insert("host", value(first));
                    self.note(entry, "several hosts have no counterpart: the first one is taken");
                }
                "host" | "dbname" | "user" | "password" => _ = database.insert(key, value(text.as_str())),
                "port" => {
                    if let Some(port) = self.port(entry, text) {
                        database.insert("port", value(i64::from(port)));
                    }
                }
                "pool_size" | "min_pool_size" | "pool_mode" | "server_lifetime" => {
                    let name = if key == "pool_size" { "default_pool_size" } else { key };
                    let Some(Counterpart::Key(_, name, kind)) = counterpart(name) else { continue };
                    if let Some(converted) = self.value(entry, key, &kind, text) {
                        pool.insert(name, converted.into());
                    }
                }
                key => {
                    let why = match (key, counterpart(key)) {
                        ("reserve_pool", _) => "there is no reserve: make the pool larger",
                        ("auth_user" | "auth_query" | "auth_dbname", _) => {
                            "there is one look-up for all databases: set it under [auth.lookup]"
                        }
                        ("connect_query", _) => "has no counterpart",
                        (_, Some(Counterpart::Missing(why) | Counterpart::Unneeded(why))) => why,
                        (_, Some(Counterpart::Key(..))) => "is not for single databases",
                        (_, None) => "has no counterpart: set it for the role or the database by ALTER … SET",
                    };
                    self.note(entry, &format!("{key}: {why}"));
                }
            }
        }
        if !pool.is_empty() {
            database.insert("pool", pool.into());
        }
        self.databases.push(database);
    }

    /// The addresses to listen on.
    fn listen(&mut self) -> Array {
        let port = self.listen_port.unwrap_or(6432);
        let mut addresses = Array::new();
        for address in self.listen_addr.iter().flat_map(|list| list.split(',')).map(str::trim) {
            match address {
                "" => {}
                "*" => addresses.extend([format!("0.0.0.0:{port}"), format!("[::]:{port}")]),
                "localhost" => addresses.push(format!("127.0.0.1:{port}")),
                address if address.contains(':') => addresses.push(format!("[{address}]:{port}")),
                address => addresses.push(format!("{address}:{port}")),
            }
        }
        if addresses.is_empty() {
            self.say(
                None,
                "listen_addr",
                "PgBouncer listens on its Unix socket only; Sluice needs an address besides",
                true,
            );
            addresses.push(format!("127.0.0.1:{port}"));
        }
        addresses
    }

    fn lookup(&mut self) {
        if !self.lookup.contains_key("user") {
            if self.lookup.contains_key("query") {
                self.say(None, "auth_query", "no effect without auth_user", false);
            }
            self.lookup = Table::new();
            return;
        }
        if self.auth.remove("users_file").is_some() {
            let what = "secrets are looked up by auth_user, and the file is not read: users that stand only there, as \
                        those of admin_users and stats_users may, can't log in before they are roles";
            self.say(None, "auth_file", what, true);
        }
        if !self.lookup.contains_key("database") {
            let named = self.databases.iter().find_map(|database| database.get("name")?.as_str()).unwrap_or("*");
            let database = if named == "*" { "postgres" } else { named };
            self.lookup.insert("database", value(database));
            let what = format!("asked in the database {database:?} only, where PgBouncer asks in each client's own");
            self.say(None, "auth_query", what, true);
        }
        let what = "unless the server lets the role in without one, write its password to a file, and name that by \
                    password_file under [auth.lookup]: it is not taken from auth_file";
        self.say(None, "auth_user", what, true);
    }

    /// The rules by which clients are let in, or else the method.
    fn rules(&mut self) {
        match self.by_rules {
            Some(_) if self.auth.contains_key("hba_file") => {}
            Some(line) => {
                let what = "names no rules: set hba_file under [auth]";
                self.say(Some(line), "auth_type", what, true);
                self.auth.remove("ident_file");
            }
            None => {
                for key in ["hba_file", "ident_file"] {
                    if self.auth.remove(key).is_some() {
                        self.say(None, &format!("auth_{key}"), "no effect without auth_type = hba", false);
                    }
                }
                if !self.auth.contains_key("method") {
                    self.auth.insert("method", value("md5"));
                }
            }
        }
    }

    /// The whole file, which Sluice has to accept but for files that are not here.
    fn end(mut self, path: &Path) -> Result<Converted, Report> {
        let listen = self.listen();
        self.lookup();
        let sockets = self.top.get("unix_socket_dir").and_then(Item::as_str).unwrap_or("/tmp").to_owned();
        for database in self.databases.iter_mut().filter(|database| !database.contains_key("host")) {
            // Servers' sockets are looked for where its own are.
            database.insert("host", value(sockets.as_str()));
        }
        let tls = self.tls();
        if !self.lacks_socket {
            self.top.insert("unix_socket_dir", value(sockets));
        }
        if !self.pool.contains_key("mode") {
            // PgBouncer's default; Sluice's is another.
            self.pool.insert("mode", value("session"));
        }
        self.rules();
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
        for (name, item) in [
            ("limits", Item::from(self.limits)),
            ("auth", self.auth.into()),
            ("tls", tls.into()),
            ("admin", self.admin.into()),
            ("pool", self.pool.into()),
            ("database", Item::ArrayOfTables(databases)),
        ] {
            if !matches!(&item, Item::Table(table) if table.is_empty()) {
                document.insert(name, item);
            }
        }
        self.notes.sort_by_key(|note| (!note.matters, note.line));
        let comment: String = self.notes.iter().filter(|note| note.matters).map(|note| format!("# {note}\n")).collect();
        let comment =
            if comment.is_empty() { comment } else { format!("# Not as in {}:\n{comment}\n", path.display()) };
        document.decor_mut().set_prefix(comment);
        Ok(Converted { toml: document.to_string(), notes: self.notes })
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
mod tests {
    use std::time::Duration;

    use sluice_control::settings::PoolMode;

    use super::*;
    use crate::{Config, Method, SecretSource, ServerAddress, parse};

    /// The configuration that comes of a text, as Sluice reads it, and the notes.
    fn converted(text: &str) -> (Config, Vec<String>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let Converted { toml, notes } = convert(file.path()).unwrap_or_else(|report| panic!("{report}"));
        let config = parse(&toml, Path::new("sluice.toml")).unwrap_or_else(|report| panic!("{toml}\n{report}"));
        (config, notes.iter().map(ToString::to_string).collect())
    }

    /// These notes are there, each of its line, and no others.
    fn assert_said(notes: &[String], expected: &[(usize, &str)]) {
        for (line, part) in expected {
            let is_said = notes.iter().any(|note| note.starts_with(&format!("line {line}, ")) && note.contains(part));
            assert!(is_said, "{line}, {part}: {notes:#?}");
        }
        assert_eq!(notes.len(), expected.len(), "{notes:#?}");
    }

    #[test]
    fn what_has_a_counterpart_is_carried_over() {
        let (config, notes) = converted(
            "[databases]\n\
             app = host=10.0.0.1 port=5433 dbname=app_db pool_size=7 pool_mode=session\n\
             \"odd name\" = user=own password='it''s'\n\
             * = host=/run/postgresql\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1, ::1\nlisten_port = 6543\nunix_socket_dir = /run/here\n\
             auth_type = scram-sha-256\nauth_user = asker\nauth_dbname = app\n\
             auth_query = SELECT usename, passwd FROM pg_shadow WHERE usename=$1\n\
             pool_mode = transaction\ndefault_pool_size = 30\nmin_pool_size = 2\nmax_client_conn = 5000\n\
             query_wait_timeout = 2.5\nserver_lifetime = 7200\nserver_idle_timeout = 60\n\
             idle_transaction_timeout = 0\nserver_reset_query = DISCARD ALL\n",
        );
        assert_eq!(config.listen, ["127.0.0.1:6543".parse().unwrap(), "[::1]:6543".parse().unwrap()]);
        assert_eq!(config.unix_socket_dir.as_deref(), Some(Path::new("/run/here")));
        assert_eq!((config.limits.clients, config.limits.idle_transaction_timeout), (5000, None));
        let [app, odd, rest] = &config.databases[..] else { panic!("{:?}", config.databases) };
        assert_eq!(app.server, ServerAddress::Tcp { host: "10.0.0.1".to_owned(), port: 5433 });
        assert_eq!(
            (app.dbname.as_deref(), app.pool.size, app.pool.sharing.mode),
            (Some("app_db"), 7, PoolMode::Session)
        );
        assert_eq!((odd.name.as_deref(), odd.user.as_deref()), (Some("odd name"), Some("own")));
        assert_eq!(odd.password.as_ref().map(|password| &*password.0), Some("it's"));
        assert_eq!((rest.name.as_ref(), rest.pool.size, rest.pool.sharing.mode), (None, 30, PoolMode::Transaction));
        assert_eq!((rest.pool.min, rest.pool.wait_timeout), (2, Duration::from_millis(2500)));
        let Some(SecretSource::Lookup(lookup)) = &config.auth.secrets else { panic!("{:?}", config.auth) };
        assert!(lookup.query.starts_with("SELECT secret FROM (SELECT usename, passwd"), "{}", lookup.query);
        assert_eq!((lookup.user.as_str(), lookup.database.as_str()), ("asker", "app"));
        assert_eq!(notes.len(), 2, "{notes:?}");
    }

    #[test]
    fn defaults_that_clients_notice_are_written_out() {
        let (config, notes) = converted("[databases]\na = \n[pgbouncer]\nauth_type = trust\n");
        assert_eq!(config.databases[0].pool.sharing.mode, PoolMode::Session);
        assert_eq!(config.unix_socket_dir.as_deref(), Some(Path::new("/tmp")));
        assert_eq!(config.auth.method, Method::Trust);
        assert!(notes.iter().any(|note| note.starts_with("listen_addr: ")), "{notes:?}");
    }

    #[test]
    fn what_has_none_is_said_where_it_is_set() {
        let (_, notes) = converted(
            "[databases]\na = host=x,y connect_query='select 1'\n[users]\nme = pool_mode=session\n[pgbouncer]\n\
             auth_type = trust\nlisten_addr = 127.0.0.1\nclient_tls_sslmode = require\nserver_tls_sslmode = disable\n\
             query_timeout = 0\nreserve_pool_size = 5\nnonsense = 1\nverbose = 2\n",
        );
        assert_said(
            &notes,
            &[
                (2, "several hosts"),
                (2, "connect_query"),
                (4, "single users"),
                (8, "there is nothing to offer"),
                (11, "no reserve"),
                (12, "not known"),
                (13, "RUST_LOG"),
            ],
        );
    }

    #[test]
    fn tls_is_said_once_for_clients_and_with_each_database_by_tcp() {
        let toml = |settings: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            let text = format!("[databases]\na = host=db\nb =\n[pgbouncer]\nauth_type = trust\n{settings}");
            std::fs::write(file.path(), text).unwrap();
            convert(file.path()).unwrap()
        };
        let files = |side| {
            format!(
                "{side}_tls_cert_file = {side}.crt\n{side}_tls_key_file = {side}.key\n{side}_tls_ca_file = ca.crt\n"
            )
        };
        for (mode, expected) in [
            ("disable", ""),
            ("allow", "cert_file = \"client.crt\"\nkey_file = \"client.key\"\n"),
            ("require", "cert_file = \"client.crt\"\nkey_file = \"client.key\"\nrequired = true\n"),
            (
                "verify-full",
                "cert_file = \"client.crt\"\nkey_file = \"client.key\"\nrequired = true\n\
                 client_certificates = \"verify-ca\"\nclient_ca_file = \"ca.crt\"\n",
            ),
        ] {
            let converted = toml(&format!("client_tls_sslmode = {mode}\n{}", files("client"))).toml;
            let table = converted.split("[tls]\n").nth(1).map_or("", |rest| rest.split("\n[").next().unwrap());
            assert_eq!(table, expected, "{converted}");
        }
        for (mode, expected) in [
            ("prefer", "name = \"a\"\nhost = \"db\"\nsslcert = \"server.crt\"\nsslkey = \"server.key\"\n"),
            ("disable", "name = \"a\"\nhost = \"db\"\nsslmode = \"disable\"\n"),
            (
                "verify-ca",
                "name = \"a\"\nhost = \"db\"\nsslmode = \"verify-ca\"\nsslrootcert = \"ca.crt\"\n\
                 sslcert = \"server.crt\"\nsslkey = \"server.key\"\n",
            ),
        ] {
            let converted = toml(&format!("server_tls_sslmode = {mode}\n{}", files("server"))).toml;
            let databases: Vec<_> = converted.split("[[database]]\n").skip(1).map(str::trim_end).collect();
            assert_eq!(databases, [expected.trim_end(), "name = \"b\"\nhost = \"/tmp\""], "{converted}");
        }
        let notes = toml("server_tls_sslmode = verify-full\nclient_tls_protocols = all\n").notes;
        let said: Vec<_> = notes.iter().map(|note| (note.line, note.key.as_str())).collect();
        assert!(said.contains(&(Some(6), "server_tls_sslmode")) && said.contains(&(Some(7), "client_tls_protocols")));
    }

    #[test]
    fn rules_take_the_place_of_the_method() {
        let auth = |settings: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), format!("[databases]\na =\n[pgbouncer]\n{settings}")).unwrap();
            let converted = convert(file.path()).unwrap();
            let table = converted.toml.split("[auth]\n").nth(1).unwrap().split("\n[").next().unwrap().trim().to_owned();
            (table, converted.notes.iter().map(|note| note.key.clone()).collect::<Vec<_>>())
        };
        let files = "auth_hba_file = pg_hba.conf\nauth_ident_file = pg_ident.conf\n";
        let (table, _) = auth(&format!("auth_type = hba\n{files}"));
        assert_eq!(table, "hba_file = \"pg_hba.conf\"\nident_file = \"pg_ident.conf\"");
        let (table, notes) = auth(files);
        assert_eq!(table, "method = \"md5\"");
        assert!(notes.contains(&"auth_hba_file".to_owned()), "{notes:?}");
        let (_, notes) = auth("auth_type = hba\n");
        assert!(notes.contains(&"auth_type".to_owned()), "{notes:?}");
    }

    #[test]
    fn zeros_single_databases_and_sockets() {
        let (config, notes) = converted(
            "[databases]\na = dbname=b auth_user=x\nc = max_db_connections=5 timezone=UTC server_lifetime=0\n[pgbouncer]\n\
             auth_type = trust\nlisten_addr = 127.0.0.1\nunix_socket_dir =\nquery_wait_timeout = 0\n\
             server_lifetime = 0\nidle_transaction_timeout = 0\n",
        );
        assert_eq!(config.unix_socket_dir, None);
        assert_eq!(config.databases[0].server, ServerAddress::Unix { dir: "/tmp".into(), port: 5432 });
        assert_said(
            &notes,
            &[
                (2, "set it under [auth.lookup]"),
                (3, "no such limit yet"),
                (3, "timezone: has no counterpart: set it for the role"),
                (3, "server_lifetime: 0 means to use a server once"),
                (8, "0 means to wait for ever"),
                (9, "0 means to use a server once"),
            ],
        );
    }

    #[test]
    fn what_is_wrong_is_said_at_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text =
            "[databases]\na = host\n[pgbouncer]\nlisten_port = x\npool_mode = mine\nauth_type = magic\n[odd]\nb = c\n";
        std::fs::write(file.path(), text).unwrap();
        let lines: Vec<_> = convert(file.path())
            .unwrap_err()
            .problems()
            .iter()
            .map(|problem| problem.position.map(|position| position.line))
            .collect();
        assert_eq!(lines, [Some(2), Some(4), Some(5), Some(6), Some(8)]);
    }
}
