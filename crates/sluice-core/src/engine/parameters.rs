//! Parameters that a server reports, on their way to its client.

use sluice_wire::message;

use crate::{
    io::{Io, LogEvent},
    lsn::Lsn,
    outcome::COMMIT_PARAMETER,
    replies::{Expected, Own},
    server::{IN_HOT_STANDBY, Reported, Role},
    sql::Effects,
};

use super::{
    backend::{ServerRelay, Verdict},
    reloads::NOT_SET,
};

impl<I: Io> ServerRelay<'_, I> {
    /// Whether a query of the pool's own has nothing to do with the change of a parameter that is reported in its answer:
    /// the configuration has been reloaded.
    fn is_uncaused(&self, name: &str) -> bool {
        let key = name.to_ascii_lowercase();
        match self.server.exchange.replies().front() {
            Some(Expected::Own(Own::Settings | Own::Probe | Own::ReportAddress)) => {
                !NOT_SET.contains(&name) && !self.server.session.has_put_in_place(&key)
            }
            _ => false,
        }
    }

    /// A server has said something to the pool: if it is where a commit ends, the client has to find that from now on.
    fn note_commit(&mut self, name: &str) {
        if name != COMMIT_PARAMETER {
            return;
        }
        if let Some(end) = self.server.committed {
            self.has_committed(end);
        }
    }

    /// The end of all that the client is about to be told of as committed, in the log.
    pub(super) fn has_committed(&mut self, end: Lsn) {
        if let Some(acknowledged) = &self.server.pool.acknowledged {
            acknowledged.note(end);
        }
        if let Some((_, session)) = &mut self.client {
            session.has_written(end);
        }
    }

    /// A ParameterStatus has come.
    pub(super) fn parameter_status(&mut self, body: &[u8]) -> Verdict {
        let Ok((name, value)) = message::read_parameter_status(body) else { return self.unless_own() };
        let before = self.server.parameters.get(name).map(str::to_owned);
        let known = self.server.parameters.told(name).map(str::to_owned);
        let is_of_recovery = name == IN_HOT_STANDBY;
        if is_of_recovery {
            // That ends no connection.
            self.server.is_worn |= value == "off" && self.server.pool.upstream.is_standby();
            self.server.pool.note_recovery(value == "on");
        }
        match self.server.take_parameter(name, value) {
            Reported::Clients if !self.is_own() || self.is_preparing() => {}
            Reported::Clients => {
                if before.as_deref().is_some_and(|before| before != value) && self.is_uncaused(name) {
                    self.server.pool.reloaded();
                }
                self.server.parameters.tells_truth(name);
                return Verdict::Swallow;
            }
            Reported::Own => {
                self.note_commit(name);
                return Verdict::Swallow;
            }
            Reported::Unreadable => {
                let address = &self.server.pool.upstream.address;
                self.io.log(LogEvent::ReportUnreadable { address, report: value });
                return Verdict::Swallow;
            }
        }
        if is_of_recovery {
            return self.pass_recovery(value);
        }
        let is_nobodys = self.server.is_fresh() && !self.server.exchange.owes();
        if matches!(self.server.role, Role::Idle) || is_nobodys {
            self.server.pool.reloaded();
        }
        if self.client.is_none() {
            // A setting that was made with a function leaves no other trace.
            if !matches!(self.server.role, Role::Idle) {
                self.server.session.add_effects(Effects::STATE);
            }
            return Verdict::Pass;
        }
        if is_nobodys {
            // Nothing of the client's has run there.
            return Verdict::Pass;
        }
        if let Some(before) = before.as_deref().filter(|_| self.server.pool.upstream.cluster.is_some()) {
            self.server.parameters.note_in_block(name, before);
        }
        let is_accounted_for =
            !self.server.follows_statements() || self.server.session.effects().intersects(Effects::STATE);
        if before.as_deref().is_some_and(|before| before != value) {
            // By a reload, a SET LOCAL or a trigger: which of them shows when the transaction has ended.
            self.server.parameters.changed(name, before.clone().filter(|_| !is_accounted_for));
        }
        // A function or a trigger may have set it.
        self.server.session.add_effects(Effects::STATE | Effects::CONTEXT);
        let verdict = if self.is_preparing() { Verdict::Pass } else { self.start_instead(name, known.as_deref()) };
        if verdict == Verdict::Swallow {
            return verdict;
        }
        self.server.parameters.tells_truth(name);
        self.server.parameters.note_passed(name);
        let is_amid_batch = self.is_amid_batch();
        if let Some((_, session)) = &mut self.client
            && (is_amid_batch || session.reports.has(name))
        {
            session.reports.put_off(name, known.as_deref(), value);
            return Verdict::Swallow;
        }
        // It may be what the client was told when it reset it.
        if known.as_deref() == Some(value) { Verdict::Swallow } else { Verdict::Pass }
    }

    /// Whether what comes ends what is no batch to the client, which goes on with its own.
    fn is_amid_batch(&self) -> bool {
        self.is_preparing() || matches!(self.server.exchange.replies().front(), Some(Expected::OwnSync(_)))
    }

    /// Gives the client what it is to hear ahead of its ReadyForQuery.
    pub(super) fn send_reports(&mut self) {
        let Some((conn, session)) = &mut self.client else { return };
        let (conn, reports) = (*conn, session.reports.take());
        if !reports.is_empty() {
            self.flush();
            self.io.send(conn, &reports);
        }
    }
}
