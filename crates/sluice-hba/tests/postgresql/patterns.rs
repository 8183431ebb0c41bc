//! Regular expressions: random ones, as PostgreSQL's function and as Sluice's rules and maps understand them.

use std::fs;

use sluice_hba::{Connection, Decision, Fault, Mapping, Transport};
use sluice_testkit::{Random, Version};

use crate::place::Place;

const COUNT: usize = 6000;

const PIECES: [&str; 58] = [
    "a",
    "a",
    "b",
    "b",
    "ab",
    ".",
    ".",
    "a*",
    "b+",
    "a?",
    ".*",
    "(a)",
    "(b*)",
    "(.*)",
    "(ab|b)",
    "(",
    ")",
    "|",
    "^",
    "$",
    "^",
    "$",
    "*",
    "+",
    "?",
    "{2}",
    "{1,}",
    "{0,1}",
    "{2,1}",
    "{",
    "}",
    "{256}",
    "[ab]",
    "[^a]",
    "[]a]",
    "[a-]",
    "[a-b-]",
    "[b-a]",
    "[--/]",
    "[[:alpha:]]",
    "[[:x:]]",
    "[\\d_]",
    "[",
    "]",
    "\\d",
    "\\w",
    "\\W",
    "\\y",
    "\\m",
    "\\M",
    "\\Y",
    "\\A",
    "\\Z",
    "\\.",
    "\\q",
    "\\",
    "(?:a|b)",
    "é",
];

const TEXTS: [&str; 8] = ["", "a", "b", "ab", "aab.b", "é", "a1_ b-", "bab]{"];

const FUNCTION: &str = "CREATE FUNCTION tried(text, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    IF $1 !~ $2 COLLATE \"C\" THEN RETURN 'no'; END IF;
    RETURN 'yes';
    EXCEPTION WHEN others THEN RETURN 'error ' || SQLERRM; END $$";

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Compares one expression. Gives false if Sluice does not take it.
fn compare(place: &Place, pattern: &str, answers: &[String]) -> bool {
    let quoted = format!("\"/{}\"", pattern.replace('"', "\"\""));
    fs::write(&place.hba, format!("local all {quoted} trust\n")).unwrap();
    let rules = match place.read() {
        Ok(rules) => rules,
        Err(problems) => {
            let [problem] = problems.as_slice() else { panic!("{problems:?}") };
            let is_meant = problem.fault == Fault::Sluice;
            assert!(is_meant || answers.iter().all(|answer| answer.starts_with("error")), "{problem}: {answers:?}");
            return false;
        }
    };
    for (text, answer) in TEXTS.iter().zip(answers) {
        let connection = Connection { transport: Transport::Local, user: text, database: "x", is_replication: false };
        let ours = matches!(rules.decide(&connection, None, &[]), Decision::Rule(_));
        assert!(!answer.starts_with("error"), "{pattern}: {answer}");
        assert_eq!(ours, answer.starts_with("yes"), "{text:?} by {pattern:?}");
    }
    true
}

#[test]
fn random_patterns() {
    let mut place = Place::start(Version::V18);
    place.server.execute("CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'");
    place.client = place.server.superuser("bytes");
    place.client.batch_execute(FUNCTION).unwrap();
    let mut random = Random::new(1);
    let patterns: Vec<String> =
        (0..COUNT).map(|_| (0..1 + random.below(5)).map(|_| *random.of(&PIECES)).collect()).collect();
    let (mut taken, mut wrong) = (0, 0);
    fs::write(&place.ident, "").unwrap();
    for some in patterns.chunks(500) {
        let values: Vec<_> = some.iter().map(|pattern| format!("({})", literal(pattern))).collect();
        let columns: Vec<_> = TEXTS.iter().map(|text| format!("tried({}, p)", literal(text))).collect();
        let rows = place.rows(&format!("SELECT {} FROM (VALUES {}) v(p)", columns.join(", "), values.join(", ")));
        for (pattern, row) in some.iter().zip(rows) {
            let answers: Vec<_> = row.into_iter().map(Option::unwrap).collect();
            let is_taken = compare(&place, pattern, &answers);
            taken += usize::from(is_taken);
            wrong += usize::from(answers[0].starts_with("error"));
        }
    }
    println!("{COUNT} expressions: {taken} taken, {wrong} wrong");
    assert!(taken > COUNT / 4 && wrong > COUNT / 10);
}

/// Ordinary expressions of maps: the first group is the same.
#[test]
fn groups() {
    let mut place = Place::start(Version::V18);
    fs::write(&place.hba, "local all all reject\n").unwrap();
    for pattern in [
        "^(.*)@x$",
        "^([^@]*)@",
        "^CN=([^,]+),",
        "(.*)",
        "^(a|b)c",
        "^(ab|a)(.*)$",
        "(b+)",
        "^u(.)",
        "([a-z]+)[0-9]*$",
        "^(x)?a",
        "@(.*)$",
        "^(.*)\\.(.*)@x$",
    ] {
        fs::write(&place.ident, format!("m \"/{pattern}\" \\1\n")).unwrap();
        let rules = place.read().unwrap();
        for text in ["bob@x", "a.b.c@x", "CN=bob,O=x,O=y", "abc", "ac", "bbab", "ux12", "x", "a@b@x"] {
            let sql = format!("SELECT (regexp_match({}, {}))[1]", literal(text), literal(pattern));
            let group = place.rows(&sql)[0][0].clone();
            let wanted = if group.is_some() { Mapping::Allowed } else { Mapping::Refused };
            let name = group.unwrap_or_default();
            assert_eq!(rules.maps(Some("m"), text, &name, None), wanted, "{text} by {pattern}: {name}");
        }
    }
}
