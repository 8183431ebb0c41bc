//! Connections to the control thread's own sockets. An error of one is none of the socket: the next one may succeed.

use std::{io, time::Duration};

/// The pause behind a connection that the system could not give, as where too many files are open.
const PAUSE: Duration = Duration::from_millis(100);

/// The next connection, as `accept` gives it, however often that fails before.
pub(crate) async fn accepted<T, A: Future<Output = io::Result<T>>>(mut accept: impl FnMut() -> A) -> T {
    loop {
        match accept().await {
            Ok(accepted) => return accepted,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn errors_end_no_listening() {
        let tries = Cell::new(0);
        let accept = async || {
            tries.set(tries.get() + 1);
            if tries.get() < 3 { Err(io::Error::other("too many open files")) } else { Ok("a connection") }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        assert_eq!(runtime.block_on(accepted(accept)), "a connection");
        assert_eq!(tries.get(), 3);
    }
}
