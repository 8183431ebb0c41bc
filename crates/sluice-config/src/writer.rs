//! A configuration file for one server, written key by key along the schema: what is written can be read.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use sluice_control::{cluster::Rest, reading::Target};
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table};

use crate::{
    DriverChoice, LookupConfig, Method,
    kinds::{HostValue, Kind},
    schema::{self, Key},
};

/// The contents of the file: a pool before one server on this host, or before a cluster, which takes all of its databases
/// and looks its clients' secrets up there.
#[derive(Debug, Clone)]
pub struct ServerFile {
    /// The addresses that clients connect to.
    pub listen: Vec<SocketAddr>,
    /// The system interface that moves the bytes.
    pub driver: DriverChoice,
    /// Clients in all.
    pub clients_max: u32,
    /// Servers in all.
    pub servers_max: u32,
    /// The look-up of the clients' secrets.
    pub lookup: LookupConfig,
    /// The users that may do everything at the admin console; without any of these and the next there is none.
    pub admin_users: Vec<String>,
    /// The users that may look at it.
    pub stats_users: Vec<String>,
    /// The certificate that clients are shown, and its key; without it nothing is encrypted.
    pub certificate: Option<CertificateFiles>,
    /// The server's address.
    pub server: FileServer,
    /// The file with the secret by which the server believes where clients are, if it does.
    pub client_address_secret_file: Option<PathBuf>,
    /// Servers for each (database, role).
    pub pool_size: u32,
    /// Time limit for a client's wait for a server; none is the pool's default.
    pub wait_timeout: Option<Duration>,
}

/// The place of the server in a [`ServerFile`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileServer {
    /// On this host.
    Socket {
        /// The folder of its Unix socket.
        dir: PathBuf,
        /// The port in that socket's name.
        port: u16,
    },
    /// By TCP, whatever it is.
    Tcp(SocketAddr),
    /// Whichever node of a cluster is the primary.
    Cluster {
        /// Its name.
        name: String,
        /// The addresses of its members' REST interfaces, without encryption.
        members: Vec<SocketAddr>,
    },
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl ServerFile {
    /// The file's text, behind a comment of these lines.
    ///
    /// # Errors
    ///
    /// A path that is not UTF-8, which TOML can't hold.
    pub fn to_toml(&self, comment: &[&str]) -> io::Result<String> {
        let mut document = DocumentMut::new();
        let comment: String = comment.iter().map(|line| format!("# {line}\n")).collect();
        document.decor_mut().set_prefix(comment);
        let listen: Option<Array> = self.listen.iter().map(|address| schema::LISTEN.kind.write(address)).collect();
        document.insert(schema::LISTEN.name, Item::from(listen.unwrap_or_default()));
        let driver = Some(self.driver).filter(|driver| *driver != DriverChoice::Auto);
        put_some(&mut document, &schema::DRIVER, driver.as_ref())?;

        let mut limits = Table::new();
        put(&mut limits, &schema::CLIENTS, &self.clients_max)?;
        put(&mut limits, &schema::SERVERS, &self.servers_max)?;
        document.insert(schema::LIMITS.name(), limits.into());

        let mut auth = Table::new();
        put(&mut auth, &schema::METHOD, &Method::ScramSha256)?;
        let mut lookup = Table::new();
        put(&mut lookup, &schema::LOOKUP_USER, &self.lookup.user)?;
        put_some(&mut lookup, &schema::LOOKUP_PASSWORD, self.lookup.password.as_ref())?;
        put(&mut lookup, &schema::LOOKUP_DATABASE, &self.lookup.database)?;
        put(&mut lookup, &schema::QUERY, &self.lookup.query)?;
        put(&mut lookup, &schema::CACHE, &self.lookup.cache)?;
        auth.insert(schema::LOOKUP.name(), lookup.into());
        document.insert(schema::AUTH.name(), auth.into());

        if let Some(CertificateFiles { cert, key }) = &self.certificate {
            let mut tls = Table::new();
            put(&mut tls, &schema::CERT_FILE, cert)?;
            put(&mut tls, &schema::KEY_FILE, key)?;
            document.insert(schema::TLS.name(), tls.into());
        }

        let mut admin = Table::new();
        for (key, users) in [(&schema::ADMIN_USERS, &self.admin_users), (&schema::ADMIN_STATS_USERS, &self.stats_users)]
        {
            if !users.is_empty() {
                let users: Option<Array> = users.iter().map(|user| key.kind.write(user)).collect();
                admin.insert(key.name, Item::from(users.unwrap_or_default()));
            }
        }
        if !admin.is_empty() {
            document.insert(schema::ADMIN.name(), admin.into());
        }

        let mut database = Table::new();
        put(&mut database, &schema::DATABASE_NAME, &"*".to_owned())?;
        match &self.server {
            FileServer::Socket { dir, port } => {
                put(&mut database, &schema::HOST, &HostValue::Dir(dir.clone()))?;
                put(&mut database, &schema::PORT, &(*port).into())?;
            }
            FileServer::Tcp(address) => {
                put(&mut database, &schema::HOST, &HostValue::Name(address.ip().to_string()))?;
                put(&mut database, &schema::PORT, &address.port().into())?;
            }
            FileServer::Cluster { name, members } => {
                document.insert(
                    schema::CLUSTER.name(),
                    Item::ArrayOfTables([cluster(name, members)?].into_iter().collect()),
                );
                put(&mut database, &schema::DATABASE_CLUSTER, name)?;
            }
        }
        let is_cluster = matches!(self.server, FileServer::Cluster { .. });
        put_some(&mut database, &schema::CLIENT_ADDRESS_SECRET_FILE, self.client_address_secret_file.as_ref())?;
        let mut pool = Table::new();
        put(&mut pool, &schema::SIZE, &self.pool_size)?;
        put_some(&mut pool, &schema::WAIT_TIMEOUT, self.wait_timeout.as_ref())?;
        database.insert(schema::DATABASE_POOL.name(), pool.into());
        // All that readers need not say is as in the other entry.
        let mut readers = is_cluster.then(|| database.clone());
        if let Some(readers) = &mut readers {
            put(readers, &schema::DATABASE_NAME, &READERS_NAMES.to_owned())?;
            put(readers, &schema::TARGET, &Some(Target::PreferStandby))?;
        }
        let databases: ArrayOfTables = [database].into_iter().chain(readers).collect();
        document.insert(schema::DATABASE.name(), Item::ArrayOfTables(databases));
        Ok(document.to_string())
    }
}

/// The second names of all databases of a cluster: those of their readers.
const READERS_NAMES: &str = "*:ro";

/// The entry of a cluster.
fn cluster(name: &String, members: &[SocketAddr]) -> io::Result<Table> {
    let mut cluster = Table::new();
    put(&mut cluster, &schema::CLUSTER_NAME, name)?;
    let rest = |member: &SocketAddr| Rest { is_encrypted: false, host: member.ip().to_string(), port: member.port() };
    let urls: Option<Array> = members.iter().map(|member| schema::PATRONI.kind.write(&rest(member))).collect();
    cluster.insert(schema::PATRONI.name, Item::from(urls.unwrap_or_default()));
    Ok(cluster)
}

/// Writes a key with its value.
fn put<K: Kind>(table: &mut Table, key: &Key<K>, value: &K::Value) -> io::Result<()> {
    let Some(value) = key.kind.write(value) else {
        return Err(io::Error::other(format!("the path for {} is not UTF-8; choose another directory", key.name)));
    };
    table.insert(key.name, value.into());
    Ok(())
}

fn put_some<K: Kind>(table: &mut Table, key: &Key<K>, value: Option<&K::Value>) -> io::Result<()> {
    value.map_or(Ok(()), |value| put(table, key, value))
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

    use super::*;
    use crate::{Secret, ServerAddress, parse};

    fn file() -> ServerFile {
        ServerFile {
            listen: vec!["127.0.0.1:6432".parse().unwrap(), "[::1]:6432".parse().unwrap()],
            driver: DriverChoice::Epoll,
            clients_max: 10_000,
            servers_max: 90,
            lookup: LookupConfig {
                user: "sluice_auth".to_owned(),
                password: Some(Secret("it's \"secret\"".to_owned())),
                database: "postgres".to_owned(),
                query: "SELECT sluice.get_secret($1)".to_owned(),
                cache: Duration::from_secs(10),
            },
            admin_users: vec!["sluice_auth".to_owned()],
            stats_users: vec!["sluice".to_owned()],
            certificate: None,
            server: FileServer::Socket { dir: PathBuf::from("/a \"b\"\\c\nd"), port: 5432 },
            client_address_secret_file: None,
            pool_size: 20,
            wait_timeout: Some(Duration::from_secs(60)),
        }
    }

    #[test]
    fn reads_back_whatever_is_in_it() {
        let file = file();
        let text = file.to_toml(&["Written by a test.", "Twice."]).unwrap();
        assert!(text.starts_with("# Written by a test.\n# Twice.\nlisten = "), "{text}");
        let read = parse(&text, Path::new("written.toml")).unwrap();
        assert_eq!(read.listen, file.listen);
        assert_eq!(read.driver, DriverChoice::Epoll);
        assert_eq!((read.limits.clients, read.limits.servers), (10_000, 90));
        let Some(lookup) = read.auth.lookup else { panic!("{:?}", read.auth) };
        assert_eq!((lookup.user, lookup.password), (file.lookup.user, file.lookup.password));
        assert_eq!((lookup.database, lookup.query), (file.lookup.database, file.lookup.query));
        let admin = read.admin.unwrap();
        assert_eq!((admin.users, admin.stats_users), (file.admin_users, file.stats_users));
        let [database] = &read.databases[..] else { panic!("{:?}", read.databases) };
        assert_eq!(database.server, ServerAddress::Unix { dir: PathBuf::from("/a \"b\"\\c\nd"), port: 5432 });
        assert_eq!((database.pool.size, database.pool.wait_timeout), (20, Duration::from_secs(60)));
    }

    #[test]
    fn a_cluster_reads_back() {
        let members: Vec<SocketAddr> = ["127.0.0.1:8008", "[::1]:8009"].map(|member| member.parse().unwrap()).into();
        let server = FileServer::Cluster { name: "main".to_owned(), members };
        let text = ServerFile { server, ..file() }.to_toml(&[]).unwrap();
        let read = parse(&text, Path::new("written.toml")).unwrap();
        assert_eq!(read.databases[0].server, ServerAddress::Primary("main".into()));
        let readers = &read.databases[1];
        assert_eq!((readers.name.as_deref(), &readers.server), (Some("*:ro"), &read.databases[0].server));
        assert_eq!(readers.reading.as_ref().map(|it| it.target), Some(Target::PreferStandby));
        let urls: Vec<String> = read.clusters[0].members.iter().map(ToString::to_string).collect();
        assert_eq!(urls, ["http://127.0.0.1:8008", "http://[::1]:8009"]);
    }

    #[test]
    fn an_address_reads_back() {
        for address in ["127.0.0.1:5433", "[::1]:5433"] {
            let server_address: SocketAddr = address.parse().unwrap();
            let server = FileServer::Tcp(server_address);
            let text = ServerFile { server, ..file() }.to_toml(&[]).unwrap();
            let read = parse(&text, Path::new("written.toml")).unwrap();
            let [database] = &read.databases[..] else { panic!("{:?}", read.databases) };
            let (host, port) = (server_address.ip().to_string(), server_address.port());
            assert_eq!(database.server, ServerAddress::Tcp { host, port });
        }
    }

    #[test]
    fn a_path_stands_as_it_is() {
        let named = ServerFile { client_address_secret_file: Some(PathBuf::from("/a \"secret\"")), ..file() };
        let certificate = CertificateFiles { cert: "/a \"b\".crt".into(), key: "/c.key".into() };
        let named = ServerFile { certificate: Some(certificate), ..named };
        let text: DocumentMut = named.to_toml(&[]).unwrap().parse().unwrap();
        assert_eq!(text["tls"]["cert_file"].as_str(), Some("/a \"b\".crt"));
        assert_eq!(text["tls"]["key_file"].as_str(), Some("/c.key"));
        assert_eq!(text["database"][0]["client_address_secret_file"].as_str(), Some("/a \"secret\""));
    }

    #[test]
    fn a_path_that_is_not_utf8_is_refused() {
        let odd = ServerFile {
            server: FileServer::Socket { dir: PathBuf::from(OsStr::from_bytes(b"/a\xff")), port: 5432 },
            ..file()
        };
        assert!(odd.to_toml(&[]).unwrap_err().to_string().contains("host"));
    }
}
