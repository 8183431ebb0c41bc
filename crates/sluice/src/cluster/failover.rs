//! A primary for a cluster that has none, and in which Patroni makes nobody one: the only node that it would take is gone
//! for good.

use anyhow::{Result, bail};
use serde_json::json;
use sluice_patroni::{Member, Members, Method, Own};

use super::{
    switchover::PRIMARY_TIME,
    target::{Target, named},
};

/// `sluice cluster failover`.
pub(super) fn command(target: &Target, node: &str, force: bool) -> Result<()> {
    target.check_majority()?;
    let members = target.look()?;
    if let Some(primary) = members.holder() {
        bail!("{} is the primary\nsluice cluster switchover makes another one, without a loss", primary.name);
    }
    let member = named(&members, node)?;
    let nodes = Nodes::ask(target, &members);
    let silent = nodes.silent.join(" and ");
    let others = if silent.is_empty() { String::new() } else { format!(", and {silent} can't be asked") };
    if let Some(further) = nodes.further_than(node) {
        bail!("{node} lacks what {further} has{others}\nsluice cluster failover {further}");
    }
    if !nodes.places.iter().any(|(name, _)| *name == node) {
        bail!("PostgreSQL does not run on {node}{others}\nits log says why; name a node where it does");
    }
    if !force {
        bail!(
            "of the nodes that answer, none has more than {node}{others}\nPatroni takes the last primary, or a standby that it \
             waited for at the end. --force makes {node} the primary all the same: what another node alone has is lost then \
             (sluice cluster status, and docs/nodes.md)"
        );
    }
    let body = json!({ "candidate": node }).to_string();
    let answer = target.command(member, Method::Post, "/failover", &body)?;
    if answer.status >= 300 {
        bail!("{node} does not become the primary: {}", answer.text());
    }
    let primary = target.wait_primary(PRIMARY_TIME, |_| true)?;
    if primary != node {
        bail!("{primary} is the primary, and not {node}: Patroni has made it one in between");
    }
    say!("{node} is the primary");
    Ok(())
}

/// How far the data of all nodes go that are known.
struct Nodes<'a> {
    /// Timeline and location, of those with a PostgreSQL that says so.
    places: Vec<(&'a str, (u32, u64))>,
    silent: Vec<&'a str>,
}

impl<'a> Nodes<'a> {
    fn ask(target: &'a Target, members: &'a Members) -> Self {
        let told = target.own_words(members).into_iter().map(|own| own.ok().as_ref().and_then(place));
        Self::new(&members.members, told, target.missing(members))
    }

    fn new(members: &'a [Member], told: impl Iterator<Item = Option<(u32, u64)>>, missing: Vec<&'a str>) -> Self {
        let mut nodes = Self { places: Vec::new(), silent: missing };
        for (member, place) in members.iter().zip(told) {
            match place {
                Some(place) => nodes.places.push((&member.name, place)),
                None => nodes.silent.push(&member.name),
            }
        }
        nodes
    }

    /// The one that has the most, if that is more than this one has.
    fn further_than(&self, node: &str) -> Option<&'a str> {
        let own = self.places.iter().find(|(name, _)| *name == node)?.1;
        let furthest = self.places.iter().max_by_key(|(_, place)| *place)?;
        (furthest.1 > own).then_some(furthest.0)
    }
}

/// The end of what a standby has.
fn place(own: &Own) -> Option<(u32, u64)> {
    let log = own.log.as_ref()?;
    Some((own.timeline?, log.received_location.max(log.replayed_location).max(log.location)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_furthest_is_the_one_to_name() {
        let members: Members = serde_json::from_value(json!({ "members": [
            { "name": "a", "role": "replica", "state": "running" },
            { "name": "b", "role": "replica", "state": "running" },
            { "name": "c", "role": "replica", "state": "stopped" },
        ]}))
        .unwrap();
        let of = |places: [Option<(u32, u64)>; 3]| Nodes::new(&members.members, places.into_iter(), vec!["d"]);
        let nodes = of([Some((1, 70)), Some((1, 80)), None]);
        assert_eq!((nodes.further_than("a"), nodes.further_than("b")), (Some("b"), None));
        assert_eq!((nodes.further_than("c"), &*nodes.silent), (None, &["d", "c"][..]));
        assert_eq!(of([Some((2, 70)), Some((1, 80)), None]).further_than("b"), Some("a"), "a later timeline");
        assert_eq!(of([Some((1, 80)), Some((1, 80)), None]).further_than("a"), None);
    }

    #[test]
    fn a_standby_has_what_it_has_received() {
        let own = |text: &str| place(&serde_json::from_str(text).unwrap());
        let standby = r#"{"timeline": 3, "xlog": {"received_location": 90, "replayed_location": 80}}"#;
        assert_eq!(own(standby), Some((3, 90)));
        let restarted = r#"{"timeline": 3, "xlog": {"received_location": 64, "replayed_location": 80}}"#;
        assert_eq!(own(restarted), Some((3, 80)), "it counts from the beginning of a file then");
        assert_eq!(own(r#"{"state": "stopped"}"#), None);
    }
}
