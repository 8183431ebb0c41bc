//! PostgreSQL's decisions at a log-in, as far as they are known to have changed: who may log in, and what a session
//! begins with (`ALTER ROLE … SET`, `ALTER DATABASE … SET`). A count of the changes, by which those who come later get
//! a server that has logged in since.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{date_style::DateStyle, start::StartupParameters, time::Time};

/// A number of changes to what log-ins go by. What is of a later generation has seen all that is of an earlier one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(u64);

impl Generation {
    /// Before any change that is known of.
    pub const FIRST: Self = Self(0);
}

/// A server's log-in: its time, what it may have seen, what it asked for, and whether anybody has had the server since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The time.
    pub at: Time,
    /// All changes of earlier generations were there for its log-in.
    pub generation: Generation,
    /// The parameters of its StartupMessage, besides user and database.
    pub startup: StartupParameters,
    /// A client has had the server: what that one ran there (it may have loaded a library) stays.
    pub has_served: bool,
}

impl Opened {
    /// True if it serves who came to log in at that generation, by those parameters; `new`: as nobody's before.
    pub fn suits(&self, generation: Generation, startup: &StartupParameters, new: bool) -> bool {
        self.generation >= generation && !(new && self.has_served) && self.startup == *startup
    }
}

/// The log-ins to one server's address; all pools of it share this.
#[derive(Debug)]
pub struct LogIns {
    changes: AtomicU64,
    /// The transactions that change them.
    changing: AtomicU32,
    /// The changes at all addresses, for the sake of secrets.
    everywhere: Arc<AtomicU64>,
    /// At a standby: the changes at its primary that count here, too; [`NONE`] while none are known.
    followed: AtomicU64,
    /// The reloads of the configuration that are known of.
    reloads: AtomicU64,
    /// What servers there have said of their configuration.
    configurations: Mutex<Configurations>,
    date_style: Mutex<Configured>,
    recovery: Recovery,
}

/// The knowledge of whether an address leads to a standby, as servers there have said last.
#[derive(Debug, Default)]
struct Recovery {
    /// 0 where none has said so, 1 where one is not in recovery, 2 where it is.
    said: AtomicU8,
    /// The time at which one was last heard while it was in recovery.
    heard_at: AtomicU64,
}

/// The servers that an address has led to, by the times of their starts, and how they were configured last. Behind a
/// balancer there are several.
#[derive(Debug, Default)]
struct Configurations(VecDeque<(String, String)>);

/// More of them behind one address are taken for new ones each time.
const SERVERS_MAX: usize = 16;

impl Configurations {
    /// Whether it is news: not from the first one that says anything.
    fn note(&mut self, mark: &str) -> bool {
        let Some((start, count)) = mark.split_once('.') else { return false };
        if let Some((_, known)) = self.0.iter_mut().find(|(known, _)| known == start) {
            let is_other = known != count;
            count.clone_into(known);
            return is_other;
        }
        let is_other = !self.0.is_empty();
        self.0.truncate(SERVERS_MAX - 1);
        self.0.push_front((start.to_owned(), count.to_owned()));
        is_other
    }
}

/// The knowledge of the `DateStyle` that the configuration has.
#[derive(Debug, Default, Clone, Copy)]
enum Configured {
    /// None.
    #[default]
    Unknown,
    /// All sessions begin with it: at the log-in of that generation, no role and no database had one of its own.
    ForAll(Generation),
    /// It is this one.
    Is(DateStyle),
}

/// No number of changes.
const NONE: u64 = u64::MAX;

impl LogIns {
    /// Those to one address; the changes there are counted in `everywhere`, too. `number` is another one for each
    /// address, so that no generation of one is a generation of another.
    pub fn new(everywhere: Arc<AtomicU64>, number: u32) -> Self {
        let first = u64::from(number) << 32;
        let [changes, followed, reloads] = [first, NONE, first].map(AtomicU64::new);
        let (changing, configurations, date_style, recovery) = Default::default();
        Self { changes, changing, everywhere, followed, reloads, configurations, date_style, recovery }
    }

    /// The number of times that the configuration was reloaded, as far as is known; another one for each address.
    pub fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Acquire)
    }

    /// The configuration has been reloaded.
    pub fn note_reload(&self) {
        self.reloads.fetch_add(1, Ordering::AcqRel);
    }

    /// A server has said how it is configured (`sluice.configuration`). Says whether that is news.
    pub fn note_configuration(&self, mark: &str) -> bool {
        self.configurations.lock().unwrap_or_else(PoisonError::into_inner).note(mark)
    }

    /// A server has said whether it is in recovery. Says whether one had said otherwise before.
    pub fn note_recovery(&self, is_in_recovery: bool) -> bool {
        let said = 1 + u8::from(is_in_recovery);
        let before = self.recovery.said.swap(said, Ordering::AcqRel);
        before != 0 && before != said
    }

    /// Whether a server there is in recovery, by what one has said last.
    pub fn is_in_recovery(&self) -> Option<bool> {
        let said = self.recovery.said.load(Ordering::Acquire);
        (said != 0).then_some(said == 2)
    }

    /// A server that is in recovery has been heard now.
    pub fn hear_in_recovery(&self, now: Time) {
        self.recovery.heard_at.store(now.0, Ordering::Release);
    }

    /// The time since one was heard.
    pub fn since_recovery(&self, now: Time) -> Duration {
        now.since(Time(self.recovery.heard_at.load(Ordering::Acquire)))
    }

    /// The configuration's `DateStyle`, if it is known.
    pub fn date_style(&self) -> Option<DateStyle> {
        match *self.configured() {
            Configured::Is(style) => Some(style),
            Configured::Unknown | Configured::ForAll(_) => None,
        }
    }

    /// Whether it is what each session begins with, so that nobody has to know it.
    pub fn all_begin_as_configured(&self) -> bool {
        matches!(*self.configured(), Configured::ForAll(generation) if generation >= self.generation())
    }

    /// No role and no database has a `DateStyle` of its own, says a server that logged in at that generation.
    pub fn begin_as_configured(&self, generation: Generation) {
        *self.configured() = Configured::ForAll(generation);
    }

    /// A server has told the configuration's `DateStyle`.
    pub fn learn_date_style(&self, style: DateStyle) {
        *self.configured() = Configured::Is(style);
    }

    /// The configuration may have another one by now, and so may roles and databases.
    pub fn forget_date_style(&self) {
        *self.configured() = Configured::Unknown;
    }

    fn configured(&self) -> MutexGuard<'_, Configured> {
        self.date_style.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generation of whoever logs in now.
    pub fn generation(&self) -> Generation {
        Generation(self.changes())
    }

    /// The number of changes.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Whether transactions are open that change them.
    pub fn are_changing(&self) -> bool {
        self.changing.load(Ordering::Acquire) > 0
    }

    /// A transaction is about to change them.
    pub fn begin_change(&self) {
        self.changing.fetch_add(1, Ordering::AcqRel);
    }

    /// It has ended: log-ins from now on may see something else.
    pub fn end_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.everywhere.fetch_add(1, Ordering::AcqRel);
        self.changing.fetch_sub(1, Ordering::AcqRel);
    }

    /// A standby's log-ins go by what its primary's go by: connections that were opened before the last change there are
    /// not for clients that come now.
    pub fn follow(&self, primary: &Self) {
        let changes = primary.changes();
        if std::ptr::eq(self, primary) || [NONE, changes].contains(&self.followed.swap(changes, Ordering::AcqRel)) {
            return;
        }
        self.begin_change();
        self.end_change();
    }
}

impl Default for LogIns {
    fn default() -> Self {
        Self::new(Arc::default(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_mark_of_a_known_server_is_news_and_another_server_once() {
        let mut configurations = Configurations::default();
        for (mark, is_news) in [
            ("", false),
            ("10.1", false),
            ("10.1", false),
            ("10.2", true),
            ("20.1", true),
            ("10.2", false),
            ("20.1", false),
        ] {
            assert_eq!(configurations.note(mark), is_news, "{mark}");
        }
        (0..100).for_each(|start| _ = configurations.note(&format!("{start}.1")));
        assert_eq!(configurations.0.len(), SERVERS_MAX);
    }

    #[test]
    fn a_change_begins_a_generation_at_its_address_and_is_counted_everywhere() {
        let everywhere = Arc::new(AtomicU64::new(0));
        let [one, other] = [0, 1].map(|number| LogIns::new(everywhere.clone(), number));
        let before = one.generation();
        one.begin_change();
        one.end_change();
        assert!(one.generation() > before);
        assert!(other.generation() != one.generation() && other.generation() != before);
        other.begin_change();
        other.end_change();
        assert_eq!(everywhere.load(Ordering::Acquire), 2);
    }

    #[test]
    fn a_standby_counts_each_change_of_its_primary_once_whatever_pools_it_has() {
        let [primary, standby] = [0, 1].map(|number| LogIns::new(Arc::default(), number));
        let first = standby.generation();
        for _ in 0..3 {
            standby.follow(&primary);
        }
        assert_eq!(standby.generation(), first);
        primary.begin_change();
        primary.end_change();
        standby.follow(&primary);
        let second = standby.generation();
        assert!(second > first);
        standby.follow(&primary);
        assert_eq!(standby.generation(), second);
        let before = primary.generation();
        for _ in 0..3 {
            primary.follow(&primary);
        }
        assert_eq!(primary.generation(), before, "it has no other one to follow");
    }
}
