//! One turn: everything as it was for the others, pgbench under the sampler's eyes, and what came of it.

use std::{path::Path, time::Duration};

use postgres::Client;
use sluice_instance::Limit;

use super::{cost::Watch, facts, meanwhile::Meanwhile};
use crate::{
    connect::{Access, extension_schema},
    error::Error,
    pgbench::{Endpoint, Moment, Outcome, Pgbench, ScriptReport},
    plan::{Plan, PlannedTurn},
    proc,
    process::Interrupt,
    result::{Figures, Measured, Samples, Second, Server as ServerFacts, StatementFigures},
    sample::{self, Sampler, Subject},
    scenario::{Flood, Load},
    server::{self, Server},
    stall,
    target::{Kind, Pool},
};

/// With fewer clients, connecting is too short a moment to be measured.
const LOGINS_MEASURED_FROM: u32 = 1000;
/// The share of a turn at each of its ends that trimmed figures leave out.
const TRIMMED_SHARE: f64 = 0.1;

/// The means to take a turn: server, database, programs.
pub(super) struct Ground<'a> {
    pub(super) plan: &'a Plan,
    pub(super) turn: &'a PlannedTurn,
    /// The laboratory's server, if the target is its own.
    pub(super) server: Option<&'a Server>,
    pub(super) database: &'a str,
    pub(super) pgbench: &'a Path,
    pub(super) scratch: &'a Path,
    pub(super) interrupt: &'a Interrupt,
    /// Told what pgbench reports.
    pub(super) see: &'a dyn Fn(&str),
}

/// The figures of a turn that was taken.
pub(super) struct Taken {
    pub(super) measured: Measured,
    pub(super) facts: Option<ServerFacts>,
}

impl Ground<'_> {
    /// Takes it.
    pub(super) fn take(&self) -> Result<Taken, Error> {
        let target = &self.plan.targets[self.turn.target];
        let access = self.server_access(&target.kind)?;
        let mut pool = match (target.pool(), self.server) {
            (Some(pool), Some(server)) => {
                let clients = self.turn.clients + self.flood().map_or(0, Flood::room);
                Some(Pool::start(pool, server, clients, self.scratch, self.interrupt)?)
            }
            _ => None,
        };
        let endpoint = self.endpoint(&target.kind, pool.as_ref())?;
        let load = &self.plan.load(self.turn);
        if load.warm_up_seconds > 0 {
            let quiet = Load { rate: None, latency_limit_ms: None, ..load.clone() };
            let clients = self.turn.clients.min(load.warm_up_clients);
            self.pgbench(&endpoint, &quiet, clients, load.warm_up_seconds).run(|_| ())?;
        }
        self.reset(&access)?;
        // Facts about the server are worth a connection, not a turn.
        let way = self.server.and_then(|server| server.standbys_way(self.database));
        let facts = facts::of(&access, &target.kind, self.cores(), &self.plan.set_by_variants(), way.as_ref()).ok();
        let measured = self.measure(&endpoint, &access, pool.as_ref());
        if let Some(pool) = &mut pool {
            // Its last words say more than pgbench's.
            pool.check()?;
        }
        Ok(Taken { measured: measured?, facts })
    }

    fn flood(&self) -> Option<Flood> {
        self.plan.variants[self.turn.variant].flood
    }

    /// Those who flood the pool meanwhile, if the variant has them.
    fn meanwhile(&self, pool: Option<&Pool>) -> Result<Option<Meanwhile>, Error> {
        let (Some(flood), Some(pool), Some(server)) = (self.flood(), pool, self.server) else { return Ok(None) };
        let access = server.first_user(self.database, pool.port)?;
        Meanwhile::begin(flood, pool.port, access).map(Some)
    }

    /// Processors that the server may use; what a class says counts if it is enforced.
    fn cores(&self) -> Option<f64> {
        let of_class = self.server?.class().enforced().find_map(|limit| match limit {
            Limit::Cpus(cpus) => Some(f64::from(cpus.millis()) / 1000.0),
            _ => None,
        });
        let of_machine = f64::from(proc::cores());
        Some(of_class.map_or(of_machine, |cpus| cpus.min(of_machine)))
    }

    /// The sampling period, if the turn is sampled.
    fn sample_period(&self) -> Option<Duration> {
        Duration::from_secs(1).checked_div(self.plan.choices.sample_hz.min(sample::HZ_MAX))
    }

    /// PostgreSQL itself, for the sampler and for what comes before a turn.
    fn server_access(&self, kind: &Kind) -> Result<Access, Error> {
        match (kind, self.server) {
            (Kind::Dsn(dsn), _) => Ok(dsn.access().clone()),
            (_, Some(server)) => Ok(server.superuser(self.database)),
            (_, None) => Err(Error::Server("the laboratory's server is not running".to_owned())),
        }
    }

    fn endpoint(&self, kind: &Kind, pool: Option<&Pool>) -> Result<Endpoint, Error> {
        match (kind, self.server) {
            (Kind::Dsn(dsn), _) => Ok(Endpoint::from(&**dsn)),
            (_, Some(server)) => match pool {
                Some(pool) => server.endpoint_by(self.database, pool.port, pool.tls),
                None => server.endpoint(self.database),
            },
            (_, None) => Err(Error::Server("the laboratory's server is not running".to_owned())),
        }
    }

    /// Brings the tables back to where each turn begins, and into memory.
    fn reset(&self, access: &Access) -> Result<(), Error> {
        let mut client = access.for_tables().connect().map_err(Error::sql("connect to PostgreSQL before a turn"))?;
        let data = &self.plan.scenario.data;
        let token = client.cancel_token();
        let reset = || {
            if !data.reset.is_empty() {
                client.batch_execute(&data.reset).map_err(Error::sql("reset the tables"))?;
            }
            client.batch_execute("VACUUM").map_err(Error::sql("vacuum"))?;
            if self.server.is_some() {
                client.batch_execute("CHECKPOINT").map_err(Error::sql("have a checkpoint"))?;
            }
            prewarm(&mut client, &data.prewarm);
            Ok(())
        };
        self.interrupt.during(|| access.cancel(&token), reset)??;
        // What they have to catch up with is not the turn's.
        self.server.map_or(Ok(()), Server::wait_replayed)
    }

    fn pgbench<'b>(&'b self, endpoint: &'b Endpoint, load: &'b Load, clients: u32, seconds: u32) -> Pgbench<'b> {
        Pgbench {
            program: self.pgbench,
            scripts: &self.plan.variants[self.turn.variant].scripts,
            variables: vec![("rows".to_owned(), self.plan.tables(self.turn).rows.to_string())],
            load,
            clients,
            seconds,
            statements: true,
            endpoint,
            scratch: self.scratch,
            interrupt: self.interrupt,
        }
    }

    fn measure(&self, endpoint: &Endpoint, access: &Access, pool: Option<&Pool>) -> Result<Measured, Error> {
        let load = &self.plan.load(self.turn);
        let subject = Subject {
            access: access.clone(),
            postmaster: self.server.and_then(Server::postmaster),
            pool: pool.map(Pool::id),
            pool_console: pool.and_then(Pool::console).cloned(),
            data_dir: self.server.map(|server| server.data().to_owned()),
            log: self.server.filter(|_| self.plan.log_is_readable(self.turn)).map(Server::log),
        };
        let sampler = self.sample_period().map(|period| Sampler::start(&subject, period)).transpose()?;
        let pgbench = self.pgbench(endpoint, load, self.turn.clients, load.seconds);
        let postmasters = self.server.map(Server::postmasters).unwrap_or_default();
        let mut watch = Watch::new(subject.pool, postmasters);
        let shares = self.plan.targets[self.turn.target].shares();
        let mut closed = Ok(None);
        let mut meanwhile = self.meanwhile(pool)?;
        let outcome = pgbench.run(|moment| {
            watch.see(&moment);
            meanwhile.iter_mut().for_each(|flood| flood.see(&moment));
            match moment {
                Moment::Started(pid) => {
                    if let Some(sampler) = &sampler {
                        sampler.pgbench_is(pid);
                    }
                }
                Moment::Report(report) => {
                    (self.see)(&format!("{:.0} tps, {:.1} ms", report.tps, report.mean_ms));
                }
                // Before anything else is done, which would count with it.
                Moment::Ended(told_to_end) if !shares => {
                    closed = server::wait_closed(access, told_to_end, self.interrupt);
                }
                Moment::Tick | Moment::Ending | Moment::Ended(_) => {}
            }
        });
        let flooded = meanwhile.map(Meanwhile::finish);
        let seconds = f64::from(load.seconds);
        let begin_unix_s = outcome.as_ref().map_or(0.0, |outcome| outcome.begin_unix_s);
        let (samples, sampler_cpu_percent) = sampler.map(|sampler| sampler.finish(begin_unix_s, seconds)).unzip();
        let outcome = outcome?;
        let mut measured =
            assemble(&outcome, load.log_share >= 1.0, samples.unwrap_or_default(), pgbench.command_line());
        measured.figures.close_s = closed?;
        measured.figures.sampler_cpu_percent = sampler_cpu_percent;
        let cost = watch.finish(&outcome.summary);
        measured.figures.postgres_cpu_us_per_tx = cost.postgres_cpu_us_per_tx;
        measured.figures.pool_cpu_us_per_tx = cost.pool_cpu_us_per_tx;
        measured.figures.pool_rss_kb = cost.rss_kb;
        if let Some(flooded) = flooded.transpose()? {
            flooded.put(&mut measured.figures);
        }
        let clients = f64::from(self.turn.clients);
        measured.figures.pool_cpu_us_per_login =
            cost.login_cpu_us.filter(|_| self.turn.clients >= LOGINS_MEASURED_FROM).map(|us| us / clients);
        stall::attribute(&mut measured.stalls, &measured.samples, circumstances(self.server));
        Ok(measured)
    }
}

/// The circumstances that the rules of stalls may know: a limit counts if it is enforced.
fn circumstances(server: Option<&Server>) -> stall::Circumstances {
    let class = server.map(Server::class).unwrap_or_default();
    let iops_max = class.enforced().find_map(|limit| match limit {
        Limit::Iops(iops) => Some(f64::from(iops.per_second())),
        _ => None,
    });
    stall::Circumstances { iops_max, cores: f64::from(proc::machine_cores()) }
}

/// Reads relations into shared buffers; those that can't be are read as queries find them.
fn prewarm(client: &mut Client, relations: &[String]) {
    // Missing where the contrib modules are: a report tells how warm the cache was.
    let Ok(Some(schema)) = extension_schema(client, "pg_prewarm") else { return };
    // With all of its types no other function of that name fits better.
    let call = format!(
        "SELECT {schema}.pg_prewarm($1::pg_catalog.text::pg_catalog.regclass, 'buffer'::pg_catalog.text, \
         'main'::pg_catalog.text, NULL::pg_catalog.int8, NULL::pg_catalog.int8)"
    );
    for relation in relations {
        let _ = client.execute(&call, &[relation]);
    }
}

/// Puts together what pgbench told. Of a part of the transactions, the longest is not known.
fn assemble(outcome: &Outcome, all_logged: bool, samples: Samples, command: String) -> Measured {
    let seconds = seconds(outcome, all_logged);
    let stalls = stall::detect(&seconds);
    let summary = &outcome.summary;
    let elapsed_s = seconds.last().map_or(0.0, |second| second.t_s);
    // None, if the part that was logged has none.
    let quantile = |share| outcome.latencies.quantile_ms(share);
    let per_transaction = |of: fn(&ScriptReport) -> Option<f64>| weighted(&outcome.scripts, of);
    let statements = weighted(&outcome.scripts, |script| Some(script.statements.len() as f64));
    let figures = Figures {
        seconds: elapsed_s,
        transactions: summary.transactions,
        tps: summary.tps,
        tps_trimmed: trimmed(&seconds),
        qps: statements.filter(|count| *count > 0.0).map(|count| count * summary.tps),
        mean_ms: summary.mean_ms,
        stddev_ms: summary.stddev_ms,
        p50_ms: quantile(0.5),
        p90_ms: quantile(0.9),
        p99_ms: quantile(0.99),
        p99_9_ms: quantile(0.999),
        max_ms: outcome.latencies.max_ms().filter(|_| all_logged),
        sql_ms: per_transaction(ScriptReport::sql_ms),
        begin_ms: per_transaction(ScriptReport::begin_ms),
        end_ms: per_transaction(ScriptReport::end_ms),
        open_s: summary.connect_s,
        failed: summary.failed,
        retried: summary.retried,
        skipped: summary.skipped,
        ..Figures::default()
    };
    let statements = outcome.scripts.iter().flat_map(|script| {
        script.statements.iter().map(|statement| StatementFigures {
            script: script.name.clone(),
            text: statement.text.clone(),
            mean_ms: statement.mean_ms,
            failed: statement.failed,
        })
    });
    Measured { figures, statements: statements.collect(), seconds, samples, stalls, commands: vec![command] }
}

/// pgbench's reports, with the log's percentiles, on the axis that begins when all clients are connected.
fn seconds(outcome: &Outcome, all_logged: bool) -> Vec<Second> {
    let connect_s = outcome.summary.connect_s;
    let mut last_s: f64 = 0.0;
    let mut seconds = Vec::with_capacity(outcome.progress.len());
    for (index, report) in outcome.progress.iter().enumerate() {
        let t_s = report.elapsed_s - connect_s;
        let span_s = t_s - last_s;
        // The first report of many clients comes right behind the last log-in.
        if span_s < 0.1 {
            last_s = t_s.max(last_s);
            continue;
        }
        // pgbench divides the first one's transactions by the time to connect, too.
        let counted_s = if index == 0 { report.elapsed_s } else { span_s };
        let latencies = outcome.latencies.within(last_s, t_s);
        seconds.push(Second {
            t_s: round(t_s),
            span_s: round(span_s),
            tps: report.tps * counted_s / span_s,
            mean_ms: report.mean_ms,
            stddev_ms: report.stddev_ms,
            p99_ms: latencies.map(|(p99_ms, _)| p99_ms),
            max_ms: latencies.map(|(_, max_ms)| max_ms).filter(|_| all_logged),
            failed: report.failed,
            skipped: report.skipped,
        });
        last_s = t_s;
    }
    seconds
}

fn round(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

/// The rate without head and tail.
fn trimmed(seconds: &[Second]) -> Option<f64> {
    let end_s = seconds.last()?.t_s;
    let (from_s, to_s) = (end_s * TRIMMED_SHARE, end_s * (1.0 - TRIMMED_SHARE));
    let within = seconds.iter().filter(|second| second.t_s - second.span_s >= from_s - 0.5 && second.t_s <= to_s + 0.5);
    let (span_s, transactions) = within.fold((0.0, 0.0), |(span_s, transactions), second| {
        (span_s + second.span_s, transactions + second.tps * second.span_s)
    });
    (span_s > 0.0).then(|| transactions / span_s)
}

/// A figure of scripts, by how often each ran.
fn weighted(scripts: &[ScriptReport], of: impl Fn(&ScriptReport) -> Option<f64>) -> Option<f64> {
    let weight = |script: &ScriptReport| script.transactions.map_or(1.0, |count| count as f64);
    let parts: Vec<(f64, f64)> = scripts.iter().filter_map(|script| Some((of(script)?, weight(script)))).collect();
    let all: f64 = parts.iter().map(|(_, weight)| weight).sum();
    (all > 0.0).then(|| parts.iter().map(|(value, weight)| value * weight).sum::<f64>() / all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pgbench::{Latencies, Progress, StatementReport, Summary};

    #[test]
    fn head_and_tail_are_cut_off() {
        let second = |index: u32, tps: f64| Second { t_s: f64::from(index), span_s: 1.0, tps, ..Second::default() };
        let mut seconds: Vec<Second> = (1..=20).map(|index| second(index, 100.0)).collect();
        for index in [0, 1, 18, 19] {
            seconds[index].tps = 10.0;
        }
        assert_eq!(trimmed(&seconds), Some(100.0));
        assert_eq!(trimmed(&[]), None);
    }

    #[test]
    fn the_first_second_counts_from_the_last_log_in() {
        let report =
            |elapsed_s: f64, tps: f64| Progress { elapsed_s, tps, mean_ms: 1.0, stddev_ms: 0.0, failed: 0, skipped: 0 };
        let spans = |connect_ms: f64, progress: Vec<Progress>| {
            let summary = format!(
                "number of transactions actually processed: 0\ninitial connection time = {connect_ms} ms\ntps = 0\n"
            );
            let outcome = Outcome {
                summary: Summary::parse(&summary).unwrap(),
                progress,
                scripts: Vec::new(),
                latencies: Latencies::none().unwrap(),
                begin_unix_s: 0.0,
            };
            seconds(&outcome, true).iter().map(|second| (second.t_s, second.span_s, second.tps)).collect::<Vec<_>>()
        };
        assert_eq!(spans(600.0, vec![report(1.0, 40.0), report(2.0, 100.0)]), [(0.4, 0.4, 100.0), (1.4, 1.0, 100.0)]);
        // Behind many log-ins the first report is of nothing.
        assert_eq!(spans(2450.0, vec![report(2.5, 1.0), report(3.0, 100.0)]), [(0.55, 0.5, 100.0)]);
    }

    #[test]
    fn scripts_count_by_how_often_they_ran() {
        let script = |transactions, mean_ms| ScriptReport {
            name: String::new(),
            transactions: Some(transactions),
            statements: vec![StatementReport { text: "SELECT 1".to_owned(), mean_ms, failed: 0 }],
        };
        assert_eq!(weighted(&[script(30, 1.0), script(10, 5.0)], ScriptReport::sql_ms), Some(2.0));
        assert_eq!(weighted(&[script(30, 1.0)], ScriptReport::begin_ms), None);
    }
}
