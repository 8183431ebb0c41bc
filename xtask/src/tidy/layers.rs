//! Crates depend downwards only, as ARCHITECTURE.md draws them.

use std::{collections::BTreeMap, path::Path};

use super::{Finding, files};

/// The product's crates, from below. Each may depend on those before it, and on none of the same step.
const STEPS: [&[&str]; 7] = [
    &["sluice-wire", "sluice-units", "sluice-tls", "sluice-hba"],
    &["sluice-control"],
    &["sluice-core", "sluice-config", "sluice-patroni"],
    &["sluice-net"],
    &["sluice-proxy", "sluice-instance"],
    &["sluice-lab"],
    &["sluice"],
];

/// Crates for tests and chores: they may depend on all of them, and none of the product's on them.
const BESIDE: [&str; 6] =
    ["sluice-testkit", "sluice-sim", "sluice-fuzz", "sluice-extension", "sluice-regression-files", "xtask"];

/// Checks each crate's manifest.
pub(super) fn check(root: &Path) -> Vec<Finding> {
    let manifests = ["crates", "extension", "xtask"].iter().flat_map(|folder| files(root, folder, &["Cargo.toml"]));
    manifests.flat_map(|(place, text)| check_manifest(&place, &text)).collect()
}

fn check_manifest(place: &str, text: &str) -> Vec<Finding> {
    let Ok(manifest) = text.parse::<toml_edit::DocumentMut>() else { return Vec::new() };
    let name = manifest["package"]["name"].as_str().unwrap_or_default();
    let finding = |what: String| vec![Finding { place: place.to_owned(), what }];
    let steps: BTreeMap<&str, usize> =
        STEPS.iter().enumerate().flat_map(|(step, names)| names.iter().map(move |name| (*name, step))).collect();
    if BESIDE.contains(&name) {
        return Vec::new();
    }
    let Some(own) = steps.get(name) else {
        return finding(format!("the crate {name} has no step; name it in {}", file!()));
    };
    let dependencies = manifest.get("dependencies").and_then(|table| table.as_table_like());
    let names = dependencies.into_iter().flat_map(|table| table.iter()).map(|(name, _)| name.to_owned());
    let upwards =
        names.filter(|name| name.starts_with("sluice")).find(|name| steps.get(&**name).is_none_or(|s| s >= own));
    upwards.map_or_else(Vec::new, |other| {
        finding(format!("{name} depends on {other}, which does not stand below it; move what both need down"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_upwards_is_found() {
        let of = |name: &str, dependency: &str| {
            let text = format!("[package]\nname = \"{name}\"\n[dependencies]\n{dependency}.workspace = true\n");
            check_manifest("Cargo.toml", &text).len()
        };
        assert_eq!(
            [of("sluice-net", "sluice-core"), of("sluice-testkit", "sluice-core"), of("sluice", "serde")],
            [0; 3]
        );
        assert_eq!(
            [of("sluice-core", "sluice-net"), of("sluice-config", "sluice-net"), of("sluice-core", "sluice-sim")],
            [1; 3]
        );
        assert_eq!(of("sluice-new", "serde"), 1);
    }
}
