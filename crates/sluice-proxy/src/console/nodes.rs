//! `SHOW NODES`: the nodes of clusters that have readers, and why readers are not led to some of them.

use sluice_control::reading::NodeState;
use sluice_core::figures::Figures;

use super::{rows::Table, tables::host_and_port};

pub(super) fn nodes(figures: &Figures) -> Table {
    const COLUMNS: [&str; 14] = [
        "cluster",
        "node",
        "host",
        "port",
        "role",
        "timeline",
        "lag_us",
        "lag_bytes",
        "databases",
        "unfit",
        "clients",
        "sv_active",
        "sv_idle",
        "is_streaming",
    ];
    let mut table = Table::new(&COLUMNS, &["cluster", "node", "host", "role", "databases", "unfit"]);
    for it in &figures.nodes {
        let (host, port) = host_and_port(&it.node.address);
        let standby = it.node.state.standby();
        let role = match &it.node.state {
            NodeState::Silent(_) => "unknown",
            NodeState::Down(_) => "down",
            NodeState::Primary { .. } => "primary",
            NodeState::Standby(_) => "standby",
        };
        table.push([
            (*it.cluster).into(),
            it.node.name.as_str().into(),
            host.into(),
            port.into(),
            role.into(),
            it.node.state.timeline().into(),
            standby.and_then(|it| it.lag.time).map(|time| time.as_micros() as u64).into(),
            standby.and_then(|it| it.lag.bytes).into(),
            it.databases.join(", ").into(),
            it.unfit.clone().into(),
            it.clients.into(),
            it.active.into(),
            it.idle.into(),
            standby.map(|it| u32::from(it.streams)).into(),
        ]);
    }
    table
}
