//! Random files: whoever gets in at PgBouncer gets in at Sluice, as the same role and to the same database, and nobody
//! else does, unless that is said.

use sluice_testkit::random::Random;

use super::{answer, widened::Pair};

/// Files that are compared; `SLUICE_CONVERT_SEEDS` is another number of them.
const SEEDS: u64 = 6;

/// Notes by which clients are turned away whom PgBouncer lets in.
const NARROWER: [&str; 3] = ["asks for passwords", "ARE TURNED AWAY", "can't log in"];

const USERS: &str = "\"ann\" \"secret\"\n\"bob\" \"secret\"\n";

const QUERY: &str = "auth_query = SELECT rolname, 'md5' || md5('secret' || rolname) FROM pg_roles WHERE rolname = $1\n";

const PLACE: &str = "listen_addr = 127.0.0.1\nlisten_port = PORT\nunix_socket_dir = @\nserver_login_retry = 1\n";

/// A section with its lines.
fn section(random: &mut Random) -> (&'static str, String) {
    let mut one = |of: &[&str]| (*random.of(of)).to_owned();
    match one(&["pgbouncer", "users", "databases"]).as_str() {
        "users" => {
            let line = |name: String, set: String| format!("{name} = {set}\n");
            let lines = [(); 2]
                .map(|()| line(one(&["bob", "dora", "ROLE"]), one(&["pool_mode=session", "max_user_connections=3"])));
            ("users", lines.concat())
        }
        "databases" => {
            let lines = [(); 2].map(|()| {
                let name = one(&["first", "second", "*"]);
                format!(
                    "{name} = HOST dbname={}{}\n",
                    one(&["ROLE", "postgres"]),
                    one(&["", "", " user=ROLE", " user=ASKS"])
                )
            });
            ("databases", lines.concat())
        }
        _ => {
            let methods = ["", "trust", "any", "md5", "scram-sha-256", "hba\nauth_hba_file = @/hba.conf"];
            let method = one(&methods);
            let lookup = one(&["", "", "", "auth_user = ASKS\n"]);
            let query = one(&["", QUERY]);
            let method = if method.is_empty() { method } else { format!("auth_type = {method}\n") };
            ("pgbouncer", format!("{method}{lookup}{query}"))
        }
    }
}

/// A file, and one that it includes.
fn file(random: &mut Random) -> [String; 2] {
    let mut sections = vec![("pgbouncer", "auth_file = @/users.txt\n".to_owned())];
    sections.extend((0..3 + random.below(6)).map(|_| section(random)));
    sections.push(("databases", "first = HOST dbname=ROLE\n".to_owned()));
    let last = sections.iter().rposition(|(name, _)| *name == "pgbouncer").unwrap();
    sections[last].1.push_str(PLACE);
    let included = random.below(sections.len());
    let (mut text, mut inner) = (String::new(), String::new());
    for (at, (name, lines)) in sections.iter().enumerate() {
        let whole = format!("[{name}]\n{lines}");
        if at == included {
            inner = whole;
            text.push_str("%include @/inner.ini\n");
        } else {
            text.push_str(&whole);
        }
    }
    [text, inner]
}

#[test]
fn nobody_else_gets_in_by_random_files() {
    let seeds = std::env::var("SLUICE_CONVERT_SEEDS").ok().and_then(|number| number.parse().ok()).unwrap_or(SEEDS);
    for seed in 1..=seeds {
        let [text, inner] = file(&mut Random::new(seed));
        let files = [("users.txt", USERS), ("inner.ini", &inner), ("hba.conf", "host all all 127.0.0.1/32 trust\n")];
        let pair = Pair::by(&text, &files);
        for user in ["ann", "bob", "dora", "ghost", &pair.role] {
            for (password, database) in
                [("", "first"), ("secret", "first"), ("secret", "second"), ("secret", "postgres"), ("wrong", "second")]
            {
                let answers = pair.ports.map(|port| answer(port, user, password, database));
                let rows = answers.each_ref().map(|answer| answer.strip_suffix(" x"));
                let is_said = match rows {
                    [Some(theirs), Some(ours)] => theirs == ours,
                    [None, None] => true,
                    [Some(_), None] => pair.notes.iter().any(|note| NARROWER.iter().any(|part| note.contains(part))),
                    [None, Some(_)] => !pair.said.is_empty(),
                };
                let place = format!("seed {seed}, {user} {password:?} {database}: {answers:?}");
                assert!(is_said, "{place}\n{text}\ninner.ini:\n{inner}\n{:#?}", pair.notes);
            }
        }
    }
}
