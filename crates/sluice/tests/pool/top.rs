//! `sluice top` before a pool that works.

use std::{process::Command, thread, time::Duration};

use sluice_testkit::{Case, matrix};

use crate::{SLUICE, config, database, pgbouncer::PgBouncer};

#[test]
fn a_console_that_lacks_something_is_told_in_its_own_words() {
    let Some(bouncer) = PgBouncer::start() else { return };
    let console = format!("host=127.0.0.1 port={} user=boss dbname=pgbouncer sslmode=disable", bouncer.address.port());
    let (success, _, errors) = top(&["-n", "1", &console]);
    assert!(!success && errors.contains("SHOW STATEMENTS: invalid command 'SHOW STATEMENTS'"), "{errors}");
}

matrix!(transaction: a_page_says_what_goes_on, what_is_no_console_is_told);

fn top(args: &[&str]) -> (bool, String, String) {
    let output = Command::new(SLUICE).arg("top").args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

fn a_page_says_what_goes_on(case: Case) {
    let database = database(case);
    let pool = config(case).size(1).section("[admin]\nstats_users = [\"app\"]\n").start();
    let console = format!("host=127.0.0.1 port={} user=app dbname=pgbouncer sslmode=disable", pool.address().port());
    let mut client = pool.app(&database);
    let statement = client.prepare("SELECT $1::int4 AS \"of top\"").unwrap();
    let (success, page, errors) = thread::scope(|scope| {
        let top = scope.spawn(|| top(&["-i", "1", "-n", "2", &console]));
        while !top.is_finished() {
            client.query(&statement, &[&1_i32]).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        top.join().unwrap()
    });
    assert!(success, "{errors}");
    let lines: Vec<&str> = page.lines().collect();
    assert_eq!(lines.iter().filter(|line| line.starts_with("sluice top: ")).count(), 2, "{page}");
    assert!(lines[1].starts_with("1 clients, 0 of them waiting for a server; "), "{page}");
    let of_database = lines.iter().find(|line| line.starts_with(&database.name)).unwrap();
    let queries: f64 = of_database.split_whitespace().nth(7).unwrap().parse().unwrap();
    assert!(queries > 0.0, "{page}");
    let of_statement = lines.iter().find(|line| line.ends_with("SELECT $1::int4 AS \"of top\"")).unwrap();
    let calls: f64 = of_statement.split_whitespace().next().unwrap().parse().unwrap();
    assert!(calls > 0.0, "{page}");
}

fn what_is_no_console_is_told(case: Case) {
    let database = database(case);
    let pool = config(case).start();
    let dsn = |port: u16| format!("host=127.0.0.1 port={port} user=app dbname={} sslmode=disable", database.name);
    let (success, _, errors) = top(&["-n", "1", &dsn(pool.address().port())]);
    assert!(!success && errors.contains("that database is no admin console of a pool"), "{errors}");
    let (success, _, errors) = top(&["-n", "1", &dsn(1)]);
    assert!(!success && errors.contains("127.0.0.1"), "{errors}");
    // The pool's own advice, and none about roles of PostgreSQL's.
    let pool = config(case).section("[admin]\nusers = [\"boss\"]\n").start();
    let console = format!("host=127.0.0.1 port={} user=app dbname=pgbouncer sslmode=disable", pool.address().port());
    let (success, _, errors) = top(&["-n", "1", &console]);
    assert!(!success && errors.contains("user \"app\" may not use the admin console\n"), "{errors}");
    assert!(errors.contains("under [admin] in the pool's configuration") && !errors.contains("pg_hba"), "{errors}");
}
