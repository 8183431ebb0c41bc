//! Ports for programs that have to be told one.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::atomic::{AtomicU16, Ordering},
};

/// Below those that Linux gives to outgoing connections: none of the thousands that tests make takes a port away
/// between the look at it and its use.
const FIRST: u16 = 20_000;
const PORTS: u16 = 12_000;

/// Numbers that a test process has to itself, unless there are more of them than fit.
const OF_PROCESS: u16 = 100;

/// A port of 127.0.0.1 that nobody has just now, another one each time.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = (std::process::id() % u32::from(PORTS / OF_PROCESS)) as u16 * OF_PROCESS;
    for _ in 0..PORTS {
        let port = FIRST + (process + NEXT.fetch_add(1, Ordering::Relaxed) % PORTS) % PORTS;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port from {FIRST} on is free");
}

/// The same, as an address.
pub fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}
