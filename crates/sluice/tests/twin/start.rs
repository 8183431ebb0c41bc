//! The beginning and the end of sessions, and log-ins that come later; beside PostgreSQL.

use std::{thread, time::Duration};

use sluice_testkit::{Case, Raw, Version, matrix};
use sluice_wire::{BackendKind, startup::ProtocolVersion};

use crate::{
    beside::{Startup, beside, s, shown},
    ignored::ordered,
};

matrix!(transaction:
    start_values_in_order,
    clients_that_rest,
    log_ins_that_come_later,
    date_styles_are_completed_from_the_configurations,
    new_defaults_are_for_those_who_come_later,
    a_description_goes_by_what_is_reset_before_it,
);

fn start_values_in_order(case: Case) {
    let starts: &[Startup<'_>] = &[
        &[("options", "-c DateStyle=German"), ("DateStyle", "ISO")],
        &[("DateStyle", "DMY"), ("options", "-c DateStyle=SQL")],
        &[("options", "--DateStyle=Postgres -e -c DateStyle=SQL")],
        &[("DateStyle", "YMD"), ("datestyle", "SQL")],
        &[("options", "-S 7MB -c work_mem=6MB"), ("application_name", "it's \\ one")],
    ];
    beside(case, starts, |b| {
        for client in 0..starts.len() {
            b.query(client, "SHOW DateStyle; SHOW work_mem; SHOW application_name");
            for sql in ["SET DateStyle = 'DMY'", "RESET DateStyle", "SHOW DateStyle"] {
                b.query(client, sql);
            }
        }
        let refused: &[Startup<'_>] = &[
            &[("no_such_parameter", "1"), ("options", "-c work_mem=no")],
            &[("work_mem", "no"), ("DateStyle", "none")],
            &[("DateStyle", "none"), ("work_mem", "no")],
            &[("options", "-c DateStyle=none"), ("DateStyle", "ISO")],
            &[("options", "-c geqo")],
            &[("options", "--geqo")],
            &[("options", "geqo=off")],
            &[("options", "-c")],
            &[("shared_buffers", "1MB")],
            &[("log_statement", "all")],
            &[("server_version", "1")],
            &[("role", "nobody_at_all")],
        ];
        b.refuses(refused);
    });
}

fn clients_that_rest(case: Case) {
    let hasty: Startup<'_> = &[("idle_session_timeout", "0.3s")];
    beside(case, &[hasty, &[], &[], &[], &[]], |b| {
        b.query(1, "SET idle_session_timeout = 300");
        b.query(2, "BEGIN; SET idle_session_timeout = 300; ROLLBACK");
        b.says(
            3,
            &s().parse("", "SELECT set_config('idle_session_timeout', '300ms', false)").bind("", &[]).execute().sync(),
        );
        // It is not between transactions.
        b.query(4, "SET idle_session_timeout = 300; SET idle_in_transaction_session_timeout = '2s'");
        b.query(4, "BEGIN");
        for client in [0, 1, 3] {
            assert!(
                b.ends(client)
                    .ends_with("FATAL 57P05 terminating connection due to idle-session timeout ProcessInterrupts")
            );
        }
        assert!(b.ends(4).starts_with("FATAL 25P03 "));
        b.query(2, "SELECT 1");
        // A server that is kept ends it by itself.
        b.clients(&[&[], &[], &[]]);
        b.query(0, "CREATE TEMPORARY TABLE kept (id int)");
        b.query(0, "SET idle_session_timeout = 300");
        assert!(b.ends(0).starts_with("FATAL 57P05 "));
        if case.version == Version::V18 {
            b.query(1, "SET transaction_timeout = 300");
            b.query(1, "BEGIN");
            assert!(b.ends(1).starts_with("FATAL 25P04 "));
        }
    });
}

/// Settings that a role's or a database's defaults change in what follows.
const CHANGED: &str = "SHOW work_mem; SHOW search_path; SHOW DateStyle";

/// The messages that a log-in gets, and the connection.
fn log_in(mut raw: Raw, role: &str, database: &str) -> (String, Raw) {
    let said = raw.login_with(ProtocolVersion::V3_0, &[("user", role), ("database", database)]);
    let said =
        ordered(&said).into_iter().filter(|message| BackendKind::from(message.tag) != BackendKind::BackendKeyData);
    (said.map(shown).collect::<Vec<_>>().join(" "), raw)
}

fn values(raw: &mut Raw) -> String {
    raw.send(&s().query(CHANGED));
    ordered(&raw.until_ready(1)).into_iter().map(shown).collect::<Vec<_>>().join(" ")
}

fn log_ins_that_come_later(case: Case) {
    beside(case, &[], |b| {
        // One of two is closed for a client that needs a later one, while the other is still being asked what it holds.
        b.pool = b.place.pool_of(case, 4);
        let database = b.databases[0].clone();
        let role = format!("late_{database}");
        let (_, mut admin) = log_in(b.pool.raw(), "postgres", &database);
        admin.query(&format!("CREATE ROLE {role} LOGIN IN ROLE trusted"));
        let log_in_beside = |expected: &str, change: &str| {
            let [pooled, alone] = [b.pool.raw(), b.place.alone()].map(|raw| log_in(raw, &role, &database));
            assert_eq!(pooled.0, alone.0, "{change}");
            assert!(alone.0.contains(expected), "{change}: {}", alone.0);
            [pooled.1, alone.1]
        };
        let [mut pooled, mut alone] = log_in_beside("Z(I)", "nothing").map(|mut raw| {
            values(&mut raw);
            raw
        });
        for (change, expected) in [
            ("ALTER ROLE {role} SET work_mem = '5MB'", "Z(I)"),
            ("ALTER USER {role} SET search_path = 'elsewhere'", "Z(I)"),
            ("ALTER DATABASE {database} SET DateStyle = 'German, DMY'", "German"),
            ("ALTER ROLE {role} IN DATABASE {database} SET work_mem = '6MB'", "Z(I)"),
            ("DO $$ BEGIN EXECUTE 'ALTER ROLE {role} IN DATABASE {database} SET work_mem = 7000'; END $$", "Z(I)"),
            ("BEGIN; ALTER ROLE {role} RESET ALL; ROLLBACK", "Z(I)"),
            ("BEGIN; ALTER ROLE {role} RESET ALL; COMMIT", "Z(I)"),
            ("ALTER ROLE {role} NOLOGIN", "is not permitted to log in"),
            ("ALTER ROLE {role} LOGIN", "Z(I)"),
            ("UPDATE pg_authid SET rolcanlogin = false WHERE rolname = '{role}'", "is not permitted to log in"),
            ("UPDATE pg_catalog.pg_authid SET rolcanlogin = true WHERE rolname = '{role}'", "Z(I)"),
            ("UPDATE pg_database SET datallowconn = false WHERE datname = '{database}'", "accepting connections"),
            (
                "WITH a AS (UPDATE pg_database SET datallowconn = true WHERE datname = '{database}' RETURNING 1) TABLE a",
                "Z(I)",
            ),
            ("REVOKE CONNECT ON DATABASE {database} FROM PUBLIC", "permission denied for database"),
            ("GRANT CONNECT ON DATABASE {database} TO {role}", "Z(I)"),
            ("REVOKE CONNECT ON DATABASE {database} FROM {role}", "permission denied for database"),
        ] {
            let change = change.replace("{role}", &role).replace("{database}", &database);
            let done = admin.query(&change);
            assert!(done.ends_with("Z(I)") && !done.contains("E("), "{change}: {done}");
            let found = log_in_beside(expected, &change).map(|mut raw| match expected {
                "Z(I)" | "German" => values(&mut raw),
                _ => String::new(),
            });
            assert_eq!(found[0], found[1], "{change}");
            if change.ends_with("'5MB'") {
                // Clients that were there before go on with what there was, on a server of before, once that is at rest.
                thread::sleep(Duration::from_millis(300));
                assert_eq!(values(&mut pooled), values(&mut alone), "{change}");
            }
        }
    });
}

/// A client's `DateStyle` ranks above its database's, which it is not completed from.
fn date_styles_are_completed_from_the_configurations(case: Case) {
    beside(case, &[], |b| {
        let starts: [Startup<'_>; 9] = [
            &[("DateStyle", "ISO")],
            &[("DateStyle", "ISO")],
            &[("DateStyle", "YMD")],
            &[("DateStyle", "German")],
            &[("DateStyle", "default")],
            &[("DateStyle", "German, DEFAULT")],
            &[("options", "-c datestyle=German -c DateStyle=Postgres"), ("DateStyle", "ISO")],
            &[("options", "-c work_mem=7MB -e")],
            &[],
        ];
        for own in ["SQL, DMY", "ISO, MDY", "German"] {
            for database in &b.databases {
                b.place
                    .execute_as_superuser_in(database, &format!("ALTER DATABASE {database} SET DateStyle = '{own}'"));
            }
            // A pool that knows nothing of before.
            b.pool = b.place.pool(case);
            b.clients(&starts);
            for start in starts {
                b.log_in(start);
            }
            for client in 0..starts.len() {
                b.query(client, "SHOW DateStyle; SELECT '01/02/2020'::date");
                b.query(client, "SET DateStyle = 'SQL, YMD'");
                b.query(client, "RESET DateStyle");
                b.query(client, "SHOW DateStyle");
                b.query(client, "BEGIN; SET LOCAL DateStyle = 'Postgres'; RESET ALL; SHOW DateStyle");
                b.query(client, "COMMIT");
                b.query(client, "SHOW DateStyle");
            }
        }
        b.refuses(&[&[("DateStyle", "ISO,")], &[("options", "-c datestyle=ISO"), ("DateStyle", "klingon")]]);
    });
}

/// What a client was told of its `DateStyle` stays, whatever those begin with who log in later.
fn new_defaults_are_for_those_who_come_later(case: Case) {
    beside(case, &[&[], &[("DateStyle", "SQL, DMY")], &[("TimeZone", "Asia/Tokyo")]], |b| {
        const SHOWN: &str = "SHOW DateStyle; SHOW TimeZone; SELECT '03/02/2020'::date";
        let read = s().parse("d", "SELECT '03/02/2020'::date + 0").sync();
        for client in 0..3 {
            b.query(client, SHOWN);
            b.says(client, &read);
        }
        let [database, alone] = b.databases.clone();
        let change = |database: &str| format!("ALTER DATABASE {database} SET DateStyle = 'German'");
        log_in(b.pool.raw(), "postgres", &database).1.query(&change(&database));
        b.place.execute_as_superuser_in(&alone, &change(&alone));
        // Both servers are those of clients that have come since.
        let mut later = [(); 2].map(|()| log_in(b.pool.raw(), "app", &database).1);
        for client in &mut later {
            client.query("BEGIN; SELECT 1");
        }
        for client in &mut later {
            assert!(client.query("COMMIT; SHOW DateStyle").contains("German"));
        }
        for client in 0..3 {
            b.query(client, SHOWN);
            b.says(client, &s().bind("d", &[]).describe_portal("").execute().sync());
            b.query(client, "SET DateStyle = 'YMD'");
            b.query(client, "RESET DateStyle");
            b.query(client, SHOWN);
            b.query(client, "BEGIN; RESET ALL; SHOW DateStyle; COMMIT");
            b.query(client, "DISCARD ALL");
            b.query(client, SHOWN);
        }
        b.log_in(&[]);
    });
}

/// A statement is described under what its batch has taken back, as it is run.
fn a_description_goes_by_what_is_reset_before_it(case: Case) {
    beside(case, &[&[("search_path", "t, public")]], |b| {
        b.past_the_pool("CREATE SCHEMA t; CREATE TABLE t.a (x int)");
        b.says(0, &s().parse("st", "SELECT x FROM a").sync());
        for other in ["SELECT 1", "CREATE TABLE public.a (x text)"] {
            b.past_the_pool(other);
            for back in ["RESET ALL", "RESET search_path", "SET search_path = t, public", "SET search_path TO DEFAULT"]
            {
                let behind = s().unnamed(back, &[]).describe("st");
                for script in [behind.clone().bind("st", &[]).execute().sync(), behind.clone().sync()] {
                    b.query(0, "SET search_path = public");
                    b.says(0, &script);
                    b.query(0, "SET search_path = public");
                    b.says(0, &s().query("BEGIN"));
                    b.says(0, &script);
                    b.query(0, "ROLLBACK");
                }
                // The unnamed statement as well.
                b.query(0, "SET search_path = public");
                let unnamed = s().parse("back", back).parse("", "SELECT x FROM t.a").bind("back", &[]).execute();
                b.says(0, &unnamed.describe("").bind("", &[]).execute().close("back").sync());
            }
        }
    });
}
