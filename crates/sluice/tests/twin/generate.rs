//! The clients' events, made up from a seed: a track for each client, still without an order among them.

use std::collections::VecDeque;

use sluice_testkit::{Case, Mode, Random, Script, Version};

use crate::{
    CLIENTS, SERVERS,
    acts::{self, Category},
    number,
    plan::{Event, Meanwhile, Step, What},
    sessions_of_a_client,
    wire::{self, Format, Value},
};

/// The number of acts, of a few steps each, in a client's session, if nobody says.
const ACTS: u64 = 14;

/// The tracks of all clients.
pub(crate) fn tracks(case: Case, seed: u64, categories: &[&'static Category]) -> Vec<VecDeque<Event>> {
    let acts = number("SLUICE_TWIN_ACTS").unwrap_or(ACTS);
    let sessions = sessions_of_a_client(case.mode);
    let track = |client| {
        let mut maker = Maker::new(case.version, seed, client, categories[0]);
        let mut parameters = Vec::new();
        for session in 0..sessions {
            // One that begins like the last one may get its server.
            if session == 0 || maker.random.percent(40) {
                parameters = acts::startup::parameters(&mut maker, categories);
            }
            maker.session(parameters.clone(), categories, acts / sessions);
        }
        if case.mode == Mode::Session {
            // Each is some client's.
            maker.events.retain(|event| !matches!(event.what, What::EndIdle));
        }
        maker.events
    };
    (0..CLIENTS).map(track).collect()
}

/// A prepared statement that should be there.
struct Known {
    name: &'static str,
    /// Whether it speaks of tables.
    has_tables: bool,
    /// Whether the client may have gone to another `search_path` since.
    has_moved: bool,
    values: Vec<Value>,
    format: Format,
}

/// The names of prepared statements.
pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

/// Makes one client's events.
pub(crate) struct Maker {
    pub(crate) random: Random,
    pub(crate) version: Version,
    pub(crate) client: usize,
    category: &'static Category,
    known: Vec<Known>,
    pub(crate) in_block: bool,
    /// Whether its session begins in an encoding of which all bytes of the plan's texts are.
    reads_any_bytes: bool,
    events: VecDeque<Event>,
}

/// A statement with the parameters that it takes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Statement {
    pub(crate) sql: Vec<u8>,
    pub(crate) types: Vec<u32>,
    pub(crate) values: Vec<Value>,
    /// The format of the values.
    pub(crate) binary: bool,
}

impl From<&str> for Statement {
    fn from(sql: &str) -> Self {
        Self { sql: sql.as_bytes().to_vec(), ..Self::default() }
    }
}

impl Maker {
    fn new(version: Version, seed: u64, client: usize, category: &'static Category) -> Self {
        Self {
            random: Random::new(seed.wrapping_mul(CLIENTS as u64 + 1).wrapping_add(client as u64)),
            version,
            client,
            category,
            known: Vec::new(),
            in_block: false,
            reads_any_bytes: true,
            events: VecDeque::new(),
        }
    }

    /// A session from its beginning to its end.
    fn session(&mut self, parameters: Vec<(String, String)>, categories: &[&'static Category], acts: u64) {
        let weights: Vec<_> = categories.iter().map(|category| category.weight).collect();
        self.known.clear();
        self.in_block = false;
        self.reads_any_bytes = !parameters.iter().any(|(name, value)| name == "client_encoding" && value == "SJIS");
        self.event(What::Open(parameters));
        for _ in 0..acts {
            self.category = categories[self.random.weighted(&weights)];
            (self.category.act)(self);
            self.in_or_out_of_a_block(categories);
            if self.category.pins && self.random.percent(50) {
                self.tidy_up();
            }
        }
        self.event(What::Leave);
    }

    pub(crate) fn event(&mut self, what: What) {
        self.events.push_back(Event { client: self.client, what });
    }

    /// A text with the client's own number for `{k}`, and a tenant's letter for `{x}`.
    pub(crate) fn fill(&mut self, text: &str) -> String {
        let tenant = *self.random.of(&["a", "b", "c", "d"]);
        text.replace("{k}", &self.client.to_string()).replace("{x}", tenant)
    }

    /// One of several texts, filled.
    pub(crate) fn one_of(&mut self, texts: &[&str]) -> String {
        let text = *self.random.of(texts);
        self.fill(text)
    }

    /// A step.
    pub(crate) fn say(&mut self, script: Script) {
        let spends = script.0.windows(4).any(|word| word == b"seed");
        if [&b"search_path"[..], b"SCHEMA", b"RESET", b"DEFAULT"].iter().any(|word| contains(&script.0, word)) {
            self.known.iter_mut().for_each(|known| known.has_moved = true);
        }
        let (category, pins) = (self.category.name, self.category.pins || spends);
        let (bytes, cuts, meanwhile) = (script.0, Vec::new(), Meanwhile::Nothing);
        let step = Step { bytes, cuts, category, pins, spends, unpins: false, meanwhile };
        let may_be_unread = !self.reads_any_bytes && step.has_query_beyond_ascii();
        self.event(What::Say(step));
        if may_be_unread {
            // A Query that can't be read leaves the unnamed statement there, another one does not (decision 0014, "What
            // remains").
            self.say(Script::new().query("SELECT 1"));
        }
    }

    /// A step of whatever messages, in packets that end at these places.
    pub(crate) fn burst(&mut self, script: Script, cuts: Vec<usize>, pins: bool, meanwhile: Meanwhile) {
        let (bytes, category) = (script.0, self.category.name);
        self.event(What::Say(Step { bytes, cuts, category, pins, spends: false, unpins: false, meanwhile }));
    }

    /// Has something happen while what it said last is carried out.
    pub(crate) fn meanwhile(&mut self, meanwhile: Meanwhile) {
        let runs = |event: &&mut Event| matches!(&event.what, What::Say(step) if step.runs());
        if let Some(Event { what: What::Say(step), .. }) = self.events.iter_mut().rev().find(runs) {
            step.meanwhile = meanwhile;
        }
    }

    /// A simple query, of one statement or several.
    pub(crate) fn simple(&mut self, sql: &str) {
        self.say(Script::new().query(sql));
    }

    /// Has all that the session holds go away.
    pub(crate) fn tidy_up(&mut self) {
        if self.in_block {
            self.simple("ROLLBACK");
            self.in_block = false;
        }
        self.known.clear();
        self.say(Script::new().query("DISCARD ALL"));
        if let Some(Event { what: What::Say(step), .. }) = self.events.back_mut() {
            (step.pins, step.unpins) = (false, true);
        }
    }

    /// Now and then a transaction block begins or ends.
    fn in_or_out_of_a_block(&mut self, categories: &[&'static Category]) {
        if !categories.iter().any(|category| category.name == "blocks") {
            return;
        }
        if self.in_block && self.random.percent(40) {
            let sql = self.one_of(&["COMMIT", "COMMIT", "END", "ROLLBACK", "ABORT WORK"]);
            self.any(&sql.as_str().into());
            self.in_block = false;
        } else if !self.in_block && self.random.percent(12) {
            let sql = self.one_of(acts::blocks::BEGIN);
            self.any(&sql.as_str().into());
            self.in_block = true;
        }
    }

    /// A statement without parameters in any of the ways there are.
    pub(crate) fn sql(&mut self, text: &str) {
        let text = self.fill(text);
        self.any(&text.as_str().into());
    }

    /// A statement without parameters that is parsed and run at once, and then forgotten.
    pub(crate) fn at_once(&mut self, text: &str) {
        let text = self.fill(text);
        if self.random.percent(50) { self.simple(&text) } else { self.unnamed(&text.as_str().into()) }
    }

    /// The same, but not by one of the names that come again.
    pub(crate) fn nameless(&mut self, text: &str) {
        let statement = Statement::from(self.fill(text).as_str());
        match self.random.below(10) {
            0..4 => self.say(wire::query(&statement.sql)),
            4..7 => self.unnamed(&statement),
            7 => self.flushed(&statement),
            8 => self.twice(&statement),
            _ => self.by_portal(&statement),
        }
    }

    /// A statement in any of the ways that its parameters allow.
    pub(crate) fn any(&mut self, statement: &Statement) {
        let kind = self.random.below(100);
        match kind {
            0..35 if statement.values.is_empty() => self.say(wire::query(&statement.sql)),
            0..62 => self.unnamed(statement),
            62..76 => self.named(statement),
            76..84 => self.prepared_first(statement),
            84..90 => self.flushed(statement),
            90..95 => self.twice(statement),
            _ => self.by_portal(statement),
        }
    }

    /// Parse with the types or, as often as not, without.
    fn parse(&mut self, name: &str, statement: &Statement) -> Script {
        // A binary value must be of the type that it was written for.
        let types: &[u32] = if statement.binary || self.random.percent(50) { &statement.types } else { &[] };
        wire::parse(name, &statement.sql, types)
    }

    fn bind(&mut self, portal: &str, name: &str, statement: &Statement) -> Script {
        let results = self.results();
        wire::bind(portal, name, &statement.values, format_of(statement), results)
    }

    pub(crate) fn results(&mut self) -> Format {
        if self.random.percent(20) { Format::Binary } else { Format::Text }
    }

    fn unnamed(&mut self, statement: &Statement) {
        let mut script = self.parse("", statement);
        if self.random.percent(15) {
            script = script.describe("");
        }
        script = script.then(&self.bind("", "", statement));
        if self.random.percent(60) {
            script = script.describe_portal("");
        }
        self.say(script.execute().sync());
    }

    /// A name, closed before where it may be in use, which it is not always.
    fn name(&mut self, script: Script) -> (&'static str, Script) {
        let name = *self.random.of(&NAMES);
        let in_use = self.known.iter().any(|known| known.name == name);
        let closes = in_use && !self.random.percent(10);
        (name, if closes { script.close(name) } else { script })
    }

    fn note(&mut self, name: &'static str, statement: &Statement) {
        self.known.retain(|known| known.name != name);
        let has_tables = [&b"FROM"[..], b"INTO", b"UPDATE"].iter().any(|word| contains(&statement.sql, word));
        self.known.push(Known {
            name,
            has_tables,
            has_moved: false,
            values: statement.values.clone(),
            format: format_of(statement),
        });
    }

    /// Closes a statement that speaks of tables.
    pub(crate) fn close_if_of_tables(&mut self, name: &'static str) {
        self.close_if(name, |known| known.has_tables);
    }

    /// Closes one whose tables may be others by now, or none.
    pub(crate) fn close_if_moved(&mut self, name: &'static str) {
        self.close_if(name, |known| known.has_tables && known.has_moved);
    }

    fn close_if(&mut self, name: &'static str, is_to_go: impl Fn(&Known) -> bool) {
        if self.known.iter().any(|known| known.name == name && is_to_go(known)) {
            self.known.retain(|known| known.name != name);
            self.say(Script::new().close(name).sync());
        }
    }

    /// Closes all statements with a name.
    pub(crate) fn close_named(&mut self) {
        self.known.clear();
        self.say(NAMES.iter().fold(Script::new(), |script, name| script.close(name)).sync());
    }

    fn named(&mut self, statement: &Statement) {
        let (name, script) = self.name(Script::new());
        let mut script = script.then(&self.parse(name, statement));
        if self.random.percent(30) {
            script = script.describe(name);
        }
        script = script.then(&self.bind("", name, statement));
        if self.random.percent(50) {
            script = script.describe_portal("");
        }
        self.note(name, statement);
        self.say(script.execute().sync());
    }

    /// Prepared and described in one step, run in the next.
    fn prepared_first(&mut self, statement: &Statement) {
        let (name, script) = self.name(Script::new());
        let script = script.then(&self.parse(name, statement)).describe(name).sync();
        self.note(name, statement);
        self.say(script);
        self.again(name);
    }

    /// Runs a statement of that name once more.
    pub(crate) fn again(&mut self, name: &'static str) {
        let results = self.results();
        let known = self.known.iter().find(|known| known.name == name);
        let (values, format) = known.map_or((&[][..], Format::Text), |known| (&known.values, known.format));
        let script = wire::bind("", name, values, format, results);
        let script = if self.random.percent(50) { script.describe_portal("") } else { script };
        self.say(script.execute().sync());
    }

    /// With a Flush before the Sync, and the answers read in between.
    fn flushed(&mut self, statement: &Statement) {
        let parse = self.parse("", statement);
        let parse = if self.random.percent(50) { parse.describe("") } else { parse };
        self.say(parse.flush());
        let bind = self.bind("", "", statement).describe_portal("").execute();
        if self.random.percent(50) {
            self.say(bind.flush());
            self.say(Script::new().sync());
        } else {
            self.say(bind.sync());
        }
    }

    /// Bound twice in one batch.
    fn twice(&mut self, statement: &Statement) {
        let (parse, first, second) =
            (self.parse("", statement), self.bind("", "", statement), self.bind("", "", statement));
        self.say(parse.then(&first).execute().then(&second).describe_portal("").execute().sync());
    }

    /// By a portal with a name, a few rows at a time.
    fn by_portal(&mut self, statement: &Statement) {
        let rows = 1 + self.random.below(3) as u32;
        let (parse, bind) = (self.parse("", statement), self.bind("p", "", statement));
        let mut script = parse.then(&bind).describe_portal("p").execute_some("p", rows);
        if self.random.percent(60) {
            script = script.execute_some("p", rows).execute_some("p", 0);
        }
        if self.random.percent(40) {
            script = script.close_portal("p");
        }
        self.say(script.sync());
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

fn format_of(statement: &Statement) -> Format {
    if statement.binary { Format::Binary } else { Format::Text }
}

const _: () = assert!(SERVERS < CLIENTS, "clients share");
