//! Queries to whose texts something was added: what they are sent as, and what the client hears of that, which is nothing.

use sluice_wire::{BackendKind, ErrorFields, FrontendKind, message};

use crate::{
    amended::Amended,
    io::Io,
    replies::Expected,
    sql::{self, Ending},
};

use super::{
    backend::{ServerRelay, Verdict},
    frontend::{ClientRelay, Seen, Step},
};

impl<'a, I: Io> ClientRelay<'a, I> {
    /// Sends a Query that resets settings, if something has to be added to its text.
    pub(super) fn query_amended(&mut self, seen: Seen<'a>, clears: bool) -> Option<Step> {
        let text = seen.body.strip_suffix(b"\0").filter(|_| seen.is_whole())?;
        let server = self.server.as_deref_mut()?;
        let count = |part: &[u8]| server.parameters.count_characters(part);
        // It is collected whole, as what is rewritten.
        let (text, amended) = Amended::amend(text, &self.session.start, self.message_bytes_max, count)?;
        let resets = server.exchange.take_resets();
        self.drop_message(seen);
        self.scratch.clear();
        message::framed(self.scratch, FrontendKind::Query, |out| message::put_cstr(out, &text));
        let amended = Some(Box::new(amended));
        self.server().exchange.expect(Expected::Query {
            clears,
            resets: resets.map(Into::into),
            amended,
            is_amid: false,
        });
        self.note_ending(Ending::of(seen.body).known_if(false));
        if sql::may_copy_in(seen.body) {
            self.server().exchange.may_begin_copy();
        }
        self.send_scratch();
        Some(Step::Next)
    }
}

impl<I: Io> ServerRelay<'_, I> {
    /// An error or a notice of a Query: the place that it names is one of the client's text.
    pub(super) fn in_clients_places(&mut self, kind: BackendKind, body: &[u8]) -> Verdict {
        // Of one that is cut, the place is not there yet.
        let amended = self.server.exchange.replies().amended().filter(|_| !self.is_cut);
        let Some(amended) = amended else { return Verdict::Pass };
        let place = ErrorFields(body).get(b'P').and_then(|place| std::str::from_utf8(place).ok()?.parse().ok());
        let Some(place) = place.map(|place| amended.place(place)) else { return Verdict::Pass };
        let Some((conn, _)) = &self.client else { return Verdict::Pass };
        let conn = *conn;
        let mut message = Vec::with_capacity(body.len() + 5);
        message::framed(&mut message, kind, |out| ErrorFields(body).put_with(out, b'P', place.to_string().as_bytes()));
        self.flush();
        self.io.send(conn, &message);
        Verdict::Swallow
    }
}
