//! Messages of a client for which PostgreSQL ends its session.

use sluice_wire::{ErrorResponse, FrameError, FrontendKind, kind::SMALL_MESSAGE_BYTES_MAX, sqlstate};

/// The error for a message that ends a session, if it is one. A COPY reads what is too large for its kind as well.
pub(super) fn ends_session(kind: FrontendKind, total: usize, is_copying: bool) -> Option<ErrorResponse> {
    let length = u32::try_from(total - 1).unwrap_or(u32::MAX);
    match kind {
        FrontendKind::Password | FrontendKind::Unknown(_) => Some(unknown_message(kind)),
        _ if kind.is_small() && length > SMALL_MESSAGE_BYTES_MAX && !is_copying => {
            Some(broken_frame(FrameError { tag: kind.byte(), length }))
        }
        _ => None,
    }
}

/// PostgreSQL says nothing to the client there.
pub(super) fn broken_frame(error: FrameError) -> ErrorResponse {
    ErrorResponse::fatal(sqlstate::PROTOCOL_VIOLATION, format!("invalid message length: {error}"))
}

pub(super) fn unknown_message(kind: FrontendKind) -> ErrorResponse {
    ErrorResponse::fatal(sqlstate::PROTOCOL_VIOLATION, format!("invalid frontend message type {}", kind.byte()))
        .routine("SocketBackend")
}

/// The end of a session whose message waited in vain for what was to be prepared for it.
pub(super) fn never_prepared() -> ErrorResponse {
    ErrorResponse::fatal(sqlstate::INTERNAL_ERROR, "the statement could not be prepared again as it was parsed")
        .hint("This is a defect of Sluice's, and not of the statement. Prepare it by another name.")
}
