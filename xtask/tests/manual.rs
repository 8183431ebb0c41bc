//! The manual pages and completions that packages have. As a test of the program it has cargo build that with all others,
//! so that the packages which tests make need no build of their own (`scripts/package.sh --program`).

use std::{fs, process::Command};

#[test]
fn each_command_has_a_page_and_each_shell_its_completions() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let status = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("man").arg(dir.path()).status().expect("xtask runs");
    assert!(status.success(), "{status}");
    for file in ["man/sluice.1", "man/sluice-serve.1", "man/sluice-bench-run.1"] {
        let page = fs::read_to_string(dir.path().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(page.contains(".SH SYNOPSIS"), "{file}");
    }
    for file in ["sluice.bash", "_sluice", "sluice.fish"] {
        let path = dir.path().join("completions").join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains("serve"), "{file}");
    }
}
