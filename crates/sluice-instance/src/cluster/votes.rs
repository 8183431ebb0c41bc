//! Patroni's key `sync`: by whose votes the next primary is elected.

use serde_json::Value;

/// The standbys that commits are waited for on, as the primary has written it for those that elect the next one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Votes {
    /// The primary that has written it: another one than there is now, right behind an election.
    pub leader: Option<String>,
    /// The standbys of which one has every commit that was acknowledged.
    pub standbys: Vec<String>,
    /// The number of them that has to be there beside the next primary.
    pub quorum: Option<usize>,
}

impl Votes {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let words = |key: &str| value[key].as_str().filter(|it| !it.is_empty());
        let quorum = value["quorum"].as_u64().or_else(|| value["quorum"].as_str()?.parse().ok());
        Some(Self {
            leader: words("leader").map(str::to_owned),
            standbys: words("sync_standby").into_iter().flat_map(|it| it.split(',')).map(str::to_owned).collect(),
            quorum: quorum.and_then(|it| usize::try_from(it).ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_patroni_writes_it() {
        let leader = Some("node2".to_owned());
        let votes = Votes::parse(r#"{"leader": "node2", "quorum": 1, "sync_standby": "node1,node3"}"#).unwrap();
        let standbys = vec!["node1".to_owned(), "node3".to_owned()];
        assert_eq!(votes, Votes { leader: leader.clone(), standbys, quorum: Some(1) });
        let none = Votes::parse(r#"{"leader": "node2", "quorum": "0", "sync_standby": null}"#).unwrap();
        assert_eq!(none, Votes { leader, standbys: Vec::new(), quorum: Some(0) });
        assert_eq!(Votes::parse(r#"{"leader": null, "sync_standby": ""}"#), Some(Votes::default()));
        assert_eq!(Votes::parse("nonsense"), None);
    }
}
