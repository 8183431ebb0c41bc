//! Texts whose meaning depends on settings, the same ones at all clients and again and again: that is where statements
//! would be shared which must not be.

use crate::generate::{Maker, Statement};

#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "SELECT '2024-03-04 05:06:07'::timestamptz AS at",
    "SELECT '03/04/2024'::date AS day",
    "SELECT '03/04/2024 10:11'::timestamptz AT TIME ZONE 'UTC' AS at",
    "SELECT '-1 2:03:04'::interval AS span, '1 year 2 mons 3 days 04:05:06'::interval AS more",
    "SELECT interval '1-2' AS span, interval '-1-2 +3 -4:05:06' AS more",
    "SELECT timestamptz '2024-07-01 12:00' = timestamptz '2024-07-01 12:00+00' AS same",
    "SELECT extract(hour FROM timestamptz '2024-03-04 05:06:07+00') AS hour",
    "SELECT to_char(timestamptz '2024-03-04 05:06:07+00', 'HH24 TZ') AS shown",
    "SELECT date_trunc('day', timestamptz '2024-03-04 22:06:07+00') AS day",
    "SELECT '12:00'::timetz AS at",
    r"SELECT 'a\nb\\c' AS escaped, length('a\nb\\c') AS long",
    r"SELECT E'a\nb' AS escaped, U&'\0041' AS letter",
    "SELECT 1.1::float8 / 3 AS third, 1.1::float4 AS less, 1e20::float8 AS more",
    r"SELECT '\xdeadbeef'::bytea AS raw, 'ab'::bytea AS plain",
    "SELECT '{1,NULL,x}'::text[] AS list",
    "SELECT ARRAY['2024-03-04'::date, '12/11/2024'] AS days",
    "SELECT id, at, day, span FROM shared WHERE at > '2024-05-06' ORDER BY id LIMIT 2",
    "SELECT id, price, raw FROM shared WHERE day < '05/06/2024' ORDER BY id",
    "SELECT count(*) FROM shared WHERE name = NULL",
    "SELECT id FROM shared WHERE feels = 'ok' ORDER BY 1 LIMIT 2",
    "SELECT 'Grüße' AS words, length('Grüße') AS long, convert_to('Grüße', 'UTF8') AS bytes",
    "SELECT name FROM shared WHERE id = 13",
    "SELECT name FROM shared WHERE id = 14",
    "SELECT with_settings() AS inside, shows_time() AS outside",
    "SELECT 1::numeric / 3 AS third, 'x' || 1.5 AS joined",
    "SELECT to_date('04.03.2024', 'DD.MM.YYYY') AS day, make_timestamptz(2024, 3, 4, 5, 6, 7) AS at",
    "SELECT '1234.5'::money AS price",
    "SELECT row_to_json(s) AS line FROM shared s WHERE id = 1",
    "SELECT xmlcomment('x') IS NOT NULL AS has",
    "SELECT set_byte(raw, 0, 1) AS raw FROM shared WHERE id = 2",
    "SELECT * FROM shared WHERE id IN (1, 13) ORDER BY id",
    "VALUES ('2024-03-04'::timestamptz, '1 day'::interval), (NULL, NULL)",
];

/// With parameters whose text is read by settings.
const WITH: &[(&str, u32, &[&str])] = &[
    ("SELECT $1::timestamptz AS at", 1184, &["2024-03-04 05:06", "03/04/2024", "2024-03-04 05:06+03"]),
    ("SELECT $1::date AS day, $1::date + 1 AS next", 1082, &["03/04/2024", "2024-03-04", "14.03.2024"]),
    ("SELECT $1::interval AS span", 1186, &["-1 2:03", "P1Y2M", "1 mon"]),
    ("SELECT id FROM shared WHERE at < $1 ORDER BY id", 1184, &["2024-05-06", "05/06/2024"]),
    ("SELECT $1::text AS words, length($1::text) AS long", 25, &["plain", "Gr\u{fc}\u{df}e"]),
    ("SELECT $1::float8 * 1.1 AS more", 701, &["1.1", "0.3"]),
    ("SELECT $1::bytea AS raw", 17, &[r"\x00ff", "abc"]),
];

pub(crate) fn act(maker: &mut Maker) {
    if maker.random.percent(25) {
        let (sql, oid, values) = *maker.random.of(WITH);
        let value = maker.random.of(values).as_bytes().to_vec();
        let statement = Statement { types: vec![oid], values: vec![Some(value)], ..sql.into() };
        maker.any(&statement);
    } else {
        let text = maker.one_of(TEXTS);
        maker.sql(&text);
    }
}
