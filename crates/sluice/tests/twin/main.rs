//! The twin test: whatever clients do, what each gets from the pool, with others on the same few servers, is byte by byte
//! what it gets from PostgreSQL alone.
//!
//! A seed makes up a plan: sessions of several clients, in an order. It is carried out through a pool before one
//! database and on connections of the clients' own to its twin. In session mode each client has several sessions, one
//! after another, and may get a server of before. What may differ stands in `ignored.rs`, and what kinds
//! of things clients do in `acts/mod.rs`.
//!
//! | variable | |
//! |---|---|
//! | `SLUICE_TWIN_SEED=7` | this plan only |
//! | `SLUICE_TWIN_SESSIONS=8000` | so many clients' sessions for each case |
//! | `SLUICE_TWIN_FROM=200` | plans that no run without it has had, up to so many for each case |
//! | `SLUICE_TWIN_ACTS=56` | longer ones: so many acts of a few steps each, where there are 14 otherwise |
//! | `SLUICE_TWIN_ONLY=settings,temp` | these categories only, also such as are left out otherwise; `all` for all |
//! | `SLUICE_TWIN_SPELLINGS=5000` | so many statements for each case, each in a spelling of its own |
//! | `SLUICE_TWIN_SURVEY=count` | goes on after a difference, and counts their kinds at the end |
//! | `SLUICE_TWIN_SURVEY=shrink` | the same, and shows the first of each kind as short as it can be made |

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod acts;
mod beside;
mod code;
mod compare;
mod customs;
mod disturb;
mod encodings;
mod ends;
mod found;
mod generate;
mod ignored;
mod kept;
mod large;
mod later;
mod malformed;
mod names;
mod odd;
mod open;
mod plan;
mod prepared;
mod resets;
mod rights;
mod run;
mod sessions;
mod shrink;
mod spelled;
mod stale;
mod start;
mod texts;
mod twins;
mod wire;

use std::{collections::BTreeMap, env, ops::Range};

use sluice_testkit::{Case, Mode, matrix};

use crate::{
    acts::Category,
    twins::{Kind, Place},
};

/// The command under test.
const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// The number of clients, and of the servers that they share.
const CLIENTS: usize = 8;
const SERVERS: usize = 2;

/// The number of servers in such a mode: in session mode clients share one only one after another.
fn servers(mode: Mode) -> usize {
    match mode {
        Mode::Transaction => SERVERS,
        Mode::Session => CLIENTS,
    }
}

/// The number of sessions for each case, if nobody says: two thousand in all.
const SESSIONS: u64 = 180;

/// The part of them that is cancelled: that takes longer.
const CANCELLED: u64 = 6;

/// The part of them in session mode.
const SESSION_MODE: u64 = 2;

/// The sessions that a client has, one after another: in session mode the next one may get the server of the last.
fn sessions_of_a_client(mode: Mode) -> u64 {
    match mode {
        Mode::Transaction => 1,
        Mode::Session => 4,
    }
}

/// The part of them that is encrypted.
const TLS: u64 = 6;

/// The part of them that sends messages in any order.
const MESSAGES: u64 = 6;

matrix!(all: without_the_extension, with_the_extension);
matrix!(transaction: cancelled_without_the_extension, cancelled_with_the_extension);
matrix!(session: session_mode_without_the_extension, session_mode_with_the_extension);
matrix!(transaction: messages_without_the_extension, messages_with_the_extension);

matrix!(servers_with_tls: encrypted);

fn encrypted(case: Case) {
    let place = Place::of_kind(Kind { version: case.version, extension: true, tls: true });
    compare_at(place, case, seeds(case, true, TLS), &acts::chosen_and("cancels"));
}

fn without_the_extension(case: Case) {
    twins(case, false, &acts::chosen(), 1);
}

fn with_the_extension(case: Case) {
    twins(case, true, &acts::chosen(), 1);
}

fn cancelled_without_the_extension(case: Case) {
    twins(case, false, &acts::chosen_and("cancels"), CANCELLED);
}

fn cancelled_with_the_extension(case: Case) {
    twins(case, true, &acts::chosen_and("cancels"), CANCELLED);
}

fn session_mode_without_the_extension(case: Case) {
    twins(case, false, &acts::chosen(), SESSION_MODE);
}

fn session_mode_with_the_extension(case: Case) {
    twins(case, true, &acts::chosen(), SESSION_MODE);
}

fn messages_without_the_extension(case: Case) {
    twins(case, false, &acts::named(&["messages"]), MESSAGES);
}

fn messages_with_the_extension(case: Case) {
    twins(case, true, &acts::named(&["messages"]), MESSAGES);
}

pub(crate) fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}

/// Each case has seeds of its own.
fn seeds(case: Case, extension: bool, part: u64) -> Range<u64> {
    if let Some(seed) = number("SLUICE_TWIN_SEED") {
        return seed..seed + 1;
    }
    let sessions = number("SLUICE_TWIN_SESSIONS").unwrap_or(SESSIONS) / part;
    let first =
        format!("{case:?}{extension}").bytes().fold(0, |sum, byte| (sum * 31 + u64::from(byte)) % 9973) * 1_000_000;
    let first = first + number("SLUICE_TWIN_FROM").unwrap_or(0);
    first..first + sessions.div_ceil(CLIENTS as u64 * sessions_of_a_client(case.mode))
}

fn twins(case: Case, extension: bool, categories: &[&'static Category], part: u64) {
    compare_at(Place::shared(case.version, extension), case, seeds(case, extension, part), categories);
}

fn compare_at(place: &Place, case: Case, seeds: Range<u64>, categories: &[&'static Category]) {
    let survey = env::var("SLUICE_TWIN_SURVEY").unwrap_or_default();
    let mut kinds = BTreeMap::<String, (usize, u64)>::new();
    let (mut sessions, mut steps, mut messages, mut statements) = (0, 0, 0, 0);
    for seed in seeds {
        let outcome = compare::try_seed(place, case, seed, categories);
        sessions += CLIENTS as u64 * sessions_of_a_client(case.mode);
        steps += outcome.events.len();
        messages += outcome.events.iter().map(plan::Event::messages).sum::<usize>();
        statements += outcome.events.iter().map(plan::Event::statements).sum::<usize>();
        if !survey.is_empty() {
            for difference in &outcome.differences {
                let kind = compare::signature(&outcome.events, difference);
                let known = kinds.entry(kind).or_insert((0, seed));
                known.0 += 1;
                if known.0 == 1 && survey == "shrink" {
                    let (events, difference) = shrink::shrink(place, case, &outcome.events, difference);
                    println!("seed {seed}:\n{}", compare::report(&events, &difference));
                }
            }
        } else if let Some(difference) = outcome.differences.first() {
            let (events, difference) = shrink::shrink(place, case, &outcome.events, difference);
            panic!("{case:?}, seed {seed}:\n{}", compare::report(&events, &difference));
        }
    }
    for (kind, (times, seed)) in &kinds {
        println!("{times:5} {kind} (seed {seed})");
    }
    println!(
        "{case:?}: {statements} statements compared, in {messages} messages, {steps} steps and {sessions} sessions"
    );
}
