//! Tokens: words of a line, with or without quotes, in lists that commas hold together.

/// A word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// The word without its quotes.
    pub(crate) text: String,
    /// A quote came before anything else, so that the word is no keyword, group or file.
    pub(crate) is_quoted: bool,
}

impl Token {
    /// A word without quotes.
    pub(crate) fn plain(text: &str) -> Self {
        Self { text: text.to_owned(), is_quoted: false }
    }

    /// True for the keyword, not for the same word in quotes.
    pub(crate) fn is_keyword(&self, keyword: &str) -> bool {
        !self.is_quoted && self.text == keyword
    }

    /// The role of `+role`.
    pub(crate) fn group(&self) -> Option<&str> {
        self.text.strip_prefix('+').filter(|_| !self.is_quoted)
    }

    /// The file of `@file`.
    pub(crate) fn file(&self) -> Option<&str> {
        self.text.strip_prefix('@').filter(|file| !self.is_quoted && !file.is_empty())
    }

    /// The pattern of `/regex`, which quotes do not make plain: a pattern that has a comma needs them.
    pub(crate) fn pattern(&self) -> Option<&str> {
        self.text.strip_prefix('/')
    }
}

/// The tokens of a line.
pub(crate) struct Tokens<'a> {
    rest: &'a str,
}

/// A token, and the comma after it, by which the next one is in the same list.
pub(crate) struct Next {
    pub(crate) token: Token,
    pub(crate) has_comma: bool,
}

impl<'a> Tokens<'a> {
    pub(crate) fn of(line: &'a str) -> Self {
        Self { rest: line }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads a token. None at the end of the line, or before a comment.
    pub(crate) fn next(&mut self) -> Option<Next> {
        self.rest = self.rest.trim_start_matches(|c| is_blank(c) || c == ',');
        let line = std::mem::take(&mut self.rest);
        let mut text = String::new();
        let (mut is_quoted, mut has_quote, mut has_comma) = (false, false, false);
        let (mut in_quotes, mut just_left_quotes) = (false, false);
        for (at, c) in line.char_indices() {
            match c {
                _ if in_quotes => (),
                '#' => break,
                ',' => {
                    has_comma = true;
                    self.rest = &line[at..];
                    break;
                }
                _ if is_blank(c) => {
                    self.rest = &line[at..];
                    break;
                }
                _ => (),
            }
            if c != '"' || just_left_quotes {
                text.push(c);
            }
            // Two quotes within quotes are one: the second one opens the quotes again.
            just_left_quotes = c == '"' && in_quotes && !just_left_quotes;
            if c == '"' {
                in_quotes = !in_quotes;
                has_quote = true;
                is_quoted |= text.is_empty();
            }
        }
        (has_quote || !text.is_empty()).then_some(Next { token: Token { text, is_quoted }, has_comma })
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens in brackets if they are quoted, with their commas.
    fn shown(line: &str) -> String {
        let mut tokens = Tokens::of(line);
        let mut shown = Vec::new();
        while let Some(Next { token, has_comma }) = tokens.next() {
            let text = if token.is_quoted { format!("[{}]", token.text) } else { token.text };
            shown.push(text + if has_comma { "," } else { "" });
        }
        shown.join(" ")
    }

    #[test]
    fn words_quotes_commas_and_comments() {
        for (line, tokens) in [
            ("local  all\tall  trust", "local all all trust"),
            ("a, b ,c,,d", "a, b c, d"),
            (r#""a b" "all" a"b c"d"#, "[a b] [all] ab cd"),
            (r#""a""b" """" "" x"""#, r#"[a"b] ["] [] x"#),
            ("a#b c", "a"),
            (r##""a#b" # c"##, "[a#b]"),
            ("# nothing", ""),
            (" , ,", ""),
            (r#""open, to the end #"#, "[open, to the end #]"),
            ("a,", "a,"),
        ] {
            assert_eq!(shown(line), tokens, "{line}");
        }
    }
}
