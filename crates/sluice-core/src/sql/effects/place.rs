//! The place at which a word stands in a query: some are keywords in one place, and may be functions' names in others.

use crate::sql::lexer::Token;

/// The use of a parenthesis.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// The arguments of a function, and what belongs to its call: `FILTER (WHERE …)`, `WITHIN GROUP (…)`.
    Call,
    /// `DISTINCT ON (…)`, the only one behind which an expression begins.
    DistinctOn,
    /// The target of an ON CONFLICT perhaps, or the arguments of a function behind a join's ON.
    Conflict,
    #[default]
    Other,
}

/// The part of a statement that has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Nothing,
    /// Queries of a WITH, behind which its statement begins.
    Queries,
    Begun,
}

/// The text within a parenthesis, or outside of all.
#[derive(Debug, Clone, Copy)]
struct Level {
    within: Use,
    progress: Progress,
}

/// The words that may follow an `ON CONFLICT (…)`, and follow no function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Nothing,
    /// DO, or a WHERE before it.
    Do,
    /// DO, behind the condition of a WHERE.
    DoBehindCondition,
}

pub(super) struct Place {
    here: Level,
    outer: Vec<Level>,
    /// The use of the parenthesis that was closed last.
    closed: Use,
    /// Whether the last token begins a statement.
    is_verb: bool,
    awaited: Awaited,
    /// The number of parentheses around what is awaited.
    awaited_depth: usize,
    /// Whether what looked like an ON CONFLICT was none, as far as can be told.
    is_in_doubt: bool,
}

impl Place {
    /// The place behind the first token of a query, whose parenthesis may have been read already.
    pub(super) fn behind(first: Token<'_>) -> Self {
        let mut place = Self {
            here: Level { within: Use::Other, progress: Progress::Nothing },
            outer: Vec::new(),
            closed: Use::Other,
            is_verb: false,
            awaited: Awaited::Nothing,
            awaited_depth: 0,
            is_in_doubt: false,
        };
        if first != Token::Open {
            place.pass(first, Token::Semicolon, Use::Other);
        }
        place
    }

    /// The use of the parenthesis that was closed last.
    pub(super) fn closed(&self) -> Use {
        self.closed
    }

    /// Whether the token that was passed last is a word that begins a statement, or that of a WITH.
    pub(super) fn is_at_verb(&self) -> bool {
        self.is_verb
    }

    /// Whether something that looked like an ON CONFLICT may have called a function of that name.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt || self.awaited != Awaited::Nothing
    }

    /// Goes behind a token; `last` stands before it, and a parenthesis that it opens is of that use.
    pub(super) fn pass(&mut self, token: Token<'_>, last: Token<'_>, within: Use) {
        self.await_do(token, last);
        self.is_verb = false;
        match (self.here.progress, token) {
            (Progress::Nothing, Token::Word(word)) => {
                self.is_verb = true;
                let is_with = word.eq_ignore_ascii_case(b"with");
                self.here.progress = if is_with { Progress::Queries } else { Progress::Begun };
            }
            (Progress::Nothing, _) => self.here.progress = Progress::Begun,
            // Behind the body of a query, or the names of its columns.
            (Progress::Queries, Token::Word(word)) if last == Token::Close && !word.eq_ignore_ascii_case(b"as") => {
                self.is_verb = true;
                self.here.progress = Progress::Begun;
            }
            (Progress::Queries, Token::Open) if last == Token::Close => self.here.progress = Progress::Begun,
            _ => {}
        }
        match token {
            Token::Open => {
                self.outer.push(self.here);
                self.here = Level { within, progress: Progress::Nothing };
            }
            Token::Close => self.close(),
            _ => {}
        }
    }

    fn close(&mut self) {
        self.closed = self.here.within;
        self.here = self.outer.pop().unwrap_or(Level { within: Use::Other, progress: Progress::Begun });
        if self.closed == Use::Conflict {
            // One at a time is followed.
            self.is_in_doubt |= self.awaited != Awaited::Nothing;
            self.awaited = Awaited::Do;
            self.awaited_depth = self.outer.len();
        }
    }

    /// DO is a reserved word, which stands behind no call but as a label: behind AS, a dot, or in a list of results.
    fn await_do(&mut self, token: Token<'_>, last: Token<'_>) {
        let depth = self.outer.len();
        if self.awaited == Awaited::Nothing || depth > self.awaited_depth {
            return;
        }
        let is = |keyword: &str| matches!(token, Token::Word(w) if w.eq_ignore_ascii_case(keyword.as_bytes()));
        let has_ended = depth < self.awaited_depth || (token == Token::Close && depth == self.awaited_depth);
        let leads_to_labels = ["as", "except", "intersect", "on", "returning", "select", "union"];
        self.awaited = match self.awaited {
            Awaited::Do | Awaited::DoBehindCondition if !has_ended && is("do") && last != Token::Dot => {
                Awaited::Nothing
            }
            Awaited::Do if is("where") => Awaited::DoBehindCondition,
            Awaited::DoBehindCondition if !has_ended && !leads_to_labels.into_iter().any(is) => return,
            _ => {
                self.is_in_doubt = true;
                Awaited::Nothing
            }
        };
    }
}
