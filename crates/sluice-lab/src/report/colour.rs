//! Colours of targets and of runs, as classes of the style sheet.

/// There are no more than can be told apart.
pub(crate) const COLOURS: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];

/// The colour of the nth target, or run.
pub(crate) fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}
