//! Portals, cursors and statements that a client has open on its server, as scripts that are run beside PostgreSQL: the
//! pool takes none away, and knows when there are none any more.

use sluice_testkit::{Case, matrix};

use crate::beside::{beside, s};

matrix!(transaction: what_the_protocol_closes_ties_nobody, unnamed_portals_outlive_what_the_pool_does);

fn what_the_protocol_closes_ties_nobody(case: Case) {
    beside(case, &[], |b| {
        for (make, closes) in [
            ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", s().close_portal("c").sync()),
            ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", s().close_portal("c").flush().close_portal("d").sync()),
            ("PREPARE c AS SELECT 1", s().close("c").sync()),
        ] {
            b.clients(&[&[], &[], &[]]);
            for holder in [0, 1] {
                b.query(holder, make);
                b.query(holder, "SELECT 1");
                b.says(holder, &closes);
            }
            b.query(2, "SELECT 2");
            // At once, and with something behind it.
            for holder in [0, 1] {
                b.until(holder, &s().query(make).then(&closes).then(&closes).query("SELECT 3"), 4);
                b.until(holder, &s().query(make).then(&closes), 2);
            }
            b.query(2, "SELECT 2");
        }
    });
}

/// In blocks: restoring what a client began with, and forgetting what sequences gave to others.
fn unnamed_portals_outlive_what_the_pool_does(case: Case) {
    let rows = s().parse("", "SELECT generate_series(1, 5)").bind("", &[]).execute_some("", 1).sync();
    let next = s().execute_some("", 1).sync();
    beside(case, &[], |b| {
        b.place.execute_in(&b.databases[0], "CREATE SEQUENCE counts");
        b.place.execute_in(&b.databases[1], "CREATE SEQUENCE counts");
        b.clients(&[&[("DateStyle", "German, DMY"), ("search_path", "pg_catalog, public")], &[]]);
        for act in [
            "RESET DateStyle",
            "RESET ALL",
            "SET LOCAL search_path TO DEFAULT",
            "SELECT CASE WHEN false THEN lastval() END",
        ] {
            b.on_each_server(1, 0, &s().query("SELECT nextval('public.counts')"));
            b.query(0, "BEGIN READ WRITE");
            b.says(0, &rows);
            b.says(0, &s().parse("r", act).bind_to("r", "r", &[]).execute_some("r", 0).sync());
            b.says(0, &next);
            b.query(0, "ROLLBACK");
            b.query(0, "SHOW DateStyle");
            b.says(0, &s().close("r").sync());
        }
    });
}
