//! Clients that come through a balancer: their rules are found by the address that its PROXY header names.

use std::time::Duration;

use sluice_control::{access::Policy, address::Network};
use sluice_wire::{
    proxy::HEADER_BYTES_MAX,
    startup::{self, ProtocolVersion, SSL_REQUEST_PACKET},
};

use crate::{
    accounts::rules,
    one,
    table::{Table, answers, query},
};

/// The balancer's address, and that of the only client that is let in.
const BALANCER: &str = "192.0.2.7:40000";
const CLIENT: &str = "PROXY TCP4 203.0.113.5 192.0.2.7 51000 6432\r\n";
const STRANGER: &str = "PROXY TCP4 203.0.113.6 192.0.2.7 51000 6432\r\n";

const RULES: &str = "local all all reject\nhost all all 203.0.113.5/32 trust\nhost all own all trust\n";

fn table() -> Table {
    let mut table = Table::new(one());
    table.changes(|configuration| {
        configuration.access.policy = Policy::Rules(rules(RULES, ""));
        configuration.balancers = vec![Network::new([192, 0, 2, 0].into(), 24).expect("a network")];
    });
    table
}

/// A StartupMessage of that user.
fn session(user: &str) -> Vec<u8> {
    let mut packet = Vec::new();
    startup::put_session(&mut packet, ProtocolVersion::V3_0, [("user", user), ("database", "app")]);
    packet
}

/// The header of version 2 for that client.
fn binary() -> Vec<u8> {
    [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", &[203, 0, 113, 5, 192, 0, 2, 7, 0xc7, 0x38, 0x19, 0x20][..]].concat()
}

#[test]
fn a_client_is_where_its_header_says() {
    for header in [CLIENT.as_bytes().to_vec(), binary()] {
        let all = [&header[..], &session("app")].concat();
        for cut in 0..all.len() {
            let mut table = table();
            let client = table.comes_from(BALANCER);
            table.says(client, &all[..cut]);
            assert_eq!(table.hears(client), "", "{cut}");
            table.says(client, &all[cut..]);
            table.connects();
            assert!(table.hears(client).ends_with("Z(I)"), "{cut}");
        }
        // Byte by byte, with a query behind.
        let mut table = table();
        let client = table.comes_from(BALANCER);
        all.iter().for_each(|byte| table.says(client, &[*byte]));
        let server = table.connects()[0];
        table.says(client, &query("SELECT 1"));
        assert_eq!(table.hears(server), "Q(SELECT 1)");
        table.says(server, &answers("C(SELECT 1) Z(I)"));
        assert!(table.hears(client).ends_with("Z(I) C(SELECT 1) Z(I)"));
    }
}

#[test]
fn rules_go_by_the_address_of_the_header() {
    let refused =
        "E(28000: no pg_hba.conf entry for host \"203.0.113.6\", user \"app\", database \"app\", no encryption)";
    let own = "E(28000: no pg_hba.conf entry for host \"192.0.2.7\", user \"app\", database \"app\", no encryption)";
    for (header, answer) in [
        (STRANGER, refused),
        // The balancer's own address.
        ("PROXY UNKNOWN\r\n", own),
        ("\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", own),
        // IPv4 in the form of IPv6.
        ("PROXY TCP6 ::ffff:203.0.113.6 ::1 51000 6432\r\n", refused),
    ] {
        let mut table = table();
        let client = table.comes_from(BALANCER);
        table.says(client, &[header.as_bytes(), &session("app")].concat());
        assert_eq!(table.hears(client), answer, "{header:?}");
        assert!(table.is_closed(client));
    }
    // Such a client is still by TCP, and may be asked whether it encrypts.
    let mut table = table();
    let client = table.comes_from(BALANCER);
    table.says(client, &[STRANGER.as_bytes(), &SSL_REQUEST_PACKET].concat());
    table.says(client, &session("own"));
    table.connects();
    let heard = table.take(client);
    assert!(heard.starts_with(b"N") && heard.ends_with(b"Z\0\0\0\x05I"), "{heard:?}");
}

#[test]
fn what_is_no_header_ends_without_a_word() {
    let long = [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff", &[0; 12][..]].concat();
    let twice = [STRANGER.as_bytes(), b"PROXY UNKNOWN\r\n"].concat();
    for (words, answered) in [
        (session("own"), false),
        (SSL_REQUEST_PACKET.to_vec(), false),
        (b"\x16\x03\x01\x02\0".to_vec(), false),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), false),
        (b"PROXY TCP4 203.0.113.5\r\n".to_vec(), false),
        ([b'P'; 1].repeat(200), false),
        ([b"PROXY UNKNOWN ", &[b'x'; HEADER_BYTES_MAX][..]].concat(), false),
        (long, false),
        // The second one is a startup packet that is none.
        (twice, true),
    ] {
        let mut table = table();
        let client = table.comes_from(BALANCER);
        table.says(client, &words);
        assert!(table.is_closed(client), "{words:?}");
        let heard = table.hears(client);
        assert_eq!(heard.starts_with("E(08P01"), answered, "{words:?}: {heard}");
        assert_eq!(heard.is_empty(), !answered, "{words:?}: {heard}");
    }
}

#[test]
fn nobody_else_says_where_he_is() {
    let mut table = table();
    for header in [CLIENT.as_bytes().to_vec(), binary()] {
        for address in ["203.0.113.5:51000", "203.0.113.6:51000", "[2001:db8::1]:51000"] {
            let client = table.comes_from(address);
            table.says(client, &[&header[..], &session("own")].concat());
            assert!(table.hears(client).starts_with("E(08P01"), "{address}");
            assert!(table.is_closed(client));
        }
    }
    // Who needs no header is let in as ever.
    let client = table.comes_from("203.0.113.5:51000");
    table.says(client, &session("app"));
    table.connects();
    assert!(table.hears(client).ends_with("Z(I)"));
}

#[test]
fn a_header_that_does_not_come_is_not_waited_for_for_ever() {
    let mut table = table();
    let silent = table.comes_from(BALANCER);
    let slow = table.comes_from(BALANCER);
    table.says(slow, &CLIENT.as_bytes()[..20]);
    table.passes(Duration::from_secs(25));
    assert!(!table.is_closed(silent));
    table.says(slow, &CLIENT.as_bytes()[20..30]);
    table.passes(Duration::from_secs(10));
    assert!(table.is_closed(silent) && table.is_closed(slow), "the time counts from the connect");
}

#[test]
fn a_cancel_may_come_through_a_balancer() {
    let mut table = table();
    let client = table.comes_from(BALANCER);
    table.says(client, &[CLIENT.as_bytes(), &session("app")].concat());
    let server = table.connects()[0];
    let heard = table.hears(client);
    let number = heard.split_once("K(").and_then(|(_, rest)| rest.split_once(')')).expect("it is told a number").0;
    table.says(client, &query("SELECT pg_sleep(9)"));
    assert_eq!(table.hears(server), "Q(SELECT pg_sleep(9))");
    let asker = table.comes_from(BALANCER);
    let mut request = STRANGER.as_bytes().to_vec();
    startup::put_cancel(&mut request, number.parse().expect("a number"), &table.key(client));
    table.says(asker, &request);
    assert_eq!(table.cancels(), 1);
}
