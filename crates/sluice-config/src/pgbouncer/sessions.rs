//! Pools in session mode, PgBouncer's default, in which a client has a server sooner than with PgBouncer, and keeps it.

use toml_edit::{Item, Table};

use super::Conversion;

impl Conversion {
    /// Whether any pool is in session mode; where no database is named, that of all counts.
    pub(super) fn has_sessions(&self) -> bool {
        let mode = |pool: &Table| pool.get("mode").and_then(Item::as_str).map(|mode| mode == "session");
        let of_all = mode(&self.pool).unwrap_or_default();
        let own = |database: &Table| database.get("pool").and_then(Item::as_table).and_then(mode);
        let mut each = self.databases.iter().map(|database| own(database).unwrap_or(of_all));
        if self.databases.is_empty() { of_all } else { each.any(|is_session| is_session) }
    }

    /// Says what is otherwise in session mode.
    pub(super) fn sessions(&mut self) {
        let fast_close = self.fast_close.take();
        if !self.has_sessions() {
            if let Some(entry) = fast_close {
                self.say(Some(entry.line), &entry.key, "it is for session mode, and no pool is in that", false);
            }
            return;
        }
        let what = "in session mode a client takes a server with its log-in, where PgBouncer gives it one with its first \
                    query: clients that only log in take up the pool, too, and the log-ins of those beyond its size \
                    wait until another leaves, or fail after wait_timeout or login_timeout. Have pool.size be the \
                    number of clients that are connected at once, or use mode = \"transaction\"";
        self.say(None, "pool_mode", what, true);
        match fast_close {
            Some(entry) if entry.value != "0" => self.note(
                &entry,
                "not supported: in session mode a server that RECONNECT or a reload has called in stays with its client \
                 until that leaves. KILL at the console disconnects all clients of a database, and pauses it",
            ),
            Some(entry) => self.say(Some(entry.line), &entry.key, "this is how it is here", false),
            None => {}
        }
    }
}
