//! PostgreSQL's rules on a host: the hosts among themselves by certificates, clients from where the file says.

use std::net::IpAddr;

use sluice_config::NodeConfig;

use super::super::roles::{REPLICATION, REWIND};
use crate::{bootstrap::SUPERUSER, run_as::RunAs};

/// The map from hosts' names to the roles that they come as.
const MAP: &str = "sluice_nodes";

/// The lines of `pg_hba.conf`.
pub(super) fn hba(config: &NodeConfig) -> Vec<String> {
    let mut lines = vec![
        format!("local all {SUPERUSER} peer map=sluice"),
        "local all all scram-sha-256".to_owned(),
        "local replication all scram-sha-256".to_owned(),
    ];
    for member in config.members.iter().filter(|member| !member.is_witness) {
        let host = whole(member.postgres.ip());
        lines.push(format!("hostssl replication {REPLICATION} {host} cert map={MAP}"));
        lines.push(format!("hostssl all {REWIND} {host} cert map={MAP}"));
    }
    for role in [REPLICATION, REWIND] {
        lines.push(format!("host all,replication {role} all reject"));
    }
    lines.extend(config.hba.iter().cloned());
    let networks = config.client_networks.iter();
    lines.extend(networks.map(|network| {
        let network = match network.to_string() {
            bare if !bare.contains('/') => whole(network.address()),
            network => network,
        };
        format!("hostssl all all {network} scram-sha-256")
    }));
    lines
}

/// The lines of `pg_ident.conf`.
pub(super) fn ident(config: &NodeConfig, run_as: &RunAs) -> Vec<String> {
    let peers = run_as.peers().into_iter().map(|peer| format!("sluice \"{peer}\" {SUPERUSER}"));
    let hosts = config.members.iter().filter(|member| !member.is_witness);
    let nodes = hosts.flat_map(|member| [REPLICATION, REWIND].map(|role| format!("{MAP} \"{}\" {role}", member.name)));
    peers.chain(nodes).collect()
}

fn whole(address: IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn hosts_come_by_certificates_only() {
        let text = r#"
            name = "a"
            client_networks = ["10.1.0.0/16", "10.2.0.9"]
            hba = ["hostssl app web 10.3.0.0/16 cert"]
            tls = { ca_file = "ca.crt", cert_file = "a.crt", key_file = "a.key" }
            member = [{ name = "a", address = "10.0.0.1" }, { name = "b", address = "fd00::2" },
                      { name = "c", address = "10.0.0.3", witness = true }]
            "#;
        let config = sluice_config::parse_node(text, Path::new("/etc/sluice/node.toml")).unwrap();
        let expected = [
            "local all postgres peer map=sluice",
            "local all all scram-sha-256",
            "local replication all scram-sha-256",
            "hostssl replication sluice_replication 10.0.0.1/32 cert map=sluice_nodes",
            "hostssl all sluice_rewind 10.0.0.1/32 cert map=sluice_nodes",
            "hostssl replication sluice_replication fd00::2/128 cert map=sluice_nodes",
            "hostssl all sluice_rewind fd00::2/128 cert map=sluice_nodes",
            "host all,replication sluice_replication all reject",
            "host all,replication sluice_rewind all reject",
            "hostssl app web 10.3.0.0/16 cert",
            "hostssl all all 10.1.0.0/16 scram-sha-256",
            "hostssl all all 10.2.0.9/32 scram-sha-256",
        ];
        assert_eq!(hba(&config), expected);
        let ident = ident(&config, &RunAs::resolve(None).unwrap());
        assert!(ident.contains(&"sluice_nodes \"b\" sluice_rewind".to_owned()), "{ident:?}");
        assert!(!ident.iter().any(|line| line.contains("\"c\"")), "{ident:?}");
    }
}
