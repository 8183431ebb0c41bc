//! Facts about a client that have to be known before it can be asked to prove who it is: the system's user at its end
//! of a Unix socket, and its user's account on the server. It waits for both, and the rules of the moment decide anew.

use std::sync::Arc;

use sluice_control::access::{Method, Users};
use sluice_wire::{ErrorResponse, sqlstate};

use crate::{
    client::{Demand, LoginRequest, Phase, Wish},
    ids::{ClientId, ClientRef},
    io::Io,
    secrets::{Credentials, Found, Known, Role},
    time::Time,
};

use super::{
    Engine, Todo,
    rules::{Verdict, peer_failed},
};

impl Engine {
    /// Does what the rules have a client do first.
    pub(super) fn follow(
        &mut self,
        now: Time,
        id: ClientId,
        wish: Box<Wish>,
        verdict: Verdict,
        io: &mut impl Io,
    ) -> Result<(), ErrorResponse> {
        match verdict {
            Verdict::NeedsSystemUser => self.ask_system_user(id, wish, io),
            // Whoever is believed logs in to the server by what the file says of them, which its pool knows.
            Verdict::Asks(demand) if demand.method == Method::Trust && !self.goes_by_server_rules() => {
                self.authenticated(now, id, self.login_request(*wish, demand, None), io)
            }
            Verdict::NeedsRoles | Verdict::Asks(_) => self.ask_account(now, id, wish, io),
        }
    }

    fn login_request(&self, wish: Wish, demand: Demand, role: Option<Role>) -> LoginRequest {
        let asked_by = self.snapshot.access.clone();
        LoginRequest { wish, demand, credentials: Credentials::default(), asked_by, secret: None, role }
    }

    fn ask_system_user(&mut self, id: ClientId, wish: Box<Wish>, io: &mut impl Io) -> Result<(), ErrorResponse> {
        let Some(client) = self.client_ref(id) else { return Ok(()) };
        if !io.identify(self.clients[id].conn, client) {
            let error = "too many other connections are being identified";
            return Err(ErrorResponse::fatal(sqlstate::CANNOT_CONNECT_NOW, error).hint("Try again."));
        }
        self.clients[id].phase = Phase::Identity(wish);
        Ok(())
    }

    /// The system's user at a client's end is known, or not to be known.
    pub(super) fn identified(&mut self, now: Time, client: ClientRef, user: Option<Box<str>>, io: &mut impl Io) {
        let Some(mut wish) = self.take_wish(client, |phase| matches!(phase, Phase::Identity(_))) else { return };
        let followed = match user {
            None => Err(peer_failed(&wish.user)),
            Some(user) => {
                wish.system_user = Some(user);
                let verdict = self.verdict(client.id, &wish, None);
                verdict.and_then(|verdict| self.follow(now, client.id, wish, verdict, io))
            }
        };
        self.go_on(now, client.id, followed, io);
    }

    /// The wish of a client that waits as `waits` says.
    fn take_wish(&mut self, client: ClientRef, waits: impl Fn(&Phase) -> bool) -> Option<Box<Wish>> {
        if !self.is_current(client) {
            return None;
        }
        let client = self.clients.get_mut(client.id).filter(|client| waits(&client.phase))?;
        match std::mem::replace(&mut client.phase, Phase::Startup) {
            Phase::Identity(wish) | Phase::Account(wish) => Some(wish),
            other => {
                client.phase = other;
                None
            }
        }
    }

    /// A client that has waited is refused, or heard again.
    fn go_on(&mut self, now: Time, id: ClientId, followed: Result<(), ErrorResponse>, io: &mut impl Io) {
        if let Err(error) = followed {
            self.refuse_client(now, id, &error, io);
        }
        self.todo.push_back(Todo::Input(id));
    }

    fn ask_account(&mut self, now: Time, id: ClientId, wish: Box<Wish>, io: &mut impl Io) -> Result<(), ErrorResponse> {
        let Some(client) = self.client_ref(id) else { return Ok(()) };
        match self.hub.secrets.get(&self.snapshot.access, now, &wish.user, client) {
            Known::Now(found) => self.account_known(now, id, wish, found, io),
            Known::Later { ask } => {
                if ask {
                    io.look_up(&wish.user);
                }
                self.clients[id].phase = Phase::Account(wish);
                Ok(())
            }
        }
    }

    /// A look-up has ended that a client waits for.
    pub(super) fn account_found(&mut self, now: Time, client: ClientRef, io: &mut impl Io) {
        let Some(wish) = self.take_wish(client, |phase| matches!(phase, Phase::Account(_))) else { return };
        self.account_awaited(now, client);
        // Unless the configuration has listed it since.
        let found = match &self.snapshot.access.users {
            Users::Listed(_) => None,
            Users::LookedUp(look_up, listed) => self.hub.secrets.last((look_up, listed), &wish.user),
        };
        let followed = match found {
            Some(found) => self.account_known(now, client.id, wish, found, io),
            // So many others came meanwhile that it has been forgotten.
            None => self.ask_account(now, client.id, wish, io),
        };
        self.go_on(now, client.id, followed, io);
    }

    /// Goes on with what is known of a client's user, by the rules of now, whichever they were when that was asked for.
    fn account_known(
        &mut self,
        now: Time,
        id: ClientId,
        wish: Box<Wish>,
        found: Found,
        io: &mut impl Io,
    ) -> Result<(), ErrorResponse> {
        // Nobody who has not proven who it is hears of servers and roles.
        let account = found.map_err(|error| ErrorResponse {
            hint: Some(error.hint.clone().unwrap_or_else(|| "The pool's log says why.".to_owned())),
            ..ErrorResponse::fatal(sqlstate::CANNOT_CONNECT_NOW, "the pool could not look up the user's secret")
        })?;
        let verdict = self.verdict(id, &wish, Some(&account.roles)).inspect_err(|_| {
            // The user may have been made a member since.
            self.hub.secrets.doubt(&wish.user);
        })?;
        match verdict {
            Verdict::Asks(demand) if demand.method == Method::Trust => {
                self.authenticated(now, id, self.login_request(*wish, demand, account.role), io)
            }
            Verdict::Asks(demand) => {
                let login = self.login_request(*wish, demand, account.role);
                self.challenge(id, login, account.secret, io);
                Ok(())
            }
            verdict => self.follow(now, id, wish, verdict, io),
        }
    }

    /// Refuses a client whose secret has been withdrawn while it thought about its answer.
    pub(super) fn check_asked(&self, login: &LoginRequest) -> Result<(), ErrorResponse> {
        let access = &self.snapshot.access;
        let is_the_same = match &access.users {
            _ if Arc::ptr_eq(access, &login.asked_by) => true,
            Users::Listed(users) => {
                access.policy == login.asked_by.policy && users.get(&login.wish.user) == login.secret.as_ref()
            }
            Users::LookedUp(_, listed) => {
                let user = &login.wish.user;
                let is_listed_as =
                    |before: &Users| matches!(before, Users::LookedUp(_, it) if it.get(user) == listed.get(user));
                access.looks_up_as(&login.asked_by) && is_listed_as(&login.asked_by.users)
            }
        };
        if is_the_same {
            return Ok(());
        }
        let error = format!("password authentication failed for user \"{}\"", login.wish.user);
        Err(ErrorResponse::fatal(sqlstate::INVALID_PASSWORD, error)
            .routine("auth_failed")
            .hint("The pool's configuration has changed while you were asked. Try again."))
    }
}
