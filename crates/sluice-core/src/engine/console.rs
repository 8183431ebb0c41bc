//! A client of the admin console: it has no pool and no server. What it asks goes to the control thread, which answers.

use sluice_control::{Snapshot, access::Rights};
use sluice_wire::{
    ErrorResponse, Frame, FrontendKind,
    message::{self, TransactionStatus},
    sqlstate,
};

use crate::{
    client::{Client, Console, Phase, Wish},
    ids::{ClientId, ClientRef},
    io::{Command, Departure, Io},
    pauses::Reason,
    time::Time,
};

use super::{BACKLOG_HIGH_BYTES, Engine, Todo, cancel, login::too_many};

/// The longest command, in bytes.
const COMMAND_BYTES_MAX: usize = 16 << 10;

/// The parameters that the console reports at a log-in, for drivers that need them.
const PARAMETERS: [(&str, &str); 6] = [
    ("client_encoding", "UTF8"),
    ("server_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("TimeZone", "UTC"),
    ("standard_conforming_strings", "on"),
    ("integer_datetimes", "on"),
];

impl Engine {
    /// Whether clients call the admin console so.
    pub(super) fn is_console(&self, database: &str) -> bool {
        self.snapshot.admin.as_ref().is_some_and(|admin| admin.database == database)
    }

    /// A client that is who it says wants to talk to the console.
    pub(super) fn enter_console(&mut self, id: ClientId, wish: &Wish, io: &mut impl Io) -> Result<(), ErrorResponse> {
        let user = wish.user.as_str();
        let application_name = wish.request.get("application_name").unwrap_or_default().into();
        let rights = rights_of(&self.snapshot, user).ok_or_else(|| may_not(user))?;
        let worker = self.worker;
        let Some(client) = self.clients.get_mut(id) else { return Ok(()) };
        if let Some(admitted) = &mut client.admitted {
            admitted.enter_console(rights == Rights::All).map_err(|full| too_many(full, user, ""))?;
        }
        self.give_key(id, &wish.request, io);
        let client = &mut self.clients[id];
        let number = cancel::process_id(ClientRef { worker, id, serial: client.serial });
        self.scratch.clear();
        message::put_parameter_status(&mut self.scratch, "server_version", concat!("16.0/", env!("CARGO_PKG_VERSION")));
        for (name, value) in PARAMETERS {
            message::put_parameter_status(&mut self.scratch, name, value);
        }
        message::put_backend_key_data(&mut self.scratch, number, &client.key);
        self.scratch.extend_from_slice(&TransactionStatus::Idle.ready_for_query());
        client.phase = Phase::Console(Console { user: user.into(), application_name, waits: false, skips: false });
        io.send(client.conn, &self.scratch);
        self.log_logged_in(id, io);
        Ok(())
    }

    /// Handles a message at the beginning of `bytes`; returns how many bytes it took. `None`: the client is gone.
    pub(super) fn console_input(&mut self, now: Time, id: ClientId, bytes: &[u8], io: &mut impl Io) -> Option<usize> {
        let this = self.client_ref(id)?;
        let Client { conn, stream, phase: Phase::Console(console), .. } = self.clients.get_mut(id)? else {
            return Some(0);
        };
        if console.waits {
            return Some(0);
        }
        let conn = *conn;
        if io.backlog(conn) > BACKLOG_HIGH_BYTES {
            // It does not read what it is answered.
            self.clients[id].pause(Reason::Unread, io);
            return Some(0);
        }
        let (kind, total) = match stream.next(bytes) {
            Ok(Frame::Message { tag, total, here }) if here == total => (FrontendKind::from(tag), total),
            Ok(Frame::Message { total, .. }) if total <= COMMAND_BYTES_MAX => return Some(0),
            Ok(Frame::Short) => return Some(0),
            _ => {
                let error = format!("a message of the admin console has at most {COMMAND_BYTES_MAX} bytes");
                self.refuse_client(now, id, &ErrorResponse::fatal(sqlstate::PROGRAM_LIMIT_EXCEEDED, error), io);
                return None;
            }
        };
        match kind {
            FrontendKind::Query => {
                let text = match message::split_cstr(&bytes[5..total]) {
                    Some((text, b"")) => String::from_utf8_lossy(text).into_owned(),
                    split => {
                        let error =
                            if split.is_some() { "invalid message format" } else { "invalid string in message" };
                        io.send(conn, &ErrorResponse::error(sqlstate::PROTOCOL_VIOLATION, error).to_bytes());
                        io.send(conn, &TransactionStatus::Idle.ready_for_query());
                        return Some(total);
                    }
                };
                let Some(rights) = rights_of(&self.snapshot, &console.user) else {
                    let error = may_not(&console.user);
                    self.refuse_client(now, id, &error, io);
                    return None;
                };
                console.waits = io.command(Command { client: this, user: console.user.clone(), rights, text });
                if !console.waits {
                    let error = "the admin console has too much to do";
                    let error = ErrorResponse::error(sqlstate::CANNOT_CONNECT_NOW, error).hint("Try again.");
                    io.send(conn, &error.to_bytes());
                    io.send(conn, &TransactionStatus::Idle.ready_for_query());
                }
            }
            FrontendKind::Sync => {
                console.skips = false;
                io.send(conn, &TransactionStatus::Idle.ready_for_query());
            }
            FrontendKind::Terminate => {
                self.drop_client(now, id, Departure::Goodbye, io);
                return None;
            }
            FrontendKind::Flush => {}
            _ if console.skips => {}
            _ => {
                let error = "the admin console speaks the simple query protocol only";
                let hint = "Use psql, or have the driver send queries without parameters as they are.";
                io.send(conn, &ErrorResponse::error(sqlstate::FEATURE_NOT_SUPPORTED, error).hint(hint).to_bytes());
                // A FunctionCall has no Sync behind it.
                console.skips = kind != FrontendKind::FunctionCall;
                if !console.skips {
                    io.send(conn, &TransactionStatus::Idle.ready_for_query());
                }
            }
        }
        Some(total)
    }

    /// The answer to a client of the console has come.
    pub(super) fn command_answered(&mut self, client: ClientRef, answer: &[u8], io: &mut impl Io) {
        if !self.is_current(client) {
            return;
        }
        let Some(Client { conn, phase: Phase::Console(console), .. }) = self.clients.get_mut(client.id) else { return };
        console.waits = false;
        io.send(*conn, answer);
        self.todo.push_back(Todo::Input(client.id));
    }
}

/// The rights of a user at the console; `None`: none, or there is no console.
fn rights_of(snapshot: &Snapshot, user: &str) -> Option<Rights> {
    snapshot.admin.as_ref()?.rights_of(user)
}

fn may_not(user: &str) -> ErrorResponse {
    let error = format!("user \"{user}\" may not use the admin console");
    let hint = "Name it in \"users\" or \"stats_users\" under [admin] in the pool's configuration.";
    ErrorResponse::fatal(sqlstate::INVALID_AUTHORIZATION, error).hint(hint)
}
