//! The system's users at the other ends of Unix sockets, for rules that ask for `peer`.
//!
//! The kernel says who connected, by number. The name may come from anywhere (`nsswitch.conf`: a file, LDAP), so it is
//! looked up by threads of its own, some at once, and never by a worker.

use std::{
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use nix::unistd::{Uid, User};
use sluice_core::{ids::ClientRef, mail::Mail};
use tokio::{
    sync::{Semaphore, mpsc},
    time::timeout_at,
};

use crate::mailbox::{Mailboxes, Parcel};

/// Time limit for a name, from when it was asked for.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Names looked up at once.
const AT_ONCE: usize = 4;

/// Clients that wait for a look-up to begin, at most.
const WAITING_MAX: usize = 1024;

/// A client to be identified.
#[derive(Debug)]
pub(crate) struct Request {
    client: ClientRef,
    uid: Uid,
    asked: Instant,
}

impl Request {
    /// A request about the process that has connected to a Unix socket; `None` if the kernel does not know it.
    pub(crate) fn of(client: ClientRef, socket: &impl AsFd) -> Option<Self> {
        let credentials = nix::sys::socket::getsockopt(socket, nix::sys::socket::sockopt::PeerCredentials).ok()?;
        Some(Self { client, uid: Uid::from_raw(credentials.uid()), asked: Instant::now() })
    }
}

/// The way to the control thread.
pub(crate) fn requests() -> (mpsc::Sender<Request>, mpsc::Receiver<Request>) {
    mpsc::channel(WAITING_MAX)
}

/// Answers requests. A look-up that hangs keeps its thread, and others are told in time that there is none left.
pub(crate) async fn answer(mut requests: mpsc::Receiver<Request>, mailboxes: Arc<Mailboxes>) {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    while let Some(request) = requests.recv().await {
        let deadline = (request.asked + TIMEOUT).into();
        let turn = timeout_at(deadline, turns.clone().acquire_owned()).await;
        let mailboxes = mailboxes.clone();
        let Ok(Ok(turn)) = turn else {
            request.tell(Err(late()), &mailboxes);
            continue;
        };
        let uid = request.uid;
        let found = tokio::task::spawn_blocking(move || {
            let found = name_of(uid);
            drop(turn);
            found
        });
        tokio::spawn(async move {
            let found = timeout_at(deadline, found).await;
            let found = found.unwrap_or_else(|_| Ok(Err(late()))).unwrap_or_else(|error| Err(error.to_string()));
            request.tell(found, &mailboxes);
        });
    }
}

impl Request {
    fn tell(self, found: Result<Box<str>, String>, mailboxes: &Mailboxes) {
        if let Err(error) = &found {
            // PostgreSQL's words.
            tracing::warn!("could not look up local user ID {}: {error}", self.uid);
        }
        let mail = Mail::Identified(self.client, found.ok());
        mailboxes.send(self.client.worker, Parcel::Mail(mail));
    }
}

fn name_of(uid: Uid) -> Result<Box<str>, String> {
    match User::from_uid(uid) {
        Ok(Some(user)) => Ok(user.name.into()),
        Ok(None) => Err("user does not exist".to_owned()),
        Err(error) => Err(error.desc().to_owned()),
    }
}

fn late() -> String {
    format!("no answer within {} s", TIMEOUT.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_system() {
        assert_eq!(name_of(Uid::from_raw(0)).as_deref(), Ok("root"));
        assert_eq!(name_of(Uid::from_raw(3_999_999_999)), Err("user does not exist".to_owned()));
    }
}
