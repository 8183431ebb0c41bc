//! The plan of a run: a scenario, with the choices of the command line, as a list of turns.
//!
//! Made before anything is started, so that all that is wrong is said at once, and what can't be run on this machine
//! is known with its reason.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use sluice_instance::{Class, Connections, Hierarchies, Memory};
use sluice_units::{Dimension, Quantity, Unit};

use crate::{
    error::Error,
    pgbench, proc, process,
    result::CaseKey,
    sample,
    scenario::{Flood, FloodKind, Load, Maker, Protocol, Scenario, Size, Variant},
    server::{self, Settings, Tables},
    target::Target,
};

/// The condition by which runs have the same workload: a digest of it.
pub(crate) const WORKLOAD: &str = "workload";
/// Descriptors that pgbench needs besides those of its clients and its threads' logs.
const FILES_BESIDES: u64 = 100;
/// Connections besides pgbench's: the sampler, ours, the superusers' reserve.
const CONNECTIONS_BESIDES: u32 = 20;
/// Of a process of PostgreSQL's with a few prepared statements, without the shared memory that it maps.
const BACKEND_BYTES: u64 = 3 << 20;
/// Of a unit of pgbench's scale, with its index.
const SCALE_BYTES: u64 = 16 << 20;
/// Bytes that a row takes, where the scenario does not say.
const ROW_BYTES: u64 = 200;
/// Of log, at most, that a second of load leaves in `pg_wal`.
const WAL_BYTES_A_SECOND: u64 = 100 << 20;
/// Of pgbench's log of transactions, 40 bytes each.
const LOG_BYTES_A_SECOND: f64 = 2e6;
/// Of a class's memory, the share that `shared_buffers` may take: sessions and the kernel's cache need some, too.
const SHARED_BUFFERS_SHARE: f64 = 0.6;
/// The unit of a `max_wal_size` without one.
const MEGABYTES: Unit = Unit { dimension: Dimension::Bytes, size: 1_048_576.0 };
/// PostgreSQL's own page tables: 8 bytes for each page of 4 kB of shared memory that a process has touched.
const PAGE_TABLE_SHARE: u64 = 512;

/// The choices of the command line.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// In place of the scenario's.
    pub clients: Option<Vec<u32>>,
    /// In place of the scenario's.
    pub seconds: Option<u32>,
    /// In place of the scenario's.
    pub targets: Option<Vec<Target>>,
    /// Only these.
    pub variants: Option<Vec<String>>,
    /// In place of the scenario's.
    pub turns: Option<u32>,
    /// In place of the scenario's size.
    pub rows: Option<u64>,
    /// In place of the scenario's.
    pub protocol: Option<Protocol>,
    /// `--rate`.
    pub rate: Option<f64>,
    /// Settings for all turns.
    pub settings: Settings,
    /// Settings to vary: each name with its values.
    pub vary: Vec<(String, Vec<String>)>,
    /// A run of seconds.
    pub brief: bool,
    /// Looks a second.
    pub sample_hz: u32,
    /// Takes causes of stalls away, one by one, and runs again.
    pub confirm: bool,
    /// Limits of the laboratory's server, in place of the scenario's.
    pub class: Class,
    /// Directory of PostgreSQL's programs.
    pub pg_bin: Option<PathBuf>,
    /// The folder in which environments for Patroni are kept, for several nodes.
    pub patroni_dir: Option<PathBuf>,
}

/// All that is to be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// With the command line's changes.
    pub scenario: Scenario,
    /// Its variants, multiplied by what is varied.
    pub variants: Vec<Variant>,
    /// The targets, in order.
    pub targets: Vec<Target>,
    /// Limits of the laboratory's server.
    pub class: Class,
    /// The choices that the plan was made with.
    pub choices: Choices,
}

/// One turn, to be taken.
#[derive(Clone, Debug)]
pub struct PlannedTurn {
    /// Of [`Plan::variants`].
    pub variant: usize,
    /// Of [`Plan::targets`].
    pub target: usize,
    /// At once.
    pub clients: u32,
    /// Counts from 1.
    pub round: u32,
}

impl Plan {
    /// Puts a scenario and the command line together.
    pub fn new(scenario: Scenario, choices: Choices) -> Result<Self, Error> {
        let mut scenario = if choices.brief { scenario.brief() } else { scenario };
        if let Some(clients) = &choices.clients {
            scenario.load.clients.clone_from(clients);
            scenario.variants.iter_mut().for_each(|variant| variant.clients = None);
        }
        if choices.protocol.is_some() {
            scenario.variants.iter_mut().for_each(|variant| variant.protocol = None);
        }
        if choices.targets.is_some() {
            scenario.variants.iter_mut().for_each(|variant| variant.targets = None);
        }
        scenario.load.seconds = choices.seconds.unwrap_or(scenario.load.seconds);
        scenario.load.protocol = choices.protocol.unwrap_or(scenario.load.protocol);
        scenario.load.rate = choices.rate.or(scenario.load.rate);
        scenario.turns = choices.turns.unwrap_or(scenario.turns);
        if let Some(rows) = choices.rows {
            scenario.data.size = Size::Rows(rows);
        }
        scenario.check().map_err(Error::Input)?;
        let class = scenario.class.overlaid(choices.class);
        let variants = multiply(chosen(&scenario, choices.variants.as_deref())?, &choices.vary);
        let targets = match &choices.targets {
            Some(targets) => targets.clone(),
            None => named_targets(&scenario, &variants)?,
        };
        let has_twins =
            targets.iter().enumerate().any(|(index, target)| targets[..index].iter().any(|t| t.name == target.name));
        if targets.is_empty() || has_twins {
            return Err(Error::Input("targets: at least one is needed, each by a name of its own".to_owned()));
        }
        if targets.iter().any(|target| !target.is_own()) && !(choices.vary.is_empty() && choices.settings.is_empty()) {
            let why = "settings can be given only to servers that the laboratory starts itself, not to a DSN's";
            return Err(Error::Input(format!("{why}\nleave --set and --vary out, or the DSN")));
        }
        let plan = Self { scenario, variants, targets, class, choices };
        plan.check_memory()?;
        Ok(plan)
    }

    /// Refuses `shared_buffers` that the class's memory has no room for: the kernel would only kill the server.
    fn check_memory(&self) -> Result<(), Error> {
        let Some(memory) = self.class.memory else { return Ok(()) };
        let own = self.turns().into_iter().filter(|turn| self.targets[turn.target].is_own());
        let largest = own.map(|turn| self.shared_buffers_bytes(&turn)).max().unwrap_or(0);
        if largest as f64 <= memory.bytes() as f64 * SHARED_BUFFERS_SHARE {
            return Ok(());
        }
        Err(Error::Input(format!(
            "shared_buffers of {} MB do not fit into the class's {memory} of memory\n\
             give --set shared_buffers={}MB, or a larger --memory",
            largest >> 20,
            memory.bytes() >> 22
        )))
    }

    /// The conditions that all turns share besides servers and data, by name: two runs of one scenario measure the
    /// same load only if these are the same.
    pub fn conditions(&self) -> BTreeMap<String, String> {
        let (load, choices) = (&self.scenario.load, &self.choices);
        let told = [
            (WORKLOAD, Some(self.scenario.digest())),
            ("seconds", Some(load.seconds.to_string())),
            ("warm_up_seconds", Some(load.warm_up_seconds.to_string())),
            ("protocol", Some(self.protocols())),
            ("threads", load.threads.map(|threads| threads.to_string())),
            ("rate", load.rate.map(|rate| rate.to_string())),
            ("latency_limit_ms", load.latency_limit_ms.map(|limit| limit.to_string())),
            ("max_tries", load.max_tries.map(|tries| tries.to_string())),
            ("log_share", (load.log_share < 1.0).then(|| load.log_share.to_string())),
            ("sample_hz", Some(choices.sample_hz.to_string())),
            ("class", Some(self.class).filter(|class| !class.is_unlimited()).map(|class| class.to_string())),
            ("brief", choices.brief.then(|| "yes".to_owned())),
        ];
        let told = told.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        told.chain(choices.settings.iter().map(|(name, value)| (format!("--set {name}"), value.clone()))).collect()
    }

    /// The protocols of the variants, one if it is the same for all.
    fn protocols(&self) -> String {
        let of = |variant: &Variant| variant.protocol.unwrap_or(self.scenario.load.protocol).flag();
        let flags: BTreeSet<&str> = self.variants.iter().map(of).collect();
        flags.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// The size of the tables, in words.
    pub fn data(&self) -> String {
        let rows = self.turns().first().map_or(0, |turn| self.tables(turn).rows);
        match self.scenario.data.maker {
            Maker::Pgbench => format!("pgbench's tables at scale {rows}"),
            Maker::Schema(_) => format!("{rows} rows"),
        }
    }

    /// The settings that differ between variants, or may.
    pub fn set_by_variants(&self) -> BTreeSet<&String> {
        self.variants.iter().flat_map(|variant| variant.settings.keys()).collect()
    }

    /// All turns: by variant and step, each target once a round, in an order that rotates.
    pub fn turns(&self) -> Vec<PlannedTurn> {
        let mut turns = Vec::new();
        for variant in 0..self.variants.len() {
            let targets = self.targets_of(variant);
            for clients in self.clients_of(variant) {
                for round in 1..=self.scenario.turns {
                    let first = (round as usize - 1) % targets.len().max(1);
                    let order = targets[first..].iter().chain(&targets[..first]);
                    turns.extend(order.map(|target| PlannedTurn {
                        variant,
                        target: *target,
                        clients: *clients,
                        round,
                    }));
                }
            }
        }
        if self.scenario.interleaved {
            // A round has each variant once, another one first each time.
            let variants = self.variants.len();
            let place =
                |turn: &PlannedTurn| (turn.variant + variants - (turn.round as usize - 1) % variants) % variants;
            turns.sort_by_key(|turn| (turn.round, place(turn)));
        }
        turns
    }

    /// The ladder of a variant.
    fn clients_of(&self, variant: usize) -> &[u32] {
        self.variants[variant].clients.as_ref().unwrap_or(&self.scenario.load.clients)
    }

    /// The targets of a variant, in order.
    fn targets_of(&self, variant: usize) -> Vec<usize> {
        let names = self.target_names(variant);
        let is_of = |target: &Target| names.is_none_or(|names| names.contains(&target.name));
        (0..self.targets.len()).filter(|index| is_of(&self.targets[*index])).collect()
    }

    /// Their names; none if it has all.
    fn target_names(&self, variant: usize) -> Option<&Vec<String>> {
        let own = self.variants[variant].targets.as_ref();
        own.or(Some(&self.scenario.targets).filter(|_| self.choices.targets.is_none()))
    }

    /// The load of a turn.
    pub fn load(&self, turn: &PlannedTurn) -> Load {
        let load = self.scenario.load.clone();
        Load { protocol: self.variants[turn.variant].protocol.unwrap_or(load.protocol), ..load }
    }

    /// The case that a turn belongs to.
    pub fn case(&self, turn: &PlannedTurn) -> CaseKey {
        CaseKey {
            variant: self.variants[turn.variant].name.clone(),
            clients: turn.clients,
            target: self.targets[turn.target].name.clone(),
        }
    }

    /// The settings of the laboratory's server in a turn; the most particular ones win.
    pub fn settings(&self, turn: &PlannedTurn) -> Settings {
        // The same for all turns of a variant, so that its servers are alike.
        let connects = self.targets_of(turn.variant).iter().any(|target| !self.targets[*target].shares());
        let clients_max = self.clients_of(turn.variant).iter().max().copied().filter(|_| connects).unwrap_or(1);
        let shared_buffers_mb = self.class.memory.map_or(256, |memory| (memory.bytes() >> 22).min(256));
        let mut settings = Settings::from([
            ("shared_buffers".to_owned(), format!("{shared_buffers_mb}MB")),
            ("log_checkpoints".to_owned(), "on".to_owned()),
            ("log_line_prefix".to_owned(), sample::LINE_PREFIX.to_owned()),
        ]);
        if self.class.connections.is_none() {
            let connections = (clients_max + CONNECTIONS_BESIDES).max(100);
            settings.insert("max_connections".to_owned(), connections.to_string());
        }
        settings.extend(self.scenario.settings.clone());
        settings.extend(self.variants[turn.variant].settings.clone());
        settings.extend(self.targets[turn.target].settings());
        settings.extend(self.choices.settings.clone());
        settings
    }

    /// Whether the server's log tells of checkpoints as `sample` reads them; settings may make it another.
    pub fn log_is_readable(&self, turn: &PlannedTurn) -> bool {
        let settings = self.settings(turn);
        let is = |name: &str, wanted: &str| settings.get(name).is_none_or(|value| value == wanted);
        is("log_line_prefix", sample::LINE_PREFIX)
            && is("log_checkpoints", "on")
            && is("log_destination", "stderr")
            && is("logging_collector", "off")
    }

    /// The tables of a turn.
    pub fn tables(&self, turn: &PlannedTurn) -> Tables {
        let data = self.scenario.data.clone();
        let rows = data.size.rows(self.shared_buffers_bytes(turn));
        Tables { data, rows, unlogged: self.variants[turn.variant].unlogged }
    }

    /// The length of all turns together, warm-ups included; what lies between them is not known before.
    pub fn seconds(&self) -> u64 {
        let load = &self.scenario.load;
        self.turns().len() as u64 * (u64::from(load.seconds) + u64::from(load.warm_up_seconds))
    }

    fn shared_buffers_bytes(&self, turn: &PlannedTurn) -> u64 {
        let settings = self.settings(turn);
        settings.get("shared_buffers").and_then(|text| server::bytes(text)).unwrap_or(128 << 20)
    }

    /// The reason why a turn can't be taken on this machine, if there is one, with the remedy.
    pub fn lacks(&self, turn: &PlannedTurn) -> Option<String> {
        let target = &self.targets[turn.target];
        let flood = self.variants[turn.variant].flood;
        if let Some(why) = flood.and_then(|flood| lacks_for_flood(target, flood)) {
            return Some(why);
        }
        let of_flood = u64::from(flood.map_or(0, Flood::connections));
        let clients = u64::from(turn.clients);
        let logs = u64::from(pgbench::threads(&self.scenario.load, turn.clients));
        let (files, limit) = (clients + logs + of_flood + FILES_BESIDES, process::raise_open_files());
        if files > limit {
            return Some(format!("needs {files} open files, the limit is {limit}: raise it with `ulimit -Hn`"));
        }
        if target.servers() > 1 && !self.class.is_unlimited() {
            return Some(format!("the limits of a class ({}) are for one node: leave them out", self.class));
        }
        let of_pool =
            target.pool().map_or(0, |pool| 2 * FILES_BESIDES + (clients + of_flood) * pool.files_per_client());
        if of_pool > limit {
            return Some(format!(
                "the pool needs {of_pool} open files, the limit is {limit}: raise it with `ulimit -Hn`"
            ));
        }
        if let Some(ports) = local_ports().filter(|ports| clients > *ports) {
            return Some(format!("needs {clients} local ports, there are {ports}: widen net.ipv4.ip_local_port_range"));
        }
        if target.is_own() && !target.shares() {
            if let Some(connections) = self.class.connections.map(Connections::number)
                && turn.clients + CONNECTIONS_BESIDES > connections
            {
                return Some(format!(
                    "{} clients do not fit into the class's {connections} connections: give more --connections, or a pool",
                    turn.clients
                ));
            }
            let each = BACKEND_BYTES + self.shared_buffers_bytes(turn) / PAGE_TABLE_SHARE;
            let of_servers = self.shared_buffers_bytes(turn) * target.servers() as u64;
            let needed_mb = (clients * each + of_servers) >> 20;
            let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
            let of_machine = proc::value_kb(&memory, "MemAvailable:").map_or(u64::MAX, |kb| kb << 10);
            let of_class = self.class.memory.map_or(u64::MAX, Memory::bytes);
            let of_group = Hierarchies::current().memory_limit_bytes().unwrap_or(u64::MAX);
            let available_mb = of_machine.min(of_class).min(of_group) >> 20;
            if needed_mb > available_mb {
                return Some(format!(
                    "{clients} processes of PostgreSQL's need about {needed_mb} MB, {available_mb} MB are available: \
                     take fewer clients, more memory, or a pool"
                ));
            }
        }
        None
    }

    /// About how much the tables and the logs will take on disk, at most.
    pub fn disk_bytes(&self) -> u64 {
        let mut kinds: Vec<Tables> = Vec::new();
        for turn in self.turns() {
            let tables = self.tables(&turn);
            if !kinds.contains(&tables) {
                kinds.push(tables);
            }
        }
        let of_tables: u64 = kinds
            .iter()
            .map(|tables| match (&tables.data.maker, tables.data.size) {
                (Maker::Pgbench, _) => tables.rows.saturating_mul(SCALE_BYTES),
                (_, Size::PercentOfSharedBuffers { bytes_per_row, .. }) => tables.rows.saturating_mul(bytes_per_row),
                (_, Size::Rows(rows)) => rows.saturating_mul(ROW_BYTES),
            })
            .fold(0, u64::saturating_add);
        let load = &self.scenario.load;
        let seconds = u64::from(load.seconds);
        let wal_max = self.turns().iter().map(|turn| self.max_wal_bytes(turn)).max().unwrap_or(0);
        let of_wal = wal_max.min(seconds.saturating_mul(WAL_BYTES_A_SECOND));
        let of_log = (seconds as f64 * LOG_BYTES_A_SECOND * load.log_share) as u64;
        // Tables twice, for dead rows; and PostgreSQL's own.
        let of_server = [of_tables, of_tables, of_wal, 1 << 30].into_iter().fold(0, u64::saturating_add);
        of_server.saturating_mul(self.data_directories()).saturating_add(of_log)
    }

    /// Data directories that exist at the same time: one server for most targets, and one for each of several nodes.
    fn data_directories(&self) -> u64 {
        let kinds: BTreeSet<(Option<usize>, usize)> =
            self.targets.iter().map(|target| (target.nodes().map(|shape| shape.count), target.servers())).collect();
        kinds.into_iter().map(|(_, servers)| servers as u64).sum::<u64>().max(1)
    }

    fn max_wal_bytes(&self, turn: &PlannedTurn) -> u64 {
        self.settings(turn)
            .get("max_wal_size")
            .and_then(|text| Quantity::parse(text, MEGABYTES))
            .map_or(1 << 30, |size| size.amount as u64)
    }
}

/// Those of the scenario and of its variants that are to be run, in that order.
fn named_targets(scenario: &Scenario, variants: &[Variant]) -> Result<Vec<Target>, Error> {
    let common = variants.iter().any(|variant| variant.targets.is_none()).then_some(&scenario.targets);
    let mut names: Vec<&String> = common.into_iter().flatten().collect();
    for name in variants.iter().filter_map(|variant| variant.targets.as_ref()).flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().map(|name| name.parse()).collect()
}

fn chosen(scenario: &Scenario, names: Option<&[String]>) -> Result<Vec<Variant>, Error> {
    let Some(names) = names else { return Ok(scenario.variants.clone()) };
    let find = |name: &String| {
        let found = scenario.variants.iter().find(|variant| variant.name == *name).cloned();
        found.ok_or_else(|| {
            let known: Vec<&str> = scenario.variants.iter().map(|variant| variant.name.as_str()).collect();
            Error::Input(format!("{} has no variant {name:?}; it has {}", scenario.name, known.join(", ")))
        })
    };
    names.iter().map(find).collect()
}

/// Each variant with each value of each setting.
fn multiply(variants: Vec<Variant>, vary: &[(String, Vec<String>)]) -> Vec<Variant> {
    vary.iter().fold(variants, |variants, (name, values)| {
        let with = |variant: &Variant, value: &String| {
            let mut variant = variant.clone();
            variant.name = format!("{}, {name} = {value}", variant.name);
            variant.settings.insert(name.clone(), value.clone());
            variant
        };
        variants.iter().flat_map(|variant| values.iter().map(move |value| with(variant, value))).collect()
    })
}

/// The reason why a target can't be flooded so, if there is one.
fn lacks_for_flood(target: &Target, flood: Flood) -> Option<String> {
    match target.pool() {
        None => Some("only a pool is flooded: choose pool, pool-tls, pgbouncer or pgbouncer-tls".to_owned()),
        Some(pool) if flood.kind == FloodKind::Handshakes && !pool.tls => {
            Some("its clients come without TLS, so there are no handshakes".to_owned())
        }
        Some(_) => None,
    }
}

/// Ports that clients may come from, to one address and port.
fn local_ports() -> Option<u64> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut ends = range.split_ascii_whitespace().filter_map(|end| end.parse::<u64>().ok());
    let (first, last) = (ends.next()?, ends.next()?);
    Some((last + 1).saturating_sub(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(choices: Choices) -> Result<Plan, Error> {
        Plan::new(Scenario::find("quick").unwrap(), choices)
    }

    #[test]
    fn everyone_comes_first_in_turn() {
        let plan = plan(Choices { turns: Some(2), ..Choices::default() }).unwrap();
        let order: Vec<(String, u32)> =
            plan.turns().iter().take(6).map(|turn| (plan.case(turn).target, turn.round)).collect();
        let expected = [("straight", 1), ("gate", 1), ("pool", 1), ("gate", 2), ("pool", 2), ("straight", 2)];
        assert_eq!(order, expected.map(|(name, round)| (name.to_owned(), round)));
        assert_eq!(plan.turns().len(), 12);
    }

    #[test]
    fn floods_take_turns_with_none() {
        let targets = Some(vec!["pool".parse().unwrap(), "straight".parse().unwrap()]);
        let plan = Plan::new(Scenario::find("floods").unwrap(), Choices { targets, ..Choices::default() }).unwrap();
        let turns = plan.turns();
        let of = |round: u32| turns.iter().filter(move |turn| turn.round == round).map(|turn| plan.case(turn));
        let variants = |round| of(round).map(|case| case.variant).collect::<Vec<_>>();
        assert_eq!(variants(1)[..4], ["alone", "alone", "log-ins", "log-ins"]);
        assert_eq!((variants(2)[0].as_str(), variants(2)[9].as_str()), ("log-ins", "alone"));
        let lack = |variant: &str, target: &str| {
            let is_it = |turn: &&PlannedTurn| {
                let case = plan.case(turn);
                case.variant == variant && case.target == target
            };
            plan.lacks(turns.iter().find(is_it).unwrap()).unwrap_or_default()
        };
        assert!(lack("handshakes", "pool").contains("without TLS"));
        assert!(lack("cancels", "straight").contains("only a pool is flooded"));
        assert_eq!(lack("alone", "straight"), "");
    }

    #[test]
    fn a_variant_may_have_its_own_clients_protocol_and_targets() {
        let plan = |choices| Plan::new(Scenario::find("peers").unwrap(), choices).unwrap();
        let taken = |plan: &Plan, name: &str| {
            let turns = plan.turns();
            let of = turns.iter().filter(|turn| plan.variants[turn.variant].name == name && turn.round == 1);
            of.map(|turn| format!("{} {}", plan.case(turn).target, turn.clients)).collect::<Vec<_>>()
        };
        let all = plan(Choices::default());
        assert_eq!(
            taken(&all, "select, extended"),
            ["straight 64", "haproxy 64", "pgbouncer 64", "pool 64", "pool-epoll 64"]
        );
        let simple = taken(&all, "select, simple");
        assert_eq!(simple, ["pool 64", "pool-epoll 64", "pool 16000", "pool-epoll 16000"]);
        let turn_of = |name: &str| {
            all.turns().into_iter().find(|turn| all.variants[turn.variant].name == name).expect("it has turns")
        };
        assert_eq!(all.load(&turn_of("select, simple")).protocol, Protocol::Simple);
        assert_eq!(all.load(&turn_of("TPC-B, prepared")).protocol, Protocol::Prepared);
        // Servers are made for those of its clients that come by themselves.
        let connections = |name: &str| all.settings(&turn_of(name))["max_connections"].clone();
        assert_eq!((connections("TPC-B, simple"), connections("select, simple")), ("1020".into(), "100".into()));

        let targets = Some(vec!["before=./sluice".parse().unwrap()]);
        let told = plan(Choices { targets, clients: Some(vec![7]), ..Choices::default() });
        assert_eq!(taken(&told, "select, simple"), ["before 7"]);
    }

    #[test]
    fn settings_are_varied_by_variant() {
        let vary = vec![("synchronous_commit".to_owned(), vec!["on".to_owned(), "off".to_owned()])];
        let plan = plan(Choices { vary, variants: Some(vec!["tpcb".to_owned()]), ..Choices::default() }).unwrap();
        let names: Vec<&str> = plan.variants.iter().map(|variant| variant.name.as_str()).collect();
        assert_eq!(names, ["tpcb, synchronous_commit = on", "tpcb, synchronous_commit = off"]);
        assert_eq!(plan.settings(&plan.turns()[0])["synchronous_commit"], "on");
        assert_eq!(plan.settings(&plan.turns()[1])["shared_preload_libraries"], "sluice");
        assert!(plan.log_is_readable(&plan.turns()[0]));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let targets = |names: &[&str]| Some(names.iter().map(|name| name.parse().unwrap()).collect());
        let set = Settings::from([("work_mem".to_owned(), "1MB".to_owned())]);
        for (choices, expected) in [
            (Choices { targets: targets(&["pool", "pool"]), ..Choices::default() }, "name of its own"),
            (Choices { targets: targets(&["a=host=b"]), settings: set, ..Choices::default() }, "not to a DSN's"),
            (Choices { variants: Some(vec!["x".to_owned()]), ..Choices::default() }, "has no variant \"x\""),
        ] {
            let error = plan(choices).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn limits_of_the_machine() {
        let plan = plan(Choices { clients: Some(vec![2, 60_000]), ..Choices::default() }).unwrap();
        let turns = plan.turns();
        assert_eq!(plan.lacks(&turns[0]), None);
        let of_many = turns.iter().find(|turn| turn.clients == 60_000).unwrap();
        let lack = plan.lacks(of_many).unwrap();
        // With the threads' logs, or else what else there are too few of.
        assert!(lack.contains("61037 open files") || lack.contains("60000"), "{lack}");
        assert!(plan.disk_bytes() > 10 * SCALE_BYTES);
    }
}
