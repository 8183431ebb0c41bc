//! Modules import downwards: no way leads from one back to itself, among those that stand in the same folder.
//!
//! A module counts with its submodules. That these use what their parent has is no circle, nor that it uses them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{Finding, code_of};

/// A module's path within its crate; the root's is empty.
type Module = Vec<String>;

/// The modules of a folder, and those among them that each names.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The imports of a crate's modules, by the module that they have in common.
fn imports(root: &Path, sources: &str) -> BTreeMap<Module, Imports> {
    let files = super::files(root, sources, &[".rs"]);
    let files = files.iter().map(|(place, text)| (module_of(place, sources), text)).collect::<Vec<_>>();
    let mut found = BTreeMap::<Module, Imports>::new();
    for (module, _) in &files {
        for depth in 0..module.len() {
            found.entry(module[..depth].to_vec()).or_default().entry(module[depth].clone()).or_default();
        }
    }
    for (module, text) in &files {
        for named in named(text, module) {
            let depth = named.iter().zip(module).take_while(|(named, own)| named == own).count();
            let (Some(above), Some(below)) = (module.get(depth), named.get(depth)) else { continue };
            let Some(folder) = found.get_mut(&module[..depth]) else { continue };
            // Any other thing of the parent's is no module.
            if folder.contains_key(below) {
                folder.entry(above.clone()).or_default().insert(below.clone());
            }
        }
    }
    found
}

/// The module that a file holds.
fn module_of(place: &str, sources: &str) -> Module {
    let path = Path::new(place).strip_prefix(sources).unwrap_or(Path::new(place)).with_extension("");
    let mut names: Module = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    let is_root = names.len() == 1 && matches!(names[0].as_str(), "lib" | "main");
    if is_root || names.last().is_some_and(|name| name == "mod") {
        names.pop();
    }
    names
}

/// All that a file names by a path from the root, from itself or from its parent.
fn named(text: &str, module: &[String]) -> Vec<Module> {
    let mut paths = Vec::new();
    for (within, code) in inline_modules(text, module) {
        for (at, _) in code.match_indices("::") {
            let before = &code[..at];
            let Some(start) = ["crate", "super", "self"].iter().find(|start| before.ends_with(**start)) else {
                continue;
            };
            let from = at - start.len();
            if before[..from].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':')) {
                continue;
            }
            let base = if *start == "crate" { &[] } else { within.as_slice() };
            let mut found = Vec::new();
            tree(&code[from..], base, &mut found);
            paths.append(&mut found);
        }
    }
    paths
}

/// The parts of a file, by the module that they stand in: `mod tests { … }` has a parent of its own.
fn inline_modules(text: &str, module: &[String]) -> BTreeMap<Module, String> {
    let mut parts = BTreeMap::<Module, String>::new();
    let (mut within, mut ends) = (module.to_vec(), Vec::new());
    for line in text.lines().map(code_of) {
        let code = line.trim();
        let begins = &line[..line.len() - line.trim_start().len()];
        let name = code.strip_suffix(" {").and_then(|code| code.split_once("mod ")).map(|(_, name)| name);
        if let Some(name) = name.filter(|name| first_name(name) == *name) {
            within.push(name.to_owned());
            ends.push(format!("{begins}}}"));
        } else if ends.last().is_some_and(|end| line.trim_end() == end) {
            within.pop();
            ends.pop();
        } else {
            let part = parts.entry(within.clone()).or_default();
            part.push_str(line);
            part.push('\n');
        }
    }
    parts
}

/// The paths at the beginning of `code`, of which there are several within braces; gives the rest behind them.
fn tree<'a>(code: &'a str, base: &[String], found: &mut Vec<Module>) -> &'a str {
    let mut path = base.to_vec();
    let mut rest = code.trim_start();
    loop {
        if let Some(mut list) = rest.strip_prefix('{') {
            loop {
                list = list.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
                match list.strip_prefix('}') {
                    Some(rest) => return rest,
                    None if list.is_empty() => return list,
                    None => list = tree(list, &path, found).trim_start_matches(|c| !matches!(c, ',' | '}')),
                }
            }
        }
        let name = first_name(rest);
        rest = &rest[name.len()..];
        match name {
            "" | "crate" | "self" => (),
            "super" => drop(path.pop()),
            name => path.push(name.to_owned()),
        }
        match rest.strip_prefix("::") {
            Some(further) if !name.is_empty() => rest = further,
            _ => {
                found.push(path);
                return rest;
            }
        }
    }
}

fn first_name(path: &str) -> &str {
    &path[..path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len())]
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

/// Checks the sources of every crate.
pub(super) fn check(root: &Path) -> Vec<Finding> {
    let manifests = ["crates", "xtask"].map(|folder| super::files(root, folder, &["Cargo.toml"])).concat();
    let mut found = Vec::new();
    for (manifest, _) in manifests {
        let sources = manifest.replace("Cargo.toml", "src");
        for (folder, imports) in imports(root, &sources) {
            if let Some(way) = circle(&imports) {
                let way = way.join(" -> ");
                let what = format!("modules import each other in a circle: {way}; one of them must stand below");
                let place = [&sources].into_iter().chain(&folder).map(String::as_str).collect::<Vec<_>>().join("/");
                found.push(Finding { place, what });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str) -> Module {
        path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn paths_are_found() {
        for (code, expected) in [
            ("use crate::b::Thing; fn f() { b::g() }", vec!["b::Thing"]),
            (
                "use crate::{\n    c::{self, D as E},\n    d::{e, f::G}, h,\n};",
                vec!["c", "c::D", "d::e", "d::f::G", "h"],
            ),
            ("fn f() { crate::x::y() + self::g::h() }", vec!["x::y", "a::b::g::h"]),
            ("pub(super) use super::{c::*, d}; use super::super::e; use my_crate::k;", vec!["a::c", "a::d", "e"]),
            (
                "pub mod tests {\n    use super::{c, *};\n    use super::super::e;\n}\nuse super::d;",
                vec!["a::d", "a::b::c", "a::b", "a::e"],
            ),
            ("// use crate::c;", vec![]),
        ] {
            assert_eq!(named(code, &module("a::b")), expected.into_iter().map(module).collect::<Vec<_>>(), "{code}");
        }
    }

    #[test]
    fn a_circle_is_found() {
        let below = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let imports = [("a", below(&["b"])), ("b", below(&["c", "d"])), ("c", below(&[])), ("d", below(&["x"]))];
        let mut imports: Imports = imports.map(|(name, below)| (name.to_owned(), below)).into();
        assert_eq!(circle(&imports), None);
        imports.insert("x".to_owned(), below(&["a"]));
        assert_eq!(circle(&imports).expect("there is one now"), ["a", "b", "d", "x", "a"]);
    }

    #[test]
    fn imports_are_found() {
        for (sources, folder, above, below) in [
            ("crates/sluice-core/src", "", "engine", "ids"),
            ("crates/sluice-core/src", "engine", "lease", "own_queries"),
            ("crates/sluice-lab/src", "review", "assess", "rule"),
            ("crates/sluice-proxy/src", "", "service", "listening"),
            ("crates/sluice-proxy/src", "console", "listed", "rows"),
        ] {
            let imports = imports(&crate::tidy::root(), sources);
            let imports = &imports[&module(folder)];
            assert!(imports[above].contains(below), "{sources} {folder}: {imports:?}");
        }
    }
}
