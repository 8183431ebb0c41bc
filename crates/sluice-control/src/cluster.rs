//! Clusters of Patroni's: nodes of which one, the primary, takes what clients write.

use std::{net::Ipv6Addr, sync::Arc, time::Duration};

use sluice_tls::ClientTls;

use crate::address::Address;

/// A cluster, and how its state is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Its name, as databases refer to it.
    pub name: Arc<str>,
    /// The REST interfaces of its members, as far as they are listed; each knows the others.
    pub members: Vec<Rest>,
    /// The authorities and the certificate for those by HTTPS; `None`: there are none.
    pub tls: Option<Arc<ClientTls>>,
}

/// The address of a member's REST interface.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rest {
    /// Whether it is HTTPS.
    pub is_encrypted: bool,
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// The node that is a cluster's primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Primary {
    /// Its name in the cluster.
    pub node: String,
    /// PostgreSQL's address there.
    pub address: Address,
    /// The timeline that it writes. Each promotion begins a higher one.
    pub timeline: u32,
    /// The system identifier of its data, which all nodes of a cluster have in common.
    pub system: String,
}

/// A cluster, and its primary as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// The primary that has been seen last, unless nobody is to connect to it any more.
    pub primary: Option<Primary>,
    /// The reason why nobody is, where that is so.
    pub withdrawn: Option<Withdrawn>,
}

/// A primary that nobody is to connect to any more: its node has other data by its own word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withdrawn {
    /// That primary. Whoever comes after it is one again.
    pub primary: Primary,
    /// The node that is at its address now.
    pub by: NotPrimary,
}

/// The reason why a node that says it is the primary is not taken for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotPrimary {
    /// It has been one: another node has been promoted since.
    #[error(
        "node \"{node}\" at {address} is on timeline {timeline}, and has not been promoted since node \"{newer}\" began \
         timeline {begun}"
    )]
    Older {
        /// Its name.
        node: String,
        /// Its address.
        address: Address,
        /// Its timeline.
        timeline: u32,
        /// The node that came after it.
        newer: String,
        /// The timeline of that one.
        begun: u32,
    },
    /// Its data are those of another cluster.
    #[error(
        "node \"{node}\" at {address} has the data of another cluster: its system identifier is {system}, not {expected}"
    )]
    OtherSystem {
        /// Its name.
        node: String,
        /// Its address.
        address: Address,
        /// Its system identifier.
        system: String,
        /// The one that the cluster has.
        expected: String,
    },
}

/// The time for which clients wait for a primary, unless the configuration says otherwise.
pub const FAILOVER_TIMEOUT: Duration = Duration::from_secs(45);

impl std::fmt::Display for Rest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}", Address::Tcp(self.host.clone(), self.port))
    }
}

impl Rest {
    /// Reads the URL of one, whatever its path; `None` if it is none.
    pub fn parse(url: &str) -> Option<Self> {
        let (is_encrypted, rest) = match url.split_once("://")? {
            ("http", rest) => (false, rest),
            ("https", rest) => (true, rest),
            _ => return None,
        };
        let place = rest.split('/').next()?;
        let (host, port) = place.rsplit_once(':')?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(host) => host.parse::<Ipv6Addr>().ok().map(|_| host)?,
            None => host,
        };
        let is_host = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b));
        let port = port.parse().ok().filter(|port| *port > 0)?;
        is_host.then(|| Self { is_encrypted, host: host.to_owned(), port })
    }
}

impl Standing {
    /// The primary that has been seen last, also where nobody is to connect to it any more.
    pub fn last_primary(&self) -> Option<&Primary> {
        self.primary.as_ref().or_else(|| Some(&self.withdrawn.as_ref()?.primary))
    }
}

impl Primary {
    /// Whether it may be taken for the primary in the place of that one.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub fn follows(&self, before: &Self) -> Result<(), NotPrimary> {
        let (node, address) = (self.node.clone(), self.address.clone());
        if self.system != before.system {
            let (system, expected) = (self.system.clone(), before.system.clone());
            return Err(NotPrimary::OtherSystem { node, address, system, expected });
        }
        // A promotion begins a timeline of its own, so another node on the same one has not been promoted. The same node
        // is the same primary, wherever it is: nobody else has written that timeline.
        let is_older =
            self.timeline < before.timeline || (self.timeline == before.timeline && self.node != before.node);
        if is_older {
            let (newer, begun) = (before.node.clone(), before.timeline);
            return Err(NotPrimary::Older { node, address, timeline: self.timeline, newer, begun });
        }
        Ok(())
    }

    /// Whether it has other data than that one, at the same address: whoever connects there finds them.
    pub fn has_replaced(&self, before: &Self) -> bool {
        self.address == before.address && self.system != before.system
    }

    /// Whether it is that one at another address, without a promotion. Others may remember where it was, so only its own
    /// word says where it is.
    pub fn has_moved_from(&self, before: &Self) -> bool {
        self.address != before.address
            && (&self.node, self.timeline, &self.system) == (&before.node, before.timeline, &before.system)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(node: &str, timeline: u32) -> Primary {
        let address = Address::Tcp(node.to_owned(), 5432);
        Primary { node: node.to_owned(), address, timeline, system: "7".to_owned() }
    }

    #[test]
    fn whoever_was_promoted_last_is_the_primary() {
        let before = primary("a", 4);
        assert_eq!(primary("b", 5).follows(&before), Ok(()));
        assert_eq!(primary("a", 4).follows(&before), Ok(()));
        assert_eq!(primary("a", 5).follows(&before), Ok(()));
        for (node, timeline) in [("b", 4), ("b", 3), ("a", 3)] {
            let error = primary(node, timeline).follows(&before).expect_err("it is older");
            assert!(error.to_string().ends_with("has not been promoted since node \"a\" began timeline 4"), "{error}");
        }
    }

    #[test]
    fn the_same_primary_may_be_at_another_address() {
        let before = primary("a", 4);
        let at = |address: &str, it: Primary| Primary { address: Address::Tcp(address.to_owned(), 5432), ..it };
        let moved = at("elsewhere", before.clone());
        assert_eq!((moved.follows(&before), before.follows(&moved)), (Ok(()), Ok(())));
        assert!(moved.has_moved_from(&before) && !before.has_moved_from(&before));
        for other in [primary("a", 3), primary("b", 4)] {
            assert!(at("elsewhere", other.clone()).follows(&before).is_err(), "{other:?}");
        }
        for other in [primary("a", 5), primary("a", 3), primary("b", 4)] {
            assert!(!at("elsewhere", other.clone()).has_moved_from(&before), "{other:?}");
        }
    }

    #[test]
    fn a_rest_interface_is_known_by_its_url() {
        for url in ["http://10.0.0.1:8008", "https://db-1.example.org:443", "http://[::1]:8008"] {
            assert_eq!(Rest::parse(url).expect(url).to_string(), url);
        }
        assert_eq!(Rest::parse("http://a:1/patroni"), Rest::parse("http://a:1"));
        for url in
            ["10.0.0.1:8008", "http://a", "http://:8008", "http://a:0", "ftp://a:1", "http://u:p@a:1", "http://a:b"]
        {
            assert_eq!(Rest::parse(url), None, "{url}");
        }
    }

    #[test]
    fn data_of_another_cluster_are_nobodys() {
        let other = Primary { system: "8".to_owned(), ..primary("b", 9) };
        assert!(matches!(other.follows(&primary("a", 4)), Err(NotPrimary::OtherSystem { .. })));
    }
}
