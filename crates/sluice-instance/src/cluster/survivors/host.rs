//! The view of a node's own host: its PostgreSQL, and whether the primary answers from here.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    thread,
    time::Duration,
};

use postgres::{Client, Config, NoTls};

use super::{
    super::{
        Node,
        rest::{Api, AskError},
    },
    fence::{Fence, is_fenced},
    view::{Addresses, Sight, Sign},
};
use crate::{
    bootstrap::{SEARCH_PATH, SUPERUSER},
    run_as::RunAs,
};

/// By this name a session of a survivor that was stopped in the midst of a statement is found.
const SESSION: &str = "sluice survivor";

/// A server process, which the postmaster has to fork for it, answers this by one letter before anything else (PostgreSQL
/// documentation, "Message Formats", GSSENCRequest). Whoever leaves behind that letter is not logged: behind that of an
/// SSLRequest, each time.
const GSSENC_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 48];

const LOOK: &str = "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('dynamic_library_path'), \
                    pg_catalog.date_part('epoch', last_msg_receipt_time), sender_host, sender_port \
                    FROM (SELECT) AS one \
                    LEFT JOIN pg_catalog.pg_stat_wal_receiver ON status = 'streaming'";

/// Reads the primary that Patroni has written down, whether or not it is in effect.
const FOLLOWS: &str = "SELECT setting FROM pg_catalog.pg_file_settings \
                       WHERE name = 'primary_conninfo' AND sourcefile LIKE '%/postgresql.conf' \
                       ORDER BY seqno DESC LIMIT 1";

const OTHER_SESSIONS: &str = "SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity \
                              WHERE application_name = $1 AND pid <> pg_catalog.pg_backend_pid()";

/// A node's host, as seen by its survivor.
pub(super) struct Host {
    api: Api,
    config: Config,
    client: Option<Client>,
    fence: Fence,
    /// The time at which something was received last, as PostgreSQL had it at the last look that it answered. Kept
    /// when it does not answer, so that what is read again is no sign of life.
    received: Option<f64>,
    /// Whether the primary's Patroni was asked last, and its host did not refuse that.
    is_rest_open: bool,
}

impl Host {
    pub(super) fn new(node: &Node, run_as: &RunAs, api: Api) -> io::Result<Self> {
        let mut config = Config::new();
        config.host_path(&node.socket_dir).port(node.postgres.port()).user(SUPERUSER).dbname("postgres");
        config.application_name(SESSION).connect_timeout(Duration::from_secs(2));
        config.options(&format!("{SEARCH_PATH} -c statement_timeout=5s -c synchronous_commit=local"));
        let fence = Fence::prepare(node, run_as)?;
        Ok(Self { api, config, client: None, fence, received: None, is_rest_open: false })
    }

    /// Looks at PostgreSQL, and then at the primary, unless something came from it since the last look. None if
    /// PostgreSQL does not answer.
    pub(super) fn look(&mut self, primary: Option<&Addresses>, patience: Duration) -> Option<Sight> {
        let sight = self.sight(primary, patience);
        if sight.is_err() {
            self.client = None;
        }
        sight.ok()
    }

    fn sight(&mut self, primary: Option<&Addresses>, patience: Duration) -> Result<Sight, postgres::Error> {
        let client = connected(&mut self.client, &self.config)?;
        let row = client.query_one(LOOK, &[])?;
        let (is_standby, path): (bool, String) = (row.get(0), row.get(1));
        let received: Option<f64> = row.get(2);
        let (host, port): (Option<String>, Option<i32>) = (row.get(3), row.get(4));
        let streams_from = host.zip(port.and_then(|port| u16::try_from(port).ok()));
        let is_fed = received.is_some() && received != self.received;
        let is_fenced = is_fenced(&path);
        let follows = if is_fenced && is_standby { client.query_opt(FOLLOWS, &[])? } else { None };
        self.received = received;
        let sign = match primary {
            _ if is_fed => Sign::Postgres,
            Some(primary) if is_standby => self.sign_of(primary, patience),
            _ => Sign::None,
        };
        let follows = follows.and_then(|row| host_port(row.get::<_, Option<&str>>(0)?));
        Ok(Sight { is_standby, is_fenced, follows, streams_from, sign })
    }

    /// The sign of life that the primary gives when it is asked.
    fn sign_of(&mut self, primary: &Addresses, patience: Duration) -> Sign {
        let api = &self.api;
        let (postgres, rest) = thread::scope(|scope| {
            let rest = thread::Builder::new()
                .name("survivor-rest".to_owned())
                .spawn_scoped(scope, || ask_rest(api, primary, patience));
            let postgres = ask_postgres(primary, patience);
            (postgres, rest.ok().and_then(|rest| rest.join().ok()))
        });
        self.is_rest_open = !matches!(rest, Some(Err(AskError::Io(_))));
        match rest {
            _ if postgres.is_ok() => Sign::Postgres,
            Some(Ok(())) => Sign::Patroni,
            // Without a thread nothing was shown.
            _ => Sign::None,
        }
    }

    /// Whether whoever asks the primary's Patroni may have to wait: its host is silent, or it answers without its
    /// PostgreSQL.
    pub(super) fn is_rest_open(&self) -> bool {
        self.is_rest_open
    }

    /// Holds the WAL receiver off.
    pub(super) fn fence(&mut self) -> io::Result<()> {
        let client = connected(&mut self.client, &self.config).map_err(io::Error::other)?;
        let others: i64 = client.query_one(OTHER_SESSIONS, &[&SESSION]).map_err(io::Error::other)?.get(0);
        if others > 0 {
            // It might let the receiver go just then.
            return Err(io::Error::other("a session of an earlier run has not ended yet"));
        }
        let config = &self.config;
        self.fence.raise(client, || config.clone().application_name("sluice fence").connect(NoTls))
    }

    /// Lets it go.
    pub(super) fn lift(&mut self) -> io::Result<()> {
        self.fence.lift(connected(&mut self.client, &self.config).map_err(io::Error::other)?)
    }
}

fn connected<'a>(client: &'a mut Option<Client>, config: &Config) -> Result<&'a mut Client, postgres::Error> {
    match client.take().filter(|client| !client.is_closed()) {
        Some(open) => Ok(client.insert(open)),
        None => Ok(client.insert(config.connect(NoTls)?)),
    }
}

/// Asks Patroni; any answer will do.
fn ask_rest(api: &Api, primary: &Addresses, patience: Duration) -> Result<(), AskError> {
    let mut addresses = (&*primary.rest.0, primary.rest.1).to_socket_addrs().map_err(AskError::Io)?;
    let address = addresses.next().ok_or_else(|| AskError::Io(io::ErrorKind::NotFound.into()))?;
    api.get(address, "/liveness", patience).map(drop)
}

fn ask_postgres(primary: &Addresses, patience: Duration) -> io::Result<()> {
    let mut addresses = (&*primary.postgres.0, primary.postgres.1).to_socket_addrs()?;
    let address = addresses.next().ok_or(io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(&GSSENC_REQUEST)?;
    stream.read_exact(&mut [0])
}

/// `host` and `port` of a `primary_conninfo`.
fn host_port(conninfo: &str) -> Option<(String, u16)> {
    let value = |name| values(conninfo).find(|(key, _)| key == name).map(|(_, value)| value);
    Some((value("host")?, value("port")?.parse().ok()?))
}

/// The keywords and values of a connection string (PostgreSQL documentation, "Keyword/Value Connection Strings").
fn values(conninfo: &str) -> impl Iterator<Item = (String, String)> {
    let mut chars = conninfo.chars().peekable();
    std::iter::from_fn(move || {
        while chars.next_if(|char| char.is_whitespace()).is_some() {}
        let mut key = String::new();
        while let Some(char) = chars.next_if(|char| *char != '=') {
            key.push(char);
        }
        chars.next()?;
        while chars.next_if(|char| char.is_whitespace()).is_some() {}
        let is_quoted = chars.next_if_eq(&'\'').is_some();
        let mut value = String::new();
        while let Some(char) = chars.next_if(|char| if is_quoted { *char != '\'' } else { !char.is_whitespace() }) {
            value.push(if char == '\\' { chars.next()? } else { char });
        }
        if is_quoted {
            chars.next()?;
        }
        Some((key.trim().to_owned(), value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings() {
        let patronis = "user=repl passfile='/a b/pg\\'pass' host=127.0.0.1 port=7400 sslmode=prefer application_name=n";
        assert_eq!(host_port(patronis), Some(("127.0.0.1".to_owned(), 7400)));
        assert_eq!(values(patronis).nth(1).unwrap().1, "/a b/pg'pass");
        assert_eq!(host_port("host = 'db one' port = '5432'"), Some(("db one".to_owned(), 5432)));
        for none in ["", "host=a", "port=1", "host", "host='a", "host=a port=x"] {
            assert_eq!(host_port(none), None, "{none}");
        }
    }
}
