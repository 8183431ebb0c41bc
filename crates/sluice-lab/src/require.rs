//! Required ratios and limits: a file says how one target's figures have to stand to another's, or to a number, and a run
//! meets that or does not.
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

/// The requirements that a run has to meet.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirements {
    /// Of figures to others.
    #[serde(default, rename = "ratio")]
    ratios: Vec<Required>,
    /// Of figures by themselves.
    #[serde(default, rename = "limit")]
    limits: Vec<Required>,
}

/// One requirement, as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Required {
    /// By its name in files.
    figure: String,
    /// Of this target.
    of: String,
    at_least: Option<f64>,
    at_most: Option<f64>,
    /// Only there; everywhere, if it does not say.
    variant: Option<String>,
    clients: Option<u32>,
    /// The case that a ratio is to, as far as it is another one: that target, that variant, with so many clients.
    to: Option<String>,
    to_variant: Option<String>,
    to_clients: Option<u32>,
}

/// A requirement, and what a run has to say to it.
#[derive(Debug, Clone, PartialEq)]
struct Judged<'a> {
    asked: &'a Required,
    /// The case, if it was measured.
    case: Option<CaseKey>,
    measured: Option<Measured>,
}

/// The figures that a requirement is about.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Measured {
    own: f64,
    /// The other's, and the ratio to it.
    other: Option<(f64, f64)>,
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
        if read.all().next().is_none() {
            return Err("nothing is required\nwrite a [[ratio]] with figure, of, to, and at_least or at_most, or a \
                        [[limit]] with figure, of, and at_least or at_most"
                .to_owned());
        }
        read.all().try_for_each(Required::check)?;
        if let Some(ratio) = read.ratios.iter().find(|ratio| !ratio.is_ratio()) {
            return Err(format!("{ratio}: a [[ratio]] is to something: give to, to_variant, to_clients, or several"));
        }
        if let Some((at, ratio)) = read.ratios.iter().enumerate().find(|(_, ratio)| ratio.is_to_itself()) {
            let remedy = "name another target in to, or variant and to_variant, or clients and to_clients, that differ";
            return Err(format!("[[ratio]] {}, {ratio}: a case is held against itself\n{remedy}", at + 1));
        }
        match read.limits.iter().find(|limit| limit.is_ratio()) {
            Some(limit) => Err(format!("{limit}: a [[limit]] is to nothing: leave out to, to_variant and to_clients")),
            None => Ok(read),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Required> {
        self.ratios.iter().chain(&self.limits)
    }

    /// Each of them as a run has it.
    pub fn judge<'a>(&'a self, run: &RunResult) -> Judgement<'a> {
        Judgement { judged: self.all().flat_map(|required| required.judge(run)).collect() }
    }
}

impl Required {
    fn check(&self) -> Result<(), String> {
        if self.column().is_none() {
            let names: Vec<&str> = figures().map(|column| column.name).collect();
            return Err(format!("there is no figure {:?}\nchoose from {}", self.figure, names.join(", ")));
        }
        match (self.at_least, self.at_most) {
            (Some(bar), None) | (None, Some(bar)) if bar.is_finite() && bar > 0.0 => Ok(()),
            (Some(_), None) | (None, Some(_)) => Err(format!("{self}: a bar is a number above 0")),
            _ => Err(format!("{self}: one of at_least and at_most is needed, and not both")),
        }
    }

    fn is_ratio(&self) -> bool {
        self.to.is_some() || self.to_variant.is_some() || self.to_clients.is_some()
    }

    /// Whether a case that it is of is the one that it is to: such a ratio is always 1.
    fn is_to_itself(&self) -> bool {
        self.to.as_ref().is_none_or(|to| *to == self.of)
            && self.to_variant.as_ref().is_none_or(|to| self.variant.as_ref().is_none_or(|own| own == to))
            && self.to_clients.is_none_or(|other| self.clients.is_none_or(|own| own == other))
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
            return vec![Judged { asked: self, case: None, measured: None }];
        }
        let judged =
            |case: &CaseKey| Judged { asked: self, case: Some(case.clone()), measured: self.measured(run, case) };
        cases.into_iter().map(judged).collect()
    }

    fn measured(&self, run: &RunResult, case: &CaseKey) -> Option<Measured> {
        let Column { of, .. } = self.column()?;
        let own = run.median(case, of)?;
        let other = CaseKey {
            target: self.to.as_ref().unwrap_or(&case.target).clone(),
            variant: self.to_variant.as_ref().unwrap_or(&case.variant).clone(),
            clients: self.to_clients.unwrap_or(case.clients),
        };
        let other = match self.is_ratio() {
            true => Some((run.median(&other, of)?, run.ratio(case, &other, of)?)),
            false => None,
        };
        Some(Measured { own, other })
    }

    fn is_met_by(&self, value: f64) -> bool {
        self.at_least.is_none_or(|bar| value >= bar) && self.at_most.is_none_or(|bar| value <= bar)
    }

    /// "at least 1.50 ×", "at most 64000".
    fn bar(&self) -> String {
        let (word, bar) = if self.at_least.is_some() { ("at least", self.at_least) } else { ("at most", self.at_most) };
        let bar = if self.is_ratio() { times(bar) } else { figure(bar) };
        format!("{word} {bar}")
    }

    /// "straight", "64 clients", "straight, 64 clients", "alone"; nothing for a limit.
    fn other(&self) -> String {
        let clients = self.to_clients.map(|clients| format!("{clients} clients"));
        self.to.iter().chain(&self.to_variant).cloned().chain(clients).collect::<Vec<_>>().join(", ")
    }
}

/// "tps_trimmed of pool to straight".
impl fmt::Display for Required {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {}", self.figure, self.of)?;
        if self.is_ratio() { write!(out, " to {}", self.other()) } else { Ok(()) }
    }
}

fn figures() -> impl Iterator<Item = Column> {
    columns::ALL.iter().copied().chain([columns::CPU, columns::POOL_SHARE])
}

impl Measured {
    /// The value that the bar is held against.
    fn value(self) -> f64 {
        self.other.map_or(self.own, |(_, ratio)| ratio)
    }
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
        self.measured.is_some_and(|measured| self.asked.is_met_by(measured.value()))
    }

    fn row(&self) -> Vec<Cell> {
        let case = self.case.as_ref().map_or_else(|| self.asked.of.clone(), outline::label);
        let other = self.measured.and_then(|measured| measured.other);
        let outcome = match self.measured {
            None => "not measured",
            Some(_) if self.is_met() => "met",
            Some(_) => "missed",
        };
        // A cell without a number is empty.
        let number = |value: Option<f64>, show: fn(Option<f64>) -> String| {
            Cell::Number(value.map_or_else(String::new, |value| show(Some(value))))
        };
        vec![
            Cell::Text(case),
            Cell::Text(self.asked.figure.clone()),
            number(self.measured.map(|measured| measured.own), figure),
            Cell::Text(self.asked.other()),
            number(other.map(|(other, _)| other), figure),
            number(other.map(|(_, ratio)| ratio), times),
            Cell::Text(self.asked.bar()),
            Cell::Text(outcome.to_owned()),
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
            (&good.replace("to = \"straight\"\n", ""), "a [[ratio]] is to something"),
            (&good.replace("[[ratio]]", "[[limit]]"), "a [[limit]] is to nothing"),
            (&good.replace("straight", "pool"), "[[ratio]] 1, tps of pool to pool: a case is held against itself"),
            (&good.replace("to = \"straight\"", "variant = \"a\"\nto_variant = \"a\""), "to a: a case is held"),
            (&good.replace("to = \"straight\"", "to_clients = 64"), "tps of pool to 64 clients: a case is held"),
            (&good.replace("to = \"straight\"", "to_clients = 8").replace("clients = 64\n", ""), "a case is held"),
            (&good.replace("to = \"straight\"", "to = \"pool\"\nto_clients = 64"), "to pool, 64 clients: a case is"),
        ] {
            let error = Requirements::parse(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_case_may_be_held_against_another_one_of_its_target() {
        let text = "[[ratio]]\nfigure = \"tps\"\nof = \"pool\"\nat_least = 1.5\nclients = 64\nto_clients = 8\n";
        let to_variant = text.replace("to_clients = 8", "variant = \"flooded\"\nto_variant = \"alone\"");
        for good in [text, &text.replace("to_clients", "to = \"pool\"\nto_clients"), &to_variant] {
            assert!(Requirements::parse(good).is_ok(), "{good}");
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
