//! A client: where its session stands, and what follows it from server to server.

mod begun;
mod console;
mod login;
mod names;
mod reads;
mod reports;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use hashbrown::HashMap;
use sluice_hba::Place;
use sluice_wire::{FrontendKind, message::TransactionStatus};

pub use begun::Begun;
pub use login::{Certificate, Challenge, Demand, LoginRequest, Said, Wish};
pub use reads::{CatchUp, Reads};
pub use reports::Reports;

use crate::{
    admission::{Admitted, Connected},
    customs::Customs,
    encryption::ClientEncryption,
    holding::Pins,
    hub::Pool,
    ids::{ClientRef, ServerId},
    io::{Conn, Io, PeerAddress},
    logins::Generation,
    outcome::LostCommit,
    pauses::{Pauses, Reason},
    profile::{Context, Profile},
    queue::Ticket,
    replies::DescribedAs,
    server::{SequenceUser, Sequences, value_in_messages},
    sql::{Begin, Effects},
    start::{Start, StartupParameters},
    statement::{Prepared, Statement, Unnamed, known_name},
    stream::Stream,
    time::Time,
    watch::{Rest, Watch},
};

pub use console::Console;

/// A client that waits reads on until this much is kept for it, in bytes.
pub const PENDING_BYTES_MAX: usize = 64 << 10;

/// Names a client may have prepared at once: far above what drivers keep, far below what would hurt.
pub const NAMES_MAX: usize = 65_536;

/// The statements that are remembered after their names were given up, at most.
const FORMER_MAX: usize = 64;

/// The time after the use of a sequence in which a client may ask for what it gave, whoever waits for its server.
const ASK_TIMEOUT: Duration = Duration::from_millis(100);

/// A client.
#[derive(Debug)]
pub struct Client {
    /// Its connection.
    pub conn: Conn,
    /// Tells it from others that had the same number.
    pub serial: u32,
    /// Its address.
    pub peer: PeerAddress,
    /// The time at which it connected.
    pub connected_at: Time,
    /// The time since which it logs in; `None`: it does not count now.
    pub login_since: Option<Time>,
    /// The encryption of its connection.
    pub encryption: ClientEncryption,
    /// Its leave to be connected.
    pub connected: Option<Connected>,
    /// Its leave to be a client, once it has said that it wants to be.
    pub admitted: Option<Admitted>,
    /// Its phase.
    pub phase: Phase,
    /// The names that it has given, until it has logged in.
    pub said: Option<Box<Said>>,
    /// The place of the rule that it logs in by, until it has.
    pub rule: Option<Arc<Place>>,
    /// The stream of its messages.
    pub stream: Stream,
    /// The reasons why it is not read from.
    pub pauses: Pauses,
    /// Whether part of a message has come, and nothing but its rest is missing.
    pub unfinished: bool,
    /// The things that it has left undone while it has a server.
    pub watch: Watch,
    /// The time since its last request.
    pub rest: Rest,
    /// Bytes that have come and can't be handled yet: part of a message, or all while it waits.
    pub pending: Vec<u8>,
    /// Bytes that have to be there before another look at them is worth it.
    pub needed: usize,
    /// The key of its BackendKeyData.
    pub key: Box<[u8]>,
}

/// A client's phase, from its first byte to its session.
#[derive(Debug)]
pub enum Phase {
    /// Nothing: its balancer has to say first where it comes from.
    Header,
    /// Nothing but requests for encryption.
    Startup,
    /// It waits for the name of the system's user at its end of a Unix socket.
    Identity(Box<Wish>),
    /// It waits for its user's account to be looked up.
    Account(Box<Wish>),
    /// It was asked for its password.
    Password(Box<LoginRequest>, Challenge),
    /// It is known, and waits for a server to tell what it reports.
    Welcome(Box<Session>, Start),
    /// It is logged in.
    Open(Box<Session>),
    /// It talks to the admin console.
    Console(Console),
    /// It has sent a CancelRequest, and ends when that has been delivered.
    Asker,
}

/// A session of a client that has proven who it is.
#[derive(Debug)]
pub struct Session {
    /// Its pool.
    pub pool: Arc<Pool>,
    /// The settings it started with.
    pub start: Profile,
    /// The ParameterStatus messages that it was told then.
    pub told: Arc<[u8]>,
    /// The reloads of the configuration that there had been then.
    pub told_at: u64,
    /// The settings in place for it.
    pub profile: Profile,
    /// The generation of its log-in, or of a later server that it has had: it gets none of an earlier one.
    generation: Generation,
    /// The changes to roles that there had been when it last set one.
    pub role_set_at: u64,
    /// The parameters that its server is opened with.
    pub startup: StartupParameters,
    /// The server it has, or waits for.
    pub link: Link,
    /// The time since which it waits for that.
    pub waits_since: Option<Time>,
    /// Its prepared statements, by its names.
    pub names: Option<Box<Names>>,
    /// Those that it has given up since its server was last at rest: an error of before may speak of them.
    pub former: Vec<(Box<[u8]>, Arc<Statement>)>,
    /// Its unnamed statement.
    pub unnamed: Option<Unnamed>,
    /// The turn of the last one it had.
    unnamed_turn: u32,
    /// The statement behind the unnamed portal, if its shape should be noted when that portal is described.
    pub bound: Option<(Arc<Statement>, DescribedAs)>,
    /// Whether all is dropped up to the client's next Sync, because of an error.
    pub skipping: bool,
    /// The parameters that it is to hear of.
    pub reports: Reports,
    /// Whether the shape that a Bind was held for has come.
    pub learnt: bool,
    /// Whether the unnamed statement is prepared anew on its server for the Bind that comes.
    pub renewed: bool,
    /// The times that something was prepared for the message that comes next.
    pub preparations: u32,
    /// The unnamed portal, if Sluice answered its Bind by itself.
    pub portal: Option<OwnPortal>,
    /// The message that it is sending or has sent, where that waits for names to be lent, or has failed already.
    pub next: Waiting,
    /// The custom settings that it has made.
    pub made: Customs,
    /// Whether one of its named statements may be tied to the server where it was parsed.
    may_be_tied: bool,
    /// Whether one of its named statements may be a command that the pool carries out by itself.
    may_have_commands: bool,
    /// The settings by which the literals of its named statements were read.
    literals: Literals,
    /// Whether it may have used a sequence since it got its server.
    has_advanced: bool,
    /// The time up to which it is given to ask for what that was.
    asks_until: Option<Time>,
    /// The number of times that what sequences gave it is not for it to be told any more.
    sequences_lost: u32,
    /// The transaction that it was told has begun and that no server knows of yet.
    pub begun: Option<Begun>,
    /// Whether that was lost with its server: all of it fails with that error, its COMMIT above all.
    pub is_lost: bool,
    /// Whether that was amid a batch of which no message has been told so.
    pub loses_batch: bool,
    /// Its COMMIT whose answer was lost, until a server says what became of it.
    pub commit: Option<Box<LostCommit>>,
    /// Queries of Sluice's own that have failed one after another.
    pub failures: u8,
    /// It is to have a server that nobody has had: one that others have used has refused its settings.
    pub needs_new: bool,
    /// Its reads at standbys.
    pub reads: Reads,
}

/// A client's names and what they mean.
pub type Names = HashMap<Box<[u8]>, Prepared, foldhash::fast::RandomState>;

/// A client's server, or its way to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// None, and it needs none.
    None,
    /// It waits in its pool's queue.
    Waiting(Ticket),
    /// One was given to it and is on its way from another worker.
    Coming,
    /// This one.
    Server(ServerId),
}

/// The settings by which literals were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Literals {
    /// There have been none.
    None,
    /// These.
    By(Context),
    /// Not the same for all.
    Several,
}

/// The wait of a client's next message.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// There is none.
    #[default]
    None,
    /// It is a Query, and waits for the statements that it names to be lent to the server.
    ForNames,
    /// The client has heard an error for it: it is not sent.
    Failed,
}

/// A command that Sluice carries out by itself, bound to the unnamed portal; it stays what it is whatever becomes of
/// the statement.
#[derive(Debug)]
pub enum OwnPortal {
    /// The transaction that it begins.
    Begin(Begin),
    /// The name that it forgets.
    Deallocate(Box<[u8]>),
    /// Nothing more: it has run.
    Done,
}

impl Client {
    /// Whether what it sent next, and was not handled yet, is its goodbye.
    pub fn says_goodbye(&self) -> bool {
        !self.stream.is_inside()
            && self.pending.first().map(|tag| FrontendKind::from(*tag)) == Some(FrontendKind::Terminate)
    }

    /// Whether what it says is kept until somebody else has said something.
    pub fn waits_to_be_known(&self) -> bool {
        match &self.phase {
            Phase::Identity(_) | Phase::Account(_) | Phase::Welcome(..) => true,
            Phase::Console(console) => console.waits,
            _ => false,
        }
    }

    /// A client that has just connected.
    pub fn new(conn: Conn, serial: u32, peer: PeerAddress, now: Time) -> Self {
        Self {
            conn,
            serial,
            peer,
            connected_at: now,
            login_since: Some(now),
            encryption: ClientEncryption::None,
            connected: None,
            admitted: None,
            phase: Phase::Startup,
            said: None,
            rule: None,
            stream: Stream::default(),
            pauses: Pauses::default(),
            unfinished: false,
            watch: Watch::default(),
            rest: Rest::default(),
            pending: Vec::new(),
            needed: 0,
            key: Box::default(),
        }
    }

    /// Does not read from it, for one reason more.
    pub fn pause(&mut self, reason: Reason, io: &mut impl Io) {
        if self.pauses.add(reason) {
            io.pause(self.conn);
        }
    }

    /// Reads from it again, unless another reason is left.
    pub fn resume(&mut self, reason: Reason, io: &mut impl Io) {
        if self.pauses.remove(reason) {
            io.resume(self.conn);
        }
    }

    /// Its session, if it has proven who it is.
    pub fn session(&self) -> Option<&Session> {
        match &self.phase {
            Phase::Welcome(session, _) | Phase::Open(session) => Some(session),
            _ => None,
        }
    }

    /// Its session, if it has proven who it is.
    pub fn session_mut(&mut self) -> Option<&mut Session> {
        match &mut self.phase {
            Phase::Welcome(session, _) | Phase::Open(session) => Some(session),
            _ => None,
        }
    }

    /// The server it has.
    pub fn server(&self) -> Option<ServerId> {
        match self.session()?.link {
            Link::Server(server) => Some(server),
            _ => None,
        }
    }
}

impl Session {
    /// A session without a server.
    pub fn new(pool: Arc<Pool>, profile: Profile, startup: StartupParameters) -> Self {
        let generation = pool.log_ins.generation();
        pool.state().standings.enter(generation);
        Self {
            start: profile.clone(),
            told: Arc::default(),
            told_at: 0,
            profile,
            generation,
            role_set_at: pool.log_ins.changes(),
            startup,
            pool,
            link: Link::None,
            waits_since: None,
            names: None,
            former: Vec::new(),
            unnamed: None,
            unnamed_turn: 0,
            bound: None,
            skipping: false,
            reports: Reports::default(),
            learnt: false,
            renewed: false,
            preparations: 0,
            portal: None,
            next: Waiting::None,
            made: Customs::default(),
            may_be_tied: false,
            may_have_commands: false,
            literals: Literals::None,
            has_advanced: false,
            asks_until: None,
            sequences_lost: 0,
            begun: None,
            is_lost: false,
            loses_batch: false,
            commit: None,
            failures: 0,
            needs_new: false,
            reads: Reads::default(),
        }
    }

    /// It is told these parameters as it logs in.
    pub fn is_told(&mut self, parameters: &Arc<[u8]>) {
        self.told = parameters.clone();
        self.told_at = self.pool.log_ins.reloads();
    }

    /// Whether it says a part of `DateStyle` as it logs in, and PostgreSQL may complete it from another one than its
    /// server has begun with.
    pub fn lacks_date_style(&self, start: &Start) -> bool {
        start.leaves_date_style_open() && !self.pool.log_ins.all_begin_as_configured()
    }

    /// It goes on in another pool, without a server.
    pub fn move_to(&mut self, pool: Arc<Pool>) {
        debug_assert!(!self.reads.is_away(), "it is at home where it comes to have another one");
        self.pool.state().standings.leave(self.generation);
        // Servers of before were not asked to say where their commits are.
        self.reads.has_unknown |= pool.upstream.reports_commits && !self.pool.upstream.reports_commits;
        self.be_in(pool);
        self.pool.state().standings.enter(self.generation);
    }

    /// It is in that pool from now on. Whatever that one's server is like is new to it.
    fn be_in(&mut self, pool: Arc<Pool>) {
        debug_assert_eq!(self.link, Link::None, "a client with a server is where that server is");
        self.generation = pool.log_ins.generation();
        self.pool = pool;
        self.forget_server();
    }

    /// The generation of its log-in, or of a later server that it has had: it gets none of an earlier one.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// It has had a server, or what one has said, of that generation.
    pub fn goes_by(&mut self, generation: Generation) {
        let before = std::mem::replace(&mut self.generation, generation);
        if before != generation && !self.reads.is_away() {
            let mut state = self.pool.state();
            state.standings.enter(generation);
            state.standings.leave(before);
        }
    }

    /// The transaction status of a client without a server.
    pub fn status(&self) -> TransactionStatus {
        match self.begun {
            None => TransactionStatus::Idle,
            Some(Begun { failed: false, .. }) => TransactionStatus::InTransaction,
            Some(Begun { failed: true, .. }) => TransactionStatus::Failed,
        }
    }

    /// The statement behind one of its names.
    pub fn named(&self, name: &[u8]) -> Option<&Prepared> {
        self.names.as_ref()?.get(known_name(name))
    }

    /// Whether one of its named statements is tied to the server where it was parsed.
    pub fn has_tied(&mut self) -> bool {
        let is_tied = |names: &Names| names.values().any(|prepared| prepared.statement.is_tied);
        self.may_be_tied = self.may_be_tied && self.names.as_deref().is_some_and(is_tied);
        self.may_be_tied
    }

    /// Notes what its transaction has done that it may ask for later, and gives the pins that it keeps its server by.
    /// `sequences` says whether its server's session may remember the use of one.
    pub fn note_effects(&mut self, now: Time, effects: Effects, sequences: bool) -> Pins {
        if sequences && effects.intersects(Effects::USES_SEQUENCE) {
            self.has_advanced = true;
            self.asks_until = Some(now + ASK_TIMEOUT);
        }
        let mut pins = Pins::empty();
        if self.has_advanced && self.pool.reads_sequences.load(Ordering::Relaxed) {
            pins |= Pins::SEQUENCE;
        }
        if self.has_tied() {
            pins |= Pins::LITERAL;
        }
        pins
    }

    /// Itself as a user of sequences; `client` is its name.
    pub fn sequence_user(&self, client: ClientRef) -> SequenceUser {
        SequenceUser { client, times: self.sequences_lost }
    }

    /// The same, as it is about to use one on a server: what another one may remember of it is over.
    pub fn uses_sequence(&mut self, client: ClientRef, on: &Sequences) -> SequenceUser {
        if !on.were_last_used_by(self.sequence_user(client)) {
            self.forget_sequences();
        }
        self.sequence_user(client)
    }

    /// It has discarded what sequences gave it.
    pub fn forget_sequences(&mut self) {
        self.sequences_lost += 1;
    }

    /// It asks for what sequences gave it.
    pub fn asks_for_sequences(&mut self) {
        self.asks_until = None;
    }

    /// The time up to which it may yet ask for that, in a pool where somebody has.
    pub fn asks_until(&self) -> Option<Time> {
        self.asks_until.filter(|_| self.pool.reads_sequences.load(Ordering::Relaxed))
    }

    /// It has got another server, of which it knows nothing.
    pub fn forget_server(&mut self) {
        self.has_advanced = false;
        self.asks_until = None;
    }

    /// Notes that the client has got a statement by name.
    pub fn note_named(&mut self, statement: &Statement) {
        self.may_be_tied |= statement.is_tied;
        self.may_have_commands |= statement.is_command();
        if statement.effects.intersects(Effects::LITERAL) {
            let context = statement.profile.context();
            self.literals = match self.literals {
                Literals::None => Literals::By(context),
                Literals::By(known) if known == context => Literals::By(known),
                _ => Literals::Several,
            };
        }
    }

    /// Whether one of its named statements may be a command that the pool carries out by itself.
    pub fn may_have_commands(&self) -> bool {
        self.may_have_commands
    }

    /// Whether there are literals in its named statements.
    pub fn has_literals(&self) -> bool {
        self.literals != Literals::None
    }

    /// Whether literals of its named statements may have been read by other settings than those in place: `None` if
    /// nobody knows these.
    pub fn may_be_apart(&self, in_place: Option<Context>) -> bool {
        match self.literals {
            Literals::None => false,
            Literals::By(context) => in_place != Some(context),
            Literals::Several => true,
        }
    }

    /// The value of a parameter that it started with, as the server has reported it: what was asked for may have been
    /// written otherwise. `name` is the server's.
    pub fn start_reported(&self, name: &str) -> Option<&str> {
        self.start.get(&name.to_ascii_lowercase())?;
        value_in_messages(&self.told, name)
    }

    /// All that it sends up to its next Sync has failed.
    pub fn skip_batch(&mut self) {
        self.next = Waiting::None;
        self.skipping = true;
        self.portal = None;
        (self.learnt, self.renewed) = (false, false);
    }

    /// Its Sync has come.
    pub fn end_batch(&mut self) {
        self.skipping = false;
        if let Some(unnamed) = &mut self.unnamed {
            unnamed.is_of_before = true;
        }
    }
}
