//! Questions to a server about its settings, in the midst of a batch, and the answers to them.

use crate::{
    holding::unhex,
    profile::{Profile, literals},
};

/// The answers. They hold until the next message, which may set something; what the server's own values are stays.
#[derive(Debug, Default)]
pub struct Answers {
    /// The server's own values of the settings by which literals are read.
    defaults: Answer<Profile>,
    /// The settings by which literals are read.
    literals: Answer<Profile>,
    /// Whether another `search_path` leads to the same schemas as the one in place.
    same_path: Answer<bool>,
}

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// What are the server's own values of the settings by which literals are read?
    Defaults,
    /// By which settings are literals read now?
    Literals,
    /// Does another `search_path` lead to the same schemas as the one in place?
    SamePath,
}

/// The answer to one.
#[derive(Debug, Default)]
enum Answer<T> {
    /// Nobody has asked.
    #[default]
    Unasked,
    /// The server has been asked.
    Asked,
    /// It says this.
    Heard(T),
}

impl<T> Answer<T> {
    fn ask(&mut self) -> bool {
        let is_new = matches!(self, Self::Unasked);
        if is_new {
            *self = Self::Asked;
        }
        is_new
    }

    fn heard(&self) -> Option<&T> {
        match self {
            Self::Heard(answer) => Some(answer),
            Self::Unasked | Self::Asked => None,
        }
    }
}

impl Answers {
    /// A question is to be asked, unless it has been. Returns whether it is new.
    pub fn ask(&mut self, question: Question) -> bool {
        match question {
            Question::Defaults => self.defaults.ask(),
            Question::Literals => self.literals.ask(),
            Question::SamePath => self.same_path.ask(),
        }
    }

    /// The answer, perhaps, to the first question that is open.
    pub fn hear(&mut self, row: &str) {
        let settings = || row.split(',').map(unhex).collect::<Option<_>>().and_then(literals::profile_of);
        if matches!(self.defaults, Answer::Asked) {
            self.defaults = settings().map_or(Answer::Asked, Answer::Heard);
        } else if matches!(self.literals, Answer::Asked) {
            let own = self.defaults.heard();
            let settings =
                settings().map(|settings| own.map_or_else(|| settings.clone(), |own| settings.differing(own)));
            self.literals = settings.map_or(Answer::Asked, Answer::Heard);
        } else if matches!(self.same_path, Answer::Asked) {
            self.same_path = Answer::Heard(row == "t");
        }
    }

    /// The settings by which literals are read, those that are not the server's own, if it has said so.
    pub fn literals(&self) -> Option<&Profile> {
        self.literals.heard()
    }

    /// Whether the other `search_path` leads to the same schemas, if it has said so.
    pub fn is_same_path(&self) -> Option<bool> {
        self.same_path.heard().copied()
    }

    /// Something comes that may change them.
    pub fn forget(&mut self) {
        let defaults = std::mem::take(&mut self.defaults);
        *self = Self { defaults, ..Self::default() };
    }
}
