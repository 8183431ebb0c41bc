//! Writes the seeds of the corpora: `cargo run -p sluice-fuzz --example seed_corpus`. Files that a fuzzer has found
//! stand beside them and are left alone.

use std::{io, path::Path};

use sluice_fuzz::engine::Op::{self, *};
use sluice_wire::{
    ErrorResponse,
    message::{self, AuthenticationRequest, BindNames, Parse, TransactionStatus, framed, frontend},
    scram::{ClientBinding, ClientExchange, ClientSecret, Keys},
    startup::{self, ProtocolVersion},
};

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let seeds = [
        ("startup", startup_seeds()),
        ("proxy", proxy_seeds()),
        ("frontend_messages", frontend_seeds()),
        ("backend_messages", backend_seeds()),
        ("scram", scram_seeds()),
        ("engine", engine_seeds()),
    ];
    for (target, seeds) in seeds {
        let folder = corpus.join(target);
        std::fs::create_dir_all(&folder)?;
        for (name, bytes) in seeds {
            std::fs::write(folder.join(name), bytes)?;
        }
    }
    Ok(())
}

type Seeds = Vec<(&'static str, Vec<u8>)>;

fn startup_seeds() -> Seeds {
    let mut session = Vec::new();
    startup::put_session(&mut session, ProtocolVersion::V3_0, [("user", "alice"), ("database", "shop")]);
    let mut options = b"\0\0\0\x08\x04\xd2\x16\x2f\0\0\0\x08\x04\xd2\x16\x30".to_vec();
    let parameters = [("user", "a"), ("options", "-c geqo=off --work-mem=64MB"), ("_pq_.x", "")];
    startup::put_session(&mut options, ProtocolVersion { major: 3, minor: 9999 }, parameters);
    let mut cancel = Vec::new();
    startup::put_cancel(&mut cancel, 12345, &[1, 2, 3, 4]);
    let mut long_cancel = Vec::new();
    startup::put_cancel(&mut long_cancel, 12345, &[7; 32]);
    vec![
        ("session", session),
        ("encryption-then-session", options),
        ("cancel", cancel),
        ("cancel-long-key", long_cancel),
        ("http", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
    ]
}

fn proxy_seeds() -> Seeds {
    let binary = |command: u8, family: u8, rest: &[u8]| {
        let length = (rest.len() as u16).to_be_bytes();
        [b"\r\n\r\n\0\r\nQUIT\n", &[0x20 | command, family][..], &length, rest].concat()
    };
    let tcp4 = [192, 0, 2, 1, 10, 0, 0, 1, 0xc7, 0x38, 0x15, 0x38];
    vec![
        ("line-of-ipv4", b"PROXY TCP4 192.0.2.1 10.0.0.1 51000 6432\r\n\0\0\0\x08".to_vec()),
        ("line-of-ipv6", b"PROXY TCP6 2001:db8::7 ::1 51000 6432\r\n".to_vec()),
        ("line-of-nobody", b"PROXY UNKNOWN whatever\r\n".to_vec()),
        ("binary-of-ipv4", binary(1, 0x11, &[&tcp4[..], b"\x02\0\x01x"].concat())),
        ("binary-of-ipv6", binary(1, 0x21, &[7; 36])),
        ("binary-of-a-socket", binary(1, 0x31, &[b'/'; 216])),
        ("binary-of-nobody", binary(0, 0, &[])),
        ("packet", b"\0\0\0\x08\x04\xd2\x16\x2f".to_vec()),
    ]
}

fn frontend_seeds() -> Seeds {
    let cut = |cut: u8, write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = vec![cut];
        write(&mut out);
        out
    };
    vec![
        ("batch", cut(2, &batch)),
        ("query", cut(31, &|out| message::put_query(out, "SELECT 1"))),
        ("close", cut(0, &|out| message::put_statement_message(out, frontend::CLOSE, b"s1"))),
        ("sasl-initial", cut(6, &|out| message::put_sasl_initial(out, "SCRAM-SHA-256", b"n,,n=,r=abc"))),
        (
            "sasl-none",
            cut(6, &|out| framed(out, frontend::PASSWORD, |out| out.extend_from_slice(b"X\0\xff\xff\xff\xff"))),
        ),
        ("impossible-length", b"\x03Q\0\0\0\x03P\xff\xff\xff\xff".to_vec()),
    ]
}

fn batch(out: &mut Vec<u8>) {
    Parse::write(out, b"s1", b"SELECT $1\0\0\x01\0\0\0\x17");
    let rest = b"\0\0\0\x01\0\0\0\x0242\0\0";
    BindNames::write(out, b"", b"s1", rest.len());
    out.extend_from_slice(rest);
    message::put_statement_message(out, frontend::DESCRIBE, b"s1");
    framed(out, frontend::EXECUTE, |out| out.extend_from_slice(&[0; 5]));
    out.extend_from_slice(&message::SYNC);
}

fn backend_seeds() -> Seeds {
    let mut login = vec![4];
    AuthenticationRequest::Sasl(b"SCRAM-SHA-256\0\0").write(&mut login);
    AuthenticationRequest::SaslContinue(b"r=x,s=c2FsdA==,i=4096").write(&mut login);
    AuthenticationRequest::SaslFinal(b"v=x").write(&mut login);
    login.extend_from_slice(&message::AUTHENTICATION_OK);
    message::put_parameter_status(&mut login, "server_version", "15.0");
    message::put_backend_key_data(&mut login, 7, &[1, 2, 3, 4]);
    login.extend_from_slice(&TransactionStatus::Idle.ready_for_query());
    let mut error = vec![9];
    ErrorResponse::fatal("53300", "no server is free").detail("why").hint("wait").write(&mut error);
    let mut rows = vec![1];
    framed(&mut rows, b'D', |out| out.extend_from_slice(&[0, 1, 0, 0, 0, 1, b'1']));
    message::put_command_complete(&mut rows, "SELECT 1");
    rows.extend_from_slice(&TransactionStatus::Failed.ready_for_query());
    let mut md5 = vec![0];
    AuthenticationRequest::Md5Password([1, 2, 3, 4]).write(&mut md5);
    AuthenticationRequest::Other(7).write(&mut md5);
    vec![("login", login), ("error", error), ("rows", rows), ("md5", md5)]
}

fn scram_seeds() -> Seeds {
    let with_lengths = |mode: u8, parts: &[&[u8]]| {
        let mut out = vec![mode];
        for part in parts {
            out.push(part.len() as u8);
            out.extend_from_slice(part);
        }
        out
    };
    let (client, first) =
        ClientExchange::begin(ClientSecret::Keys(Keys::derive("x", b"salt", 1)), ClientBinding::None, [7; 18]);
    let nonce = first.trim_start_matches("n,,n=,r=");
    let challenge = format!("r={nonce}abc,s=c2FsdA==,i=4096");
    let (_, last) = client.answer(challenge.as_bytes()).expect("the challenge is valid");
    let signature = [b"v=".as_slice(), &[b'A'; 43], b"="].concat();
    let stored = b"\x03SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
        WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    vec![
        ("client", with_lengths(0, &[first.as_bytes(), last.as_bytes()])),
        ("server", with_lengths(1, &[challenge.as_bytes(), &signature])),
        ("tampered-proof", vec![2, 2, 60, 1]),
        ("untouched", vec![2, 0, 0, 0]),
        ("stored", stored.to_vec()),
    ]
}

/// A script: the configuration, then operations with their arguments.
struct Script(Vec<u8>);

impl Script {
    fn new(method: u8, sizes: u8) -> Self {
        Self(vec![method, sizes])
    }

    fn op(mut self, op: Op, arguments: &[u8]) -> Self {
        self.0.push(op as u8);
        self.0.extend_from_slice(arguments);
        self
    }

    /// A client of `worker` and its first packet.
    fn client(self, worker: u8, number: u8, what: u8) -> Self {
        self.op(Accept, &[worker]).op(ClientStarts, &[number, 0, what])
    }

    /// The connection that a waiting client has caused is opened, and its server lets it in.
    fn server(self, number: u8) -> Self {
        self.op(Connected, &[0, 0]).op(ServerAnswers, &[number, 0])
    }

    fn says(self, client: u8, cut: u8, phrases: &[u8]) -> Self {
        let count = [client, cut, phrases.len() as u8 - 1];
        self.op(ClientSays, &[&count, phrases].concat())
    }

    fn answers(self, server: u8) -> Self {
        self.op(ServerAnswers, &[server, 0])
    }
}

/// Room for six servers in the process and three in a pool; `auto_prepare` on.
const ROOMY: u8 = 0b1010_1010;
/// One server in the process.
const TIGHT: u8 = 0;

// Places in the list of phrases (`peers::phrase`).
const SELECT: u8 = 0;
const BEGIN: u8 = 1;
const COMMIT: u8 = 2;
const SET: u8 = 3;
const FAIL: u8 = 4;
const COPY: u8 = 5;
const DEALLOCATE: u8 = 6;
const DISCARD_ALL: u8 = 8;
const LISTEN: u8 = 9;
const PARSE_S1: u8 = 13;
const PARSE_S2: u8 = 14;
const PARSE_FAILS: u8 = 15;
const PARSE_DEALLOCATE: u8 = 16;
const BIND_UNNAMED: u8 = 17;
const BIND_S1: u8 = 18;
const BIND_S2: u8 = 19;
const DESCRIBE_S1: u8 = 20;
const EXECUTE: u8 = 22;
const CLOSE_S1: u8 = 23;
const SYNC: u8 = 24;
const FLUSH: u8 = 25;
const COPY_DATA: u8 = 26;
const COPY_DONE: u8 = 27;
const FUNCTION_CALL: u8 = 29;
const TERMINATE: u8 = 30;
const BATCH: u8 = 31;
const TEMP: u8 = 32;
const FUNCTION: u8 = 33;
const SET_LOCAL: u8 = 34;
const SEQUENCES: u8 = 35;

fn engine_seeds() -> Seeds {
    let one = |method| Script::new(method, ROOMY).client(0, 0, 0).server(0);
    let seeds = [
        ("query", one(0).says(0, 0, &[SELECT]).answers(0).says(0, 1, &[TERMINATE])),
        ("transaction", { one(0).says(0, 3, &[BEGIN, FAIL]).answers(0).says(0, 0, &[SELECT, COMMIT]).answers(0) }),
        ("prepared", {
            let first = [PARSE_S1, BIND_S1, DESCRIBE_S1, EXECUTE, SYNC];
            one(0).says(0, 0, &first).answers(0).says(0, 2, &[CLOSE_S1, PARSE_S1, PARSE_S2, BIND_S2, SYNC]).answers(0)
        }),
        ("unnamed-again", one(0).says(0, 0, &[BATCH]).answers(0).says(0, 0, &[BATCH, BATCH]).answers(0)),
        ("evicted", {
            let s1 = [PARSE_S1, BIND_S1, EXECUTE, SYNC];
            let s2 = [PARSE_S2, BIND_S2, EXECUTE, SYNC];
            let script = Script::new(0, ROOMY & !8).client(0, 0, 0).server(0);
            script.says(0, 0, &s1).answers(0).says(0, 0, &s2).answers(0).says(0, 0, &s1[1..]).answers(0)
        }),
        ("refused", {
            one(0)
                .says(0, 0, &[PARSE_FAILS, BIND_S2, EXECUTE, FLUSH])
                .answers(0)
                .says(0, 0, &[BIND_S1, SYNC])
                .answers(0)
        }),
        ("stale", {
            let again = [BIND_S1, EXECUTE, SYNC];
            let script = one(0).says(0, 0, &[PARSE_S1, BIND_S1, EXECUTE, SYNC]).answers(0);
            script.op(ServerStale, &[0]).says(0, 0, &again).answers(0).answers(0).answers(0)
        }),
        ("deallocate", {
            let script = one(0).says(0, 0, &[PARSE_S1, SYNC]).answers(0).says(0, 0, &[DEALLOCATE, PARSE_S1, SYNC]);
            script.answers(0).says(0, 0, &[PARSE_DEALLOCATE, BIND_UNNAMED, EXECUTE, SYNC]).answers(0)
        }),
        ("copy", one(0).says(0, 0, &[COPY]).answers(0).says(0, 1, &[COPY_DATA, COPY_DONE]).answers(0)),
        ("residue", one(0).says(0, 0, &[SET, LISTEN]).answers(0).answers(0).says(0, 0, &[DISCARD_ALL]).answers(0)),
        ("settings-follow", {
            let script = one(0).says(0, 0, &[SET]).answers(0).answers(0).client(0, 1, 0).says(1, 0, &[SELECT]);
            script.answers(0).answers(0).says(0, 0, &[FUNCTION, SELECT]).answers(0).answers(0).answers(0)
        }),
        ("pinned", {
            let script = one(0).says(0, 0, &[TEMP]).answers(0).answers(0).says(0, 0, &[SELECT, BEGIN, SET_LOCAL]);
            script
                .answers(0)
                .says(0, 0, &[COMMIT])
                .answers(0)
                .answers(0)
                .says(0, 0, &[DISCARD_ALL])
                .answers(0)
                .answers(0)
        }),
        ("pins-refused", one(32).says(0, 0, &[TEMP]).answers(0).answers(0).answers(0)),
        ("reporting", {
            let script = Script::new(0, ROOMY).client(0, 0, 0).op(Connected, &[0, 4]).answers(0);
            script.says(0, 0, &[SET, TEMP]).answers(0).says(0, 0, &[SELECT]).answers(0).op(Closed, &[0]).answers(0)
        }),
        ("sequences", {
            let script = one(0).says(0, 0, &[SEQUENCES]).answers(0).answers(0).client(0, 1, 0);
            script.says(1, 0, &[SEQUENCES]).answers(0).answers(0).answers(0)
        }),
        ("function-call", one(0).says(0, 0, &[FUNCTION_CALL]).answers(0)),
        ("session-mode", {
            let script = Script::new(0, ROOMY).client(0, 0, 4).server(0);
            script.says(0, 0, &[PARSE_S1, BIND_S1, EXECUTE, SYNC]).answers(0).op(Closed, &[0]).answers(0).answers(0)
        }),
        ("handed-over", {
            let script = one(0).client(1, 1, 8).op(Post, &[0]).op(Post, &[1]).answers(0).answers(0);
            script.says(1, 0, &[SELECT]).op(Post, &[0]).op(Post, &[1]).answers(0)
        }),
        ("waiters", {
            let script = Script::new(0, TIGHT).client(0, 0, 0).client(0, 1, 0).client(1, 2, 1).server(0);
            script.says(0, 0, &[BEGIN]).says(1, 0, &[SELECT]).op(Post, &[1]).answers(0).op(Tick, &[4]).op(Post, &[0])
        }),
        ("cancelled", {
            let script = one(0).says(0, 0, &[SELECT]).op(Cancel, &[0, 1]).op(Post, &[0]).op(Connected, &[0, 0]);
            script.answers(0).op(Closed, &[2]).answers(0)
        }),
        ("vanished-in-transaction", {
            one(0).says(0, 0, &[BEGIN, SELECT]).answers(0).says(0, 0, &[SELECT]).op(Closed, &[0]).answers(0).answers(0)
        }),
        ("server-lost", one(0).says(0, 0, &[SELECT]).op(Closed, &[1]).op(Tick, &[2]).op(Tick, &[4])),
        ("slow-client", {
            let script = one(0).says(0, 0, &[COPY]).answers(0).op(Slow, &[0]).op(Large, &[1]).op(Large, &[1]);
            script.says(0, 0, &[COPY_DONE]).answers(0).op(Drained, &[0]).says(0, 0, &[SELECT]).answers(0)
        }),
        ("slow-server", {
            let script = one(0).says(0, 0, &[COPY]).answers(0).op(Slow, &[1]).op(Large, &[0]).op(Large, &[0]);
            script.op(Drained, &[0]).says(0, 0, &[COPY_DONE]).answers(0)
        }),
        ("md5", {
            let script = Script::new(1, ROOMY).client(0, 0, 1).op(ClientProves, &[0, 0, 1]).op(Connected, &[0, 2]);
            script.answers(0).answers(0).says(0, 0, &[SELECT]).answers(0)
        }),
        ("scram", {
            let script =
                Script::new(2, ROOMY).client(0, 0, 0).op(ClientProves, &[0, 0, 0]).op(ClientProves, &[0, 5, 0]);
            script.op(Connected, &[0, 3]).answers(0).answers(0).answers(0).says(0, 0, &[SELECT]).answers(0)
        }),
        ("looked-up", {
            let script = Script::new(2 | 4, ROOMY).client(0, 0, 0).client(1, 1, 0).op(Found, &[0]).op(Post, &[0]);
            script.op(Post, &[1]).op(ClientProves, &[0, 0, 0]).op(ClientProves, &[1, 0, 1])
        }),
        ("raw-bytes", {
            let hello = b"\0\0\0\x14\0\x03\0\0user\0alice\0\0";
            let script = Script::new(0, ROOMY).op(Accept, &[0]);
            let script =
                script.op(ClientBytes, &[&[0, 3, hello.len() as u8][..], hello].concat()).op(Connected, &[0, 0]);
            let welcome = b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x07\x01\x02\x03\x04Z\0\0\0\x05I";
            script.op(ServerBytes, &[&[0, 4, welcome.len() as u8][..], welcome].concat()).says(0, 0, &[SELECT])
        }),
        ("behind-a-balancer", {
            let header = b"PROXY TCP4 192.0.2.1 10.0.0.1 51000 6432\r\n";
            let script = Script::new(0, ROOMY).op(Accept, &[0x80]);
            let script = script.op(ClientBytes, &[&[0, 3, header.len() as u8][..], header].concat());
            script.op(ClientStarts, &[0, 0, 0]).server(0).says(0, 0, &[SELECT]).answers(0)
        }),
        (
            "stopped",
            one(0).says(0, 0, &[BEGIN]).answers(0).op(Stop, &[]).op(Post, &[0]).says(0, 0, &[COMMIT]).answers(0),
        ),
    ];
    seeds.map(|(name, Script(bytes))| (name, bytes)).into()
}
