//! Decisions and maps, each by files of its own in memory.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::{collections::BTreeMap, ffi::OsString, io, net::IpAddr, path::Path};

use sluice_hba::{Connection, Decision, Files, Interface, Mapping, Problem, Roles, Rules, Transport};

/// Files in memory.
struct Memory(BTreeMap<&'static str, &'static str>);

impl Files for Memory {
    fn read(&self, path: &Path) -> io::Result<String> {
        let text = self.0.get(path.to_str().unwrap()).ok_or(io::ErrorKind::NotFound)?;
        Ok((*text).to_owned())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<OsString>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

fn read(hba: &'static str, ident: &'static str) -> Result<Rules, Vec<Problem>> {
    let files = Memory([("/hba", hba), ("/ident", ident)].into());
    Rules::read(Path::new("/hba"), Some(Path::new("/ident")), &files)
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The way of a client: `local`, or an address with a plus for TLS.
fn transport(text: &str) -> Transport {
    match text {
        "local" => Transport::Local,
        _ => Transport::Tcp { address: address(text.trim_end_matches('+')), is_encrypted: text.ends_with('+') },
    }
}

/// The line of the rule that counts for `TRANSPORT USER DATABASE [replication]`; 0 for none, -1 without roles.
fn decide(rules: &Rules, client: &str, roles: Option<&Roles>) -> i64 {
    let words: Vec<_> = client.split(' ').collect();
    let connection = Connection {
        transport: transport(words[0]),
        user: words[1],
        database: words[2],
        is_replication: words.len() > 3,
    };
    let interfaces = [("192.168.1.5", "255.255.255.0"), ("10.9.9.9", "0.0.0.0")]
        .map(|(at, mask)| Interface { address: address(at), netmask: address(mask) });
    match rules.decide(&connection, roles, &interfaces) {
        Decision::Rule(rule) => rule.place().line.try_into().unwrap(),
        Decision::None => 0,
        Decision::NeedsRoles => -1,
    }
}

const HBA: &str = r#"local sameuser all trust
local replication rep trust
local "replication" rep md5
local samerole all md5
local "all","sameuser" bob reject
local /^db[0-9]+$ /^c trust
local é "/^..$" trust
hostssl all all 10.0.0.0/8 scram-sha-256
hostnossl all bob 10.0.0.0/8 reject
hostgssenc all all all trust
hostnogssenc gss all all trust
host all bob samehost md5
host all bob samenet trust
host odd all 1.0.2.0 255.0.255.0 trust
host all +staff ::/0 md5
"#;

#[test]
fn the_first_rule_that_is_for_a_connection() {
    let rules = read(HBA, "").unwrap();
    assert!(rules.needs_roles() && rules.needs_interfaces());
    for (client, without_roles, with_roles) in [
        ("local bob bob", 1, 1),
        ("local rep x replication", 2, 2),
        ("local rep replication", 3, 3),
        ("local bob staff", -1, 4),
        ("local bob all", -1, 5),
        ("local bob sameuser", -1, 5),
        ("local carl db12", -1, 6),
        ("local carl db", -1, 0),
        // Two bytes, as PostgreSQL sees them.
        ("local é é", 1, 1),
        ("local xy é", -1, 7),
        ("local xyz é", -1, 0),
        ("10.1.2.3+ bob x", 8, 8),
        ("10.1.2.3 bob x", 9, 9),
        ("::ffff:10.1.2.3 bob x", 9, 9),
        ("10.1.2.3 carl gss", 11, 11),
        ("192.168.1.5 bob x", 12, 12),
        ("192.168.1.77 bob x", 13, 13),
        ("192.168.2.77 bob x", 0, 0),
        ("1.77.2.99 bob odd", 14, 14),
        ("1.77.3.99 bob odd", 0, 0),
        ("::1 bob x", -1, 15),
        ("::1 bob x replication", 0, 0),
    ] {
        let roles: Roles = ["bob", "staff"].into_iter().collect();
        assert_eq!(decide(&rules, client, None), without_roles, "{client}, without roles");
        assert_eq!(decide(&rules, client, Some(&roles)), with_roles, "{client}");
    }
}

const IDENT: &str = r#"m root alice
m /^(.*)@x\.com$ \1
m /^(.*)@y\.com$ "u_\1"
m /^none$ \1
m none everybody
group /^g +staff
any sys all
any quoted "all"
role sys /^a.*z$
lit /^(.*)$ x\1
"#;

#[test]
fn maps_say_who_may_be_whom() {
    let rules = read("local all all peer map=m", IDENT).unwrap();
    let staff: Roles = ["bob", "staff"].into_iter().collect();
    for (map, system_user, user, mapping) in [
        ("", "bob", "bob", Mapping::Allowed),
        ("", "bob", "Bob", Mapping::Refused),
        ("m", "root", "alice", Mapping::Allowed),
        ("m", "root", "root", Mapping::Refused),
        ("m", "bob@x.com", "bob", Mapping::Allowed),
        ("m", "bob@xxcom", "bob", Mapping::Refused),
        ("m", "bob@y.com", "u_bob", Mapping::Allowed),
        // A line that asks for a group which its expression lacks ends the search.
        ("m", "none", "everybody", Mapping::Refused),
        ("group", "gx", "bob", Mapping::Allowed),
        ("any", "sys", "whoever", Mapping::Allowed),
        ("any", "quoted", "whoever", Mapping::Refused),
        ("any", "quoted", "all", Mapping::Allowed),
        ("role", "sys", "abcz", Mapping::Allowed),
        ("missing", "bob", "bob", Mapping::Refused),
    ] {
        assert_eq!(rules.maps(Some(map), system_user, user, Some(&staff)), mapping, "{map}: {system_user} as {user}");
    }
    assert_eq!(rules.maps(Some("group"), "gx", "bob", None), Mapping::NeedsRoles);
    assert_eq!(rules.maps(Some("group"), "x", "bob", None), Mapping::Refused);
    assert!(rules.has_map("m") && !rules.has_map("missing"));
}

#[test]
fn all_problems_are_told_with_a_remedy() {
    let problems = read("nonsense\nlocal all all ldap\nhost all all db.example.org md5\n", "m a,b c\n").unwrap_err();
    let shown: Vec<_> = problems.iter().map(Problem::to_string).collect();
    assert_eq!(
        shown,
        [
            "/hba:1: invalid connection type \"nonsense\"; \
             begin the line with local, host, hostssl, hostnossl, hostgssenc or hostnogssenc",
            "/hba:2: Sluice has no ldap authentication; use peer, scram-sha-256 or reject",
            "/hba:3: Sluice asks no DNS at a log-in, so it can't tell who \"db.example.org\" is; \
             write all, samehost, samenet, or an address with its mask, such as 10.0.0.0/8",
            "/ident:1: multiple values in ident field; \
             write a map, a system's user and a user of the database, one of each",
        ]
    );
}
