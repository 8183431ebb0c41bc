//! Slots of logical replication that a standby could not serve as the primary. Patroni does not ask for that: its
//! subscribers would stop, or miss transactions in silence.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use serde_json::Value;
use sluice_instance::cluster::{LogicalSlots, Unserved};
use sluice_patroni::Members;

use super::target::{Target, at_once, leader};

/// The time for Patroni to bring slots of standbys up: some of its loops.
const SERVED_TIME: Duration = Duration::from_secs(15);

/// The interval at which the primary is to write what decoding can begin with, and the number of times: a slot that has
/// just been copied has a snapshot at the second.
const BEGIN_EVERY: Duration = Duration::from_secs(1);
const BEGINS_MAX: u32 = 3;

const LOOK_EVERY: Duration = Duration::from_millis(300);

/// The permanent logical slots of a cluster, by its settings.
fn permanent(settings: &Value) -> Vec<String> {
    let slots = settings["slots"].as_object().into_iter().flatten();
    slots.filter(|(_, slot)| slot["type"] == "logical").map(|(name, _)| name.clone()).collect()
}

/// A slot that a node can't serve.
#[derive(Debug, Clone)]
struct Fault<'a> {
    slot: String,
    node: &'a str,
    reason: Unserved,
}

impl Fault<'_> {
    fn words(&self) -> String {
        let Self { slot, node, reason } = self;
        match reason {
            Unserved::Away => format!("PostgreSQL of {node} does not run, as when Patroni copies a slot"),
            Unserved::Missing => format!("{node} does not have slot {slot}"),
            Unserved::NoLog => format!("{node} does not have the log that slot {slot} needs"),
            Unserved::NoSnapshot => {
                format!(
                    "{node} might leave out transactions for slot {slot}: it can't decode from where its subscriber is"
                )
            }
        }
    }
}

/// What standbys say.
#[derive(Debug, Default)]
struct Told<'a> {
    faults: Vec<Fault<'a>>,
    /// Those that do not say, with the reason.
    silent: Vec<String>,
    /// Those that can't be asked from here.
    elsewhere: Vec<&'a str>,
}

impl<'a> Told<'a> {
    /// By the standby of that name, or all.
    fn by(target: &Target, members: &'a Members, to: Option<&str>, slots: &[String]) -> Self {
        let standbys = members.members.iter().filter(|member| !member.is_leader());
        let standbys = standbys.filter(|member| to.is_none_or(|to| member.name == to));
        let mut all = Self::default();
        let ask = |member| target.reach(member).map(LogicalSlots::ask);
        for (member, told) in at_once(standbys, ask, |why| Some(Err(why))) {
            let node = &*member.name;
            match told {
                Some(Ok(Some(here))) => {
                    let reasons = slots.iter().filter_map(|slot| Some((slot, here.unserved(slot)?)));
                    all.faults.extend(reasons.map(|(slot, reason)| Fault { slot: slot.clone(), node, reason }));
                }
                Some(Ok(None)) => all.faults.push(Fault { slot: String::new(), node, reason: Unserved::Away }),
                Some(Err(error)) => all.silent.push(format!("{node}: {error}")),
                None => all.elsewhere.push(node),
            }
        }
        all
    }

    fn say_what_is_unknown(&self) {
        let elsewhere = self.elsewhere.iter().map(|node| format!("{node}: it can't be asked from here"));
        let unknown: Vec<_> = self.silent.iter().cloned().chain(elsewhere).collect();
        if !unknown.is_empty() {
            say!("whether slots of logical replication would be served is not known: {}", unknown.join("; "));
        }
    }
}

/// Sees that whoever may become the primary can serve them, and waits for that; `go_on` only says what can't be. Says
/// whether it has waited.
///
/// # Errors
///
/// One can't, also not after some time; nothing has happened.
pub(super) fn check(target: &Target, members: &Members, to: Option<&str>, go_on: bool) -> Result<bool> {
    let leader = leader(members)?;
    let (_, settings) = target.settings(members)?;
    let slots = permanent(&settings);
    if slots.is_empty() {
        return Ok(false);
    }
    let begun = Instant::now();
    let (mut begins, mut has_waited) = (0, false);
    // What a node lacks that Patroni restarts for it says more than that it does not run at this moment.
    let mut lacks = Vec::new();
    loop {
        let told = Told::by(target, members, to, &slots);
        let is_open = !told.faults.is_empty() || !told.silent.is_empty();
        if !is_open || go_on || begun.elapsed() >= SERVED_TIME {
            told.say_what_is_unknown();
            let is_away = !told.faults.is_empty() && told.faults.iter().all(|fault| fault.reason == Unserved::Away);
            conclude(if is_away && !lacks.is_empty() { &lacks } else { &told.faults }, go_on)?;
            return Ok(has_waited);
        }
        if told.faults.iter().any(|fault| fault.reason != Unserved::Away) {
            lacks.clone_from(&told.faults);
        }
        // A checkpoint writes what a standby needs for that, and with which the slot on the primary comes to need less log.
        let is_due = begins < BEGINS_MAX && begun.elapsed() >= BEGIN_EVERY * begins;
        if is_due && told.faults.iter().any(|fault| matches!(fault.reason, Unserved::NoLog | Unserved::NoSnapshot)) {
            target.checkpoint(leader);
            begins += 1;
        }
        thread::sleep(LOOK_EVERY);
        has_waited = true;
    }
}

fn conclude(faults: &[Fault<'_>], go_on: bool) -> Result<()> {
    let words: Vec<_> = faults.iter().map(Fault::words).collect();
    if words.is_empty() {
        return Ok(());
    }
    if go_on {
        say!("{}", words.join("; "));
        return Ok(());
    }
    bail!(
        "subscribers would not be served: {}\nnobody was held. {}; --to names another node, --force goes on all the same",
        words.join("; "),
        faults.first().map_or("", |fault| remedy(fault.reason))
    )
}

fn remedy(reason: Unserved) -> &'static str {
    match reason {
        Unserved::Away => "Wait, and see that node's log and sluice cluster status",
        Unserved::Missing => "Patroni copies a slot within some loops: wait, and see that node's log",
        Unserved::NoLog => {
            "End prepared and long transactions, let the subscriber catch up, and then make that node anew (sluice cluster \
             reinit), or remove the slot"
        }
        Unserved::NoSnapshot => {
            "End prepared and long transactions (pg_prepared_xacts, pg_stat_activity), let the subscriber catch up, and \
             try again"
        }
    }
}

/// The same for who looks at the cluster: what standbys can't serve now.
pub(super) fn notes(target: &Target, members: &Members, settings: &Value) -> Vec<String> {
    let slots = permanent(settings);
    if slots.is_empty() || members.holder().is_none() || !target.is_ours() {
        return Vec::new();
    }
    Told::by(target, members, None, &slots).faults.iter().map(Fault::words).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_logical_slots_are_asked_for() {
        let settings = json!({ "slots": { "a": { "type": "logical" }, "b": { "type": "physical" }, "c": null } });
        assert_eq!(permanent(&settings), ["a"]);
        assert_eq!(permanent(&Value::Null), [""; 0]);
    }

    #[test]
    fn an_unserved_slot_is_an_error_with_its_remedy() {
        let fault = |reason| Fault { slot: "warehouse".to_owned(), node: "node2", reason };
        assert!(conclude(&[], false).is_ok() && conclude(&[fault(Unserved::NoLog)], true).is_ok());
        for (reason, words) in [
            (Unserved::Missing, "node2 does not have slot warehouse"),
            (Unserved::Away, "node2 does not run"),
            (Unserved::NoLog, "let the subscriber catch up"),
            (Unserved::NoSnapshot, "pg_prepared_xacts"),
        ] {
            let said = conclude(&[fault(reason)], false).unwrap_err().to_string();
            assert!(said.contains(words) && said.contains("--force"), "{said}");
        }
    }
}
