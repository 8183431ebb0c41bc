//! Folders of tests, which go with the process.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

/// A folder that PostgreSQL's own user can pass through.
pub(crate) fn place() -> tempfile::TempDir {
    let place = tempfile::Builder::new().prefix("sluice-test-").tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    place
}

/// Has a folder removed once this process has ended and PostgreSQL with it, however it ends.
pub(crate) fn remove_after_us(place: &Path) {
    let script = "cat >/dev/null; for i in $(seq 300); do [ -e \"$1/data/pgdata/postmaster.pid\" ] || break; \
                  sleep 0.1; done; rm -rf \"$1\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(place).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = shell.spawn().unwrap();
    // Its standard input ends with this process.
    std::mem::forget(child);
}
