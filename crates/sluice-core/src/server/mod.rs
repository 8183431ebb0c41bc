//! A server connection: where it stands in the protocol, and what is in place there.

mod batch_resets;
mod begin;
mod cancels;
mod changing;
mod exchange;
mod implicit;
mod lent;
mod login;
mod parameters;
mod question;
mod replay;
mod running;
mod sequences;
mod session;
mod statements;
mod turns;

use std::{sync::Arc, time::Duration};

use sluice_control::settings::{PinPolicy, PoolMode};
use sluice_wire::{ErrorResponse, FrontendKind, message::TransactionStatus};

use crate::{
    alarm::Alarm,
    client_address::AddressFunction,
    encryption::ServerEncryption,
    holding::{CATALOG_PARAMETER, CONFIGURATION_PARAMETER, Holding, Pins, SESSION_PARAMETER, is_own_parameter},
    hub::{Pinned, Pool},
    ids::{ClientId, ClientRef, Conn, ServerRef},
    logins::Opened,
    lsn::Lsn,
    outcome::{COMMIT_PARAMETER, LostCommit, Mark, Outcome, TRANSACTION_PARAMETER},
    profile::Profile,
    replies::Own,
    slow::Request,
    sql::{self, CustomNames, Effects, effects, effects_of_beginning},
    start::StartupParameters,
    statement::ACCEPTED_AGE_MAX,
    stream::Stream,
    time::Time,
    traffic::Meter,
    watch::Overdue,
};

pub use begin::EarlyBegin;
pub use cancels::Cancels;
pub use exchange::{Admission, Exchange, Farewell, InDoubt, Left, is_of_copy};
pub use lent::{Lent, may_be_lent};
pub use login::{LoginNotices, ServerLogin};
pub use parameters::{IN_HOT_STANDBY, Parameters, parameter_statuses, value_in_messages};
pub use question::{Answers, Question};
pub use replay::{REPLAY_BYTES_MAX, Remedy, Replay};
pub use running::Running;
pub use sequences::{SequenceUser, Sequences};
pub use session::ServerSession;
pub use statements::{ServerStatements, There};
pub use turns::Turn;

/// The version of PostgreSQL from which on triggers run at a log-in.
const LOGIN_TRIGGERS: u32 = 17;

/// The time for which what a server said last of changes to its catalogs is taken to be true still; it says so at the
/// end of a request.
const CATALOG_AGE_MAX: Duration = Duration::from_millis(100);

/// A server connection.
#[derive(Debug)]
pub struct Server {
    /// Its connection.
    pub conn: Conn,
    /// The encryption of that.
    pub encryption: ServerEncryption,
    /// Tells it from others of its worker that had the same number.
    pub serial: u32,
    /// Its pool.
    pub pool: Arc<Pool>,
    /// Its role.
    pub role: Role,
    /// Whether its client has sent it anything since it got it: before that, nothing there is the client's doing.
    pub is_in_use: bool,
    /// Its last client, and the changes to log-ins before that got it: roles of the same names may be others since.
    pub holder: Option<(ClientRef, u64)>,
    /// The work that its client is in the midst of, for the figures.
    pub meter: Meter,
    /// The limit of what it is asked for.
    pub overdue: Overdue,
    /// The statement that the unnamed portal is bound to, for the figures.
    pub running: Running,
    /// Whether it is closed when its client lets it go.
    pub is_worn: bool,
    /// Its log-in.
    pub opened: Opened,
    /// The stream of its messages.
    pub stream: Stream,
    /// A message that must be seen whole, as far as it has come.
    pub pending: Vec<u8>,
    /// Bytes that have to be there before another look at them is worth it.
    pub needed: usize,
    /// Whether reading stopped because the client does not read.
    pub paused: bool,
    /// The messages between it and its client.
    pub exchange: Exchange,
    /// The request of its client's that it is answering, for the log.
    pub request: Request,
    /// The prepared statements it has.
    pub statements: ServerStatements,
    /// The statements that it has under its client's own names.
    pub lent: Lent,
    /// Its session: settings, and what ties a client to it.
    pub session: ServerSession,
    /// The parameters that it has reported.
    pub parameters: Parameters,
    /// The notices of its log-in.
    pub notices: LoginNotices,
    /// The clients whose uses of sequences `currval` and `lastval` would show there.
    pub sequences: Sequences,
    /// Its client's leave to keep it between transactions.
    pub kept: Option<Kept>,
    /// The work of Sluice's own there before its client's next message goes to it.
    pub preparation: Preparation,
    /// The query of Sluice's own that has failed.
    pub own_error: Option<Box<OwnError>>,
    /// The mark of the block that its client has open there, once that has written something.
    pub mark: Option<Mark>,
    /// Its word about a COMMIT whose answer was lost with another server.
    pub outcome: Option<Outcome>,
    /// The end of its session's last commit in the log; `None` if it does not say.
    pub committed: Option<Lsn>,
    /// The place up to which it had replayed the log when it was asked last, as a standby; `None` if it has never said.
    pub replayed: Option<Lsn>,
    /// The time up to which its client waits for that.
    pub asked_until: Option<Time>,
    /// Whether it has told its client why it ends the connection.
    pub said_why: bool,
    /// The CancelRequests for it.
    pub cancels: Cancels,
    /// The time at which it is looked at next, because of a deadline.
    pub alarm: Alarm,
    /// Its function to which clients' addresses are reported.
    pub address_function: AddressFunction,
    /// Whether it shows the address of a client, as it does until another one is reported.
    pub shows_client: bool,
    /// Its BackendKeyData.
    pub key: Option<(u32, Box<[u8]>)>,
}

/// The work of Sluice's own on a server that belongs to a client, while that client's messages wait.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Preparation {
    /// Nothing.
    #[default]
    None,
    /// It is under way.
    UnderWay,
    /// It is done, and the client's message that waited for it comes next.
    Done,
}

/// A query of Sluice's own that has failed.
#[derive(Debug)]
pub struct OwnError {
    /// The purpose of the query.
    pub own: Own,
    /// The server's words.
    pub error: ErrorResponse,
}

/// The role of a server.
#[derive(Debug)]
pub enum Role {
    /// Connecting or logging in.
    Opening {
        /// The time at which to give up.
        deadline: Time,
        /// The stage of its login.
        login: ServerLogin,
        /// The attempt that this is.
        attempt: Attempt,
        /// The number of the secret that it logs in with, or of an earlier one ([`Login::changes`]).
        secret: u64,
    },
    /// In the pool, free.
    Idle,
    /// It belongs to this client.
    Serving(ClientId),
    /// Its client is gone, or it is being put in order: nobody gets what it says.
    Settling {
        /// The time at which to give up.
        deadline: Time,
    },
}

/// An attempt to open a connection. Where encryption is a matter of taste, a second one is made without it, or with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// In the way that is preferred.
    First,
    /// In the other way.
    Second,
}

/// A client's leave to keep its server between transactions.
#[derive(Debug)]
pub struct Kept {
    /// Its place among those that do.
    pinned: Pinned,
    /// The time at which the server is taken from it, if others wait then.
    recall_at: Option<Time>,
}

/// The concern of a reported parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// The client's.
    Clients,
    /// The pool's own.
    Own,
    /// The pool's own, in words that it does not know.
    Unreadable,
}

impl Server {
    /// A connection that is being opened with these parameters.
    pub fn opening(conn: Conn, serial: u32, pool: Arc<Pool>, startup: StartupParameters, now: Time) -> Self {
        let opened = Opened { at: now, generation: pool.log_ins.generation(), startup, has_served: false };
        let (connect_timeout, prepared_max) = pool.state().for_new_servers();
        let secret = pool.login().changes();
        let statements = ServerStatements::new(prepared_max);
        let session = ServerSession::new(pool.catalog.altered());
        Self {
            conn,
            encryption: ServerEncryption::None,
            serial,
            role: Role::Opening {
                deadline: now + connect_timeout,
                login: ServerLogin::Connecting,
                attempt: Attempt::First,
                secret,
            },
            pool,
            is_in_use: false,
            holder: None,
            meter: Meter::default(),
            overdue: Overdue::default(),
            running: Running::default(),
            is_worn: false,
            opened,
            stream: Stream::default(),
            pending: Vec::new(),
            needed: 0,
            paused: false,
            exchange: Exchange::new(now),
            request: Request::none(),
            statements,
            lent: Lent::default(),
            session,
            parameters: Parameters::default(),
            notices: LoginNotices::default(),
            sequences: Sequences::default(),
            kept: None,
            preparation: Preparation::None,
            own_error: None,
            mark: None,
            outcome: None,
            committed: None,
            replayed: None,
            asked_until: None,
            said_why: false,
            cancels: Cancels::new(now),
            alarm: Alarm::default(),
            address_function: AddressFunction::Unknown,
            shows_client: false,
            key: None,
        }
    }

    /// Whether its transaction has ended and nothing is owed or half sent.
    pub fn is_at_rest(&self) -> bool {
        self.exchange.reported_status() == TransactionStatus::Idle
            && self.is_settled()
            && self.preparation != Preparation::Done
    }

    /// Whether nothing is owed or half sent, in either direction; a transaction may be open.
    pub fn is_settled(&self) -> bool {
        self.exchange.is_settled() && self.has_whole_messages()
    }

    /// Whether a client's message of that kind may go to it now.
    pub fn admission(&self, kind: FrontendKind) -> Admission {
        // Where something unasked is passing, an answer of Sluice's own would land in the midst of it.
        let is_passing = !self.exchange.owes() && self.stream.is_inside();
        // Behind its last word nothing is answered.
        if self.preparation != Preparation::None || is_passing || self.said_why {
            return Admission::Later;
        }
        self.exchange.admission(kind)
    }

    /// Whether a client's settings have been put in place, and its first message may come.
    pub fn is_ready(&self) -> bool {
        self.is_fresh() && self.preparation == Preparation::Done
    }

    /// Whether a client's settings are being put in place, or have been, and nothing else of that client's is there:
    /// another server would do.
    pub fn is_replaceable(&self) -> bool {
        // What it has done there before, in the same stretch, nobody else knows.
        let is_shared = self.follows_statements() && self.kept.is_none() && self.session.effects().is_empty();
        let is_for_settings = self.preparation == Preparation::Done || self.exchange.replies().are_for_settings();
        is_shared && self.is_fresh() && is_for_settings
    }

    /// Whether its client has a block open there that is rolled back for certain where a cluster's primary is lost, and
    /// nothing else of its session goes with that: the client can be told so, and stay.
    pub fn rolls_back(&self) -> bool {
        self.leaves_nothing() && self.exchange.rolls_back()
    }

    /// Whether it is a standby, by its own words (PostgreSQL 14 and later).
    pub fn is_in_recovery(&self) -> bool {
        self.parameters.get(IN_HOT_STANDBY) == Some("on")
    }

    /// Whether the level at which a transaction begins there may be one by which a snapshot is refused, or has to wait
    /// for others: SERIALIZABLE at a standby, and SERIALIZABLE READ ONLY DEFERRABLE. The level is not reported, whoever
    /// has set it; what it takes besides is (PostgreSQL 14 and later).
    pub fn may_withhold_snapshots(&self) -> bool {
        self.is_in_recovery()
            || self.parameters.get("default_transaction_read_only") == Some("on")
            || self.session.has_put_in_place("default_transaction_deferrable")
    }

    /// Whether its client has sent a COMMIT to a standby and has no answer to it: a block there has written nothing, so
    /// it is as good as rolled back.
    pub fn fails_commit(&self) -> bool {
        let reads = self.pool.upstream.is_standby() && !self.is_worn;
        reads && self.preparation == Preparation::None && self.leaves_nothing() && self.exchange.owes_commit()
    }

    /// The COMMIT that its client has sent and has no answer to, if its transaction can be known on another server, and
    /// nothing else of its session goes with this one.
    pub fn lost_commit(&self) -> Option<LostCommit> {
        let is_known = self.preparation == Preparation::None && self.is_expendable() && self.exchange.owes_commit();
        let mark = self.mark.clone().filter(|_| is_known)?;
        Some(LostCommit { mark, reports: parameter_statuses(self.parameters.before_block()) })
    }

    /// Whether its client has sent a ROLLBACK and has no answer to it, and nothing else of its session goes with this
    /// server: the block is rolled back, by whatever.
    pub fn owes_rollback(&self) -> bool {
        self.preparation == Preparation::None && self.leaves_nothing() && self.exchange.owes_rollback()
    }

    /// Whether its client stays when it is lost: that client hears then what has become of its block.
    pub fn outlasts_loss(&self) -> bool {
        self.rolls_back() || self.owes_rollback() || self.fails_commit() || self.lost_commit().is_some()
    }

    /// Whether a cluster's primary that is lost takes nothing with it that its client has there, but for a transaction, and
    /// for what others who wait might have taken from it as well.
    fn is_expendable(&self) -> bool {
        let is_tied = self.kept.is_some() && self.session.pins().are_lasting();
        let is_shared = self.follows_statements() && !is_tied;
        let has_ended = self.said_why || self.own_error.is_some();
        let is_over = has_ended || self.exchange.left() == Left::Before;
        self.pool.upstream.cluster.is_some() && is_shared && !is_over && !self.stream.is_inside()
    }

    /// The same, where the transaction comes to nothing: what its ROLLBACK would have left is not there, either.
    fn leaves_nothing(&self) -> bool {
        self.is_expendable() && self.exchange.left() == Left::Nothing
    }

    /// What its session holds behind the request that has been answered goes on into another block, before anybody has
    /// acted on it.
    pub fn goes_on_unfollowed(&mut self) {
        if self.session.has_report() || self.session.may_have_left_something() {
            self.exchange.leave(Left::Before);
        }
    }

    /// Whether its client has not sent it anything yet in this transaction, nor it begun one for that.
    pub fn is_fresh(&self) -> bool {
        self.exchange.reported_status() == TransactionStatus::Idle
            && self.has_whole_messages()
            && self.exchange.is_closed()
            && !self.exchange.replies().have_clients()
    }

    /// Whether it has said of late how often its catalogs have changed.
    pub fn knows_catalogs(&self, now: Time) -> bool {
        self.tells_of_catalogs() && now.since(self.exchange.ready_at()) < CATALOG_AGE_MAX
    }

    /// Whether it says when its catalogs have changed. A standby counts no change: it replays them.
    fn tells_of_catalogs(&self) -> bool {
        self.session.reports() && !self.pool.upstream.is_standby()
    }

    /// Whether a shared copy that was prepared then is too old to serve unnamed statements: it might have been parsed by
    /// other catalogs.
    pub fn is_too_old(&self, since: Time, now: Time) -> bool {
        let age_max = if self.tells_of_catalogs() { CATALOG_AGE_MAX } else { ACCEPTED_AGE_MAX };
        now.since(since) >= age_max && !self.knows_catalogs(now)
    }

    /// A client gets it, which has set its role, if it has one, when there had been so many changes to roles. Where there
    /// have been more since its last one had it, or since this one did and before it set its role, the settings are put
    /// in place anew: a role that is set there may be one that is gone, by whose name there is another.
    pub fn taken_by(&mut self, client: ClientRef, role_set_at: u64) {
        let changes = self.pool.log_ins.changes();
        let was_there = self.holder.replace((client, changes));
        if was_there.is_some_and(|(other, before)| before < if other == client { role_set_at } else { changes }) {
            self.session.doubt_role();
        }
    }

    /// Whether it is a standby that a block was led to, and a request that may end the block has been sent to its end.
    pub fn may_be_done_at_standby(&self) -> bool {
        let is_behind_end = self.exchange.owes() && self.exchange.is_closed() && self.exchange.may_end_block();
        is_behind_end && self.pool.upstream.is_standby()
    }

    /// Whether its block has failed, and nothing is under way there: it refuses what comes, but for the block's end.
    pub fn has_failed_block(&self) -> bool {
        self.exchange.reported_status() == TransactionStatus::Failed && !self.exchange.owes()
    }

    /// Whether what functions have compiled there may not fit its catalogs any more, and it may be closed for that now.
    pub fn is_outdated(&mut self, now: Time) -> bool {
        let is_outdated = self.follows_statements() && self.session.functions.are_outdated(self.pool.catalog.altered());
        is_outdated && self.pool.state().may_renew_one(now)
    }

    /// A text is about to be sent to it that may have these effects.
    pub fn expect_text(&mut self, mut effects: Effects, text: &[u8]) {
        if effects.intersects(Effects::LOG_IN_TRIGGERS) && self.has_login_triggers() {
            effects.insert(Effects::LOG_INS);
        }
        if effects.intersects(Effects::STATE) {
            self.lent.doubt();
        }
        if sql::may_outlast_rollback(effects, text) {
            self.exchange.leave(Left::Within);
        }
        self.session.expect_text(effects, text, &self.pool, || self.exchange.replies().requests());
    }

    /// The same of a client that has it for all of its session; a text that has not come whole may do anything.
    pub fn expect_for_session(&mut self, text: &[u8], is_whole: bool) {
        let effects = if is_whole { effects(text) } else { effects_of_beginning(text) };
        self.session.expect_for_session(effects, text, &self.pool, || self.exchange.replies().requests());
    }

    /// Custom settings may be about to be made.
    pub fn expect_customs(&mut self, names: CustomNames) {
        self.session.expect_customs(names, self.parameters.are_utf8());
    }

    /// Parameters are about to be sent to something that may leave something: `rest` is a Bind's body behind the names, or
    /// a FunctionCall's behind the function.
    pub fn expect_parameters(&mut self, rest: &[u8], is_whole: bool) {
        self.session.expect_parameters(rest, is_whole, self.parameters.are_utf8());
    }

    /// Takes a reported parameter.
    pub fn take_parameter(&mut self, name: &str, value: &str) -> Reported {
        match name {
            SESSION_PARAMETER => {
                let report = Holding::read(value);
                if let Some(holding) = &report {
                    self.sequences.report(holding.pins.intersects(Pins::SEQUENCE));
                }
                let is_known = report.is_some();
                self.session.hear_report(report);
                if !is_known {
                    return Reported::Unreadable;
                }
            }
            CATALOG_PARAMETER => {
                if let Ok(count) = value.parse() {
                    self.pool.catalog.count(count);
                    self.session.count_change();
                }
            }
            CONFIGURATION_PARAMETER => self.pool.is_configured(value),
            TRANSACTION_PARAMETER => self.mark = Mark::read(value),
            COMMIT_PARAMETER => self.committed = Lsn::read(value).or(self.committed),
            _ if is_own_parameter(name) => {}
            _ => {
                self.parameters.set(name, value);
                return Reported::Clients;
            }
        }
        Reported::Own
    }

    /// Its client does not wait any more for it to have replayed more.
    pub fn stop_catching_up(&mut self, deadline: Time) {
        self.role = Role::Settling { deadline };
        (self.preparation, self.asked_until) = (Preparation::None, None);
    }

    /// Whether it has been asked to say where its commits are, and does not know how: the extension is missing.
    pub fn says_no_commits(&self) -> bool {
        self.pool.upstream.reports_commits && self.committed.is_none()
    }

    /// Nothing of its last client is left on the way to it or from it: anybody may have it.
    pub fn assert_free(&self) {
        debug_assert!(self.exchange.is_over(), "a server goes to another client only at rest: {:?}", self.exchange);
        debug_assert!(!self.cancels.are_under_way(), "a cancel that is on its way would hit the next client");
        debug_assert!(self.own_error.is_none() && self.kept.is_none(), "it has been put in order");
        debug_assert!(self.lent.is_empty(), "its client's names are its client's");
        debug_assert!(!self.session.is_changing_catalogs(), "what its client did to the catalogs is done or undone");
    }

    /// The query that asks it what its session holds.
    pub fn ask(&mut self, now: Time) -> String {
        self.session.ask(now, &self.pool)
    }

    /// It has said what its session holds; `start` is what its client began with. Returns whether that makes sense.
    pub fn conclude_probe(&mut self, start: &Profile) -> bool {
        self.session.conclude_probe(start, &self.pool)
    }

    /// Acts on the report of what its session holds, if there is one. Gives the pins that it tells of.
    pub fn take_report(&mut self) -> Option<Pins> {
        let (pins, prepared) = self.session.take_report()?;
        if let Some(prepared) = prepared {
            self.statements.compare(prepared, self.lent.count());
        }
        Some(pins)
    }

    /// Whether it is to be asked something, before it is known what its client has left there.
    pub fn is_to_be_asked(&self) -> bool {
        self.needs_probe() || self.lent.are_in_doubt()
    }

    /// Whether it is to be asked what its session holds.
    pub fn needs_probe(&self) -> bool {
        self.follows_statements() && self.session.is_unknown()
    }

    /// Whether PostgreSQL may have run a trigger when it logged in, and nobody has said what that has left.
    pub fn has_login_triggers(&self) -> bool {
        self.parameters.version().is_some_and(|version| version >= LOGIN_TRIGGERS)
    }

    /// Its client keeps it between transactions because of its pins, if it may; others that wait get it at `recall_at`.
    /// `this` is the server's reference.
    pub fn keep(&mut self, this: ServerRef, recall_at: Option<Time>) -> bool {
        let pins = self.session.pins();
        let pinned = match self.kept.take() {
            Some(Kept { pinned, .. }) => pinned.set_pins(pins).then_some(pinned),
            None if self.pool.sharing.pins == PinPolicy::Pin => Pinned::take(&self.pool, this, pins),
            None => None,
        };
        self.kept = pinned.map(|pinned| Kept { pinned, recall_at });
        self.kept.is_some()
    }

    /// The time at which it is taken from the client that keeps it, if others wait then.
    pub fn recall_at(&self) -> Option<Time> {
        self.kept.as_ref()?.recall_at
    }

    /// Sets that time.
    pub fn set_recall(&mut self, at: Option<Time>) {
        if let Some(kept) = &mut self.kept {
            kept.recall_at = at;
        }
    }

    /// Ends that time: it has come, and whoever waits may ask for the server.
    pub fn end_recall_time(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.recall_at = None;
            // Those who have asked too early may have gone, and it is asked for once.
            kept.pinned.set_pins(self.session.pins());
        }
    }

    fn has_whole_messages(&self) -> bool {
        self.exchange.is_closed() && !self.stream.is_inside()
    }

    /// Whether clients' prepared statements are followed.
    pub fn follows_statements(&self) -> bool {
        self.pool.sharing.mode == PoolMode::Transaction
    }
}
