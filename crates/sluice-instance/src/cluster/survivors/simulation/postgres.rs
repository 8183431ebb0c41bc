//! PostgreSQL: a primary that writes, receivers that stream, acknowledgements, timelines.

use super::{
    patroni::LEADER,
    state::{NODES, Receiver, Timeline, name},
    world::{Defect, World},
};

const WRITES_EVERY: u64 = 15;
const CONNECTS_EVERY: u64 = 100;

impl World {
    pub(super) fn is_running(&self, node: usize) -> bool {
        let postgres = &self.nodes[node].postgres;
        !postgres.is_stopped && postgres.paused_until <= self.now
    }

    /// Does something once the server is not held up.
    pub(super) fn when_running(&mut self, node: usize, task: impl FnOnce(&mut World) + 'static) {
        let until = self.nodes[node].postgres.paused_until;
        if until > self.now {
            self.after(until - self.now, move |world| world.when_running(node, task));
        } else {
            task(self);
        }
    }

    pub(super) fn writes(&mut self, node: usize) {
        self.after(WRITES_EVERY, move |world| world.writes(node));
        if !self.is_running(node) || !self.nodes[node].postgres.is_primary {
            return;
        }
        self.nodes[node].postgres.lsn += 1;
        let (lsn, run) = (self.nodes[node].postgres.lsn, self.nodes[node].postgres.run);
        for other in 0..NODES {
            let receiver = self.nodes[other].postgres.receiver;
            if let Some(receiver) = receiver.filter(|receiver| receiver.from == node && receiver.run == run) {
                let delay = self.rng.range(1, 8);
                self.after(delay, move |world| {
                    world.when_running(other, move |world| world.received(other, receiver, lsn));
                });
            }
        }
    }

    fn received(&mut self, node: usize, receiver: Receiver, lsn: u64) {
        let is_up = self.is_up(receiver.from, node);
        let postgres = &mut self.nodes[node].postgres;
        if postgres.is_stopped || postgres.receiver != Some(receiver) || !is_up {
            return;
        }
        postgres.lsn = postgres.lsn.max(lsn);
        postgres.received_at = self.now;
        let lsn = postgres.lsn;
        let delay = self.rng.range(1, 8);
        self.after(delay, move |world| {
            if world.is_up(node, receiver.from) {
                world.when_running(receiver.from, move |world| world.acknowledged(receiver, lsn));
            }
        });
    }

    /// A standby has told the primary how far it is: one is enough for a commit.
    fn acknowledged(&mut self, receiver: Receiver, lsn: u64) {
        let primary = &self.nodes[receiver.from].postgres;
        if primary.is_stopped || !primary.is_primary || primary.run != receiver.run {
            return;
        }
        let (timeline, lsn) = (primary.timeline, lsn.min(primary.lsn));
        self.look_at_what_it_lacks(timeline);
        let before = self.timelines[timeline].acknowledged;
        if lsn <= before {
            return;
        }
        self.counts.acknowledged += lsn - before;
        self.timelines[timeline].acknowledged = lsn;
        for later in timeline + 1..self.timelines.len() {
            if self.shared(timeline, later) < lsn {
                self.fail(format!("{lsn} of timeline {timeline} acknowledged, which timeline {later} lacks"));
            }
        }
    }

    /// Up to where a timeline's commits are in a later one.
    fn shared(&self, timeline: usize, later: usize) -> u64 {
        let (mut at, mut shared) = (later, u64::MAX);
        while at != timeline {
            match self.timelines[at].parent {
                Some((parent, begin)) => (at, shared) = (parent, shared.min(begin)),
                None => return 0,
            }
        }
        shared
    }

    fn look_at_what_it_lacks(&mut self, timeline: usize) {
        for earlier in 0..timeline {
            let acknowledged = self.timelines[earlier].acknowledged;
            if self.shared(earlier, timeline) < acknowledged {
                self.fail(format!("timeline {timeline} lacks {acknowledged} of timeline {earlier}, acknowledged"));
            }
        }
    }

    /// A standby becomes the primary, with all that it has received. `is_own`: the leader key was its own when its
    /// Patroni made sure of that.
    pub(super) fn promote(&mut self, node: usize, is_own: bool) {
        let postgres = &mut self.nodes[node].postgres;
        if postgres.is_stopped || postgres.is_primary {
            return;
        }
        let begin = postgres.lsn;
        postgres.receiver = None;
        let parent = postgres.timeline;
        postgres.timeline = self.timelines.len();
        postgres.is_primary = true;
        postgres.run += 1;
        let timeline = postgres.timeline;
        let number = self.timelines[parent].number + 1;
        let twin = self.timelines.iter().find(|other| other.number == number);
        if let Some(is_usurped) = twin.map(|twin| twin.is_usurped || !is_own) {
            self.counts.twins += 1;
            if is_usurped {
                self.fail(format!("node{} is promoted to number {number}, as another is: by an old view", node + 1));
            }
        }
        self.timelines.push(Timeline { parent: Some((parent, begin)), number, is_usurped: !is_own, acknowledged: 0 });
        self.counts.promoted += 1;
        self.note(format!("node{} is promoted at {begin}: timeline {timeline}", node + 1));
        // One whose key is another's by now is of no danger before it acknowledges something.
        if self.etcd.value(LEADER) == Some(&*name(node)) {
            self.look_at_what_it_lacks(timeline);
        }
    }

    /// It is stopped, and starts again as a standby.
    pub(super) fn demote(&mut self, node: usize, follows: Option<usize>) {
        let postgres = &mut self.nodes[node].postgres;
        postgres.is_primary = false;
        postgres.run += 1;
        postgres.follows = follows;
        self.note(format!("node{} is demoted", node + 1));
    }

    pub(super) fn crash(&mut self, node: usize) {
        let postgres = &mut self.nodes[node].postgres;
        postgres.is_stopped = true;
        postgres.receiver = None;
        postgres.attempt += 1;
        postgres.run += 1;
        self.note(format!("node{} crashes", node + 1));
    }

    /// Patroni writes what it is to follow, and reloads.
    pub(super) fn follow(&mut self, node: usize, whom: Option<usize>) {
        let postgres = &mut self.nodes[node].postgres;
        if postgres.follows != whom {
            postgres.follows = whom;
            postgres.receiver = None;
            postgres.attempt += 1;
            self.note(format!("node{} follows {whom:?}", node + 1));
        }
    }

    pub(super) fn connects(&mut self, node: usize) {
        self.after(CONNECTS_EVERY, move |world| world.connects(node));
        let is_held_off = self.nodes[node].postgres.is_fenced && self.defect != Defect::NoFence;
        let postgres = &self.nodes[node].postgres;
        let Some(from) = postgres.follows.filter(|_| !postgres.is_primary && !is_held_off) else { return };
        if !self.is_running(node) {
            return;
        }
        if let Some(receiver) = self.nodes[node].postgres.receiver {
            let sender = &self.nodes[from].postgres;
            // A connection ends with its server, if that can still be heard.
            if (sender.is_stopped || sender.run != receiver.run) && self.is_up(from, node) {
                self.nodes[node].postgres.receiver = None;
            }
            return;
        }
        let attempt = self.nodes[node].postgres.attempt;
        let delay = if self.rng.percent(5) { self.rng.range(50, 800) } else { self.rng.range(1, 20) };
        self.after(delay, move |world| {
            world.when_running(node, move |world| world.connected(node, from, attempt));
        });
    }

    fn connected(&mut self, node: usize, from: usize, attempt: u64) {
        let own = &self.nodes[node].postgres;
        let is_wanted = !own.is_stopped && !own.is_primary && own.attempt == attempt && own.receiver.is_none();
        if !is_wanted || !self.is_connected(node, from) || !self.is_running(from) {
            return;
        }
        let (own, sender) = (&self.nodes[node].postgres, &self.nodes[from].postgres);
        let (timeline, lsn, run) = (sender.timeline, sender.lsn, sender.run);
        let lsn = if timeline == own.timeline {
            if own.lsn > lsn {
                return;
            }
            own.lsn
        } else if sender.is_primary && self.timelines[timeline].number == self.timelines[own.timeline].number {
            // It is copied: pg_rewind sees nothing to do.
            0
        } else if timeline > own.timeline && sender.is_primary {
            // What it has beyond the branch is rewound.
            own.lsn.min(self.shared(own.timeline, timeline)).min(lsn)
        } else {
            return;
        };
        self.sequence_of_receivers += 1;
        let id = self.sequence_of_receivers;
        let postgres = &mut self.nodes[node].postgres;
        (postgres.lsn, postgres.timeline) = (lsn, timeline);
        postgres.receiver = Some(Receiver { id, from, run });
        postgres.received_at = self.now;
        self.note(format!("node{} streams from node{} at {lsn}", node + 1, from + 1));
    }

    /// Holds the receiver off. Ready once none runs, also none that was being started.
    pub(super) fn raise(&mut self, node: usize, then: impl FnOnce(&mut World, bool) + 'static) {
        let delay = self.rng.range(2, 60);
        self.after(delay, move |world| {
            world.when_running(node, move |world| {
                world.nodes[node].postgres.is_fenced = true;
                let delay = world.rng.range(2, 60);
                world.after(delay, move |world| {
                    world.when_running(node, move |world| {
                        let postgres = &mut world.nodes[node].postgres;
                        postgres.receiver = None;
                        postgres.attempt += 1;
                        let is_there = !postgres.is_stopped;
                        then(world, is_there);
                    });
                });
            });
        });
    }
}
