//! Client addresses as the server sees them: clients seem to have come to it straight.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
};

use nix::unistd::{Uid, User};
use sluice_testkit::{Case, Database, PoolConfig, Raw, Script, TestPool, TestServer, becomes, matrix};

use crate::SLUICE;

matrix!(transaction:
    each_client_is_where_it_is,
    only_the_pool_can_say_it,
    a_client_does_not_stop_it,
    a_server_that_no_longer_believes_shows_no_client,
    without_the_extension_nothing_is_told,
    a_search_path_is_no_way_to_the_secret,
    a_new_function_is_found,
);
matrix!(session: a_session_is_told_once);

const SECRET: &str = "a secret of more than sixteen bytes";

/// A query for the address of the server's client, as the server knows it.
pub(crate) const SEEN: &str = "SELECT concat_ws(' ', inet_client_addr(), inet_client_port(),
    (SELECT concat_ws(' ', client_addr, client_port) FROM pg_stat_activity WHERE pid = pg_backend_pid()))";

/// A server with the extension loaded, which believes who knows the secret.
pub(crate) struct Place {
    server: TestServer,
    secret_file: PathBuf,
    _dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new(case: Case) -> Self {
        let dir = tempfile::Builder::new().prefix("sluice-secret-").tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let [ours, theirs] = ["ours", "theirs"].map(|name| {
            let file = dir.path().join(name);
            fs::write(&file, format!("{SECRET}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            file
        });
        if Uid::effective().is_root() {
            let postgres = User::from_name("postgres").unwrap().unwrap();
            chown(&theirs, Some(postgres.uid.as_raw()), None).unwrap();
        }
        let settings = [
            ("shared_preload_libraries", "sluice"),
            ("sluice.pool_secret_file", theirs.to_str().unwrap()),
            ("log_line_prefix", "%h/%r/ "),
        ];
        Self { server: TestServer::start(case.version, &settings), secret_file: ours, _dir: dir }
    }

    pub(crate) fn database(&self) -> Database<'_> {
        let database = self.server.database();
        database.superuser().batch_execute("CREATE EXTENSION sluice").unwrap();
        database
    }

    fn pool(&self, case: Case) -> TestPool {
        self.pool_with(case, &self.secret_file)
    }

    fn pool_with(&self, case: Case, file: &Path) -> TestPool {
        self.config_with(case, file).start()
    }

    /// A pool that tells where its clients are.
    pub(crate) fn config(&self, case: Case) -> PoolConfig {
        self.config_with(case, &self.secret_file)
    }

    fn config_with(&self, case: Case, file: &Path) -> PoolConfig {
        let key = format!("client_address_secret_file = \"{}\"", file.display());
        PoolConfig::without_databases(SLUICE, case).database("*", &self.server, &key).size(1)
    }
}

/// The answer to [`SEEN`] where a client is seen as it is.
pub(crate) fn twice(address: SocketAddr) -> String {
    let one = format!("{} {}", address.ip(), address.port());
    format!("{one} {one}")
}

fn each_client_is_where_it_is(case: Case) {
    let place = Place::new(case);
    let database = place.database();
    let pool = place.pool(case);
    let mut clients = [pool.raw_app(&database), pool.raw_app(&database), pool.raw_app(&database)];
    for round in 0..3 {
        for client in &mut clients {
            let expected = twice(client.local_address());
            assert_eq!(client.value(SEEN), expected, "{round}");
            // By the extended protocol and in a block, where a BEGIN goes along too.
            assert!(client.talk(&Script::new().unnamed(SEEN, &[]).sync()).contains(&expected));
            assert!(client.query("BEGIN").contains("C(BEGIN)"));
            assert_eq!(client.value(SEEN), expected);
            assert!(client.query("COMMIT").contains("C(COMMIT)"));
        }
    }
    let address = clients[1].local_address();
    clients[1].query("SELECT 1/0");
    let log = fs::read_to_string(place.server.log_file()).unwrap();
    let line = format!("{}/{}({})/ ERROR:  division by zero", address.ip(), address.ip(), address.port());
    assert!(log.contains(&line), "{line}\n{log}");
    // A statement that somebody else's DEALLOCATE has taken from the server is still prepared again behind it.
    let [one, other, _] = &mut clients;
    one.talk(&Script::new().parse("s", "SELECT 's'").sync());
    other.query("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$");
    let healed = one.talk(&Script::new().bind("s", &[]).describe_portal("").execute().sync());
    assert_eq!(healed, "2 T(?column?) D(s) C(SELECT 1) Z(I)");
}

fn only_the_pool_can_say_it(case: Case) {
    let place = Place::new(case);
    let database = place.database();
    let mut straight = database.server.raw().login("app", &database.name);
    for guess in ["", "\\x00", "\\x0461626364 04 0050 0a000001", "\\x10"] {
        let guess = guess.replace(' ', "");
        assert_eq!(straight.value(&format!("SELECT sluice_set_client('{guess}')")), "f", "{guess}");
    }
    let hidden = straight.query("SHOW sluice.pool_secret_file");
    assert!(hidden.contains("E(42501"), "{hidden}");
    // What the pool sends shows nowhere.
    let pool = place.pool(case);
    let mut client = pool.raw_app(&database);
    client.query("SELECT 1");
    let seen = database.server.value("SELECT string_agg(query, ';') FROM pg_stat_activity WHERE usename = 'app'");
    assert!(!seen.contains(SECRET), "{seen}");
    // A pool with another secret is not believed, and serves as before.
    let wrong = place.secret_file.with_file_name("wrong");
    fs::write(&wrong, "another secret of some length").unwrap();
    fs::set_permissions(&wrong, fs::Permissions::from_mode(0o600)).unwrap();
    let pool = place.pool_with(case, &wrong);
    let mut client = pool.raw_app(&database);
    assert_eq!((client.value(SEEN).as_str(), client.value("SELECT 7").as_str()), ("-1", "7"));
    assert!(pool.log().contains("does not believe the pool"), "{}", pool.log());
}

/// Whoever guesses at the secret guesses on a server of the pool's own.
fn a_client_does_not_stop_it(case: Case) {
    let place = Place::new(case);
    let database = place.database();
    let pool = place.pool(case);
    let (mut guesser, mut other) = (pool.raw_app(&database), pool.raw_app(&database));
    for _ in 0..4 {
        assert_eq!(guesser.value("SELECT sluice_set_client('\\x0178')"), "f");
    }
    let mut late = pool.raw_app(&database);
    for client in [&mut other, &mut late, &mut guesser] {
        assert_eq!(client.value(SEEN), twice(client.local_address()));
    }
}

/// The server's secret has changed, and the pool's has not.
fn a_server_that_no_longer_believes_shows_no_client(case: Case) {
    let place = Place::new(case);
    let database = place.database();
    let pool = place.pool(case);
    let (mut one, mut other) = (pool.raw_app(&database), pool.raw_app(&database));
    assert_eq!(one.value(SEEN), twice(one.local_address()));
    fs::write(place.secret_file.with_file_name("theirs"), "another secret of some length").unwrap();
    database.server.execute("SELECT pg_reload_conf()");
    becomes("nobody is seen as another one", "-1".to_owned(), || {
        one.query("SELECT 1");
        other.value(SEEN)
    });
    assert_eq!(one.value(SEEN), "-1");
}

fn without_the_extension_nothing_is_told(case: Case) {
    let place = Place::new(case);
    let database = place.server.database();
    // Somebody's own function does not get to see the secret.
    database.execute(
        "CREATE TABLE caught (message bytea);
         CREATE FUNCTION sluice_set_client(bytea) RETURNS boolean LANGUAGE sql
         AS 'INSERT INTO caught VALUES ($1); SELECT true'",
    );
    let pool = place.pool(case);
    let mut client = pool.raw_app(&database);
    assert_eq!(client.value(SEEN), "-1");
    assert_eq!(client.value("SELECT count(*) FROM caught"), "0");
}

fn a_search_path_is_no_way_to_the_secret(case: Case) {
    let place = Place::new(case);
    let database = place.database();
    // Operators and a function of the user's own, where an unqualified name would find them first.
    database.execute(
        "CREATE SCHEMA evil;
         CREATE TABLE evil.caught (message bytea);
         CREATE FUNCTION evil.sluice_set_client(bytea) RETURNS boolean LANGUAGE sql
           AS 'INSERT INTO evil.caught VALUES ($1); SELECT true';
         CREATE FUNCTION evil.yes(name, name) RETURNS boolean LANGUAGE sql AS 'SELECT true';
         CREATE FUNCTION evil.yes(oid, oid) RETURNS boolean LANGUAGE sql AS 'SELECT true';
         CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = name, FUNCTION = evil.yes);
         CREATE OPERATOR evil.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = evil.yes);
         ALTER ROLE app SET search_path = evil, public, pg_catalog",
    );
    let pool = place.pool(case);
    let mut client = pool.raw_app(&database);
    let expected = twice(client.local_address());
    client.query("SET search_path = pg_catalog");
    assert_eq!(client.value(SEEN), expected);
    assert_eq!(client.value("SELECT count(*) FROM evil.caught"), "0");
    database.execute("ALTER ROLE app RESET search_path");
}

fn a_new_function_is_found(case: Case) {
    let place = Place::new(case);
    let database = place.database();
    let pool = place.pool(case);
    let (mut one, mut other) = (pool.raw_app(&database), pool.raw_app(&database));
    one.query("SELECT 1");
    let mut superuser = database.superuser();
    superuser.batch_execute("DROP EXTENSION sluice; CREATE EXTENSION sluice").unwrap();
    // The call of the old one fails, and nothing else does.
    assert_eq!(other.value("SELECT 7"), "7");
    becomes("it is told again", twice(one.local_address()), || {
        other.query("SELECT 1");
        one.value(SEEN)
    });
}

fn a_session_is_told_once(case: Case) {
    let place = Place::new(case);
    let database = place.database();
    let pool = place.pool(case);
    for _ in 0..2 {
        let mut client: Raw = pool.raw_app(&database);
        let expected = twice(client.local_address());
        assert_eq!(client.value(SEEN), expected);
        client.query("DISCARD ALL");
        assert_eq!(client.value(SEEN), expected);
    }
}
