//! Faster than the leader's lease: where all standbys that a commit may be waited for on agree that the primary is gone,
//! they end its lease, and Patroni elects the next one at once. `docs/decisions/0026-…` has the argument.
//!
//! One survivor a node, which sees its own PostgreSQL, its own attempts to reach the primary, and etcd; nothing else.
//! It never decides who is the next primary.
//!
//! | file | owns |
//! |---|---|
//! | `view.rs` | what etcd has, and what a host sees |
//! | `machine.rs` | the decisions, without I/O |
//! | `keys.rs` | keys and values in etcd |
//! | `host.rs`, `fence.rs` | this host's PostgreSQL and its WAL receiver; signs of life of the primary |
//! | `simulation/` | the decisions, against a network, an etcd and a Patroni that fail in all ways |

mod fence;
mod host;
mod keys;
mod machine;
#[cfg(test)]
mod simulation;
mod view;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use self::{
    host::Host,
    keys::Keys,
    machine::{Action, Event, Survivor, Times, VOTE_TTL_SECONDS},
    view::View,
};
use super::{
    Node,
    etcd_api::{EtcdClient, KeyValue, Step},
    rest::Api,
    waker,
};
use crate::{
    event::{self, Observer},
    run_as::RunAs,
    secret::Password,
};

/// A turn of Patroni's begins within this time after it was woken.
const TURN_TIME: Duration = Duration::from_millis(100);

/// The place where survivors vote, and the number of nodes with data.
#[derive(Debug, Clone)]
pub(super) struct Electorate {
    pub(super) etcd: EtcdClient,
    pub(super) nodes: usize,
}

/// The leader's `members` key without its address outlives its lease: a Patroni that was held up while it was hidden
/// would go by the one that it knows.
const HIDDEN_TTL_SECONDS: u32 = 20;

/// The primary's survivor looks that often, while the cluster is whole, whether etcd's leader is on its host.
const PART_LEADERS_EVERY: Duration = Duration::from_secs(10);

/// A node's survivor, in a thread of its own. Dropping it ends the thread, which may wait for a PostgreSQL that does
/// not answer until that ends.
#[derive(Debug)]
pub(super) struct Agent {
    /// Dropped to end it.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    pub(super) fn start(
        scope: &str,
        node: &Node,
        run_as: &RunAs,
        api: Api,
        Electorate { etcd, nodes }: Electorate,
        observer: Arc<dyn Observer>,
    ) -> io::Result<Self> {
        let run = Password::random().map_err(io::Error::other)?.expose().to_owned();
        let driver = Driver {
            node: node.name.clone(),
            nodes,
            run,
            keys: Keys::new(scope),
            etcd,
            rest: node.rest,
            api: api.clone(),
            seen: Vec::new(),
            host: Host::new(node, run_as, api)?,
            observer,
            last_error: None,
            parted_at: Instant::now(),
        };
        let (stop, stopped) = mpsc::channel();
        let name = format!("{}-survivor", node.name);
        let thread = thread::Builder::new().name(name).spawn(move || driver.run(&stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Asks it to end; after what it is doing, it does nothing more.
    pub(super) fn request_stop(&mut self) {
        self.stop = None;
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.request_stop();
        if let Some(thread) = self.thread.take() {
            // A panic was reported by its thread.
            let _ = thread.join();
        }
    }
}

/// Carries out what the machine asks for.
struct Driver {
    node: String,
    nodes: usize,
    /// Makes this run another one than the one before.
    run: String,
    keys: Keys,
    etcd: EtcdClient,
    /// This node's Patroni, and how it is asked.
    rest: SocketAddr,
    api: Api,
    /// Patroni's keys, as they were read last.
    seen: Vec<KeyValue>,
    host: Host,
    observer: Arc<dyn Observer>,
    /// The error that was told last, so that it is told once.
    last_error: Option<String>,
    /// The last time at which etcd's leader was seen to, or the cluster was not whole.
    parted_at: Instant,
}

impl Driver {
    fn run(mut self, stopped: &Receiver<()>) {
        let begin = Instant::now();
        let mut machine = Survivor::new(&self.node, self.nodes, Times::default());
        let mut event = Event::Woken;
        loop {
            let action = machine.step(begin.elapsed(), event);
            let pause = match &action {
                Action::Wait(time) => *time,
                _ => Duration::ZERO,
            };
            match stopped.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return,
            }
            event = match self.carry_out(&action) {
                Ok(event) => event,
                Err(error) => {
                    self.tell_error(&action, &error);
                    Event::Failed
                }
            };
        }
    }

    fn carry_out(&mut self, action: &Action) -> io::Result<Event> {
        Ok(match action {
            Action::Wait(_) => Event::Woken,
            Action::Register => {
                let outcome = self.etcd.transact(&[], &self.keys.register(&self.node, &self.run))?;
                Event::Registered { revision: outcome.revision }
            }
            Action::Look { primary, patience } => Event::Looked(self.host.look(primary.as_ref(), *patience)),
            Action::View => {
                let outcome = self.etcd.transact(&[], &self.keys.read())?;
                let [patroni, votes] = &outcome.found[..] else { return Err(io::Error::other("a read is missing")) };
                let view = self.keys.view(patroni, votes);
                self.seen.clone_from(patroni);
                self.part_leaders(&view);
                Event::Viewed(view)
            }
            Action::Grant => Event::Granted { lease: self.etcd.grant(VOTE_TTL_SECONDS)? },
            Action::Vote { lease, registration, about, is_fenced } => {
                if *is_fenced && self.host.is_rest_open() {
                    self.hide_leader();
                }
                let (compare, put) = self.keys.put_vote(&self.node, *registration, *lease, *about, *is_fenced);
                let outcome = self.etcd.transact(&[compare], &[put])?;
                if outcome.is_done { Event::Voted } else { Event::Superseded }
            }
            Action::KeepAlive { lease } => {
                if self.etcd.keep_alive(*lease)? {
                    Event::Kept
                } else {
                    Event::Expired
                }
            }
            Action::Revoke { lease } => {
                self.etcd.revoke(*lease)?;
                Event::Revoked
            }
            Action::Fence => {
                self.host.fence()?;
                Event::Fenced
            }
            Action::Lift => {
                self.host.lift()?;
                Event::Lifted
            }
            Action::End(end) => {
                let (compare, mark) = self.keys.end_lease(end);
                let done = self.etcd.transact(&compare, &[mark])?.is_done;
                if done {
                    let (node, leader) = (self.node.clone(), end.leader.holder.clone());
                    self.observer.event(event::Event::EndedLease { node, leader });
                }
                Event::Ended { done }
            }
            Action::RevokeLeader { lease } => {
                self.etcd.revoke(*lease)?;
                Event::LeaderRevoked
            }
        })
    }

    /// Has no candidate wait for an answer of the leader's, which gives none. That is for speed only: whether it is
    /// done, nobody has to know.
    fn hide_leader(&self) {
        if let Some((compare, (key, value))) = self.keys.hide_rest(&self.seen)
            && let Ok(lease) = self.etcd.grant(HIDDEN_TTL_SECONDS)
        {
            // The other survivor may have been first, or the leader be back.
            let _ = self.etcd.transact(&compare, &[Step::Put { key, value, lease: Some(lease) }]);
        }
        // Candidates go by what they have read while there was a leader.
        waker::wake(&self.api, self.rest);
        thread::sleep(TURN_TIME);
    }

    /// Has etcd's leader be on another host than the primary, so that both are not lost at once: nobody could vote before
    /// etcd had elected another one. That is for speed only, and for quiet times.
    fn part_leaders(&mut self, view: &View) {
        if !view.is_whole_under(&self.node, self.nodes) {
            self.parted_at = Instant::now();
        }
        if self.parted_at.elapsed() < PART_LEADERS_EVERY {
            return;
        }
        match self.etcd.hand_over() {
            Ok(true) => tracing::debug!(node = self.node, "etcd's leader has left the primary's host"),
            Ok(false) => {}
            // It will be tried again.
            Err(error) => tracing::debug!(node = self.node, %error, "etcd's leader is on the primary's host"),
        }
        self.parted_at = Instant::now();
    }

    fn tell_error(&mut self, action: &Action, error: &io::Error) {
        let text = error.to_string();
        if self.last_error.as_ref() != Some(&text) {
            tracing::debug!(node = self.node, ?action, %error, "a survivor could not do something; it goes on");
            self.last_error = Some(text);
        }
    }
}
