//! Hosts that are network namespaces, joined by a bridge in one more: each has an address of its own, and so has this
//! test. Links between two of them can be cut, one way too; nobody is told, as with a cable.
//!
//! A cut is a wrong hardware address in the sender's table of neighbours: what it sends goes to nobody.

use std::{
    net::Ipv4Addr,
    process::{Command, Stdio},
    sync::atomic::{AtomicU8, Ordering},
};

use nix::unistd::Uid;
use sluice_testkit::{eventually, proc};

/// The hardware address that nobody has.
const NOBODY: &str = "02:00:00:00:00:ff";

/// The number of this test among the hosts.
const TEST: u8 = 100;

/// Hosts on one network. Dropping it ends all of their processes.
#[derive(Debug)]
pub(crate) struct Network {
    name: String,
    hosts: usize,
    base: [u8; 3],
}

impl Network {
    /// So many hosts; none where this is not allowed, and then it says so.
    pub(crate) fn new(hosts: usize) -> Option<Self> {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        if !Uid::effective().is_root() {
            eprintln!("skipped: network namespaces take root");
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let base = [10, 64 + (pid % 128) as u8, ((pid / 128) % 25) as u8 * 10 + number];
        let network = Self { name: format!("sl{pid}-{number}"), hosts, base };
        if let Err(why) = network.build() {
            eprintln!("skipped: this machine allows no network namespaces: {why}");
            return None;
        }
        Some(network)
    }

    fn build(&self) -> Result<(), String> {
        let bridge = self.namespace_of_bridge();
        ip(&["netns", "add", &bridge])?;
        ip(&["-n", &bridge, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &bridge, "link", "set", "br0", "up"])?;
        for host in 0..self.hosts {
            let namespace = self.namespace(host);
            ip(&["netns", "add", &namespace])?;
            let address = format!("address {} ", hardware(host as u8));
            let port = format!("port{host}");
            let link = format!("-n {namespace} link add eth0 {address}type veth peer name {port} netns {bridge}");
            ip(&words(&link))?;
            ip(&words(&format!("-n {namespace} addr add {}/24 dev eth0", self.address(host))))?;
            ip(&words(&format!("-n {namespace} link set lo up")))?;
            ip(&words(&format!("-n {namespace} link set eth0 up")))?;
            self.plug(&port)?;
        }
        let (own, address) = (self.own_link(), hardware(TEST));
        ip(&words(&format!("link add {own} address {address} type veth peer name porttest netns {bridge}")))?;
        ip(&words(&format!("addr add {}/24 dev {own}", self.test_address())))?;
        ip(&words(&format!("link set {own} up")))?;
        self.plug("porttest")?;
        for from in 0..self.hosts {
            for to in 0..self.hosts {
                self.reach(from, to, &hardware(to as u8))?;
            }
        }
        Ok(())
    }

    fn plug(&self, port: &str) -> Result<(), String> {
        let bridge = self.namespace_of_bridge();
        ip(&words(&format!("-n {bridge} link set {port} master br0 up")))
    }

    fn reach(&self, from: usize, to: usize, hardware: &str) -> Result<(), String> {
        if from == to {
            return Ok(());
        }
        let (namespace, address) = (self.namespace(from), self.address(to));
        ip(&words(&format!("-n {namespace} neigh replace {address} lladdr {hardware} dev eth0 nud permanent")))
    }

    fn namespace_of_bridge(&self) -> String {
        format!("{}-bridge", self.name)
    }

    fn namespace(&self, host: usize) -> String {
        format!("{}-host{host}", self.name)
    }

    fn own_link(&self) -> String {
        self.name.clone()
    }

    /// A host's address.
    pub(crate) fn address(&self, host: usize) -> Ipv4Addr {
        let [a, b, c] = self.base;
        Ipv4Addr::new(a, b, c, host as u8 + 1)
    }

    /// That of this test, from which its clients and pools come.
    pub(crate) fn test_address(&self) -> Ipv4Addr {
        let [a, b, c] = self.base;
        Ipv4Addr::new(a, b, c, TEST + 1)
    }

    /// A command that runs on a host.
    pub(crate) fn command(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host), program]);
        command
    }

    /// Cuts what one host sends to another one.
    pub(crate) fn cut_one_way(&self, from: usize, to: usize) {
        self.reach(from, to, NOBODY).unwrap();
    }

    /// Cuts two hosts off from each other.
    pub(crate) fn cut(&self, one: usize, other: usize) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    /// Mends that.
    pub(crate) fn mend(&self, one: usize, other: usize) {
        self.reach(one, other, &hardware(other as u8)).unwrap();
        self.reach(other, one, &hardware(one as u8)).unwrap();
    }

    /// The processes on a host.
    pub(crate) fn processes(&self, host: usize) -> Vec<u32> {
        let output = Command::new("ip").args(["netns", "pids", &self.namespace(host)]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Kills all of a host at once, as the loss of its power would.
    pub(crate) fn kill(&self, host: usize) {
        eventually("all processes of a host are gone", || {
            let left = self.processes(host);
            left.iter().for_each(|pid| proc::try_send(*pid, proc::Kind::SIGKILL));
            left.is_empty()
        });
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in 0..self.hosts {
            for pid in self.processes(host) {
                proc::try_send(pid, proc::Kind::SIGKILL);
            }
        }
        let namespaces = (0..self.hosts).map(|host| self.namespace(host)).chain([self.namespace_of_bridge()]);
        for namespace in namespaces {
            // One that was not made, since the one before could not be.
            let _ = ip(&["netns", "del", &namespace]);
        }
        // It goes with the bridge; if that was not made, it has to be removed.
        let _ = ip(&["link", "del", &self.own_link()]);
    }
}

fn hardware(host: u8) -> String {
    format!("02:00:00:00:00:{:02x}", host + 1)
}

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output().map_err(|it| it.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("ip {}: {said}", arguments.join(" "))) }
}
