//! The use of a sequence, which `lastval` tells of up to the session's end, whatever became of the transaction.

use super::Error;

/// The words that only such a row has.
const TOLD: &str = "was last:";

#[derive(Clone, Debug, Default)]
pub(crate) struct Sequence(Option<Use>);

#[derive(Clone, Debug)]
struct Use {
    text: String,
    transaction: u64,
}

impl Sequence {
    /// A statement takes a value.
    pub(super) fn advance(&mut self, text: &str, transaction: u64) {
        self.0 = Some(Use { text: text.to_owned(), transaction });
    }

    pub(super) fn is_used(&self) -> bool {
        self.0.is_some()
    }

    /// The row that tells of the last statement that took a value.
    pub(super) fn last(&self, sql: &str) -> Result<String, Error> {
        let used = self.0.as_ref().ok_or_else(|| ("55000", "lastval is not yet defined in this session".to_owned()))?;
        Ok(format!("{sql} {TOLD} {}", used.text))
    }

    /// Whether a row is one that tells of it.
    pub(crate) fn is_told_in(row: &[u8]) -> bool {
        String::from_utf8_lossy(row).contains(TOLD)
    }

    /// Those that a transaction before that one has used.
    pub(super) fn take_before(&mut self, transaction: u64) -> Self {
        Self(self.0.take_if(|used| used.transaction < transaction))
    }
}
