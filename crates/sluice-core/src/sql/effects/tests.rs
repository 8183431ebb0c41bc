//! Effects of texts, as tables of cases.

use super::*;

#[test]
fn what_is_there_is_altered_by_ddl_about_it() {
    for (text, expected) in [
        ("alter table t add b int", true),
        ("ALTER TYPE m ADD VALUE 'x'", true),
        ("drop function if exists f()", true),
        ("create or replace view v as select 1", true),
        ("commit prepared 'a'", true),
        ("do $$ begin alter table t add b int; end $$", true),
        ("select 1; drop schema s", true),
        ("create table t (a int)", false),
        ("create temp table t as select replace('a', 'b', 'c')", false),
        ("create index on t (a)", false),
        ("alter sequence s restart", false),
        ("alter user r set work_mem = '1MB'", false),
        ("drop index i", false),
        ("grant select on t to r", false),
        ("comment on table t is 'x'", false),
        ("do $$ begin perform f(); end $$", false),
        ("select f()", false),
        ("update pg_proc set prosrc = 'x'", true),
        ("update pg_database set datallowconn = false", false),
        ("with a as (delete from pg_authid returning oid) select * from a", false),
    ] {
        assert_eq!(effects(text.as_bytes()).intersects(Effects::ALTERS), expected, "{text}");
    }
}

#[test]
fn triggers_at_log_ins_are_altered_with_their_functions() {
    for (text, expected) in [
        ("create or replace function f() returns event_trigger language plpgsql as 'begin end'", true),
        ("CREATE FUNCTION f() RETURNS pg_catalog.event_trigger AS $$ $$ LANGUAGE plpgsql", true),
        ("do $$ begin execute 'create or replace function f() returns event_trigger ...'; end $$", true),
        ("alter function f() set search_path = s", true),
        ("alter routine f rename to g", true),
        ("drop function f() cascade", true),
        ("drop function f()", false),
        ("create or replace function f() returns int language sql as 'select 1'", false),
        ("create function f() returns trigger language plpgsql as 'begin end'", false),
        ("alter table t add b int", false),
        ("drop table t cascade", false),
    ] {
        assert_eq!(effects(text.as_bytes()).intersects(Effects::LOG_IN_TRIGGERS), expected, "{text}");
    }
}

#[test]
fn a_catalog_may_be_written_to_like_a_table() {
    for (text, expected, concerns_log_ins) in [
        ("update pg_database set datallowconn = false where datname = 'x'", true, true),
        ("UPDATE ONLY PG_CATALOG.\"pg_authid\" a SET rolvaliduntil = now()", true, true),
        ("delete from pg_db_role_setting", true, true),
        ("insert into pg_catalog.pg_auth_members select * from t", true, true),
        ("explain analyze update pg_database set datallowconn = false", true, true),
        ("with a as (update pg_authid set rolcanlogin = false returning oid) select * from a", true, true),
        ("with a as (select 1) delete from only pg_catalog.pg_authid", true, true),
        ("do $$ begin update pg_authid set rolcanlogin = false; end $$", true, true),
        ("update pg_proc set prosrc = 'x'", true, false),
        ("update pg_settings set setting = 'x'", false, false),
        ("insert into t select * from pg_database", false, false),
        ("with a as (select * from pg_database) select * from a for update", false, false),
        ("with a as (select * from pg_database) insert into t select * from a", false, false),
        ("update app.pg_database set a = 1", false, false),
        ("copy t from stdin", false, false),
        ("update", false, false),
    ] {
        let found = effects(text.as_bytes());
        assert_eq!(found.intersects(Effects::CATALOG), expected, "{text}");
        assert_eq!(found.intersects(Effects::LOG_INS), concerns_log_ins, "{text}");
    }
}

#[test]
fn a_seed_is_set_in_several_ways() {
    for (text, expected) in [
        ("set seed = 0.5", true),
        ("SET SESSION Seed TO 0.5", true),
        ("set local seed = 0.5", true),
        ("select setseed(0.5)", true),
        ("select set_config('seed', '0.5', true)", true),
        ("update pg_settings set setting = '0.5' where name = 'seed'", true),
        ("do $$ begin perform setseed(0.5); end $$", true),
        ("do 'begin perform set_config(''seed'', ''0.5'', true); end'", true),
        ("do $$ begin perform seeds(); end $$", false),
        ("select f('seed')", false),
        ("set session authorization seed", false),
        ("update t set a = 'seed'", false),
    ] {
        let found = effects(text.as_bytes());
        assert_eq!(found.intersects(Effects::SEED) && found.intersects(Effects::STATE), expected, "{text}");
    }
}

#[test]
fn the_servers_process_is_asked_for_and_nothing_else_is_done() {
    assert_eq!(effects(b"select pg_catalog.pg_backend_pid()"), Effects::empty());
    assert_eq!(effects(b"select pg_backend_pid from t"), Effects::empty());
}

#[test]
fn a_null_may_stand_behind_an_equals_sign() {
    for (text, expected) in [("select a = NULL", true), ("select nulls, $1", false), ("select a is not null", true)] {
        assert_eq!(effects(text.as_bytes()) == Effects::LITERAL, expected, "{text}");
    }
}

#[test]
fn plain_statements_do_nothing() {
    for text in [
        "select 1",
        "SELECT abalance FROM pgbench_accounts WHERE aid = $1;",
        "update t set a = a + $1 where b in (1, 2) returning *",
        "INSERT INTO s.t (a, b) VALUES (1, lower($1)), (pg_catalog.upper($2), CURRENT_TIMESTAMP)",
        "with x (a) as (select count(*) from t) select coalesce(a, 0)::numeric(10,2) from x as y (a)",
        "begin",
        "select 1; commit",
        "set local statement_timeout = 5",
        "SET LOCAL app.tenant = 1",
        "explain (costs off) select 1",
        "explain analyze verbose select lower(a)",
        "explain (costs off, format json) (select lower(a))",
        "select left(a, 1), a like (b) from t left join (u join (v join w on true) on true) on true where b ilike (c)",
        "select count(*) filter (where a) over (partition by b) from t group by (a), grouping sets ((a)) order by (b)",
        "insert into t values (1) on conflict (i) do nothing",
        "insert into t select 1 from a join b on true on conflict (lower(i)) where i > 2 do update set a = excluded.a",
        "with x as materialized (select 1), y as not materialized (select 2) select * from x, y",
        "with x (a) as (insert into t values (1) on conflict (i) do nothing returning *) insert into t select 1 from x",
        "with x as (select 1) merge into t using x on true when matched then delete",
        "explain with recursive x as ((select 1) union all select 2) (select 1 from x)",
        "copy (insert into t values (1) returning *) to stdout",
        "select sum(a) filter (where a > 1) over (), rank() over (w rows unbounded preceding) from t window w as ()",
        "select percentile_cont(1) within group (order by a) filter (where a) over (order by b) from t",
        "select distinct on (a) count(*) over (partition by a) from t group by rollup (a, b)",
        "select 1 from (t) join (u join v on true) using (a) join (w join x using (b)) on true group by cube (a)",
        "",
        " ; ;",
    ] {
        assert_eq!(effects(text.as_bytes()) - (Effects::USES_SEQUENCE | Effects::CUSTOM), Effects::empty(), "{text}");
    }
    assert_eq!(effects(b"select pg_advisory_xact_lock(1), 'x'"), Effects::LITERAL);
}

#[test]
fn what_may_leave_something_is_seen() {
    for text in [
        "set work_mem = '1MB'",
        "select set_config('a', 'b', true)",
        "select \"set_config\"('a', 'b', true)",
        "create /* so */ temp table t (i int)",
        "create table pg_temp.t as select 1",
        "create function pg_temp.f() returns int",
        "select 1 into temp x",
        "select my_function()",
        "select sets('a'), filter(1), by(2)",
        "select other.lower(1)",
        "update pg_settings set setting = 1",
        "update pg_catalog.\"pg_settings\" set setting = 1",
        "insert into pg_temp.t values (1)",
        "select pg_try_advisory_lock(1)",
        "do $$ $$",
        "listen a",
        "declare c cursor with hold for select 1",
        "select 1; discard temp",
        "prepare a as select 1",
        "explain analyze execute a",
        "with x as (select 1) select * into y from x",
        "select U&'a' uescape U&'!'",
        r#"select U&"s\0065t_config"('a', 'b', true)"#,
        "frobnicate",
        "set session characteristics as transaction read only",
        "'a",
        "explain (analyze) (select set_config('work_mem', '1MB', false))",
        "explain (analyze, timing off) (with x as (select 1) select pg_advisory_lock(1) from x)",
        "explain analyze (select pg_advisory_lock(42))",
        "explain analyze verbose ((values (my_function())))",
        "explain (select my_function())",
        "explain ((select my_function()))",
        "select version.version()",
        "select log . \"log\" ('x')",
        "select pg_catalog.public.version()",
        "select isnull(1), 2",
        "select \"is\"(1)",
        "select join('a'), 1",
        "select a from t where ilike(a, 'b')",
        "set transaction.tenant = 'a'",
        "set constraints . tenant to 'a'",
    ] {
        assert!(effects(text.as_bytes()).intersects(Effects::STATE), "{text}");
    }
}

#[test]
fn words_are_keywords_where_they_stand_for_nothing_else() {
    for text in [
        "select not materialized(1)",
        "select 1 from t x join t y on conflict(1)",
        "select 1 from t x join t y on conflict(1) where x.do union select 1 do",
        "select 1 from t x join t y on conflict(1) where true union select 1 as do",
        "select (select 1 from t x join t y on conflict(1)), 1 do",
        "insert into t select 1 from t x join t y on conflict(1) on conflict (i) do nothing",
        "insert into t select 1 from t x join t y on conflict(1) where true on conflict (i) do nothing",
        "select distinct on (1) filter(1)",
        "select distinct on (1) over()",
        "select distinct on (lower(a)) over(a) from t",
        "select distinct on (1) join(1)",
        "select distinct on (1) ilike(1)",
        "select 1 between symmetric join(1) and 2",
        "select num_nulls(variadic join(1))",
        "select trim(both join(1) from 'a'), overlay('a' placing ilike(1) from 1)",
        "select 1 fetch first join(1) rows only",
        "select a from t order by cube(1), a",
        "select rank() over (partition by rollup(1))",
        "select 1 operator(pg_catalog.+) over(1)",
    ] {
        let found = effects(text.as_bytes());
        assert!(found.contains(Effects::STATE | Effects::CONTEXT), "{text}");
    }
}

#[test]
fn insert_may_be_a_label_of_what_is_selected_into_a_table() {
    for text in [
        "select 1 as insert into temp tt",
        "select 1 merge into temp tt",
        "select insert into temp tt from t",
        "(select 1 insert into temp tt)",
        "((select 1 insert into temp tt))",
        "select (1) insert into temp tt",
        "with x as (select 1) select (1) insert into temp tt",
        "with x as (select 1) (select (1) insert into temp tt)",
        "explain analyze select (1) merge into temp tt",
        "explain analyze (select (1) merge into temp tt)",
    ] {
        assert!(effects(text.as_bytes()).contains(Effects::STATE | Effects::CATALOG), "{text}");
    }
}

#[test]
fn the_catalogs_are_changed_for_all_but_by_temporary_tables() {
    for (text, expected) in [
        ("create table t (i int)", true),
        ("create or replace view v as select 1", true),
        ("create temp table t (i int)", false),
        ("create local temporary table t (i int)", false),
        ("drop table t", true),
        ("select * into t from u", true),
        ("do $$ $$", true),
        ("insert into t select 1", false),
        ("explain create table t as select 1", true),
        ("commit", false),
        ("commit and chain", false),
        ("commit prepared 'a'", true),
        ("rollback prepared 'a'", false),
    ] {
        assert_eq!(effects(text.as_bytes()).intersects(Effects::CATALOG), expected, "{text}");
    }
}

#[test]
fn log_ins_go_by_roles_databases_and_what_is_granted() {
    for (text, expected) in [
        ("alter role a nologin", true),
        ("drop owned by a", true),
        ("reassign owned by a to b", true),
        ("commit prepared 'a'", true),
        ("grant a to b", true),
        ("alter table a add b int", false),
        ("commit", false),
    ] {
        assert_eq!(effects(text.as_bytes()).intersects(Effects::LOG_INS), expected, "{text}");
    }
}

#[test]
fn literals_may_mean_the_time_they_are_read_at() {
    for (text, expected) in [
        ("select 'now'::timestamptz", true),
        ("select date ' Today '", true),
        ("select $$tomorrow 10:00$$::timestamp", true),
        ("select '12:30'::timetz", true),
        ("select '2024-01-01 12:30'::timestamptz", false),
        ("select 'knowledge', now()", false),
        (r"select U&'n\006fw'", true),
        ("select U&'n!006fw' uescape '!'", true),
        (r"select U&'\0041'", false),
        (r"select E'n\x6fw'", true),
        (r"select E'\156\u006f\U00000077'", true),
        (r"select E'\now\n', E'1\x32:30'", true),
        (r"select regexp_replace(a, '(\d+):\1', '\1')", false),
    ] {
        assert_eq!(effects(text.as_bytes()).intersects(Effects::CLOCK), expected, "{text}");
    }
}

#[test]
fn settings_that_parsing_reads_are_told_from_others() {
    for (text, expected) in [
        ("set local timezone = 'UTC'", true),
        ("set local search_path = a", true),
        ("set local work_mem = 5", true),
        ("set application_name = a", false),
        ("set statement_timeout to default", false),
        ("set time zone 'UTC'", true),
        ("set role a", true),
        ("reset all", true),
    ] {
        assert_eq!(effects(text.as_bytes()).intersects(Effects::CONTEXT), expected, "{text}");
    }
}

#[test]
fn what_neither_text_nor_probe_shows_is_known_to_hide() {
    for (text, expected) in [
        ("select set_config('app.a', $1, false)", false),
        ("select set_config($1, $2, false)", false),
        ("select set_config($1::text, $2, false)", false),
        ("select set_config('app.a'::text, $2, false)", false),
        ("select set_config('app.a'::name, $1, false)", true),
        ("select set_config('app.' || 'a', $1, false)", true),
        ("select set_config('app.' || text, $1, false)", true),
        ("select set_config(E'app\\x2ea', $1, false)", true),
        ("select set_config(a, b, false) from t", true),
        ("select pg_catalog.set_config(setting_name => 'a', new_value => 'b', is_local => false)", true),
        ("select lower($1 || 'x')", false),
        // PostgreSQL's own functions that run a text.
        ("select query_to_xml('select set_config(''app''||''.x'',''1'',false)',true,true,'')", true),
        ("select * from crosstab($1) as t(a int, b int)", true),
        ("select query_to_xml($1, true, true, '')", true),
        ("select query_to_xml($$ select $a$x$a$ $$, true, true, '')", true),
        ("select query_to_xml('select ' || $1, true, true, '')", true),
        ("select query_to_xmlschema(query => 'select 1', nulls => true, tableforest => true, targetns => '')", true),
        ("select * from ts_stat('select v from documents')", false),
        ("select * from pg_catalog.ts_stat('select v from documents', $1)", false),
        ("select ts_rewrite(q, 'select t, s from aliases') from queries", true),
        ("select ts_rewrite(q, to_tsquery('a'), to_tsquery('b', 'c')) from queries", false),
    ] {
        assert_eq!(effects(text.as_bytes()).intersects(Effects::UNPROBEABLE), expected, "{text}");
    }
    for (text, expected) in [
        ("select * from ts_stat('select setseed(0.5)::text::tsvector')", Effects::SEED),
        ("select query_to_xml('select lastval()', true, true, '')", Effects::READS_SEQUENCE),
        ("select query_to_xml('create table t (a int)', true, true, '')", Effects::CATALOG),
        ("do $$ begin perform query_to_xml(a, true, true, '') from t; end $$", Effects::UNPROBEABLE),
    ] {
        assert!(effects(text.as_bytes()).contains(expected), "{text}");
    }
    let of_row = "select set_config(name, 'view', false) from pg_settings where name";
    for (condition, expected) in [
        ("= 'restrict_nonsystem_relation_kind'", false),
        ("= 'a';", false),
        ("like 'a%'", true),
        ("<> 'a'", true),
        ("= 'a' or true", true),
        ("= 'a' || 'b'", true),
        ("= E'\\x61'", true),
        ("= $1", true),
        ("", true),
    ] {
        let text = format!("{of_row} {condition}");
        assert_eq!(effects(text.as_bytes()).intersects(Effects::UNPROBEABLE), expected, "{text}");
    }
    for text in ["select length('xxx", "insert into t values (1", "frobnicate"] {
        assert!(effects_of_beginning(text.as_bytes()).intersects(Effects::UNPROBEABLE), "{text}");
    }
    let unseen = |text: &[u8]| effects_of_beginning(text) & (Effects::CATALOG | Effects::LOG_INS);
    assert_eq!(unseen(b"insert into t values (1"), Effects::empty());
    assert_eq!(unseen(b"set work_mem = '"), Effects::CATALOG | Effects::LOG_INS);
}

#[test]
fn what_no_probe_shows_is_found_in_whatever_runs_it() {
    let hidden = Effects::UNPROBEABLE | Effects::SPENDS_SERVER | Effects::SEED;
    for (text, expected) in [
        ("prepare p(text) as select set_config('app.' || $1, '1', false)", Effects::UNPROBEABLE),
        ("prepare p(text) as select set_config($1, '1', false)", Effects::empty()),
        ("create table z as select set_config(format('app.%s', 'x'), '1', false)", Effects::UNPROBEABLE),
        ("create table z as select set_config('app.x', '1', false)", Effects::empty()),
        ("alter table z add b text default set_config('app.' || 'x', '1', false)", Effects::UNPROBEABLE),
        ("call p(set_config('app.' || 'x', '1', false))", Effects::UNPROBEABLE),
        ("do $$ begin perform set_config('app.' || 'x', '1', false); end $$", Effects::UNPROBEABLE),
        ("execute p(E'app\\x2ex')", Effects::UNPROBEABLE),
        ("execute p('app.'\n'x')", Effects::UNPROBEABLE),
        ("execute p('app.x')", Effects::empty()),
        ("execute p('seed')", Effects::SEED),
        ("prepare p as select setseed(0.5)", Effects::SEED),
        ("alter table z add b text default setseed(0.5)", Effects::SEED),
        ("create table z as select dblink_connect('c', '')", Effects::SPENDS_SERVER),
        ("do $$ begin perform pg_backup_start('x'); end $$", Effects::SPENDS_SERVER),
        ("do $$ begin perform isn_weak(true); end $$", Effects::SPENDS_SERVER),
        ("create table set_config (a int)", Effects::UNPROBEABLE),
        ("create table t (dblink_connect int)", Effects::empty()),
    ] {
        assert_eq!(effects(text.as_bytes()) & hidden, expected, "{text}");
    }
}

#[test]
fn log_ins_go_by_roles_databases_and_triggers() {
    for text in [
        "create role r",
        "alter user r set work_mem = '1MB'",
        "alter database d reset all",
        "grant a to b",
        "revoke connect on database d from r",
        "create event trigger t on login execute function f()",
        "drop event trigger t",
    ] {
        assert!(effects(text.as_bytes()).intersects(Effects::LOG_INS), "{text}");
    }
    for text in ["create table t (a int)", "alter table t add b int", "grant select on t to r", "create trigger t"] {
        assert!(!effects(text.as_bytes()).intersects(Effects::LOG_INS), "{text}");
    }
}

#[test]
fn what_discard_all_leaves() {
    let lasts = |text: &str| crate::sql::may_outlast_discard(effects(text.as_bytes()), text.as_bytes());
    for text in [
        "select lower(a), count(*) from t group by 1",
        "insert into t values ('a.b', nextval('s'))",
        "set work_mem = '1MB'; set local timezone = 'UTC'",
        "set search_path to a, b",
        "listen a",
        "begin; update t set a = 1; commit",
        "reset all",
    ] {
        assert!(!lasts(text), "{text}");
    }
    for text in [
        "set app.x = '1'",
        "begin; set local app.x = '1'; commit",
        "select set_config('app.' || 'x', '1', true)",
        "select f()",
        "do $$ begin null; end $$",
        "call p()",
        "create temp table t (a int)",
        "select setseed(0.5)",
        "set seed = 0.5",
        "load 'x'",
        "frobnicate",
    ] {
        assert!(lasts(text), "{text}");
    }
}

#[test]
fn a_long_text_is_read_once() {
    // Each of these would take minutes if calls read on to the end, or hours.
    for text in [
        format!("select {}", "set_config(name,'x',false,".repeat(200_000)),
        format!("select {}", "pg_create_logical_replication_slot('x',".repeat(100_000)),
        format!("deallocate {}", "\"".repeat(4_000_000)),
    ] {
        assert!(effects(text.as_bytes()).intersects(Effects::STATE));
        crate::sql::command(text.as_bytes());
    }
}

#[test]
fn what_an_execute_is_given_is_read() {
    for text in [
        "execute p",
        "EXECUTE \"P\"('app.x', 1, -1.5, null, $1, 'a'::text, $2 :: int, date '2024-01-01', array[1, 2], 1 + 2)",
        "execute p('a'); select 1 || 'x'",
        "create table t as execute p('x')",
    ] {
        assert!(!effects(text.as_bytes()).intersects(Effects::UNPROBEABLE), "{text}");
    }
    for text in [
        "create table t as execute p('app.' || 'x')",
        "execute p(f('x'))",
        "execute p(1, $1 || 'x')",
        "execute p(current_user)",
    ] {
        assert!(effects(text.as_bytes()).intersects(Effects::UNPROBEABLE), "{text}");
    }
}

#[test]
fn what_is_in_parentheses_may_take_a_value_of_a_sequence() {
    for text in ["(with x as (insert into t default values returning 1) select 1)", "explain analyze (table t)"] {
        assert!(effects(text.as_bytes()).intersects(Effects::USES_SEQUENCE), "{text}");
    }
}

#[test]
fn statements_of_sql_are_told_by_their_verbs() {
    for (text, expected) in [
        ("prepare a as select 1", Effects::NAMES | Effects::PREPARES),
        ("execute a", Effects::NAMES),
        ("explain (costs off) execute a", Effects::NAMES),
        ("select 1; deallocate a", Effects::NAMES),
        ("discard all", Effects::NAMES),
        ("create temp table t as execute a", Effects::NAMES),
        ("create trigger t after insert on u execute function f()", Effects::empty()),
        ("grant execute on function f to a", Effects::empty()),
        ("select 1", Effects::empty()),
    ] {
        let found = effects(text.as_bytes());
        assert_eq!(found & (Effects::NAMES | Effects::PREPARES), expected, "{text}");
    }
}

#[test]
fn a_backslash_hides_nothing() {
    for (text, same) in [
        (r"select 'C:\temp'; set app.tenant = 'a'", "select ''; set app.tenant = 'a'"),
        (r"select 'a' ~ '\d', setseed(0.25)", "select 'a' ~ '', setseed(0.25)"),
        (r"select 'DOM\alice', currval('s')", "select '', currval('s')"),
        (r"select a ~ '^\d+$' from t where c like '10\%' escape '\'", "select a ~ '' from t where c like '' escape ''"),
        (r"select 'it\'s', setseed(0.25)", "select '', setseed(0.25)"),
        (r"select 'a\', 1 --', setseed(0.25)", "select '', setseed(0.25)"),
    ] {
        assert_eq!(effects(text.as_bytes()), effects(same.as_bytes()), "{text}");
    }
    // The second byte of one character, or an escape.
    for text in [&b"select length(E'\x95\x5c'), setseed(0.25) --'"[..], b"select length('\x95\x5c'), setseed(0.25) --'"]
    {
        assert!(effects(text).contains(Effects::SEED), "{}", text.escape_ascii());
    }
    assert_eq!(effects(br"select U&'\0041', 1"), effects(b"select 'A', 1"));
    assert_eq!(effects(br#"select U&"s\0065tseed"(1)"#), effects(b"select setseed(1)"));
    assert_eq!(effects(b"select U&'a' uescape U&'!', 1"), Effects::UNREAD);
}

#[test]
fn what_ends_with_the_process_only_is_seen() {
    for (text, expected) in [
        ("select pg_replication_origin_session_setup('o')", true),
        ("select pg_replication_origin_create('o')", false),
        ("select * from pg_create_physical_replication_slot('s', true, true)", true),
        ("select pg_create_physical_replication_slot('s', temporary => true)", true),
        ("select pg_create_logical_replication_slot('s', lower(replace('a', 'b', 'c'))), 1", false),
        ("select pg_catalog.pg_copy_physical_replication_slot('s', 't', true)", true),
        ("select pg_drop_replication_slot('s')", false),
    ] {
        assert_eq!(effects(text.as_bytes()).intersects(Effects::SPENDS_SERVER), expected, "{text}");
    }
}
