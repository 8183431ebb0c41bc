//! Words for the values of an enum, as files and command lines have them.

/// A word that is none of those that are known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is none of: {}", known.join(", "))]
pub struct UnknownWord {
    found: String,
    known: &'static [&'static str],
}

impl UnknownWord {
    pub(crate) fn new(found: &str, known: &'static [&'static str]) -> Self {
        Self { found: found.to_owned(), known }
    }
}

/// Gives an enum its words: a list of them, and `FromStr`.
macro_rules! words {
    ($type:ident: $($word:literal => $value:ident),+ $(,)?) => {
        impl $type {
            /// All words, in the order of the list.
            pub const WORDS: &[&str] = &[$($word),+];
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::review::words::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok(Self::$value),)+
                    _ => Err($crate::review::words::UnknownWord::new(text, Self::WORDS)),
                }
            }
        }
    };
}
pub(crate) use words;
