//! Lines of an HBA file that PgBouncer reads otherwise than PostgreSQL, whose grammar is Sluice's.
//!
//! PgBouncer has a smaller grammar of its own, and skips the lines that it can't read: Sluice would let clients in by
//! them. Nothing is converted here, and nothing read from the disk. What PgBouncer does with each kind of line was seen
//! from 1.18 and 1.24 themselves; `crates/sluice/tests/convert` asks PgBouncer again.

use std::{iter::Peekable, net::IpAddr, path::Path, str::Chars};

/// Lists within lists (`@file`), at most.
const LISTS_MAX: usize = 10;

/// A line that PgBouncer skips, or reads otherwise.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// Its number, from 1.
    pub(super) line: usize,
    /// PgBouncer's way with it.
    pub(super) what: &'static str,
    /// Whether Sluice turns clients away by it, and lets nobody in.
    pub(super) rejects: bool,
}

const TYPE: &str = "PgBouncer skips it: a line begins with local, host, hostssl or hostnossl, without quotes";
const CONTINUED: &str = "PgBouncer does not join it with the next one, though it ends with a backslash: it reads or \
                         skips each by itself";
const GLUED: &str = "PgBouncer skips it: a quote ends the word before it, or begins another one";
const CONTROL: &str = "PgBouncer takes a control character in it for a space, or for its end";
const OPEN: &str = "PgBouncer skips it: a quote is not closed";
const NAMES: &str = "PgBouncer skips it: names are missing, or there is a comma too many";
const ROLES: &str = "PgBouncer skips it: it knows neither +role nor samerole nor samegroup";
const REPLICATION: &str = "PgBouncer 1.18 skips it, and 1.24 does not: it has the word replication";
const PATTERN: &str = "PgBouncer knows no regular expressions: a name that begins with / stands for itself";
const LIST: &str = "PgBouncer skips it: its list (@file) is not there, or has an empty line or one that is a comment";
const LIST_LINE: &str = "PgBouncer takes of each line of its list (@file) only what stands before the first space";
const ADDRESS: &str = "PgBouncer skips it: an address is one in numbers with its mask (10.0.0.0/8), without quotes";
const EVERYWHERE: &str = "PgBouncer 1.18 skips it, and 1.24 does not: its address is the word all";
const BITS: &str = "no client matches it in PgBouncer: its address has bits that its mask does not cover";
const METHOD: &str = "PgBouncer skips it: a method is trust, reject, md5, scram-sha-256, password, peer or cert, without \
                      quotes";
const MAP: &str = "PgBouncer 1.18 skips it, for its map=, and 1.24 knows no regular expressions in maps";
const OPTION: &str = "PgBouncer skips it: something follows its method";

/// The lines of a file that let in others than with PgBouncer. `list` reads a file that a line names by `@`.
pub(super) fn differences(text: &str, list: &dyn Fn(&str) -> Option<String>) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut continues = false;
    for (at, line) in text.lines().enumerate() {
        // What Sluice takes for the rest of the line before has been said there.
        let is_rest = std::mem::replace(&mut continues, line.ends_with('\\'));
        if is_rest {
            continue;
        }
        let seen = if continues { Err(CONTINUED) } else { tokens(line).and_then(|tokens| check(&tokens, list)) };
        if let Err(what) = seen {
            let rejects = ![CONTINUED, CONTROL, GLUED, OPEN].contains(&what) && has_method(line, "reject");
            found.push(Difference { line: at + 1, what, rejects });
        }
    }
    found
}

/// A token of PgBouncer's.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Quoted(String),
    Comma,
}

/// PgBouncer's tokens of a line, up to a comment; or what Sluice takes for other tokens.
fn tokens(line: &str) -> Result<Vec<Token>, &'static str> {
    let line = line.trim_end_matches('\r');
    if line.chars().any(|char| char.is_control() && char != '\t') {
        return Err(CONTROL);
    }
    let (mut tokens, mut chars, mut is_glued) = (Vec::new(), line.chars().peekable(), false);
    while let Some(&char) = chars.peek() {
        let is_text = !matches!(char, ' ' | '\t' | ',' | '#');
        if is_text && is_glued {
            return Err(GLUED);
        }
        is_glued = is_text;
        match char {
            '#' => break,
            ' ' | '\t' | ',' => {
                chars.next();
                if char == ',' {
                    tokens.push(Token::Comma);
                }
            }
            '"' => tokens.push(Token::Quoted(quoted(&mut chars).ok_or(OPEN)?)),
            _ => {
                let mut word = String::new();
                while let Some(char) = chars.next_if(|char| !matches!(char, ' ' | '\t' | ',' | '#' | '"')) {
                    word.push(char);
                }
                tokens.push(Token::Word(word));
            }
        }
    }
    Ok(tokens)
}

/// A text in quotes, in which two of them stand for one; `None` if the last one is missing.
fn quoted(chars: &mut Peekable<Chars<'_>>) -> Option<String> {
    chars.next();
    let mut text = String::new();
    loop {
        match chars.next()? {
            '"' if chars.next_if_eq(&'"').is_none() => return Some(text),
            char => text.push(char),
        }
    }
}

/// The lines that ask for a certificate of the user's name, as PostgreSQL reads them.
pub(super) fn by_certificate(text: &str) -> Vec<usize> {
    let lines = text.lines().enumerate().filter(|(_, line)| has_method(line, "cert"));
    lines.map(|(at, _)| at + 1).collect()
}

/// Whether a line has that method, as PostgreSQL reads it.
fn has_method(line: &str, method: &str) -> bool {
    let Ok(tokens) = tokens(line) else { return false };
    let mut fields: Vec<&Token> = Vec::new();
    let mut is_list = false;
    for token in &tokens {
        let begins = *token != Token::Comma && !std::mem::replace(&mut is_list, *token == Token::Comma);
        if begins {
            fields.push(token);
        }
    }
    fields.iter().skip(3).any(|token| matches!(token, Token::Word(text) | Token::Quoted(text) if text == method))
}

/// Looks for what PgBouncer does not read as Sluice does.
fn check(tokens: &[Token], list: &dyn Fn(&str) -> Option<String>) -> Result<(), &'static str> {
    let Some((connections, rest)) = tokens.split_first() else { return Ok(()) };
    let is_local = match connections {
        Token::Word(word) if word == "local" => true,
        Token::Word(word) if ["host", "hostssl", "hostnossl"].contains(&word.as_str()) => false,
        _ => return Err(TYPE),
    };
    let rest = names(rest, list, LISTS_MAX)?;
    let rest = names(rest, list, LISTS_MAX)?;
    let rest = if is_local { rest } else { address(rest)? };
    match rest.split_first() {
        Some((Token::Word(method), rest)) if METHODS.contains(&method.as_str()) => match rest {
            [] => Ok(()),
            [Token::Word(option)] if option.starts_with("map=") => Err(MAP),
            _ => Err(OPTION),
        },
        _ => Err(METHOD),
    }
}

/// The methods that PgBouncer reads in a line.
const METHODS: [&str; 7] = ["trust", "reject", "md5", "scram-sha-256", "password", "peer", "cert"];

/// Reads databases or users, and gives what stands behind them.
fn names<'a>(
    tokens: &'a [Token],
    list: &dyn Fn(&str) -> Option<String>,
    lists: usize,
) -> Result<&'a [Token], &'static str> {
    let mut rest = tokens;
    loop {
        match rest.first() {
            Some(Token::Word(word) | Token::Quoted(word)) if word.starts_with('/') => return Err(PATTERN),
            Some(Token::Word(word)) => match word.as_str() {
                "samerole" | "samegroup" => return Err(ROLES),
                "replication" => return Err(REPLICATION),
                word if word.starts_with('+') => return Err(ROLES),
                word => {
                    if let Some(file) = word.strip_prefix('@').filter(|file| !file.is_empty()) {
                        listed(file, list, lists)?;
                    }
                }
            },
            Some(Token::Quoted(_)) => {}
            Some(Token::Comma) | None => return Err(NAMES),
        }
        rest = &rest[1..];
        match rest.first() {
            Some(Token::Comma) => rest = &rest[1..],
            _ => return Ok(rest),
        }
    }
}

/// Reads a list of names, which PgBouncer gives up as a whole where one line has none.
fn listed(file: &str, list: &dyn Fn(&str) -> Option<String>, lists: usize) -> Result<(), &'static str> {
    let text = list(file).filter(|_| lists > 0).ok_or(LIST)?;
    // It names others by their paths from its own folder.
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    let list: &dyn Fn(&str) -> Option<String> = &|named| list(&folder.join(named).to_string_lossy());
    let mut is_cut = false;
    for line in text.lines() {
        let tokens = tokens(line)?;
        if tokens.is_empty() {
            return Err(LIST);
        }
        is_cut |= !names(&tokens, list, lists - 1)?.is_empty();
    }
    if is_cut { Err(LIST_LINE) } else { Ok(()) }
}

/// Reads an address with its mask, and gives what stands behind them.
fn address(tokens: &[Token]) -> Result<&[Token], &'static str> {
    let Some((Token::Word(word), rest)) = tokens.split_first() else { return Err(ADDRESS) };
    if word == "all" {
        return Err(EVERYWHERE);
    }
    let of = |text: &str| text.parse::<IpAddr>().map_err(|_| ADDRESS);
    let (address, mask, rest) = match (word.split_once('/'), rest.split_first()) {
        (Some((address, bits)), _) => {
            let address = of(address)?;
            (address, mask(address, bits).ok_or(ADDRESS)?, rest)
        }
        (None, Some((Token::Word(mask), rest))) => {
            let mask = of(mask)?;
            (of(word)?, bits(mask), rest)
        }
        (None, _) => return Err(ADDRESS),
    };
    if bits(address) & !mask != 0 {
        return Err(BITS);
    }
    Ok(rest)
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The mask of so many bits.
fn mask(address: IpAddr, count: &str) -> Option<u128> {
    let width = if address.is_ipv4() { 32 } else { 128 };
    let count = count.parse::<u32>().ok().filter(|count| *count <= width)?;
    Some(u128::MAX.checked_shl(width - count).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> Vec<(usize, &'static str, bool)> {
        let list = |file: &str| {
            let text = match file {
                "good" => "alice # she\n\"bob\",carol\r\n",
                "nested" => "@good\n@folder/outer",
                "folder/outer" => "@inner\n",
                "folder/inner" => "alice\n",
                "comment" => "# x\nalice\n",
                "empty line" | "gap" => "alice\n\nbob\n",
                "two" => "alice bob\ncarol\n",
                "itself" => "@itself\n",
                "none" => "",
                _ => return None,
            };
            Some(text.to_owned())
        };
        differences(text, &list).into_iter().map(|it| (it.line, it.what, it.rejects)).collect()
    }

    #[test]
    fn lines_that_both_read_alike() {
        for line in [
            "",
            "  # host all all samehost trust",
            "local all all peer",
            "  host\tall all 127.0.0.1/32 trust # x\r",
            "host all alice 127.0.0.1 255.255.255.255 md5",
            "host all alice 127.0.0.1 255.0.0.255 md5",
            "host all alice 0.0.0.0/0 md5#x",
            "host all alice 10.0.0.0/+8 md5",
            "hostssl all alice ::/0 cert",
            "hostnossl all alice fe80::/10 password",
            "host \"all\",sameuser bob , \"a,b\", \"q\"\"uote\",\"\" 127.0.0.1/32 scram-sha-256",
            "host \"@two\" \"+alice\",@ ::1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff reject",
            "host db1 @good,@nested,@none 127.0.0.0/8 trust",
            "host all a=b,ü,al'ice,a;b,a\\b 127.0.0.0/8 trust",
        ] {
            assert_eq!(seen(line), [], "{line}");
        }
    }

    #[test]
    fn lines_that_pgbouncer_reads_otherwise() {
        for (line, what) in [
            ("; host all all 127.0.0.1/32 trust", TYPE),
            ("include other.conf", TYPE),
            ("\"host\" all all 127.0.0.1/32 trust", TYPE),
            ("HOST all all 127.0.0.1/32 trust", TYPE),
            ("hostnogssenc all all 127.0.0.1/32 trust", TYPE),
            ("host all al\"ice\" 127.0.0.1/32 trust", GLUED),
            ("host all \"al\"ice 127.0.0.1/32 trust", GLUED),
            ("host all alice\u{b},bob 127.0.0.1/32 trust", CONTROL),
            ("host all alice 127.0.0.1/32 trust\0", CONTROL),
            ("host all \"alice 127.0.0.1/32 trust", OPEN),
            ("host ,db1 alice 127.0.0.1/32 trust", NAMES),
            ("host all", NAMES),
            ("host all bob,+alice 127.0.0.1/32 trust", ROLES),
            ("host samerole all 127.0.0.1/32 trust", ROLES),
            ("host replication,all all 127.0.0.1/32 trust", REPLICATION),
            ("host all /^al 127.0.0.1/32 trust", PATTERN),
            ("host \"/^db\" all 127.0.0.1/32 trust", PATTERN),
            ("host all @missing 127.0.0.1/32 trust", LIST),
            ("host all @comment 127.0.0.1/32 trust", LIST),
            ("host all bob,@gap 127.0.0.1/32 trust", LIST),
            ("host all @itself 127.0.0.1/32 trust", LIST),
            ("host all @two 127.0.0.1/32 trust", LIST_LINE),
            ("host all @\"two\" 127.0.0.1/32 trust", GLUED),
            ("host all all samehost trust", ADDRESS),
            ("host all all 0/0 trust", ADDRESS),
            ("host all all 127.0.0.001/32 trust", ADDRESS),
            ("host all all \"127.0.0.1/32\" trust", ADDRESS),
            ("host all all 127.0.0.1/33 trust", ADDRESS),
            ("host all all 127.0.0.1 trust", ADDRESS),
            // The databases all and alice, to PgBouncer.
            ("host all ,alice 127.0.0.1/32 trust", ADDRESS),
            ("host all alice, 127.0.0.1/32 trust", ADDRESS),
            ("host all all all trust", EVERYWHERE),
            ("host all all 127.5.5.5/8 trust", BITS),
            ("host all all 127.0.0.1 255.0.0.0 trust", BITS),
            ("host all all ::1/64 trust", BITS),
            ("host all all 127.0.0.1/32 TRUST", METHOD),
            ("host all all 127.0.0.1/32 \"trust\"", METHOD),
            ("local all all ident", METHOD),
            ("local all all", METHOD),
            ("local all all peer map=m", MAP),
            ("hostssl all all 127.0.0.1/32 md5 clientcert=verify-ca", OPTION),
            ("local all all peer map=m map=n", OPTION),
        ] {
            assert_eq!(seen(&format!("\n{line}\n")), [(2, what, false)], "{line}");
        }
    }

    #[test]
    fn rules_of_certificates() {
        let text =
            "# cert\nhostssl all all all cert\nhostssl cert cert ::/0 md5\nhostssl all cert, b ::1/128 \"cert\" map=m";
        assert_eq!(by_certificate(text), [2, 4]);
    }

    #[test]
    fn joined_lines_are_one_and_rejecting_ones_let_nobody_in() {
        assert_eq!(seen("# x \\\nhost all all samehost reject\nlocal all all md5\n"), [(1, CONTINUED, false)]);
        assert_eq!(
            seen("host all \\\r\n all \\\n all trust\nlocal all all ident"),
            [(1, CONTINUED, false), (4, METHOD, false)]
        );
        assert_eq!(seen("host all reject samehost trust"), [(1, ADDRESS, false)]);
        assert_eq!(seen("host all bob, +alice 127.0.0.1/32 reject"), [(1, ROLES, true)]);
        assert_eq!(seen("host all all samehost \"reject\" # x"), [(1, ADDRESS, true)]);
    }
}
