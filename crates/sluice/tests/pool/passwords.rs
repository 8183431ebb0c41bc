//! Passwords, and the messages that carry them, as PostgreSQL itself takes them: the same goes to both. And the sessions of
//! a role whose password is changed.

use std::{env, time::Duration};

use sluice_testkit::{Auth, Case, Database, Random, Raw, TestPool, eventually, matrix};
use sluice_wire::{
    scram::Verifier,
    startup::{self, ProtocolVersion},
};

use crate::{
    config, database,
    login::{check_passwords, current_user, role, secret},
};

matrix!(transaction:
    passwords_are_prepared_alike,
    the_text_of_a_verifier_is_no_password,
    messages_instead_of_a_password,
    a_changed_password_ends_no_session,
    first_messages_of_scram,
    startup_packets,
    names_are_looked_up_by_their_bytes,
    a_right_that_the_look_up_lacks_is_named,
);

/// Characters of all kinds: spaces, nothing, from right to left, composed, prohibited, unassigned in Unicode 3.2.
const CHARS: [char; 40] = [
    'a',
    '1',
    ' ',
    '\t',
    '\u{7f}',
    'ä',
    'é',
    'ß',
    '\u{301}',
    '\u{a0}',
    '\u{2003}',
    '\u{ad}',
    '\u{34f}',
    '\u{feff}',
    '\u{1806}',
    '\u{200b}',
    '\u{5d0}',
    '\u{627}',
    '\u{660}',
    '\u{fb1d}',
    '\u{fb49}',
    '\u{fdfa}',
    '\u{2168}',
    '\u{33c8}',
    '\u{33ff}',
    '\u{32ff}',
    '\u{fb01}',
    '\u{340}',
    '\u{206a}',
    '\u{e000}',
    '\u{fffd}',
    '\u{2ff0}',
    '\u{e0041}',
    '\u{1d40}',
    '\u{fa7a}',
    '\u{1f16c}',
    '\u{1f600}',
    '\u{ac00}',
    '\u{1100}',
    '\u{212b}',
];

/// `SLUICE_PASSWORDS=N` has more of them.
fn passwords_are_prepared_alike(case: Case) {
    let database = database(case);
    let role = role(&database, "u", "scram-sha-256", "");
    let mut random = Random::new(7);
    let alone = CHARS.iter().map(char::to_string);
    let count = env::var("SLUICE_PASSWORDS").map_or(80, |count| count.parse().unwrap());
    let any = |random: &mut Random| {
        let planes = *random.of(&[0x3000, 0x1_0000, 0x3_0000]);
        let char = u32::try_from(1 + random.below(planes)).ok().and_then(char::from_u32);
        char.filter(|_| random.percent(50)).unwrap_or(*random.of(&CHARS))
    };
    let mixed = (0..count).map(|_| (0..=random.below(5)).map(|_| any(&mut random)).collect());
    for password in alone.chain(mixed) {
        let quoted = password.replace('\'', "''");
        database.server.execute(&format!("ALTER ROLE {role} PASSWORD '{quoted}'"));
        let verifier = Verifier::parse(&secret(&database, &role)).unwrap();
        assert!(Verifier::derive(&password, &verifier.salt, verifier.iterations) == verifier, "{password:?}");
    }
}

fn the_text_of_a_verifier_is_no_password(case: Case) {
    let database = database(case);
    let role = role(&database, "u", "scram-sha-256", "");
    let good = secret(&database, &role);
    let (cut, many) = (&good[..good.len() - 1], good.replace("$4096:", "$1000001:"));
    for text in [&*good, cut, &many, &good.replace("$4096:", "$0:")] {
        // The look-up gives what would not be stored by PostgreSQL.
        let query = format!("query = \"SELECT '{text}'::text WHERE $1 = '{role}'\"\n");
        for auth in [Auth::LookUp(query.clone()), Auth::LookUpMd5(query)] {
            let pool = config(case).auth(auth).start();
            let error = current_user(&pool, &role, text, &database).unwrap_err();
            // This driver does not compute so many iterations.
            let is_meant = error.starts_with("28P01") || text == many && error.contains("SCRAM iteration count");
            assert!(is_meant, "{text}: {error}");
        }
    }
}

/// What answers a packet, and then each message.
fn talk(mut raw: Raw, first: &[u8], messages: &[&[u8]]) -> Vec<String> {
    let mut answers = Vec::new();
    for bytes in [&[first], messages].concat() {
        raw.send_bytes(bytes);
        let Some(message) = raw.message() else { break };
        answers.push(match message.tag {
            b'E' => format!("{message} {}", message.field(b'M')),
            b'R' => format!("R{}", message.body[3]),
            _ => message.to_string(),
        });
    }
    answers
}

fn packet(user: &str, database: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut packet = Vec::new();
    let parameters = [("user", user), ("database", database)].into_iter().chain(more.iter().copied());
    startup::put_session(&mut packet, ProtocolVersion::V3_0, parameters);
    packet
}

fn password(body: &[u8]) -> Vec<u8> {
    let mut message = vec![b'p'];
    message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    message
}

/// Both ends that are compared: PostgreSQL, and the pool.
fn ends<'a>(database: &'a Database<'_>, pool: &'a TestPool) -> [Box<dyn Fn() -> Raw + 'a>; 2] {
    [Box::new(|| database.server.raw()), Box::new(|| pool.raw())]
}

fn messages_instead_of_a_password(case: Case) {
    let database = database(case);
    let hashed = role(&database, "md5", "md5", "IN ROLE hashed");
    let verified = role(&database, "scram", "scram-sha-256", "");
    let pool = config(case).auth(Auth::LookUpMd5(String::new())).start();
    let messages = [
        password(b""),
        password(b"\0"),
        password(b"md5\0"),
        password(b"md5"),
        password(b"md5\0x"),
        // Nothing but the type.
        b"Q".to_vec(),
        b"\0".to_vec(),
    ];
    for (role, message) in [&hashed, &verified].into_iter().flat_map(|role| messages.iter().map(move |it| (role, it))) {
        // The words for what is no SASL message are the pool's own.
        let is_alike = *role == hashed || message.len() == 1;
        let packet = packet(role, &database.name, &[]);
        let [straight, pooled] = ends(&database, &pool).map(|connect| talk(connect(), &packet, &[message]));
        let shown = message.escape_ascii();
        match is_alike {
            true => assert_eq!(pooled, straight, "{role}: {shown}"),
            false => assert_eq!(pooled[1].get(..12), straight[1].get(..12), "{role}: {shown}: {pooled:?} {straight:?}"),
        }
    }
}

fn first_messages_of_scram(case: Case) {
    let database = database(case);
    let verified = role(&database, "scram", "scram-sha-256", "");
    let pool = config(case).auth(Auth::LookUp(String::new())).start();
    let firsts: [&[u8]; 26] = [
        b"n,,n=,r=abc",
        b"y,,n=,r=abc",
        b"n,,n=,r=",
        b"n,,n=\xff,r=abc",
        b"n,,n=,r=abc,x=1",
        b"n,,n=,r=abc,",
        b"n,,n=,r=abc,,",
        b"n,,n=,r=abc,xy=1",
        b"n,,n=,r=abc,1=1",
        b"n,,n=,r=abc,x",
        b"n,,r=abc",
        b"n,,r=abc,n=",
        b"n,,x=1,n=,r=abc",
        b"n,,n=,x=1,r=abc",
        b"n,,nn,r=abc",
        b"n,,n=\0,r=abc",
        b"n,,n=,r=a bc",
        b"n,,n=,r=\xc3\xa4",
        b"n,,m=1,n=,r=abc",
        b"n,a=x,n=,r=abc",
        b"n,x,n=,r=abc",
        b"nn,,n=,r=abc",
        b"p=tls-server-end-point,,n=,r=abc",
        b"p",
        b"n",
        b"x,,n=,r=abc",
    ];
    for first in firsts {
        let mut body = b"SCRAM-SHA-256\0".to_vec();
        body.extend_from_slice(&(first.len() as u32).to_be_bytes());
        body.extend_from_slice(first);
        let message = password(&body);
        let packet = packet(&verified, &database.name, &[]);
        let answers = ends(&database, &pool).map(|connect| talk(connect(), &packet, &[&message]));
        // The words are the pool's own.
        let [straight, pooled] = answers.map(|answers| answers[1][..answers[1].len().min(13)].to_owned());
        assert_eq!(pooled, straight, "{}", first.escape_ascii());
    }
}

fn startup_packets(case: Case) {
    let database = database(case);
    let pool = config(case).start();
    let long = "ü".repeat(32);
    let sized = |bytes: usize| {
        let shorter = packet("app", &database.name, &[("application_name", "")]);
        packet("app", &database.name, &[("application_name", &"x".repeat(bytes - shorter.len()))])
    };
    let with = |more: &[(&str, &str)]| packet("app", &database.name, more);
    let packets = [
        packet("app", &long, &[]),
        sized(10_003),
        sized(10_004),
        with(&[("replication", "junk"), ("replication", "false")]),
        with(&[("replication", "false"), ("replication", "junk")]),
        with(&[("replication", "junk"), ("replication", "worse")]),
        with(&[("replication", "true"), ("replication", "no")]),
        with(&[("options", "-c geqo=off\x0b-c geqo=on")]),
        with(&[("options", "\\")]),
        with(&[("options", "-c \\")]),
        with(&[("options", "-c geqo=o\\ff")]),
        with(&[("options", "-")]),
    ];
    for packet in packets {
        let [straight, pooled] = ends(&database, &pool).map(|connect| {
            let mut raw = connect();
            raw.send_bytes(&packet);
            let mut answers = Vec::new();
            while let Some(message) = raw.message() {
                match message.tag {
                    b'Z' => return answers,
                    b'E' => answers.push(format!("{message} {}", message.field(b'M'))),
                    b'R' => answers.push("R".to_owned()),
                    _ => {}
                }
            }
            answers
        });
        let shown = packet.escape_ascii().to_string();
        assert_eq!(pooled, straight, "{}", &shown[..shown.len().min(200)]);
    }
}

fn a_changed_password_ends_no_session(case: Case) {
    let database = database(case);
    let user = role(&database, "u", "scram-sha-256", "");
    let pool = config(case).auth(Auth::LookUp("cache = \"1h\"".to_owned())).pool("wait_timeout = \"2s\"").start();
    let mut session = pool.connect(&user, Some("secret"), &database.name).unwrap();
    session.batch_execute(&format!("ALTER ROLE {user} PASSWORD 'changed'")).unwrap();
    for _ in 0..2 {
        assert!(current_user(&pool, &user, "secret", &database).is_err_and(|e| e.starts_with("28P01")));
        session.batch_execute("SELECT 1").unwrap();
    }
    let ends_servers = || {
        let ended = format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '{user}'");
        database.server.execute(&ended);
        eventually("the server connections are gone", || database.connections() == 0);
    };
    // Another server can be opened as soon as somebody has shown the new secret.
    ends_servers();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| session.batch_execute("SELECT 1"));
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(current_user(&pool, &user, "changed", &database), Ok(user.clone()));
        waits.join().unwrap().unwrap();
    });
    database.server.execute(&format!("ALTER ROLE {user} PASSWORD 'changed again'"));
    ends_servers();
    session.batch_execute("SELECT 1").unwrap_err();
    assert!(pool.log().contains("no server connection became free within 2 s (wait_timeout)"));
}

/// As PostgreSQL compares them, in a database of whatever encoding.
fn names_are_looked_up_by_their_bytes(case: Case) {
    let database = database(case);
    let user = role(&database, "bärbel_日本", "scram-sha-256", "");
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let asked = format!("{}_{}", database.name, encoding.to_lowercase());
        let locale = "LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
        database.server.execute(&format!("CREATE DATABASE {asked} ENCODING '{encoding}' {locale}"));
        database.server.superuser(&asked).batch_execute("GRANT SELECT ON pg_authid TO lookup").unwrap();
        let config = config(case).database("postgres", database.server, &format!("dbname = \"{asked}\""));
        let pool = config.auth(Auth::LookUp(String::new())).start();
        check_passwords(&pool, &user, &database);
        assert_eq!(pool.log().matches("WARN").count(), 0, "{}", pool.log());
    }
}

fn a_right_that_the_look_up_lacks_is_named(case: Case) {
    let database = database(case);
    let user = role(&database, "u", "scram-sha-256", "");
    let config = config(case).database("postgres", database.server, &format!("dbname = \"{}\"", database.name));
    let pool = config.auth(Auth::LookUp(String::new())).start();
    assert!(current_user(&pool, &user, "secret", &database).is_err());
    let said =
        format!("(42501); in the database \"{}\", give the role \"lookup\" what the query needs: GRANT", database.name);
    assert!(pool.log().contains(&said), "{}", pool.log());
}
