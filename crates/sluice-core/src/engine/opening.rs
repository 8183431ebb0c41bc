//! A server connection from connect to its first ReadyForQuery.

use std::sync::Arc;

use sluice_wire::{
    BackendKind, ErrorResponse, Frame,
    message::{self, AuthenticationRequest},
    sqlstate,
    startup::{self, ProtocolVersion},
};

use crate::{
    hub::{NodeRole, Pool, Upstream},
    ids::ServerId,
    io::{Io, LogEvent, Owner},
    logins::Opened,
    mail::Mail,
    outcome::{REPORT_COMMITS, REPORT_TRANSACTIONS},
    pool::Lasts,
    server::{IN_HOT_STANDBY, Reported, Role, Server, ServerLogin},
    time::Time,
};

use super::{
    Engine, Todo,
    encrypting::{self, not_postgresql},
};

/// No message of a login is larger than this, in bytes.
const LOGIN_BYTES_MAX: usize = 1 << 20;

/// The parameter by which transactions of readers are read-only at a primary as well.
const READ_ONLY: (&str, &str) = ("default_transaction_read_only", "on");

/// The end of a server's login.
enum Ended {
    Ready,
    Failed(ErrorResponse),
}

impl Engine {
    /// Opens as many connections as the pool needs now and may have.
    pub(super) fn connect_for(&mut self, now: Time, pool: &Arc<Pool>, io: &mut impl Io) {
        if self.stopping.is_some() || pool.is_retired() || !pool.upstream.is_known() {
            return;
        }
        loop {
            let Some(startup) = pool.state().reserve(now) else { return };
            if !pool.budgets.take() && !self.make_room(now, pool, io) {
                pool.state().unreserve(&startup);
                return;
            }
            pool.state().share.has_room();
            let serial = self.next_serial();
            let conn = io.connect(Owner::Server(self.servers.next_id()), &pool.upstream.address);
            let id = self.servers.insert(Server::opening(conn, serial, pool.clone(), startup, now));
            self.arm(id);
        }
    }

    pub(super) fn server_connected(&mut self, id: ServerId, io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let Role::Opening { login, attempt, .. } = &mut server.role else { return };
        match encrypting::wanted(&server.pool.upstream, *attempt) {
            Some(_) => {
                *login = ServerLogin::Asked;
                io.send(server.conn, &startup::SSL_REQUEST_PACKET);
            }
            None => self.start_session(id, io),
        }
    }

    /// Asks for a session, now that the connection is what it is to be.
    pub(super) fn start_session(&mut self, id: ServerId, io: &mut impl Io) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let Role::Opening { login, .. } = &mut server.role else { return };
        *login = ServerLogin::Started;
        let upstream = &server.pool.upstream;
        let known = [("user", upstream.user.as_str()), ("database", upstream.dbname.as_str())];
        // Where clients share it, nothing else is set: what RESET goes back to is then the server's own default.
        let is_known_elsewhere = server.follows_statements() && upstream.cluster.is_some() && !upstream.is_for_reading;
        let reports = is_known_elsewhere.then_some(REPORT_TRANSACTIONS);
        let reads = upstream.is_for_reading.then_some(READ_ONLY);
        let commits = upstream.reports_commits.then_some(REPORT_COMMITS);
        let parameters =
            known.into_iter().chain(reports).chain(commits).chain(reads).chain(server.opened.startup.iter());
        self.scratch.clear();
        startup::put_session(&mut self.scratch, ProtocolVersion::V3_2, parameters);
        io.send(server.conn, &self.scratch);
    }

    /// Handles messages of a login; returns how many bytes they took. `None`: the server is gone, or logged in.
    pub(super) fn login_input(&mut self, now: Time, id: ServerId, bytes: &[u8], io: &mut impl Io) -> Option<usize> {
        let mut used = 0;
        if matches!(self.servers.get(id)?.role, Role::Opening { login: ServerLogin::Asked, .. }) {
            used = self.tls_answered(now, id, bytes, io)?;
        }
        loop {
            let server = self.servers.get_mut(id)?;
            let (kind, body) = match server.stream.next(&bytes[used..]) {
                Ok(Frame::Message { tag, total, here }) if here == total => {
                    (tag.into(), &bytes[used + 5..used + total])
                }
                Ok(Frame::Message { total, .. }) if total <= LOGIN_BYTES_MAX => return Some(used),
                Ok(Frame::Short) => return Some(used),
                _ => {
                    self.open_failed(now, id, not_postgresql(), io);
                    return None;
                }
            };
            used += 5 + body.len();
            match self.login_message(id, kind, body, io) {
                None => {}
                Some(Ended::Failed(error)) => {
                    self.open_failed(now, id, error, io);
                    return None;
                }
                Some(Ended::Ready) => {
                    self.opened(now, id, io);
                    return Some(used);
                }
            }
        }
    }

    fn login_message(&mut self, id: ServerId, kind: BackendKind, body: &[u8], io: &mut impl Io) -> Option<Ended> {
        let server = &mut self.servers[id];
        let Role::Opening { login, .. } = &mut server.role else { return None };
        match kind {
            BackendKind::Authentication => {
                let request = match AuthenticationRequest::read(body) {
                    Ok(request) => request,
                    Err(_) => return Some(Ended::Failed(not_postgresql())),
                };
                let mut random = [0; 18];
                io.random(&mut random);
                self.scratch.clear();
                let before = std::mem::replace(login, ServerLogin::Connecting);
                match before.answer(request, &server.pool, &server.encryption, random, &mut self.scratch) {
                    Ok(after) => *login = after,
                    Err(error) => return Some(Ended::Failed(error)),
                }
                if !self.scratch.is_empty() {
                    io.send(server.conn, &self.scratch);
                }
            }
            BackendKind::ParameterStatus => {
                if let Ok((name, value)) = message::read_parameter_status(body)
                    && server.take_parameter(name, value) == Reported::Unreadable
                {
                    io.log(LogEvent::ReportUnreadable { address: &server.pool.upstream.address, report: value });
                }
            }
            BackendKind::BackendKeyData => {
                if let Some((process_id, key)) = body.split_first_chunk::<4>() {
                    server.key = Some((u32::from_be_bytes(*process_id), key.into()));
                }
            }
            BackendKind::ErrorResponse => return Some(Ended::Failed(ErrorResponse::from_body(body))),
            BackendKind::ReadyForQuery if has_other_role(server) => return Some(Ended::Failed(other_role(server))),
            BackendKind::ReadyForQuery => return Some(Ended::Ready),
            BackendKind::NoticeResponse if !server.follows_statements() => {
                server.notices.add(server.key.is_some(), body);
            }
            // The news that the server speaks 3.0 only, and what no client in transaction mode has caused.
            _ => {}
        }
        None
    }

    fn opened(&mut self, now: Time, id: ServerId, io: &mut impl Io) {
        let server = &mut self.servers[id];
        server.role = Role::Settling { deadline: now + super::SETTLE_TIMEOUT };
        server.session.note_superuser(server.parameters.get("is_superuser") == Some("on"));
        // The extension has told of it, and a server before 17 has nothing there. In session mode what it holds is its
        // client's.
        if server.session.reports() || !server.has_login_triggers() || !server.follows_statements() {
            server.session.begin_as_told();
        }
        server.parameters.note_log_in();
        note_report(server);
        if let Some(acknowledged) = server.pool.acknowledged.as_ref().filter(|_| server.says_no_commits())
            && acknowledged.note_unknown()
        {
            io.log(LogEvent::CommitsUnreported { address: &server.pool.upstream.address });
        }
        server.pool.state().connected(&server.opened.startup);
        self.todo.push_back(Todo::Settle(id));
    }

    /// A connection could not be opened: those who wait hear of it when waiting has no point any more.
    pub(super) fn open_failed(&mut self, now: Time, id: ServerId, error: ErrorResponse, io: &mut impl Io) {
        self.open_failed_for(now, id, error, None, io);
    }

    /// The same where more is known of how it lasts than the error says.
    pub(super) fn open_failed_for(
        &mut self,
        now: Time,
        id: ServerId,
        error: ErrorResponse,
        known: Option<Lasts>,
        io: &mut impl Io,
    ) {
        if self.try_other_way(id, &error, io) {
            return;
        }
        let Some(server) = self.servers.remove(id) else { return };
        io.close(server.conn);
        server.pool.budgets.give_back();
        io.log(LogEvent::ConnectFailed { address: &server.pool.upstream.address, error: &error });
        let lasts = known.unwrap_or_else(|| lasts(&error, &server));
        let refused = server.pool.state().connect_failed(now, &server.opened, &Arc::new(error), lasts);
        for (client, error) in refused {
            io.mail(client.worker, Mail::Refuse(client, error));
        }
    }
}

/// Notes what a server that clients share has reported at its log-in: whoever logs in later begins with that.
fn note_report(server: &Server) {
    if let Some(value) = server.parameters.get(IN_HOT_STANDBY) {
        server.pool.note_recovery(value == "on");
    }
    let Opened { generation, startup, .. } = &server.opened;
    if !server.follows_statements() || !startup.is_empty() {
        return;
    }
    let before = server.pool.login().reports_otherwise(server.parameters.fingerprint(), *generation);
    match before {
        None => {}
        // The configuration was changed while nobody was there to hear of it.
        Some(before) if before == *generation => server.pool.reloaded(),
        Some(_) => server.pool.begins_otherwise(),
    }
}

/// Whether a server is a standby where a cluster's primary was to be, or the other way round: it has been demoted or
/// promoted, or not yet. Every PostgreSQL that reports this (14 and later) does so at the log-in.
fn has_other_role(server: &Server) -> bool {
    server.pool.upstream.node_role.is_some_and(|role| server.is_in_recovery() != (role == NodeRole::Standby))
}

fn other_role(server: &Server) -> ErrorResponse {
    let Upstream { address, .. } = &server.pool.upstream;
    let role = if server.pool.upstream.is_standby() { "a standby" } else { "the primary" };
    ErrorResponse::fatal(sqlstate::CANNOT_CONNECT_NOW, format!("the server at {address} is not {role}"))
}

/// Those for whom trying again soon would end the same way: a wrong name or password, a database that admits nobody
/// (55000), a setting that can't be (22, 25, 55P02); not a server that restarts or is full.
fn lasts(error: &ErrorResponse, server: &Server) -> Lasts {
    let is_by_clients = server.pool.upstream.password.is_none();
    if is_by_clients && error.code.starts_with("28") {
        let changes = server.pool.login().changes();
        if !matches!(server.role, Role::Opening { secret, .. } if secret == changes) {
            // A client has shown something else since.
            return Lasts::ForNobody;
        }
    }
    if is_by_clients && *error.code == *sqlstate::INVALID_PASSWORD {
        // It is one of the role's former ones, which it was right to have logged in with.
        return Lasts::ForLogIns;
    }
    let is_lasting = ["22", "25", "28", "3D", "42", "0A", "55000", "55P02"].iter().any(|it| error.code.starts_with(it));
    if is_lasting { Lasts::ForAll } else { Lasts::ForNobody }
}
