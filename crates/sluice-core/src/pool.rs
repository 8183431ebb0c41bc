//! One pool: which servers are idle, who waits, when to connect. Pure bookkeeping, shared by all workers.
//!
//! A server is named by the worker that has its connection; who may use it is decided here and nowhere else.

mod renewals;
mod share;
mod standings;
mod trouble;
mod waits;

use std::{sync::Arc, time::Duration};

use sluice_control::settings::PoolSettings;
use sluice_wire::ErrorResponse;

use crate::{
    customs::Customs,
    histogram::Times,
    holding::{PinCounts, Pins},
    ids::{ClientRef, ServerRef},
    logins::{Generation, Opened},
    queue::{Queue, Ticket},
    start::StartupParameters,
    time::Time,
};

use renewals::Renewals;
use share::Share;
use standings::Standings;
use trouble::Trouble;

pub use trouble::{IS_IT_RUNNING, Lasts};

/// The state of a pool.
#[derive(Debug)]
pub struct PoolState {
    settings: PoolSettings,
    /// Idle servers; the most recently used last.
    idle: Vec<Idle>,
    waiters: Queue<Waiter>,
    /// Servers connected, connecting, or promised.
    open: u32,
    /// Those that are connecting.
    connecting: Vec<Attempt>,
    /// The parameters that a client asked for last: what is kept ready is opened with these.
    latest: StartupParameters,
    /// The last failure, while nothing has gone right since.
    trouble: Option<Trouble>,
    /// The reason why there is no connecting at all: nobody knows where.
    nowhere: Option<Arc<ErrorResponse>>,
    used: bool,
    /// Whether a server has ever let it in.
    has_connected: bool,
    /// Whether an operator has it give out no servers.
    paused: bool,
    /// The reason why its clients are held, while they are: its cluster's primary is about to be another one. Those who
    /// have waited for too long get it as their error.
    held: Option<Arc<ErrorResponse>>,
    /// Nobody is refused for a wait before that.
    waits_from: Time,
    /// Whether that is the next time at which waits are looked at.
    waits_anew: bool,
    /// The time from which a wait for a server counts that was one for a primary before.
    recovered_at: Time,
    /// Whether that is the next time at which waits are looked at.
    has_recovered: bool,
    /// Servers that were opened before that are closed when they fall idle.
    renewed_at: Time,
    renewals: Renewals,
    /// Servers that clients keep between transactions, and why; the longest kept first.
    pinned: Vec<(ServerRef, Pins)>,
    /// The times that clients have waited who were given a server.
    waits: Times,
    /// The log-ins that its own clients go by.
    pub standings: Standings,
    /// Its standing with the pools that it shares limits with.
    pub share: Share,
}

/// A connection that is being opened.
#[derive(Debug)]
struct Attempt {
    startup: StartupParameters,
    since: Time,
}

#[derive(Debug)]
struct Idle {
    server: ServerRef,
    since: Time,
    opened: Opened,
    made: Customs,
}

#[derive(Debug)]
struct Waiter {
    client: ClientRef,
    since: Time,
    generation: Generation,
    startup: StartupParameters,
    new: bool,
    purpose: Purpose,
    until: Option<Time>,
}

/// The requirements of a client for its server.
#[derive(Debug, Clone, Copy)]
pub struct Wants<'a> {
    /// The custom settings that it may find there.
    pub made: &'a Customs,
    /// The server's own log-in is not to be of an earlier generation.
    pub generation: Generation,
    /// The server is to have been opened with these.
    pub startup: &'a StartupParameters,
    /// No client is to have had it.
    pub new: bool,
    /// The purpose.
    pub purpose: Purpose,
    /// The time at which it does without one, where it could have another pool's.
    pub until: Option<Time>,
}

/// The reason why a client needs a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It is logging in: what a server's own log-in comes to concerns it.
    LogIn,
    /// It has something to do.
    Work,
}

impl Wants<'_> {
    fn fit(&self, idle: &Idle) -> bool {
        idle.opened.suits(self.generation, self.startup, self.new) && self.made.cover(&idle.made)
    }

    fn wait(&self, now: Time, client: ClientRef) -> Waiter {
        let Self { generation, new, purpose, until, .. } = *self;
        Waiter { client, since: now, generation, startup: self.startup.clone(), new, purpose, until }
    }
}

impl Waiter {
    /// Whether a server that was opened in that way is one for it.
    fn may_take(&self, opened: &Opened) -> bool {
        opened.suits(self.generation, &self.startup, self.new)
    }

    /// Whether one that could not be opened in that way says how its own attempt would end.
    fn is_concerned(&self, opened: &Opened) -> bool {
        self.generation <= opened.generation && self.startup == opened.startup
    }
}

/// The answer to a client that needs a server.
#[derive(Debug, PartialEq, Eq)]
pub enum Acquired {
    /// This one; it is the client's from now on.
    Server(ServerRef),
    /// It has to wait; [`PoolState::reserve`] says whether a connection should be opened.
    Queued(Ticket),
}

/// The fate of a server that is free.
#[derive(Debug, PartialEq, Eq)]
pub enum Released {
    /// It goes to the client that has waited longest.
    To(ClientRef),
    /// It waits for a client.
    Idle,
    /// It has lived long enough.
    Close,
    /// Another pool, that has fewer under a limit that both share, needs one more.
    GivenUp,
}

/// A waiter that gets an error.
pub type Refusal = (ClientRef, Arc<ErrorResponse>);

impl PoolState {
    /// An empty pool that has servers nowhere, for that reason, until another one comes in its place.
    pub fn nowhere(settings: PoolSettings, error: ErrorResponse) -> Self {
        Self { nowhere: Some(error.into()), ..Self::new(settings) }
    }

    /// There is another reason why it has servers nowhere.
    pub fn set_nowhere(&mut self, error: ErrorResponse) {
        self.nowhere = Some(error.into());
    }

    /// An empty pool.
    pub fn new(settings: PoolSettings) -> Self {
        Self {
            settings,
            idle: Vec::new(),
            waiters: Queue::default(),
            open: 0,
            connecting: Vec::new(),
            latest: StartupParameters::default(),
            trouble: None,
            nowhere: None,
            used: false,
            has_connected: false,
            paused: false,
            held: None,
            waits_from: Time(0),
            waits_anew: false,
            recovered_at: Time(0),
            has_recovered: false,
            renewed_at: Time(0),
            renewals: Renewals::default(),
            pinned: Vec::new(),
            waits: Times::default(),
            standings: Standings::default(),
            share: Share::default(),
        }
    }

    /// Goes by these settings from now on.
    pub fn set_settings(&mut self, settings: PoolSettings) {
        self.settings = settings;
    }

    /// The time that connecting may take, and the statements that are kept on a server at most.
    pub fn for_new_servers(&self) -> (Duration, u32) {
        (self.settings.connect_timeout, self.settings.prepared_per_server)
    }

    /// The time for which clients wait for a primary.
    pub fn failover_timeout(&self) -> Duration {
        self.settings.failover_timeout.unwrap_or(self.settings.wait_timeout)
    }

    /// Gives out no servers from now on, and opens none; or does so again. Those who wait meanwhile have all of their time
    /// once it does. What there is must be [called in](Self::call_in).
    pub fn set_paused(&mut self, now: Time, paused: bool) {
        if self.paused && !paused {
            self.waits_from = now;
        }
        self.paused = paused;
    }

    /// The same while a cluster's primary changes hands, which is for a while only: whoever has waited for
    /// `failover_timeout` gets that error.
    pub fn hold(&mut self, why: Arc<ErrorResponse>) {
        self.held = Some(why);
    }

    /// Ends a hold: those who have waited meanwhile have all of their time from then on.
    pub fn release_hold(&mut self) {
        self.waits_anew |= self.held.take().is_some();
    }

    /// Whether it gives out no servers, and opens none.
    fn is_shut(&self) -> bool {
        self.paused || self.held.is_some()
    }

    /// Closes the servers there are when they fall idle; they must be [called in](Self::call_in).
    pub fn renew(&mut self, now: Time) {
        self.renewed_at = now;
    }

    /// Whether one that serves well may be closed, for another that knows nothing of the catalogs of before; it is, then.
    /// Not where another could not be had.
    pub fn may_renew_one(&mut self, now: Time) -> bool {
        self.trouble.is_none() && self.renewals.take(now, self.settings.size)
    }

    /// Whether an operator has all servers closed that were opened then.
    pub fn is_called_in(&self, opened: &Opened) -> bool {
        self.is_shut() || opened.at < self.renewed_at
    }

    /// The servers that an operator has closed: those that are idle, which are no longer part of the pool, and those that
    /// clients keep and may lose.
    pub fn call_in(&mut self, now: Time) -> (Vec<ServerRef>, Vec<ServerRef>) {
        let idle = self.surplus(now);
        let kept = self.pinned.iter().filter(|(_, pins)| pins.are_soft()).map(|(server, _)| *server);
        (idle, kept.collect())
    }

    /// Whether a server that was opened so is to be given up by a client that could do without it.
    pub fn wants_back(&self, now: Time, opened: &Opened) -> bool {
        self.is_called_in(opened) || self.is_short(now)
    }

    /// Whether a server has to be closed rather than kept.
    fn is_unwanted(&self, now: Time, opened: &Opened) -> bool {
        self.is_called_in(opened) || now.since(opened.at) >= self.settings.server_lifetime
    }

    /// Gives a server to `client`, or a place in the queue.
    pub fn acquire(&mut self, now: Time, client: ClientRef, wants: Wants<'_>) -> Acquired {
        match self.take_idle(client, wants) {
            Some(server) => Acquired::Server(server),
            None => {
                self.hurry(now);
                Acquired::Queued(self.waiters.push(wants.wait(now, client)))
            }
        }
    }

    /// The same for a client that was given one which it can't use: it comes before those who wait.
    pub fn acquire_again(&mut self, now: Time, client: ClientRef, wants: Wants<'_>) -> Acquired {
        match self.take_idle(client, wants) {
            Some(server) => Acquired::Server(server),
            None => {
                self.hurry(now);
                Acquired::Queued(self.waiters.push_front(wants.wait(now, client)))
            }
        }
    }

    fn take_idle(&mut self, client: ClientRef, wants: Wants<'_>) -> Option<ServerRef> {
        self.used = true;
        self.latest = wants.startup.clone();
        if self.is_shut() {
            return None;
        }
        // What failed before log-ins changed says nothing of those since.
        self.trouble.take_if(|trouble| trouble.generation < wants.generation);
        // One on the client's own worker spares a hand-over; the idle ones are few. One of a later generation has other
        // defaults, perhaps.
        let is_own = |idle: &Idle| idle.server.worker == client.worker;
        let is_alike = |idle: &Idle| idle.opened.generation == wants.generation;
        let find = |which: &dyn Fn(&Idle) -> bool| self.idle.iter().rposition(|idle| wants.fit(idle) && which(idle));
        let fits = find(&|idle| is_alike(idle) && is_own(idle)).or_else(|| find(&is_alike)).or_else(|| find(&|_| true));
        // One that does not fit is closed for another, if there can be none besides, or nobody can want it any more.
        let is_full = self.open >= self.settings.size;
        let superseded = || self.superseded(wants.generation).first().copied();
        let other = || superseded().or_else(|| (!self.idle.is_empty() && is_full).then_some(0));
        let place = fits.or_else(other)?;
        self.waits.add(Duration::ZERO);
        Some(self.idle.remove(place).server)
    }

    /// A waiter leaves the queue; `false` if it has just been given a server or an error.
    pub fn leave(&mut self, ticket: Ticket) -> bool {
        self.waiters.remove(ticket).is_some()
    }

    /// Reserves a connection to open, if there is need and leave for one. Gives the parameters to open it with.
    pub fn reserve(&mut self, now: Time) -> Option<StartupParameters> {
        let connecting = self.connecting.len() as u32;
        let allowed = self.open < self.settings.size && connecting < self.settings.parallel_connects;
        let paused = self.trouble.as_ref().is_some_and(|t| now < t.retry_at || connecting > 0);
        if !allowed || paused || self.is_shut() {
            return None;
        }
        let short_of_min = || (self.used && self.open < self.settings.min).then_some(&self.latest);
        let startup = self.first_without().map(|waiter| &waiter.startup).or_else(short_of_min)?.clone();
        self.open += 1;
        self.connecting.push(Attempt { startup: startup.clone(), since: now });
        Some(startup)
    }

    /// The first waiter that none of the connections is for which are being opened.
    fn first_without(&self) -> Option<&Waiter> {
        let mut is_taken = vec![false; self.connecting.len()];
        self.waiters.iter().find(|waiter| {
            let is_for_it =
                |(is_taken, attempt): &(&mut bool, &Attempt)| !**is_taken && attempt.startup == waiter.startup;
            let coming = is_taken.iter_mut().zip(&self.connecting).find(is_for_it);
            coming.map(|(is_taken, _)| *is_taken = true).is_none()
        })
    }

    /// A reserved connection was not opened after all.
    pub fn unreserve(&mut self, startup: &StartupParameters) {
        self.open -= 1;
        self.ends_connecting(startup);
    }

    /// A connection is open and logged in. It still has to be released before anyone can use it.
    pub fn connected(&mut self, startup: &StartupParameters) {
        // Who has waited for a primary has the time of others from now on.
        self.has_recovered |= self.settings.failover_timeout.is_some() && self.obstacle().is_some();
        self.ends_connecting(startup);
        self.trouble = None;
        self.has_connected = true;
    }

    /// Whether there has ever been a server. Clients may name what does not exist, and then there never is.
    pub fn has_connected(&self) -> bool {
        self.has_connected
    }

    fn ends_connecting(&mut self, startup: &StartupParameters) {
        let place = self.connecting.iter().position(|attempt| attempt.startup == *startup);
        debug_assert!(place.is_some(), "what ends has begun");
        if let Some(place) = place {
            self.connecting.swap_remove(place);
        }
    }

    /// Lets a client keep its server between transactions, for these reasons; `false` where as many do as may. Those
    /// that may lose theirs take no place away from one that may not.
    pub fn pin(&mut self, server: ServerRef, pins: Pins) -> bool {
        let admitted = self.may_pin(server, pins);
        if admitted {
            self.pinned.push((server, pins));
        }
        admitted
    }

    /// A client keeps its server for other reasons than before; `false` where it may not. What it could not lose before
    /// it keeps, also where a reload has left fewer places.
    pub fn set_pins(&mut self, server: ServerRef, pins: Pins) -> bool {
        let is_kept_for_good = self.pinned.iter().any(|(pinned, pins)| *pinned == server && pins.are_lasting());
        let admitted = is_kept_for_good || self.may_pin(server, pins);
        if let Some(known) = self.pinned.iter_mut().find(|(pinned, _)| *pinned == server) {
            known.1 = pins;
        }
        admitted
    }

    /// Servers that clients may keep and not lose, at most.
    pub fn pinned_max(&self) -> u32 {
        self.settings.pinned_max.unwrap_or_else(|| self.settings.size.saturating_sub(1).max(1))
    }

    fn may_pin(&self, server: ServerRef, pins: Pins) -> bool {
        let limit = self.pinned_max();
        // Whoever waits gets a server back that its client may lose.
        if pins.are_soft() { limit > 0 } else { self.kept_for_good(server) < limit }
    }

    /// The servers but this one that clients keep and may not lose.
    fn kept_for_good(&self, but: ServerRef) -> u32 {
        self.pinned.iter().filter(|(pinned, pins)| *pinned != but && pins.are_lasting()).count() as u32
    }

    /// A client keeps its server no longer.
    pub fn unpin(&mut self, server: ServerRef) {
        let before = self.pinned.len();
        self.pinned.retain(|(pinned, _)| *pinned != server);
        debug_assert_eq!(self.pinned.len() + 1, before, "only what was pinned is unpinned");
    }

    /// The reasons why clients keep servers, for each of those.
    pub fn kept(&self) -> impl Iterator<Item = Pins> {
        self.pinned.iter().map(|(_, pins)| *pins)
    }

    /// The number of clients that keep servers, for each reason.
    pub fn pins(&self) -> PinCounts {
        PinCounts::of(self.kept())
    }

    /// Whether clients wait that no server will come to, unless one is given back or taken from its client; or others are
    /// to have one.
    fn is_short(&self, now: Time) -> bool {
        (self.open >= self.settings.size && self.first_without().is_some()) || self.share.is_asked_for(now)
    }

    /// A server to be taken from the client that keeps it, if it is needed and the client may lose it.
    pub fn recall(&mut self, now: Time) -> Option<ServerRef> {
        if !self.is_short(now) {
            return None;
        }
        let place = self.pinned.iter().position(|(_, pins)| pins.are_soft())?;
        // Asked for once: whether it can be taken is decided where it is.
        self.pinned[place].1 = Pins::empty();
        Some(self.pinned[place].0)
    }

    /// A server that was in use or being reset is gone.
    pub fn lost(&mut self) {
        self.open -= 1;
    }

    /// An idle server is gone; `false` if it has just been given away.
    pub fn lost_idle(&mut self, server: ServerRef) -> bool {
        let Some(place) = self.idle.iter().position(|idle| idle.server == server) else { return false };
        self.idle.remove(place);
        self.open -= 1;
        true
    }

    /// A server is free; `is_over` says whether there are more than a limit allows that others share.
    pub fn release(&mut self, now: Time, server: ServerRef, opened: Opened, made: &Customs, is_over: bool) -> Released {
        // There may be more than may be: it was larger a while ago.
        if is_over || self.is_unwanted(now, &opened) || self.open > self.settings.size {
            self.open -= 1;
            return Released::Close;
        }
        let next = if self.open >= self.settings.size { self.first_without() } else { None };
        if next.is_some_and(|waiter| !waiter.may_take(&opened)) {
            // It needs another in its place. Others, that would take it, are not to be served for ever before that one.
            self.open -= 1;
            return Released::Close;
        }
        if self.share.gives_up(now) {
            self.open -= 1;
            return Released::GivenUp;
        }
        match self.waiters.pop_where(|waiter| waiter.may_take(&opened)) {
            Some(waiter) => {
                self.waits.add(now.since(waiter.since));
                Released::To(waiter.client)
            }
            None => {
                self.idle.push(Idle { server, since: now, opened, made: made.clone() });
                Released::Idle
            }
        }
    }

    /// Idle servers that have been idle or have lived for too long, or are more than may be; they are no longer part of the
    /// pool.
    pub fn surplus(&mut self, now: Time) -> Vec<ServerRef> {
        let mut gone = Vec::new();
        let mut spare = self.open.saturating_sub(self.settings.min);
        let mut over = self.open.saturating_sub(self.settings.size);
        let mut idle = std::mem::take(&mut self.idle);
        idle.retain(|idle| {
            let unused = spare > 0 && now.since(idle.since) >= self.settings.server_idle_timeout;
            let goes = self.is_unwanted(now, &idle.opened) || unused || over > 0;
            if goes {
                spare = spare.saturating_sub(1);
                over = over.saturating_sub(1);
                gone.push(idle.server);
            }
            !goes
        });
        self.idle = idle;
        self.open -= gone.len() as u32;
        gone
    }

    /// Gives up the server that has been idle longest, for another pool.
    pub fn give_up_idle(&mut self) -> Option<ServerRef> {
        if self.idle.is_empty() {
            return None;
        }
        self.open -= 1;
        Some(self.idle.remove(0).server)
    }

    /// The clients that wait, the next one first.
    pub fn waiting(&self) -> impl Iterator<Item = ClientRef> {
        self.waiters.iter().map(|waiter| waiter.client)
    }

    /// Counts for tests, for the operator, and for the invariants of the simulation.
    pub fn counts(&self) -> Counts {
        Counts {
            open: self.open,
            idle: self.idle.len() as u32,
            connecting: self.connecting.len() as u32,
            waiting: self.waiters.len() as u32,
            pinned: self.pinned.len() as u32,
            waits: self.waits,
        }
    }

    /// The time that the client which comes next has waited.
    pub fn longest_wait(&self, now: Time) -> Duration {
        self.waiters.front().map_or(Duration::ZERO, |waiter| now.since(waiter.since))
    }
}

/// A pool's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Servers connected, connecting or promised.
    pub open: u32,
    /// Of these, idle.
    pub idle: u32,
    /// Of these, connecting.
    pub connecting: u32,
    /// Clients that wait.
    pub waiting: u32,
    /// Servers that clients keep between transactions, because of what their sessions hold.
    pub pinned: u32,
    /// The times that clients have waited who were given a server, once for each transaction where they share servers.
    pub waits: Times,
}

#[cfg(test)]
mod tests;
