//! What a client gets, compared with what its own session answers.

use sluice_wire::ErrorFields;

use super::Client;
use crate::{
    agenda::SimIo,
    postgres::describe,
    session::{Ends, Sequence, frames, same},
};

impl Client {
    /// Its session goes on by itself until an answer is due.
    pub(super) fn advance(&mut self) {
        while self.expected.is_empty() {
            let Some(next) = self.sent.pop_front() else { return };
            self.before = self.reference.clone();
            self.current = Some(next);
            self.matched.clear();
            self.run_current(Ends::default());
        }
    }

    fn run_current(&mut self, ends: Ends) {
        let Some((tag, body)) = &self.current else { return };
        let mut out = Vec::new();
        self.reference.handle(*tag, body, ends, &mut out);
        self.expected = frames(&out);
        // What it has been told before is not told again.
        self.early.retain(|frame| match self.expected.iter().position(|expected| expected == frame) {
            Some(at) => self.expected.remove(at).is_none(),
            None => true,
        });
    }

    /// Takes the message at work to have ended in another way that is right, too, as the answer shows.
    fn again(&mut self, ends: Ends) {
        self.reference = self.before.clone();
        self.run_current(ends);
        for frame in std::mem::take(&mut self.matched) {
            if self.place_of(&frame).and_then(|at| self.expected.remove(at)).as_ref() != Some(&frame) {
                self.violation(&format!("got a part of another answer before: {}", describe(frame[0], &frame[5..])));
            }
            self.matched.push(frame);
        }
    }

    /// Where a message stands among those that are due, if it is due now. Parameters that are reported one behind the
    /// other are in no order: PostgreSQL's versions differ in it too.
    fn place_of(&self, frame: &[u8]) -> Option<usize> {
        let is_due = |due: &Vec<u8>| same(due, frame);
        if frame[0] != b'S' {
            return self.expected.front().filter(|due| is_due(due)).map(|_| 0);
        }
        self.expected.iter().take_while(|due| due[0] == b'S').position(is_due)
    }

    pub(super) fn answer(&mut self, frame: &[u8], io: &mut SimIo) {
        self.advance();
        self.answers += 1;
        if self.place_of(frame).is_none() {
            self.reconsider(frame, io);
        }
        match self.place_of(frame) {
            Some(_) if frame[0] == b'Z' && !self.early.is_empty() => self.violation("was told of what is not so"),
            Some(at) => {
                let expected = self.expected.remove(at).expect("it was there a moment ago");
                self.sequences_told += u64::from(expected[0] == b'D' && Sequence::is_told_in(&expected[5..]));
                self.matched.push(expected);
            }
            // What a lost block has set is what it was: also ahead of the answers to a ROLLBACK that goes to another server.
            None if frame[0] == b'S' && io.plan.in_cluster && io.plan.loses_servers() => {
                self.early.push(frame.to_vec());
            }
            None => self.violation(&format!("got {}", describe(frame[0], &frame[5..]))),
        }
        self.advance();
        if self.expected.is_empty() && self.sent.is_empty() {
            self.idle(io);
        }
    }

    fn reconsider(&mut self, frame: &[u8], io: &SimIo) {
        let code = |f: &[u8]| (f[0] == b'E').then(|| ErrorFields(&f[5..]).get(b'C').map(<[u8]>::to_vec)).flatten();
        let tag = self.current.as_ref().map(|(tag, _)| *tag);
        let described = self.matched.iter().any(|frame| frame[0] == b't');
        match code(frame).as_deref() {
            Some(b"57014") if self.cancels > 0 => {
                self.cancels -= 1;
                self.again(Ends { fail: Some("57014"), described, ..Ends::default() });
            }
            // Its block was lost with its server.
            Some(b"40001") if io.plan.in_cluster && io.plan.loses_servers() => {
                let is_late = self.expected.front().is_some_and(|frame| frame[0] == b'Z');
                self.again(Ends { fail: Some("40001"), is_late, described, ..Ends::default() });
            }
            Some(b"53S01") if io.plan.refused_percent > 0 => {
                self.again(Ends { fail: Some("53S01"), described, ..Ends::default() });
            }
            // The server on which it used the sequence is in use, and it may have it again later.
            Some(b"55000") if io.plan.is_transaction_mode() => {
                let lost = self.before.lose_sequence();
                self.again(Ends::default());
                self.reference.regain_sequence(lost);
                self.sequences_lost += 1;
            }
            // A schema change in the middle of a transaction can't be healed.
            Some(b"0A000") if io.plan.schema_changes > 0 && matches!(tag, Some(b'B' | b'D')) => {
                self.again(Ends { fail: Some("0A000"), ..Ends::default() });
            }
            _ => {}
        }
    }
}
