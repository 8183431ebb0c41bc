//! Names of runs that stand beside each other: their files' names, as short as possible.

use std::path::{Path, PathBuf};

/// A name for each file: its own, or its folder's if all reports have the same file names; the whole path of those
/// that would still be called the same.
pub fn names_of(paths: &[PathBuf]) -> Vec<String> {
    let short: Vec<String> = paths.iter().map(|path| short(path)).collect();
    let is_alone = |name: &String| short.iter().filter(|other| *other == name).count() == 1;
    let named = short.iter().zip(paths);
    named.map(|(name, path)| if is_alone(name) { name.clone() } else { path.display().to_string() }).collect()
}

fn short(path: &Path) -> String {
    let stem = path.file_stem();
    let is_common = stem.is_some_and(|stem| stem == "result" || stem == "report");
    let folder = path.parent().and_then(Path::file_name).filter(|_| is_common);
    folder.or(stem).map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_differ() {
        for (paths, expected) in [
            (["runs/monday/result.json", "runs/tuesday/report.html"], ["monday", "tuesday"]),
            (["before.json", "runs/after.html"], ["before", "after"]),
            (["a/run/result.json", "b/run/result.json"], ["a/run/result.json", "b/run/result.json"]),
            (["result.json", "runs/monday/result.json"], ["result", "monday"]),
        ] {
            assert_eq!(names_of(&paths.map(PathBuf::from)), expected);
        }
    }
}
