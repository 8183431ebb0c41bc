//! Patroni's maintenance mode, and a standby that is copied anew.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use serde_json::json;
use sluice_patroni::{Method, Own};

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
    // Any member does that answers: what it changes is the cluster's.
    let (member, _) = target.settings(&members)?;
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
    let mut copy = Fresh::behind(target.own(member).ok());
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
        copy.is_there(&now.state, target.own(now).ok()).then_some(())
    });
    back.map_err(|_| anyhow!("{node} does not stream after {} s; its log says why", timeout.as_secs()))
}

/// What tells a copy from the server that was there before: others may say for a while that this one streams, and the copy
/// may be there before they have heard that it was gone.
#[derive(Debug)]
struct Fresh {
    /// The start of the postmaster before; a member that is busy does not say.
    before: Option<String>,
    /// Whether the member has said since that no postmaster runs.
    was_away: bool,
}

impl Fresh {
    /// By the member's own words before it was asked for a copy.
    fn behind(own: Option<Own>) -> Self {
        Self { before: own.and_then(|own| own.started), was_away: false }
    }

    /// By `state` in the words of any member, and the member's own, since then.
    fn is_there(&mut self, state: &str, own: Option<Own>) -> bool {
        let Some(own) = own else { return false };
        let Some(started) = own.started else {
            self.was_away = true;
            return false;
        };
        let is_other = self.was_away || self.before.as_ref().is_some_and(|before| *before != started);
        is_other && state == "streaming"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_not_what_was_there_before() {
        let own = |started: &str| {
            let started = (!started.is_empty()).then_some(started);
            Some(serde_json::from_value::<Own>(json!({ "postmaster_start_time": started })).unwrap())
        };
        let silent = None::<Own>;
        // It did not answer when it was asked before: what streams is not the copy until it has been away.
        let mut copy = Fresh::behind(silent);
        assert!(!copy.is_there("streaming", own("1")) && !copy.is_there("streaming", None));
        assert!(!copy.is_there("streaming", own("")) && !copy.is_there("creating replica", own("2")));
        assert!(copy.is_there("streaming", own("2")));
        // Its end was missed, and its start is another one.
        let mut copy = Fresh::behind(own("1"));
        assert!(!copy.is_there("streaming", own("1")) && copy.is_there("streaming", own("2")));
    }
}
