//! Reports and comparisons as their readers meet them: sentences, tables, files, and pages in a real browser.

mod report {
    mod browser;
    mod chromium;
    mod compare;
    mod files;
    mod page;
    mod reference;
    mod require;
    mod sample;
    mod verdict;
}

use std::{fs, path::PathBuf};

/// An empty folder for one test.
fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report").join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}
