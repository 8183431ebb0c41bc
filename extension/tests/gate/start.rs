//! Settings that a session shall have started with.

use sluice_testkit::{Version, becomes, versions};

use crate::{server::Gate, session::Session};

versions!(
    a_start_is_what_reset_goes_back_to,
    a_start_goes_back_to_the_servers_own,
    a_start_needs_what_set_needs,
    a_start_does_not_follow_the_transaction,
    a_reload_is_not_lost,
);

fn session(gate: &Gate, user: &str) -> Session {
    let mut superuser = Session::of(gate, "postgres");
    superuser.run("CREATE EXTENSION IF NOT EXISTS sluice");
    Session::of(gate, user)
}

/// Value, source and value after RESET of a setting.
fn state(session: &mut Session, name: &str) -> String {
    session.value(&format!("SELECT concat_ws('/', setting, source, reset_val) FROM pg_settings WHERE name = '{name}'"))
}

fn a_start_is_what_reset_goes_back_to(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = session(&gate, "app");
    session.holds("SELECT public.sluice_set_start('work_mem', '5MB')", "");
    assert_eq!(state(&mut session, "work_mem"), "5120/client/5120");
    session.holds("SET work_mem = '6MB'", "set=work_mem:6144");
    session.holds("RESET work_mem", "");
    assert_eq!(state(&mut session, "work_mem"), "5120/client/5120");
    session.holds("SET work_mem = '6MB'", "set=work_mem:6144");
    session.holds("SELECT public.sluice_set_start('work_mem', '7MB')", "set=work_mem:6144");
    session.holds("DISCARD ALL", "");
    assert_eq!(state(&mut session, "work_mem"), "7168/client/7168");
    session.holds("SELECT public.sluice_set_start('app.tenant', '7')", "");
    session.holds("SET app.tenant = '8'; RESET app.tenant", "");
    assert_eq!(session.value("SHOW app.tenant"), "7");
    assert!(session.run("SELECT public.sluice_set_start('application_name', 'me')").contains("S(application_name=me)"));
    assert!(
        session.run("SELECT public.sluice_set_start('TimeZone', 'Europe/Rome')").contains("S(TimeZone=Europe/Rome)")
    );
    assert!(
        session
            .run("SELECT public.sluice_set_start('client_encoding', 'LATIN1')")
            .contains("S(client_encoding=LATIN1)")
    );
    session.holds("BEGIN; SET LOCAL TimeZone = 'UTC'; COMMIT", "");
    assert_eq!(session.value("SHOW TimeZone"), "Europe/Rome");
}

fn a_start_goes_back_to_the_servers_own(version: Version) {
    let gate = Gate::new(version, &[]);
    let database = &gate.database.name;
    gate.server.execute(&format!(
        "ALTER DATABASE {database} SET work_mem = '3MB'; ALTER ROLE app IN DATABASE {database} SET search_path = 'of_role', public"
    ));
    let mut session = session(&gate, "app");
    let names = [
        "work_mem",
        "search_path",
        "TimeZone",
        "DateStyle",
        "client_encoding",
        "enable_sort",
        "random_page_cost",
        "application_name",
        "bytea_output",
        "statement_timeout",
        "temp_tablespaces",
        "log_min_messages",
    ];
    let all = |session: &mut Session| names.map(|name| state(session, name));
    let before = all(&mut session);
    for (name, value) in [
        ("work_mem", "5MB"),
        ("search_path", "\"a b\", c"),
        ("TimeZone", "Asia/Tokyo"),
        ("DateStyle", "German"),
        ("client_encoding", "LATIN9"),
        ("enable_sort", "off"),
        ("random_page_cost", "1.7"),
        ("application_name", "x"),
        ("bytea_output", "escape"),
        ("statement_timeout", "1h"),
        ("app.a", "1"),
        ("app.b", "2"),
    ] {
        session.holds(&format!("SELECT public.sluice_set_start('{name}', '{value}')"), "");
        session.holds(&format!("SELECT public.sluice_set_start('{name}', '{value}')"), "");
    }
    assert_ne!(all(&mut session), before);
    session.holds("SET work_mem = '9MB'", "set=work_mem:9216");
    session.holds("SELECT public.sluice_set_start('work_mem', NULL)", "set=work_mem:9216");
    session.holds(
        "SELECT public.sluice_set_start('app.a', NULL); SELECT public.sluice_set_start('not.there', NULL)",
        "set=work_mem:9216",
    );
    session.holds("SELECT public.sluice_set_start(NULL, NULL)", "set=work_mem:9216");
    session.holds("RESET work_mem", "");
    assert_eq!(all(&mut session), before);
    assert_eq!(session.value("SELECT current_setting('app.a') || current_setting('app.b')"), "");
    // A parallel worker has the same.
    session.holds("SELECT public.sluice_set_start('work_mem', '5MB')", "");
    let workers = "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0";
    session.run(workers);
    assert_eq!(session.value("SELECT DISTINCT current_setting('work_mem') FROM pg_class"), "5MB");
}

fn a_start_needs_what_set_needs(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = session(&gate, "app");
    for (sql, code) in [
        ("SELECT public.sluice_set_start('log_statement', 'all')", "42501"),
        ("SELECT public.sluice_set_start('shared_buffers', '1GB')", "55P02"),
        ("SELECT public.sluice_set_start('log_connections', 'on')", "55P02"),
        ("SELECT public.sluice_set_start('ignore_system_indexes', 'on')", "55P02"),
        ("SELECT public.sluice_set_start('server_version', '1')", "55P02"),
        ("SELECT public.sluice_set_start('sluice.session', '')", "55P02"),
        ("SELECT public.sluice_set_start('role', 'postgres')", "42501"),
        ("SELECT public.sluice_set_start('role', 'app')", "55P02"),
        ("SELECT public.sluice_set_start('work_mem', 'much')", "22023"),
        ("SELECT public.sluice_set_start('no_such_thing', '1')", "42704"),
        ("SELECT public.sluice_set_start(NULL, '1')", "22004"),
        ("SELECT public.sluice_set_start('transaction_read_only', 'on')", "55P02"),
    ] {
        let said = session.run(sql);
        assert!(said.contains(&format!("E({code})")), "{sql}: {said}");
    }
    let mut superuser = Session::of(&gate, "postgres");
    superuser.holds("SELECT public.sluice_set_start('log_statement', 'all'); SET ROLE app", "set=role:app");
    assert!(superuser.run("SELECT public.sluice_set_start('log_statement', NULL)").contains("E(42501)"));
    assert!(superuser.run("SELECT public.sluice_set_start(NULL, NULL)").contains("E(42501)"));
    assert!(state(&mut superuser, "log_statement").starts_with("all/client"));
    superuser.holds("RESET ROLE; SELECT public.sluice_set_start('log_statement', NULL)", "");
    assert_eq!(state(&mut superuser, "log_statement"), "none/default/none");

    // What an index computes leaves nothing behind in the session of who makes it.
    session.run(
        "CREATE TABLE t (a text); INSERT INTO t VALUES ('x');
         CREATE FUNCTION f(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
           $$ BEGIN PERFORM public.sluice_set_start('work_mem', '77MB'); RETURN $1; END $$",
    );
    assert!(superuser.run("CREATE INDEX ON t (f(a))").contains("E(42501)"));
    assert_ne!(superuser.value("SHOW work_mem"), "77MB");
}

fn a_start_does_not_follow_the_transaction(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = session(&gate, "app");
    session.holds("BEGIN; SELECT public.sluice_set_start('work_mem', '5MB'); ROLLBACK", "");
    assert_eq!(session.value("SHOW work_mem"), "5MB");
    session.holds("BEGIN; SELECT public.sluice_set_start('work_mem', NULL); ROLLBACK", "");
    assert_eq!(session.value("SHOW work_mem"), "4MB");
    for sql in [
        "BEGIN; SET LOCAL work_mem = '6MB'; SELECT public.sluice_set_start('work_mem', '5MB')",
        "BEGIN; SET work_mem = '6MB'; SELECT public.sluice_set_start('work_mem', '5MB')",
    ] {
        let said = session.run(sql);
        assert!(said.contains("E(25001)"), "{sql}: {said}");
        session.holds("ROLLBACK", "");
        assert_eq!(session.value("SHOW work_mem"), "4MB");
    }
}

fn a_reload_is_not_lost(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = session(&gate, "app");
    session
        .holds("SELECT public.sluice_set_start('log_error_verbosity', NULL); SELECT public.sluice_set_start('work_mem', '5MB')", "");
    gate.server.execute("ALTER SYSTEM SET work_mem = '6MB'");
    gate.server.execute("SELECT pg_reload_conf()");
    becomes("work_mem", "6MB".to_owned(), || gate.server.value("SHOW work_mem"));
    // What the session has taken notice of does not get through, as with what a client had asked for.
    becomes("the session has read it", "5MB".to_owned(), || session.value("SHOW work_mem"));
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(session.value("SHOW work_mem"), "5MB");
    session.holds("SELECT public.sluice_set_start('work_mem', NULL)", "");
    let now = session.value("SHOW work_mem");
    gate.server.execute("ALTER SYSTEM RESET work_mem");
    gate.server.execute("SELECT pg_reload_conf()");
    assert_eq!(now, "6MB");
    becomes("work_mem", "4MB".to_owned(), || session.value("SHOW work_mem"));
}
