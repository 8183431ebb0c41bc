//! Looking up clients' secrets on the server, over connections of the control thread's own: several at once, so that
//! one that takes long keeps nobody waiting.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use sluice_config::LookupConfig;
use sluice_core::{
    hub::Hub,
    mail::Mail,
    secrets::{ASKED_MAX, Found},
    time::Time,
};
use sluice_wire::{ErrorResponse, secret::Secret, sqlstate};
use tokio::{
    net::UnixStream,
    sync::{Semaphore, mpsc},
    time::timeout_at,
};
use tokio_postgres::{Client, NoTls};

use crate::{
    mailbox::{Mailboxes, Parcel},
    net::sockets::Target,
    resolver::Resolver,
};

/// Time limit for a look-up, from when it was asked for: the wait for its turn and the connect included.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Look-ups under way at once, each over a connection of its own; as many connections are kept.
const AT_ONCE: usize = 4;

/// The interval at which host names are resolved again.
const RESOLVE_EVERY: Duration = Duration::from_secs(10);

/// A look-up's query and the server to ask.
pub(crate) struct LookUp {
    pub(crate) config: LookupConfig,
    pub(crate) address: sluice_core::io::Address,
    /// The database's name on the server.
    pub(crate) dbname: String,
}

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

/// The task that asks.
struct Asker {
    look_up: LookUp,
    resolver: Arc<Resolver>,
    hub: Arc<Hub>,
    mailboxes: Arc<Mailboxes>,
    epoch: Instant,
    /// Connections that nobody uses now, the last used last: a few look-ups need only one.
    idle: Mutex<Vec<Client>>,
}

/// The control thread's work: look-ups until the workers are gone, and host names.
pub(crate) async fn control(
    look_up: Option<LookUp>,
    requests: mpsc::Receiver<Request>,
    hub: Arc<Hub>,
    mailboxes: Arc<Mailboxes>,
    resolver: Arc<Resolver>,
    epoch: Instant,
    mut stop: mpsc::Receiver<()>,
) {
    let names = keep_names(resolver.clone());
    let answers = async {
        let Some(look_up) = look_up else { return std::future::pending().await };
        let asker = Asker { look_up, resolver, hub, mailboxes, epoch, idle: Mutex::default() };
        answer(Arc::new(asker), requests).await;
    };
    tokio::select! {
        _ = stop.recv() => {}
        () = names => {}
        () = answers => {}
    }
}

/// Resolves host names again and again, and keeps nothing else waiting, however slow that is.
async fn keep_names(resolver: Arc<Resolver>) {
    if !resolver.has_names() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(RESOLVE_EVERY).await;
        let resolver = resolver.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || resolver.refresh()).await {
            tracing::error!("resolving host names: {error}");
        }
    }
}

/// Answers requests in the order in which they come, some at once.
async fn answer(asker: Arc<Asker>, mut requests: mpsc::Receiver<Request>) {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    while let Some(request) = requests.recv().await {
        let Ok(turn) = turns.clone().acquire_owned().await else { return };
        let asker = asker.clone();
        tokio::spawn(async move {
            asker.answer(request).await;
            drop(turn);
        });
    }
}

impl Asker {
    async fn answer(&self, request: Request) {
        let found = self.find(&request).await;
        if let Err(error) = &found {
            tracing::warn!("the secret of a user could not be looked up: {}", error.message);
        }
        let now = Time(self.epoch.elapsed().as_micros() as u64);
        for client in self.hub.secrets.found(now, &request.user, found) {
            self.mailboxes.send(client.worker, Parcel::Mail(Mail::Secret(client)));
        }
    }

    async fn find(&self, request: &Request) -> Found {
        let answer = timeout_at((request.asked + TIMEOUT).into(), self.attempt(&request.user)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs())));
        answer.map_err(|error| Arc::new(ErrorResponse::fatal(sqlstate::CANNOT_CONNECT_NOW, error)))
    }

    /// A connection that is in the middle of something when its time is over is not used again.
    async fn attempt(&self, user: &str) -> Result<Option<Secret>, String> {
        let kept = self.idle().pop();
        // One that has broken since shows it on its first use; a second attempt has a fresh one.
        if let Some(client) = kept.filter(|client| !client.is_closed())
            && let Ok(found) = ask(&client, &self.look_up, user).await
        {
            self.idle().push(client);
            return Ok(found);
        }
        let client = connect(&self.look_up, &self.resolver).await?;
        let found = ask(&client, &self.look_up, user).await.map_err(|e| describe(&e))?;
        self.idle().push(client);
        Ok(found)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Client>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask(client: &Client, look_up: &LookUp, user: &str) -> Result<Option<Secret>, tokio_postgres::Error> {
    let row = client.query_opt(look_up.config.query.as_str(), &[&user]).await?;
    let text = match row {
        Some(row) => row.try_get::<_, Option<String>>(0)?,
        None => None,
    };
    Ok(text.map(|text| Secret::parse(&text)))
}

async fn connect(look_up: &LookUp, resolver: &Resolver) -> Result<Client, String> {
    let mut config = tokio_postgres::Config::new();
    config.user(&look_up.config.user).dbname(&look_up.dbname).application_name("sluice: secrets");
    if let Some(password) = &look_up.config.password {
        config.password(&password.0);
    }
    let target = resolver.target(&look_up.address).map_err(|e| e.to_string())?;
    let failed = |error: tokio_postgres::Error| format!("at {}: {}", look_up.address, describe(&error));
    let client = match target {
        Target::Unix(path) => {
            let stream = UnixStream::connect(&path).await.map_err(|e| format!("at {}: {e}", path.display()))?;
            let (client, connection) = config.connect_raw(stream, NoTls).await.map_err(failed)?;
            tokio::spawn(connection);
            client
        }
        Target::Tcp(address) => {
            let stream =
                tokio::net::TcpStream::connect(address).await.map_err(|e| format!("at {}: {e}", look_up.address))?;
            let (client, connection) = config.connect_raw(stream, NoTls).await.map_err(failed)?;
            tokio::spawn(connection);
            client
        }
    };
    // A look-up that is given up here must not go on there: such sessions would become more and more.
    let limit = format!("SET statement_timeout = {}", TIMEOUT.as_millis());
    client.batch_execute(&limit).await.map_err(failed)?;
    Ok(client)
}

fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} ({})", error.message(), error.code().code()),
        None => std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")),
    }
}
