//! Round trips: a message that is written is read back the same, and bytes of any kind neither panic a reader nor
//! lead it past their end.

use proptest::{collection::vec, prelude::*};
use sluice_wire::{
    ErrorFields, ErrorResponse, Origin, Severity, md5,
    message::{self, AuthenticationRequest, BindNames, Named, Parse, TransactionStatus, frontend},
    scram::{ClientBinding, ClientExchange, ClientSecret, Keys, ScramError, ServerBinding, ServerExchange, Verifier},
    secret::Secret,
    startup::{self, ProtocolVersion, STARTUP_BYTES_MAX, SessionRequest, Startup},
};

/// Bytes that fit in a value ended by a zero byte.
fn name() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=u8::MAX, 0..40)
}

/// Text that does.
fn text() -> impl Strategy<Value = String> {
    "[^\0]{0,20}"
}

/// One message, as one of the writers gives it.
fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = b"before".to_vec();
    write(&mut out);
    assert_eq!(&out[..6], b"before", "writers append");
    out.split_off(6)
}

/// Whether `part` lies inside of `whole`, in memory.
fn is_inside(part: &[u8], whole: &[u8]) -> bool {
    let (part, whole) = (part.as_ptr_range(), whole.as_ptr_range());
    whole.start <= part.start && part.end <= whole.end
}

proptest! {
    #[test]
    fn parse(name in name(), query in name(), types in vec(any::<u32>(), 0..8)) {
        let mut definition = query.clone();
        definition.push(0);
        definition.extend_from_slice(&(types.len() as u16).to_be_bytes());
        definition.extend(types.iter().flat_map(|oid| oid.to_be_bytes()));
        let message = written(|out| Parse::write(out, &name, &definition));
        prop_assert_eq!(Parse::read(&message[5..]), Ok(Parse { name: &name, definition: &definition, query: &query }));
        for cut in 5..message.len() {
            prop_assert!(Parse::read(&message[5..cut]).is_err(), "cut at {}", cut);
        }
    }

    #[test]
    fn bind(portal in name(), statement in name(), rest in vec(any::<u8>(), 0..60)) {
        let mut message = written(|out| BindNames::write(out, &portal, &statement, rest.len()));
        message.extend_from_slice(&rest);
        prop_assert_eq!(u32::from_be_bytes([message[1], message[2], message[3], message[4]]) as usize, message.len() - 1);
        let bytes = portal.len() + statement.len() + 2;
        let names = BindNames { portal: &portal, statement: &statement, bytes };
        for cut in 0..=message.len() - 5 {
            prop_assert_eq!(BindNames::read(&message[5..5 + cut]), (cut >= bytes).then_some(names));
        }
    }

    #[test]
    fn describe_and_close(name in name(), close in any::<bool>()) {
        let tag = if close { frontend::CLOSE } else { frontend::DESCRIBE };
        let message = written(|out| message::put_statement_message(out, tag, &name));
        prop_assert_eq!(message[0], tag);
        prop_assert_eq!(Named::read(&message[5..], "Close"), Ok(Named::Statement(&name)));
        let portal = [b"P", &name[..], b"\0"].concat();
        prop_assert_eq!(Named::read(&portal, "Close"), Ok(Named::Portal(&name)));
    }

    #[test]
    fn texts(text in text()) {
        let query = written(|out| message::put_query(out, &text));
        prop_assert_eq!(message::split_cstr(&query[5..]), Some((text.as_bytes(), &b""[..])));
        let complete = written(|out| message::put_command_complete(out, &text));
        prop_assert_eq!(message::split_cstr(&complete[5..]), Some((text.as_bytes(), &b""[..])));
    }

    #[test]
    fn any_value_is_written_up_to_its_first_zero(value in vec(any::<u8>(), 0..20)) {
        let out = written(|out| message::put_cstr(out, &value));
        let expected = value.split(|&b| b == 0).next().expect("split gives at least one part");
        prop_assert_eq!(message::split_cstr(&out), Some((expected, &b""[..])));
    }

    #[test]
    fn parameter_status(name in text(), value in text()) {
        let message = written(|out| message::put_parameter_status(out, &name, &value));
        prop_assert_eq!(message::read_parameter_status(&message[5..]), Ok((name.as_str(), value.as_str())));
    }

    #[test]
    fn backend_key_data(process_id in any::<u32>(), key in vec(any::<u8>(), 4..=256)) {
        let message = written(|out| message::put_backend_key_data(out, process_id, &key));
        prop_assert_eq!(&message[5..9], process_id.to_be_bytes());
        prop_assert_eq!(&message[9..], key);
    }

    #[test]
    fn authentication(kind in any::<u32>(), salt in any::<[u8; 4]>(), data in vec(any::<u8>(), 0..60)) {
        use AuthenticationRequest as R;
        let requests = [
            R::Ok, R::CleartextPassword, R::Md5Password(salt), R::Sasl(&data), R::SaslContinue(&data), R::SaslFinal(&data),
        ];
        let other = (!matches!(kind, 0 | 3 | 5 | 10..=12)).then_some(R::Other(kind));
        for request in requests.into_iter().chain(other) {
            let message = written(|out| request.write(out));
            prop_assert_eq!(R::read(&message[5..]), Ok(request));
        }
    }

    #[test]
    fn sasl_initial(mechanism in "[A-Z0-9_-]{1,20}", data in vec(any::<u8>(), 0..60)) {
        let message = written(|out| message::put_sasl_initial(out, &mechanism, &data));
        prop_assert_eq!(message::read_sasl_initial(&message[5..]), Ok((mechanism.as_bytes(), &data[..])));
    }

    #[test]
    fn session_requests(
        minor in any::<u16>(),
        parameters in vec(("[^\0]{1,12}", text()), 0..8),
        behind in vec(any::<u8>(), 0..10),
    ) {
        let version = ProtocolVersion { major: 3, minor };
        let pairs = parameters.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        let packet = written(|out| startup::put_session(out, version, pairs));
        let expected = Startup::Session(SessionRequest { version, parameters: parameters.clone() });
        let followed = [&packet[..], &behind].concat();
        prop_assert_eq!(startup::read(&followed), Ok(Some((expected, packet.len()))));
        for cut in 0..packet.len() {
            prop_assert_eq!(startup::read(&packet[..cut]), Ok(None));
        }
    }

    #[test]
    fn cancel_requests(process_id in any::<u32>(), key in vec(any::<u8>(), 1..=256)) {
        let packet = written(|out| startup::put_cancel(out, process_id, &key));
        prop_assert_eq!(startup::read(&packet), Ok(Some((Startup::Cancel { process_id, key }, packet.len()))));
    }

    #[test]
    fn version_negotiation(names in vec("_pq_\\.[a-z]{1,8}", 0..4)) {
        let unknown: Vec<&str> = names.iter().map(String::as_str).collect();
        let message = written(|out| startup::put_negotiate(out, ProtocolVersion::V3_2, &unknown));
        prop_assert_eq!(&message[5..9], b"\0\x03\0\x02");
        prop_assert_eq!(&message[9..13], (names.len() as u32).to_be_bytes());
        let mut rest = &message[13..];
        for name in &names {
            let (read, tail) = message::split_cstr(rest).expect("one value a name");
            prop_assert_eq!(read, name.as_bytes());
            rest = tail;
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn errors(
        fatal in any::<bool>(), code in "[0-9A-Z]{5}", message in text(),
        detail in prop::option::of(text()), hint in prop::option::of(text()),
        origin in prop::option::of((prop::option::of(text()), prop::option::of(text()), text())),
    ) {
        let severity = if fatal { Severity::Fatal } else { Severity::Error };
        let origin = origin.map(|(file, line, routine)| Box::new(Origin { file, line, routine: routine.into() }));
        let error = ErrorResponse { severity, code: code.into(), message, detail, hint, origin };
        let bytes = error.to_bytes();
        prop_assert_eq!(&written(|out| error.write(out)), &bytes);
        prop_assert_eq!(bytes.last(), Some(&0));
        let routine = error.origin.as_ref().map(|origin| origin.routine.as_bytes());
        prop_assert_eq!(ErrorFields(&bytes[5..]).get(b'R'), routine);
        prop_assert_eq!(ErrorResponse::from_body(&bytes[5..]), error);
    }

    #[test]
    fn verifiers(password in text(), salt in vec(any::<u8>(), 0..40), iterations in 1u32..4) {
        let verifier = Verifier::derive(&password, &salt, iterations);
        prop_assert_eq!(Verifier::parse(&verifier.to_text()), Some(verifier.clone()));
        prop_assert!(Secret::parse(&verifier.to_text()) == Secret::Scram(verifier));
    }

    #[test]
    fn scram_logs_in_with_the_password_and_with_the_keys_it_reveals(
        password in any::<String>(), other in any::<String>(), salt in vec(any::<u8>(), 1..30), iterations in 1u32..4,
        client in any::<[u8; 18]>(), server in any::<[u8; 18]>(),
    ) {
        let verifier = Verifier::derive(&password, &salt, iterations);
        let exchange = |secret| exchange(secret, verifier.clone(), client, server);
        let keys = exchange(ClientSecret::Password(password)).expect("the password is right");
        prop_assert_eq!(exchange(ClientSecret::Keys(keys.clone())), Ok(keys));
        // Two passwords are the same where SASLprep makes them so.
        if Verifier::derive(&other, &salt, iterations) != verifier {
            prop_assert_eq!(exchange(ClientSecret::Password(other)), Err(ScramError::Mismatch));
        }
    }

    #[test]
    fn scram_fails_if_anyone_changes_a_byte(message in 0usize..4, at in any::<prop::sample::Index>(), flip in 1u8..=255) {
        let tamper = |number: usize, text: String| {
            let mut bytes = text.into_bytes();
            if number == message {
                let at = at.index(bytes.len());
                bytes[at] ^= flip;
            }
            bytes
        };
        let verifier = Verifier::derive("geheim", b"salt", 1);
        let login = || {
            let (client, first) = ClientExchange::begin(ClientSecret::Password("geheim".into()), ClientBinding::None, [7; 18]);
            let (server, challenge) = ServerExchange::begin(verifier, ServerBinding::None, &tamper(0, first), [9; 18])?;
            let (client, last) = client.answer(&tamper(1, challenge))?;
            let (signature, _) = server.finish(&tamper(2, last))?;
            client.verify(&tamper(3, signature))
        };
        // PBKDF2 is cheap here: a changed iteration count has at most one digit.
        prop_assert!(login().is_err());
    }

    #[test]
    fn md5_answers(user in any::<String>(), password in any::<String>(), salt in any::<[u8; 4]>(), at in 0usize..35) {
        let stored = md5::hash_password(&user, &password);
        prop_assert!(Secret::parse(&stored) == Secret::Md5(stored.clone()));
        let mut answer = md5::answer(&stored, salt).into_bytes();
        prop_assert!(md5::verify(&stored, salt, &answer));
        answer[at] ^= 1;
        prop_assert!(!md5::verify(&stored, salt, &answer));
    }
}

fn exchange(
    secret: ClientSecret,
    verifier: Verifier,
    client_random: [u8; 18],
    server_random: [u8; 18],
) -> Result<Keys, ScramError> {
    let (client, first) = ClientExchange::begin(secret, ClientBinding::None, client_random);
    let (server, challenge) = ServerExchange::begin(verifier, ServerBinding::None, first.as_bytes(), server_random)?;
    let (client, last) = client.answer(challenge.as_bytes())?;
    let (signature, keys) = server.finish(last.as_bytes())?;
    client.verify(signature.as_bytes())?;
    Ok(keys)
}

/// Arbitrary bytes, with many zeros and many bytes that mean something somewhere.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let byte =
        prop_oneof![3 => any::<u8>(), 2 => Just(0), 2 => prop::sample::select(&b"SPMCVRnryp=,cis\x03\x05\x0a"[..])];
    vec(byte, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn readers_stay_inside_of_what_they_are_given(bytes in hostile(), field in any::<u8>()) {
        if let Ok(Parse { name, definition, query }) = Parse::read(&bytes) {
            prop_assert!([name, definition, query].iter().all(|part| is_inside(part, &bytes)));
            prop_assert_eq!(&written(|out| Parse::write(out, name, definition))[5..], &bytes);
        }
        if let Some(names) = BindNames::read(&bytes) {
            prop_assert!(names.bytes <= bytes.len());
            prop_assert!(is_inside(names.portal, &bytes) && is_inside(names.statement, &bytes));
        }
        if let Ok(Named::Statement(name) | Named::Portal(name)) = Named::read(&bytes, "Describe") {
            prop_assert!(is_inside(name, &bytes));
            prop_assert_eq!(name.len() + 2, bytes.len());
        }
        if let Ok((mechanism, data)) = message::read_sasl_initial(&bytes) {
            prop_assert!(is_inside(mechanism, &bytes) && (data.is_empty() || is_inside(data, &bytes)));
        }
        if let Ok((name, value)) = message::read_parameter_status(&bytes) {
            prop_assert!(is_inside(name.as_bytes(), &bytes) && is_inside(value.as_bytes(), &bytes));
        }
        if let Some(value) = ErrorFields(&bytes).get(field) {
            prop_assert!(is_inside(value, &bytes));
        }
        let _ = AuthenticationRequest::read(&bytes);
        let _ = bytes.first().map(|byte| TransactionStatus::from_byte(*byte));
    }

    #[test]
    fn an_error_in_other_words_stays_the_same(bytes in hostile()) {
        let error = ErrorResponse::from_body(&bytes);
        prop_assert_eq!(ErrorResponse::from_body(&error.to_bytes()[5..]), error);
    }

    #[test]
    fn a_first_packet_is_its_own_length(
        mut bytes in hostile(), code in prop::sample::select(&[0x0003_0000u32, 0x0003_0002, 80877102, 80877103, 7][..]),
        length in 0u32..140, behind in hostile(),
    ) {
        let header = [length.to_be_bytes(), code.to_be_bytes()].concat();
        bytes.splice(0..0, header);
        match startup::read(&bytes) {
            Ok(Some((packet, used))) => {
                prop_assert_eq!(used, length as usize);
                prop_assert!(used <= bytes.len() && used <= STARTUP_BYTES_MAX as usize);
                bytes.truncate(used);
                let followed = [&bytes[..], &behind].concat();
                prop_assert_eq!(startup::read(&followed), Ok(Some((packet, used))));
                prop_assert_eq!(startup::read(&bytes[..used - 1]), Ok(None));
            }
            Ok(None) => prop_assert!((length as usize) > bytes.len()),
            Err(_) => {}
        }
    }

    #[test]
    fn scram_takes_any_message_of_a_hostile_peer(first in hostile(), second in hostile(), text in any::<String>()) {
        let verifier = Verifier::mock(b"seed", &text);
        if let Ok((server, _)) = ServerExchange::begin(verifier.clone(), ServerBinding::None, &first, [9; 18]) {
            prop_assert!(server.finish(&second).is_err());
        }
        if let Ok((server, _)) = ServerExchange::begin(verifier, ServerBinding::None, b"n,,n=,r=abc", [9; 18]) {
            prop_assert!(server.finish(&second).is_err());
        }
        let keys = Keys::derive("x", b"salt", 1);
        let (client, _) = ClientExchange::begin(ClientSecret::Keys(keys), ClientBinding::None, [7; 18]);
        prop_assert!(client.answer(&first).is_err(), "the nonce can't be guessed");
        if let Some(parsed) = Verifier::parse(&format!("SCRAM-SHA-256${text}")) {
            prop_assert_eq!(Verifier::parse(&parsed.to_text()), Some(parsed));
        }
    }
}
