//! Messages about a key that nobody knows: it is misspelled, it belongs elsewhere, or it is PgBouncer's.

use toml_edit::Item;

use crate::{
    report::Fault,
    schema::{self, AnyKey, Table},
};

/// Settings of PgBouncer under another name here (PgBouncer's `config.md`), for those who come from there.
const PGBOUNCER: &[(&str, &str)] = &[
    ("auth_file", "auth.users_file"),
    ("auth_query", "auth.lookup.query"),
    ("auth_type", "auth.method"),
    ("auth_user", "auth.lookup.user"),
    ("client_idle_timeout", "limits.idle_client_timeout"),
    ("client_login_timeout", "limits.login_timeout"),
    ("default_pool_size", "pool.size"),
    ("listen_addr", "listen"),
    ("listen_port", "listen"),
    ("max_client_conn", "limits.clients"),
    ("max_db_client_connections", "database.clients"),
    ("max_db_connections", "database.servers"),
    ("max_prepared_statements", "pool.prepared_per_server"),
    ("max_user_client_connections", "limits.clients_per_user"),
    ("max_user_connections", "limits.servers_per_user"),
    ("min_pool_size", "pool.min"),
    ("pool_mode", "pool.mode"),
    ("pool_size", "database.pool.size"),
    ("query_wait_timeout", "pool.wait_timeout"),
    ("server_connect_timeout", "pool.connect_timeout"),
    ("server_login_retry", "pool.backoff_max"),
];

/// Whether a table has a key or a table of this name.
pub(crate) fn holds(schema: &Table, name: &str) -> bool {
    names(schema).any(|known| known == name)
}

/// The problem with an unknown key or table of a file, and the name that may have been meant.
pub(crate) fn unknown(file: &'static Table, schema: &'static Table, name: &str, item: &Item) -> Fault {
    let what = if item.is_table() || item.is_array_of_tables() { "unknown table" } else { "unknown key" };
    Fault::new(what, remedy(file, schema, name))
}

fn remedy(file: &'static Table, schema: &'static Table, name: &str) -> String {
    let near = nearest(names(schema), name);
    // What is a letter or two short is misspelled, whatever other tables have.
    if let Some(near) = near.filter(|near| near.starts_with(name)) {
        return format!("did you mean {near}?");
    }
    let mut homes = Vec::new();
    find_homes(file, name, &mut homes);
    if !homes.is_empty() {
        return format!("it belongs {}", homes.join(" or "));
    }
    let is_pools = std::ptr::eq(file, &schema::FILE);
    if let Some((_, path)) = PGBOUNCER.iter().find(|(theirs, _)| is_pools && *theirs == name) {
        return format!("PgBouncer's {name} is {path} here");
    }
    if let Some(near) = near {
        return format!("did you mean {near}?");
    }
    let place = if schema.path.is_empty() { "the top of the file".to_owned() } else { schema.header() };
    format!("leave it out; {place} has {}", names(schema).collect::<Vec<_>>().join(", "))
}

fn names(schema: &Table) -> impl Iterator<Item = &'static str> {
    let keys = schema.keys.iter().map(|key: &&dyn AnyKey| key.name());
    keys.chain(schema.tables.iter().map(|table| table.name()))
}

/// The tables that have a key of this name.
fn find_homes(schema: &Table, name: &str, homes: &mut Vec<String>) {
    if schema.keys.iter().any(|key| key.name() == name) {
        let before = "at the top of the file, before the first table".to_owned();
        homes.push(if schema.path.is_empty() { before } else { format!("in {}", schema.header()) });
    }
    for table in schema.tables {
        find_homes(table, name, homes);
    }
}

/// The name that most probably was meant: at most a third of its letters differ.
fn nearest(names: impl Iterator<Item = &'static str>, name: &str) -> Option<&'static str> {
    let candidates = names.map(|known| (distance(known, name), known));
    let near = candidates.filter(|(distance, known)| *distance <= (known.len() / 3).max(1));
    near.min().map(|(_, known)| known)
}

/// The edits between two names: letters put in, left out, replaced, or swapped with their neighbour (optimal string
/// alignment). Names longer than any key are not looked at.
fn distance(known: &str, name: &str) -> usize {
    const BYTES_MAX: usize = 64;
    let (a, b) = (known.as_bytes(), name.as_bytes());
    if b.len() > BYTES_MAX {
        return usize::MAX;
    }
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let cases =
            [("size", "size", 0), ("size", "sise", 1), ("size", "szie", 1), ("size", "", 4), ("min", "mint", 1)];
        for (known, name, edits) in cases {
            assert_eq!(distance(known, name), edits, "{known} {name}");
        }
    }

    #[test]
    fn what_is_a_letter_short_is_misspelled_though_other_tables_have_it() {
        let admin = schema::FILE.tables.iter().find(|table| table.name() == "admin").expect("it is there");
        assert_eq!(remedy(&schema::FILE, admin, "user"), "did you mean users?");
        assert!(remedy(&schema::FILE, admin, "password").starts_with("it belongs in "));
    }

    #[test]
    fn every_name_of_pgbouncer_leads_to_a_key() {
        fn paths(table: &Table, into: &mut Vec<String>) {
            into.extend(table.keys.iter().map(|key| table.path_of(key.name())));
            table.tables.iter().for_each(|table| paths(table, into));
        }
        let mut known = Vec::new();
        paths(&schema::FILE, &mut known);
        for (theirs, ours) in PGBOUNCER {
            assert!(known.iter().any(|path| path == ours), "{theirs} leads to {ours}");
        }
    }
}
