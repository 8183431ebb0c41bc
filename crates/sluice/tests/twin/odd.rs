//! Messages in an order that few clients send, each of which PostgreSQL has an answer to.

use sluice_testkit::{Case, Version, matrix};

use crate::beside::{Beside, Startup, beside, s};

matrix!(transaction:
    a_close_that_is_skipped_closes_nothing,
    a_query_that_is_skipped_leaves_the_unnamed_statement,
    a_result_without_columns_is_described_as_one,
    what_was_asked_for_is_answered_before_the_end,
    a_copy_goes_on_behind_a_reset,
    a_copy_by_a_batch_goes_on_behind_its_reset,
    a_sync_within_a_copy_is_none,
    a_deallocate_in_a_failed_block,
    portals_of_the_pools_own_are_there_when_they_have_run,
    portals_of_the_pools_own_end_as_others_do,
    a_query_behind_an_execute_without_a_sync,
    a_query_takes_the_unnamed_portal_away,
    portals_end_with_their_transaction,
    portals_have_short_names,
    a_deallocate_has_no_parameters,
    a_deallocate_is_a_statement_like_others,
    a_wait_behind_a_copy_ends,
    a_block_that_failed_in_a_pipeline,
    a_literal_that_goes_on_is_read_whole,
    a_statement_that_its_server_lacks_behind_what_fails,
    sequences_of_others_behind_what_fails,
    an_unnamed_result_is_as_described,
    a_block_that_is_ended_behind_what_it_refuses,
    portals_of_a_failed_block,
    a_portal_of_the_pools_own_in_a_block_that_has_failed_since,
);

fn a_close_that_is_skipped_closes_nothing(case: Case) {
    beside(case, &[&[]], |b| {
        for before in [s(), s().sync()] {
            let times = if before.0.is_empty() { 1 } else { 2 };
            let failed = s().parse("", "SELECT 1").then(&before).describe("none").close("").sync();
            b.until(0, &failed, times);
            b.says(0, &s().bind("", &[]).execute().sync());
        }
        b.says(0, &s().parse("", "SELECT 1").close("").sync());
        b.says(0, &s().bind("", &[]).execute().sync());
    });
}

fn portals_of_a_failed_block(case: Case) {
    beside(case, &[&[]], |b| {
        for refused in ["a", "missing"] {
            b.query(0, "DISCARD ALL");
            b.says(0, &s().parse("a", "SELECT 1").parse("r", "ROLLBACK").sync());
            b.query(0, "BEGIN");
            b.query(0, "SELECT 1/0");
            // Such a Bind leaves the portal what it was.
            b.says(0, &s().bind_to("q", "r", &[]).sync());
            b.says(0, &s().bind_to("q", refused, &[]).sync());
            b.says(0, &s().execute_some("q", 0).parse("a", "SELECT 2").sync());
            b.says(0, &s().parse("", "SELECT 3").bind("", &[]).execute().sync());
        }
        for own in ["DEALLOCATE a", "START TRANSACTION READ ONLY"] {
            b.query(0, "DISCARD ALL");
            b.says(0, &s().parse("a", "SELECT 1").sync());
            b.query(0, "BEGIN; SELECT 1");
            b.says(0, &s().parse("", own).bind("", &[]).sync());
            b.says(0, &s().parse("b", "SELECT nothing").sync());
            b.says(0, &s().describe_portal("").sync());
            b.says(0, &s().execute().sync());
            b.query(0, "ROLLBACK");
            b.says(0, &s().describe_portal("").sync());
        }
    });
}

fn a_query_that_is_skipped_leaves_the_unnamed_statement(case: Case) {
    beside(case, &[&[]], |b| {
        b.says(0, &s().parse("", "SELECT 1").describe("none").query("SELECT 2").sync());
        b.says(0, &s().bind("", &[]).execute().sync());
        b.query(0, "BEGIN");
        b.says(0, &s().parse("", "SELECT 1").describe("none").query("COMMIT").sync());
        b.says(0, &s().bind("", &[]).execute().sync());
    });
}

fn a_result_without_columns_is_described_as_one(case: Case) {
    beside(case, &[&[]], |b| {
        b.query(0, "CREATE TABLE t (a int)");
        b.says(0, &s().parse("a", "SELECT FROM t").describe("a").sync());
        for _ in 0..2 {
            b.says(0, &s().describe("a").bind("a", &[]).describe_portal("").execute().sync());
        }
    });
}

fn what_was_asked_for_is_answered_before_the_end(case: Case) {
    let ends = [
        s().query("SELECT 1").query("SELECT 1/0").terminate(),
        s().unnamed("SELECT 1", &[]).sync().terminate(),
        s().query("SELECT 1").bytes(b"^\0\0\0\x04"),
        s().parse("", "SELECT 1; SELECT 2").bytes(b"^\0\0\0\x04"),
        s().parse("", "SELEC").flush().bytes(b"^\0\0\0\x04").sync(),
        s().terminate(),
    ];
    beside(case, &[&[]], |b| {
        for end in &ends {
            b.clients(&[&[]]);
            b.pooled[0].send(end);
            b.alone[0].send(end);
            b.ends(0);
        }
    });
}

const ZONE: Startup<'_> = &[("TimeZone", "Asia/Tokyo")];

fn a_copy_goes_on_behind_a_reset(case: Case) {
    beside(case, &[ZONE, &[]], |b| {
        b.query(0, "CREATE TABLE t (a int)");
        for reset in ["RESET application_name", "RESET TimeZone", "RESET ALL"] {
            b.query(0, "SET TimeZone = 'UTC'");
            let copy = s().parse("", reset).bind("", &[]).execute().query("COPY t FROM STDIN").copy_done();
            b.says(0, &copy);
            b.query(0, "SHOW TimeZone");
            b.query(1, "SHOW TimeZone");
        }
    });
}

fn a_copy_by_a_batch_goes_on_behind_its_reset(case: Case) {
    beside(case, &[ZONE, &[]], |b| {
        b.query(0, "CREATE TABLE t (a int)");
        for reset in ["RESET application_name", "RESET TimeZone", "RESET ALL"] {
            b.query(0, "SET TimeZone = 'UTC'");
            let batch = s().unnamed(reset, &[]).unnamed("COPY t FROM STDIN", &[]);
            b.says(0, &batch.sync().copy_data(b"1\n").copy_done().sync());
            b.query(0, "SHOW TimeZone");
            b.query(1, "SHOW TimeZone");
        }
    });
}

fn a_sync_within_a_copy_is_none(case: Case) {
    beside(case, &[&[]], |b| {
        b.query(0, "CREATE TABLE t (a int)");
        let copy = || s().unnamed("COPY t FROM STDIN", &[]);
        for (script, times) in [
            (copy().sync().copy_done().execute_some("p", 0).copy_done().sync(), 1),
            (copy().sync().copy_done().unnamed("SELECT 1", &[]).sync(), 1),
            (copy().sync().sync().copy_data(b"1\n").copy_done().sync(), 1),
            (copy().copy_done().sync().then(&copy()).copy_done().sync(), 2),
            (s().query("COPY t FROM STDIN").sync().copy_done().parse("", "SELECT 2").sync(), 2),
        ] {
            b.until(0, &script, times);
        }
        let both = || s().query("COPY t FROM STDIN; COPY t FROM STDIN");
        for script in [
            both().copy_done().sync().copy_done().parse("", "CLOSE q").sync(),
            both().copy_done().copy_done().sync(),
            both().copy_done().copy_data(b"1\n").copy_done().copy_done().parse("", "SELECT 3").sync(),
        ] {
            b.until(0, &script, 2);
        }
        b.query(0, "SELECT count(*) FROM t");
    });
}

fn a_deallocate_in_a_failed_block(case: Case) {
    beside(case, &[&[]], |b| {
        b.says(0, &s().parse("a", "SELECT 1").sync());
        b.query(0, "BEGIN");
        b.query(0, "SELECT 1/0");
        for text in ["DEALLOCATE a", "DEALLOCATE none", "deallocate all", "DEALLOCATE a"] {
            b.says(0, &s().parse("", text).sync());
            b.says(0, &s().parse("", text).bind("", &[]).execute().sync());
            b.says(0, &s().parse("b", text).describe("b").sync());
        }
        b.query(0, "ROLLBACK");
        b.says(0, &s().bind("a", &[]).execute().sync());
    });
}

fn portals_of_the_pools_own_are_there_when_they_have_run(case: Case) {
    beside(case, &[&[]], |b| {
        for before in [s(), s().unnamed("SELECT 2", &[])] {
            for behind in [s().describe_portal(""), s().execute(), s().bind("", &[]).execute(), s().close_portal("")] {
                b.says(0, &s().parse("a", "SELECT 1").sync());
                let run = s().then(&before).unnamed("DEALLOCATE a", &[]);
                b.says(0, &run.then(&behind).unnamed("SELECT 3", &[]).sync());
            }
        }
        for behind in [s().describe_portal(""), s().execute(), s().close_portal("").describe_portal("")] {
            let begin = s().unnamed("BEGIN", &[]);
            b.says(0, &begin.then(&behind).sync());
            b.says(0, &s().then(&behind).sync());
            b.query(0, "ROLLBACK");
        }
    });
}

fn portals_of_the_pools_own_end_as_others_do(case: Case) {
    const INT4_PLUS: u32 = 177;
    let call = || s().call(INT4_PLUS, &[&[0, 0, 0, 2], &[0, 0, 0, 2]]);
    beside(case, &[&[], &[]], |b| {
        for own in ["START TRANSACTION READ ONLY", "DEALLOCATE a"] {
            for block in ["SELECT 1", "BEGIN; SELECT 1"] {
                let begin = |b: &mut Beside| {
                    b.query(0, "ROLLBACK");
                    b.says(0, &s().close("a").parse("a", "SELECT 1").sync());
                    b.query(0, block);
                    s().parse("", own).bind("", &[])
                };
                let script = begin(b).then(&call()).execute().describe_portal("");
                b.until(0, &script.sync(), 2);
                if case.version != Version::V18 {
                    // That loses step there.
                    let run = begin(b).execute();
                    b.until(0, &run.then(&call()).describe_portal("").execute().sync(), 2);
                }
                let other = |sql| s().parse("b", sql).bind_to("q", "b", &[]).execute_some("q", 0).close("b");
                for sql in ["CLOSE ALL", "SELECT 2", "SHOW work_mem"] {
                    let run = begin(b).execute().then(&other(sql));
                    b.until(0, &run.sync().execute().sync(), 2);
                    let run = begin(b).execute().then(&other(sql));
                    b.until(0, &run.describe_portal("").execute().sync(), 1);
                    let run = begin(b).then(&other(sql));
                    b.until(0, &run.execute().sync().describe_portal("").sync(), 2);
                }
            }
        }
    });
}

fn a_query_behind_an_execute_without_a_sync(case: Case) {
    beside(case, &[ZONE, &[]], |b| {
        let set = || s().unnamed("SET work_mem = '7MB'", &[]);
        b.until(0, &set().query("RESET TimeZone; SHOW TimeZone; SELECT 2").sync(), 2);
        // PostgreSQL 18 refuses the next statement behind that; it is the client's own.
        b.query(1, "SELECT 1");
        b.query(0, "SHOW TimeZone");
        b.query(1, "SHOW TimeZone");
        b.query(0, "SHOW work_mem");
        b.until(0, &set().query("SET work_mem = '8MB'").unnamed("SHOW work_mem", &[]).sync(), 2);
        b.query(1, "SHOW work_mem");
        b.query(0, "SHOW work_mem");
    });
}

fn a_query_takes_the_unnamed_portal_away(case: Case) {
    beside(case, &[&[]], |b| {
        b.says(0, &s().parse("a", "SELECT 1").sync());
        b.query(0, "BEGIN; SELECT 2");
        b.says(0, &s().bind("a", &[]).sync());
        b.query(0, "DEALLOCATE a");
        b.says(0, &s().describe_portal("").sync());
        b.query(0, "ROLLBACK");
        b.says(0, &s().parse("a", "SELECT 1").sync());
        b.query(0, "BEGIN; SELECT 2");
        b.query(0, "DEALLOCATE a");
        b.query(0, "COMMIT");
    });
}

fn portals_end_with_their_transaction(case: Case) {
    beside(case, &[&[], &[("work_mem", "7MB")]], |b| {
        // Of another client, and of one's own.
        for binder in [0, 1] {
            b.says(binder, &s().parse("", "RESET work_mem").bind_to("c", "", &[]).sync());
            b.query(1, "SET work_mem = '5MB'");
            b.query(1, "BEGIN");
            b.query(1, "DECLARE c CURSOR FOR SELECT 1");
            b.says(1, &s().execute_some("c", 0).sync());
            b.query(1, "SHOW work_mem");
            b.query(1, "COMMIT");
            b.query(1, "SHOW work_mem");
        }
        b.says(1, &s().parse("", "RESET work_mem").bind_to("c", "", &[]).close_portal("c").sync());
        b.query(1, "SET work_mem = '5MB'");
        b.query(1, "BEGIN");
        let closed = s().parse("", "RESET work_mem").bind_to("c", "", &[]).close_portal("c");
        b.says(1, &closed.unnamed("DECLARE c CURSOR FOR SELECT 1", &[]).execute_some("c", 0).sync());
        b.query(1, "SHOW work_mem");
        b.query(1, "COMMIT");
        b.query(1, "SHOW work_mem");
    });
}

fn portals_have_short_names(case: Case) {
    beside(case, &[&[("work_mem", "7MB")]], |b| {
        let [bound, run] = ["a", "b"].map(|end| format!("{}{end}", "x".repeat(70)));
        b.query(0, "SET work_mem = '5MB'");
        let batch = s().parse("", "RESET work_mem").bind_to(&bound, "", &[]).execute_some(&run, 0);
        b.says(0, &batch.unnamed("SHOW work_mem", &[]).sync());
        b.query(0, "SHOW work_mem");
    });
}

fn a_deallocate_has_no_parameters(case: Case) {
    beside(case, &[&[]], |b| {
        b.says(0, &s().parse("a", "SELECT 1").sync());
        let typed = s().parse_typed("", "DEALLOCATE a", &[23, 23]);
        b.says(0, &typed.bind("", &[]).execute().sync());
        b.says(0, &s().bind("a", &[]).execute().sync());
        b.says(0, &s().parse("", "DEALLOCATE a").bind("", &[Some("1")]).execute().sync());
        b.says(0, &s().bind("a", &[]).execute().sync());
    });
}

fn a_deallocate_is_a_statement_like_others(case: Case) {
    beside(case, &[&[], &[]], |b| {
        let used = || s().bind("a", &[]).execute().sync();
        let made = || s().parse("a", "SELECT 1").sync();
        let deallocate = || s().parse("", "DEALLOCATE a");
        b.query(0, "CREATE TABLE t (x int)");
        // By a portal with a name, which runs later or never.
        for run in [s().execute_some("p", 0), s().describe_portal("p"), s().close_portal("p").execute_some("p", 0)] {
            b.says(0, &made());
            b.says(0, &deallocate().bind_to("p", "", &[]).then(&run).sync());
            b.says(0, &used());
            b.says(0, &s().close("a").sync());
        }
        // A Parse that is skipped leaves it as it is.
        b.says(0, &made());
        b.says(0, &deallocate().sync());
        b.says(0, &s().describe("none").parse("", "SELECT 2").sync());
        b.says(0, &s().describe("").bind("", &[]).execute().sync());
        b.says(0, &used());
        // One that fails does not.
        b.says(0, &deallocate().sync());
        b.says(0, &s().parse("", "SELEC").sync());
        b.says(0, &s().bind("", &[]).execute().sync());
        // It outlasts its own use, and what it names may be made once more, gone, or SQL's.
        b.says(0, &made());
        b.says(0, &deallocate().bind("", &[]).execute().bind("", &[]).execute().sync());
        b.says(0, &made());
        b.says(1, &s().parse("a", "SELECT 2").sync());
        b.says(0, &s().bind("", &[]).execute().sync());
        b.says(1, &used());
        b.query(0, "PREPARE a AS SELECT 3");
        b.says(0, &deallocate().bind("", &[]).execute().bind("", &[]).execute().sync());
        // What stands behind it does not stand alone.
        for command in ["SET TRANSACTION READ ONLY", "SAVEPOINT a", "VACUUM t", "SET LOCAL work_mem = '7MB'"] {
            b.says(0, &s().close("a").parse("a", "SELECT 1").sync());
            b.says(0, &deallocate().bind("", &[]).execute().parse("", command).bind("", &[]).execute().sync());
        }
        // In a pipeline behind what fails.
        b.says(0, &made());
        b.says(0, &s().parse("d", "DEALLOCATE a").sync());
        for name in ["", "d"] {
            b.says(0, &deallocate().sync());
            b.query(0, "BEGIN");
            b.until(
                0,
                &s().parse("e", "SELECT 1/0").bind("e", &[]).execute().sync().bind(name, &[]).execute().sync(),
                2,
            );
            b.query(0, "ROLLBACK");
            b.says(0, &s().close("e").sync());
            b.says(0, &used());
        }
        // What it names can't be parsed any more.
        b.says(0, &s().parse("t", "SELECT x FROM t").sync());
        b.query(1, "DROP TABLE t");
        b.says(0, &s().parse("", "DEALLOCATE t").bind("", &[]).execute().sync());
        b.says(0, &s().bind("t", &[]).execute().sync());
    });
}

fn a_wait_behind_a_copy_ends(case: Case) {
    beside(case, &[&[]], |b| {
        b.query(0, "CREATE TABLE t (a text)");
        b.says(0, &s().parse("a", "SELECT 1").sync());
        let copy = || s().parse("", "COPY t FROM STDIN").bind("", &[]).execute();
        b.until(0, &copy().copy_fail("no").sync().describe("").query("SELECT 1").sync(), 3);
        let data = copy().copy_data(b"one\n").copy_data(b"thr").sync().copy_done();
        let behind = s().close("a").parse("a", "ROLLBACK TO s").describe("a").bind("a", &[]).copy_fail("no").sync();
        b.says(0, &data.then(&behind));
        b.says(0, &copy().copy_data(b"thr").flush().copy_fail("no").sync());
        b.until(
            0,
            &copy()
                .copy_data(b"thr")
                .copy_fail("no")
                .sync()
                .bind("", &[])
                .query("DECLARE q CURSOR FOR SELECT 1")
                .sync(),
            3,
        );
        b.until(
            0,
            &copy().copy_fail("no").sync().call(15_999, &[]).describe("").query("BEGIN").describe("a").sync(),
            4,
        );
        b.query(0, "ROLLBACK");
    });
}

fn a_block_that_failed_in_a_pipeline(case: Case) {
    beside(case, &[&[("TimeZone", "Europe/Berlin"), ("search_path", "tenant")]], |b| {
        b.says(0, &s().parse("a", "SELECT 1").sync());
        let shows = "SELECT timestamptz '2024-06-01 12:00+00', current_setting('search_path')";
        let reset = |text: &str| s().unnamed(text, &[]).unnamed(shows, &[]).sync();
        for (end, times, back) in [
            (s().unnamed("ROLLBACK", &[]).sync(), 1, reset("RESET TimeZone")),
            (s().query("ROLLBACK"), 1, reset("RESET ALL")),
            (s().unnamed("COMMIT", &[]).sync(), 1, reset("RESET search_path")),
            (s().query("ROLLBACK AND CHAIN").query("COMMIT"), 2, reset("RESET search_path")),
        ] {
            b.query(0, "SET TimeZone = 'UTC'; SET search_path = public");
            b.query(0, "BEGIN; SELECT 1/0");
            b.until(0, &end.then(&back), times + 1);
            b.query(0, shows);
        }
        b.query(0, "BEGIN; SELECT 1/0");
        let deallocate = || s().unnamed("DEALLOCATE a", &[]).sync();
        b.until(0, &s().unnamed("SET work_mem = 100", &[]).sync().then(&deallocate()), 2);
        b.query(0, "ROLLBACK");
        b.says(0, &s().bind("a", &[]).execute().sync());
        b.query(0, "BEGIN");
        b.until(0, &s().unnamed("SELECT 1/0", &[]).sync().then(&deallocate()), 2);
        b.query(0, "ROLLBACK");
        b.says(0, &s().bind("a", &[]).execute().sync());
    });
}

fn a_literal_that_goes_on_is_read_whole(case: Case) {
    beside(case, &[&[], &[]], |b| {
        for _ in 0..4 {
            for client in 0..2 {
                b.says(
                    client,
                    &s().unnamed("SELECT timestamptz 'n'\n'ow' = now(), date 'tod'\n  'ay' = current_date", &[]).sync(),
                );
            }
        }
    });
}

fn a_statement_that_its_server_lacks_behind_what_fails(case: Case) {
    beside(case, &[&[("TimeZone", "Asia/Tokyo")], &[]], |b| {
        let lacked = |b: &mut Beside| {
            for number in 0..8 {
                b.says(1, &s().close("x").parse("x", &format!("SELECT {number}")).describe("x").sync());
            }
        };
        b.says(0, &s().parse("a", "CLOSE p").parse("c", "SELECT timestamptz '2024-06-01 12:00'::text").sync());
        lacked(b);
        b.query(0, "BEGIN");
        b.until(0, &s().bind("", &[]).execute().sync().close_portal("").bind("a", &[]).execute().sync(), 2);
        b.query(0, "ROLLBACK");
        for fails in ["ROLLBACK TO s", "SELECT 1/0", "COMMIT AND CHAIN"] {
            lacked(b);
            let set = s().parse("", "SET TimeZone = 'UTC'").bind("", &[]).bind("c", &[]).sync();
            b.until(0, &s().unnamed(fails, &[]).sync().then(&set), 2);
        }
        lacked(b);
        b.says(0, &s().bind("c", &[]).execute().sync());
    });
}

fn sequences_of_others_behind_what_fails(case: Case) {
    let asks = || s().parse("", "SELECT lastval()").bind("", &[]).execute().sync();
    for fails in [s().parse("", "SELEC"), s().unnamed("SELECT 1/0", &[]), s().describe("none")] {
        beside(case, &[&[], &[]], |b| {
            b.query(1, "CREATE SEQUENCE s");
            b.query(1, "SELECT nextval('s')");
            b.says(0, &s().then(&fails).then(&asks()));
            b.query(0, "SELECT lastval()");
            b.query(1, "SELECT nextval('s')");
            b.query(1, "SELECT lastval()");
        });
    }
    // What has failed is a block, in which nothing can be forgotten.
    for behind in [s().bind("none", &[]), s().bind("calls", &[]).execute()] {
        beside(case, &[&[], &[]], |b| {
            b.query(1, "CREATE SEQUENCE s");
            b.query(1, "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'");
            b.says(0, &s().parse("calls", "SELECT f()").sync());
            b.query(1, "SELECT nextval('s')");
            b.query(0, "BEGIN READ WRITE; SELECT 1");
            b.until(0, &s().describe("none").sync().close_portal("").then(&behind).sync(), 2);
        });
    }
}

fn a_portal_of_the_pools_own_in_a_block_that_has_failed_since(case: Case) {
    beside(case, &[&[]], |b| {
        for own in ["DEALLOCATE a", "START TRANSACTION READ ONLY"] {
            for fails in [s().describe("none"), s().parse("", "SELEC"), s().bind_to("p", "none", &[])] {
                b.query(0, "DISCARD ALL");
                b.says(0, &s().parse("a", "SELECT 1").sync());
                b.query(0, "BEGIN; SELECT 1");
                b.says(0, &s().parse("", own).bind("", &[]).sync());
                b.until(0, &s().then(&fails).sync().execute().sync(), 2);
                b.query(0, "ROLLBACK");
                b.says(0, &s().bind("a", &[]).execute().sync());
            }
        }
    });
}

fn an_unnamed_result_is_as_described(case: Case) {
    beside(case, &[&[], &[], &[]], |b| {
        b.query(1, "CREATE TABLE t (a int8); INSERT INTO t VALUES (1)");
        let described = |sql: &str| s().parse("", sql).describe("").sync();
        let used = || s().bind("", &[]).execute().sync();
        for (number, change) in [
            "ALTER TABLE t ALTER a TYPE float8",
            "ALTER TABLE t ADD b int",
            "ALTER TABLE t DROP b",
            "ALTER TABLE t ALTER a TYPE text",
            "ALTER TABLE t ADD c int, DROP a",
        ]
        .into_iter()
        .enumerate()
        {
            // One that came before, or one that did not.
            let sql = ["SELECT * FROM t".to_owned(), format!("SELECT *, {number} FROM t")];
            for sql in &sql {
                b.says(0, &described(sql));
                b.says(0, &used());
            }
            for sql in [&sql[number % 2], &format!("SELECT *, -{number} FROM t")] {
                b.says(0, &described(sql));
                b.on_each_server(1, 2, &s().query("SELECT 1"));
                b.says(0, &used());
                b.says(0, &s().describe("").sync());
            }
            b.says(0, &described(&format!("SELECT *, 1{number} FROM t")));
            b.on_each_server(1, 2, &s().query("SELECT 1"));
            b.query(1, change);
            b.says(0, &used());
            b.says(0, &s().describe("").sync());
            b.says(0, &described("SELECT * FROM t"));
            b.says(0, &used());
        }
    });
}

fn a_block_that_is_ended_behind_what_it_refuses(case: Case) {
    beside(case, &[&[]], |b| {
        for end in ["END", "ROLLBACK", "ROLLBACK TO s", "COMMIT AND CHAIN"] {
            b.says(0, &s().close("a").parse("a", "SELECT 1").sync());
            b.query(0, "BEGIN; SAVEPOINT s; SELECT 1/0");
            let refused = s().query("SELECT 1; FETCH p").unnamed(end, &[]);
            b.until(0, &refused.parse("a", "SELECT 2").close("never").sync(), 2);
            b.query(0, "ROLLBACK");
            b.query(0, "BEGIN");
            let fails = s().unnamed("SELECT 1/0", &[]).sync().unnamed(end, &[]).parse("c", "SELECT 3").bind("a", &[]);
            b.until(0, &fails.execute().sync(), 2);
            b.query(0, "ROLLBACK");
            b.until(0, &s().bind("a", &[]).execute().sync().close("c").sync(), 2);
        }
    });
}
