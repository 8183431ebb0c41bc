//! Requests that take long: what is noted of them on their way to a server, and logged when they have been answered.

use sluice_wire::{
    FrontendKind,
    message::{BindNames, split_cstr},
};

use crate::io::{Io, LogEvent};

use super::{
    backend::ServerRelay,
    frontend::{ClientRelay, Seen},
};

impl<'a, I: Io> ClientRelay<'a, I> {
    /// Notes a message that has gone to the server: a statement's text, where it is run.
    pub(super) fn note_request(&mut self, seen: Seen<'a>) {
        let is_whole = seen.is_whole();
        match seen.kind {
            FrontendKind::Query => {
                self.server().request.runs(seen.body.strip_suffix(b"\0").unwrap_or(seen.body), is_whole)
            }
            FrontendKind::FunctionCall => self.server().request.runs(b"(a function, by its number)", true),
            FrontendKind::Parse => {
                if let Some((_, rest)) = split_cstr(seen.body) {
                    let text = split_cstr(rest).map_or(rest, |(text, _)| text);
                    self.server().request.parses(text, is_whole);
                }
            }
            FrontendKind::Bind => {
                let names = BindNames::read(seen.body);
                if let Some(statement) = names.and_then(|names| self.statement_named(names.statement)).cloned() {
                    self.server().request.runs(statement.query(), true);
                }
            }
            _ => {}
        }
    }
}

impl<I: Io> ServerRelay<'_, I> {
    /// A request has been answered.
    pub(super) fn log_if_slow(&mut self) {
        let server = &mut *self.server;
        if !server.request.is_known() {
            return;
        }
        if let Some(since) = server.meter.query_since() {
            let took = self.now.since(since);
            let pool = &server.pool;
            if pool.slow.is_reached(took + server.request.waited) {
                let (database, role) = (&*pool.database, &*pool.upstream.user);
                self.io.log(LogEvent::SlowRequest { database, role, took, request: &server.request });
            }
        }
        server.request.clear();
    }
}
