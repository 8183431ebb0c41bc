//! Samples: what the server and the machine did while a turn ran.

pub mod metrics;
