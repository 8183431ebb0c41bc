//! What functions keep in a session, where PostgreSQL knows nothing of it: nobody else meets it.

use sluice_testkit::{Case, Version, matrix};

use crate::beside::{beside, beside_with, s};

matrix!(transaction:
    values_of_other_languages,
    values_of_other_languages_that_no_text_shows,
    connections_that_no_text_shows,
);

/// Debian's packages have PL/Perl and dblink; those from which the other servers of the tests come have neither.
fn has_packages(case: Case) -> bool {
    case.version == Version::V15
}

const FUNCTIONS: &str = "
    CREATE EXTENSION plperl;
    CREATE FUNCTION keep(text) RETURNS text LANGUAGE plperl AS '$_SHARED{k} = $_[0]; return $_[0]';
    CREATE FUNCTION kept() RETURNS text LANGUAGE plperl AS 'return $_SHARED{k}';
    CREATE FUNCTION keeps() RETURNS trigger LANGUAGE plperl AS '$_SHARED{k} = $_TD->{new}{a}; return';
    CREATE TABLE keeping (a text);
    CREATE TRIGGER keeps BEFORE INSERT ON keeping FOR EACH ROW EXECUTE FUNCTION keeps();
    CREATE VIEW shown AS SELECT kept();
    GRANT ALL ON keeping, shown TO app";

fn values_of_other_languages(case: Case) {
    if !has_packages(case) {
        return;
    }
    beside(case, &[], |b| {
        b.past_the_pool(FUNCTIONS);
        for keep in ["SELECT keep('of 0')", "DO $$ $_SHARED{k} = 'of 0' $$ LANGUAGE plperl"] {
            b.clients(&[&[], &[]]);
            b.query(0, keep);
            assert!(b.query(1, "SELECT kept()").contains("D(NULL)"));
            b.query(1, "SELECT keep('of 1')");
            assert!(b.query(0, "SELECT kept()").contains("D(of 0)"));
            b.says(1, &s().unnamed("SELECT kept()", &[]).sync());
            // Their next sessions.
            b.clients(&[&[], &[]]);
            b.query(0, "SELECT kept()");
            b.query(1, "SELECT kept()");
        }
    });
}

fn values_of_other_languages_that_no_text_shows(case: Case) {
    if !has_packages(case) {
        return;
    }
    beside_with(case, true, &[], |b| {
        b.past_the_pool(FUNCTIONS);
        b.clients(&[&[], &[]]);
        b.query(0, "INSERT INTO keeping VALUES ('of 0')");
        b.query(1, "TABLE shown");
        b.query(1, "INSERT INTO keeping VALUES ('of 1')");
        b.query(0, "TABLE shown");
    });
}

fn connections_that_no_text_shows(case: Case) {
    if !has_packages(case) {
        return;
    }
    let show = "SELECT dblink_get_connections()";
    beside(case, &[], |b| {
        let connect = format!("dblink_connect_u('c', '{}')", b.place.conninfo());
        for database in &b.databases {
            let sql = "CREATE EXTENSION dblink; CREATE EXTENSION tablefunc;
                       GRANT EXECUTE ON FUNCTION dblink_connect_u(text, text) TO app";
            b.place.execute_as_superuser_in(database, sql);
        }
        for (sql, text) in [
            ("SELECT query_to_xml($1, true, true, '') IS NULL", format!("SELECT {connect}")),
            ("SELECT count(*) FROM ts_stat($1)", format!("SELECT to_tsvector({connect})")),
            (
                "SELECT count(*) FROM crosstab($1) AS t(a text, b text)",
                format!("SELECT {connect}, 'b'::text, 'c'::text"),
            ),
        ] {
            b.clients(&[&[], &[]]);
            b.says(0, &s().unnamed(sql, &[Some(&text)]).sync());
            let answer = b.query(1, show);
            assert!(answer.contains("D(NULL)"), "{sql}: {answer}");
            let answer = b.query(0, show);
            assert!(answer.contains("D({c})"), "{sql}: {answer}");
        }
    });
}
