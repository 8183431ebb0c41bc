//! The engine's news in words.

use std::borrow::Cow;

use sluice_core::io::{KnownClient, LogEvent, Loss};

pub(crate) fn event(event: LogEvent<'_>) {
    match event {
        LogEvent::ClientRefused { peer, who, rule, error } => {
            let (user, database) = who.unzip();
            let rule = rule.map(tracing::field::display);
            let code = &error.code;
            tracing::info!(database, user, %peer, rule, %code, "client refused: {}", one_line(&error.message));
        }
        LogEvent::ClientLoggedIn(KnownClient { database, user, peer, tls, application_name }) => {
            let tls = tls.unwrap_or("no");
            tracing::info!(database, user, %peer, %tls, application_name, "client logged in");
        }
        LogEvent::ClientGone { client, reason, age } => {
            let KnownClient { database, user, peer, tls, application_name } = client;
            let (tls, reason, age_s) = (tls.unwrap_or("no"), reason.to_string(), age.as_millis() as f64 / 1000.0);
            tracing::info!(database, user, %peer, %tls, application_name, age_s, "client gone: {}", one_line(&reason));
        }
        LogEvent::HeaderRefused { peer, error } => {
            tracing::warn!(%peer, "connection closed: {error}; proxy_protocol_from lists that address as a balancer's");
        }
        LogEvent::HandshakeFailed { peer, loss } => match refused_certificate(loss) {
            Some(fault) => tracing::warn!(%peer, "client certificate refused: {}", one_line(&fault)),
            None => tracing::info!(%peer, "client not encrypted: {loss}"),
        },
        LogEvent::ConnectFailed { address, error } => {
            tracing::warn!(%address, code = %error.code, "no connection to the server: {}", one_line(&error.message));
        }
        LogEvent::SecretRefused { address } => {
            tracing::warn!(
                %address,
                "the server does not believe the pool where clients come from; compare client_address_secret_file with \
                 its sluice.pool_secret_file"
            );
        }
        LogEvent::ReportUnreadable { address, report } => {
            tracing::warn!(
                %address,
                "the server's extension reports what this pool does not know, so its sessions are no longer shared \
                 once that is so; use a pool of the extension's version: {report:?}"
            );
        }
        LogEvent::CommitsUnreported { address } => {
            tracing::warn!(
                %address,
                "the server does not say where its commits are, so causal_reads has to read at the primary, until this \
                 process is started anew: load this version's extension there"
            );
        }
        LogEvent::SlowRequest { database, role, took, request } => {
            let [duration_ms, waited_ms] = [took, request.waited].map(|time| time.as_micros() as f64 / 1000.0);
            tracing::info!(
                database,
                role,
                peer = %request.peer,
                duration_ms,
                waited_ms,
                statements = request.statements,
                traceparent = request.trace(),
                "slow: {}",
                one_line(&request.text())
            );
        }
        LogEvent::ServerLost { address, reason } => {
            tracing::warn!(%address, "server connection lost: {reason}");
        }
    }
}

/// The fault of the certificate that a client has shown, if it has lost its connection by that.
fn refused_certificate(loss: &Loss) -> Option<Cow<'static, str>> {
    match loss {
        Loss::Tls(error) => error.refused_certificate(),
        Loss::Closed | Loss::Broken(_) => None,
    }
}

/// A text as part of a line: names come from whoever connects, and may not look like lines of the log.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unseen) {
        return Cow::Borrowed(text);
    }
    let escaped = |c: char| if is_unseen(c) { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(escaped).collect())
}

/// Whether a character is not seen itself, and changes what is seen of others: control characters, those for the direction
/// of a text, those without a width, and separators of lines.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_make_no_lines() {
        assert_eq!(one_line("user \"é\""), "user \"é\"");
        assert_eq!(one_line("a\nINFO b\x1b[1m\t\u{85}"), "a\\nINFO b\\u{1b}[1m\\t\\u{85}");
        assert_eq!(one_line("a\u{202e}b\u{2066}c\u{200b}d"), "a\\u{202e}b\\u{2066}c\\u{200b}d");
    }
}
