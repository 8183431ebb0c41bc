//! The meaning of names that changes while answers are still to come.

use std::sync::Arc;

use crate::statement::{NameTag, Statement, StatementId, Unnamed};

use super::Exchange;

impl Exchange {
    /// See [`correct_unnamed`](crate::replies::Replies::correct_unnamed).
    pub fn correct_unnamed(&mut self, turn: u32, before: Option<&Unnamed>) {
        self.replies.correct_unnamed(turn, before);
    }

    /// See [`supersede`](crate::replies::Replies::supersede).
    pub fn supersede(&mut self, old: StatementId, by: NameTag, new: &Arc<Statement>, name: Option<&[u8]>) {
        self.replies.supersede(old, by, new, name);
    }
}
