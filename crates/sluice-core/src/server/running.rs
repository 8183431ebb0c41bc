//! The statement that a server runs for its client, whose uses are counted.

use std::{sync::Arc, time::Duration};

use crate::{replies::Portal, statement::Statement, time::Time, traffic::Meter};

/// The statement that a server runs next for its client.
#[derive(Debug, Default)]
pub struct Running {
    /// The shared one that the unnamed portal is bound to.
    bound: Option<Arc<Statement>>,
    /// The time before which the server was not at the next statement: that of the last answer to an Execute, or of the
    /// end of the client's last pause.
    not_before: Time,
    /// The time that the client has waited for this server, until a statement is counted with it.
    waited: Duration,
    /// The rows that the unnamed portal has given, the time for them, and that of the wait before, while it has more.
    suspended: Option<(u64, Duration, Duration)>,
}

impl Running {
    /// A client has got the server, for which it has waited so long.
    pub fn begin(&mut self, waited: Duration) {
        self.leave();
        *self = Self { waited, ..Self::default() };
    }

    /// The client goes on, and its server had nothing left to do.
    pub fn go_on(&mut self, now: Time) {
        self.not_before = now;
    }

    /// A Bind has been answered.
    pub fn bind(&mut self, statement: Option<Arc<Statement>>, portal: Portal) {
        if portal == Portal::Unnamed {
            self.leave();
            self.bound = statement;
        }
    }

    /// An Execute has been answered, with that command tag. What runs by a portal with a name is not counted, nor what
    /// nobody shares.
    pub fn end(&mut self, now: Time, meter: &Meter, portal: Portal, tag: &[u8]) {
        let (time, waited) = self.times(now, meter);
        if portal == Portal::Unnamed {
            let (rows_before, time_before, waited_before) = self.suspended.take().unwrap_or_default();
            self.count(rows_before + rows(tag), time_before + time, waited_before + waited);
        }
    }

    /// An Execute has been answered with as many rows as it asked for, and there are more.
    pub fn suspend(&mut self, now: Time, meter: &Meter, portal: Portal, rows: u32) {
        let (time, waited) = self.times(now, meter);
        if portal == Portal::Unnamed {
            let (rows_before, time_before, waited_before) = self.suspended.unwrap_or_default();
            self.suspended = Some((rows_before + u64::from(rows), time_before + time, waited_before + waited));
        }
    }

    /// What is suspended is not gone on with: its portal is closed, or has ended with its transaction.
    pub fn leave(&mut self) {
        if let Some((rows, time, waited)) = self.suspended.take() {
            self.count(rows, time, waited);
        }
    }

    /// The time of the Execute that has been answered now, and that of the wait before it.
    fn times(&mut self, now: Time, meter: &Meter) -> (Duration, Duration) {
        let begun = meter.query_since().unwrap_or(now).max(self.not_before);
        self.not_before = now;
        (now.since(begun), std::mem::take(&mut self.waited))
    }

    fn count(&self, rows: u64, time: Duration, waited: Duration) {
        if let Some(statement) = &self.bound {
            statement.uses.count(rows, time, waited);
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
        // One that is run piece by piece is one call, also where its end is not asked for.
        for is_ended in [true, false] {
            running.bind(Some(first.clone()), Portal::Unnamed);
            running.suspend(Time(2000), &meter, Portal::Unnamed, 10);
            match is_ended {
                true => running.end(Time(2100), &meter, Portal::Unnamed, b"SELECT 3"),
                false => running.begin(Duration::ZERO),
            }
        }
        assert_eq!((first.uses.used().calls, first.uses.used().rows), (3, 25));
        // A client's pause between two pieces, or behind its Bind, is not the server's time.
        let before = first.uses.used().time;
        running.bind(Some(first.clone()), Portal::Unnamed);
        running.go_on(Time(1_002_200));
        running.suspend(Time(1_002_230), &meter, Portal::Unnamed, 1);
        running.go_on(Time(9_002_000));
        running.end(Time(9_002_011), &meter, Portal::Unnamed, b"SELECT 1");
        assert_eq!(first.uses.used().time - before, micros(41));
        running.begin(Duration::ZERO);
        // The wait is that of what was run first, also where that is not counted.
        running.begin(Duration::from_micros(90));
        running.bind(Some(second.clone()), Portal::Unnamed);
        running.end(Time(2100), &meter, Portal::Named, b"SELECT 1");
        running.end(Time(2200), &meter, Portal::Unnamed, b"SELECT 1");
        assert_eq!((second.uses.used().calls, second.uses.used().waited), (2, Duration::ZERO));
        // One that nobody shares.
        running.bind(None, Portal::Unnamed);
        running.end(Time(2000), &meter, Portal::Unnamed, b"SELECT 1");
        assert_eq!((first.uses.used().calls, second.uses.used().calls), (4, 2));
    }
}
