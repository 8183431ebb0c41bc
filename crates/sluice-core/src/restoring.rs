//! The SQL that puts settings in place again in the midst of a client's transaction, where the client has taken them
//! back to what it began with. It must do nothing else there: a query would take the transaction's snapshot, behind
//! which PostgreSQL refuses a change of its isolation level, so that these are SETs wherever one has the same outcome.

use crate::{
    profile::{self, ENDING, Profile, ROLE, SESSION_AUTHORIZATION, Scope, put_literal, put_name, put_set_configs},
    sql::Reset,
};

/// The settings whose values SET takes for lists of names, and quotes where they need it (`GUC_LIST_QUOTE`).
const NAME_LISTS: [&str; 6] = [
    "local_preload_libraries",
    "search_path",
    "session_preload_libraries",
    "shared_preload_libraries",
    "temp_tablespaces",
    "unix_socket_directories",
];

/// The words that PostgreSQL quotes as names.
const KEYWORDS: &str = " all analyse analyze and any array as asc asymmetric authorization between bigint binary bit \
    boolean both case cast char character check coalesce collate collation column concurrently constraint create cross \
    current_catalog current_date current_role current_schema current_time current_timestamp current_user dec decimal \
    default deferrable desc distinct do else end except exists extract false fetch float for foreign freeze from full \
    grant greatest group grouping having ilike in initially inner inout int integer intersect interval into is isnull \
    join json json_array json_arrayagg json_exists json_object json_objectagg json_query json_scalar json_serialize \
    json_table json_value lateral leading least left like limit localtime localtimestamp merge_action national natural \
    nchar none normalize not notnull null nullif numeric offset on only or order out outer overlaps overlay placing \
    position precision primary real references returning right row select session_user setof similar smallint some \
    substring symmetric system_user table tablesample then time timestamp to trailing treat trim true union unique \
    user using values varchar variadic verbose when where window with xmlattributes xmlconcat xmlelement xmlexists \
    xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable ";

/// The statements that put in place what a client began with, of the settings that it has reset.
pub(crate) fn restoring(start: &Profile, resets: &Reset) -> Vec<String> {
    let these = |is_local: bool| {
        let covered = |name: &str| resets.covers(name) && resets.is_local(name) == is_local;
        let settings = start.settings().iter().filter(|(name, _)| covered(name));
        Profile::new(settings.map(|(name, value)| (name.clone(), value.clone())).collect())
    };
    if !resets.is_read() {
        return profile::fill(&these(false)).into_iter().collect();
    }
    let mut sql = sets(&these(false), Scope::Session);
    sql.extend(sets(&these(true), Scope::Transaction));
    sql
}

/// The statements that make settings what they are here, one after another, each with a semicolon.
fn sets(settings: &Profile, scope: Scope) -> Vec<String> {
    // Whoever the server works as from then on may not be allowed the rest, and what ends statements could end these.
    let last = [SESSION_AUTHORIZATION, ROLE].into_iter().chain(ENDING);
    let settings = settings.settings();
    let first = settings.iter().filter(|(name, _)| last.clone().all(|other| *name != other));
    let last = last.clone().filter_map(|name| settings.get_key_value(name));
    first.chain(last).map(|(name, value)| set(name, value, scope)).collect()
}

fn set(name: &str, value: &[u8], scope: Scope) -> String {
    let mut sql = String::new();
    let values = if NAME_LISTS.contains(&name) { names(value) } else { Some(vec![value.to_vec()]) };
    let prefix = match scope {
        Scope::Session => "SET ",
        Scope::Transaction => "SET LOCAL ",
    };
    sql.push_str(prefix);
    let Some(values) = values.filter(|_| put_name(&mut sql, name)) else {
        sql.clear();
        put_set_configs(&mut sql, [(name, Some(value))], scope);
        sql.push(';');
        return sql;
    };
    for (place, value) in values.iter().enumerate() {
        sql.push_str(if place == 0 { " = " } else { "," });
        put_literal(&mut sql, value);
    }
    sql.push(';');
    sql
}

/// The names in a list, if SET writes that list exactly so.
fn names(list: &[u8]) -> Option<Vec<Vec<u8>>> {
    std::str::from_utf8(list).ok()?.split(", ").map(name).collect()
}

fn name(written: &str) -> Option<Vec<u8>> {
    let is_part = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let is_plain = |name: &str| name.bytes().all(is_part) && name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    let Some(quoted) = written.strip_prefix('"') else {
        let is_its_own = is_plain(written) && !KEYWORDS.contains(&format!(" {written} "));
        return is_its_own.then(|| written.as_bytes().to_vec());
    };
    let quoted = quoted.strip_suffix('"')?;
    let has_others = quoted.replace("\"\"", "").contains('"');
    (!has_others && !is_plain(quoted)).then(|| quoted.replace("\"\"", "\"").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{profile::Settings, sql::reset};

    fn restored(settings: &[(&str, &str)], text: &str) -> Vec<String> {
        let settings: Settings =
            settings.iter().map(|(name, value)| ((*name).into(), value.as_bytes().into())).collect();
        restoring(&Profile::new(settings), &reset(text.as_bytes()).expect("it resets settings"))
    }

    #[test]
    fn settings_are_set_one_by_one() {
        let settings = [("app.x", "it's"), ("datestyle", "German, DMY"), ("role", "a"), ("statement_timeout", "5s")];
        assert_eq!(
            restored(&settings, "discard all"),
            [
                "SET \"app\".\"x\" = 'it''s';",
                "SET \"datestyle\" = 'German, DMY';",
                "SET \"role\" = 'a';",
                "SET \"statement_timeout\" = '5s';"
            ]
        );
        assert_eq!(
            restored(&settings, "set local app.x to default; reset role"),
            ["SET \"role\" = 'a';", "SET LOCAL \"app\".\"x\" = 'it''s';",]
        );
        assert_eq!(restored(&settings, "reset work_mem"), [""; 0]);
    }

    #[test]
    fn lists_of_names_are_set_where_they_stay_as_they_are() {
        for (list, expected) in [
            ("started", "SET \"search_path\" = 'started';"),
            ("\"$user\", public", "SET \"search_path\" = '$user','public';"),
            ("\"A\"\"b\", \"\"", "SET \"search_path\" = 'A\"b','';"),
            ("a,b", "SELECT pg_catalog.set_config('search_path','a,b',false);"),
            ("user", "SELECT pg_catalog.set_config('search_path','user',false);"),
            ("\"plain\"", "SELECT pg_catalog.set_config('search_path','\"plain\"',false);"),
            ("A", "SELECT pg_catalog.set_config('search_path','A',false);"),
            ("", "SELECT pg_catalog.set_config('search_path','',false);"),
            ("\"a, b\"", "SELECT pg_catalog.set_config('search_path','\"a, b\"',false);"),
        ] {
            assert_eq!(restored(&[("search_path", list)], "reset all"), [expected], "{list}");
        }
    }
}
