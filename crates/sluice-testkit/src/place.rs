//! Folders of tests, which go with the process.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    sync::Once,
    time::Duration,
};

/// The age from which a folder whose process has ended is taken for one that was left, not for one that is being removed.
const LEFT_AGE: Duration = Duration::from_secs(600);

/// A folder that PostgreSQL's own user can pass through.
pub(crate) fn place() -> tempfile::TempDir {
    let place = of_process("sluice-test-");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    place
}

/// A folder whose name says that it is this process's. The first one removes those that were left by processes which
/// were killed: clusters are large.
pub(crate) fn of_process(kind: &str) -> tempfile::TempDir {
    static REMOVED: Once = Once::new();
    REMOVED.call_once(|| ["sluice-test-", "sluice-pool-"].into_iter().for_each(remove_left));
    tempfile::Builder::new().prefix(&format!("{kind}{}-", std::process::id())).tempdir().unwrap()
}

fn remove_left(kind: &str) {
    for entry in fs::read_dir(env::temp_dir()).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let process = name.strip_prefix(kind).and_then(|rest| rest.split_once('-')?.0.parse::<u32>().ok());
        let has_ended = process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists());
        let age = entry.metadata().and_then(|data| data.modified()).ok().and_then(|time| time.elapsed().ok());
        if has_ended && age.is_some_and(|age| age > LEFT_AGE) {
            // Another process may be about to do the same.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
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
