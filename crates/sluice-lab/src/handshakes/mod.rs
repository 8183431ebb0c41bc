//! Whole TLS handshakes, as many as a server does: what bounds log-ins where clients come and go.
//!
//! Nothing else is measured with them, so no pgbench is there, and no tables: it is no scenario. The server has its own
//! processors and the clients have the others, so that neither is slowed down by the other, and how busy both were says
//! who was the bound. PostgreSQL forks a process for each connection, before it knows what that is for.

mod client;
mod halves;

use std::{
    fs::Permissions,
    net::Ipv4Addr,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use sluice_instance::{Class, RunAs, certificate_in};

use self::{
    client::Clients,
    halves::{Halves, pin},
};
use crate::{
    error::Error,
    proc::tree_cpu_exact_s,
    process::{self, Interrupt},
    server::{Server, Settings},
    stats::median,
    table::table,
    target::{Kind, Pool, Target},
};

/// Connections at once: enough that the server always has work, few enough for any server.
const CLIENTS: u32 = 16;
/// Time before a turn, in which caches and processor clocks come to rest.
const WARM_UP: Duration = Duration::from_millis(500);
/// Time to make a key.
const KEY_MAX: Duration = Duration::from_secs(60);

/// The key of the certificate that all servers show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// ECDSA by P-256.
    Ecdsa,
    /// RSA of 2048 bits.
    Rsa,
}

impl KeyKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Ecdsa, Self::Rsa];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ecdsa => "ecdsa",
            Self::Rsa => "rsa",
        }
    }
}

/// The measurement that is wanted.
pub struct Bench<'a> {
    /// The targets: the first one is compared with the others.
    pub targets: &'a [Target],
    /// Length of a turn.
    pub seconds: u32,
    /// Turns of each target.
    pub turns: u32,
    /// Directory of PostgreSQL's programs.
    pub pg_bin: Option<&'a Path>,
    /// Told of each turn.
    pub see: &'a dyn Fn(&str),
    /// Ends it.
    pub interrupt: &'a Interrupt,
}

/// One turn of one target.
#[derive(Clone, Copy)]
struct Figures {
    per_s: f64,
    /// The server's processor time for each.
    cpu_us: f64,
    /// The share of their processors that the server and the clients used.
    server_busy: f64,
    clients_busy: f64,
}

/// The turns of each target, in order.
type Results = Vec<(String, Vec<Figures>)>;

impl Bench<'_> {
    /// Measures all targets with certificates of that kind, and returns the table.
    pub fn run(&self, keys: KeyKind) -> Result<String, Error> {
        self.targets.iter().try_for_each(check)?;
        // PgBouncer runs as another user, and reads its files there.
        let dir = tempfile::Builder::new().prefix("sluice-").permissions(Permissions::from_mode(0o755)).tempdir();
        let dir = dir.map_err(Error::io("create a folder for servers and certificates"))?;
        let halves = Halves::of_this_machine()?;
        // What is started from here is the server's side.
        pin(&halves.server)?;
        let results = self.results(keys, dir.path(), &halves);
        pin(&[&halves.server[..], &halves.clients].concat())?;
        Ok(summary(keys, &results?))
    }

    fn results(&self, keys: KeyKind, dir: &Path, halves: &Halves) -> Result<Results, Error> {
        let mut server = Server::create(&dir.join("postgres"), self.pg_bin, self.interrupt)?;
        let settings = certificate(dir, keys, server.run_as(), self.interrupt)?;
        server.ensure(&settings, Class::default())?;
        let mut results: Results = self.targets.iter().map(|target| (target.name.clone(), Vec::new())).collect();
        for round in 0..self.turns as usize {
            for place in 0..self.targets.len() {
                let nth = (place + round) % self.targets.len();
                let figures = self.turn(&self.targets[nth], &server, dir, halves)?;
                let Figures { per_s, cpu_us, .. } = figures;
                let (name, keys) = (&self.targets[nth].name, keys.name());
                (self.see)(&format!("{keys}, {name}, turn {}: {per_s:.0} handshakes/s, {cpu_us:.0} µs", round + 1));
                results[nth].1.push(figures);
            }
        }
        Ok(results)
    }

    fn turn(&self, target: &Target, server: &Server, dir: &Path, halves: &Halves) -> Result<Figures, Error> {
        let pool = target.pool().map(|kind| Pool::start(kind, server, CLIENTS, dir, self.interrupt)).transpose()?;
        let (port, process) = match &pool {
            Some(pool) => (pool.port, Some(pool.id())),
            None => (server.port(), server.postmaster()),
        };
        let process = process.ok_or_else(|| Error::Server("PostgreSQL is not running".to_owned()))?;
        let clients = Clients::new(port)?;
        thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| clients.shake_hands(&halves.clients))).collect();
            let mark = || (Instant::now(), tree_cpu_exact_s(process), clients.done());
            let slept = self.interrupt.sleep(WARM_UP);
            let (begin, cpu_s, done) = mark();
            let slept = slept.and_then(|()| self.interrupt.sleep(Duration::from_secs(self.seconds.into())));
            let (end, cpu_end_s, done_end) = mark();
            clients.end();
            // Of the whole time, warm-up included.
            let clients_s = joined(threads)?;
            slept?;
            let seconds = (end - begin).as_secs_f64();
            let (done, cpu_s) = ((done_end - done) as f64, cpu_end_s - cpu_s);
            if done == 0.0 {
                return Err(Error::Server(format!("{target}: no handshake was done")));
            }
            Ok(Figures {
                per_s: done / seconds,
                cpu_us: cpu_s * 1e6 / done,
                server_busy: cpu_s / seconds / halves.server.len() as f64,
                clients_busy: clients_s / (seconds + WARM_UP.as_secs_f64()) / halves.clients.len() as f64,
            })
        })
    }
}

/// The processor time of all threads, or the first error.
fn joined(threads: Vec<ScopedJoinHandle<'_, Result<f64, Error>>>) -> Result<f64, Error> {
    let mut sum_s = 0.0;
    for thread in threads {
        let panicked = || Err(Error::Server("a client's thread has panicked".to_owned()));
        sum_s += thread.join().unwrap_or_else(|_| panicked())?;
    }
    Ok(sum_s)
}

/// An error for a target that shakes no hands, or is not to be had.
fn check(target: &Target) -> Result<(), Error> {
    if let Some(why) = target.lacks(false) {
        return Err(Error::Lacking(format!("{target}: {why}")));
    }
    let has_tls = target.pool().map_or(matches!(target.kind, Kind::Straight), |pool| pool.tls);
    let before_one = target.nodes().is_none();
    if has_tls && before_one {
        return Ok(());
    }
    Err(Error::Input(format!("{target} does no TLS here\nchoose from pool-tls, pgbouncer-tls, straight")))
}

/// Makes the certificate that all of them show, in the place where pools look for theirs; returns PostgreSQL's settings.
fn certificate(dir: &Path, keys: KeyKind, owner: &RunAs, interrupt: &Interrupt) -> Result<Settings, Error> {
    if keys == KeyKind::Rsa {
        let openssl = process::find_in_path("openssl").unwrap_or_else(|| PathBuf::from("openssl"));
        let mut command = process::command(&openssl, "KILL");
        command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=localhost"]);
        command.arg("-keyout").arg(dir.join("server.key")).arg("-out").arg(dir.join("server.crt"));
        process::output("openssl, which makes keys of RSA", command, KEY_MAX, interrupt)?;
    }
    let files = certificate_in(dir, Ipv4Addr::LOCALHOST.into()).map_err(Error::file("make a certificate in", dir))?;
    let mut settings = Settings::from([("ssl".to_owned(), "on".to_owned())]);
    for (name, file) in [("ssl_cert_file", &files.cert), ("ssl_key_file", &files.key)] {
        if owner.switches() {
            chown(file, Some(owner.uid()), Some(owner.gid())).map_err(Error::file("give away", file))?;
        }
        settings.insert(name.to_owned(), file.display().to_string());
    }
    Ok(settings)
}

/// Medians; of the first target beside each other, the median of the ratios within each round.
fn summary(keys: KeyKind, results: &Results) -> String {
    let first = results.first();
    let name = first.map_or("", |(name, _)| name);
    let (rate, cost) = (format!("{name} / this"), format!("CPU: {name} / this"));
    let head = ["key", "target", "handshakes/s", &rate, "server's CPU, µs each", &cost, "server busy", "clients busy"];
    let row = |(target, turns): &(String, Vec<Figures>)| {
        let of = |figure: fn(&Figures) -> f64, digits: usize| {
            median(turns.iter().map(figure)).map_or("–".to_owned(), |value| format!("{value:.digits$}"))
        };
        let ratio = |figure: fn(&Figures) -> f64| {
            let firsts = first.into_iter().filter(|(name, _)| name != target).flat_map(|(_, turns)| turns);
            let ratios = firsts.zip(turns).map(|(first, this)| figure(first) / figure(this));
            median(ratios).map_or("–".to_owned(), |ratio| format!("{ratio:.2}"))
        };
        vec![
            keys.name().to_owned(),
            target.clone(),
            of(|turn| turn.per_s, 0),
            ratio(|turn| turn.per_s),
            of(|turn| turn.cpu_us, 0),
            ratio(|turn| turn.cpu_us),
            of(|turn| turn.server_busy * 100.0, 0) + " %",
            of(|turn| turn.clients_busy * 100.0, 0) + " %",
        ]
    };
    table(&head, &results.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_target_is_held_against_the_others_round_by_round() {
        let turn = |per_s, cpu_us| Figures { per_s, cpu_us, server_busy: 1.0, clients_busy: 0.25 };
        let results = vec![
            ("pool-tls".to_owned(), vec![turn(1000.0, 100.0), turn(2000.0, 100.0), turn(900.0, 90.0)]),
            ("straight".to_owned(), vec![turn(500.0, 400.0), turn(500.0, 400.0), turn(300.0, 900.0)]),
        ];
        let table = summary(KeyKind::Ecdsa, &results);
        for line in [
            "| ecdsa | pool-tls | 1000 | – | 100 | – | 100 % | 25 % |",
            "| ecdsa | straight | 500 | 3.00 | 400 | 0.25 | 100 % | 25 % |",
        ] {
            let is_it = |found: &str| found.split_whitespace().eq(line.split_whitespace());
            assert!(table.lines().any(is_it), "{table}");
        }
    }

    #[test]
    fn targets_without_handshakes_are_refused() {
        let check = |name: &str| check(&name.parse().unwrap()).map_err(|error| error.to_string());
        assert_eq!(check("straight"), Ok(()));
        assert!(check("pool").unwrap_err().contains("does no TLS"));
        assert!(check("nodes-1").unwrap_err().contains("does no TLS"));
    }
}
