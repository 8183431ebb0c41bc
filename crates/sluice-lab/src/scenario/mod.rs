//! Scenarios: workloads as data, read from `scenario.toml` and the SQL files beside it.
//!
//! A [`Scenario`] in hand is checked: its files are there, its numbers make sense, its names are known. It says what
//! is to be run; how, and against what it can be run here, is `plan`'s to say.

mod flood;
mod shipped;
mod written;

use std::{
    collections::BTreeMap,
    path::{Component, Path},
};

use serde::Deserialize;
use sha2::{Digest, Sha256};
use sluice_instance::Class;

use self::written::Source;
pub use self::{
    flood::{Flood, FloodKind},
    shipped::names,
};
use crate::error::Error;

/// The file that describes a scenario.
const FILE: &str = "scenario.toml";
/// As much of a digest as tells scenarios apart.
const DIGEST_BYTES: usize = 6;
/// More clients than fit in any machine that somebody would run this on.
const CLIENTS_MAX: u32 = 65_536;

/// A workload: data, scripts, load, and what is varied.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// On the command line and in file names.
    pub name: String,
    /// A line.
    pub title: String,
    /// A paragraph.
    pub description: String,
    /// The report of others that it is modelled on, by the name of its figures.
    pub reference: Option<String>,
    /// Its tables.
    pub data: Data,
    /// The load that pgbench makes.
    pub load: Load,
    /// Limits of the laboratory's server.
    pub class: Class,
    /// Settings of servers that the laboratory starts itself.
    pub settings: BTreeMap<String, String>,
    /// At least one.
    pub variants: Vec<Variant>,
    /// The targets, if the command line does not name them.
    pub targets: Vec<String>,
    /// Turns of each target at each step.
    pub turns: u32,
    /// Whether variants take turns as well, so that those of one round can be held against each other.
    pub interleaved: bool,
    /// Changes for a run of seconds.
    pub brief: Brief,
}

impl Scenario {
    /// A digest of what is run: the SQL that makes and resets the tables, and each variant's scripts, weights and
    /// settings. Two scenarios of one name are one load only if it is the same.
    pub fn digest(&self) -> String {
        let mut digest = Sha256::new();
        let mut add = |text: &str| {
            digest.update(text.len().to_le_bytes());
            digest.update(text);
        };
        match &self.data.maker {
            Maker::Pgbench => add("pgbench"),
            Maker::Schema(sql) => add(sql),
        }
        add(&self.data.reset);
        self.data.prewarm.iter().for_each(|name| add(name));
        let settings = |settings: &BTreeMap<String, String>| format!("{settings:?}");
        add(&settings(&self.settings));
        for variant in &self.variants {
            add(&format!("{} {}", variant.name, variant.unlogged));
            add(&settings(&variant.settings));
            for script in &variant.scripts {
                add(&format!("{}@{}", script.name, script.weight));
                add(script.text.as_deref().unwrap_or_default());
            }
            if let Some(flood) = variant.flood {
                add(&format!("{flood:?}"));
            }
        }
        let bytes = digest.finalize();
        bytes.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The tables.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// The maker of the tables.
    pub maker: Maker,
    /// Their size.
    pub size: Size,
    /// Relations that are read into shared buffers before each turn.
    pub prewarm: Vec<String>,
    /// SQL before each turn, so that all turns begin alike.
    pub reset: String,
}

/// The maker of the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Maker {
    /// `pgbench -i`; a row is a unit of its scale.
    Pgbench,
    /// SQL, which finds the size in psql's variable `rows`.
    Schema(String),
}

/// The size of the tables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// So many rows, or this scale.
    Rows(u64),
    /// Tables and indexes together fill this much of `shared_buffers`.
    PercentOfSharedBuffers {
        /// Above 100 they do not fit.
        percent: f64,
        /// Bytes that a row (or a unit of scale) takes, with its share of the indexes.
        bytes_per_row: u64,
    },
}

impl Size {
    /// The number of rows for a server's `shared_buffers`.
    pub fn rows(self, shared_buffers_bytes: u64) -> u64 {
        match self {
            Self::Rows(rows) => rows,
            Self::PercentOfSharedBuffers { percent, bytes_per_row } => {
                let rows = shared_buffers_bytes as f64 * percent / 100.0 / bytes_per_row.max(1) as f64;
                (rows as u64).max(1)
            }
        }
    }
}

/// The load that pgbench makes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The ladder: one step each.
    pub clients: Vec<u32>,
    /// Threads of pgbench; as many as there are processors, if it does not say.
    pub threads: Option<u32>,
    /// `-M`.
    #[serde(default)]
    pub protocol: Protocol,
    /// Length of a turn, from when all clients are connected.
    pub seconds: u32,
    /// Load before each turn that is not measured.
    #[serde(default = "warm_up_seconds")]
    pub warm_up_seconds: u32,
    /// Clients of a warm-up, at most.
    #[serde(default = "warm_up_clients")]
    pub warm_up_clients: u32,
    /// `--rate`: transactions a second that become due, by a Poisson process; latencies count from then.
    pub rate: Option<f64>,
    /// `--latency-limit`: with a rate, what is due for longer is skipped, and lost.
    pub latency_limit_ms: Option<f64>,
    /// `--sampling-rate`: the share of transactions whose latencies are kept.
    #[serde(default = "whole")]
    pub log_share: f64,
    /// `--max-tries`, after serialization failures and deadlocks.
    pub max_tries: Option<u32>,
}

fn warm_up_seconds() -> u32 {
    2
}

/// More would add only log-ins.
fn warm_up_clients() -> u32 {
    64
}

fn whole() -> f64 {
    1.0
}

/// The protocol in which pgbench sends statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// One message, parsed each time.
    Simple,
    /// Unnamed statements.
    Extended,
    /// Named statements.
    #[default]
    Prepared,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Simple, Self::Extended, Self::Prepared];

    /// pgbench's word.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Extended => "extended",
            Self::Prepared => "prepared",
        }
    }
}

/// One way to run the scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Unique in the scenario.
    pub name: String,
    /// The scripts that clients run.
    pub scripts: Vec<Script>,
    /// Settings besides the scenario's.
    pub settings: BTreeMap<String, String>,
    /// Whether the tables are unlogged.
    pub unlogged: bool,
    /// Strangers who come meanwhile.
    pub flood: Option<Flood>,
    /// In place of the load's.
    pub clients: Option<Vec<u32>>,
    /// In place of the load's.
    pub protocol: Option<Protocol>,
    /// In place of the scenario's.
    pub targets: Option<Vec<String>>,
}

/// A script of pgbench.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// The file's name, or pgbench's own name for it.
    pub name: String,
    /// Its text; none for pgbench's own.
    pub text: Option<String>,
    /// Its weight in the random choice among the scripts.
    pub weight: u32,
}

/// Changes for a run of seconds: less of everything, the same way.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Brief {
    /// Rows, or pgbench's scale.
    pub rows: u64,
    /// The ladder.
    pub clients: Vec<u32>,
    /// Length of a turn.
    #[serde(default = "brief_seconds")]
    pub seconds: u32,
    /// Of a warm-up; none, if it does not say.
    #[serde(default)]
    pub warm_up_seconds: u32,
}

fn brief_seconds() -> u32 {
    2
}

impl Scenario {
    /// One of those shipped by its name, or a folder with a `scenario.toml`.
    pub fn find(name: &str) -> Result<Self, Error> {
        if let Some(files) = shipped::files(name) {
            return written::read(name, &Source::Shipped(files));
        }
        let folder = Path::new(name);
        if folder.join(FILE).is_file() {
            let label = folder.file_name().map_or_else(|| name.to_owned(), |name| name.to_string_lossy().into_owned());
            return written::read(&label, &Source::Folder(folder.to_owned()));
        }
        let known = shipped::names().collect::<Vec<_>>().join(", ");
        Err(Error::Input(format!(
            "there is no scenario {name:?}\nchoose one of {known}, or name a folder that holds a {FILE}"
        )))
    }

    /// The fault of the scenario, with the remedy.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Load { clients, seconds, log_share, rate, latency_limit_ms, .. } = &self.load;
        let of_variants = self.variants.iter().filter_map(|variant| variant.clients.as_ref());
        for clients in [clients, &self.brief.clients].into_iter().chain(of_variants) {
            if clients.is_empty() || clients.iter().any(|count| !(1..=CLIENTS_MAX).contains(count)) {
                return Err(format!("clients: a list of numbers from 1 to {CLIENTS_MAX} is needed"));
            }
        }
        if *seconds == 0 || self.brief.seconds == 0 || self.turns == 0 {
            return Err("seconds and turns: at least 1".to_owned());
        }
        if self.brief.rows == 0 {
            return Err("brief: rows: at least 1".to_owned());
        }
        if !(*log_share > 0.0 && *log_share <= 1.0) {
            return Err("log_share: a share above 0 and up to 1".to_owned());
        }
        if rate.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
            return Err("rate: transactions a second, above 0".to_owned());
        }
        if latency_limit_ms.is_some() && rate.is_none() {
            return Err("latency_limit_ms: skips only with a rate; give one, or leave it out".to_owned());
        }
        if self.variants.is_empty() {
            return Err("at least one [[variant]] is needed".to_owned());
        }
        for (index, variant) in self.variants.iter().enumerate() {
            if self.variants[..index].iter().any(|other| other.name == variant.name) {
                return Err(format!("two variants are called {:?}", variant.name));
            }
            variant.flood.map_or(Ok(()), Flood::check)?;
            for script in variant.scripts.iter().filter(|script| script.text.is_some()) {
                if !Path::new(&script.name).components().all(|part| matches!(part, Component::Normal(_))) {
                    return Err(format!(
                        "{:?}: a script lies in the scenario's folder, or in one below it",
                        script.name
                    ));
                }
            }
            if variant.scripts.iter().all(|script| script.weight == 0) {
                return Err(format!("variant {:?}: no script has a weight above 0", variant.name));
            }
        }
        Ok(())
    }

    /// The same for a run of seconds.
    pub fn brief(self) -> Self {
        let Brief { rows, clients, seconds, warm_up_seconds } = self.brief.clone();
        let variants = self.variants.into_iter().map(|variant| Variant { clients: None, ..variant });
        Self {
            variants: variants.collect(),
            data: Data { size: Size::Rows(rows), ..self.data },
            load: Load { clients, seconds, warm_up_seconds, ..self.load },
            turns: 1,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn all_that_are_shipped_are_right() {
        for name in names() {
            let scenario = Scenario::find(name).unwrap();
            assert!(!scenario.description.is_empty() && !scenario.title.is_empty(), "{name}");
            let brief = scenario.brief();
            assert!(brief.load.seconds <= 3 && brief.turns == 1, "{name}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            fs::write(folder.path().join(FILE), text).unwrap();
            Scenario::find(folder.path().to_str().unwrap()).map(|_| ()).unwrap_err().to_string()
        };
        let good = "title = 'T'\ndescription = 'D'\ntargets = ['straight']\n\
                    [data]\nrows = 1\n[load]\nclients = [1]\nseconds = 1\n\
                    [[variant]]\nname = 'v'\nscripts = [{ builtin = 'select-only' }]\n\
                    [brief]\nrows = 1\nclients = [1]\n";
        for (from, to, expected) in [
            ("clients = [1]\nseconds", "clients = [0]\nseconds", "clients: a list of numbers from 1"),
            ("seconds = 1", "seconds = 0", "seconds and turns"),
            ("seconds = 1", "seconds = 1\nlog_share = 2.0", "log_share"),
            ("seconds = 1", "seconds = 1\nlatency_limit_ms = 2.0", "skips only with a rate"),
            ("seconds = 1", "seconds = 1\nspeed = 2", "unknown field `speed`"),
            ("name = 'v'", "name = 'v'\nflood = { kind = 'cancels', per_second = 0 }", "flood: per_second"),
            ("name = 'v'", "name = 'v'\nflood = { kind = 'rain', per_second = 1 }", "unknown variant `rain`"),
            ("[brief]", "[class]\ncpus = 'two'\n[brief]", "class: cpus: a number of processors"),
            ("builtin = 'select-only'", "file = 'a.sql'", "a.sql"),
            ("{ builtin = 'select-only' }", "{ }", "either a file or a builtin"),
            ("rows = 1", "bytes_per_row = 1", "either rows, or percent_of_shared_buffers"),
        ] {
            let error = read(&good.replacen(from, to, 1));
            assert!(error.contains(expected), "{error}");
        }
        let error = Scenario::find("no-such-scenario").unwrap_err().to_string();
        assert!(error.contains("quick") && error.contains("scenario.toml"), "{error}");
    }

    #[test]
    fn sizes() {
        let size = Size::PercentOfSharedBuffers { percent: 50.0, bytes_per_row: 128 };
        assert_eq!(size.rows(256 << 20), 1 << 20);
        assert_eq!(Size::Rows(7).rows(1), 7);
    }
}
