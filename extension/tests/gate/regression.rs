//! PostgreSQL's own regression tests, several sessions at once: with the gate they print what they print without it.
//!
//! The files come with a crate (`tests/regression/Cargo.toml`), and are those of PostgreSQL 18. An older server refuses
//! what it does not know, and has to do that alike. Each file has a database of its own, made from one that has what
//! the first file of the suite, `test_setup`, makes; what other files leave behind for those that follow is missing.
//!
//! `SLUICE_TEST_REGRESSION=all` runs all files, and a list as in `SLUICE_TEST_REGRESSION=join,window` these.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sluice_testkit::{TestServer, Version, becomes, versions};

use crate::server::START;

versions!(files_print_the_same);

/// The number of files that run at once, and the number of places that each gate has.
const SESSIONS: usize = 8;
const PLACES: &str = "4";

/// Statements of other sessions meanwhile, for a large part of each gate's places, or hardly any file would ever
/// wait. None of them has an effect.
const MEANWHILE: [&str; 3] = [
    "BEGIN; SELECT pg_sleep(0.1); COMMIT",
    "INSERT INTO nothing SELECT WHERE pg_sleep(0.1) IS NULL",
    "SELECT pg_sleep(0.1)",
];
const SESSIONS_MEANWHILE: usize = 3;

/// No file takes as long, not even behind others that take theirs.
const LONGEST: Duration = Duration::from_secs(300);

/// The files that run unless more is asked for: those that begin, end or nest transactions and statements in all ways
/// that there are, and some of the work that clients do all day.
const USUAL: &str = "\
    advisory_lock async combocid copy copy2 copydml create_procedure event_trigger event_trigger_login explain guc \
    insert_conflict lock merge plancache plpgsql plpgsql_call plpgsql_control plpgsql_transaction plpgsql_trap \
    plpgsql_trigger portals portals_p2 prepare prepared_xacts psql psql_pipeline returning rowsecurity select_into \
    select_parallel select_views sequence subselect temp transactions triggers txid update vacuum with write_parallel";

/// Files that say the same only by accident, and why.
const LEFT_OUT: [(&str, &[Version], &str); 3] = [
    ("psql_pipeline", &[Version::V15, Version::V16], "an older psql knows half of its commands, and waits for ever"),
    ("stats", &[Version::V15], "a session finds its number among the others, which 15 mixes up"),
    ("oidjoins", &[Version::V15], "it tells which roles were dropped after granting, all over the server"),
];

/// Files that use the same roles, tablespace or subscriptions, or look at all of them; they take turns in this order.
const TURNS: [&[&str]; 6] = [
    &["database", "stats", "tablespace"],
    &["foreign_data", "collate.icu.utf8", "collate.linux.utf8", "collate.windows.win1252"],
    &["generated_stored", "generated_virtual"],
    &["inherit", "select_views"],
    &["maintain_every", "privileges"],
    &["object_address", "subscription"],
];

/// Lines with OIDs or numbers of processes: a file, and what such a line begins with.
const WITH_NUMBERS: [(&str, &str); 3] = [
    ("equivclass", "ERROR:  could not find commutator for operator "),
    ("largeobject", "    "),
    ("stats", "LINE 1: SELECT pg_stat_get_backend_io("),
];

/// Rows for `onek` and `tenk1`, which the files have as data; the data does not come with them.
const ROWS: &str = "\
    SELECT u, n, u % 2, u % 4, u % 10, u % 20, u % 100, u % 1000, u % 2000, u % 5000, u, u % 100 * 2, u % 100 * 2 + 1,
      chr(65 + u % 26) || chr(65 + u / 26 % 26) || chr(65 + u / 676) || 'AAA',
      chr(65 + n % 26) || chr(65 + n / 26 % 26) || chr(65 + n / 676) || 'AAA',
      (ARRAY['AAAAxx', 'HHHHxx', 'OOOOxx', 'VVVVxx'])[n % 4 + 1]
    FROM (SELECT n, n * 8801 % rows AS u FROM generate_series(0, rows - 1) n) numbers";

fn files_print_the_same(version: Version) {
    let suite = Suite::new(version);
    let without = suite.run(version, "0", |server| {
        assert_eq!(server.value("SELECT sum(admitted) FROM sluice_gate"), "0");
    });
    let with = suite.run(version, PLACES, |server| {
        let counted =
            "SELECT string_agg(concat_ws('/', name, admitted > 0, waited > 0), ' ' ORDER BY name) FROM sluice_gate";
        assert_eq!(server.value(counted), "autocommit/t/t bigquery/f/f query/t/t transaction/t/t");
        becomes("the gates are empty", "0/0".to_owned(), || {
            server.value("SELECT concat_ws('/', sum(running), sum(waiting)) FROM sluice_gate")
        });
    });
    let differing: Vec<&str> = without.keys().filter(|name| without[*name] != with[*name]).copied().collect();
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("regression/{version:?}"));
    for name in &differing {
        let paths = [("without", &without), ("with", &with)].map(|(which, outputs)| {
            let path = kept.join(which).join(format!("{name}.out"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &outputs[name]).unwrap();
            path
        });
        let diff = Command::new("diff").arg("-u").args(paths).output().unwrap();
        println!("{}", String::from_utf8_lossy(&diff.stdout));
    }
    assert!(differing.is_empty(), "with the gate these print something else, see {}: {differing:?}", kept.display());
}

/// The files that run, and their directory.
struct Suite {
    files: BTreeMap<String, PathBuf>,
    /// Files of one list run one after the other.
    lists: Vec<Vec<String>>,
    place: tempfile::TempDir,
}

impl Suite {
    fn new(version: Version) -> Self {
        let files = files();
        let wanted = std::env::var("SLUICE_TEST_REGRESSION").unwrap_or(USUAL.to_owned());
        let mut wanted: Vec<&str> = match wanted.as_str() {
            "all" => files.keys().map(String::as_str).collect(),
            _ => wanted.split([' ', ',']).collect(),
        };
        wanted.retain(|name| {
            let is_out = |out: &(&str, &[Version], _)| out.0 == *name && out.1.contains(&version);
            assert!(files.contains_key(*name), "there is no file {name}");
            *name != "test_setup" && !LEFT_OUT.iter().any(is_out)
        });
        let turns = TURNS.iter().map(|turn| turn.to_vec());
        let others = wanted.iter().filter(|name| !TURNS.iter().any(|turn| turn.contains(name)));
        let mut lists: Vec<Vec<String>> = turns
            .chain(others.map(|name| vec![*name]))
            .map(|list| list.into_iter().filter(|name| wanted.contains(name)).map(str::to_owned).collect())
            .collect();
        // The longest ones first.
        let size =
            |list: &Vec<String>| -> u64 { list.iter().map(|name| fs::metadata(&files[name]).unwrap().len()).sum() };
        lists.sort_by_key(size);

        // The server writes here, too.
        let place = tempfile::tempdir().unwrap();
        let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        open(place.path());
        for name in ["data", "results"] {
            fs::create_dir(place.path().join(name)).unwrap();
            open(&place.path().join(name));
        }
        Self { files, lists, place }
    }

    /// The output of each file on a server with these limits.
    fn run(&self, version: Version, places: &str, check: impl FnOnce(&TestServer)) -> BTreeMap<&str, String> {
        let mut settings = START.to_vec();
        settings.retain(|(name, _)| *name != "sluice.superuser_reserved_slots");
        settings.extend([
            ("sluice.superuser_reserved_slots", "0"),
            ("sluice.transaction_concurrency", places),
            ("sluice.autocommit_concurrency", places),
            ("sluice.query_concurrency", places),
        ]);
        let server = TestServer::start(version, &settings);
        server.execute("CREATE EXTENSION sluice");
        server.execute("CREATE DATABASE regression TEMPLATE template0 LOCALE 'C'");
        for (name, rows) in [("onek", "1000"), ("tenk", "10000")] {
            let path = self.place.path().join(format!("data/{name}.data"));
            server.execute(&format!("COPY ({}) TO '{}'", ROWS.replace("rows", rows), path.display()));
        }
        self.psql(&server, "regression", "test_setup");
        server.execute("SELECT sluice_gate_reset()");

        server.execute("CREATE DATABASE meanwhile");
        server.superuser("meanwhile").batch_execute("CREATE TABLE nothing ()").unwrap();
        let left = Mutex::new(self.lists.clone());
        let outputs = Mutex::new(BTreeMap::new());
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            for sql in MEANWHILE.iter().flat_map(|sql| [*sql; SESSIONS_MEANWHILE]) {
                let (server, ended) = (&server, &ended);
                scope.spawn(move || {
                    let mut client = server.superuser("meanwhile");
                    while !ended.load(Ordering::Relaxed) {
                        client.batch_execute(sql).unwrap();
                    }
                });
            }
            let run_files = || {
                let mut admin = server.superuser("postgres");
                while let Some(list) = { left.lock().unwrap().pop() } {
                    for name in &list {
                        let database = format!("regression_{}", name.replace('.', "_"));
                        admin.batch_execute(&format!("CREATE DATABASE {database} TEMPLATE regression")).unwrap();
                        let output = self.psql(&server, &database, name);
                        let name = self.files.get_key_value(name).unwrap().0.as_str();
                        outputs.lock().unwrap().insert(name, output);
                    }
                }
            };
            let sessions: Vec<_> = (0..SESSIONS).map(|_| scope.spawn(run_files)).collect();
            let outcomes: Vec<_> = sessions.into_iter().map(|session| session.join()).collect();
            ended.store(true, Ordering::Relaxed);
            outcomes.into_iter().for_each(|outcome| outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        });
        check(&server);
        outputs.into_inner().unwrap()
    }

    /// Runs a file as PostgreSQL's own driver, pg_regress, does; what it prints.
    fn psql(&self, server: &TestServer, database: &str, name: &str) -> String {
        let output = self.place.path().join(format!("{name}.out"));
        let to = File::create(&output).unwrap();
        let place = self.place.path();
        let mut child = server
            .program("psql")
            .args(["-X", "-a", "-q", "-d", database, "-v", "HIDE_TABLEAM=on", "-v", "HIDE_TOAST_COMPRESSION=on"])
            .env("PGHOST", server.socket_dir())
            .env("PGPORT", server.port().to_string())
            .env("PGUSER", "postgres")
            .env("PGTZ", "America/Los_Angeles")
            .env("PGDATESTYLE", "Postgres, MDY")
            .env("PGOPTIONS", "-c intervalstyle=postgres_verbose")
            .envs([("PG_ABS_SRCDIR", place), ("PG_ABS_BUILDDIR", place), ("PG_LIBDIR", place)])
            .env("PG_DLSUFFIX", ".so")
            .current_dir(place)
            .stdin(File::open(&self.files[name]).unwrap())
            .stdout(to.try_clone().unwrap())
            .stderr(to)
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let status: ExitStatus = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > LONGEST {
                let sessions = server.value(
                    "SELECT string_agg(concat_ws(' / ', datname, state, wait_event, query), E'\n') FROM pg_stat_activity",
                );
                let gates = server.value("SELECT string_agg(sluice_gate::text, E'\n') FROM sluice_gate");
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("{name} does not end; sessions:\n{sessions}\ngates:\n{gates}");
            }
            thread::sleep(Duration::from_millis(5));
        };
        // Some print bytes of other encodings.
        let mut text = String::from_utf8_lossy(&fs::read(&output).unwrap()).into_owned();
        if let Some((_, prefix)) = WITH_NUMBERS.iter().find(|(file, _)| *file == name) {
            let without_numbers = |line: &str| match line.starts_with(prefix) {
                true => line.replace(|c: char| c.is_ascii_digit(), ""),
                false => line.to_owned(),
            };
            text = text.split('\n').map(without_numbers).collect::<Vec<_>>().join("\n");
        }
        format!("{text}\n{status}\n")
    }
}

/// The files by their names.
fn files() -> BTreeMap<String, PathBuf> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--format-version", "1", "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regression/Cargo.toml"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut packages = metadata["packages"].as_array().unwrap().iter();
    let package = packages.find(|package| package["name"] == "pg_raw_parse").unwrap();
    let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap().join("libpg_query/test/sql");
    let all = ["postgres_regress", "plpgsql_regress"].iter().flat_map(|dir| fs::read_dir(folder.join(dir)).unwrap());
    let paths = all.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "sql"));
    paths.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path)).collect()
}
