//! A host: PostgreSQL, Patroni, and the survivor whose actions are carried out here.

use std::time::Duration;

use super::{
    etcd::Etcd,
    patroni::{LEADER, LEASE_MS, member_step, sync_value},
    state::{NODES, PORT, name, number},
    world::{Defect, World},
};
use crate::cluster::{
    etcd_api::Step,
    survivors::{
        machine::{Action, EndLease, Event, Survivor, Times, VOTE_TTL_SECONDS},
        view::{Addresses, Sight, Sign},
    },
};

/// Votes in a row that etcd may refuse: a lease ends there a little before its owner knows.
const REFUSALS_MAX: u32 = 4;

impl World {
    pub(super) fn begin(&mut self) {
        for node in 0..NODES {
            self.nodes[node].patroni.lease = self.etcd.grant(0, LEASE_MS);
        }
        let put = |key: &str, value: String, lease| Step::Put { key: format!("/service/main/{key}"), value, lease };
        let config = r#"{"synchronous_mode":"quorum","synchronous_mode_strict":true}"#;
        let leader = put("leader", name(0), Some(self.nodes[0].patroni.lease));
        let mut steps = vec![leader, put("sync", sync_value(0), None), put("config", config.to_owned(), None)];
        steps.extend((0..NODES).map(|node| member_step(node, self.nodes[node].patroni.lease)));
        self.etcd.transact(0, &[], &steps);
        for node in 0..NODES {
            let apart = self.rng.below(500);
            self.after(apart, move |world| {
                world.writes(node);
                world.connects(node);
                world.turns(node);
                world.watches(node);
                world.deliver(node, 0, Event::Woken);
            });
        }
    }

    /// The survivor is killed and started again; what it has asked for may still be done.
    pub(super) fn restart_agent(&mut self, node: usize) {
        let host = &mut self.nodes[node];
        host.run += 1;
        host.agent = Survivor::new(&name(node), NODES, Times::default());
        let run = host.run;
        self.note(format!("the survivor of node{} starts again", node + 1));
        self.deliver(node, run, Event::Woken);
    }

    fn deliver(&mut self, node: usize, run: u64, event: Event) {
        if self.nodes[node].run != run {
            return;
        }
        let until = self.nodes[node].agent_paused_until;
        if until > self.now {
            return self.after(until - self.now, move |world| world.deliver(node, run, event));
        }
        let now = self.time();
        let action = self.nodes[node].agent.step(now, event);
        self.carry_out(node, run, action);
    }

    fn carry_out(&mut self, node: usize, run: u64, action: Action) {
        match action {
            Action::Wait(time) => {
                self.after(millis(time).max(1), move |world| world.deliver(node, run, Event::Woken));
            }
            Action::Register => {
                let steps = self.keys.register(&name(node), &run.to_string()).to_vec();
                self.transact(node, Vec::new(), steps, move |world, outcome| {
                    let event = outcome.map(|outcome| Event::Registered { revision: outcome.revision });
                    world.deliver(node, run, event.unwrap_or(Event::Failed));
                });
            }
            Action::Look { primary, patience } => self.look(node, run, primary, millis(patience)),
            Action::View => {
                let steps = self.keys.read().to_vec();
                self.transact(node, Vec::new(), steps, move |world, outcome| {
                    let view = outcome.map(|outcome| world.keys.view(&outcome.found[0], &outcome.found[1]));
                    world.deliver(node, run, view.map_or(Event::Failed, Event::Viewed));
                });
            }
            Action::Grant => self.ask(
                node,
                |etcd, now| etcd.grant(now, u64::from(VOTE_TTL_SECONDS) * 1000),
                move |world, lease| {
                    world.deliver(node, run, lease.map_or(Event::Failed, |lease| Event::Granted { lease }));
                },
            ),
            Action::Vote { lease, registration, about, is_fenced } => {
                let (compare, put) = self.keys.put_vote(&name(node), registration, lease, about, is_fenced);
                let vote = move |etcd: &mut Etcd, now| etcd.transact(now, &[compare], &[put]);
                self.ask(node, vote, move |world, outcome| {
                    world.counts.fenced += u64::from(is_fenced);
                    world.heed_refusal(node, matches!(outcome, Some(None)));
                    let event = outcome.flatten().map(|outcome| match outcome.is_done {
                        true => Event::Voted,
                        false => Event::Superseded,
                    });
                    world.deliver(node, run, event.unwrap_or(Event::Failed));
                });
            }
            Action::KeepAlive { lease } => self.ask(
                node,
                move |etcd, now| etcd.keep_alive(now, lease),
                move |world, kept| {
                    let event = match kept {
                        None => Event::Failed,
                        Some(true) => Event::Kept,
                        Some(false) => Event::Expired,
                    };
                    world.deliver(node, run, event);
                },
            ),
            Action::Revoke { lease } => {
                self.counts.withdrawn += 1;
                self.ask(
                    node,
                    move |etcd, _| etcd.revoke(lease),
                    move |world, done| world.deliver(node, run, done.map_or(Event::Failed, |()| Event::Revoked)),
                );
            }
            Action::Fence => self.fence(node, run),
            Action::Lift => self.lift(node, run),
            Action::End(end) => self.end_lease(node, run, &end),
            Action::RevokeLeader { lease } => {
                let stays = self.defect == Defect::LeaseStays;
                let revoke = move |etcd: &mut Etcd, _| {
                    if !stays {
                        etcd.end(lease);
                    }
                };
                self.ask(node, revoke, move |world, done| {
                    world.deliver(node, run, done.map_or(Event::Failed, |()| Event::LeaderRevoked));
                });
            }
        }
    }

    /// What etcd refuses, since a lease is over, is not to be asked for again and again.
    fn heed_refusal(&mut self, node: usize, is_refused: bool) {
        let refused = &mut self.nodes[node].refused;
        *refused = if is_refused { *refused + 1 } else { 0 };
        if *refused > REFUSALS_MAX {
            self.fail(format!("node{} goes on to vote under a lease that is over", node + 1));
        }
    }

    fn look(&mut self, node: usize, run: u64, primary: Option<Addresses>, patience: u64) {
        self.when_running(node, move |world| {
            let (is_stopped, received_at, is_streaming) = {
                let postgres = &world.nodes[node].postgres;
                (postgres.is_stopped, postgres.received_at, postgres.receiver.is_some())
            };
            if is_stopped {
                return world.after(20, move |world| world.deliver(node, run, Event::Looked(None)));
            }
            let is_fed = is_streaming && received_at != world.nodes[node].received_at;
            world.nodes[node].received_at = received_at;
            let primary = primary.and_then(|primary| number(&primary.postgres.0));
            if is_fed || primary.is_none() {
                let sight = world.sight(node, if is_fed { Sign::Postgres } else { Sign::None });
                return world.deliver(node, run, Event::Looked(Some(sight)));
            }
            // As of some moment meanwhile.
            let delay = world.rng.range(1, 50);
            world.after(delay, move |world| {
                let sign = match primary.filter(|primary| world.is_connected(node, *primary)) {
                    Some(primary) if world.is_running(primary) => Sign::Postgres,
                    Some(primary) if world.is_patroni_running(primary) => Sign::Patroni,
                    _ => Sign::None,
                };
                let wait = if sign == Sign::None { patience } else { world.rng.range(1, 50) };
                world.after(wait, move |world| {
                    let sight = world.sight(node, sign);
                    world.deliver(node, run, Event::Looked(Some(sight)));
                });
            });
        });
    }

    fn sight(&self, node: usize, sign: Sign) -> Sight {
        let postgres = &self.nodes[node].postgres;
        let follows = postgres.follows.filter(|_| postgres.is_fenced).map(|node| (name(node), PORT));
        Sight {
            is_standby: !postgres.is_primary,
            is_fenced: postgres.is_fenced,
            follows,
            streams_from: postgres.receiver.map(|receiver| (name(receiver.from), PORT)),
            sign,
        }
    }

    fn fence(&mut self, node: usize, run: u64) {
        if !self.nodes[node].statements.is_empty() {
            return self.after(5, move |world| world.deliver(node, run, Event::Failed));
        }
        self.nodes[node].statements.push(run);
        self.note(format!("node{} holds its receiver off", node + 1));
        self.raise(node, move |world, is_done| {
            world.nodes[node].statements.clear();
            world.deliver(node, run, if is_done { Event::Fenced } else { Event::Failed });
        });
    }

    fn lift(&mut self, node: usize, run: u64) {
        self.nodes[node].statements.push(run);
        let delay = self.delay();
        self.after(delay, move |world| {
            world.when_running(node, move |world| {
                world.nodes[node].statements.retain(|one| *one != run);
                world.nodes[node].postgres.is_fenced = false;
                world.note(format!("node{} lets its receiver go", node + 1));
                world.deliver(node, run, Event::Lifted);
            });
        });
    }

    fn end_lease(&mut self, node: usize, run: u64, end: &EndLease) {
        let (compare, mut step) = self.keys.end_lease(end);
        if self.defect == Defect::LeaseStays {
            step = Step::Delete { key: LEADER.to_owned() };
        }
        let holder = end.leader.holder.clone();
        let ended = move |etcd: &mut Etcd, now| etcd.transact(now, &compare, &[step]);
        self.ask(node, ended, move |world, outcome| {
            let outcome = outcome.flatten();
            let done = outcome.as_ref().is_some_and(|outcome| outcome.is_done);
            world.counts.ended += u64::from(done);
            if done {
                world.note(format!("node{} ends the lease of {holder}", node + 1));
            }
            let event = outcome.map_or(Event::Failed, |_| Event::Ended { done });
            world.deliver(node, run, event);
        });
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
