//! The processors, shared out between a server and its clients.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::Error;

/// The processors of the server, and those of the clients: half of them each.
pub(super) struct Halves {
    pub(super) server: Vec<usize>,
    pub(super) clients: Vec<usize>,
}

impl Halves {
    /// With a single processor both have that one.
    pub(super) fn of_this_machine() -> Result<Self, Error> {
        let allowed = sched_getaffinity(None).map_err(|error| Error::io("read the processors")(error.into()))?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
        let (server, clients) = all.split_at(all.len() / 2);
        let server = if server.is_empty() { clients } else { server };
        Ok(Self { server: server.to_vec(), clients: clients.to_vec() })
    }
}

/// Has this thread, and what it starts, run on these processors.
pub(super) fn pin(processors: &[usize]) -> Result<(), Error> {
    let mut set = CpuSet::new();
    processors.iter().for_each(|processor| set.set(*processor));
    sched_setaffinity(None, &set).map_err(|error| Error::io("choose processors")(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_shared_out() {
        let Halves { server, clients } = Halves::of_this_machine().unwrap();
        assert!(!server.is_empty() && (server == clients || server.iter().all(|one| !clients.contains(one))));
    }
}
