//! Hosts that are network namespaces, joined by a bridge in one more: each has an address of its own, and so has this
//! test. Links between two of them can be cut, one way too; nobody is told, as with a cable.
//!
//! A cut is a wrong hardware address in the sender's table of neighbours: what it sends goes to nobody.

use std::{
    fs::{self, File},
    net::Ipv4Addr,
    process::{Command, Stdio},
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use nix::{
    sched::{CloneFlags, setns},
    sys::socket::{setsockopt, sockopt},
    unistd::Uid,
};

use crate::{Raw, eventually, proc};

/// The hardware address that nobody has.
const NOBODY: &str = "02:00:00:00:00:ff";

/// This test among the hosts.
pub const TEST: usize = 100;

/// The state of a connection in the kernel's table (`TCP_ESTABLISHED`).
const ESTABLISHED: &str = "01";

/// Hosts on one network. Dropping it ends all of their processes.
#[derive(Debug)]
pub struct Network {
    name: String,
    hosts: usize,
    base: [u8; 3],
}

impl Network {
    /// So many hosts; none where this is not allowed, and then it says so.
    pub fn new(hosts: usize) -> Option<Self> {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        if !Uid::effective().is_root() {
            eprintln!("skipped: network namespaces take root");
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        remove_left();
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
            let address = format!("address {} ", hardware(host));
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
        let all = || (0..self.hosts).chain([TEST]);
        for (from, to) in all().flat_map(|from| all().map(move |to| (from, to))) {
            self.reach(from, to, &hardware(to))?;
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
        let address = self.address(to);
        let (namespace, device) = match from {
            TEST => (String::new(), self.own_link()),
            host => (format!("-n {} ", self.namespace(host)), "eth0".to_owned()),
        };
        ip(&words(&format!("{namespace}neigh replace {address} lladdr {hardware} dev {device} nud permanent")))
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
    pub fn address(&self, host: usize) -> Ipv4Addr {
        let [a, b, c] = self.base;
        Ipv4Addr::new(a, b, c, host as u8 + 1)
    }

    /// The address of this test, from which its clients and pools come.
    pub fn test_address(&self) -> Ipv4Addr {
        self.address(TEST)
    }

    /// All of its addresses, as a rule of access has them.
    pub fn addresses(&self) -> String {
        let [a, b, c] = self.base;
        format!("{a}.{b}.{c}.0/24")
    }

    /// A command that runs on a host.
    pub fn command(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host), program]);
        command
    }

    /// Runs something on a host: the sockets that it makes, and the threads and processes that it starts, are there.
    pub fn within<T>(&self, host: usize, run: impl FnOnce() -> T) -> T {
        struct Back(File);
        impl Drop for Back {
            fn drop(&mut self) {
                setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
            }
        }
        if host == TEST {
            return run();
        }
        let there = File::open(format!("/var/run/netns/{}", self.namespace(host))).unwrap();
        let _back = Back(File::open("/proc/thread-self/ns/net").unwrap());
        setns(there, CloneFlags::CLONE_NEWNET).unwrap();
        run()
    }

    /// The connections that one host has with another one, as the first one takes it.
    pub fn connections(&self, of: usize, with: usize) -> usize {
        let table = self.within(of, || fs::read_to_string("/proc/thread-self/net/tcp").unwrap());
        let address = format!("{:08X}:", u32::from_ne_bytes(self.address(with).octets()));
        let is_with = |line: &&str| {
            let mut fields = line.split_whitespace().skip(2);
            fields.next().is_some_and(|remote| remote.starts_with(&address)) && fields.next() == Some(ESTABLISHED)
        };
        table.lines().filter(is_with).count()
    }

    /// Cuts what one host sends to another one.
    pub fn cut_one_way(&self, from: usize, to: usize) {
        self.reach(from, to, NOBODY).unwrap();
    }

    /// Mends that.
    pub fn mend_one_way(&self, from: usize, to: usize) {
        self.reach(from, to, &hardware(to)).unwrap();
    }

    /// Cuts the members of etcd off from each other, and hosts from others' members; all else goes on.
    pub fn cut_etcd(&self) {
        self.rules_of_etcd("add").unwrap();
    }

    /// Mends that.
    pub fn mend_etcd(&self) {
        self.rules_of_etcd("del").unwrap();
    }

    fn rules_of_etcd(&self, change: &str) -> Result<(), String> {
        for (host, port) in (0..self.hosts).flat_map(|host| [(host, 2379), (host, 2380)]) {
            // What goes to a host's own address does not come to these rules.
            let namespace = self.namespace(host);
            ip(&words(&format!("-n {namespace} rule {change} ipproto tcp dport {port} blackhole")))?;
        }
        Ok(())
    }

    /// Cuts two hosts off from each other.
    pub fn cut(&self, one: usize, other: usize) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    /// Mends that.
    pub fn mend(&self, one: usize, other: usize) {
        self.mend_one_way(one, other);
        self.mend_one_way(other, one);
    }

    /// The processes on a host.
    pub fn processes(&self, host: usize) -> Vec<u32> {
        let output = Command::new("ip").args(["netns", "pids", &self.namespace(host)]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Kills all of a host at once, as the loss of its power would.
    pub fn kill(&self, host: usize) {
        eventually("all processes of a host are gone", || self.strike(host) == 0);
    }

    /// Sends SIGKILL to all that is there of a host; returns how many that were. Who waits for a disk dies later.
    pub fn strike(&self, host: usize) -> usize {
        let left = self.processes(host);
        left.iter().for_each(|pid| proc::try_send(*pid, proc::Kind::SIGKILL));
        left.len()
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

impl Raw {
    /// Has the kernel end the connection when its peer has not answered for so long, asked every second.
    pub fn impatient(self, time: Duration) -> Self {
        let stream = self.stream.tcp().expect("only by TCP");
        setsockopt(stream, sockopt::TcpUserTimeout, &(time.as_millis() as u32)).unwrap();
        setsockopt(stream, sockopt::KeepAlive, &true).unwrap();
        setsockopt(stream, sockopt::TcpKeepIdle, &1).unwrap();
        setsockopt(stream, sockopt::TcpKeepInterval, &1).unwrap();
        self
    }
}

/// Removes what tests have left that were killed.
fn remove_left() {
    let listed = Command::new("ip").args(["netns", "list"]).output().map(|it| it.stdout).unwrap_or_default();
    let listed = String::from_utf8_lossy(&listed).into_owned();
    for namespace in listed.lines().filter_map(|line| line.split_whitespace().next()) {
        let pid = namespace.strip_prefix("sl").and_then(|rest| rest.split_once('-')?.0.parse::<u32>().ok());
        if pid.is_none_or(proc::is_alive) {
            continue;
        }
        let pids = Command::new("ip").args(["netns", "pids", namespace]).output().map(|it| it.stdout);
        for pid in String::from_utf8_lossy(&pids.unwrap_or_default()).split_whitespace() {
            pid.parse().iter().for_each(|pid| proc::try_send(*pid, proc::Kind::SIGKILL));
        }
        // Another test may just be doing so as well.
        let _ = ip(&["netns", "del", namespace]);
    }
}

fn hardware(host: usize) -> String {
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
