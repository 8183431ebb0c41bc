//! Rules for this repository that no compiler knows. Each finding names a place and the remedy.

mod circles;
mod layers;
mod lines;
mod unsafety;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

/// A rule that was broken, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    /// The file, from the repository's root, with a line if there is one.
    place: String,
    /// The fault, and the remedy.
    what: String,
}

/// Checks the repository that this was built from.
pub(crate) fn run() -> Result<()> {
    let findings = findings(&root());
    for Finding { place, what } in &findings {
        println!("{place}: {what}");
    }
    match findings.len() {
        0 => Ok(()),
        1 => bail!("a rule of this repository is broken"),
        many => bail!("rules of this repository are broken at {many} places"),
    }
}

fn findings(root: &Path) -> Vec<Finding> {
    [layers::check(root), circles::check(root), unsafety::check(root), lines::check(root)].concat()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_owned()
}

/// The files below a folder whose names end like that, in order, with their texts. What is built is left out.
fn files(root: &Path, folder: &str, ends: &[&str]) -> Vec<(String, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![root.join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if ends.iter().any(|end| name.ends_with(end))
                && let Ok(text) = fs::read_to_string(&path)
            {
                let place = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                found.push((place, text));
            }
        }
    }
    found.sort();
    found
}

/// A line of Rust without its comment, roughly: a `//` within a text counts as one.
fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let findings = findings(&root());
        assert!(findings.is_empty(), "{findings:#?}");
    }
}
