//! COMMITs whose answers were lost with their server. The server that is the primary next knows what has become of them,
//! and is asked before anything else of the client's goes to it (docs/decisions/0027).

use sluice_wire::{
    ErrorResponse,
    message::{self, TransactionStatus},
    sqlstate,
};

use crate::{
    client::Client,
    ids::{ClientId, ServerId},
    io::Io,
    outcome::{LostCommit, Outcome},
    replies::Own,
    server::{Preparation, Server},
    time::Time,
};

use super::{Engine, Todo, losing::lost, own_queries::send_own};

impl Engine {
    /// A server is gone that was sent a COMMIT and has not answered it. Where its transaction can be known on another
    /// one, the client waits for that. Returns whether it does.
    pub(super) fn lose_commit(&mut self, now: Time, (client, id): (ClientId, ServerId), io: &mut impl Io) -> bool {
        let server = self.servers.get(id).filter(|_| self.can_outlast_server(client));
        let Some(commit) = server.and_then(Server::lost_commit) else { return false };
        self.answer_ahead_of_end(now, id, io);
        let Some(session) = self.clients.get_mut(client).and_then(Client::session_mut) else { return false };
        session.former = Vec::new();
        session.portal = None;
        session.failures = 0;
        session.commit = Some(Box::new(commit));
        self.replace_server(now, client, io);
        true
    }

    /// The server has said what became of a client's COMMIT, and the client hears it.
    pub(super) fn tell_outcome(&mut self, now: Time, id: ClientId, server: ServerId, io: &mut impl Io) {
        let asked = self.servers.get_mut(server);
        let outcome = asked.and_then(|server| {
            server.asked_until = None;
            server.outcome.take()
        });
        let Some(outcome) = outcome else { return self.refuse_client(now, id, &unknown(), io) };
        let Some(client) = self.clients.get_mut(id) else { return };
        let conn = client.conn;
        let Some(session) = client.session_mut() else { return };
        let Some(commit) = session.commit.take() else { return };
        let mut answer = Vec::new();
        match outcome {
            Outcome::Committed => message::put_command_complete(&mut answer, "COMMIT"),
            Outcome::Aborted => answer.extend(lost().to_bytes()),
        }
        answer.extend(session.reports.take());
        answer.extend(commit.reports);
        answer.extend(TransactionStatus::Idle.ready_for_query());
        io.send(conn, &answer);
        self.detach(now, id, server, io);
        if outcome == Outcome::Committed && commit.mark.changes_session {
            self.refuse_client(now, id, &session_gone(), io);
            return;
        }
        self.todo.push_back(Todo::Input(id));
    }
}

/// A client has a server that can be asked for its COMMIT.
pub(super) fn ask_for_outcome(
    now: Time,
    server: &mut Server,
    commit: &LostCommit,
    scratch: &mut Vec<u8>,
    io: &mut impl Io,
) {
    server.outcome = None;
    server.asked_until = Some(now + server.pool.state().failover_timeout());
    send_own(server, scratch, Own::Outcome, &commit.mark.query(server.pool.upstream.reports_commits), io);
    server.preparation = Preparation::UnderWay;
}

/// The error of a client that has waited long enough for that.
pub(super) fn no_answer() -> ErrorResponse {
    ErrorResponse::fatal(sqlstate::CANNOT_CONNECT_NOW, "the server has not said within failover_timeout")
}

/// The error for a COMMIT of which it can't be found out what has become.
pub(super) fn unknown() -> ErrorResponse {
    ErrorResponse::fatal(
        sqlstate::TRANSACTION_RESOLUTION_UNKNOWN,
        "the server connection was lost during COMMIT, and its outcome could not be found out",
    )
    .hint("It may have been committed or not: connect again, and look before you repeat it.")
}

/// The end of a session of which it is not known what its last transaction has left there.
fn session_gone() -> ErrorResponse {
    ErrorResponse::fatal(
        sqlstate::CONNECTION_FAILURE,
        "the transaction has been committed, but what it changed in its session was lost with the server",
    )
    .hint("Connect again, and set again what the session needs.")
}
