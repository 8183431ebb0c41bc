//! The laboratory: it drives pgbench through scenarios, samples the server while it runs, explains stalls, writes
//! reports, and reviews settings.
//!
//! pgbench makes the load, since its figures need no trust in us; what is added stands in one module each. The pool is
//! known only as a process with a configuration file, as users know it.
//!
//! ```text
//! scenario ─▶ plan ─▶ run ─▶ result ─▶ report, compare, require
//!                      │  turn: server, target, pgbench, flood, sample
//!                      └─▶ stall: detect, attribute
//! handshakes: by themselves, without pgbench and tables
//! ```

mod clock;
pub mod compare;
pub mod connect;
mod error;
mod flood;
pub mod handshakes;
pub mod machine;
pub mod nodes;
pub mod pgbench;
pub mod plan;
pub mod proc;
pub mod process;
pub mod reference;
pub mod relay;
pub mod report;
pub mod require;
pub mod result;
pub mod review;
pub mod run;
pub mod sample;
pub mod scenario;
pub mod server;
pub mod stall;
pub mod stats;
pub mod table;
pub mod target;

pub use self::error::Error;
