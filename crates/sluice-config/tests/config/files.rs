//! Files on disk: the examples, the reference page, files of secrets and who may read them.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use sluice_config::users;
use sluice_hba::{Connection, Decision, Transport};

use super::super::repository;

/// An empty folder for one test.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("config").join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn write(path: &Path, text: &[u8], mode: u32) {
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode");
}

#[test]
fn every_example_loads() {
    // Git does not keep that the secrets are closed to others: a copy has it.
    let folder = folder("examples");
    let mut examples = Vec::new();
    for entry in fs::read_dir(repository("examples")).expect("examples") {
        let path = entry.expect("an entry").path();
        let copy = folder.join(path.file_name().expect("a name"));
        write(&copy, &fs::read(&path).expect("a file"), 0o600);
        if copy.extension().is_some_and(|extension| extension == "toml") {
            examples.push(copy);
        }
    }
    assert!(examples.len() >= 5, "{examples:?}");
    for example in examples {
        let config = sluice_config::load(&example).unwrap_or_else(|report| panic!("{report}"));
        if let Some(file) = config.auth.users_file {
            assert_eq!(users::load(&file).expect("its users").len(), 3);
        }
    }
}

#[test]
fn the_reference_pages_are_what_the_schema_says() {
    for (name, page) in [("configuration.md", sluice_config::reference()), ("node.md", sluice_config::node_reference())]
    {
        let path = repository(&format!("docs/reference/{name}"));
        if std::env::var_os("SLUICE_BLESS").is_some() {
            fs::write(&path, &page).expect("the page");
        }
        let written = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == page,
            "docs/reference/{name} differs; write it again: SLUICE_BLESS=1 cargo test -p sluice-config --test config"
        );
    }
}

#[test]
fn files_of_secrets_are_read_from_the_folder_of_the_configuration() {
    let folder = folder("relative");
    write(&folder.join("users.txt"), b"\"app\" \"s3cret\"\n", 0o640);
    write(&folder.join("reports.password"), b"s3cret\n", 0o400);
    let text = r#"
        auth.users_file = "users.txt"
        [[database]]
        name = "reports"
        user = "reports"
        password_file = "reports.password"
        "#;
    let file = folder.join("sluice.toml");
    write(&file, text.as_bytes(), 0o644);
    let config = sluice_config::load(&file).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(config.databases[0].password.as_ref().map(|password| password.0.as_str()), Some("s3cret"));
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn files_that_can_not_be_used() {
    let folder = folder("secrets");
    write(&folder.join("open.txt"), b"\"app\" \"s3cret\"\n", 0o644);
    write(&folder.join("writable.txt"), b"\"app\" \"s3cret\"\n", 0o660);
    write(&folder.join("bad.txt"), b"\"app\" \"s3cret\"\napp s3cret\n\"app\" \"s3cret\n", 0o600);
    write(&folder.join("latin1.txt"), b"\"app\" \"\xE9\"\n", 0o600);
    write(&folder.join("two.password"), b"s3cret\ns3cret\n", 0o600);
    let users = |name: &str| format!("auth.users_file = \"{name}\"\n[[database]]\nname = \"*\"\n");
    let password =
        |keys: &str| format!("auth.method = \"trust\"\n[[database]]\nname = \"*\"\nuser = \"app\"\n{keys}\n");
    let cases = [
        (users("open.txt"), "sluice.toml:1:19: auth.users_file: \"$/open.txt\" holds secrets, but others may read it"),
        (users("open.txt"), "    run: chmod 600 $/open.txt\n1 problem"),
        (users("writable.txt"), "or its group may write it"),
        (users("none.txt"), "auth.users_file: cannot read \"$/none.txt\": No such file or directory (os error 2)"),
        (users("."), "is not a file\n    give the path of a file"),
        (users("latin1.txt"), "is not UTF-8 text"),
        (users("bad.txt"), "$/bad.txt:2:1: the user in double quotes was expected"),
        (users("bad.txt"), "$/bad.txt:3:7: the secret has no closing quote"),
        (users("bad.txt"), "\n2 problems"),
        (password("password_file = \"none\""), "sluice.toml:5:17: database.password_file: cannot read \"$/none\""),
        (password("password_file = \"two.password\""), "the file has more than one line"),
        (password("password_file = \"open.txt\""), "holds secrets, but others may read it"),
        (password("password = \"s3cret\""), "sluice.toml:5:12: database.password: others may read this file"),
    ];
    let file = folder.join("sluice.toml");
    for (text, expected) in cases {
        write(&file, text.as_bytes(), 0o644);
        let report = sluice_config::load(&file).expect_err(&text).to_string();
        let expected = expected.replace('$', folder.to_str().expect("UTF-8"));
        assert!(report.contains(&expected), "{text}\nexpected: {expected}\n{report}");
        assert!(!report.contains("s3cret"), "{report}");
    }
}

#[test]
fn a_folder_in_which_no_socket_can_be_made_is_worth_a_word() {
    let folder = folder("sockets");
    let file = folder.join("sluice.toml");
    let path = folder.to_str().expect("UTF-8");
    let warnings = |dir: &str| {
        let text = format!("unix_socket_dir = \"{dir}\"\nauth.method = \"trust\"\n[[database]]\nname = \"*\"\n");
        write(&file, text.as_bytes(), 0o600);
        let config = sluice_config::load(&file).unwrap_or_else(|report| panic!("{report}"));
        config.warnings.iter().map(sluice_config::Problem::in_one_line).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(warnings("."), "");
    let said = warnings("none");
    let expected = format!("sluice.toml:1:19: unix_socket_dir: there is no folder \"{path}/none\"");
    assert!(said.contains(&expected) && said.contains("create it"), "{said}");
    let said = warnings("sluice.toml");
    assert!(said.contains("sluice.toml\" is no folder"), "{said}");
    // Root may write everywhere.
    if !rustix::process::geteuid().is_root() {
        let said = warnings("/");
        assert!(said.contains("no socket can be made in \"/\": ") && said.contains("check as that user"), "{said}");
    }
}

#[test]
fn a_configuration_that_can_not_be_read() {
    let folder = folder("unreadable");
    let file = folder.join("sluice.toml");
    let report = |file: &Path| sluice_config::load(file).expect_err("no such file").to_string();
    assert!(report(&file).contains("sluice.toml: cannot read \""), "{}", report(&file));
    write(&file, b"listen = []\n# \xE9\n", 0o600);
    assert!(report(&file).contains("sluice.toml:2:3: not UTF-8 text"), "{}", report(&file));
    let large = vec![b'#'; (4 << 20) + 1];
    write(&file, &large, 0o600);
    assert!(report(&file).contains("is larger than 4194304 bytes"), "{}", report(&file));
}

#[test]
fn rules_that_the_pool_could_not_keep_are_refused() {
    let folder = folder("rules");
    let file = folder.join("sluice.toml");
    let report = |rules: &str, keys: &str| {
        write(&folder.join("pg_hba.conf"), rules.as_bytes(), 0o644);
        let text = format!("[auth]\nhba_file = \"pg_hba.conf\"\n{keys}\n[[database]]\nname = \"*\"\n");
        write(&file, text.as_bytes(), 0o644);
        sluice_config::load(&file).map_err(|report| report.to_string())
    };
    let config = report("local all all trust\nhost all all samenet reject # so\n", "").expect("these are kept");
    assert_eq!(config.auth.policy.rules().map(|rules| rules.rules.rules().len()), Some(2));
    for (rules, keys, expected) in [
        ("host all all all ldap", "", "pg_hba.conf:1:1: "),
        ("host all all db.example.com trust", "", "pg_hba.conf:1:1: "),
        ("local all all trust\nhost all all 10.0.0.0/33 trust", "", "pg_hba.conf:2:1: "),
        ("local all all trust\nhost all +web all trust", "", "pg_hba.conf:2:1: members of roles"),
        ("local samerole all trust", "users_file = \"none\"", "pg_hba.conf:1:1: members of roles"),
        ("host all all all peer", "", "pg_hba.conf:1:1: peer authentication is only supported on local sockets"),
        ("host all all all scram-sha-256", "", "the rules ask for passwords, and no secrets are given"),
        ("hostssl all all all cert", "", "pg_hba.conf:1:1: it asks for a certificate"),
        ("local all all trust", "method = \"trust\"", "the rules of hba_file say the method"),
        ("local all all trust", "trust_anyone = true", "only method = \"trust\" takes it"),
    ] {
        let said = report(rules, keys).expect_err(rules);
        assert!(said.contains(expected), "{rules}: {said}");
    }
    let lookup = "[auth.lookup]\nuser = \"asks\"\ndatabase = \"app\"\n";
    report("local all +web peer\nhost samerole all all md5", lookup).expect("members can be looked up");
    for (keys, expected) in [
        ("", "which is not given\n    add [auth.lookup]"),
        ("users_file = \"none\"", "leave out users_file"),
        ("hba_file = \"pg_hba.conf\"", "hba_file is given too"),
        ("method = \"md5\"", "the rules of hba say the method"),
        ("ident_file = \"pg_ident.conf\"", "only the rules of hba_file name maps"),
    ] {
        let text = format!("[auth]\nhba = \"server\"\n{keys}\n[[database]]\nname = \"*\"\n");
        write(&file, text.as_bytes(), 0o644);
        let said = sluice_config::load(&file).expect_err(keys).to_string();
        assert!(said.contains(expected), "{keys}: {said}");
    }
    write(&file, b"[auth]\nmethod = \"trust\"\nident_file = \"pg_ident.conf\"\n[[database]]\nname = \"*\"\n", 0o644);
    let said = sluice_config::load(&file).expect_err("nothing names a map").to_string();
    assert!(said.contains("only the rules of hba_file name maps"), "{said}");
}

#[test]
fn what_may_be_a_mistake_is_worth_a_word() {
    let folder = folder("idle-rules");
    let file = folder.join("sluice.toml");
    let warnings = |rules: &str, top: &str| {
        write(&folder.join("pg_hba.conf"), rules.as_bytes(), 0o644);
        write(&folder.join("pg_ident.conf"), b"known root app\n", 0o644);
        let text = format!(
            "{top}\n[auth]\nhba_file = \"pg_hba.conf\"\nident_file = \"pg_ident.conf\"\n[[database]]\nname = \"*\"\n"
        );
        write(&file, text.as_bytes(), 0o644);
        let config = sluice_config::load(&file).unwrap_or_else(|report| panic!("{report}"));
        config.warnings.iter().map(sluice_config::Problem::in_one_line).collect::<Vec<_>>()
    };
    for (rules, top, expected) in [
        (
            "host all all all trust\nhostssl all all all trust",
            "",
            "pg_hba.conf:2:1: no client matches the rule: without [tls]",
        ),
        (
            "host all all all trust",
            "proxy_protocol_from = [\"::/0\"]",
            "sluice.toml:1:24: proxy_protocol_from: ::/0 has all",
        ),
        ("hostgssenc all all all trust", "", "none has GSSAPI's encryption; write hostssl"),
        ("local all all trust", "", "without unix_socket_dir"),
        ("host replication all all trust", "", "replication connections can't go through the pool"),
        ("local all all peer map=missing", "unix_socket_dir = \"/run\"", "the rule lets nobody in: there is no map"),
    ] {
        let said = warnings(rules, top);
        assert!(said.len() == 1 && said[0].contains(expected), "{rules}: {said:?}");
    }
    for rules in ["local all all peer map=known", "host all,replication all all trust", "hostnossl all all all reject"]
    {
        assert_eq!(warnings(rules, "unix_socket_dir = \"/run\""), [""; 0], "{rules}");
    }
}

#[test]
fn only_known_users_are_believed_where_the_file_says_so() {
    let folder = folder("known");
    let file = folder.join("sluice.toml");
    write(&folder.join("users.txt"), b"\"ann\" \"secret\"\n", 0o600);
    let rules = "local all all trust\nhost all bob all trust\nhost all all all md5\n";
    write(&folder.join("pg_hba.conf"), rules.as_bytes(), 0o644);
    let load = |keys: &str| {
        let text = format!("[auth]\n{keys}\n[[database]]\nname = \"*\"\n");
        write(&file, text.as_bytes(), 0o644);
        sluice_config::load(&file).map_err(|report| report.to_string())
    };
    let method = |config: &sluice_config::Config, user: &str, transport| {
        let connection = Connection { transport, user, database: "app", is_replication: false };
        let rules = &config.auth.policy.rules().expect("rules").rules;
        match rules.decide(&connection, None, &[]) {
            Decision::Rule(rule) if rule.method().name() != "trust" || rules.knows(user) => rule.method().name(),
            _ => "-",
        }
    };
    let tcp = Transport::Tcp { address: [10, 0, 0, 1].into(), is_encrypted: false };
    let methods = |config: &sluice_config::Config| {
        [("ann", Transport::Local), ("bob", Transport::Local), ("ann", tcp), ("bob", tcp), ("carl", tcp)]
            .map(|(user, transport)| method(config, user, transport))
    };
    let by_rules = "hba_file = \"pg_hba.conf\"\nusers_file = \"users.txt\"";
    assert_eq!(methods(&load(by_rules).expect("valid")), ["trust", "trust", "md5", "trust", "md5"]);
    let known = load(&format!("{by_rules}\nknown_users_only = true")).expect("valid");
    assert_eq!(methods(&known), ["trust", "-", "md5", "-", "md5"]);
    let trust = load("method = \"trust\"\nusers_file = \"users.txt\"\nknown_users_only = true").expect("valid");
    assert_eq!(methods(&trust), ["trust", "-", "trust", "-", "-"]);
    assert!(trust.warnings.is_empty(), "{:?}", trust.warnings);
    let more = load(&format!("{by_rules}\nknown_users_only = true\nusers_without_secret = [\"bob\"]")).expect("valid");
    assert_eq!(methods(&more), ["trust", "trust", "md5", "trust", "md5"]);
    assert_eq!(more.auth.without_secret, ["bob"]);
    // Other users are other rules, and a reload sees it.
    write(&folder.join("users.txt"), b"\"ann\" \"secret\"\n\"bob\" \"secret\"\n", 0o600);
    let again = load(&format!("{by_rules}\nknown_users_only = true")).expect("valid");
    assert_eq!(methods(&again), ["trust", "trust", "md5", "trust", "md5"]);
    assert!(again.auth.policy != known.auth.policy);

    let nobody = load("method = \"trust\"\nknown_users_only = true").expect("valid");
    assert_eq!(methods(&nobody), ["-"; 5]);
    assert!(nobody.warnings[0].in_one_line().contains("nobody is let in"), "{:?}", nobody.warnings);
    let said =
        load("known_users_only = true\n[auth.lookup]\nuser = \"asks\"\ndatabase = \"app\"").expect_err("one by one");
    assert!(said.contains("auth.known_users_only") && said.contains("users_file"), "{said}");
}

#[test]
fn a_role_that_any_name_has_is_warned_of() {
    let folder = folder("roles");
    let file = folder.join("sluice.toml");
    write(&folder.join("users.txt"), b"\"ann\" \"secret\"\n", 0o600);
    let warnings = |auth: &str, rules: &str, user: &str| {
        write(&folder.join("pg_hba.conf"), rules.as_bytes(), 0o644);
        let text = format!(
            "[auth]\nusers_file = \"users.txt\"\n{auth}\n[[database]]\nname = \"app\"\n{user}\n[[database]]\nname = \"b\"\n"
        );
        write(&file, text.as_bytes(), 0o644);
        let config = sluice_config::load(&file).unwrap_or_else(|report| panic!("{report}"));
        config.warnings.iter().map(sluice_config::Problem::in_one_line).collect::<Vec<_>>()
    };
    let (trust, rules, user) = ("method = \"trust\"", "hba_file = \"pg_hba.conf\"", "user = \"carol\"");
    for (auth, rules, expected) in [
        (trust, "", "sluice.toml:6:8: database.user: with method = \"trust\", whoever connects works as \"carol\""),
        (
            rules,
            "host all bob all trust\nhost app all all trust\n",
            "pg_hba.conf:2:1: whoever connects to the database \"app\"",
        ),
        (rules, "host all all all trust\n", "pg_hba.conf:1:1: "),
    ] {
        let said = warnings(auth, rules, user);
        assert!(said.len() == 1 && said[0].contains(expected), "{auth} {rules}: {said:?}");
        assert!(said[0].contains("known_users_only"), "{said:?}");
        assert_eq!(warnings(auth, rules, ""), [""; 0], "the server decides");
        assert_eq!(warnings(&format!("{auth}\nknown_users_only = true"), rules, user), [""; 0]);
    }
    for rules in ["host b all all trust\n", "host all bob all trust\n", "host all all all md5\n"] {
        assert_eq!(warnings("hba_file = \"pg_hba.conf\"", rules, user), [""; 0], "{rules}");
    }
}

#[test]
fn a_role_on_another_server_than_that_of_the_look_up_is_warned_of() {
    let warnings = |databases: &str| {
        let keys = "user = \"asks\"\ndatabase = \"app\"\npassword = \"x\"";
        let text = format!("[auth.lookup]\n{keys}\n{databases}");
        let config = sluice_config::parse(&text, Path::new("sluice.toml")).unwrap_or_else(|report| panic!("{report}"));
        config.warnings.iter().map(sluice_config::Problem::in_one_line).collect::<Vec<_>>()
    };
    let app = "[[database]]\nname = \"app\"\nhost = \"one\"\nuser = \"carol\"\n";
    let other = |host: &str, user: &str| format!("{app}[[database]]\nname = \"other\"\nhost = \"{host}\"\n{user}\n");
    let said = warnings(&other("two", "user = \"dave\""));
    let expected = "sluice.toml:12:8: database.user: secrets are looked up in \"app\", on another server: whoever may log in \
                    there works here as \"dave\"";
    assert!(said.len() == 1 && said[0].starts_with(expected), "{said:?}");
    assert_eq!(warnings(&other("one", "user = \"dave\"")), [""; 0]);
    assert_eq!(warnings(&other("two", "")), [""; 0], "that server decides");
    assert_eq!(warnings(&other("two", "port = 5433")), [""; 0]);
}

#[test]
fn a_look_up_by_tcp_without_a_password_is_warned_of() {
    let warnings = |host: &str, more: &str| {
        let text = format!(
            "[auth.lookup]\nuser = \"asks\"\ndatabase = \"app\"\n{more}\n[[database]]\nname = \"*\"\nhost = \"{host}\"\n"
        );
        let config = sluice_config::parse(&text, Path::new("sluice.toml")).unwrap_or_else(|report| panic!("{report}"));
        config.warnings.iter().map(sluice_config::Problem::in_one_line).collect::<Vec<_>>()
    };
    let said = warnings("db", "");
    assert!(said.len() == 1 && said[0].contains("auth.lookup.database: the role \"asks\" has no password"), "{said:?}");
    assert_eq!(warnings("db", "password = \"x\""), [""; 0]);
    assert_eq!(warnings("/run/postgresql", ""), [""; 0]);
}

#[test]
fn a_users_file_of_pgbouncers_is_taken_with_a_warning() {
    let folder = folder("listed");
    let file = folder.join("sluice.toml");
    write(&file, b"[auth]\nusers_file = \"users.txt\"\n[[database]]\nname = \"*\"\n", 0o644);
    write(&folder.join("users.txt"), b"\"a\" \"x\"\n\"a\" \"y\" \"z\"\n\"b\" \"\"\n", 0o600);
    let config = sluice_config::load(&file).unwrap_or_else(|report| panic!("{report}"));
    let warnings: Vec<_> = config.warnings.iter().map(sluice_config::Problem::in_one_line).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("users.txt:2:1: the user \"a\" already"), "{warnings:?}");
    write(&folder.join("users.txt"), b"\"a\" \"x\"\n\"\xe9\" \"y\"\n", 0o600);
    let said = sluice_config::load(&file).expect_err("Latin-1").to_string();
    assert!(said.contains("is not UTF-8 text in line 2"), "{said}");
}
