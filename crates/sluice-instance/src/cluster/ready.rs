//! Waiting for etcd's majority, for a leader, and for all nodes. Each wait has a deadline, and its error shows the logs.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{Cluster, ClusterError, LogEnd, Members, Node};
use crate::event::Event;

const POLL: Duration = Duration::from_millis(100);
const TELL_EVERY: Duration = Duration::from_secs(2);
/// A node answers at once, or not soon.
const ASK_TIME_MAX: Duration = Duration::from_secs(2);
/// The reason why nothing comes up in a cluster that somebody has put into maintenance, and the remedy.
pub(super) const PAUSED: &str = "\
the cluster is paused (maintenance), so Patroni starts no PostgreSQL that has been stopped: sluice cluster resume ends that";
/// The time for all nodes to come, before clients are let in without one of them.
const ONE_MISSING: Duration = Duration::from_secs(30);
/// A program that ends by itself so often in a row will not come up.
const FAILURES_MAX: u32 = 5;

impl Cluster {
    /// The nodes as the first that answers knows them; none if none does.
    pub fn look(&self) -> Members {
        let answers = self.nodes.iter().filter_map(|node| self.api.members(node.rest, ASK_TIME_MAX).ok());
        answers.into_iter().next().unwrap_or_default()
    }

    /// The leader, once it runs as one.
    pub fn leader(&self) -> Option<usize> {
        self.leader_of(&self.look())
    }

    /// The node that leads. Others call a node that is gone the leader for as long as its lease: it is asked itself. It
    /// has the lease before its PostgreSQL has been promoted.
    fn leader_of(&self, members: &Members) -> Option<usize> {
        let leader = members.leader()?;
        self.nodes.iter().position(|node| node.name == leader && self.is_in_place(node, true))
    }

    pub(super) fn wait_majority(&self, deadline: Instant) -> Result<(), ClusterError> {
        let begin = Instant::now();
        loop {
            self.check_wanted()?;
            let healthy = self.members.iter().filter(|member| member.is_healthy()).count();
            if healthy > self.members.len() / 2 {
                return Ok(());
            }
            let failed = self.etcds.iter().filter(|etcd| etcd.failures() >= FAILURES_MAX).count();
            if Instant::now() >= deadline || failed > (self.members.len() - 1) / 2 {
                let logs = self.etcds.iter().zip(&self.members).filter(|(_, member)| !member.is_healthy());
                return Err(ClusterError::NoMajority {
                    healthy,
                    members: self.members.len(),
                    waited: begin.elapsed(),
                    logs: logs.filter_map(|(etcd, _)| etcd.log_end()).collect(),
                });
            }
            thread::sleep(POLL);
        }
    }

    /// Waits for a leader; returns which node it is.
    pub fn wait_leader(&self, deadline: Instant) -> Result<usize, ClusterError> {
        self.wait(deadline, self.spare(), |members| self.leader_of(members))
    }

    /// The number of nodes without which commits are acknowledged.
    fn spare(&self) -> usize {
        (self.nodes.len() - 1) / 2
    }

    /// Waits until there is a leader, each other node streams from it, and as many are synchronous as there can be. Each is
    /// asked itself what it is: a former leader that was stopped and goes on says for a moment what was so before.
    pub fn wait_ready(&self, deadline: Instant) -> Result<Members, ClusterError> {
        self.wait(deadline, 0, |members| {
            let leader = self.leader_of(members)?;
            self.are_in_place(members, leader).then(|| members.clone())
        })
    }

    fn are_in_place(&self, members: &Members, leader: usize) -> bool {
        let mut nodes = self.nodes.iter().enumerate();
        members.synchronous() >= self.nodes.len() - 1
            && nodes.all(|(index, node)| self.is_in_place(node, index == leader))
    }

    /// The same; but where one node does not come, clients are not kept waiting for that: commits are acknowledged with a
    /// leader and half of the others.
    pub(super) fn wait_service(&self, deadline: Instant) -> Result<Members, ClusterError> {
        let standbys = self.nodes.len() - 1;
        let begin = Instant::now();
        self.wait(deadline, self.spare(), |members| {
            let leader = self.leader_of(members)?;
            let is_enough = begin.elapsed() >= ONE_MISSING && members.synchronous() >= standbys / 2;
            (is_enough || self.are_in_place(members, leader)).then(|| members.clone())
        })
    }

    /// Waits as long as no more than so many nodes fail again and again.
    fn wait<T>(
        &self,
        deadline: Instant,
        spare: usize,
        done: impl Fn(&Members) -> Option<T>,
    ) -> Result<T, ClusterError> {
        let begin = Instant::now();
        let mut told = begin;
        loop {
            self.check_wanted()?;
            let members = self.look();
            if let Some(found) = done(&members) {
                return Ok(found);
            }
            let failed = self.keepers.iter().filter(|keeper| keeper.patroni.failures() >= FAILURES_MAX).count();
            if Instant::now() >= deadline || failed > spare {
                return Err(self.not_ready(&members, begin.elapsed()));
            }
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                let waited = begin.elapsed();
                self.observer.event(Event::ClusterWaiting { waited, members: said_after(&members, waited) });
            }
            thread::sleep(POLL);
        }
    }

    /// Shows the logs of those that fail; or of those that are not in their place; or of all.
    fn not_ready(&self, members: &Members, waited: Duration) -> ClusterError {
        let in_place = |name: &str| {
            let mut found = members.members.iter().filter(|member| member.name == name);
            found.any(|member| matches!(&*member.state, "running" | "streaming"))
        };
        let shown = |choose: &dyn Fn(usize) -> bool| -> Vec<LogEnd> {
            let nodes = self.keepers.iter().enumerate().filter(|(index, _)| choose(*index));
            nodes.filter_map(|(_, keeper)| keeper.patroni.log_end()).collect()
        };
        let failing = shown(&|index| self.keepers[index].patroni.failures() > 0);
        let missing = shown(&|index| !in_place(&self.nodes[index].name));
        let logs = [failing, missing].into_iter().find(|logs| !logs.is_empty());
        let logs = logs.unwrap_or_else(|| shown(&|_| true));
        ClusterError::NotReady { waited, said: said(members), logs }
    }

    fn is_in_place(&self, node: &Node, is_leader: bool) -> bool {
        let own = self.api.own(node.rest, ASK_TIME_MAX);
        own.is_ok_and(|own| own.state == "running" && (own.role == "primary") == is_leader)
    }
}

/// The last words of the nodes, and why they stay as they are, where that is known.
fn said(members: &Members) -> String {
    if members.pause { format!("{members}; {PAUSED}") } else { members.to_string() }
}

/// The same, and what to do where they have been without a primary for longer than an election takes.
fn said_after(members: &Members, waited: Duration) -> String {
    let is_stuck = waited >= ONE_MISSING && !members.pause && members.leader().is_none();
    if !is_stuck || members.members.is_empty() {
        return said(members);
    }
    format!(
        "{members}; behind a stop Patroni takes the last primary only: where that is gone for good, sluice cluster failover"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_said_to_be_the_reason() {
        let waits = Members { pause: true, ..Members::default() };
        assert!(said(&waits).ends_with("sluice cluster resume ends that"), "{}", said(&waits));
        assert_eq!(said(&Members::default()), "no node has told anything yet");
    }

    #[test]
    fn who_waits_for_a_primary_is_told_how_to_choose_one() {
        let late = Duration::from_secs(40);
        let of = |role: &str| {
            let member = format!(r#"{{"members": [{{"name": "b", "role": "{role}", "state": "running"}}]}}"#);
            serde_json::from_str::<Members>(&member).unwrap()
        };
        assert!(said_after(&of("replica"), late).ends_with("sluice cluster failover"));
        for (members, waited) in [(of("leader"), late), (of("replica"), ONE_MISSING / 2), (Members::default(), late)] {
            assert_eq!(said_after(&members, waited), said(&members));
        }
    }
}
