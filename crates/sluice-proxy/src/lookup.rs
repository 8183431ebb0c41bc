//! Looking up clients' secrets on the server, over a connection of the control thread's own.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_core::{
    hub::{Hub, Mail},
    secrets::Found,
    time::Time,
};
use sluice_wire::{ErrorResponse, secret::Secret, sqlstate};
use tokio::{net::UnixStream, sync::mpsc, time::timeout};
use tokio_postgres::{Client, NoTls};

use crate::{
    config::LookupConfig,
    mailbox::{Mailboxes, Parcel},
    net::sockets::Target,
    resolver::Resolver,
};

/// How long a look-up may take, the connect included.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How often host names are resolved again.
const RESOLVE_EVERY: Duration = Duration::from_secs(10);

/// Where and what to ask.
pub(crate) struct LookUp {
    pub(crate) config: LookupConfig,
    pub(crate) address: sluice_core::io::Address,
    /// The database's name on the server.
    pub(crate) dbname: String,
}

/// The control thread's work: look-ups until the workers are gone, and host names.
pub(crate) async fn control(
    look_up: Option<LookUp>,
    mut requests: mpsc::UnboundedReceiver<String>,
    hub: Arc<Hub>,
    mailboxes: Arc<Mailboxes>,
    resolver: Arc<Resolver>,
    epoch: Instant,
    mut stop: mpsc::Receiver<()>,
) {
    let mut connection = None;
    let mut resolve = tokio::time::interval(RESOLVE_EVERY);
    loop {
        tokio::select! {
            _ = stop.recv() => return,
            _ = resolve.tick(), if resolver.has_names() => {
                let resolver = resolver.clone();
                let _ = tokio::task::spawn_blocking(move || resolver.refresh()).await;
            }
            Some(user) = requests.recv() => {
                let Some(look_up) = &look_up else { continue };
                let found = find(look_up, &user, &mut connection, &resolver).await;
                if let Err(error) = &found {
                    tracing::warn!("the secret of a user could not be looked up: {}", error.message);
                }
                let now = Time(epoch.elapsed().as_micros() as u64);
                for client in hub.secrets.found(now, &user, found) {
                    mailboxes.send(client.worker, Parcel::Mail(Mail::Secret(client)));
                }
            }
        }
    }
}

async fn find(look_up: &LookUp, user: &str, connection: &mut Option<Client>, resolver: &Resolver) -> Found {
    let attempt = async {
        // A connection that has broken since shows it on its first use; a second attempt has a fresh one.
        if let Some(client) = connection.as_ref().filter(|c| !c.is_closed())
            && let Ok(found) = ask(client, look_up, user).await
        {
            return Ok(found);
        }
        let client = connect(look_up, resolver).await?;
        let found = ask(&client, look_up, user).await.map_err(|e| describe(&e))?;
        *connection = Some(client);
        Ok(found)
    };
    let answer = timeout(TIMEOUT, attempt).await;
    let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs())));
    answer.map_err(|error| Arc::new(ErrorResponse::fatal(sqlstate::CANNOT_CONNECT_NOW, error)))
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
    match target {
        Target::Unix(path) => {
            let stream = UnixStream::connect(&path).await.map_err(|e| format!("at {}: {e}", path.display()))?;
            let (client, connection) = config.connect_raw(stream, NoTls).await.map_err(failed)?;
            tokio::spawn(connection);
            Ok(client)
        }
        Target::Tcp(address) => {
            let stream =
                tokio::net::TcpStream::connect(address).await.map_err(|e| format!("at {}: {e}", look_up.address))?;
            let (client, connection) = config.connect_raw(stream, NoTls).await.map_err(failed)?;
            tokio::spawn(connection);
            Ok(client)
        }
    }
}

fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} ({})", error.message(), error.code().code()),
        None => std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")),
    }
}
