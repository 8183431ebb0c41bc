//! Changes to PostgreSQL's own catalogs by statements for tables: a superuser may make them.

use super::{Effects, is_one_of};
use crate::sql::lexer::{Lexer, Token};

/// The catalogs that log-ins go by. `pg_authid` and the others of roles can't be written to by their views.
const OF_LOG_INS: [&str; 5] = ["pg_authid", "pg_auth_members", "pg_database", "pg_db_role_setting", "pg_event_trigger"];

/// The effects on all sessions of a statement that begins with `verb`, which has been read: none, unless it writes to a
/// catalog.
pub(super) fn changed_by(verb: &[u8], behind: &Lexer<'_>) -> Effects {
    let mut rest = behind.clone();
    if !verb.eq_ignore_ascii_case(b"with") {
        return on_target(&mut rest);
    }
    let mut found = Effects::empty();
    while let Some(token) = rest.next() {
        match token {
            Token::Semicolon => break,
            Token::Word(word) if is_one_of(word, &["insert", "update", "delete", "merge"]) => {
                found.insert(on_target(&mut rest));
            }
            _ => {}
        }
    }
    found
}

/// The same behind the verb.
fn on_target(rest: &mut Lexer<'_>) -> Effects {
    let mut behind_dot = rest.clone();
    let mut schema: Option<&[u8]> = None;
    while let Some(Token::Word(name) | Token::Quoted(name)) = behind_dot.next() {
        *rest = behind_dot.clone();
        if is_one_of(name, &["into", "from", "only"]) {
            continue;
        }
        if matches!(behind_dot.next(), Some(Token::Dot)) {
            schema = Some(name);
            continue;
        }
        let is_catalogs = schema.is_none_or(|schema| schema.eq_ignore_ascii_case(b"pg_catalog"));
        let is_own = name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b"pg_"));
        return match is_catalogs && is_own && !name.eq_ignore_ascii_case(b"pg_settings") {
            // Nothing that is compiled goes by these.
            true if is_one_of(name, &OF_LOG_INS) => Effects::CATALOG | Effects::LOG_INS,
            true => Effects::CATALOG | Effects::ALTERS,
            false => Effects::empty(),
        };
    }
    Effects::empty()
}
