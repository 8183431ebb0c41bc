//! The words for systemd (sd_notify(3)): ready, reloading, stopping, alive. Where nobody listens they cost nothing.

use std::{
    env,
    ffi::OsString,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sd_notify::NotifyState;
use sluice_proxy::Pulse;

/// The least time between two notifications of the watchdog, and for threads to come round: a watchdog with less time
/// than that bites in any case.
const WATCH_TIME_MIN: Duration = Duration::from_millis(50);

/// The least time between two lines about a watchdog that is not fed.
const TELLS_EVERY: Duration = Duration::from_secs(5);

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
        let time = match watchdog_time(|name| env::var_os(name)) {
            Ok(Some(time)) => time,
            Ok(None) => return,
            Err(name) => {
                let value = env::var_os(name).unwrap_or_default();
                tracing::warn!("no watchdog is fed: {name}={} makes no sense", value.display());
                return;
            }
        };
        let systemd = self.clone();
        let watch = move || {
            let mut told = None;
            while !systemd.is_silent.load(Ordering::Relaxed) {
                match pulse.check((time / 4).max(WATCH_TIME_MIN)) {
                    Ok(()) => systemd.say(&[NotifyState::Watchdog]),
                    Err(silent) if told.is_none_or(|at: Instant| at.elapsed() >= TELLS_EVERY) => {
                        tracing::error!("the watchdog is not fed: {silent}");
                        told = Some(Instant::now());
                    }
                    Err(_) => {}
                }
                thread::sleep((time / 2).max(WATCH_TIME_MIN));
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

/// The time of the watchdog, if there is one and it is for this process, or the variable that makes no sense: the rules
/// are those of sd_watchdog_enabled(3).
fn watchdog_time(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Duration>, &'static str> {
    let number = |name| match variable(name) {
        None => Ok(None),
        Some(value) => value.to_str().and_then(|text| text.parse::<u64>().ok()).map(Some).ok_or(name),
    };
    let Some(usec) = number("WATCHDOG_USEC")? else { return Ok(None) };
    if usec == 0 || usec == u64::MAX {
        return Err("WATCHDOG_USEC");
    }
    let is_ours = number("WATCHDOG_PID")?.is_none_or(|pid| pid == u64::from(process::id()));
    Ok(is_ours.then(|| Duration::from_micros(usec)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_without_a_time_is_none() {
        let of = |usec: Option<&str>, pid: Option<&str>| {
            watchdog_time(|name| if name == "WATCHDOG_USEC" { usec } else { pid }.map(OsString::from))
        };
        let this = process::id().to_string();
        let second = Ok(Some(Duration::from_secs(1)));
        assert_eq!(of(None, None), Ok(None));
        assert_eq!(of(None, Some("x")), Ok(None));
        assert_eq!(of(Some("1000000"), None), second);
        assert_eq!(of(Some("1000000"), Some(&this)), second);
        assert_eq!(of(Some("1000000"), Some("1")), Ok(None), "that of another process");
        for usec in ["0", "", "-1", "x", "1s", "18446744073709551615", "99999999999999999999"] {
            assert_eq!(of(Some(usec), None), Err("WATCHDOG_USEC"), "{usec}");
        }
        assert_eq!(of(Some("1000000"), Some("x")), Err("WATCHDOG_PID"));
    }
}
