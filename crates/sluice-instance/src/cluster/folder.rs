//! Folders of PostgreSQL's user.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt, chown},
    path::Path,
};

use super::ClusterError;
use crate::run_as::RunAs;

/// Makes one, closed to others.
pub(super) fn make_dir(path: &Path, run_as: &RunAs) -> Result<(), ClusterError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) if run_as.switches() => chown(path, Some(run_as.uid()), Some(run_as.gid())),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::set_permissions(path, fs::Permissions::from_mode(0o700)),
    }
    .map_err(ClusterError::io("create", path))
}
