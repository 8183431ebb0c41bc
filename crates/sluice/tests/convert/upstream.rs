//! Files with the settings of those that PgBouncer's sources have in `etc` and `test`, and of its documentation, arranged
//! anew: each is converted, what is not carried over is said, and Sluice takes what comes of it.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use super::sluice;

/// A file, the words that its notes have, one each, and those that the new file has.
type Expected = (&'static str, &'static [&'static str], &'static [&'static str]);

/// The place of those that Debian's package has.
const SAMPLES: &str = "/usr/share/doc/pgbouncer";

const FILES: [Expected; 7] = [
    (
        "defaults.ini",
        &[
            "reserve_pool_size: there is no reserve",
            "connect_query: has no counterpart",
            "client_encoding: has no counterpart: set it for the role",
            "pool_size: can't be set for single users",
            "query_wait_notify: not supported: clients are not told that they wait",
            "pool_idle_timeout: Sluice chooses by itself",
        ],
        &["mode = \"session\"", "clients = 100", "name = \"*\"", "users = [\"dba\", \"someadmin\"]"],
    ),
    // Without a file of users nobody gets in at PgBouncer, and Sluice does not begin.
    (
        "minimal.ini",
        &["listen_addr: ", "\"sluice check\" refuses the new file: the method needs secrets"],
        &["listen = ", "mode = \"session\""],
    ),
    (
        "statement.ini",
        &["pool_mode: statement becomes transaction", "pkt_buf: Sluice chooses by itself"],
        &["query_timeout = \"20s\"", "size = 2", "server_lifetime = \"2min\"", "known_users_only = true"],
    ),
    (
        "connections.ini",
        &["log_activations: not known: PgBouncer 1.26", "password: has no effect without user"],
        &["idle_client_timeout = \"10s\"", "stats_users = [\"stats\"]", "login_timeout = \"50s\""],
    ),
    (
        "encrypted.ini",
        &["pool_mode: statement becomes transaction"],
        &["client_certificates = \"verify-ca\"", "sslmode = \"verify-full\"", "sslrootcert = \"root.crt\""],
    ),
    (
        "attributes.ini",
        &[
            "primary: target_session_attrs: is for clusters here",
            "standby: load_balance_hosts: has no counterpart: one host is taken",
        ],
        &["host = \"/tmp/replica\"", "wait_timeout = \"7s\""],
    ),
    (
        "peers.ini",
        &["1: peers have no counterpart", "so_reuseport: one process uses all cores"],
        &["host = \"localhost\""],
    ),
];

/// The samples that Debian's package has, as they are, and with all that stands in comments there.
#[test]
fn samples_of_the_package_are_converted() {
    let samples = ["examples/pgbouncer.ini", "pgbouncer-minimal.ini"].map(|name| Path::new(SAMPLES).join(name));
    let samples: Vec<_> = samples.iter().filter_map(|sample| fs::read_to_string(sample).ok()).collect();
    if samples.is_empty() {
        eprintln!("skipped: {SAMPLES} has no samples");
    }
    let place = tempfile::tempdir().unwrap();
    let ini = place.path().join("pgbouncer.ini");
    let notes = |text: &str| {
        fs::write(&ini, text).unwrap();
        let converted = sluice(&["convert", ini.to_str().unwrap()]).output().unwrap();
        let notes = String::from_utf8_lossy(&converted.stderr).into_owned();
        assert!(converted.status.success(), "{notes}");
        assert!(!notes.contains("not known"), "{notes}");
        notes
    };
    for sample in samples {
        notes(&sample);
        let is_name =
            |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_*".contains(c));
        let set = sample.lines().map(|line| match line.strip_prefix(';').map(str::trim_start) {
            Some(set) if set.split_once(" =").is_some_and(|(name, _)| is_name(name)) => set,
            _ => line,
        });
        let all = notes(&set.collect::<Vec<_>>().join("\n"));
        assert!(all.lines().count() > 2, "{all}");
    }
}

#[test]
fn files_of_pgbouncers_own_are_converted() {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/convert/upstream");
    let listed: Vec<_> = FILES.iter().map(|(name, ..)| from.join(name)).collect();
    let mut there: Vec<_> = fs::read_dir(&from).unwrap().map(|file| file.unwrap().path()).collect();
    there.retain(|file| !listed.contains(file));
    assert_eq!(there, Vec::<std::path::PathBuf>::new(), "each file is listed");
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for (name, said, written) in FILES {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("userlist.txt"), "\"bouncer\" \"secret\"\n").unwrap();
        fs::set_permissions(at("userlist.txt"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(at("server.crt"), certificate.cert.pem()).unwrap();
        fs::write(at("root.crt"), certificate.cert.pem()).unwrap();
        fs::write(at("server.key"), certificate.signing_key.serialize_pem()).unwrap();
        fs::set_permissions(at("server.key"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::copy(from.join(name), at(name)).unwrap();
        let [ini, toml] = [name, "sluice.toml"].map(at);
        let arguments = ["convert", ini.to_str().unwrap(), "--output", toml.to_str().unwrap()];
        let converted = sluice(&arguments).output().unwrap();
        let notes = String::from_utf8_lossy(&converted.stderr).into_owned();
        assert!(converted.status.success(), "{name}: {notes}");
        for words in said {
            assert!(notes.contains(words), "{name}: {words} is not said:\n{notes}");
        }
        let text = fs::read_to_string(&toml).unwrap();
        for words in written {
            assert!(text.contains(words), "{name}: {words} is not written:\n{text}");
        }
        if name != "connections.ini" {
            assert!(!notes.contains("not known"), "{name}: {notes}");
        }
        let checked = sluice(&["check", "-c", toml.to_str().unwrap()]).output().unwrap();
        let is_refused = said.iter().any(|words| words.contains("\"sluice check\" refuses"));
        assert_eq!(
            checked.status.success(),
            !is_refused,
            "{name}: {}\n{text}",
            String::from_utf8_lossy(&checked.stderr)
        );
    }
}
