//! The bodies of the fuzz targets.
//!
//! The bodies are here, and not in `fuzz/`, so that two drivers can run them: `scripts/fuzz.sh` by libFuzzer, for as
//! long as one likes, and `tests/short_run.rs` on stable Rust in every `cargo test`. Each body takes any bytes and
//! must return: a panic is a finding. Nothing here does I/O, reads a clock or draws a random number, so that an input
//! that was found does the same wherever it is run again; but for TLS, which can't do without.

pub mod engine;
mod input;
mod tls;
mod wire;

pub use engine::engine;
pub use input::Input;
pub use tls::tls;
pub use wire::{backend_messages, frontend_messages, proxy, scram, startup};

/// A fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name: of its file in `fuzz/fuzz_targets` and of its corpus in `fuzz/corpus`.
    pub name: &'static str,
    /// Its body, which takes any bytes.
    pub body: fn(&[u8]),
}

/// All of them.
pub const TARGETS: [Target; 7] = [
    Target { name: "startup", body: startup },
    Target { name: "proxy", body: proxy },
    Target { name: "frontend_messages", body: frontend_messages },
    Target { name: "backend_messages", body: backend_messages },
    Target { name: "scram", body: scram },
    Target { name: "engine", body: engine },
    Target { name: "tls", body: tls },
];
