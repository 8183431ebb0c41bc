//! Encodings by what matters to the reading of a text: the second bytes of their characters.

/// The role of the bytes above ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Nothing but parts of characters that have no other bytes.
    Safe,
    /// Each is the first of two: BIG5, GBK, GB18030, UHC, JOHAB.
    Double,
    /// Some are characters of one byte.
    Sjis,
}

impl Encoding {
    /// Whether the byte behind that one belongs to the same character.
    pub(super) fn leads(self, byte: u8) -> bool {
        match self {
            Self::Safe => false,
            Self::Double => byte >= 0x80,
            Self::Sjis => matches!(byte, 0x80..=0xa0 | 0xe0..),
        }
    }
}
