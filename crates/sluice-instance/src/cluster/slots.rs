//! Logical replication slots as one node has them, and whether it could serve them as the primary: Patroni copies a slot
//! without the log and without the snapshots that its decoding begins with, and says nothing where they are missing.

use std::{collections::BTreeSet, io};

use postgres::Client;

use super::peer::Reach;

const SLOTS: &str = "SELECT slot_name::text, coalesce(restart_lsn - '0/0', 0)::int8, \
                     coalesce(confirmed_flush_lsn - '0/0', 0)::int8, coalesce(wal_status, '') = 'lost' \
                     FROM pg_catalog.pg_replication_slots WHERE slot_type = 'logical'";
/// By the names of files, without their timelines. Folders are read as pg_rewind's role may read them.
const OLDEST: &str = "SELECT pg_catalog.min(substr(name, 9)), \
                      (SELECT setting::int8 FROM pg_catalog.pg_settings WHERE name = 'wal_segment_size') \
                      FROM pg_catalog.pg_ls_dir('pg_wal', true, false) name WHERE name ~ '^[0-9A-F]{24}$'";
const SNAPSHOTS: &str = "SELECT name FROM pg_catalog.pg_ls_dir('pg_logical/snapshots', true, false) name";

/// A logical slot; places in the log are bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slot {
    name: String,
    restart: u64,
    confirmed: u64,
    is_lost: bool,
}

/// The logical slots of a node, and what they are served from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogicalSlots {
    slots: Vec<Slot>,
    /// The begin of the oldest file of the log.
    oldest: u64,
    /// The places in the log at which decoding can begin.
    snapshots: BTreeSet<u64>,
}

/// The reason why a node can't serve a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unserved {
    /// No PostgreSQL runs there: it stops for a moment when Patroni copies a slot, again and again where that fails.
    Away,
    /// It is not there.
    Missing,
    /// The log that it needs is not there.
    NoLog,
    /// Decoding may be consistent too late: transactions that its subscriber lacks would be left out.
    NoSnapshot,
}

impl LogicalSlots {
    /// Asks a node's PostgreSQL; `None` where none runs.
    ///
    /// # Errors
    ///
    /// The data directory can't be read, whoever asks is not let in, or it does not answer.
    pub fn ask(node: Reach<'_>) -> io::Result<Option<Self>> {
        node.ask(Self::told)
    }

    fn told(client: &mut Client) -> Result<Self, postgres::Error> {
        let bytes = |number: i64| u64::try_from(number).unwrap_or_default();
        let rows = client.query(SLOTS, &[])?;
        let slots = rows.iter().map(|row| Slot {
            name: row.get(0),
            restart: bytes(row.get(1)),
            confirmed: bytes(row.get(2)),
            is_lost: row.get(3),
        });
        let slots = slots.collect();
        let row = client.query_one(OLDEST, &[])?;
        let oldest = row.get::<_, Option<String>>(0).and_then(|name| begin_of(&name, bytes(row.get(1))));
        let names = client.query(SNAPSHOTS, &[])?;
        let snapshots = names.iter().filter_map(|row| place_of(row.get(0))).collect();
        // Without a file nothing is served.
        Ok(Self { slots, oldest: oldest.unwrap_or(u64::MAX), snapshots })
    }

    /// The reason why the node could not serve that slot as the primary.
    pub fn unserved(&self, name: &str) -> Option<Unserved> {
        let Some(slot) = self.slots.iter().find(|slot| slot.name == name) else { return Some(Unserved::Missing) };
        if slot.is_lost || slot.restart < self.oldest {
            return Some(Unserved::NoLog);
        }
        let has_snapshot =
            slot.restart <= slot.confirmed && self.snapshots.range(slot.restart..=slot.confirmed).next().is_some();
        (!has_snapshot).then_some(Unserved::NoSnapshot)
    }
}

/// The place at which a file of the log begins, by its name behind the timeline.
fn begin_of(name: &str, segment_bytes: u64) -> Option<u64> {
    let (high, low) = name.split_at_checked(8)?;
    Some((u64::from_str_radix(high, 16).ok()? << 32) + u64::from_str_radix(low, 16).ok()? * segment_bytes)
}

/// The place of a snapshot, by its file's name: `0-15A3D48.snap`.
fn place_of(name: &str) -> Option<u64> {
    let (high, low) = name.strip_suffix(".snap")?.split_once('-')?;
    Some(u64::from_str_radix(high, 16).ok()? << 32 | u64::from(u32::from_str_radix(low, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_served_from_log_and_snapshot() {
        assert_eq!(begin_of("0000000100000002", 16 << 20), Some(0x1_0200_0000));
        assert_eq!(place_of("1-15A3D48.snap"), Some(0x1_015a_3d48));
        assert_eq!(place_of("1-15A3D48.snap.4711.tmp"), None);
        let slot = |restart, confirmed| Slot { name: "a".to_owned(), restart, confirmed, is_lost: false };
        let here = |slot: Slot| LogicalSlots { slots: vec![slot], oldest: 100, snapshots: [150, 300].into() };
        for (restart, confirmed, reason) in [
            (150, 200, None),
            (120, 150, None),
            (99, 200, Some(Unserved::NoLog)),
            (100, 149, Some(Unserved::NoSnapshot)),
            (151, 299, Some(Unserved::NoSnapshot)),
            (200, 100, Some(Unserved::NoSnapshot)),
        ] {
            assert_eq!(here(slot(restart, confirmed)).unserved("a"), reason, "{restart} {confirmed}");
        }
        let lost = Slot { is_lost: true, ..slot(150, 200) };
        assert_eq!(here(lost.clone()).unserved("a"), Some(Unserved::NoLog));
        assert_eq!(here(lost).unserved("b"), Some(Unserved::Missing));
    }
}
