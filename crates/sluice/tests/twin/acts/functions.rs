//! Functions and procedures of users that leave something behind, which no text of a client tells of.
//!
//! None of them takes settings back: within its transaction, `RESET` in a function goes to the server's own defaults
//! instead of what the client began with (docs/decisions/0014).

use crate::generate::Maker;

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "SELECT sets('TimeZone', 'Asia/Tokyo')", "SELECT sets('work_mem', '11MB')", "SELECT sets('app.tenant', 'b')", "SELECT sets('search_path', 'tenant_{x}')", "SELECT sets('DateStyle', 'German')",
    "SELECT sets_locally('work_mem', '12MB'), current_setting('work_mem')", "CALL sets_zone('America/New_York')", "SELECT runs('SET work_mem = ''13MB''')", "SELECT runs('SET LOCAL TimeZone = ''UTC''')",
    "DO $$ BEGIN SET work_mem = '14MB'; END $$", "DO $$ BEGIN PERFORM set_config('app.tenant', 'a', false); END $$", "UPDATE pg_settings SET setting = '15000' WHERE name = 'work_mem'",
    "UPDATE pg_settings SET setting = 'UTC' WHERE name = 'TimeZone'", "SELECT makes_temporary(1)", "SELECT makes_temporary(2)", "SELECT locks({k})", "SELECT with_settings()",
    "WITH x AS (SELECT set_config('work_mem', '16MB', false)) SELECT * FROM x", "SELECT \"set_config\"('IntervalStyle', 'iso_8601', false)", "SELECT U&\"s\\0065t_config\"('work_mem', '17MB', false)",
    "SELECT runs('DISCARD PLANS')", "SELECT sets('role', 'twin_a')",
];

#[rustfmt::skip]
const LOOKS: &[&str] = &[
    "SHOW TimeZone", "SHOW work_mem", "SELECT current_setting('app.tenant', true)", "SELECT shows_time()", "SELECT counts_item()", "SELECT interval '1 day 2:03'",
    "SELECT count(*) FROM made", "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()", "SELECT current_user", "SELECT '03/04/2024'::date",
];

pub(crate) fn act(maker: &mut Maker) {
    let text = maker.one_of(TEXTS);
    maker.sql(&text);
    for _ in 0..1 + maker.random.below(2) {
        let text = maker.one_of(LOOKS);
        maker.sql(&text);
    }
}
