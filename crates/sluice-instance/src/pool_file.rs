//! The pool's configuration for an instance's server: written at each start, read by the pool as any other.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    bootstrap::Lookup,
    files::{self, Owner},
    server::Endpoint,
};

/// The contents of the file.
#[derive(Debug, Clone)]
pub struct PoolFile {
    /// The addresses that clients connect to.
    pub listen: Vec<SocketAddr>,
    /// The server's endpoint.
    pub endpoint: Endpoint,
    /// The file with the secret by which the server believes where clients are, if it does.
    pub client_address_secret_file: Option<PathBuf>,
    /// The look-up of the clients' secrets.
    pub lookup: Lookup,
    /// Servers for each (database, user).
    pub pool_size: u32,
    /// Time limit for a client's wait for a server; none is the pool's default.
    pub wait_timeout: Option<Duration>,
    /// The interval at which its figures are written to its log; none is never.
    pub stats_period: Option<Duration>,
    /// Servers in all.
    pub servers_max: u32,
    /// Clients in all.
    pub clients_max: u32,
}

impl PoolFile {
    /// Writes it, readable by this process's user only: it has a password.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        files::write_private(path, self.to_toml()?.as_bytes(), Owner::Us)
    }

    /// The file's text. Fails on a socket folder that is not UTF-8, which TOML can't hold.
    fn to_toml(&self) -> io::Result<String> {
        let Some(host) = self.endpoint.socket_dir.to_str() else {
            let dir = self.endpoint.socket_dir.display();
            return Err(io::Error::other(format!("{dir} is not UTF-8; choose another directory with --data DIR")));
        };
        let secret_file = match self.client_address_secret_file.as_deref().map(Path::to_str) {
            None => String::new(),
            Some(Some(file)) => format!("client_address_secret_file = {}\n", quoted(file)),
            Some(None) => return Err(io::Error::other("the data directory's name is not UTF-8")),
        };
        let time = |key: &str, time: Option<Duration>| {
            time.map_or_else(String::new, |time| format!("{key} = \"{}ms\"\n", time.as_millis()))
        };
        let listen: Vec<String> = self.listen.iter().map(|address| quoted(&address.to_string())).collect();
        let Lookup { user, password, database, query } = &self.lookup;
        Ok(format!(
            "\
# Written by `sluice up` at each start: changes made here are lost.
# To run the pool by a configuration of your own, copy this file and use `sluice serve -c FILE`.
listen = [{listen}]
{stats_period}
[limits]
clients = {clients_max}
servers = {servers_max}

[auth]
method = \"scram-sha-256\"

[auth.lookup]
user = {user}
password = {password}
database = {database}
query = {query}

[[database]]
name = \"*\"
host = {host}
port = {port}
{secret_file}
[database.pool]
size = {size}
{wait_timeout}",
            listen = listen.join(", "),
            clients_max = self.clients_max,
            servers_max = self.servers_max,
            user = quoted(user),
            password = quoted(password.expose()),
            database = quoted(database),
            query = quoted(query),
            host = quoted(host),
            port = self.endpoint.port,
            size = self.pool_size,
            stats_period = time("stats_period", self.stats_period),
            wait_timeout = time("wait_timeout", self.wait_timeout),
        ))
    }
}

fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Password;

    #[test]
    fn reads_back_whatever_is_in_it() {
        let dir = "/a \"b\"\\c\nd";
        let file = PoolFile {
            listen: vec!["127.0.0.1:6432".parse().unwrap(), "[::1]:6432".parse().unwrap()],
            endpoint: Endpoint { socket_dir: PathBuf::from(dir), port: 5432, tcp: None },
            client_address_secret_file: Some(PathBuf::from("/a \"secret\"")),
            lookup: Lookup {
                user: "sluice_auth".to_owned(),
                password: Password::from_file("it's \"secret\"").unwrap(),
                database: "postgres".to_owned(),
                query: "SELECT sluice.get_secret($1)".to_owned(),
            },
            pool_size: 20,
            wait_timeout: Some(Duration::from_secs(60)),
            stats_period: Some(Duration::from_millis(500)),
            servers_max: 90,
            clients_max: 10_000,
        };
        let text = file.to_toml().unwrap();
        let read: toml_edit::DocumentMut = text.parse().unwrap();
        assert_eq!(read["listen"][1].as_str(), Some("[::1]:6432"));
        assert_eq!(read["stats_period"].as_str(), Some("500ms"));
        assert_eq!(read["limits"]["servers"].as_integer(), Some(90));
        assert_eq!(read["limits"]["clients"].as_integer(), Some(10_000));
        assert_eq!(read["auth"]["lookup"]["password"].as_str(), Some("it's \"secret\""));
        assert_eq!(read["database"][0]["host"].as_str(), Some(dir));
        assert_eq!(read["database"][0]["client_address_secret_file"].as_str(), Some("/a \"secret\""));
        assert_eq!(read["database"][0]["pool"]["size"].as_integer(), Some(20));
        assert_eq!(read["database"][0]["pool"]["wait_timeout"].as_str(), Some("60000ms"));
    }
}
