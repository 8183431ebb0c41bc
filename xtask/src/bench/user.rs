//! The account that servers run as which refuse root.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use sluice_lab::process;

/// An account that children run as.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl User {
    /// PostgreSQL and PgBouncer refuse to run as root: then they run as `postgres`, which Debian's packages create.
    pub(crate) fn for_servers() -> Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let passwd = std::fs::read_to_string("/etc/passwd").context("can't read /etc/passwd")?;
        let user = find_user(&passwd, "postgres");
        user.map(Some).context("no user `postgres` to run PostgreSQL as: run scripts/bench-deps.sh")
    }
}

fn find_user(passwd: &str, name: &str) -> Option<User> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        Some(User { uid, gid: fields.next()?.parse().ok()? })
    })
}

/// As [`process::command`], by another account if need be.
pub(crate) fn command(program: &Path, user: Option<User>, death: &str) -> Command {
    let mut command = process::command(program, death);
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_by_name() {
        let passwd = "root:x:0:0::/root:/bin/sh\npostgres:x:108:112:,,,:/var/lib/postgresql:/bin/bash\n";
        let user = find_user(passwd, "postgres").unwrap();
        assert_eq!((user.uid, user.gid), (108, 112));
        assert!(find_user(passwd, "post").is_none());
    }
}
