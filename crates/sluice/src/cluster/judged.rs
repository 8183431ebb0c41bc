//! PostgreSQL's own judgement of settings. Patroni hands on what it knows nothing of, and reloads: PostgreSQL leaves out
//! what it does not take, says so in each node's log only, and does not start with it. Whoever can ask a node's PostgreSQL
//! hears of that here; Patroni's REST API has no word of it.

use std::io;

use anyhow::{Result, bail};
use serde_json::Value;
use sluice_instance::cluster::{self, Judgement, Misread};
use sluice_patroni::{Member, Members};

use super::{
    parameters,
    target::{Target, at_once},
};

/// PostgreSQL's settings that a change gives a value, with that.
pub(super) fn set(change: &Value) -> Vec<(String, String)> {
    let parameters = change.pointer("/postgresql/parameters").and_then(Value::as_object).into_iter().flatten();
    let set = parameters.filter(|(_, value)| !value.is_null());
    set.map(|(name, value)| (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))).collect()
}

/// Sees that the primary's PostgreSQL takes the values of a change, as far as it can be asked from here and a session can
/// try them: for what stands in files only, [`behind`] has its word.
pub(super) fn before(target: &Target, members: &Members, change: &Value) -> Result<()> {
    let set = set(change);
    if set.is_empty() {
        return Ok(());
    }
    let Some(reach) = members.holder().and_then(|leader| target.reach(leader)) else { return Ok(()) };
    // One that does not answer may later.
    let Ok(Some(judgements)) = cluster::judge(reach, set.clone()) else { return Ok(()) };
    for ((name, value), judgement) in set.iter().zip(judgements) {
        match judgement {
            Judgement::Refused(words) => {
                bail!(
                    "PostgreSQL does not take {name}={value}: {words}\nnothing is changed; give it another value, or none"
                )
            }
            // Of PostgreSQL's own settings Patroni's table knows more: words that are taken and not listed.
            Judgement::Untried(Some(told)) if name.contains('.') => parameters::check_told(name, value, &told)?,
            Judgement::Taken | Judgement::Untried(_) => {}
        }
    }
    Ok(())
}

/// Sees that each node's PostgreSQL has taken a change, once Patroni has given it that.
pub(super) fn behind(target: &Target, members: &[Member], change: &Value) -> Result<()> {
    let set = set(change);
    let told = Told::by(target, members);
    if !set.is_empty() && !told.unknown.is_empty() {
        say!(
            "note: whether PostgreSQL takes that is not known of {}\nSELECT * FROM pg_file_settings WHERE error IS NOT NULL \
             says so there",
            told.unknown.join(", ")
        );
    }
    if told.faults.is_empty() {
        return Ok(());
    }
    let is_of_it = |name: &String| set.iter().any(|(changed, _)| changed.eq_ignore_ascii_case(name));
    let is_new = told.faults.iter().any(|fault| fault.line.name.as_ref().is_some_and(is_of_it));
    let stored = if is_new { "it is stored all the same. " } else { "" };
    bail!("{}\n{stored}{}", told.words(), told.remedy())
}

/// Sees that no node's PostgreSQL has settings that it does not take, as far as nodes can be asked: it may not start again
/// with them. `go_on` only says so.
pub(super) fn check(target: &Target, members: &Members, go_on: bool) -> Result<()> {
    let told = Told::by(target, &members.members);
    if told.faults.is_empty() {
        return Ok(());
    }
    if go_on {
        say!("{}\ngoing on all the same (--force)", told.words());
        return Ok(());
    }
    bail!("{}\nnobody was held. {}; --force goes on all the same", told.words(), told.remedy())
}

/// A line that a node's PostgreSQL does not take.
struct Fault<'a> {
    node: &'a str,
    line: Misread,
}

impl Fault<'_> {
    fn words(&self) -> String {
        let Self { node, line: Misread { name, value, why, place } } = self;
        let what = name.as_ref().map_or_else(String::new, |name| {
            let value = value.as_deref().unwrap_or_default();
            format!("{name}={value}, ")
        });
        format!("{node}: PostgreSQL does not take {what}{place}: {why}")
    }
}

/// What nodes say of their files.
#[derive(Default)]
struct Told<'a> {
    faults: Vec<Fault<'a>>,
    /// Those that do not say, or can't be asked from here.
    unknown: Vec<String>,
}

impl<'a> Told<'a> {
    fn by(target: &Target, members: &'a [Member]) -> Self {
        let mut all = Self::default();
        let ask = |member: &'a Member| target.reach(member).map(cluster::misread);
        for (member, told) in at_once(members, ask, |why: io::Error| Some(Err(why))) {
            let node = &*member.name;
            match told {
                Some(Ok(Some(lines))) => all.faults.extend(lines.into_iter().map(|line| Fault { node, line })),
                Some(Ok(None)) => all.unknown.push(format!("{node} (none runs there)")),
                Some(Err(error)) => all.unknown.push(format!("{node} ({error})")),
                None => all.unknown.push(node.to_owned()),
            }
        }
        all
    }

    fn words(&self) -> String {
        self.faults.iter().map(Fault::words).collect::<Vec<_>>().join("\n")
    }

    fn remedy(&self) -> String {
        let name = self.faults.iter().find_map(|fault| fault.line.name.as_deref()).unwrap_or("NAME");
        format!(
            "PostgreSQL goes on with what it had, and may not start again with that: sluice cluster config set \
             postgresql.parameters.{name}= takes back what all nodes share; what stands in a node's own file is mended there"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_removed_is_not_judged() {
        let change =
            json!({ "ttl": 30, "postgresql": { "parameters": { "work_mem": "64MB", "geqo": null, "jit": 1 } } });
        let text = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(set(&change), [text("jit", "1"), text("work_mem", "64MB")]);
    }

    #[test]
    fn a_fault_names_node_setting_and_remedy() {
        let line = |name: Option<&str>| Misread {
            name: name.map(str::to_owned),
            value: name.map(|_| "x".to_owned()),
            why: "why".to_owned(),
            place: "a.conf, line 3".to_owned(),
        };
        let fault = |name| Fault { node: "node2", line: line(name) };
        let told = Told { faults: vec![fault(None), fault(Some("log_timezone"))], unknown: Vec::new() };
        let said = "node2: PostgreSQL does not take a.conf, line 3: why\nnode2: PostgreSQL does not take log_timezone=x, a.conf, line 3: why";
        assert_eq!(told.words(), said);
        assert!(told.remedy().contains("postgresql.parameters.log_timezone= takes back"), "{}", told.remedy());
    }
}
