//! Three hosts and etcd: virtual time, links that are cut one way or both, processes that are stopped where they are,
//! requests that arrive late, or whose answer does not.

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    rc::Rc,
    time::Duration,
};

use sluice_sim::Rng;

use super::{
    etcd::Etcd,
    state::{NODES, Node, Timeline},
};
use crate::cluster::{
    etcd_api::{Compare, KeyValue, Outcome, Step},
    survivors::keys::Keys,
};

/// etcd's place among the links' ends.
const ETCD: usize = NODES;

/// The client of etcd gives up by then; what it has asked for may still be done.
const ETCD_TIME_MAX: u64 = 1500;

/// Called once: with the answer, or by the time limit.
type Then<T> = Rc<RefCell<Option<Box<dyn FnOnce(&mut World, Option<T>)>>>>;

type Task = Box<dyn FnOnce(&mut World)>;

/// A defect that this world has on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Defect {
    None,
    /// The fence does not hold the WAL receiver off.
    NoFence,
    /// etcd keeps a vote's lease that is revoked.
    NoRevoke,
    /// The leader key is deleted, and the lease lives on.
    LeaseStays,
}

/// Counts of what has happened, to see that a run has shown something.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) acknowledged: u64,
    pub(super) ended: u64,
    pub(super) promoted: u64,
    pub(super) taken_again: u64,
    pub(super) withdrawn: u64,
    pub(super) fenced: u64,
    /// Timelines of a number that another one has.
    pub(super) twins: u64,
}

pub(super) struct World {
    pub(super) now: u64,
    sequence: u64,
    times: BinaryHeap<Reverse<(u64, u64)>>,
    tasks: BTreeMap<u64, Task>,
    pub(super) rng: Rng,
    pub(super) etcd: Etcd,
    pub(super) nodes: Vec<Node>,
    /// Links that are cut, from one end to the other.
    pub(super) cut: [[bool; NODES + 1]; NODES + 1],
    pub(super) timelines: Vec<Timeline>,
    pub(super) defect: Defect,
    pub(super) counts: Counts,
    pub(super) keys: Keys,
    /// The invariant that was broken first.
    pub(super) broken: Option<String>,
    pub(super) sequence_of_receivers: u64,
    pub(super) trace: Vec<String>,
}

impl World {
    pub(super) fn new(seed: u64, defect: Defect) -> Self {
        let mut world = Self {
            now: 0,
            sequence: 0,
            times: BinaryHeap::new(),
            tasks: BTreeMap::new(),
            rng: Rng::new(seed),
            etcd: Etcd::default(),
            nodes: (0..NODES).map(Node::new).collect(),
            cut: Default::default(),
            timelines: vec![Timeline::default()],
            defect,
            counts: Counts::default(),
            keys: Keys::new("main"),
            broken: None,
            sequence_of_receivers: 0,
            trace: Vec::new(),
        };
        world.etcd.keeps_revoked = defect == Defect::NoRevoke;
        world.begin();
        world
    }

    pub(super) fn after(&mut self, millis: u64, task: impl FnOnce(&mut World) + 'static) {
        self.sequence += 1;
        self.times.push(Reverse((self.now + millis, self.sequence)));
        self.tasks.insert(self.sequence, Box::new(task));
    }

    /// Goes on until that time, or until something is broken.
    pub(super) fn run(&mut self, until: u64) {
        while let Some(Reverse((time, sequence))) = self.times.peek().copied() {
            if time > until || self.broken.is_some() {
                break;
            }
            self.times.pop();
            self.now = time;
            if let Some(task) = self.tasks.remove(&sequence) {
                task(self);
            }
        }
        self.now = self.now.max(until);
    }

    pub(super) fn time(&self) -> Duration {
        Duration::from_millis(self.now)
    }

    pub(super) fn note(&mut self, text: String) {
        self.trace.push(format!("{:>7} {text}", self.now));
    }

    pub(super) fn fail(&mut self, text: String) {
        self.note(text.clone());
        self.broken.get_or_insert(text);
    }

    pub(super) fn is_up(&self, from: usize, to: usize) -> bool {
        !self.cut[from][to]
    }

    /// Whether two nodes can talk to each other.
    pub(super) fn is_connected(&self, one: usize, other: usize) -> bool {
        self.is_up(one, other) && self.is_up(other, one)
    }

    /// Most messages are quick.
    pub(super) fn delay(&mut self) -> u64 {
        match self.rng.below(100) {
            0 => self.rng.range(200, 4000),
            1..=5 => self.rng.range(20, 200),
            _ => self.rng.range(1, 10),
        }
    }

    /// Asks etcd. `then` gets the answer; none if it has not come in time, whether or not the request has.
    pub(super) fn ask<T: 'static>(
        &mut self,
        node: usize,
        request: impl FnOnce(&mut Etcd, u64) -> T + 'static,
        then: impl FnOnce(&mut World, Option<T>) + 'static,
    ) {
        let then: Then<T> = Rc::new(RefCell::new(Some(Box::new(then))));
        let late = Rc::clone(&then);
        self.after(ETCD_TIME_MAX, move |world| {
            let then = late.borrow_mut().take();
            if let Some(then) = then {
                then(world, None);
            }
        });
        let (there, back) = (self.delay(), self.delay());
        if !self.is_up(node, ETCD) || self.rng.percent(1) {
            return;
        }
        self.after(there, move |world| {
            let answer = request(&mut world.etcd, world.now);
            if !world.is_up(ETCD, node) || world.rng.percent(1) {
                return;
            }
            world.after(back, move |world| {
                let then = then.borrow_mut().take();
                if let Some(then) = then {
                    then(world, Some(answer));
                }
            });
        });
    }

    /// A transaction; none also if its lease is gone.
    pub(super) fn transact(
        &mut self,
        node: usize,
        compare: Vec<Compare>,
        steps: Vec<Step>,
        then: impl FnOnce(&mut World, Option<Outcome>) + 'static,
    ) {
        self.ask(
            node,
            move |etcd, now| etcd.transact(now, &compare, &steps),
            |world, answer| then(world, answer.flatten()),
        );
    }

    /// Patroni's keys as etcd has them now.
    pub(super) fn patronis_keys(&mut self) -> Vec<KeyValue> {
        let read = [Step::Read { prefix: "/service/main/".to_owned() }];
        self.etcd
            .transact(self.now, &[], &read)
            .and_then(|outcome| outcome.found.into_iter().next())
            .unwrap_or_default()
    }
}
