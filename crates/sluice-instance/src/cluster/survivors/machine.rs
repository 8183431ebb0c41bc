//! The decisions of one survivor: events in, one action out. No I/O, no clock: `now` is an argument.
//!
//! The driver carries out the action and answers with its event, or with [`Event::Failed`], which says nothing of
//! whether it was done. What must hold, whatever fails in between:
//!
//! 1. *A vote that says fenced stands in etcd only while this node's WAL receiver is held off.* It is written after the
//!    receiver was seen to be off, under a lease of its own. The receiver is let go only after that lease has been
//!    revoked, so that also a request that is still on its way can't bring the vote back.
//! 2. *Once it is settled that the leader's lease ends, the receiver stays off until that lease is no more, and Patroni
//!    has this node follow the holder of the next leader key, or has promoted it.*
//! 3. *Who votes has streamed from this leader in this term*, so that what it has received is the beginning of what the
//!    leader has written.
//! 4. It is settled by one transaction that compares the leader key's revision, the revisions of every voter's vote that
//!    says fenced and is about that key, and those of Patroni's `sync`, `config` and `failover`. It writes a mark under
//!    the leader's own lease: as long as the mark is there, that lease may be revoked, by whoever sees it, and no
//!    receiver is let go; once it is gone, a revocation that is still on its way revokes nothing any more.

use std::time::Duration;

use super::view::{Addresses, Config, LeaderKey, Sight, Sign, Sync, View};

/// Time limits and pauses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// The primary has to be silent for so long before it is suspected.
    pub(crate) silence: Duration,
    /// A PostgreSQL that has been silent for so long is gone, though its Patroni answers: that is not bringing it back.
    pub(crate) without_postgres: Duration,
    /// The pause between two looks while all is well.
    pub(crate) calm: Duration,
    /// The same while the primary is silent.
    pub(crate) hurried: Duration,
    /// etcd is read that often while all is well, for who is the leader.
    pub(crate) refresh: Duration,
    /// A lease is kept alive that often.
    pub(crate) keep_alive: Duration,
    /// A sign of life is waited for so long.
    pub(crate) patience: Duration,
    /// The same with a ballot: the primary was silent, and the others wait.
    pub(crate) patience_with_ballot: Duration,
    /// A survivor whose receiver is off lets it go if the others have not followed within this time.
    pub(crate) fenced_alone: Duration,
    /// After that it leaves the leader alone for so long. The others may have been held up: that is over soon.
    pub(crate) after_alone: Duration,
    /// Time for which a leader is left alone after it has taken the key again by itself.
    pub(crate) cool_down: Duration,
}

/// The time to live of a vote's lease, in seconds.
pub(crate) const VOTE_TTL_SECONDS: u32 = 5;
const VOTE_TTL: Duration = Duration::from_secs(VOTE_TTL_SECONDS as u64);

impl Default for Times {
    fn default() -> Self {
        Self {
            silence: Duration::from_millis(1200),
            without_postgres: Duration::from_secs(2),
            calm: Duration::from_millis(400),
            hurried: Duration::from_millis(50),
            refresh: Duration::from_secs(4),
            keep_alive: Duration::from_secs(1),
            patience: Duration::from_millis(350),
            patience_with_ballot: Duration::from_millis(100),
            fenced_alone: Duration::from_secs(4),
            after_alone: Duration::from_secs(2),
            cool_down: Duration::from_secs(30),
        }
    }
}

/// The number of looks in a row that have to be in vain: a survivor that was not running itself has not looked.
const LOOKS_IN_VAIN_MIN: u32 = 3;

/// A vote as a transaction compares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) node: String,
    pub(crate) revision: i64,
}

/// The transaction that settles that a leader's lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndLease {
    pub(crate) leader: LeaderKey,
    pub(crate) votes: Vec<Compared>,
    pub(crate) sync: i64,
    pub(crate) config: i64,
    pub(crate) failover: i64,
}

/// A task for the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Answered by [`Event::Woken`].
    Wait(Duration),
    /// Write this run's own key, and delete the vote of a run before: [`Event::Registered`].
    Register,
    /// Look at this host's PostgreSQL and, where nothing was received, wait so long for a sign of life of the primary:
    /// [`Event::Looked`].
    Look { primary: Option<Addresses>, patience: Duration },
    /// Read etcd: [`Event::Viewed`].
    View,
    /// Grant a lease: [`Event::Granted`].
    Grant,
    /// Write the vote under the lease, if this run's own key is still the one of `registration`: [`Event::Voted`], or
    /// [`Event::Superseded`] if it is not.
    Vote { lease: i64, registration: i64, about: i64, is_fenced: bool },
    /// Keep the lease alive: [`Event::Kept`], or [`Event::Expired`] if it has ended.
    KeepAlive { lease: i64 },
    /// Revoke the lease: [`Event::Revoked`], also when it had ended before.
    Revoke { lease: i64 },
    /// Hold the WAL receiver off, and see to it that none runs: [`Event::Fenced`].
    Fence,
    /// Let it go: [`Event::Lifted`].
    Lift,
    /// Settle that the leader's lease ends: [`Event::Ended`].
    End(EndLease),
    /// Revoke the leader's lease, of which that is settled, and with it the leader key: [`Event::LeaderRevoked`], also
    /// when it had ended before.
    RevokeLeader { lease: i64 },
}

/// An event that the driver tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Woken,
    Registered {
        revision: i64,
    },
    /// None: this host's PostgreSQL does not answer.
    Looked(Option<Sight>),
    Viewed(View),
    Granted {
        lease: i64,
    },
    Voted,
    /// Another run has this node's key now.
    Superseded,
    Kept,
    Expired,
    Revoked,
    Fenced,
    Lifted,
    Ended {
        done: bool,
    },
    LeaderRevoked,
    /// The action has failed, or nobody knows.
    Failed,
}

/// A vote of this node under its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ballot {
    lease: i64,
    about: LeaderKey,
    /// The lease lives for [`VOTE_TTL`] from then at least: when it was asked for, or to be kept alive.
    kept_at: Duration,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The suspicion is not known to be written.
    Granted,
    /// It is; the receiver may run.
    Told,
    /// The receiver was seen to be off; the vote is not known to be written.
    Fenced { since: Duration },
    /// It is.
    Voted { since: Duration },
    /// It is settled that the leader's lease ends.
    Ended,
}

impl Stage {
    fn needs_fence(self) -> bool {
        matches!(self, Self::Fenced { .. } | Self::Voted { .. } | Self::Ended)
    }
}

/// For how long the leader has shown no sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Silence {
    since: Duration,
    /// For how long its PostgreSQL has shown none.
    of_postgres: Duration,
    looks: u32,
}

impl Silence {
    /// None up to now.
    fn none(now: Duration) -> Self {
        Self { since: now, of_postgres: now, looks: 0 }
    }
}

/// One survivor.
#[derive(Debug)]
pub(crate) struct Survivor {
    name: String,
    /// The number of nodes with data, whether or not they are there.
    nodes: usize,
    times: Times,
    /// The revision of this run's own key.
    registration: Option<i64>,
    /// The leader, as it was read last, with its addresses.
    leader: Option<(LeaderKey, Option<Addresses>)>,
    viewed_at: Option<Duration>,
    /// The time of the last action.
    acted_at: Duration,
    /// The lease has been kept alive since etcd was read last.
    has_kept: bool,
    /// The revision of the leader key under whose holder this node was seen to stream from it.
    witnessed: Option<i64>,
    silence: Silence,
    ballot: Option<Ballot>,
    /// The leader from which the receiver was held off last: its lease may have been ended.
    judged: Option<LeaderKey>,
    /// A leader that is left alone until then.
    cooling: Option<(String, Duration)>,
    /// Looked at since the last wait or change.
    sight: Option<Option<Sight>>,
    /// Read since the last wait or change.
    view: Option<View>,
}

impl Survivor {
    pub(crate) fn new(name: &str, nodes: usize, times: Times) -> Self {
        Self {
            name: name.to_owned(),
            nodes,
            times,
            registration: None,
            leader: None,
            viewed_at: None,
            acted_at: Duration::ZERO,
            has_kept: false,
            witnessed: None,
            silence: Silence::none(Duration::ZERO),
            ballot: None,
            judged: None,
            cooling: None,
            sight: None,
            view: None,
        }
    }

    /// Takes an event in, and says what to do next. The first event is [`Event::Woken`].
    pub(crate) fn step(&mut self, now: Duration, event: Event) -> Action {
        let action = self.react(now, event);
        self.acted_at = now;
        action
    }

    fn react(&mut self, now: Duration, event: Event) -> Action {
        match event {
            Event::Woken => self.forget(),
            Event::Failed => {
                self.forget();
                return Action::Wait(self.times.hurried);
            }
            Event::Registered { revision } => {
                self.registration = Some(revision);
                // Nothing is left of a run before.
                self.ballot = None;
                self.forget();
            }
            Event::Superseded => self.registration = None,
            Event::Looked(sight) => self.looked(now, sight),
            Event::Viewed(view) => self.viewed(now, view),
            Event::Granted { lease } => {
                if let Some((about, _)) = self.leader.clone() {
                    self.ballot = Some(Ballot { lease, about, kept_at: self.acted_at, stage: Stage::Granted });
                }
            }
            Event::Voted => self.voted(),
            Event::Kept => self.kept(),
            // What etcd says here may be older than its leader: the lease is over once it is revoked.
            Event::Expired => {
                if let Some(revoke) = self.withdraw() {
                    return revoke;
                }
            }
            Event::Fenced => {
                if let Some(ballot) = &mut self.ballot {
                    self.judged = Some(ballot.about.clone());
                    ballot.stage = Stage::Fenced { since: now };
                }
                self.sight = None;
            }
            Event::Revoked => {
                self.ballot = None;
                self.forget();
            }
            Event::Lifted => {
                // Nothing has become of it.
                self.judged.take_if(|judged| self.leader.as_ref().is_some_and(|(leader, _)| leader == judged));
                self.silence = Silence::none(now);
                self.forget();
            }
            Event::Ended { done } => {
                self.forget();
                if let (true, Some(ballot)) = (done, &mut self.ballot) {
                    ballot.stage = Stage::Ended;
                    return Action::RevokeLeader { lease: ballot.about.lease };
                }
            }
            Event::LeaderRevoked => self.forget(),
        }
        self.next(now)
    }

    /// A look and a view are good for one decision only.
    fn forget(&mut self) {
        self.sight = None;
        self.view = None;
    }

    fn looked(&mut self, now: Duration, sight: Option<Sight>) {
        if let (Some(Sight { streams_from: Some(from), .. }), Some((leader, Some(primary)))) = (&sight, &self.leader)
            && *from == primary.postgres
        {
            self.witnessed = Some(leader.revision);
        }
        match &sight {
            // Who can't see has not looked.
            None => self.silence = Silence::none(now),
            Some(sight) if sight.sign == Sign::Postgres || !sight.is_standby => self.silence = Silence::none(now),
            Some(sight) if self.is_alive(now, sight) => (self.silence.since, self.silence.looks) = (now, 0),
            Some(_) => self.silence.looks = self.silence.looks.saturating_add(1),
        }
        self.sight = Some(sight);
    }

    fn viewed(&mut self, now: Duration, view: View) {
        self.viewed_at = Some(now);
        self.has_kept = false;
        let leader = view.leader.clone();
        let known = self.leader.clone();
        if self.leader.as_ref().map(|(leader, _)| leader) != leader.as_ref() {
            // Another leader, or none: nobody has been silent yet.
            self.silence = Silence::none(now);
            if let Some(leader) = &leader
                && let Some(judged) = self.judged.take_if(|judged| judged != leader)
                && judged.holder == leader.holder
            {
                // It was not gone, and was faster than the others: nothing is won by doing that again at once.
                self.cooling = Some((judged.holder, now + self.times.cool_down));
            }
        }
        self.leader = leader.map(|leader| {
            // Its REST API may have been hidden.
            let before = known.filter(|(before, _)| *before == leader).and_then(|(_, addresses)| addresses);
            let addresses = view.primary().cloned().or(before);
            (leader, addresses)
        });
        self.view = Some(view);
    }

    fn voted(&mut self) {
        if let Some(ballot) = &mut self.ballot {
            ballot.stage = match ballot.stage {
                Stage::Granted => Stage::Told,
                Stage::Fenced { since } => Stage::Voted { since },
                other => other,
            };
        }
        self.view = None;
    }

    fn kept(&mut self) {
        if let Some(ballot) = &mut self.ballot {
            ballot.kept_at = self.acted_at;
            self.has_kept = true;
        }
        self.sight = None;
    }

    fn next(&mut self, now: Duration) -> Action {
        if self.registration.is_none() {
            return Action::Register;
        }
        let Some(sight) = self.sight.clone() else {
            let primary = self.leader.as_ref().and_then(|(_, addresses)| addresses.clone());
            let patience = if self.ballot.is_some() { self.times.patience_with_ballot } else { self.times.patience };
            return Action::Look { primary, patience };
        };
        let Some(sight) = sight.filter(|sight| sight.is_standby || sight.is_fenced) else {
            // A primary, or a node that can't see: it has no vote.
            return self.withdraw().unwrap_or_else(|| self.rest(now));
        };
        if let Some(revoke) = self.withdraw() {
            return if sight.is_standby { self.pursue(now, &sight) } else { revoke };
        }
        if sight.is_fenced {
            return match &self.view {
                None => Action::View,
                Some(View { ending: Some(lease), .. }) => Action::RevokeLeader { lease: *lease },
                Some(_) if !sight.is_standby || self.may_follow(&sight) => Action::Lift,
                Some(_) => Action::Wait(self.times.hurried),
            };
        }
        if !self.is_silent(now) {
            return self.rest(now);
        }
        let Some(view) = &self.view else { return Action::View };
        match self.may_end(view) {
            Some((leader, ..)) if self.witnessed == Some(leader.revision) && !self.is_cooling(now, &leader.holder) => {
                Action::Grant
            }
            _ => Action::Wait(self.times.calm),
        }
    }

    fn withdraw(&self) -> Option<Action> {
        self.ballot.as_ref().map(|ballot| Action::Revoke { lease: ballot.lease })
    }

    /// Nothing is to be done but to look again.
    fn rest(&self, now: Duration) -> Action {
        let is_due = self.viewed_at.is_none_or(|at| now.saturating_sub(at) >= self.times.refresh);
        if is_due && self.view.is_none() {
            return Action::View;
        }
        Action::Wait(if self.silence.looks > 0 { self.times.hurried } else { self.times.calm })
    }

    fn is_silent(&self, now: Duration) -> bool {
        matches!(self.leader, Some((_, Some(_))))
            && self.silence.looks >= LOOKS_IN_VAIN_MIN
            && (now.saturating_sub(self.silence.since) >= self.times.silence || self.is_without_postgres(now))
    }

    fn is_without_postgres(&self, now: Duration) -> bool {
        now.saturating_sub(self.silence.of_postgres) >= self.times.without_postgres
    }

    /// Whether the leader is there, or is being brought back by its Patroni.
    fn is_alive(&self, now: Duration, sight: &Sight) -> bool {
        match sight.sign {
            Sign::None => false,
            Sign::Patroni => !self.is_without_postgres(now),
            Sign::Postgres => true,
        }
    }

    /// Whether the receiver may run again: there is a leader, and it is the one that Patroni has this node follow.
    fn may_follow(&self, sight: &Sight) -> bool {
        let primary = self.leader.as_ref().and_then(|(_, addresses)| addresses.as_ref());
        sight.follows.is_some() && primary.map(|primary| &primary.postgres) == sight.follows.as_ref()
    }

    fn is_cooling(&self, now: Duration, holder: &str) -> bool {
        self.cooling.as_ref().is_some_and(|(name, until)| name == holder && now < *until)
    }

    /// Goes on with the ballot, or withdraws it.
    fn pursue(&mut self, now: Duration, sight: &Sight) -> Action {
        let (Some(ballot), Some(registration)) = (self.ballot.clone(), self.registration) else {
            return Action::Register;
        };
        let revoke = Action::Revoke { lease: ballot.lease };
        let kept = now.saturating_sub(ballot.kept_at);
        let is_fence_down = ballot.stage.needs_fence() && !sight.is_fenced;
        if self.is_alive(now, sight) || is_fence_down || kept >= VOTE_TTL {
            return revoke;
        }
        let Some(view) = &self.view else {
            // However slow etcd is, there is a look and a decision between two of them.
            let is_due = kept >= self.times.keep_alive && !self.has_kept && ballot.stage != Stage::Ended;
            return if is_due { Action::KeepAlive { lease: ballot.lease } } else { Action::View };
        };
        if let Some(lease) = view.ending {
            return Action::RevokeLeader { lease };
        }
        let Some((leader, sync, config)) = self.may_end(view) else { return revoke };
        if *leader != ballot.about {
            return revoke;
        }
        let vote = |is_fenced| Action::Vote { lease: ballot.lease, registration, about: leader.revision, is_fenced };
        let own = view.votes.get(&self.name).filter(|own| own.about == leader.revision);
        match ballot.stage {
            Stage::Granted => vote(false),
            Stage::Fenced { .. } => vote(true),
            // Its lease has ended.
            Stage::Told | Stage::Voted { .. } if own.is_none() => revoke,
            Stage::Told if all_say(view, sync, leader, false).is_some() => Action::Fence,
            Stage::Voted { since } => match all_say(view, sync, leader, true) {
                Some(votes) => Action::End(EndLease {
                    leader: leader.clone(),
                    votes,
                    sync: sync.revision,
                    config: config.revision,
                    failover: view.failover.revision,
                }),
                None if now.saturating_sub(since) >= self.times.fenced_alone => {
                    self.cooling = Some((leader.holder.clone(), now + self.times.after_alone));
                    revoke
                }
                None => Action::Wait(self.times.hurried),
            },
            Stage::Told => Action::Wait(self.times.hurried),
            Stage::Ended => revoke,
        }
    }

    /// Whether the leader's lease may be ended, if all voters agree: commits are acknowledged only with one of them, which
    /// are all nodes but the leader, and this one among them, and nobody has asked Patroni for something else.
    fn may_end<'a>(&self, view: &'a View) -> Option<(&'a LeaderKey, &'a Sync, &'a Config)> {
        let (leader, sync, config) = (view.leader.as_ref()?, view.sync.as_ref()?, view.config.as_ref()?);
        // One that is no voter could become one, and confirm what it receives, without having been held off.
        let are_all_voters = sync.voters.len() + 1 >= self.nodes
            && view.members.keys().all(|node| *node == leader.holder || sync.voters.contains(node));
        let is_meant = leader.holder != self.name
            && leader.lease != 0
            && sync.leader == leader.holder
            && sync.voters.len() >= 2
            && are_all_voters
            && sync.voters.contains(&self.name)
            && !sync.voters.contains(&leader.holder)
            && sync.quorum < sync.voters.len();
        let is_allowed = config.is_strict_quorum && !config.is_paused && !view.failover.is_asked_for;
        (is_meant && is_allowed).then_some((leader, sync, config))
    }
}

/// The votes of all voters, if each has one about this leader: a suspicion at least, or one that says fenced.
fn all_say(view: &View, sync: &Sync, leader: &LeaderKey, is_fenced: bool) -> Option<Vec<Compared>> {
    let vote = |node: &String| {
        let vote = view.votes.get(node)?;
        let counts = vote.about == leader.revision && (vote.is_fenced || !is_fenced);
        counts.then(|| Compared { node: node.clone(), revision: vote.revision })
    };
    sync.voters.iter().map(vote).collect()
}
