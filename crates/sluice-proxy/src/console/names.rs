//! `SHOW DNS_HOSTS`: the names of servers, with their addresses.

use crate::resolver::{Known, Resolver};

use super::rows::{Table, Type};

/// The names that are resolved again and again, and the seconds until each is next. The addresses have a port as
/// PgBouncer's do, which is none.
pub(super) fn hosts(resolver: &Resolver) -> Table {
    let mut table = Table::new(&["hostname", "ttl", "addrs"], &["hostname", "addrs"]);
    for Known { host, addresses, time_left } in resolver.known() {
        let addresses: Vec<_> = addresses.iter().map(|address| format!("{address}:0")).collect();
        table.push([host.into(), time_left.as_secs().into(), addresses.join(",").into()]);
    }
    table
}

/// The zones that are watched: none, as with PgBouncer on most systems.
pub(super) fn zones() -> Table {
    Table::of(&["zonename", "serial", "count"], &["zonename"], Type::Int4).with_long(&["serial"])
}
