//! The file of `sluice node`: what it means, and what is said about a bad one.

use std::path::Path;

use sluice_config::parse_node;

const FILE: &str = "/etc/sluice/node.toml";

const GOOD: &str = r#"
name = "db2"
client_networks = ["10.0.0.0/24"]
[tls]
ca_file = "tls/ca.crt"
cert_file = "tls/node.crt"
key_file = "/keys/node.key"
[[member]]
name = "db1"
address = "10.0.0.1"
sync_priority = 2
[[member]]
name = "db2"
address = "10.0.0.2"
postgres_port = 5433
[[member]]
name = "db3"
address = "fd00::3"
witness = true
"#;

#[test]
fn a_file_with_its_defaults() {
    let config = parse_node(GOOD, Path::new(FILE)).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!((&*config.cluster, config.data.to_str(), config.fast_failover), ("main", Some("/var/lib/sluice"), true));
    assert_eq!(config.ca_file.to_str(), Some("/etc/sluice/tls/ca.crt"));
    assert_eq!(config.key_file.to_str(), Some("/keys/node.key"));
    assert_eq!(config.members.iter().map(|member| member.sync_priority).collect::<Vec<_>>(), [2, 1, 1]);
    let own = config.own();
    let places = [own.postgres, own.patroni, own.etcd_client, own.etcd_peer].map(|address| address.to_string());
    assert_eq!(places, ["10.0.0.2:5433", "10.0.0.2:8008", "10.0.0.2:2379", "10.0.0.2:2380"]);
    assert_eq!((config.nodes(), config.members[2].etcd_peer.to_string()), (2, "[fd00::3]:2380".to_owned()));
}

/// Each names the file, the place, the key and the remedy.
#[test]
fn bad_files() {
    for (from, to, place, words) in [
        ("name = \"db2\"\nclient", "client", "node.toml: name", "add name = … at the top of the file"),
        ("name = \"db2\"\nclient", "name = \"db9\"\nclient", ":2:8: name", "name one of the members (db1, db2, db3)"),
        ("name = \"db2\"\nclient", "name = \"DB2\"\nclient", ":2:8: name", "a letter first"),
        ("[tls]", "[tsl]", ": tsl", "did you mean tls?"),
        ("ca_file = \"tls/ca.crt\"", "", ": tls.ca_file", "add ca_file = … to [tls]"),
        ("10.0.0.0/24", "10.0.0.1/24", ":3:20: client_networks", "write \"10.0.0.0/24\""),
        ("\"10.0.0.1\"", "\"db1.example\"", ": member.address", "write an IP address"),
        ("\"10.0.0.1\"", "\"0.0.0.0\"", ": member.address", "the address of no host"),
        ("\"10.0.0.1\"", "\"10.0.0.2\"", ": member", "the address of two members"),
        ("name = \"db1\"", "name = \"db2\"", ": member", "a name of its own"),
        ("5433", "8008", ": member", "two programs at one port"),
        ("sync_priority = 2", "sync_priority = 0", ": member.sync_priority", "a whole number from 1 to 100"),
        ("5433", "70000", ": member.postgres_port", "a whole number from 1 to 65535"),
        ("postgres_port = 5433", "witness = true", ": member", "one votes where two have data"),
        ("[[member]]\nname = \"db1\"\naddress = \"10.0.0.1\"\nsync_priority = 2", "", ": member", "add a third"),
        ("address = \"10.0.0.1\"", "adress = \"10.0.0.1\"", ": member.adress", "did you mean address?"),
        ("witness = true", "listen = true", ": member.listen", "leave it out; [[member]] has name, address"),
        (
            "client_networks",
            "hba = [\"host all all all md5\",\n\"host all all all sha\"]\nclient_networks",
            ":4:1: hba",
            "\"sha\"",
        ),
        (
            "client_networks",
            "hba = [\"hostssl all 10.0.0.0/8 cert\"]\nclient_networks",
            ":3:8: hba",
            "end the line with one method",
        ),
        ("client_networks", "hba = [\"a\\nb\"]\nclient_networks", ": hba", "write each line as an element of its own"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let report = parse_node(&GOOD.replacen(from, to, 1), Path::new(FILE)).unwrap_err().to_string();
        assert!(report.contains(FILE) && report.contains(place) && report.contains(words), "{from} → {to}:\n{report}");
    }
}

/// Lines that PostgreSQL reads, though Sluice's own pool would not: hosts by their names, LDAP, files beside it.
#[test]
fn lines_that_are_postgresqls_business() {
    for line in [
        "# a comment",
        "hostssl app web db1.example.com scram-sha-256",
        "hostssl all all 10.0.0.0/8 ldap ldapserver=l.example.com",
        "host @apps +staff samenet scram-sha-256 # why",
        "include_if_exists more.conf",
    ] {
        let text = GOOD.replace("client_networks", &format!("hba = [{line:?}]\nclient_networks"));
        let config = parse_node(&text, Path::new(FILE)).unwrap_or_else(|report| panic!("{line}: {report}"));
        assert_eq!(config.hba, [line]);
    }
}
