//! Modules import downwards: no way leads from one back to itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use super::{Finding, code_of};

/// Folders whose modules are looked at, and how these name each other there.
const FOLDERS: [(&str, &str); 4] = [
    ("crates/sluice-core/src", "crate::"),
    ("crates/sluice-core/src/engine", "super::"),
    ("crates/sluice-core/src/server", "super::"),
    ("crates/sluice-core/src/sql", "super::"),
];

/// A module directly below the crate's root, and those that it names.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Reads all modules of a folder, their own submodules with them. Names of theirs stand behind `root`.
fn imports(folder: &Path, root: &str) -> Imports {
    let mut found = Imports::new();
    for entry in fs::read_dir(folder).expect("it has sources") {
        let path = entry.expect("it can be read").path();
        let module = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        if !matches!(module.as_str(), "lib" | "mod") {
            add(&path, &module, root, found.entry(module.clone()).or_default());
        }
    }
    found
}

fn add(path: &Path, module: &str, root: &str, imports: &mut BTreeSet<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("it can be read") {
            let path = entry.expect("it can be read").path();
            add(&path, module, root, imports);
        }
        return;
    }
    let text = fs::read_to_string(path).expect("sources are text");
    let code: String = text.lines().map(code_of).collect();
    imports.extend(named(&code, root).into_iter().filter(|name| name != module));
}

/// The first names behind each `crate::`, or another root, of which there are several within braces.
fn named(code: &str, root: &str) -> Vec<String> {
    let mut names = Vec::new();
    for path in code.split(root).skip(1) {
        let Some(list) = path.strip_prefix('{') else {
            names.push(first_name(path));
            continue;
        };
        let (mut depth, mut from) = (0, 0);
        for (at, byte) in list.bytes().enumerate() {
            match byte {
                b'{' => depth += 1,
                b',' | b'}' if depth == 0 => {
                    names.push(first_name(&list[from..at]));
                    from = at + 1;
                    if byte == b'}' {
                        break;
                    }
                }
                b'}' => depth -= 1,
                _ => (),
            }
        }
    }
    // A macro or a type of the root is no module.
    names.retain(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
    names
}

fn first_name(path: &str) -> String {
    path.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// A way from a module back to itself, if there is one.
fn circle(imports: &Imports) -> Option<Vec<&str>> {
    fn back<'a>(imports: &'a Imports, way: &mut Vec<&'a str>, seen: &mut BTreeSet<&'a str>) -> bool {
        let at = *way.last().expect("a way begins somewhere");
        for next in imports.get(at).into_iter().flatten() {
            let closes = *next == way[0];
            if !closes && !seen.insert(next) {
                continue;
            }
            way.push(next);
            if closes || back(imports, way, seen) {
                return true;
            }
            way.pop();
        }
        false
    }
    imports.keys().find_map(|from| {
        let mut way = vec![from.as_str()];
        back(imports, &mut way, &mut BTreeSet::new()).then_some(way)
    })
}

/// Checks each of the folders.
pub(super) fn check(root: &Path) -> Vec<Finding> {
    let found = FOLDERS.iter().filter_map(|(folder, names)| {
        let imports = imports(&root.join(folder), names);
        let way = circle(&imports)?.join(" -> ");
        let what = format!("modules import each other in a circle: {way}; one of them must stand below");
        Some(Finding { place: (*folder).to_owned(), what })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_found() {
        let of = |code: &str| named(code, "crate::").into_iter().collect();
        let mut imports = Imports::from([
            ("a".to_owned(), of("use crate::b::Thing; fn f() {}")),
            ("b".to_owned(), of("use crate::{c::{self, D}, d::{e, f::G}, h};")),
            ("d".to_owned(), of("fn f() { crate::x::y() }")),
        ]);
        assert_eq!(imports["b"], ["c", "d", "h"].map(str::to_owned).into());
        assert_eq!(circle(&imports), None);
        imports.insert("x".to_owned(), of("use crate::{a::Other, Engine};"));
        assert_eq!(circle(&imports).expect("there is one now"), ["a", "b", "d", "x", "a"]);
    }

    #[test]
    fn imports_are_found() {
        let [core, engine, ..] = FOLDERS;
        for ((folder, names), [above, below]) in [(core, ["engine", "ids"]), (engine, ["lease", "own_queries"])] {
            let imports = imports(&crate::tidy::root().join(folder), names);
            assert!(imports[above].contains(below), "{folder}: {imports:?}");
        }
    }
}
