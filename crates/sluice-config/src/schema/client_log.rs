//! The keys that have clients logged as they come and go.

use super::{Absent, Key};
use crate::kinds::Flag;

pub(crate) static LOG_CONNECTIONS: Key<Flag> = Key {
    name: "log_connections",
    kind: Flag,
    absent: Absent::Default("false"),
    meaning: "Whether each client that has logged in is logged, those of the admin console as well: `client logged in`, \
              with its `database`, `user`, address (`peer`), `tls` (`no`, or the version) and `application_name`. It is \
              off where PgBouncer's is on: applications that connect for each query would fill the log, and who is there \
              is told by `SHOW CLIENTS`. Clients that are refused or sent away are always logged (`client refused`), \
              with their `user` and `database` where these are known.",
};

pub(crate) static LOG_DISCONNECTIONS: Key<Flag> = Key {
    name: "log_disconnections",
    kind: Flag,
    absent: Absent::Default("false"),
    meaning: "The same of each client that had logged in and is gone: `client gone`, with the reason, and its age in \
              seconds (`age_s`).",
};
