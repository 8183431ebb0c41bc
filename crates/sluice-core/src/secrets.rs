//! The clients' secrets and roles: listed in the configuration, or looked up on the server and believed for a while.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use foldhash::fast::RandomState;
use lru::LruCache;
use sluice_control::access::{Access, LookUp, Users};
use sluice_hba::Roles;
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

/// The knowledge of the clients' secrets besides what the configuration says.
#[derive(Debug)]
pub struct Secrets {
    /// The seed of salts for users that do not exist; secret, and the same for the process's life.
    pub mock_seed: [u8; 32],
    answers: Mutex<Answers>,
    /// The changes to what log-ins go by, wherever they are made: what was found before is asked for again.
    changes: Arc<AtomicU64>,
    /// The changes of which the last one was that they are somewhere else.
    moved_at: AtomicU64,
    /// Whether the server makes secrets of SCRAM now (`password_encryption`).
    of_scram: AtomicBool,
    /// Verifiers of passwords that are known in clear, each with the password it was made of.
    derived: Mutex<LruCache<String, (String, Verifier), RandomState>>,
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
pub type Found = Result<Account, Arc<ErrorResponse>>;

/// The knowledge of a user that a log-in goes by. One who does not exist has an empty one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// The secret, if there is one.
    pub secret: Option<Secret>,
    /// The roles that the user is a member of, itself among them, where rules ask for them.
    pub roles: Arc<Roles>,
    /// The role that it is, if there is one.
    pub role: Option<Role>,
}

impl Account {
    /// The same of a user whose secret is listed, whatever it is on the server.
    fn with(self, listed: &Option<Secret>) -> Self {
        Self { secret: listed.clone(), ..self }
    }
}

/// The users that are listed beside a look-up, with their secrets.
type Listed = HashMap<String, Option<Secret>>;

/// A role on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role {
    /// Its number there, which another one of that name does not have.
    pub oid: u32,
    /// Whether it may log in.
    pub may_log_in: bool,
}

impl From<Option<Secret>> for Account {
    fn from(secret: Option<Secret>) -> Self {
        Self { secret, ..Self::default() }
    }
}

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
    /// None yet.
    pub fn new(mock_seed: [u8; 32]) -> Self {
        Self {
            mock_seed,
            answers: Mutex::new(Answers { known: remembered(), asking: HashMap::new() }),
            changes: Arc::default(),
            moved_at: AtomicU64::new(0),
            of_scram: AtomicBool::new(true),
            derived: Mutex::new(remembered()),
        }
    }

    /// The account of `user`.
    pub fn get(&self, access: &Access, now: Time, user: &str, client: ClientRef) -> Known {
        match &access.users {
            Users::Listed(users) => Known::Now(Ok(users.get(user).cloned().into())),
            Users::LookedUp(look_up, listed) => match listed.get(user) {
                Some(secret) if !look_up.asks_roles => Known::Now(Ok(secret.clone().into())),
                // The server knows its roles alone.
                Some(secret) => match self.look_up(look_up, now, user, client) {
                    Known::Now(found) => Known::Now(found.map(|account| account.with(secret))),
                    later @ Known::Later { .. } => later,
                },
                None => self.look_up(look_up, now, user, client),
            },
        }
    }

    /// The verifier of a password in clear. Runs PBKDF2 once for each user and password.
    pub fn verifier(&self, user: &str, password: &str) -> Verifier {
        let derived = || self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, verifier)) = derived().get(user)
            && of == password
        {
            return verifier.clone();
        }
        let salt = Verifier::mock(&self.mock_seed, user).salt;
        let verifier = Verifier::derive(password, &salt, ITERATIONS_DEFAULT);
        derived().put(user.to_owned(), (password.to_owned(), verifier.clone()));
        verifier
    }

    /// Makes the verifiers of these users' passwords, so that no first log-in takes longer than that of a user that does not
    /// exist. It takes its time.
    pub fn derive(&self, passwords: &[(String, String)]) {
        for (user, password) in passwords.iter().take(REMEMBERED_MAX.get()) {
            self.verifier(user, password);
        }
    }

    /// A user that does not exist takes the same way as one that does, so that the time it takes tells nothing. Only a
    /// look-up that has failed is not believed: what was wrong may be put right at any moment.
    fn look_up(&self, look_up: &LookUp, now: Time, user: &str, client: ClientRef) -> Known {
        let mut answers = self.answers();
        let changes = self.changes.load(Ordering::Acquire);
        if let Some(Answer { found: Ok(account), at, doubted: false, changes: seen }) = answers.known.get(user)
            && now.since(*at) < look_up.cache
            && *seen == changes
        {
            return Known::Now(Ok(account.clone()));
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

    /// A client that waited for a look-up has gone.
    pub fn no_longer_waits(&self, user: &str, client: ClientRef) {
        if let Some(asked) = self.answers().asking.get_mut(user) {
            asked.waiting.retain(|waiting| *waiting != client);
        }
    }

    /// Whether a look-up is worth its time; one that nobody waits for any more is over.
    pub fn is_wanted(&self, user: &str) -> bool {
        let mut answers = self.answers();
        let is_wanted = answers.asking.get(user).is_some_and(|asked| !asked.waiting.is_empty());
        if !is_wanted {
            answers.asking.remove(user);
        }
        is_wanted
    }

    /// Whether an answer is of another role of that name than the one before it, or of one that may log in no longer. A
    /// role whose secret was changed is the same one, and PostgreSQL leaves its sessions alone.
    pub fn is_another(&self, user: &str, found: &Found) -> bool {
        let answers = self.answers();
        let before = answers.known.peek(user).and_then(|answer| answer.found.as_ref().ok());
        before.zip(found.as_ref().ok()).is_some_and(|(before, found)| match (before.role, found.role) {
            (None, None) => before.secret != found.secret,
            (before, found) => before != found,
        })
    }

    /// Whether users that do not exist are asked by SCRAM where either way may do: as PostgreSQL asks them, by the secret
    /// that it would make.
    pub fn are_of_scram(&self, access: &Access) -> bool {
        match &access.users {
            Users::Listed(users) => users.values().any(|secret| matches!(secret, Secret::Scram(_))),
            Users::LookedUp(..) => self.of_scram.load(Ordering::Relaxed),
        }
    }

    /// The server makes secrets like that now.
    pub fn are_made_of_scram(&self, are: bool) {
        self.of_scram.store(are, Ordering::Relaxed);
    }

    /// The answer of a look-up has come; gives those who waited for it.
    pub fn found(&self, now: Time, user: &str, found: Found) -> Vec<ClientRef> {
        let mut answers = self.answers();
        let asked = answers.asking.remove(user);
        let changes = asked.as_ref().map_or(0, |asked| asked.changes);
        answers.known.put(user.to_owned(), Answer { found, changes, at: now, doubted: false });
        asked.map(|asked| asked.waiting).unwrap_or_default()
    }

    /// The last answer of a look-up, however old, unless it may be from where the secrets were before, or the user need not
    /// be looked up any more.
    pub fn last(&self, (look_up, listed): (&LookUp, &Listed), user: &str) -> Option<Found> {
        let moved_at = self.moved_at.load(Ordering::Acquire);
        let found = self.answers().known.peek(user).filter(|it| it.changes >= moved_at).map(|it| it.found.clone())?;
        match listed.get(user) {
            Some(_) if !look_up.asks_roles => None,
            Some(secret) => Some(found.map(|account| account.with(secret))),
            None => Some(found),
        }
    }

    /// The count of changes after which secrets are looked up again.
    pub fn changes(&self) -> Arc<AtomicU64> {
        self.changes.clone()
    }

    /// Secrets are somewhere else from now on: nothing that was found before is believed.
    pub fn moved(&self) {
        let changes = self.changes.fetch_add(1, Ordering::AcqRel) + 1;
        self.moved_at.store(changes, Ordering::Release);
    }

    /// A login with this user's secret failed: the secret may have been changed on the server.
    pub fn doubt(&self, user: &str) {
        if let Some(answer) = self.answers().known.peek_mut(user) {
            answer.doubted = true;
        }
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
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
    .hint("Try again. If it lasts, the server answers too slowly, or someone is guessing user names.")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_control::{
        access::{Method, Policy},
        address::Address,
        server_auth::ServerAuth,
    };

    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    const NOW: Time = Time(1_000_000);
    const CLIENT: ClientRef = ClientRef { worker: 0, id: crate::ids::ClientId(0), serial: 0 };

    fn secrets() -> Secrets {
        Secrets::new([3; 32])
    }

    fn look_up(asks_roles: bool) -> LookUp {
        LookUp {
            cluster: None,
            tls: None,
            address: Address::Tcp("localhost".to_owned(), 5432),
            dbname: "postgres".to_owned(),
            user: "asks".to_owned(),
            password: None,
            server_auth: ServerAuth::default(),
            query: "select $1".to_owned(),
            asks_roles,
            cache: TTL,
        }
    }

    fn listed() -> Listed {
        let plain = Secret::Plain("listed".to_owned());
        HashMap::from([("listed".to_owned(), Some(plain)), ("without".to_owned(), None)])
    }

    fn get_by(look_up: LookUp, secrets: &Secrets, user: &str) -> Known {
        let access = Access { policy: Policy::Method(Method::ScramSha256), users: Users::LookedUp(look_up, listed()) };
        secrets.get(&access, NOW, user, CLIENT)
    }

    fn get(secrets: &Secrets, now: Time, user: &str) -> Known {
        let users = Users::LookedUp(look_up(false), listed());
        let access = Access { policy: Policy::Method(Method::ScramSha256), users };
        secrets.get(&access, now, user, CLIENT)
    }

    fn last(secrets: &Secrets, user: &str) -> Option<Found> {
        secrets.last((&look_up(false), &listed()), user)
    }

    fn is_asked_for(secrets: &Secrets, now: Time, user: &str) -> bool {
        matches!(get(secrets, now, user), Known::Later { ask: true })
    }

    #[test]
    fn users_that_do_not_exist_are_answered_as_those_that_do() {
        for found in [Some(Secret::Plain("secret".to_owned())), None] {
            let secrets = secrets();
            let is_known = |now| matches!(get(&secrets, now, "a"), Known::Now(Ok(it)) if it.secret == found);
            assert!(is_asked_for(&secrets, NOW, "a"));
            assert!(matches!(get(&secrets, NOW, "a"), Known::Later { ask: false }));
            assert_eq!(secrets.found(NOW, "a", Ok(found.clone().into())), [CLIENT; 2]);
            assert!(is_known(NOW) && is_known(NOW + TTL / 2));
            // Its login fails.
            secrets.doubt("a");
            assert!(is_asked_for(&secrets, NOW, "a"));
            secrets.found(NOW, "a", Ok(found.clone().into()));
            assert!(is_known(NOW));
            // They are kept elsewhere now: what is asked for meanwhile is not asked for there.
            secrets.moved();
            assert!(is_asked_for(&secrets, NOW, "a"));
            secrets.moved();
            secrets.found(NOW, "a", Ok(found.clone().into()));
            assert!(last(&secrets, "a").is_none(), "those who waited for it get it from there, too");
            assert!(is_asked_for(&secrets, NOW, "a"));
            secrets.found(NOW, "a", Ok(found.clone().into()));
            assert!(is_known(NOW));
            assert!(is_asked_for(&secrets, NOW + TTL, "a"));
        }
    }

    #[test]
    fn users_that_are_listed_are_not_looked_up() {
        let secrets = secrets();
        let plain = Some(Secret::Plain("listed".to_owned()));
        assert!(matches!(get(&secrets, NOW, "listed"), Known::Now(Ok(it)) if it.secret == plain));
        assert!(matches!(get(&secrets, NOW, "without"), Known::Now(Ok(it)) if it.secret.is_none()));
        assert!(is_asked_for(&secrets, NOW, "another"));
        // Rules may ask for their roles, which the server knows.
        let by_roles = |user: &str| get_by(look_up(true), &secrets, user);
        assert!(matches!(by_roles("listed"), Known::Later { ask: true }));
        let roles = Arc::new(["staff"].into_iter().collect::<Roles>());
        let secret = Some(Secret::Plain("of the server".to_owned()));
        secrets.found(NOW, "listed", Ok(Account { secret, roles: roles.clone(), role: None }));
        for known in [by_roles("listed"), Known::Now(secrets.last((&look_up(true), &listed()), "listed").unwrap())] {
            assert!(matches!(known, Known::Now(Ok(it)) if it.secret == plain && it.roles == roles));
        }
        assert!(last(&secrets, "listed").is_none());
    }

    #[test]
    fn a_role_is_another_one_by_its_number_and_where_it_has_none_by_its_secret() {
        let role = |oid, may_log_in| Some(Role { oid, may_log_in });
        let account = |role, secret: &str| {
            let secret = Some(Secret::Plain(secret.to_owned()));
            Account { secret, role, ..Account::default() }
        };
        for (before, after, is_another) in [
            (account(role(1, true), "a"), account(role(1, true), "a"), false),
            (account(role(1, true), "a"), account(role(1, true), "b"), false),
            (account(role(1, true), "a"), account(role(2, true), "a"), true),
            (account(role(1, true), "a"), account(role(1, false), "a"), true),
            (account(role(1, true), "a"), account(None, "a"), true),
            (account(None, "a"), account(None, "a"), false),
            (account(None, "a"), account(None, "b"), true),
        ] {
            let secrets = secrets();
            assert!(!secrets.is_another("a", &Ok(before.clone())), "nothing was known of it");
            secrets.found(NOW, "a", Ok(before.clone()));
            assert_eq!(secrets.is_another("a", &Ok(after.clone())), is_another, "{before:?} {after:?}");
        }
    }

    #[test]
    fn a_look_up_that_nobody_waits_for_is_not_made() {
        let secrets = secrets();
        assert!(is_asked_for(&secrets, NOW, "a") && secrets.is_wanted("a"));
        secrets.no_longer_waits("a", CLIENT);
        // Somebody else comes before its turn.
        assert!(matches!(get(&secrets, NOW, "a"), Known::Later { ask: false }));
        assert!(secrets.is_wanted("a"));
        secrets.no_longer_waits("a", CLIENT);
        assert!(!secrets.is_wanted("a"));
        assert!(is_asked_for(&secrets, NOW, "a"), "it has to be asked for anew");
    }

    #[test]
    fn a_look_up_that_fails_is_not_kept() {
        let secrets = secrets();
        assert!(is_asked_for(&secrets, NOW, "a"));
        let error = Arc::new(ErrorResponse::fatal(sqlstate::CANNOT_CONNECT, "no"));
        assert_eq!(secrets.found(NOW, "a", Err(error.clone())), [CLIENT]);
        assert!(matches!(last(&secrets, "a"), Some(Err(it)) if it == error));
        assert!(is_asked_for(&secrets, NOW, "a"));
    }

    #[test]
    fn no_more_is_asked_for_at_once_than_may_be() {
        let secrets = secrets();
        assert!((0..ASKED_MAX).all(|number| is_asked_for(&secrets, NOW, &number.to_string())));
        assert!(matches!(get(&secrets, NOW, "one more"), Known::Now(Err(e)) if e.code == "57P03" && e.hint.is_some()));
        // A client that waits with others needs no place.
        assert!(matches!(get(&secrets, NOW, "0"), Known::Later { ask: false }));
        assert_eq!(secrets.found(NOW, "0", Ok(Account::default())).len(), 2);
        assert!(is_asked_for(&secrets, NOW, "one more"));
    }

    #[test]
    fn the_one_that_nobody_has_asked_for_longest_is_forgotten() {
        let secrets = secrets();
        for number in 0..REMEMBERED_MAX.get() {
            secrets.found(NOW, &number.to_string(), Ok(Account::default()));
        }
        let is_known = |user: &str| matches!(get(&secrets, NOW, user), Known::Now(_));
        assert!(is_known("0"));
        secrets.found(NOW, "one more", Ok(Account::default()));
        assert!(is_known("0") && !is_known("1") && is_known("2") && is_known("one more"));
    }
}
