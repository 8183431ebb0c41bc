//! Bytes as PostgreSQL's documentation and its own programs have them (chapter 55: 55.2 the flow, 55.7 the formats,
//! 55.8 the fields of errors). Each row is one packet; the readers must see what it says, the writers must give it.

use std::collections::HashSet;

use sluice_wire::{
    ErrorFields, ErrorResponse, Frame, Framer, Origin, md5,
    message::{self, AuthenticationRequest, BindNames, Malformed, Named, Parse, TransactionStatus, backend, frontend},
    scram::{Keys, ScramError, ServerBinding, ServerExchange, Verifier},
    secret::Secret,
    startup::{self, ProtocolVersion, SessionRequest, Startup, StartupError},
};

fn session(version: ProtocolVersion, parameters: &[(&str, &str)]) -> Startup {
    let parameters = parameters.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
    Startup::Session(SessionRequest { version, parameters })
}

/// The body of a message, its header checked.
fn body(tag: u8, message: &[u8]) -> &[u8] {
    let total = message.len();
    assert_eq!(Framer::default().next(message), Ok(Frame::Message { tag, total, here: total }), "{message:?}");
    &message[5..]
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

#[test]
fn first_packets() {
    let long_key: Vec<u8> = (0..32).collect();
    let long_cancel = [b"\0\0\0\x2c\x04\xd2\x16\x2e\0\0\x30\x39".as_slice(), &long_key].concat();
    let cases: [(&str, &[u8], Startup); 7] = [
        ("SSLRequest", b"\0\0\0\x08\x04\xd2\x16\x2f", Startup::Ssl),
        ("GSSENCRequest", b"\0\0\0\x08\x04\xd2\x16\x30", Startup::GssEnc),
        (
            "CancelRequest",
            b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\x30\x39\xde\xad\xbe\xef",
            Startup::Cancel { process_id: 12345, key: vec![0xde, 0xad, 0xbe, 0xef] },
        ),
        ("CancelRequest 3.2", &long_cancel, Startup::Cancel { process_id: 12345, key: long_key.clone() }),
        (
            "StartupMessage 3.0",
            b"\0\0\0\x22\0\x03\0\0user\0alice\0database\0shop\0\0",
            session(ProtocolVersion::V3_0, &[("user", "alice"), ("database", "shop")]),
        ),
        (
            "StartupMessage 3.2",
            b"\0\0\0\x14\0\x03\0\x02user\0alice\0\0",
            session(ProtocolVersion::V3_2, &[("user", "alice")]),
        ),
        (
            "an empty value",
            b"\0\0\0\x22\0\x03\0\0user\0a\0application_name\0\0\0",
            session(ProtocolVersion::V3_0, &[("user", "a"), ("application_name", "")]),
        ),
    ];
    for (name, bytes, expected) in cases {
        assert_eq!(startup::read(bytes), Ok(Some((expected.clone(), bytes.len()))), "{name}");
        let followed = [bytes, b"Q\0\0\0\x04"].concat();
        assert_eq!(startup::read(&followed), Ok(Some((expected, bytes.len()))), "{name}, with more behind it");
        for cut in 0..bytes.len() {
            assert_eq!(startup::read(&bytes[..cut]), Ok(None), "{name} cut at {cut}");
        }
    }
}

#[test]
fn first_packets_that_are_none() {
    let layout = |what| StartupError::Layout(what);
    let terminator = layout("expected terminator as last byte");
    let cases: [(&str, &[u8], StartupError); 10] = [
        ("HTTP", b"GET / HTTP/1.1\r\n", StartupError::Length(u32::from_be_bytes(*b"GET "))),
        ("TLS", b"\x16\x03\x01\x02\0\x01\0\x01", StartupError::Length(0x1603_0102)),
        ("too short for a code", b"\0\0\0\x07\0\x03\0", StartupError::Length(7)),
        ("longer than PostgreSQL takes", b"\0\0\x27\x15\0\x03\0\0", StartupError::Length(10_005)),
        ("version 2.0", b"\0\0\0\x08\0\x02\0\0", StartupError::Version(ProtocolVersion { major: 2, minor: 0 })),
        ("an unknown request", b"\0\0\0\x08\x04\xd2\0\0", {
            StartupError::Version(ProtocolVersion { major: 1234, minor: 0 })
        }),
        ("no terminator", b"\0\0\0\x08\0\x03\0\0", terminator.clone()),
        ("bytes behind the terminator", b"\0\0\0\x0a\0\x03\0\0\0x", terminator),
        ("a name without a value", b"\0\0\0\x0d\0\x03\0\0user\0", layout("a parameter has no value")),
        ("not UTF-8", b"\0\0\0\x10\0\x03\0\0user\0\xff\0\0", layout("a parameter is not valid UTF-8")),
    ];
    for (name, bytes, expected) in cases {
        assert_eq!(startup::read(bytes), Err(expected), "{name}");
    }
    // A CancelRequest is answered by nobody, so these have a key that nobody has.
    let long_key = [b"\0\0\x01\x0d\x04\xd2\x16\x2e\0\0\0\x01".as_slice(), &[7; 257]].concat();
    for bytes in [b"\0\0\0\x08\x04\xd2\x16\x2e".as_slice(), b"\0\0\0\x0c\x04\xd2\x16\x2e\0\0\0\x01", &long_key] {
        let read = startup::read(bytes).unwrap();
        assert!(matches!(&read, Some((Startup::Cancel { key, .. }, _)) if key.is_empty()), "{read:?}");
    }
}

#[test]
fn the_version_is_negotiated() {
    let grease = ProtocolVersion { major: 3, minor: 9999 };
    let cases: [(ProtocolVersion, ProtocolVersion); 4] = [
        (ProtocolVersion::V3_0, ProtocolVersion::V3_0),
        (ProtocolVersion { major: 3, minor: 1 }, ProtocolVersion { major: 3, minor: 1 }),
        (ProtocolVersion::V3_2, ProtocolVersion::V3_2),
        (grease, ProtocolVersion::V3_2),
    ];
    for (asked, used) in cases {
        let parameters = [("user", "a"), ("_pq_.test_protocol_negotiation", ""), ("user", "b")];
        let Startup::Session(request) = session(asked, &parameters) else { unreachable!() };
        assert_eq!(request.negotiate(), (used, vec!["_pq_.test_protocol_negotiation"]));
        assert_eq!(request.get("user"), Some("b"), "the last one counts, as in PostgreSQL");
    }
    let reply = written(|out| startup::put_negotiate(out, ProtocolVersion::V3_2, &["_pq_.x"]));
    assert_eq!(reply, b"v\0\0\0\x13\0\x03\0\x02\0\0\0\x01_pq_.x\0");
}

#[test]
fn messages_that_are_constants() {
    let cases: [(&[u8], &[u8]); 11] = [
        (&message::PARSE_COMPLETE, b"1\0\0\0\x04"),
        (&message::BIND_COMPLETE, b"2\0\0\0\x04"),
        (&message::CLOSE_COMPLETE, b"3\0\0\0\x04"),
        (&message::NO_DATA, b"n\0\0\0\x04"),
        (&message::SYNC, b"S\0\0\0\x04"),
        (&message::TERMINATE, b"X\0\0\0\x04"),
        (&message::AUTHENTICATION_OK, b"R\0\0\0\x08\0\0\0\0"),
        (&TransactionStatus::Idle.ready_for_query(), b"Z\0\0\0\x05I"),
        (&TransactionStatus::InTransaction.ready_for_query(), b"Z\0\0\0\x05T"),
        (&TransactionStatus::Failed.ready_for_query(), b"Z\0\0\0\x05E"),
        (&written(|out| AuthenticationRequest::Ok.write(out)), &message::AUTHENTICATION_OK),
    ];
    for (written, expected) in cases {
        assert_eq!(written, expected);
    }
}

#[test]
fn every_transaction_status_is_one_of_three() {
    for byte in 0..=u8::MAX {
        let status = TransactionStatus::from_byte(byte);
        assert_eq!(status.is_ok(), matches!(byte, b'I' | b'T' | b'E'));
        if let Ok(status) = status {
            assert_eq!(status.ready_for_query()[5], byte);
        }
    }
}

#[test]
fn messages_that_are_written() {
    let cases: [(&str, Vec<u8>, &[u8]); 16] = [
        ("Query", written(|out| message::put_query(out, "SELECT 1")), b"Q\0\0\0\x0dSELECT 1\0"),
        (
            "Parse",
            written(|out| message::put_parse(out, b"s1", "SELECT $1", &[23, 0])),
            b"P\0\0\0\x1bs1\0SELECT $1\0\0\x02\0\0\0\x17\0\0\0\0",
        ),
        (
            "Parse without types",
            written(|out| message::put_parse(out, b"", "SELECT 1", &[])),
            b"P\0\0\0\x10\0SELECT 1\0\0\0",
        ),
        (
            "Bind",
            written(|out| message::put_bind(out, b"p", b"s1", &[Some(b"42"), None, Some(b"")])),
            b"B\0\0\0\x1dp\0s1\0\0\0\0\x03\0\0\0\x0242\xff\xff\xff\xff\0\0\0\0\0\0",
        ),
        (
            "Bind without parameters",
            written(|out| message::put_bind(out, b"", b"", &[])),
            b"B\0\0\0\x0c\0\0\0\0\0\0\0\0",
        ),
        ("Execute", written(|out| message::put_execute(out, b"p", 258)), b"E\0\0\0\x0ap\0\0\0\x01\x02"),
        ("Execute of all rows", written(|out| message::put_execute(out, b"", 0)), b"E\0\0\0\x09\0\0\0\0\0"),
        (
            "FunctionCall",
            written(|out| message::put_function_call(out, 258, |out| out.push(b'x'))),
            b"F\0\0\0\x15\0\0\x01\x02\0\x01\0\x01\0\x01\0\0\0\x01x\0\x01",
        ),
        (
            "Parse, Bind and Execute",
            written(|out| message::put_unnamed_command(out, "BEGIN")),
            b"P\0\0\0\x0d\0BEGIN\0\0\0B\0\0\0\x0c\0\0\0\0\0\0\0\0E\0\0\0\x09\0\0\0\0\0",
        ),
        ("CommandComplete", written(|out| message::put_command_complete(out, "SELECT 1")), b"C\0\0\0\x0dSELECT 1\0"),
        (
            "ParameterStatus",
            written(|out| message::put_parameter_status(out, "client_encoding", "UTF8")),
            b"S\0\0\0\x19client_encoding\0UTF8\0",
        ),
        (
            "BackendKeyData",
            written(|out| message::put_backend_key_data(out, 12345, &[1, 2, 3, 4])),
            b"K\0\0\0\x0c\0\0\x30\x39\x01\x02\x03\x04",
        ),
        (
            "Describe",
            written(|out| message::put_statement_message(out, frontend::DESCRIBE, b"s1")),
            b"D\0\0\0\x08Ss1\0",
        ),
        ("Close", written(|out| message::put_statement_message(out, frontend::CLOSE, b"")), b"C\0\0\0\x06S\0"),
        (
            "SASLInitialResponse",
            written(|out| message::put_sasl_initial(out, "SCRAM-SHA-256", b"n,,n=,r=fyko")),
            b"p\0\0\0\x22SCRAM-SHA-256\0\0\0\0\x0cn,,n=,r=fyko",
        ),
        ("a zero inside a value ends it", written(|out| message::put_query(out, "a\0b")), b"Q\0\0\0\x06a\0"),
    ];
    for (name, written, expected) in cases {
        assert_eq!(written, expected, "{name}");
    }
}

#[test]
fn statements() {
    let parse = b"P\0\0\0\x1bs1\0SELECT $1\0\0\x02\0\0\0\x17\0\0\0\0";
    let read = Parse::read(body(frontend::PARSE, parse)).expect("it is valid");
    assert_eq!((read.name, read.query), (&b"s1"[..], &b"SELECT $1"[..]));
    assert_eq!(read.definition, b"SELECT $1\0\0\x02\0\0\0\x17\0\0\0\0");
    assert_eq!(written(|out| Parse::write(out, read.name, read.definition)), parse);

    let bind = b"B\0\0\0\x15p\0s1\0\0\0\0\x01\0\0\0\x0242\0\0";
    let names = BindNames::read(body(frontend::BIND, bind)).expect("the names are whole");
    assert_eq!(names, BindNames { portal: b"p", statement: b"s1", bytes: 5 });
    let rest = &bind[5 + names.bytes..];
    let mut again = written(|out| BindNames::write(out, names.portal, names.statement, rest.len()));
    again.extend_from_slice(rest);
    assert_eq!(again, bind);
    for cut in 0..names.bytes {
        assert_eq!(BindNames::read(&bind[5..5 + cut]), None, "cut at {cut}");
    }

    let named: [(&[u8], Result<Named<'_>, Malformed>); 8] = [
        (b"Ss1\0", Ok(Named::Statement(b"s1"))),
        (b"S\0", Ok(Named::Statement(b""))),
        (b"Pp1\0", Ok(Named::Portal(b"p1"))),
        (b"", Err(Malformed("Close"))),
        (b"S", Err(Malformed("Close"))),
        (b"Ss1", Err(Malformed("Close"))),
        (b"Ss1\0\0", Err(Malformed("Close"))),
        (b"Xs1\0", Err(Malformed("Close"))),
    ];
    for (bytes, expected) in named {
        assert_eq!(Named::read(bytes, "Close"), expected, "{bytes:?}");
    }
}

#[test]
fn a_malformed_parse_is_refused() {
    let cases: [&[u8]; 8] =
        [b"", b"s1", b"s1\0", b"s1\0q", b"s1\0q\0", b"s1\0q\0\0", b"s1\0q\0\0\x01", b"s1\0q\0\0\0\0"];
    for bytes in cases {
        assert_eq!(Parse::read(bytes), Err(Malformed("Parse")), "{bytes:?}");
    }
}

#[test]
fn authentication_requests() {
    use AuthenticationRequest as R;
    let cases: [(&[u8], R<'_>); 12] = [
        (b"R\0\0\0\x08\0\0\0\0", R::Ok),
        (b"R\0\0\0\x08\0\0\0\x02", R::Other(2)), // KerberosV5
        (b"R\0\0\0\x08\0\0\0\x03", R::CleartextPassword),
        (b"R\0\0\0\x0c\0\0\0\x05\x01\x02\x03\x04", R::Md5Password([1, 2, 3, 4])),
        (b"R\0\0\0\x08\0\0\0\x07", R::Other(7)), // GSS
        (b"R\0\0\0\x08\0\0\0\x09", R::Other(9)), // SSPI
        (b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0", R::Sasl(b"SCRAM-SHA-256\0\0")),
        (
            b"R\0\0\0\x2a\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0",
            R::Sasl(b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"),
        ),
        (b"R\0\0\0\x0b\0\0\0\x0br=x", R::SaslContinue(b"r=x")),
        (b"R\0\0\0\x0b\0\0\0\x0cv=x", R::SaslFinal(b"v=x")),
        (b"R\0\0\0\x08\0\0\0\x0c", R::SaslFinal(b"")),
        (b"R\0\0\0\x08\xff\xff\xff\xff", R::Other(u32::MAX)),
    ];
    for (bytes, expected) in cases {
        assert_eq!(R::read(body(backend::AUTHENTICATION, bytes)), Ok(expected));
        assert_eq!(written(|out| expected.write(out)), bytes, "{expected:?}");
    }
    for bad in [&b""[..], b"\0\0\0", b"\0\0\0\x05", b"\0\0\0\x05\x01\x02\x03"] {
        assert_eq!(R::read(bad), Err(Malformed("Authentication")), "{bad:?}");
    }
}

#[test]
fn sasl_initial_responses() {
    let malformed = Err(Malformed("SASLInitialResponse"));
    type Read<'a> = Result<(&'a [u8], &'a [u8]), Malformed>;
    let cases: [(&[u8], Read<'_>); 7] = [
        (b"SCRAM-SHA-256\0\0\0\0\x03n,,", Ok((b"SCRAM-SHA-256", b"n,,"))),
        (b"SCRAM-SHA-256\0\0\0\0\0", Ok((b"SCRAM-SHA-256", b""))),
        (b"SCRAM-SHA-256\0\xff\xff\xff\xff", Ok((b"SCRAM-SHA-256", b""))),
        (b"SCRAM-SHA-256\0\0\0\0\x04n,,", malformed),
        (b"SCRAM-SHA-256\0\0\0\0\x02n,,", malformed),
        (b"SCRAM-SHA-256\0\0\0", malformed),
        (b"SCRAM-SHA-256", malformed),
    ];
    for (bytes, expected) in cases {
        assert_eq!(message::read_sasl_initial(bytes), expected, "{bytes:?}");
    }
}

#[test]
fn parameter_status() {
    assert_eq!(message::read_parameter_status(b"TimeZone\0Etc/UTC\0"), Ok(("TimeZone", "Etc/UTC")));
    assert_eq!(message::read_parameter_status(b"application_name\0\0"), Ok(("application_name", "")));
    for bad in [&b""[..], b"TimeZone", b"TimeZone\0", b"TimeZone\0UTC", b"\xff\0x\0"] {
        assert_eq!(message::read_parameter_status(bad), Err(Malformed("ParameterStatus")), "{bad:?}");
    }
}

/// The error that PostgreSQL 15 sends for `SELECT * FROM missing`.
#[test]
fn an_error_of_postgresql() {
    let bytes = b"E\0\0\0\x6aSERROR\0VERROR\0C42P01\0Mrelation \"missing\" does not exist\0P15\0\
        Fparse_relation.c\0L1392\0RparserOpenTable\0\0";
    let body = body(backend::ERROR_RESPONSE, bytes);
    let fields: [(u8, Option<&[u8]>); 6] = [
        (b'S', Some(b"ERROR")),
        (b'C', Some(b"42P01")),
        (b'P', Some(b"15")),
        (b'R', Some(b"parserOpenTable")),
        (b'H', None),
        (0, None),
    ];
    for (field, value) in fields {
        assert_eq!(ErrorFields(body).get(field), value, "{}", char::from(field));
    }
    let (file, line) = (Some("parse_relation.c".into()), Some("1392".into()));
    let origin = Some(Box::new(Origin { file, line, routine: "parserOpenTable".into() }));
    let error = ErrorResponse::error("42P01", "relation \"missing\" does not exist");
    assert_eq!(ErrorResponse::from_body(body), ErrorResponse { origin, ..error });
}

#[test]
fn errors_in_other_words() {
    // The severity is localized in S, never in V; before PostgreSQL 9.6 there was no V.
    let error = |code: &'static str, message| ErrorResponse::error(code, message);
    let fatal = |code: &'static str, message| ErrorResponse::fatal(code, message);
    let none = "the server gave no message";
    let cases: [(&[u8], ErrorResponse); 7] = [
        (b"SFEHLER\0VERROR\0C22012\0MDivision durch Null\0\0", error("22012", "Division durch Null")),
        (b"SERROR\0C22012\0Mdivision by zero\0\0", error("22012", "division by zero")),
        (b"SPANIC\0VPANIC\0CXX000\0Mx\0\0", fatal("XX000", "x")),
        (b"SERROR\0VERROR\0C22012\0Mx\0Dwhy\0Hwait\0\0", error("22012", "x").detail("why").hint("wait")),
        (b"", fatal("XX000", none)),
        (b"\0", fatal("XX000", none)),
        (b"VERROR\0C2201", error("XX000", none)),
    ];
    for (body, expected) in cases {
        assert_eq!(ErrorResponse::from_body(body), expected, "{body:?}");
    }
    let bytes = fatal("53300", "no server is free").hint("wait").to_bytes();
    assert_eq!(bytes, b"E\0\0\0\x33SFATAL\0VFATAL\0C53300\0Mno server is free\0Hwait\0\0");
}

#[test]
fn type_bytes_differ_in_each_direction() {
    use {backend as b, frontend as f};
    let from_client = [
        f::BIND,
        f::CLOSE,
        f::COPY_DATA,
        f::COPY_DONE,
        f::COPY_FAIL,
        f::DESCRIBE,
        f::EXECUTE,
        f::FLUSH,
        f::FUNCTION_CALL,
        f::PARSE,
        f::PASSWORD,
        f::QUERY,
        f::SYNC,
        f::TERMINATE,
    ];
    let from_server = [
        b::AUTHENTICATION,
        b::BACKEND_KEY_DATA,
        b::BIND_COMPLETE,
        b::CLOSE_COMPLETE,
        b::COMMAND_COMPLETE,
        b::COPY_BOTH_RESPONSE,
        b::COPY_DATA,
        b::COPY_DONE,
        b::COPY_IN_RESPONSE,
        b::COPY_OUT_RESPONSE,
        b::DATA_ROW,
        b::EMPTY_QUERY_RESPONSE,
        b::ERROR_RESPONSE,
        b::FUNCTION_CALL_RESPONSE,
        b::NEGOTIATE_PROTOCOL_VERSION,
        b::NOTICE_RESPONSE,
        b::NOTIFICATION_RESPONSE,
        b::NO_DATA,
        b::PARAMETER_DESCRIPTION,
        b::PARAMETER_STATUS,
        b::PARSE_COMPLETE,
        b::PORTAL_SUSPENDED,
        b::READY_FOR_QUERY,
        b::ROW_DESCRIPTION,
    ];
    assert_eq!(HashSet::from(from_client).len(), from_client.len());
    assert_eq!(HashSet::from(from_server).len(), from_server.len());
}

/// RFC 7677's password and salt, in the form of `pg_authid.rolpassword`.
const PENCIL: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
    WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

#[test]
fn secrets_in_the_forms_postgresql_stores() {
    let verifier = Verifier::parse(PENCIL).expect("it is valid");
    assert_eq!(Verifier::derive("pencil", &verifier.salt, 4096), verifier);
    assert_eq!(verifier.to_text(), PENCIL);
    assert!(Secret::parse(PENCIL) == Secret::Scram(verifier));
    let md5 = "md54a0a68b43b6cd5cf266fa02f196e2371";
    assert!(Secret::parse(md5) == Secret::Md5(md5.into()));
    let plain = ["", "secret", "md5", "md5x", "md54a0a68b43b6cd5cf266fa02f196e237g", "SCRAM-SHA-256"];
    for password in plain {
        assert!(Secret::parse(password) == Secret::Plain(password.into()), "{password}");
    }
    for damaged in [&PENCIL[..PENCIL.len() - 1], &PENCIL.replace("4096", "0"), "SCRAM-SHA-256$"] {
        assert!(Secret::parse(damaged) == Secret::Damaged, "{damaged}");
    }
    for (secret, shown) in [(PENCIL, "Secret::Scram(…)"), (md5, "Secret::Md5(…)"), ("geheim", "Secret::Plain(…)")]
    {
        assert_eq!(format!("{:?}", Secret::parse(secret)), shown, "nothing of a secret is printed");
    }
    assert_eq!(format!("{:?}", Keys::derive("geheim", b"salt", 1)), "Keys(…)");
}

#[test]
fn an_md5_answer() {
    // md5(md5('secret' || 'alice') || salt), PostgreSQL documentation, 55.2.1.
    let stored = md5::hash_password("alice", "secret");
    assert_eq!(md5::answer(&stored, [1, 2, 3, 4]), "md598a0412b9c31436fc53776e863350083");
}

#[test]
fn scram_first_messages_of_clients() {
    let malformed = ScramError::Malformed;
    let cases: [(&[u8], Option<ScramError>); 18] = [
        (b"n,,n=,r=fyko+d2lbbFgONRv9qkxdawL", None),
        (b"n,,n=user,r=x", None),
        (b"y,,n=,r=x", None),
        (b"n,,n=,r=x,x=1", None),
        (b"n,,n=,r=", None),
        (b"n,,n=,r=x,ext=1", Some(malformed("an attribute was expected"))),
        (b"p=tls-server-end-point,,n=,r=x", Some(ScramError::OtherMechanism { plus: false })),
        (b"n,a=other,n=,r=x", Some(ScramError::AuthorizationIdentity)),
        (b"n,x,n=,r=x", Some(malformed("a comma was expected"))),
        (b"n,,m=x,n=,r=x", Some(ScramError::Extension)),
        (b"n,,n=,r=x\x01", Some(ScramError::NonPrintable)),
        (b"", Some(malformed("it is empty"))),
        (b"x,,n=,r=x", Some(malformed("no channel binding flag"))),
        (b"n", Some(malformed("a comma was expected"))),
        (b"n,", Some(malformed("a comma was expected"))),
        (b"n,,", Some(malformed("an attribute is missing, or out of order"))),
        (b"n,,n=,R=x", Some(malformed("an attribute is missing, or out of order"))),
        (b"n,,n=,r=\xff", Some(ScramError::NonPrintable)),
    ];
    for (first, error) in cases {
        let begun = ServerExchange::begin(Verifier::mock(b"seed", "user"), ServerBinding::None, first, [0; 18]);
        assert_eq!(begun.err(), error, "{}", first.escape_ascii());
    }
}
