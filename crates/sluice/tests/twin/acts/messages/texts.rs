//! Texts of the messages: few, so that they meet each other.

/// A text, and values for its parameters.
pub(super) type Text = (&'static str, &'static [&'static str]);

const NUMBERS: &[&str] = &["1", "0", "3", "x"];
const WORDS: &[&str] = &["one", "two", ""];

/// For any name, in any way.
#[rustfmt::skip]
pub(super) const ANY: &[Text] = &[
    ("SELECT 1 AS one", &[]), ("SELECT $1::int + 1 AS next", NUMBERS), ("SELECT $1 AS same", WORDS), ("SELECT generate_series(1, 4) AS i", &[]),
    ("SELECT", &[]), ("SELECT FROM shared WHERE id < 3", &[]), ("", &[]), (";", &[]), ("-- nothing", &[]), ("VALUES (1), (2)", &[]), ("SELECT tells('so')", &[]),
    ("INSERT INTO lines VALUES ('inserted')", &[]), ("INSERT INTO lines VALUES ($1) RETURNING line", WORDS), ("SELECT count(*) FROM lines", &[]),
    ("SELECT 10 / $1::int AS part", NUMBERS), ("SELECT 6 / (3 - i) AS part FROM generate_series(1, 4) i", &[]), ("SELECT 1 / 0", &[]), ("SELEC", &[]),
    ("SELECT no_such", &[]), ("SELECT 1; SELECT 2", &[]), ("COPY (SELECT generate_series(1, 3)) TO STDOUT", &[]), ("COPY (SELECT 6 / (2 - i) FROM generate_series(1, 3) i) TO STDOUT", &[]),
    ("EXPLAIN (COSTS OFF) SELECT 1", &[]), ("SELECT fails('so')", &[]), ("SELECT id, name FROM shared WHERE id < $1 ORDER BY id", NUMBERS),
];

/// Settings, changed and shown. No function takes one back: that is followed at the end of the transaction only.
#[rustfmt::skip]
pub(super) const SETTINGS: &[Text] = &[
    ("SET work_mem = '5MB'", &[]), ("SET work_mem = '6MB'", &[]), ("SET LOCAL work_mem = '7MB'", &[]), ("RESET work_mem", &[]), ("SET work_mem TO DEFAULT", &[]), ("SHOW work_mem", &[]),
    ("SET TimeZone = 'Asia/Tokyo'", &[]), ("SET LOCAL TimeZone = 'UTC'", &[]), ("RESET TimeZone", &[]), ("SHOW TimeZone", &[]),
    ("SET app.x = 'one'", &[]), ("SET LOCAL app.x = 'two'", &[]), ("RESET app.x", &[]), ("SELECT set_config('app.x', 'three', false)", &[]), ("SELECT current_setting('app.x', true)", &[]),
    ("SET app.y = 'four'", &[]), ("SELECT current_setting('app.y', true) IS NULL AS none", &[]), ("SELECT set_config('work_mem', coalesce($1, '8MB'), false)", &["9MB", "many"]), ("SELECT set_config($1, '9MB', true)", &["work_mem", "no_such", "app.y"]),
    ("SET application_name = 'renamed'", &[]), ("RESET application_name", &[]), ("SET no_such = 1", &[]), ("SET work_mem = 'many'", &[]), ("SET ROLE twin_a", &[]), ("RESET ROLE", &[]), ("SELECT current_user", &[]),
    ("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ", &[]), ("RESET default_transaction_isolation", &[]), ("SET client_encoding = 'LATIN1'", &[]), ("RESET client_encoding", &[]),
    ("SET search_path = tenant_a, public", &[]), ("RESET search_path", &[]), ("SET standard_conforming_strings = off", &[]), ("RESET standard_conforming_strings", &[]), ("SET TRANSACTION READ ONLY", &[]), ("SHOW transaction_isolation", &[]),
];

/// Tables that come, change and go, each client's own.
#[rustfmt::skip]
pub(super) const TABLES: &[Text] = &[
    ("CREATE TABLE c{k}.d (n int)", &[]), ("CREATE TABLE c{k}.d (n int)", &[]), ("INSERT INTO c{k}.d VALUES (7)", &[]), ("SELECT * FROM c{k}.d", &[]), ("SELECT * FROM c{k}.d", &[]), ("SELECT n FROM c{k}.d WHERE n > $1", NUMBERS),
    ("ALTER TABLE c{k}.d ADD m text", &[]), ("ALTER TABLE c{k}.d ALTER n TYPE bigint", &[]), ("DROP TABLE c{k}.d", &[]), ("DROP TABLE IF EXISTS c{k}.d", &[]),
];

/// The beginnings and ends of transactions. None chooses its isolation level, which is too late behind a Parse, unless a
/// Flush has ended its transaction.
#[rustfmt::skip]
pub(super) const BLOCKS: &[Text] = &[
    ("BEGIN", &[]), ("BEGIN", &[]), ("BEGIN", &[]), ("COMMIT", &[]), ("COMMIT", &[]), ("ROLLBACK", &[]), ("ROLLBACK", &[]), ("END", &[]), ("SAVEPOINT s", &[]), ("ROLLBACK TO s", &[]), ("RELEASE s", &[]),
    ("COMMIT AND CHAIN", &[]), ("ROLLBACK AND CHAIN", &[]), ("START TRANSACTION READ ONLY", &[]), ("BEGIN READ WRITE", &[]), ("PREPARE TRANSACTION 'x'", &[]),
];

/// Cursors, which share their names with portals.
#[rustfmt::skip]
pub(super) const CURSORS: &[Text] = &[
    ("DECLARE p CURSOR FOR SELECT generate_series(1, 5) AS i", &[]), ("DECLARE q CURSOR FOR SELECT 6 / (3 - i) AS part FROM generate_series(1, 4) i", &[]), ("CLOSE p", &[]), ("CLOSE q", &[]), ("CLOSE ALL", &[]),
    ("MOVE 1 IN p", &[]), ("SELECT name, is_holdable FROM pg_cursors WHERE name IN ('p', 'q') ORDER BY name", &[]),
];

pub(super) const FETCHES: &[&str] =
    &["FETCH p", "FETCH 2 FROM p", "FETCH ALL FROM q", "FETCH q; SELECT 1", "SELECT 1; FETCH p"];

/// Prepared statements, by SQL.
pub(super) const NAMES: &[&str] = &["EXECUTE a", "EXECUTE a(4)", "DEALLOCATE a", "DEALLOCATE b", "DEALLOCATE ALL"];

/// Those that leave something for which a server may be kept.
#[rustfmt::skip]
pub(super) const PINNING: &[&str] = &[
    "PREPARE a AS SELECT 3 AS three", "PREPARE b (int) AS SELECT $1 + 1 AS next", "PREPARE a AS SELEC", "DECLARE p CURSOR WITH HOLD FOR SELECT generate_series(1, 5) AS i", "PREPARE b AS INSERT INTO lines VALUES ('prepared')",
    "CREATE TEMP TABLE tt AS SELECT 1 AS n", "SELECT n FROM tt", "DROP TABLE tt", "DISCARD TEMP",
];

/// Several statements for a Query.
#[rustfmt::skip]
pub(super) const SEVERAL: &[&str] = &[
    "SELECT 1; SELECT 2", "SELECT 1;; SELECT 2;", "BEGIN; SELECT 1 / 0; COMMIT", "BEGIN; SELECT 1", "COMMIT; SELECT 1", "SELECT 1; COMMIT; SELECT 2", "ROLLBACK; BEGIN", "SELECT 1; BEGIN; SELECT 2", "SAVEPOINT s; SELECT 1",
    "SET work_mem = '5MB'; SELECT 1 / 0", "SET LOCAL work_mem = '7MB'; SHOW work_mem", "RESET work_mem; SHOW work_mem; SELECT 1", "SET app.x = 'five'; ROLLBACK; SHOW work_mem", "SET TimeZone = 'UTC'; RESET TimeZone; SHOW TimeZone",
    "BEGIN; SAVEPOINT s; SET work_mem = '6MB'; ROLLBACK TO s; SHOW work_mem", "RESET TimeZone; SELECT 1 / 0", "BEGIN; RESET work_mem; COMMIT; SHOW work_mem", "INSERT INTO lines VALUES ('several'); SELEC", "RESET app.x; SELECT current_setting('app.x', true)",
    "INSERT INTO lines VALUES ('several'); SELECT 1 / 0", "SELECT tells('several'); SELECT 2", "COPY (SELECT 1) TO STDOUT; COPY (SELECT 2) TO STDOUT", "BEGIN; DECLARE p CURSOR FOR SELECT 1; COMMIT", "ROLLBACK; SHOW work_mem",
];

/// COPY from the client: the number of times that it is asked for data at most.
#[rustfmt::skip]
pub(super) const COPIES: &[(&str, usize)] = &[
    ("COPY lines FROM STDIN", 1), ("COPY lines FROM STDIN", 1), ("COPY lines (line) FROM STDIN (FORMAT csv)", 1), ("COPY none FROM STDIN", 1), ("SELECT 1; COPY lines FROM STDIN; SELECT 2", 1),
    ("RESET work_mem; COPY lines FROM STDIN; SHOW work_mem", 1), ("COPY lines FROM STDIN; COPY lines FROM STDIN", 2), ("BEGIN; COPY lines FROM STDIN", 1), ("COPY lines FROM STDIN; COMMIT", 1), ("SET TimeZone = 'UTC'; COPY lines FROM STDIN; RESET TimeZone", 1),
    ("SELECT 1 / 0; COPY lines FROM STDIN", 1), ("COPY lines FROM STDIN; SELECT 1 / 0", 1),
];

/// Queries that show the session's state.
#[rustfmt::skip]
pub(super) const LOOKS: &[&str] = &[
    "SELECT current_setting('work_mem'), current_setting('TimeZone'), current_setting('app.x', true), current_setting('app.y', true), current_setting('application_name'), \
     current_setting('default_transaction_isolation'), current_setting('transaction_read_only'), current_setting('search_path'), current_user",
    "SELECT name, is_holdable FROM pg_cursors WHERE name IN ('p', 'q') ORDER BY name",
    "SELECT count(*), min(line), max(line) FROM lines",
];

/// Startup parameters, each with its values.
#[rustfmt::skip]
pub(super) const BEGINNINGS: &[(&str, &[&str])] = &[
    ("work_mem", &["3MB", "7MB"]), ("TimeZone", &["Europe/Berlin", "UTC"]), ("application_name", &["messages"]), ("app.x", &["zero"]), ("search_path", &["tenant_a, public"]), ("client_encoding", &["LATIN1"]), ("default_transaction_isolation", &["repeatable read"]),
];
