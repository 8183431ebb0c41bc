//! The same clients, let in or turned away by PostgreSQL, and decided about by Sluice.

use std::{fs, net::SocketAddr, process::Command};

use sluice_hba::{Connection, Decision, Mapping, Method, Roles, Rules, Transport};
use sluice_testkit::{Random, Raw, Version, eventually};
use sluice_wire::startup::ProtocolVersion;

use crate::place::Place;

/// Files of rules, and of maps.
const ROUNDS: u64 = 40;

const ROLES: &str = "CREATE ROLE g2; CREATE ROLE g1 IN ROLE g2; CREATE ROLE alice LOGIN IN ROLE g1;
    CREATE ROLE bob LOGIN; CREATE ROLE boss LOGIN SUPERUSER; CREATE ROLE \"all\" LOGIN; CREATE ROLE \"+g1\" LOGIN;
    CREATE ROLE oo LOGIN; CREATE ROLE \"\\1\" LOGIN; CREATE ROLE \"o\\1\" LOGIN";

const USERS: [&str; 8] = ["alice", "bob", "boss", "all", "+g1", "g1", "nobody", "oo"];

const DATABASES: [&str; 6] = ["alice", "g1", "g2", "postgres", "all", "replication"];

const DATABASE_WORDS: [&str; 12] = [
    "all",
    "all",
    "\"all\"",
    "sameuser",
    "samerole",
    "samegroup",
    "replication",
    "\"replication\"",
    "alice",
    "g2",
    "/^g",
    "postgres",
];

const USER_WORDS: [&str; 11] =
    ["all", "\"all\"", "alice", "bob", "+g1", "+g2", "\"+g1\"", "/^b", "/o", "+boss", "+missing"];

const PLACES: [&str; 10] = [
    "local",
    "local",
    "host @ all",
    "host @ 127.0.0.1/32",
    "hostnossl @ 127.0.0.0/8",
    "hostssl @ all",
    "host @ samehost",
    "host @ 127.0.0.9 255.0.0.255",
    "host @ 127.5.0.1 255.0.0.255",
    "hostgssenc @ all",
];

impl Place {
    /// Has PostgreSQL read its files again.
    fn reload(&mut self) {
        let time = |place: &mut Self| place.rows("SELECT pg_conf_load_time()")[0][0].clone();
        let before = time(self);
        self.rows("SELECT pg_reload_conf()");
        eventually("a reload", || time(self) != before);
    }

    /// The message of the error that a log-in ends with, or none.
    fn log_in(&self, is_local: bool, user: &str, database: &str, is_replication: bool) -> String {
        let mut raw =
            if is_local { self.server.raw() } else { Raw::tcp(SocketAddr::from(([127, 0, 0, 1], self.server.port()))) };
        let mut parameters = vec![("user", user), ("database", database)];
        if is_replication {
            parameters.push(("replication", "true"));
        }
        let messages = raw.login_with(ProtocolVersion::V3_0, &parameters);
        messages.iter().find(|message| message.tag == b'E').map_or_else(String::new, |error| error.field(b'M'))
    }

    /// PostgreSQL's decision, and the error that it gives.
    fn decides(&self, connection: &Connection<'_>) -> (&'static str, String) {
        let is_local = connection.transport == Transport::Local;
        let error = self.log_in(is_local, connection.user, connection.database, connection.is_replication);
        let outcome = match () {
            () if error.starts_with("pg_hba.conf rejects") => "rejected",
            () if error.starts_with("no pg_hba.conf entry") => "no entry",
            () => "let in",
        };
        (outcome, error)
    }

    fn roles(&mut self, user: &str) -> Roles {
        // pg_has_role takes a superuser for a member of all.
        let sql = format!(
            "WITH RECURSIVE r(oid) AS (SELECT oid FROM pg_roles WHERE rolname = '{user}' UNION \
             SELECT roleid FROM pg_auth_members JOIN r ON member = r.oid) \
             SELECT rolname FROM pg_roles NATURAL JOIN r"
        );
        self.rows(&sql).into_iter().flatten().flatten().collect()
    }
}

fn list(random: &mut Random, words: &[&str]) -> String {
    let count = 1 + random.weighted(&[70, 30]);
    (0..count).map(|_| *random.of(words)).collect::<Vec<_>>().join(",")
}

fn random_rules(random: &mut Random) -> String {
    let mut text = "local all postgres peer map=sluice\n".to_owned();
    for _ in 0..8 {
        let names = format!("{} {}", list(random, &DATABASE_WORDS), list(random, &USER_WORDS));
        let place = *random.of(&PLACES);
        let line = if place == "local" { format!("local {names}") } else { place.replace('@', &names) };
        text.push_str(&format!("{line} {}\n", random.of(&["trust", "reject"])));
    }
    text
}

#[test]
fn random_rules_decide_the_same() {
    let mut place = Place::start(Version::V18);
    place.server.execute(ROLES);
    let roles = USERS.map(|user| place.roles(user));
    let mut counts = [0; 3];
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let text = random_rules(&mut random);
        fs::write(&place.hba, &text).unwrap();
        place.reload();
        let rules = place.read().unwrap();
        for _ in 0..20 {
            let (connection, roles) = random_connection(&mut random, &roles);
            let (ours, _) = decided(&rules, &connection, roles);
            let (theirs, error) = place.decides(&connection);
            assert_eq!(ours, theirs, "seed {seed}: {connection:?}: {error}\n{text}");
            counts[OUTCOMES.iter().position(|outcome| *outcome == ours).unwrap()] += 1;
        }
    }
    println!("log-ins: rejected, no entry, let in: {counts:?}");
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
}

const OUTCOMES: [&str; 3] = ["rejected", "no entry", "let in"];

fn random_connection<'a>(random: &mut Random, roles: &'a [Roles; USERS.len()]) -> (Connection<'static>, &'a Roles) {
    let user = random.below(USERS.len());
    let (user, roles) = (USERS[user], &roles[user]);
    let database = *random.of(&DATABASES);
    let (is_local, is_replication) = (random.percent(40), random.percent(20));
    let tcp = Transport::Tcp { address: [127, 0, 0, 1].into(), is_encrypted: false };
    let transport = if is_local { Transport::Local } else { tcp };
    (Connection { transport, user, database, is_replication }, roles)
}

/// Sluice's decision, and the line of its rule.
fn decided(rules: &Rules, connection: &Connection<'_>, roles: &Roles) -> (&'static str, usize) {
    let loopback = sluice_hba::Interface { address: [127, 0, 0, 1].into(), netmask: [255, 0, 0, 0].into() };
    match rules.decide(connection, Some(roles), &[loopback]) {
        Decision::Rule(rule) if rule.method() == Method::Reject => ("rejected", rule.place().line),
        Decision::Rule(rule) => ("let in", rule.place().line),
        Decision::None => ("no entry", 0),
        Decision::NeedsRoles => ("needs roles", 0),
    }
}

/// The rules as the server tells them, without the files.
fn told_rules_decide_the_same(version: Version) {
    let mut place = Place::start(version);
    place.server.execute(ROLES);
    for database in ["all", "replication"] {
        place.server.execute(&format!("CREATE DATABASE \"{database}\""));
    }
    let mut roles = USERS.map(|user| place.roles(user));
    let (mut counts, mut doubtful) = ([0; 3], 0);
    for seed in 1000..1000 + ROUNDS {
        let mut random = Random::new(seed);
        let mut text = random_rules(&mut random);
        let has_odd_names = seed < 1005;
        if seed == 1005 {
            for odd in ["DATABASE \"all\"", "DATABASE replication", "ROLE \"all\"", "ROLE \"+g1\""] {
                place.server.execute(&format!("DROP {odd}"));
            }
            roles = USERS.map(|user| place.roles(user));
        }
        if !has_odd_names {
            // Where there is nothing of such a name, quotes are left out.
            text = text.replace('"', "");
        }
        fs::write(&place.hba, &text).unwrap();
        place.reload();
        let (rules, refused) = Rules::of_server(&place.tells()).unwrap();
        for _ in 0..20 {
            let (connection, roles) = random_connection(&mut random, &roles);
            let (ours, line) = decided(&rules, &connection, roles);
            let (theirs, error) = place.decides(&connection);
            if refused.iter().any(|problem| problem.line == line) {
                assert_eq!(ours, "rejected", "seed {seed}: {connection:?}: line {line}\n{text}");
                doubtful += 1;
                continue;
            }
            assert_eq!(ours, theirs, "seed {seed}: {connection:?}: {error}\n{text}");
            counts[OUTCOMES.iter().position(|outcome| *outcome == ours).unwrap()] += 1;
        }
    }
    println!("log-ins: rejected, no entry, let in: {counts:?}; in doubt: {doubtful}");
    assert!(counts.iter().all(|count| *count > 20) && doubtful > 20, "{counts:?} {doubtful}");
}

#[test]
fn rules_that_postgresql_15_tells_decide_the_same() {
    told_rules_decide_the_same(Version::V15);
}

#[test]
fn rules_that_postgresql_18_tells_decide_the_same() {
    told_rules_decide_the_same(Version::V18);
}

const SYSTEM_WORDS: [&str; 9] = ["@", "@", "\"@\"", "all", "/^(.*)$", "\"/^.(.)\"", "/.(oo?)", "/^@$", "/nothing"];

const MAPPED_WORDS: [&str; 13] = [
    "alice",
    "all",
    "\"all\"",
    "+g1",
    "+g2",
    "\"+g1\"",
    "/^b",
    "\\1",
    "\"\\1\"",
    "\\1\\1",
    "o\\1",
    "\"/(o)\\\\1\"",
    "\"+\\1\"",
];

#[test]
fn random_maps_decide_the_same() {
    let output = Command::new("id").arg("-un").output().unwrap();
    let system_user = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let mut place = Place::start(Version::V18);
    place.server.execute(ROLES);
    let users = ["alice", "bob", "boss", "all", "+g1", "oo", "\\1", "o\\1"];
    let roles = users.map(|user| place.roles(user));
    let kept = fs::read_to_string(&place.ident).unwrap();
    fs::write(&place.hba, "local all postgres peer map=sluice\nlocal all all peer map=m\n").unwrap();
    let (mut allowed, mut all) = (0, 0);
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let mut text = kept.clone();
        for _ in 0..3 {
            let system = random.of(&SYSTEM_WORDS).replace('@', &system_user);
            text.push_str(&format!("m {system} {}\n", random.of(&MAPPED_WORDS)));
        }
        fs::write(&place.ident, &text).unwrap();
        place.reload();
        let Ok(rules) = place.read() else { continue };
        let (told, refused) = Rules::of_server(&place.tells()).unwrap();
        for (user, roles) in users.iter().zip(&roles) {
            let error = place.log_in(true, user, "postgres", false);
            let theirs = if error.contains("authentication failed") { Mapping::Refused } else { Mapping::Allowed };
            let ours = rules.maps(Some("m"), &system_user, user, Some(roles));
            assert_eq!(ours, theirs, "seed {seed}: {user}: {error}\n{text}");
            let as_told = told.maps(Some("m"), &system_user, user, Some(roles));
            let is_in_doubt = refused.iter().any(|problem| problem.file == place.ident);
            let is_refused = is_in_doubt && as_told == Mapping::Refused;
            // In quotes it is the name of a role that there is not, of which PostgreSQL tells without them.
            let is_of_nobody = text.contains("\"+\\1\"");
            assert!(as_told == theirs || is_refused || is_of_nobody, "seed {seed}: {user}: {as_told:?}\n{text}");
            all += 1;
            allowed += usize::from(ours == Mapping::Allowed);
        }
    }
    println!("{allowed} of {all} allowed");
    assert!(allowed > 20 && all - allowed > 20);
}
