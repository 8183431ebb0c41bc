//! The PostgreSQL frontend/backend protocol, versions 3.0 and 3.2 (PostgreSQL documentation, chapter 55).
//!
//! Bytes in, values out, and back. Nothing here does I/O, keeps a session or knows a pool. Unknown message types and
//! unknown fields stay representable: whoever forwards them decides.

pub mod error;
pub mod frame;
pub mod kind;
pub mod md5;
pub mod message;
pub mod proxy;
mod saslprep;
pub mod scram;
pub mod secret;
pub mod startup;

pub use error::{ErrorFields, ErrorResponse, Origin, Severity, sqlstate};
pub use frame::{Frame, FrameError, Framer};
pub use kind::{BackendKind, FrontendKind};
