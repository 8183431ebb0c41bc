//! The clients' secrets: from a file, or looked up on the server and believed for a while.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sluice_wire::{
    ErrorResponse,
    scram::{ITERATIONS_DEFAULT, Verifier},
    secret::Secret,
};

use crate::{hub::ClientRef, time::Time};

/// Users whose looked-up secrets are remembered, at most.
const REMEMBERED_MAX: usize = 10_000;

/// How clients prove who they are.
#[derive(Debug)]
pub struct Secrets {
    /// The method.
    pub method: Method,
    /// What makes up salts for users that do not exist; secret, and the same for the process's life.
    pub mock_seed: [u8; 32],
    source: Source,
    /// Verifiers of passwords that are known in clear, each with the password it was made of.
    derived: Mutex<HashMap<String, (String, Verifier)>>,
}

/// The method every client must use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// None.
    Trust,
    /// MD5, or SCRAM for users whose secret is a SCRAM verifier.
    Md5,
    /// SCRAM-SHA-256.
    ScramSha256,
}

/// Where secrets come from.
#[derive(Debug)]
pub enum Source {
    /// All of them are known.
    File(HashMap<String, Secret>),
    /// They are asked for one by one.
    LookUp(LookUp),
}

/// What has been looked up.
#[derive(Debug)]
pub struct LookUp {
    ttl: Duration,
    users: Mutex<HashMap<String, Entry>>,
}

#[derive(Debug, Default)]
struct Entry {
    /// The answer and when it came; `None` before the first one.
    known: Option<(Found, Time)>,
    /// Whether it is asked for again by the next one who needs it. Those whom it was found for still get it.
    doubted: bool,
    /// Whether a look-up is under way, and who waits for it.
    asking: bool,
    waiting: Vec<ClientRef>,
}

/// What a look-up found.
pub type Found = Result<Option<Secret>, Arc<ErrorResponse>>;

/// The answer to a client that wants to log in.
#[derive(Debug)]
pub enum Known {
    /// This is it, or there is none.
    Now(Found),
    /// It will come by mail; `ask` says that nobody has asked for it yet.
    Later {
        /// Whether the caller must see that it is asked for.
        ask: bool,
    },
}

impl Secrets {
    /// With that method and source.
    pub fn new(method: Method, source: Source, mock_seed: [u8; 32]) -> Self {
        Self { method, mock_seed, source, derived: Mutex::default() }
    }

    /// The secret of `user`.
    pub fn get(&self, now: Time, user: &str, client: ClientRef) -> Known {
        match &self.source {
            Source::File(users) => Known::Now(Ok(users.get(user).cloned())),
            Source::LookUp(look_up) => look_up.get(now, user, client),
        }
    }

    /// The verifier of a password in clear. Runs PBKDF2 once for each user and password.
    pub fn verifier(&self, user: &str, password: &str) -> Verifier {
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, verifier)) = derived.get(user)
            && of == password
        {
            return verifier.clone();
        }
        let salt = Verifier::mock(&self.mock_seed, user).salt;
        let verifier = Verifier::derive(password, &salt, ITERATIONS_DEFAULT);
        if derived.len() >= REMEMBERED_MAX {
            derived.clear();
        }
        derived.insert(user.to_owned(), (password.to_owned(), verifier.clone()));
        verifier
    }

    /// The answer of a look-up has come; gives those who waited for it.
    pub fn found(&self, now: Time, user: &str, found: Found) -> Vec<ClientRef> {
        match &self.source {
            Source::File(_) => Vec::new(),
            Source::LookUp(look_up) => look_up.found(now, user, found),
        }
    }

    /// The last answer of a look-up, however old.
    pub fn last(&self, user: &str) -> Option<Found> {
        match &self.source {
            Source::File(users) => Some(Ok(users.get(user).cloned())),
            Source::LookUp(look_up) => look_up.users().get(user)?.known.as_ref().map(|(found, _)| found.clone()),
        }
    }

    /// A login with this user's secret failed: the secret may have been changed on the server.
    pub fn doubt(&self, user: &str) {
        if let Source::LookUp(look_up) = &self.source
            && let Some(entry) = look_up.users().get_mut(user)
        {
            entry.doubted = true;
        }
    }
}

impl LookUp {
    /// With answers believed for `ttl`.
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, users: Mutex::default() }
    }

    fn users(&self) -> std::sync::MutexGuard<'_, HashMap<String, Entry>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, now: Time, user: &str, client: ClientRef) -> Known {
        let mut users = self.users();
        if users.len() >= REMEMBERED_MAX && !users.contains_key(user) {
            users.retain(|_, entry| entry.asking);
        }
        let entry = users.entry(user.to_owned()).or_default();
        // A failed look-up or a missing user is asked for again: both may be put right at any moment.
        if let Some((Ok(Some(secret)), at)) = &entry.known
            && now.since(*at) < self.ttl
            && !entry.doubted
        {
            return Known::Now(Ok(Some(secret.clone())));
        }
        entry.waiting.push(client);
        Known::Later { ask: !std::mem::replace(&mut entry.asking, true) }
    }

    fn found(&self, now: Time, user: &str, found: Found) -> Vec<ClientRef> {
        let mut users = self.users();
        let entry = users.entry(user.to_owned()).or_default();
        entry.known = Some((found, now));
        entry.doubted = false;
        entry.asking = false;
        std::mem::take(&mut entry.waiting)
    }
}
