//! Addresses at which the nodes of one machine reach each other's PostgreSQL, if not at its own: those of relays, which
//! emulate a distance between them.

use std::{
    fs, io,
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use postgres::Client;
use serde_json::{Value, json};

use super::{
    Cluster, ClusterError,
    patroni::HEADER,
    rest::{Answer, Method},
    waker::wake,
};
use crate::{
    bootstrap,
    files::{self, Owner},
};

const POLL: Duration = Duration::from_millis(50);
const ASK_TIME_MAX: Duration = Duration::from_secs(2);

impl Cluster {
    /// Has each node be reached by the others at its address among these, from `node1` on, and waits until every standby
    /// streams by that way. Patroni publishes where a node is reached, and the others follow. The next start of the
    /// cluster forgets it.
    ///
    /// # Errors
    ///
    /// A configuration that can't be changed, or a standby that does not stream that way by `deadline`.
    pub fn route(&self, addresses: &[SocketAddr], deadline: Instant) -> Result<(), ClusterError> {
        for (node, address) in self.nodes.iter().zip(addresses) {
            let path = node.config_file();
            self.readdress(&path, *address).map_err(ClusterError::io("change", &path))?;
            let reloaded = self.api.send(node.rest, Method::Post, "/reload", "{}", ASK_TIME_MAX);
            let reloaded = reloaded.and_then(Answer::good).map_err(io::Error::other);
            reloaded.map_err(ClusterError::io("have Patroni read", &path))?;
            wake(&self.api, node.rest);
        }
        let leader = self.wait_leader(deadline)?;
        for node in (0..self.nodes.len()).filter(|node| *node != leader) {
            let followed = self.wait_streaming(node, addresses[leader].port(), deadline);
            followed.map_err(ClusterError::io("see who streams to", &self.nodes[node].pgdata))?;
        }
        Ok(())
    }

    /// Waits until a standby streams from that port.
    fn wait_streaming(&self, node: usize, port: u16, deadline: Instant) -> io::Result<()> {
        loop {
            let client = bootstrap::superuser(&self.data_dir, &self.endpoint(node), "postgres");
            let streams_from = client.map_err(io::Error::other).and_then(|mut client| streams_from(&mut client));
            match streams_from {
                Ok(Some(from)) if from == port => return Ok(()),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Ok(from) if Instant::now() >= deadline => {
                    return Err(io::Error::other(format!("it streams from port {from:?}, and not from {port}")));
                }
                _ => thread::sleep(POLL),
            }
        }
    }

    /// Writes where a node is reached into its Patroni's configuration.
    fn readdress(&self, path: &Path, address: SocketAddr) -> io::Result<()> {
        let text = fs::read_to_string(path)?;
        let written = text.strip_prefix(HEADER).unwrap_or(&text);
        let mut config: Value = serde_json::from_str(written)?;
        config["postgresql"]["connect_address"] = json!(address.to_string());
        let text = format!("{HEADER}{}\n", serde_json::to_string_pretty(&config)?);
        files::write_private(path, text.as_bytes(), Owner::Postgres(self.data_dir.run_as()))
    }
}

/// The port of the server that a standby streams from.
fn streams_from(client: &mut Client) -> io::Result<Option<u16>> {
    let query = "SELECT sender_port FROM pg_catalog.pg_stat_wal_receiver WHERE status = 'streaming'";
    let row = client.query_opt(query, &[]).map_err(io::Error::other)?;
    Ok(row.and_then(|row| row.get::<_, Option<i32>>(0)).and_then(|port| u16::try_from(port).ok()))
}
