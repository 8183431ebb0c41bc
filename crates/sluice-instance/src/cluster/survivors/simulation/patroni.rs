//! Patroni, as far as it counts: turns that read etcd first and act on that later, an election among the voters that
//! answer, and a primary that gives up when another one has the key. Its lease has no end of its own here, so that each
//! election is the work of survivors.

use std::{cell::RefCell, rc::Rc};

use super::{
    etcd::Etcd,
    state::{NODES, PORT, name, number},
    world::World,
};
use crate::cluster::{
    etcd_api::{Compare, Step},
    survivors::view::{Sync, View},
};

/// Far behind the end of each world.
pub(super) const LEASE_MS: u64 = 1 << 40;

const LOOP_WAIT: u64 = 2000;
const WATCHES_EVERY: u64 = 40;
/// Turns without etcd before a primary gives up.
const FAILURES_MAX: u32 = 4;
const REST_TIME_MAX: u64 = 2000;

/// For so long at most a watch may say nothing new behind a cut.
const STALE_MAX: u64 = 4000;

pub(super) const LEADER: &str = "/service/main/leader";
const SYNC: &str = "/service/main/sync";

pub(super) fn sync_value(leader: usize) -> String {
    let voters: Vec<String> = (0..NODES).filter(|node| *node != leader).map(name).collect();
    format!(r#"{{"leader":"{}","sync_standby":"{}","quorum":1}}"#, name(leader), voters.join(","))
}

pub(super) fn member_step(node: usize, lease: i64) -> Step {
    let value = format!(r#"{{"conn_url":"postgres://{0}:{PORT}/","api_url":"http://{0}:80/"}}"#, name(node));
    Step::Put { key: format!("/service/main/members/{}", name(node)), value, lease: Some(lease) }
}

impl World {
    pub(super) fn is_patroni_running(&self, node: usize) -> bool {
        self.nodes[node].patroni.paused_until <= self.now
    }

    fn when_patroni(&mut self, node: usize, task: impl FnOnce(&mut World) + 'static) {
        let until = self.nodes[node].patroni.paused_until;
        if until > self.now {
            self.after(until - self.now, move |world| world.when_patroni(node, task));
        } else {
            task(self);
        }
    }

    pub(super) fn turns(&mut self, node: usize) {
        self.after(LOOP_WAIT, move |world| world.turns(node));
        self.turn(node);
    }

    /// A change of the leader key wakes it.
    pub(super) fn watches(&mut self, node: usize) {
        self.after(WATCHES_EVERY, move |world| world.watches(node));
        let revision = self.leader_revision();
        let patroni = &self.nodes[node].patroni;
        if revision != patroni.seen && patroni.stale_until <= self.now && self.is_up(NODES, node) {
            self.turn(node);
        }
    }

    fn leader_revision(&mut self) -> i64 {
        let keys = self.patronis_keys();
        keys.iter().find(|value| value.key == LEADER).map_or(0, |value| value.revision)
    }

    fn turn(&mut self, node: usize) {
        if self.nodes[node].patroni.is_in_turn || !self.is_patroni_running(node) {
            return;
        }
        self.nodes[node].patroni.is_in_turn = true;
        if self.nodes[node].patroni.stale_until > self.now {
            return self.act_by_cache(node);
        }
        let read = vec![Step::Read { prefix: "/service/main/".to_owned() }];
        self.transact(node, Vec::new(), read, move |world, outcome| {
            let Some(outcome) = outcome else {
                let quiet = world.rng.range(0, STALE_MAX);
                world.nodes[node].patroni.stale_until = world.now + quiet;
                return world.act_by_cache(node);
            };
            world.nodes[node].patroni.cache = Some(world.keys.view(&outcome.found[0], &[]));
            world.nodes[node].patroni.failures = 0;
            world.touch_member(node);
            world.act_by_cache(node);
        });
    }

    fn act_by_cache(&mut self, node: usize) {
        let view = self.nodes[node].patroni.cache.clone().unwrap_or_default();
        // It may be held up here, with what it has read.
        let stall = if self.rng.percent(10) { self.rng.range(50, 3000) } else { self.rng.range(1, 10) };
        self.after(stall, move |world| world.when_patroni(node, move |world| world.act(node, &view)));
    }

    /// Writes its address under its lease, or under another one if that has ended.
    fn touch_member(&mut self, node: usize) {
        let lease = self.nodes[node].patroni.lease;
        let touch = move |etcd: &mut Etcd, now| {
            let lease = etcd.keep_or_grant(now, lease, LEASE_MS);
            etcd.transact(now, &[], &[member_step(node, lease)]);
            lease
        };
        self.ask(node, touch, move |world, lease| {
            let patroni = &mut world.nodes[node].patroni;
            patroni.lease = lease.unwrap_or(patroni.lease);
        });
    }

    /// Patroni's `update_leader`: its lease is kept alive. Where the key that it has seen has another one, it takes the
    /// key if that is its own, or nobody's. The key was its own then, or it has gone by its lease alone.
    fn update_lock(&mut self, node: usize, session: i64, then: impl FnOnce(&mut World, bool) + 'static) {
        let lease = self.nodes[node].patroni.lease;
        let keep = move |etcd: &mut Etcd, now| {
            let is_own = etcd.value(LEADER) == Some(&*name(node));
            (etcd.keep_alive(now, lease), is_own)
        };
        self.ask(node, keep, move |world, kept| match kept {
            None => world.without_etcd(node),
            Some((true, is_own)) if lease == session => then(world, is_own),
            Some(_) => world.put_lock(node, then),
        });
    }

    fn put_lock(&mut self, node: usize, then: impl FnOnce(&mut World, bool) + 'static) {
        let lease = self.nodes[node].patroni.lease;
        let put = move |etcd: &mut Etcd, now| {
            let lease = etcd.keep_or_grant(now, lease, LEASE_MS);
            let is_free = etcd.value(LEADER).is_none_or(|holder| holder == name(node));
            if is_free {
                etcd.transact(now, &[], &[leader_step(node, lease)]);
            }
            (lease, is_free)
        };
        self.ask(node, put, move |world, answer| {
            let Some((lease, is_held)) = answer else { return world.without_etcd(node) };
            world.nodes[node].patroni.lease = lease;
            if is_held {
                return then(world, true);
            }
            if world.nodes[node].postgres.is_primary {
                world.demote(node, None);
            }
            world.end_turn(node);
        });
    }

    fn end_turn(&mut self, node: usize) {
        self.nodes[node].patroni.is_in_turn = false;
    }

    fn act(&mut self, node: usize, view: &View) {
        let leader = view.leader.as_ref().and_then(|leader| number(&leader.holder));
        let session = view.leader.as_ref().map_or(0, |leader| leader.lease);
        self.nodes[node].patroni.seen = view.leader.as_ref().map_or(0, |leader| leader.revision);
        if self.nodes[node].postgres.is_stopped {
            self.nodes[node].postgres.is_stopped = false;
            if leader != Some(node) && self.nodes[node].postgres.is_primary {
                self.demote(node, leader);
            }
        }
        if self.nodes[node].postgres.paused_until > self.now {
            return self.end_turn(node);
        }
        match (self.nodes[node].postgres.is_primary, leader) {
            (true, Some(leader)) if leader != node => self.demote(node, Some(leader)),
            (true, Some(_)) => {
                let view = view.clone();
                return self.update_lock(node, session, move |world, _| world.write_sync(node, &view));
            }
            (true, None) => return self.acquire(node, |world, node| world.end_turn(node)),
            (false, Some(leader)) if leader == node => {
                return self.update_lock(node, session, move |world, is_own| world.begin_promotion(node, is_own));
            }
            (false, Some(leader)) => self.follow(node, Some(leader)),
            (false, None) => return self.race(node, view.sync.clone()),
        }
        self.end_turn(node);
    }

    fn without_etcd(&mut self, node: usize) {
        self.nodes[node].patroni.failures += 1;
        if self.nodes[node].patroni.failures >= FAILURES_MAX && self.nodes[node].postgres.is_primary {
            self.demote(node, None);
        }
        self.end_turn(node);
    }

    fn write_sync(&mut self, node: usize, view: &View) {
        let is_right = view.sync.as_ref().is_some_and(|sync| sync.leader == name(node));
        if is_right {
            return self.end_turn(node);
        }
        let (compare, put) = sync_step(node, view.sync.as_ref());
        self.transact(node, compare, put, move |world, _| world.end_turn(node));
    }

    fn acquire(&mut self, node: usize, then: impl FnOnce(&mut World, usize) + 'static) {
        let was_primary = self.nodes[node].postgres.is_primary;
        let lease = self.nodes[node].patroni.lease;
        let take = move |etcd: &mut Etcd, now| {
            let lease = etcd.keep_or_grant(now, lease, LEASE_MS);
            let free = Compare { key: LEADER.to_owned(), revision: 0 };
            let outcome = etcd.transact(now, &[free], &[leader_step(node, lease)]);
            (lease, outcome.is_some_and(|outcome| outcome.is_done))
        };
        self.ask(node, take, move |world, answer| {
            let Some((lease, is_taken)) = answer else { return world.without_etcd(node) };
            world.nodes[node].patroni.lease = lease;
            if is_taken {
                world.note(format!("node{} has the leader key", node + 1));
                world.counts.taken_again += u64::from(was_primary);
                world.when_patroni(node, move |world| then(world, node));
            } else {
                world.end_turn(node);
            }
        });
    }

    /// Asks the others how far they are, and takes the key if enough of them are not further.
    fn race(&mut self, node: usize, sync: Option<Sync>) {
        let Some(sync) = sync else { return self.end_turn(node) };
        // The leader before may have been hidden.
        let hidden = number(&sync.leader).filter(|_| self.rng.percent(50));
        let asked: Vec<usize> = (0..NODES).filter(|other| *other != node && Some(*other) != hidden).collect();
        let answers = Rc::new(RefCell::new(Vec::new()));
        let count = asked.len();
        let own = self.nodes[node].postgres.lsn;
        for other in asked {
            let delay = self.delay().min(REST_TIME_MAX - 1);
            let (sync, answers) = (sync.clone(), Rc::clone(&answers));
            self.after(delay, move |world| {
                let is_there = world.is_connected(node, other) && world.is_patroni_running(other);
                let postgres = &world.nodes[other].postgres;
                let answer =
                    (is_there && world.is_running(other)).then_some((other, postgres.is_primary, postgres.lsn));
                let wait = if answer.is_none() { REST_TIME_MAX - delay } else { 0 };
                world.after(wait, move |world| {
                    answers.borrow_mut().push(answer);
                    if answers.borrow().len() == count {
                        let answers: Vec<_> = answers.take().into_iter().flatten().collect();
                        world.when_patroni(node, move |world| world.decide(node, own, &sync, &answers));
                    }
                });
            });
        }
    }

    fn decide(&mut self, node: usize, own: u64, sync: &Sync, answers: &[(usize, bool, u64)]) {
        let is_voter = |node: usize| sync.voters.contains(&name(node));
        let is_alive = answers.iter().any(|(_, is_primary, _)| *is_primary);
        let is_behind = answers.iter().any(|(other, _, lsn)| *lsn > own && name(*other) != sync.leader);
        let others = answers.iter().filter(|(other, _, lsn)| is_voter(*other) && *lsn <= own).count();
        // Who is no voter has to hear one more.
        let has_quorum = others >= sync.quorum + usize::from(!is_voter(node));
        if is_alive || is_behind || !has_quorum {
            self.follow(node, None);
            return self.end_turn(node);
        }
        self.acquire(node, |world, node| world.begin_promotion(node, true));
    }

    /// `sync` is written once it is the primary. `is_own`: the leader key was its own when it was asked for.
    fn begin_promotion(&mut self, node: usize, is_own: bool) {
        let stall = self.delay();
        self.after(stall, move |world| {
            world.when_patroni(node, move |world| {
                world.when_running(node, move |world| {
                    world.promote(node, is_own);
                    world.end_turn(node);
                });
            });
        });
    }
}

fn leader_step(node: usize, lease: i64) -> Step {
    Step::Put { key: LEADER.to_owned(), value: name(node), lease: Some(lease) }
}

fn sync_step(node: usize, sync: Option<&Sync>) -> (Vec<Compare>, Vec<Step>) {
    let revision = sync.map_or(0, |sync| sync.revision);
    let put = Step::Put { key: SYNC.to_owned(), value: sync_value(node), lease: None };
    (vec![Compare { key: SYNC.to_owned(), revision }], vec![put])
}
