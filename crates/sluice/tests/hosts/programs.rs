//! A host's programs: which processes they are, and how they are ended, or stopped where they are.

use std::{
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use sluice_testkit::{eventually, proc};

use crate::{
    hosts::{Hosts, PATIENCE, name},
    ledger::Servers,
};

/// Prints which of these hosts has etcd's leader, by its own word.
const LEADER: &str = "\
import json, ssl, sys, urllib.request
ca, own = sys.argv[1:3]
context = ssl.create_default_context(cafile=ca)
context.load_cert_chain(own + '/node.crt', own + '/node.key')
for place, host in enumerate(sys.argv[3:]):
    request = urllib.request.Request(f'https://{host}:2379/v3/maintenance/status', data=b'{}')
    try: answer = json.load(urllib.request.urlopen(request, context=context, timeout=2))
    except OSError: continue
    # One that knows of no leader leaves it out.
    if answer.get('leader') == answer['header']['member_id']: print(place)
";

/// Time for processes to die that do not wait for a disk.
const DEATH_TIME: Duration = Duration::from_millis(500);

/// A program of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// The one that keeps the others.
    Sluice,
    Etcd,
    Patroni,
    Postmaster,
}

impl Program {
    fn comm(self) -> &'static str {
        match self {
            Self::Sluice => "sluice",
            Self::Etcd => "etcd",
            Self::Patroni => "python",
            Self::Postmaster => "postgres",
        }
    }
}

impl Hosts {
    /// The process of a program, if it runs: the one that no other one of its name has started.
    pub(crate) fn pid(&self, host: usize, program: Program) -> Option<u32> {
        let is_it = |pid: u32| comm(pid).starts_with(program.comm());
        let mut found = self.network.processes(host).into_iter();
        found.find(|pid| is_it(*pid) && !parent(*pid).is_some_and(is_it))
    }

    /// Sends a signal to a program, if it runs.
    pub(crate) fn send(&self, host: usize, program: Program, signal: proc::Kind) {
        self.pid(host, program).iter().for_each(|pid| proc::try_send(*pid, signal));
    }

    /// The processes of PostgreSQL on a host.
    pub(crate) fn postgres(&self, host: usize) -> Vec<u32> {
        let processes = self.network.processes(host);
        processes.into_iter().filter(|pid| comm(*pid).starts_with(Program::Postmaster.comm())).collect()
    }

    /// Stops all of a host where it is.
    pub(crate) fn freeze(&self, host: usize) {
        // Who was started meanwhile is there at the second look.
        for _ in 0..2 {
            self.network.processes(host).into_iter().for_each(|pid| proc::try_send(pid, proc::Kind::SIGSTOP));
        }
    }

    /// Has all of a host go on.
    pub(crate) fn thaw(&self, host: usize) {
        self.network.processes(host).into_iter().for_each(|pid| proc::try_send(pid, proc::Kind::SIGCONT));
    }

    /// Kills all of a host. It does not wait for those who wait for its disk.
    pub(crate) fn lose(&self, host: usize) {
        let begin = Instant::now();
        while self.network.strike(host) > 0 && begin.elapsed() < DEATH_TIME {
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts a host that was lost, or whose program has ended by itself, as systemd would. False if it runs.
    pub(crate) fn start_again(&self, host: usize) -> bool {
        if self.is_running(host) {
            return false;
        }
        self.kill(host);
        self.start(host);
        true
    }

    /// Waits until all programs run.
    pub(crate) fn wait_whole(&self) {
        let of_data = [Program::Sluice, Program::Etcd, Program::Patroni, Program::Postmaster];
        for host in 0..self.count() {
            let programs = if host < self.nodes() { &of_data[..] } else { &of_data[..2] };
            eventually("all programs of a host run", || {
                if self.start_again(host) {
                    println!("{} had ended by itself behind the faults", name(host));
                }
                programs.iter().all(|program| self.pid(host, *program).is_some())
            });
        }
    }

    /// The host of etcd's leader, once there is one.
    pub(crate) fn etcd_leader(&self) -> usize {
        let begin = Instant::now();
        loop {
            let mut python = Command::new("python3");
            python.args(["-c", LEADER]).args([self.ca("ca.crt"), self.ca(&name(0))]).stdin(Stdio::null());
            python.args((0..self.count()).map(|host| self.network.address(host).to_string()));
            let said = python.output().unwrap();
            assert!(said.status.success(), "{said:?}");
            if let Ok(leader) = String::from_utf8(said.stdout).unwrap().trim().parse() {
                return leader;
            }
            assert!(begin.elapsed() < PATIENCE, "etcd has no leader: {}", self.all_said());
        }
    }
}

fn comm(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which is in parentheses: the state, and the parent.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
