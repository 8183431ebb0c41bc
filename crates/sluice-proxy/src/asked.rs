//! The way from the workers to the admin console.

use sluice_core::{ids::ClientRef, io::Command};
use tokio::sync::mpsc;

/// Commands and cancels that wait for the console, at most.
const WAITING_MAX: usize = 64;

/// What a worker asks of the console for a client.
#[derive(Debug)]
pub(crate) enum Asked {
    /// A command is to be carried out.
    Command(Command),
    /// A client has cancelled its command.
    Cancel(ClientRef),
}

/// Both ends of the way.
pub(crate) fn channel() -> (mpsc::Sender<Asked>, mpsc::Receiver<Asked>) {
    mpsc::channel(WAITING_MAX)
}
