//! Access to the files, by the caller, and the paths that they name each other by.

use std::{
    ffi::OsString,
    io,
    path::{Component, Path, PathBuf},
};

/// Files and folders, as the caller reads them.
pub trait Files {
    /// The text of a file. A file that does not exist must fail with [`io::ErrorKind::NotFound`].
    fn read(&self, path: &Path) -> io::Result<String>;

    /// The names of a folder's entries that are not folders themselves, in any order.
    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>>;
}

/// The path that a file means when it names another: relative to its own folder.
pub(crate) fn beside(file: &Path, named: &str) -> PathBuf {
    if named.starts_with('/') {
        return PathBuf::from(named);
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    tidy(&folder.join(named))
}

/// A path without `.` and without those `..` that undo a folder before them.
fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for component in path.components() {
        match (component, tidy.components().next_back()) {
            (Component::CurDir, _) | (Component::ParentDir, Some(Component::RootDir)) => (),
            (Component::ParentDir, Some(Component::Normal(_))) => _ = tidy.pop(),
            _ => tidy.push(component),
        }
    }
    tidy
}

/// The reason of an error, as C's `strerror` has it.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_file() {
        for (file, named, path) in [
            ("/etc/pg/pg_hba.conf", "more.conf", "/etc/pg/more.conf"),
            ("/etc/pg/pg_hba.conf", "/more.conf", "/more.conf"),
            ("/etc/pg/pg_hba.conf", "./x/../../more.conf", "/etc/more.conf"),
            ("/pg_hba.conf", "../more.conf", "/more.conf"),
            ("pg_hba.conf", "more.conf", "more.conf"),
            ("../pg_hba.conf", "../more.conf", "../../more.conf"),
        ] {
            assert_eq!(beside(Path::new(file), named), Path::new(path), "{named} in {file}");
        }
    }
}
