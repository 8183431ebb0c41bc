//! A run: the operator, the servers and the clusters say something, one after the other, and the control plane hears it.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use sluice_control::{
    Configuration, Control, Database, Observation, Snapshot,
    access::{AccessRules, Policy, Users},
    address::Address,
    cluster::Primary,
    reading::{Lag, Node, NodeState, Reader, Standby, Target},
};
use sluice_sim::Rng;

use crate::{
    checks::{self, Step},
    operator::{Operator, rules},
};

/// Observations of a run.
const STEPS: u64 = 120;

/// Clusters whose primaries are told, one of which is never configured.
const CLUSTERS: [&str; 3] = ["main", "other", "unheard-of"];

const NODES: [&str; 3] = ["a", "b", "c"];

/// The things that have come about in runs.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    published: u64,
    unchanged: u64,
    /// Primaries that were taken for what they said.
    promoted: u64,
    /// Those of them that were the same one elsewhere.
    moved: u64,
    /// Those that had other data in the place of the one before.
    withdrawn: u64,
    /// Those that were not.
    refused: u64,
    /// Rules of a server that were news.
    rules: u64,
    /// Those of one that was not asked.
    rules_of_others: u64,
    /// Snapshots in which a database waited for a primary.
    without_primary: u64,
    /// Looks at nodes that led readers elsewhere.
    led: u64,
    /// Those that did not.
    stayed: u64,
    /// Snapshots in which a database's readers went to several nodes.
    spread: u64,
    /// Snapshots in which they had none.
    without_reader: u64,
    /// Standbys that were left for being behind, and had not come near enough yet.
    held_off: u64,
}

impl Figures {
    pub(crate) fn add(&mut self, other: &Self) {
        self.published += other.published;
        self.unchanged += other.unchanged;
        self.promoted += other.promoted;
        self.moved += other.moved;
        self.withdrawn += other.withdrawn;
        self.refused += other.refused;
        self.rules += other.rules;
        self.rules_of_others += other.rules_of_others;
        self.without_primary += other.without_primary;
        self.led += other.led;
        self.stayed += other.stayed;
        self.spread += other.spread;
        self.without_reader += other.without_reader;
        self.held_off += other.held_off;
    }

    fn numbers(&self) -> [u64; 14] {
        let Self { published, unchanged, promoted, moved, withdrawn, refused, rules, rules_of_others, .. } = *self;
        let Self { without_primary, led, stayed, spread, without_reader, held_off, .. } = *self;
        let before = [published, unchanged, promoted, moved, withdrawn, refused, rules, rules_of_others];
        let [a, b, c, d, e, f, g, h] = before;
        [a, b, c, d, e, f, g, h, without_primary, led, stayed, spread, without_reader, held_off]
    }

    /// A simulation in which something never happens shows nothing of it.
    pub(crate) fn check_extremes(&self) {
        assert!(self.numbers().iter().all(|number| *number >= 100), "something hardly ever happens: {self:?}");
    }
}

/// All that has been said, as far as it counts.
pub(crate) struct Model {
    pub(crate) configuration: Configuration,
    /// The database whose server is asked for secrets.
    pub(crate) asks: Option<Option<String>>,
    /// Claims of nodes about each cluster since it was configured last.
    pub(crate) claims: HashMap<Arc<str>, Vec<Primary>>,
    /// The rules that the server has told which is asked for secrets, since it is.
    pub(crate) rules: Option<Arc<AccessRules>>,
    /// The nodes of each cluster, as they were seen last.
    pub(crate) nodes: HashMap<Arc<str>, Vec<Node>>,
    /// The nodes that the readers of each database went to last, and its cluster.
    pub(crate) readers: HashMap<Option<String>, (Arc<str>, Vec<Reader>)>,
    /// Standbys that would have done, had they not been left before.
    held_off: u64,
}

impl Model {
    /// The primary of a cluster: the one that was promoted last, of the nodes that have the data of the first, where it
    /// was last; `None` also where another one's data are there since.
    pub(crate) fn primary(&self, cluster: &str) -> Option<&Primary> {
        self.last_primary(cluster).filter(|(_, is_withdrawn)| !is_withdrawn).map(|(primary, _)| primary)
    }

    /// The same, and whether another one's data are there since.
    pub(crate) fn last_primary(&self, cluster: &str) -> Option<(&Primary, bool)> {
        let (first, rest) = self.claims.get(cluster)?.split_first()?;
        let (mut last, mut is_withdrawn) = (first, false);
        for it in rest {
            let comes_after = it.timeline > last.timeline || (it.timeline == last.timeline && it.node == last.node);
            if it.system != first.system {
                is_withdrawn |= it.address == last.address;
            } else if comes_after {
                (last, is_withdrawn) = (it, false);
            }
        }
        Some((last, is_withdrawn))
    }

    /// The place of something that is in a cluster or not.
    pub(crate) fn place(&self, cluster: Option<&Arc<str>>, address: &Address) -> Address {
        match cluster {
            Some(name) => self.primary(name).map_or_else(|| Address::Primary(name.clone()), |it| it.address.clone()),
            None => address.clone(),
        }
    }

    /// The server whose rules count, if one's do.
    pub(crate) fn asked(&self) -> Option<Address> {
        match (&self.configuration.access.policy, &self.configuration.access.users) {
            (Policy::ServerRules(_), Users::LookedUp(it, _)) => Some(self.place(it.cluster.as_ref(), &it.address)),
            _ => None,
        }
    }

    /// Whether readers of a database may go to a node that is so far behind at most.
    fn will_do(&self, database: &Database, node: &Node, share: u32) -> bool {
        let Some(reading) = database.reading.as_ref().or(database.read_only.as_ref()) else { return false };
        let Some(primary) = database.cluster.as_ref().and_then(|it| self.primary(it)) else { return false };
        let NodeState::Standby(standby) = &node.state else { return false };
        let is_current = (standby.timeline, &standby.system) == (primary.timeline, &primary.system);
        let replays = standby.streams && !standby.is_paused && !standby.is_excluded;
        let is_near = standby.lag.time.is_some_and(|time| time * share <= reading.lag_max);
        let max = reading.lag_bytes_max;
        let has_log = max.is_none_or(|max| standby.lag.bytes.is_some_and(|it| it <= max / u64::from(share)));
        node.address != primary.address && is_current && replays && is_near && has_log
    }

    /// The nodes for a database's readers now.
    fn readers_of(&self, database: &Database) -> (Vec<Reader>, u64) {
        let reading = database.reading.as_ref().or(database.read_only.as_ref());
        let (Some(reading), Some(cluster)) = (reading, &database.cluster) else { return (Vec::new(), 0) };
        let before = self.readers.get(&database.name).filter(|(of, _)| of == cluster);
        let was_one = |node: &Node| {
            before.is_some_and(|(_, all)| all.iter().any(|it| it.address == node.address && !it.is_primary))
        };
        let reader = |node: &str, address: &Address, is_primary| Reader {
            node: node.to_owned(),
            address: address.clone(),
            is_primary,
        };
        let (mut readers, mut held_off) = (Vec::new(), 0);
        for node in self.nodes.get(cluster).into_iter().flatten() {
            if self.will_do(database, node, if was_one(node) { 1 } else { 2 }) {
                readers.push(reader(&node.name, &node.address, false));
            } else if self.will_do(database, node, 1) {
                held_off += 1;
            }
        }
        let takes_primary = match reading.target {
            Target::Any => true,
            Target::PreferStandby => readers.is_empty(),
            Target::Standby => false,
        };
        if let Some(primary) = self.primary(cluster).filter(|_| takes_primary) {
            readers.push(reader(&primary.node, &primary.address, true));
        }
        (readers, held_off)
    }

    fn lead_readers(&mut self) {
        let mut all = HashMap::new();
        for database in &self.configuration.databases {
            let (readers, held_off) = self.readers_of(database);
            self.held_off += held_off;
            all.extend(database.cluster.clone().map(|cluster| (database.name.clone(), (cluster, readers))));
        }
        self.readers = all;
    }

    /// Takes in what was said.
    fn hear(&mut self, said: &Said, asks: Option<&Option<String>>) {
        let asked = self.asked();
        match said {
            Said::Configuration(configuration) => {
                let clusters = &configuration.clusters;
                self.claims.retain(|name, _| clusters.iter().any(|it| it.name == *name));
                self.nodes.retain(|name, _| clusters.iter().any(|it| it.name == *name));
                self.configuration = Configuration::clone(configuration);
                self.asks = asks.cloned();
            }
            Said::Rules(address, rules) if asked.as_ref() == Some(address) => self.rules.clone_from(rules),
            Said::Primary(cluster, primary) if self.configuration.clusters.iter().any(|it| it.name == *cluster) => {
                self.claims.entry(cluster.clone()).or_default().push(primary.clone());
            }
            Said::Nodes(cluster, nodes) if self.configuration.clusters.iter().any(|it| it.name == *cluster) => {
                self.nodes.insert(cluster.clone(), nodes.clone());
            }
            Said::Rules(..) | Said::Primary(..) | Said::Nodes(..) => {}
        }
        if self.asked() != asked {
            self.rules = None;
        }
        self.lead_readers();
    }
}

/// Something that is observed.
enum Said {
    Configuration(Box<Configuration>),
    Rules(Address, Option<Arc<AccessRules>>),
    Primary(Arc<str>, Primary),
    Nodes(Arc<str>, Vec<Node>),
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration(_) => f.write_str("a configuration"),
            Self::Rules(address, None) => write!(f, "{address} does not tell its rules"),
            Self::Rules(address, Some(rules)) => write!(f, "the rules of {address}: {}", rules.text),
            Self::Nodes(cluster, nodes) => write!(f, "the nodes of {cluster}: {nodes:?}"),
            Self::Primary(cluster, Primary { node, address, timeline, system }) => {
                write!(f, "{node} of {cluster}, at {address}, timeline {timeline}, system {system}")
            }
        }
    }
}

pub(crate) struct World {
    rng: Rng,
    operator: Operator,
    model: Model,
    control: Control,
    figures: Figures,
    is_traced: bool,
}

impl World {
    pub(crate) fn new(seed: u64, is_traced: bool) -> Self {
        let mut rng = Rng::new(seed);
        let operator = Operator::new(&mut rng);
        let (configuration, asks) = (operator.configuration.clone(), operator.asks.clone());
        let control = Control::new(configuration.clone());
        let (claims, nodes, readers) = (HashMap::new(), HashMap::new(), HashMap::new());
        let model = Model { configuration, asks, claims, rules: None, nodes, readers, held_off: 0 };
        Self { rng, operator, model, control, figures: Figures::default(), is_traced }
    }

    pub(crate) fn run(mut self) -> Figures {
        for step in 0..STEPS {
            let said = match self.rng.below(10) {
                0..=2 => Said::Configuration(Box::new(self.operator.write(&mut self.rng))),
                3..=4 => self.rules(),
                5..=7 => self.nodes(),
                _ => self.primary(),
            };
            if self.is_traced {
                println!("{step}: {said}");
            }
            self.take(said);
        }
        self.figures
    }

    /// Rules of a server: mostly of the one that is asked, as it is now or was a moment ago.
    fn rules(&mut self) -> Said {
        let rng = &mut self.rng;
        let other = Address::Tcp(rng.pick(&["a", "b", "db"]).to_owned(), 5432);
        let address = self.model.asked().filter(|_| rng.percent(70)).unwrap_or(other);
        Said::Rules(address, rng.percent(80).then(|| rules(rng)))
    }

    /// A node that says it is a cluster's primary: one that was promoted, the same as before, perhaps elsewhere, one that
    /// comes back, and one of other data.
    fn primary(&mut self) -> Said {
        let rng = &mut self.rng;
        let cluster: Arc<str> = rng.pick(&CLUSTERS).into();
        let node = rng.pick(&NODES).to_owned();
        let before = self.model.last_primary(&cluster).map(|(last, _)| last.clone());
        let timeline = before.as_ref().map_or(5, |it| it.timeline);
        let timeline = rng.pick(&[timeline, timeline, timeline + 1, timeline + 3, timeline - 1, 1]);
        let address = Address::Tcp(if rng.percent(90) { node.clone() } else { "moved".to_owned() }, 5432);
        let system = if rng.percent(80) { "7".to_owned() } else { "8".to_owned() };
        let said = Primary { node, address, timeline: timeline.max(1), system };
        let moved = |before: Primary, rng: &mut Rng| {
            let host = if rng.percent(50) { before.node.clone() } else { "moved".to_owned() };
            let moved = Primary { address: Address::Tcp(host, 5432), ..before.clone() };
            // Or it was initialised anew where it was.
            let other = if before.system == "7" { "8" } else { "7" };
            if rng.percent(80) { moved } else { Primary { system: other.to_owned(), timeline: 1, ..before } }
        };
        Said::Primary(cluster, before.filter(|_| rng.percent(30)).map_or(said, |before| moved(before, rng)))
    }

    /// The nodes of a cluster: mostly standbys that follow, now and then one that is something else.
    fn nodes(&mut self) -> Said {
        let cluster: Arc<str> = self.rng.pick(&CLUSTERS).into();
        let primary = self.model.primary(&cluster).cloned();
        let timeline = primary.as_ref().map_or(5, |it| it.timeline);
        let system = primary.map_or_else(|| "7".to_owned(), |it| it.system);
        let known: Vec<_> = NODES.into_iter().filter(|_| self.rng.percent(90)).collect();
        let node = |name: &str| Node {
            name: name.to_owned(),
            address: Address::Tcp(name.to_owned(), 5432),
            state: state(&mut self.rng, timeline, &system),
        };
        Said::Nodes(cluster, known.into_iter().map(node).collect())
    }

    /// The control plane hears it, and so does the model.
    fn take(&mut self, said: Said) {
        let before = self.control.snapshot().clone();
        let was = checks::expected(&self.model);
        let is_of_other = matches!(&said, Said::Rules(address, _) if self.model.asked().as_ref() != Some(address));
        let has_moved = match &said {
            Said::Primary(cluster, it) => self.model.primary(cluster).is_some_and(|before| it.has_moved_from(before)),
            _ => false,
        };
        self.model.hear(&said, self.operator.asks.as_ref());
        let now = checks::expected(&self.model);
        let (is_primary, is_rules) = (matches!(said, Said::Primary(..)), matches!(said, Said::Rules(..)));
        let is_nodes = matches!(said, Said::Nodes(..));
        let published = self.control.observe(match said {
            Said::Configuration(configuration) => Observation::Configured(configuration),
            Said::Rules(address, rules) => Observation::ServerRules(address, rules),
            Said::Primary(cluster, primary) => Observation::Primary(cluster, primary),
            Said::Nodes(cluster, nodes) => Observation::Nodes(cluster, nodes),
        });
        if self.is_traced {
            let changes = published.iter().flat_map(|it| &it.changes);
            changes.for_each(|change| println!("    {change}"));
        }
        let is_news = published.is_some();
        let count = |number: &mut u64, is_so: bool| *number += u64::from(is_so);
        count(&mut self.figures.published, is_news);
        count(&mut self.figures.unchanged, !is_news);
        count(&mut self.figures.promoted, is_primary && is_news);
        count(&mut self.figures.moved, has_moved && is_news);
        let known = |snapshot: &Snapshot| snapshot.clusters.iter().filter(|it| it.primary.is_some()).count();
        let is_withdrawn = is_primary && known(self.control.snapshot()) < known(&before);
        count(&mut self.figures.withdrawn, is_withdrawn);
        count(&mut self.figures.refused, is_primary && !is_news);
        count(&mut self.figures.rules, is_rules && is_news);
        count(&mut self.figures.rules_of_others, is_of_other);
        let snapshot = self.control.snapshot();
        let waits = snapshot.databases.iter().any(|it| matches!(it.address, Address::Primary(_)));
        count(&mut self.figures.without_primary, waits);
        count(&mut self.figures.led, is_nodes && is_news);
        count(&mut self.figures.stayed, is_nodes && !is_news);
        count(&mut self.figures.spread, snapshot.databases.iter().any(|it| it.readers.len() > 1));
        let has_none = |it: &Arc<Database>| it.reading.is_some() && it.readers.is_empty();
        count(&mut self.figures.without_reader, snapshot.databases.iter().any(has_none));
        self.figures.held_off += std::mem::take(&mut self.model.held_off);
        checks::check(&Step { before, published, snapshot, was, now }, &self.model);
    }
}

/// A state that a node may have.
fn state(rng: &mut Rng, timeline: u32, system: &str) -> NodeState {
    match rng.below(20) {
        0 => return NodeState::Silent("refused".to_owned()),
        1 => return NodeState::Down("starting".to_owned()),
        2 | 3 => return NodeState::Primary { timeline },
        _ => {}
    }
    let lag = Lag {
        time: rng.percent(95).then(|| Duration::from_secs(rng.pick(&[0, 0, 1, 2, 3, 5, 9, 20]))),
        bytes: rng.percent(95).then(|| rng.pick(&[0, 10, 50, 70, 900, 5000])),
    };
    NodeState::Standby(Standby {
        timeline: if rng.percent(90) { timeline } else { rng.pick(&[timeline - 1, timeline + 1]) },
        system: if rng.percent(97) { system.to_owned() } else { "9".to_owned() },
        streams: rng.percent(95),
        is_paused: rng.percent(5),
        is_excluded: rng.percent(5),
        lag,
    })
}
