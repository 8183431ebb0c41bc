//! The statement that a server runs for its client, whose uses are counted.

use std::{sync::Arc, time::Duration};

use crate::{replies::Portal, statement::Statement, time::Time, traffic::Meter};

/// The statement that a server runs next for its client.
#[derive(Debug, Default)]
pub struct Running {
    /// The shared one that the unnamed portal is bound to.
    bound: Option<Arc<Statement>>,
    /// The time of the last answer to an Execute.
    ended_at: Time,
    /// The time that the client has waited for this server, until a statement is counted with it.
    waited: Duration,
}

impl Running {
    /// A client has got the server, for which it has waited so long.
    pub fn begin(&mut self, waited: Duration) {
        *self = Self { bound: None, ended_at: Time(0), waited };
    }

    /// A Bind has been answered.
    pub fn bind(&mut self, statement: Option<Arc<Statement>>, portal: Portal) {
        if portal == Portal::Unnamed {
            self.bound = statement;
        }
    }

    /// An Execute has been answered, with that command tag. What runs by a portal with a name is not counted, nor what
    /// nobody shares.
    pub fn end(&mut self, now: Time, meter: &Meter, portal: Portal, tag: &[u8]) {
        let begun = meter.query_since().unwrap_or(now).max(self.ended_at);
        let waited = std::mem::take(&mut self.waited);
        self.ended_at = now;
        if portal == Portal::Unnamed
            && let Some(statement) = &self.bound
        {
            statement.uses.count(rows(tag), now.since(begun), waited);
        }
    }
}

/// The number of rows that a command tag tells of: its last word, if that is one.
fn rows(tag: &[u8]) -> u64 {
    let digits = tag.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let number = str::from_utf8(&tag[tag.len() - digits..]).unwrap_or_default();
    number.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{profile::Profile, registry::Registry, statement::Terms, uses::Used};

    #[test]
    fn rows_are_what_the_tag_says() {
        let tags = ["SELECT 12", "INSERT 0 3", "UPDATE 0", "BEGIN", "", "SELECT 99999999999999999999"];
        assert_eq!(tags.map(|tag| rows(tag.as_bytes())), [12, 3, 0, 0, 0, 0]);
    }

    #[test]
    fn statements_of_a_batch_have_times_of_their_own() {
        let registry = Registry::new(b"sluice_", Arc::default());
        let [first, second] = [b"select 1\0\0\0", b"select 2\0\0\0"]
            .map(|definition| registry.intern(definition, Terms::PLAIN, &Profile::default()));
        let (mut meter, mut running) = (Meter::default(), Running::default());
        running.begin(Duration::from_micros(70));
        meter.begin(Time(1000));
        running.bind(Some(first.clone()), Portal::Unnamed);
        running.end(Time(1500), &meter, Portal::Unnamed, b"SELECT 2");
        running.bind(Some(second.clone()), Portal::Unnamed);
        running.bind(None, Portal::Named);
        running.end(Time(1800), &meter, Portal::Named, b"SELECT 1");
        running.end(Time(1900), &meter, Portal::Unnamed, b"SELECT 1");
        let micros = Duration::from_micros;
        assert_eq!(first.uses.used(), Used { calls: 1, rows: 2, time: micros(500), waited: micros(70) });
        assert_eq!(second.uses.used(), Used { calls: 1, rows: 1, time: micros(100), waited: micros(0) });
        // One that nobody shares.
        running.bind(None, Portal::Unnamed);
        running.end(Time(2000), &meter, Portal::Unnamed, b"SELECT 1");
        assert_eq!((first.uses.used().calls, second.uses.used().calls), (1, 1));
    }
}
