//! One session of PostgreSQL, as far as a pool could disturb it: messages in, messages out, no time and no I/O.
//!
//! It serves twice: behind the pool as what a server does, and beside each client as what it must see. The client's
//! copy is a session of its own, so whatever sharing changes shows as a difference between the two.

use std::collections::{BTreeMap, VecDeque};

use sluice_core::holding::{CATALOG_PARAMETER, SESSION_PARAMETER};
use sluice_wire::message::{self, BindNames, Named, Parse, TransactionStatus, backend, framed, frontend, put_cstr};

use crate::language::{has_rows, hex, holding, selected};

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

/// How a message is to end.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ends {
    /// The schema's version: statements of another one are stale. The clients' copies know only one.
    pub(crate) schema: u32,
    /// With this error, whatever it is.
    pub(crate) fail: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Block {
    None,
    Open,
    Failed,
}

#[derive(Clone, Debug)]
struct Prepared {
    sql: String,
    schema: u32,
    /// What its literals mean.
    literal: String,
}

#[derive(Clone, Debug)]
struct Portal {
    sql: String,
    literal: String,
    parameter: Option<String>,
    /// What is left after an Execute with a limit.
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
    /// What RESET goes back to.
    start: Settings,
    /// What was set since.
    set: Settings,
    /// What was set until the transaction ends.
    local: Settings,
    reported: Settings,
    pub(crate) temp: Option<String>,
    pub(crate) block: Block,
    /// What was set, and the temporary table, when the transaction began.
    undo: Option<(Settings, Option<String>)>,
    /// What was set, for the session and for the transaction, at the savepoint.
    savepoint: Option<(Settings, Settings)>,
    /// Whether it says by itself what it holds; what it has said last.
    reports: bool,
    told: (String, u32),
    schema: u32,
    names: BTreeMap<Vec<u8>, Prepared>,
    portals: BTreeMap<Vec<u8>, Portal>,
    pub(crate) skipping: bool,
    pub(crate) copy: Option<CopyIn>,
    /// Whether messages of the extended protocol came since the last Sync.
    pub(crate) batch: bool,
}

/// What a statement does, beyond what it changes.
#[derive(Default)]
struct Outcome {
    rows: Option<VecDeque<Vec<u8>>>,
    tag: String,
    copy_out: bool,
    copy_in: bool,
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
            block: Block::None,
            undo: None,
            savepoint: None,
            reports: false,
            told: (String::new(), 0),
            schema: 0,
            names: BTreeMap::new(),
            portals: BTreeMap::new(),
            skipping: false,
            copy: None,
            batch: false,
        }
    }

    /// A server's, which says by itself what it holds.
    pub(crate) fn reporting(schema: u32) -> Self {
        Self { reports: true, told: (String::new(), schema), schema, ..Self::new(&[]) }
    }

    /// The value of a setting now.
    pub(crate) fn value(&self, name: &str) -> &str {
        &[&self.local, &self.set, &self.start].into_iter().find_map(|settings| settings.get(name)).expect("it is known")
            [..]
    }

    /// What was set in it, as the pool is to know it between transactions.
    pub(crate) fn made(&self) -> impl Iterator<Item = (&str, &str)> {
        let made = self.set.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        made.filter(|(name, value)| !name.contains('.') || !value.is_empty())
    }

    /// What it says that it holds: by itself, or asked for settings of which `named` are the custom ones.
    fn holding(&self, named: Option<&str>) -> String {
        holding(self.temp.is_some(), self.held(named))
    }

    fn held(&self, named: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
        let is_listed =
            |name: &str| !name.contains('.') || named.is_none_or(|text| text.contains(&format!("'{name}'")));
        let made = self.set.keys().chain(self.local.keys()).map(String::as_str).filter(|name| is_listed(name));
        let made: BTreeMap<&str, &str> = made.map(|name| (name, self.value(name))).collect();
        let is_there = |(name, value): &(&str, &str)| !name.contains('.') || !value.is_empty();
        made.into_iter().filter(is_there)
    }

    /// What it answers to a look: in full, or with the values of the settings that are named.
    fn looked_at(&self, sql: &str) -> String {
        let schema = u8::from(self.temp.is_some());
        let quiet = QUIET.iter().map(|(name, _)| *name).filter(|name| !name.contains('.'));
        let listed: Vec<&str> = REPORTED.iter().map(|(name, ..)| *name).chain(quiet).collect();
        if let Some((_, names)) = sql.split_once("array_cat('{") {
            let names = names.split('}').next().unwrap_or_default().split(',');
            let value = |name| if listed.contains(&name) { self.value(name) } else { "\x02" };
            let values: Vec<&str> = names.map(value).collect();
            let customs = self.made().filter(|(name, _)| name.contains('.') && sql.contains(&format!("'{name}'")));
            return format!("{} schema={schema} conf=1 values={}", holding(false, customs), hex(&values.join("\x01")));
        }
        let is_set = |name: &str| self.set.contains_key(name) || self.local.contains_key(name);
        let own = |name: &&str| match is_set(name) {
            true => (*name).to_owned(),
            false => format!("{name}\x02{}", self.value(name)),
        };
        let own: Vec<String> = listed.iter().map(own).collect();
        let held = self.held(Some(sql));
        format!("{} schema={schema} conf=1 defaults={}", holding(false, held), hex(&own.join("\x01")))
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

    /// Whether a statement has a literal.
    pub(crate) fn has_literal(&self, name: &str) -> bool {
        self.names.get(name.as_bytes()).is_some_and(|prepared| prepared.sql.contains('\''))
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

    /// Takes a whole message and appends the answer.
    pub(crate) fn handle(&mut self, tag: u8, body: &[u8], ends: Ends, out: &mut Vec<u8>) {
        self.schema = ends.schema;
        if self.copy.is_some() {
            self.copy_message(tag, body, out);
            return;
        }
        match tag {
            frontend::SYNC => {
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
    }

    fn fail(&mut self, (code, text): &Error, out: &mut Vec<u8>) {
        put_error(out, backend::ERROR_RESPONSE, "ERROR", code, text);
        self.local.clear();
        if let Some((set, temp)) = self.undo.take() {
            self.set = set;
            self.temp = temp;
        }
        if self.block == Block::Open {
            self.block = Block::Failed;
        }
        self.portals.clear();
    }

    fn begin_transaction(&mut self) {
        if self.undo.is_none() && self.block != Block::Failed {
            self.undo = Some((self.set.clone(), self.temp.clone()));
        }
    }

    fn end_transaction(&mut self) {
        self.local.clear();
        self.undo = None;
        self.portals.clear();
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
        if let Some(code) = ends.fail {
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
                return Ok(());
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
        Ok(())
    }

    fn extended(&mut self, tag: u8, body: &[u8], ends: Ends, out: &mut Vec<u8>) -> Result<(), Error> {
        if let Some(code @ ("57014" | "53S01")) = ends.fail {
            if tag == frontend::PARSE && body[0] == 0 {
                self.names.remove(&b""[..]);
            }
            return Err(failed(code));
        }
        match tag {
            frontend::PARSE => {
                let parse = Parse::read(body).expect("simulated clients send whole Parse messages");
                if parse.name.is_empty() {
                    self.names.remove(&b""[..]);
                }
                let sql = String::from_utf8(parse.query.to_vec()).expect("simulated texts are UTF-8");
                if sql.starts_with("syntax") {
                    return Err(("42601", format!("syntax error at \"{sql}\"")));
                }
                self.may_run(&sql)?;
                if self.names.contains_key(parse.name) {
                    return Err(("42P05", format!("prepared statement \"{}\" already exists", lossy(parse.name))));
                }
                self.begin_transaction();
                let literal = self.value(LITERALS_BY).to_owned();
                self.names.insert(parse.name.to_vec(), Prepared { sql, schema: ends.schema, literal });
                out.extend_from_slice(&message::PARSE_COMPLETE);
            }
            frontend::BIND => {
                let names = BindNames::read(body).expect("simulated clients send whole Bind messages");
                let prepared = self.find(names.statement)?.clone();
                self.may_run(if prepared.sql.is_empty() { "nothing" } else { &prepared.sql })?;
                check(&prepared, ends)?;
                self.begin_transaction();
                let parameter = bound_parameter(&body[names.bytes..]);
                let portal = Portal { sql: prepared.sql, literal: prepared.literal, parameter, left: None };
                self.portals.insert(names.portal.to_vec(), portal);
                out.extend_from_slice(&message::BIND_COMPLETE);
            }
            frontend::DESCRIBE => self.describe(body, ends, out)?,
            frontend::EXECUTE => {
                let (_, limit) = message::split_cstr(body).expect("simulated clients send whole Execute messages");
                let limit = u32::from_be_bytes(limit.try_into().expect("a limit has four bytes"));
                self.execute(portal_of(body), limit, out)?;
            }
            _ => {
                match Named::read(body, "Close").expect("simulated clients send whole Close messages") {
                    Named::Statement(name) => drop(self.names.remove(name)),
                    Named::Portal(name) => drop(self.portals.remove(name)),
                }
                out.extend_from_slice(&message::CLOSE_COMPLETE);
            }
        }
        Ok(())
    }

    fn find(&self, name: &[u8]) -> Result<&Prepared, Error> {
        self.names.get(name).ok_or_else(|| {
            let text = match name {
                b"" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{}\" does not exist", lossy(name)),
            };
            ("26000", text)
        })
    }

    fn describe(&mut self, body: &[u8], ends: Ends, out: &mut Vec<u8>) -> Result<(), Error> {
        let Ok(named) = Named::read(body, "Describe") else {
            return Err(("08P01", "invalid DESCRIBE message subtype".into()));
        };
        let sql = match named {
            Named::Statement(name) => {
                let prepared = self.find(name)?.clone();
                if has_rows(&prepared.sql) {
                    self.may_run(&prepared.sql)?;
                }
                let parameters: &[u8] = if prepared.sql.contains("$1") { &[0, 1, 0, 0, 0, 25] } else { &[0, 0] };
                // PostgreSQL describes the parameters before it looks whether the result has changed.
                framed(out, backend::PARAMETER_DESCRIPTION, |out| out.extend_from_slice(parameters));
                check(&prepared, ends)?;
                prepared.sql
            }
            Named::Portal(name) => match self.portals.get(name) {
                Some(portal) => portal.sql.clone(),
                None => return Err(("34000", "portal \"\" does not exist".into())),
            },
        };
        if has_rows(&sql) {
            put_description(out)
        } else {
            out.extend_from_slice(&message::NO_DATA)
        }
        Ok(())
    }

    fn execute(&mut self, name: &[u8], limit: u32, out: &mut Vec<u8>) -> Result<(), Error> {
        let Some(mut portal) = self.portals.remove(name) else {
            return Err(("34000", "portal \"\" does not exist".into()));
        };
        self.may_run(&portal.sql)?;
        let (mut rows, tag) = match portal.left.take() {
            Some(left) => left,
            None => {
                let outcome = self.run(&portal.sql, portal.parameter.as_deref(), &portal.literal, false)?;
                if outcome.copy_in {
                    self.begin_copy(true, out);
                    return Ok(());
                }
                if outcome.copy_out {
                    put_copy_out(out, outcome.rows.unwrap_or_default());
                    message::put_command_complete(out, &outcome.tag);
                    return Ok(());
                }
                if outcome.notice {
                    let text = "there is no transaction in progress";
                    put_error(out, backend::NOTICE_RESPONSE, "WARNING", "25P01", text);
                }
                (outcome.rows.unwrap_or_default(), outcome.tag)
            }
        };
        let now = if limit == 0 { rows.len() } else { rows.len().min(limit as usize) };
        rows.drain(..now).for_each(|row| put_row(out, &row));
        if rows.is_empty() {
            message::put_command_complete(out, &tag);
            if has_rows(&portal.sql) {
                // It may be executed again, and is at its end.
                portal.left = Some((rows, "SELECT 0".into()));
                self.portals.insert(name.to_vec(), portal);
            }
        } else {
            framed(out, backend::PORTAL_SUSPENDED, |_| {});
            portal.left = Some((rows, tag));
            self.portals.insert(name.to_vec(), portal);
        }
        Ok(())
    }

    fn begin_copy(&mut self, extended: bool, out: &mut Vec<u8>) {
        self.copy = Some(CopyIn { extended, rows: 0 });
        framed(out, backend::COPY_IN_RESPONSE, |out| out.extend_from_slice(&[0, 0, 1, 0, 0]));
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

    /// Carries a statement out.
    fn run(&mut self, sql: &str, parameter: Option<&str>, literal: &str, among_others: bool) -> Result<Outcome, Error> {
        let lower = sql.to_ascii_lowercase();
        let words: Vec<&str> = lower.split_ascii_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|w| w.parse::<usize>().ok()).unwrap_or(0);
        let tag = |tag: &str| Outcome { tag: tag.to_owned(), ..Outcome::default() };
        if let Some((verb, _)) = selected(sql) {
            return Ok(rows(self.select(sql, verb, parameter, literal)?));
        }
        Ok(match words[0] {
            "select" if sql.contains("pg_depend") => rows(vec![holding(self.temp.is_some(), std::iter::empty())]),
            "select" if sql.contains("probin") => rows(vec!["libraries=".into()]),
            "select" if sql.contains("'was='") => {
                let was = format!("was={}", self.value("statement_timeout"));
                self.local.insert("statement_timeout".into(), "0".into());
                rows(vec![was])
            }
            "select" if sql.contains("concat_ws") => rows(vec![self.looked_at(sql)]),
            "select" => {
                self.set_config(sql);
                rows(vec!["configured".into()])
            }
            "copy" if words[1] == "out" => Outcome {
                copy_out: true,
                tag: format!("COPY {}", number(2)),
                ..rows((0..number(2)).map(|i| padded(sql, parameter, i, number(3))).collect())
            },
            "copy" => Outcome { copy_in: true, ..Outcome::default() },
            "begin" => {
                self.block = Block::Open;
                tag("BEGIN")
            }
            "savepoint" => {
                self.savepoint = Some((self.set.clone(), self.local.clone()));
                tag("SAVEPOINT")
            }
            "rollback" if words.get(1) == Some(&"to") => {
                if let Some((set, local)) = self.savepoint.clone() {
                    (self.set, self.local) = (set, local);
                }
                tag("ROLLBACK")
            }
            "release" => {
                self.savepoint = None;
                tag("RELEASE")
            }
            "commit" | "rollback" => {
                let outcome = self.end_block(words[0] == "commit");
                self.end_transaction();
                outcome
            }
            "set" if words[1] == "local" => {
                let value = canonical(words[2], words[4].trim_matches('\''));
                self.local.insert(words[2].to_owned(), value);
                tag("SET")
            }
            "set" => {
                self.set(words[1], words[3].trim_matches('\''));
                tag("SET")
            }
            "reset" => {
                let name = words[1].replace('"', "");
                self.set.remove(&name);
                self.local.remove(&name);
                tag("RESET")
            }
            "show" => rows(vec![format!("show {}={}", words[1], self.value(words[1]))]),
            "create" => {
                self.temp = Some(sql.to_owned());
                tag("CREATE TABLE")
            }
            "deallocate" if words[1] == "all" => {
                self.names.clear();
                tag("DEALLOCATE ALL")
            }
            "deallocate" => match self.names.remove(words[1].as_bytes()) {
                Some(_) => tag("DEALLOCATE"),
                None => return Err(("26000", format!("prepared statement \"{}\" does not exist", words[1]))),
            },
            "discard" if words[1] == "sequences" => tag("DISCARD SEQUENCES"),
            "discard" => {
                if self.block != Block::None || among_others {
                    return Err(("25001", "DISCARD ALL cannot run inside a transaction block".into()));
                }
                self.set.clear();
                self.temp = None;
                self.names.clear();
                tag("DISCARD ALL")
            }
            other => panic!("the simulated server does not know \"{other}\" in: {sql}"),
        })
    }

    /// What stands behind `select`.
    fn select(&mut self, sql: &str, verb: &str, parameter: Option<&str>, literal: &str) -> Result<Vec<String>, Error> {
        let with = parameter.map(|parameter| verb.replace("$1", parameter));
        let words: Vec<&str> = with.as_deref().unwrap_or(verb).split_ascii_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|w| w.parse::<usize>().ok()).unwrap_or(0);
        Ok(match words[0] {
            "echo" | "sleep" => vec![parameter.map_or_else(|| sql.to_owned(), |p| format!("{sql} {p}"))],
            "literal" => vec![format!("{sql} by {literal}")],
            "rows" => (0..number(1)).map(|i| padded(sql, parameter, i, number(2))).collect(),
            "temporary" => vec![format!("temporary={}", self.temp.as_deref().unwrap_or("none"))],
            "error" => return Err(("P0001", sql.to_owned())),
            "set" => {
                self.set(words[1], words[2]);
                vec!["set".into()]
            }
            "temp" => {
                self.temp = Some(sql.to_owned());
                vec!["made".into()]
            }
            _ => {
                self.set_config(sql);
                vec!["configured".into()]
            }
        })
    }

    fn set(&mut self, name: &str, value: &str) {
        self.local.remove(name);
        self.set.insert(name.to_owned(), canonical(name, value));
    }

    /// Calls of `set_config`.
    fn set_config(&mut self, sql: &str) {
        for call in sql.split("set_config('").skip(1) {
            let (name, rest) = call.split_once('\'').expect("a name");
            match rest.strip_prefix(",NULL") {
                Some(_) => {
                    self.set.remove(name);
                    self.local.remove(name);
                }
                None => self.set(name, rest.split('\'').nth(1).expect("a value")),
            }
        }
    }

    fn end_block(&mut self, commit: bool) -> Outcome {
        let commit = commit && self.block != Block::Failed;
        let notice = self.block == Block::None;
        self.block = Block::None;
        self.local.clear();
        if !commit && let Some((set, temp)) = self.undo.take().filter(|_| !notice) {
            self.set = set;
            self.temp = temp;
        }
        Outcome { tag: if commit { "COMMIT" } else { "ROLLBACK" }.into(), notice, ..Outcome::default() }
    }
}

fn failed(code: &'static str) -> Error {
    match code {
        "53S01" => (code, "canceling statement due to gate timeout".into()),
        "57014" => (code, "canceling statement due to user request".into()),
        _ => (code, "cached plan must not change result type".into()),
    }
}

fn check(prepared: &Prepared, ends: Ends) -> Result<(), Error> {
    match ends.fail {
        Some(code) => Err(failed(code)),
        None if prepared.schema != ends.schema && has_rows(&prepared.sql) => Err(failed("0A000")),
        None => Ok(()),
    }
}

/// A setting's value as PostgreSQL says it, which is not always how it was given.
fn canonical(name: &str, value: &str) -> String {
    if name == "timezone" { value.to_ascii_uppercase() } else { value.to_owned() }
}

fn rows(rows: Vec<String>) -> Outcome {
    let tag = format!("SELECT {}", rows.len());
    Outcome { rows: Some(rows.into_iter().map(String::into_bytes).collect()), tag, ..Outcome::default() }
}

fn padded(sql: &str, parameter: Option<&str>, row: usize, bytes: usize) -> String {
    let mut text = format!("{row} {sql} {}", parameter.unwrap_or_default());
    let fill = bytes.saturating_sub(text.len());
    text.extend(std::iter::repeat_n((b'a' + (row % 26) as u8) as char, fill));
    text
}

/// The portal that an Execute names.
fn portal_of(body: &[u8]) -> &[u8] {
    message::split_cstr(body).map_or(&[], |(name, _)| name)
}

fn bound_parameter(rest: &[u8]) -> Option<String> {
    // No formats, at most one parameter: that is all the simulated clients send.
    let count = u16::from_be_bytes([rest[2], rest[3]]);
    (count == 1).then(|| {
        let length = u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]) as usize;
        lossy(&rest[8..8 + length])
    })
}

fn put_copy_out(out: &mut Vec<u8>, rows: VecDeque<Vec<u8>>) {
    framed(out, backend::COPY_OUT_RESPONSE, |out| out.extend_from_slice(&[0, 0, 1, 0, 0]));
    for row in rows {
        framed(out, backend::COPY_DATA, |out| out.extend_from_slice(&row));
    }
    framed(out, backend::COPY_DONE, |_| {});
}

fn put_description(out: &mut Vec<u8>) {
    framed(out, backend::ROW_DESCRIPTION, |out| {
        out.extend_from_slice(&1u16.to_be_bytes());
        put_cstr(out, b"text");
        out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 25, 255, 255, 255, 255, 255, 255, 0, 0]);
    });
}

fn put_row(out: &mut Vec<u8>, row: &[u8]) {
    framed(out, backend::DATA_ROW, |out| {
        out.extend_from_slice(&1u16.to_be_bytes());
        out.extend_from_slice(&(row.len() as u32).to_be_bytes());
        out.extend_from_slice(row);
    });
}

/// Appends an ErrorResponse or NoticeResponse as PostgreSQL writes it.
pub(crate) fn put_error(out: &mut Vec<u8>, kind: u8, severity: &str, code: &str, text: &str) {
    framed(out, kind, |out| {
        let routine = if code == "0A000" { "RevalidateCachedQuery" } else { "simulated" };
        for (field, value) in [(b'S', severity), (b'V', severity), (b'C', code), (b'M', text), (b'R', routine)] {
            out.push(field);
            put_cstr(out, value.as_bytes());
        }
        out.push(0);
    });
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
