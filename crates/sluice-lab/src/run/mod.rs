//! A run: all turns of a plan, one after the other, each stored as soon as it is taken.
//!
//! Whatever breaks under a target is recorded and the rest goes on; Ctrl-C keeps what was measured; a run that was
//! cut short goes on where it was.

mod begin;
mod commits;
mod confirm;
mod cost;
mod facts;
mod meanwhile;
mod progress;
mod ready;
mod turn;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use postgres::Client;
use sluice_instance::Class;

pub use self::{begin::check_resumed, progress::Progress};
use self::{
    ready::Lock,
    turn::{Ground, Taken},
};
use crate::{
    connect::{Dsn, is_open},
    error::Error,
    machine::{self, Probe},
    pgbench::Endpoint,
    plan::{Plan, PlannedTurn},
    process::Interrupt,
    result::{CaseKey, Machine, Outcome, RunResult, Turn},
    server::{self, Server, Settings, Tables},
    target::Kind,
};

/// The file in which a run keeps its findings.
pub const RESULT_FILE: &str = "result.json";
/// The subdirectory in which a run keeps its server and its logs.
const SCRATCH: &str = ".work";

/// The comment of the mark of a role's own, the tables there are, and all that is read like a table and is somebody
/// else's, but for what has come with extensions.
const TABLES: &str = "\
SELECT (SELECT pg_catalog.obj_description(c.oid, 'pg_class') FROM pg_catalog.pg_class c
        WHERE relname = $1 AND relkind = 'r' AND pg_catalog.pg_get_userbyid(relowner) = current_user LIMIT 1),
       count(*) FILTER (WHERE relkind IN ('r', 'p')),
       count(*) FILTER (WHERE pg_catalog.pg_get_userbyid(relowner) <> current_user AND NOT EXISTS (
           SELECT FROM pg_catalog.pg_depend WHERE classid = 'pg_catalog.pg_class'::regclass AND objid = t.oid
           AND deptype = 'e'))
FROM pg_catalog.pg_class t JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace
WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
      AND relpersistence <> 't'";

/// The order for a run: its plan, and everything besides.
pub struct Order<'a> {
    /// All turns.
    pub plan: &'a Plan,
    /// The directory for results; it exists.
    pub dir: &'a Path,
    /// The command line, for the report.
    pub command: String,
    /// An earlier part of the same run.
    pub earlier: Option<RunResult>,
    /// The observer that is told how far it is.
    pub progress: &'a dyn Progress,
    /// Ends it early.
    pub interrupt: &'a Interrupt,
}

/// A run under way.
struct Run<'a> {
    order: &'a Order<'a>,
    scratch: PathBuf,
    pgbench: PathBuf,
    /// The laboratory's own: one server for most targets, and each number of nodes that there are targets of.
    servers: BTreeMap<Option<usize>, Server>,
    has_gate: bool,
    result: RunResult,
    /// Databases of others that hold their tables, by target, and whether these are unlogged.
    filled: BTreeMap<String, (Tables, bool)>,
}

/// Takes all turns. An error is one of the laboratory's own, before the first turn; later ones are in the result.
pub fn run(order: &Order) -> Result<RunResult, Error> {
    let lock = Lock::take(order.dir)?;
    let scratch = order.dir.join(SCRATCH);
    // Of a run that was killed: neither its server nor its tables can be trusted.
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch).map_err(Error::file("create", &scratch))?;
    let done = Run::begin(order, scratch.clone()).and_then(Run::finish);
    // What is left of servers and logs; the results lie beside it.
    let _ = fs::remove_dir_all(&scratch);
    drop(lock);
    done
}

impl<'a> Run<'a> {
    fn begin(order: &'a Order, scratch: PathBuf) -> Result<Self, Error> {
        let plan = order.plan;
        ready::check_disk(plan, &scratch)?;
        let pg_bin = plan.choices.pg_bin.as_deref();
        let pgbench = ready::find_pgbench(pg_bin)?;
        let has_gate = server::has_gate(pg_bin);
        ready::tell_what_lacks(order, has_gate)?;
        order.progress.step("looking at the machine");
        let mut machine = Machine::describe();
        let mut servers = BTreeMap::new();
        for target in plan.targets.iter().filter(|target| target.is_own() && target.lacks(has_gate).is_none()) {
            let count = target.nodes().map(|shape| shape.count);
            if servers.contains_key(&count) {
                continue;
            }
            order.progress.step("creating a PostgreSQL");
            let server = match count {
                None => Server::create(&scratch.join("postgres"), pg_bin, order.interrupt),
                Some(nodes) => {
                    let dir = scratch.join(format!("nodes-{nodes}"));
                    Server::create_nodes(&dir, pg_bin, nodes, plan.choices.patroni_dir.as_deref(), order.interrupt)
                }
            };
            servers.insert(count, server?);
        }
        if !servers.is_empty() {
            order.progress.step("probing the disk");
            let how = if plan.choices.brief { Probe::Brief } else { Probe::Short };
            machine.disk = Some(machine::probe_disk(&scratch, how));
        }
        machine.loopback_round_trip_us = machine::loopback_round_trip_us();
        let result = match &order.earlier {
            Some(earlier) => begin::resumed(order, earlier, &machine),
            None => begin::new_result(order, machine),
        };
        Ok(Self { order, scratch, pgbench, servers, has_gate, result, filled: BTreeMap::new() })
    }

    fn finish(mut self) -> Result<RunResult, Error> {
        let turns = self.order.plan.turns();
        let (mut taken_s, mut taken) = (0.0, 0_u32);
        for (index, turn) in turns.iter().enumerate() {
            let case = self.order.plan.case(turn);
            if self.result.turns.iter().any(|done| done.case == case && done.round == turn.round) {
                continue;
            }
            let left = (turns.len() - index) as f64;
            let guess_s = self.order.plan.seconds() as f64 / turns.len().max(1) as f64 + 4.0;
            let each_s = if taken > 0 { taken_s / f64::from(taken) } else { guess_s };
            self.order.progress.turn(
                index,
                turns.len(),
                &label(&case, turn.round),
                Duration::from_secs_f64(left * each_s),
            );
            let begin = Instant::now();
            let outcome = match self.take(turn, &case) {
                Err(Error::Interrupted) => {
                    let why = format!("interrupted after {index} of {} turns", turns.len());
                    self.result.cut_short = Some(why);
                    break;
                }
                Ok(outcome) => outcome,
                Err(error) => Outcome::Broken(error.to_string()),
            };
            (taken_s, taken) = (taken_s + begin.elapsed().as_secs_f64(), taken + 1);
            self.order.progress.done(&label(&case, turn.round), &outcome);
            self.result.turns.push(Turn { case, round: turn.round, outcome });
            store(&self.result, self.order.dir)?;
        }
        store(&self.result, self.order.dir)?;
        Ok(self.result)
    }

    fn take(&mut self, turn: &PlannedTurn, case: &CaseKey) -> Result<Outcome, Error> {
        let plan = self.order.plan;
        let target = &plan.targets[turn.target];
        self.order.interrupt.check()?;
        if let Some(why) = plan.lacks(turn).or_else(|| target.lacks(self.has_gate)) {
            return Ok(Outcome::Skipped(why));
        }
        let Taken { mut measured, facts } = self.measure(turn, &Settings::new(), plan.class)?;
        self.result.servers.extend(facts.map(|facts| (target.name.clone(), facts)));
        // What several nodes have in common is Patroni's to set.
        if plan.choices.confirm && target.is_own() && target.servers() == 1 {
            for without in confirm::to_be_taken_away(&measured.stalls, plan.class) {
                self.order.progress.step(&format!("it stalled: the same again, with {}", without.describe()));
                match self.measure(turn, &without.settings, without.class(plan.class)) {
                    Ok(Taken { measured: again, .. }) => {
                        let seconds = (measured.figures.seconds, again.figures.seconds);
                        confirm::note(&mut measured.stalls, &without, seconds.0, &again.stalls, seconds.1);
                    }
                    // What was measured stands without it.
                    Err(error) => {
                        let label = label(case, turn.round);
                        let without = without.describe();
                        self.result.remarks.push(format!("{label}: no confirmation with {without}: {error}"));
                        if matches!(error, Error::Interrupted) {
                            break;
                        }
                    }
                }
            }
        }
        Ok(Outcome::Measured(measured))
    }

    /// Takes a turn, with settings besides its own.
    fn measure(&mut self, turn: &PlannedTurn, besides: &Settings, class: Class) -> Result<Taken, Error> {
        let plan = self.order.plan;
        let target = &plan.targets[turn.target];
        let tables = plan.tables(turn);
        let database = match &target.kind {
            Kind::Dsn(dsn) => {
                self.fill_foreign(&target.name, dsn, tables)?;
                String::new()
            }
            _ => self.prepare_own(turn, &tables, besides, class)?,
        };
        let server = self.servers.get(&target.nodes().map(|shape| shape.count)).filter(|_| target.is_own());
        let see = |what: &str| self.order.progress.report(what);
        let ground = Ground {
            plan,
            turn,
            server,
            database: &database,
            pgbench: &self.pgbench,
            scratch: &self.scratch,
            interrupt: self.order.interrupt,
            see: &see,
        };
        let taken = ground.take()?;
        server.map_or(Ok(()), Server::check_nodes)?;
        Ok(taken)
    }

    /// The laboratory's server with a turn's settings and tables; the database's name.
    fn prepare_own(
        &mut self,
        turn: &PlannedTurn,
        tables: &Tables,
        besides: &Settings,
        class: Class,
    ) -> Result<String, Error> {
        let mut settings = self.order.plan.settings(turn);
        settings.extend(besides.clone());
        let shape = self.order.plan.targets[turn.target].nodes();
        let server = self.servers.get_mut(&shape.map(|shape| shape.count));
        let server = server.ok_or_else(|| Error::Server("there is no server".to_owned()))?;
        if shape.is_some_and(|shape| shape.count > 1) {
            self.order.progress.report("having all nodes in their places");
        }
        server.ensure(&settings, class)?;
        server.place_nodes(shape.and_then(|shape| shape.round_trip))?;
        let enforced = server.class().to_string();
        // A run that confirms a cause may be in another class.
        let is_planned = class == self.order.plan.class;
        if is_planned && !enforced.is_empty() && !self.result.remarks.contains(&enforced) {
            self.result.remarks.push(enforced);
        }
        self.order.progress.report("filling tables, if need be");
        server.database(tables)
    }

    /// Fills a database of somebody else's, unless it holds these tables from an earlier run. A database that holds
    /// anything else is left alone.
    fn fill_foreign(&mut self, name: &str, dsn: &Dsn, tables: Tables) -> Result<(), Error> {
        let unlogged = tables.unlogged;
        let tables = Tables { unlogged: false, ..tables };
        let wanted = (tables, unlogged);
        if self.filled.get(name) == Some(&wanted) {
            return Ok(());
        }
        let tables = &wanted.0;
        let (mark, bin) = (format!("{tables:?}"), self.pgbench.parent().unwrap_or(Path::new("")));
        let mut client = dsn.connect().map_err(|error| Error::Server(format!("target {name}: {error}")))?;
        let is_filled = look(name, &mut client, &mark)?;
        if !is_filled {
            server::fill(bin, &Endpoint::from(dsn), tables, &self.scratch.join("schema.sql"), self.order.interrupt)?;
            let marked =
                format!("CREATE TABLE {0} (); COMMENT ON TABLE {0} IS '{1}'", server::MARK, mark.replace('\'', "''"));
            let done = dsn.access().for_tables().connect().and_then(|mut client| client.batch_execute(&marked));
            done.map_err(Error::sql("mark the target's database as filled"))?;
            server::add_extensions(&mut client);
        }
        let token = client.cancel_token();
        let alter = || server::set_unlogged(&mut client, unlogged);
        self.order.interrupt.during(|| dsn.access().cancel(&token), alter)??;
        self.filled.insert(name.to_owned(), wanted);
        Ok(())
    }
}

/// Whether a database holds the tables that the mark says; an error if it holds others, or a superuser could run what
/// others have made there.
fn look(target: &str, client: &mut Client, mark: &str) -> Result<bool, Error> {
    let ask = "look for tables in the target's database";
    if is_open(client).map_err(Error::sql(ask))? {
        return Err(Error::Input(format!(
            "target {target}: what is there takes no search_path from its clients, as PgBouncer, so that a superuser may \
             run functions of others\nname a role in its DSN that is no superuser, or PostgreSQL itself"
        )));
    }
    let row = client.query_one(TABLES, &[&server::MARK]).map_err(Error::sql(ask))?;
    let (found, count, of_others): (Option<String>, i64, i64) = (row.get(0), row.get(1), row.get(2));
    let is_filled = found.as_deref() == Some(mark);
    let what = match (is_filled, count, of_others) {
        (false, 0, 0) | (true, _, 0) => return Ok(is_filled),
        (true, ..) | (false, 0, _) => format!("{of_others} tables of others than its role"),
        (false, ..) => format!("{count} tables that are not this scenario's"),
    };
    Err(Error::Input(format!("target {target}: its database holds {what}\nname an empty database in its DSN")))
}

fn label(case: &CaseKey, round: u32) -> String {
    format!("{}, {} clients, {}, turn {round}", case.variant, case.clients, case.target)
}

/// Written whole or not at all.
fn store(result: &RunResult, dir: &Path) -> Result<(), Error> {
    let (path, new) = (dir.join(RESULT_FILE), dir.join("result.json.new"));
    let text = serde_json::to_vec(result).map_err(|error| Error::Server(format!("cannot write results: {error}")))?;
    fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(Error::file("write", &path))
}
