//! Results as runs would leave them, the same each time.

use std::collections::BTreeMap;

use sluice_lab::{
    reference,
    result::{
        CaseKey, DiskProbe, DiskRow, FORMAT, Figures, GroupLimits, Machine, Measured, Outcome, RunResult, Samples,
        ScenarioSummary, Second, Server, StatementFigures, Turn,
    },
    sample::metrics,
    stall::{self, Circumstances, Confirmation},
};

/// From -1 to 1, by place: noise that is the same each time.
fn noise(seed: usize) -> f64 {
    let mixed = (seed as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

pub(super) fn machine() -> Machine {
    let row = |access: &str, block_bytes, depth, iops: f64| DiskRow {
        access: access.to_owned(),
        block_bytes,
        depth,
        iops,
        mb_per_s: iops * f64::from(block_bytes) / 1e6,
        mean_us: 1e6 / iops * f64::from(depth),
    };
    Machine {
        cpu: "AMD EPYC 7B13".to_owned(),
        cores: 2,
        memory_mb: 23_500,
        kernel: "6.1.0-18-amd64".to_owned(),
        system: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        load: Some(0.42),
        group: GroupLimits { cpus: Some(2.0), memory_mb: Some(1024), io: vec!["259:0 riops=400 wiops=400".to_owned()] },
        disk: Some(DiskProbe {
            directory: "/var/lib/sluice".to_owned(),
            device: Some("nvme0n1".to_owned()),
            rows: vec![
                row("random read", 8192, 1, 9_800.0),
                row("random read", 8192, 16, 61_000.0),
                row("sequential write", 1 << 20, 4, 830.0),
                row("write and fsync", 8192, 1, 1_240.0),
            ],
            remark: Some("Read from the host's cache in part: the file was small.".to_owned()),
        }),
        loopback_round_trip_us: Some(14.3),
    }
}

pub(super) fn server(pairs: &[(&str, &str)]) -> Server {
    Server {
        versions: vec!["PostgreSQL 15.14 (Debian 15.14-0+deb12u1)".to_owned()],
        reached: "Unix socket".to_owned(),
        settings: pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        database_bytes: Some(745_000_000),
        warm_percent: Some(99.2),
        cores: Some(2.0),
        round_trip_us: None,
        commit: None,
    }
}

fn setting(name: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_owned())])
}

/// A result without turns.
pub(super) fn empty(name: &str, title: &str) -> RunResult {
    RunResult {
        format: FORMAT,
        version: "0.1.0".to_owned(),
        scenario: ScenarioSummary {
            name: name.to_owned(),
            title: title.to_owned(),
            description: "What the load is, and what it is to show.".to_owned(),
            reference: None,
            data: "pgbench's tables, scale 50, 745 MB".to_owned(),
        },
        command: format!("sluice bench {name} --rounds 3"),
        started_unix_s: 1_767_225_600,
        cut_short: None,
        machine: machine(),
        servers: BTreeMap::new(),
        conditions: [("protocol", "prepared"), ("seconds", "60")].map(|(a, b)| (a.to_owned(), b.to_owned())).into(),
        variants: BTreeMap::from([("unlogged".to_owned(), setting("synchronous_commit", "off"))]),
        turns: Vec::new(),
        remarks: Vec::new(),
    }
}

/// A turn that was measured.
pub(super) fn turn(case: (&str, u32, &str), round: u32, figures: Figures) -> Turn {
    let measured = Measured {
        figures,
        statements: Vec::new(),
        seconds: Vec::new(),
        samples: Samples::default(),
        stalls: Vec::new(),
        commands: vec![format!("pgbench -n -M prepared -c {} -j 2 -T 60 app", case.1)],
    };
    Turn { case: key(case), round, outcome: Outcome::Measured(measured) }
}

pub(super) fn key((variant, clients, target): (&str, u32, &str)) -> CaseKey {
    CaseKey { variant: variant.to_owned(), clients, target: target.to_owned() }
}

/// The part of a turn that was measured.
pub(super) fn measured(turn: &mut Turn) -> &mut Measured {
    match &mut turn.outcome {
        Outcome::Measured(measured) => measured,
        other => panic!("{other:?}"),
    }
}

/// Figures around a throughput.
pub(super) fn figures(tps: f64, mean_ms: f64) -> Figures {
    Figures {
        seconds: 60.0,
        transactions: (60.0 * tps) as u64,
        tps,
        tps_trimmed: Some(1.02 * tps),
        qps: Some(7.0 * tps),
        mean_ms,
        stddev_ms: 0.6 * mean_ms,
        p50_ms: Some(0.8 * mean_ms),
        p90_ms: Some(1.9 * mean_ms),
        p99_ms: Some(3.4 * mean_ms),
        p99_9_ms: Some(7.0 * mean_ms),
        max_ms: Some(11.0 * mean_ms),
        sql_ms: Some(0.7 * mean_ms),
        begin_ms: Some(0.1 * mean_ms),
        end_ms: Some(0.2 * mean_ms),
        open_s: 0.8,
        postgres_cpu_us_per_tx: Some(310.0),
        ..Figures::default()
    }
}

/// The session-log test with its two variants, from the reference series; a checkpoint explains the first one's stalls.
pub(super) fn session_log() -> RunResult {
    let mut result = empty("session-log", "The session log, with its update and without");
    result.scenario.description = "A user is read by key, the session updated and the login logged, by 16 clients for \
                                   300 s; then the same without the update."
        .to_owned();
    result.servers =
        BTreeMap::from([("straight".to_owned(), server(&[("shared_buffers", "256MB"), ("work_mem", "4MB")]))]);
    for (variant, series) in [
        ("with-update", reference::session_log_with_update()),
        ("without-update", reference::session_log_without_update()),
    ] {
        let seconds = by_second(&series);
        let tps = seconds.iter().map(|second| second.tps).sum::<f64>() / seconds.len() as f64;
        let mut turn = turn((variant, 16, "straight"), 1, Figures { seconds: 300.0, ..figures(tps, 16_000.0 / tps) });
        let measured = measured(&mut turn);
        measured.stalls = stall::detect(&seconds);
        measured.samples = checkpoint_samples(&seconds, &measured.stalls);
        stall::attribute(&mut measured.stalls, &measured.samples, Circumstances { iops_max: Some(400.0), cores: 2.0 });
        if let Some(finding) = measured.stalls.first_mut().and_then(|stall| stall.findings.first_mut()) {
            finding.confirmation = Some(Confirmation {
                confirmed: true,
                without: "checkpoint_timeout = 1h".to_owned(),
                stalled_before: 0.29,
                stalled_after: 0.0,
                causes_after: Vec::new(),
            });
        }
        measured.statements = ["SELECT * FROM userinfo WHERE userid = :id", "SELECT session_log(:id)"]
            .iter()
            .zip([0.4, 3.1])
            .map(|(text, mean_ms)| statement(text, mean_ms))
            .collect();
        measured.samples.missing =
            vec!["The group's I/O figures: this machine has control groups of version 1.".to_owned()];
        measured.seconds = seconds;
        result.turns.push(turn);
    }
    result
        .remarks
        .push("The limit of 400 I/O requests a second was not enforced: the group has no such controller.".to_owned());
    result
}

/// A second each, with what the report's lines of five seconds do not have.
fn by_second(series: &[Second]) -> Vec<Second> {
    let spread = series.iter().flat_map(|line| std::iter::repeat_n(line, line.span_s.round() as usize));
    let second = |(nth, line): (usize, &Second)| {
        let mean_ms = line.mean_ms * (1.0 + 0.1 * noise(nth));
        Second {
            t_s: nth as f64 + 1.0,
            span_s: 1.0,
            tps: line.tps * (1.0 + 0.06 * noise(nth + 7)),
            mean_ms,
            stddev_ms: line.stddev_ms,
            p99_ms: Some(mean_ms + 2.3 * line.stddev_ms),
            max_ms: Some(mean_ms + 6.0 * line.stddev_ms * (1.2 + noise(nth + 3))),
            ..Second::default()
        }
    };
    spread.enumerate().map(second).collect()
}

/// A checkpoint in the stalls, images of pages after it, and little to do otherwise.
fn checkpoint_samples(seconds: &[Second], stalls: &[stall::Stall]) -> Samples {
    let mut samples = Samples::default();
    for (nth, second) in seconds.iter().enumerate() {
        let is_stalled = stalls.iter().any(|stall| stall.covers(second.t_s));
        let around = |value: f64| (value * (1.0 + 0.25 * noise(5 * nth + value as usize))).max(0.0);
        let pick = |inside: f64, outside: f64| around(if is_stalled { inside } else { outside });
        samples.t_s.push(second.t_s);
        for (column, value) in [
            (metrics::ACTIVE, pick(15.0, 4.5)),
            (metrics::ON_CPU, pick(1.2, 2.6)),
            ("wait.IO", pick(11.0, 0.4)),
            ("wait.LWLock", pick(2.0, 0.5)),
            ("wait.Client", pick(0.3, 0.7)),
            (metrics::CHECKPOINT, f64::from(u8::from(is_stalled))),
            (metrics::CHECKPOINT_BUFFERS, pick(350.0, 0.0)),
            (metrics::BACKEND_BUFFERS, pick(40.0, 3.0)),
            (metrics::WAL_BYTES, pick(4.2, 1.7)),
            (metrics::WAL_IMAGES, pick(300.0, 4.0)),
            (metrics::WAL_IMAGES_PER_TX, pick(0.9, 0.01)),
            (metrics::GROUP_WRITES, pick(398.0, 95.0).min(400.0)),
            (metrics::DISK_WRITE_MB, pick(6.8, 2.4)),
            (metrics::PRESSURE_IO, pick(80.0, 4.0).min(100.0)),
            (metrics::CPU_POSTGRES, pick(0.3, 1.1)),
            (metrics::CPU_PGBENCH, pick(0.1, 0.4)),
            (metrics::CPU_OTHERS, pick(0.1, 0.1)),
        ] {
            samples.put(column, value);
        }
    }
    samples.even_out();
    describe(&mut samples);
    samples
}

fn describe(samples: &mut Samples) {
    samples.metrics = samples.columns.keys().map(|column| (column.clone(), metrics::describe(column))).collect();
}

fn statement(text: &str, mean_ms: f64) -> StatementFigures {
    StatementFigures { script: "script.sql".to_owned(), text: text.to_owned(), mean_ms, failed: 0 }
}

/// Throughput by clients: straight, with the gate, through the pool.
const LADDER: [(u32, [f64; 3]); 9] = [
    (64, [5_010.0, 4_980.0, 4_340.0]),
    (128, [4_400.0, 4_900.0, 4_310.0]),
    (256, [3_200.0, 4_650.0, 4_280.0]),
    (512, [2_050.0, 3_900.0, 4_250.0]),
    (1_024, [1_284.0, 2_737.0, 4_190.0]),
    (2_048, [830.0, 2_400.0, 4_020.0]),
    (4_096, [410.0, 2_010.0, 3_880.0]),
    (8_192, [160.0, 1_650.0, 3_610.0]),
    (16_384, [0.0, 1_210.0, 3_300.0]),
];
const TARGETS: [&str; 3] = ["straight", "gate", "pool"];

/// Statements of pgbench's TPC-B, each with its share of the SQL inside.
const TPCB: [(&str, f64); 7] = [
    ("BEGIN;", 0.0),
    ("UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;", 0.08),
    ("SELECT abalance FROM pgbench_accounts WHERE aid = :aid;", 0.02),
    ("UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;", 0.36),
    ("UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;", 0.5),
    (
        "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);",
        0.04,
    ),
    ("END;", 0.0),
];

/// A whole ladder, 9 steps × 3 targets × 3 rounds; straight connections break at the last.
pub(super) fn ladder() -> RunResult {
    let mut result = empty("tpcb-ladder", "The concurrency ladder: TPC-B at 64 to 16,384 connections");
    result.scenario.reference = Some("tpcb_ladder.csv".to_owned());
    let common = [("max_connections", "17000"), ("shared_buffers", "4GB"), ("synchronous_commit", "off")];
    let gated =
        [common.as_slice(), &[("sluice.transaction_limit", "32"), ("shared_preload_libraries", "sluice")]].concat();
    result.servers = BTreeMap::from([
        ("straight".to_owned(), server(&common)),
        ("gate".to_owned(), server(&gated)),
        ("pool".to_owned(), server(&common)),
    ]);
    for (clients, rates) in LADDER {
        for round in 1..=3 {
            for (nth, (target, tps)) in TARGETS.into_iter().zip(rates).enumerate() {
                let case = ("logged", clients, target);
                if tps == 0.0 {
                    let why = "FATAL: sorry, too many clients already".to_owned();
                    result.turns.push(Turn { case: key(case), round, outcome: Outcome::Broken(why) });
                    continue;
                }
                result.turns.push(ladder_turn(case, round, tps * (1.0 + 0.04 * noise(nth + 3 * round as usize))));
            }
        }
    }
    result
}

fn ladder_turn((variant, clients, target): (&str, u32, &str), round: u32, tps: f64) -> Turn {
    let mean_ms = 1000.0 * f64::from(clients) / tps;
    let is_straight = target == "straight";
    let sql_ms = if is_straight { 0.85 * mean_ms } else { 5.0 + 0.002 * mean_ms };
    let figures = Figures {
        sql_ms: Some(sql_ms),
        begin_ms: Some(if is_straight { 0.05 } else { 0.98 } * mean_ms),
        end_ms: Some(if is_straight { 0.1 } else { 0.01 } * mean_ms),
        open_s: f64::from(clients) / 400.0,
        close_s: (target != "pool").then_some(f64::from(clients) / 2_000.0),
        postgres_cpu_us_per_tx: Some(if is_straight { 1_500.0 } else { 420.0 }),
        pool_cpu_us_per_tx: (target == "pool").then_some(74.0),
        ..figures(tps, mean_ms)
    };
    let mut turn = turn((variant, clients, target), round, figures);
    let measured = measured(&mut turn);
    let seed = clients as usize + 31 * round as usize;
    for nth in 0..60 {
        let rate = tps * (1.0 + 0.12 * noise(seed + nth));
        let rate = if is_straight && clients >= 2_048 && (22..31).contains(&nth) { 0.04 * rate } else { rate };
        measured.seconds.push(Second {
            t_s: nth as f64 + 1.0,
            span_s: 1.0,
            tps: rate,
            mean_ms: mean_ms * (1.0 + 0.1 * noise(seed + 2 * nth)),
            stddev_ms: 0.6 * mean_ms,
            p99_ms: Some(3.4 * mean_ms * (1.0 + 0.2 * noise(seed + 3 * nth))),
            max_ms: Some(9.0 * mean_ms * (1.0 + 0.3 * noise(seed + 4 * nth))),
            ..Second::default()
        });
        let active = if is_straight { f64::from(clients) } else { 32.0 };
        let samples = &mut measured.samples;
        samples.t_s.push(nth as f64 + 1.0);
        let waiting = |share: f64| (share * active * (1.0 + 0.2 * noise(seed + nth))).round();
        samples.put(metrics::ACTIVE, active);
        samples.put(metrics::ON_CPU, waiting(if is_straight { 0.04 } else { 0.3 }));
        samples.put("wait.Lock", waiting(if is_straight { 0.8 } else { 0.3 }));
        samples.put("wait.LWLock", waiting(0.1));
        if nth % 3 == 0 {
            samples.put("wait.BufferPin", waiting(0.03));
        }
        samples.put(metrics::CPU_POSTGRES, 1.4 + 0.1 * noise(seed + nth));
        samples.put(metrics::CPU_PGBENCH, 0.4 + 0.05 * noise(seed + 9 * nth));
        if target == "gate" {
            samples.put(metrics::GATE_LIMIT, 32.0);
            samples.put(metrics::GATE_RUNNING, 32.0_f64.min(f64::from(clients)));
            samples.put(metrics::GATE_WAITING, (f64::from(clients) - 32.0).max(0.0));
        }
    }
    measured.samples.even_out();
    describe(&mut measured.samples);
    measured.stalls = stall::detect(&measured.seconds);
    stall::attribute(&mut measured.stalls, &measured.samples, Circumstances { iops_max: None, cores: 2.0 });
    measured.statements = TPCB
        .iter()
        .map(|(text, share)| match *text {
            "BEGIN;" => statement(text, measured.figures.begin_ms.unwrap_or_default()),
            "END;" => statement(text, measured.figures.end_ms.unwrap_or_default()),
            text => statement(text, share * sql_ms),
        })
        .collect();
    turn
}

/// A small result whose page fits a screen: two targets, one load, one turn each.
pub(super) fn small() -> RunResult {
    let mut result = empty("tpcb", "TPC-B, with <the gate> & without");
    result.machine.disk = None;
    result.servers = BTreeMap::from([
        ("straight".to_owned(), server(&[("work_mem", "4MB")])),
        ("gate".to_owned(), server(&[("work_mem", "4MB"), ("sluice.transaction_limit", "32")])),
    ]);
    for (target, tps, sql_ms) in [("straight", 1_284.0, 690.0), ("gate", 2_737.0, 17.0)] {
        let mean_ms = 1_000_000.0 / tps;
        let mut turn = turn(("", 1_000, target), 1, Figures { sql_ms: Some(sql_ms), ..figures(tps, mean_ms) });
        let measured = measured(&mut turn);
        for nth in 0..5 {
            let t_s = f64::from(nth) + 1.0;
            measured.seconds.push(Second { t_s, span_s: 1.0, tps, mean_ms, ..Second::default() });
        }
        measured.statements = vec![statement("UPDATE t SET a = 1 WHERE b < '</script>';", 0.9 * sql_ms)];
        result.turns.push(turn);
    }
    result.remarks.push("The machine was busy at the start: load 3.1.".to_owned());
    result
}
