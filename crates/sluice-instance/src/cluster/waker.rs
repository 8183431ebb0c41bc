//! Patroni looks at its PostgreSQL every two seconds. A postmaster that has ended is seen here within a moment, and
//! Patroni is told to look at once; what it does then is its own decision.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    Node,
    rest::{Api, Method},
};
use crate::{
    orphans,
    pid_file::{self, Runner},
};

const POLL: Duration = Duration::from_millis(50);
/// While none runs.
const POLL_NONE: Duration = Duration::from_millis(150);
/// Patroni takes a postmaster for alive until its process has been reaped, so it is told more than once.
const WAKES_MAX: u32 = 8;
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// A change of nothing: Patroni looks at its PostgreSQL after every change.
const NOTHING: &str = r#"{"sluice_woke_patroni": null}"#;

/// Has a Patroni look at its PostgreSQL and at etcd at once.
pub(super) fn wake(api: &Api, rest: SocketAddr) {
    // A Patroni that does not answer has ended, or will look by itself.
    let _ = api.send(rest, Method::Patch, "/config", NOTHING, ANSWER_TIME_MAX);
}

/// Watches a node's postmaster. Dropping it ends that.
#[derive(Debug)]
pub(super) struct Waker {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Waker {
    pub(super) fn start(node: &Node, api: &Api) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let watch = Watch { pgdata: node.pgdata.clone(), rest: node.rest, api: api.clone() };
        let thread = thread::Builder::new().name(format!("{}-waker", node.name)).spawn(move || watch.run(&stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic was reported by its thread.
            let _ = thread.join();
        }
    }
}

struct Watch {
    pgdata: PathBuf,
    rest: SocketAddr,
    api: Api,
}

impl Watch {
    fn run(&self, stopped: &Receiver<()>) {
        let mut postmaster = None;
        let mut wakes_left = 0;
        loop {
            if let Some(pid) = postmaster.filter(|pid| !orphans::is_server_of(*pid, &self.pgdata)) {
                tracing::debug!(pid, pgdata = %self.pgdata.display(), "a postmaster has ended");
                (postmaster, wakes_left) = (None, WAKES_MAX);
            }
            if postmaster.is_none() {
                if let Ok(Runner::Live(pid)) = pid_file::runner(&self.pgdata) {
                    postmaster = Some(pid);
                } else if wakes_left > 0 {
                    wakes_left -= 1;
                    wake(&self.api, self.rest);
                }
            }
            let pause = if postmaster.is_some() { POLL } else { POLL_NONE };
            if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}
