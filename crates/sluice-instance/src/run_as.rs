//! As which system user PostgreSQL runs, and how its programs are started.
//!
//! PostgreSQL refuses to run as root. Started by root, Sluice runs it as another user; otherwise as oneself.

use std::{
    ffi::OsStr,
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::{
    sys::{prctl, signal::Signal},
    unistd::{self, Uid, User},
};

/// The user when root gives none: the one that PostgreSQL's packages create.
pub(crate) const DEFAULT_USER: &str = "postgres";

/// The system user that owns the data directory and runs PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAs {
    user: User,
    /// Whether this process is root and must become `user`.
    switch: bool,
}

/// Reasons why PostgreSQL can't run as the user that was asked for. Configuration; a retry does not help.
#[derive(Debug, thiserror::Error)]
pub enum RunAsError {
    /// No such user on this system.
    #[error(
        "there is no system user {name:?} to run PostgreSQL as\n\
         name an existing one (--run-as USER, or run_as in node.toml), or create it: useradd --system {name}"
    )]
    NoSuchUser {
        /// The name that was looked up.
        name: String,
    },
    /// Root was asked for.
    #[error(
        "PostgreSQL refuses to run as root\nname another user (--run-as USER, or run_as in node.toml; default: {DEFAULT_USER})"
    )]
    Root,
    /// Only root may run PostgreSQL as somebody else.
    #[error(
        "only root can run PostgreSQL as {wanted:?}; this is {own:?}\nleave that out (--run-as, or run_as in node.toml), or start as root"
    )]
    NotRoot {
        /// The user that was asked for.
        wanted: String,
        /// The user that this process runs as.
        own: String,
    },
    /// A container's user without a name; `initdb` needs one.
    #[error("user id {uid} has no name on this system, and PostgreSQL needs one\nadd a line for it to /etc/passwd")]
    Nameless {
        /// The process's effective user id.
        uid: u32,
    },
    /// The user database could not be read.
    #[error("cannot look up system users: {0}")]
    Lookup(#[source] io::Error),
}

impl RunAs {
    /// The user for `--run-as`: by default [`DEFAULT_USER`] for root, and oneself for anybody else.
    pub fn resolve(wanted: Option<&str>) -> Result<Self, RunAsError> {
        let euid = Uid::effective();
        if !euid.is_root() {
            let own = User::from_uid(euid).map_err(lookup)?.ok_or(RunAsError::Nameless { uid: euid.as_raw() })?;
            return match wanted {
                Some(wanted) if wanted != own.name => {
                    Err(RunAsError::NotRoot { wanted: wanted.to_owned(), own: own.name })
                }
                _ => Ok(Self { user: own, switch: false }),
            };
        }
        let name = wanted.unwrap_or(DEFAULT_USER);
        let user =
            User::from_name(name).map_err(lookup)?.ok_or_else(|| RunAsError::NoSuchUser { name: name.to_owned() })?;
        if user.uid.is_root() {
            return Err(RunAsError::Root);
        }
        Ok(Self { user, switch: true })
    }

    /// The user's name.
    pub fn name(&self) -> &str {
        &self.user.name
    }

    /// The user's id.
    pub fn uid(&self) -> u32 {
        self.user.uid.as_raw()
    }

    /// The id of the user's own group.
    pub fn gid(&self) -> u32 {
        self.user.gid.as_raw()
    }

    /// Whether this process is root, and PostgreSQL's programs run as somebody else.
    pub fn switches(&self) -> bool {
        self.switch
    }

    /// The system users who may log in as PostgreSQL's superuser by peer authentication: the one that runs
    /// PostgreSQL, and root where root runs Sluice.
    pub(crate) fn peers(&self) -> Vec<&str> {
        if self.switch { vec![self.name(), "root"] } else { vec![self.name()] }
    }

    /// A command that runs as this user, in a process group of its own (a terminal's Ctrl-C must reach Sluice
    /// only, which stops things in order), without `PG*` variables, with messages in English, and that gets
    /// `death_signal` when the thread that started it ends.
    pub fn command(&self, program: impl AsRef<OsStr>, death_signal: Signal) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"PG") {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C.UTF-8").env("HOME", &self.user.dir).env("USER", self.name());
        command.stdin(Stdio::null()).process_group(0);
        if self.switch {
            // As root, std also drops the supplementary groups.
            command.uid(self.uid()).gid(self.gid());
        }
        die_with_parent(&mut command, death_signal);
        command
    }

    /// The first part of `path`, from the root downwards, that this user can't enter or run; `None` if all is well.
    pub fn blocked_at(&self, path: &Path) -> Option<PathBuf> {
        if !self.switch {
            return None;
        }
        let may_enter = |path: &Path| {
            let test = self.command("test", Signal::SIGKILL).arg("-x").arg(path).current_dir("/").status();
            test.is_ok_and(|status| status.success())
        };
        if may_enter(path) {
            return None;
        }
        let mut parts: Vec<&Path> = path.ancestors().collect();
        parts.reverse();
        parts.into_iter().find(|part| !may_enter(part)).map(Path::to_owned)
    }
}

fn lookup(error: nix::Error) -> RunAsError {
    RunAsError::Lookup(error.into())
}

/// Asks the kernel to send `signal` to the child when the thread that spawned it ends, however it ends
/// (`PR_SET_PDEATHSIG`, prctl(2)).
#[allow(unsafe_code, reason = "pre_exec has no safe form, and a killed Sluice must not leave a PostgreSQL behind")]
fn die_with_parent(command: &mut Command, signal: Signal) {
    let parent = unistd::getpid();
    // SAFETY: the closure runs in the child between fork and exec, where only async-signal-safe calls are allowed.
    // It makes two plain system calls, allocates nothing (an errno becomes an io::Error without allocation), takes
    // no lock, and touches no memory but its two captured integers.
    unsafe {
        command.pre_exec(move || {
            prctl::set_pdeathsig(signal)?;
            // The parent may have died before the call above; then nobody would ever send the signal.
            if unistd::getppid() != parent {
                return Err(io::Error::from(nix::Error::ESRCH));
            }
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_remedy() {
        if !Uid::effective().is_root() {
            let error = RunAs::resolve(Some("somebody-else")).unwrap_err().to_string();
            assert!(error.contains("only root can"), "{error}");
            return;
        }
        let error = RunAs::resolve(Some("no-such-user")).unwrap_err().to_string();
        assert!(error.contains("useradd --system no-such-user"), "{error}");
        let error = RunAs::resolve(Some("root")).unwrap_err().to_string();
        assert!(error.contains("--run-as USER"), "{error}");
    }

    #[test]
    fn commands_run_as_the_user_without_pg_variables() {
        let run_as = RunAs::resolve(None).unwrap();
        let output = run_as.command("sh", Signal::SIGKILL).args(["-c", "id -u; env"]).output().unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.lines().next().unwrap(), run_as.uid().to_string());
        assert!(!output.lines().any(|line| line.starts_with("PG")), "{output}");
    }
}
