//! SIGINT, SIGTERM, SIGHUP and SIGUSR2 as messages. The first two ask for an orderly end, and then for haste; SIGHUP asks
//! for a reload, or where there is a terminal says that this is gone, which is like the others. SIGUSR2 asks for a new
//! process in the place of this one. SIGUSR1, which is PgBouncer's PAUSE, is told that it is none here.

use std::{
    io::{self, IsTerminal},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use sluice_proxy::{NotReady, Successor};

/// Something to do.
#[derive(Debug)]
pub(crate) enum Wake {
    /// Start a new process in the place of this one.
    Upgrade,
    /// The new process listens, or does not take over.
    Upgraded(Result<Successor, NotReady>),
    /// Read the configuration again.
    Reload,
    /// Somebody asks for the end.
    Signal,
    /// PostgreSQL is down and stays down.
    Down(String),
    /// There is nothing to wait for any more.
    End,
}

/// The signals, and other reasons to do something.
pub(crate) struct Signals {
    /// Until it is set, a signal ends the process at once: there is nothing to end in order.
    running: Arc<AtomicBool>,
    sender: Sender<Wake>,
    wakes: Mutex<Receiver<Wake>>,
}

impl Signals {
    /// Catches the signals from now on.
    pub(crate) fn install() -> Result<Self> {
        let running = Arc::new(AtomicBool::new(false));
        let (sender, wakes) = mpsc::channel();
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])
            .map_err(|error| anyhow!("cannot catch signals: {error}"))?;
        let has_terminal = io::stdin().is_terminal();
        let (flag, to_main) = (Arc::clone(&running), sender.clone());
        let catch = move || {
            for signal in signals.forever() {
                if signal == SIGHUP && !has_terminal {
                    // While starting, too: the file may have been read by then.
                    let _ = to_main.send(Wake::Reload);
                    continue;
                }
                if signal == SIGUSR1 {
                    // PgBouncer's PAUSE, which is no reason to end.
                    tracing::warn!("SIGUSR1 does nothing here; PAUSE and RESUME are commands of the admin console");
                    continue;
                }
                if signal == SIGUSR2 {
                    let _ = to_main.send(Wake::Upgrade);
                    continue;
                }
                if !flag.load(Ordering::Acquire) {
                    // What was started gets its signal from the kernel as this process ends.
                    say_aside!("sluice: interrupted while starting");
                    std::process::exit(1);
                }
                // No receiver: the process is about to end.
                let _ = to_main.send(Wake::Signal);
            }
        };
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(catch)
            .map_err(|error| anyhow!("cannot start a thread: {error}"))?;
        Ok(Self { running, sender, wakes: Mutex::new(wakes) })
    }

    /// From now on there is something to end in order.
    pub(crate) fn running(&self) {
        self.running.store(true, Ordering::Release);
    }

    /// For others that know a reason to end.
    pub(crate) fn sender(&self) -> Sender<Wake> {
        self.sender.clone()
    }

    /// Waits for something to do.
    pub(crate) fn wait(&self) -> Wake {
        // A receiver has no state that a panic could leave half changed. Senders live as long as we do.
        self.wakes.lock().unwrap_or_else(PoisonError::into_inner).recv().unwrap_or(Wake::End)
    }

    /// Waits for something to do, at most for that time.
    pub(crate) fn wait_for(&self, time: Duration) -> Option<Wake> {
        match self.wakes.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(time) {
            Ok(wake) => Some(wake),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Wake::End),
        }
    }

    /// While ending: waits for another signal; `false` once [`Signals::end`] was called.
    pub(crate) fn wait_again(&self) -> bool {
        loop {
            match self.wait() {
                Wake::Signal => return true,
                Wake::Down(_) | Wake::Reload | Wake::Upgrade | Wake::Upgraded(_) => {}
                Wake::End => return false,
            }
        }
    }

    /// A signal that was heard is to be heard once more.
    pub(crate) fn signal_again(&self) {
        // The receiver is ours.
        let _ = self.sender.send(Wake::Signal);
    }

    /// Ends a [`Signals::wait_again`].
    pub(crate) fn end(&self) {
        // The receiver is ours.
        let _ = self.sender.send(Wake::End);
    }
}
