//! `[pool]` and `[database.pool]`: reads them, and checks which settings can stand together.

use std::time::Duration;

use sluice_control::settings::{PinPolicy, PoolMode, PoolSettings, Sharing};

use crate::{
    reader::{Origin, Section, Setting, Source},
    report::Fault,
    schema::{self, Key, Table},
    units,
};

pub(crate) const RULES: &[&str] = &[
    "`min` may not be above `size`, nor `size` above `limits.servers`, nor `backoff_min` above `backoff_max`; settings \
     taken from `[pool]` and defaults count.",
    "`min` of all databases together may not be above `limits.servers`.",
    "`auto_prepare = true` and `lazy_begin = true` may not be given where the mode is `\"session\"`: there a client has a \
     server of its own.",
];

/// The settings of a pool with their origins.
#[derive(Clone, Copy)]
pub(crate) struct Pool {
    /// `[pool]` or `[database.pool]`.
    table: &'static Table,
    mode: Setting<PoolMode>,
    size: Setting<u32>,
    min: Setting<u32>,
    wait_timeout: Setting<Duration>,
    server_lifetime: Setting<Duration>,
    server_idle_timeout: Setting<Duration>,
    connect_timeout: Setting<Duration>,
    backoff_min: Setting<Duration>,
    backoff_max: Setting<Duration>,
    parallel_connects: Setting<u32>,
    auto_prepare: Setting<bool>,
    lazy_begin: Setting<bool>,
    pins: Setting<PinPolicy>,
    pinned_max: Setting<u32>,
    prepared_per_server: Setting<u32>,
    log_min_duration: Setting<Duration>,
}

/// One of two settings that are compared.
struct Side<T> {
    /// The setting's name in messages.
    name: &'static str,
    /// The path of the key in the table itself, and in the table that it inherits from.
    paths: [String; 2],
    setting: Setting<T>,
}

impl Pool {
    /// The program's own settings.
    pub(crate) fn defaults() -> Self {
        fn default<T>(value: T) -> Setting<T> {
            Setting { value, origin: Origin::Default }
        }
        let settings = PoolSettings::default();
        Self {
            table: &schema::POOL,
            mode: default(settings.sharing.mode),
            size: default(settings.size),
            min: default(settings.min),
            wait_timeout: default(settings.wait_timeout),
            server_lifetime: default(settings.server_lifetime),
            server_idle_timeout: default(settings.server_idle_timeout),
            connect_timeout: default(settings.connect_timeout),
            backoff_min: default(settings.backoff_min),
            backoff_max: default(settings.backoff_max),
            parallel_connects: default(settings.parallel_connects),
            auto_prepare: default(settings.sharing.auto_prepare),
            lazy_begin: default(settings.sharing.lazy_begin),
            pins: default(settings.sharing.pins),
            pinned_max: default(settings.pinned_max.unwrap_or(0)),
            prepared_per_server: default(settings.prepared_per_server),
            log_min_duration: default(settings.log_min_duration.unwrap_or(Duration::MAX)),
        }
    }

    /// Reads a table of pool settings; what it does not give comes from `parent`.
    pub(crate) fn read(section: &Section<'_>, parent: &Self) -> Self {
        Self {
            table: section.schema(),
            mode: section.read(&schema::MODE).or_inherit(parent.mode),
            size: section.read(&schema::SIZE).or_inherit(parent.size),
            min: section.read(&schema::MIN).or_inherit(parent.min),
            wait_timeout: section.read(&schema::WAIT_TIMEOUT).or_inherit(parent.wait_timeout),
            server_lifetime: section.read(&schema::SERVER_LIFETIME).or_inherit(parent.server_lifetime),
            server_idle_timeout: section.read(&schema::SERVER_IDLE_TIMEOUT).or_inherit(parent.server_idle_timeout),
            connect_timeout: section.read(&schema::CONNECT_TIMEOUT).or_inherit(parent.connect_timeout),
            backoff_min: section.read(&schema::BACKOFF_MIN).or_inherit(parent.backoff_min),
            backoff_max: section.read(&schema::BACKOFF_MAX).or_inherit(parent.backoff_max),
            parallel_connects: section.read(&schema::PARALLEL_CONNECTS).or_inherit(parent.parallel_connects),
            auto_prepare: section.read(&schema::AUTO_PREPARE).or_inherit(parent.auto_prepare),
            lazy_begin: section.read(&schema::LAZY_BEGIN).or_inherit(parent.lazy_begin),
            pins: section.read(&schema::PINS).or_inherit(parent.pins),
            pinned_max: section.read(&schema::PINNED_MAX).or_inherit(parent.pinned_max),
            prepared_per_server: section.read(&schema::PREPARED_PER_SERVER).or_inherit(parent.prepared_per_server),
            log_min_duration: section.read(&schema::LOG_MIN_DURATION).or_inherit(parent.log_min_duration),
        }
    }

    /// Checks the settings against each other and against the limit of the process.
    pub(crate) fn check(&self, servers: Setting<u32>, source: &Source<'_>) {
        self.check_order((&schema::MIN, self.min), (&schema::SIZE, self.size), source, |number| number.to_string());
        let (least, most) = ((&schema::BACKOFF_MIN, self.backoff_min), (&schema::BACKOFF_MAX, self.backoff_max));
        self.check_order(least, most, source, |duration| units::show_duration(*duration));
        self.check_servers(servers, source);
        let what = "true, but in session mode prepared statements belong to the client's own server";
        self.check_mode(&schema::AUTO_PREPARE, self.auto_prepare, what, source);
        let what = "true, but in session mode a client has its server before it begins";
        self.check_mode(&schema::LAZY_BEGIN, self.lazy_begin, what, source);
    }

    /// Checks a switch that session mode does not know; `[pool]` may turn it on for all where one database alone is in
    /// session mode.
    fn check_mode<K>(&self, key: &'static Key<K>, switch: Setting<bool>, what: &str, source: &Source<'_>) {
        if !switch.value || self.mode.value != PoolMode::Session || self.mode.origin == Origin::Bad {
            return;
        }
        let (offset, table) = match (switch.origin, self.mode.origin) {
            (Origin::Given(offset), _) => (offset, self.table),
            (Origin::Inherited(offset), Origin::Inherited(_)) => (offset, &schema::POOL),
            _ => return,
        };
        let remedy = "leave it out, or set mode = \"transaction\"";
        source.add(Some(offset), table.path_of(key.name), Fault::new(what, remedy));
    }

    fn check_order<T: PartialOrd, K, L>(
        &self,
        low: (&'static Key<K>, Setting<T>),
        high: (&'static Key<L>, Setting<T>),
        source: &Source<'_>,
        show: impl Fn(&T) -> String,
    ) {
        at_most(&self.side(low.0, low.1), &self.side(high.0, high.1), source, show);
    }

    fn check_servers(&self, servers: Setting<u32>, source: &Source<'_>) {
        let path = schema::LIMITS.path_of(schema::SERVERS.name);
        // A size, even one taken from `[pool]`, is at fault before the limit of the process.
        let origin = match servers.origin {
            Origin::Given(offset) => Origin::Inherited(offset),
            origin => origin,
        };
        let limit =
            Side { name: "limits.servers", paths: [path.clone(), path], setting: Setting { origin, ..servers } };
        at_most(&self.side(&schema::SIZE, self.size), &limit, source, u32::to_string);
    }

    fn side<T, K>(&self, key: &'static Key<K>, setting: Setting<T>) -> Side<T> {
        Side { name: key.name, paths: [self.table.path_of(key.name), schema::POOL.path_of(key.name)], setting }
    }

    /// Checks that the connections that all these pools keep open fit into the limit.
    pub(crate) fn check_minima(pools: &[Self], servers: Setting<u32>, source: &Source<'_>) {
        let bad = |origin| origin == Origin::Bad;
        let sum: u64 = pools.iter().map(|pool| u64::from(pool.min.value)).sum();
        if sum <= servers.value.into() || bad(servers.origin) || pools.iter().any(|pool| bad(pool.min.origin)) {
            return;
        }
        let what = format!("min of all databases together is {sum}, above limits.servers = {}", servers.value);
        let offset = match servers.origin {
            Origin::Given(offset) => Some(offset),
            _ => None,
        };
        source.add(offset, "limits.servers", Fault::new(what, "lower min of some pools, or raise limits.servers"));
    }

    /// The plain values.
    pub(crate) fn settings(&self) -> PoolSettings {
        PoolSettings {
            sharing: Sharing {
                mode: self.mode.value,
                // The reference says so: one default for all pools fits both modes.
                auto_prepare: self.auto_prepare.value && self.mode.value == PoolMode::Transaction,
                lazy_begin: self.lazy_begin.value && self.mode.value == PoolMode::Transaction,
                pins: self.pins.value,
            },
            size: self.size.value,
            min: self.min.value,
            wait_timeout: self.wait_timeout.value,
            failover_timeout: None,
            server_lifetime: self.server_lifetime.value,
            server_idle_timeout: self.server_idle_timeout.value,
            connect_timeout: self.connect_timeout.value,
            backoff_min: self.backoff_min.value,
            backoff_max: self.backoff_max.value,
            parallel_connects: self.parallel_connects.value,
            pinned_max: Some(self.pinned_max.value).filter(|servers| *servers > 0),
            prepared_per_server: self.prepared_per_server.value,
            log_min_duration: Some(self.log_min_duration.value).filter(|time| *time < Duration::MAX),
        }
    }
}

/// Notes a problem if `low` is above `high`, at the one that the table itself gives, else at the inherited one.
fn at_most<T: PartialOrd>(low: &Side<T>, high: &Side<T>, source: &Source<'_>, show: impl Fn(&T) -> String) {
    let bad = low.setting.origin == Origin::Bad || high.setting.origin == Origin::Bad;
    if bad || low.setting.value <= high.setting.value {
        return;
    }
    let given = |side: &Side<T>| match side.setting.origin {
        Origin::Given(offset) => Some((offset, side.paths[0].clone())),
        _ => None,
    };
    let inherited = |side: &Side<T>| match side.setting.origin {
        Origin::Inherited(offset) => Some((offset, side.paths[1].clone())),
        _ => None,
    };
    let place = given(low).or_else(|| given(high)).or_else(|| inherited(low)).or_else(|| inherited(high));
    let (offset, path) = place.unzip();
    let show = |side: &Side<T>| {
        let (name, value) = (side.name, show(&side.setting.value));
        match side.setting.origin {
            Origin::Given(at) | Origin::Inherited(at) if Some(at) != offset => {
                format!("{name} = {value} (line {})", source.line(at))
            }
            Origin::Default => format!("{name} = {value} (the default)"),
            _ => format!("{name} = {value}"),
        }
    };
    let fault = Fault::new(
        format!("{} is above {}", show(low), show(high)),
        format!("lower {} or raise {}", low.name, high.name),
    );
    source.add(offset, path.unwrap_or_default(), fault);
}
