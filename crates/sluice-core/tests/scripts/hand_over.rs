//! A server goes from one worker to another.

use std::time::Duration;

use sluice_control::{access::Method, address::PeerAddress};
use sluice_core::{io::Owner, mail::Mail};
use sluice_sim::{Lockstep, PipeId, Style};
use sluice_wire::{
    message::{self, AUTHENTICATION_OK, TransactionStatus},
    startup::{self, ProtocolVersion},
};

use crate::{
    one,
    table::{answers, hub, limits, query, scripted},
};

/// Two workers with a pool of one server between them.
struct Two {
    net: Lockstep,
    server: PipeId,
}

impl Two {
    /// The server is the second one's, and idle.
    fn new(styles: [Style; 2]) -> Self {
        let hub = hub(scripted(one()), limits(), Method::Trust, 2);
        let mut net = Lockstep::new(&hub, &styles, (16, 4096), 8 << 10).holding_mail();
        log_in(&mut net, 1);
        let server = net.connecting()[0];
        net.connect(server);
        let mut welcome = AUTHENTICATION_OK.to_vec();
        message::put_parameter_status(&mut welcome, "TimeZone", "UTC");
        message::put_backend_key_data(&mut welcome, 1000, b"abcd");
        welcome.extend_from_slice(&TransactionStatus::Idle.ready_for_query());
        net.say(server, &[&welcome]);
        Self { net, server }
    }

    /// The bytes that a side was sent since it was asked for last.
    fn heard(&mut self, side: PipeId) -> Vec<u8> {
        std::mem::take(&mut self.net.side(side).heard)
    }
}

fn log_in(net: &mut Lockstep, worker: u16) -> PipeId {
    let client = net.open(worker, PeerAddress::Local).expect("the worker accepts clients");
    let mut packet = Vec::new();
    startup::put_session(&mut packet, ProtocolVersion::V3_0, [("user", "app"), ("database", "app")]);
    net.say(client, &[&packet]);
    client
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn what_comes_meanwhile_goes_along() {
    let mut unasked = Vec::new();
    message::put_parameter_status(&mut unasked, "TimeZone", "Asia/Tokyo");
    for styles in [[Style::Polls; 2], [Style::Completes; 2]] {
        for cut in 1..=unasked.len() {
            let mut two = Two::new(styles);
            let client = log_in(&mut two.net, 0);
            two.net.say(client, &[&query("SELECT 1")]);
            let (before, after) = unasked.split_at(cut);
            // The worker learns in one turn that it is to give the server away, and that something has come from it.
            two.net.network().ring(1);
            two.net.say(two.server, &[before]);
            for worker in [1, 0, 1, 0] {
                two.net.read_mail(worker);
            }
            assert!(matches!(two.net.place(two.server), Some((0, _, Owner::Server(_)))), "it is the first one's now");
            two.net.say(two.server, &[after]);
            two.net.pass(Duration::from_millis(1));
            assert!(holds(&two.heard(two.server), b"SELECT 1"), "cut at {cut}: the query is sent");
            two.net.say(two.server, &[&answers("C(SELECT 1) Z(I)")]);
            let heard = two.heard(client);
            assert!(holds(&heard, b"SELECT 1"), "cut at {cut}: {}", heard.escape_ascii());
            // From the server, or of what came whole before, from the pool.
            assert!(holds(&heard, b"Asia/Tokyo"), "cut at {cut}: {}", heard.escape_ascii());
        }
    }
}

#[test]
fn a_query_whose_server_is_on_its_way_is_cancelled() {
    let mut two = Two::new([Style::Polls; 2]);
    let client = log_in(&mut two.net, 0);
    let welcome = two.heard(client);
    let at = welcome.windows(5).position(|window| window == b"K\0\0\0\x0c").expect("it is told its key");
    let key = welcome[at + 9..at + 13].to_vec();
    let Some((_, _, Owner::Client(id))) = two.net.place(client) else { panic!("not a client") };
    two.net.say(client, &[&query("SELECT 1")]);
    two.net.post(0, Mail::Cancel { process_id: 0, client: id, key, asker: None });
    for worker in [0, 1, 0] {
        two.net.read_mail(worker);
    }
    let heard = two.heard(client);
    assert!(holds(&heard, b"57014") && heard.ends_with(b"Z\0\0\0\x05I"), "{}", heard.escape_ascii());
    assert!(!holds(&two.heard(two.server), b"SELECT 1"), "nobody runs it");
    // The server has come for nothing, and serves what comes next.
    two.net.say(client, &[&query("SELECT 2")]);
    for worker in [0, 1, 0, 1, 0] {
        two.net.read_mail(worker);
    }
    assert!(holds(&two.heard(two.server), b"SELECT 2"));
    two.net.say(two.server, &[&answers("C(SELECT 1) Z(I)")]);
    assert!(holds(&two.heard(client), b"SELECT 1"));
}
