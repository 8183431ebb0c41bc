//! Files of random lines, of which most are right.

use sluice_testkit::Random;

/// The files that a test compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Rules as of PostgreSQL 18, but for `cert`: that build has no TLS.
    Rules,
    /// Rules as of PostgreSQL 15, which has neither `include` nor expressions.
    OldRules,
    /// Maps as of PostgreSQL 18.
    Maps,
}

const OLD_NAMES: [&str; 21] = [
    "all",
    "all",
    "all",
    "\"all\"",
    "sameuser",
    "\"sameuser\"",
    "samerole",
    "samegroup",
    "replication",
    "app",
    "App",
    "\"a b\"",
    "a\"b c\"d",
    "\"a\"\"b\"",
    "\"\"",
    "+staff",
    "\"+staff\"",
    "+",
    "é",
    "@names",
    "\"@names\"",
];

const NEW_NAMES: [&str; 7] = ["all", "app", "/^a.*$", "\"/^(a|b),c$\"", "/[[:alpha:]]+_db", "/a{2,3}", "@\"names\""];

const BAD_NAMES: [&str; 8] = ["\"/(\"", "/[z-a]", "/a**", "/(a)\\1", "/(?=a)", "@missing", "@", "x=y"];

const TYPES: [&str; 12] = [
    "local",
    "local",
    "host",
    "host",
    "host",
    "hostssl",
    "hostssl",
    "hostnossl",
    "hostgssenc",
    "hostnogssenc",
    "\"host\"",
    "Host",
];

const ADDRESSES: [&str; 42] = [
    "all",
    "samehost",
    "samenet",
    "\"all\"",
    "127.0.0.1/32",
    "10.0.0.0/8",
    "10.1.2.3/8",
    "0.0.0.0/0",
    "::1/128",
    "fe80::/10",
    "::/0",
    "::ffff:1.2.3.4/96",
    "10.0.0.0/33",
    "::1/129",
    "10.0.0.0/",
    "10.0.0.0/-0",
    "10.0.0.0/+8",
    "10.0.0.0/8x",
    "\"10.0.0.0/ 8\"",
    "10.0.0.0/-1",
    "127.1/32",
    "0x7f.1/32",
    "010.0.0.1/32",
    "10.0.0.1 255.255.255.255",
    "10.0.0.0 255.0.255.0",
    "10.0.0.0 ffff::",
    "::1 ffff:ffff::",
    "::1 255.0.0.0",
    "10.0.0.0 255.0.0",
    "10.0.0.0 8",
    "10.0.0.0",
    "::1%1/128",
    "fe80::1%1/64",
    "1.2.3.256/32",
    "localhost",
    ".example.org",
    "example.org/24",
    "\"\"",
    "10.0.0.0/8,11.0.0.0/8",
    "::1/0064",
    "10.0.0.0 mask",
    "10.0.0.0/99999999999999999999",
];

const METHODS: [&str; 26] = [
    "trust",
    "trust",
    "trust",
    "reject",
    "reject",
    "md5",
    "md5",
    "scram-sha-256",
    "scram-sha-256",
    "scram-sha-256",
    "peer",
    "peer",
    "peer",
    "ident",
    "password",
    "gss",
    "sspi",
    "pam",
    "bsd",
    "ldap",
    "radius",
    "\"trust\"",
    "Trust",
    "trust,reject",
    "none",
    "crypt",
];

const OPTIONS: [&str; 22] = [
    "map=m",
    "map=m",
    "map=\"m n\"",
    "\"map=m n\"",
    "map=",
    "clientcert=verify-ca",
    "clientcert=verify-full",
    "clientcert=verify-full,map=m",
    "clientcert=1",
    "clientcert=no-verify",
    "clientname=CN",
    "clientname=DN",
    "clientname=cn",
    "map",
    "x=y",
    "=y",
    "ldapserver=a",
    "krb_realm=X",
    "include_realm=0",
    "pamservice=p",
    "compat_realm=1",
    "radiusservers=\"a,b\"",
];

const MAP_WORDS: [&str; 16] = [
    "m",
    "root",
    "\"a b\"",
    "all",
    "+staff",
    "/^(.*)@x$",
    "\\1",
    "\"\\1\"",
    "/(",
    "a,b",
    "@names",
    "@missing",
    "é",
    "/a**",
    "\"\"",
    "/(?=a)",
];

const INCLUDES: [&str; 12] = [
    "include inc0.conf",
    "include inc1.conf",
    "include_if_exists inc2.conf",
    "include_if_exists missing.conf",
    "include missing.conf",
    "include_dir more",
    "include_dir missing",
    "include_dir \" \"",
    "\"include\" inc1.conf",
    "include inc1.conf x",
    "include,x \"inc1.conf\"",
    "include",
];

const NOISE: [&str; 9] = ["\"", ",", "#", " ", "\\", "@", "=", "/", "\t"];

/// Lines with those that continue them.
pub(crate) type Entries = Vec<String>;

/// A file. Those of a lower level include the ones above.
pub(crate) fn entries(random: &mut Random, kind: Kind, count: usize, level: usize) -> Entries {
    let mut entries = Vec::new();
    for _ in 0..count {
        let mut text = match random.below(100) {
            0..6 if level == 0 && kind != Kind::OldRules => word(random, &INCLUDES).to_owned(),
            // A level includes only higher ones, so that no file includes itself.
            0..4 if level == 1 => "include inc1.conf".to_owned(),
            6..9 => word(random, &["", "# comment", "  ", "\\"]).to_owned(),
            _ if kind == Kind::Maps => map(random),
            _ => rule(random, kind),
        };
        if random.percent(8) {
            text = noisy(random, &text);
        }
        text.push_str(word(random, &["", "", "", "", "\r", " # behind", "#behind \"", " \\\n", ","]));
        entries.push(text);
    }
    entries
}

/// A file of names for `@`.
pub(crate) fn names(random: &mut Random, kind: Kind) -> String {
    let names = if kind == Kind::OldRules { &OLD_NAMES[..19] } else { &NEW_NAMES[..6] };
    (0..random.below(4)).map(|_| list(random, names) + "\n").collect()
}

fn rule(random: &mut Random, kind: Kind) -> String {
    let mut fields = vec![word(random, &TYPES).to_owned(), list_of(random, kind), list_of(random, kind)];
    let is_local = fields[0] == "local";
    if is_local == random.percent(3) {
        let address = if random.percent(60) { &ADDRESSES[..12] } else { &ADDRESSES[..] };
        fields.push(word(random, address).to_owned());
    }
    let method = match random.below(100) {
        0..20 if kind == Kind::OldRules => "cert",
        0..3 if kind == Kind::Rules => "oauth",
        _ => word(random, &METHODS),
    };
    fields.push(method.to_owned());
    for _ in 0..random.weighted(&[60, 30, 10]) {
        fields.push(word(random, &OPTIONS).to_owned());
    }
    if random.percent(4) {
        fields.truncate(random.below(fields.len()));
    }
    joined(random, &fields)
}

fn list_of(random: &mut Random, kind: Kind) -> String {
    match random.below(100) {
        0..5 if kind == Kind::Rules => list(random, &BAD_NAMES),
        0..50 if kind == Kind::Rules => list(random, &NEW_NAMES),
        _ => list(random, &OLD_NAMES),
    }
}

fn map(random: &mut Random) -> String {
    let count = random.weighted(&[0, 5, 5, 80, 10]);
    let fields: Vec<_> = (0..count).map(|_| word(random, &MAP_WORDS).to_owned()).collect();
    joined(random, &fields)
}

fn word<'a>(random: &mut Random, words: &[&'a str]) -> &'a str {
    words[random.below(words.len())]
}

fn joined(random: &mut Random, fields: &[String]) -> String {
    let mut line = String::new();
    for field in fields {
        line.push_str(field);
        line.push_str(word(random, &[" ", " ", " ", "  ", "\t", " \t ", " \\\n", "\\\n ", "\r "]));
    }
    line
}

fn list(random: &mut Random, words: &[&str]) -> String {
    let mut list = word(random, words).to_owned();
    while random.percent(30) {
        list.push_str(word(random, &[",", ",", ", ", ",,", " ,"]));
        list.push_str(word(random, words));
    }
    list
}

/// The text with a character too many, or one that is missing.
fn noisy(random: &mut Random, text: &str) -> String {
    let mut places: Vec<_> = text.char_indices().map(|(at, _)| at).collect();
    places.push(text.len());
    let at = *random.of(&places);
    let (before, after) = text.split_at(at);
    if random.percent(70) {
        return format!("{before}{}{after}", random.of(&NOISE));
    }
    let mut rest = after.chars();
    rest.next();
    format!("{before}{}", rest.as_str())
}
