//! Clients of the admin console.

/// A client of the admin console.
#[derive(Debug)]
pub struct Console {
    /// Its user, who may do what the configuration of the moment says.
    pub user: Box<str>,
    /// Its `application_name`; empty if it has said none.
    pub application_name: Box<str>,
    /// Whether an answer is being made for it.
    pub waits: bool,
    /// Whether all is dropped up to its next Sync, because of an error.
    pub skips: bool,
}
