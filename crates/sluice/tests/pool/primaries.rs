//! A cluster's primary that is elsewhere without a promotion, and what two members of a Patroni that follows a script say
//! of that.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use sluice_testkit::{Case, Driver, Mode, PoolConfig, TestPool, TestServer, Version, eventually, raw::Raw};

use crate::{HOLD, SLUICE};

/// Longer than from one question to all members to the next.
const TWO_LOOKS: Duration = Duration::from_millis(4500);

/// All that a member says. Nothing of it changes by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Says {
    /// Whom it names as the holder of the lock.
    holder: &'static str,
    /// PostgreSQL's port at node1, as far as it knows.
    port: u16,
    /// The system identifier of its own data, where it is the primary; `None`: it is not.
    system: Option<&'static str>,
}

/// Two members, of which node1 is the primary.
struct Patroni {
    rest: [u16; 2],
    says: [Arc<Mutex<Option<Says>>>; 2],
}

impl Patroni {
    fn start(port: u16) -> Self {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let rest = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port());
        let says = [Some("7"), None].map(|system| Says { holder: "node1", port, system });
        let says = says.map(|says| Arc::new(Mutex::new(Some(says))));
        for (listener, says) in listeners.into_iter().zip(says.clone()) {
            thread::spawn(move || serve(&listener, rest, &says));
        }
        Self { rest, says }
    }

    /// A member says something else from now on.
    fn change(&self, member: usize, change: impl FnOnce(&mut Says)) {
        let mut says = self.says[member].lock().unwrap();
        change(says.as_mut().unwrap());
    }

    fn pool(&self) -> TestPool {
        let [first, second] = self.rest.map(|port| format!("\"http://127.0.0.1:{port}\""));
        let lines = format!(
            "[[cluster]]\nname = \"main\"\npatroni = [{first}, {second}]\nfailover_timeout = \"3s\"\n\
             [[database]]\nname = \"app\"\ncluster = \"main\"\ndbname = \"postgres\"\nsslmode = \"disable\"\n"
        );
        let case = Case::new(Version::V15, Driver::Uring, Mode::Transaction);
        PoolConfig::without_databases(SLUICE, case).section(&lines).start()
    }
}

fn serve(listener: &TcpListener, rest: [u16; 2], says: &Mutex<Option<Says>>) {
    for stream in listener.incoming() {
        let mut reader = BufReader::new(stream.unwrap());
        let (mut asked, mut line) = (String::new(), String::new());
        _ = reader.read_line(&mut asked);
        while reader.read_line(&mut line).is_ok_and(|length| length > 2) {
            line.clear();
        }
        // Without anything to say it ends the connection.
        let Some(says) = says.lock().unwrap_or_else(PoisonError::into_inner).clone() else { continue };
        let (status, body) = answer(&asked, rest, &says);
        // Whoever has asked may be gone.
        _ = write!(reader.get_mut(), "HTTP/1.0 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    }
}

fn answer(asked: &str, rest: [u16; 2], says: &Says) -> (&'static str, String) {
    if asked.starts_with("GET /cluster ") {
        let member = |name: &str, rest: u16, port: u16| {
            let role = if name == says.holder { "leader" } else { "replica" };
            format!(
                r#"{{"name":"{name}","role":"{role}","state":"running","timeline":1,"host":"127.0.0.1","port":{port},
                "api_url":"http://127.0.0.1:{rest}/patroni"}}"#
            )
        };
        let members = format!("{},{}", member("node1", rest[0], says.port), member("node2", rest[1], 1));
        return ("200 OK", format!(r#"{{"scope":"main","members":[{members}]}}"#));
    }
    match says.system {
        Some(system) => (
            "200 OK",
            format!(
                r#"{{"state":"running","role":"primary","timeline":1,"database_system_identifier":"{system}",
                "postmaster_start_time":"2026-01-01","patroni":{{"name":"node1"}}}}"#
            ),
        ),
        None => ("503 Service Unavailable", r#"{"state":"running","role":"replica"}"#.to_owned()),
    }
}

fn servers() -> [TestServer; 2] {
    [(); 2].map(|()| TestServer::start_with_tcp(Version::V15, &[]))
}

fn is_at(client: &mut Raw, server: &TestServer) -> bool {
    let port = server.port();
    client.query("SELECT inet_server_port()") == format!("T(inet_server_port) D({port}) C(SELECT 1) Z(I)")
}

fn sessions(server: &TestServer) -> String {
    server.value("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'")
}

/// Clients stay where they are for longer than the pool takes to look.
fn stays_at(client: &mut Raw, server: &TestServer, why: &str) {
    let begun = std::time::Instant::now();
    while begun.elapsed() < TWO_LOOKS {
        assert!(is_at(client, server), "{why}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_primary_at_another_address_is_followed_as_soon_as_it_says_so_itself() {
    let [before, after] = servers();
    let patroni = Patroni::start(before.port());
    let pool = patroni.pool();
    let [mut idle, mut amid] = [(); 2].map(|()| pool.raw().login("app", "app"));
    assert!(is_at(&mut idle, &before));
    amid.query(HOLD);

    patroni.change(1, |it| it.port = after.port());
    stays_at(&mut idle, &before, "another member alone says that it has moved");

    patroni.change(0, |it| it.port = 1);
    stays_at(&mut idle, &before, "nobody listens at the address that it announces");

    patroni.change(1, |it| it.holder = "node2");
    patroni.change(0, |it| it.port = after.port());
    stays_at(&mut idle, &before, "another member names another holder");

    // It remembers the address of before.
    patroni.change(1, |it| (it.holder, it.port) = ("node1", before.port()));
    // A request that is under way in that moment would be lost.
    eventually("it is followed, and the servers are closed", || sessions(&before) == "0");
    assert!(is_at(&mut idle, &after));
    assert_eq!(amid.query("COMMIT"), "E(40001) Z(I)", "its server is where the primary has been");
    stays_at(&mut idle, &after, "an old address is remembered by another member");
    let log = pool.log();
    let moved = format!("primary: node \"node1\" at 127.0.0.1:{}, timeline 1, was node \"node1\"", after.port());
    assert_eq!(log.matches("primary: node").count(), 2, "{log}");
    assert!(log.contains(&moved), "{log}");
}

#[test]
fn nobody_is_served_where_the_primary_has_other_data_by_its_own_word() {
    let [server, _] = servers();
    let patroni = Patroni::start(server.port());
    let pool = patroni.pool();
    let mut client = pool.raw().login("app", "app");
    assert!(is_at(&mut client, &server));

    let said = patroni.says.each_ref().map(|says| says.lock().unwrap().take());
    stays_at(&mut client, &server, "that nobody says anything is no reason");
    for (says, said) in patroni.says.iter().zip(said) {
        *says.lock().unwrap() = said;
    }

    patroni.change(0, |it| it.system = Some("8"));
    eventually("it is noticed", || pool.log().contains("primary: none, was node \"node1\""));
    eventually("the servers are closed", || sessions(&server) == "0");
    assert_eq!(client.query("SELECT 1"), "E(FATAL 57P03)");
    let error = pool.connect("app", None, "app").map(drop).unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.message(), "the primary of cluster \"main\" is not known any more");
    assert!(error.detail().unwrap().ends_with("its system identifier is 8, not 7"), "{error:?}");
    assert!(error.hint().unwrap().contains("restart the pool"), "{error:?}");
    let log = pool.log();
    assert_eq!(log.matches("nobody is connected there").count(), 1, "{log}");
    assert_eq!(sessions(&server), "0");

    patroni.change(0, |it| it.system = Some("7"));
    eventually("it is the cluster's again", || pool.connect("app", None, "app").is_ok());
}
