//! The server's reports of the session to its client: its state, and that the catalog has changed.

mod pins;
mod sizes;

use sluice_testkit::{
    Version,
    raw::{Message, Raw, Script, transcript},
    versions,
};
use sluice_wire::message::{backend, read_parameter_status};

use crate::server::{Gate, run};

versions!(
    a_new_session_holds_nothing,
    custom_settings_leave_their_names,
    settings_are_told_with_their_values,
    values_come_back_by_set_config,
    settings_follow_their_transaction,
    every_way_to_set_is_seen,
    functions_by_other_names_are_seen,
    functions_are_seen_that_no_text_shows,
    what_functions_keep_is_told_of,
    roles_are_settings,
    discard_all_lets_go,
    procedures_may_commit,
    strings_of_several_statements,
    errors_are_told_as_well,
    prepared_transactions_leave_settings,
    other_processes_are_left_alone,
);

/// A session, and what its server has told of it.
pub(crate) struct Session {
    pub(crate) raw: Raw,
    /// The last report, with names and values in plain text.
    pub(crate) held: String,
    /// The same, as it came.
    pub(crate) report: String,
    pub(crate) catalog: u64,
    /// The number of reports that have come, of both.
    pub(crate) reports: usize,
}

impl Session {
    pub(crate) fn new(gate: &Gate) -> Self {
        Self::of(gate, "app")
    }

    pub(crate) fn of(gate: &Gate, user: &str) -> Self {
        let raw = gate.server.raw().login(user, &gate.database.name);
        let report = raw.parameter("sluice.session").to_owned();
        let catalog = raw.parameter("sluice.catalog").parse().unwrap();
        Self { held: plain(&report), report, catalog, raw, reports: 0 }
    }

    /// Sends a script; all that comes up to one ReadyForQuery.
    pub(crate) fn talk(&mut self, script: &Script) -> Vec<Message> {
        self.raw.send(script);
        let messages = self.raw.until_ready(1);
        for message in messages.iter().filter(|message| message.tag == backend::PARAMETER_STATUS) {
            match read_parameter_status(&message.body).unwrap() {
                ("sluice.session", value) => (self.report, self.held) = (value.to_owned(), plain(value)),
                ("sluice.catalog", value) => self.catalog = value.parse().unwrap(),
                _ => continue,
            }
            self.reports += 1;
        }
        messages
    }

    /// Runs statements, whatever comes of them.
    pub(crate) fn run(&mut self, sql: &str) -> String {
        transcript(&self.talk(&Script::new().query(sql)))
    }

    /// Runs statements, after which the session holds this.
    #[track_caller]
    pub(crate) fn holds(&mut self, sql: &str, held: &str) {
        let said = self.run(sql);
        assert!(!said.contains("E("), "{sql}: {said}");
        assert_eq!(self.held, held, "{sql}");
    }

    /// Runs statements of which one must fail, after which the session holds this.
    #[track_caller]
    fn holds_after_error(&mut self, sql: &str, held: &str) {
        let said = self.run(sql);
        assert!(said.contains("E("), "{sql}: {said}");
        assert_eq!(self.held, held, "{sql}");
    }

    /// The first value of a query.
    pub(crate) fn value(&mut self, sql: &str) -> String {
        let messages = self.talk(&Script::new().query(sql));
        let row = messages.iter().find(|message| message.tag == backend::DATA_ROW);
        let row = row.unwrap_or_else(|| panic!("{sql}: {}", transcript(&messages)));
        String::from_utf8(row.values()[0].clone().unwrap_or_default()).unwrap()
    }
}

/// A report with its names and values in plain text, without the custom settings that have no value and without a word
/// on functions: `pins=temp set=app.tenant:7`.
fn plain(report: &str) -> String {
    let mut fields = report.split(' ').filter(|field| !field.is_empty());
    let plain: Vec<String> = fields
        .by_ref()
        .filter(|field| !field.starts_with("made=") && !field.starts_with("ran="))
        .map(|field| match field.strip_prefix("set=") {
            Some(set) => format!("set={}", set.split(',').map(setting).collect::<Vec<_>>().join(",")),
            None => field.to_owned(),
        })
        .collect();
    plain.join(" ")
}

fn setting(setting: &str) -> String {
    let (name, value) = setting.split_once(':').unwrap();
    format!("{}:{}", unhex(name), unhex(value))
}

fn unhex(hex: &str) -> String {
    let digit = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
    let bytes = hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) * 16 + digit(pair[1])).collect();
    String::from_utf8(bytes).unwrap()
}

/// The settings of a report, as they come.
fn settings_of(held: &str) -> Vec<(String, String)> {
    let set = held.split(' ').find_map(|field| field.strip_prefix("set="));
    let settings = set.into_iter().flat_map(|set| set.split(','));
    settings.map(|setting| setting.split_once(':').unwrap()).map(|(n, v)| (unhex(n), unhex(v))).collect()
}

/// The custom settings of a report that have no value.
fn made_of(report: &str) -> String {
    let made = report.split(' ').find_map(|field| field.strip_prefix("made="));
    made.into_iter().flat_map(|made| made.split(',')).map(unhex).collect::<Vec<_>>().join(",")
}

fn custom_settings_leave_their_names(version: Version) {
    let gate = Gate::new(version, &[]);
    gate.server.execute("GRANT SET ON PARAMETER app.d TO app");
    run(
        &mut gate.session(),
        "CREATE FUNCTION catches() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
           PERFORM set_config('app.c', '1', false); PERFORM 1/0; EXCEPTION WHEN division_by_zero THEN NULL; END $$;
         CREATE FUNCTION inside() RETURNS int LANGUAGE plpgsql SET app.d = '1' AS $$ BEGIN RETURN 1; END $$",
    );
    for (sql, made) in [
        ("SET app.a = '1'", ""),
        ("SET app.a = '1'; RESET app.a", "app.a"),
        ("SET app.a TO DEFAULT", "app.a"),
        ("BEGIN; SET LOCAL app.a = '1'; COMMIT", "app.a"),
        ("SELECT set_config('app.a', '1', true)", "app.a"),
        ("BEGIN; SET app.a = '1'; ROLLBACK", "app.a"),
        ("BEGIN; SAVEPOINT s; SET app.a = '1'; ROLLBACK TO s; COMMIT", "app.a"),
        ("SET app.a = '1'; SELECT catches()", "app.c"),
        ("SET app.b = '1'; SET app.a = '1'; DISCARD ALL", "app.a,app.b"),
        ("BEGIN; SET app.a = '1'; SELECT 1 / 0; ROLLBACK", "app.a"),
        ("SELECT inside()", "app.d"),
        ("RESET app.a; SET app.a = '1'", ""),
        ("SELECT set_config('app.a', NULL, false)", "app.a"),
        ("SELECT set_config('app.a', NULL, true)", "app.a"),
        ("BEGIN; SAVEPOINT s; SELECT set_config('app.a', NULL, true); ROLLBACK TO s; COMMIT", "app.a"),
        ("CREATE FUNCTION keeps() RETURNS int LANGUAGE sql SET app.a = '1' AS 'SELECT 1'", "app.a"),
        ("ALTER FUNCTION catches() RESET app.b", "app.b"),
        ("ALTER ROLE app SET app.a = '1'", "app.a"),
        ("RESET work_mem", ""),
    ] {
        let mut session = Session::new(&gate);
        for statement in sql.split("; ") {
            session.run(statement);
        }
        assert_eq!(made_of(&session.report), made, "{sql}");
    }
}

fn functions_are_seen_that_no_text_shows(version: Version) {
    let gate = Gate::new(version, &[]);
    run(
        &mut gate.session(),
        "CREATE TABLE t (a int); CREATE TABLE u (a int); CREATE TABLE plain (a int);
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
         CREATE FUNCTION owners() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN RETURN new; END';
         CREATE TRIGGER r BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f();
         CREATE TRIGGER r BEFORE INSERT ON u FOR EACH ROW EXECUTE FUNCTION owners();
         CREATE FUNCTION low() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 0; END';
         CREATE VIEW v AS SELECT low();
         CREATE TABLE d (a int DEFAULT low(), b int)",
    );
    for (sql, ran) in [
        ("INSERT INTO t VALUES (1)", true),
        ("INSERT INTO u VALUES (1)", true),
        ("BEGIN; INSERT INTO t VALUES (1); ROLLBACK", true),
        ("TABLE v", true),
        ("INSERT INTO d (b) VALUES (1)", true),
        ("INSERT INTO plain SELECT count(*) FROM pg_class; SELECT lower('A'), now(); TABLE plain", false),
        ("SELECT * FROM information_schema.tables", false),
        ("SET sluice.gate_timeout = '5s'", false),
    ] {
        let mut session = Session::new(&gate);
        session.run(sql);
        assert_eq!(session.report.ends_with("ran=functions"), ran, "{sql}: {}", session.report);
    }
    let mut session = Session::new(&gate);
    session.holds("SET sluice.gate_timeout = '5s'", "set=sluice.gate_timeout:5000");
}

fn what_functions_keep_is_told_of(version: Version) {
    let gate = Gate::new(version, &[]);
    let other = "CREATE FUNCTION handles() RETURNS language_handler LANGUAGE c AS '$libdir/plpgsql', 'plpgsql_call_handler';
         CREATE FUNCTION handles_inline(internal) RETURNS void LANGUAGE c AS '$libdir/plpgsql', 'plpgsql_inline_handler';
         CREATE TRUSTED LANGUAGE other HANDLER handles INLINE handles_inline;
         CREATE FUNCTION keeps() RETURNS int LANGUAGE other AS 'BEGIN RETURN 1; END';
         CREATE FUNCTION keeps_row() RETURNS trigger LANGUAGE other AS 'BEGIN RETURN new; END';
         CREATE FUNCTION plain() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
         CREATE TABLE t (a int); GRANT ALL ON t TO app;
         CREATE TRIGGER r BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION keeps_row()";
    run(&mut gate.server.superuser(&gate.database.name), other);
    let keeps = |sql: &str| {
        let mut session = Session::new(&gate);
        session.run(sql);
        session.report.starts_with("pins=state")
    };
    let keeping = [
        "SELECT keeps()",
        "INSERT INTO t VALUES (1)",
        "BEGIN; SELECT keeps(); ROLLBACK",
        "DO LANGUAGE other 'BEGIN END'",
        "SELECT query_to_xml('SELECT keeps()', true, true, '')",
    ];
    for sql in keeping {
        assert!(keeps(sql), "{sql}");
    }
    for sql in ["SELECT plain()", "DO 'BEGIN END'", "DO LANGUAGE plpgsql 'BEGIN END'", "SELECT lower('A')"] {
        assert!(!keeps(sql), "{sql}");
    }
    gate.set(&[("sluice.stateless_languages", "plperl, other")]);
    for sql in keeping {
        assert!(!keeps(sql), "{sql}");
    }
}

fn a_new_session_holds_nothing(version: Version) {
    let gate = Gate::new(version, &[]);
    gate.server.execute(&format!("ALTER DATABASE {} SET work_mem = '5MB'", gate.database.name));
    let mut session = Session::new(&gate);
    assert_eq!(session.report, "");
    run(&mut gate.session(), "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)");
    session.run("BEGIN");
    session.run("COMMIT");
    let catalog = session.catalog;
    session.reports = 0;
    for sql in [
        "SELECT 1",
        "SELECT count(*) FROM pg_class",
        "INSERT INTO t VALUES (2)",
        "BEGIN",
        "SELECT * FROM t",
        "UPDATE t SET a = a + 10",
        "SAVEPOINT s",
        "DELETE FROM t",
        "ROLLBACK TO s",
        "COMMIT",
        "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY",
        "SET TRANSACTION READ WRITE",
        "ROLLBACK",
        "BEGIN; SET LOCAL work_mem = '6MB'; SELECT 1; COMMIT",
        "SELECT 1/0",
        "SELEC",
        "COPY t TO STDOUT",
        "SHOW work_mem",
        "DECLARE c CURSOR WITH HOLD FOR SELEC",
        "SELECT pg_advisory_xact_lock(1)",
        "VACUUM t",
        "ANALYZE t",
        "NOTIFY c",
        "SET LOCAL work_mem = '6MB'",
        "SELECT set_config('work_mem', '7MB', true)",
        "BEGIN; DECLARE c CURSOR FOR SELECT 1; FETCH c; COMMIT",
        "DO $$ BEGIN PERFORM 1; EXCEPTION WHEN OTHERS THEN NULL; END $$",
        "EXPLAIN ANALYZE SELECT * FROM t",
    ] {
        session.run(sql);
        assert_eq!(session.reports, 0, "{sql}: {} {}", session.report, session.catalog);
    }
    session.talk(&Script::new().parse("named", "SELECT 1").bind("named", &[]).execute().sync());
    assert_eq!((session.report.as_str(), session.catalog), ("", catalog));
    assert_eq!(session.reports, 0);
}

fn settings_are_told_with_their_values(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    session.holds("SET app.tenant = '7'", "set=app.tenant:7");
    assert_eq!(session.report, "set=6170702e74656e616e74:37");
    session.holds("SET work_mem = '5MB'", "set=app.tenant:7,work_mem:5120");
    session.holds("SET app.tenant = ''", "set=app.tenant:,work_mem:5120");
    session.holds("RESET work_mem", "set=app.tenant:");
    session.holds("RESET app.tenant", "");
    session.holds("SET search_path = \"$user\", public, \"a,b\"", "set=search_path:\"$user\", public, \"a,b\"");
    session.holds("RESET ALL", "");
    session.holds("SET TIME ZONE 'Europe/Berlin'", "set=TimeZone:Europe/Berlin");
    session.holds(
        "SET DateStyle = 'German'; SET enable_seqscan = false",
        "set=DateStyle:German, DMY,TimeZone:Europe/Berlin,enable_seqscan:off",
    );
    session.holds("RESET ALL", "");
    session.holds(
        "SET random_page_cost = 1.1; SET statement_timeout = '1min'",
        "set=random_page_cost:1.1,statement_timeout:60000",
    );
    session.holds("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ; RESET random_page_cost; RESET statement_timeout", "set=default_transaction_isolation:repeatable read");
    session.holds(
        "SET app.name = 'Zoë, \"the\" one: =x'; RESET default_transaction_isolation",
        "set=app.name:Zoë, \"the\" one: =x",
    );
    // A value too large to tell.
    session.holds("SELECT set_config('app.name', repeat('x', 1100000), false)", "pins=load set=app.name:");
    session.holds("RESET app.name", "");
    // One that is as it was is set, nevertheless.
    session.holds("RESET ALL; SET work_mem = '4MB'", "set=work_mem:4096");
}

fn values_come_back_by_set_config(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::of(&gate, "postgres");
    for (name, value) in [
        ("app.tenant", "it's \\ one"),
        ("search_path", "\"$user\", \"a b\", c"),
        ("TimeZone", "INTERVAL '-08:00' HOUR TO MINUTE"),
        ("TimeZone", "5.5"),
        ("TimeZone", "<+03>-3"),
        ("DateStyle", "SQL, DMY"),
        ("IntervalStyle", "iso_8601"),
        ("client_encoding", "LATIN1"),
        ("bytea_output", "escape"),
        ("random_page_cost", "0.1"),
        ("cursor_tuple_fraction", "1e-7"),
        ("work_mem", "77kB"),
        ("statement_timeout", "1.5min"),
        ("vacuum_cost_delay", "1.7"),
        ("enable_sort", "false"),
        ("synchronous_commit", "remote_apply"),
        ("default_transaction_isolation", "serializable"),
        ("temp_tablespaces", "pg_default"),
        ("xmlbinary", "hex"),
        ("log_min_duration_statement", "-1"),
        ("session_replication_role", "replica"),
        ("local_preload_libraries", "'a b', c"),
    ] {
        session.holds("RESET ALL", "");
        let said = session.run(&format!(
            "SET {name} = {}",
            match value {
                _ if name == "search_path" || name == "local_preload_libraries" => value.to_owned(),
                _ if name == "TimeZone" && value.starts_with('I') => format!("'{}'", value.replace('\'', "''")),
                _ => format!("'{}'", value.replace('\'', "''")),
            }
        ));
        if said.contains("E(") && name == "TimeZone" {
            continue;
        }
        assert!(!said.contains("E("), "{name}: {said}");
        let (report, shown) = (session.report.clone(), session.value(&format!("SHOW {name}")));
        let settings = settings_of(&report);
        assert_eq!(settings.len(), 1, "{name}: {}", session.held);
        session.holds("RESET ALL", "");
        let (name, value) = &settings[0];
        session.run(&format!("SELECT set_config('{name}', '{}', false)", value.replace('\'', "''")));
        assert_eq!(session.report, report, "{name}");
        assert_eq!(session.value(&format!("SHOW {name}")), shown, "{name}");
    }
}

fn settings_follow_their_transaction(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    session.holds("BEGIN", "");
    session.holds("SET app.a = '1'", "");
    session.holds("COMMIT", "set=app.a:1");
    session.holds("BEGIN", "set=app.a:1");
    session.holds("SET app.a = '2'", "set=app.a:1");
    session.holds("ROLLBACK", "set=app.a:1");
    session.holds(
        "BEGIN; SET app.b = '1'; SAVEPOINT s; SET app.b = '2'; SET app.c = '3'; ROLLBACK TO s; COMMIT",
        "set=app.a:1,app.b:1",
    );
    session.holds("BEGIN; SAVEPOINT s; SET app.b = '2'; RELEASE s; COMMIT", "set=app.a:1,app.b:2");
    session.holds("BEGIN; SET app.b = '4'; SET LOCAL app.b = '5'; COMMIT", "set=app.a:1,app.b:4");
    session.holds("BEGIN; RESET app.b; ROLLBACK", "set=app.a:1,app.b:4");
    session.holds("BEGIN; RESET app.b; COMMIT", "set=app.a:1");
    session.holds("BEGIN; DISCARD PLANS; RESET ALL; COMMIT", "");
    session.holds("BEGIN; SET app.a = '3'; COMMIT AND CHAIN", "set=app.a:3");
    session.holds("SET app.a = '4'; ROLLBACK AND CHAIN", "set=app.a:3");
    session.holds("RESET app.a", "set=app.a:3");
    session.holds("COMMIT", "");
    // Reported in a transaction that sets it, too.
    session.holds("BEGIN; SET app.a = '5'; COMMIT; BEGIN; SET app.b = '6'", "set=app.a:5,app.b:6");
    session.holds("ROLLBACK", "set=app.a:5");
}

fn every_way_to_set_is_seen(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    session.run("CREATE FUNCTION set_it(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('SET app.f = %L', $1); END $$");
    session.run("CREATE FUNCTION set_it_inside(text) RETURNS void LANGUAGE plpgsql SET work_mem = '8MB' AS $$ BEGIN PERFORM set_config('app.g', $1, false); END $$");
    session.run("CREATE FUNCTION set_its_own() RETURNS void LANGUAGE plpgsql SET work_mem = '8MB' AS $$ BEGIN SET work_mem = '9MB'; END $$");
    session.run(
        "CREATE FUNCTION set_by_sql(text) RETURNS text LANGUAGE sql AS $$ SELECT set_config('app.h', $1, false) $$",
    );
    session.run("CREATE FUNCTION assigns() RETURNS void LANGUAGE plpgsql AS $$ DECLARE x text; BEGIN x := set_config('app.i', '1', false); END $$");
    session.run("CREATE TABLE t (a text)");
    session.run("CREATE FUNCTION tr() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('app.t', NEW.a, false); RETURN NEW; END $$");
    session.run("CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION tr()");
    session.holds("SELECT set_config('app.a', '1', false)", "set=app.a:1");
    session.holds("SELECT set_config('app.a', '2', true)", "set=app.a:1");
    session.holds("RESET app.a", "");
    session.holds("UPDATE pg_settings SET setting = '6MB' WHERE name = 'work_mem'", "set=work_mem:6144");
    session.holds("RESET ALL; SELECT set_it('1')", "set=app.f:1");
    session.holds("RESET ALL; SELECT set_it_inside('2')", "set=app.g:2");
    session.holds("RESET ALL; SELECT set_its_own()", "set=work_mem:9216");
    session.holds("RESET ALL; SELECT set_by_sql(x) FROM (VALUES ('3')) v (x)", "set=app.h:3");
    session.holds("RESET ALL; SELECT assigns(); SELECT 1", "set=app.i:1");
    session.holds("RESET ALL; INSERT INTO t VALUES ('4')", "set=app.t:4");
    session.holds("RESET ALL; DO $$ BEGIN SET app.d = '5'; END $$", "set=app.d:5");
    session.holds(
        "RESET ALL; PREPARE p AS SELECT set_config('app.p', $1, false); EXECUTE p('6'); DEALLOCATE p",
        "set=app.p:6",
    );
    session.holds(
        "RESET ALL; BEGIN; DECLARE c CURSOR FOR SELECT set_config('app.c', '7', false); FETCH c; COMMIT",
        "set=app.c:7",
    );
    session.holds("RESET ALL; COPY (SELECT set_config('app.y', '8', false)) TO STDOUT", "set=app.y:8");
    session.holds("RESET ALL; CREATE TABLE made AS SELECT set_config('app.z', '9', false)", "set=app.z:9");
    session.holds("RESET ALL", "");

    let script = Script::new().unnamed("SELECT set_config($1, $2, false)", &[Some("app.e"), Some("1")]).sync();
    session.talk(&script);
    assert_eq!(session.held, "set=app.e:1");
    session.talk(&Script::new().unnamed("SET app.e = '2'", &[]).sync());
    assert_eq!(session.held, "set=app.e:2");
    session.talk(&Script::new().unnamed("RESET ALL", &[]).sync());
    assert_eq!(session.held, "");
    let set_config: u32 = session.value("SELECT 'set_config'::regproc::oid").parse().unwrap();
    session.talk(&Script::new().call(set_config, &[b"app.q", b"1", &[0]]));
    assert_eq!(session.held, "set=app.q:1");
    session.talk(&Script::new().call(set_config, &[b"app.q", b"2", &[1]]));
    assert_eq!(session.held, "set=app.q:1");
}

fn functions_by_other_names_are_seen(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut superuser = Session::of(&gate, "postgres");
    superuser
        .run("CREATE SEQUENCE s; CREATE FUNCTION next(regclass) RETURNS bigint LANGUAGE internal AS 'nextval_oid'");
    superuser.run("CREATE FUNCTION lock_it(bigint) RETURNS void LANGUAGE internal AS 'pg_advisory_lock_int8'");
    superuser.run("CREATE FUNCTION nothing() RETURNS int LANGUAGE sql AS 'SELECT 1'");
    superuser.holds("SELECT nothing()", "");
    superuser.holds("SELECT next('s')", "pins=sequence");
    superuser.holds("SELECT lock_it(1)", "pins=lock,sequence");
    superuser.holds("DISCARD ALL", "");
    // A function that is replaced is looked at anew.
    superuser.run("CREATE OR REPLACE FUNCTION next(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'");
    superuser.holds("SELECT next('s')", "");
    // The only server that comes with a library that changes a setting by itself.
    if version == Version::V15 {
        superuser.run("CREATE EXTENSION pg_trgm");
        superuser.holds("SELECT set_limit(0.5)", "set=pg_trgm.similarity_threshold:0.5");
        superuser.holds("BEGIN; SELECT set_limit(0.75); ROLLBACK", "set=pg_trgm.similarity_threshold:0.5");
        superuser.holds("RESET ALL", "");
    }
}

fn roles_are_settings(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut superuser = Session::of(&gate, "postgres");
    superuser.holds("SET ROLE app", "set=role:app");
    superuser.holds("BEGIN; RESET ROLE; ROLLBACK", "set=role:app");
    superuser.holds("SET ROLE NONE", "set=role:none");
    superuser.holds("RESET ROLE", "");
    superuser.run("SET SESSION AUTHORIZATION app");
    assert!(superuser.held.contains("session_authorization:app"), "{}", superuser.held);
    assert!(!superuser.held.contains("is_superuser"));
    superuser.holds("RESET SESSION AUTHORIZATION", "");
    superuser.holds("BEGIN; SET LOCAL ROLE app; COMMIT", "");
}

fn discard_all_lets_go(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    session.holds(
        "SET app.a = '1'; LISTEN a; SELECT pg_advisory_lock(1); PREPARE p AS SELECT 1; CREATE TEMP SEQUENCE s;
         SELECT nextval('s'); DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        "pins=temp,lock,listen,cursor,prepare,sequence set=app.a:1",
    );
    session.holds("DISCARD ALL", "");
}

fn procedures_may_commit(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    session.run(
        "CREATE PROCEDURE p() LANGUAGE plpgsql AS $$
         DECLARE x text;
         BEGIN
           SET app.a = '1'; COMMIT;
           SET app.b = '2'; ROLLBACK;
           x := set_config('app.c', '3', false); COMMIT;
           x := set_config('app.c', '4', false); ROLLBACK;
           FOR i IN 1..2 LOOP x := set_config('app.d', i::text, false); COMMIT; END LOOP;
           PERFORM pg_advisory_lock(1); ROLLBACK;
           CREATE TEMP TABLE t (a int); COMMIT;
           SET LOCAL app.e = '5';
         END $$",
    );
    session.holds("CALL p()", "pins=temp,lock set=app.a:1,app.c:3,app.d:2");
    session.holds("DISCARD ALL", "");
    session.holds("DO $$ BEGIN SET app.a = '1'; COMMIT; RESET app.a; END $$", "");
    session
        .holds_after_error("DO $$ BEGIN SET app.a = '1'; COMMIT; SET app.a = '2'; PERFORM 1/0; END $$", "set=app.a:1");
}

fn strings_of_several_statements(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    session.holds("SET app.a = '1'; SELECT 1", "set=app.a:1");
    session.holds_after_error("SET app.a = '2'; SELECT 1/0", "set=app.a:1");
    session.holds_after_error("BEGIN; SET app.a = '3'; COMMIT; SELECT 1/0", "set=app.a:3");
    session.holds_after_error("SET app.a = '4'; COMMIT; SET app.b = '5'; SELECT 1/0", "set=app.a:4");
    // A pipeline is a transaction.
    session.raw.send(
        &Script::new()
            .unnamed("SET app.a = '6'", &[])
            .unnamed("SELECT 1/0", &[])
            .sync()
            .unnamed("SET app.a = '7'", &[])
            .sync(),
    );
    session.talk(&Script::new());
    assert_eq!(session.held, "set=app.a:4");
    session.talk(&Script::new());
    assert_eq!(session.held, "set=app.a:7");
}

fn errors_are_told_as_well(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    session.holds_after_error("SET app.a = '1'; SET work_mem = 'much'", "");
    session.holds("BEGIN", "");
    session.holds("SET app.a = '1'; SELECT pg_advisory_lock(1)", "");
    session.holds_after_error("SELECT 1/0", "pins=lock");
    session.holds_after_error("SET app.b = '1'", "pins=lock");
    session.holds("ROLLBACK", "pins=lock");
    session.holds("SELECT pg_advisory_unlock_all()", "");
    session.holds(
        "DO $$ BEGIN SET app.a = '1'; BEGIN SET app.a = '2'; PERFORM 1/0; EXCEPTION WHEN OTHERS THEN NULL; END; END $$",
        "set=app.a:1",
    );
}

fn prepared_transactions_leave_settings(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    session.holds("BEGIN; SET app.a = '1'; PREPARE TRANSACTION 'one'", "set=app.a:1");
    session.holds("ROLLBACK PREPARED 'one'", "set=app.a:1");
}

fn other_processes_are_left_alone(version: Version) {
    let gate = Gate::new(version, &[("max_parallel_workers_per_gather", "2")]);
    let mut superuser = Session::of(&gate, "postgres");
    superuser.run("CREATE TABLE t AS SELECT g AS a FROM generate_series(1, 50000) g; ANALYZE t");
    let parallel = "parallel_setup_cost=0 parallel_tuple_cost=0 min_parallel_table_scan_size=0";
    for setting in parallel.split(' ') {
        superuser.run(&format!("SET {setting}"));
    }
    let held = superuser.held.clone();
    assert!(superuser.run("EXPLAIN SELECT count(*) FROM t").contains("Gather"));
    superuser.holds("SET app.a = '1'; SELECT count(*) FROM t", &held.replace("set=", "set=app.a:1,"));
    superuser.holds("BEGIN; SET app.a = '2'; SELECT count(*) FROM t; ROLLBACK", &held.replace("set=", "set=app.a:1,"));
}
