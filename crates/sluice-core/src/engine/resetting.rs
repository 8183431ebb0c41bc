//! What follows where a client has reset settings to what it began with: it hears of that, and not of the server's
//! own defaults, and in the midst of its transaction that is put in place again.

use sluice_wire::message::{self, TransactionStatus};

use crate::{io::Io, sql::Reset};

use super::{
    backend::{ServerRelay, Verdict},
    keeping::restore,
};

impl<I: Io> ServerRelay<'_, I> {
    /// A Query or a batch has come to its end that resets these settings.
    pub(super) fn after_reset(&mut self, resets: &Reset, status: TransactionStatus) {
        if status == TransactionStatus::Idle {
            let resets = resets.clone().beyond_transaction();
            self.report_start(&resets);
            self.server.session.note_resets(&resets);
        } else {
            self.report_start(resets);
        }
        if let Some((_, session)) = &self.client {
            let is_due = match status {
                TransactionStatus::InTransaction => true,
                // Where nobody asks what the session holds. What was discarded is put in place as a whole.
                TransactionStatus::Idle => {
                    !self.server.follows_statements() && *self.server.session.profile() == session.profile
                }
                TransactionStatus::Failed => false,
            };
            // In the midst of a client's message nothing can be said.
            if is_due && !self.is_client_inside {
                restore(self.server, &session.start, resets, self.io);
            }
        }
        self.resumes |= !self.server.exchange.replies().are_resetting();
    }

    /// A parameter is reported. Where the client goes back to what it began with, that is not the server's own default.
    pub(super) fn start_instead(&mut self, name: &str, before: Option<&str>) -> Verdict {
        let key = name.to_ascii_lowercase();
        if !self.server.exchange.replies().resets().is_some_and(|resets| resets.covers(&key)) {
            return Verdict::Pass;
        }
        let Some((conn, session)) = &self.client else { return Verdict::Pass };
        let start = session.start.get(&key).and_then(|start| std::str::from_utf8(start).ok());
        let Some(start) = start else { return Verdict::Pass };
        self.server.parameters.note_reset(key);
        if before != Some(start) {
            let conn = *conn;
            let mut message = Vec::new();
            message::put_parameter_status(&mut message, name, start);
            self.flush();
            self.io.send(conn, &message);
        }
        Verdict::Swallow
    }

    /// Tells the client of what it began with where it has reset a parameter to that, and the server has nothing
    /// to report, since the value before was its own default.
    fn report_start(&mut self, resets: &Reset) {
        let reported = self.server.parameters.take_resets();
        let Some((conn, session)) = &self.client else { return };
        let mut messages = Vec::new();
        for (name, value) in self.server.parameters.iter() {
            let key = name.to_ascii_lowercase();
            let start = session.start.get(&key).and_then(|start| std::str::from_utf8(start).ok());
            if let Some(start) = start.filter(|_| resets.covers(&key) && !reported.contains(&key))
                && start != value
            {
                message::put_parameter_status(&mut messages, name, start);
            }
        }
        let conn = *conn;
        if !messages.is_empty() {
            self.flush();
            self.io.send(conn, &messages);
        }
    }
}
