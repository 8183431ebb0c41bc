//! Obstacles to enforcing a limit of a class. The fault is the machine's, or how Sluice was started; the instance runs
//! all the same, without that limit.

use std::{
    io,
    path::{Path, PathBuf},
};

use nix::errno::Errno;

/// An obstacle to enforcing a limit; [`Obstacle::remedy`] says what helps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// Neither version of control groups has what is needed where this process is.
    #[error("no {controller} controller")]
    NoController {
        /// Its name.
        controller: &'static str,
    },
    /// Version 2 divides a group only if no process is in it itself, and others than Sluice are.
    #[error("other processes are in {} too, so it can't be divided", group.display())]
    NotAlone {
        /// The group that Sluice is in.
        group: PathBuf,
    },
    /// The instance's group exists, and somebody else's processes are in it.
    #[error("the group {} is in use", group.display())]
    InUse {
        /// The group.
        group: PathBuf,
    },
    /// The data directory is on no disk of its own.
    #[error("{} is on {file_system}, not on a disk", path.display())]
    NoDisk {
        /// The data directory.
        path: PathBuf,
        /// The kind of its file system.
        file_system: String,
    },
    /// A file or folder can't be used.
    #[error("cannot {what} {}: {}", path.display(), errno.desc())]
    File {
        /// The action that failed, as a verb.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        errno: Errno,
    },
    /// The kernel took a value, and says another.
    #[error("{} says {found:?} where {wanted:?} was written", file.display())]
    ReadBack {
        /// The file.
        file: PathBuf,
        /// The value that was written.
        wanted: String,
        /// The value that is read back.
        found: String,
    },
    /// The server is not in its group.
    #[error("process {pid} is not in {} though it was put there", group.display())]
    NotMember {
        /// The postmaster.
        pid: u32,
        /// The group.
        group: PathBuf,
    },
}

impl Obstacle {
    pub(super) fn file(what: &'static str, path: &Path, error: &io::Error) -> Self {
        // An error without a number comes from the library, about what was read.
        let errno = error.raw_os_error().map_or(Errno::EINVAL, Errno::from_raw);
        Self::File { what, path: path.to_owned(), errno }
    }

    /// The remedy, as a sentence.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::NotAlone { .. } => {
                "start Sluice in a group of its own: systemd-run --scope -p Delegate=yes sluice up … (not as root: \
                 systemd-run --user --scope …)"
            }
            Self::NoController { .. } => {
                "the kernel or the container does not offer it here; under systemd, start Sluice with Delegate=yes"
            }
            Self::File { errno: Errno::EACCES | Errno::EPERM, .. } => "start as root, or by systemd with Delegate=yes",
            Self::File { errno: Errno::EROFS, .. } => {
                "have the container's /sys/fs/cgroup writable, or limit the container itself"
            }
            Self::File { errno: Errno::EINVAL, .. } => "a group above allows less, or the disk takes no such limit",
            Self::File { errno: Errno::ENOENT, .. } => "the kernel was built without it",
            Self::File { .. } | Self::ReadBack { .. } | Self::NotMember { .. } => {
                "another program may change groups here; start Sluice in a group of its own"
            }
            Self::InUse { .. } => "end the processes that its cgroup.procs lists",
            Self::NoDisk { .. } => "choose a directory on a disk with --data DIR",
        }
    }
}
