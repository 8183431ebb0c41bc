//! The marks by which a server's transactions can be known on another one (`sluice.transaction`, `sluice.outcome`).

use sluice_core::outcome::TRANSACTION_PARAMETER;
use sluice_wire::message::{self, TransactionStatus, backend, framed, frontend};

use crate::session::{Block, Session, frames, put_error};

const QUESTION: &str = "SET LOCAL statement_timeout = 0; SELECT pg_catalog.set_config('sluice.outcome', 'xid=";

/// A session's marks.
#[derive(Default)]
pub(crate) struct Marks {
    /// The mark of the block that is open.
    mark: Option<u64>,
    /// The mark that was told last.
    told: String,
}

impl Marks {
    /// A message has been handled, and answered from `before` on. A block may get its mark, which is told right before
    /// ReadyForQuery; returns that of one that has ended, and whether by a commit.
    pub(crate) fn follow(
        &mut self,
        session: &Session,
        before: usize,
        output: &mut Vec<u8>,
        random: impl FnOnce() -> u64,
    ) -> Option<(u64, bool)> {
        let has_committed =
            frames(&output[before..]).iter().any(|frame| frame[0] == b'C' && frame[5..] == *b"COMMIT\0");
        if has_committed || session.block == Block::None {
            return self.mark.take().map(|mark| (mark, has_committed));
        }
        let ready = TransactionStatus::InTransaction.ready_for_query();
        let number = random();
        if session.block == Block::Open
            && output[before..].ends_with(&ready)
            && (self.mark.is_some() || number.is_multiple_of(2))
        {
            let mark = *self.mark.get_or_insert(number);
            let change = if session.has_changed() { " session=changed" } else { "" };
            let report = format!("xid={mark} at=0/{mark:X} system=1 key={mark}{change}");
            if self.told != report {
                output.truncate(output.len() - ready.len());
                message::put_parameter_status(output, TRANSACTION_PARAMETER, &report);
                output.extend_from_slice(&ready);
                self.told = report;
            }
        }
        None
    }
}

/// The mark of the transaction that a message asks for.
pub(crate) fn asked_for(tag: u8, body: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(body).ok().filter(|_| tag == frontend::QUERY)?;
    text.strip_prefix(QUESTION)?.split(' ').next()?.parse().ok()
}

/// The answer, which may be that it is not known.
pub(crate) fn answer(has_committed: Option<bool>) -> Vec<u8> {
    let mut out = Vec::new();
    match has_committed {
        Some(has_committed) => {
            let text: &[u8] = if has_committed { b"committed" } else { b"aborted" };
            framed(&mut out, backend::DATA_ROW, |out| {
                out.extend_from_slice(&[0, 1]);
                out.extend_from_slice(&(text.len() as u32).to_be_bytes());
                out.extend_from_slice(text);
            });
            message::put_command_complete(&mut out, "SELECT 1");
        }
        None => put_error(&mut out, backend::ERROR_RESPONSE, "ERROR", "58P01", "the WAL has been removed"),
    }
    out.extend_from_slice(&TransactionStatus::Idle.ready_for_query());
    out
}
