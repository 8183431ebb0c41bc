//! Values that mean something to clients, of settings that say nothing to Sluice otherwise.

use super::Conversion;

/// The reason why nothing is run between two clients.
pub(super) const IN_ORDER: &str = "a server is put in order by what its session holds";

/// Parameters that PgBouncer applies though they are listed, and the one by which servers since PostgreSQL 12 answer alike
/// whatever drivers send.
const APPLIED: [&str; 6] = [
    "application_name",
    "client_encoding",
    "datestyle",
    "extra_float_digits",
    "standard_conforming_strings",
    "timezone",
];

/// The names of a list: PgBouncer separates them by commas and by blanks (`strlist_contains` in its `util.c`).
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c == ',' || c.is_ascii_whitespace()).filter(|name| !name.is_empty())
}

/// `ignore_startup_parameters`.
pub(super) fn startup_parameters(text: &str) -> Option<String> {
    let names = names(text).filter(|name| !APPLIED.contains(&name.to_ascii_lowercase().as_str()));
    // `track_extra_parameters` is this one, unless somebody says otherwise.
    let is_applied_since = |name: &str| name.eq_ignore_ascii_case("IntervalStyle");
    let names: Vec<_> = names
        .map(|name| if is_applied_since(name) { format!("{name} (before 1.20)") } else { name.to_owned() })
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "PgBouncer drops what clients send for {}, and here PostgreSQL applies it at their log-in: it takes effect, or \
             fails the log-in where PostgreSQL does not know or allow it (42704, 42501). Have clients not send it",
            names.join(", ")
        )
    })
}

/// `disable_pqexec`.
pub(super) fn simple_queries(text: &str) -> Option<String> {
    let what = "not supported: simple queries, which PgBouncer refuses, are let through, also with several statements in one. \
                Where that kept statements from being smuggled in, have applications pass values as parameters";
    (!matches!(text, "" | "0")).then(|| what.to_owned())
}

/// Versions of TLS, from 1.0.
const VERSIONS: [&str; 4] = ["TLS 1.0", "TLS 1.1", "TLS 1.2", "TLS 1.3"];

/// `…_tls_protocols`.
pub(super) fn protocols(text: &str) -> Option<String> {
    let Some(taken) = versions(text) else { return Some(format!("{text:?} is no list of protocols")) };
    let names = |wanted: [bool; 4]| {
        let names: Vec<_> =
            VERSIONS.iter().zip(wanted).filter(|(_, is_wanted)| *is_wanted).map(|(name, _)| *name).collect();
        (!names.is_empty()).then(|| names.join(" and "))
    };
    let more = names([false, false, !taken[2], !taken[3]]);
    let more = more.map(|names| format!("{names} can't be left out here: whoever offers it is let in by it"));
    let lost = names([taken[0], taken[1], false, false]);
    let lost = lost.map(|names| format!("{names} is not there: whoever has nothing newer is turned away"));
    let said: Vec<_> = more.into_iter().chain(lost).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// The versions that a list of PgBouncer's takes; `None` if it is none.
fn versions(text: &str) -> Option<[bool; 4]> {
    const SAFE: [bool; 4] = [false, false, true, true];
    let mut taken = [false; 4];
    for (at, word) in text.split([',', ':']).map(str::trim).enumerate() {
        let (word, adds) = word.strip_prefix('!').map_or((word, true), |word| (word, false));
        if at == 0 && !adds {
            taken = [true; 4];
        }
        let named = match word.to_ascii_lowercase().as_str() {
            "all" | "legacy" => [true; 4],
            "default" | "secure" | "" => SAFE,
            "tlsv1" => [true, true, true, false],
            "tlsv1.0" => [true, false, false, false],
            "tlsv1.1" => [false, true, false, false],
            "tlsv1.2" => [false, false, true, false],
            "tlsv1.3" => [false, false, false, true],
            _ => return None,
        };
        for (taken, _) in taken.iter_mut().zip(named).filter(|(_, is_named)| *is_named) {
            *taken = adds;
        }
    }
    Some(taken)
}

/// `…_tls_ciphers` and `…_tls13_ciphers`.
pub(super) fn ciphers(text: &str) -> Option<String> {
    let what = "there is no choice of ciphers: those of TLS 1.3, and of TLS 1.2 those with ECDHE and AES-GCM or ChaCha20. \
                None of them can be left out, and whoever has none of them is turned away";
    let is_default = matches!(text.to_ascii_lowercase().as_str(), "" | "default" | "secure" | "fast" | "normal");
    (!is_default).then(|| what.to_owned())
}

/// `client_tls_ecdhcurve`.
pub(super) fn curve(text: &str) -> Option<String> {
    let word = text.to_ascii_lowercase();
    let is_there = matches!(word.as_str(), "" | "auto" | "none" | "prime256v1" | "secp384r1" | "x25519");
    (!is_there).then(|| "the curves are X25519, P-256 and P-384: whoever has none of them is turned away".to_owned())
}

/// Statements by which a session is put in order, as Sluice does by itself.
const RESETS: [&str; 9] = [
    "ABORT",
    "CLOSE ALL",
    "DEALLOCATE",
    "DISCARD",
    "RESET",
    "ROLLBACK",
    "SELECT PG_ADVISORY_UNLOCK_ALL()",
    "SET SESSION AUTHORIZATION DEFAULT",
    "UNLISTEN",
];

/// Whether a `server_reset_query` does more than put a session in order.
fn does_more(query: &str) -> bool {
    let mut statements = query.split(';').map(|it| it.trim().to_ascii_uppercase()).filter(|it| !it.is_empty());
    statements.any(|statement| !RESETS.iter().any(|reset| is_reset(&statement, reset)))
}

/// Whether a statement is one of those; a query is it only as a whole.
fn is_reset(statement: &str, reset: &str) -> bool {
    if reset.starts_with("SELECT") { statement == reset } else { statement.starts_with(reset) }
}

impl Conversion {
    /// Says what becomes of `server_reset_query`, once it is known in which modes it is run.
    pub(super) fn reset(&mut self) {
        let Some(entry) = self.reset_query.take() else { return };
        if (self.resets_always || self.has_sessions()) && does_more(&entry.value) {
            let what = "it is not run: a session is put in order by what it holds, and whatever else this does is left \
                        undone. Have applications do that when they begin";
            self.note(&entry, what);
        } else {
            self.say(Some(entry.line), &entry.key, IN_ORDER, false);
        }
    }

    /// Says of a folder for sockets that it is another one for the packaged service.
    pub(super) fn private_folder(&mut self, folder: &str) {
        if matches!(folder.trim_end_matches('/'), "/tmp" | "/var/tmp") {
            let what = format!(
                "the packaged service has a {folder} of its own (PrivateTmp=yes), so clients can't find its socket, \
                 and it can't find PostgreSQL's: name a folder below /run in both places, as /run/sluice for its own"
            );
            self.say(None, "unix_socket_dir", what, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_postgresql_gets_here() {
        for (text, named) in [
            ("", None),
            ("extra_float_digits", None),
            ("extra_float_digits, TimeZone,application_name", None),
            ("extra_float_digits, search_path,options", Some("for search_path, options, and")),
            ("extra_float_digits TimeZone\tsearch_path", Some("for search_path, and")),
        ] {
            let said = startup_parameters(text);
            assert_eq!(said.is_some(), named.is_some(), "{text}: {said:?}");
            assert!(said.unwrap_or_default().contains(named.unwrap_or_default()), "{text}");
        }
    }

    #[test]
    fn versions_that_are_more_or_fewer_here() {
        for (text, more, lost) in [
            ("", None, None),
            ("secure", None, None),
            ("tlsv1.2,tlsv1.3", None, None),
            ("tlsv1.3", Some("TLS 1.2 can't"), None),
            ("tlsv1.2", Some("TLS 1.3 can't"), None),
            ("all", None, Some("TLS 1.0 and TLS 1.1 is not")),
            ("Secure:tlsv1.1", None, Some("TLS 1.1 is not")),
            ("!tlsv1.0,!tlsv1.2", Some("TLS 1.2 can't"), Some("TLS 1.1 is not")),
            ("tlsv1", Some("TLS 1.3 can't"), Some("TLS 1.0 and TLS 1.1 is not")),
        ] {
            let said = protocols(text).unwrap_or_default();
            assert_eq!(
                (said.contains("can't"), said.contains("not there")),
                (more.is_some(), lost.is_some()),
                "{text}"
            );
            assert!(said.contains(more.unwrap_or_default()) && said.contains(lost.unwrap_or_default()), "{said}");
        }
        assert!(protocols("ssl3").unwrap_or_default().contains("no list"));
    }

    #[test]
    fn queries_that_do_more_than_put_a_session_in_order() {
        for (query, more) in [
            ("DISCARD ALL", false),
            ("", false),
            ("reset all; close all;unlisten *;", false),
            ("SELECT pg_advisory_unlock_all(); DEALLOCATE ALL", false),
            ("SELECT pg_advisory_unlock_all(), app.cleanup()", true),
            ("SELECT app.reset_context()", true),
            ("DISCARD ALL; SET work_mem = '64MB'", true),
        ] {
            assert_eq!(does_more(query), more, "{query}");
        }
    }
}
