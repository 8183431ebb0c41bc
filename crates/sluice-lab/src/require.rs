//! Required ratios: a file says how one target's figures have to stand to another's, and a run meets that or does not.
//!
//! Only turns of one run are held against each other, round by round: between runs a machine changes by more than what
//! is asked for.

use std::{fmt, fs, path::Path};

use serde::Deserialize;

use crate::{
    error::Error,
    report::{
        Cell, Heading, Table,
        columns::{self, Column},
        number::{figure, times},
        outline,
    },
    result::{CaseKey, RunResult},
};

/// The ratios that are required of a run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirements {
    #[serde(default, rename = "ratio")]
    ratios: Vec<Ratio>,
}

/// A ratio, as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ratio {
    /// By its name in files.
    figure: String,
    /// Of this target's to that one's.
    of: String,
    to: String,
    at_least: Option<f64>,
    at_most: Option<f64>,
    /// Only there; everywhere, if it does not say.
    variant: Option<String>,
    clients: Option<u32>,
}

/// A required ratio, and what a run has to say to it.
#[derive(Debug, Clone, PartialEq)]
struct Judged<'a> {
    asked: &'a Ratio,
    /// The case of the first target, if that was measured.
    case: Option<CaseKey>,
    /// Its figure, the other target's, and the ratio.
    figures: Option<(f64, f64, f64)>,
}

/// The outcome for all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement<'a> {
    judged: Vec<Judged<'a>>,
}

impl Requirements {
    /// Reads the file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
        Self::parse(&text).map_err(|error| Error::Input(format!("{}: {error}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let read: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        if read.ratios.is_empty() {
            return Err(
                "nothing is required\nwrite a [[ratio]] with figure, of, to, and at_least or at_most".to_owned()
            );
        }
        read.ratios.iter().try_for_each(Ratio::check)?;
        Ok(read)
    }

    /// Each of them as a run has it.
    pub fn judge<'a>(&'a self, run: &RunResult) -> Judgement<'a> {
        Judgement { judged: self.ratios.iter().flat_map(|ratio| ratio.judge(run)).collect() }
    }
}

impl Ratio {
    fn check(&self) -> Result<(), String> {
        if self.column().is_none() {
            let names: Vec<&str> = figures().map(|column| column.name).collect();
            return Err(format!("there is no figure {:?}\nchoose from {}", self.figure, names.join(", ")));
        }
        match (self.at_least, self.at_most) {
            (Some(bar), None) | (None, Some(bar)) if bar.is_finite() && bar > 0.0 => Ok(()),
            (Some(_), None) | (None, Some(_)) => Err(format!("{self}: a ratio is a number above 0")),
            _ => Err(format!("{self}: one of at_least and at_most is needed, and not both")),
        }
    }

    fn column(&self) -> Option<Column> {
        figures().find(|column| column.name == self.figure)
    }

    fn judge(&self, run: &RunResult) -> Vec<Judged<'_>> {
        let is_meant = |case: &&CaseKey| {
            case.target == self.of
                && self.variant.as_ref().is_none_or(|variant| case.variant == *variant)
                && self.clients.is_none_or(|clients| case.clients == clients)
        };
        let cases: Vec<&CaseKey> = run.cases().into_iter().filter(is_meant).collect();
        if cases.is_empty() {
            return vec![Judged { asked: self, case: None, figures: None }];
        }
        let judged = cases.into_iter().map(|case| {
            let other = CaseKey { target: self.to.clone(), ..case.clone() };
            let figures = self.column().and_then(|Column { of, .. }| {
                Some((run.median(case, of)?, run.median(&other, of)?, run.ratio(case, &other, of)?))
            });
            Judged { asked: self, case: Some(case.clone()), figures }
        });
        judged.collect()
    }

    fn is_met_by(&self, ratio: f64) -> bool {
        self.at_least.is_none_or(|bar| ratio >= bar) && self.at_most.is_none_or(|bar| ratio <= bar)
    }

    fn bar(&self) -> String {
        match (self.at_least, self.at_most) {
            (Some(bar), _) => format!("at least {}", times(Some(bar))),
            (None, bar) => format!("at most {}", times(bar)),
        }
    }
}

/// "tps_trimmed of pool to straight".
impl fmt::Display for Ratio {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {} to {}", self.figure, self.of, self.to)
    }
}

fn figures() -> impl Iterator<Item = Column> {
    columns::ALL.iter().copied().chain([columns::CPU])
}

impl Judgement<'_> {
    /// A table for the terminal.
    pub fn text(&self) -> String {
        let titles = ["case", "figure", "its", "", "the other's", "ratio", "required", ""];
        let head = titles.map(|title| Heading::new(title, "")).into();
        let rows = self.judged.iter().map(Judged::row).collect();
        Table { head, rows }.text()
    }

    /// Those that the run does not meet, or says nothing to.
    pub fn missed(&self) -> usize {
        self.judged.iter().filter(|judged| !judged.is_met()).count()
    }

    /// All of them.
    pub fn count(&self) -> usize {
        self.judged.len()
    }
}

impl Judged<'_> {
    fn is_met(&self) -> bool {
        self.figures.is_some_and(|(_, _, ratio)| self.asked.is_met_by(ratio))
    }

    fn row(&self) -> Vec<Cell> {
        let Ratio { of, to, figure: name, .. } = self.asked;
        let case = self.case.as_ref().map_or_else(|| of.clone(), outline::label);
        let (own, other, ratio) = match self.figures {
            Some((own, other, ratio)) => (figure(Some(own)), figure(Some(other)), times(Some(ratio))),
            None => Default::default(),
        };
        let outcome = match self.figures {
            None => "not measured",
            Some(_) if self.is_met() => "met",
            Some(_) => "missed",
        };
        let (text, number) = (|text: &str| Cell::Text(text.to_owned()), |text: String| Cell::Number(text));
        vec![
            text(&case),
            text(name),
            number(own),
            text(to),
            number(other),
            number(ratio),
            text(&self.asked.bar()),
            text(outcome),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_required_is_read_or_told_what_is_wrong() {
        let good = "[[ratio]]\nfigure = \"tps\"\nof = \"pool\"\nto = \"straight\"\nat_least = 1.5\nclients = 64\n";
        let read = Requirements::parse(good).expect("it is good");
        assert_eq!((read.ratios.len(), read.ratios[0].to_string()), (1, "tps of pool to straight".to_owned()));
        for (text, expected) in [
            ("", "nothing is required"),
            (&good.replace("tps", "speed"), "there is no figure \"speed\"\nchoose from seconds, "),
            (&good.replace("at_least = 1.5", ""), "one of at_least and at_most"),
            (&good.replace("clients", "at_most"), "one of at_least and at_most"),
            (&good.replace("1.5", "0"), "a number above 0"),
            (&good.replace("clients", "customers"), "unknown field `customers`"),
        ] {
            let error = Requirements::parse(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_bar_is_met_from_its_own_side() {
        let ratio = |bar: &str| {
            let text = format!("[[ratio]]\nfigure = \"p99_ms\"\nof = \"a\"\nto = \"b\"\n{bar} = 2\n");
            Requirements::parse(&text).expect("it is good").ratios.remove(0)
        };
        for (bar, met) in [("at_least", [false, true, true]), ("at_most", [true, true, false])] {
            assert_eq!([1.9, 2.0, 2.1].map(|it| ratio(bar).is_met_by(it)), met, "{bar}");
        }
    }
}
