//! A connection from a connection string, the `PG*` variables and the password file, as `psql` makes one.
//!
//! Without TLS: a server that asks for it is named in the error. Nothing of a password reaches a message.

use std::{env, net::IpAddr, path::Path, str::FromStr, time::Duration};

use postgres::{Client, Config, NoTls, config::Host, config::SslMode, error::SqlState};

use super::{pgpass, server::words};

/// Where a server's socket is looked for: Debian's place, then PostgreSQL's own.
const SOCKET_DIRS: [&str; 2] = ["/var/run/postgresql", "/tmp"];
const PORT: u16 = 5432;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// What `pg_stat_activity` shows.
const APPLICATION: &str = "sluice review";

/// Where to connect, and as whom.
#[derive(Debug, Clone)]
pub struct Target {
    config: Config,
    /// What was found in the way of the password file; told only if a password is asked for.
    pgpass: Option<String>,
}

/// Why there is no connection.
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
        /// What it should be.
        wanted: &'static str,
    },
    /// Nobody says which role.
    #[error("which role? name it: sluice review 'user=…', or PGUSER")]
    User,
    /// The server does not answer, or does not let us in. Trying again may help.
    #[error("cannot connect to {target}: {why}\n{remedy}")]
    Refused {
        /// Where.
        target: String,
        /// The server's or the system's words.
        why: String,
        /// What to do.
        remedy: String,
    },
}

impl Target {
    /// Reads a connection string (a URI, keywords and values, or a database's name alone); what it leaves open comes
    /// from the environment, and then from psql's defaults. A URI without a port means 5432.
    ///
    /// # Errors
    ///
    /// [`ConnectError::String`], [`ConnectError::Variable`], [`ConnectError::User`].
    pub fn resolve(dsn: Option<&str>) -> Result<Self, ConnectError> {
        let mut config = parse(dsn.unwrap_or_default())?;
        fill(&mut config, |name| env::var(name).ok().filter(|value| !value.is_empty()))?;
        let mut target = Self { config, pgpass: None };
        if target.config.get_password().is_none() {
            target.look_up_password();
        }
        Ok(target)
    }

    /// Whether the server is on this machine.
    pub fn is_local(&self) -> bool {
        let addresses = self.config.get_hostaddrs();
        if !addresses.is_empty() {
            return addresses.iter().all(IpAddr::is_loopback);
        }
        self.config.get_hosts().iter().all(|host| match host {
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
        self.config.connect(NoTls).map_err(|error| self.refused(&error))
    }

    /// Where and as whom, without a password.
    pub fn name(&self) -> String {
        let user = self.config.get_user().unwrap_or_default();
        let database = self.config.get_dbname().unwrap_or(user);
        format!("{database} on {}:{} as {user}", self.host(), self.port())
    }

    fn host(&self) -> String {
        match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => self.config.get_hostaddrs().first().map_or_else(String::new, ToString::to_string),
        }
    }

    fn port(&self) -> u16 {
        self.config.get_ports().first().copied().unwrap_or(PORT)
    }

    fn look_up_password(&mut self) {
        let host = self.host();
        // The usual socket counts as localhost.
        let host = if SOCKET_DIRS.contains(&host.as_str()) { "localhost".to_owned() } else { host };
        let user = self.config.get_user().unwrap_or_default().to_owned();
        let database = self.config.get_dbname().unwrap_or(&user).to_owned();
        let key = pgpass::Key { host: &host, port: self.port(), database: &database, user: &user };
        match pgpass::find(key) {
            Ok(Some(password)) => {
                self.config.password(password);
            }
            Ok(None) => {}
            Err(error) => self.pgpass = Some(error.to_string()),
        }
    }

    fn refused(&self, error: &postgres::Error) -> ConnectError {
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
            None if why.contains("TLS") => {
                "the server asks for TLS, which sluice review does not speak yet: connect by its Unix socket, or \
                 review a file (--csv)"
                    .to_owned()
            }
            None => "does the server run, and listen there? say where: sluice review 'host=… port=…'".to_owned(),
        };
        ConnectError::Refused { target: self.name(), why, remedy }
    }

    fn password_remedy(&self) -> String {
        match &self.pgpass {
            Some(found) => found.clone(),
            None => "give the password in PGPASSWORD, or in the file that PGPASSFILE names".to_owned(),
        }
    }
}

/// A string without `=` and `://` is a database's name, as for psql.
fn parse(dsn: &str) -> Result<Config, ConnectError> {
    if !dsn.is_empty() && !dsn.contains('=') && !dsn.contains("://") {
        let mut config = Config::new();
        config.dbname(dsn);
        return Ok(config);
    }
    let why = |error: postgres::Error| ConnectError::String(words(&error));
    Config::from_str(dsn).map_err(why)
}

/// Fills in what the string left open: from variables, then from defaults.
fn fill(config: &mut Config, variable: impl Fn(&str) -> Option<String>) -> Result<(), ConnectError> {
    if config.get_ports().is_empty()
        && let Some(port) = variable("PGPORT")
    {
        config.port(number("PGPORT", port, "port")?);
    }
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        let port = config.get_ports().first().copied().unwrap_or(PORT);
        config.host(&variable("PGHOST").unwrap_or_else(|| usual_host(port)));
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
        let seconds = variable("PGCONNECT_TIMEOUT").map(|text| number("PGCONNECT_TIMEOUT", text, "number of seconds"));
        config.connect_timeout(seconds.transpose()?.map_or(CONNECT_TIME_MAX, Duration::from_secs));
    }
    if config.get_application_name().is_none() {
        config.application_name(APPLICATION);
    }
    if let Some("require" | "verify-ca" | "verify-full") = variable("PGSSLMODE").as_deref() {
        config.ssl_mode(SslMode::Require);
    }
    Ok(())
}

fn number<T: FromStr>(name: &'static str, value: String, wanted: &'static str) -> Result<T, ConnectError> {
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

    fn resolved(dsn: &str, variables: &[(&str, &str)]) -> Result<Target, ConnectError> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let mut config = parse(dsn)?;
        fill(&mut config, find)?;
        Ok(Target { config, pgpass: None })
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
            let target = resolved(dsn, &variables).unwrap();
            assert_eq!((target.name().as_str(), target.is_local()), (name, local), "{dsn}");
        }
        assert_eq!(resolved("host=localhost user=u", &[]).unwrap().name(), "u on localhost:5432 as u");
    }

    #[test]
    fn what_is_wrong_says_the_remedy() {
        for (dsn, variables, expected) in [
            ("hots=db", &[][..], "postgresql://user@host"),
            ("host=db", &[("PGPORT", "many")], "PGPORT is \"many\", which is no port"),
        ] {
            let error = resolved(dsn, variables).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let error = resolved("host=127.0.0.1 port=1 user=u", &[]).unwrap().connect().err().unwrap().to_string();
        assert!(error.contains("cannot connect to u on 127.0.0.1:1 as u") && error.contains("does the server run"));
    }
}
