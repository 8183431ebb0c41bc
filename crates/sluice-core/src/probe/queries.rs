//! The queries of a probe, in which every name is qualified, and no operator stands: `search_path` is the client's.
//!
//! The answer is ASCII, whatever `client_encoding` says, and consists of fields that [`super::Answer`] reads.

use std::{collections::BTreeSet, fmt::Write};

use crate::profile::put_literal;

use super::Defaults;

/// The question for what only the session itself knows: locks, channels, cursors, statements, whether it has a
/// temporary schema, and when it has read the server's configuration.
const SESSION: &str = "\
    SELECT pg_catalog.concat_ws(' ',pg_catalog.concat('pins=',pg_catalog.concat_ws(',',\
    CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_lock_status() l WHERE pg_catalog.texteq(l.locktype,'advisory') \
        AND pg_catalog.int4eq(l.pid,pg_catalog.pg_backend_pid())) THEN 'lock' END,\
    CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_listening_channels()) THEN 'listen' END,\
    CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_cursor() c WHERE c.is_holdable) THEN 'cursor' END)),\
    (SELECT pg_catalog.concat(CASE WHEN pg_catalog.bool_or(p.from_sql) THEN 'pins=prepare ' END,'statements=',\
        pg_catalog.count(*) FILTER (WHERE NOT p.from_sql)) FROM pg_catalog.pg_prepared_statement() p),\
    pg_catalog.concat('schema=',pg_catalog.pg_my_temp_schema(),' conf=',\
        pg_catalog.encode(pg_catalog.timestamptz_send(pg_catalog.pg_conf_load_time()),'hex'))";

/// Custom settings, which PostgreSQL does not list: one that was reset is left as an empty string, or as what the session
/// began with.
const CUSTOMS: &str = "\
    (SELECT pg_catalog.concat('made=',pg_catalog.string_agg({name},','),\
        ' set=',pg_catalog.string_agg(pg_catalog.concat({name},':',{value}),',') \
            FILTER (WHERE pg_catalog.textne(pg_catalog.current_setting(c.n,true),'')),\
        ' empty=',pg_catalog.string_agg({name},',') \
            FILTER (WHERE pg_catalog.texteq(pg_catalog.current_setting(c.n,true),''))) \
        FROM pg_catalog.unnest(ARRAY[{customs}]::pg_catalog.text[]) c(n) \
        WHERE pg_catalog.current_setting(c.n,true) IS NOT NULL{only})";

/// Of those, the ones that no library has brought.
const OF_NO_LIBRARY: &str = " AND NOT EXISTS (SELECT FROM pg_catalog.pg_show_all_settings() s \
    WHERE pg_catalog.texteq(pg_catalog.lower(s.name),c.n))";

/// The settings that the session has set itself, and the server's own values: of those that it has not set, and of the
/// others where PostgreSQL states what RESET goes back to in the same words (`TimeZone` is shown in words of its own).
const DEFAULTS: &str = "\
    (SELECT pg_catalog.concat('set=',pg_catalog.string_agg(pg_catalog.concat({name},':',{value}),',') \
            FILTER (WHERE pg_catalog.texteq(c.source,'session')),\
        ' defaults=',pg_catalog.encode(pg_catalog.convert_to(pg_catalog.string_agg(pg_catalog.concat(c.n,\
            CASE WHEN pg_catalog.textne(c.source,'session') \
                THEN pg_catalog.concat(pg_catalog.chr(2),pg_catalog.current_setting(c.n)) \
            WHEN c.unit IS NULL AND pg_catalog.textne(c.n,'TimeZone') \
                THEN pg_catalog.concat(pg_catalog.chr(2),c.reset_val) END),pg_catalog.chr(1)),pg_catalog.getdatabaseencoding()),'hex')) \
        FROM (SELECT s.name AS n,s.source,s.unit,s.reset_val FROM pg_catalog.pg_show_all_settings() s \
            WHERE pg_catalog.texteq(s.context,'user') OR pg_catalog.texteq(s.context,'superuser')) c)";

/// Of a custom setting, whose ASCII letters are in lower case already; others matter.
const CUSTOM_NAME: &str = "pg_catalog.encode(pg_catalog.convert_to(c.n,'UTF8'),'hex')";

const NAME: &str = "pg_catalog.encode(pg_catalog.convert_to(pg_catalog.lower(c.n),'UTF8'),'hex')";

const VALUE: &str = "pg_catalog.encode(pg_catalog.convert_to(pg_catalog.current_setting(c.n,true),\
    pg_catalog.getdatabaseencoding()),'hex')";

/// The values of settings, in the order of the names.
const VALUES: &str = "\
    (SELECT pg_catalog.concat('values=',pg_catalog.encode(pg_catalog.convert_to(pg_catalog.string_agg(\
        COALESCE(pg_catalog.current_setting(n,true),pg_catalog.chr(2)),pg_catalog.chr(1)),\
        pg_catalog.getdatabaseencoding()),'hex')) FROM pg_catalog.unnest({names}) n)";

/// The role that it works as, or `none`.
const ROLE: &str = ",pg_catalog.concat('role=',pg_catalog.encode(pg_catalog.convert_to(\
    pg_catalog.current_setting('role'),pg_catalog.getdatabaseencoding()),'hex'))";

/// The settings that sessions of that role begin with in that database (`ALTER ROLE … SET`, `ALTER DATABASE … SET`), as
/// `name=value`. The role's in the database count before the role's own, and those before the database's.
const BEGINNINGS: &str = "\
    SET LOCAL jit = off;\
    SELECT pg_catalog.concat('begins=',pg_catalog.encode(pg_catalog.convert_to(\
        pg_catalog.string_agg(e.s,pg_catalog.chr(1) ORDER BY d.setrole DESC,d.setdatabase DESC),\
        pg_catalog.getdatabaseencoding()),'hex')) \
        FROM pg_catalog.pg_db_role_setting d,pg_catalog.unnest(d.setconfig) e(s) \
        WHERE (pg_catalog.oideq(d.setdatabase,0::pg_catalog.oid) OR pg_catalog.oideq(d.setdatabase,\
            (SELECT b.oid FROM pg_catalog.pg_database b WHERE pg_catalog.nameeq(b.datname,pg_catalog.current_database())))) \
        AND (pg_catalog.oideq(d.setrole,0::pg_catalog.oid) \
            OR pg_catalog.oideq(d.setrole,pg_catalog.to_regrole({user})::pg_catalog.oid));";

/// Objects in the temporary schema.
const TEMPORARY: &str = "\
    SET LOCAL jit = off;\
    SELECT CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.refclassid OPERATOR(pg_catalog.=) 2615::pg_catalog.oid \
        AND d.refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) THEN 'pins=temp' ELSE '' END;";

/// The libraries of the functions that others than PostgreSQL itself have made.
const LIBRARIES: &str = "\
    SET LOCAL jit = off;\
    SELECT pg_catalog.concat('libraries=',pg_catalog.encode(pg_catalog.convert_to(\
        pg_catalog.string_agg(DISTINCT p.probin,pg_catalog.chr(1)),pg_catalog.getdatabaseencoding()),'hex')) \
        FROM pg_catalog.pg_proc p WHERE p.probin IS NOT NULL \
        AND pg_catalog.oidge(p.oid,16384::pg_catalog.oid);";

/// The question for functions in languages that may keep values in the session.
const LANGUAGES: &str = "\
    SELECT CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_proc p,pg_catalog.pg_language l \
        WHERE pg_catalog.oideq(p.prolang,l.oid) AND pg_catalog.oidge(p.oid,16384::pg_catalog.oid) \
        AND pg_catalog.oidge(l.lanplcallfoid,16384::pg_catalog.oid) AND pg_catalog.namene(l.lanname,'plpgsql')) \
        THEN 'languages=others' ELSE 'languages=own' END;";

/// Has the rest of the probe run with these switched off, and says what they were. `jit` comes first.
pub(super) fn put_switches(sql: &mut String, names: &[&str]) {
    let names = match names {
        ["jit", others @ ..] => {
            put_without_jit(sql);
            others
        }
        others => others,
    };
    if names.is_empty() {
        return;
    }
    let (mut was, mut sets) = (String::new(), String::new());
    for name in names {
        let _ = write!(was, ",pg_catalog.current_setting('{name}')");
        let _ = write!(sets, ",pg_catalog.set_config('{name}','0',true)");
    }
    let _ = write!(
        sql,
        "SELECT pg_catalog.concat('was=',pg_catalog.concat_ws(','{was}),pg_catalog.left(pg_catalog.concat(''{sets}),0));"
    );
}

/// Has nothing compiled from here on, and says what `jit` was: without a plan, which could be compiled itself.
pub(super) fn put_without_jit(sql: &mut String) {
    sql.push_str("SHOW jit;SET LOCAL jit = off;");
}

/// Switches `statement_timeout` off, and says before what it was, and what it is by itself.
pub(super) fn put_untimed(sql: &mut String) {
    sql.push_str(
        "SELECT pg_catalog.concat('was=',pg_catalog.current_setting('statement_timeout'),',',\
         pg_catalog.set_config('statement_timeout',NULL,true),\
         pg_catalog.left(pg_catalog.set_config('statement_timeout','0',true),0));",
    );
}

/// A probe for values alone. `user` is whom the pool logs in as.
pub(super) fn put_brief(sql: &mut String, user: &str, customs: &BTreeSet<&str>, defaults: &Defaults) {
    put_session(sql, user, customs, "");
    sql.push(',');
    sql.push_str(&VALUES.replace("{names}", &defaults.names));
    sql.push_str(");");
}

/// A probe in full.
pub(super) fn put_full(sql: &mut String, user: &str, customs: &BTreeSet<&str>) {
    put_session(sql, user, customs, OF_NO_LIBRARY);
    sql.push(',');
    sql.push_str(&DEFAULTS.replace("{name}", NAME).replace("{value}", VALUE));
    sql.push_str(");");
}

/// Asks whether the temporary schema has an object.
pub(super) fn put_temporary(sql: &mut String) {
    sql.push_str(TEMPORARY);
}

/// Asks what sessions of the pool's user begin with.
pub(super) fn put_beginnings(sql: &mut String, user: &str) {
    let mut quoted = String::new();
    put_literal(&mut quoted, format!("\"{}\"", user.replace('"', "\"\"")).as_bytes());
    sql.push_str(&BEGINNINGS.replace("{user}", &quoted));
}

/// Asks for the libraries of functions, and for the languages.
pub(super) fn put_libraries(sql: &mut String) {
    sql.push_str(LIBRARIES);
    sql.push_str(LANGUAGES);
}

fn put_session(sql: &mut String, user: &str, customs: &BTreeSet<&str>, only: &str) {
    sql.push_str(SESSION);
    sql.push_str(ROLE);
    put_user(sql, "session_authorization", "session_user::pg_catalog.text", user);
    if !customs.is_empty() {
        let mut names = String::new();
        for name in customs {
            names.push_str(if names.is_empty() { "" } else { "," });
            put_literal(&mut names, name.as_bytes());
        }
        sql.push(',');
        let query = CUSTOMS.replace("{name}", CUSTOM_NAME).replace("{value}", VALUE).replace("{only}", only);
        sql.push_str(&query.replace("{customs}", &names));
    }
}

/// Whom the session works as, if that is somebody else.
fn put_user(sql: &mut String, setting: &str, is: &str, usual: &str) {
    let _ = write!(sql, ",CASE WHEN pg_catalog.textne({is},");
    put_literal(sql, usual.as_bytes());
    let hex: String = setting.bytes().map(|byte| format!("{byte:02x}")).collect();
    let _ = write!(
        sql,
        ") THEN pg_catalog.concat('set={hex}:',pg_catalog.encode(pg_catalog.convert_to({is},\
         pg_catalog.getdatabaseencoding()),'hex')) END"
    );
}
