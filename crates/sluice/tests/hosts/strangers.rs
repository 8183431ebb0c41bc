//! Strangers without a certificate of the authority are refused: by etcd, by what changes something at Patroni's API,
//! by replication.

use std::process::Command;

use crate::{
    hosts::{Hosts, is_private},
    ledger::Servers,
};

/// Asks for a URL, by the authority's file and perhaps a certificate; prints the status, or that there is none.
const ASK: &str = "\
import ssl, sys, urllib.error, urllib.request
method, url, ca, own = sys.argv[1:5]
context = ssl.create_default_context(cafile=ca)
if own: context.load_cert_chain(own + '/node.crt', own + '/node.key')
request = urllib.request.Request(url, method=method, data=b'{\"nothing\": null}' if method != 'GET' else None)
try: print(urllib.request.urlopen(request, context=context, timeout=5).status)
except urllib.error.HTTPError as error: print(error.code)
except OSError as error: print('none')
except Exception as error: print('none')
";

pub(crate) fn are_refused(hosts: &Hosts) {
    let leader = hosts.leader();
    let ask = |method: &str, url: &str, own: &str| {
        let url = url.replace("HOST", &hosts.network.address(leader).to_string());
        let own = if own.is_empty() { String::new() } else { hosts.ca(own).display().to_string() };
        let mut python = Command::new("python3");
        let output = python.args(["-c", ASK, method, &url]).arg(hosts.ca("ca.crt")).arg(own).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let cases = [
        ("GET", "https://HOST:2379/health", "node2", "200"),
        ("GET", "https://HOST:2379/health", "", "none"),
        ("GET", "http://HOST:2379/health", "", "none"),
        // Members look at each other's addresses as well.
        ("GET", "https://HOST:2380/members", "node2", "none"),
        ("GET", "https://HOST:2380/members", "", "none"),
        ("GET", "http://HOST:2380/members", "", "none"),
        ("GET", "http://HOST:8008/cluster", "", "none"),
        ("GET", "https://HOST:8008/cluster", "", "200"),
        ("PATCH", "https://HOST:8008/config", "", "403"),
        ("PATCH", "https://HOST:8008/config", "node2", "200"),
    ];
    for (method, url, own, expected) in cases {
        let answer = ask(method, url, own);
        let is_plain = url.starts_with("http:");
        // Some servers of TLS say in clear that they are.
        let is_it = answer == expected || is_plain && answer == "400";
        assert!(is_it, "{method} {url} with {own:?}: {answer}");
    }

    let psql = |host: usize, user: &str, more: &str| {
        let address = hosts.network.address(leader);
        let mut command = hosts.network.command(host, "psql");
        let conninfo = format!("host={address} user={user} dbname=postgres connect_timeout=5 {more}");
        let output = command.args(["-w", "-X", "-At", "-c", "IDENTIFY_SYSTEM", &conninfo]).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let other = (leader + 1) % 3;
    let (name, ca) = (crate::hosts::name(other), hosts.ca("ca.crt"));
    let certificate = format!(
        "sslmode=verify-full sslrootcert={} sslcert={} sslkey={}",
        ca.display(),
        hosts.ca(&format!("{name}/node.crt")).display(),
        hosts.ca(&format!("{name}/node.key")).display()
    );
    let replication = "replication=true";
    let (is_good, said) = psql(other, "sluice_replication", &format!("{replication} {certificate}"));
    assert!(is_good, "{said}");
    for more in ["sslmode=disable", "sslmode=require sslcert=/none sslkey=/none"] {
        let (is_good, said) = psql(other, "sluice_replication", &format!("{replication} {more}"));
        assert!(!is_good && said.contains("FATAL"), "{more}: {said}");
    }
    // A host's certificate is good for what hosts do, and from there.
    let (is_good, said) = psql(other, "postgres", &certificate);
    assert!(!is_good && said.contains("no pg_hba.conf entry"), "{said}");
    let mut from_elsewhere = Command::new("psql");
    let address = hosts.network.address(leader);
    let conninfo = format!("host={address} user=sluice_replication dbname=postgres {replication} {certificate}");
    let output = from_elsewhere.args(["-w", "-X", "-c", "IDENTIFY_SYSTEM", &conninfo]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("pg_hba.conf"), "{said}");

    for key in ["ca.key", "node1/node.key"] {
        assert!(is_private(&hosts.ca(key)));
    }
    assert!(is_private(&hosts.data(leader).join("tls/node.key")));
}
