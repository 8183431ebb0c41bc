//! The laboratory: it drives pgbench through scenarios, samples the server while it runs, explains stalls, writes
//! reports, and reviews settings.
//!
//! pgbench makes the load, since its figures need no trust in us; what is added stands in one module each. The pool is
//! known only as a process with a configuration file, as users know it.

pub mod review;
