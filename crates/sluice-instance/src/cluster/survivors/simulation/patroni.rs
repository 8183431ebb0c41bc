//! Patroni, as far as it counts: turns that read etcd first and act on that later, an election among the voters that
//! answer, and a primary that gives up when another one has the key. The leader key has no end of its own here, so
//! that each election is the work of survivors.

use std::{cell::RefCell, rc::Rc};

use super::{
    state::{NODES, name, number},
    world::World,
};
use crate::cluster::{
    etcd_api::{Compare, Step},
    survivors::view::{Sync, View},
};

const LOOP_WAIT: u64 = 2000;
const WATCHES_EVERY: u64 = 40;
/// Turns without etcd before a primary gives up.
const FAILURES_MAX: u32 = 4;
const REST_TIME_MAX: u64 = 2000;

const LEADER: &str = "/service/main/leader";
const SYNC: &str = "/service/main/sync";

pub(super) fn sync_value(leader: usize) -> String {
    let voters: Vec<String> = (0..NODES).filter(|node| *node != leader).map(name).collect();
    format!(r#"{{"leader":"{}","sync_standby":"{}","quorum":1}}"#, name(leader), voters.join(","))
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
        if revision != self.nodes[node].patroni.seen && self.is_up(NODES, node) {
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
        let read = vec![Step::Read { prefix: "/service/main/".to_owned() }];
        self.transact(node, Vec::new(), read, move |world, outcome| {
            let view = outcome.map(|outcome| world.keys.view(&outcome.found[0], &[]));
            // It may be held up here, with what it has read.
            let stall = if world.rng.percent(10) { world.rng.range(50, 3000) } else { world.rng.range(1, 10) };
            world.after(stall, move |world| world.when_patroni(node, move |world| world.act(node, view)));
        });
    }

    fn end_turn(&mut self, node: usize) {
        self.nodes[node].patroni.is_in_turn = false;
    }

    fn act(&mut self, node: usize, view: Option<View>) {
        let Some(view) = view else { return self.without_etcd(node) };
        let leader = view.leader.as_ref().and_then(|leader| number(&leader.holder));
        self.nodes[node].patroni.failures = 0;
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
            (true, Some(_)) => return self.write_sync(node, &view),
            (true, None) => return self.acquire(node, |world, node| world.end_turn(node)),
            (false, Some(leader)) if leader == node => return self.begin_promotion(node, &view),
            (false, Some(leader)) => self.follow(node, Some(leader)),
            (false, None) => return self.race(node, view.sync),
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
        let put = Step::Put { key: LEADER.to_owned(), value: name(node), lease: None };
        self.transact(node, vec![Compare { key: LEADER.to_owned(), revision: 0 }], vec![put], move |world, outcome| {
            if outcome.is_some_and(|outcome| outcome.is_done) {
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
        let sync = sync.clone();
        self.acquire(node, move |world, node| {
            let view = View { sync: Some(sync), ..View::default() };
            world.begin_promotion(node, &view);
        });
    }

    fn begin_promotion(&mut self, node: usize, view: &View) {
        let (compare, put) = sync_step(node, view.sync.as_ref());
        self.transact(node, compare, put, move |world, outcome| {
            if !outcome.is_some_and(|outcome| outcome.is_done) {
                return world.end_turn(node);
            }
            let stall = world.delay();
            world.after(stall, move |world| {
                world.when_patroni(node, move |world| {
                    world.when_running(node, move |world| {
                        world.promote(node);
                        world.end_turn(node);
                    });
                });
            });
        });
    }
}

fn sync_step(node: usize, sync: Option<&Sync>) -> (Vec<Compare>, Vec<Step>) {
    let revision = sync.map_or(0, |sync| sync.revision);
    let put = Step::Put { key: SYNC.to_owned(), value: sync_value(node), lease: None };
    (vec![Compare { key: SYNC.to_owned(), revision }], vec![put])
}
