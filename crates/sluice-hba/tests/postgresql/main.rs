//! Comparison with PostgreSQL 18: the same files, read by it and by Sluice, and the same clients.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod files;
mod generate;
mod logins;
mod patterns;
mod place;
