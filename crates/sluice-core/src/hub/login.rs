//! What a pool knows for logging in: to its server, and of what its clients begin with.

use std::{num::NonZeroUsize, sync::Arc};

use foldhash::fast::RandomState;
use lru::LruCache;
use sluice_wire::{scram, secret::Secret};

use crate::{customs::Customs, logins::Generation, profile::Profile, secrets::Credentials, start::Start};

/// The knowledge of a pool for logging in, to its server and of its clients.
#[derive(Debug)]
pub struct Login {
    /// Keys seen at a client's login.
    pub keys: Option<scram::Keys>,
    /// The user's secret, where it is enough to log in (a plain password or an MD5 hash).
    pub secret: Option<Secret>,
    /// The number of times that what it logs in with has become something else.
    changes: u64,
    /// The report of the last server that was opened, as a hash, and the generation of its log-in.
    reported: Option<(u64, Generation)>,
    /// The reports of the server to clients that start with these settings.
    welcomes: LruCache<Start, Welcome, RandomState>,
}

/// Profiles for which a pool remembers what the server reports, at most; the one that nobody has started with longest
/// goes first.
const WELCOMES_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("it is not zero");

/// The server's report at login.
#[derive(Debug, Clone)]
pub struct Welcome {
    /// The one copy of the profile that its clients share.
    pub profile: Profile,
    /// The part of it that RESET goes back to: not what the server has set by itself.
    pub start: Profile,
    /// The custom settings that it has made.
    pub made: Customs,
    /// The ParameterStatus messages.
    pub parameters: Arc<[u8]>,
    /// The generation of the server that has said so.
    pub generation: Generation,
}

impl Default for Login {
    fn default() -> Self {
        // Grows as it is used: most pools know a few.
        let mut welcomes = LruCache::unbounded_with_hasher(RandomState::default());
        welcomes.resize(WELCOMES_MAX);
        Self { keys: None, secret: None, changes: 0, reported: None, welcomes }
    }
}

impl Login {
    /// Takes what a client's login has shown, in place of what was known before; says whether that was something else. One
    /// that has shown keys has shown all there is: a password of before may be another one.
    pub fn learn(&mut self, credentials: Credentials) -> bool {
        let Credentials { secret, keys } = credentials;
        let secret = if keys.is_some() { secret } else { secret.or_else(|| self.secret.clone()) };
        self.goes_by(secret, keys.or_else(|| self.keys.clone()))
    }

    /// Takes what the configuration says of the role, which what was shown before may contradict.
    pub(super) fn know(&mut self, listed: &Secret) {
        if self.secret.as_ref() != Some(listed) {
            self.goes_by(Some(listed.clone()), None);
        }
    }

    /// Takes what another pool of the same role knows, where nothing is known yet.
    pub(super) fn take_over(&mut self, before: &Self) {
        let secret = self.secret.clone().or_else(|| before.secret.clone());
        self.goes_by(secret, self.keys.clone().or_else(|| before.keys.clone()));
    }

    fn goes_by(&mut self, secret: Option<Secret>, keys: Option<scram::Keys>) -> bool {
        let is_other = self.secret != secret || self.keys != keys;
        self.changes += u64::from(is_other);
        (self.secret, self.keys) = (secret, keys);
        is_other
    }

    /// The number of times that what it logs in with has become something else.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The welcome of clients with these settings who log in now, if it is known.
    pub fn welcome(&mut self, start: &Start, generation: Generation) -> Option<Welcome> {
        self.welcomes.get(start).filter(|welcome| welcome.generation >= generation).cloned()
    }

    /// Remembers what the server reports.
    pub fn remember(&mut self, asked: Start, welcome: Welcome) {
        self.welcomes.put(asked, welcome);
    }

    /// Clients that log in may begin with something else from now on.
    pub(super) fn forget_welcomes(&mut self) {
        self.welcomes.clear();
    }

    /// Notes what a server has reported at its log-in, as a hash. Returns the generation of the one before it, if that did
    /// otherwise.
    pub fn reports_otherwise(&mut self, reported: u64, generation: Generation) -> Option<Generation> {
        let (before, generation) = self.reported.replace((reported, generation))?;
        (before != reported).then_some(generation)
    }
}
