//! A BEGIN that the client was told of before its server: sending it, and what if the server refuses it.
//!
//! Nothing that belongs to the transaction may ever run outside of it. Up to the first Sync the server itself sees to
//! that, since it skips what stands behind an error; what comes behind a Sync or a Query waits until the BEGIN is
//! answered.

use sluice_wire::{
    FrontendKind,
    message::{self, SYNC, TransactionStatus},
};

use crate::{
    client::{Begun, Waiting},
    io::Io,
    replies::{Expected, Local},
    server::Server,
    sql::Begin,
    time::Time,
};

use super::backend::{ServerRelay, Verdict};

/// Begins on a server the transaction that its client was told has begun. No Sync and no Flush follows: the answers
/// come with those to what the client wants done, and should the server refuse, it skips that as well.
pub(super) fn send_begin(now: Time, server: &mut Server, scratch: &mut Vec<u8>, begun: Begun, io: &mut impl Io) {
    scratch.clear();
    message::put_unnamed_command(scratch, begun.begin.sql);
    server.statements.set_unnamed(None);
    server.exchange.begin().send(now);
    // No ReadyForQuery tells that the transaction is open: only a Sync or Query behind it brings one.
    (0..3).for_each(|_| server.exchange.expect(Expected::Begin(begun.begin)));
    if begun.by_query {
        message::put_portal_message(scratch, FrontendKind::Close, b"");
        server.exchange.expect(Expected::OwnClose);
    }
    if begun.failed {
        message::put_failure(scratch);
        scratch.extend_from_slice(&SYNC);
        server.exchange.expect(Expected::Failure);
        server.exchange.replay().stop();
        server.exchange.expect(Expected::OwnSync(None));
    }
    io.send(server.conn, scratch);
    scratch.clear();
}

impl<I: Io> ServerRelay<'_, I> {
    /// The transaction has begun.
    pub(super) fn complete_begin(&mut self) {
        self.server.exchange.answered();
        self.resumes |= self.server.exchange.begin().complete();
        self.cancels |= self.server.cancels.release();
    }

    /// The server has refused a BEGIN: it was cancelled, or waited too long at a gate. To the client it is the first
    /// statement that has failed, and with it the transaction. The server skips all up to a Sync; what remains to be
    /// done is what any error takes, unless there is a verdict.
    pub(super) fn begin_refused(&mut self, begin: Begin) -> Option<Verdict> {
        // Of what the server skips, the pool's own comes first.
        let is_own = |front: &Expected| matches!(front, Expected::Begin(_) | Expected::OwnClose | Expected::Switch);
        while self.server.exchange.replies().front().is_some_and(is_own) {
            self.server.exchange.answered();
        }
        self.server.sequences.end_batch(true);
        self.cancels |= self.server.cancels.release();
        if !self.server.exchange.begin().refuse(begin) {
            // The client has not been told yet: it is this that it hears in place of CommandComplete.
            return None;
        }
        match self.server.exchange.replies().front() {
            // The client knows that the transaction has failed.
            Some(Expected::Failure) => {
                self.server.exchange.answered();
                Some(Verdict::Swallow)
            }
            // A Query needs no Sync where all is well. Here it does, and the server answers that in its place.
            Some(Expected::Query { .. }) if self.client.is_some() => {
                self.server.exchange.answered();
                let answer = TransactionStatus::Failed.ready_for_query();
                self.server.exchange.expect_own_sync_first(self.is_client_inside);
                self.server.exchange.expect_first(Expected::Local(Local::Message(answer.into(), None).into()));
                if !self.is_client_inside {
                    self.io.send(self.server.conn, &SYNC);
                }
                Some(Verdict::Pass)
            }
            Some(Expected::OwnSync(_)) => {
                self.query_fails();
                Some(Verdict::Pass)
            }
            Some(Expected::Sync(_)) => Some(Verdict::Pass),
            // The client's message has not been sent yet: it may not be whole.
            None => {
                let (_, session) = self.client.as_mut()?;
                session.next = Waiting::Failed;
                self.server.exchange.replay().stop();
                self.server.exchange.expect(Expected::OwnSync(None));
                self.io.send(self.server.conn, &SYNC);
                Some(Verdict::Pass)
            }
            Some(_) => None,
        }
    }

    /// The batch of a BEGIN that was refused has ended: to the client its transaction has failed, and no server knows
    /// of it. Whether there was one.
    pub(super) fn transaction_fails(&mut self) -> bool {
        let Some(begin) = self.server.exchange.begin().take_refused() else { return false };
        self.resumes = true;
        if let Some((_, session)) = &mut self.client {
            session.begun = Some(Begun::failed(begin));
        }
        true
    }

    /// ReadyForQuery to a client's Sync says that there is no transaction, unless one has failed.
    pub(super) fn ready_after_sync(&mut self) -> Verdict {
        if !self.transaction_fails() {
            return Verdict::Pass;
        }
        self.flush();
        if let Some((conn, _)) = &self.client {
            self.io.send(*conn, &TransactionStatus::Failed.ready_for_query());
        }
        Verdict::Swallow
    }
}
