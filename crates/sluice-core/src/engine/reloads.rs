//! A reload of the configuration that others have brought to light: a client that was told the values of before is told
//! those of now, ahead of the end of its first answer since. Where its own server reports them, it has heard already.

use sluice_wire::message::{self, TransactionStatus};

use crate::{
    client::Session,
    io::Io,
    server::{IN_HOT_STANDBY, Server, value_in_messages},
};

use super::backend::ServerRelay;

/// The parameters that are reported and that no session sets.
pub(super) const NOT_SET: [&str; 6] =
    [IN_HOT_STANDBY, "integer_datetimes", "is_superuser", "server_encoding", "server_version", "session_authorization"];

/// Whether there has been a reload since the client was told of parameters. At a standby that it has for a while, it
/// goes by what its primary says.
fn is_behind(session: &Session) -> bool {
    session.told_at != session.pool.log_ins.reloads() && !session.reads.is_away()
}

/// Whether the value of a parameter is the server's own, and not the client's.
fn is_servers(session: &Session, name: &str) -> bool {
    let key = name.to_ascii_lowercase();
    name == IN_HOT_STANDBY
        || !NOT_SET.contains(&name) && session.profile.get(&key).is_none() && session.start.get(&key).is_none()
}

impl<I: Io> ServerRelay<'_, I> {
    /// The answer ends here.
    pub(super) fn report_reload(&mut self, status: TransactionStatus) {
        let Some((_, session)) = &mut self.client else { return };
        if !is_behind(session) || status != TransactionStatus::Idle || !self.server.follows_statements() {
            return;
        }
        let is_news = |(name, value): &(&str, &str)| {
            let is_other = || value_in_messages(&session.told, name).is_some_and(|told| told != *value);
            !self.server.parameters.has_passed(name) && is_servers(session, name) && is_other()
        };
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let news: Vec<_> = self.server.parameters.iter().filter(is_news).map(own).collect();
        for (name, value) in &news {
            session.reports.put_off(name, None, value);
            self.server.parameters.note_passed(name);
        }
    }
}

/// The client's settings are known: it has been told all else as it is now.
pub(super) fn has_heard(session: &mut Session, server: &Server) {
    let went_back = |name: &str| server.parameters.has_passed(name) && is_servers(session, name);
    let is_behind = is_behind(session);
    if !is_behind && !server.parameters.passed().any(went_back) {
        return;
    }
    let mut told = Vec::with_capacity(session.told.len());
    for (name, value) in server.parameters.iter() {
        let is_known = !is_servers(session, name) || !is_behind && !server.parameters.has_passed(name);
        let before = value_in_messages(&session.told, name).filter(|_| is_known);
        message::put_parameter_status(&mut told, name, before.unwrap_or(value));
    }
    session.told = told.into();
    if is_behind {
        session.told_at = session.pool.log_ins.reloads();
    }
}
