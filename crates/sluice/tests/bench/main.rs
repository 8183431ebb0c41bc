//! `sluice bench` as users run it: real runs of seconds against real servers.
//!
//! One test at a time: two loads beside each other would be what the laboratory is to find.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod bench;
mod reviewed;
mod runs;
mod stalls;
