//! The start of a postmaster inside its class's groups, so that everything it ever forks is in them too.
//!
//! A process must be in a group before it has children, and only root, or the group's owner, puts it there, while the
//! server runs as another user. So what is started first is a shell, as the server's user, that waits for a line; it
//! is put into the groups, and then becomes the server: same process, same parent, same death signal (prctl(2),
//! `PR_SET_PDEATHSIG`, survives execve). Without groups the server is started at once.

use std::{
    io::{self, Write},
    path::Path,
    process::{Child, Command, Stdio},
};

use super::PostgresConfig;
use crate::class::ClassGroup;

const SHELL: &str = "/bin/sh";
/// Ends without becoming the server if its standard input ends, as when Sluice is killed.
const WAIT_THEN_BECOME: &str = r#"read -r go && exec "$0" "$@" </dev/null"#;

/// The moment when the spawned process becomes the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Launch {
    /// At once.
    AtOnce,
    /// After a line on its standard input.
    Told,
}

impl Launch {
    /// A command that becomes `program`, made by `run`; arguments are added to it as to `program` itself.
    pub(super) fn command(self, program: &Path, run: impl FnOnce(&Path) -> Command) -> Command {
        match self {
            Self::AtOnce => run(program),
            Self::Told => {
                let mut shell = run(Path::new(SHELL));
                shell.args(["-c", WAIT_THEN_BECOME]).arg(program).stdin(Stdio::piped());
                shell
            }
        }
    }
}

/// Starts the server; `output` is its log. Which limits hold for it, `groups` can say then.
pub(super) fn launch(config: &PostgresConfig, groups: &mut ClassGroup, output: [Stdio; 2]) -> io::Result<Child> {
    let how = if groups.is_limiting() { Launch::Told } else { Launch::AtOnce };
    let [stdout, stderr] = output;
    let mut child = config.command(how).stdout(stdout).stderr(stderr).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        groups.admit(child.id());
        // A shell that has ended meanwhile is found by whoever waits for the server's end.
        let _ = stdin.write_all(b"go\n");
    }
    Ok(child)
}
