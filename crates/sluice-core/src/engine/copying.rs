//! A COPY that the server begins to read, with what the client has sent by then.

use sluice_wire::message;

use crate::io::Io;

use super::backend::{OutOfStep, ServerRelay};

impl<I: Io> ServerRelay<'_, I> {
    /// The server reads a COPY from now on.
    pub(super) fn copy_in(&mut self) -> Result<(), OutOfStep> {
        if let Some(kind) = self.server.exchange.replies().kept_from_copy() {
            // PostgreSQL would have met it in the midst of the COPY, and have ended the session for that.
            if self.is_client_inside {
                return Err(OutOfStep("a COPY began amid other messages"));
            }
            let mut message = Vec::new();
            message::framed(&mut message, kind, |out| out.extend_from_slice(b"S\0"));
            self.io.send(self.server.conn, &message);
        }
        let ignores_sync = self.server.exchange.begin_copy();
        if ignores_sync && self.client.is_none() {
            // The cancel that is on its way may end the COPY before that Sync is read, which then is not ignored.
            return Err(OutOfStep("a COPY began for a client that is gone"));
        }
        // What it sends for the COPY may have been held.
        self.resumes = true;
        Ok(())
    }
}
