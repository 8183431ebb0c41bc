//! The beginning and the end of each fault of a plan.

use std::{process::Command, thread};

use sluice_testkit::{Driver, TestPool, network::TEST, proc};

use super::plan::{Fault, Plan, Whom};
use crate::{
    SETTLING, SLUICE,
    disk::Disk,
    hosts::{Hosts, name},
    ledger::Servers,
    programs::Program,
};

/// The longest time that a write takes on a slow disk.
const SLOW_WRITE: std::time::Duration = std::time::Duration::from_millis(250);

/// The things that the faults of one plan are about.
pub(super) struct Faults<'a> {
    hosts: &'a Hosts,
    plan: &'a Plan,
    primary: usize,
    standby: usize,
    /// Members of etcd: one, and the majority that it is of.
    members: [usize; 2],
    /// The leader of etcd, if it is of interest.
    etcd_leader: Option<usize>,
}

impl<'a> Faults<'a> {
    pub(super) fn new(hosts: &'a Hosts, plan: &'a Plan) -> Self {
        let primary = hosts.leader();
        let standbys: Vec<usize> = (0..hosts.nodes()).filter(|host| *host != primary).collect();
        let standby = standbys[plan.which % standbys.len()];
        let count = hosts.count();
        let members = [plan.which % count, (plan.which + 1) % count];
        let is_of_leader = |fault| matches!(fault, Fault::EtcdLeaderKilled | Fault::EtcdLeaderFrozen);
        let etcd_leader = plan.has(is_of_leader).then(|| hosts.etcd_leader());
        Self { hosts, plan, primary, standby, members, etcd_leader }
    }

    /// They happen, and are over. A pool that was killed is another one then.
    pub(super) fn happen(&self, pool: &mut TestPool, driver: Driver) {
        for (place, fault) in self.plan.faults.iter().enumerate() {
            if place > 0 {
                thread::sleep(self.plan.apart);
            }
            self.begin(*fault, pool);
        }
        thread::sleep(SETTLING + self.plan.lasts);
        for (place, fault) in self.plan.faults.iter().enumerate() {
            if place > 0 {
                thread::sleep(self.plan.apart);
            }
            self.end(*fault, pool, driver);
        }
    }

    fn host(&self, whom: Whom) -> usize {
        match whom {
            Whom::Primary => self.primary,
            Whom::Standby => self.standby,
        }
    }

    fn disk(&self, whom: Whom) -> &Disk {
        self.hosts.disk(self.host(whom)).expect("it is not planned where hosts have no disks")
    }

    fn others(&self, host: usize) -> impl Iterator<Item = usize> {
        (0..self.hosts.count()).filter(move |other| *other != host)
    }

    /// The other end of a link that is cut: of a standby's, it is another standby, or a witness.
    fn other_end(&self, host: usize) -> usize {
        let others: Vec<usize> = self.others(host).filter(|other| *other != self.primary).collect();
        others[self.plan.which % others.len()]
    }

    fn begin(&self, fault: Fault, pool: &mut TestPool) {
        let (hosts, network) = (self.hosts, &self.hosts.network);
        match fault {
            Fault::PostmasterKilled(whom) => hosts.send(self.host(whom), Program::Postmaster, proc::Kind::SIGKILL),
            Fault::PatroniKilled(whom) => hosts.send(self.host(whom), Program::Patroni, proc::Kind::SIGKILL),
            Fault::SluiceKilled(whom) => hosts.send(self.host(whom), Program::Sluice, proc::Kind::SIGKILL),
            Fault::HostLost(whom) => hosts.lose(self.host(whom)),
            Fault::PostgresFrozen(whom) => signal(&hosts.postgres(self.host(whom)), proc::Kind::SIGSTOP),
            Fault::PatroniFrozen(whom) => hosts.send(self.host(whom), Program::Patroni, proc::Kind::SIGSTOP),
            Fault::HostFrozen(whom) => hosts.freeze(self.host(whom)),
            Fault::CutOff(whom) => self.others(self.host(whom)).for_each(|other| network.cut(self.host(whom), other)),
            Fault::Unheard(whom) => {
                self.others(self.host(whom)).for_each(|other| network.cut_one_way(self.host(whom), other));
            }
            Fault::Deaf(whom) => {
                self.others(self.host(whom)).for_each(|other| network.cut_one_way(other, self.host(whom)));
            }
            Fault::Unplugged(whom) => {
                self.others(self.host(whom)).for_each(|other| network.cut(self.host(whom), other));
                network.cut(self.host(whom), TEST);
            }
            Fault::LinkCut(whom) => network.cut(self.host(whom), self.other_end(self.host(whom))),
            Fault::DiskFull(whom) => self.disk(whom).fill(),
            Fault::DiskSlow(whom) => self.disk(whom).slow(SLOW_WRITE),
            Fault::DiskStalled(whom) => self.disk(whom).stall(),
            Fault::EtcdMemberFrozen => hosts.send(self.members[0], Program::Etcd, proc::Kind::SIGSTOP),
            Fault::EtcdLeaderKilled => self.send_etcd_leader(proc::Kind::SIGKILL),
            Fault::EtcdLeaderFrozen => self.send_etcd_leader(proc::Kind::SIGSTOP),
            Fault::EtcdMajorityFrozen => {
                self.members.iter().for_each(|host| hosts.send(*host, Program::Etcd, proc::Kind::SIGSTOP));
            }
            Fault::EtcdCut => network.cut_etcd(),
            Fault::AllCut => self.pairs().for_each(|(one, other)| network.cut(one, other)),
            Fault::PoolKilled => pool.kill(),
            Fault::Switchover => self.switch_over(),
        }
    }

    fn end(&self, fault: Fault, pool: &mut TestPool, driver: Driver) {
        let (hosts, network) = (self.hosts, &self.hosts.network);
        match fault {
            Fault::PostmasterKilled(_) | Fault::PatroniKilled(_) | Fault::EtcdLeaderKilled | Fault::Switchover => {}
            // A lost host is started again when it can be.
            Fault::SluiceKilled(_) | Fault::HostLost(_) => {}
            Fault::PostgresFrozen(whom) => signal(&hosts.postgres(self.host(whom)), proc::Kind::SIGCONT),
            Fault::PatroniFrozen(whom) => hosts.send(self.host(whom), Program::Patroni, proc::Kind::SIGCONT),
            Fault::HostFrozen(whom) => hosts.thaw(self.host(whom)),
            Fault::CutOff(whom) | Fault::Unheard(whom) | Fault::Deaf(whom) => self.mend(self.host(whom)),
            Fault::Unplugged(whom) => {
                self.mend(self.host(whom));
                network.mend(self.host(whom), TEST);
            }
            Fault::LinkCut(whom) => network.mend(self.host(whom), self.other_end(self.host(whom))),
            Fault::DiskFull(whom) => self.disk(whom).empty(),
            Fault::DiskSlow(whom) | Fault::DiskStalled(whom) => self.disk(whom).answer(),
            Fault::EtcdMemberFrozen => hosts.send(self.members[0], Program::Etcd, proc::Kind::SIGCONT),
            Fault::EtcdLeaderFrozen => self.send_etcd_leader(proc::Kind::SIGCONT),
            Fault::EtcdMajorityFrozen => {
                self.members.iter().for_each(|host| hosts.send(*host, Program::Etcd, proc::Kind::SIGCONT));
            }
            Fault::EtcdCut => network.mend_etcd(),
            Fault::AllCut => self.pairs().for_each(|(one, other)| network.mend(one, other)),
            Fault::PoolKilled => {
                let port = pool.address().port();
                *pool = hosts.pool_config(driver).port(port).start();
            }
        }
    }

    /// Starts hosts that are down, as systemd would; says which were not to be.
    pub(super) fn start_again(&self) {
        for host in 0..self.hosts.count() {
            let is_killed = |fault| match fault {
                Fault::SluiceKilled(whom) | Fault::HostLost(whom) => self.host(whom) == host,
                _ => false,
            };
            let said = self.hosts.said(host);
            if self.hosts.start_again(host) && !self.plan.has(is_killed) {
                println!("{} had ended by itself:\n{said}", name(host));
            }
        }
    }

    fn mend(&self, host: usize) {
        self.others(host).for_each(|other| self.hosts.network.mend(host, other));
    }

    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let count = self.hosts.count();
        (0..count).flat_map(move |one| (one + 1..count).map(move |other| (one, other)))
    }

    fn send_etcd_leader(&self, signal: proc::Kind) {
        let leader = self.etcd_leader.expect("it was looked for");
        self.hosts.send(leader, Program::Etcd, signal);
    }

    fn switch_over(&self) {
        let mut switchover = Command::new(SLUICE);
        switchover.args(["cluster", "switchover", "--to", &name(self.standby), "--data"]);
        let said = switchover.arg(self.hosts.data(self.primary)).output().unwrap();
        if !said.status.success() {
            // It may be refused, where something else is in its way.
            println!("a switchover: {}", String::from_utf8_lossy(&said.stderr).trim());
        }
    }
}

fn signal(processes: &[u32], signal: proc::Kind) {
    processes.iter().for_each(|pid| proc::try_send(*pid, signal));
}
