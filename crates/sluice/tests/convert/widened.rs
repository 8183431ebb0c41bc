//! Nobody gets in by the converted file whom PgBouncer refuses, unless that is said first.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::Stdio,
};

use sluice_testkit::{TestServer, Version, eventually, port::free_port};
use tempfile::TempDir;

use super::{Running, bouncer, sluice, write_for_postgres};

/// Both pools in front of a database, by the same settings but for their ports.
pub(super) struct Pair {
    place: TempDir,
    /// A role whom the server trusts.
    pub(super) role: String,
    /// PgBouncer's, and Sluice's.
    pub(super) ports: [u16; 2],
    /// Notes on what clients may notice.
    pub(super) notes: Vec<String>,
    /// Those of them about clients that PgBouncer refused.
    pub(super) said: Vec<String>,
    /// Neither, where the conversion was refused.
    running: Option<[Running; 2]>,
}

impl Pair {
    /// Starts both with the settings of `[pgbouncer]` and files beside, `@` for their folder. All clients of the
    /// database `forced` are one role.
    pub(super) fn start(settings: &str, files: &[(&str, &str)]) -> Self {
        Self::of([""; 2], settings, files)
    }

    /// The same with these settings of the databases `forced` and `own`, where `ASKS` is another role that the server
    /// trusts.
    pub(super) fn of([forced, own]: [&str; 2], settings: &str, files: &[(&str, &str)]) -> Self {
        let text = format!(
            "[databases]\nforced = HOST dbname=ROLE user=ROLE {forced}\nown = HOST dbname=ROLE {own}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = PORT\nunix_socket_dir = @\n{settings}\n"
        );
        Self::by(&text, files)
    }

    /// Starts both by such a text, where `HOST` is the server's place, `ROLE` a role and a database, `ASKS` another role,
    /// `PORT` the port to listen on, and `@` the folder.
    pub(super) fn by(text: &str, files: &[(&str, &str)]) -> Self {
        let server = TestServer::shared(Version::V15);
        let database = server.database();
        let role = &database.name;
        let asks = format!("{role}_asks");
        for role in [role, &asks] {
            server.execute(&format!("CREATE ROLE {role} LOGIN IN ROLE trusted"));
        }
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let owner = server.socket_dir().join(format!(".s.PGSQL.{}", server.port()));
        let folder = place.path().display().to_string();
        let host = format!("host={} port={}", server.socket_dir().display(), server.port());
        let ports = [free_port(), free_port()];
        let filled = |text: &str, port: u16| {
            let words = [("@", &folder), ("ASKS", &asks), ("ROLE", role), ("HOST", &host), ("PORT", &port.to_string())];
            words.into_iter().fold(text.to_owned(), |text, (word, stands_for)| text.replace(word, stands_for))
        };
        let [theirs, ini] = ["theirs.ini", "pgbouncer.ini"].map(|name| place.path().join(name));
        for (path, port) in [(&theirs, ports[0]), (&ini, ports[1])] {
            let mut text = filled(text, port);
            for (name, file) in files {
                if !name.ends_with(".ini") {
                    write_for_postgres(&place.path().join(name), file, &owner);
                    continue;
                }
                // What is included may have a port of its own, too.
                let named = format!("{port}.{name}");
                text = text.replace(&format!("/{name}"), &format!("/{named}"));
                write_for_postgres(&place.path().join(named), &filled(file, port), &owner);
            }
            write_for_postgres(path, &text, &owner);
        }
        let toml = place.path().join("sluice.toml");
        let converted =
            sluice(&["convert", ini.to_str().unwrap(), "--output", toml.to_str().unwrap()]).output().unwrap();
        let text = String::from_utf8_lossy(&converted.stderr).into_owned();
        let lines = |part| text.lines().filter(move |line| line.contains(part)).map(str::to_owned).collect();
        let (notes, said) = (lines("not as before: "), lines("ADMITS CLIENTS"));
        let running = converted.status.success().then(|| {
            let checked = sluice(&["check", "-c", toml.to_str().unwrap()]).output().unwrap();
            assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
            let serving = sluice(&["serve", "-c", toml.to_str().unwrap()]).stderr(Stdio::null()).spawn().unwrap();
            let both = [bouncer(&theirs, &owner), Running(serving)];
            for port in ports {
                let socket = place.path().join(format!(".s.PGSQL.{port}"));
                eventually("a pool that listens", || UnixStream::connect(&socket).is_ok());
            }
            both
        });
        Self { place, role: role.clone(), ports, notes, said, running }
    }

    /// Whether a client gets in at PgBouncer, and at Sluice.
    fn lets_in(&self, user: &str, password: &str, database: &str, by_socket: bool) -> [bool; 2] {
        self.ports.map(|port| {
            let mut config = postgres::Config::new();
            match by_socket {
                true => config.host_path(self.place.path()),
                false => config.host("127.0.0.1"),
            };
            config.port(port).user(user).password(password).dbname(database);
            config.connect(postgres::NoTls).is_ok()
        })
    }

    /// A file that a rule includes.
    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }
}

/// Rules of one user each, and whether PgBouncer reads them as Sluice does.
const RULES: &[(&str, bool)] = &[
    ("host all USER 127.0.0.1/32 trust", true),
    ("host all \"USER\" 127.0.0.0 255.0.0.0 trust # why", true),
    ("host \"forced\" other, USER 0.0.0.0/0 trust", true),
    ("host all @good 127.0.0.1/32 trust", true),
    ("host all USER samehost trust", false),
    ("host all USER samenet trust", false),
    ("host all USER 127.1.1.1/8 trust", false),
    ("host all USER 127.0.0.1 255.0.0.0 trust", false),
    ("host all USER 0/0 trust", false),
    ("host all USER 127.0.0.1/32 \"trust\"", false),
    ("\"host\" all USER 127.0.0.1/32 trust", false),
    ("hostnogssenc all USER 127.0.0.1/32 trust", false),
    ("host all /^USER$ 127.0.0.1/32 trust", false),
    ("host /^forced$ USER 127.0.0.1/32 trust", false),
    ("host all USER\"\" 127.0.0.1/32 trust", false),
    ("host all ,USER 127.0.0.1/32 trust", false),
    ("host all other,USER \\\n 127.0.0.1/32 trust", false),
    ("# why \\\nhost all USER 127.0.0.1/32 reject\nhost all USER 127.0.0.1/32 trust", false),
    ("host all @two 127.0.0.1/32 trust", false),
    ("host all @comment 127.0.0.1/32 trust", false),
    ("include included.conf", false),
];

#[test]
fn by_lines_of_rules_that_pgbouncer_skips() {
    let (mut text, mut users, mut lines) = (String::new(), String::new(), Vec::new());
    let mut files = vec![];
    for (at, (rule, _)) in RULES.iter().enumerate() {
        let user = format!("u{at}x");
        lines.push(text.lines().count() + 1);
        text.push_str(&format!("{}\n", rule.replace("USER", &user)));
        users.push_str(&format!("\"{user}\" \"secret\"\n"));
        for (sign, name, list) in [
            ("@good", "good", format!("nobody\n{user},other # both\n")),
            ("@two", "two", format!("nobody {user}\n")),
            ("@comment", "comment", format!("# users\n{user}\n")),
            ("include ", "included.conf", format!("host all {user} 127.0.0.1/32 trust\n")),
        ] {
            if rule.contains(sign) {
                files.push((name, list));
            }
        }
    }
    text.push_str("host all all 0.0.0.0/0 reject\n");
    files.extend([("hba.conf", text), ("users.txt", users)]);
    let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let pair = Pair::start("auth_type = hba\nauth_hba_file = @/hba.conf\nauth_file = @/users.txt", &files);
    for (at, ((rule, is_alike), line)) in RULES.iter().zip(lines).enumerate() {
        let both = pair.lets_in(&format!("u{at}x"), "", "forced", false);
        assert_eq!(both, [*is_alike, true], "{rule}");
        let is_said = pair.said.iter().any(|note| numbers(note, &pair.path("hba.conf")).contains(&line));
        assert_eq!(is_said, !is_alike, "{line}, {rule}: {:#?}", pair.said);
    }
}

/// The lines of that file that a note names.
fn numbers(note: &str, file: &Path) -> Vec<usize> {
    let place = note.split_once(&format!(" of {}: ", file.display())).map(|(before, _)| before);
    let list = place.and_then(|before| before.rsplit_once("line")).map_or("", |(_, list)| list);
    list.trim_start_matches('s').split(',').filter_map(|number| number.trim().parse().ok()).collect()
}

const USERS: &str = "\"ann\" \"secret\"\n\"bob\" \"secret\"\n";

#[test]
fn by_settings_that_later_ones_replace() {
    let files = [("users.txt", USERS), ("hba.conf", "host all all 127.0.0.1/32 trust\n")];
    for (settings, user, password, name, expected) in [
        ("auth_type = any\nauth_type = trust", "ghost", "", "forced", [false; 2]),
        ("auth_type = any\nauth_type = trust", "ann", "", "forced", [true; 2]),
        ("auth_type = hba\nauth_hba_file = @/hba.conf\nauth_type = md5", "ann", "wrong", "forced", [false; 2]),
        ("auth_type = md5\nadmin_users = ann\nadmin_users =", "ann", "secret", "pgbouncer", [false; 2]),
        ("auth_type = md5\nstats_users = bob\nstats_users = ann", "bob", "secret", "pgbouncer", [false; 2]),
        ("auth_type = md5\nauth_user = ann\nauth_user =", "ann", "secret", "forced", [true; 2]),
        ("auth_type = plain", "ann", "secret", "forced", [true; 2]),
    ] {
        let pair = Pair::start(&format!("auth_file = @/users.txt\n{settings}"), &files);
        assert_eq!(pair.lets_in(user, password, name, false), expected, "{settings}");
        assert_eq!(pair.said, [""; 0], "{settings}");
    }
}

#[test]
fn by_methods_and_users_that_are_others_here() {
    let broken = "\"bob\" \"secret\"\n# gone\n\"ann\" \"secret\"\n";
    for (settings, users, user, password, name, said) in [
        ("auth_type = any", USERS, "app", "", "own", "auth_type: "),
        ("auth_type = md5", broken, "ann", "secret", "forced", "line 2 of "),
    ] {
        let pair = Pair::start(&format!("auth_file = @/users.txt\n{settings}"), &[("users.txt", users)]);
        assert_eq!(pair.lets_in(user, password, name, false), [false, true], "{settings}");
        assert!(pair.said.len() == 1 && pair.said[0].contains(said), "{settings}: {:?}", pair.said);
    }
}

#[test]
fn by_a_socket_that_was_closed() {
    let pair = Pair::start(
        "auth_type = trust\nauth_file = @/users.txt\nunix_socket_mode = 0700\nlisten_addr =",
        &[("users.txt", USERS)],
    );
    // Nobody is kept from it as root.
    assert_eq!(pair.lets_in("ann", "", "forced", true), [true; 2]);
    assert_eq!(pair.lets_in("ann", "", "forced", false), [false, true]);
    let [address, socket] = &pair.said[..] else { panic!("{:?}", pair.said) };
    assert!(address.contains(" listen_addr: ") && socket.contains(" unix_socket_mode: "), "{:?}", pair.said);
}

#[test]
fn hashes_in_capitals_are_passwords_to_pgbouncer_and_let_nobody_in_here() {
    let hash = "md59D792A3A8853C2411AFB9163D088C036";
    let users = format!("\"ann\" \"{hash}\"\n");
    let pair = Pair::start("auth_file = @/users.txt\nauth_type = md5", &[("users.txt", &users)]);
    assert_eq!(pair.lets_in("ann", "secret", "forced", false), [false; 2]);
    assert_eq!(pair.lets_in("ann", hash, "forced", false), [true, false]);
    assert_eq!(pair.said, [""; 0]);
}

#[test]
fn by_look_ups_of_single_databases() {
    let query = "auth_query = SELECT rolname, 'md5' || md5('secret' || rolname) FROM pg_roles WHERE rolname = $1";
    let settings = format!("auth_type = md5\nauth_file = @/users.txt\n{query}");
    let pair = Pair::of(["", "auth_user=ASKS"], &settings, &[("users.txt", USERS)]);
    let lets_in = |password, name| pair.lets_in(&pair.role, password, name, false);
    assert_eq!(lets_in("secret", "own"), [true; 2], "{:?}", pair.notes);
    assert_eq!(lets_in("wrong", "own"), [false; 2]);
    assert_eq!(lets_in("secret", "forced"), [false, true]);
    assert!(
        pair.said.len() == 1 && pair.said[0].contains("for \"forced\" PgBouncer looks nobody up"),
        "{:?}",
        pair.said
    );
    // Of two that differ, none is taken.
    let pair = Pair::of(["auth_user=postgres", "auth_user=ASKS"], &settings, &[("users.txt", USERS)]);
    assert_eq!(pair.lets_in(&pair.role, "secret", "own", false), [true, false]);
    assert_eq!(pair.lets_in("ann", "secret", "forced", false), [true; 2]);
    assert_eq!(pair.said, [""; 0]);
    let is_said = pair.notes.iter().any(|note| note.contains("TURNED AWAY") && note.contains("FROM pg_roles"));
    assert!(is_said, "{:?}", pair.notes);
}

#[test]
fn by_rules_that_are_not_there() {
    for settings in ["auth_type = hba", "auth_type = hba\nauth_hba_file = @/hba.conf\nauth_hba_file ="] {
        let files = [("users.txt", USERS), ("hba.conf", "host all all 127.0.0.1/32 trust\n")];
        let pair = Pair::start(&format!("auth_file = @/users.txt\n{settings}"), &files);
        assert!(pair.running.is_none(), "{settings}");
    }
}

#[test]
fn by_sections_that_come_twice() {
    let files = [
        ("users.txt", USERS),
        ("more.ini", "[pgbouncer]\nauth_type = any\n"),
        ("then.ini", "[pgbouncer]\nauth_type = trust\n"),
    ];
    let place = "listen_addr = 127.0.0.1\nlisten_port = PORT\nunix_socket_dir = @\n";
    let (any, file) = ("auth_type = any\nadmin_users = bob\n", "auth_file = @/users.txt\n");
    for (settings, user, password, expected) in [
        // All but the file of users is forgotten.
        (format!("{any}{file}[pgbouncer]\n{place}"), "ann", "wrong", [false; 2]),
        (format!("{any}{file}[pgbouncer]\n{place}"), "ann", "secret", [true; 2]),
        (format!("{any}{file}[users]\n[pgbouncer]\n{place}auth_type = trust"), "x", "", [false; 2]),
        (format!("%include @/more.ini\n[databases]\n[pgbouncer]\n{place}{file}"), "ann", "", [false; 2]),
        // What is included is in force afterwards.
        (format!("{file}auth_type = md5\n%include @/then.ini\n{place}"), "ann", "wrong", [true; 2]),
    ] {
        let pair = Pair::start(&settings, &files);
        assert_eq!(pair.lets_in(user, password, "forced", false), expected, "{settings}");
        assert_eq!(pair.said, [""; 0], "{settings}");
    }
}

#[test]
fn by_lines_of_users() {
    let query = "auth_user = ASKS\nauth_query = SELECT rolname, 'md5' || md5('secret' || rolname) FROM pg_roles \
                 WHERE rolname = $1\n";
    let section = "[users]\nbob = pool_mode=session\ndora = max_user_connections=3\ndora = pool_mode=session\n";
    let files = [("users.txt", "\"ann\" \"secret\"\n"), ("hba.conf", "host all all 127.0.0.1/32 trust\n")];
    let hba = "auth_type = hba\nauth_hba_file = @/hba.conf\n";
    for (settings, user, password, expected) in [
        ("auth_type = trust\n", "dora", "", [true; 2]),
        ("auth_type = trust\n", "ann", "", [true; 2]),
        ("auth_type = trust\n", "ghost", "", [false; 2]),
        (hba, "dora", "", [true; 2]),
        (hba, "ghost", "", [false; 2]),
        ("auth_type = md5\n", "dora", "", [false; 2]),
    ] {
        let pair = Pair::start(&format!("{settings}auth_file = @/users.txt\n{section}"), &files);
        assert_eq!(pair.lets_in(user, password, "forced", false), expected, "{settings} {user}");
        assert_eq!(pair.said, [""; 0], "{settings}");
    }
    for method in ["md5", "scram-sha-256"] {
        let query = if method == "md5" { query } else { "auth_user = postgres\n" };
        let settings = format!("auth_type = {method}\nauth_file = @/users.txt\n{query}");
        let pair = Pair::start(&format!("{settings}[users]\nROLE = pool_mode=session\n"), &files);
        // It would be found.
        assert_eq!(pair.lets_in(&pair.role, "secret", "forced", false), [false; 2], "{method}");
        assert_eq!(pair.lets_in("ann", "secret", "forced", false), [true; 2], "{method}");
        assert_eq!(pair.notes.iter().filter(|note| note.contains("can't log in by password")).count(), 1, "{method}");
        let pair = Pair::start(&settings, &files);
        assert_eq!(pair.lets_in(&pair.role, "secret", "forced", false), [method == "md5"; 2], "{method}");
    }
}

#[test]
fn by_a_look_up_that_any_name_does_without() {
    let pair = Pair::start("auth_type = any\nauth_file = @/users.txt\nauth_user = ASKS", &[("users.txt", USERS)]);
    for (user, password) in [("ghost", ""), ("ann", "wrong"), ("ann", "secret")] {
        assert_eq!(pair.lets_in(user, password, "forced", false), [true; 2], "{user}");
    }
    assert_eq!(pair.notes.iter().filter(|note| note.contains("asks for passwords")).count(), 0, "{:?}", pair.notes);
}

#[test]
fn by_lines_of_one_database() {
    let again = "auth_type = trust\nauth_file = @/users.txt\n[databases]\nforced = HOST dbname=postgres\n\
                 own = HOST user=ASKS\n";
    let pair = Pair::start(again, &[("users.txt", USERS)]);
    for (name, at, role) in [("forced", "postgres", pair.role.clone()), ("own", "", format!("{}_asks", pair.role))] {
        let answers = pair.ports.map(|port| super::answer(port, "ann", "", name));
        if at.is_empty() {
            // There is no database of that name.
            assert_eq!(answers.map(|answer| answer.starts_with("refused")), [true; 2], "{role}");
        } else {
            assert_eq!(answers, [format!("{at} {role} x"), format!("{at} {role} x")]);
        }
    }
    let kept = pair.notes.iter().filter(|note| note.contains("but for user, which stays")).count();
    assert_eq!(kept, 1, "{:?}", pair.notes);
}
