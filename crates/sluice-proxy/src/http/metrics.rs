//! The figures of the process as Prometheus reads them (OpenMetrics 1.0).

use std::{borrow::Cow, fmt, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode},
    metrics::MetricType,
    registry::{Registry, Unit},
};
use sluice_core::{
    figures::{Figures, NodeFigures, PoolFigures},
    histogram::{self, Times},
};

/// The type of what [`text`] gives.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The beginning of all names.
const PREFIX: &str = "sluice";

/// The figures as text. `is_paused` says whether the pools of a database give out no servers.
pub(super) fn text(figures: Figures, is_paused: impl Fn(&str) -> bool) -> Result<String, fmt::Error> {
    let paused = figures.pools.iter().map(|pool| is_paused(&pool.database)).collect();
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Seen { figures, paused }));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// The figures at one moment.
#[derive(Debug)]
struct Seen {
    figures: Figures,
    /// For each pool, whether it gives out no servers.
    paused: Vec<bool>,
}

impl Collector for Seen {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        let Figures { version, connections, clients, servers, pools, nodes } = &self.figures;
        let mut info = out.encode_descriptor("build", "The version that runs", None, MetricType::Info)?;
        info.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
        let mut gauge = |name: &str, help: &str, value: u64| {
            out.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
        };
        gauge(
            "configuration_version",
            "The number of the configuration that counts: a reload that changes something adds one",
            *version,
        )?;
        gauge(
            "connections",
            "Connections of clients, and of those that have not said who they are",
            u64::from(*connections),
        )?;
        gauge("clients", "Clients that are logged in", u64::from(*clients))?;
        gauge("servers", "Server connections", u64::from(*servers))?;

        let mut gauges = |name: &str, help: &str, value: &dyn Fn(usize, &PoolFigures) -> u64| {
            let mut family = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (place, pool) in pools.iter().enumerate() {
                family.encode_family(&labels(pool))?.encode_gauge(&value(place, pool))?;
            }
            Ok(())
        };
        gauges("pool_clients", "Clients of the pool that are logged in", &|_, pool| pool.clients.into())?;
        gauges("pool_waiting_clients", "Clients that wait for a server", &|_, pool| pool.counts.waiting.into())?;
        let help = "Servers that clients keep between transactions, because of what their sessions hold";
        gauges("pool_pinned_servers", help, &|_, pool| pool.counts.pinned.into())?;
        gauges("pool_paused", "Whether an operator has it give out no servers", &|place, _| self.paused[place].into())?;

        let mut states =
            out.encode_descriptor("pool_servers", "Server connections of the pool", None, MetricType::Gauge)?;
        for pool in pools {
            let counts = &pool.counts;
            for (state, count) in [("active", pool.active()), ("idle", counts.idle), ("connecting", counts.connecting)]
            {
                let mut labels = labels(pool);
                labels.push(("state", state.into()));
                states.encode_family(&labels)?.encode_gauge(&u64::from(count))?;
            }
        }
        if !nodes.is_empty() {
            put_nodes(&mut out, nodes)?;
        }
        let help = "The time that the client which comes next has waited";
        let mut longest = out.encode_descriptor("pool_longest_wait", help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for pool in pools {
            longest.encode_family(&labels(pool))?.encode_gauge(&pool.longest_wait.as_secs_f64())?;
        }

        let mut counters = |name: &str, help: &str, value: fn(&PoolFigures) -> u64| {
            let mut family = out.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Counter)?;
            for pool in pools {
                let labels = labels(pool);
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value(pool), None)?;
            }
            Ok(())
        };
        counters("pool_received", "Bytes that clients have sent", |pool| pool.traffic.received_bytes)?;
        counters("pool_sent", "Bytes that servers have answered", |pool| pool.traffic.sent_bytes)?;

        let mut histograms = |name: &str, help: &str, times: fn(&PoolFigures) -> &Times| {
            let mut family = out.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
            for pool in pools {
                put_times(&mut family.encode_family(&labels(pool))?, times(pool))?;
            }
            Ok(())
        };
        let help = "Waits for a server, by their times: one for each server that was given to a client";
        histograms("pool_wait", help, |pool| &pool.counts.waits)?;
        let help = "Transactions that have ended, by the times that they had a server";
        histograms("pool_transaction", help, |pool| &pool.traffic.transactions)?;
        let help = "Queries and batches, by the times from the first message to the end of the answer";
        histograms("pool_query", help, |pool| &pool.traffic.queries)
    }
}

/// The nodes of clusters that have readers.
fn put_nodes(out: &mut DescriptorEncoder<'_>, nodes: &[NodeFigures]) -> fmt::Result {
    let labels = |it: &'_ NodeFigures| {
        [("cluster", escaped(&it.cluster).into_owned()), ("node", escaped(&it.node.name).into_owned())]
    };
    let mut readers =
        out.encode_descriptor("node_readers", "Readers that have their place at the node", None, MetricType::Gauge)?;
    for node in nodes {
        readers.encode_family(&labels(node))?.encode_gauge(&u64::from(node.clients))?;
    }
    let help = "Whether readers of any database are led to the node";
    let mut fit = out.encode_descriptor("node_fit_for_readers", help, None, MetricType::Gauge)?;
    for node in nodes {
        fit.encode_family(&labels(node))?.encode_gauge(&u64::from(!node.databases.is_empty()))?;
    }
    let lags = || nodes.iter().filter_map(|it| Some((it, it.node.state.standby()?.lag)));
    let help = "The time that a standby is behind, at most";
    let mut times = out.encode_descriptor("node_lag", help, Some(&Unit::Seconds), MetricType::Gauge)?;
    for (node, time) in lags().filter_map(|(node, lag)| Some((node, lag.time?))) {
        times.encode_family(&labels(node))?.encode_gauge(&time.as_secs_f64())?;
    }
    let help = "The bytes of log that a standby has not replayed";
    let mut sizes = out.encode_descriptor("node_lag", help, Some(&Unit::Bytes), MetricType::Gauge)?;
    for (node, bytes) in lags().filter_map(|(node, lag)| Some((node, lag.bytes?))) {
        sizes.encode_family(&labels(node))?.encode_gauge(&bytes)?;
    }
    Ok(())
}

/// The labels of a pool, by which Prometheus tells it from others.
fn labels(pool: &PoolFigures) -> Vec<(&str, Cow<'_, str>)> {
    let mut labels = vec![("database", escaped(&pool.database)), ("user", escaped(&pool.role))];
    if pool.is_for_reading {
        labels.push(("server", Cow::Owned(escaped(&pool.address.to_string()).into_owned())));
    }
    labels
}

/// A label's value as it stands between quotes. Clients choose names, and `prometheus-client` writes them as they are.
fn escaped(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', '"', '\n']) {
        return Cow::Borrowed(value);
    }
    let mut escaped = String::with_capacity(value.len() + 8);
    for char in value.chars() {
        match char {
            '\\' => escaped.push_str(r"\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str(r"\n"),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

fn put_times(out: &mut MetricEncoder<'_>, times: &Times) -> fmt::Result {
    let end = |bucket| histogram::bucket_end(bucket).as_ref().map_or(f64::MAX, Duration::as_secs_f64);
    let buckets: Vec<_> = times.buckets.iter().enumerate().map(|(bucket, count)| (end(bucket), *count)).collect();
    out.encode_histogram::<NoLabelSet>(times.sum.as_secs_f64(), times.count(), &buckets, None)
}
