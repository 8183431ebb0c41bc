//! `PAUSE` and `DRAIN`: both wait until clients have let go of what they have. They are answered as done only where they are.

use sluice_core::mail::Mail;
use sluice_wire::{ErrorResponse, sqlstate};

use super::{Cancel, Console, LOOKS_EVERY, waits::Setting};

impl Console {
    /// Pauses a database, or all, and waits until their pools have no servers any more.
    pub(super) async fn pause(&self, database: Option<&str>, cancel: &Cancel) -> Result<(), ErrorResponse> {
        let setting = Setting::Pause(database.map(str::to_owned));
        self.waits.join(&setting, self.hub.pauses(database));
        self.mailboxes.call_in(self.hub.pause(self.now(), database));
        let is_paused = || database.map_or_else(|| self.hub.pauses(None), |name| self.hub.is_paused(name));
        let left = async {
            while is_paused() && self.hub.have_servers(database) {
                tokio::time::sleep(LOOKS_EVERY).await;
            }
            is_paused()
        };
        let left = cancel.or(left).await;
        if left == Ok(true) {
            self.waits.keep(&setting);
        }
        let is_nobodys = self.waits.leave(&setting);
        match left {
            Ok(true) => Ok(()),
            Ok(false) => {
                let what = database.map_or_else(|| "all databases".to_owned(), |name| format!("database \"{name}\""));
                Err(ended(format!("the pause of {what} was ended before all servers were closed"), "PAUSE"))
            }
            Err(cancelled) if is_nobodys => {
                self.hub.take_back_pause(self.now(), database);
                Err(cancelled.error(match is_paused() {
                    true => "The PAUSE is taken back; that of all databases goes on: RESUME ends it.",
                    false => "Clients go on: the PAUSE is taken back.",
                }))
            }
            Err(cancelled) => Err(cancelled.error("Another PAUSE goes on: RESUME ends it.")),
        }
    }

    /// Has the clients leave, and waits until none is left.
    pub(super) async fn drain(&self, cancel: &Cancel) -> Result<(), ErrorResponse> {
        self.waits.join(&Setting::Drain, self.hub.is_draining());
        self.hub.set_draining(true);
        self.mailboxes.send_all(|| Mail::Drain);
        let drained = async {
            while self.hub.is_draining() && self.figures().pools.iter().any(|pool| pool.clients > 0) {
                tokio::time::sleep(LOOKS_EVERY).await;
            }
            self.hub.is_draining()
        };
        let drained = cancel.or(drained).await;
        if drained == Ok(true) {
            self.waits.keep(&Setting::Drain);
        }
        let is_nobodys = self.waits.leave(&Setting::Drain);
        match drained {
            Ok(true) => Ok(()),
            Ok(false) => Err(ended("the drain was ended before all clients had left".to_owned(), "DRAIN")),
            Err(cancelled) if is_nobodys => {
                self.hub.set_draining(false);
                Err(cancelled.error("Clients are let in again: the DRAIN is taken back."))
            }
            Err(cancelled) => Err(cancelled.error("Another DRAIN goes on: RESUME ends it.")),
        }
    }
}

/// The error of a command whose wait another session has ended.
fn ended(error: String, command: &str) -> ErrorResponse {
    let hint = format!("Another session has given RESUME, and clients go on. {command} again once nobody needs that.");
    ErrorResponse::error(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, error).hint(hint)
}
