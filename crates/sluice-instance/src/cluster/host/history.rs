//! The places in the log at which timelines were left for the next ones, in the history file of a timeline ("Timelines"
//! in PostgreSQL's documentation): as the data here have it, and as the primary has its own. Patroni's `/history` may
//! keep what became of a promotion that was lost.

use std::{collections::BTreeMap, fs, io, path::Path};

use sluice_tls::ClientTls;

use super::super::{control::lsn, peer};
use crate::files::if_there;

/// As pg_rewind's role may read it.
const READ: &str = "SELECT pg_catalog.convert_from(pg_catalog.pg_read_binary_file($1), 'SQL_ASCII')";

/// By timeline, the place at which it was left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct History(BTreeMap<u64, u64>);

impl History {
    /// Of data on `timeline`; the first has no file.
    pub(super) fn of_data(pgdata: &Path, timeline: u64) -> io::Result<Self> {
        let text = if_there(fs::read_to_string(pgdata.join(file(timeline))))?;
        Ok(Self::from_file(&text.unwrap_or_default()))
    }

    /// Of the primary on another host, which is on `timeline`.
    pub(super) fn of_primary(host: &str, port: u16, tls: &ClientTls, timeline: u64) -> io::Result<Self> {
        if timeline == 1 {
            return Ok(Self::default());
        }
        let text: String =
            peer::ask(host, port, tls, move |client| Ok(client.query_one(READ, &[&file(timeline)])?.get(0)))?;
        Ok(Self::from_file(&text))
    }

    /// The place at which a timeline was left; none of one that it was never on, or is on.
    pub(super) fn left(&self, timeline: u64) -> Option<u64> {
        self.0.get(&timeline).copied()
    }

    /// Lines of a timeline, a place and a reason; others are remarks.
    pub(super) fn from_file(text: &str) -> Self {
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            Some((words.next()?.parse().ok()?, lsn(words.next()?)?))
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// The first timeline that the two left at different places: what follows it in the one is not in the other. Those
    /// that one of them does not know say nothing.
    pub(super) fn parting(&self, other: &Self) -> Option<u64> {
        let differs = |(timeline, place): &(&u64, &u64)| other.0.get(timeline).is_some_and(|theirs| theirs != *place);
        self.0.iter().find(differs).map(|(timeline, _)| *timeline)
    }
}

/// Below a data directory.
fn file(timeline: u64) -> String {
    format!("pg_wal/{timeline:08X}.history")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "1\t0/3000148\tno recovery target specified\n\n# a remark\n2\t1/A0\tbefore 2026-11-28\n";

    #[test]
    fn a_file_has_places_reasons_and_remarks() {
        assert_eq!(History::from_file(FILE).0, [(1, 0x300_0148), (2, 0x1_0000_00a0)].into());
        assert_eq!(History::from_file(""), History::default());
    }

    #[test]
    fn histories_part_where_a_timeline_was_left_at_different_places() {
        let history = |places: &[(u64, u64)]| History(places.iter().copied().collect());
        let cluster = history(&[(1, 100), (2, 200), (3, 300)]);
        for (data, parting) in [
            (history(&[]), None),
            (history(&[(1, 100)]), None),
            (history(&[(1, 100), (2, 200), (3, 300), (4, 400)]), None),
            (history(&[(1, 100), (2, 199)]), Some(2)),
            (history(&[(1, 101), (2, 201)]), Some(1)),
        ] {
            assert_eq!(data.parting(&cluster), parting, "{data:?}");
        }
    }
}
