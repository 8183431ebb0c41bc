//! Commands that Sluice carries out by itself, in transaction mode: a `DEALLOCATE` of what only it knows, and a `BEGIN`
//! that no server has to see before there is something to do (docs/decisions/0008).

use std::sync::Arc;

use sluice_wire::message::{self, BIND_COMPLETE, BindNames, NO_DATA, Named, Parse, SYNC, TransactionStatus, frontend};

use crate::{
    client::Begun,
    io::Io,
    replies::{Expected, Local},
    residue::Residue,
    server::Server,
    sql::{self, Begin, Command},
    statement,
};

use super::{
    frontend::{Relay, Seen, Step, Stop},
    statements::NO_STATEMENT,
};

/// ParameterDescription of a statement without parameters.
const NO_PARAMETERS: [u8; 7] = [message::backend::PARAMETER_DESCRIPTION, 0, 0, 0, 6, 0, 0];

impl<'a, I: Io> Relay<'a, I> {
    /// A Query with a server.
    pub(super) fn query(&mut self, seen: Seen<'a>) -> Step {
        let follows = self.is_transaction_mode();
        if follows {
            if may_become_own(seen) {
                return Step::Incomplete(seen.total);
            }
            let server = self.server();
            let quiet = server.is_settled() && server.status != TransactionStatus::Failed;
            if quiet && self.query_of_own(seen, false) {
                return Step::Next;
            }
            if self.waits_to_forget(seen) {
                self.server().awaited = true;
                return Step::Stop(Stop::Hold);
            }
            let server = self.server();
            server.unnamed = None;
            server.residue = server.residue.max(Residue::of_text(seen.body));
            self.session.unnamed = None;
            self.session.deallocate = None;
            self.session.begin_portal = None;
        }
        let clears = follows && matches!(own_command_in(seen), Some(Command::DeallocateAll | Command::DiscardAll));
        let server = self.server();
        server.names_open |= clears;
        if matches!(server.replies.front(), Some(Expected::Begin)) && server.replies.len() <= 3 {
            // The batch is Sluice's own BEGIN, and this ends it.
            server.batch_open = false;
        }
        self.pass_expecting(seen, Expected::Query { clears })
    }

    /// A Query without a server.
    pub(super) fn query_without_server(&mut self, seen: Seen<'a>) -> Step {
        if may_become_own(seen) {
            return Step::Incomplete(seen.total);
        }
        if self.query_of_own(seen, true) { Step::Next } else { Step::Stop(Stop::NeedServer) }
    }

    /// Carries out a Query that no server has to see: about names that only Sluice knows, or a BEGIN. `alone` says that
    /// the client has no server that could be concerned too.
    fn query_of_own(&mut self, seen: Seen<'a>, alone: bool) -> bool {
        let tag = match own_command_in(seen) {
            Some(Command::Deallocate(name)) if self.session.forget(&name).is_some() => "DEALLOCATE",
            Some(Command::DeallocateAll) if alone => {
                self.session.names = None;
                "DEALLOCATE ALL"
            }
            Some(Command::DiscardAll)
                if alone && self.session.begun.is_none() && Arc::ptr_eq(&self.session.profile, &self.session.start) =>
            {
                self.session.names = None;
                "DISCARD ALL"
            }
            Some(Command::Begin(begin)) if alone && self.may_begin() => {
                self.session.begun = Some(Begun { begin, failed: false });
                begin.tag
            }
            _ => return false,
        };
        self.session.unnamed = None;
        self.session.deallocate = None;
        self.session.unbind();
        self.drop_message(seen);
        let status = self.server.as_ref().map_or_else(|| self.session.status(), |s| s.status);
        self.scratch.clear();
        message::put_command_complete(self.scratch, tag);
        self.scratch.extend_from_slice(&status.ready_for_query());
        self.io.send(self.client, self.scratch);
        self.scratch.clear();
        true
    }

    /// Whether a Query forgets a name that only Sluice knows, and answers are still to come that it must stand behind.
    /// Inside a batch those come with a Sync that may never be sent: there the server answers that it has no such name.
    fn waits_to_forget(&mut self, seen: Seen<'a>) -> bool {
        let server = self.server();
        let comes_to_rest = !server.batch_open && !server.skipping && !server.copy_in;
        if server.replies.is_empty() || !comes_to_rest {
            return false;
        }
        matches!(own_command_in(seen), Some(Command::Deallocate(name)) if self.session.named(&name).is_some())
    }

    /// Whether a BEGIN may be answered here and now.
    fn may_begin(&self) -> bool {
        self.session.pool.settings.lazy_begin && self.session.begun.is_none()
    }

    /// Whether a Parse is of a BEGIN that may be answered without a server: it needs none to be right.
    pub(super) fn begins(&self, parse: &Parse<'_>) -> bool {
        self.may_begin() && statement::begin_of(parse.definition).is_some()
    }

    /// The BEGIN that one of the client's statements is.
    fn begin_of(&self, name: &[u8]) -> Option<Begin> {
        let prepared = match name {
            b"" => self.session.unnamed.as_ref().map(|unnamed| &unnamed.prepared),
            name => self.session.named(name),
        };
        prepared?.statement.begins
    }

    /// Carries out a message that concerns a BEGIN which no server needs to see yet; `false` if it concerns something
    /// else.
    pub(super) fn lazy_begin(&mut self, seen: Seen<'a>) -> bool {
        let answers: &[&[u8]] = match seen.tag {
            frontend::BIND if self.may_begin() => match BindNames::read(seen.body) {
                // Without parameters.
                Some(BindNames { portal: b"", statement, bytes }) if seen.body[bytes..].starts_with(&[0; 4]) => {
                    let Some(begin) = self.begin_of(statement) else { return false };
                    self.session.unbind();
                    self.session.bound = None;
                    self.session.begin_portal = Some(begin);
                    &[&BIND_COMPLETE]
                }
                _ => return false,
            },
            frontend::DESCRIBE => match Named::read(seen.body, "Describe") {
                Ok(Named::Statement(name)) if self.may_begin() && self.begin_of(name).is_some() => {
                    &[&NO_PARAMETERS, &NO_DATA]
                }
                Ok(Named::Portal(b"")) if self.session.begin_portal.is_some() => &[&NO_DATA],
                _ => return false,
            },
            frontend::EXECUTE if seen.body.first() == Some(&0) => {
                let Some(begin) = self.session.begin_portal.take() else { return false };
                self.begin(seen, begin);
                return true;
            }
            _ => return false,
        };
        self.drop_message(seen);
        for answer in answers {
            self.answer(Local::Message((*answer).into(), None));
        }
        true
    }

    /// The client's transaction begins: on its server, or on the one that it will get.
    fn begin(&mut self, seen: Seen<'a>, begin: Begin) {
        self.drop_message(seen);
        let begun = Begun { begin, failed: false };
        match &mut self.server {
            Some(server) => {
                send_begin(server, self.scratch, begun, self.io);
                server.batch_open = true;
                server.batch_runs = true;
            }
            None => self.session.begun = Some(begun),
        }
        let mut answer = Vec::new();
        message::put_command_complete(&mut answer, begin.tag);
        self.answer(Local::Message(answer.into(), None));
    }

    pub(super) fn is_own_command(&self, parse: &Parse<'_>) -> bool {
        self.own_command_of(parse).is_some()
    }

    /// What a DEALLOCATE by Parse forgets, of what only Sluice knows: a name, or all of them.
    pub(super) fn own_command_of(&self, parse: &Parse<'_>) -> Option<Option<Box<[u8]>>> {
        if !parse.name.is_empty() || self.is_in_failed_transaction() {
            return None;
        }
        match sql::command(parse.query)? {
            Command::Deallocate(name) => {
                self.session.named(&name)?;
                Some(Some(name))
            }
            Command::DeallocateAll if self.server.is_none() => Some(None),
            _ => None,
        }
    }

    /// Carries out a message that concerns such a DEALLOCATE; `false` if it concerns something else.
    pub(super) fn own_command(&mut self, seen: Seen<'a>) -> bool {
        let Some(command) = self.session.deallocate.as_deref_mut() else { return false };
        let answers: &[&[u8]] = match seen.tag {
            frontend::BIND => match BindNames::read(seen.body) {
                Some(BindNames { portal: b"", statement: b"", .. }) => {
                    command.bound = true;
                    self.session.begin_portal = None;
                    &[&BIND_COMPLETE]
                }
                _ => return false,
            },
            frontend::DESCRIBE => match Named::read(seen.body, "Describe") {
                Ok(Named::Statement(b"")) => &[&NO_PARAMETERS, &NO_DATA],
                Ok(Named::Portal(b"")) if command.bound => &[&NO_DATA],
                _ => return false,
            },
            _ if command.bound && seen.body.first() == Some(&0) => {
                let name = command.name.take();
                self.session.deallocate = None;
                self.scratch.clear();
                let undo = match name {
                    Some(name) => {
                        message::put_command_complete(self.scratch, "DEALLOCATE");
                        self.session.forget(&name).map(|prepared| (name, prepared))
                    }
                    None => {
                        self.session.names = None;
                        message::put_command_complete(self.scratch, "DEALLOCATE ALL");
                        None
                    }
                };
                let answer = std::mem::take(self.scratch);
                self.drop_message(seen);
                self.answer(Local::Message(answer.into(), undo));
                return true;
            }
            _ => return false,
        };
        self.drop_message(seen);
        for answer in answers {
            self.answer(Local::Message((*answer).into(), None));
        }
        true
    }
}

/// Begins on a server the transaction that its client was told has begun. No Sync and no Flush follows: the answers come
/// with those to what the client wants done, and should the server refuse, it skips that as well.
pub(super) fn send_begin(server: &mut Server, scratch: &mut Vec<u8>, begun: Begun, io: &mut impl Io) {
    scratch.clear();
    message::put_unnamed_command(scratch, begun.begin.sql);
    server.unnamed = None;
    // No ReadyForQuery tells that the transaction is open: only a Sync or Query behind it brings one.
    server.batch_open = true;
    (0..3).for_each(|_| server.replies.push(Expected::Begin));
    if begun.failed {
        server.batch_open = false;
        message::put_statement_message(scratch, frontend::DESCRIBE, NO_STATEMENT);
        scratch.extend_from_slice(&SYNC);
        server.replies.push(Expected::Failure);
        server.replies.push(Expected::OwnSync);
        server.flushing = true;
    }
    io.send(server.conn, scratch);
    scratch.clear();
}

/// The command that a Query is, if it is one alone.
fn own_command_in(seen: Seen<'_>) -> Option<Command> {
    match seen.is_whole().then(|| message::split_cstr(seen.body)).flatten() {
        Some((text, [])) => sql::command(text),
        _ => None,
    }
}

/// Whether this may become a command about prepared statements when all of it has come.
fn may_become_own(seen: Seen<'_>) -> bool {
    !seen.is_whole() && seen.total <= sql::TEXT_BYTES_MAX
}
