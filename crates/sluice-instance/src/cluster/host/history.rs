//! The places in the log at which timelines were left for the next ones: as data have them, in the history file of their
//! own timeline ("Timelines" in PostgreSQL's documentation), and as the cluster has them, in Patroni's words.

use std::{collections::BTreeMap, fs, io, path::Path};

use super::super::control::lsn;
use crate::files::if_there;

/// By timeline, the place at which it was left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct History(BTreeMap<u64, u64>);

impl History {
    /// Of data on `timeline`; the first has no file.
    pub(super) fn of_data(pgdata: &Path, timeline: u64) -> io::Result<Self> {
        let text = if_there(fs::read_to_string(pgdata.join(format!("pg_wal/{timeline:08X}.history"))))?;
        Ok(Self::from_file(&text.unwrap_or_default()))
    }

    /// Lines of a timeline, a place and a reason; others are remarks.
    fn from_file(text: &str) -> Self {
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            Some((words.next()?.parse().ok()?, lsn(words.next()?)?))
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// Of a cluster, by `GET /history` of Patroni: lists that begin with a timeline and a place in bytes.
    pub(super) fn of_cluster(answer: &[u8]) -> Option<Self> {
        let lines: Vec<Vec<serde_json::Value>> = serde_json::from_slice(answer).ok()?;
        let places = lines.iter().map(|line| Some((line.first()?.as_u64()?, line.get(1)?.as_u64()?)));
        places.collect::<Option<_>>().map(Self)
    }

    /// The first timeline that the two left at different places: what follows it in the one is not in the other. Those
    /// that one of them does not know say nothing.
    pub(super) fn parting(&self, other: &Self) -> Option<u64> {
        let differs = |(timeline, place): &(&u64, &u64)| other.0.get(timeline).is_some_and(|theirs| theirs != *place);
        self.0.iter().find(differs).map(|(timeline, _)| *timeline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "1\t0/3000148\tno recovery target specified\n\n# a remark\n2\t1/A0\tbefore 2026-11-28\n";

    #[test]
    fn a_file_and_patronis_answer_say_the_same() {
        let file = History::from_file(FILE);
        assert_eq!(file.0, [(1, 0x300_0148), (2, 0x1_0000_00a0)].into());
        let answer = br#"[[1, 50331976, "no recovery target specified", "2026-11-28T09:00:00+00:00", "node2"], [2, 4294967456]]"#;
        assert_eq!(History::of_cluster(answer), Some(file));
        assert_eq!(History::of_cluster(b"[]"), Some(History::default()));
        assert_eq!(History::of_cluster(b"[[1]]"), None);
        assert_eq!(History::of_cluster(b"busy"), None);
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
