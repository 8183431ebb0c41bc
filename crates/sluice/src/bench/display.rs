//! A run's progress on the terminal: a bar with the time left, or a line a turn where nobody watches.

use std::{cell::Cell, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use sluice_lab::{result::Outcome, run::Progress};

/// See [`Progress`].
pub(super) struct Display {
    bar: Option<ProgressBar>,
    begun: Cell<bool>,
}

impl Display {
    pub(super) fn new(is_terminal: bool) -> Self {
        let bar = is_terminal.then(|| {
            let bar = ProgressBar::new(0);
            // The template is a constant that a test has seen; without it the bar is plainer.
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {prefix}  {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        Self { bar, begun: Cell::new(false) }
    }

    /// Leaves the terminal to what comes next.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => say_aside!("{text}"),
        }
    }
}

impl Progress for Display {
    fn step(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(format!("{what} …")),
            None => say_aside!("{what}"),
        }
    }

    fn warn(&self, what: &str) {
        self.line(what);
    }

    fn turn(&self, index: usize, count: usize, label: &str, left: Duration) {
        if !self.begun.replace(true) {
            self.line(&format!("{} turns, about {}", count - index, span(left)));
        }
        if let Some(bar) = &self.bar {
            bar.set_length(count as u64);
            bar.set_position(index as u64);
            bar.set_prefix(format!("{label}  ({} left)", span(left)));
        }
    }

    fn report(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
        }
    }

    fn done(&self, label: &str, outcome: &Outcome) {
        let how = match outcome {
            Outcome::Measured(measured) => {
                let figures = &measured.figures;
                let stalled = match measured.stalls.len() {
                    0 => String::new(),
                    1 => ", a stall".to_owned(),
                    count => format!(", {count} stalls"),
                };
                let p99 = figures.p99_ms.map_or_else(String::new, |p99_ms| format!(", p99 {p99_ms:.2} ms"));
                format!("{:.0} tps, {:.2} ms{p99}{stalled}", figures.tps, figures.mean_ms)
            }
            Outcome::Broken(why) => format!("broke: {why}"),
            Outcome::Skipped(why) => format!("skipped: {why}"),
        };
        self.line(&format!("{label}: {how}"));
    }
}

/// `45 s`, `12 min`, `3 h 05 min`.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..=89 => format!("{seconds} s"),
        90..=5399 => format!("{} min", (seconds + 30) / 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        let spans = [45, 95, 3599, 11_100].map(|seconds| span(Duration::from_secs(seconds)));
        assert_eq!(spans, ["45 s", "2 min", "60 min", "3 h 05 min"]);
        assert!(ProgressStyle::with_template("{bar:24} {pos}/{len} {prefix}  {msg}").is_ok());
    }
}
