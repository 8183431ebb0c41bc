//! The admin console: commands of clients that may give them, carried out by the control thread. Its tables have the
//! columns of PgBouncer's, so that what reads those reads these.

mod cancel;
mod clusters;
mod command;
mod config;
mod listed;
mod listens;
mod names;
mod nodes;
mod pausing;
mod rows;
mod statements;
mod tables;
mod waits;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use sluice_core::{figures::Figures, hub::Hub, io::Command as Given, listing::Listing, mail::Mail, time::Time};
use sluice_net::Lister;
use sluice_wire::{
    ErrorResponse,
    message::{self, TransactionStatus},
    sqlstate,
};
use tokio::sync::mpsc;

use crate::{
    asked::Asked,
    clusters::Suspicion,
    log::one_line,
    mailbox::{Mailboxes, Parcel},
    reload::Reloader,
    resolver::Resolver,
};
use cancel::{Cancel, Cancelled, Cancels};
use clusters::Lengths;
use command::{Command, Show};
use listed::Listed;
pub(crate) use listens::Listens;
use rows::Table;
use tables::Seen;
use waits::Setting;
pub(crate) use waits::Waits;

/// The interval at which a PAUSE looks whether it is done.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// The longest interval at which a WAIT_CLOSE looks: each look lists all connections.
const LOOKS_AT_CONNECTIONS_EVERY: Duration = Duration::from_millis(500);

/// Time limit for the workers to say what they have.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// The interval over which averages are taken (PgBouncer's `stats_period`).
const AVERAGED: Duration = Duration::from_secs(60);

/// The console: all that it knows and can do.
pub(crate) struct Console {
    pub(crate) hub: Arc<Hub>,
    pub(crate) mailboxes: Arc<Mailboxes>,
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) listens: Listens,
    pub(crate) epoch: Instant,
    pub(crate) averages: Mutex<Averages>,
    /// Whether it has been told to shut down: once more would mean to do it at once.
    pub(crate) is_shutting_down: AtomicBool,
    /// Raised where clients are held: whoever follows their cluster looks more often.
    pub(crate) suspicion: Suspicion,
    /// The lengths of the last holds.
    pub(crate) hold_lengths: Mutex<Lengths>,
    /// The commands that wait for clients.
    pub(crate) waits: Waits,
}

/// The figures at the ends of the last whole interval, by which averages are taken.
#[derive(Debug, Default)]
pub(crate) struct Averages {
    begin: Option<Arc<Figures>>,
    end: Option<Arc<Figures>>,
}

/// Carries out commands as they come, some at once, and takes the figures for averages.
pub(crate) async fn serve(console: Arc<Console>, mut asked: mpsc::Receiver<Asked>) {
    let mut interval = tokio::time::interval(AVERAGED);
    let mut cancels = Cancels::default();
    loop {
        tokio::select! {
            asked = asked.recv() => match asked {
                Some(Asked::Command(command)) => {
                    let (console, cancel) = (console.clone(), cancels.begin(command.client));
                    tokio::spawn(async move { console.answer(command, cancel).await });
                }
                Some(Asked::Cancel(client)) => cancels.cancel(client),
                None => return,
            },
            _ = interval.tick() => console.take_figures(),
        }
    }
}

impl Console {
    async fn answer(self: &Arc<Self>, given: Given, cancel: Cancel) {
        let mut out = Vec::new();
        let command = Command::parse(&given.text, given.rights);
        if command.as_ref().is_ok_and(Command::changes_something) {
            tracing::info!(user = %one_line(&given.user), "admin console: {}", one_line(given.text.trim()));
        }
        let shuts_down = matches!(command, Ok(Command::Shutdown));
        let done = match command {
            Ok(command) => self.carry_out(command, &cancel, &mut out).await,
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            out.clear();
            error.write(&mut out);
        }
        out.extend_from_slice(&TransactionStatus::Idle.ready_for_query());
        self.mailboxes.send(given.client.worker, Parcel::Mail(Mail::Answer(given.client, out.into())));
        // Behind the answer: a worker that is told to stop ends its clients.
        if shuts_down && !self.is_shutting_down.swap(true, Ordering::Relaxed) {
            tracing::info!("the admin console says to shut down");
            let this = rustix::process::getpid();
            if let Err(error) = rustix::process::kill_process(this, rustix::process::Signal::TERM) {
                tracing::error!("this process can't be sent a signal: {error}");
            }
        }
    }

    async fn carry_out(
        self: &Arc<Self>,
        command: Command,
        cancel: &Cancel,
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorResponse> {
        match command {
            Command::Nothing => message::framed(out, b'I', |_| {}),
            Command::Show(Show::Help) => {
                command::put_help(out);
                message::put_command_complete(out, "SHOW");
            }
            Command::Show(show) => {
                self.table(show).await?.write(out);
                message::put_command_complete(out, "SHOW");
            }
            Command::Reload => {
                self.reload().await?;
                message::put_command_complete(out, "RELOAD");
            }
            Command::Pause(database) => {
                self.known("pause", database.as_deref())?;
                self.pause(database.as_deref(), cancel).await?;
                message::put_command_complete(out, "PAUSE");
            }
            Command::Resume(database) => {
                self.known("resume", database.as_deref())?;
                let ends_drain = database.is_none() && self.hub.is_draining();
                if ends_drain {
                    self.hub.set_draining(false);
                }
                if !self.hub.resume(self.now(), database.as_deref()) && !ends_drain {
                    return Err(self.not_paused(database.as_deref()));
                }
                message::put_command_complete(out, "RESUME");
            }
            Command::Set => {
                command::put_ignored(out);
                message::put_command_complete(out, "SET");
            }
            Command::Reconnect(database) => {
                self.known("reconnect", database.as_deref())?;
                self.mailboxes.call_in(self.hub.renew(self.now(), database.as_deref()));
                message::put_command_complete(out, "RECONNECT");
            }
            Command::Kill(database) => {
                self.known("kill", Some(&database))?;
                self.mailboxes.call_in(self.hub.pause(self.now(), Some(&database)));
                self.waits.keep(&Setting::Pause(Some(database.clone())));
                let name: Arc<str> = database.into();
                self.mailboxes.send_all(|| Mail::End(name.clone()));
                message::put_command_complete(out, "KILL");
            }
            Command::Disable(database) => {
                self.known("disable", Some(&database))?;
                self.hub.set_disabled(&database, true);
                message::put_command_complete(out, "DISABLE");
            }
            Command::Enable(database) => {
                // In PgBouncer's words.
                self.known("disable", Some(&database))?;
                self.hub.set_disabled(&database, false);
                message::put_command_complete(out, "ENABLE");
            }
            Command::WaitClose(database) => {
                self.known("wait in", database.as_deref())?;
                self.wait_close(database.as_deref(), cancel).await?;
                message::put_command_complete(out, "WAIT_CLOSE");
            }
            Command::Drain => {
                self.drain(cancel).await?;
                message::put_command_complete(out, "DRAIN");
            }
            Command::Hold(cluster, wait, longest) => {
                self.hold(&cluster, (wait, longest), cancel).await?;
                message::put_command_complete(out, "HOLD");
            }
            Command::Release(cluster) => {
                self.release(&cluster)?;
                message::put_command_complete(out, "RELEASE");
            }
            Command::Shutdown => message::put_command_complete(out, "SHUTDOWN"),
        }
        Ok(())
    }

    async fn table(&self, show: Show) -> Result<Table, ErrorResponse> {
        Ok(match show {
            Show::Help => Table::new(&[], &[]),
            Show::Version => tables::version(),
            Show::Databases => self.seen().databases(),
            Show::Clusters => self.clusters().await?,
            Show::Nodes => nodes::nodes(&self.figures()),
            Show::Pools => self.seen().pools(),
            Show::Clients => self.listed().await?.clients(),
            Show::Servers => self.listed().await?.servers(),
            Show::Pins => self.seen().pins(),
            Show::Waits => self.listed().await?.waits(),
            Show::Statements => statements::table(&self.hub.pools()),
            Show::Stats => self.seen().stats(),
            Show::StatsTotals => self.seen().stats_totals(),
            Show::StatsAverages => self.seen().stats_averages(),
            Show::Totals => self.seen().totals(),
            Show::Sockets => self.listed().await?.sockets(false),
            Show::ActiveSockets => self.listed().await?.sockets(true),
            Show::DnsHosts => names::hosts(&self.resolver),
            Show::DnsZones => names::zones(),
            Show::Lists => self.seen().lists(),
            Show::Users => self.seen().users(),
            Show::Config => self.seen().config(),
            Show::Setting((name, value)) => {
                let name = std::slice::from_ref(name);
                let mut table = Table::new(name, name);
                table.push([(*value).into()]);
                table
            }
        })
    }

    /// The figures of now.
    fn seen(&self) -> Seen<'_> {
        let snapshot = self.hub.snapshot();
        Seen {
            hub: &self.hub,
            switched: [self.hub.paused(), self.hub.disabled()].concat(),
            names: self.resolver.known().len() as u32,
            figures: self.figures(),
            console: snapshot.admin.as_ref().map(|admin| admin.database.clone()).unwrap_or_default(),
            snapshot,
            pool: self.reloader.pool(),
            listens: &self.listens,
            averages: self.averages().differences(),
        }
    }

    /// The connections that the workers have.
    async fn listed(&self) -> Result<Listed, ErrorResponse> {
        let (asked, mut answers) = mpsc::unbounded_channel();
        for worker in 0..self.hub.workers {
            let asked = asked.clone();
            self.mailboxes.send(worker, Parcel::List(Lister(Box::new(move |listing| _ = asked.send(listing)))));
        }
        drop(asked);
        let mut listing = Listing::default();
        let collected = async {
            while let Some(Listing { clients, servers }) = answers.recv().await {
                listing.clients.extend(clients);
                listing.servers.extend(servers);
            }
        };
        if tokio::time::timeout(ANSWER_TIME, collected).await.is_err() {
            let error = "a worker does not say what it has";
            return Err(ErrorResponse::error(sqlstate::CANNOT_CONNECT_NOW, error).hint("Try again."));
        }
        Ok(Listed { listing, port: self.listens.port(), now: (self.now(), SystemTime::now()) })
    }

    /// Sees that clients may name that database.
    fn known(&self, verb: &str, database: Option<&str>) -> Result<(), ErrorResponse> {
        if database == Some("*") {
            let error = ErrorResponse::error(sqlstate::INVALID_CATALOG_NAME, "no such database: *");
            return Err(error.hint("Name a database that \"*\" stands for, or none to mean all."));
        }
        let snapshot = self.hub.snapshot();
        let console = snapshot.admin.as_ref().map(|admin| &*admin.database);
        if let Some(name) = database.filter(|name| Some(*name) == console) {
            // In PgBouncer's words. A database "*" does not stand for it.
            if verb == "resume" {
                return Err(self.not_paused(database));
            }
            let error = ErrorResponse::error(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("cannot {verb} admin db: {name}"),
            );
            return Err(error.hint("Name a database of the pool's: SHOW DATABASES lists them."));
        }
        match database.filter(|name| snapshot.database(name).is_none()) {
            None => Ok(()),
            Some(name) => {
                let error = format!("no such database: {name}");
                Err(ErrorResponse::error(sqlstate::INVALID_CATALOG_NAME, error).hint("SHOW DATABASES lists them."))
            }
        }
    }

    /// There is nothing to resume: in PgBouncer's words.
    fn not_paused(&self, database: Option<&str>) -> ErrorResponse {
        let said = match database {
            None => "pooler is not paused/suspended".to_owned(),
            Some(name) => format!("database {name} is not paused"),
        };
        let error = ErrorResponse::error(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, said);
        match database {
            Some(name) if self.hub.is_paused(name) => error.hint("All databases are: RESUME without a name ends that."),
            _ => error,
        }
    }

    /// Waits until all servers of a database, or of all, are closed that a RECONNECT or a reload has called in.
    async fn wait_close(&self, database: Option<&str>, cancel: &Cancel) -> Result<(), ErrorResponse> {
        let is_meant = |name: &str| database.is_none_or(|database| database == name);
        let closed = async {
            let (mut interval, mut were_closed) = (LOOKS_EVERY, false);
            loop {
                let servers = self.listed().await?.listing.servers;
                let are_closed = !servers.iter().any(|server| server.is_called_in && is_meant(&server.database));
                // One look may miss a server that is being handed from one worker to another.
                if are_closed && were_closed {
                    return Ok(());
                }
                were_closed = are_closed;
                tokio::time::sleep(interval).await;
                interval = if are_closed { LOOKS_EVERY } else { (interval * 2).min(LOOKS_AT_CONNECTIONS_EVERY) };
            }
        };
        let cancelled = |it: Cancelled| it.error("The servers are closed all the same, as their clients let them go.");
        cancel.or(closed).await.map_err(cancelled)?
    }

    fn now(&self) -> Time {
        Time(self.epoch.elapsed().as_micros() as u64)
    }

    /// Has the configuration read again. Files and names may take their time, so that is not done here.
    async fn reload(&self) -> Result<(), ErrorResponse> {
        let reloader = self.reloader.clone();
        let done = tokio::task::spawn_blocking(move || reloader.reload_and_log()).await;
        let failed = |error: String| {
            ErrorResponse::error(sqlstate::CONFIG_FILE_ERROR, "the configuration was not reloaded").detail(error)
        };
        done.map_err(|error| failed(error.to_string()))?.map_err(failed)
    }

    fn figures(&self) -> Figures {
        self.hub.figures(self.now())
    }

    fn take_figures(&self) {
        let now = Arc::new(self.figures());
        let mut averages = self.averages();
        averages.begin = averages.end.replace(now);
    }

    fn averages(&self) -> std::sync::MutexGuard<'_, Averages> {
        self.averages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Averages {
    /// The figures at both ends of the last interval, and its length in seconds; `None` in the first one.
    fn differences(&self) -> Option<(Arc<Figures>, Arc<Figures>, u64)> {
        Some((self.begin.clone()?, self.end.clone()?, AVERAGED.as_secs()))
    }
}
