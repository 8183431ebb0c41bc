//! PostgreSQL reads its configuration anew while clients share its connections.

use sluice_testkit::{Case, PoolConfig, Raw, Script, TestServer, becomes, matrix};
use sluice_wire::message::{backend, read_parameter_status};

use crate::SLUICE;

matrix!(transaction: a_reload_of_the_server_counts_for_all);

const DATE: &str = "SELECT '01/02/2020'::date::text";

/// The date by a statement that the client prepares now.
fn date(client: &mut Raw, name: &str) -> String {
    client.send(&Script::new().parse(name, DATE).bind(name, &[]).execute().sync());
    let messages = client.until_ready(1);
    let row = messages.iter().find(|message| message.tag == backend::DATA_ROW).expect("a row");
    String::from_utf8(row.values()[0].clone().unwrap()).unwrap()
}

/// The DateStyle that a query's answer reports.
fn reported(client: &mut Raw) -> Option<String> {
    client.send(&Script::new().query("SELECT 1"));
    let messages = client.until_ready(1);
    let reports = messages.iter().filter(|message| message.tag == backend::PARAMETER_STATUS);
    let mut read = reports.map(|message| read_parameter_status(&message.body).unwrap());
    read.find(|(name, _)| *name == "DateStyle").map(|(_, value)| value.to_owned())
}

fn a_reload_of_the_server_counts_for_all(case: Case) {
    let server = TestServer::start(case.version, &[("shared_preload_libraries", "sluice")]);
    let database = server.database();
    let pool = PoolConfig::new(SLUICE, case, &server).size(1).start();
    let [mut first, mut second, mut third] = [(); 3].map(|()| pool.raw_app(&database));
    third.query("SET DateStyle = 'ISO, YMD'");
    assert_eq!(date(&mut first, "a"), "2020-01-02");
    server.execute("ALTER SYSTEM SET DateStyle = 'ISO, DMY'");
    server.execute("SELECT pg_reload_conf()");
    let dmy = || Some("ISO, DMY".to_owned());
    becomes("its server reports it", dmy(), || reported(&mut first));
    // The pool has heard of it at the latest by the next answer.
    first.query("SELECT 1");
    assert_eq!([date(&mut first, "b"), date(&mut second, "a")], ["2020-02-01", "2020-02-01"]);
    assert_eq!(second.value("SHOW DateStyle"), "ISO, DMY");
    assert_eq!([reported(&mut second), reported(&mut third)], [None, None], "it was told, or has its own");
    let mut later = pool.raw_app(&database);
    assert_eq!(later.parameter("DateStyle"), "ISO, DMY");
    assert_eq!(date(&mut later, "a"), "2020-02-01");
    // What is not reported.
    let is_null = |client: &mut Raw, name: &str| {
        client.talk(&Script::new().parse(name, "SELECT (null = null)::text").bind(name, &[]).execute().sync())
    };
    let before = is_null(&mut first, "c");
    server.execute("ALTER SYSTEM SET transform_null_equals = on");
    server.execute("SELECT pg_reload_conf()");
    // The server counts that in a process of its own.
    let mut names = (0..).map(|n| format!("n{n}"));
    becomes("it is parsed again", true, || is_null(&mut second, &names.next().unwrap()) != before);
    assert_ne!(is_null(&mut first, "d"), before);
}
