//! The round trip over loopback, by TCP: what each statement of a client pays at least.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use crate::stats;

const ROUND_TRIPS: usize = 1000;
const TIME_MAX: Duration = Duration::from_secs(2);

/// The median, in µs; none where loopback can't be used.
pub fn loopback_round_trip_us() -> Option<f64> {
    measure().ok().flatten()
}

fn measure() -> io::Result<Option<f64>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    for stream in [&near, &far] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIME_MAX))?;
    }
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
    });
    let begin = Instant::now();
    let mut trips_us = Vec::with_capacity(ROUND_TRIPS);
    while trips_us.len() < ROUND_TRIPS && begin.elapsed() < TIME_MAX {
        let sent = Instant::now();
        near.write_all(&[1])?;
        near.read_exact(&mut [0])?;
        trips_us.push(sent.elapsed().as_secs_f64() * 1e6);
    }
    drop(near);
    // It ends with its connection.
    let _ = echo.join();
    Ok(stats::median(trips_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_some_time() {
        assert!(loopback_round_trip_us().is_some_and(|us| us > 0.5));
    }
}
