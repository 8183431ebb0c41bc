//! The remarks of the 2015 review, and what is said to each today.
//!
//! The remarks themselves are in `reference/settings_review_2015.csv`; a test holds every answer against what the
//! rules say of that file.

use std::{collections::BTreeMap, str::FromStr};

use serde::Serialize;
use toml_edit::Document;

use super::{
    reader::{RuleError, RuleFault},
    words::words,
};

const FILE: (&str, &str) = ("remarks_2015.toml", include_str!("remarks_2015.toml"));

/// Today's answer to a remark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Whether the review says the same today.
    pub verdict: Agreement,
    /// The outcome that the review of that file must have: a recommended value, `fine`, `leave it` or `advice`.
    #[serde(skip)]
    pub outcome: String,
    /// The reason.
    pub why: String,
}

/// Whether today's answer is that of 2015.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Agreement {
    /// It is.
    Agrees,
    /// It is not.
    Differs,
}

words!(Agreement: "agrees" => Agrees, "differs" => Differs);

/// All answers, by setting.
///
/// # Errors
///
/// A fault of the file, which a test would have found.
pub fn answers() -> Result<BTreeMap<String, Answer>, RuleError> {
    let (file, text) = FILE;
    let fault = |what| RuleError { file, line: 1, what };
    let document = Document::parse(text).map_err(|error| fault(RuleFault::Toml(error.message().to_owned())))?;
    let mut answers = BTreeMap::new();
    for (name, item) in document.as_table() {
        let line = |key: &toml_edit::Key| key.span().map_or(1, |span| text[..span.start].lines().count());
        let line = document.as_table().key(name).map_or(1, line);
        let fault = |what| RuleError { file, line, what };
        let string = |key: &'static str| {
            let value = item.get(key).and_then(|item| item.as_str());
            value.map(str::to_owned).ok_or_else(|| fault(RuleFault::Missing(key)))
        };
        let verdict = Agreement::from_str(&string("answer")?);
        answers.insert(
            name.to_owned(),
            Answer {
                verdict: verdict.map_err(|error| fault(RuleFault::Word("answer", error.to_string())))?,
                outcome: string("today")?,
                why: string("why")?.split_whitespace().collect::<Vec<_>>().join(" "),
            },
        );
    }
    Ok(answers)
}
