//! `unsafe` stands in few files, each block with its argument.

use std::path::Path;

use super::{Finding, code_of, files};

/// The files that may have it, as ARCHITECTURE.md says: the drivers and their buffers, a question to the
/// kernel, descriptors that come as numbers, and what runs between `fork` and `exec`.
const ALLOWED: [&str; 7] = [
    "crates/sluice-net/src/buffers.rs",
    "crates/sluice-net/src/net.rs",
    "crates/sluice-proxy/src/net/delivery.rs",
    "crates/sluice-proxy/src/net/epoll.rs",
    "crates/sluice-proxy/src/net/passed.rs",
    "crates/sluice-proxy/src/net/uring.rs",
    "crates/sluice-instance/src/run_as.rs",
];

/// The lines before a block in which its argument is looked for.
const ARGUMENT_LINES: usize = 6;

/// Checks the product's sources.
pub(super) fn check(root: &Path) -> Vec<Finding> {
    let sources = files(root, "crates", &[".rs"]).into_iter().filter(|(place, _)| place.contains("/src/"));
    sources.flat_map(|(place, text)| check_source(&place, &text)).collect()
}

fn check_source(place: &str, text: &str) -> Vec<Finding> {
    let lines: Vec<&str> = text.lines().collect();
    let mut findings = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let is_block = ["unsafe {", "unsafe impl", "unsafe fn"].iter().any(|word| code_of(line).contains(word));
        if !is_block {
            continue;
        }
        let before = &lines[at.saturating_sub(ARGUMENT_LINES)..at];
        let what = if !ALLOWED.contains(&place) {
            "unsafe code, which ARCHITECTURE.md allows in the drivers and their buffers only"
        } else if !before.iter().any(|line| line.contains("SAFETY:") || line.contains("# Safety")) {
            "unsafe code without its argument; write one after \"SAFETY:\" above it"
        } else {
            continue;
        };
        findings.push(Finding { place: format!("{place}:{}", at + 1), what: what.to_owned() });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_code_needs_a_place_and_an_argument() {
        let bare = "fn f() {\n    unsafe { g() }\n}\n";
        let argued = "fn f() {\n    // SAFETY: it is.\n    unsafe { g() }\n}\n";
        assert_eq!(check_source(ALLOWED[0], argued), []);
        assert_eq!(check_source(ALLOWED[0], bare)[0].place, format!("{}:2", ALLOWED[0]));
        assert_eq!(check_source("crates/sluice-core/src/hub.rs", argued).len(), 1);
        assert_eq!(check_source("crates/sluice-core/src/hub.rs", "// unsafe { }\n"), []);
    }
}
