//! Makes a plan that shows a difference shorter, as long as it still shows one of the same kind.

use sluice_testkit::Case;
use sluice_wire::message::{framed, frontend};

use crate::{
    compare::{self, Difference},
    plan::{Event, Step, What},
    twins::Place,
    wire,
};

/// The number of times that the plan may be carried out again.
const RUNS: usize = 600;

struct Shrinking<'a> {
    place: &'a Place,
    case: Case,
    /// The kind of difference that must stay.
    kind: String,
    events: Vec<Event>,
    difference: Difference,
    runs: usize,
}

/// The shortest plan found, and its difference.
pub(crate) fn shrink(place: &Place, case: Case, events: &[Event], difference: &Difference) -> (Vec<Event>, Difference) {
    let kind = compare::signature(events, difference);
    let events = events[..=difference.at].to_vec();
    let mut shrinking = Shrinking { place, case, kind, events, difference: difference.clone(), runs: 0 };
    shrinking.without_clients();
    // Fewer and fewer events at once, down to each alone.
    let mut size = shrinking.events.len() / 2;
    while size > 0 {
        shrinking.without_runs_of(size);
        size /= 2;
    }
    shrinking.without_cuts();
    shrinking.without_messages();
    shrinking.without_runs_of(1);
    (shrinking.events, shrinking.difference)
}

impl Shrinking<'_> {
    /// Takes a shorter plan if it shows the same.
    fn take(&mut self, events: Vec<Event>) -> bool {
        if self.runs == RUNS || events.is_empty() {
            return false;
        }
        self.runs += 1;
        let Some(found) = compare::try_events(self.place, self.case, &events) else { return false };
        let same = found.into_iter().find(|difference| compare::signature(&events, difference) == self.kind);
        let Some(difference) = same else { return false };
        self.events = events[..=difference.at].to_vec();
        self.difference = difference;
        true
    }

    fn without_clients(&mut self) {
        let client = self.events[self.difference.at].client;
        let alone: Vec<_> = self.events.iter().filter(|event| event.client == client).cloned().collect();
        if alone.len() < self.events.len() && self.take(alone) {
            return;
        }
        for client in 0..crate::CLIENTS {
            let rest: Vec<_> = self.events.iter().filter(|event| event.client != client).cloned().collect();
            if rest.len() < self.events.len() {
                self.take(rest);
            }
        }
    }

    fn without_runs_of(&mut self, size: usize) {
        let mut end = self.events.len();
        while end > 0 {
            let start = end.saturating_sub(size);
            let mut rest = self.events.clone();
            let cut: Vec<_> = rest.drain(start..end).collect();
            // A client that has not connected can say nothing; a plan without its opening is another one.
            let opens = |event: &Event| {
                matches!(event.what, What::Open(_)) && rest.iter().any(|other| other.client == event.client)
            };
            if !cut.iter().any(opens) {
                self.take(rest);
            }
            end = start.min(self.events.len());
        }
    }

    fn without_cuts(&mut self) {
        for at in (0..self.events.len()).rev() {
            let mut events = self.events.clone();
            if let Some(What::Say(step)) = events.get_mut(at).map(|event| &mut event.what)
                && !step.cuts.is_empty()
            {
                step.cuts.clear();
                self.take(events);
            }
        }
    }

    fn without_messages(&mut self) {
        let mut at = self.events.len();
        while at > 0 {
            at -= 1;
            let count = match &self.events[at].what {
                What::Say(step) => wire::messages(&step.bytes).len(),
                _ => 0,
            };
            for message in (0..count).rev() {
                let mut events = self.events.clone();
                if let Some(What::Say(step)) = events.get_mut(at).map(|event| &mut event.what)
                    && let Some(bytes) = without(step, message)
                {
                    step.bytes = bytes;
                    self.take(events);
                }
            }
        }
    }
}

/// A step's bytes without one message; `None` where nothing would answer any more, or where it is part of a COPY.
fn without(step: &Step, message: usize) -> Option<Vec<u8>> {
    let mut messages = wire::messages(&step.bytes);
    let end = wire::before_end(&messages);
    if message >= end.unwrap_or(messages.len()) || messages.len() == 1 {
        return None;
    }
    let (tag, body) = messages.remove(message);
    // Without a Bind or a Close before it, an Execute of the unnamed portal may crash PostgreSQL (`acts/messages`).
    let is_of_unnamed = |tag: u8, body: &[u8]| match tag {
        frontend::BIND | frontend::EXECUTE => body.starts_with(b"\0"),
        _ => tag == frontend::CLOSE && body == b"P\0",
    };
    let executes = |(tag, body): &(u8, &[u8])| *tag == frontend::EXECUTE && is_of_unnamed(*tag, body);
    if tag != frontend::EXECUTE && is_of_unnamed(tag, body) && messages[message..].iter().any(executes) {
        return None;
    }
    // The end of a burst is known without these, but a COPY in it has to come to its own.
    let fixed: &[u8] = match end {
        Some(_) => &[frontend::COPY_DONE, frontend::COPY_FAIL],
        None => &[frontend::SYNC, frontend::COPY_DATA, frontend::COPY_DONE, frontend::COPY_FAIL, frontend::TERMINATE],
    };
    if fixed.contains(&tag) {
        return None;
    }
    let mut bytes = Vec::new();
    messages.iter().for_each(|(tag, body)| framed(&mut bytes, *tag, |out| out.extend_from_slice(body)));
    Some(bytes)
}
