//! A client's bytes, handled as far as that can be done now; the rest is kept.

use sluice_wire::FrontendKind;

use crate::{
    client::{Client, Link, PENDING_BYTES_MAX, Phase},
    ids::{ClientId, ClientRef},
    io::{Departure, Io},
    pauses::Reason,
    time::Time,
    watch,
};

use super::{
    BACKLOG_HIGH_BYTES, Engine, Todo,
    frontend::{ClientRelay, Parting, Stop},
};

impl Engine {
    pub(super) fn client_bytes(&mut self, now: Time, id: ClientId, bytes: &[u8], io: &mut impl Io) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.watch.heard(bytes.len());
        if let Some(session) = client.session() {
            session.pool.traffic.received(bytes.len());
        }
        let waits = client.waits_to_be_known()
            || client.session().is_some_and(|s| matches!(s.link, Link::Waiting(_) | Link::Coming))
            || client.pauses.has(Reason::Unread);
        if waits {
            client.pending.extend_from_slice(bytes);
            if client.pending.len() > PENDING_BYTES_MAX {
                client.pause(Reason::Pending, io);
            }
        } else if client.pending.is_empty() {
            self.client_input(now, id, bytes, true, io);
        } else {
            client.pending.extend_from_slice(bytes);
            if client.pending.len() >= client.needed {
                let whole = std::mem::take(&mut client.pending);
                self.client_input(now, id, &whole, false, io);
            }
        }
        let Some(client) = self.clients.get(id) else { return };
        let is_next = |todo: &Todo| matches!(todo, Todo::Input(next) if *next == id);
        match client.server() {
            // It has just got it, and both are looked at once more.
            Some(_) if client.pending.is_empty() && self.todo.iter().any(is_next) => {}
            Some(server) => self.check_rest(now, server, io),
            None => {
                self.watch_collected(now, id);
                self.watch_rest(id);
            }
        }
    }

    /// Handles `bytes` as far as that can be done now, and keeps the rest.
    pub(super) fn client_input(&mut self, now: Time, id: ClientId, bytes: &[u8], shared: bool, io: &mut impl Io) {
        let mut pos = 0;
        while pos < bytes.len() {
            let Some(client) = self.clients.get_mut(id) else { return };
            let used = match client.phase {
                Phase::Header => self.header_input(now, id, &bytes[pos..], io),
                Phase::Startup => self.startup_input(now, id, &bytes[pos..], io),
                Phase::Password(..) => self.password_input(now, id, &bytes[pos..], io),
                Phase::Console(_) => self.console_input(now, id, &bytes[pos..], io),
                Phase::Identity(_) | Phase::Account(_) | Phase::Welcome(..) => Some(0),
                // It has nothing more to say.
                Phase::Asker => return,
                Phase::Open(_) => match self.open_input(now, id, bytes, pos, shared, io) {
                    Some(end) => {
                        pos = end;
                        break;
                    }
                    None => return,
                },
            };
            match used {
                None => return,
                Some(0) => break,
                Some(used) => pos += used,
            }
        }
        if let Some(client) = self.clients.get_mut(id)
            && pos < bytes.len()
        {
            client.pending.extend_from_slice(&bytes[pos..]);
        }
    }

    /// Handles messages of a logged-in client from `pos` on; returns where it stopped. `None`: the client is gone.
    fn open_input(
        &mut self,
        now: Time,
        id: ClientId,
        bytes: &[u8],
        mut pos: usize,
        shared: bool,
        io: &mut impl Io,
    ) -> Option<usize> {
        loop {
            let worker = self.worker;
            let Client { conn, serial, stream, phase, needed, .. } = self.clients.get_mut(id)?;
            *needed = 0;
            let Phase::Open(session) = phase else { return Some(pos) };
            let server = match session.link {
                Link::Server(server) => self.servers.get_mut(server),
                _ => None,
            };
            let mut relay = ClientRelay {
                io,
                client: *conn,
                this: ClientRef { worker, id, serial: *serial },
                session,
                server,
                scratch: &mut self.scratch,
                hub: &self.hub,
                message_bytes_max: self.snapshot.limits.rewritten_message_bytes as usize,
                now,
                stream,
                needed,
                bytes,
                shared,
                pos,
                run: pos,
                last: None,
            };
            let stop = relay.run();
            pos = relay.pos;
            let last = relay.last;
            let server = relay.server.as_ref().map(|server| server.conn);
            if server.is_some_and(|conn| io.backlog(conn) > BACKLOG_HIGH_BYTES) {
                self.clients[id].pause(Reason::Server, io);
            }
            let client = &mut self.clients[id];
            if let Some(kind) = last {
                let ends = matches!(kind, FrontendKind::Query | FrontendKind::FunctionCall | FrontendKind::Sync);
                let request = if ends { watch::Request::Ended } else { watch::Request::Open };
                client.rest.note(now, request);
            }
            client.unfinished = matches!(stop, Stop::Done) && (pos < bytes.len() || client.stream.is_inside());
            match stop {
                Stop::Done => return Some(pos),
                Stop::Hold | Stop::Unread => {
                    if matches!(stop, Stop::Unread) {
                        self.clients[id].pause(Reason::Unread, io);
                    }
                    if bytes.len() - pos > PENDING_BYTES_MAX {
                        self.clients[id].pause(Reason::Pending, io);
                    }
                    return Some(pos);
                }
                stop @ (Stop::NeedServer | Stop::NeedOther) => {
                    match stop {
                        Stop::NeedOther => self.replace_server(now, id, io),
                        _ => {
                            self.choose_node(now, id, io);
                            self.acquire(now, id, io);
                        }
                    }
                    match self.clients.get(id)?.session()?.link {
                        Link::Server(_) => {}
                        _ => return Some(pos),
                    }
                }
                Stop::Terminate => {
                    self.part_from(now, id, Parting::Goodbye, Departure::Goodbye, io);
                    return None;
                }
                Stop::Broken(error) => {
                    self.refuse_client(now, id, &error, io);
                    return None;
                }
            }
        }
    }
}
