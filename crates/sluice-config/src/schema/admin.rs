//! `[admin]`: the console.

use super::{Absent, Key, NAME, Table};
use crate::kinds::{Names, Text};

pub(crate) static ADMIN: Table = Table {
    path: "admin",
    many: false,
    meaning: "The admin console, which clients reach as a database: `psql -h … -p … -U … pgbouncer`, and then `SHOW HELP`. \
              Without this table there is none.",
    keys: &[&ADMIN_DATABASE, &ADMIN_USERS, &ADMIN_STATS_USERS],
    tables: &[],
};

pub(crate) static ADMIN_DATABASE: Key<Text> = Key {
    name: "database",
    kind: NAME,
    absent: Absent::Default("\"pgbouncer\""),
    meaning: "The name of that database. No `[[database]]` may have it.",
};

/// The name of the admin console's database.
pub(crate) const CONSOLE: &str = "pgbouncer";

pub(crate) static ADMIN_USERS: Key<Names> = Key {
    name: "users",
    kind: Names { count_max: 100 },
    absent: Absent::Means("nobody"),
    meaning: "Users that may do everything there. They prove who they are like all others; but one that is the `user` of \
              `[auth.lookup]`, with its `password` in this file or another, goes by that, so that it gets in while no \
              server can be asked.",
};

pub(crate) static ADMIN_STATS_USERS: Key<Names> = Key {
    name: "stats_users",
    kind: Names { count_max: 100 },
    absent: Absent::Means("nobody"),
    meaning: "Users that may only look: `SHOW`.",
};
