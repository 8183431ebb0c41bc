//! The answers to queries of Sluice's own: no client's concern.

use crate::{
    client_address::{self, AddressFunction},
    io::{Io, LogEvent},
    lsn::Lsn,
    outcome::Outcome,
    profile::Profile,
    replies::{Expected, Own},
};

use super::backend::{ServerRelay, Verdict};

impl<I: Io> ServerRelay<'_, I> {
    /// Whether what comes answers something of Sluice's own.
    pub(super) fn is_own(&self) -> bool {
        match self.server.exchange.replies().front() {
            Some(Expected::Own(_) | Expected::Switch) => true,
            Some(Expected::Query { amended: Some(amended), .. }) => amended.is_at_own(),
            _ => false,
        }
    }

    /// Whether what comes ends a batch that prepares a client's statement, which leaves no setting behind.
    pub(super) fn is_preparing(&self) -> bool {
        matches!(self.server.exchange.replies().front(), Some(Expected::Own(Own::Prepare)))
    }

    /// A DataRow or FunctionCallResponse of Sluice's own.
    pub(super) fn own_answer(&mut self, body: &[u8]) -> Verdict {
        match self.server.exchange.replies().front() {
            Some(Expected::Own(Own::FindAddressFunction)) => {
                if let Some(oid) = client_address::read_oid(body) {
                    self.server.address_function = AddressFunction::Known(oid, None);
                }
            }
            Some(Expected::Own(Own::Probe)) => {
                if let Some(row) = client_address::read_text(body) {
                    self.server.session.hear_row(row);
                }
            }
            Some(Expected::Own(Own::Names)) => {
                if let Some(name) = client_address::read_text(body) {
                    self.server.lent.hear(name);
                }
            }
            Some(Expected::Own(Own::Outcome)) => {
                let text = client_address::read_text(body);
                match text.and_then(Lsn::read) {
                    Some(end) => self.has_committed(end),
                    None => self.server.outcome = text.and_then(Outcome::read),
                }
            }
            Some(Expected::Own(Own::Replayed)) => {
                let replayed = client_address::read_text(body).and_then(Lsn::read);
                self.server.replayed = replayed.or(self.server.replayed);
            }
            Some(Expected::Switch) => {
                if let Some(row) = client_address::read_text(body) {
                    self.server.session.answers.hear(row);
                }
            }
            Some(Expected::Own(Own::Remains)) if client_address::read_text(body) != Some("f") => {
                self.server.session.spend();
            }
            Some(Expected::Own(Own::DateStyles)) if client_address::read_text(body) == Some("f") => {
                self.server.pool.log_ins.begin_as_configured(self.server.opened.generation);
            }
            // True, in one byte.
            Some(Expected::Own(Own::ReportAddress)) if body == [0, 0, 0, 1, 1] => self.server.shows_client = true,
            Some(Expected::Own(Own::ReportAddress)) => {
                self.server.address_function = AddressFunction::None;
                // Others would be seen at the address of an earlier client.
                self.server.is_worn |= self.server.shows_client;
                self.io.log(LogEvent::SecretRefused { address: &self.server.pool.upstream.address });
            }
            _ => {}
        }
        Verdict::Swallow
    }

    /// The server has said which of the names that are lent it has: the others are not the client's any more.
    pub(super) fn conclude_names(&mut self) {
        let gone = self.server.lent.conclude();
        if let Some((_, session)) = self.client.as_mut().filter(|_| self.server.own_error.is_none()) {
            gone.iter().for_each(|name| session.lose(name));
        }
    }

    /// A probe has come to its end. Returns whether its answer makes sense.
    pub(super) fn conclude_probe(&mut self) -> bool {
        let nothing = Profile::default();
        let start = self.client.as_ref().map_or(&nothing, |(_, session)| &session.start);
        self.server.conclude_probe(start)
    }
}
