//! Looking up clients' secrets, and their roles where rules ask for them, on the server, over connections of the control
//! thread's own: several at once, so that one that takes long keeps nobody waiting.

use std::{
    error::Error as StdError,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use sluice_control::{
    Database,
    access::{Access, LookUp, Policy, Users},
    address::Address,
    server_auth::Channel,
};
use sluice_core::{
    hub::Hub,
    mail::Mail,
    profile::NAME_BYTES_MAX,
    secrets::{ASKED_MAX, Account, Found, Role},
    time::Time,
};
use sluice_hba::Roles;
use sluice_tls::SslMode;
use sluice_wire::{ErrorResponse, secret::Secret, sqlstate};
use tokio::{
    net::{TcpStream, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{timeout, timeout_at},
};
use tokio_postgres::{
    Client, Config, Error as Failed, NoTls, SimpleQueryMessage,
    config::SslMode as Demand,
    error::SqlState,
    tls::MakeTlsConnect,
    types::{FromSql, Type},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    mailbox::{Mailboxes, Parcel},
    net::sockets::Target,
    resolver::Resolver,
    watched::Watched,
};

/// Time limit for a look-up, from when it was asked for: the wait for its turn and the connect included.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for the first address of the server's name: within that of the look-up, so that the reason can be told.
const NAME_TIMEOUT: Duration = Duration::from_millis(4500);

/// The interval at which it is looked whether the server's rules are known by now.
const RULES_EVERY: Duration = Duration::from_millis(20);

/// Time limit for that: within that of the look-up.
const RULES_TIMEOUT: Duration = Duration::from_millis(4500);

/// The interval at which a cluster that may have no primary is asked again.
const AGAIN_EVERY: Duration = Duration::from_millis(200);

/// Look-ups under way at once, each over a connection of its own; as many connections are kept.
const AT_ONCE: usize = 4;

/// The time that a kept connection has for its answer before a fresh one is made beside it: something between may have
/// forgotten it, and says nothing.
const KEPT_ALONE: Duration = Duration::from_secs(1);

/// The time for which a connection that nobody uses is kept: shorter than that after which firewalls forget one.
const KEPT_MAX: Duration = Duration::from_secs(60);

/// The roles of which a user is a member, itself among them, as PostgreSQL's own rules see it
/// (`is_member_of_role_nosuper`): whatever is inherited or may be set, and a superuser of no more than others.
const ROLES: &str = "WITH RECURSIVE member (oid) AS (\
        SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) $1 \
        UNION \
        SELECT m.roleid FROM pg_catalog.pg_auth_members m, member WHERE m.member OPERATOR(pg_catalog.=) member.oid) \
    SELECT r.rolname, r.rolname OPERATOR(pg_catalog.=) $1, r.oid, r.rolcanlogin \
    FROM pg_catalog.pg_roles r, member WHERE r.oid OPERATOR(pg_catalog.=) member.oid LIMIT 10001";

/// The query for nothing but the role that a user is.
const ROLE: &str = "SELECT r.oid, r.rolcanlogin FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) $1";

/// Roles of a user, at most: of more, PostgreSQL itself would take its time.
const ROLES_MAX: usize = 10_000;

/// The `password_encryption` of servers whose secrets are SCRAM verifiers; MD5 has had several words.
const OF_SCRAM: &str = "scram-sha-256";

/// A look-up that is wanted.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) user: String,
    pub(crate) asked: Instant,
}

/// The way to the control thread. As many requests fit as the core asks for at once.
pub(crate) fn requests() -> (mpsc::Sender<Request>, mpsc::Receiver<Request>) {
    mpsc::channel(ASKED_MAX)
}

/// The task that asks, as the hub's snapshot says.
pub(crate) struct Asker {
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) mailboxes: Arc<Mailboxes>,
    pub(crate) epoch: Instant,
    pub(crate) idle: Mutex<Idle>,
}

/// Connections that nobody uses now, the last used last: a few look-ups need only one.
#[derive(Default)]
pub(crate) struct Idle {
    /// The configuration that they were made by.
    by: Option<Arc<Access>>,
    clients: Vec<(Client, Instant)>,
}

impl Idle {
    /// One that was made by that, if there is one.
    fn take(&mut self, access: &Arc<Access>) -> Option<Client> {
        let is_by_it = self.by.as_ref().is_some_and(|by| Arc::ptr_eq(by, access));
        let (client, last) = self.clients.pop()?;
        if last.elapsed() > KEPT_MAX {
            // The others were used before it.
            self.clients.clear();
            return None;
        }
        Some(client).filter(|client| is_by_it && !client.is_closed())
    }

    /// Keeps one; those that were made by something else go.
    fn keep(&mut self, access: &Arc<Access>, client: Client) {
        if !self.by.as_ref().is_some_and(|by| Arc::ptr_eq(by, access)) {
            self.clients.clear();
            self.by = Some(access.clone());
        }
        self.clients.push((client, Instant::now()));
    }
}

/// Answers requests in the order in which they come, some at once.
pub(crate) async fn answer(asker: Arc<Asker>, mut requests: mpsc::Receiver<Request>) {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    while let Some(request) = requests.recv().await {
        let Ok(turn) = turns.clone().acquire_owned().await else { return };
        // Those who leave again take nobody's time.
        if !asker.hub.secrets.is_wanted(&request.user) {
            continue;
        }
        tokio::spawn(asker.clone().answer(request, turn));
    }
}

impl Asker {
    async fn answer(self: Arc<Self>, request: Request, turn: OwnedSemaphorePermit) {
        let Some(found) = self.find(&request, turn).await else { return };
        if let Err(error) = &found {
            tracing::warn!("a user could not be looked up: {}", error.message);
        }
        let now = Time(self.epoch.elapsed().as_micros() as u64);
        if self.hub.secrets.is_another(&request.user, &found) {
            // Servers of before may be those of a role that is gone.
            self.mailboxes.call_in(self.hub.renew_role(now, &request.user));
        }
        for client in self.hub.secrets.found(now, &request.user, found) {
            self.mailboxes.send(client.worker, Parcel::Mail(Mail::Secret(client)));
        }
    }

    /// Before a cluster it is asked again while there may be no primary: log-ins wait for one as all others do. Between
    /// two attempts others have the turn. `None`: nobody waits for the answer any more.
    async fn find(&self, request: &Request, mut turn: OwnedSemaphorePermit) -> Option<Found> {
        let mut has_failed = false;
        loop {
            let limit = self.failover_timeout().unwrap_or(TIMEOUT);
            let ends = request.asked + limit;
            let answer = timeout_at(ends.min(Instant::now() + TIMEOUT).into(), self.attempt(&request.user)).await;
            let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs()).into()));
            let Failure { error, is_lasting } = match answer {
                Ok(account) => return Some(Ok(account)),
                Err(failure) => failure,
            };
            let turns = turn.semaphore().clone();
            drop(turn);
            let mut next = None;
            if !is_lasting && limit != TIMEOUT && Instant::now() + AGAIN_EVERY < ends {
                if !std::mem::replace(&mut has_failed, true) {
                    tracing::warn!("a user is looked up again, for {} s at most: {error}", limit.as_secs());
                }
                tokio::time::sleep(AGAIN_EVERY).await;
                next = timeout_at(ends.into(), turns.acquire_owned()).await.ok().and_then(Result::ok);
                if !self.hub.secrets.is_wanted(&request.user) {
                    return None;
                }
            }
            turn = match next {
                Some(turn) => turn,
                None => return Some(Err(Arc::new(ErrorResponse::fatal(sqlstate::CANNOT_CONNECT_NOW, error)))),
            };
        }
    }

    /// The time for which clients of the cluster that is asked wait for a primary; `None`: it is one server.
    fn failover_timeout(&self) -> Option<Duration> {
        let snapshot = self.hub.snapshot();
        let Users::LookedUp(LookUp { cluster: Some(cluster), .. }, _) = &snapshot.access.users else { return None };
        let is_its = |database: &&Arc<Database>| database.cluster.as_ref() == Some(cluster);
        snapshot.databases.iter().filter(is_its).find_map(|database| database.pool.failover_timeout)
    }

    /// A connection that is in the middle of something when its time is over is not used again.
    async fn attempt(&self, user: &str) -> Result<Account, Failure> {
        let access = self.hub.snapshot().access.clone();
        let Users::LookedUp(look_up, _) = &access.users else {
            return Err("secrets are no longer looked up".to_owned().into());
        };
        if matches!(access.policy, Policy::ServerRules(None)) {
            let waited = timeout(RULES_TIMEOUT, self.wait_for_rules()).await;
            waited.map_err(|_| "the server's access rules are not known".to_owned())?;
        }
        // One that has broken since shows it on its first use, or says nothing; a fresh one has its turn then.
        let by_kept = self.ask_by_kept(&access, look_up, user);
        tokio::pin!(by_kept);
        match timeout(KEPT_ALONE, &mut by_kept).await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => return self.ask_by_fresh(&access, look_up, user).await,
            // The others were idle for longer.
            Err(_) => self.idle().clients.clear(),
        }
        tokio::select! {
            Some(found) = &mut by_kept => Ok(found),
            found = self.ask_by_fresh(&access, look_up, user) => found,
        }
    }

    /// Asks by a connection that was kept. `None`: there is none, or it fails.
    async fn ask_by_kept(&self, access: &Arc<Access>, look_up: &LookUp, user: &str) -> Option<Account> {
        let client = self.idle().take(access)?;
        let found = self.ask_all(&client, look_up, user).await.ok()?.ok()?;
        self.idle().keep(access, client);
        Some(found)
    }

    async fn ask_by_fresh(&self, access: &Arc<Access>, look_up: &LookUp, user: &str) -> Result<Account, Failure> {
        let client = connect(look_up, &self.resolver).await?;
        let found = self.ask_all(&client, look_up, user).await.map_err(|error| refused(look_up, &error))?;
        let found = found.map_err(|error| Failure { error, is_lasting: true })?;
        self.idle().keep(access, client);
        Ok(found)
    }

    /// Asks for all that a log-in goes by, at once: it takes a user who does not exist the same time.
    async fn ask_all(&self, client: &Client, look_up: &LookUp, user: &str) -> Result<Answer<Account>, Failed> {
        // PostgreSQL takes no longer one for a name; nobody has none.
        let user = if user.len() > NAME_BYTES_MAX { "" } else { user };
        let roles = async {
            match look_up.asks_roles {
                true => ask_roles(client, user).await,
                false => Ok(Ok((Roles::default(), ask_role(client, user).await?))),
            }
        };
        let (secret, roles, encryption) =
            tokio::try_join!(ask(client, look_up, user), roles, client.simple_query("SHOW password_encryption"))?;
        let encryption = encryption.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        self.hub.secrets.are_made_of_scram(encryption.is_none_or(|encryption| encryption == OF_SCRAM));
        Ok(secret.and_then(|secret| {
            let (roles, role) = roles?;
            Ok(Account { secret, roles: Arc::new(roles), role })
        }))
    }

    /// Waits until the rules are known by which it is decided whether a user's secret is needed at all.
    async fn wait_for_rules(&self) {
        while matches!(self.hub.snapshot().access.policy, Policy::ServerRules(None)) {
            tokio::time::sleep(RULES_EVERY).await;
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look-up that came to nothing.
struct Failure {
    error: String,
    /// Whether another primary would say the same.
    is_lasting: bool,
}

impl From<String> for Failure {
    fn from(error: String) -> Self {
        Self { error, is_lasting: false }
    }
}

/// The failure of a query. Its own errors don't go away by waiting for another primary: whoever makes up names could have
/// such a look-up repeated for long.
fn refused(look_up: &LookUp, failed: &Failed) -> Failure {
    let mut error = describe(failed);
    if failed.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        let LookUp { user, dbname, .. } = look_up;
        error.push_str(&format!(
            "; in the database {dbname:?}, give the role {user:?} what the query needs: \
            GRANT SELECT ON pg_authid, or GRANT EXECUTE ON its function"
        ));
    }
    let is_lasting = match failed.code() {
        Some(code) => !is_of_a_lost_primary(code.code()),
        None => !failed.is_closed() && !failed.source().is_some_and(|cause| cause.is::<io::Error>()),
    };
    Failure { error, is_lasting }
}

/// Whether an error is one of those that a server gives while it ends, starts, or is a primary no longer: the classes of
/// lost connections and of shutdowns, a write at a standby, and a query that its replay is in conflict with.
fn is_of_a_lost_primary(code: &str) -> bool {
    code.starts_with("08") || code.starts_with("57P") || matches!(code, "25006" | "40001")
}

/// An answer, or what is wrong with it.
type Answer<T> = Result<T, String>;

/// The roles of which a user is a member, and the one that it is.
async fn ask_roles(client: &Client, user: &str) -> Result<Answer<(Roles, Option<Role>)>, Failed> {
    let rows = client.query(ROLES, &[&user]).await?;
    if rows.len() > ROLES_MAX {
        return Ok(Err(format!("\"{user}\" is a member of more than {ROLES_MAX} roles")));
    }
    let own = rows.iter().find(|row| row.try_get(1).unwrap_or(false));
    let role = own.map(|row| Ok(Role { oid: row.try_get(2)?, may_log_in: row.try_get(3)? })).transpose()?;
    // A name that is not UTF-8 stands in no rule.
    let names = rows.iter().filter_map(|row| row.try_get::<_, Option<Name>>(0).transpose());
    let roles = names.filter_map(|name| name.map(|Name(name)| name).transpose()).collect::<Result<Roles, _>>()?;
    Ok(Ok((roles, role)))
}

/// A role's name, if it is UTF-8.
struct Name(Option<String>);

impl<'a> FromSql<'a> for Name {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(String::from_utf8(raw.to_vec()).ok()))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::NAME
    }
}

/// The role that a user is. Its number tells it from another one of that name, which is not to have its servers.
async fn ask_role(client: &Client, user: &str) -> Result<Option<Role>, Failed> {
    let row = client.query_opt(ROLE, &[&user]).await?;
    row.map(|row| Ok(Role { oid: row.try_get(0)?, may_log_in: row.try_get(1)? })).transpose()
}

/// Asks for the secret. Before it the query may give the user's name, as PgBouncer's do: of another one it is nobody's
/// secret, nor is a name. A row of NULLs is no such user: a function with OUT parameters always gives one.
async fn ask(client: &Client, look_up: &LookUp, user: &str) -> Result<Answer<Option<Secret>>, Failed> {
    let statement = client.prepare(&look_up.query).await?;
    let columns = statement.columns().len();
    if !(1..=2).contains(&columns) {
        let remedy = "have \"query\" under [auth.lookup] select the secret, or the user's name and the secret";
        return Ok(Err(format!("the query gives {columns} columns: {remedy}")));
    }
    let Some(row) = client.query_opt(&statement, &[&user]).await? else { return Ok(Ok(None)) };
    let text: Option<&str> = row.try_get(columns - 1)?;
    if columns == 2 {
        match row.try_get::<_, Option<&str>>(0)? {
            Some(name) if name == user => {}
            None if text.is_none() => {}
            _ => {
                let remedy = "of two columns, the first one has to be the user's name, which is $1";
                return Ok(Err(format!("the query gives another user's secret: {remedy}")));
            }
        }
    }
    Ok(Ok(text.map(Secret::parse)))
}

/// Logs in at the first place of the server's that can be connected to.
pub(crate) async fn connect(look_up: &LookUp, resolver: &Resolver) -> Result<Client, String> {
    resolver.wait_for_address(&look_up.address, NAME_TIMEOUT).await;
    let places = resolver.places(&look_up.address);
    // So that all of them get their turn, and there is time left for the look-up itself.
    let limit = if places.len() > 1 { TIMEOUT / (places.len() as u32 + 1) } else { TIMEOUT };
    let mut wrong = Vec::new();
    for place in places {
        let target = resolver.target(&place).map_err(|e| e.to_string())?;
        let connected = timeout(limit, Stream::connect(&target)).await;
        match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => return begin(look_up, stream).await,
            Err(error) => {
                resolver.failed(&look_up.address, &place);
                wrong.push(format!("at {place}: {error}"));
            }
        }
    }
    let is_it = match look_up.cluster {
        Some(_) => "is PostgreSQL running there?",
        None => "is PostgreSQL running there? \"host\" and \"port\" say where to look",
    };
    Err(format!("{} ({is_it})", wrong.join("; ")))
}

/// A connection without a session.
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream, SocketAddr),
}

impl Stream {
    async fn connect(target: &Target) -> io::Result<Self> {
        Ok(match target {
            Target::Unix(path) => Self::Unix(UnixStream::connect(path).await?),
            Target::Tcp(address) => Self::Tcp(TcpStream::connect(*address).await?, *address),
        })
    }
}

/// Logs in by a connection.
async fn begin(look_up: &LookUp, stream: Stream) -> Result<Client, String> {
    let mut config = tokio_postgres::Config::new();
    config.user(&look_up.user).dbname(&look_up.dbname).application_name("sluice: secrets");
    if let Some(password) = &look_up.password {
        config.password(&password.0);
    }
    let failed = |error: tokio_postgres::Error| format!("at {}: {}", look_up.address, describe(&error));
    let client = match stream {
        Stream::Unix(stream) => {
            let stream = Watched::new(stream, look_up.server_auth, Channel::Local);
            let (client, connection) = config.connect_raw(stream, NoTls).await.map_err(failed)?;
            tokio::spawn(connection);
            client
        }
        Stream::Tcp(stream, address) => log_in_by_tcp(&mut config, look_up, stream, address).await?,
    };
    // A look-up that is given up here must not go on there: such sessions would become more and more.
    let mut settings = format!("SET statement_timeout = {};", TIMEOUT.as_millis());
    // Roles' names are bytes, whatever the database's encoding: with this one the server converts none, as for a client
    // that logs in straight. A query with letters of its own needs them to be converted.
    if look_up.query.is_ascii() {
        settings.push_str("SET client_encoding = SQL_ASCII");
    }
    client.batch_execute(&settings).await.map_err(failed)?;
    Ok(client)
}

/// Logs in by TCP, encrypted as the configuration says: where that is a matter of taste, in the other way, by another
/// connection, if the first one is not the server's.
async fn log_in_by_tcp(
    config: &mut Config,
    look_up: &LookUp,
    stream: TcpStream,
    address: SocketAddr,
) -> Result<Client, String> {
    let mut stream = Some(stream);
    let mode = look_up.tls.as_ref().map_or(SslMode::Disable, |tls| tls.mode);
    let mut failed = String::new();
    for encrypted in mode.ways() {
        let demand = match (encrypted, mode) {
            (false, _) => Demand::Disable,
            // A server without it says so in the same connection.
            (true, SslMode::Prefer) => Demand::Prefer,
            (true, _) => Demand::Require,
        };
        let at = |error: String| format!("at {}: {error}", look_up.address);
        let stream = match stream.take() {
            Some(stream) => stream,
            None => TcpStream::connect(address).await.map_err(|error| at(error.to_string()))?,
        };
        match log_in(config.ssl_mode(demand), look_up, stream).await {
            Ok(client) => return Ok(client),
            Err(error) => {
                failed = at(describe(&error));
                // The server has looked at who asks, and that is not who it lets in.
                if error.code().is_some_and(|code| *code != SqlState::INVALID_AUTHORIZATION_SPECIFICATION) {
                    break;
                }
            }
        }
    }
    Err(failed)
}

async fn log_in(config: &Config, look_up: &LookUp, stream: TcpStream) -> Result<Client, tokio_postgres::Error> {
    let connector = match (&look_up.tls, &look_up.address) {
        (Some(tls), Address::Tcp(host, _)) if config.get_ssl_mode() != Demand::Disable => {
            let mut connectors = MakeRustlsConnect::new((**tls.config()).clone());
            MakeTlsConnect::<Watched<TcpStream>>::make_tls_connect(&mut connectors, host).ok()
        }
        _ => None,
    };
    match connector {
        Some(connector) => {
            let stream = Watched::asking_for_tls(stream, look_up.server_auth);
            let (client, connection) = config.connect_raw(stream, connector).await?;
            tokio::spawn(connection);
            Ok(client)
        }
        // Where encryption is demanded, this is an error.
        None => {
            let stream = Watched::new(stream, look_up.server_auth, Channel::Clear);
            let (client, connection) = config.connect_raw(stream, NoTls).await?;
            tokio::spawn(connection);
            Ok(client)
        }
    }
}

pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} ({})", error.message(), error.code().code()),
        None => match std::error::Error::source(error) {
            // The driver's words for a server that asks for one.
            Some(cause) if cause.to_string() == "password missing" => {
                "the server asks for a password of the role that looks up; set \"password\" or \"password_file\" under \
                 [auth.lookup], or let the role in by peer or trust there"
                    .to_owned()
            }
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::is_of_a_lost_primary;

    #[test]
    fn errors_that_another_primary_would_not_have() {
        for (code, is_one) in [
            ("57P01", true),
            ("57P03", true),
            ("08006", true),
            ("25006", true),
            ("40001", true),
            ("P0002", false),
            ("42501", false),
            ("42P01", false),
            ("57014", false),
            ("22021", false),
        ] {
            assert_eq!(is_of_a_lost_primary(code), is_one, "{code}");
        }
    }
}
