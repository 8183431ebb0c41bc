//! The state of the nodes and the pools.

use std::{
    io::{self, Write},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use sluice_patroni::{AskError, Lag, Member, Members, Own};
use sluice_units::readable_bytes;

use super::{
    moment::since,
    pools::{Pools, Seen},
    settings::is_on,
    slots,
    target::Target,
};

/// The time for the pools to let this command in: what is known of the nodes is not to wait for them.
const POOL_TIME: Duration = Duration::from_secs(5);

/// The time since the primary heard from etcd is shorter, or its clock is another one.
const CLOCKS_APART_MAX: Duration = Duration::from_secs(60);

/// A node, as it is shown.
#[derive(Debug, PartialEq)]
struct Node {
    name: String,
    role: String,
    state: String,
    timeline: Option<u64>,
    receive_lag: Option<u64>,
    replay_lag: Option<u64>,
    lag_time: Option<Duration>,
    synchronous: &'static str,
    version: Option<String>,
    postgres: Option<String>,
    rest: Option<String>,
    pending_restart: Vec<String>,
    /// Why it does not speak for itself: the rest is what it has said last.
    silence: Option<String>,
}

/// Shows them.
pub(super) fn show(target: &Target, as_json: bool) -> Result<()> {
    let (members, lacks_majority, notes) = thread::scope(|scope| {
        let lacks_majority = scope.spawn(|| target.lacks_majority());
        let notes = scope.spawn(|| target.notes());
        (target.look_patiently(), lacks_majority.join().unwrap_or(false), notes.join().unwrap_or_default())
    });
    let (members, is_late) = match members {
        Err(_) if lacks_majority => return Err(target.no_majority()),
        members => members?,
    };
    let own = target.own_words(&members);
    // Without a primary they are late, and say nothing.
    let settings = members.holder().and_then(|_| target.settings(&members).ok());
    let settings = settings.map_or(Value::Null, |(_, settings)| settings);
    let of_slots = slots::notes(target, &members, &settings);
    let of_standbys = unfed(&members).into_iter().chain(unconfirmed(&members, &settings));
    let notes: Vec<_> = notes.into_iter().chain(of_slots).chain(of_standbys).collect();
    let doubt = doubt(&members, &own, (lacks_majority, is_late));
    let primary = members.members.iter().zip(&own).find(|(member, _)| member.is_leader());
    let end = primary.and_then(|(_, own)| own.as_ref().ok()?.log.as_ref()?.location);
    // Of that, times of its transactions can be told from times here.
    let now = primary.and_then(|(_, own)| common_time(own.as_ref().ok()?, SystemTime::now()));
    let nodes: Vec<Node> =
        members.members.iter().zip(&own).map(|(member, own)| node(member, own.as_ref(), end, now)).collect();
    let mut pools = Pools::connect_within(POOL_TIME, &target.pools, target.cluster.as_deref(), &members.scope)?;
    let seen: Vec<_> = pools.seen().into_iter().collect();
    let mut out = io::stdout().lock();
    let text = if as_json {
        let value = as_value(&members, doubt.as_deref(), &nodes, &notes, (&seen, &pools.faults));
        serde_json::to_string_pretty(&value).map_err(|error| anyhow!("{error}"))? + "\n"
    } else {
        page(&members, doubt.as_deref(), &nodes, &notes, (&seen, &pools.faults))
    };
    // Whoever reads it may have enough.
    let _ = out.write_all(text.as_bytes());
    if lacks_majority {
        return Err(target.no_majority());
    }
    Ok(())
}

/// The reason why what members tell of the primary may not be so: they tell what they have last heard from etcd.
fn doubt(members: &Members, own: &[Result<Own, AskError>], (lacks_majority, is_late): (bool, bool)) -> Option<String> {
    if lacks_majority {
        return Some("etcd has no majority, so what follows is what the nodes knew last".to_owned());
    }
    if is_late {
        return Some("the nodes answer late, as without an etcd: it may have no majority".to_owned());
    }
    let (leader, own) = members.members.iter().zip(own).find(|(member, _)| member.is_leader())?;
    let name = &leader.name;
    match own {
        Ok(own) if own.role == "primary" => None,
        Ok(own) => Some(format!(
            "{name} itself says that it is {}, {}: another primary comes, or Patroni does not reach etcd",
            own.role, own.state
        )),
        Err(error) => Some(format!("{name} itself does not answer ({error}): it may be gone")),
    }
}

/// Standbys that run on the primary's timeline and receive nothing from it. For a moment that is so behind each
/// failover; for good, where two nodes were promoted to a timeline of the same number: Patroni goes by the number, and
/// sees no need to rewind.
fn unfed(members: &Members) -> Vec<String> {
    let Some(primary) = members.members.iter().find(|member| member.is_leader() && member.state == "running") else {
        return Vec::new();
    };
    let is_unfed = |member: &&Member| {
        !member.is_leader()
            && member.state == "running"
            && member.timeline.is_some_and(|own| primary.timeline == Some(own))
    };
    let note = |Member { name, .. }: &Member| {
        format!(
            "{name} receives nothing from the primary {}. If that stays so, its log says why; where that is `invalid \
             resource manager ID` or `requested starting point … is ahead`, its data have parted from the primary's: \
             sluice cluster reinit {name}",
            primary.name
        )
    };
    members.members.iter().filter(is_unfed).map(note).collect()
}

/// That no standby confirms commits which are to wait for one: what becomes of them, and of the primary's place.
fn unconfirmed(members: &Members, settings: &Value) -> Option<String> {
    let primary = members.leader()?;
    let mut synchronous = members.members.iter().filter(|member| !member.is_leader() && member.is_synchronous());
    let has_any = synchronous.clone().next().is_some();
    if !is_on(&settings["synchronous_mode"]) || synchronous.any(|member| member.state == "streaming") {
        return None;
    }
    let commits = match (is_on(&settings["synchronous_mode_strict"]), has_any) {
        (true, _) => "commits wait until one does",
        (false, true) => "commits wait until one does, or Patroni has them go on without",
        (false, false) => "commits go on without, and are on the primary's disk only",
    };
    let place = if has_any { "" } else { ". Until then nobody may take the primary's place" };
    Some(format!("no synchronous standby streams from the primary {primary}: {commits}{place}"))
}

/// The time, where the primary's clock shows about the same; none where that differs, or can't be known.
fn common_time(primary: &Own, now: SystemTime) -> Option<SystemTime> {
    let seen = UNIX_EPOCH + Duration::from_secs(primary.dcs_last_seen?);
    let apart = now.duration_since(seen).unwrap_or_else(|error| error.duration());
    (apart <= CLOCKS_APART_MAX).then_some(now)
}

/// `end` is how far the primary's log goes, by its own words of this moment; `now` the time by its clock.
fn node(member: &Member, own: Result<&Own, &AskError>, end: Option<u64>, now: Option<SystemTime>) -> Node {
    let silence = own.err().map(ToString::to_string);
    let own = own.ok();
    let log = own.and_then(|own| own.log.as_ref());
    let lag = |place: Option<u64>, told: &Option<Lag>| {
        let of_now = end.zip(place).map(|(end, place)| end.saturating_sub(place));
        of_now.or_else(|| told.as_ref().and_then(Lag::bytes)).filter(|_| !member.is_leader())
    };
    let receive_lag = lag(log.and_then(|log| log.received_location), &member.receive_lag);
    let replay_lag = lag(log.and_then(|log| log.replayed_location), &member.replay_lag);
    let lag_time = match replay_lag {
        // Whatever the time of the last transaction is, it has all of them.
        Some(0) => Some(Duration::ZERO),
        Some(_) => log.and_then(|log| since(log.replayed_timestamp.as_deref()?, now?)),
        None => None,
    };
    Node {
        name: member.name.clone(),
        role: member.role.replace('_', " "),
        state: member.state.clone(),
        timeline: member.timeline.or_else(|| own?.timeline.map(u64::from)),
        receive_lag,
        replay_lag,
        lag_time,
        synchronous: match &*member.role {
            "sync_standby" => "sync",
            "quorum_standby" => "quorum",
            "replica" => "async",
            _ => "-",
        },
        version: own.and_then(|own| own.server_version).map(version),
        postgres: member.address().map(|address| address.to_string()),
        rest: member.rest().map(|rest| rest.to_string()),
        pending_restart: pending(member),
        silence,
    }
}

/// The settings that wait for a restart of a node.
pub(super) fn pending(member: &Member) -> Vec<String> {
    let Some(reasons) = member.pending_restart_reason.as_object().filter(|_| member.pending_restart) else {
        return if member.pending_restart { vec!["a restart is due".to_owned()] } else { Vec::new() };
    };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let reason = |(name, values): (&String, &Value)| {
        format!("{name}: {} -> {}", text(&values["old_value"]), text(&values["new_value"]))
    };
    reasons.iter().map(reason).collect()
}

fn version(number: u32) -> String {
    format!("{}.{}", number / 10_000, number % 10_000)
}

fn as_value(
    members: &Members,
    doubt: Option<&str>,
    nodes: &[Node],
    notes: &[String],
    (seen, faults): (&[(String, Result<Seen>)], &[String]),
) -> Value {
    let node = |node: &Node| {
        json!({
            "name": node.name,
            "role": node.role,
            "state": node.state,
            "timeline": node.timeline,
            "receive_lag_bytes": node.receive_lag,
            "replay_lag_bytes": node.replay_lag,
            "lag_seconds": node.lag_time.map(|time| time.as_secs_f64()),
            "synchronous": node.synchronous,
            "postgresql": node.version,
            "address": node.postgres,
            "rest": node.rest,
            "pending_restart": node.pending_restart,
            "silent": node.silence,
        })
    };
    let pool = |(name, seen): &(String, Result<Seen>)| match seen {
        Ok(seen) => json!({
            "console": name,
            "primary": seen.node,
            "held": seen.is_held,
            "held_seconds": seen.held.filter(|_| seen.is_held).map(|time| time.as_secs_f64()),
            "clients": seen.clients,
            "waiting": seen.waiting,
            "open_transactions": seen.busy,
            "readers": seen.readers.iter().map(|it| json!({
                "node": it.node,
                "databases": it.databases,
                "unfit": it.unfit,
                "clients": it.clients,
            })).collect::<Vec<_>>(),
        }),
        Err(error) => json!({ "console": name, "error": error.to_string() }),
    };
    let unreachable = faults.iter().map(|fault| json!({ "error": fault }));
    json!({
        "cluster": members.scope,
        "primary": members.leader(),
        "doubt": doubt,
        "paused": members.pause,
        "nodes": nodes.iter().map(node).collect::<Vec<_>>(),
        "notes": notes,
        "pools": seen.iter().map(pool).chain(unreachable).collect::<Vec<_>>(),
    })
}

fn page(
    members: &Members,
    doubt: Option<&str>,
    nodes: &[Node],
    notes: &[String],
    (seen, faults): (&[(String, Result<Seen>)], &[String]),
) -> String {
    let primary = members.leader().map_or("no primary now".to_owned(), |name| format!("primary {name}"));
    let paused = if members.pause { ", paused (sluice cluster resume ends that)" } else { "" };
    let doubt = doubt.map(|doubt| format!("Not certain: {doubt}\n")).unwrap_or_default();
    let mut text = format!("Cluster {}: {primary}{paused}\n{doubt}\n", members.scope);
    let dash = || "-".to_owned();
    let head =
        ["NODE", "ROLE", "STATE", "TIMELINE", "LAG", "SYNC", "VERSION", "POSTGRESQL"].map(str::to_owned).to_vec();
    let row = |node: &Node| {
        let lag = match (node.replay_lag, node.lag_time) {
            (Some(bytes), Some(time)) => match bytes {
                0 => "0 B, 0.0 s".to_owned(),
                _ => format!("{}, up to {:.1} s", readable_bytes(bytes as f64), time.as_secs_f64()),
            },
            (Some(bytes), None) => readable_bytes(bytes as f64),
            (None, _) => dash(),
        };
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(dash);
        let timeline = node.timeline.map_or_else(dash, |timeline| timeline.to_string());
        let (name, role, state) = (node.name.clone(), node.role.clone(), node.state.clone());
        let sync = node.synchronous.to_owned();
        vec![name, role, state, timeline, lag, sync, or_dash(&node.version), or_dash(&node.postgres)]
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(nodes.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    for node in nodes.iter().filter(|node| !node.pending_restart.is_empty()) {
        text += &format!("{} has to be restarted: {}\n", node.name, node.pending_restart.join(", "));
    }
    for node in nodes {
        if let Some(why) = &node.silence {
            text += &format!("{} itself does not answer ({why}): its line is what it has said last\n", node.name);
        }
    }
    if !notes.is_empty() {
        text.push('\n');
    }
    notes.iter().for_each(|note| text += &format!("Note: {note}\n"));
    for (name, seen) in seen {
        text += &match seen {
            Ok(seen) => pool_line(name, seen),
            Err(error) => format!("\nPool {error}\n"),
        };
    }
    faults.iter().for_each(|fault| text += &format!("\nPool: {fault}\n"));
    text
}

fn pool_line(name: &str, seen: &Seen) -> String {
    let primary = seen.node.as_ref().map_or("knows no primary".to_owned(), |node| format!("goes to {node}"));
    let held = match seen.held.filter(|_| seen.is_held) {
        Some(time) => format!("held for {:.1} s", time.as_secs_f64()),
        None => "not held".to_owned(),
    };
    let Seen { clients, waiting, busy, .. } = seen;
    let clients = if *clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
    let mut text = format!("\nPool {name} {primary}: {clients}, {busy} in a transaction, {waiting} waiting; {held}\n");
    for it in &seen.readers {
        text += &match (&*it.databases, &it.unfit) {
            ("", why) => {
                format!("  no readers on {}: {}\n", it.node, why.as_deref().unwrap_or("it has just become fit"))
            }
            (databases, _) => format!("  readers of {databases} on {}: {}\n", it.node, it.clients),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::pools::ReaderNode;

    fn members() -> Members {
        serde_json::from_value(json!({ "scope": "main", "members": [
            { "name": "a", "role": "leader", "state": "running", "timeline": 3, "host": "10.0.0.1", "port": 5432,
              "api_url": "http://10.0.0.1:8008/patroni" },
            { "name": "b", "role": "quorum_standby", "state": "streaming", "timeline": 3, "host": "10.0.0.2",
              "port": 5432, "api_url": "http://10.0.0.2:8008/patroni", "replay_lag": 5, "receive_lag": 5,
              "pending_restart": true,
              "pending_restart_reason": { "max_connections": { "old_value": "100", "new_value": "200" } } },
            { "name": "c", "role": "replica", "state": "starting", "replay_lag": "unknown" } ] }))
        .unwrap()
    }

    #[test]
    fn a_primary_that_says_otherwise_is_not_certain() {
        let own = |role: &str| -> Result<Own, AskError> {
            Ok(serde_json::from_value(json!({ "role": role, "state": "running" })).unwrap())
        };
        let members = members();
        let of = |role: &str, etcd| doubt(&members, &[own(role), own("replica"), own("replica")], etcd);
        assert_eq!(of("primary", (false, false)), None);
        assert!(of("primary", (true, true)).unwrap().starts_with("etcd has no majority"));
        assert!(of("primary", (false, true)).unwrap().contains("it may have no majority"));
        assert!(of("replica", (false, false)).unwrap().starts_with("a itself says that it is replica, running"));
        let silent = doubt(&members, &[Err(AskError::NotHttp), own("replica"), own("replica")], (false, false));
        assert!(silent.unwrap().contains("it may be gone"));
        let page = page(&members, Some("of that"), &[], &[], (&[], &[]));
        assert!(page.starts_with("Cluster main: primary a\nNot certain: of that\n\n"), "{page}");
    }

    #[test]
    fn a_standby_that_receives_nothing_is_noted() {
        let mut members = members();
        assert!(unfed(&members).is_empty());
        members.members[1].state = "running".to_owned();
        let notes = unfed(&members);
        assert!(notes.len() == 1 && notes[0].starts_with("b receives nothing from the primary a."), "{notes:?}");
        assert!(notes[0].ends_with("sluice cluster reinit b"), "{notes:?}");
        // On an earlier timeline it is Patroni's to rewind; without a primary there is nothing to receive.
        members.members[1].timeline = Some(2);
        assert!(unfed(&members).is_empty());
        members.members[1].timeline = Some(3);
        members.members[0].state = "starting".to_owned();
        assert!(unfed(&members).is_empty());
    }

    #[test]
    fn commits_that_nobody_confirms_are_noted() {
        let note = |role: &str, state: &str, settings: Value| {
            let mut members = members();
            members.members[1].role = role.to_owned();
            members.members[1].state = state.to_owned();
            unconfirmed(&members, &settings)
        };
        let strict = json!({ "synchronous_mode": "quorum", "synchronous_mode_strict": true });
        let lenient = json!({ "synchronous_mode": true });
        assert_eq!(note("quorum_standby", "streaming", strict.clone()), None);
        assert_eq!(
            note("quorum_standby", "running", strict.clone()).unwrap(),
            "no synchronous standby streams from the primary a: commits wait until one does"
        );
        let place = "Until then nobody may take the primary's place";
        assert!(note("replica", "streaming", strict).unwrap().ends_with(&format!("wait until one does. {place}")));
        assert!(note("sync_standby", "starting", lenient.clone()).unwrap().ends_with("Patroni has them go on without"));
        assert!(
            note("replica", "streaming", lenient).unwrap().ends_with(&format!("on the primary's disk only. {place}"))
        );
        assert_eq!(note("replica", "streaming", json!({ "synchronous_mode": false })), None);
        assert_eq!(note("replica", "streaming", Value::Null), None);
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_standby_late() {
        let now = UNIX_EPOCH + Duration::from_secs(1_795_737_600);
        let at = |seen: Option<u64>| {
            let own: Own = serde_json::from_value(json!({ "dcs_last_seen": seen })).unwrap();
            common_time(&own, now)
        };
        assert_eq!([at(Some(1_795_737_590)), at(Some(1_795_737_603))], [Some(now); 2]);
        assert_eq!([at(Some(1_795_734_000)), at(Some(1_795_741_200)), at(None)], [None; 3]);
        let own: Own = serde_json::from_value(json!({ "xlog": { "replayed_location": 800,
            "replayed_timestamp": "2026-11-26 23:00:00+00:00" } }))
        .unwrap();
        let of = |now| node(members().named("b").unwrap(), Ok(&own), Some(1824), now);
        assert_eq!((of(None).replay_lag, of(None).lag_time), (Some(1024), None));
    }

    #[test]
    fn a_page_of_nodes_and_pools() {
        let members = members();
        let own: Own = serde_json::from_value(json!({ "server_version": 150015, "xlog": {
            "received_location": 900, "replayed_location": 800, "replayed_timestamp": "1970-01-01 00:00:01+00:00" } }))
        .unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(3500);
        let of =
            |name: &str, own: Result<&Own, &AskError>| node(members.named(name).unwrap(), own, Some(1824), Some(now));
        let nodes = [of("a", Ok(&Own::default())), of("b", Ok(&own)), of("c", Err(&AskError::NotHttp))];
        let seen = Seen {
            node: Some("a".to_owned()),
            is_held: true,
            held: Some(Duration::from_millis(1500)),
            ended: None,
            clients: 9,
            waiting: 2,
            busy: 1,
            readers: [("a", "", Some("it is the primary")), ("b", "app:ro", None)]
                .map(|(node, databases, unfit)| ReaderNode {
                    node: node.to_owned(),
                    databases: databases.to_owned(),
                    unfit: unfit.map(str::to_owned),
                    clients: 4,
                })
                .to_vec(),
        };
        let alone = Seen { clients: 1, readers: Vec::new(), ..seen.clone() };
        assert!(pool_line("x", &alone).contains(": 1 client, 1 in a transaction"));
        let seen = [("boss@10.0.0.9:6432".to_owned(), Ok(seen))];
        let page = page(
            &members,
            None,
            &nodes,
            &["etcd has 2 votes".to_owned()],
            (&seen, &["cannot connect to x".to_owned()]),
        );
        let expected = "\
Cluster main: primary a

NODE  ROLE            STATE      TIMELINE  LAG                SYNC    VERSION  POSTGRESQL
a     leader          running    3         -                  -       -        10.0.0.1:5432
b     quorum standby  streaming  3         1 kB, up to 2.5 s  quorum  15.15    10.0.0.2:5432
c     replica         starting   -         -                  async   -        -
b has to be restarted: max_connections: 100 -> 200
c itself does not answer (the answer is not HTTP): its line is what it has said last

Note: etcd has 2 votes

Pool boss@10.0.0.9:6432 goes to a: 9 clients, 1 in a transaction, 2 waiting; held for 1.5 s
  no readers on a: it is the primary
  readers of app:ro on b: 4

Pool: cannot connect to x
";
        assert_eq!(page, expected);
    }
}
