//! The pools before a cluster, by their admin consoles: they hold their clients, and tell what they hold.

use std::{
    collections::BTreeMap,
    fs, io,
    path::PathBuf,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use postgres::{Client, SimpleQueryMessage, SimpleQueryRow, error::SqlState};
use sluice_lab::connect::Dsn;

/// Where consoles are.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Which pools")]
pub(crate) struct PoolArgs {
    /// A pool's admin console, as for sluice top: 'host=… port=6432 user=… dbname=pgbouncer'; name each pool
    #[arg(long = "pool", value_name = "DSN", global = true)]
    dsns: Vec<String>,
    /// A file with such consoles, one a line
    #[arg(long = "pools-file", value_name = "FILE", global = true)]
    file: Option<PathBuf>,
}

impl PoolArgs {
    /// Whether none is named.
    pub(super) fn is_empty(&self) -> bool {
        self.dsns.is_empty() && self.file.is_none()
    }

    pub(super) fn add(&mut self, dsn: String) {
        self.dsns.push(dsn);
    }

    pub(super) fn add_file(&mut self, file: PathBuf) {
        self.file = Some(file);
    }

    /// All connection strings; a file that is not there has none, since nothing listens then.
    fn all(&self) -> Result<Vec<String>> {
        let mut all = self.dsns.clone();
        let Some(file) = &self.file else { return Ok(all) };
        match fs::read_to_string(file) {
            Ok(text) => {
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
                all.extend(lines.map(str::to_owned));
                Ok(all)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(all),
            Err(error) => bail!("cannot read {}: {error}", file.display()),
        }
    }
}

/// A pool's console, and the cluster's name there.
pub(super) struct Pool {
    /// Its address.
    pub(super) name: String,
    client: Client,
    cluster: String,
}

/// A cluster, as a pool sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// The primary, if the pool knows one.
    pub(super) node: Option<String>,
    pub(super) is_held: bool,
    /// The length of the hold that is under way, or of the last one.
    pub(super) held: Option<Duration>,
    /// The way in which that has ended.
    pub(super) ended: Option<String>,
    pub(super) clients: u64,
    pub(super) waiting: u64,
    /// Transactions that are open.
    pub(super) busy: u64,
    /// The nodes for readers, where the pool leads any to standbys.
    pub(super) readers: Vec<ReaderNode>,
}

/// A node, as a pool sees it for readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReaderNode {
    pub(super) node: String,
    /// The databases whose readers go there.
    pub(super) databases: String,
    /// The reason why those of others do not.
    pub(super) unfit: Option<String>,
    pub(super) clients: u64,
}

/// The pools that could be reached, and why others could not.
#[derive(Default)]
pub(super) struct Pools {
    pub(super) pools: Vec<Pool>,
    pub(super) faults: Vec<String>,
}

/// Clients are not held by all pools, or not without a transaction.
#[derive(Debug)]
pub(super) struct NotHeld {
    /// Whether transactions are open that have had their time.
    pub(super) is_open: bool,
    /// Whether any pool holds its clients.
    pub(super) is_anybody_held: bool,
    /// The reason of each pool.
    pub(super) faults: Vec<String>,
}

impl Pools {
    /// Connects to all of them. `cluster` is the name that they have for it, or else the only one they have, or `scope`.
    pub(super) fn connect(args: &PoolArgs, cluster: Option<&str>, scope: &str) -> Result<Self> {
        let mut all = Self::default();
        for dsn in args.all()? {
            match resolved(&dsn).and_then(|dsn| Pool::connect(&dsn, cluster, scope)) {
                Ok(pool) => all.pools.push(pool),
                Err(error) => all.faults.push(error.to_string()),
            }
        }
        Ok(all)
    }

    /// The same of those that let this command in within that time, for one that only looks.
    pub(super) fn connect_within(
        time_max: Duration,
        args: &PoolArgs,
        cluster: Option<&str>,
        scope: &str,
    ) -> Result<Self> {
        let deadline = Instant::now() + time_max;
        let asked = args.all()?.into_iter().map(|dsn| {
            let dsn = resolved(&dsn)?;
            let (name, scope, cluster) = (dsn.to_string(), scope.to_owned(), cluster.map(str::to_owned));
            let (sender, receiver) = mpsc::channel();
            // Nobody listens any more where it takes longer, and the process ends.
            thread::spawn(move || drop(sender.send(Pool::connect(&dsn, cluster.as_deref(), &scope))));
            Ok((name, receiver))
        });
        let asked: Vec<Result<_>> = asked.collect();
        let mut all = Self::default();
        for asked in asked {
            let pool = asked.and_then(|(name, receiver)| {
                let answer = receiver.recv_timeout(deadline.saturating_duration_since(Instant::now()));
                answer.unwrap_or_else(|_| {
                    let seconds = time_max.as_secs();
                    Err(anyhow!("{name} has not let this command in within {seconds} s: it may be looking its user up"))
                })
            });
            match pool {
                Ok(pool) => all.pools.push(pool),
                Err(error) => all.faults.push(error.to_string()),
            }
        }
        Ok(all)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// Leaves out those whose clients are held already, and gives their names.
    pub(super) fn leave_out_held(&mut self) -> Vec<String> {
        let is_held = |pool: &mut Pool| pool.seen().is_ok_and(|seen| seen.is_held);
        self.pools.extract_if(.., is_held).map(|pool| pool.name).collect()
    }

    /// Has all of them hold at once, and waits until no transaction is open.
    ///
    /// # Errors
    ///
    /// What is in the way; those that hold do so still.
    pub(super) fn hold(&mut self, wait: Duration, longest: Duration) -> Result<(), NotHeld> {
        let command =
            |cluster: &str| format!("HOLD {} {} {}", quoted(cluster), wait.as_secs_f64(), longest.as_secs_f64());
        let failed: Vec<_> = thread::scope(|scope| {
            let held: Vec<_> =
                self.pools.iter_mut().map(|pool| scope.spawn(move || pool.hold(&command(&pool.cluster)))).collect();
            let all = held
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err((false, "it was not asked".to_owned()))));
            all.filter_map(Result::err).collect()
        });
        if failed.is_empty() {
            return Ok(());
        }
        let is_open = failed.iter().any(|(is_open, _)| *is_open);
        let is_anybody_held = is_open || failed.len() < self.pools.len();
        let faults = failed.into_iter().map(|(_, fault)| fault).collect();
        Err(NotHeld { is_open, is_anybody_held, faults })
    }

    /// Has all of them let their clients go on; whoever does not hold any has nothing to do.
    pub(super) fn release(&mut self) -> Vec<String> {
        let release = |pool: &mut Pool| match pool.seen() {
            Ok(seen) if seen.is_held => pool.carry_out(&format!("RELEASE {}", quoted(&pool.cluster))),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        self.pools.iter_mut().filter_map(|pool| release(pool).err()).map(|error| error.to_string()).collect()
    }

    /// The view of each of them.
    pub(super) fn seen(&mut self) -> BTreeMap<String, Result<Seen>> {
        self.pools.iter_mut().map(|pool| (pool.name.clone(), pool.seen())).collect()
    }
}

impl Pool {
    fn connect(dsn: &Dsn, cluster: Option<&str>, scope: &str) -> Result<Self> {
        let name = dsn.to_string();
        let mut client = dsn.connect().map_err(|error| no_console(&name, &error.to_string()))?;
        let shown = client.simple_query("SHOW CLUSTERS").map_err(|error| {
            anyhow!(
                "{name} is no admin console of a pool that knows clusters: {}\n{CONSOLE_REMEDY}",
                first_line(&words(&error))
            )
        })?;
        let names: Vec<String> = rows(&shown).filter_map(|row| row.get("name").map(str::to_owned)).collect();
        let is_there = |wanted: &&str| names.iter().any(|name| name == wanted);
        let chosen = match (cluster, &*names) {
            (Some(cluster), _) => Some(cluster).filter(is_there),
            (None, [only]) => Some(&**only),
            (None, _) => Some(scope).filter(is_there),
        };
        let cluster = chosen.map(str::to_owned).ok_or_else(|| {
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            anyhow!("the pool at {name} does not have that cluster; its clusters: {there}\nname it with --cluster")
        })?;
        Ok(Self { name, client, cluster })
    }

    /// What is in the way, and whether that is transactions which are open: then without the pool's remedy, since whoever
    /// asks here may have let its clients go on by then.
    fn hold(&mut self, command: &str) -> Result<(), (bool, String)> {
        let name = &self.name;
        self.client.simple_query(command).map(drop).map_err(|error| {
            let open = error.as_db_error().filter(|error| *error.code() == SqlState::LOCK_NOT_AVAILABLE);
            let said = open.map_or_else(|| words(&error), |open| open.message().to_owned());
            (open.is_some(), format!("{name}: {said}"))
        })
    }

    fn carry_out(&mut self, command: &str) -> Result<()> {
        let name = &self.name;
        self.client.simple_query(command).map(drop).map_err(|error| anyhow!("{name}: {}", words(&error)))
    }

    fn seen(&mut self) -> Result<Seen> {
        let shown = self.client.simple_query("SHOW CLUSTERS");
        let shown = shown.map_err(|error| anyhow!("{}: {}", self.name, words(&error)))?;
        let row = rows(&shown).find(|row| row.get("name") == Some(&*self.cluster));
        let row = row.ok_or_else(|| anyhow!("{} no longer has a cluster {:?}", self.name, self.cluster))?;
        let text = |column: &str| row.get(column).map(str::to_owned);
        let number = |column: &str| row.get(column).and_then(|number| number.parse().ok());
        Ok(Seen {
            node: text("node"),
            is_held: number("held") == Some(1),
            held: number("held_us").map(Duration::from_micros),
            ended: text("hold_ended"),
            clients: number("clients").unwrap_or_default(),
            waiting: number("cl_waiting").unwrap_or_default(),
            busy: number("sv_busy").unwrap_or_default(),
            readers: self.readers(),
        })
    }

    /// A pool of before has no such table.
    fn readers(&mut self) -> Vec<ReaderNode> {
        let shown = self.client.simple_query("SHOW NODES").unwrap_or_default();
        let ours = rows(&shown).filter(|row| row.get("cluster") == Some(&*self.cluster));
        let text = |row: &SimpleQueryRow, column: &str| row.get(column).map(str::to_owned);
        let node = |row: &SimpleQueryRow| ReaderNode {
            node: text(row, "node").unwrap_or_default(),
            databases: text(row, "databases").unwrap_or_default(),
            unfit: text(row, "unfit"),
            clients: row.get("clients").and_then(|number| number.parse().ok()).unwrap_or_default(),
        };
        ours.map(node).collect()
    }
}

/// The way to have an admin console, and to name it.
const CONSOLE_REMEDY: &str = "name the address at which the pool listens, not PostgreSQL's, and its console's database \
(--pool 'host=… port=6432 user=… dbname=pgbouncer'); the pool has a console where its configuration has [admin] with that \
user in users";

/// An error of whoever connects to a console, with the remedy for one.
fn no_console(name: &str, error: &str) -> anyhow::Error {
    // Its own remedy is for any database.
    let is_no_database = error.contains("does not exist") || error.contains("no such database");
    if is_no_database {
        return anyhow!("{}\nthere is no admin console of a pool at {name}: {CONSOLE_REMEDY}", first_line(error));
    }
    anyhow!("{error}")
}

fn resolved(dsn: &str) -> Result<Dsn> {
    Ok(Dsn::resolve(Some(dsn), "sluice cluster")?)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn rows(messages: &[SimpleQueryMessage]) -> impl Iterator<Item = &SimpleQueryRow> {
    messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    })
}

/// The pool's own words, with the remedy.
fn words(error: &postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => match error.hint() {
            Some(hint) => format!("{}\n{hint}", error.message()),
            None => error.message().to_owned(),
        },
        None => error.to_string(),
    }
}

/// A name as the console reads it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
