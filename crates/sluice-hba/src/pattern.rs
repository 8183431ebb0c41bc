//! PostgreSQL's regular expressions (documentation, 9.7.3), by those of the `regex` crate.
//!
//! Each construct is translated by itself, and one that is not known to mean the same is refused. PostgreSQL compares
//! bytes here, not characters: it does not know a database's encoding yet when it lets somebody in, so that `.` is
//! one byte of `é`. Letters and digits are those of ASCII.

use regex::bytes::{Regex, RegexBuilder};

use crate::{
    pattern_input::{Escape, Input, PatternError, escape, push_literal},
    pattern_set,
    problem::Flaw,
};

/// The largest count of `{m,n}`, as in PostgreSQL.
const COUNT_MAX: u32 = 255;

/// A compiled regular expression.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    regex: Regex,
    /// It has a quantifier that prefers less, as in `.*?`.
    pub(crate) is_lazy: bool,
}

impl Pattern {
    /// Compiles an expression.
    pub(crate) fn compile(are: &str) -> Result<Self, Flaw> {
        Self::try_compile(are).map_err(|error| match error {
            PatternError::Invalid(why) => Flaw::mistake(
                format!("invalid regular expression \"{are}\": {why}"),
                "correct the expression, or write the name without the slash before it",
            ),
            PatternError::Unsupported(construct) => Flaw::unsupported(
                format!("Sluice has no {construct} in regular expressions, as in \"{are}\""),
                "write the expression without it, or list the names",
            ),
        })
    }

    fn try_compile(are: &str) -> Result<Self, PatternError> {
        let (are, ignores_case) = match are.strip_prefix("(?i)") {
            Some(rest) => (rest, true),
            None => (are, false),
        };
        let translator = Translator { input: Input { bytes: are.as_bytes(), at: 0 }, ..Translator::default() };
        let (syntax, is_lazy) = translator.run()?;
        let regex = RegexBuilder::new(&syntax)
            .unicode(false)
            .dot_matches_new_line(true)
            .case_insensitive(ignores_case)
            .build()
            .map_err(|_| PatternError::Unsupported("room for so much repetition or nesting"))?;
        Ok(Self { regex, is_lazy })
    }

    /// True if a part of the text matches.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text.as_bytes())
    }

    /// The text of the first group, if the expression matches, and if the group took part.
    pub(crate) fn first_group<'t>(&self, text: &'t str) -> Option<Option<&'t [u8]>> {
        let captures = self.regex.captures(text.as_bytes())?;
        Some(captures.get(1).map(|group| group.as_bytes()))
    }
}

#[derive(Default)]
struct Translator<'a> {
    input: Input<'a>,
    syntax: String,
    /// The groups that are open.
    depth: usize,
    /// Something comes before that a quantifier can repeat.
    has_operand: bool,
    is_lazy: bool,
}

impl Translator<'_> {
    fn run(mut self) -> Result<(String, bool), PatternError> {
        self.refuse_prefixes()?;
        while let Some(c) = self.input.next() {
            self.construct(c)?;
        }
        if self.depth > 0 {
            return Err(PatternError::PARENTHESES);
        }
        Ok((self.syntax, self.is_lazy))
    }

    fn refuse_prefixes(&self) -> Result<(), PatternError> {
        let text = self.input.bytes;
        let has_options = text.starts_with(b"(?") && text.get(2).is_some_and(u8::is_ascii_alphabetic);
        if text.starts_with(b"***") || has_options {
            return Err(PatternError::Unsupported("option other than (?i)"));
        }
        Ok(())
    }

    fn construct(&mut self, c: u8) -> Result<(), PatternError> {
        match c {
            b'|' => self.push("|", false),
            b'(' => return self.open(),
            b')' => {
                self.depth = self.depth.checked_sub(1).ok_or(PatternError::PARENTHESES)?;
                self.push(")", true);
            }
            b'*' => return self.quantify("*"),
            b'+' => return self.quantify("+"),
            b'?' => return self.quantify("?"),
            b'{' if self.input.peek().is_some_and(|next| next.is_ascii_digit()) => return self.count(),
            b'^' => self.push(r"\A", false),
            b'$' => self.push(r"\z", false),
            b'.' => self.push(".", true),
            b'[' => {
                pattern_set::translate(&mut self.input, &mut self.syntax)?;
                self.has_operand = true;
            }
            b'\\' => match escape(&mut self.input)? {
                Escape::Byte(byte) => self.literal(byte),
                Escape::Class(letter) => {
                    self.syntax.push('\\');
                    self.syntax.push(char::from(letter));
                    self.has_operand = true;
                }
                Escape::Place(place) => self.push(place, false),
            },
            _ => self.literal(c),
        }
        Ok(())
    }

    fn push(&mut self, syntax: &str, is_operand: bool) {
        self.syntax.push_str(syntax);
        self.has_operand = is_operand;
    }

    fn literal(&mut self, byte: u8) {
        push_literal(&mut self.syntax, byte);
        self.has_operand = true;
    }

    fn open(&mut self) -> Result<(), PatternError> {
        if !self.input.take(b"?") {
            self.push("(", false);
        } else {
            match self.input.next() {
                Some(b':') => self.push("(?:", false),
                Some(b'=' | b'!' | b'<') => return Err(PatternError::Unsupported("look-around")),
                Some(b'#') => return Err(PatternError::Unsupported("comment")),
                _ => return Err(PatternError::OPERAND),
            }
        }
        self.depth += 1;
        Ok(())
    }

    fn quantify(&mut self, quantifier: &str) -> Result<(), PatternError> {
        if !self.has_operand {
            return Err(PatternError::OPERAND);
        }
        self.push(quantifier, false);
        if self.input.take(b"?") {
            self.syntax.push('?');
            self.is_lazy = true;
        }
        Ok(())
    }

    /// The rest of `{m}`, `{m,}` or `{m,n}`.
    fn count(&mut self) -> Result<(), PatternError> {
        if !self.has_operand {
            return Err(PatternError::OPERAND);
        }
        let least = self.number()?.ok_or(PatternError::COUNT)?;
        let quantifier = if self.input.take(b",") {
            match self.number()? {
                Some(most) if least > most => return Err(PatternError::COUNT),
                Some(most) => format!("{{{least},{most}}}"),
                None => format!("{{{least},}}"),
            }
        } else {
            format!("{{{least}}}")
        };
        match self.input.next() {
            Some(b'}') => self.quantify(&quantifier),
            Some(_) => Err(PatternError::COUNT),
            None => Err(PatternError::BRACES),
        }
    }

    fn number(&mut self) -> Result<Option<u32>, PatternError> {
        let mut number = None;
        while let Some(digit @ b'0'..=b'9') = self.input.peek() {
            self.input.next();
            let larger = number.unwrap_or(0) * 10 + u32::from(digit - b'0');
            if larger > COUNT_MAX {
                return Err(PatternError::COUNT);
            }
            number = Some(larger);
        }
        Ok(number)
    }
}
