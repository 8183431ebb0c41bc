//! Settings that a session has and could not make itself, or has not made itself, as scripts that are run beside
//! PostgreSQL.

use sluice_testkit::{Case, Version, matrix};
use sluice_wire::startup::ProtocolVersion;

use crate::beside::{Beside, beside, beside_with, s, shown};

matrix!(transaction:
    settings_of_superusers_stay_with_their_client,
    roles_that_are_taken_away,
    roles_that_are_taken_away_in_another_database,
    roles_that_a_client_began_with_are_left,
    settings_of_a_login_trigger,
    custom_settings_of_a_login_trigger,
);

/// A superuser does something, in both databases.
fn by_a_superuser(b: &Beside, sql: &str) {
    for database in &b.databases {
        b.place.execute_as_superuser_in(database, sql);
    }
}

fn settings_of_superusers_stay_with_their_client(case: Case) {
    beside(case, &[&[], &[], &[]], |b| {
        by_a_superuser(
            b,
            "CREATE TABLE o(x int PRIMARY KEY); CREATE TABLE r(x int REFERENCES o); GRANT ALL ON r, o TO app;
             CREATE FUNCTION off(name text, value text) RETURNS text LANGUAGE sql SECURITY DEFINER
             AS $$SELECT set_config(name, value, false)$$",
        );
        for (name, value) in [("session_replication_role", "replica"), ("temp_file_limit", "64kB")] {
            let shows = format!("SELECT current_setting('{name}'), current_setting('log_statement')");
            b.query(0, &format!("SELECT off('{name}', '{value}')"));
            for client in [1, 2, 0, 1] {
                b.query(client, &shows);
            }
            b.query(1, "BEGIN READ WRITE");
            b.query(1, "INSERT INTO r VALUES (99)");
            b.query(0, &shows);
            b.query(1, "COMMIT");
            b.query(0, &format!("RESET {name}"));
            b.query(2, &shows);
            b.query(0, "RESET ALL");
            b.on_each_server(0, 1, &s().query(&shows));
            // One that goes with it.
            b.query(0, &format!("SELECT off('{name}', '{value}')"));
            b.clients(&[&[], &[], &[]]);
            b.on_each_server(0, 1, &s().query(&shows));
        }
    });
}

/// Nothing runs under the role that a client has without it; where PostgreSQL goes on, a session in a pool ends.
fn roles_that_are_taken_away(case: Case) {
    beside(case, &[&[], &[]], |b| {
        let role = format!("lent_{}", b.databases[0]);
        b.place.execute_as_superuser_in(&b.databases[0], &format!("CREATE ROLE {role}; GRANT {role} TO app"));
        b.query(0, &format!("SET ROLE {role}"));
        // When that is answered, its server has been left.
        b.query(0, "SELECT 1");
        b.query(1, "BEGIN READ WRITE");
        b.query(1, "SELECT 1");
        b.place.execute_as_superuser_in(&b.databases[0], &format!("REVOKE {role} FROM app"));
        b.pooled[0].send(&s().query("SELECT current_user"));
        let heard = b.pooled[0].message().map(|message| shown(&message)).unwrap_or_default();
        assert!(heard.starts_with("FATAL 42501"), "{heard}");
        b.query(1, "COMMIT");
        b.query(1, "SELECT current_user");
    });
}

/// Roles are the same in all databases: what was shared before goes by other rights.
fn roles_that_are_taken_away_in_another_database(case: Case) {
    beside(case, &[&[], &[]], |b| {
        let role = format!("elsewhere_{}", b.databases[0]);
        b.place.execute_as_superuser_in(&b.databases[0], &format!("CREATE ROLE {role}; GRANT {role} TO app"));
        by_a_superuser(
            b,
            &format!(
                "CREATE SCHEMA s; CREATE TABLE s.t (a int); GRANT SELECT ON s.t TO app; GRANT USAGE ON SCHEMA s TO {role}"
            ),
        );
        let named = s().close("a").parse("a", "SELECT a FROM s.t").bind("a", &[]).execute().sync();
        let unnamed = s().parse("", "SELECT a FROM s.t").bind("", &[]).execute().sync();
        for script in [&named, &unnamed] {
            b.on_each_server(0, 1, script);
        }
        let mut elsewhere = b.pool.raw();
        elsewhere.login_with(ProtocolVersion::V3_0, &[("user", "postgres"), ("database", "postgres")]);
        assert_eq!(elsewhere.query(&format!("REVOKE {role} FROM app")), "C(REVOKE ROLE) Z(I)");
        for script in [&named, &unnamed] {
            let heard = b.says(0, script);
            assert!(heard.contains("42501"), "{heard}");
        }
    });
}

/// RESET goes back to them; what gives one up does not.
fn roles_that_a_client_began_with_are_left(case: Case) {
    let shows = s().query("SELECT session_user, current_user, current_setting('role')");
    beside(case, &[], |b| {
        b.clients(&[&[("options", "-c role=trusted")], &[]]);
        b.on_each_server(0, 1, &shows);
        for act in [
            "SET ROLE NONE",
            "RESET ROLE",
            "SET SESSION role = 'none'",
            "DISCARD ALL",
            "SELECT set_config('role', 'none', false)",
            "SELECT 1",
            "SET ROLE TO DEFAULT",
            "SET SESSION AUTHORIZATION app",
            "RESET SESSION AUTHORIZATION",
            "SET ROLE NONE; RESET ROLE",
            "RESET ROLE; SET ROLE NONE",
            "BEGIN; RESET ROLE; ROLLBACK",
            "SET SESSION AUTHORIZATION DEFAULT; SET ROLE NONE",
            "SET ROLE trusted",
            "BEGIN; SET ROLE NONE; COMMIT",
            "RESET ALL",
            "RESET ROLE; SELECT 1/0",
            "SET LOCAL ROLE TO DEFAULT",
            "RESET ROLE",
            "SET ROLE NONE; SELECT 1/0",
            "BEGIN; SET LOCAL ROLE NONE; COMMIT",
            "SELECT set_config('role', 'none', true)",
        ] {
            b.query(0, act);
            b.on_each_server(0, 1, &shows);
            b.says(1, &shows);
        }
        for act in ["SET ROLE NONE", "RESET ROLE", "SET ROLE NONE", "SELECT 1", "SET ROLE TO DEFAULT"] {
            b.says(0, &s().unnamed(act, &[]).sync());
            b.on_each_server(0, 1, &shows);
            b.query(0, "BEGIN READ WRITE");
            b.says(0, &s().unnamed(act, &[]).sync());
            b.says(0, &shows);
            b.query(0, "COMMIT");
            b.on_each_server(0, 1, &shows);
        }
    });
}

/// Each log-in does this.
pub(crate) fn at_log_ins(b: &Beside, sql: &str) {
    let function = format!("CREATE FUNCTION at_log_in() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN {sql} END$$");
    let trigger = "CREATE EVENT TRIGGER at_log_in ON login EXECUTE FUNCTION at_log_in()";
    by_a_superuser(b, &format!("{function}; {trigger}; ALTER EVENT TRIGGER at_log_in ENABLE ALWAYS"));
}

/// They are the session's from its start, and RESET takes them away.
fn settings_of_a_login_trigger(case: Case) {
    if case.version != Version::V18 {
        return;
    }
    beside(case, &[], |b| {
        at_log_ins(b, "PERFORM set_config('work_mem', '8MB', false);");
        b.clients(&[&[], &[], &[("application_name", "named")]]);
        let shows = s().query("SELECT current_setting('work_mem'), current_setting('application_name')");
        for client in [0, 1, 2] {
            b.says(client, &shows);
            b.on_each_server(client, (client + 1) % 3, &shows);
        }
        for act in ["SET work_mem = '1MB'", "RESET work_mem", "SET work_mem = '8MB'", "DISCARD ALL"] {
            b.query(0, act);
            b.says(1, &shows);
            b.says(2, &shows);
            b.on_each_server(0, 1, &shows);
            b.on_each_server(2, 0, &shows);
        }
        b.query(2, "RESET ALL");
        b.on_each_server(2, 0, &shows);
        b.on_each_server(1, 0, &shows);
        // Another function in its place counts from the next log-in on, and so does one that has been altered.
        let returns = "RETURNS event_trigger LANGUAGE plpgsql";
        let sets = "AS $$BEGIN PERFORM set_config('work_mem', '9MB', false); END$$";
        for change in [
            &format!("CREATE OR REPLACE FUNCTION at_log_in() {returns} {sets}"),
            "ALTER FUNCTION at_log_in() SET work_mem = '3MB'",
            "DROP FUNCTION at_log_in() CASCADE",
        ] {
            b.clients(&[&[("user", "postgres")]]);
            b.query(0, change);
            b.clients(&[&[], &[]]);
            b.on_each_server(0, 1, &shows);
        }
    });
}

fn custom_settings_of_a_login_trigger(case: Case) {
    if case.version != Version::V18 {
        return;
    }
    for extension in [false, true] {
        beside_with(case, extension, &[], |b| {
            at_log_ins(b, "PERFORM set_config('app.login', session_user, false);");
            b.clients(&[&[], &[], &[("application_name", "named")]]);
            let shows = s().query("SELECT current_setting('app.login', true), current_setting('app.other', true)");
            for client in [0, 1, 2] {
                b.on_each_server(client, (client + 1) % 3, &shows);
            }
            let acts = ["SET app.login = 'mine'", "RESET app.login", "SET app.other = 'x'", "DISCARD ALL"];
            for act in acts.into_iter().filter(|_| extension) {
                b.query(0, act);
                b.says(1, &shows);
                b.on_each_server(0, 1, &shows);
                b.on_each_server(2, 0, &shows);
            }
        });
    }
}
