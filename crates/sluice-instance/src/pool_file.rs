//! The pool's configuration for an instance's server: written at each start, read by the pool as any other.

use std::{io, path::Path};

use sluice_config::{LOOKUP_CACHE, LookupConfig, Secret, ServerFile};

use crate::{
    bootstrap::Lookup,
    files::{self, Owner},
};

/// The comment at its beginning.
const COMMENT: [&str; 2] = [
    "Written by `sluice up` at each start: changes made here are lost.",
    "To run the pool by a configuration of your own, copy this file and use `sluice serve -c FILE`.",
];

/// Writes it, readable by this process's user only: it has a password.
///
/// # Errors
///
/// A path in it that is not UTF-8, or the system's refusal.
pub fn write_pool_file(path: &Path, file: &ServerFile) -> io::Result<()> {
    files::write_private(path, file.to_toml(&COMMENT)?.as_bytes(), Owner::Us)
}

impl Lookup {
    /// The same as the pool is told.
    pub fn to_config(&self) -> LookupConfig {
        LookupConfig {
            user: self.user.clone(),
            password: Some(Secret(self.password.expose().to_owned())),
            database: self.database.clone(),
            query: self.query.clone(),
            cache: LOOKUP_CACHE,
        }
    }
}
