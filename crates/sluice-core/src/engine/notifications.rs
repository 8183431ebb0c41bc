//! Notifications on their way to a client that listens. Its server is its own as long as it does.

use sluice_wire::{BackendKind, message};

use crate::io::Io;

use super::backend::{ServerRelay, Verdict};

impl<I: Io> ServerRelay<'_, I> {
    /// Nobody asked for a notification, so it is the client's wherever it comes. One that the client sent itself is
    /// from the process that the client takes itself for.
    pub(super) fn notification(&mut self, body: &[u8]) -> Verdict {
        let own = self.server.key.as_ref().map(|(process_id, _)| process_id.to_be_bytes());
        let (Some(own), Some((conn, _))) = (own, &self.client) else { return Verdict::Pass };
        let Some(rest) = body.strip_prefix(&own) else { return Verdict::Pass };
        let mut out = Vec::with_capacity(body.len() + 5);
        message::framed(&mut out, BackendKind::NotificationResponse, |out| {
            out.extend_from_slice(&self.process_id.to_be_bytes());
            out.extend_from_slice(rest);
        });
        let conn = *conn;
        self.flush();
        self.io.send(conn, &out);
        Verdict::Swallow
    }
}
