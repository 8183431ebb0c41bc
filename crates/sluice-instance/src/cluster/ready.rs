//! Waiting for etcd's majority, for a leader, and for all nodes. Each wait has a deadline, and its error shows the logs.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{Cluster, ClusterError, LogEnd, Member, Members, Node};
use crate::{disk, event::Event};

const POLL: Duration = Duration::from_millis(100);
const TELL_EVERY: Duration = Duration::from_secs(2);
/// A node answers at once, or not soon.
const ASK_TIME_MAX: Duration = Duration::from_secs(2);
/// The reason why nothing comes up in a cluster that somebody has put into maintenance, and the remedy.
pub(super) const PAUSED: &str = "\
the cluster is paused (maintenance), so Patroni starts no PostgreSQL that has been stopped: sluice cluster resume ends that";
/// The time for all nodes to come, before clients are let in without one of them.
const ONE_MISSING: Duration = Duration::from_secs(30);
/// Errors that end with the first start by themselves are told only after that.
const EARLY: Duration = Duration::from_secs(30);
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
        let mut stuck: Option<Instant> = None;
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
            stuck = stuck.or_else(|| Some(Instant::now())).filter(|_| self.lacks_last_primary(&members));
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                let full = disk::full(self.data_dir.root());
                let is_stuck = full.is_none() && stuck.is_some_and(|since| since.elapsed() >= ONE_MISSING);
                let error = full.or_else(|| self.last_error(begin.elapsed() < EARLY));
                let members = said_while(&members, error, is_stuck);
                self.observer.event(Event::ClusterWaiting { waited: begin.elapsed(), members });
            }
            thread::sleep(POLL);
        }
    }

    /// Shows the logs of those that fail; or of those that are not in their place; or of all.
    fn not_ready(&self, members: &Members, waited: Duration) -> ClusterError {
        let in_place = |name: &str| {
            let mut found = members.members.iter().filter(|member| member.name == name);
            found.any(Member::is_up)
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

    fn lacks_last_primary(&self, members: &Members) -> bool {
        lacks_last_primary(members, self.nodes.iter().map(|node| &*node.name))
    }

    /// The last error in the nodes' logs.
    fn last_error(&self, is_early: bool) -> Option<String> {
        let ends = self.keepers.iter().filter_map(|keeper| keeper.patroni.log_end());
        let mut errors = ends.filter_map(|end| Some((end.tail.last_error(is_early)?, end.log)));
        errors.next().map(|(error, log)| format!("the last error in {}: {}", log.display(), error.replace('\n', "; ")))
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

/// The same, with the last error of their logs, and with what to do where they have been without the last primary for
/// longer than an election takes.
fn said_while(members: &Members, error: Option<String>, is_stuck: bool) -> String {
    const STUCK: &str =
        "; behind a stop Patroni takes the last primary only: where that is gone for good, sluice cluster failover";
    let error = error.map_or_else(String::new, |error| format!("; {error}"));
    format!("{}{error}{}", said(members), if is_stuck { STUCK } else { "" })
}

/// Whether the nodes that run are standbys, all of them, and another one does not run, nor is about to.
fn lacks_last_primary<'a>(members: &Members, mut nodes: impl Iterator<Item = &'a str>) -> bool {
    let is_up = |member: &&Member| member.is_up() || member.state == "in archive recovery";
    let is_gone = |name: &str| {
        let mut found = members.members.iter().filter(|member| member.name == name);
        found.next().is_none_or(|member| !is_up(&member) && !member.state.contains("starting"))
    };
    let is_led = members.pause || members.leader().is_some();
    !is_led && members.members.iter().any(|member| is_up(&member)) && nodes.any(is_gone)
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

    fn of(members: &[(&str, &str, &str)]) -> Members {
        let member = |(name, role, state): &(&str, &str, &str)| {
            format!(r#"{{"name": "{name}", "role": "{role}", "state": "{state}"}}"#)
        };
        let members: Vec<_> = members.iter().map(member).collect();
        serde_json::from_str(&format!(r#"{{"members": [{}]}}"#, members.join(", "))).unwrap()
    }

    #[test]
    fn who_waits_for_a_primary_is_told_how_to_choose_one() {
        let lacks = |members: &Members| lacks_last_primary(members, ["a", "b", "c"].into_iter());
        let standbys = [("b", "replica", "running"), ("c", "replica", "running")];
        assert!(lacks(&of(&standbys)));
        let with = |first| of(&[&[first][..], &standbys].concat());
        assert!(lacks(&with(("a", "replica", "stopped"))));
        // It comes up, or all are there, and one of them is about to be elected.
        assert!(!lacks(&with(("a", "replica", "starting"))) && !lacks(&with(("a", "replica", "running"))));
        assert!(!lacks(&with(("a", "leader", "running"))) && !lacks(&Members::default()));
        assert!(!lacks(&of(&[("a", "replica", "stopped"), ("b", "replica", "stopped")])));

        let members = of(&standbys);
        assert!(said_while(&members, None, true).ends_with("sluice cluster failover"));
        assert_eq!(said_while(&members, None, false), said(&members));
        let said = said_while(&members, Some("the disk of /data is full".to_owned()), false);
        assert!(said.ends_with("; the disk of /data is full"), "{said}");
    }
}
