//! TLS without I/O, on both sides of the pool.
//!
//! [`ServerTls`] and [`ClientTls`] are made once, of certificates and of what is asked of the other side; a
//! [`Session`] is one connection's, and turns bytes into bytes. Who reads and writes those is no concern of this
//! crate. The protocol is `rustls`'s.

mod certificate;
mod client;
mod files;
mod mode;
mod server;
mod session;
mod version1;

pub use certificate::{Expiry, common_name};
pub use client::{ClientFiles, ClientTls, SYSTEM};
pub use files::{FileError, MakeError};
pub use mode::{ClientCertificates, SslMode, UnknownMode};
pub use server::{ServerFiles, ServerTls};
pub use session::{Secured, ServerFault, Session, Side, TlsError};

/// The name of PostgreSQL's protocol in TLS's negotiation of one (ALPN).
const ALPN: &[u8] = b"postgresql";
