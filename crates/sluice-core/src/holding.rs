//! The contents of a session, of which a fresh one has none: settings, and what can't follow a client to another
//! server.
//!
//! The server itself says it: with Sluice's extension by a reported parameter, which comes when it changes
//! (docs/session-report.md); without it in answer to a probe ([`crate::probe`]), which is taken where the texts of
//! statements do not show that nothing was left. Both come in the same words: `pins=temp,lock set=6162:31,...`, names
//! and values of settings in hexadecimal, and in `made=` those of the custom settings that there are.

use std::collections::BTreeSet;

use bitflags::bitflags;

use crate::profile::{Profile, Settings};

/// The reported parameter in which the extension says what the session holds.
pub const SESSION_PARAMETER: &str = "sluice.session";

/// The reported parameter in which it counts changes of the catalogs.
pub const CATALOG_PARAMETER: &str = "sluice.catalog";

/// The reported parameter in which it counts reloads of the configuration.
pub const CONFIGURATION_PARAMETER: &str = "sluice.configuration";

/// Whether a reported parameter is the pool's own concern: clients do not get to see it.
pub fn is_own_parameter(name: &str) -> bool {
    name.starts_with("sluice.")
}

bitflags! {
    /// Things that tie a client to its server.
    #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
    pub struct Pins: u16 {
        /// Objects in the session's temporary schema.
        const TEMPORARY = 1;
        /// Advisory locks of the session.
        const LOCK = 1 << 1;
        /// `LISTEN`.
        const LISTEN = 1 << 2;
        /// Cursors `WITH HOLD`.
        const CURSOR = 1 << 3;
        /// SQL's `PREPARE`.
        const PREPARE = 1 << 4;
        /// The use of a sequence, which `currval` and `lastval` tell of.
        const SEQUENCE = 1 << 5;
        /// A seed, which nothing resets.
        const SEED = 1 << 6;
        /// A library, or something else that stays until the process ends.
        const LIBRARY = 1 << 7;
        /// A statement whose literals mean what they do only where it was parsed.
        const LITERAL = 1 << 8;
        /// A thing that the server has told of in words that the pool does not know.
        const UNKNOWN = 1 << 9;
        /// A setting that only superusers may set, in a session of another role: by a function, or as it was one.
        const PRIVILEGED = 1 << 10;
        /// Values that functions keep: in other languages than SQL and PL/pgSQL, or dblink's connections.
        const STATE = 1 << 11;
        /// Settings that are too large to be told: those that were told before may have changed.
        const SETTINGS = 1 << 12;
    }
}

impl Pins {
    /// Those that a client may lose: others need its server more.
    pub const SOFT: Self = Self::SEQUENCE.union(Self::LITERAL);

    /// Those that only the end of the server's process takes away, or that it is not known what does.
    pub const SPENT: Self =
        Self::SEED.union(Self::LIBRARY).union(Self::STATE).union(Self::UNKNOWN).union(Self::SETTINGS);

    /// Their names, in the extension and in messages.
    const NAMES: [(Self, &str); 13] = [
        (Self::TEMPORARY, "temp"),
        (Self::LOCK, "lock"),
        (Self::LISTEN, "listen"),
        (Self::CURSOR, "cursor"),
        (Self::PREPARE, "prepare"),
        (Self::SEQUENCE, "sequence"),
        (Self::SEED, "seed"),
        (Self::LIBRARY, "load"),
        (Self::LITERAL, "literal"),
        (Self::UNKNOWN, "unknown"),
        (Self::PRIVILEGED, "privileged"),
        (Self::STATE, "state"),
        (Self::SETTINGS, "settings"),
    ];

    /// The words for them in an error, in the same order.
    const WORDS: [&str; Self::NAMES.len()] = [
        "temporary objects",
        "session-level advisory locks",
        "a LISTEN",
        "cursors WITH HOLD",
        "statements of SQL's PREPARE",
        "the last value of a sequence",
        "a random seed",
        "a loaded library",
        "a statement with a time-dependent literal",
        "something that this version of the pool does not know",
        "a setting that only superusers may set",
        "values that a function keeps",
        "settings that are too large to be carried to another server",
    ];

    /// For the client whose session holds them: "temporary objects, a LISTEN".
    pub fn in_words(self) -> String {
        let named = Self::NAMES.iter().zip(Self::WORDS).filter(|((pin, _), _)| self.contains(*pin));
        named.map(|(_, words)| words).collect::<Vec<_>>().join(", ")
    }

    /// Whether there are some, and a client may lose them all.
    pub fn are_soft(self) -> bool {
        !self.is_empty() && !self.are_lasting()
    }

    /// Whether a client may not lose its server because of them.
    pub fn are_lasting(self) -> bool {
        !Self::SOFT.contains(self)
    }

    fn read(text: &str) -> Option<Self> {
        list(text).try_fold(Self::empty(), |pins, name| {
            let (pin, _) = Self::NAMES.iter().find(|(_, known)| *known == name)?;
            Some(pins | *pin)
        })
    }
}

impl std::fmt::Display for Pins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = Self::NAMES.iter().filter(|(pin, _)| self.contains(*pin)).map(|(_, name)| *name);
        f.write_str(&names.collect::<Vec<_>>().join(", "))
    }
}

/// The number of sessions that hold each kind of thing. Shown as `temp=2 lock=1`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PinCounts([u32; Pins::NAMES.len()]);

impl PinCounts {
    /// Of what these sessions hold.
    pub fn of(sessions: impl Iterator<Item = Pins>) -> Self {
        let mut counts = Self::default();
        for pins in sessions {
            for ((pin, _), count) in Pins::NAMES.iter().zip(&mut counts.0) {
                *count += u32::from(pins.contains(*pin));
            }
        }
        counts
    }
}

impl std::fmt::Display for PinCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let held = Pins::NAMES.iter().zip(self.0).filter(|(_, count)| *count > 0);
        f.write_str(&held.map(|((_, name), count)| format!("{name}={count}")).collect::<Vec<_>>().join(" "))
    }
}

/// The contents of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The pins that tie its client to it.
    pub pins: Pins,
    /// Its settings, as PostgreSQL itself states them.
    pub profile: Profile,
    /// The custom settings that there are, set or not.
    pub made: BTreeSet<String>,
    /// The statements that it has prepared by the protocol, where it speaks of them.
    pub statements: Option<Prepared>,
    /// Whether it has called functions that are not PostgreSQL's own.
    pub ran_functions: bool,
}

/// A word on the statements that a session has prepared by the protocol: a function may have deallocated them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// There are so many.
    Count(usize),
    /// It has so often deallocated some of them.
    Deallocated(u32),
}

impl Holding {
    /// A report that can't be read: nobody but the client goes on with that session.
    pub fn unknown(profile: Profile) -> Self {
        Self { pins: Pins::UNKNOWN, profile, made: BTreeSet::new(), statements: None, ran_functions: true }
    }

    /// Reads what the server says; `None` if that makes no sense.
    pub fn read(text: &str) -> Option<Self> {
        let (mut pins, mut settings, mut made) = (Pins::empty(), Settings::new(), BTreeSet::new());
        let mut statements = Some(Prepared::Deallocated(0));
        let mut ran_functions = false;
        for field in text.split(' ').filter(|field| !field.is_empty()) {
            match field.split_once('=')? {
                ("pins", names) => pins |= Pins::read(names)?,
                ("deallocated", times) => statements = Some(Prepared::Deallocated(times.parse().ok()?)),
                ("statements", count) => statements = Some(Prepared::Count(count.parse().ok()?)),
                ("ran", "functions") => ran_functions = true,
                ("made", names) => {
                    for name in list(names) {
                        made.insert(String::from_utf8(unhex(name)?).ok()?.to_ascii_lowercase());
                    }
                }
                ("set", pairs) => {
                    for setting in list(pairs) {
                        let (name, value) = setting.split_once(':')?;
                        let name = String::from_utf8(unhex(name)?).ok()?;
                        settings.insert(name.to_ascii_lowercase(), unhex(value)?.into());
                    }
                }
                _ => return None,
            }
        }
        let read = Self { pins, profile: Profile::default(), made, statements, ran_functions };
        Some(read.with(settings))
    }

    /// The same with these settings.
    #[must_use]
    pub fn with(mut self, settings: Settings) -> Self {
        self.made.extend(settings.keys().filter(|name| name.contains('.')).cloned());
        self.profile = Profile::new(settings);
        self
    }
}

/// The parts of a list, which may be empty.
fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|part| !part.is_empty())
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_in_words_what_is_held() {
        assert_eq!(Pins::TEMPORARY.in_words(), "temporary objects");
        assert_eq!(
            (Pins::PRIVILEGED | Pins::LOCK).in_words(),
            "session-level advisory locks, a setting that only superusers may set"
        );
    }

    #[test]
    fn holdings_are_read() {
        let holding =
            Holding::read("pins=temp,seed set=54696d655a6f6e65:555443,612e62: made=632e64").expect("it is well-formed");
        assert_eq!(holding.pins, Pins::TEMPORARY | Pins::SEED);
        assert_eq!(holding.pins.to_string(), "temp, seed");
        assert_eq!(holding.profile.get("timezone"), Some(&b"UTC"[..]));
        assert_eq!(holding.profile.get("a.b"), Some(&b""[..]));
        assert!(holding.made.iter().eq(["a.b", "c.d"]));
        assert_eq!(Holding::read("").map(|holding| holding.pins), Some(Pins::empty()));
        for bad in ["pins=frog", "set=6:31", "set=zz:31", "x", "set=61"] {
            assert_eq!(Holding::read(bad), None, "{bad}");
        }
    }
}
