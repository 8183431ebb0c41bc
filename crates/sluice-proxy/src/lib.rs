//! Sluice's data plane: drivers, workers, control plane.
//!
//! ```text
//! client ── driver (io_uring | epoll) ── Net (sluice-net) ── Engine (sluice-core) ── Net ── driver ── PostgreSQL
//!                      one worker thread = one driver, one engine
//!           control thread (tokio): sluice-control, secrets looked up, statistics; host names, by threads beside it
//! ```
//!
//! Decisions are made in `sluice-core`; what is here moves bytes and carries out what was decided.

mod accepted;
mod asked;
mod clusters;
mod console;
mod control;
mod desk;
mod files;
mod handshakes;
mod host;
mod http;
mod identify;
mod inherited;
mod listening;
mod log;
mod lookup;
mod mailbox;
mod net;
mod nodes;
mod open_files;
mod pace;
mod pulse;
mod reload;
mod resolver;
mod server_rules;
mod service;
mod stats;
mod successor;
mod watched;
mod worker;

pub use inherited::{InheritError, Inherited, Predecessor};
pub use listening::ListenError;
pub use log::is_unseen;
pub use open_files::OpenFiles;
pub use pulse::{Pulse, Silent};
pub use service::{Service, StartError, forbid_core_dumps};
pub use successor::{Bequest, GivesUp, NotReady, Successor};
