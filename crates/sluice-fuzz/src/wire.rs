//! Targets of `sluice-wire`: readers never panic, what they accept is written back as it was, and where a stream is
//! cut makes no difference.

use sluice_wire::{
    ErrorFields, ErrorResponse, Frame, FrameError, Framer, md5,
    message::{self, AuthenticationRequest, BindNames, Named, Parse, TransactionStatus, backend, frontend},
    proxy::{self, HEADER_BYTES_MAX},
    scram::{ClientBinding, ClientExchange, ClientSecret, Keys, ScramError, ServerBinding, ServerExchange, Verifier},
    secret::Secret,
    startup::{self, STARTUP_BYTES_MAX, Startup},
};

use crate::Input;

/// First packets, one behind the other.
pub fn startup(data: &[u8]) {
    let mut rest = data;
    // Each packet takes eight bytes at least.
    while let Ok(Some((packet, used))) = startup::read(rest) {
        assert!((8..=STARTUP_BYTES_MAX as usize).contains(&used) && used <= rest.len());
        assert_eq!(startup::read(&rest[..used]), Ok(Some((packet.clone(), used))), "what follows makes no difference");
        assert_eq!(startup::read(&rest[..used - 1]), Ok(None), "it is not there before its last byte");
        let mut again = Vec::new();
        match &packet {
            Startup::Session(request) => {
                let parameters = request.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                startup::put_session(&mut again, request.version, parameters);
                assert_eq!(again, rest[..used]);
                let (version, unknown) = request.negotiate();
                startup::put_negotiate(&mut again, version, &unknown);
            }
            // A malformed one.
            Startup::Cancel { key, .. } if key.is_empty() => {}
            Startup::Cancel { process_id, key } => {
                startup::put_cancel(&mut again, *process_id, key);
                assert_eq!(again, rest[..used]);
            }
            Startup::Ssl | Startup::GssEnc => {}
        }
        rest = &rest[used..];
    }
}

/// A header of the PROXY protocol.
pub fn proxy(data: &[u8]) {
    match proxy::read(data) {
        Ok(None) => assert!(data.len() < HEADER_BYTES_MAX, "what is not decided is bounded"),
        Ok(Some(header)) => {
            assert!(header.bytes <= HEADER_BYTES_MAX);
            assert_eq!(proxy::read(&data[..header.bytes]), Ok(Some(header)), "what follows makes no difference");
            for end in [header.bytes / 2, header.bytes - 1] {
                assert_eq!(proxy::read(&data[..end]), Ok(None), "it is not there before its last byte");
            }
        }
        Err(error) => {
            let more = [data, b"\r\n"].concat();
            assert_eq!(proxy::read(&more), Err(error), "what follows makes nothing right");
        }
    }
}

/// Messages that a client may send after its first packet: the first byte says how the stream is cut.
pub fn frontend_messages(data: &[u8]) {
    for (tag, message) in messages(data) {
        let Some(body) = message.get(5..) else { continue };
        match tag {
            frontend::PARSE => parse(body),
            frontend::BIND => bind(body),
            frontend::DESCRIBE | frontend::CLOSE => {
                if let Ok(Named::Statement(name)) = Named::read(body, "Close") {
                    assert_eq!(&written(|out| message::put_statement_message(out, tag, name))[5..], body);
                }
            }
            frontend::PASSWORD => password(body),
            _ => {}
        }
    }
}

fn parse(body: &[u8]) {
    let Ok(parse) = Parse::read(body) else { return };
    assert!(parse.definition.starts_with(parse.query));
    assert_eq!(&written(|out| Parse::write(out, parse.name, parse.definition))[5..], body);
}

fn bind(body: &[u8]) {
    let Some(names) = BindNames::read(body) else { return };
    let rest = &body[names.bytes..];
    let mut again = written(|out| BindNames::write(out, names.portal, names.statement, rest.len()));
    again.extend_from_slice(rest);
    assert_eq!(&again[5..], body);
    assert_eq!(BindNames::read(&body[..names.bytes]), Some(names));
    assert_eq!(BindNames::read(&body[..names.bytes - 1]), None);
}

fn password(body: &[u8]) {
    let _ = md5::verify("md54a0a68b43b6cd5cf266fa02f196e2371", [1, 2, 3, 4], body);
    let Ok((mechanism, data)) = message::read_sasl_initial(body) else { return };
    if let (Ok(name), false) = (std::str::from_utf8(mechanism), data.is_empty()) {
        assert_eq!(&written(|out| message::put_sasl_initial(out, name, data))[5..], body);
    }
}

/// Messages that a server may send: the first byte says how the stream is cut.
pub fn backend_messages(data: &[u8]) {
    for (tag, message) in messages(data) {
        let Some(body) = message.get(5..) else { continue };
        match tag {
            backend::ERROR_RESPONSE | backend::NOTICE_RESPONSE => error(body),
            backend::PARAMETER_STATUS => {
                if let Ok((name, value)) = message::read_parameter_status(body) {
                    let again = written(|out| message::put_parameter_status(out, name, value));
                    assert!(body.starts_with(&again[5..]));
                }
            }
            backend::AUTHENTICATION => {
                if let Ok(request) = AuthenticationRequest::read(body) {
                    let again = written(|out| request.write(out));
                    assert!(body.starts_with(&again[5..]));
                    assert_eq!(AuthenticationRequest::read(&again[5..]), Ok(request));
                }
            }
            backend::READY_FOR_QUERY => {
                if let Some(Ok(status)) = body.first().map(|byte| TransactionStatus::from_byte(*byte)) {
                    assert_eq!(status.ready_for_query()[5], body[0]);
                }
            }
            _ => {}
        }
    }
}

fn error(body: &[u8]) {
    for field in 0..=u8::MAX {
        if let Some(value) = ErrorFields(body).get(field) {
            assert!(field != 0 && value.len() + 2 <= body.len() && !value.contains(&0));
        }
    }
    let error = ErrorResponse::from_body(body);
    assert_eq!(ErrorResponse::from_body(&error.to_bytes()[5..]), error);
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

/// The messages of a stream, the last one perhaps cut short; the first byte says how the stream is cut. They are the
/// same as those of the stream in one piece.
fn messages(data: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let Some((&cuts, stream)) = data.split_first() else { return Vec::new() };
    let whole = consume(std::iter::once(stream));
    let pieces = consume(stream.chunks(usize::from(cuts % 32) + 1));
    assert_eq!(whole, pieces, "where the stream is cut makes no difference");
    let (messages, end) = whole;
    let bytes: usize = messages.iter().map(|(_, message)| message.len()).sum();
    assert!(bytes <= stream.len() && (end.is_err() || stream.len() - bytes < sluice_wire::frame::HEADER_BYTES));
    messages
}

type Consumed = (Vec<(u8, Vec<u8>)>, Result<(), FrameError>);

/// Reads a stream as a pool does that lets every message through as it comes.
fn consume<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Consumed {
    let mut framer = Framer::default();
    let mut messages: Vec<(u8, Vec<u8>)> = Vec::new();
    let mut pending = Vec::new();
    for piece in pieces {
        pending.extend_from_slice(piece);
        let mut pos = 0;
        while pos < pending.len() {
            match framer.next(&pending[pos..]) {
                Err(error) => return (messages, Err(error)),
                Ok(Frame::Short) => break,
                Ok(Frame::Rest(bytes)) => {
                    if let Some((_, message)) = messages.last_mut() {
                        message.extend_from_slice(&pending[pos..pos + bytes]);
                    }
                    framer.pass_rest(bytes);
                    pos += bytes;
                }
                Ok(Frame::Message { tag, total, here }) => {
                    messages.push((tag, pending[pos..pos + here].to_vec()));
                    framer.pass(total, here);
                    pos += here;
                }
            }
        }
        pending.drain(..pos);
    }
    (messages, Ok(()))
}

/// Logins by SCRAM: the first byte says who is hostile.
pub fn scram(data: &[u8]) {
    let mut input = Input::new(data);
    match input.byte() % 4 {
        0 => hostile_client(&mut input),
        1 => hostile_server(&mut input),
        2 => tampered(&mut input),
        _ => stored(input.rest()),
    }
}

const CLIENT_RANDOM: [u8; 18] = [7; 18];
const SERVER_RANDOM: [u8; 18] = [9; 18];

/// It knows nothing of the password, so nothing it says lets it in.
fn hostile_client(input: &mut Input<'_>) {
    let verifier = Verifier::mock(b"seed", "user");
    if let Ok((server, challenge)) = ServerExchange::begin(verifier, ServerBinding::None, input.bytes(), SERVER_RANDOM)
    {
        assert!(challenge.starts_with("r="));
        assert!(server.finish(input.bytes()).is_err());
    }
}

/// It knows nothing of the password, so nothing it says convinces the client.
fn hostile_server(input: &mut Input<'_>) {
    // By keys: the iterations that the server asks for would be computed for a password.
    let keys = Keys::derive("geheim", b"salt", 1);
    let (client, first) = ClientExchange::begin(ClientSecret::Keys(keys), ClientBinding::None, CLIENT_RANDOM);
    assert!(first.starts_with("n,,n=,r="));
    if let Ok((client, last)) = client.answer(input.bytes()) {
        assert!(last.contains(",p="));
        assert!(client.verify(input.bytes()).is_err());
    }
}

/// Both know the password, and somebody between them changes one message.
fn tampered(input: &mut Input<'_>) {
    let (which, at, flip) = (input.below(4), usize::from(input.byte()), input.byte());
    let tamper = |number: usize, text: String| {
        let mut bytes = text.into_bytes();
        if number == which {
            let at = at % bytes.len();
            bytes[at] ^= flip;
        }
        bytes
    };
    let login = || -> Result<(), ScramError> {
        let verifier = Verifier::derive("geheim", b"salt", 1);
        let (client, first) =
            ClientExchange::begin(ClientSecret::Password("geheim".into()), ClientBinding::None, CLIENT_RANDOM);
        let (server, challenge) =
            ServerExchange::begin(verifier, ServerBinding::None, &tamper(0, first), SERVER_RANDOM)?;
        let (client, last) = client.answer(&tamper(1, challenge))?;
        let (signature, _) = server.finish(&tamper(2, last))?;
        client.verify(&tamper(3, signature))
    };
    assert_eq!(login().is_ok(), flip == 0, "a login holds exactly if nothing was changed");
}

/// A stored secret of any form.
fn stored(text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    match Secret::parse(&text) {
        Secret::Scram(verifier) => assert_eq!(Verifier::parse(&verifier.to_text()), Some(verifier)),
        Secret::Md5(stored) => assert_eq!(md5::answer(&stored, [0; 4]).len(), 35),
        Secret::Plain(password) => assert_eq!(password, text),
        Secret::Damaged => assert!(text.starts_with("SCRAM-SHA-256$")),
    }
}
