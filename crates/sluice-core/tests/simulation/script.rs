//! The scripts of clients: one step at a time, each a few messages sent together and then answered.

use sluice_wire::message::{self, framed, frontend, put_cstr};

use crate::{
    agenda::SimIo,
    client::{Client, Message},
    plan::PARSE_BYTES_MAX,
    session::Block,
};

const NAMES: [&str; 4] = ["p0", "p1", "P 2", "p3"];

/// Settings that clients make.
const SETTINGS: [&str; 7] =
    ["application_name", "timezone", "datestyle", "geqo", "work_mem", "statement_timeout", "app.tenant"];

/// Texts that clients share: whoever prepares one may be served from another's.
const SHARED: [&str; 10] = [
    "select echo $1 S0",
    "select echo $1 S1",
    "select f(echo $1) S2",
    "select rows 3 20 $1 S3",
    "show timezone",
    "select echo $1 S4",
    "select rows 7 300 $1 S5",
    "select echo $1 S6",
    "select temporary",
    "select literal 'S7'",
];

/// The messages of a step.
#[derive(Default)]
struct Step {
    messages: Vec<Message>,
    /// Names that the step gives or takes.
    touched: Vec<String>,
    /// Whether something stands in the open batch that the pool can't trust not to set anything.
    may_set: bool,
    /// Whether the step takes all names. What gives one behind that, unanswered, the pool takes for older than it.
    takes_all: bool,
}

impl Step {
    fn push(&mut self, tag: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let mut body = Vec::new();
        write(&mut body);
        self.messages.push((tag, body));
    }

    /// A message that `write` gives with its header.
    fn put(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut whole = Vec::new();
        write(&mut whole);
        self.messages.push((whole[0], whole.split_off(5)));
    }

    fn query(&mut self, text: &str) {
        self.put(|out| message::put_query(out, text));
    }

    fn parse(&mut self, name: &str, text: &str) {
        self.may_set |= may_set(text);
        self.put(|out| message::put_parse(out, name.as_bytes(), text, &[]));
    }

    fn bind(&mut self, name: &str, parameter: Option<&str>) {
        let values = parameter.map(|text| Some(text.as_bytes()));
        self.put(|out| message::put_bind(out, b"", name.as_bytes(), values.as_slice()));
    }

    fn execute(&mut self, limit: u32) {
        self.put(|out| message::put_execute(out, b"", limit));
    }

    fn named(&mut self, tag: u8, kind: u8, name: &str) {
        self.push(tag, |out| {
            out.push(kind);
            put_cstr(out, name.as_bytes());
        });
    }

    fn empty(&mut self, tag: u8) {
        self.may_set &= tag != frontend::SYNC;
        self.push(tag, |_| {});
    }
}

/// A BEGIN; where blocks that only read are led elsewhere, most are of those.
fn begin(io: &mut SimIo) -> &'static str {
    if io.plan.leads && io.rng.percent(70) { "begin read only" } else { "begin" }
}

/// Whether a text is one that the pool can't trust not to set anything.
fn may_set(text: &str) -> bool {
    text.starts_with("select f(")
}

impl Client {
    /// A mark that no other text has.
    fn mark(&mut self) -> String {
        self.sequence += 1;
        format!("@{}.{}@", self.id, self.sequence)
    }

    /// What breaks the protocol.
    pub(crate) fn nonsense(&self, io: &mut SimIo) -> Vec<u8> {
        let mut out = Vec::new();
        match io.rng.below(4) {
            0 => out.extend_from_slice(&[b'Q', 0, 0, 0, 3]),
            1 => out.extend_from_slice(&[b'Q', 0xff, 0xff, 0xff, 0xff]),
            2 => framed(&mut out, b'!', |out| out.extend_from_slice(b"what?")),
            _ => out.extend_from_slice(&[b'P', 0, 0x7f, 0, 0, b'a', 0]),
        }
        if self.reference.copy.is_some() || self.reference.skipping {
            // There it would be passed over, or is the server's to judge.
            return vec![b'd', 0, 0, 0, 1];
        }
        out
    }

    pub(crate) fn next_step(&mut self, io: &mut SimIo) -> Vec<Message> {
        let mut step = Step::default();
        if let Some(copy) = self.reference.copy.clone() {
            self.copy_data(&mut step, copy.extended, io);
        } else if self.reference.batch {
            self.continue_batch(&mut step, io);
        } else if self.steps_left == 0 && self.reference.block != Block::None {
            if io.rng.percent(50) {
                step.query("rollback");
            } else {
                step.query("commit");
            }
        } else if self.reference.block == Block::Failed && io.rng.percent(60)
            || self.reference.block == Block::Open && io.rng.percent(30)
        {
            self.end_block(&mut step, io);
        } else if io.plan.leads && self.reference.block == Block::None && io.rng.percent(40) {
            step.query("begin read only");
        } else if io.rng.percent(io.plan.long_percent) {
            let mark = self.mark();
            step.query(&format!("select sleep {} {mark}", io.rng.range(1_000, 20_000)));
        } else if io.rng.percent(io.plan.copy_percent) {
            self.copy(&mut step, io);
        } else if io.rng.percent(io.plan.big_percent) {
            self.big(&mut step, io);
        } else if io.rng.percent(io.plan.settings_percent) {
            self.settings(&mut step, io);
        } else if io.rng.percent(io.plan.sequences_percent) {
            self.sequences(&mut step, io);
        } else if io.rng.percent(io.plan.extended_percent) {
            self.extended(&mut step, io);
        } else {
            self.simple(&mut step, io);
        }
        step.messages
    }

    fn end_block(&mut self, step: &mut Step, io: &mut SimIo) {
        let text = io.rng.pick(&["commit", "rollback"]);
        if io.rng.percent(io.plan.extended_percent) {
            let name = io.rng.pick(&["", "end"]);
            if name.is_empty() || !self.reference.has(name) {
                step.parse(name, text);
            }
            step.bind(name, None);
            step.execute(0);
            step.empty(frontend::SYNC);
        } else {
            step.query(text);
        }
    }

    fn simple(&mut self, step: &mut Step, io: &mut SimIo) {
        let mark = self.mark();
        match io.rng.below(14) {
            0..3 => step.query(&format!("select echo {mark}")),
            3 => step.query(&format!("select f(echo {mark})")),
            4 => step.query(&format!("select echo {mark}; select rows 2 9 {mark};select echo three {mark}")),
            5 if self.reference.block == Block::None => step.query(begin(io)),
            5 | 6 if self.reference.block == Block::None => step.query(&format!("begin; select echo {mark}")),
            7 => step.query(&format!("select error {mark}")),
            8 => step.query(&format!("select echo {mark}; select error {mark}; select echo never")),
            9 => step.query(&format!("select sleep {} {mark}", io.rng.below(300))),
            10 => step.query(" ; "),
            11 => {
                let name = io.rng.pick(&NAMES[..2]);
                let text = if self.reference.has(name) || io.rng.percent(20) { name } else { "all" };
                step.query(&format!("deallocate {text}"));
            }
            12 if self.reference.block == Block::None || io.rng.percent(20) => step.query("discard all"),
            // Of `loread`.
            13 => step.push(frontend::FUNCTION_CALL, |out| {
                out.extend_from_slice(&954_u32.to_be_bytes());
                out.extend_from_slice(format!("call {mark}").as_bytes());
            }),
            _ => {
                // Several at once, without waiting.
                for _ in 0..io.rng.range(2, 5) {
                    let mark = self.mark();
                    let name = io.rng.pick(&NAMES[..2]);
                    match io.rng.below(8) {
                        0 if self.reference.has(name) => step.query(&format!("deallocate {name}")),
                        1 => step.query("deallocate all"),
                        _ => step.query(&format!("select echo {mark}")),
                    }
                    if self.careful {
                        break;
                    }
                }
            }
        }
    }

    /// A statement about the session's state: settings, and a temporary table.
    fn settings(&mut self, step: &mut Step, io: &mut SimIo) {
        let mark = self.mark();
        let value = format!("v{}x{}", self.id, self.sequence);
        let name = io.rng.pick(&SETTINGS);
        let is_quiet = self.reference.block == Block::None;
        if self.reference.cursor.is_some() && io.rng.percent(30) {
            step.named(frontend::CLOSE, b'P', "c");
            step.empty(frontend::SYNC);
            return;
        }
        let text = match io.rng.below(17) {
            0..2 => format!("set {name} = '{value}'"),
            2 => format!("select pg_catalog.set_config('{name}', '{value}', false)"),
            3 => format!("select f(set {name} {value})"),
            4..7 => format!("show {name}"),
            // What RESET goes back to is put in place when the transaction has ended.
            7 if is_quiet && io.plan.is_transaction_mode() => format!("reset {name}"),
            8 if !is_quiet => format!("set local {name} = '{value}'"),
            8 => format!("begin; set local {name} = '{value}'; show {name}"),
            9 => format!("create temp table {mark}"),
            10 if io.rng.percent(30) => format!("select f(temp {mark})"),
            10 | 11 => "select temporary".to_owned(),
            12 if io.rng.percent(30) => "discard all".to_owned(),
            13 | 14 => format!("declare c cursor with hold {mark}"),
            15 => "select held".to_owned(),
            _ => format!("begin; set {name} = '{value}'; show {name}"),
        };
        if io.rng.percent(20) {
            // A function that is told by a parameter what to do.
            step.parse("", "select f(set $1)");
            step.bind("", Some(&format!("{name} {value}")));
            step.execute(0);
            step.empty(frontend::SYNC);
            return;
        }
        self.say(step, &text, io);
    }

    /// A statement about the sequence.
    fn sequences(&mut self, step: &mut Step, io: &mut SimIo) {
        let mark = self.mark();
        let text = match io.rng.below(12) {
            0..4 => format!("select nextval(s) {mark}"),
            4..6 => format!("select f(advance {mark})"),
            6..9 => format!("select lastval() {mark}"),
            9 => format!("select f(last {mark})"),
            10 => format!("select nextval(s) {mark}; select lastval() {mark}"),
            _ if self.reference.block == Block::None => format!("begin; select nextval(s) {mark}"),
            _ => "discard sequences".to_owned(),
        };
        self.say(step, &text, io);
    }

    /// Sends a text by either protocol.
    fn say(&self, step: &mut Step, text: &str, io: &mut SimIo) {
        if io.rng.percent(30) && !text.contains(';') {
            step.parse("", text);
            step.bind("", None);
            step.execute(0);
            step.empty(frontend::SYNC);
        } else {
            step.query(text);
        }
    }

    fn big(&mut self, step: &mut Step, io: &mut SimIo) {
        let mark = self.mark();
        match io.rng.below(4) {
            0 => step.query(&format!("select rows {} {} {mark}", io.rng.range(1, 300), io.rng.range(10, 3000))),
            1 => step.query(&format!("copy out {} {} {mark}", io.rng.range(1, 300), io.rng.range(10, 3000))),
            2 => {
                let long = io.rng.below(200_000) as usize;
                self.is_unread |= long + 100 > PARSE_BYTES_MAX as usize;
                step.query(&format!("select echo {mark}{}", "x".repeat(long)));
            }
            _ => {
                let long = "y".repeat(io.rng.below(u64::from(PARSE_BYTES_MAX) - 100) as usize);
                step.parse("", &format!("select echo $1 {mark} {long}"));
                step.named(frontend::DESCRIBE, b'S', "");
                let mark = format!("{mark}{}", "z".repeat(io.rng.below(200_000) as usize));
                step.bind("", Some(&mark));
                step.execute(0);
                step.empty(frontend::SYNC);
            }
        }
    }

    fn copy(&mut self, step: &mut Step, io: &mut SimIo) {
        let mark = self.mark();
        if io.rng.percent(25) {
            let text = format!("copy out {} {} {mark}", io.rng.below(40), io.rng.range(10, 200));
            if io.rng.percent(50) {
                step.query(&text);
            } else {
                step.parse("", &text);
                step.bind("", None);
                step.execute(0);
                step.empty(frontend::SYNC);
            }
            return;
        }
        let text = format!("copy {} {mark}", io.rng.pick(&["in", "in", "in", "fails"]));
        let extended = io.rng.percent(50);
        if extended {
            step.parse("", &text);
            step.bind("", None);
            step.execute(0);
        } else {
            step.query(&text);
        }
        // The data may follow at once, or when the server asks for it.
        match io.rng.below(4) {
            0 => self.copy_data(step, extended, io),
            // Behind a Sync, which is ignored unless the COPY fails before that is read.
            3 => {
                step.empty(frontend::SYNC);
                self.copy_data(step, extended, io);
            }
            // libpq's way: the Sync is sent at once, and ignored.
            1 if extended => {
                step.empty(frontend::SYNC);
            }
            _ if extended => step.empty(frontend::FLUSH),
            _ => {}
        }
    }

    fn copy_data(&mut self, step: &mut Step, extended: bool, io: &mut SimIo) {
        let mark = self.mark();
        let large = io.rng.percent(io.plan.big_percent);
        let end = io.rng.below(10);
        for row in 0..io.rng.below(12) {
            let filler = if large { io.rng.below(60_000) } else { io.rng.below(200) };
            let bad = if end == 0 && row == 3 { "bad " } else { "" };
            let text = format!("{bad}{mark} {row} {}", "c".repeat(filler as usize));
            step.push(frontend::COPY_DATA, |out| out.extend_from_slice(text.as_bytes()));
            // A server that reads a COPY ignores it; one that refused to has an open batch.
            if io.rng.percent(5) {
                step.empty(frontend::FLUSH);
            }
        }
        match end {
            1 => step.push(frontend::COPY_FAIL, |out| put_cstr(out, mark.as_bytes())),
            _ => step.empty(frontend::COPY_DONE),
        }
        if extended {
            step.empty(frontend::SYNC);
        }
    }

    fn continue_batch(&mut self, step: &mut Step, io: &mut SimIo) {
        step.may_set = true;
        for _ in 0..io.rng.below(3) {
            self.statement(step, true, io);
        }
        step.empty(if io.rng.percent(20) { frontend::FLUSH } else { frontend::SYNC });
        if step.messages.len() == 1 && step.messages[0].0 == frontend::FLUSH {
            step.empty(frontend::SYNC);
        }
    }

    fn extended(&mut self, step: &mut Step, io: &mut SimIo) {
        let batches = if self.careful || io.rng.percent(60) { 1 } else { io.rng.range(2, 5) };
        for _ in 0..batches {
            for _ in 0..io.rng.range(1, 3) {
                self.statement(step, batches == 1, io);
            }
            if batches > 1 && io.rng.percent(20) {
                step.empty(frontend::FLUSH);
            }
            step.empty(frontend::SYNC);
        }
        if batches == 1 && io.rng.percent(15) {
            // Wait for the answers with the batch still open.
            step.messages.pop();
            step.empty(frontend::FLUSH);
        }
    }

    /// One statement; where batches follow each other unanswered, none whose failure would change what the next one
    /// means.
    fn statement(&mut self, step: &mut Step, alone: bool, io: &mut SimIo) {
        if step.takes_all {
            return;
        }
        let mark = self.mark();
        let name = io.rng.pick(&NAMES);
        // A change of the catalogs has literals read anew. Behind what may have changed the settings, nobody but that
        // server knows what they mean.
        let knows_literals = self.reference.block == Block::None && step.messages.is_empty();
        let literals = usize::from(io.plan.schema_changes > 0 || !knows_literals);
        let shared = io.rng.pick(&SHARED[..SHARED.len() - literals]);
        let untouched = alone || !step.touched.iter().any(|t| t == name);
        match io.rng.below(20) {
            0..4 => {
                step.parse("", shared);
                if io.rng.percent(40) {
                    step.named(frontend::DESCRIBE, b'S', "");
                }
                self.use_statement(step, "", shared, &mark, io);
            }
            // A limit: behind what may have set something in the same batch, a server that does not have the statement yet
            // reads its literals by that.
            4..9 if self.reference.has(name)
                && untouched
                && !(step.may_set && self.reference.prepared(name).contains('\'')) =>
            {
                let text = self.reference.prepared(name).to_owned();
                self.use_statement(step, name, &text, &mark, io);
            }
            4..12 if !self.reference.has(name) && !step.touched.iter().any(|t| t == name) => {
                step.touched.push(name.to_owned());
                step.parse(name, shared);
                if io.rng.percent(40) {
                    step.named(frontend::DESCRIBE, b'S', name);
                }
                self.use_statement(step, name, shared, &mark, io);
            }
            12 if self.reference.has(name) && alone => {
                step.touched.push(name.to_owned());
                step.named(frontend::CLOSE, b'S', name);
                if io.rng.percent(50) {
                    step.parse(name, shared);
                    self.use_statement(step, name, shared, &mark, io);
                }
            }
            13 if alone && io.rng.percent(50) => step.parse(io.rng.pick(&["", "bad"]), "syntax error"),
            14 => self.use_statement(step, "missing", "", &mark, io),
            15 => {
                step.parse("", &format!("select error {mark}"));
                self.use_statement(step, "", "", &mark, io);
            }
            16 if alone => {
                let which = io.rng.pick(&["p0", "all"]);
                step.takes_all = which == "all";
                step.parse("", &format!("deallocate {which}"));
                self.use_statement(step, "", "", &mark, io);
            }
            17 if self.reference.block == Block::None && alone => {
                step.parse("", begin(io));
                self.use_statement(step, "", "", &mark, io);
            }
            18 if alone && self.reference.has(name) => {
                // A duplicate.
                step.parse(name, shared);
            }
            _ => {
                step.parse("", &format!("select echo $1 {mark}"));
                self.use_statement(step, "", "$1", &mark, io);
            }
        }
    }

    fn use_statement(&mut self, step: &mut Step, name: &str, text: &str, mark: &str, io: &mut SimIo) {
        step.may_set |= may_set(self.reference.prepared(name));
        step.bind(name, text.contains("$1").then_some(mark));
        if io.rng.percent(30) {
            step.named(frontend::DESCRIBE, b'P', "");
        }
        if text.contains("$1") && io.rng.percent(15) {
            step.execute(2);
        }
        step.execute(0);
        if io.rng.percent(5) {
            step.named(frontend::CLOSE, b'P', "");
        }
    }
}
