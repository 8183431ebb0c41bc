//! The admin console's tables beside those of a real PgBouncer.

use std::{collections::BTreeMap, net::SocketAddr};

use sluice_testkit::{
    Case, PoolConfig, Script, matrix,
    raw::{Message, Raw},
};
use sluice_wire::startup::ProtocolVersion;

use crate::{SLUICE, console::with_console, database, pgbouncer::PgBouncer};

matrix!(transaction:
    its_tables_have_the_columns_of_pgbouncers,
    its_settings_have_the_names_of_pgbouncers,
    its_commands_answer_as_pgbouncers,
);

/// The names of a table's columns, their types and those types' sizes.
fn columns(console: &mut Raw, table: &str) -> Vec<(String, u32, i16)> {
    console.send(&Script::new().query(&format!("SHOW {table}")));
    let messages = console.until_ready(1);
    let description = messages.iter().find(|message| message.tag == b'T').unwrap();
    let mut rest = &description.body[2..];
    let typed = |name: String| {
        // Behind the name: table and column, the type and its size, its modifier and the format.
        let (of, behind) = rest[name.len() + 1..].split_at(18);
        rest = behind;
        let (kind, size) = (of[6..10].try_into().unwrap(), of[10..12].try_into().unwrap());
        (name, u32::from_be_bytes(kind), i16::from_be_bytes(size))
    };
    description.columns().into_iter().map(typed).collect()
}

/// The rows of a table, by their first column.
fn values(console: &mut Raw, table: &str) -> BTreeMap<String, Vec<Option<String>>> {
    console.send(&Script::new().query(&format!("SHOW {table}")));
    let rows = console.until_ready(1).into_iter().filter(|message| message.tag == b'D');
    let text = |value: Option<Vec<u8>>| value.map(|value| String::from_utf8(value).unwrap());
    let rows = rows.map(|row| row.values().into_iter().map(text).collect::<Vec<_>>());
    rows.map(|row| (row[0].clone().unwrap(), row)).collect()
}

fn its_tables_have_the_columns_of_pgbouncers(case: Case) {
    let pool = with_console(case).start();
    let Some(pgbouncer) = PgBouncer::start() else {
        eprintln!("skipped: there is no pgbouncer");
        return;
    };
    let mut ours = pool.raw().login("boss", "pgbouncer");
    let mut theirs = Raw::tcp(pgbouncer.address).login("boss", "pgbouncer");
    for table in [
        "DATABASES",
        "POOLS",
        "CLIENTS",
        "SERVERS",
        "STATS",
        "STATS_TOTALS",
        "STATS_AVERAGES",
        "TOTALS",
        "SOCKETS",
        "ACTIVE_SOCKETS",
        "DNS_HOSTS",
        "DNS_ZONES",
        "LISTS",
        "USERS",
        "CONFIG",
        "VERSION",
        "\"pools\"",
    ] {
        assert_eq!(columns(&mut ours, table), columns(&mut theirs, table), "{table}");
    }
    // The console's own database has the same row, but for the port that it is reached by.
    let row = |console: &mut Raw| values(console, "DATABASES")["pgbouncer"].clone();
    let port = |address: SocketAddr| Some(address.port().to_string());
    let (mut our_row, mut their_row) = (row(&mut ours), row(&mut theirs));
    assert_eq!((our_row[2].take(), their_row[2].take()), (port(pool.address()), port(pgbouncer.address)));
    assert_eq!(our_row, their_row);
    let names = |console: &mut Raw| values(console, "TOTALS").into_keys().collect::<Vec<_>>();
    assert_eq!(names(&mut ours), names(&mut theirs));
    let state = |console: &mut Raw| values(console, "SOCKETS")["C"][3].clone();
    assert_eq!(state(&mut ours), state(&mut theirs));
    // What is Sluice's own is known.
    let known = values(&mut theirs, "CONFIG");
    let ours: Vec<_> = values(&mut ours, "CONFIG").into_keys().filter(|key| !known.contains_key(key)).collect();
    let own = ["configuration_version", "max_prepared_statements", "max_server_conn", "max_user_client_connections"];
    assert_eq!(ours, own);
}

fn its_settings_have_the_names_of_pgbouncers(case: Case) {
    let database = database(case);
    let limits = "query_timeout = \"1500ms\"\n[admin]\nusers = [\"boss\"]";
    let databases = |config: PoolConfig| {
        let server = database.server;
        config.database("own", server, "pool = { mode = \"session\" }").database("plain", server, "")
    };
    let config = || databases(PoolConfig::without_databases(SLUICE, case).limit(limits));
    let pool = config().pool("size = 7\nserver_lifetime = \"90s\"").start();
    let mut console = pool.raw().login("boss", "pgbouncer");
    let row = |console: &mut Raw, key: &str| {
        let row = values(console, "CONFIG").remove(key).unwrap();
        row[1..].iter().map(|value| value.clone().unwrap_or_else(|| "-".to_owned())).collect::<Vec<_>>().join(" ")
    };
    let port = pool.address().port();
    for (key, expected) in [
        ("listen_addr", "127.0.0.1 127.0.0.1 no"),
        ("listen_port", &format!("{port} 6432 no")),
        ("pool_mode", "transaction transaction yes"),
        ("default_pool_size", "7 20 yes"),
        ("server_lifetime", "90 3600 yes"),
        ("query_wait_timeout", "30 30 yes"),
        ("query_timeout", "1.5 0 yes"),
        ("max_prepared_statements", "500 500 yes"),
    ] {
        assert_eq!(row(&mut console, key), expected, "{key}");
    }
    // A database's mode is shown where it is not that of all.
    let modes = values(&mut console, "DATABASES");
    assert_eq!((modes["own"][8].as_deref(), modes["plain"][8].as_deref()), (Some("session"), None));
    pool.reload(&config().pool("size = 8"));
    assert_eq!(row(&mut console, "default_pool_size"), "8 20 yes");
}

/// The answer to a command: its tag, or an error's message.
fn said(console: &mut Raw, command: &str) -> String {
    console.send(&Script::new().query(command));
    let messages = console.until_ready(1);
    let answers = messages.iter().filter(|message| matches!(message.tag, b'C' | b'E'));
    let shown = |message: &Message| match message.tag {
        b'E' => message.field(b'M'),
        _ => message.to_string(),
    };
    answers.map(shown).collect::<Vec<_>>().join(" ")
}

fn its_commands_answer_as_pgbouncers(case: Case) {
    let database = database(case);
    let dbname = format!("dbname = \"{}\"", database.name);
    let config = || {
        let config = PoolConfig::without_databases(SLUICE, case).limit("[admin]\nusers = [\"boss\"]");
        config.database("named", database.server, &dbname)
    };
    let pool = config().start();
    let Some(pgbouncer) = PgBouncer::start() else {
        eprintln!("skipped: there is no pgbouncer");
        return;
    };
    let mut ours = pool.raw().login("boss", "pgbouncer");
    let mut theirs = Raw::tcp(pgbouncer.address).login("boss", "pgbouncer");
    let disabled = |console: &mut Raw| values(console, "DATABASES")["named"][12].clone();
    let refused = |mut client: Raw| {
        let messages = client.login_with(ProtocolVersion::V3_0, &[("user", "app"), ("database", "named")]);
        messages.iter().find(|message| message.tag == b'E').map(|error| error.field(b'M'))
    };
    for command in [
        "DISABLE",
        "ENABLE",
        "KILL",
        "DISABLE nobody",
        "ENABLE nobody",
        "WAIT_CLOSE nobody",
        "DISABLE pgbouncer",
        "ENABLE pgbouncer",
        "WAIT_CLOSE pgbouncer",
        "WAIT_CLOSE named more",
        "SHOW TOTALS more",
        "ENABLE 'named'",
        "WAIT_CLOSE",
        "wait_close named;",
        "ENABLE named",
        "DISABLE \"named\"",
        "disable named",
        "RELOAD",
    ] {
        assert_eq!(said(&mut ours, command), said(&mut theirs, command), "{command}");
    }
    assert_eq!((disabled(&mut ours), disabled(&mut theirs)), (Some("1".to_owned()), Some("1".to_owned())));
    let theirs_said = refused(Raw::tcp(pgbouncer.address));
    assert_eq!(theirs_said.as_deref(), Some("database \"named\" is disabled"));
    assert_eq!(refused(pool.raw()), theirs_said);
    assert_eq!(said(&mut ours, "ENABLE named"), said(&mut theirs, "ENABLE named"));
    assert_eq!((disabled(&mut ours), disabled(&mut theirs)), (Some("0".to_owned()), Some("0".to_owned())));
    assert_eq!(refused(pool.raw()), None);
}
