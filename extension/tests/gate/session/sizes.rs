//! Reports stay below what libpq takes, whatever a session sets.

use super::*;

versions!(
    libpq_takes_the_report_of_any_settings,
    settings_that_are_large_are_told_up_to_the_limit,
    names_are_told_up_to_the_limit,
    many_names_cost_no_more_each,
    names_that_are_gone_take_no_memory,
);

/// libpq takes a ParameterStatus that says to be longer for the sign of a connection that is out of step.
const LIBPQ_MAX: usize = 30_000;

/// Runs a query that may report nothing that is too long for libpq.
#[track_caller]
fn run_for_libpq(session: &mut Session, sql: &str) {
    for message in session.talk(&Script::new().query(sql)) {
        assert_ne!(message.tag, backend::ERROR_RESPONSE, "{sql}");
        let length = message.body.len() + size_of::<u32>();
        assert!(message.tag != backend::PARAMETER_STATUS || length <= LIBPQ_MAX, "{sql}: {length} bytes");
    }
}

fn libpq_takes_the_report_of_any_settings(version: Version) {
    let gate = Gate::new(version, &[]);
    let large = "SELECT length(set_config('app.claims', repeat('x', 15000), false))";
    let names = "SELECT count(set_config('app.a' || i, 'v', true)) FROM generate_series(1, 3000) i";
    for (sql, pin, set) in [
        (large, "load", " set=app.claims:"),
        ("SELECT count(set_config('app.a' || i, 'v', false)) FROM generate_series(1, 3000) i", "settings", ""),
        (names, "settings", ""),
        (
            "SELECT count(set_config('app.' || repeat('x', 20000) || i, 'v', true)) FROM generate_series(1, 6) i",
            "settings",
            "",
        ),
        ("BEGIN; SELECT set_config('app.' || repeat('x', 40000), 'v', false); ROLLBACK", "settings", ""),
    ] {
        let mut session = Session::new(&gate);
        run_for_libpq(&mut session, sql);
        assert_eq!(session.held, format!("pins={pin}{set}"), "{sql}");
        run_for_libpq(&mut session, "SELECT pg_advisory_lock(1)");
        assert_eq!(session.held, format!("pins=lock,{pin}{set}"), "{sql}");
        run_for_libpq(&mut session, "SELECT pg_advisory_unlock(1); SHOW sluice.session");
        assert_eq!(session.held, format!("pins={pin}{set}"), "{sql}");
    }
}

fn settings_that_are_large_are_told_up_to_the_limit(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    session.holds(
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1; LISTEN a; PREPARE p AS SELECT 1; SELECT pg_advisory_lock(1)",
        "pins=lock,listen,cursor,prepare",
    );
    let mut told = 0;
    for length in (14_000..15_000).step_by(20) {
        run_for_libpq(&mut session, &format!("SELECT length(set_config('app.a', repeat('x', {length}), false))"));
        if session.held.ends_with(&format!("set=app.a:{}", "x".repeat(length))) {
            told = length;
        } else {
            assert_eq!(session.held, "pins=lock,listen,cursor,prepare,load set=app.a:", "{length}");
        }
    }
    assert!((14_400..14_900).contains(&told), "{told}");
    // The others are told all the same.
    session.holds("SET work_mem = '5MB'", "pins=lock,listen,cursor,prepare,load set=app.a:,work_mem:5120");
    session.holds("SET app.a = '1'", "pins=lock,listen,cursor,prepare set=app.a:1,work_mem:5120");
}

fn names_are_told_up_to_the_limit(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    for number in (0..300).rev() {
        run_for_libpq(&mut session, &format!("SET app.n{number:040} = '1'; RESET app.n{number:040}"));
    }
    let names: Vec<String> = (0..300).map(|number| format!("app.n{number:040}")).collect();
    assert_eq!(made_of(&session.report), names.join(","));
    for number in 300..340 {
        run_for_libpq(&mut session, &format!("SET app.n{number:040} = '1'; RESET app.n{number:040}"));
    }
    assert_eq!(session.report, "pins=settings");
    // They stay.
    session.holds("SET app.b = '1'", "pins=settings");
    session.holds("DISCARD ALL", "pins=settings");
}

fn many_names_cost_no_more_each(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::new(&gate);
    run_for_libpq(&mut session, "SELECT count(set_config('z.a' || i, 'v', false)) FROM generate_series(1, 8000) i");
    let before = std::time::Instant::now();
    for turn in 0..20 {
        run_for_libpq(&mut session, &format!("SELECT set_config('z.a1', '{turn}', true)"));
    }
    // Each had taken more than a second.
    assert!(before.elapsed().as_secs() < 10, "{:?}", before.elapsed());
}

/// Also where others of their kind stay, behind which nobody would look for them.
fn names_that_are_gone_take_no_memory(version: Version) {
    let gate = Gate::new(version, &[]);
    let mut session = Session::of(&gate, "postgres");
    for number in 0..8 {
        session.run(&format!("PREPARE kept{number} AS SELECT 1; DECLARE kept{number} CURSOR WITH HOLD FOR SELECT 1"));
    }
    for number in 0..1_500 {
        let made = format!("PREPARE p{number} AS SELECT 1; DECLARE c{number} CURSOR WITH HOLD FOR SELECT 1");
        session.holds(&format!("{made}; DEALLOCATE p{number}; CLOSE c{number}"), "pins=cursor,prepare");
    }
    for name in ["sluice prepared statements", "sluice cursors"] {
        let bytes = format!("SELECT total_bytes FROM pg_backend_memory_contexts WHERE name = '{name}'");
        let bytes: usize = session.value(&bytes).parse().unwrap();
        assert!(bytes < 40_000, "{name}: {bytes}");
    }
    session.holds("DEALLOCATE ALL; CLOSE ALL", "deallocated=1");
}
