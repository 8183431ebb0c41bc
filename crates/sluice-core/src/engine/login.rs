//! A client from its first byte to its first ReadyForQuery.

use sluice_control::{access::Method, settings::PoolMode};
use sluice_wire::{
    ErrorResponse, Frame, FrontendKind, md5,
    message::{self, AUTHENTICATION_OK, AuthenticationRequest, TransactionStatus},
    scram::{self, ScramError, ServerBinding, ServerExchange, Verifier},
    secret::Secret,
    sqlstate,
    startup::{self, ProtocolVersion, SessionRequest, Startup},
};

use crate::{
    admission::Full,
    client::{Challenge, Client, LoginRequest, Phase, Session, Wish},
    customs::Customs,
    encryption::Request,
    hub::{NoPool, Welcome},
    ids::{ClientId, ClientRef, ServerId},
    io::Io,
    profile::NAME_BYTES_MAX,
    server::parameter_statuses,
    start::{Start, StartupParameters},
    time::Time,
    watch,
};

use super::{Engine, cancel, no_more_clients, rules::check_certificate, too_many_clients};

/// The largest length of a message that a client may state before it is logged in, in bytes: of a password, and of a
/// part of a SASL exchange (PostgreSQL's `PG_MAX_AUTH_TOKEN_LENGTH` and `PG_MAX_SASL_MESSAGE_LENGTH`).
const PASSWORD_BYTES_MAX: usize = 65_535;
const SASL_BYTES_MAX: usize = 1024;

/// The length of cancel keys by protocol version, in bytes; as PostgreSQL 18 has them.
const CANCEL_KEY_BYTES: usize = 32;
const CANCEL_KEY_BYTES_3_0: usize = 4;

impl Engine {
    pub(super) fn is_open(&self, id: ClientId) -> bool {
        matches!(self.clients.get(id), Some(Client { phase: Phase::Open(_), .. }))
    }

    /// Whether a client is who it says, and nothing but a server is missing that it would have for all of its session:
    /// a pool's limits of time count then.
    pub(super) fn is_known(&self, id: ClientId) -> bool {
        let phase = self.clients.get(id).map(|client| &client.phase);
        // It has time for as long as others that wait there.
        let waits = |session: &Session| {
            session.pool.sharing.mode == PoolMode::Session || session.pool.upstream.cluster.is_some()
        };
        let is_let_in = matches!(phase, Some(Phase::Open(_) | Phase::Console(_)));
        is_let_in || matches!(phase, Some(Phase::Welcome(session, _)) if waits(session))
    }

    /// Handles first packets at the beginning of `bytes`; returns how many bytes they took. `None`: the client is
    /// gone.
    pub(super) fn startup_input(&mut self, now: Time, id: ClientId, bytes: &[u8], io: &mut impl Io) -> Option<usize> {
        if self.takes_direct_tls(id, bytes) {
            return self.encryption_asked(now, id, Request::Direct, (0, bytes), io);
        }
        match startup::read(bytes) {
            Ok(None) => Some(0),
            Ok(Some((Startup::Ssl, used))) => self.encryption_asked(now, id, Request::Ssl, (used, bytes), io),
            Ok(Some((Startup::GssEnc, used))) => self.encryption_asked(now, id, Request::GssEnc, (used, bytes), io),
            Ok(Some((Startup::Cancel { process_id, key }, _))) => {
                self.cancel_requested(now, process_id, key, id, io);
                None
            }
            Ok(Some((Startup::Session(request), used))) => match self.begin_login(now, id, request, io) {
                Ok(()) => self.clients.get(id).map(|_| used),
                Err(error) => {
                    self.refuse_client(now, id, &error, io);
                    None
                }
            },
            Err(error) => {
                let code = match error {
                    startup::StartupError::Version(_) => sqlstate::FEATURE_NOT_SUPPORTED,
                    _ => sqlstate::PROTOCOL_VIOLATION,
                };
                let error = ErrorResponse::fatal(code, error.to_string()).routine(READS_STARTUP);
                self.refuse_client(now, id, &error, io);
                None
            }
        }
    }

    fn begin_login(
        &mut self,
        now: Time,
        id: ClientId,
        request: SessionRequest,
        io: &mut impl Io,
    ) -> Result<(), ErrorResponse> {
        self.note_said(id, &request);
        check_replication(&request)?;
        let user = request.get("user").filter(|u| !u.is_empty()).map(str::to_owned).ok_or_else(|| {
            let error = "no PostgreSQL user name specified in startup packet";
            ErrorResponse::fatal(sqlstate::INVALID_AUTHORIZATION, error).routine(READS_STARTUP)
        })?;
        let database = request.get("database").filter(|d| !d.is_empty()).unwrap_or(&user).to_owned();
        let (user, database) = (shortened(user), shortened(database));
        if self.stopping.is_some() {
            return Err(no_more_clients());
        }
        self.check_open(&database)?;
        self.check_encryption(id, &user)?;
        let wish = Box::new(Wish { request, user, database, system_user: None });
        let verdict = self.verdict(id, &wish, None)?;
        let peer = self.clients[id].peer;
        let admitted = match self.is_console(&wish.database) {
            true => self.hub.admit_stranger(peer),
            false => self.hub.admit_client(peer),
        };
        let client = &mut self.clients[id];
        client.admitted = Some(admitted.map_err(|full| {
            // The rule has nothing to do with it.
            client.rule = None;
            too_many(full, &wish.user, &wish.database)
        })?);
        let (version, unknown) = wish.request.negotiate();
        if wish.request.version != version || !unknown.is_empty() {
            self.scratch.clear();
            startup::put_negotiate(&mut self.scratch, version, &unknown);
            io.send(client.conn, &self.scratch);
        }
        self.follow(now, id, wish, verdict, io)
    }

    /// Asks the client to prove itself. A user that does not exist is asked just the same.
    pub(super) fn challenge(
        &mut self,
        id: ClientId,
        mut login: LoginRequest,
        secret: Option<Secret>,
        io: &mut impl Io,
    ) {
        let (user, method) = (&login.wish.user, login.demand.method);
        let scram_verifier = match (&secret, method) {
            (Some(Secret::Scram(verifier)), _) => Some(verifier.clone()),
            (Some(Secret::Plain(password)), Method::ScramSha256) => Some(self.hub.secrets.verifier(user, password)),
            (None | Some(Secret::Md5(_)), Method::ScramSha256) | (Some(Secret::Damaged), _) => Some(self.mock(user)),
            // As those who exist are asked, if they are all alike.
            (None, Method::Md5) if self.hub.secrets.are_of_scram(&self.snapshot.access) => Some(self.mock(user)),
            _ => None,
        };
        self.scratch.clear();
        let challenge = match scram_verifier {
            Some(verifier) => {
                let mechanisms: &[u8] = match self.clients[id].encryption.end_point() {
                    Some(_) => b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0",
                    None => b"SCRAM-SHA-256\0\0",
                };
                AuthenticationRequest::Sasl(mechanisms).write(&mut self.scratch);
                Challenge::ScramFirst(verifier)
            }
            None => {
                let mut salt = [0; 4];
                io.random(&mut salt);
                AuthenticationRequest::Md5Password(salt).write(&mut self.scratch);
                let stored = match &secret {
                    Some(Secret::Md5(stored)) => Some(stored.clone()),
                    Some(Secret::Plain(password)) => Some(md5::hash_password(user, password)),
                    _ => None,
                };
                Challenge::Md5(salt, stored)
            }
        };
        login.credentials.secret = secret.clone().filter(Secret::is_enough_to_log_in);
        login.secret = secret;
        let client = &mut self.clients[id];
        client.phase = Phase::Password(Box::new(login), challenge);
        io.send(client.conn, &self.scratch);
    }

    fn mock(&self, user: &str) -> Verifier {
        Verifier::mock(&self.hub.secrets.mock_seed, user)
    }

    /// Handles a password message at the beginning of `bytes`; returns how many bytes it took. `None`: the client is
    /// gone.
    pub(super) fn password_input(&mut self, now: Time, id: ClientId, bytes: &[u8], io: &mut impl Io) -> Option<usize> {
        let client = self.clients.get_mut(id)?;
        let tag = *bytes.first()?;
        if FrontendKind::from(tag) != FrontendKind::Password {
            let error = no_password_message(&client.phase, tag);
            self.refuse_client(now, id, &error, io);
            return None;
        }
        let length_max = if is_asked_by_sasl(&client.phase) { SASL_BYTES_MAX } else { PASSWORD_BYTES_MAX };
        let total = match client.stream.next(bytes) {
            Ok(Frame::Short) => return Some(0),
            // The length does not count the tag.
            Ok(Frame::Message { total, here, .. }) if total <= length_max + 1 => match here == total {
                true => total,
                false => return Some(0),
            },
            _ => {
                let error = ErrorResponse::fatal(sqlstate::PROTOCOL_VIOLATION, "invalid message length");
                self.refuse_client(now, id, &error.routine("pq_getmessage"), io);
                return None;
            }
        };
        let Phase::Password(login, challenge) = std::mem::replace(&mut client.phase, Phase::Startup) else {
            return Some(0);
        };
        match self.check_password(now, id, login, challenge, &bytes[5..total], io) {
            Ok(()) => self.clients.get(id).map(|_| total),
            Err(error) => {
                self.refuse_client(now, id, &error, io);
                None
            }
        }
    }

    fn check_password(
        &mut self,
        now: Time,
        id: ClientId,
        mut login: Box<LoginRequest>,
        challenge: Challenge,
        body: &[u8],
        io: &mut impl Io,
    ) -> Result<(), ErrorResponse> {
        match challenge {
            Challenge::Md5(salt, stored) => {
                let given = read_password(body)?;
                if !stored.is_some_and(|stored| md5::verify(&stored, salt, given)) {
                    return Err(self.wrong_password(&login.wish.user));
                }
                self.authenticated(now, id, *login, io)?;
            }
            Challenge::ScramFirst(verifier) => {
                let (mechanism, first) = message::read_sasl_initial(body).map_err(malformed)?;
                let end_point = self.clients[id].encryption.end_point();
                let binding = match (end_point, mechanism) {
                    (Some(end_point), _) if mechanism == scram::MECHANISM_PLUS.as_bytes() => {
                        ServerBinding::Used(end_point)
                    }
                    (Some(_), _) if mechanism == scram::MECHANISM.as_bytes() => ServerBinding::Unused,
                    (None, _) if mechanism == scram::MECHANISM.as_bytes() => ServerBinding::None,
                    _ => {
                        let error = "client selected an invalid SASL authentication mechanism";
                        return Err(ErrorResponse::fatal(sqlstate::PROTOCOL_VIOLATION, error));
                    }
                };
                let mut random = [0; 18];
                io.random(&mut random);
                let begun = ServerExchange::begin(verifier, binding, first, random);
                let (exchange, reply) = begun.map_err(|error| self.scram_error(error, &login.wish.user))?;
                self.scratch.clear();
                AuthenticationRequest::SaslContinue(reply.as_bytes()).write(&mut self.scratch);
                let client = &mut self.clients[id];
                client.phase = Phase::Password(login, Challenge::ScramProof(exchange));
                io.send(client.conn, &self.scratch);
            }
            Challenge::ScramProof(exchange) => {
                let finished = exchange.finish(body);
                let (signature, keys) = finished.map_err(|error| self.scram_error(error, &login.wish.user))?;
                login.credentials.keys = Some(keys);
                self.scratch.clear();
                AuthenticationRequest::SaslFinal(signature.as_bytes()).write(&mut self.scratch);
                io.send(self.clients[id].conn, &self.scratch);
                self.authenticated(now, id, *login, io)?;
            }
        }
        Ok(())
    }

    fn scram_error(&self, error: ScramError, user: &str) -> ErrorResponse {
        match error {
            ScramError::Mismatch => self.wrong_password(user),
            error @ (ScramError::Downgraded | ScramError::Unbound) => {
                ErrorResponse::fatal(sqlstate::INVALID_AUTHORIZATION, error.to_string())
            }
            error @ (ScramError::AuthorizationIdentity | ScramError::Extension) => {
                ErrorResponse::fatal(sqlstate::FEATURE_NOT_SUPPORTED, error.to_string())
            }
            error => ErrorResponse::fatal(sqlstate::PROTOCOL_VIOLATION, error.to_string()),
        }
    }

    fn wrong_password(&self, user: &str) -> ErrorResponse {
        self.hub.secrets.doubt(user);
        ErrorResponse::fatal(sqlstate::INVALID_PASSWORD, format!("password authentication failed for user \"{user}\""))
            .routine("auth_failed")
    }

    /// The client is who it says: only now does it get a pool, so that made-up names leave nothing behind. It is let in
    /// at once if it is known what the server would report.
    pub(super) fn authenticated(
        &mut self,
        now: Time,
        id: ClientId,
        login: LoginRequest,
        io: &mut impl Io,
    ) -> Result<(), ErrorResponse> {
        self.check_asked(&login)?;
        check_certificate(&login)?;
        io.send(self.clients[id].conn, &AUTHENTICATION_OK);
        self.check_role(&login)?;
        // It may have been closed while the client thought about its answer.
        self.check_open(&login.wish.database)?;
        self.clients[id].rule = None;
        if self.is_console(&login.wish.database) {
            return self.enter_console(id, &login.wish, io);
        }
        let LoginRequest { wish: Wish { request, user, database, .. }, credentials, .. } = login;
        if let Some(admitted) = &mut self.clients[id].admitted {
            self.hub.identify(admitted, &user, &database).map_err(|full| too_many(full, &user, &database))?;
        }
        let pool = self.hub.pool(&database, &user).map_err(|why| no_pool(why, &database))?;
        if pool.upstream.user == user && pool.login().learn(credentials) {
            pool.state().has_another_secret();
        }
        self.give_key(id, &request, io);
        // Whoever has not proven who it is hears nothing of what is wrong with its settings.
        let (start, startup, welcome) = match pool.sharing.mode {
            PoolMode::Transaction => {
                let start = Start::of(&request)?.completed(pool.log_ins.date_style());
                let welcome = pool.login().welcome(&start, pool.log_ins.generation());
                let welcome = welcome.filter(|welcome| pool.still_says(now, welcome));
                (start, StartupParameters::NONE, welcome)
            }
            // PostgreSQL reads them itself, and the welcome is its own server's.
            PoolMode::Session => (Start::default(), StartupParameters::of(&request), None),
        };
        let profile = welcome.as_ref().map_or_else(|| start.profile(), |welcome| welcome.profile.clone());
        let session = Box::new(Session::new(pool, profile, startup));
        match welcome {
            Some(welcome) => {
                self.admit(id, session, &welcome, io);
                self.clients[id].rest.note(now, watch::Request::Ended);
                self.watch_rest(id);
            }
            None => {
                self.clients[id].phase = Phase::Welcome(session, start);
                self.acquire(now, id, io);
            }
        }
        Ok(())
    }

    /// A server has come to a client that waits for what it reports.
    pub(super) fn welcome_from(&mut self, id: ClientId, server: ServerId, io: &mut impl Io) {
        let (Some(client), Some(server)) = (self.clients.get_mut(id), self.servers.get(server)) else {
            return;
        };
        let Phase::Welcome(session, start) = std::mem::replace(&mut client.phase, Phase::Startup) else { return };
        let profile = server.session.profile().clone();
        let asked = start.profile();
        let start_profile = match server.session.own_profile() {
            Some(own) => profile.without(own, |name| asked.get(name).is_some()),
            None => profile.clone(),
        };
        // Others may have made more on that server. One that is empty is no part of the profile.
        let mut made = Customs::default();
        made.add(asked.customs().chain(profile.customs()));
        let welcome = Welcome {
            profile,
            start: start_profile,
            made,
            parameters: parameter_statuses(server.parameters.iter()).into(),
            generation: server.opened.generation,
        };
        session.pool.login().remember(start, welcome.clone());
        self.admit(id, session, &welcome, io);
        self.todo.push_back(super::Todo::Input(id));
    }

    /// A client in session mode has got its server, which was opened with its own parameters, and is welcomed by that.
    pub(super) fn welcome_to(&mut self, id: ClientId, server: ServerId, io: &mut impl Io) {
        let (Some(client), Some(server)) = (self.clients.get_mut(id), self.servers.get(server)) else {
            return;
        };
        if let Phase::Welcome(session, _) = std::mem::replace(&mut client.phase, Phase::Startup) {
            let ahead = [&server.notices.ahead[..], &parameter_statuses(server.parameters.iter())].concat();
            let behind = server.notices.behind.clone();
            self.open_session(id, session, (&ahead, &behind), io);
        }
    }

    fn admit(&mut self, id: ClientId, mut session: Box<Session>, welcome: &Welcome, io: &mut impl Io) {
        session.profile = welcome.profile.clone();
        session.start = welcome.start.clone();
        session.is_told(&welcome.parameters);
        session.goes_by(welcome.generation);
        session.made = welcome.made.clone();
        self.open_session(id, session, (&welcome.parameters, &[]), io);
    }

    /// Gives a client the key by which it can be cancelled.
    pub(super) fn give_key(&mut self, id: ClientId, request: &SessionRequest, io: &mut impl Io) {
        let is_long = request.negotiate().0 >= ProtocolVersion::V3_2;
        let mut key = vec![0; if is_long { CANCEL_KEY_BYTES } else { CANCEL_KEY_BYTES_3_0 }];
        io.random(&mut key);
        self.clients[id].key = key.into();
    }

    /// Tells a client that its session has begun, with these messages ahead of its BackendKeyData and behind it.
    fn open_session(&mut self, id: ClientId, session: Box<Session>, (ahead, behind): (&[u8], &[u8]), io: &mut impl Io) {
        let client = &mut self.clients[id];
        let process_id = cancel::process_id(ClientRef { worker: self.worker, id, serial: client.serial });
        client.phase = Phase::Open(session);
        self.scratch.clear();
        self.scratch.extend_from_slice(ahead);
        message::put_backend_key_data(&mut self.scratch, process_id, &client.key);
        self.scratch.extend_from_slice(behind);
        self.scratch.extend_from_slice(&TransactionStatus::Idle.ready_for_query());
        io.send(client.conn, &self.scratch);
        self.log_logged_in(id, io);
    }
}

/// Refuses a connection for replication, and a value that is none. Of several, the last one counts, and each has to be
/// right.
fn check_replication(request: &SessionRequest) -> Result<(), ErrorResponse> {
    let is_asked_for = |value: &str| value == "database" || says(value, true);
    if let Some(value) = request.all("replication").find(|value| !is_asked_for(value) && !says(value, false)) {
        let error = format!("invalid value for parameter \"replication\": \"{value}\"");
        let hint = "Valid values are: \"false\", 0, \"true\", 1, \"database\".";
        return Err(ErrorResponse::fatal(sqlstate::INVALID_PARAMETER_VALUE, error).hint(hint).routine(READS_STARTUP));
    }
    if request.get("replication").is_some_and(is_asked_for) {
        let error = "replication connections can't go through the pool";
        let hint = "Connect to the PostgreSQL server itself.";
        return Err(ErrorResponse::fatal(sqlstate::FEATURE_NOT_SUPPORTED, error).hint(hint));
    }
    Ok(())
}

/// Whether a text stands for that truth value, as PostgreSQL reads one (`parse_bool`): a beginning that no word for the
/// other has is enough.
fn says(text: &str, truth: bool) -> bool {
    let words = if truth {
        [("true", 1), ("yes", 1), ("on", 2), ("1", 1)]
    } else {
        [("false", 1), ("no", 1), ("off", 2), ("0", 1)]
    };
    let is_beginning = |word: &str, least: usize| {
        text.len() >= least && word.get(..text.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(text))
    };
    words.iter().any(|(word, least)| is_beginning(word, *least))
}

/// The routine of PostgreSQL that reads a StartupMessage.
pub(super) const READS_STARTUP: &str = "ProcessStartupPacket";

/// A name as PostgreSQL takes it from a startup packet (`ProcessStartupPacket`): as much of it as names have, which it
/// cuts without an eye to characters. Half a character is shown as a replacement, and is longer than names are, so that
/// it is nobody's and nothing's.
pub(super) fn shortened(name: String) -> String {
    match name.as_bytes().get(..NAME_BYTES_MAX) {
        Some(beginning) if name.len() > NAME_BYTES_MAX => {
            let mut name = String::from_utf8_lossy(beginning).into_owned();
            if std::str::from_utf8(beginning).is_err() && name.len() <= NAME_BYTES_MAX {
                name.push(char::REPLACEMENT_CHARACTER);
            }
            name
        }
        _ => name,
    }
}

/// The text of a password message (`recv_password_packet`).
fn read_password(body: &[u8]) -> Result<&[u8], ErrorResponse> {
    let error = |code, message| ErrorResponse::fatal(code, message).routine("recv_password_packet");
    match message::split_cstr(body) {
        Some((b"", b"")) => Err(error(sqlstate::INVALID_PASSWORD, "empty password returned by client")),
        Some((given, b"")) => Ok(given),
        _ => Err(error(sqlstate::PROTOCOL_VIOLATION, "invalid password packet size")),
    }
}

fn is_asked_by_sasl(phase: &Phase) -> bool {
    matches!(phase, Phase::Password(_, Challenge::ScramFirst(_) | Challenge::ScramProof(_)))
}

/// PostgreSQL's words for another message where a password was asked for.
fn no_password_message(phase: &Phase, came: u8) -> ErrorResponse {
    let (wanted, routine) = match is_asked_by_sasl(phase) {
        true => ("SASL", "CheckSASLAuth"),
        false => ("password", "recv_password_packet"),
    };
    ErrorResponse::fatal(sqlstate::PROTOCOL_VIOLATION, format!("expected {wanted} response, got message type {came}"))
        .routine(routine)
}

/// One more client than a limit allows.
pub(super) fn too_many(full: Full, user: &str, database: &str) -> ErrorResponse {
    let (error, routine, hint) = match full {
        Full::Clients => return too_many_clients(),
        Full::Consoles => (
            "too many clients of the admin console already".to_owned(),
            "InitProcess",
            "Ten may be there at once, and three more of \"users\" under [admin]".to_owned(),
        ),
        Full::Address(address) => (
            format!("too many connections from {address}"),
            "InitProcess",
            "The limit is \"clients_per_address\" under [limits]".to_owned(),
        ),
        Full::User => (
            format!("too many connections for role \"{user}\""),
            "InitializeSessionUserId",
            "The limit is \"clients\" of the user's [[user]], or \"clients_per_user\" under [limits]".to_owned(),
        ),
        Full::Database => (
            format!("too many connections for database \"{database}\""),
            "CheckMyDatabase",
            "The limit is \"clients\" of its [[database]]".to_owned(),
        ),
    };
    ErrorResponse::fatal(sqlstate::TOO_MANY_CONNECTIONS, error)
        .routine(routine)
        .hint(hint + " in the pool's configuration.")
}

fn no_pool(why: NoPool, database: &str) -> ErrorResponse {
    match why {
        NoPool::NoDatabase => {
            ErrorResponse::fatal(sqlstate::INVALID_CATALOG_NAME, format!("database \"{database}\" does not exist"))
                .routine("InitPostgres")
                .hint("The pool's configuration has no [[database]] of that name, and none named \"*\".")
        }
        NoPool::TooMany => {
            let error = "sorry, too many pairs of database and role already";
            ErrorResponse::fatal(sqlstate::TOO_MANY_CONNECTIONS, error)
                .hint("Raise \"pools\" under [limits] in the pool's configuration.")
        }
    }
}

fn malformed(error: message::Malformed) -> ErrorResponse {
    ErrorResponse::fatal(sqlstate::PROTOCOL_VIOLATION, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_half_a_character_is_nobodys() {
        assert_eq!(shortened("x".repeat(80)), "x".repeat(63));
        for character in ["ü", "€", "😀"] {
            for ahead in 60..63 {
                let name = shortened(["x".repeat(ahead), character.repeat(2)].concat());
                let is_whole = name.len() == NAME_BYTES_MAX && !name.contains(char::REPLACEMENT_CHARACTER);
                assert!(is_whole || name.len() > NAME_BYTES_MAX, "{name}");
            }
        }
    }

    #[test]
    fn truth_values_are_read_as_postgresql_reads_them() {
        for (text, is_true, is_false) in [
            ("t", true, false),
            ("TRUE", true, false),
            ("ye", true, false),
            ("on", true, false),
            ("1", true, false),
            ("of", false, true),
            ("n", false, true),
            ("0", false, true),
            ("o", false, false),
            ("", false, false),
            ("database", false, false),
            ("truest", false, false),
        ] {
            assert_eq!((says(text, true), says(text, false)), (is_true, is_false), "{text}");
        }
    }
}
