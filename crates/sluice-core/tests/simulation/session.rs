//! One session of PostgreSQL, as far as a pool could disturb it: messages in, messages out, no time and no I/O.
//!
//! It serves twice: behind the pool as what a server does, and beside each client as what it must see. The client's
//! copy is a session of its own, so whatever sharing changes shows as a difference between the two.

mod answers;
mod extended;
mod sequences;
mod statements;

use std::collections::{BTreeMap, VecDeque};

use sluice_core::holding::{CATALOG_PARAMETER, SESSION_PARAMETER};
use sluice_wire::message::{self, TransactionStatus, backend, framed, frontend};

use crate::{
    client::Message,
    language::{hex, holding},
};

use answers::{put_copy_out, put_description, put_row};

pub(crate) use answers::{frames, put_error, same};
pub(crate) use sequences::Sequence;

/// Settings that are reported: as they are set, as they are reported, and their default.
pub(crate) const REPORTED: [(&str, &str, &str); 3] =
    [("application_name", "application_name", ""), ("datestyle", "DateStyle", "ISO"), ("timezone", "TimeZone", "UTC")];

/// Settings that are not. The last one is a custom one: it is there once it has been made, and nothing lists it.
pub(crate) const QUIET: [(&str, &str); 4] =
    [("geqo", "on"), ("work_mem", "4MB"), ("statement_timeout", "0"), ("app.tenant", "")];

/// The setting by which literals are read.
const LITERALS_BY: &str = "datestyle";

type Settings = BTreeMap<String, String>;

/// An error: SQLSTATE and message.
pub(crate) type Error = (&'static str, String);

/// The planned end of a message.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ends {
    /// The schema's version: statements of another one are stale. The clients' copies know only one.
    pub(crate) schema: u32,
    /// The number of times that the configuration has been read.
    pub(crate) conf: u32,
    /// With this error, whatever it is.
    pub(crate) fail: Option<&'static str>,
    /// Whether that comes behind all of its answers but the last one.
    pub(crate) is_late: bool,
    /// Whether it fails only when a statement's parameters have been described: PostgreSQL looks for a cancel no earlier,
    /// but the pool may have the statement prepared again before, which may be what is cancelled.
    pub(crate) described: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Block {
    None,
    Open,
    Failed,
}

/// The state that a transaction that fails goes back to.
#[derive(Clone, Debug)]
struct Undo {
    set: Settings,
    temp: Option<String>,
    cursor: Option<String>,
}

#[derive(Clone, Debug)]
struct Prepared {
    sql: String,
    schema: u32,
    /// The value of the setting that its literals are read by.
    literal: String,
    parameters: u16,
    /// The transaction in which it was parsed.
    parsed_in: u64,
}

#[derive(Clone, Debug)]
struct Portal {
    sql: String,
    literal: String,
    parameter: Option<String>,
    /// The rows and the tag that are left after an Execute with a limit.
    left: Option<(VecDeque<Vec<u8>>, String)>,
}

#[derive(Clone, Debug)]
pub(crate) struct CopyIn {
    pub(crate) extended: bool,
    rows: u64,
}

/// A session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The settings that RESET goes back to.
    start: Settings,
    /// The settings made since.
    set: Settings,
    /// The settings made until the transaction ends.
    local: Settings,
    reported: Settings,
    pub(crate) temp: Option<String>,
    /// The text that has made the cursor which is held.
    pub(crate) cursor: Option<String>,
    sequence: Sequence,
    pub(crate) block: Block,
    /// Whether that only reads.
    only_reads: bool,
    /// The state as the transaction began.
    undo: Option<Undo>,
    /// The transactions that it has begun.
    transactions: u64,
    /// The settings made, for the session and for the transaction, at the savepoint.
    savepoint: Option<(Settings, Settings)>,
    /// Whether it says by itself what it holds; what it has said last.
    reports: bool,
    told: (String, u32),
    schema: u32,
    conf: u32,
    names: BTreeMap<Vec<u8>, Prepared>,
    portals: BTreeMap<Vec<u8>, Portal>,
    pub(crate) skipping: bool,
    pub(crate) copy: Option<CopyIn>,
    /// Whether messages of the extended protocol came since the last Sync.
    pub(crate) batch: bool,
    /// Whether anything has run since the last ReadyForQuery, and a block that is open began behind it: nobody can know
    /// then, up to the next one, that all of it is rolled back.
    has_run: bool,
    is_begun_late: bool,
}

/// The outcome of a statement, beyond what it changes.
#[derive(Default)]
struct Outcome {
    rows: Option<VecDeque<Vec<u8>>>,
    tag: String,
    copy_out: bool,
    copy_in: bool,
    /// Whether that COPY fails as soon as it has begun.
    copy_fails: bool,
    notice: bool,
}

impl Session {
    pub(crate) fn new(startup: &[(String, String)]) -> Self {
        let mut start: Settings = QUIET.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        start.extend(REPORTED.iter().map(|(n, _, v)| (n.to_string(), v.to_string())));
        start.extend(startup.iter().map(|(name, value)| (name.clone(), canonical(name, value))));
        Self {
            set: Settings::new(),
            local: Settings::new(),
            reported: start.clone(),
            start,
            temp: None,
            cursor: None,
            sequence: Sequence::default(),
            block: Block::None,
            only_reads: false,
            undo: None,
            transactions: 0,
            savepoint: None,
            reports: false,
            told: (String::new(), 0),
            schema: 0,
            conf: 0,
            names: BTreeMap::new(),
            portals: BTreeMap::new(),
            skipping: false,
            copy: None,
            batch: false,
            has_run: false,
            is_begun_late: false,
        }
    }

    /// A server's, which says by itself what it holds.
    pub(crate) fn reporting(schema: u32, startup: &[(String, String)]) -> Self {
        Self { reports: true, told: (String::new(), schema), schema, ..Self::new(startup) }
    }

    /// The value of a setting now.
    pub(crate) fn value(&self, name: &str) -> &str {
        &[&self.local, &self.set, &self.start].into_iter().find_map(|settings| settings.get(name)).expect("it is known")
            [..]
    }

    /// Whether its block has changed what it holds.
    pub(crate) fn has_changed(&self) -> bool {
        let makes_custom = self.local.keys().any(|name| name.contains('.'));
        let differs = |undo: &Undo| undo.set != self.set || undo.temp != self.temp || undo.cursor != self.cursor;
        makes_custom || self.undo.as_ref().is_some_and(differs)
    }

    /// The settings made in it, as the pool is to know them between transactions.
    pub(crate) fn made(&self) -> impl Iterator<Item = (&str, &str)> {
        let made = self.set.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        made.filter(|(name, value)| !name.contains('.') || !value.is_empty())
    }

    /// The report of its state: by itself, or asked for settings of which `named` are the custom ones.
    fn holding(&self, named: Option<&str>) -> String {
        let pins =
            [("temp", self.temp.is_some()), ("cursor", self.cursor.is_some()), ("sequence", self.sequence.is_used())];
        let pins: Vec<_> = pins.iter().filter(|(_, has)| *has).map(|(pin, _)| *pin).collect();
        holding(&pins, self.held(named))
    }

    fn held(&self, named: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
        let is_listed =
            |name: &str| !name.contains('.') || named.is_none_or(|text| text.contains(&format!("'{name}'")));
        let made = self.set.keys().chain(self.local.keys()).map(String::as_str).filter(|name| is_listed(name));
        let made: BTreeMap<&str, &str> = made.map(|name| (name, self.value(name))).collect();
        let is_there = |(name, value): &(&str, &str)| !name.contains('.') || !value.is_empty();
        made.into_iter().filter(is_there)
    }

    /// The answer to a probe: in full, or with the values of the settings that are named.
    fn probed(&self, sql: &str) -> String {
        let (schema, conf) = (u8::from(self.temp.is_some()), self.conf);
        let pins: &[&str] = if self.cursor.is_some() { &["cursor"] } else { &[] };
        let quiet = QUIET.iter().map(|(name, _)| *name).filter(|name| !name.contains('.'));
        let listed: Vec<&str> = REPORTED.iter().map(|(name, ..)| *name).chain(quiet).collect();
        if let Some((_, names)) = sql.split_once("array_cat('{") {
            let names = names.split('}').next().unwrap_or_default().split(',');
            let value = |name| if listed.contains(&name) { self.value(name) } else { "\x02" };
            let values: Vec<&str> = names.map(value).collect();
            let customs = self.made().filter(|(name, _)| name.contains('.') && sql.contains(&format!("'{name}'")));
            return format!(
                "{} schema={schema} conf={conf} values={}",
                holding(pins, customs),
                hex(&values.join("\x01"))
            );
        }
        let is_set = |name: &str| self.set.contains_key(name) || self.local.contains_key(name);
        let own = |name: &&str| match is_set(name) {
            true => (*name).to_owned(),
            false => format!("{name}\x02{}", self.value(name)),
        };
        let own: Vec<String> = listed.iter().map(own).collect();
        let held = self.held(Some(sql));
        format!("{} schema={schema} conf={conf} defaults={}", holding(pins, held), hex(&own.join("\x01")))
    }

    /// The ParameterStatus messages of the login.
    pub(crate) fn welcome(&self) -> Vec<u8> {
        let mut out = Vec::new();
        message::put_parameter_status(&mut out, "server_version", "15.0");
        for (name, reported_as, _) in REPORTED {
            message::put_parameter_status(&mut out, reported_as, self.value(name));
        }
        if self.reports {
            message::put_parameter_status(&mut out, SESSION_PARAMETER, &self.told.0);
            message::put_parameter_status(&mut out, CATALOG_PARAMETER, &self.told.1.to_string());
        }
        out
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains_key(name.as_bytes())
    }

    /// The text of a statement, if there is one of that name.
    pub(crate) fn prepared(&self, name: &str) -> &str {
        self.names.get(name.as_bytes()).map_or("", |prepared| &prepared.sql)
    }

    pub(crate) fn statement_count(&self) -> usize {
        self.names.len()
    }

    /// Whether nothing is open or half done.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.block == Block::None && self.copy.is_none() && !self.batch && !self.skipping
    }

    /// Whether a BEGIN would open a block now.
    pub(crate) fn is_at_gate(&self) -> bool {
        self.block == Block::None && self.copy.is_none() && !self.skipping
    }

    /// Whether a Query of the pool's own may come: in a transaction, but not in the midst of what a client sends.
    pub(crate) fn is_between_messages(&self) -> bool {
        self.copy.is_none() && !self.batch && !self.skipping
    }

    /// The text that a message will run.
    pub(crate) fn text_of<'a>(&'a self, tag: u8, body: &'a [u8]) -> &'a str {
        match tag {
            frontend::QUERY => std::str::from_utf8(&body[..body.len() - 1]).expect("simulated texts are UTF-8"),
            frontend::EXECUTE => self.portals.get(portal_of(body)).map_or("", |p| &p.sql),
            _ => "",
        }
    }

    /// Whether a message rolls a block back, and does nothing else.
    pub(crate) fn rolls_back(&self, tag: u8, body: &[u8]) -> bool {
        match self.text_of(tag, body) {
            "rollback" => self.block != Block::None,
            "commit" => self.block == Block::Failed,
            _ => false,
        }
    }

    /// Whether a block is open for certain, no COPY is, and neither is otherwise behind any of these messages.
    pub(crate) fn keeps_block<'a>(&self, messages: impl IntoIterator<Item = &'a Message>) -> bool {
        let mut session = self.clone();
        let mut is_kept = session.block == Block::Open && !session.is_begun_late && session.copy.is_none();
        for (tag, body) in messages {
            session.handle(*tag, body, Ends::default(), &mut Vec::new());
            is_kept &= session.block == Block::Open && session.copy.is_none();
        }
        is_kept
    }

    /// Takes a whole message and appends the answer.
    pub(crate) fn handle(&mut self, tag: u8, body: &[u8], ends: Ends, out: &mut Vec<u8>) {
        (self.schema, self.conf) = (ends.schema, ends.conf);
        if self.copy.is_some() {
            self.copy_message(tag, body, out);
            return;
        }
        match tag {
            frontend::SYNC => {
                // Its block was lost with its server behind the last answer of the batch.
                if let Some(code) = ends.fail.filter(|_| self.block != Block::None) {
                    self.fail(&failed(code), out);
                }
                self.skipping = false;
                self.batch = false;
                if self.block == Block::None {
                    self.end_transaction();
                }
                self.ready(out);
            }
            _ if self.skipping => {}
            frontend::QUERY => self.query(body, ends, out),
            frontend::FUNCTION_CALL => {
                self.names.remove(&b""[..]);
                self.batch = false;
                match ends.fail.map_or(Ok(()), |code| Err(failed(code))).and_then(|()| self.may_run("function")) {
                    Ok(()) => framed(out, backend::FUNCTION_CALL_RESPONSE, |out| out.extend_from_slice(body)),
                    Err(error) => self.fail(&error, out),
                }
                self.ready(out);
            }
            frontend::PARSE | frontend::BIND | frontend::DESCRIBE | frontend::EXECUTE | frontend::CLOSE => {
                self.batch = true;
                let result = self.extended(tag, body, ends, out);
                if let Err(error) = result {
                    self.fail(&error, out);
                    self.skipping = true;
                }
            }
            frontend::FLUSH | frontend::COPY_DATA | frontend::COPY_DONE | frontend::COPY_FAIL => {}
            tag => panic!("a server got a message of type {tag:#04x}"),
        }
    }

    fn ready(&mut self, out: &mut Vec<u8>) {
        for (name, reported_as, _) in REPORTED {
            let value = self.value(name).to_owned();
            if self.reported[name] != value {
                message::put_parameter_status(out, reported_as, &value);
                self.reported.insert(name.to_owned(), value);
            }
        }
        if self.reports && self.block == Block::None {
            let now = (self.holding(None), self.schema);
            if now.0 != self.told.0 {
                message::put_parameter_status(out, SESSION_PARAMETER, &now.0);
            }
            if now.1 != self.told.1 {
                message::put_parameter_status(out, CATALOG_PARAMETER, &now.1.to_string());
            }
            self.told = now;
        }
        let status = match self.block {
            Block::None => TransactionStatus::Idle,
            Block::Open => TransactionStatus::InTransaction,
            Block::Failed => TransactionStatus::Failed,
        };
        out.extend_from_slice(&status.ready_for_query());
        (self.has_run, self.is_begun_late) = (false, false);
    }

    fn fail(&mut self, (code, text): &Error, out: &mut Vec<u8>) {
        put_error(out, backend::ERROR_RESPONSE, "ERROR", code, text);
        self.local.clear();
        if let Some(undo) = self.undo.take() {
            self.undo(undo);
        }
        if self.block == Block::Open {
            self.block = Block::Failed;
        }
        self.portals.clear();
    }

    /// A COMMIT that says by that error that its block was lost ends it.
    fn lose_block(&mut self, code: &str, text: &str) {
        if code == "40001" && text.eq_ignore_ascii_case("commit") {
            self.block = Block::None;
        }
    }

    fn begin_transaction(&mut self) {
        if self.undo.is_none() && self.block != Block::Failed {
            self.transactions += 1;
            self.undo = Some(Undo { set: self.set.clone(), temp: self.temp.clone(), cursor: self.cursor.clone() });
        }
    }

    fn undo(&mut self, undo: Undo) {
        (self.set, self.temp, self.cursor) = (undo.set, undo.temp, undo.cursor);
    }

    /// Closing a cursor is not undone.
    fn close_cursor(&mut self) {
        self.cursor = None;
        if let Some(undo) = &mut self.undo {
            undo.cursor = None;
        }
    }

    fn end_transaction(&mut self) {
        self.local.clear();
        self.undo = None;
        self.portals.clear();
    }

    /// Takes away what the sequence gave it, unless that was in the transaction that is under way.
    pub(crate) fn lose_sequence(&mut self) -> Sequence {
        let is_under_way = self.undo.is_some();
        self.sequence.take_before(self.transactions + u64::from(!is_under_way))
    }

    /// Gives that back.
    pub(crate) fn regain_sequence(&mut self, lost: Sequence) {
        if !self.sequence.is_used() {
            self.sequence = lost;
        }
    }

    fn may_run(&self, sql: &str) -> Result<(), Error> {
        let ends_block = matches!(sql.to_ascii_lowercase().split(' ').next(), Some("commit" | "rollback"));
        // What says nothing is refused when it is bound, not when it is parsed.
        if self.block == Block::Failed && !ends_block && !sql.is_empty() {
            let text = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(("25P02", text.into()));
        }
        Ok(())
    }

    fn query(&mut self, body: &[u8], ends: Ends, out: &mut Vec<u8>) {
        self.names.remove(&b""[..]);
        self.portals.remove(&b""[..]);
        self.batch = false;
        let text = std::str::from_utf8(&body[..body.len() - 1]).expect("simulated texts are UTF-8").to_owned();
        let result = self.statements(&text, ends, out);
        match result {
            Err(error) => self.fail(&error, out),
            Ok(()) if self.copy.is_some() => return,
            Ok(()) => {}
        }
        self.finish_query(out);
    }

    fn finish_query(&mut self, out: &mut Vec<u8>) {
        if self.block == Block::None {
            self.end_transaction();
        }
        self.ready(out);
    }

    fn statements(&mut self, text: &str, ends: Ends, out: &mut Vec<u8>) -> Result<(), Error> {
        if let Some(code) = ends.fail.filter(|_| !ends.is_late) {
            self.lose_block(code, text);
            return Err(failed(code));
        }
        let statements: Vec<&str> = text.split(';').map(str::trim).filter(|s| !s.is_empty()).collect();
        if statements.is_empty() {
            framed(out, backend::EMPTY_QUERY_RESPONSE, |_| {});
        }
        if let Some(wrong) = statements.iter().find(|s| s.starts_with("syntax")) {
            return Err(("42601", format!("syntax error at \"{wrong}\"")));
        }
        for sql in &statements {
            self.may_run(sql)?;
            self.begin_transaction();
            let literal = self.value(LITERALS_BY).to_owned();
            let outcome = self.run(sql, None, &literal, statements.len() > 1)?;
            if outcome.copy_in {
                self.begin_copy(false, out);
                return self.go_on_copying(&outcome, sql);
            }
            if outcome.notice {
                let text = "there is no transaction in progress";
                put_error(out, backend::NOTICE_RESPONSE, "WARNING", "25P01", text);
            }
            if outcome.copy_out {
                put_copy_out(out, outcome.rows.unwrap_or_default());
            } else if let Some(rows) = outcome.rows {
                put_description(out);
                rows.iter().for_each(|row| put_row(out, row));
            }
            message::put_command_complete(out, &outcome.tag);
        }
        ends.fail.map_or(Ok(()), |code| Err(failed(code)))
    }

    fn begin_copy(&mut self, extended: bool, out: &mut Vec<u8>) {
        self.copy = Some(CopyIn { extended, rows: 0 });
        framed(out, backend::COPY_IN_RESPONSE, |out| out.extend_from_slice(&[0, 0, 1, 0, 0]));
    }

    /// A COPY has begun, and may fail at once.
    fn go_on_copying(&mut self, outcome: &Outcome, sql: &str) -> Result<(), Error> {
        if !outcome.copy_fails {
            return Ok(());
        }
        self.copy = None;
        Err(("P0001", sql.to_owned()))
    }

    fn copy_message(&mut self, tag: u8, body: &[u8], out: &mut Vec<u8>) {
        let Some(copy) = &mut self.copy else { return };
        let extended = copy.extended;
        match tag {
            frontend::COPY_DATA if body.starts_with(b"bad") => {
                self.copy = None;
                self.fail(&("22P04", "invalid row".into()), out);
                self.skipping = extended;
            }
            frontend::COPY_DATA => {
                copy.rows += 1;
                return;
            }
            frontend::COPY_DONE => {
                let tag = format!("COPY {}", copy.rows);
                self.copy = None;
                message::put_command_complete(out, &tag);
            }
            frontend::COPY_FAIL => {
                self.copy = None;
                self.fail(&("57014", format!("COPY from stdin failed: {}", lossy(&body[..body.len() - 1]))), out);
                self.skipping = extended;
            }
            frontend::FLUSH | frontend::SYNC => return,
            tag => panic!("a server got a message of type {tag:#04x} during COPY"),
        }
        if !extended {
            self.finish_query(out);
        }
    }
}

fn failed(code: &'static str) -> Error {
    match code {
        "53S01" => (code, "canceling statement due to gate timeout".into()),
        "57014" => (code, "canceling statement due to user request".into()),
        "40001" => (code, "the transaction was lost with its server, and is rolled back".into()),
        _ => (code, "cached plan must not change result type".into()),
    }
}

/// A setting's value as PostgreSQL says it, which is not always how it was given.
fn canonical(name: &str, value: &str) -> String {
    if name == "timezone" { value.to_ascii_uppercase() } else { value.to_owned() }
}

/// The portal that an Execute names.
fn portal_of(body: &[u8]) -> &[u8] {
    message::split_cstr(body).map_or(&[], |(name, _)| name)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
