//! Each node in turn: standbys one after the other, each back in its place before the next, and the primary last. Another
//! node becomes the primary for that, which restarts the old one on the way; without one, it is restarted where it is.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, bail};
use serde_json::Value;
use sluice_patroni::{Member, Members, Method};

use super::{
    Holding, judged, slots,
    switchover::{Held, Plan, settled},
    target::{Target, leader},
};

/// Restarts all nodes, or those that have settings which need it.
pub(super) fn rolling(target: &Target, pending: bool, timeout: Duration, how: Holding) -> Result<()> {
    target.check_majority()?;
    let members = target.look()?;
    let primary = leader(&members)?;
    if members.pause {
        bail!("the cluster is paused, so no other node would take over\nend that first: sluice cluster resume");
    }
    target.check_rights(primary)?;
    let members = if pending { come_up(target, members)? } else { members };
    let primary = leader(&members)?;
    let is_meant = |member: &&Member| !pending || member.pending_restart;
    if !members.members.iter().any(|member| is_meant(&member)) {
        say!("no node has to be restarted");
        return Ok(());
    }
    judged::check(target, &members, how.force)?;
    if shrinks(primary) {
        restart_in_place(target, &members, primary, timeout, how)?;
    }
    if is_meant(&primary) && !shrinks(primary) && members.members.len() > 1 {
        // Before anything is restarted: later it would end by half.
        slots::check(target, &members, None, how.force)?;
    }
    for standby in members.members.iter().filter(|member| !member.is_leader()).filter(is_meant) {
        restart_standby(target, standby, &members, timeout)?;
    }
    if is_meant(&primary) && !shrinks(primary) {
        let now = target.look()?;
        let now = leader(&now)?;
        if now.name != primary.name {
            bail!("{}", taken_over(&now.name));
        }
        restart_primary(target, &members, primary, timeout, how)?;
    }
    let missing = target.missing(&members);
    if !missing.is_empty() {
        bail!(
            "{}: no Patroni of that name answers, so it is not restarted\nthe others are; start it, and it begins with what they \
             have now",
            missing.join(", ")
        );
    }
    if pending { restart_late(target, timeout) } else { Ok(()) }
}

/// The time for nodes to come up that are not there yet, and for Patroni's next look at what they have in place, at which
/// it finds that they have to be restarted.
const COME_UP_TIME: Duration = Duration::from_secs(30);
const NEXT_LOOK: Duration = Duration::from_secs(4);

/// The members, once those are up that are on their way: before that nobody knows whether they have to be restarted.
fn come_up(target: &Target, members: Members) -> Result<Members> {
    let late: Vec<_> = members.members.iter().filter(|member| !member.is_up()).map(|member| &*member.name).collect();
    if late.is_empty() {
        return Ok(members);
    }
    say!("waiting for {}, which may have to be restarted as well", late.join(", "));
    let are_up = target.wait(COME_UP_TIME, |members| members.members.iter().all(Member::is_up).then_some(()));
    if are_up.is_ok() {
        thread::sleep(NEXT_LOOK);
    }
    target.look()
}

/// Restarts standbys that have said only meanwhile that they need it. The primary may be such a node, too.
fn restart_late(target: &Target, timeout: Duration) -> Result<()> {
    let members = target.look()?;
    let own = target.own_words(&members);
    let needs = members.members.iter().zip(own).filter(|(_, own)| own.as_ref().is_ok_and(|own| own.pending_restart));
    let late: Vec<&Member> = needs.map(|(member, _)| member).collect();
    for standby in late.iter().filter(|member| !member.is_leader()) {
        restart_standby(target, standby, &members, timeout)?;
    }
    match late.iter().find(|member| member.is_leader()) {
        Some(primary) => bail!(
            "{}, the primary now, has to be restarted as well, and has said so only meanwhile\nbegin again: sluice cluster \
             restart --pending",
            primary.name
        ),
        None => Ok(()),
    }
}

/// Settings of which a standby needs as many as its primary has (PostgreSQL's documentation, "Hot Standby").
const NEVER_FEWER: [&str; 5] = [
    "max_connections",
    "max_worker_processes",
    "max_wal_senders",
    "max_prepared_transactions",
    "max_locks_per_transaction",
];

/// Whether one of those becomes smaller by a restart of the primary: standbys can't take it before it has.
fn shrinks(primary: &Member) -> bool {
    let number = |value: &Value| value.as_str().map_or_else(|| value.as_i64(), |text| text.parse().ok());
    let is_smaller = |name: &&str| {
        let change = &primary.pending_restart_reason[*name];
        number(&change["new_value"]).zip(number(&change["old_value"])).is_some_and(|(new, old)| new < old)
    };
    NEVER_FEWER.iter().any(is_smaller)
}

fn restart_standby(target: &Target, standby: &Member, before: &Members, timeout: Duration) -> Result<()> {
    restart(target, standby, r#"{"role": "replica"}"#)?;
    in_place(target, &standby.name, before, timeout)?;
    say!("{} is restarted", standby.name);
    Ok(())
}

/// The time for a node's Patroni to end what it is doing: it follows another primary, for one.
const BUSY_TIME: Duration = Duration::from_secs(60);
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// `condition` says what it has to be for that, by Patroni's own look.
fn restart(target: &Target, member: &Member, condition: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let answer = target.command(member, Method::Post, "/restart", condition)?;
        if answer.status == 200 {
            return Ok(());
        }
        let said = answer.text();
        if !member.is_leader() && target.look().is_ok_and(|now| now.leader() == Some(&*member.name)) {
            bail!("{}", taken_over(&member.name));
        }
        if ![BUSY, NO_STANDBY_YET].iter().any(|end| said.ends_with(end)) {
            bail!("{} is not restarted: {said}\nits log says why; the nodes after it were left alone", member.name);
        }
        if begun.elapsed() >= BUSY_TIME {
            bail!(
                "{} is not restarted: {said}, also after {} s\ntry again when sluice cluster status shows it streaming; its log \
                 says what it is doing",
                member.name,
                BUSY_TIME.as_secs()
            );
        }
        thread::sleep(ASK_AGAIN);
    }
}

/// The end of Patroni's words where it does something else with that node.
const BUSY: &str = " already in progress";

/// The end of its words where a node is no standby: it may be about to become one, behind a switchover.
const NO_STANDBY_YET: &str = "conditions are not satisfied";

/// Waits until a node streams again and, where commits are waited for, has what was written by then and as many are
/// synchronous as before, whichever they are: where Patroni chooses one, it keeps the one that it has chosen meanwhile.
fn in_place(target: &Target, name: &str, before: &Members, timeout: Duration) -> Result<()> {
    let mut written = None;
    let back = target.wait(timeout, |members| {
        let now = members.named(name)?;
        if members.leader() == Some(name) {
            return Some(Err(anyhow!(taken_over(name))));
        }
        if now.state != "streaming" || members.synchronous() < synchronous_again(before, members) {
            return None;
        }
        // What the others tell of it may be old.
        let own = target.own(now).ok().filter(|own| {
            own.state == "running" && own.replication_state.as_deref().is_none_or(|state| state == "streaming")
        })?;
        if before.synchronous() > 0 {
            // Otherwise commits would wait for it, once the next one is away.
            let end = || target.own(members.holder()?).ok()?.log?.location;
            written = written.or_else(end);
            let received = own.log.and_then(|log| log.received_location);
            received.zip(written).filter(|(received, written)| received >= written)?;
        }
        Some(Ok(()))
    });
    back.map_err(|last| {
        let said = last.map_or_else(|| "no member answers".to_owned(), |members| members.to_string());
        anyhow!(
            "{name} is not in its place after {} s ({said})\nits log says why; --timeout gives it more",
            timeout.as_secs()
        )
    })?
}

/// The number of standbys that are to be synchronous again: as many as before, where there are so many left.
fn synchronous_again(before: &Members, now: &Members) -> usize {
    // A node sets such a tag itself while it is restarted, so that its tags of before count.
    let may_be = |member: &&Member| !before.named(&member.name).unwrap_or(member).is_never_synchronous();
    let standbys = now.members.iter().filter(|member| !member.is_leader()).filter(may_be);
    before.synchronous().min(standbys.count())
}

/// Somebody else changes the cluster as well.
fn taken_over(primary: &str) -> String {
    format!(
        "{primary} has become the primary meanwhile, by somebody else's doing\nthe nodes named above are restarted, the others \
         are not; begin again when that is over"
    )
}

fn restart_primary(
    target: &Target,
    members: &Members,
    primary: &Member,
    timeout: Duration,
    how: Holding,
) -> Result<()> {
    if members.members.len() == 1 {
        return restart_in_place(target, members, primary, timeout, how);
    }
    // They have been restarted since.
    let mut members = settled(target, None)?;
    if slots::check(target, &members, None, how.force)? {
        members = settled(target, None)?;
    }
    let plan = Plan::make(&members, None)?;
    let old = &plan.leader.name;
    let pools = Held::reach(target, &members.scope, how)?;
    target.checkpoint(plan.leader);
    let mut held = Held::begin(pools, how)?;
    let done = plan.carry_out(target, None);
    held.end(&done.map(|node| format!("{node} is the primary, and {old} is restarted as a standby")))?;
    in_place(target, old, &members, timeout)
}

fn restart_in_place(
    target: &Target,
    members: &Members,
    primary: &Member,
    timeout: Duration,
    how: Holding,
) -> Result<()> {
    let name = &primary.name;
    let pools = Held::reach(target, &members.scope, how)?;
    target.checkpoint(primary);
    let mut held = Held::begin(pools, how)?;
    let done =
        restart(target, primary, "{}").and_then(|()| target.wait_primary(timeout, |leader| leader.name == *name));
    held.end(&done.map(|node| format!("{node} is restarted, and the primary still")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn as_many_are_synchronous_as_before_whichever_they_are() {
        let members = |text: &str| -> Members {
            let member = |member: &str| {
                let words: Vec<_> = member.split(' ').collect();
                let nosync = words.get(2).is_some();
                json!({ "name": words[0], "role": words[1], "state": "streaming", "tags": { "nosync": nosync } })
            };
            serde_json::from_value(json!({ "members": text.split(", ").map(member).collect::<Vec<_>>() })).unwrap()
        };
        for (before, now, wanted) in [
            // Patroni has chosen the other one.
            ("a leader, b sync_standby, c replica", "a leader, b replica, c sync_standby", 1),
            ("a leader, b quorum_standby, c quorum_standby", "a leader, b replica, c quorum_standby", 2),
            // The tag is Patroni's own, for its restart.
            ("a leader, b quorum_standby, c quorum_standby", "a leader, b replica nosync, c quorum_standby", 2),
            ("a leader, b sync_standby", "b leader, a replica", 1),
            // The old primary is never one.
            ("a leader nosync, b sync_standby", "b leader, a replica nosync", 0),
            ("a leader nosync, b quorum_standby, c quorum_standby", "b leader, a replica, c replica", 1),
            ("a leader, b sync_standby, c sync_standby", "a leader, b replica", 1),
            ("a leader, b replica, c replica", "a leader, b replica, c replica", 0),
        ] {
            assert_eq!(synchronous_again(&members(before), &members(now)), wanted, "{before}; {now}");
        }
    }

    #[test]
    fn a_smaller_limit_is_the_primarys_first() {
        let pending = |name: &str, old: &str, new: &str| -> Member {
            let reason = json!({ name: { "old_value": old, "new_value": new } });
            serde_json::from_value(json!({ "name": "a", "pending_restart": true, "pending_restart_reason": reason }))
                .unwrap()
        };
        assert!(shrinks(&pending("max_connections", "100", "90")));
        assert!(!shrinks(&pending("max_connections", "90", "100")));
        assert!(!shrinks(&pending("shared_buffers", "100", "90")));
        assert!(!shrinks(&serde_json::from_value(json!({ "name": "a" })).unwrap()));
    }
}
