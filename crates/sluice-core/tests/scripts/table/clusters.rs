//! A table before a cluster: who its primary is, and what its nodes are.

use sluice_control::{
    Control, Database, Observation,
    address::Address,
    cluster::{Cluster, Primary},
    reading::Node,
};
use sluice_core::{figures::PoolFigures, lsn::Lsn, mail::Mail};

use super::{Table, configuration_of};

impl Table {
    /// The configuration has this database from now on, which is that of a cluster, with this node as its primary.
    pub(crate) fn has_primary(&mut self, database: Database, node: Option<&str>) {
        let cluster = database.cluster.clone().expect("it is a cluster's");
        let mut configuration = configuration_of(&self.hub.snapshot());
        configuration.clusters = vec![Cluster { name: cluster.clone(), members: Vec::new(), tls: None }];
        configuration.databases = vec![database];
        let mut control = Control::new(configuration);
        if let Some(node) = node {
            let address = Address::Tcp(node.to_owned(), 5432);
            let primary = Primary { node: node.to_owned(), address, timeline: 1, system: "7".to_owned() };
            control.observe(Observation::Primary(cluster, primary)).expect("it is news");
        }
        self.hub.publish(control.snapshot().clone());
        self.control = Some(control);
        self.net.post(0, Mail::Published);
    }

    /// The node that is its primary has the data of that system from now on.
    pub(crate) fn has_data(&mut self, node: &str, system: &str) {
        let (node, address) = (node.to_owned(), Address::Tcp(node.to_owned(), 5432));
        let primary = Primary { node, address, timeline: 1, system: system.to_owned() };
        let control = self.control.as_mut().expect("there is a cluster");
        let published = control.observe(Observation::Primary("main".into(), primary)).expect("it is news");
        self.hub.publish(published.snapshot);
        self.net.post(0, Mail::Published);
    }

    /// The nodes of the cluster are seen so.
    pub(crate) fn has_nodes(&mut self, nodes: Vec<Node>) {
        self.hub.tell_nodes(&"main".into(), nodes.clone().into());
        let control = self.control.as_mut().expect("there is a cluster");
        if let Some(published) = control.observe(Observation::Nodes("main".into(), nodes)) {
            self.hub.publish(published.snapshot);
            self.net.post(0, Mail::Published);
        }
    }

    /// The log of the cluster's primary is looked at, and goes as far as that.
    pub(crate) fn looks_at_log(&self, end: u64) {
        self.hub.tell_log(self.net.now(), &"main".into(), Lsn(end));
    }

    /// The addresses of pools that have clients, and how many.
    pub(crate) fn places(&self) -> Vec<(String, u32)> {
        let pools = self.hub.figures(self.net.now()).pools;
        let place = |pool: &PoolFigures| (pool.address.to_string(), pool.clients);
        pools.iter().map(place).filter(|(_, clients)| *clients > 0).collect()
    }
}
