//! The words for systemd (sd_notify(3)): ready, reloading, stopping, alive. Where nobody listens they cost nothing.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use sd_notify::NotifyState;
use sluice_proxy::Pulse;

/// The way to systemd. Once another process has taken over, that one speaks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Systemd {
    is_silent: Arc<AtomicBool>,
}

impl Systemd {
    /// The service listens.
    pub(crate) fn ready(&self, status: &str) {
        self.say(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// The configuration is being read again; [`Systemd::ready`] follows.
    pub(crate) fn reloading(&self) {
        let mut words = vec![NotifyState::Reloading];
        // systemd pairs it with the signal that it has sent (Type=notify-reload).
        words.extend(NotifyState::monotonic_usec_now());
        self.say(&words);
    }

    /// The service ends.
    pub(crate) fn stopping(&self, status: &str) {
        self.say(&[NotifyState::Stopping, NotifyState::Status(status)]);
        self.is_silent.store(true, Ordering::Relaxed);
    }

    /// Another process is the service from now on.
    pub(crate) fn handed_over(&self, pid: u32) {
        self.say(&[NotifyState::MainPid(pid)]);
        self.is_silent.store(true, Ordering::Relaxed);
    }

    /// Feeds the watchdog, if systemd has one, twice in its time, and only while all threads come round.
    pub(crate) fn watch(&self, pulse: Pulse) {
        let Some(time) = sd_notify::watchdog_enabled() else { return };
        let systemd = self.clone();
        let watch = move || {
            while !systemd.is_silent.load(Ordering::Relaxed) {
                match pulse.check(time / 4) {
                    Ok(()) => systemd.say(&[NotifyState::Watchdog]),
                    Err(silent) => tracing::error!("the watchdog is not fed: {silent}"),
                }
                thread::sleep(time / 2);
            }
        };
        if let Err(error) = thread::Builder::new().name("watchdog".to_owned()).spawn(watch) {
            tracing::error!("the watchdog can't be fed: {error}");
        }
    }

    fn say(&self, words: &[NotifyState<'_>]) {
        if self.is_silent.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = notify(words) {
            tracing::warn!("could not notify systemd (NOTIFY_SOCKET): {error}");
        }
    }
}

/// Sends words to the socket that `NOTIFY_SOCKET` names: an `@` at its beginning stands for a zero byte, that of a name
/// which is not in the file system (sd_notify(3)). The library knows paths only.
fn notify(words: &[NotifyState<'_>]) -> io::Result<()> {
    let socket = env::var_os("NOTIFY_SOCKET").unwrap_or_default();
    let Some(name) = socket.as_bytes().strip_prefix(b"@") else { return sd_notify::notify(words) };
    let text: String = words.iter().map(|word| format!("{word}\n")).collect();
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &SocketAddr::from_abstract_name(name)?)?;
    Ok(())
}
