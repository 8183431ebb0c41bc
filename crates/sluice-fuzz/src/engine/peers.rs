//! Peers that speak PostgreSQL's protocol as they should, so that hostile bytes meet an engine in every state and not
//! only in its first: a server as small as can be, clients that log in, and what clients say.

use std::collections::HashSet;

use sluice_wire::{
    ErrorResponse, Frame, Framer, md5,
    message::{
        self, AUTHENTICATION_OK, AuthenticationRequest, BindNames, Named, Parse, TransactionStatus, backend, framed,
        frontend, put_cstr,
    },
    scram::{self, ClientBinding, ClientExchange, ClientSecret, ServerBinding, ServerExchange, Verifier},
    startup::{self, ProtocolVersion, Startup},
};

/// The password of every user.
pub(super) const PASSWORD: &str = "geheim";

/// Its verifier: one iteration, so that a login costs next to nothing.
pub(super) fn verifier() -> Verifier {
    Verifier::derive(PASSWORD, b"salt", 1)
}

const SALT: [u8; 4] = [1, 2, 3, 4];

/// The memory of a peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Of a server: its way to ask for the password.
    pub(super) asks: Asks,
    /// Of a server: its next Bind of a prepared statement finds the schema changed.
    pub(super) stale: bool,
    login: Login,
    status: Option<TransactionStatus>,
    statements: HashSet<Vec<u8>>,
    skipping: bool,
    copying: bool,
    /// Of a server: whether a setting was made in its session, and a temporary table.
    made: (bool, bool),
    /// Of a server: whether it says by itself what its session holds, and what it has said last.
    pub(super) reports: bool,
    told: (bool, bool),
    /// Of a server: the number of times that it was asked for that.
    pub(super) looks: usize,
    client: Option<ClientExchange>,
}

/// A server's way to ask for the password.
#[derive(Debug, Default, Clone, Copy)]
pub(super) enum Asks {
    #[default]
    Nothing,
    Cleartext,
    Md5,
    Scram,
}

#[derive(Debug, Default)]
enum Login {
    #[default]
    Waiting,
    Asked,
    Challenged(ServerExchange),
    Done,
}

impl Peer {
    /// The server's answers to all whole messages of `sent`, which are removed from it.
    pub(super) fn serve(&mut self, sent: &mut Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        if matches!(self.login, Login::Waiting) {
            let Ok(Some((first, used))) = startup::read(sent) else { return out };
            sent.drain(..used);
            if let Startup::Session(_) = first {
                self.ask(&mut out);
            }
        }
        while let Ok(Frame::Message { tag, total, here }) = Framer::default().next(sent)
            && here == total
        {
            let message: Vec<u8> = sent.drain(..total).collect();
            self.answer(tag, &message[5..], &mut out);
        }
        out
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        self.login = Login::Asked;
        match self.asks {
            Asks::Nothing => self.welcome(out),
            Asks::Cleartext => AuthenticationRequest::CleartextPassword.write(out),
            Asks::Md5 => AuthenticationRequest::Md5Password(SALT).write(out),
            Asks::Scram => AuthenticationRequest::Sasl(b"SCRAM-SHA-256\0\0").write(out),
        }
    }

    fn welcome(&mut self, out: &mut Vec<u8>) {
        self.login = Login::Done;
        out.extend_from_slice(&AUTHENTICATION_OK);
        message::put_parameter_status(out, "server_version", "15.0");
        message::put_parameter_status(out, "TimeZone", "UTC");
        if self.reports {
            message::put_parameter_status(out, "sluice.session", "");
            message::put_parameter_status(out, "sluice.catalog", "1");
        }
        message::put_backend_key_data(out, 7, &[1, 2, 3, 4]);
        self.ready(out);
    }

    fn ready(&mut self, out: &mut Vec<u8>) {
        self.skipping = false;
        self.copying = false;
        if self.reports && self.status.is_none() && self.told != self.made {
            self.told = self.made;
            message::put_parameter_status(out, "sluice.session", self.holding());
        }
        out.extend_from_slice(&self.status.unwrap_or(TransactionStatus::Idle).ready_for_query());
    }

    fn password(&mut self, body: &[u8], out: &mut Vec<u8>) {
        match (std::mem::take(&mut self.login), self.asks) {
            (Login::Asked, Asks::Scram) => {
                let first = message::read_sasl_initial(body).map(|(_, first)| first).unwrap_or_default();
                if let Ok((exchange, challenge)) =
                    ServerExchange::begin(verifier(), ServerBinding::None, first, [9; 18])
                {
                    AuthenticationRequest::SaslContinue(challenge.as_bytes()).write(out);
                    self.login = Login::Challenged(exchange);
                }
            }
            (Login::Challenged(exchange), _) => {
                let Ok((signature, _)) = exchange.finish(body) else { return refuse("28P01", out) };
                AuthenticationRequest::SaslFinal(signature.as_bytes()).write(out);
                self.welcome(out);
            }
            (Login::Asked, _) => self.welcome(out),
            (login, _) => self.login = login,
        }
    }

    fn answer(&mut self, tag: u8, body: &[u8], out: &mut Vec<u8>) {
        match tag {
            frontend::PASSWORD => self.password(body, out),
            frontend::SYNC => self.ready(out),
            _ if self.skipping => {}
            frontend::QUERY => {
                self.query(body, out);
                if !self.copying {
                    self.ready(out);
                }
            }
            frontend::PARSE => self.parse(body, out),
            frontend::BIND => self.bind(body, out),
            frontend::DESCRIBE => match Named::read(body, "Describe") {
                Ok(Named::Statement(name)) if !self.statements.contains(name) => self.fail("26000", "", out),
                Ok(Named::Statement(_)) => {
                    framed(out, backend::PARAMETER_DESCRIPTION, |out| out.extend_from_slice(&[0, 0]));
                    out.extend_from_slice(&message::NO_DATA);
                }
                _ => out.extend_from_slice(&message::NO_DATA),
            },
            frontend::EXECUTE => row(out),
            frontend::CLOSE => {
                if let Ok(Named::Statement(name)) = Named::read(body, "Close") {
                    self.statements.remove(name);
                }
                out.extend_from_slice(&message::CLOSE_COMPLETE);
            }
            frontend::FUNCTION_CALL => {
                framed(out, backend::FUNCTION_CALL_RESPONSE, |out| out.extend_from_slice(&[0xff; 4]));
                self.ready(out);
            }
            frontend::COPY_DONE | frontend::COPY_FAIL if self.copying => {
                message::put_command_complete(out, "COPY 1");
                self.ready(out);
            }
            _ => {}
        }
    }

    /// The state that its session holds, as the extension reports it.
    fn holding(&self) -> &'static str {
        match self.made {
            (false, false) => "",
            (true, false) => "set=74696d657a6f6e65:78",
            (false, true) => "pins=temp",
            (true, true) => "pins=temp set=74696d657a6f6e65:78",
        }
    }

    fn query(&mut self, body: &[u8], out: &mut Vec<u8>) {
        let text = message::split_cstr(body).map_or(body, |(text, _)| text);
        let has = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
        if has(b"concat_ws") {
            self.looks += 1;
            let holding = self.holding();
            framed(out, backend::DATA_ROW, |out| {
                out.extend_from_slice(&[0, 1, 0, 0, 0, holding.len() as u8]);
                out.extend_from_slice(holding.as_bytes());
            });
            return message::put_command_complete(out, "SELECT 1");
        }
        self.made.0 =
            has(b"set_config") || has(b"SET timezone") || (self.made.0 && !has(b"RESET") && !has(b"DISCARD ALL"));
        self.made.1 = has(b"CREATE TEMP") || (self.made.1 && !has(b"DISCARD ALL"));
        let word = text.split(|b| !b.is_ascii_alphanumeric()).next().unwrap_or_default();
        match word {
            b"BEGIN" => self.status = Some(TransactionStatus::InTransaction),
            b"COMMIT" | b"ROLLBACK" => self.status = None,
            b"DISCARD" => self.statements.clear(),
            b"SET" => message::put_parameter_status(out, "TimeZone", "Europe/Berlin"),
            b"FAIL" => {
                self.status = self.status.map(|_| TransactionStatus::Failed);
                return refuse("22012", out);
            }
            b"COPY" => {
                self.copying = true;
                return framed(out, backend::COPY_IN_RESPONSE, |out| out.extend_from_slice(&[0, 0, 0]));
            }
            b"SELECT" => return row(out),
            _ => {}
        }
        message::put_command_complete(out, &String::from_utf8_lossy(if word == b"DISCARD" { text } else { word }));
    }

    fn parse(&mut self, body: &[u8], out: &mut Vec<u8>) {
        match Parse::read(body) {
            Ok(parse) if !parse.query.starts_with(b"FAIL") => {
                self.statements.insert(parse.name.to_vec());
                out.extend_from_slice(&message::PARSE_COMPLETE);
            }
            _ => self.fail("42601", "", out),
        }
    }

    fn bind(&mut self, body: &[u8], out: &mut Vec<u8>) {
        match BindNames::read(body) {
            Some(names) if self.statements.contains(names.statement) => {
                if std::mem::take(&mut self.stale) {
                    self.fail("0A000", "RevalidateCachedQuery", out);
                } else {
                    out.extend_from_slice(&message::BIND_COMPLETE);
                }
            }
            _ => self.fail("26000", "", out),
        }
    }

    fn fail(&mut self, code: &'static str, routine: &str, out: &mut Vec<u8>) {
        self.skipping = true;
        self.status = self.status.map(|_| TransactionStatus::Failed);
        framed(out, backend::ERROR_RESPONSE, |out| {
            for (field, value) in [(b'S', "ERROR"), (b'V', "ERROR"), (b'C', code), (b'M', "no"), (b'R', routine)] {
                out.push(field);
                put_cstr(out, value.as_bytes());
            }
            out.push(0);
        });
    }

    /// The client's answer to the last thing it was asked; the messages in `sent` are removed from it.
    pub(super) fn log_in(&mut self, user: &str, sent: &mut Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        while let Ok(Frame::Message { tag, total, here }) = Framer::default().next(sent)
            && here == total
        {
            let message: Vec<u8> = sent.drain(..total).collect();
            if tag != backend::AUTHENTICATION {
                continue;
            }
            let Ok(request) = AuthenticationRequest::read(&message[5..]) else { continue };
            self.prove(user, request, &mut out);
        }
        out
    }

    fn prove(&mut self, user: &str, request: AuthenticationRequest<'_>, out: &mut Vec<u8>) {
        match request {
            AuthenticationRequest::Md5Password(salt) => {
                let answer = md5::answer(&md5::hash_password(user, PASSWORD), salt);
                framed(out, frontend::PASSWORD, |out| put_cstr(out, answer.as_bytes()));
            }
            AuthenticationRequest::Sasl(_) => {
                let (exchange, first) =
                    ClientExchange::begin(ClientSecret::Password(PASSWORD.into()), ClientBinding::None, [7; 18]);
                message::put_sasl_initial(out, scram::MECHANISM, first.as_bytes());
                self.client = Some(exchange);
            }
            AuthenticationRequest::SaslContinue(challenge) => {
                let last = self.client.take().and_then(|client| client.answer(challenge).ok());
                let Some((_, last)) = last else { return };
                framed(out, frontend::PASSWORD, |out| out.extend_from_slice(last.as_bytes()));
            }
            _ => {}
        }
    }
}

fn refuse(code: &'static str, out: &mut Vec<u8>) {
    ErrorResponse::error(code, "no").write(out);
}

fn row(out: &mut Vec<u8>) {
    framed(out, backend::DATA_ROW, |out| out.extend_from_slice(&[0, 1, 0, 0, 0, 1, b'1']));
    message::put_command_complete(out, "SELECT 1");
}

/// The process id and key of the last BackendKeyData that a client was sent.
pub(super) fn key_in(sent: &[u8]) -> Option<(u32, Vec<u8>)> {
    let mut rest = sent;
    let mut found = None;
    while let Ok(Frame::Message { tag, total, here }) = Framer::default().next(rest)
        && here == total
    {
        if let (backend::BACKEND_KEY_DATA, Some((process_id, key))) = (tag, rest[5..total].split_first_chunk::<4>()) {
            found = Some((u32::from_be_bytes(*process_id), key.to_vec()));
        }
        rest = &rest[total..];
    }
    found
}

/// The number of phrases.
pub(super) const PHRASES: usize = 36;

/// Something a client says, as a driver would.
pub(super) fn phrase(number: usize, out: &mut Vec<u8>) {
    const NEW: &[u8] = b"SELECT 2\0\0\0";
    const QUERIES: [&str; 12] = [
        "SELECT 1",
        "BEGIN",
        "COMMIT",
        "SET timezone TO x",
        "FAIL",
        "COPY t FROM STDIN",
        "DEALLOCATE s1",
        "DEALLOCATE ALL",
        "DISCARD ALL",
        "LISTEN x",
        "PREPARE p AS SELECT 1",
        "",
    ];
    const MORE: [&str; 4] =
        ["CREATE TEMP TABLE t (i int)", "SELECT f()", "SET LOCAL timezone TO y", "SELECT currval('s'), nextval('s')"];
    match number % PHRASES {
        n @ 0..12 => message::put_query(out, QUERIES[n]),
        12 => put_parse(out, b"", b"SELECT 1\0\0\0"),
        13 => put_parse(out, b"s1", b"SELECT 1\0\0\0"),
        14 => put_parse(out, b"s2", NEW),
        15 => put_parse(out, b"s2", b"FAIL\0\0\0"),
        16 => put_parse(out, b"", b"DEALLOCATE s1\0\0\0"),
        17 => put_bind(out, b""),
        18 => put_bind(out, b"s1"),
        19 => put_bind(out, b"s2"),
        20 => message::put_statement_message(out, frontend::DESCRIBE, b"s1"),
        21 => framed(out, frontend::DESCRIBE, |out| out.extend_from_slice(b"P\0")),
        22 => put_execute(out),
        23 => message::put_statement_message(out, frontend::CLOSE, b"s1"),
        24 => out.extend_from_slice(&message::SYNC),
        25 => framed(out, frontend::FLUSH, |_| {}),
        26 => framed(out, frontend::COPY_DATA, |out| out.extend_from_slice(b"1\n")),
        27 => framed(out, frontend::COPY_DONE, |_| {}),
        28 => framed(out, frontend::COPY_FAIL, |out| put_cstr(out, b"enough")),
        29 => framed(out, frontend::FUNCTION_CALL, |out| out.extend_from_slice(&[0; 10])),
        30 => out.extend_from_slice(&message::TERMINATE),
        31 => batch(out),
        n => message::put_query(out, MORE[n - 32]),
    }
}

/// The messages that a driver sends for a query with parameters.
fn batch(out: &mut Vec<u8>) {
    put_parse(out, b"", b"SELECT 1\0\0\0");
    put_bind(out, b"");
    framed(out, frontend::DESCRIBE, |out| out.extend_from_slice(b"P\0"));
    put_execute(out);
    out.extend_from_slice(&message::SYNC);
}

fn put_parse(out: &mut Vec<u8>, name: &[u8], definition: &[u8]) {
    Parse::write(out, name, definition);
}

fn put_bind(out: &mut Vec<u8>, statement: &[u8]) {
    BindNames::write(out, b"", statement, 6);
    out.extend_from_slice(&[0; 6]);
}

fn put_execute(out: &mut Vec<u8>) {
    framed(out, frontend::EXECUTE, |out| out.extend_from_slice(&[0; 5]));
}

/// The users there are; the last one has no secret.
pub(super) const USERS: [&str; 4] = ["alice", "bob", "carol", "nobody"];

/// A first packet of a client that wants a session.
pub(super) fn startup_packet(user: &str, session_mode: bool, settings: bool, out: &mut Vec<u8>) {
    let database = if session_mode { "session" } else { "shop" };
    let mut parameters = vec![("user", user), ("database", database)];
    if settings {
        parameters.push(("TimeZone", "Asia/Tokyo"));
    }
    let version = if settings { ProtocolVersion::V3_2 } else { ProtocolVersion::V3_0 };
    startup::put_session(out, version, parameters);
}
