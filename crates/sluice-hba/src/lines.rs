//! Lines of a file and of those that it includes, cut into fields. A line's meaning is no concern of this module.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{
    files::{Files, beside, reason},
    problem::Flaw,
    token::{Token, Tokens},
};

/// The depth to which files may include each other, as in PostgreSQL.
const DEPTH_MAX: usize = 10;

/// A list of words that commas hold together, with at least one.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    tokens: Vec<Token>,
}

impl Field {
    pub(crate) fn of(tokens: impl IntoIterator<Item = Token>) -> Self {
        Self { tokens: tokens.into_iter().collect() }
    }

    pub(crate) fn word(text: &str) -> Self {
        Self::of([Token::plain(text)])
    }

    /// All of its words.
    pub(crate) fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The word, unless there are several.
    pub(crate) fn single(&self) -> Option<&Token> {
        match self.tokens.as_slice() {
            [token] => Some(token),
            _ => None,
        }
    }
}

/// A line that says something.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) file: PathBuf,
    pub(crate) number: usize,
    /// At least one field, or the reason why there is none.
    pub(crate) fields: Result<Vec<Field>, Flaw>,
}

/// Reads a file with all that it includes.
pub(crate) fn read(file: &Path, files: &dyn Files) -> Result<Vec<Line>, Flaw> {
    let mut reader = Reader { files, lines: Vec::new() };
    reader.file(file, 0, false)?;
    Ok(reader.lines)
}

struct Reader<'a> {
    files: &'a dyn Files,
    lines: Vec<Line>,
}

impl Reader<'_> {
    fn file(&mut self, file: &Path, depth: usize, may_be_missing: bool) -> Result<(), Flaw> {
        let name = file.display();
        if depth > DEPTH_MAX {
            return Err(Flaw::mistake(
                format!("could not open file \"{name}\": maximum nesting depth exceeded"),
                format!("include files at most {DEPTH_MAX} deep, and none by itself"),
            ));
        }
        let text = match self.files.read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && may_be_missing => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let what = format!("Sluice reads UTF-8, which file \"{name}\" is not");
                return Err(Flaw::unsupported(what, "save the file in UTF-8"));
            }
            Err(error) => {
                let what = format!("could not open file \"{name}\": {}", reason(&error));
                return Err(Flaw::mistake(what, "name a file that Sluice's own user can read"));
            }
        };
        let mut number = 1;
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (line, count) = take_line(&mut rest);
            self.line(file, number, &line, depth);
            number += count;
        }
        Ok(())
    }

    fn line(&mut self, file: &Path, number: usize, line: &str, depth: usize) {
        let fields = self.fields(file, line, depth).and_then(|fields| match directive(&fields) {
            Some((directive, named)) => {
                self.include(file, directive, named, depth + 1)?;
                Ok(Vec::new())
            }
            None => Ok(fields),
        });
        if fields.as_ref().is_ok_and(Vec::is_empty) {
            return;
        }
        self.lines.push(Line { file: file.to_owned(), number, fields });
    }

    fn fields(&self, file: &Path, line: &str, depth: usize) -> Result<Vec<Field>, Flaw> {
        if line.contains('\0') {
            return Err(Flaw::unsupported("Sluice takes no line with a zero byte", "remove the zero byte"));
        }
        let mut tokens = Tokens::of(line);
        let mut fields = Vec::new();
        while !tokens.is_at_end() {
            let field = self.field(file, &mut tokens, depth)?;
            if !field.is_empty() {
                fields.push(Field { tokens: field });
            }
        }
        Ok(fields)
    }

    fn field(&self, file: &Path, tokens: &mut Tokens<'_>, depth: usize) -> Result<Vec<Token>, Flaw> {
        let mut field = Vec::new();
        while let Some(next) = tokens.next() {
            match next.token.file() {
                Some(named) => field.extend(self.words_of(&beside(file, named), depth + 1)?),
                None => field.push(next.token),
            }
            if !next.has_comma {
                break;
            }
        }
        Ok(field)
    }

    /// All words of `@file`, whatever lines and fields they are in.
    fn words_of(&self, file: &Path, depth: usize) -> Result<Vec<Token>, Flaw> {
        let mut reader = Reader { files: self.files, lines: Vec::new() };
        reader.file(file, depth, false)?;
        let mut words = Vec::new();
        for line in reader.lines {
            words.extend(line.fields?.into_iter().flat_map(|field| field.tokens));
        }
        Ok(words)
    }

    fn include(&mut self, file: &Path, directive: Directive, named: &str, depth: usize) -> Result<(), Flaw> {
        match directive {
            Directive::Include => self.file(&beside(file, named), depth, false),
            Directive::IncludeIfExists => self.file(&beside(file, named), depth, true),
            Directive::IncludeDir => self.folder(file, named, depth),
        }
    }

    /// Reads a folder's files, all of them, whatever is wrong with some.
    fn folder(&mut self, file: &Path, named: &str, depth: usize) -> Result<(), Flaw> {
        if named.trim_matches([' ', '\t', '\r', '\n']).is_empty() {
            return Err(Flaw::mistake("empty configuration directory name", "name a folder after include_dir"));
        }
        let folder = beside(file, named);
        let mut names = self.files.list(&folder).map_err(|error| {
            Flaw::mistake(
                format!("could not open directory \"{}\": {}", folder.display(), reason(&error)),
                "name a folder that Sluice's own user can list",
            )
        })?;
        names.retain(|name| {
            let name = name.as_encoded_bytes();
            name.ends_with(b".conf") && !name.starts_with(b".")
        });
        names.sort_by(|a, b| a.as_encoded_bytes().cmp(b.as_encoded_bytes()));
        let mut flaws = Vec::new();
        for name in names {
            flaws.extend(self.file(&folder.join(name), depth, false).err());
        }
        let all: Vec<_> = flaws.iter().map(|flaw| flaw.what.as_str()).collect();
        match flaws.first() {
            Some(first) => Err(Flaw { what: all.join("\n"), ..first.clone() }),
            None => Ok(()),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Directive {
    Include,
    IncludeIfExists,
    IncludeDir,
}

/// The directive of a line, with the name after it. Quotes do not make it plain, in PostgreSQL neither.
fn directive(fields: &[Field]) -> Option<(Directive, &str)> {
    let [first, second] = fields else { return None };
    let directive = match first.tokens.first()?.text.as_str() {
        "include" => Directive::Include,
        "include_if_exists" => Directive::IncludeIfExists,
        "include_dir" => Directive::IncludeDir,
        _ => return None,
    };
    Some((directive, &second.tokens.first()?.text))
}

/// Takes a line with those that continue it, and says how many they were.
fn take_line(rest: &mut &str) -> (String, usize) {
    let mut line = String::new();
    let mut continued_at = 0;
    let mut count = 0;
    while !rest.is_empty() {
        let (piece, after) = rest.split_once('\n').unwrap_or((rest, ""));
        *rest = after;
        count += 1;
        line.push_str(piece);
        line.truncate(line.trim_end_matches('\r').len());
        // A backslash that a line before has left is no continuation.
        if line.len() <= continued_at || !line.ends_with('\\') {
            break;
        }
        line.pop();
        continued_at = line.len();
    }
    (line, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_continued_and_counted() {
        let mut rest = "a\\\nb\r\n\\\\\n\\\n\nc\\";
        let mut lines = Vec::new();
        while !rest.is_empty() {
            lines.push(take_line(&mut rest));
        }
        let wanted = [("ab", 2), ("\\", 3), ("c", 1)].map(|(line, count)| (line.to_owned(), count));
        assert_eq!(lines, wanted);
    }
}
