//! The engine's news in words.

use sluice_core::io::LogEvent;

pub(crate) fn event(event: LogEvent<'_>) {
    match event {
        LogEvent::ClientRefused { peer, error } => {
            tracing::info!(%peer, code = %error.code, "client refused: {}", error.message);
        }
        LogEvent::ConnectFailed { address, error } => {
            tracing::warn!(%address, code = %error.code, "no connection to the server: {}", error.message);
        }
        LogEvent::SecretRefused { address } => {
            tracing::warn!(
                %address,
                "the server does not believe the pool where clients come from; compare client_address_secret_file with \
                 its sluice.pool_secret_file"
            );
        }
        LogEvent::ServerLost { address, reason } => {
            tracing::warn!(%address, "server connection lost: {reason}");
        }
    }
}
