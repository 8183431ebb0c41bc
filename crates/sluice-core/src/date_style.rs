//! `DateStyle`, the one setting whose value is completed from what was there before: a value may leave out the style,
//! or the order of day, month and year (PostgreSQL documentation, 20.11.2; `check_datestyle`).

use std::fmt;

/// How dates are written; as far as it is known.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DateStyle {
    style: Option<Style>,
    order: Option<Order>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Iso,
    Sql,
    Postgres,
    German,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Ymd,
    Dmy,
    Mdy,
}

/// A word of a value.
enum Word {
    Style(Style),
    Order(Order),
    /// What RESET goes back to, for what the words before it have left out.
    Default,
}

impl DateStyle {
    /// The one that a server has reported; `None` where it can't be read.
    pub fn read(value: &str) -> Option<Self> {
        Self::default().assign(value.as_bytes()).filter(|style| style.is_complete())
    }

    /// Whether all of it is known.
    pub fn is_complete(self) -> bool {
        self.style.is_some() && self.order.is_some()
    }

    /// The one behind an assignment at a log-in, where what RESET goes back to is what was there before. `None` where
    /// PostgreSQL refuses the value, or nobody but PostgreSQL can read it.
    pub fn assign(self, value: &[u8]) -> Option<Self> {
        let mut after = self;
        let (mut style_given, mut order_given) = (None, None);
        for word in words(std::str::from_utf8(value).ok()?) {
            match word? {
                Word::Style(style) if style_given.is_none_or(|given| given == style) => {
                    (style_given, after.style) = (Some(style), Some(style));
                    if style == Style::German && order_given.is_none() {
                        after.order = Some(Order::Dmy);
                    }
                }
                Word::Order(order) if order_given.is_none_or(|given| given == order) => {
                    (order_given, after.order) = (Some(order), Some(order));
                }
                Word::Style(_) | Word::Order(_) => return None,
                Word::Default => {
                    after.style = style_given.or(self.style);
                    after.order = order_given.or(self.order);
                }
            }
        }
        Some(after)
    }
}

/// As PostgreSQL writes it, where it is complete.
impl fmt::Display for DateStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let style = self.style.map(|style| match style {
            Style::Iso => "ISO",
            Style::Sql => "SQL",
            Style::Postgres => "Postgres",
            Style::German => "German",
        });
        let order = self.order.map(|order| match order {
            Order::Ymd => "YMD",
            Order::Dmy => "DMY",
            Order::Mdy => "MDY",
        });
        let words: Vec<_> = style.into_iter().chain(order).collect();
        f.write_str(&words.join(", "))
    }
}

/// The words of a list; `None` for one that is none of them.
fn words(list: &str) -> impl Iterator<Item = Option<Word>> {
    let is_space = |c: char| c.is_ascii_whitespace() || c == '\x0b';
    let list = list.trim_matches(is_space);
    let words = (!list.is_empty()).then(|| list.split(','));
    words.into_iter().flatten().map(move |written| word(written.trim_matches(is_space)))
}

fn word(written: &str) -> Option<Word> {
    let quoted = written.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let word = quoted.unwrap_or(written).to_ascii_lowercase();
    Some(match &*word {
        "iso" => Word::Style(Style::Iso),
        "sql" => Word::Style(Style::Sql),
        "german" => Word::Style(Style::German),
        "ymd" => Word::Order(Order::Ymd),
        "dmy" => Word::Order(Order::Dmy),
        "mdy" | "us" => Word::Order(Order::Mdy),
        "default" => Word::Default,
        // As PostgreSQL has it, whatever follows.
        _ if word.starts_with("postgres") => Word::Style(Style::Postgres),
        _ if word.starts_with("euro") => Word::Order(Order::Dmy),
        _ if word.starts_with("noneuro") => Word::Order(Order::Mdy),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_completed_from_the_one_before_it() {
        for (before, value, after) in [
            ("SQL, YMD", "ISO", Some("ISO, YMD")),
            ("SQL, YMD", "DMY", Some("SQL, DMY")),
            ("SQL, YMD", " us ", Some("SQL, MDY")),
            ("SQL, YMD", "German", Some("German, DMY")),
            ("SQL, YMD", "German, MDY", Some("German, MDY")),
            ("SQL, YMD", "MDY, german", Some("German, MDY")),
            ("SQL, YMD", "", Some("SQL, YMD")),
            ("SQL, YMD", "DEFAULT", Some("SQL, YMD")),
            ("SQL, YMD", "German, default", Some("German, YMD")),
            ("SQL, YMD", "\"PostgreSQL\",European", Some("Postgres, DMY")),
            ("", "ISO", Some("ISO")),
            ("", "German", Some("German, DMY")),
            ("SQL, YMD", "ISO, SQL", None),
            ("SQL, YMD", "DMY, MDY", None),
            ("SQL, YMD", "ISO,", None),
            ("SQL, YMD", "ISO DMY", None),
            ("SQL, YMD", "klingon", None),
        ] {
            let before = DateStyle::default().assign(before.as_bytes()).expect("it can be read");
            assert_eq!(before.assign(value.as_bytes()).map(|style| style.to_string()).as_deref(), after, "{value}");
        }
        assert_eq!(DateStyle::read("ISO"), None);
    }
}
