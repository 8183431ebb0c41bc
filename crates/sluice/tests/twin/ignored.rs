//! All that may differ between a session through the pool and the same session alone. There is nothing else.
//!
//! - The process number and key of BackendKeyData, and the process number in a notification.
//! - Numbers of objects made while the plan ran: the two databases count from one counter. Which number stands for
//!   which must stay the same throughout.
//! - The number in the name of a session's temporary schema.
//! - ParameterStatus of the extension's own settings, which only the session alone gets: they are for the pool.
//! - What is said of the schema `pg_temp` by a session that has nothing in it: its server may have one, or not.
//! - The way in which an error's or a remark's context writes a PL/pgSQL function's name, with its schema and quotes or
//!   without: that is decided when a server first runs it.
//! - Where in PostgreSQL's source an error was raised (its fields F, L and R), where the pool words the error itself.
//! - The value of `currval` and `lastval`: in its place may come the error that the session has used no sequence. What
//!   that client gets from then on is not compared. Where nobody has asked before, a value may come in place of the error.
//! - What has come of an answer by the time that both sides give up waiting for the rest (a statement that sleeps for a
//!   minute was run by its name): PostgreSQL keeps it until its buffer is full, or the client's Sync is read.
//! - The order of ParameterStatus that follow each other: PostgreSQL 15 and 18 differ in it too.

use std::collections::HashMap;

use sluice_testkit::Message;
use sluice_wire::message::backend;

/// OIDs from here on are those of objects that users made.
const FIRST_NORMAL_OID: u32 = 16_384;

/// The message where there is no temporary schema.
const NO_TEMPORARY_SCHEMA: &str = "schema \"pg_temp\" does not exist";

/// The objects' numbers seen so far, each with its twin.
#[derive(Default)]
pub(crate) struct Numbers {
    twin_of: HashMap<u32, u32>,
    taken: HashMap<u32, u32>,
}

impl Numbers {
    fn are_twins(&mut self, alone: u32, pooled: u32) -> bool {
        if alone < FIRST_NORMAL_OID || pooled < FIRST_NORMAL_OID {
            return alone == pooled;
        }
        *self.twin_of.entry(alone).or_insert(pooled) == pooled && *self.taken.entry(pooled).or_insert(alone) == alone
    }

    /// Whether two messages are the same but for what may differ.
    pub(crate) fn same(&mut self, alone: &Message, pooled: &Message) -> bool {
        if alone.tag != pooled.tag {
            return false;
        }
        let is_error = matches!(alone.tag, backend::ERROR_RESPONSE | backend::NOTICE_RESPONSE);
        if is_error && misses_temporary_schema(alone, pooled) {
            return true;
        }
        match alone.tag {
            backend::BACKEND_KEY_DATA => alone.body.len() == pooled.body.len(),
            backend::NOTIFICATION_RESPONSE => alone.body[4..] == pooled.body[4..],
            backend::ROW_DESCRIPTION => self.same_columns(&alone.body, &pooled.body),
            backend::PARAMETER_DESCRIPTION => self.same_numbers(&alone.body, &pooled.body),
            _ if is_error && alone.body != pooled.body => same_error(alone, pooled),
            _ => alone.body == pooled.body || without_temporary(&alone.body) == without_temporary(&pooled.body),
        }
    }

    fn same_numbers(&mut self, alone: &[u8], pooled: &[u8]) -> bool {
        alone.len() == pooled.len()
            && alone[2..]
                .chunks(4)
                .zip(pooled[2..].chunks(4))
                .all(|(one, two)| self.are_twins(number(one), number(two)))
    }

    fn same_columns(&mut self, alone: &[u8], pooled: &[u8]) -> bool {
        let (one, two) = (columns(alone), columns(pooled));
        one.len() == two.len()
            && one.iter().zip(&two).all(|((name, rest), (name_2, rest_2))| {
                name == name_2
                    && self.are_twins(number(&rest[..4]), number(&rest_2[..4]))
                    && rest[4..6] == rest_2[4..6]
                    && self.are_twins(number(&rest[6..10]), number(&rest_2[6..10]))
                    && rest[10..] == rest_2[10..]
            })
    }
}

/// Whether one of two messages says that there is no temporary schema, and the other that nothing of that name is in it.
fn misses_temporary_schema(alone: &Message, pooled: &Message) -> bool {
    let texts = [alone, pooled].map(|message| message.field(b'M'));
    let is_missing = |text: &String| text.ends_with("does not exist") || text.ends_with("does not exist, skipping");
    texts.iter().any(|text| text.starts_with(NO_TEMPORARY_SCHEMA)) && texts.iter().all(is_missing)
}

/// Whether one says that the session has used no sequence where the other is a row.
pub(crate) fn is_lost_sequence(row: &Message, error: &Message) -> bool {
    let is_error = error.tag == backend::ERROR_RESPONSE && error.field(b'C') == "55000";
    is_error && error.field(b'M').ends_with("is not yet defined in this session") && row.tag == backend::DATA_ROW
}

fn same_error(alone: &Message, pooled: &Message) -> bool {
    let named = |message: &Message, field| match field {
        b'W' => without_temporary(plain_names(&message.field(field)).as_bytes()),
        _ => without_temporary(message.field(field).as_bytes()),
    };
    // PostgreSQL's own errors name the file.
    let fields: &[u8] = if pooled.field(b'F').is_empty() { b"SVCMDHPpqWstcdn" } else { b"SVCMDHPpqWstcdnFLR" };
    fields.iter().all(|field| named(alone, *field) == named(pooled, *field))
}

/// A context with the names of PL/pgSQL functions as short as they can be.
fn plain_names(context: &str) -> String {
    let plain = |line: &str| match line.split_once("PL/pgSQL function ").and_then(|(_, rest)| rest.split_once(" line "))
    {
        Some((name, place)) => format!("{} line {place}", name.replace('"', "").replace("public.", "")),
        None => line.to_owned(),
    };
    context.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// Messages with those ParameterStatus that follow each other in the order of their names, without the extension's own.
pub(crate) fn ordered(messages: &[Message]) -> Vec<&Message> {
    let is_own = |message: &&Message| message.tag == backend::PARAMETER_STATUS && message.body.starts_with(b"sluice.");
    let mut messages: Vec<_> = messages.iter().filter(|message| !is_own(message)).collect();
    for run in messages.chunk_by_mut(|one, two| one.tag == two.tag) {
        if run[0].tag == backend::PARAMETER_STATUS {
            run.sort_by(|one, two| one.body.cmp(&two.body));
        }
    }
    messages
}

/// The columns of a RowDescription: the name, and the table, column, type, size, modifier and format.
pub(crate) fn columns(body: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut found = Vec::new();
    let mut rest = &body[2..];
    while let Some(end) = rest.iter().position(|b| *b == 0) {
        found.push((&rest[..end], &rest[end + 1..end + 19]));
        rest = &rest[end + 19..];
    }
    found
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// The text with `pg_temp_` in place of `pg_temp_7`.
fn without_temporary(body: &[u8]) -> Vec<u8> {
    const NAME: &[u8] = b"pg_temp_";
    let mut kept = Vec::with_capacity(body.len());
    for byte in body {
        let is_number = byte.is_ascii_digit() && kept.ends_with(NAME);
        if !is_number {
            kept.push(*byte);
        }
    }
    kept
}
