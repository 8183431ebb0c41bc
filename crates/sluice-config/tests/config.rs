//! The configuration as an operator meets it: files that load, files that do not and what is said about them, and the
//! reference page.

mod config {
    mod bad;
    mod files;
    mod good;
    mod node;
}

use std::path::{Path, PathBuf};

/// A place in the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
