//! Another authority for all hosts, one after the other, as docs/hosts.md has it.

use std::{fs, process::Command};

use crate::{
    SLUICE,
    hosts::{Hosts, name},
    ledger::Servers,
};

pub(crate) fn is_changed(hosts: &Hosts) {
    let next = hosts.ca("").with_file_name("ca-next");
    let mut ca = Command::new(SLUICE);
    ca.args(["node", "ca"]).arg(&next);
    let made = ca.args((0..3).map(|host| format!("{}={}", name(host), hosts.network.address(host)))).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let [of_before, of_next] = [hosts.ca("ca.crt"), next.join("ca.crt")].map(|path| fs::read_to_string(path).unwrap());
    let of = |host: usize, file: &str| hosts.ca(&format!("{}/{file}", name(host)));
    one_after_the_other(hosts, |host| fs::write(of(host, "ca.crt"), of_before.clone() + &of_next).unwrap());
    one_after_the_other(hosts, |host| {
        for file in ["node.crt", "node.key"] {
            fs::copy(next.join(name(host)).join(file), of(host, file)).unwrap();
        }
    });
    one_after_the_other(hosts, |host| fs::write(of(host, "ca.crt"), &of_next).unwrap());
}

fn one_after_the_other(hosts: &Hosts, change: impl Fn(usize)) {
    let primary = hosts.leader();
    for host in (0..3).filter(|host| *host != primary).chain([primary]) {
        change(host);
        let (said, is_good) = hosts.command(host, &["check"]);
        assert!(is_good, "{said}");
        hosts.stop(host);
        hosts.start(host);
        hosts.wait_placed(host);
        hosts.wait_streaming(2);
    }
}
