//! Facts that a server tells of itself: version, settings that were changed, size, and how warm its cache is.

use std::{collections::BTreeSet, time::Instant};

use postgres::Client;

use super::commits;
use crate::{
    connect::{Access, extension_schema, first_value},
    nodes::Shape,
    result::{CommitWait, Server},
    stats,
    target::{Kind, NodesBehind, POOL_SIZE},
};

/// The settings that say what a commit waits for.
const COMMIT_SETTINGS: [&str; 3] = ["synchronous_commit", "synchronous_standby_names", "fsync"];

const SETTINGS: &str = "SELECT name, current_setting(name) FROM pg_settings \
    WHERE source NOT IN ('default', 'override', 'client', 'session') \
    AND category NOT LIKE 'File Locations%' AND name NOT IN ('port', 'application_name')";
/// Of the database's pages, those in shared buffers; for superusers, and where the contrib modules are.
fn warm(schema: &str) -> String {
    format!(
        "SELECT 100.0 * count(*) * current_setting('block_size')::int / pg_database_size(current_database()) \
         FROM {schema}.pg_buffercache \
         WHERE reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
}

/// Empty queries whose median is a round trip.
const ROUND_TRIPS: usize = 51;

/// `cores`: those that the server may use, if that is known. What a variant sets is not the server's. `way`: by which
/// standbys reach it.
pub(super) fn of(
    access: &Access,
    kind: &Kind,
    cores: Option<f64>,
    of_variants: &BTreeSet<&String>,
    way: Option<&Access>,
) -> Result<Server, postgres::Error> {
    let mut client = access.connect()?;
    let mut versions = vec![client.query_one("SELECT version()", &[])?.get(0)];
    let gate = client.query_opt("SELECT extversion FROM pg_extension WHERE extname = 'sluice'", &[])?;
    versions.extend(gate.map(|row| format!("sluice {} (extension)", row.get::<_, String>(0))));
    let rows = client.query(SETTINGS, &[])?;
    let settings = rows.iter().map(|row| (row.get(0), row.get(1))).filter(|(name, _)| !of_variants.contains(name));
    let settings = settings.collect();
    let bytes: i64 = client.query_one("SELECT pg_database_size(current_database())", &[])?.get(0);
    Ok(Server {
        versions,
        reached: reached(kind),
        settings,
        database_bytes: u64::try_from(bytes).ok(),
        warm_percent: warm_percent(&mut client),
        cores,
        round_trip_us: match kind {
            Kind::Dsn(_) => Some(round_trip_us(&mut client)?),
            _ => None,
        },
        commit: commit_wait(&mut client, of_variants, way)?,
    })
}

/// The flushes that a commit waits for; none if variants differ in that.
fn commit_wait(
    client: &mut Client,
    of_variants: &BTreeSet<&String>,
    way: Option<&Access>,
) -> Result<Option<CommitWait>, postgres::Error> {
    if COMMIT_SETTINGS.iter().any(|name| of_variants.iter().any(|set| set == name)) {
        return Ok(None);
    }
    let query = COMMIT_SETTINGS.map(|name| format!("current_setting('{name}')")).join(", ");
    let row = client.query_one(&format!("SELECT {query}"), &[])?;
    let [level, standbys, fsync]: [String; 3] = [row.get(0), row.get(1), row.get(2)];
    let wait = commits::wait(&level, &standbys, fsync == "on");
    let nodes_round_trip_us = way.map(|way| round_trip_us(&mut way.connect()?)).transpose()?;
    Ok(Some(CommitWait { nodes_round_trip_us, ..wait }))
}

fn reached(kind: &Kind) -> String {
    match kind {
        Kind::Straight | Kind::Gate(_) | Kind::Nodes(Shape { count: 1, .. }) => {
            "by TCP over loopback, with a connection for each client".to_owned()
        }
        Kind::Nodes(Shape { count, round_trip }) => {
            let between = match round_trip {
                None => "over loopback".to_owned(),
                Some(time) => format!("by relays, {} ms there and back", time.as_secs_f64() * 1000.0),
            };
            format!(
                "the primary of {count} nodes, by TCP over loopback, with a connection for each client; the nodes reach \
                 each other {between}"
            )
        }
        Kind::Pool(pool) => {
            let how = if pool.tls { "by TLS over loopback" } else { "by TCP over loopback" };
            let before = match pool.nodes {
                None => String::new(),
                Some(NodesBehind { count, follows: true }) => format!(", which follows the primary of {count} nodes"),
                Some(NodesBehind { count, follows: false }) => format!(", which is told the primary of {count} nodes"),
            };
            match pool.shares() {
                true => format!("{how} through the pool, with {POOL_SIZE} server connections{before}"),
                false => format!("{how} through the proxy, with a server connection for each client"),
            }
        }
        Kind::Dsn(dsn) => format!("by its DSN: {dsn}"),
    }
}

fn round_trip_us(client: &mut Client) -> Result<f64, postgres::Error> {
    let mut round_trips = [0.0; ROUND_TRIPS];
    for us in &mut round_trips {
        let begin = Instant::now();
        client.simple_query("")?;
        *us = begin.elapsed().as_secs_f64() * 1e6;
    }
    Ok(stats::median(round_trips).unwrap_or(0.0))
}

fn warm_percent(client: &mut Client) -> Option<f64> {
    let schema = extension_schema(client, "pg_buffercache").ok()??;
    first_value(client, &warm(&schema)).ok()??.parse().ok()
}
