//! Messages in any order: bursts of them, of which each may be skipped, refused, malformed, or in the midst of a COPY.
//! Few names and few texts, so that they meet each other.
//!
//! Behind a burst the answer has an end that is known by itself, whatever it has led to ([`wire::ended`]). A burst is cut
//! into packets anywhere, and into two halves between which others go on.

mod texts;

use sluice_testkit::{Script, Version};
use sluice_wire::message::frontend;

use self::texts::{
    ANY, BEGINNINGS, BLOCKS, COPIES, CURSORS, FETCHES, LOOKS, NAMES, PINNING, SETTINGS, SEVERAL, TABLES, Text,
};
use super::malformed;
use crate::{
    generate::Maker,
    plan::Meanwhile,
    wire::{self, Value},
};

const INT4: u32 = 23;
const TEXT: u32 = 25;

/// Names of statements and of portals, the unnamed ones more often.
const STATEMENTS: [&str; 4] = ["", "", "a", "b"];
const PORTALS: [&str; 4] = ["", "", "p", "q"];

/// The statement that SQL executes.
const EXECUTED: &str = "a";

/// The statement and the portal of a COPY from the client: data follow wherever it is executed.
const COPY: &str = "k";

/// The number of messages, or of a few that belong together, in a burst.
const LONGEST: usize = 12;

// Each may be a Close, and so may one before them.
const _: () = assert!(LONGEST + 1 < wire::MARKS, "the end of a burst is known by more Closes in a row than it has");

pub(crate) fn act(maker: &mut Maker) {
    let pins = maker.random.percent(12);
    let mut values = Values::default();
    for _ in 0..1 + maker.random.below(4) {
        burst(maker, &mut values, pins);
        if maker.random.percent(25) {
            let text = *maker.random.of(LOOKS);
            maker.simple(text);
        }
    }
    if pins {
        maker.simple("ROLLBACK");
        maker.tidy_up();
    }
}

/// The startup parameters of a client.
pub(crate) fn parameters(maker: &mut Maker) -> Vec<(String, String)> {
    let mut parameters = Vec::new();
    for (name, values) in BEGINNINGS {
        if maker.random.percent(25) {
            parameters.push(((*name).to_owned(), (*maker.random.of(values)).to_owned()));
        }
    }
    parameters
}

/// The values that a statement of each name should take.
type Values = [&'static [&'static str]; 3];

fn burst(maker: &mut Maker, values: &mut Values, pins: bool) {
    let count = 1 + maker.random.below(LONGEST);
    let weights: Vec<_> = PARTS.iter().map(|part| part.0).collect();
    let last = maker.random.percent(1);
    let mut burst = Burst {
        maker,
        values,
        script: Script::new(),
        pins,
        copies: false,
        portal: Unnamed::Dangerous,
        has_run: false,
        forgets: false,
    };
    if burst.maker.random.percent(30) {
        burst.add(|script| script.close_portal(""));
        burst.portal = Unnamed::Harmless;
    }
    for _ in 0..count {
        let part = PARTS[burst.maker.random.weighted(&weights)].1;
        part(&mut burst);
    }
    let Burst { script, copies, forgets, .. } = burst;
    let script = if copies || maker.random.percent(30) { script.copy_fail("the end") } else { script };
    let script = match last {
        true => script.sync().terminate(),
        false => wire::ended(script, if forgets { "" } else { "never" }),
    };
    let (first, rest) = halves(maker, script);
    if !first.0.is_empty() {
        maker.burst(first, Vec::new(), pins, Meanwhile::Others);
    }
    let cuts = cuts(maker, &rest);
    maker.burst(rest, cuts, pins, Meanwhile::Nothing);
}

/// Cuts a burst in two now and then, between which others go on: the first half runs nothing, so it does not matter when
/// it is read.
fn halves(maker: &mut Maker, script: Script) -> (Script, Script) {
    const QUIET: [u8; 5] = [frontend::PARSE, frontend::BIND, frontend::DESCRIBE, frontend::CLOSE, frontend::FLUSH];
    let messages = wire::messages(&script.0);
    let quiet: Vec<_> = messages.iter().take_while(|(tag, _)| QUIET.contains(tag)).collect();
    if quiet.is_empty() || !maker.random.percent(25) {
        return (Script::new(), script);
    }
    let count = 1 + maker.random.below(quiet.len());
    let (first, rest) = script.0.split_at(quiet[..count].iter().map(|(_, body)| body.len() + 5).sum());
    (Script(first.to_vec()), Script(rest.to_vec()))
}

/// Places at which the bytes are cut into packets, between messages or within.
fn cuts(maker: &mut Maker, script: &Script) -> Vec<usize> {
    let mut ends = vec![0];
    wire::messages(&script.0).iter().for_each(|(_, body)| ends.push(ends[ends.len() - 1] + body.len() + 5));
    let count = if maker.random.percent(35) { 1 + maker.random.below(3) } else { 0 };
    let mut cuts: Vec<_> = (0..count)
        .map(|_| if maker.random.percent(60) { *maker.random.of(&ends) } else { maker.random.below(script.0.len()) })
        .filter(|cut| *cut > 0)
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// The unnamed portal. Where a Query of a transaction block has failed its portal stays, without what it was made of:
/// an Execute of it crashes PostgreSQL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unnamed {
    /// There may be one of a Query.
    Dangerous,
    /// An Execute is skipped, or it is of a Bind of the same batch.
    Bound,
    /// It was closed, and there was no Query since.
    Harmless,
}

/// A burst that is being made.
struct Burst<'a> {
    maker: &'a mut Maker,
    values: &'a mut Values,
    script: Script,
    /// Whether something may be left in the session for which a server has to be kept.
    pins: bool,
    /// Whether any portal may be a COPY from the client.
    copies: bool,
    portal: Unnamed,
    /// Whether the batch has run something.
    has_run: bool,
    /// Whether the unnamed statement and portal are closed behind it, and no other portal may be of that statement.
    forgets: bool,
}

/// A part of a burst, with its weight.
type Part = (usize, fn(&mut Burst<'_>));

/// All of them.
#[rustfmt::skip]
const PARTS: &[Part] = &[
    (14, |b| b.parse()), (14, |b| b.bind()), (5, |b| b.describe()), (5, |b| b.describe_portal()), (14, |b| b.execute()), (6, |b| b.close()), (4, |b| b.close_portal()),
    (4, |b| b.flush()), (10, |b| b.sync()), (12, |b| b.query()), (6, |b| b.several()), (16, |b| b.batch()), (5, |b| b.copy()), (3, |b| b.copy_by_batch()), (3, |b| b.copy_by_name()),
    (3, |b| b.call()), (3, |b| b.stray()), (3, |b| b.malformed()), (5, |b| b.names()), (3, |b| b.fetch()), (1, |b| b.discard()), (1, |b| b.large()),
];

// What decision 0014 lists under "What remains" is left out as follows; what else of it is left out is so by the texts.
impl Burst<'_> {
    /// A text for a statement of that name. What SQL executes speaks of no table that changes, and ends no transaction:
    /// PostgreSQL is out of step behind that. Two of a client's names have no text in common: the error of a Bind with
    /// a wrong number of parameters may name the other.
    fn text(&mut self, name: &str) -> (String, &'static [&'static str]) {
        let texts = match self.maker.random.below(20) {
            0..7 => ANY,
            7..12 => SETTINGS,
            12..16 if name != EXECUTED => BLOCKS,
            16..18 if name != EXECUTED => TABLES,
            _ => CURSORS,
        };
        let (text, values): Text = *self.maker.random.of(texts);
        let text = self.maker.fill(text);
        (if name == "b" { text + " " } else { text }, values)
    }

    /// Takes back all settings: with a client's other acts either this or `SET LOCAL … TO DEFAULT`, not both.
    fn take_back(&mut self) -> &'static str {
        if self.maker.client.is_multiple_of(2) { "RESET ALL" } else { "SET LOCAL work_mem TO DEFAULT" }
    }

    /// A portal for a statement: what is asked for data by a portal is known.
    fn portal(&mut self, statement: &str) -> &'static str {
        match statement {
            COPY => COPY,
            _ => self.maker.random.of::<&str>(&PORTALS),
        }
    }

    /// A Query that speaks of prepared statements is not amid a batch that has run something, and a DISCARD ALL has
    /// nothing of its batch behind it.
    fn apart(&mut self, sql: &str) {
        self.add(|script| script.sync().query(sql));
    }

    /// Whether a FunctionCall, or a Query of a single statement, would put PostgreSQL out of step: behind an Execute of
    /// the same batch PostgreSQL 18 begins a block there that it does not end, and refuses what comes next.
    fn is_out_of_step(&self) -> bool {
        self.has_run && self.maker.version == Version::V18
    }

    fn query_of(&mut self, text: &str) {
        let more = if self.is_out_of_step() { "\n; SELECT 0; SELECT 0" } else { "" };
        self.add(|script| script.query(&format!("{text}{more}")));
    }

    /// The data of a COPY, wherever there may be one: behind it nothing but COPY's own messages can be sent. Data that
    /// PostgreSQL refuses are at the end of it.
    fn data(&mut self) {
        let has_run = self.has_run;
        for _ in 0..self.maker.random.below(4) {
            let kind = self.maker.random.below(6);
            self.add(|script| match kind {
                0 | 1 => script.flush(),
                2 => script.copy_data(b"thr"),
                3 => script.copy_data(b""),
                _ => script.copy_data(b"one\ntwo\n"),
            });
        }
        if self.maker.random.percent(12) {
            self.add(|script| script.copy_data(b"too\tmany\n"));
        }
        let kind = self.maker.random.below(12);
        self.add(|script| match kind {
            0..8 => script.copy_done(),
            8..10 => script.copy_fail("no more"),
            10 => script.copy_done().copy_data(b"late\n").copy_fail("late"),
            _ => script.then(&wire::message(frontend::COPY_FAIL, |out| out.extend_from_slice(b"no end"))),
        });
        // A Sync amid the data is none.
        self.has_run = has_run;
    }
}

impl Burst<'_> {
    fn add(&mut self, more: impl FnOnce(Script) -> Script) {
        let added = more(Script::new());
        for (tag, body) in wire::messages(&added.0) {
            match tag {
                frontend::QUERY => self.portal = Unnamed::Dangerous,
                frontend::EXECUTE => self.has_run = true,
                frontend::SYNC | frontend::FUNCTION_CALL => {
                    self.has_run &= tag != frontend::SYNC;
                    if self.portal == Unnamed::Bound {
                        self.portal = Unnamed::Dangerous;
                    }
                }
                frontend::BIND if self.portal == Unnamed::Dangerous && body.starts_with(b"\0") => {
                    self.portal = Unnamed::Bound;
                }
                _ => (),
            }
        }
        self.script = std::mem::take(&mut self.script).then(&added);
    }

    fn statement(&mut self) -> &'static str {
        self.maker.random.of::<&str>(&STATEMENTS)
    }

    /// Parse, with types or without.
    fn parse_of(&mut self, name: &'static str) {
        let (text, values) = self.text(name);
        self.values[place(name)] = values;
        let types: &[u32] = match self.maker.random.below(12) {
            0 => &[INT4],
            1 => &[TEXT],
            2 => &[INT4, 0],
            _ => &[],
        };
        self.add(|script| script.parse_typed(name, &text, types));
    }

    fn bind_of(&mut self, portal: &str, name: &'static str) {
        let known = self.values[place(name)];
        let random = &mut self.maker.random;
        let mut values: Vec<Value> = Vec::new();
        if !known.is_empty() {
            values.push((!random.percent(10)).then(|| random.of(known).as_bytes().to_vec()));
        }
        if random.percent(4) {
            values.push(Some(b"more".to_vec()));
        } else if random.percent(4) {
            values.pop();
        }
        let parameters = *random.of::<&[u16]>(&[&[], &[], &[0], &[1], &[0, 0]]);
        let results = *random.of::<&[u16]>(&[&[], &[], &[], &[0], &[0], &[1], &[0, 1]]);
        let bind = wire::bind_as(portal, name, &values, parameters, results);
        self.add(|script| script.then(&bind));
    }

    fn execute_of(&mut self, portal: &str) {
        let rows = *self.maker.random.of(&[0, 0, 0, 1, 2]);
        self.add(|script| script.execute_some(portal, rows));
        if self.copies || portal == COPY {
            self.data();
        }
    }

    fn parse(&mut self) {
        let name = self.statement();
        self.parse_of(name);
    }

    fn bind(&mut self) {
        let name = self.statement();
        let portal = self.portal(name);
        self.bind_of(portal, name);
    }

    fn describe(&mut self) {
        let name = self.statement();
        self.add(|script| script.describe(name));
    }

    fn describe_portal(&mut self) {
        let portal = self.maker.random.of::<&str>(&PORTALS);
        self.add(|script| script.describe_portal(portal));
    }

    fn execute(&mut self) {
        let portal = match self.maker.random.of::<&str>(&PORTALS) {
            &"" if self.portal == Unnamed::Dangerous => "p",
            portal => portal,
        };
        self.execute_of(portal);
    }

    fn close(&mut self) {
        let name = self.statement();
        self.add(|script| script.close(name));
    }

    fn close_portal(&mut self) {
        let portal = self.maker.random.of::<&str>(&PORTALS);
        self.add(|script| script.close_portal(portal));
    }

    fn flush(&mut self) {
        self.add(Script::flush);
    }

    /// Not where a COPY may be open: a Query behind a Sync that it ignores may be skipped.
    fn sync(&mut self) {
        let copies = self.copies;
        self.add(|script| if copies { script.flush() } else { script.sync() });
    }

    fn query(&mut self) {
        let (text, _) = self.text("");
        let text = if self.maker.random.percent(4) { self.take_back().to_owned() } else { text };
        self.query_of(&text);
    }

    fn several(&mut self) {
        let text = *self.maker.random.of(SEVERAL);
        self.query_of(text);
    }

    /// A batch as an ordinary client sends it.
    fn batch(&mut self) {
        let name = self.statement();
        if self.maker.random.percent(80) {
            if !name.is_empty() && self.maker.random.percent(70) {
                self.add(|script| script.close(name));
            }
            self.parse_of(name);
        }
        if self.maker.random.percent(15) {
            self.add(|script| script.describe(name));
        }
        let portal = self.portal(name);
        self.bind_of(portal, name);
        if self.maker.random.percent(50) {
            self.add(|script| script.describe_portal(portal));
        }
        self.execute_of(portal);
        if self.maker.random.percent(50) {
            self.sync();
        }
    }

    fn copy(&mut self) {
        let (text, times) = *self.maker.random.of(COPIES);
        self.query_of(text);
        (0..times).for_each(|_| self.data());
    }

    fn copy_by_batch(&mut self) {
        (self.copies, self.forgets) = (true, true);
        let (text, _) = COPIES[self.maker.random.below(4)];
        self.add(|script| script.parse("", text).bind("", &[]).execute());
        self.data();
    }

    fn copy_by_name(&mut self) {
        let (text, _) = COPIES[self.maker.random.below(4)];
        if self.maker.random.percent(50) {
            self.add(|script| script.close(COPY));
        }
        if self.maker.random.percent(70) {
            self.add(|script| script.parse(COPY, text));
        }
        if self.maker.random.percent(80) {
            self.add(|script| script.bind_to(COPY, COPY, &[]));
        }
        self.execute_of(COPY);
    }

    fn call(&mut self) {
        const SET_CONFIG: u32 = 2078;
        const INT4_PLUS: u32 = 177;
        const INT4_DIVIDE: u32 = 154;
        let [two, none] = [[0, 0, 0, 2], [0; 4]];
        let kind = self.maker.random.below(7);
        if self.is_out_of_step() {
            if self.copies {
                // No Sync may stand there, either.
                return;
            }
            self.sync();
        }
        self.add(|script| match kind {
            0 => script.call(SET_CONFIG, &[b"work_mem", b"6MB", b"\0"]),
            1 => script.call(SET_CONFIG, &[b"app.x", b"called", b"\0"]),
            2 => script.call(SET_CONFIG, &[b"TimeZone", b"Asia/Tokyo", b"\x01"]),
            3 => script.call(INT4_DIVIDE, &[&two, &none]),
            4 => script.call(INT4_PLUS, &[&two]),
            5 => script.call(15_999, &[]),
            _ => script.call(INT4_PLUS, &[&two, &two]),
        });
    }

    /// A message of a COPY where there is none.
    fn stray(&mut self) {
        let kind = self.maker.random.below(3);
        self.add(|script| match kind {
            0 => script.copy_data(b"stray\n"),
            1 => script.copy_done(),
            _ => script.copy_fail("stray"),
        });
    }

    fn malformed(&mut self) {
        if self.maker.random.percent(50) {
            let (tag, body) = *self.maker.random.of(malformed::BODIES);
            self.add(|script| script.then(&wire::message(tag, |out| out.extend_from_slice(body))));
            return;
        }
        let name = self.statement();
        let whole = match self.maker.random.below(9) {
            0 => Script::new().parse(name, "SELECT 1 AS one"),
            1 => wire::bind_as("", name, &[Some(b"1".to_vec())], &[], &[0]),
            2 => Script::new().describe(name),
            3 => Script::new().execute(),
            4 => Script::new().close(name),
            5 => Script::new().query("SELECT 1 AS one"),
            6 => Script::new().sync(),
            7 => Script::new().flush(),
            _ => Script::new().call(177, &[&[0, 0, 0, 2], &[0, 0, 0, 2]]),
        };
        let (tag, body) = wire::messages(&whole.0)[0];
        let mut body = body.to_vec();
        if self.maker.random.percent(50) {
            body.extend_from_slice(b"!");
        } else {
            body.truncate(self.maker.random.below(body.len().max(1)));
        }
        self.add(|script| script.then(&wire::message(tag, |out| out.extend_from_slice(&body))));
    }

    /// SQL that speaks of prepared statements, or that has a server kept.
    fn names(&mut self) {
        let texts = if self.pins && self.maker.random.percent(50) { PINNING } else { NAMES };
        let text = *self.maker.random.of(texts);
        if self.maker.random.percent(60) {
            return self.apart(text);
        }
        let run = Script::new().parse("", text).bind("", &[]).describe_portal("").execute();
        self.add(|script| script.then(&run));
    }

    /// FETCH by a Query: where a statement of it is described and its cursor is gone, PostgreSQL has crashed.
    fn fetch(&mut self) {
        let text = *self.maker.random.of(FETCHES);
        self.query_of(text);
    }

    /// Messages that come in several pieces, whatever the packets.
    fn large(&mut self) {
        let length = *self.maker.random.of(&[8_000, 20_000, 70_000]);
        let text = "x".repeat(length);
        match self.maker.random.below(4) {
            0 => self.query_of(&format!("SELECT length('{text}')")),
            1 => self.query_of(&format!("SELECT repeat('x', {length})")),
            2 => {
                self.query_of("COPY lines FROM STDIN");
                self.add(|script| script.copy_data(text.as_bytes()).copy_done());
            }
            _ => self.add(|script| script.unnamed("SELECT length($1)", &[Some(&text)])),
        }
    }

    fn discard(&mut self) {
        self.apart("DISCARD ALL");
    }
}

/// The place of a statement's name among the values.
fn place(name: &str) -> usize {
    match name {
        "a" => 1,
        "b" => 2,
        _ => 0,
    }
}
