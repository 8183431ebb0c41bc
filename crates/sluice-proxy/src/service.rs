//! The pool as a service of this process: started from a configuration, stopped in order.

use std::{
    io,
    net::SocketAddr,
    os::unix::net::UnixListener,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc as std_mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use sluice_config::DriverChoice;
use sluice_control::Control;
use sluice_core::{
    hub::{Hub, Nonces},
    io::Address,
    mail::Mail,
    time::Time,
};
use thiserror::Error;
use tokio::sync::mpsc;

use crate::{
    asked,
    clusters::Suspicion,
    console::{self, Console, Listens},
    control::{self, Office, Order},
    desk::{Desk, Private},
    files, handshakes,
    host::Host,
    http::{self, Told},
    identify,
    inherited::{InheritError, Inherited, MockSeed},
    listening::{ListenError, Listening},
    lookup::{self, Asker},
    mailbox::{self, Mailboxes, Parcel},
    net::{System, epoll::Epoll, sockets, uring::Uring},
    open_files::{OpenFiles, check_open_files},
    pulse::{Pulse, Turns},
    reload::Reloader,
    resolver::Resolver,
    stats,
    successor::Bequest,
    worker::{Setup, Worker, default_workers},
};

/// Turns of a worker in which it stops to accept: in the first it hears of it, in the second the kernel does, and the
/// third brings what was accepted before that.
const TURNS_TO_STOP: usize = 3;

/// Time limit for such a turn.
const TURN_TIME_MAX: Duration = Duration::from_secs(1);

/// Reasons why the service does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address can't be listened on.
    #[error("{0}")]
    Listen(#[from] ListenError),
    /// The sockets that this process was started with can't be used.
    #[error("{0}")]
    Inherit(#[from] InheritError),
    /// The driver that the configuration demands does not work here.
    #[error(
        "the driver \"{driver}\" does not work here: {error}\n  set driver = \"auto\" or \"epoll\", or allow io_uring (Linux 6.1 or later; /proc/sys/kernel/io_uring_disabled must be 0; containers often forbid it)"
    )]
    Driver {
        /// Its name.
        driver: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// The process may not have as many files open as the limits demand.
    #[error("{0}")]
    OpenFiles(#[from] OpenFiles),
    /// The configuration can't be used, or a file that it names.
    #[error("{0}")]
    Files(#[from] sluice_config::Report),
    /// The system refused something else.
    #[error("can't {what}: {error}")]
    System {
        /// The action that was tried.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

/// A running pool.
#[derive(Debug)]
pub struct Service {
    listening: Listening,
    driver: &'static str,
    mailboxes: Arc<Mailboxes>,
    workers: Vec<JoinHandle<io::Result<()>>>,
    handshakes: Vec<JoinHandle<()>>,
    control: Option<JoinHandle<()>>,
    orders: mpsc::Sender<Order>,
    reloader: Arc<Reloader>,
    hub: Arc<Hub>,
    epoch: Instant,
    turns: Vec<Turns>,
    /// The socket for cancels that a successor is told of.
    cancels: Option<(Private, UnixListener)>,
    /// Its folder, once the successor is alone.
    handed_over: Option<Private>,
    is_stopping: Arc<AtomicBool>,
}

impl Service {
    /// Starts the service by a configuration file, with what this process was started with; it listens when this
    /// returns.
    pub fn start(file: &Path, inherited: Inherited) -> Result<Self, StartError> {
        let config = sluice_config::load(file)?;
        check_open_files(&config)?;
        for warning in &config.warnings {
            tracing::warn!("{}", warning.in_one_line());
        }
        let workers = config.workers.unwrap_or_else(default_workers);
        let control = Control::new(files::configuration(&config)?);
        let mut hub = Hub::new(control.snapshot().clone(), nonces(inherited.mock_seed)?, workers);
        hub.predecessor = inherited.cancels.map(Address::Unix);
        let hub = Arc::new(hub);
        files::derive(&hub, &control.snapshot().access);
        let listening = Listening::open(&config, inherited.listeners)?;
        let http = listening.for_http().map_err(system("share the listening sockets"))?;
        let (look_ups, requests) = lookup::requests();
        let (identities, unidentified) = identify::requests();
        let (commands, asked) = asked::channel();
        let mailboxes = Arc::new(mailbox::mailboxes(workers).map_err(system("make the workers' mailboxes"))?);
        let handshakes = handshakes::start(workers, &mailboxes).map_err(system("start the threads for TLS"))?;
        let (handshakes, handshake_threads) = handshakes;
        let resolver = Arc::new(Resolver::default());
        resolver.know(&files::addresses(&config));
        let epoch = Instant::now();
        let desk = Arc::<Desk>::default();
        let suspicion = Suspicion::default();
        let turns: Vec<Turns> = (0..workers).map(|_| Turns::default()).collect();
        let mut setups = Vec::new();
        for number in 0..workers {
            setups.push(Setup {
                hub: hub.clone(),
                host: Host {
                    worker: number,
                    mailboxes: mailboxes.clone(),
                    resolver: resolver.clone(),
                    handshakes: handshakes.clone(),
                    look_ups: look_ups.clone(),
                    identities: identities.clone(),
                    commands: commands.clone(),
                    desk: desk.clone(),
                    suspicion: suspicion.clone(),
                    tcp_user_timeout: config.tcp_user_timeout,
                },
                listeners: listening.for_clients().map_err(system("share the listening sockets"))?,
                epoch,
                turns: turns[usize::from(number)].clone(),
            });
        }
        drop((handshakes, look_ups, identities, commands));
        let (driver, threads) = start_workers(config.driver, setups)?;
        let (orders, ordered) = control::orders();
        let asker = Asker {
            resolver: resolver.clone(),
            hub: hub.clone(),
            mailboxes: mailboxes.clone(),
            epoch,
            idle: Mutex::default(),
        };
        let stats = stats::log(hub.clone(), config.stats_period, epoch);
        let reloader = Arc::new(Reloader {
            file: file.to_owned(),
            pool: Mutex::new(config.pool.clone()),
            started: config,
            resolver: resolver.clone(),
            hub: hub.clone(),
            orders: orders.clone(),
            turn: Mutex::default(),
        });
        let console = Arc::new(Console {
            hub: hub.clone(),
            mailboxes: mailboxes.clone(),
            reloader: reloader.clone(),
            resolver,
            listens: Listens::new(listening.addresses(false), &listening.unix_sockets()),
            epoch,
            averages: Mutex::default(),
            is_shutting_down: AtomicBool::new(false),
            suspicion: suspicion.clone(),
            hold_lengths: Mutex::default(),
            waits: console::Waits::default(),
        });
        let is_stopping = Arc::<AtomicBool>::default();
        let told = Told { hub: hub.clone(), epoch, is_stopping: is_stopping.clone() };
        let (hub_of_office, mailboxes_of_office) = (hub.clone(), mailboxes.clone());
        let identified = identify::answer(unidentified, mailboxes.clone());
        let control = async move {
            let http = tokio::spawn(http::serve(told, http)).abort_handle();
            let office = Office { hub: hub_of_office, mailboxes: mailboxes_of_office, desk, http, suspicion };
            let control = control::control(control, ordered, requests, asker, office);
            tokio::select! {
                () = control => {}
                () = identified => {}
                () = stats => {}
                () = console::serve(console, asked) => {}
            }
        };
        let control = spawn_control(control).map_err(system("start the control thread"))?;
        Ok(Self {
            listening,
            driver,
            mailboxes,
            workers: threads,
            handshakes: handshake_threads,
            control: Some(control),
            orders,
            reloader,
            hub,
            epoch,
            turns,
            cancels: None,
            handed_over: None,
            is_stopping,
        })
    }

    /// Reads the configuration file again, and goes by it as a whole or not at all. The log says what has come of it.
    /// `false` if it went wrong.
    pub fn reload(&self) -> bool {
        self.reloader.reload_and_log().is_ok()
    }

    /// The addresses that it listens on, with the ports that the system chose for port 0.
    pub fn listen_addrs(&self) -> Vec<SocketAddr> {
        self.listening.addresses(false)
    }

    /// The addresses at which it tells metrics and health.
    pub fn http_addrs(&self) -> Vec<SocketAddr> {
        self.listening.addresses(true)
    }

    /// The Unix sockets that it listens on.
    pub fn unix_sockets(&self) -> Vec<&Path> {
        self.listening.unix_sockets()
    }

    /// Whether clients come by systemd's sockets in place of what the configuration says.
    pub fn is_activated(&self) -> bool {
        self.listening.is_activated(false)
    }

    /// Whether metrics and health are told by systemd's sockets.
    pub fn is_http_activated(&self) -> bool {
        self.listening.is_activated(true)
    }

    /// The driver in use, by its name in the configuration.
    pub fn driver(&self) -> &'static str {
        self.driver
    }

    /// Clients and server connections there are now.
    pub fn counts(&self) -> (u32, u32) {
        (self.hub.connections(), self.hub.servers())
    }

    /// The means to ask whether its threads are alive.
    pub fn pulse(&self) -> Pulse {
        Pulse { turns: self.turns.clone(), mailboxes: self.mailboxes.clone(), orders: self.orders.clone() }
    }

    /// Time that clients have to leave once a successor has taken over.
    pub fn upgrade_grace(&self) -> Duration {
        self.reloader.started.upgrade_grace
    }

    /// The things that a successor is to be started with.
    pub fn bequest(&mut self) -> io::Result<Bequest> {
        let (private, listener) = Private::open()?;
        let cancels = private.path();
        self.cancels = Some((private, listener));
        let mock_seed = MockSeed(self.hub.secrets.mock_seed);
        Ok(Bequest { listeners: self.listening.bequest()?, cancels, mock_seed })
    }

    /// The successor that the last bequest was for does not take over.
    pub fn keep_bequest(&mut self) {
        self.cancels = None;
    }

    /// The process that this one takes over from serves nobody by its addresses any more.
    pub fn took_over(&mut self) {
        self.listening.remove_left_over();
    }

    /// A successor listens: from now on it alone accepts clients. Those that are here go on.
    pub fn hand_over(&mut self) {
        if let Some((private, listener)) = self.cancels.take() {
            // The control thread ends after this one has told it to.
            let _ = self.orders.blocking_send(Order::HandOver(listener));
            self.handed_over = Some(private);
        }
        self.mailboxes.post_all(|| Parcel::StopAccepting);
        // What the drivers have accepted by then comes with their next turns.
        for _ in 0..TURNS_TO_STOP {
            let _ = self.pulse().check(TURN_TIME_MAX);
        }
        // The kernel may have woken one of us, who does not accept any more, for a client that waits in the queue.
        let listening = std::mem::take(&mut self.listening);
        let accepted = listening.listeners().iter().filter(|listener| !listener.kind.is_http());
        let accepted = accepted.flat_map(|listener| sockets::accept_waiting(&listener.socket));
        for (socket, worker) in accepted.zip((0..self.turns.len() as u16).cycle()) {
            self.mailboxes.send(worker, Parcel::Accepted(socket));
        }
    }

    /// Ends the service: no new clients, transactions may end within the grace period, then all is closed.
    pub fn shutdown(mut self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let deadline = Time((self.epoch.elapsed() + self.reloader.started.shutdown_grace).as_micros() as u64);
        self.mailboxes.send_all(|| Mail::Stop(deadline));
        for worker in self.workers.drain(..) {
            match worker.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!("a worker ended with an error: {error}"),
                Err(_) => tracing::error!("a worker panicked"),
            }
        }
        for thread in self.handshakes.drain(..) {
            let _ = thread.join();
        }
        let _ = self.orders.blocking_send(Order::Stop);
        if let Some(control) = self.control.take() {
            let _ = control.join();
        }
        self.listening.close();
    }
}

fn system(what: &'static str) -> impl Fn(io::Error) -> StartError {
    move |error| StartError::System { what, error }
}

/// Has the process leave no core dump, which would hold secrets, and no other process of its user read its memory.
///
/// A limit of 0 keeps the kernel from writing a file, but not from passing the dump to a program that
/// `kernel.core_pattern` names (core(5)); what is not dumpable is given to neither, nor to a debugger without
/// `CAP_SYS_PTRACE` (PR_SET_DUMPABLE(2const)). A program that this process starts has the limit as well, and is dumpable
/// until it says otherwise.
pub fn forbid_core_dumps() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
    let limit = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // A sandbox may forbid the call, and have set the limit itself.
    if let Err(error) = limit
        && getrlimit(Resource::Core).maximum != Some(0)
    {
        tracing::warn!("this process may leave a core file: {error}");
    }
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!("this process may leave a core dump: {error}");
    }
}

/// The seed of decoys is the predecessor's, so that users who do not exist are asked the same as before.
fn nonces(inherited: Option<MockSeed>) -> Result<Nonces, StartError> {
    let (mut mock_seed, mut statements) = ([0; 32], [0; 4]);
    for bytes in [&mut mock_seed[..], &mut statements[..]] {
        getrandom::fill(bytes).map_err(|error| system("get random bytes")(io::Error::other(error)))?;
    }
    let mock_seed = inherited.map_or(mock_seed, |MockSeed(seed)| seed);
    Ok(Nonces { mock_seed, statements: u32::from_be_bytes(statements) })
}

type Workers = Vec<JoinHandle<io::Result<()>>>;

fn start_workers(choice: DriverChoice, setups: Vec<Setup>) -> Result<(&'static str, Workers), StartError> {
    let uring = match choice {
        DriverChoice::Epoll => false,
        DriverChoice::IoUring | DriverChoice::Auto => match Uring::new() {
            Ok(_) => true,
            Err(error) if choice == DriverChoice::IoUring => {
                return Err(StartError::Driver { driver: Uring::NAME, error });
            }
            Err(error) => {
                tracing::warn!("io_uring does not work here ({error}): using epoll, which costs more CPU");
                false
            }
        },
    };
    if uring { spawn_all::<Uring>(setups) } else { spawn_all::<Epoll>(setups) }
}

fn spawn_all<D: System>(setups: Vec<Setup>) -> Result<(&'static str, Workers), StartError> {
    let mut threads = Vec::new();
    for setup in setups {
        let (report, reported) = std_mpsc::channel();
        let run = move || match Worker::<D>::new(setup) {
            Ok(worker) => {
                let _ = report.send(Ok(()));
                worker.run()
            }
            Err(error) => {
                let _ = report.send(Err(error));
                Ok(())
            }
        };
        let name = format!("worker-{}", threads.len());
        threads.push(std::thread::Builder::new().name(name).spawn(run).map_err(system("start a worker"))?);
        match reported.recv() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(StartError::Driver { driver: D::NAME, error }),
            Err(_) => return Err(system("start a worker")(io::Error::other("it panicked"))),
        }
    }
    Ok((D::NAME, threads))
}

fn spawn_control(work: impl Future<Output = ()> + Send + 'static) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("control".to_owned()).spawn(move || {
        runtime.block_on(work);
        // A name that is being resolved is not waited for.
        runtime.shutdown_background();
    })
}
