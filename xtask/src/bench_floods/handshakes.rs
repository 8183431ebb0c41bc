//! Whole TLS handshakes, as many as a server does: what bounds log-ins where clients come and go.
//!
//! Nothing else is measured with them: clients say SSLRequest, complete a handshake of TLS 1.3 without resumption, and
//! close. The server has its own processors and the clients have the others, so that neither is slowed down by the other,
//! and how busy both were says who was the bound. PostgreSQL forks a process for each connection, before it knows what
//! that is for.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, HandshakeKind, SignatureScheme, version};
use sluice_instance::{Class, RunAs, certificate_in};
use sluice_lab::proc::{thread_cpu_s, tree_cpu_exact_s};
use sluice_lab::process::Interrupt;
use sluice_lab::server::{Server, Settings};
use sluice_lab::stats::median;
use sluice_lab::table::table;
use sluice_lab::target::{Kind, Pool, PoolKind, Target};
use sluice_wire::startup::SSL_REQUEST_PACKET;

/// Connections at once: enough that the server always has work, few enough for any server.
const CLIENTS: u32 = 16;

/// Time for the server to answer anything.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Time before a turn, in which caches and processor clocks come to rest.
const WARM_UP: Duration = Duration::from_millis(500);

/// The key of the certificate that all servers show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum KeyKind {
    /// ECDSA by P-256.
    Ecdsa,
    /// RSA of 2048 bits.
    Rsa,
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

/// The processors of the server, and those of the clients: half of them each.
struct Halves {
    server: Vec<usize>,
    clients: Vec<usize>,
}

/// The means to measure.
pub(crate) struct Bench<'a> {
    /// Sluice's program.
    pub(crate) sluice: &'a Path,
    /// The targets: the first one is compared with the others.
    pub(crate) targets: &'a [Target],
    /// Length and number of turns.
    pub(crate) seconds: u32,
    pub(crate) turns: u32,
    pub(crate) scratch: &'a Path,
    pub(crate) interrupt: &'a Interrupt,
}

impl Bench<'_> {
    /// Measures all targets with certificates of that kind, and returns the table.
    pub(crate) fn run(&self, keys: KeyKind) -> Result<String> {
        for target in self.targets {
            let has_tls = target.pool().map_or(matches!(target.kind, Kind::Straight), |pool| pool.tls);
            ensure!(has_tls, "{target} does no TLS: choose from pool-tls, pgbouncer-tls, straight");
        }
        let dir = self.scratch.join(keys.name());
        fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
        let halves = Halves::of_this_machine()?;
        // What is started from here is the server's side.
        pin(&halves.server)?;
        let mut server = Server::create(&dir.join("postgres"), None, self.interrupt)?;
        let settings = certificate(&dir, keys, server.run_as())?;
        server.ensure(&settings, Class::default())?;
        let mut results: Results = self.targets.iter().map(|target| (target.name.clone(), Vec::new())).collect();
        for round in 0..self.turns as usize {
            for place in 0..self.targets.len() {
                let nth = (place + round) % self.targets.len();
                let figures = self.turn(&self.targets[nth], &server, &dir, &halves)?;
                eprintln!(
                    "{} {:<15} {} {:>6.0} handshakes/s, {:.0} µs",
                    round + 1,
                    self.targets[nth].name,
                    keys.name(),
                    figures.per_s,
                    figures.cpu_us
                );
                results[nth].1.push(figures);
            }
        }
        Ok(summary(keys, &results))
    }

    fn turn(&self, target: &Target, server: &Server, dir: &Path, halves: &Halves) -> Result<Figures> {
        let pool = match target.pool() {
            Some(found) => {
                let kind = PoolKind { build: Some(self.sluice.to_owned()), ..found.clone() };
                Some(Pool::start(&kind, server, CLIENTS, dir, self.interrupt)?)
            }
            None => None,
        };
        let (port, process) = match &pool {
            Some(pool) => (pool.port, pool.id()),
            None => (server.port(), server.postmaster().context("PostgreSQL is not running")?),
        };
        let clients = Clients { config: client_config()?, port, done: AtomicU64::new(0), ends: AtomicBool::new(false) };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| clients.shake_hands(&halves.clients))).collect();
            let mark = || (Instant::now(), tree_cpu_exact_s(process), clients.done.load(Ordering::Relaxed));
            let slept = self.interrupt.sleep(WARM_UP);
            let (begin, cpu_s, done) = mark();
            let slept = slept.and_then(|()| self.interrupt.sleep(Duration::from_secs(self.seconds.into())));
            let (end, cpu_end_s, done_end) = mark();
            clients.ends.store(true, Ordering::Relaxed);
            // Of the whole time, warm-up included.
            let mut clients_s = 0.0;
            for thread in threads {
                let Ok(cpu_s) = thread.join() else { bail!("a client's thread has panicked") };
                clients_s += cpu_s?;
            }
            slept?;
            let seconds = (end - begin).as_secs_f64();
            let (done, cpu_s) = ((done_end - done) as f64, cpu_end_s - cpu_s);
            ensure!(done > 0.0, "{target}: no handshake was done");
            Ok(Figures {
                per_s: done / seconds,
                cpu_us: cpu_s * 1e6 / done,
                server_busy: cpu_s / seconds / halves.server.len() as f64,
                clients_busy: clients_s / (seconds + WARM_UP.as_secs_f64()) / halves.clients.len() as f64,
            })
        })
    }
}

/// Those who shake hands, one after another in each thread.
struct Clients {
    config: Arc<ClientConfig>,
    port: u16,
    done: AtomicU64,
    ends: AtomicBool,
}

impl Clients {
    /// One thread's part; returns the processor time that it took.
    fn shake_hands(&self, processors: &[usize]) -> Result<f64> {
        pin(processors)?;
        let before_s = thread_cpu_s();
        while !self.ends.load(Ordering::Relaxed) {
            // Whoever fails, fails for all: a server that refuses some is not compared.
            if let Err(error) = shake_hands(self.port, &self.config) {
                self.ends.store(true, Ordering::Relaxed);
                return Err(error).context("a handshake failed");
            }
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(thread_cpu_s() - before_s)
    }
}

/// One connection: SSLRequest, a handshake, and both sides' ends. When it returns, the server has done all of its part.
fn shake_hands(port: u16, config: &Arc<ClientConfig>) -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_nodelay(true)?;
    stream.write_all(&SSL_REQUEST_PACKET)?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    ensure!(answer == *b"S", "the server does no TLS");
    let mut session = ClientConnection::new(Arc::clone(config), ServerName::try_from("localhost")?)?;
    while session.is_handshaking() || session.wants_write() {
        session.complete_io(&mut stream)?;
    }
    // PostgreSQL before 18 knows one curve, P-256, and asks those for it that begin with another one, as libpq does.
    let is_full =
        matches!(session.handshake_kind(), Some(HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest));
    ensure!(is_full, "the session was resumed");
    session.send_close_notify();
    session.write_tls(&mut stream)?;
    stream.shutdown(Shutdown::Write)?;
    let mut rest = [0; 4096];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // It has closed without reading our last words.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// TLS 1.3, whatever the certificate: to verify it is the client's work alone.
fn client_config() -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(ring::default_provider());
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(schemes)))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Believes everybody, with these signature schemes.
#[derive(Debug)]
struct Anybody(Vec<SignatureScheme>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

impl KeyKind {
    fn name(self) -> &'static str {
        match self {
            Self::Ecdsa => "ecdsa",
            Self::Rsa => "rsa",
        }
    }
}

/// Makes the certificate that all of them show, in the place where pools look for theirs; returns PostgreSQL's settings.
fn certificate(dir: &Path, keys: KeyKind, owner: &RunAs) -> Result<Settings> {
    if keys == KeyKind::Rsa {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=localhost"]);
        openssl.arg("-keyout").arg(dir.join("server.key")).arg("-out").arg(dir.join("server.crt"));
        let made = openssl.output().context("run openssl, which makes keys of RSA")?;
        ensure!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
    }
    let files = certificate_in(dir, Ipv4Addr::LOCALHOST.into())?;
    let mut settings = Settings::from([("ssl".to_owned(), "on".to_owned())]);
    for (name, file) in [("ssl_cert_file", &files.cert), ("ssl_key_file", &files.key)] {
        if owner.switches() {
            chown(file, Some(owner.uid()), Some(owner.gid()))?;
        }
        settings.insert(name.to_owned(), file.display().to_string());
    }
    Ok(settings)
}

impl Halves {
    /// With a single processor both have that one.
    fn of_this_machine() -> Result<Self> {
        let allowed = sched_getaffinity(None).context("read the processors of this process")?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
        let (server, clients) = all.split_at(all.len() / 2);
        let server = if server.is_empty() { clients } else { server };
        Ok(Self { server: server.to_vec(), clients: clients.to_vec() })
    }
}

/// Has this thread, and what it starts, run on these processors.
fn pin(processors: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    processors.iter().for_each(|processor| set.set(*processor));
    sched_setaffinity(None, &set).context("choose processors")
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
    use std::net::TcpListener;

    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::{ServerConfig, ServerConnection};

    use super::*;

    #[test]
    fn handshakes_are_whole_and_nothing_is_resumed() {
        let dir = tempfile::tempdir().unwrap();
        let files = certificate_in(dir.path(), Ipv4Addr::LOCALHOST.into()).unwrap();
        let config = ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_file(&files.cert).unwrap()],
                PrivateKeyDer::from_pem_file(&files.key).unwrap(),
            )
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            for _ in 0..2 {
                let mut stream = listener.accept().unwrap().0;
                stream.read_exact(&mut [0; SSL_REQUEST_PACKET.len()]).unwrap();
                stream.write_all(b"S").unwrap();
                let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
                while session.is_handshaking() || session.wants_write() {
                    session.complete_io(&mut stream).unwrap();
                }
                assert_eq!(session.handshake_kind(), Some(HandshakeKind::Full));
                while session.read_tls(&mut stream).unwrap() > 0 {
                    session.process_new_packets().unwrap();
                }
            }
        });
        let client = client_config().unwrap();
        for _ in 0..2 {
            shake_hands(port, &client).unwrap();
        }
        server.join().unwrap();
        assert!(shake_hands(port, &client).is_err());
    }

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
    fn processors_are_shared_out() {
        let Halves { server, clients } = Halves::of_this_machine().unwrap();
        assert!(!server.is_empty() && (server == clients || server.iter().all(|one| !clients.contains(one))));
    }
}
