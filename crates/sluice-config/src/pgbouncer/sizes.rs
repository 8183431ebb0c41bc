//! Sizes of pools, which PgBouncer takes as they come, and Sluice only where they can stand together.

use toml_edit::{Item, Table, value};

use super::{Conversion, Entry};

/// The largest size of a pool.
const SIZE_MAX: i64 = 10_000;

/// The most that `limits.servers` may be.
const SERVERS_MAX: i64 = 100_000;

/// Sluice's limit of servers over all pools, where none is given, and both programs' size of a pool.
const SERVERS: i64 = 500;
const SIZE: i64 = 20;

impl Conversion {
    /// A pool's size or minimum by a setting, which may be a part of the entry's value; `None` if it says nothing.
    pub(super) fn size(&mut self, entry: &Entry, key: &str, text: &str) -> Option<i64> {
        let of_part = |what: String| if key == entry.key { what } else { format!("{key}: {what}") };
        let Ok(number) = text.parse::<i64>() else {
            let what = of_part(format!("{text:?} is no number"));
            self.wrong(entry, what, "write it as PgBouncer's documentation says");
            return None;
        };
        if number < 0 && key != "default_pool_size" {
            // A database's own is then that of all.
            return None;
        }
        let least = i64::from(key != "min_pool_size");
        let taken = number.clamp(least, SIZE_MAX);
        if taken == number {
            return Some(number);
        }
        let why = match taken {
            SIZE_MAX => "that is the most there may be",
            _ => "PgBouncer opens one server all the same",
        };
        self.note(entry, &of_part(format!("{number} becomes {taken}: {why}")));
        Some(taken)
    }

    /// Has minima stay within their pools' sizes, and all that has to be there at once within the limit of the process,
    /// which PgBouncer does not have.
    pub(super) fn fit_sizes(&mut self) {
        let of = |table: &Table, key: &str| table.get(key).and_then(Item::as_integer);
        let size = of(&self.pool, "size").unwrap_or(SIZE);
        let (mut largest, mut all_min, mut lowered) = (size, 0, Vec::new());
        let min = self.fit_min(size);
        for database in &mut self.databases {
            let name = database.get("name").and_then(Item::as_str).unwrap_or_default().to_owned();
            let own = database.get("pool").and_then(Item::as_table);
            let size = own.and_then(|own| of(own, "size")).unwrap_or(size);
            let mut min = own.and_then(|own| of(own, "min")).unwrap_or(min);
            if min > size {
                lowered.push((name, min, size));
                min = size;
                let own = database.entry("pool").or_insert_with(|| Item::Table(Table::new()));
                if let Some(own) = own.as_table_mut() {
                    own.insert("min", value(min));
                }
            }
            largest = largest.max(size);
            all_min += min;
        }
        for (name, min, size) in lowered {
            let what = format!("{min} of {name:?} becomes {size}: a pool has no more servers than its size");
            self.say(None, "min_pool_size", what, true);
        }
        let needed = largest.max(all_min);
        if needed > SERVERS {
            self.limits.insert("servers", value(needed.min(SERVERS_MAX)));
            let what = format!("limits.servers, which all pools share, is raised from {SERVERS} for them");
            self.say(None, "pool_size", what, true);
        }
    }

    /// The minimum of all databases that have none of their own, within their size.
    fn fit_min(&mut self, size: i64) -> i64 {
        let min = self.pool.get("min").and_then(Item::as_integer).unwrap_or_default();
        if min > size {
            self.pool.insert("min", value(size));
            let what = format!("{min} becomes {size}: a pool has no more servers than its size");
            self.say(None, "min_pool_size", what, true);
        }
        min.min(size)
    }
}
