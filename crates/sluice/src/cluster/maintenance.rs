//! Patroni's maintenance mode, and a standby that is copied anew.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use serde_json::json;
use sluice_patroni::{Member, Method};

use super::target::{Target, leader, named};

/// The time for all members to have heard of it: some loops of Patroni's.
const HEARD_TIME: Duration = Duration::from_secs(60);

/// Begins or ends maintenance, and waits until all members have heard of it.
pub(super) fn pause(target: &Target, pause: bool) -> Result<()> {
    target.check_majority()?;
    let members = target.look()?;
    if members.pause == pause {
        say!("the cluster is {}", if pause { "paused already" } else { "not paused" });
        return Ok(());
    }
    // Any member does: what it changes is the cluster's.
    let member = members.holder().or(members.members.first());
    let member = member.ok_or_else(|| anyhow!("the cluster has no member"))?;
    target.share(member, &json!({ "pause": pause.then_some(true) }))?;
    let heard = target.wait(HEARD_TIME, |members| {
        let told = target.own_words(members);
        // One that does not answer hears of it when it comes back.
        told.iter().flatten().all(|own| own.pause == pause).then_some(())
    });
    if heard.is_err() {
        bail!("not all members have heard of it after {} s: sluice cluster status", HEARD_TIME.as_secs());
    }
    if pause {
        say!(
            "the cluster is paused: Patroni starts, stops and promotes nothing by itself, also when the primary is lost"
        );
    } else {
        say!("the cluster is no longer paused");
    }
    Ok(())
}

/// Has a standby made anew, and waits until it streams.
pub(super) fn reinit(target: &Target, node: &str, force: bool, timeout: Duration) -> Result<()> {
    target.check_majority()?;
    let members = target.look()?;
    let member = named(&members, node)?;
    let primary = leader(&members)?;
    if member.is_leader() {
        bail!(
            "{node} is the primary, whose data are the ones that count\nsluice cluster switchover makes another one, first"
        );
    }
    // A postmaster of its own tells the copy from what was there.
    let started = |member: &Member| target.own(member).ok().and_then(|own| own.started);
    let before = started(member);
    let body = json!({ "force": force }).to_string();
    let answer = target.command_within(member, (Method::Post, "/reinitialize"), &body, timeout)?;
    if answer.status >= 300 {
        bail!("{node} is not reinitialized: {}\n--force ends what it is doing", answer.text());
    }
    say!("{node} is being reinitialized, as a copy of {}", primary.name);
    let mut last = member.state.clone();
    let back = target.wait(timeout, |members| {
        let now = members.named(node)?;
        if now.state != last {
            say!("{node}: {}", now.state);
            last = now.state.clone();
        }
        // Its copy may be there before others have heard that its data were gone.
        let is_copy = now.state == "streaming" && started(now).is_some_and(|time| Some(time) != before);
        is_copy.then_some(())
    });
    back.map_err(|_| anyhow!("{node} does not stream after {} s; its log says why", timeout.as_secs()))
}
