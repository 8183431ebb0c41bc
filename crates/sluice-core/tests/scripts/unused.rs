//! Pools that nobody uses: what is kept of them, and for how long.

use std::time::Duration;

use sluice_control::{Database, access::Method};
use sluice_core::time::Time;

use crate::{
    one,
    table::{Table, answers, limits, query, scripted},
};

#[test]
fn a_pool_that_nobody_uses_is_forgotten_where_no_database_is_named() {
    const HOUR: Duration = Duration::from_secs(3600);
    for is_named in [false, true] {
        let mut table = Table::limited(one(), limits(), Method::Trust);
        if is_named {
            table.publishes(Database { name: Some("app".to_owned()), ..scripted(one()) });
        }
        let client = table.client();
        table.says(client, &query("SELECT 1"));
        table.says(table.servers()[0], &answers("C(SELECT 1) Z(I)"));
        table.hangs_up(client);
        // It has an idle server, which goes first.
        table.passes(Duration::from_secs(599));
        assert_eq!((table.pools(), table.servers().len()), (1, 1));
        table.passes(Duration::from_secs(1));
        assert_eq!((table.pools(), table.servers().len()), (1, 0));
        table.passes(Duration::from_secs(1));
        table.passes(HOUR - Duration::from_secs(1));
        assert_eq!(table.pools(), 1, "somebody may come back");
        let again = table.client();
        table.passes(Duration::from_secs(2));
        table.hangs_up(again);
        table.servers().into_iter().for_each(|server| table.hangs_up(server));
        table.passes(Duration::from_secs(1));
        table.passes(HOUR - Duration::from_secs(1));
        assert_eq!(table.pools(), 1, "somebody came back");
        table.passes(Duration::from_secs(1));
        let counted: Vec<_> = table.hub().figures(Time(0)).pools.iter().map(|it| it.traffic.queries.count()).collect();
        assert_eq!(counted, if is_named { vec![1] } else { vec![] }, "what is counted counts since the start");
    }
}

/// What a server has reported at its log-in is no word of another one, which nobody has seen yet.
#[test]
fn what_a_server_has_told_is_forgotten_a_minute_behind_the_last_one() {
    for (seconds, is_told) in [(50, true), (70, false)] {
        let mut table = Table::limited(one(), limits(), Method::Trust);
        let client = table.client();
        table.passes(Duration::from_secs(600));
        assert_eq!(table.servers().len(), 0, "it was idle");
        for _ in 0..seconds {
            table.passes(Duration::from_secs(1));
        }
        let next = table.stranger("app");
        assert_eq!(table.hears(next).ends_with("Z(I)"), is_told, "{seconds} s");
        assert!(!table.is_closed(client));
    }
}
