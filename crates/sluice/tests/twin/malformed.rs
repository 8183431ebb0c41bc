//! Messages of which a part is missing, or that hold more than they should.

use sluice_testkit::{Case, matrix};

use crate::beside::{beside, s};

matrix!(transaction:
    a_query_that_is_malformed_takes_nothing_away,
    a_bind_that_is_malformed_begins_and_ends_nothing,
    messages_with_more_than_they_hold,
);

fn a_query_that_is_malformed_takes_nothing_away(case: Case) {
    beside(case, &[&[]], |b| {
        for body in [&b"SELECT 1"[..], b"", b"SELECT 1\0SELECT 2\0", b"SET work_mem = '9MB'\0\0"] {
            let malformed = [b"Q", &(body.len() as u32 + 4).to_be_bytes()[..], body].concat();
            b.says(0, &s().parse("", "SELECT 3").sync());
            b.says(0, &s().bytes(&malformed));
            b.says(0, &s().bind("", &[]).execute().sync());
        }
        b.query(0, "SHOW work_mem");
        // Nor does what is skipped with it.
        b.says(0, &s().parse("", "SELECT 1").sync());
        b.says(0, &s().describe("none").call(15_999, &[]).query("SELECT 2").sync());
        b.says(0, &s().bind("", &[]).execute().sync());
    });
}

fn a_bind_that_is_malformed_begins_and_ends_nothing(case: Case) {
    // Behind the names: no formats, no parameters, and formats of results, some of them too few or too many.
    let bodies: [&[u8]; 9] = [
        &[0, 0, 0, 0, 0, 0],
        &[0, 1, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 0, 0, 1, 0, 1],
        &[0, 0, 0, 0, 0, 0, b'x'],
        &[0, 0, 0, 0, 0],
        &[0, 0, 0, 0],
        &[0, 0, 0, 0, 0, 1],
        &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0],
        &[0, 2, 0, 0, 0, 0, 0, 0, 0, 0],
    ];
    beside(case, &[&[]], |b| {
        for text in ["BEGIN READ ONLY", "DEALLOCATE a"] {
            for rest in bodies {
                let bind = [b"B", &(rest.len() as u32 + 6).to_be_bytes()[..], &[0, 0], rest].concat();
                b.says(0, &s().parse("a", "SELECT 1").sync());
                b.says(0, &s().parse("", text).bytes(&bind).execute().sync());
                b.query(0, "SHOW transaction_read_only");
                b.query(0, "ROLLBACK");
                b.says(0, &s().describe("a").sync());
                b.query(0, "DEALLOCATE ALL");
            }
        }
    });
}

fn messages_with_more_than_they_hold(case: Case) {
    const FLUSH: &[u8] = b"H\0\0\0\x05!";
    const SYNC: &[u8] = b"S\0\0\0\x05!";
    beside(case, &[&[], &[]], |b| {
        b.says(0, &s().bytes(SYNC));
        b.says(0, &s().unnamed("SELECT 1", &[]).bytes(FLUSH).query("SELECT 2").sync());
        b.says(0, &s().unnamed("SELECT 1", &[]).bytes(SYNC));
        b.says(0, &s().bytes(FLUSH).sync());
        let copy = s().unnamed("COPY lines FROM STDIN", &[]);
        b.says(0, &copy.copy_fail("so").bytes(FLUSH).sync());
        b.query(0, "BEGIN");
        b.says(0, &s().bytes(SYNC));
        b.query(0, "ROLLBACK");
        // Its server is free again.
        for client in [0, 1] {
            b.query(client, "SELECT 1");
        }
    });
}
