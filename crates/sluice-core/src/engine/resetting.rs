//! Resets of settings to what the client began with: it hears of that, and not of the server's own defaults, and in the
//! midst of its transaction that is put in place again.

use sluice_wire::message::TransactionStatus;

use crate::{io::Io, sql::Reset};

use super::{
    backend::{ServerRelay, Verdict},
    keeping::restore,
};

impl<I: Io> ServerRelay<'_, I> {
    /// A Query or a batch has come to its end that resets these settings.
    pub(super) fn after_reset(&mut self, resets: &Reset, status: TransactionStatus) {
        self.report_deferred(status);
        if status == TransactionStatus::Idle {
            let resets = resets.clone().beyond_transaction();
            self.report_start(&resets);
            self.server.session.note_resets(&resets);
        } else {
            self.report_start(resets);
        }
        if self.server.exchange.is_implicit() {
            // A query of the pool's own would end that transaction.
            self.server.exchange.put_off(resets);
        } else if let Some((_, session)) = self.client.as_ref().filter(|_| status == TransactionStatus::InTransaction) {
            if self.is_client_inside {
                // Nothing can be said in the midst of its message.
                self.server.exchange.restore_behind_message(resets.clone());
            } else {
                restore(self.server, &session.start, resets, self.io);
            }
        }
        self.resumes |= !self.server.exchange.replies().are_resetting();
    }

    /// A parameter is reported. Where the client goes back to what it began with, that is not the server's own default.
    pub(super) fn start_instead(&mut self, name: &str, before: Option<&str>) -> Verdict {
        let key = name.to_ascii_lowercase();
        let Some(resets) = self.server.exchange.replies().resets().filter(|resets| resets.covers(&key)) else {
            return Verdict::Pass;
        };
        if resets.is_local(&key) {
            // The transaction's end decides, which is told next.
            self.server.parameters.defer(name, before);
            return Verdict::Swallow;
        }
        self.report_instead(name, before)
    }

    /// Reports what the client began with in place of what the server has reported.
    fn report_instead(&mut self, name: &str, before: Option<&str>) -> Verdict {
        let Some((_, session)) = &mut self.client else { return Verdict::Pass };
        let Some(start) = session.start_reported(name).map(str::to_owned) else { return Verdict::Pass };
        self.server.parameters.tell(name, &start);
        session.reports.put_off(name, before, &start);
        Verdict::Swallow
    }

    /// The transaction's status is known, by which a report goes of what was reset up to the transaction's end: behind
    /// that it is what it says.
    fn report_deferred(&mut self, status: TransactionStatus) {
        for (name, before) in self.server.parameters.take_deferred() {
            let is_told = status != TransactionStatus::Idle
                && matches!(self.report_instead(&name, before.as_deref()), Verdict::Swallow);
            if !is_told && let Some((_, session)) = &mut self.client {
                self.server.parameters.tells_truth(&name);
                let value = self.server.parameters.get(&name).unwrap_or_default();
                session.reports.put_off(&name, before.as_deref(), value);
            }
        }
    }

    /// Tells the client of what it began with where it has reset a parameter to that, and the server has nothing
    /// to report, since the value before was its own default.
    fn report_start(&mut self, resets: &Reset) {
        let Some((_, session)) = &mut self.client else { return };
        let mut started = Vec::new();
        for (name, _) in self.server.parameters.iter() {
            if resets.covers(&name.to_ascii_lowercase())
                && let Some(start) = session.start_reported(name)
                && self.server.parameters.told(name) != Some(start)
            {
                started.push((name.to_owned(), start.to_owned()));
            }
        }
        for (name, start) in started {
            session.reports.put_off(&name, self.server.parameters.told(&name), &start);
            self.server.parameters.tell(&name, &start);
        }
    }

    /// The transaction has failed, and with it what was reset within it. The client is to hear what holds again of what
    /// it was told otherwise, and the server has nothing to report of.
    pub(super) fn report_undone(&mut self) {
        let told = self.server.parameters.take_told();
        let Some((_, session)) = &mut self.client else { return };
        for (name, told) in told {
            if let Some(value) = self.server.parameters.get(&name) {
                session.reports.put_off(&name, Some(&told), value);
            }
        }
    }
}
