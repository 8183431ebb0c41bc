//! Lines and files of a length that can be read.

use std::path::Path;

use super::{Finding, files};

/// The longest line, in characters.
const LINE_CHARS_MAX: usize = 120;

/// The longest source file, in lines.
const FILE_LINES_MAX: usize = 600;

/// Files that are longer, until they are divided. None may grow beyond what stands here.
const LONGER: [(&str, usize); 2] =
    [("crates/sluice-core/tests/scripts/main.rs", 627), ("crates/sluice-core/tests/scripts/sessions.rs", 698)];

/// Checks documents and sources.
pub(super) fn check(root: &Path) -> Vec<Finding> {
    let documents = files(root, "", &[".md"]).into_iter().filter(|(place, _)| !place.starts_with("docs/reference/"));
    let sources = ["crates", "extension", "xtask"].iter().flat_map(|folder| files(root, folder, &[".rs", ".c", ".h"]));
    let lines = documents.flat_map(|(place, text)| check_document(&place, &text));
    lines.chain(sources.flat_map(|(place, text)| check_length(&place, &text))).collect()
}

/// Tables and addresses can't be broken, nor can a line that is one word; what stands in a block is shown as it is.
fn check_document(place: &str, text: &str) -> Vec<Finding> {
    let (mut is_block, mut findings) = (false, Vec::new());
    for (at, line) in text.lines().enumerate() {
        is_block ^= line.trim_start().starts_with("```");
        let words = line.trim_start().trim_start_matches(['-', '>']).split_whitespace().count();
        let is_whole = is_block || line.starts_with(['|', '<']) || words < 2;
        if !is_whole && line.chars().count() > LINE_CHARS_MAX {
            let what = format!("longer than {LINE_CHARS_MAX} characters; break the line");
            findings.push(Finding { place: format!("{place}:{}", at + 1), what });
        }
    }
    findings
}

fn check_length(place: &str, text: &str) -> Vec<Finding> {
    let max = LONGER.iter().find(|(longer, _)| *longer == place).map_or(FILE_LINES_MAX, |(_, max)| *max);
    let lines = text.lines().count();
    let what = format!("{lines} lines, more than {max}; divide it along what its parts are about");
    if lines > max { vec![Finding { place: place.to_owned(), what }] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_found_in_prose_only() {
        let long = "word ".repeat(30);
        let of = |text: String| check_document("a.md", &text).len();
        assert_eq!(of(long.clone()), 1);
        assert_eq!([of(format!("| {long} |")), of(format!("```\n{long}\n```")), of("short".to_owned())], [0; 3]);
        assert_eq!(of(format!("```\n{long}\n```\n{long}")), 1);
        // A link is no reason for the words around it.
        assert_eq!(of(format!("{long}[here](there.md)")), 1);
        let link = format!("[here]({}.md)", "there".repeat(30));
        assert_eq!([of(link.clone()), of(format!("  - {link}")), of(format!("see {link}"))], [0, 0, 1]);
    }

    #[test]
    fn long_files_are_found() {
        assert_eq!(check_length("a.rs", &"\n".repeat(FILE_LINES_MAX)), []);
        assert_eq!(check_length("a.rs", &"\n".repeat(FILE_LINES_MAX + 1)).len(), 1);
    }
}
