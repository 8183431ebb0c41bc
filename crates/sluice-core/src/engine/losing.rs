//! Blocks that are lost with a cluster's primary. PostgreSQL rolls them back, and their clients are told so by an error
//! that drivers take for one to try again behind (40001), and stay: to them it is a transaction that has failed.

use std::sync::Arc;

use sluice_wire::{
    ErrorResponse, FrontendKind,
    message::{self, BindNames, CLOSE_COMPLETE, Named, Parse, TransactionStatus},
    sqlstate,
};

use crate::{
    client::{Begun, Link},
    ids::{ClientId, ServerId},
    io::Io,
    pauses::Reason,
    server::{Exchange, Preparation, Server, Turn, parameter_statuses},
    sql::{self, Command},
    statement::Statement,
    time::Time,
};

use super::{
    Engine, Todo,
    frontend::{ClientRelay, Seen, is_of_batch},
    standing_in::{in_failed_transaction, is_bare},
};

impl Engine {
    /// A server is gone. Where its client has a block open that is rolled back for certain, the client is told, at once
    /// or by its next message, and goes on without a server. Returns whether that is so.
    pub(super) fn lose_block(&mut self, now: Time, (client, id): (ClientId, ServerId), io: &mut impl Io) -> bool {
        let server = self.servers.get(id).filter(|_| self.can_outlast_server(client));
        let fails_commit = server.is_some_and(Server::fails_commit);
        let is_over = fails_commit || server.is_some_and(Server::owes_rollback);
        if !is_over && !server.is_some_and(Server::rolls_back) {
            return false;
        }
        // A message that has not come whole never will, and the client has seen nothing of it.
        self.servers[id].pending.clear();
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let before: Vec<_> = self.servers[id].parameters.before_block().map(own).collect();
        let reports = parameter_statuses(before.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        self.answer_address(now, id, io);
        let server = &self.servers[id];
        // While something is prepared for it, nothing of the client's is under way: its message waits here.
        let asks = server.preparation == Preparation::None && server.exchange.replies().have_clients();
        let loses_batch = !asks && server.exchange.has_open_batch() && !server.exchange.is_failure_told();
        let serial = server.serial;
        if fails_commit {
            self.answer_commit_as_failed(now, id, &reports, io);
        } else if is_over {
            self.answer_rollback(now, id, &reports, io);
        } else if asks {
            self.answer_as_failed(now, id, &reports, io);
        }
        // The client may have left it by those answers, and then it would be the next one's.
        if self.servers.get(id).is_some_and(|server| server.serial == serial) {
            self.close_server(id, io);
        }
        let Some(state) = self.clients.get_mut(client) else { return true };
        let Some(session) = state.session_mut() else { return true };
        session.link = Link::None;
        session.come_home();
        session.former = Vec::new();
        session.portal = None;
        if !is_over {
            session.begun.get_or_insert(Begun::failed(plain_begin()));
            session.is_lost = true;
            session.loses_batch = loses_batch;
        }
        if !asks {
            for (name, value) in &before {
                session.reports.put_off(name, None, value);
            }
        }
        state.resume(Reason::Server, io);
        state.rest.go_on(now);
        self.todo.push_back(Todo::Move(client));
        self.todo.push_back(Todo::Input(client));
        true
    }

    /// Answers the report of a client's address ahead of its block as if the server had said that itself.
    fn answer_address(&mut self, now: Time, id: ServerId, io: &mut impl Io) {
        let ready = TransactionStatus::Idle.ready_for_query();
        if self.servers.get(id).is_some_and(|server| server.exchange.replies().report_address_next()) {
            self.server_bytes(now, id, &ready, false, io);
        }
    }

    /// Whether a client could go on without its server: it is logged in, and not in the midst of a message.
    pub(super) fn can_outlast_server(&self, client: ClientId) -> bool {
        self.is_open(client) && self.clients.get(client).is_some_and(|client| !client.stream.is_passing())
    }

    /// Answers a COMMIT as if its server had refused it.
    fn answer_commit_as_failed(&mut self, now: Time, id: ServerId, reports: &[u8], io: &mut impl Io) {
        if !self.servers[id].exchange.is_failure_told() {
            self.server_bytes(now, id, &lost().to_bytes(), false, io);
        }
        if self.servers.get(id).is_some_and(|server| server.exchange.replies().end_requests()) {
            let ready = TransactionStatus::Idle.ready_for_query();
            self.server_bytes(now, id, &[reports, &ready].concat(), false, io);
        }
    }

    /// Answers a ROLLBACK as its server would have: the block is rolled back.
    fn answer_rollback(&mut self, now: Time, id: ServerId, reports: &[u8], io: &mut impl Io) {
        self.answer_ahead_of_end(now, id, io);
        let mut answer = Vec::new();
        message::put_command_complete(&mut answer, "ROLLBACK");
        answer.extend(reports);
        answer.extend(TransactionStatus::Idle.ready_for_query());
        self.server_bytes(now, id, &answer, false, io);
    }

    /// Answers what a server owes ahead of a block's end as if it had said that itself, and as it would have.
    pub(super) fn answer_ahead_of_end(&mut self, now: Time, id: ServerId, io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(id) else { return };
        // A message that has not come whole never will.
        server.pending.clear();
        if let Some(ahead) = server.exchange.replies().ahead_of_end() {
            self.server_bytes(now, id, &ahead, false, io);
        }
    }

    /// Answers what a server owes as if it had said that itself: the first request that is open fails because of the
    /// loss, unless it has failed already, and those behind it because of that. A Sync alone can't fail.
    fn answer_as_failed(&mut self, now: Time, id: ServerId, reports: &[u8], io: &mut impl Io) {
        let mut reports = reports;
        let begins = self.servers[id].exchange.replies().begin_block();
        let status = if begins { TransactionStatus::Idle } else { TransactionStatus::Failed };
        let (mut error, mut is_first) = (lost(), true);
        // Each round answers a request.
        let rounds = self.servers[id].exchange.replies().client_requests().max(1);
        for _ in 0..rounds {
            let fails =
                |exchange: &Exchange| !exchange.is_failure_told() && (is_first || !exchange.replies().is_sync_next());
            if self.servers.get(id).is_some_and(|server| fails(&server.exchange)) {
                self.server_bytes(now, id, &error.to_bytes(), false, io);
            }
            is_first = false;
            let owes = self.servers.get(id).is_some_and(|server| server.exchange.replies().end_requests());
            if !owes {
                return;
            }
            self.server_bytes(now, id, &[reports, &status.ready_for_query()].concat(), false, io);
            reports = &[];
            error = in_failed_transaction("exec_simple_query");
        }
    }
}

impl<'a, I: Io> ClientRelay<'a, I> {
    /// Answers a message in a block that was lost: all of them fail because of that, up to the one that ends it. A client
    /// may not have looked at the error for what was under way (a Close that tidies up, say), so a COMMIT above all is an
    /// error, and never what PostgreSQL says to one in a failed block, where the client has seen why. Returns whether it
    /// is answered.
    pub(super) fn answer_lost(&mut self, seen: Seen<'a>) -> bool {
        if !self.session.is_lost || self.session.begun.is_none() {
            return false;
        }
        if !is_of_batch(seen.kind) && self.drop_failed(seen) {
            return true;
        }
        let text = |body: &'a [u8]| body.strip_suffix(b"\0").filter(|_| seen.is_whole());
        let rolls_back = |query: &[u8]| sql::end(query) == Some("ROLLBACK");
        match seen.kind {
            FrontendKind::Query => {
                let tag = text(seen.body).and_then(sql::end);
                self.session.is_lost = tag.is_none();
                if tag == Some("ROLLBACK") {
                    return false;
                }
                if tag.is_some() {
                    self.session.begun = None;
                }
                self.session.drop_unnamed();
                self.fail_lost(seen);
                self.send_ready(self.session.status());
            }
            FrontendKind::FunctionCall => {
                self.fail_lost(seen);
                self.send_ready(self.session.status());
            }
            FrontendKind::Parse if Parse::read(seen.body).is_ok_and(|parse| rolls_back(parse.query)) => {
                return self.leave_to_server();
            }
            FrontendKind::Bind if self.bound_in(seen).is_some_and(|bound| rolls_back(bound.query())) => {
                return self.leave_to_server();
            }
            FrontendKind::Close => {
                match Named::read(seen.body, "Close") {
                    Ok(Named::Statement(b"")) => self.session.unnamed = None,
                    Ok(Named::Statement(name)) => _ = self.session.forget(name),
                    _ => {}
                }
                self.drop_message(seen);
                self.io.send(self.client, &CLOSE_COMPLETE);
            }
            FrontendKind::Parse | FrontendKind::Bind | FrontendKind::Describe | FrontendKind::Execute => {
                self.fail_lost(seen);
                self.session.skipping = true;
            }
            _ => return false,
        }
        true
    }

    /// A ROLLBACK goes to a server, which knows nothing of what there was to report.
    fn leave_to_server(&mut self) -> bool {
        let reports = self.session.reports.take();
        self.io.send(self.client, &reports);
        false
    }

    /// Answers a Sync without a server. What its batch has run may be lost, which no message of it has been told.
    pub(super) fn sync_without_server(&mut self, seen: Seen<'a>) {
        self.session.end_batch();
        self.end_portal();
        if self.session.loses_batch {
            self.fail_lost(seen);
        } else {
            self.drop_message(seen);
        }
        self.send_ready(self.session.status());
    }

    fn fail_lost(&mut self, seen: Seen<'a>) {
        self.session.loses_batch = false;
        self.drop_message(seen);
        self.flush();
        self.io.send(self.client, &lost().to_bytes());
    }

    /// The statement that a Bind is for.
    fn bound_in(&self, seen: Seen<'a>) -> Option<Arc<Statement>> {
        self.statement_named(BindNames::read(seen.body)?.statement).cloned()
    }
}

/// The turn that a Bind to that statement gives to the transaction when its portal is run. Of an end that does not stand
/// there as it should, with parameters it does not have, PostgreSQL says something else.
pub(super) fn turn_of(statement: &Statement, seen: Seen<'_>, names: &BindNames<'_>) -> Turn {
    let ends = statement.ends.known_if(seen.is_whole() && is_bare(&seen.body[names.bytes..]));
    Turn { leads_to: statement.leads_to, ends }
}

/// The error of a client that ends with its server. What may end a block is known in a cluster alone.
pub(super) fn loss(server: &Server, reason: &str) -> ErrorResponse {
    let exchange = &server.exchange;
    let is_rolled_back = server.pool.upstream.cluster.is_some() && exchange.rolls_back();
    let (code, hint) = if exchange.replies().have_clients() && !is_rolled_back {
        (
            sqlstate::TRANSACTION_RESOLUTION_UNKNOWN,
            "What was under way may have been committed or not: connect again, and look before you repeat it.",
        )
    } else if exchange.reported_status() == TransactionStatus::Idle && exchange.is_closed() {
        (sqlstate::CONNECTION_FAILURE, "What the session held there is gone; connect again.")
    } else {
        (
            sqlstate::CONNECTION_FAILURE,
            "The transaction was not finished, and is rolled back; connect again and retry it.",
        )
    };
    ErrorResponse::fatal(code, format!("the server connection was lost: {reason}")).hint(hint)
}

/// The error that a client hears whose block was lost.
pub(super) fn lost() -> ErrorResponse {
    ErrorResponse::error(
        sqlstate::SERIALIZATION_FAILURE,
        "the transaction was lost with its server, and is rolled back",
    )
    .hint("Another node of the cluster takes its place: run the transaction again.")
}

fn plain_begin() -> sql::Begin {
    match sql::command(b"BEGIN") {
        Some(Command::Begin(begin)) => begin,
        _ => unreachable!("BEGIN begins"),
    }
}
