//! Times at which something is to be looked at. Whoever runs the engine sleeps until [`Engine::next_timeout`].
//! The deadlines of clients and servers may move on: [`Alarm`](crate::alarm::Alarm) tells which entry counts.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use crate::{
    ids::{CancelId, ClientId, ServerId},
    io::Io,
    mail::Mail,
    replies::Expected,
    server::{Role, Server},
    time::Time,
};

use super::Engine;

/// The time that a server whose client is gone may go on after a cancel, before it gets another: the first one may have
/// come before the query did, and is lost then.
pub(super) const CANCEL_AGAIN: Duration = Duration::from_millis(500);

/// The interval at which the first worker tends the pools, which all workers change.
const TEND_INTERVAL: Duration = Duration::from_millis(100);

/// Whatever is to be looked at. One that is gone meanwhile is known by its serial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A client that has left something undone while it has a server.
    Client(ClientId, u32),
    /// A client that has set itself a limit for its idle session, while it has no server.
    Rest(ClientId, u32),
    /// A server that is opening or settling, for which a cancel is held, or that may be taken from its client.
    Server(ServerId, u32),
    /// A server whose request has a limit.
    Query(ServerId, u32),
    /// A CancelRequest on its way.
    Cancel(CancelId),
}

/// The timers, the next one first.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Time, Timer)>>,
    /// The time at which the pools are tended next.
    tend_at: Time,
}

impl Timers {
    pub(super) fn push(&mut self, at: Time, timer: Timer) {
        self.heap.push(Reverse((at, timer)));
    }

    fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    fn pop_due(&mut self, now: Time) -> Option<(Time, Timer)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(due)| due)
    }

    /// Whether it is time to tend the pools.
    pub(super) fn tends(&mut self, now: Time) -> bool {
        let is_due = now >= self.tend_at;
        if is_due {
            self.tend_at = now + TEND_INTERVAL;
        }
        is_due
    }
}

impl Engine {
    /// The time at which [`tick`](Self::tick) has something to do next, unless something else happens before; `None` if
    /// there is nothing.
    pub fn next_timeout(&self) -> Option<Time> {
        let login = self.logins.front().map(|(since, _)| *since + self.snapshot.limits.login_timeout);
        let tend = (self.worker == 0).then_some(self.timers.tend_at);
        let stop = self.stopping.filter(|_| !self.is_finished());
        Time::first_of([self.timers.next(), login, tend, stop])
    }

    /// Looks at what is due.
    pub(super) fn expire(&mut self, now: Time, io: &mut impl Io) {
        while let Some((at, timer)) = self.timers.pop_due(now) {
            match timer {
                Timer::Client(id, serial) => self.client_due(now, at, id, serial, io),
                Timer::Rest(id, serial) => self.rest_due(now, at, id, serial, io),
                Timer::Server(id, serial) => self.server_due(now, at, id, serial, io),
                Timer::Query(id, serial) => self.query_due(now, at, id, serial, io),
                Timer::Cancel(id) => self.cancel_due(now, id, io),
            }
        }
    }

    /// Notes the deadline of a server, if it has one and that is not noted.
    pub(super) fn arm(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let Some(at) = deadline(server) else { return };
        if server.alarm.set(at) {
            self.timers.push(at, Timer::Server(id, server.serial));
        }
    }

    fn server_due(&mut self, now: Time, at: Time, id: ServerId, serial: u32, io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(id).filter(|server| server.serial == serial) else { return };
        if !server.alarm.ring(at) {
            return;
        }
        if cancel_again(server).is_some_and(|at| now >= at) {
            server.cancels.repeat_at(now + CANCEL_AGAIN);
            self.send_cancel(now, id, io);
        } else if held_until(server).is_some_and(|at| now >= at) {
            self.send_cancel(now, id, io);
        }
        if let Some(server) = self.servers.get_mut(id).filter(|server| server.recall_at().is_some_and(|at| now >= at)) {
            server.end_recall_time();
            if server.pool.wants_back(now, &server.opened) {
                self.recall_here(now, id, io);
            }
        }
        self.expire_server(now, id, io);
        self.arm(id);
    }

    /// Each server's deadline is noted: nothing would look at it otherwise.
    pub(super) fn assert_timers(&self) {
        let is_noted = |server: &Server| deadline(server).is_none_or(|at| server.alarm.rings_by(at));
        debug_assert!(self.servers.iter().all(|(_, server)| is_noted(server)), "a server's deadline is forgotten");
    }
}

/// The time at which a server is to be looked at, if there is one.
fn deadline(server: &Server) -> Option<Time> {
    let role = match server.role {
        Role::Opening { deadline, .. } | Role::Settling { deadline } => Some(deadline),
        Role::Serving(_) => server.asked_until,
        Role::Idle => None,
    };
    Time::first_of([role, cancel_again(server), held_until(server), server.recall_at()])
}

/// The time at which a server gets another cancel, if it is still busy for a client that is gone.
fn cancel_again(server: &Server) -> Option<Time> {
    let is_busy = matches!(server.role, Role::Settling { .. }) && !server.is_settled();
    let is_own = matches!(server.exchange.replies().front(), Some(Expected::Own(_)));
    server.cancels.repeats_at().filter(|_| is_busy && !is_own)
}

impl Engine {
    /// Gives up a server whose opening or settling has taken too long.
    pub(super) fn expire_server(&mut self, now: Time, id: ServerId, io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(id) else { return };
        match server.role {
            Role::Opening { deadline, .. } if now >= deadline => {
                self.server_closed(now, id, "it did not answer within connect_timeout", io);
            }
            Role::Serving(client) if server.asked_until.is_some_and(|until| now >= until) => {
                self.asked_overdue(now, (client, id), io);
            }
            Role::Settling { deadline } if now >= deadline => {
                let pool = server.pool.clone();
                self.close_server(id, io);
                self.connect_for(now, &pool, io);
            }
            _ => {}
        }
    }

    /// The needs of a pool as time goes by: waits that end, servers no longer needed, connects after a pause.
    pub(super) fn tend_pools(&mut self, now: Time, io: &mut impl Io) {
        let mut pools = self.hub.pools_in_use();
        pools.retain(|pool| {
            let left = pool.leave_database(now, 1);
            for server in left.iter().flatten() {
                io.mail(server.worker, Mail::CloseIdle(*server));
            }
            left.is_none()
        });
        for pool in &pools {
            let is_over = pool.budgets.are_shrinking();
            let (refused, surplus) = {
                let mut state = pool.state();
                let mut surplus = state.surplus(now);
                surplus.extend(state.give_up_superseded(pool.log_ins.generation()));
                // One each time: there may be others that give up some.
                surplus.extend(if is_over { state.give_up_idle() } else { None });
                (state.expire(now), surplus)
            };
            for (client, error) in refused {
                io.mail(client.worker, Mail::Refuse(client, error));
            }
            for server in surplus {
                io.mail(server.worker, Mail::CloseIdle(server));
            }
        }
        self.connect_for_all(now, pools, io);
    }
}

/// The time up to which a cancel waits for a BEGIN.
fn held_until(server: &Server) -> Option<Time> {
    let begins = matches!(server.exchange.replies().front(), Some(Expected::Begin(_)));
    (server.cancels.is_held() && begins).then(|| server.exchange.begun_by())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_in_order_and_nothing_else() {
        let mut timers = Timers::default();
        let (client, server) = (Timer::Client(ClientId(1), 7), Timer::Server(ServerId(1), 8));
        for (at, timer) in [(30, client), (10, server), (20, Timer::Cancel(CancelId(0)))] {
            timers.push(Time(at), timer);
        }
        assert_eq!((timers.next(), timers.pop_due(Time(9))), (Some(Time(10)), None));
        assert_eq!(timers.pop_due(Time(25)), Some((Time(10), server)));
        assert_eq!(timers.pop_due(Time(25)), Some((Time(20), Timer::Cancel(CancelId(0)))));
        assert_eq!((timers.pop_due(Time(25)), timers.next()), (None, Some(Time(30))));
    }

    #[test]
    fn pools_are_tended_at_an_interval() {
        let mut timers = Timers::default();
        let later = Time(5) + TEND_INTERVAL;
        assert_eq!([timers.tends(Time(5)), timers.tends(Time(6)), timers.tends(later)], [true, false, true]);
    }
}
