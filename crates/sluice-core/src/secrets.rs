//! The clients' secrets: from a file, or looked up on the server and believed for a while.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use foldhash::fast::RandomState;
use lru::LruCache;

use sluice_wire::{
    ErrorResponse,
    scram::{self, ITERATIONS_DEFAULT, Verifier},
    secret::Secret,
    sqlstate,
};

use crate::{ids::ClientRef, time::Time};

/// Users whose secrets are remembered, at most; the one that nobody has asked for longest goes first.
const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("it is not zero");

/// Users whose secrets are being looked up at once, at most.
pub const ASKED_MAX: usize = 1024;

/// The parts of a client's login that are enough to log in to the server as the same user.
#[derive(Debug, Default)]
pub struct Credentials {
    /// Its secret, where that is a plain password or an MD5 hash.
    pub secret: Option<Secret>,
    /// The keys that its proof has shown.
    pub keys: Option<scram::Keys>,
}

/// The way in which clients prove who they are.
#[derive(Debug)]
pub struct Secrets {
    /// The method.
    pub method: Method,
    /// The seed of salts for users that do not exist; secret, and the same for the process's life.
    pub mock_seed: [u8; 32],
    source: Source,
    /// Verifiers of passwords that are known in clear, each with the password it was made of.
    derived: Mutex<LruCache<String, (String, Verifier), RandomState>>,
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

/// The source of secrets.
#[derive(Debug)]
pub enum Source {
    /// All of them are known.
    File(HashMap<String, Secret>),
    /// They are asked for one by one.
    LookUp(LookUp),
}

/// The secrets that have been looked up.
#[derive(Debug)]
pub struct LookUp {
    ttl: Duration,
    answers: Mutex<Answers>,
    /// The changes to what log-ins go by, wherever they are made: what was found before is asked for again.
    changes: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Answers {
    known: LruCache<String, Answer, RandomState>,
    /// The look-ups under way, and who waits for them.
    asking: HashMap<String, Asked>,
}

/// A look-up that is under way.
#[derive(Debug)]
struct Asked {
    waiting: Vec<ClientRef>,
    /// The changes before it was begun.
    changes: u64,
}

#[derive(Debug)]
struct Answer {
    found: Found,
    /// The changes that it has surely seen.
    changes: u64,
    /// The time at which it came.
    at: Time,
    /// Whether it is asked for again by the next one who needs it. Those whom it was found for still get it.
    doubted: bool,
}

/// The result of a look-up.
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
        Self { method, mock_seed, source, derived: Mutex::new(remembered()) }
    }

    /// The secret of `user`.
    pub fn get(&self, now: Time, user: &str, client: ClientRef) -> Known {
        match &self.source {
            Source::File(_) => Known::Now(Ok(self.listed(user))),
            Source::LookUp(look_up) => look_up.get(now, user, client),
        }
    }

    /// The secret of `user` in the file, if it is there.
    pub fn listed(&self, user: &str) -> Option<Secret> {
        match &self.source {
            Source::File(users) => users.get(user).cloned(),
            Source::LookUp(_) => None,
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
        derived.put(user.to_owned(), (password.to_owned(), verifier.clone()));
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
            Source::LookUp(look_up) => look_up.answers().known.peek(user).map(|answer| answer.found.clone()),
        }
    }

    /// The count of changes after which secrets are looked up again.
    pub fn changes(&self) -> Arc<AtomicU64> {
        match &self.source {
            Source::File(_) => Arc::default(),
            Source::LookUp(look_up) => look_up.changes.clone(),
        }
    }

    /// A login with this user's secret failed: the secret may have been changed on the server.
    pub fn doubt(&self, user: &str) {
        if let Source::LookUp(look_up) = &self.source
            && let Some(answer) = look_up.answers().known.peek_mut(user)
        {
            answer.doubted = true;
        }
    }
}

impl LookUp {
    /// With answers believed for `ttl`.
    pub fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            answers: Mutex::new(Answers { known: remembered(), asking: HashMap::new() }),
            changes: Arc::default(),
        }
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A user that does not exist takes the same way as one that does, so that the time it takes tells nothing. Only a
    /// look-up that has failed is not believed: what was wrong may be put right at any moment.
    fn get(&self, now: Time, user: &str, client: ClientRef) -> Known {
        let mut answers = self.answers();
        let changes = self.changes.load(Ordering::Acquire);
        if let Some(Answer { found: Ok(secret), at, doubted: false, changes: seen }) = answers.known.get(user)
            && now.since(*at) < self.ttl
            && *seen == changes
        {
            return Known::Now(Ok(secret.clone()));
        }
        if let Some(asked) = answers.asking.get_mut(user) {
            asked.waiting.push(client);
            return Known::Later { ask: false };
        }
        if answers.asking.len() >= ASKED_MAX {
            return Known::Now(Err(Arc::new(too_many())));
        }
        answers.asking.insert(user.to_owned(), Asked { waiting: vec![client], changes });
        Known::Later { ask: true }
    }

    fn found(&self, now: Time, user: &str, found: Found) -> Vec<ClientRef> {
        let mut answers = self.answers();
        let asked = answers.asking.remove(user);
        let changes = asked.as_ref().map_or(0, |asked| asked.changes);
        answers.known.put(user.to_owned(), Answer { found, changes, at: now, doubted: false });
        asked.map(|asked| asked.waiting).unwrap_or_default()
    }
}

fn remembered<V>() -> LruCache<String, V, RandomState> {
    // Grows as it is used.
    let mut remembered = LruCache::unbounded_with_hasher(RandomState::default());
    remembered.resize(REMEMBERED_MAX);
    remembered
}

fn too_many() -> ErrorResponse {
    ErrorResponse::fatal(
        sqlstate::CANNOT_CONNECT_NOW,
        format!("the secrets of {ASKED_MAX} other users are being looked up"),
    )
    .hint("Try again. If it lasts, the server answers too slowly, or somebody tries names.")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    const NOW: Time = Time(1_000_000);
    const CLIENT: ClientRef = ClientRef { worker: 0, id: crate::ids::ClientId(0), serial: 0 };

    fn secrets() -> Secrets {
        Secrets::new(Method::ScramSha256, Source::LookUp(LookUp::new(TTL)), [3; 32])
    }

    fn is_asked_for(secrets: &Secrets, now: Time, user: &str) -> bool {
        matches!(secrets.get(now, user, CLIENT), Known::Later { ask: true })
    }

    #[test]
    fn users_that_do_not_exist_are_answered_as_those_that_do() {
        for found in [Some(Secret::Plain("secret".to_owned())), None] {
            let secrets = secrets();
            let is_known =
                |now| matches!(secrets.get(now, "a", CLIENT), Known::Now(Ok(it)) if it.is_some() == found.is_some());
            assert!(is_asked_for(&secrets, NOW, "a"));
            assert!(matches!(secrets.get(NOW, "a", CLIENT), Known::Later { ask: false }));
            assert_eq!(secrets.found(NOW, "a", Ok(found.clone())), [CLIENT; 2]);
            assert!(is_known(NOW) && is_known(NOW + TTL / 2));
            // Its login fails.
            secrets.doubt("a");
            assert!(is_asked_for(&secrets, NOW, "a"));
            secrets.found(NOW, "a", Ok(found.clone()));
            assert!(is_known(NOW));
            assert!(is_asked_for(&secrets, NOW + TTL, "a"));
        }
    }

    #[test]
    fn a_look_up_that_fails_is_not_kept() {
        let secrets = secrets();
        assert!(is_asked_for(&secrets, NOW, "a"));
        let error = Arc::new(ErrorResponse::fatal(sqlstate::CANNOT_CONNECT, "no"));
        assert_eq!(secrets.found(NOW, "a", Err(error.clone())), [CLIENT]);
        assert!(matches!(secrets.last("a"), Some(Err(it)) if it == error));
        assert!(is_asked_for(&secrets, NOW, "a"));
    }

    #[test]
    fn no_more_is_asked_for_at_once_than_may_be() {
        let secrets = secrets();
        assert!((0..ASKED_MAX).all(|number| is_asked_for(&secrets, NOW, &number.to_string())));
        assert!(
            matches!(secrets.get(NOW, "one more", CLIENT), Known::Now(Err(e)) if e.code == "57P03" && e.hint.is_some())
        );
        // A client that waits with others needs no place.
        assert!(matches!(secrets.get(NOW, "0", CLIENT), Known::Later { ask: false }));
        assert_eq!(secrets.found(NOW, "0", Ok(None)).len(), 2);
        assert!(is_asked_for(&secrets, NOW, "one more"));
    }

    #[test]
    fn the_one_that_nobody_has_asked_for_longest_is_forgotten() {
        let secrets = secrets();
        for number in 0..REMEMBERED_MAX.get() {
            secrets.found(NOW, &number.to_string(), Ok(None));
        }
        let is_known = |user: &str| matches!(secrets.get(NOW, user, CLIENT), Known::Now(_));
        assert!(is_known("0"));
        secrets.found(NOW, "one more", Ok(None));
        assert!(is_known("0") && !is_known("1") && is_known("2") && is_known("one more"));
    }
}
