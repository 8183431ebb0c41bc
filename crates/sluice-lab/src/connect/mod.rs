//! A server by its DSN: a connection string, the `PG*` variables and the password file, as `psql` takes them.
//!
//! | file | what |
//! |---|---|
//! | `options.rs` | what libpq knows and the driver does not |
//! | `tls.rs` | encryption, and who is at the other end |
//! | `pgpass.rs` | the password file |
//! | `path.rs` | the schemas in which a session finds functions and tables |
//!
//! Nothing of a password reaches a message.

mod options;
mod path;
mod pgpass;
mod tls;

use std::{
    env, fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use postgres::{
    CancelToken, Client, Config, NoTls, SimpleQueryMessage, config::Host, config::SslMode, error::SqlState,
};
use sluice_tls::{ClientTls, SslMode as Mode};

pub use self::options::parameter;
pub(crate) use self::path::{extension_schema, guarded, is_open};
use self::{
    options::{Options, REFUSED_VARIABLES, is_uri, quoted},
    path::SearchPath,
};
pub use crate::error::words;

/// Directories in which a server's socket is looked for: Debian's place, then PostgreSQL's own.
const SOCKET_DIRS: [&str; 2] = ["/var/run/postgresql", "/tmp"];
const PORT: u16 = 5432;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// The means to connect: the driver's configuration, and what TLS has to verify.
#[derive(Clone, Debug)]
pub struct Access {
    config: Config,
    tls: Option<Arc<ClientTls>>,
    search_path: SearchPath,
}

impl From<Config> for Access {
    /// Without TLS: a Unix socket needs none.
    fn from(config: Config) -> Self {
        Self { config, tls: None, search_path: SearchPath::default() }
    }
}

impl Access {
    /// Connects. The session finds what is PostgreSQL's own, and nothing else without its schema: what a database's
    /// owner makes there must not be run by whoever looks at it.
    ///
    /// # Errors
    ///
    /// PostgreSQL's, the system's, or that of TLS.
    pub fn connect(&self) -> Result<Client, postgres::Error> {
        let told = self.search_path.options(self.config.get_options());
        let Some(told) = told else { return self.connect_by(&self.config) };
        match self.connect_by(self.config.clone().options(&told)) {
            Err(error) if path::is_refused(&error) => {
                let client = self.connect_by(&self.config)?;
                self.search_path.was_refused();
                Ok(client)
            }
            done => done,
        }
    }

    fn connect_by(&self, config: &Config) -> Result<Client, postgres::Error> {
        let Some(tls) = &self.tls else { return config.connect(NoTls) };
        match config.connect(tls::connector(tls)) {
            Err(error) if config.get_ssl_mode() == SslMode::Prefer && may_do_without_tls(&error) => {
                config.clone().ssl_mode(SslMode::Disable).connect(NoTls)
            }
            done => done,
        }
    }

    /// The same for sessions that name a scenario's tables, which are in `public`, by their names alone.
    #[must_use]
    pub fn for_tables(&self) -> Self {
        Self { search_path: self.search_path.for_tables(), ..self.clone() }
    }

    /// Ends a statement of a session that came by here, if one runs.
    pub fn cancel(&self, token: &CancelToken) {
        // A server that does not hear the request has gone.
        let _ = match &self.tls {
            Some(tls) if self.config.get_ssl_mode() != SslMode::Prefer => token.cancel_query(tls::connector(tls)),
            _ => token.cancel_query(NoTls),
        };
    }

    /// The same for a session that has a name of its own, and does not wait long for the server.
    #[must_use]
    pub fn named(&self, application: &str, connect_time_max: Duration) -> Self {
        let mut access = self.clone();
        access.config.application_name(application).connect_timeout(connect_time_max);
        access
    }
}

/// The first value of a statement's first row, as text; by a simple query, which pools in transaction mode like.
pub(crate) fn first_value(client: &mut Client, query: &str) -> Result<Option<String>, postgres::Error> {
    let rows = client.simple_query(query)?;
    Ok(rows.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }))
}

/// As libpq tries again: TLS failed, or `pg_hba.conf` lets nobody in by it.
fn may_do_without_tls(error: &postgres::Error) -> bool {
    is_of_tls(error) || error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}

/// The driver says of what kind an error is by its first words only.
fn is_of_tls(error: &postgres::Error) -> bool {
    error.to_string().contains("TLS handshake")
}

/// The address to connect to, and the role. Its `Display` gives both, without a password.
#[derive(Debug, Clone)]
pub struct Dsn {
    access: Access,
    /// `sslmode` and `sslrootcert`, for those who connect by libpq.
    of_tls: String,
    /// A fault found in the password file; reported only if a password is asked for.
    pgpass: Option<String>,
}

/// Reasons why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The connection string does not parse. The fault is the caller's.
    #[error(
        "the connection string is not understood: {0}\n\
         write it as postgresql://user@host:5432/database or as 'host=… port=… user=… dbname=…'"
    )]
    String(String),
    /// A `PG*` variable does not parse. The fault is the caller's.
    #[error("{name} is {value:?}, which is no {wanted}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The kind of value that was expected.
        wanted: &'static str,
    },
    /// A `PG*` variable asks for something that is not there yet.
    #[error("Sluice can't do what {0} asks for yet: unset it")]
    Unknown(&'static str),
    /// TLS has nothing to verify the server with. The fault is the operator's.
    #[error("{0}")]
    Tls(String),
    /// Nobody says which role.
    #[error("which role? name it in the connection string ('user=…') or in PGUSER")]
    User,
    /// The server does not answer, or does not let us in. Trying again may help.
    #[error("cannot connect to {target}: {why}\n{remedy}")]
    Refused {
        /// The address, without a password.
        target: String,
        /// The server's or the system's words.
        why: String,
        /// Advice for the operator.
        remedy: String,
    },
}

impl Dsn {
    /// Reads a connection string (a URI, keywords and values, or a database's name alone); what it leaves open comes
    /// from the environment, and then from psql's defaults. A URI without a port means 5432. `application` is what
    /// `pg_stat_activity` shows if nobody says otherwise.
    ///
    /// # Errors
    ///
    /// [`ConnectError::String`], [`ConnectError::Variable`], [`ConnectError::User`], [`ConnectError::Tls`].
    pub fn resolve(dsn: Option<&str>, application: &str) -> Result<Self, ConnectError> {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        Self::resolve_with(dsn.unwrap_or_default(), application, variable)
    }

    fn resolve_with(
        dsn: &str,
        application: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConnectError> {
        if let Some(name) = REFUSED_VARIABLES.into_iter().find(|name| variable(name).is_some()) {
            return Err(ConnectError::Unknown(name));
        }
        let (mut config, options) = parse(dsn)?;
        fill(&mut config, &variable)?;
        if config.get_application_name().is_none() {
            config.application_name(application);
        }
        let sockets = config.get_hosts().iter().filter(|host| matches!(host, Host::Unix(_))).count();
        if sockets > 0 && sockets < config.get_hosts().len() {
            return Err(ConnectError::String("it names sockets and other hosts: name either".to_owned()));
        }
        let home = variable("HOME").map(PathBuf::from);
        let authorities = options.get("sslrootcert").map(str::to_owned).or_else(|| variable("PGSSLROOTCERT"));
        // No socket of this machine has TLS, nor needs it.
        let mode = match sockets > 0 && config.get_hostaddrs().is_empty() {
            true => Mode::Disable,
            false => mode(&options, &variable, authorities.as_deref())?,
        };
        config.ssl_mode(match mode {
            Mode::Disable => SslMode::Disable,
            // As far as a tool goes that connects once.
            Mode::Allow | Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        });
        let usual = home.as_ref().map(|home| home.join(".postgresql/root.crt"));
        let mut of_tls = quoted("sslmode", mode.name());
        if let Some(authorities) = &authorities {
            of_tls += &quoted("sslrootcert", authorities);
        }
        let tls = match mode {
            Mode::Disable => None,
            _ => {
                let tls = tls::load(mode, authorities.as_deref(), usual);
                Some(Arc::new(tls.map_err(|error| ConnectError::Tls(tls::words(&error)))?))
            }
        };
        let mut dsn = Self { access: Access { tls, ..config.into() }, of_tls, pgpass: None };
        if dsn.access.config.get_password().is_none() {
            let file = options.get("passfile").map(str::to_owned).or_else(|| variable("PGPASSFILE")).map(PathBuf::from);
            if let Some(file) = file.or_else(|| home.map(|home| home.join(".pgpass"))) {
                dsn.look_up_password(&file);
            }
        }
        Ok(dsn)
    }

    /// Whether the server is on this machine.
    pub fn is_local(&self) -> bool {
        let addresses = self.access.config.get_hostaddrs();
        if !addresses.is_empty() {
            return addresses.iter().all(IpAddr::is_loopback);
        }
        self.access.config.get_hosts().iter().all(|host| match host {
            Host::Unix(_) => true,
            Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()),
        })
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Refused`].
    pub fn connect(&self) -> Result<Client, ConnectError> {
        self.access.connect().map_err(|error| self.refused(&error))
    }

    /// For connections of the caller's own.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// There is always one: [`fill`] sees to it.
    fn host(&self) -> String {
        self.access.config.get_hosts().first().map_or_else(String::new, name)
    }

    fn port(&self) -> u16 {
        self.access.config.get_ports().first().copied().unwrap_or(PORT)
    }

    /// The same server for programs that use libpq, without the password.
    pub fn conninfo(&self) -> String {
        self.conninfo_with(self.access.config.get_options())
    }

    /// The same for programs that name a scenario's tables.
    pub fn conninfo_for_tables(&self) -> String {
        let options = self.access.config.get_options();
        let told = self.access.search_path.for_tables().options(options);
        self.conninfo_with(told.as_deref().or(options))
    }

    fn conninfo_with(&self, options: Option<&str>) -> String {
        let config = &self.access.config;
        let hosts = config.get_hosts().iter().map(name);
        let mut text = quoted("host", &hosts.collect::<Vec<_>>().join(","));
        let mut put = |name: &str, value: Option<String>| {
            text.extend(value.filter(|value| !value.is_empty()).map(|value| quoted(name, &value)));
        };
        put("hostaddr", Some(joined(config.get_hostaddrs())));
        let ports = if config.get_ports().is_empty() { &[PORT][..] } else { config.get_ports() };
        put("port", Some(joined(ports)));
        put("user", config.get_user().map(str::to_owned));
        put("dbname", config.get_dbname().or(config.get_user()).map(str::to_owned));
        put("options", options.map(str::to_owned));
        (text + &self.of_tls).trim_end().to_owned()
    }

    /// The password, if one is set.
    pub fn password(&self) -> Option<String> {
        self.access.config.get_password().map(|password| String::from_utf8_lossy(password).into_owned())
    }

    /// A password for several hosts has to be the same for all: the driver has but one.
    fn look_up_password(&mut self, file: &Path) {
        let config = &self.access.config;
        let user = config.get_user().unwrap_or_default();
        let database = config.get_dbname().unwrap_or(user);
        let mut found = Vec::new();
        for (place, host) in config.get_hosts().iter().enumerate() {
            let host = match host {
                // The usual socket counts as localhost.
                Host::Unix(path) if SOCKET_DIRS.iter().any(|usual| path == Path::new(usual)) => "localhost".to_owned(),
                other => name(other),
            };
            let ports = config.get_ports();
            let port = ports.get(place).or(ports.first()).copied().unwrap_or(PORT);
            match pgpass::find(file, pgpass::Key { host: &host, port, database, user }) {
                Ok(password) => found.push(password),
                Err(error) => self.pgpass = Some(error.to_string()),
            }
        }
        if let Some(Some(password)) = found.first()
            && found.iter().all(|other| other.as_ref() == Some(password))
        {
            self.access.config.password(password);
        }
    }

    fn refused(&self, error: &postgres::Error) -> ConnectError {
        // A pool says itself which of its keys it is about.
        if let Some((message, hint)) = error.as_db_error().and_then(|it| Some((it.message(), it.hint()?))) {
            let (why, remedy) = (message.to_owned(), hint.to_owned());
            return ConnectError::Refused { target: self.to_string(), why, remedy };
        }
        let why = words(error);
        let remedy = match error.code() {
            Some(&SqlState::INVALID_PASSWORD) => self.password_remedy(),
            Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
                "does the role exist, and does pg_hba.conf let it in from here?".to_owned()
            }
            Some(&SqlState::INVALID_CATALOG_NAME) => "name a database that exists: dbname=postgres does".to_owned(),
            Some(&SqlState::TOO_MANY_CONNECTIONS) => {
                "try again when connections are free, or as a superuser".to_owned()
            }
            Some(_) => "the server's log may say more".to_owned(),
            None if why.contains("password") => self.password_remedy(),
            None if is_of_tls(error) && why.contains("does not support TLS") => {
                "the connection string or PGSSLMODE asks for TLS: sslmode=prefer and sslmode=disable do not".to_owned()
            }
            None if is_of_tls(error) => {
                "is that the server? then name its authority in sslrootcert, and the host as the certificate's \
                 subjectAltName does"
                    .to_owned()
            }
            None => "does the server run, and listen there? say where: 'host=… port=…'".to_owned(),
        };
        ConnectError::Refused { target: self.to_string(), why, remedy }
    }

    fn password_remedy(&self) -> String {
        match &self.pgpass {
            Some(found) => found.clone(),
            None => "give the password in PGPASSWORD, or in the file that PGPASSFILE names".to_owned(),
        }
    }
}

impl fmt::Display for Dsn {
    /// `shop on 10.0.0.2:5432 as app`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.access.config.get_user().unwrap_or_default();
        let database = self.access.config.get_dbname().unwrap_or(user);
        write!(out, "{database} on {}:{} as {user}", self.host(), self.port())
    }
}

/// A text that is neither a URI nor contains `=` is the name of a database, as for psql.
fn parse(dsn: &str) -> Result<(Config, Options), ConnectError> {
    let is_name = !dsn.is_empty() && !dsn.contains('=') && !is_uri(dsn);
    let options =
        Options::take(&if is_name { quoted("dbname", dsn) } else { dsn.to_owned() }).map_err(ConnectError::String)?;
    let why = |error: postgres::Error| ConnectError::String(words(&error));
    Ok((Config::from_str(&options.rest).map_err(why)?, options))
}

/// `sslmode`, or else `PGSSLMODE`; with the system's authorities the strictest, as libpq has it.
fn mode(
    options: &Options,
    variable: impl Fn(&str) -> Option<String>,
    authorities: Option<&str>,
) -> Result<Mode, ConnectError> {
    let wanted = "sslmode (disable, prefer, require, verify-ca, verify-full)";
    if let Some(value) = options.get("sslmode") {
        return value.parse().map_err(|_| ConnectError::String(format!("{value:?} is no {wanted}")));
    }
    if let Some(value) = variable("PGSSLMODE") {
        return parsed("PGSSLMODE", value, wanted);
    }
    Ok(if authorities == Some(tls::SYSTEM) { Mode::VerifyFull } else { Mode::default() })
}

/// A host's name, or the folder of its socket.
fn name(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    }
}

fn joined<T: ToString>(values: &[T]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Fills in what the string left open: from variables, then from defaults.
fn fill(config: &mut Config, variable: &impl Fn(&str) -> Option<String>) -> Result<(), ConnectError> {
    if config.get_ports().is_empty()
        && let Some(ports) = variable("PGPORT")
    {
        for port in ports.split(',') {
            config.port(parsed("PGPORT", port.to_owned(), "port")?);
        }
    }
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        let port = config.get_ports().first().copied().unwrap_or(PORT);
        for host in variable("PGHOST").unwrap_or_else(|| usual_host(port)).split(',') {
            config.host(host);
        }
    }
    if config.get_hosts().is_empty() {
        // TLS asks for a name.
        let names: Vec<String> = config.get_hostaddrs().iter().map(ToString::to_string).collect();
        for name in names {
            config.host(&name);
        }
    }
    if config.get_user().is_none() {
        let user = variable("PGUSER").or_else(system_user).ok_or(ConnectError::User)?;
        config.user(&user);
    }
    if config.get_dbname().is_none()
        && let Some(name) = variable("PGDATABASE")
    {
        config.dbname(&name);
    }
    if config.get_password().is_none()
        && let Some(password) = variable("PGPASSWORD")
    {
        config.password(password);
    }
    if config.get_connect_timeout().is_none() {
        let seconds = variable("PGCONNECT_TIMEOUT").map(|text| parsed("PGCONNECT_TIMEOUT", text, "number of seconds"));
        // Zero and less mean none to libpq; here nothing hangs.
        let seconds = seconds.transpose()?.and_then(|seconds: i64| u64::try_from(seconds).ok());
        config.connect_timeout(seconds.filter(|s| *s > 0).map_or(CONNECT_TIME_MAX, Duration::from_secs));
    }
    Ok(())
}

fn parsed<T: FromStr>(name: &'static str, value: String, wanted: &'static str) -> Result<T, ConnectError> {
    value.parse().map_err(|_| ConnectError::Variable { name, value, wanted })
}

/// The folder that has the server's socket; without one, this machine by TCP.
fn usual_host(port: u16) -> String {
    let has_socket = |dir: &&str| Path::new(dir).join(format!(".s.PGSQL.{port}")).exists();
    SOCKET_DIRS.into_iter().find(has_socket).unwrap_or("localhost").to_owned()
}

fn system_user() -> Option<String> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    user.map(|user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(dsn: &str, variables: &[(&str, &str)]) -> Result<Dsn, ConnectError> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Dsn::resolve_with(dsn, "a test", find)
    }

    #[test]
    fn the_string_wins_over_variables_and_these_over_defaults() {
        let variables = [("PGHOST", "db"), ("PGPORT", "6432"), ("PGUSER", "app"), ("PGDATABASE", "shop")];
        for (dsn, name, local) in [
            ("", "shop on db:6432 as app", false),
            ("other", "other on db:6432 as app", false),
            ("host=/run/pg user=root", "shop on /run/pg:6432 as root", true),
            ("postgresql://me@127.0.0.1:1/x", "x on 127.0.0.1:1 as me", true),
            ("postgresql://me@10.0.0.1/x", "x on 10.0.0.1:5432 as me", false),
            ("host=db hostaddr=::1 dbname=x", "x on db:6432 as app", true),
        ] {
            let resolved = resolved(dsn, &variables).unwrap();
            assert_eq!((resolved.to_string().as_str(), resolved.is_local()), (name, local), "{dsn}");
        }
        assert_eq!(resolved("host=localhost user=u", &[]).unwrap().to_string(), "u on localhost:5432 as u");
    }

    #[test]
    fn the_same_server_by_libpq() {
        let variables = [("PGHOST", "a,b"), ("PGPORT", "1,2"), ("PGUSER", "me"), ("PGPASSWORD", "secret")];
        let dsn = resolved("dbname='my db' sslmode=require", &variables).unwrap();
        assert_eq!(dsn.conninfo(), "host=a,b port=1,2 user=me dbname='my db' sslmode=require");
        assert_eq!(dsn.password().as_deref(), Some("secret"));
        let dsn = resolved("postgresql://u:p?w@h/d", &[]).unwrap();
        assert_eq!(dsn.conninfo(), "host=h port=5432 user=u dbname=d sslmode=prefer");
        assert_eq!(dsn.password().as_deref(), Some("p?w"));
        assert!(resolved("host=/run/pg user=u", &[]).unwrap().conninfo().ends_with("sslmode=disable"));
    }

    #[test]
    fn what_is_wrong_says_the_remedy() {
        for (dsn, variables, expected) in [
            ("hots=db", &[][..], "postgresql://user@host"),
            ("host=db", &[("PGPORT", "many")], "PGPORT is \"many\", which is no port"),
            ("host=db user=u sslmode=maybe", &[], "\"maybe\" is no sslmode"),
            ("host=db user=u", &[("PGSSLMODE", "maybe")], "PGSSLMODE is \"maybe\", which is no sslmode"),
            ("host=db user=u sslmode=verify-ca sslrootcert=/nowhere", &[], "sslrootcert names: /nowhere"),
            ("host=db user=u sslmode=require sslrootcert=system", &[], "asks for sslmode=verify-full"),
            ("host=/run/pg,db user=u", &[], "sockets and other hosts"),
            ("host=db user=u", &[("PGSERVICE", "shop")], "PGSERVICE"),
        ] {
            let error = resolved(dsn, variables).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let error = resolved("host=127.0.0.1 port=1 user=u", &[]).unwrap().connect().err().unwrap().to_string();
        assert!(error.contains("cannot connect to u on 127.0.0.1:1 as u") && error.contains("does the server run"));
    }
}
