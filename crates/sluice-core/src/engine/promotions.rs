//! A standby that is promoted: its clients are told, and those who log in from then on.
//!
//! PostgreSQL says so with a session's next answer, and only there. Clients that ask for a primary
//! (`target_session_attrs`) go by what they are told at their log-in, and ask nothing: so where servers are idle, a
//! log-in is not told for long that there is a standby, before one of them has been asked.

use std::time::Duration;

use crate::{
    hub::{Pool, Welcome},
    io::Io,
    replies::Own,
    server::{IN_HOT_STANDBY, Server, value_in_messages},
    time::Time,
};

use super::{
    backend::{ServerRelay, Verdict},
    own_queries::send_own,
};

/// The time for which log-ins are told that a server is a standby after it was last heard to be one.
const TOLD_TIME: Duration = Duration::from_secs(1);

/// Has a server say whether it is a standby still, if a client that logs in is to be told so.
pub(super) fn ask_whether_promoted(now: Time, server: &mut Server, scratch: &mut Vec<u8>, io: &mut impl Io) {
    let is_in_doubt = server.pool.log_ins.is_in_recovery() == Some(false);
    let is_heard = now.since(server.opened.at) < TOLD_TIME && !is_in_doubt;
    if server.is_in_recovery() && !is_heard && !server.exchange.owes() {
        send_own(server, scratch, Own::Recovery, "", io);
    }
}

impl Pool {
    /// A server has said whether it is in recovery: where others have said otherwise, clients have been told that.
    pub(super) fn note_recovery(&self, is_in_recovery: bool) {
        if self.log_ins.note_recovery(is_in_recovery) {
            self.log_ins.note_reload();
            self.forget_welcomes();
        }
    }

    /// Whether a client that logs in now may be told that without a server.
    pub(super) fn still_says(&self, now: Time, welcome: &Welcome) -> bool {
        let Some(told) = value_in_messages(&welcome.parameters, IN_HOT_STANDBY) else { return true };
        let is_standby = told == "on";
        if self.log_ins.is_in_recovery().is_some_and(|is| is != is_standby) {
            return false;
        }
        // Those that are not idle say so by themselves.
        !is_standby || self.log_ins.since_recovery(now) < TOLD_TIME || self.state().counts().idle == 0
    }
}

/// A client that logs in is told what its server has reported.
pub(super) fn note_told(now: Time, server: &Server) {
    if server.is_in_recovery() {
        server.pool.log_ins.hear_in_recovery(now);
    }
}

impl<I: Io> ServerRelay<'_, I> {
    /// A server has reported whether it is in recovery, not in answer to the pool. No setting has been made.
    pub(super) fn pass_recovery(&mut self, value: &str) -> Verdict {
        self.server.parameters.tells_truth(IN_HOT_STANDBY);
        let Some((_, session)) = &self.client else { return Verdict::Pass };
        if value_in_messages(&session.told, IN_HOT_STANDBY) == Some(value) {
            return Verdict::Swallow;
        }
        self.server.parameters.note_passed(IN_HOT_STANDBY);
        Verdict::Pass
    }
}
