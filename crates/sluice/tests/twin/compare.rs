//! Both sides of a plan, and where they first differ.

use std::{fmt::Write, time::Duration};

use sluice_testkit::{Case, Message, Random};
use sluice_wire::message::backend;

use crate::{
    CLIENTS,
    acts::Category,
    disturb::Others,
    generate::{self, NAMES},
    ignored::{self, Numbers},
    plan::{Event, What},
    run::{self, Answer, End, Holders, Side},
    servers,
    twins::{PATIENCE, Place},
    wire::readable,
};

/// An answer of the pool that differs from PostgreSQL's.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    /// The event's place in the plan.
    pub(crate) at: usize,
    pub(crate) alone: Answer,
    pub(crate) pooled: Answer,
}

/// A plan that was carried out on both sides.
pub(crate) struct Outcome {
    pub(crate) events: Vec<Event>,
    /// Each client's first.
    pub(crate) differences: Vec<Difference>,
}

/// Carries out the plan that a seed makes of these categories, on both sides.
pub(crate) fn try_seed(place: &Place, case: Case, seed: u64, categories: &[&'static Category]) -> Outcome {
    let tracks = generate::tracks(case, seed, categories);
    let twin = place.copy(&(0..CLIENTS).collect());
    let (connect, superuser) = (|| place.alone(), || place.superuser());
    let mut side = Side::new(Others::new(&connect, &superuser, &twin.name), CLIENTS, PATIENCE);
    let done = run::arrange(tracks, &mut side, Holders::new(servers(case.mode), CLIENTS), &mut Random::new(seed));
    drop(side);
    let (events, alone): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    let differences = differences(&events, &alone, &pooled(place, case, &events, PATIENCE));
    Outcome { events, differences }
}

/// A plan once more on both sides; `None` if it can't be carried out.
pub(crate) fn try_events(place: &Place, case: Case, events: &[Event]) -> Option<Vec<Difference>> {
    let twin = place.copy(&events.iter().map(|event| event.client).collect());
    let (connect, superuser) = (|| place.alone(), || place.superuser());
    let mut side = Side::new(Others::new(&connect, &superuser, &twin.name), CLIENTS, PATIENCE / 10);
    let alone = run::repeat(events, &mut side, Holders::new(servers(case.mode), CLIENTS))?;
    drop(side);
    Some(differences(events, &alone, &pooled(place, case, events, PATIENCE / 10)))
}

fn pooled(place: &Place, case: Case, events: &[Event], patience: Duration) -> Vec<(usize, Answer)> {
    let twin = place.copy(&events.iter().map(|event| event.client).collect());
    let pool = place.pool(case);
    let (connect, superuser) = (|| pool.raw(), || place.superuser());
    let mut side = Side::new(Others::of_pool(&connect, &superuser, &twin.name), CLIENTS, patience);
    let mut answers = Vec::new();
    for event in events {
        answers.push((event.client, side.perform(event)));
        // Others would wait for what it waits for.
        if answers.last().is_some_and(|(_, answer)| answer.end == End::Stuck) {
            break;
        }
    }
    drop(side);
    drop(pool);
    answers
}

fn differences(events: &[Event], alone: &[Answer], pooled: &[(usize, Answer)]) -> Vec<Difference> {
    let mut numbers = Numbers::default();
    let mut differs = [false; CLIENTS];
    let mut found = Vec::new();
    for (at, (alone, (client, pooled))) in alone.iter().zip(pooled).enumerate() {
        if differs[*client] || same(&mut numbers, alone, pooled) {
            continue;
        }
        // What comes after it is not the same session any more.
        differs[*client] = true;
        if has_lost_sequences(&mut numbers, alone, pooled) || has_others_sequences(&events[..=at], alone, pooled) {
            continue;
        }
        found.push(Difference { at, alone: alone.clone(), pooled: pooled.clone() });
    }
    found
}

fn same(numbers: &mut Numbers, alone: &Answer, pooled: &Answer) -> bool {
    if [alone.end, pooled.end] == [End::Stuck; 2] {
        return true;
    }
    let (one, two) = (ignored::ordered(&alone.messages), ignored::ordered(&pooled.messages));
    alone.end == pooled.end
        && one.len() == two.len()
        && one.iter().zip(&two).all(|(alone, pooled)| numbers.same(alone, pooled))
}

/// Whether they are the same up to where the pool has forgotten what sequences gave the client.
fn has_lost_sequences(numbers: &mut Numbers, alone: &Answer, pooled: &Answer) -> bool {
    let (one, two) = (ignored::ordered(&alone.messages), ignored::ordered(&pooled.messages));
    let differs = one.iter().zip(&two).find(|(alone, pooled)| !numbers.same(alone, pooled));
    differs.is_some_and(|(alone, pooled)| ignored::is_lost_sequence(alone, pooled))
}

/// Whether the last event is the first in which anybody asks for what a sequence gave, and gets what it gave to another
/// client: until then the pool does not know whose uses its servers remember (decision 0014, "What remains").
fn has_others_sequences(events: &[Event], alone: &Answer, pooled: &Answer) -> bool {
    let asks = |event: &&Event| {
        let What::Say(step) = &event.what else { return false };
        [&b"currval"[..], b"lastval"].iter().any(|name| step.bytes.windows(name.len()).any(|part| part == *name))
    };
    let is_first = events.last().is_some_and(|last| asks(&last)) && events.iter().filter(asks).count() == 1;
    let (one, two) = (ignored::ordered(&alone.messages), ignored::ordered(&pooled.messages));
    let differs = one.iter().zip(&two).find(|(alone, pooled)| alone.tag != pooled.tag);
    is_first && differs.is_some_and(|(alone, pooled)| ignored::is_lost_sequence(pooled, alone))
}

/// A difference for the reader of a failed test: what was done, and both answers to the last of it.
pub(crate) fn report(events: &[Event], difference: &Difference) -> String {
    let mut text = String::new();
    for event in &events[..=difference.at] {
        let _ = writeln!(text, "  {event}");
    }
    let _ = writeln!(text, "alone: {:?}\n{}", difference.alone.end, transcript(&difference.alone.messages));
    let _ = write!(text, "pooled: {:?}\n{}", difference.pooled.end, transcript(&difference.pooled.messages));
    text
}

/// The kind of a difference, in a line: the same for the same kind.
pub(crate) fn signature(events: &[Event], difference: &Difference) -> String {
    let category = match &events[difference.at].what {
        What::Say(step) => step.category,
        What::Open(_) => "login",
        What::Leave => "leaving",
        What::Cancel(_) | What::EndServer | What::EndIdle => "between",
    };
    let (alone, pooled) = (ignored::ordered(&difference.alone.messages), ignored::ordered(&difference.pooled.messages));
    let mut numbers = Numbers::default();
    let at = alone.iter().zip(&pooled).position(|(one, two)| !numbers.same(one, two));
    let at = at.unwrap_or(alone.len().min(pooled.len()));
    if let (Some(one), Some(two)) = (alone.get(at), pooled.get(at))
        && let Some(fields) = other_fields(one, two)
    {
        return format!("{category}: {} differs in {fields}", brief(one));
    }
    let show = |messages: &[&Message], end| messages.get(at).map_or(format!("{end:?}"), |message| brief(message));
    format!("{category}: {} <> {}", show(&alone, difference.alone.end), show(&pooled, difference.pooled.end))
}

/// The fields in which two errors of the same code and text differ.
fn other_fields(one: &Message, two: &Message) -> Option<String> {
    let is_error = |message: &Message| [backend::ERROR_RESPONSE, backend::NOTICE_RESPONSE].contains(&message.tag);
    let differs = |field: &u8| one.field(*field) != two.field(*field);
    let said = is_error(one) && is_error(two) && one.tag == two.tag && !b"CM".iter().any(differs);
    said.then(|| b"SVDHPpqWstcdnFLR".iter().copied().filter(differs).map(char::from).collect())
}

fn brief(message: &Message) -> String {
    match message.tag {
        backend::DATA_ROW => "D".to_owned(),
        backend::ROW_DESCRIPTION => "T".to_owned(),
        backend::ERROR_RESPONSE => format!("E({} {})", message.field(b'C'), without_names(&message.field(b'M'))),
        _ => message.to_string(),
    }
}

/// A message's text without the names of statements, of which there are several kinds.
fn without_names(text: &str) -> String {
    let mut inside = true;
    let mut parts = text.split('"').map(|part| {
        inside = !inside;
        match part {
            _ if !inside => part,
            // The rest of it is another one in each run.
            _ if part.starts_with("sluice_") => "sluice_",
            _ if NAMES.contains(&part) => "",
            _ => part,
        }
    });
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "\"" + part)
}

fn transcript(messages: &[Message]) -> String {
    messages.iter().map(|message| format!("    {}\n", whole(message))).collect()
}

/// A message with all that it says.
fn whole(message: &Message) -> String {
    match message.tag {
        backend::ERROR_RESPONSE | backend::NOTICE_RESPONSE | backend::PARAMETER_STATUS => {
            format!("{} {}", char::from(message.tag), readable(&message.body).replace("\\u{0}", " "))
        }
        backend::DATA_ROW => {
            let show = |value: Option<Vec<u8>>| value.map_or("NULL".to_owned(), |value| readable(&value));
            format!("D {}", message.values().into_iter().map(show).collect::<Vec<_>>().join(", "))
        }
        backend::ROW_DESCRIPTION => {
            let show = |(name, rest): (&[u8], &[u8])| {
                format!("{} {}", readable(name), readable(&rest.escape_ascii().to_string().into_bytes()))
            };
            format!("T {}", ignored::columns(&message.body).into_iter().map(show).collect::<Vec<_>>().join(", "))
        }
        _ => message.to_string(),
    }
}
