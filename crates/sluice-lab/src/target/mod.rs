//! Targets, which answer pgbench: PostgreSQL itself, with the gate, a pool before it, or any server that a DSN names.

mod everything;
mod pool;

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use sluice_config::DriverChoice;
use sluice_instance::{
    bootstrap::{GATE, SUPERUSER},
    cluster,
};
use sluice_units::{Dimension, Quantity};

pub use self::pool::{NodesBehind, POOL_SIZE, Pool, PoolKind, Program, SPARE_CLIENTS};
use crate::{connect::Dsn, error::Error, nodes::Shape, server::Settings};

/// By which name servers know the laboratory's own sessions, but for the sampler's.
const APPLICATION: &str = "sluice bench";
/// The classes of transactions that the gate limits, each by itself.
const GATE_CLASSES: [&str; 3] = ["transaction", "autocommit", "query"];

/// A target, which answers pgbench.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name, in reports.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
}

/// The kinds of targets.
#[derive(Clone, Debug)]
pub enum Kind {
    /// The laboratory's PostgreSQL, as it is.
    Straight,
    /// The same with the gate, by this limit for each of its classes; without one it finds its limits by itself.
    Gate(Option<u32>),
    /// One, two or three nodes of the laboratory's.
    Nodes(Shape),
    /// A pool before the first.
    Pool(PoolKind),
    /// A server that runs already.
    Dsn(Box<Dsn>),
}

/// The targets that have names of their own.
const NAMED: &[(&str, Kind)] = &[
    ("straight", Kind::Straight),
    ("gate", Kind::Gate(None)),
    ("pool", Kind::Pool(PoolKind::SLUICE)),
    ("pool-epoll", Kind::Pool(PoolKind { program: Program::Sluice(DriverChoice::Epoll), ..PoolKind::SLUICE })),
    ("pool-tls", Kind::Pool(PoolKind { tls: true, ..PoolKind::SLUICE })),
    ("pool-extension", Kind::Pool(PoolKind { extension: true, ..PoolKind::SLUICE })),
    ("pool-everything", Kind::Pool(PoolKind { everything: true, ..PoolKind::SLUICE })),
    ("pgbouncer", Kind::Pool(PoolKind::PGBOUNCER)),
    ("pgbouncer-tls", Kind::Pool(PoolKind { tls: true, ..PoolKind::PGBOUNCER })),
    ("haproxy", Kind::Pool(PoolKind { program: Program::HaProxy, ..PoolKind::SLUICE })),
];

impl FromStr for Target {
    type Err = Error;

    /// A name of [`NAMED`], `gate-LIMIT`, `nodes-N`, `nodes-N-TIME`, `pool-nodes-N`, `pool-nodes-N-fixed`, `NAME=DSN`,
    /// or `NAME=PROGRAM`, another build of Sluice.
    fn from_str(text: &str) -> Result<Self, Error> {
        let named = NAMED.iter().find(|(name, _)| *name == text).map(|(_, kind)| kind.clone());
        let limited = || Some(Kind::Gate(Some(text.strip_prefix("gate-")?.parse().ok()?)));
        match named.or_else(limited).or_else(|| nodes(text)).or_else(|| pool_before_nodes(text)) {
            Some(kind) => Ok(Self { name: text.to_owned(), kind }),
            None => Self::by_own_name(text),
        }
    }
}

/// The longest round trip that is emulated: nodes further from each other take each other for gone.
const ROUND_TRIP_MS_MAX: f64 = 1000.0;

/// `nodes-3`, or `nodes-3-2ms`: with a round trip of that time between them.
fn nodes(text: &str) -> Option<Kind> {
    let (count, time) = match text.strip_prefix("nodes-")?.split_once('-') {
        Some((count, time)) => (count, Some(time)),
        None => (text.strip_prefix("nodes-")?, None),
    };
    let count = count.parse().ok().filter(|count| (1..=3).contains(count))?;
    let round_trip = match time {
        Some(time) => {
            let ms = Quantity::with_unit(time, Dimension::Time)?.amount;
            Some(Duration::from_secs_f64(Some(ms).filter(|ms| *ms > 0.0 && *ms <= ROUND_TRIP_MS_MAX)? / 1000.0))
        }
        None => None,
    };
    (count > 1 || round_trip.is_none()).then_some(Kind::Nodes(Shape { count, round_trip }))
}

/// `pool-nodes-3`, which follows them, or `pool-nodes-3-fixed`.
fn pool_before_nodes(text: &str) -> Option<Kind> {
    let shape = text.strip_prefix("pool-nodes-")?;
    let (count, follows) = shape.strip_suffix("-fixed").map_or((shape, true), |count| (count, false));
    let count = count.parse().ok().filter(|count| (2..=3).contains(count))?;
    Some(Kind::Pool(PoolKind { nodes: Some(NodesBehind { count, follows }), ..PoolKind::SLUICE }))
}

impl Target {
    fn by_own_name(text: &str) -> Result<Self, Error> {
        let wrong = || {
            let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
            Error::Input(format!(
                "there is no target {text:?}\nchoose from {}, gate-LIMIT; or nodes-1, nodes-2, nodes-3, the latter two \
                 also so far from each other: nodes-3-2ms; a pool that follows them: pool-nodes-3; or name a server of your \
                 own: NAME=DSN, for example standby='host=10.0.0.2 user=me dbname=bench'; or another build of Sluice's \
                 program: NAME=PATH, for example before=old/sluice",
                names.join(", ")
            ))
        };
        let (name, what) = text.split_once('=').ok_or_else(wrong)?;
        let is_name =
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        // `host=…` alone is a DSN without a name.
        let is_dsn = what.contains('=') || what.contains("://");
        if !is_name || !(is_dsn || what.contains('/')) {
            return Err(wrong());
        }
        let kind = if is_dsn {
            let resolved = Dsn::resolve(Some(what), APPLICATION);
            let resolved = resolved.map_err(|error| Error::Input(format!("target {name}: {error}")))?;
            Kind::Dsn(Box::new(resolved))
        } else {
            Kind::Pool(PoolKind { build: Some(PathBuf::from(what)), ..PoolKind::SLUICE })
        };
        Ok(Self { name: name.to_owned(), kind })
    }

    /// Whether it needs the laboratory's own server.
    pub fn is_own(&self) -> bool {
        !matches!(self.kind, Kind::Dsn(..))
    }

    /// The nodes that answer, if it is they, or a pool before them.
    pub fn nodes(&self) -> Option<Shape> {
        match &self.kind {
            Kind::Nodes(shape) => Some(*shape),
            Kind::Pool(PoolKind { nodes: Some(nodes), .. }) => Some(Shape { count: nodes.count, round_trip: None }),
            _ => None,
        }
    }

    /// The PostgreSQL servers that the laboratory starts for it.
    pub fn servers(&self) -> usize {
        match &self.kind {
            Kind::Dsn(_) => 0,
            _ => self.nodes().map_or(1, |shape| shape.count),
        }
    }

    /// The pool that is started for it, if one is.
    pub fn pool(&self) -> Option<&PoolKind> {
        match &self.kind {
            Kind::Pool(pool) => Some(pool),
            _ => None,
        }
    }

    /// Whether clients share connections, so that a client's end closes none.
    pub fn shares(&self) -> bool {
        self.pool().is_some_and(PoolKind::shares)
    }

    /// Settings that it needs of the laboratory's server.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::new();
        if self.needs_extension() {
            settings.insert("shared_preload_libraries".to_owned(), GATE.to_owned());
            // The sampler does not queue.
            settings.insert("sluice.exempt_roles".to_owned(), SUPERUSER.to_owned());
        }
        if let Kind::Gate(Some(limit)) = self.kind {
            let limits = GATE_CLASSES.map(|class| (format!("sluice.{class}_concurrency"), limit.to_string()));
            settings.extend(limits);
        }
        settings
    }

    fn needs_extension(&self) -> bool {
        match &self.kind {
            Kind::Gate(_) => true,
            Kind::Pool(pool) => pool.extension,
            Kind::Straight | Kind::Nodes(_) | Kind::Dsn(_) => false,
        }
    }

    /// The thing that this machine lacks for it, with the remedy. `has_gate`: PostgreSQL could load it.
    pub fn lacks(&self, has_gate: bool) -> Option<String> {
        if self.needs_extension() && !has_gate {
            return Some("PostgreSQL lacks Sluice's extension: install it with `make -C extension install`".to_owned());
        }
        if self.nodes().is_some_and(|shape| shape.count > 1) {
            return cluster::lacks();
        }
        self.pool()?.lacks()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_by_name() {
        for (name, _) in NAMED {
            assert_eq!(name.parse::<Target>().unwrap().name, *name);
        }
        let target: Target = "two-nodes=host=10.0.0.2 user=me dbname=bench".parse().unwrap();
        assert_eq!(target.name, "two-nodes");
        assert!(!target.is_own());
        let before_nodes = |text: &str| text.parse::<Target>().unwrap().pool().and_then(|pool| pool.nodes).unwrap();
        assert_eq!(before_nodes("pool-nodes-3"), NodesBehind { count: 3, follows: true });
        assert_eq!(before_nodes("pool-nodes-2-fixed"), NodesBehind { count: 2, follows: false });
        assert_eq!("pool-nodes-3".parse::<Target>().unwrap().servers(), 3);
        assert_eq!("db=postgres://me@host/bench".parse::<Target>().unwrap().name, "db");
        let before: Target = "before=old/sluice".parse().unwrap();
        assert_eq!(before.pool().unwrap().build.as_deref(), Some("old/sluice".as_ref()));
        assert!(before.shares() && !"haproxy".parse::<Target>().unwrap().shares());
        for wrong in [
            "straigt",
            "pool-nodes-1",
            "pool-nodes-3-",
            "gate-",
            "gate-many",
            "host=10.0.0.2",
            "=host=a",
            "a b=host=c",
            "x=host=a port=none",
            "a=b",
        ] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn nodes_by_their_number_and_distance() {
        let shape = |text: &str| text.parse::<Target>().unwrap().nodes().unwrap();
        assert_eq!(shape("nodes-1"), Shape { count: 1, round_trip: None });
        assert_eq!(shape("nodes-3-0.1ms"), Shape { count: 3, round_trip: Some(Duration::from_micros(100)) });
        assert_eq!(shape("nodes-2-30ms").round_trip, Some(Duration::from_millis(30)));
        for wrong in
            ["nodes-", "nodes-0", "nodes-4", "nodes-1-2ms", "nodes-2-", "nodes-2-2", "nodes-2-0ms", "nodes-2-1h"]
        {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
        let target: Target = "nodes-3".parse().unwrap();
        assert!(target.is_own() && !target.shares() && target.pool().is_none() && target.servers() == 3);
    }

    #[test]
    fn a_gate_by_its_limit() {
        let settings = "gate-64".parse::<Target>().unwrap().settings();
        assert_eq!(settings["sluice.query_concurrency"], "64");
        assert_eq!(settings["shared_preload_libraries"], "sluice");
        assert!(!"gate".parse::<Target>().unwrap().settings().contains_key("sluice.query_concurrency"));
        assert!("straight".parse::<Target>().unwrap().settings().is_empty());
    }
}
