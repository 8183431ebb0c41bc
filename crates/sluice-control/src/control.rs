//! The state machine: observations in, snapshots out.

use std::sync::Arc;

use crate::{
    access::{AccessRules, Policy, Users},
    address::Address,
    changes::{self, Change},
    cluster::Primary,
    reading::Node,
    snapshot::{Configuration, Seen, Snapshot},
};

/// Something that has been observed outside.
#[derive(Debug)]
pub enum Observation {
    /// The configuration has been read, and is valid.
    Configured(Box<Configuration>),
    /// The server at that address has told its access rules; `None`: it does not tell them.
    ServerRules(Address, Option<Arc<AccessRules>>),
    /// A node of that cluster says that it is the primary, and holds the lock by which it is.
    Primary(Arc<str>, Primary),
    /// The nodes of that cluster have been looked at, in an order of their own.
    Nodes(Arc<str>, Vec<Node>),
}

/// A snapshot that is to be gone by from now on.
#[derive(Debug)]
pub struct Published {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// Its differences from the one before.
    pub changes: Vec<Change>,
}

/// The control plane's state: the one writer of snapshots.
#[derive(Debug)]
pub struct Control {
    snapshot: Arc<Snapshot>,
    /// The operator's decisions, as they were read last.
    configuration: Configuration,
    /// The clusters, as they were seen last.
    seen: Seen,
    /// The access rules that a server has told last, and its address, as long as it is the one that is asked.
    server_rules: Option<(Address, Option<Arc<AccessRules>>)>,
}

impl Control {
    /// With that configuration.
    pub fn new(configuration: Configuration) -> Self {
        let snapshot = Arc::new(Snapshot::first(configuration.clone()));
        Self { snapshot, configuration, seen: Seen::default(), server_rules: None }
    }

    /// The snapshot that was published last.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Takes an observation; gives the snapshot that it leads to, or nothing where all stays as it is.
    pub fn observe(&mut self, observation: Observation) -> Option<Published> {
        match observation {
            Observation::Configured(configuration) => {
                let has_cluster = |name: &Arc<str>| configuration.clusters.iter().any(|it| it.name == *name);
                self.seen.primaries.retain(|name, _| has_cluster(name));
                self.seen.withdrawn.retain(|name, _| has_cluster(name));
                self.seen.nodes.retain(|name, _| has_cluster(name));
                self.configuration = *configuration;
            }
            Observation::ServerRules(address, rules) => {
                // It may have been asked before the configuration changed, or before another one was promoted.
                if asked(&self.snapshot.access.policy, &self.snapshot.access.users) != Some(&address) {
                    return None;
                }
                self.server_rules = Some((address, rules));
            }
            Observation::Primary(cluster, primary) => {
                // Likewise.
                let is_followed = self.configuration.clusters.iter().any(|it| it.name == cluster);
                if !is_followed {
                    return None;
                }
                match self.seen.primaries.get(&cluster).map(|before| (before, primary.follows(before))) {
                    // Clients would find those data where they were led to others.
                    Some((before, Err(by))) if primary.has_replaced(before) => {
                        self.seen.withdrawn.insert(cluster, by);
                    }
                    Some((_, Err(_))) => return None,
                    Some((_, Ok(()))) | None => {
                        self.seen.withdrawn.remove(&cluster);
                        self.seen.primaries.insert(cluster, primary);
                    }
                }
            }
            Observation::Nodes(cluster, nodes) => {
                if !self.configuration.clusters.iter().any(|it| it.name == cluster) {
                    return None;
                }
                self.seen.nodes.insert(cluster, nodes);
                if self.snapshot.has_readers_of(&self.seen) {
                    return None;
                }
            }
        }
        let next = self.snapshot.next(self.configuration.clone(), &self.seen, |policy, users| {
            // A server that is not asked any more may load others, which nobody would notice.
            self.server_rules.take_if(|(address, _)| asked(policy, users) != Some(address));
            if let (Policy::ServerRules(rules), Some((_, told))) = (policy, &self.server_rules) {
                rules.clone_from(told);
            }
        });
        let changes = changes::between(&self.snapshot, &next);
        if changes.is_empty() {
            return None;
        }
        self.snapshot = Arc::new(next);
        Some(Published { snapshot: self.snapshot.clone(), changes })
    }
}

/// The server whose rules count, if one's do.
fn asked<'a>(policy: &Policy, users: &'a Users) -> Option<&'a Address> {
    match (policy, users) {
        (Policy::ServerRules(_), Users::LookedUp(look_up, _)) => Some(&look_up.address),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, time::Duration};

    use sluice_hba::{RuleRow, Rules, ServerRules};
    use sluice_wire::secret::Secret as StoredSecret;

    use super::*;
    use crate::{
        Database, Secret,
        access::{Access, LookUp, Method},
        address::Network,
        cluster::{Cluster, Rest},
        server_auth::ServerAuth,
        settings::{ClientLog, Limits, PoolMode, PoolSettings, Sharing},
    };

    fn configuration() -> Configuration {
        let named = |name: &str| Database {
            name: Some(name.to_owned()),
            password: Some(Secret("hidden".to_owned())),
            ..Database::any_at(Address::Tcp("db".to_owned(), 5432), PoolSettings::default())
        };
        let users = ["alice", "bob"].map(|user| (user.to_owned(), StoredSecret::Plain("known".to_owned())));
        Configuration {
            databases: vec![named("one"), named("two")],
            access: Access { policy: Policy::Method(Method::ScramSha256), users: Users::Listed(HashMap::from(users)) },
            encryption: None,
            admin: None,
            balancers: Vec::new(),
            limits: Limits::default(),
            client_log: ClientLog::default(),
            clusters: Vec::new(),
        }
    }

    /// The words for a change, after which the snapshot's version is the second one.
    fn changed(change: impl FnOnce(&mut Configuration)) -> Vec<String> {
        let mut control = Control::new(configuration());
        let mut next = configuration();
        change(&mut next);
        let published = control.observe(Observation::Configured(next.into())).expect("something has changed");
        assert_eq!((published.snapshot.version, control.snapshot().version), (2, 2));
        published.changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_same_configuration_is_no_news() {
        let mut control = Control::new(configuration());
        assert!(control.observe(Observation::Configured(configuration().into())).is_none());
        assert_eq!(control.snapshot().version, 1);
    }

    #[test]
    fn what_has_not_changed_is_the_same_value() {
        let mut control = Control::new(configuration());
        let before = control.snapshot().clone();
        let mut next = configuration();
        next.databases[1].pool.size = 3;
        next.databases.swap(0, 1);
        let now = control.observe(Observation::Configured(next.into())).expect("something has changed").snapshot;
        assert!(Arc::ptr_eq(&before.access, &now.access));
        assert!(Arc::ptr_eq(&before.databases[0], &now.databases[1]), "whatever stands before it");
        assert!(!Arc::ptr_eq(&before.databases[1], &now.databases[0]));
    }

    #[test]
    fn changes_are_told_by_key_with_both_values_and_no_secret() {
        let all = changed(|next| {
            next.limits.clients = 5;
            next.limits.idle_transaction_timeout = Some(Duration::from_secs(90));
            next.access.policy = Policy::Method(Method::Md5);
            next.balancers = vec![Network::of([10, 0, 0, 1].into())];
            let Users::Listed(users) = &mut next.access.users else { unreachable!("they are listed") };
            users.remove("alice");
            users.insert("bob".to_owned(), StoredSecret::Plain("other".to_owned()));
            users.insert("carol".to_owned(), StoredSecret::Plain("new".to_owned()));
            next.databases.remove(0);
            let two = &mut next.databases[0];
            two.address = Address::Tcp("other".to_owned(), 5433);
            two.password = Some(Secret("new".to_owned()));
            two.user = Some("app".to_owned());
            two.pool.wait_timeout = Duration::from_millis(1500);
            two.pool.log_min_duration = Some(Duration::from_millis(250));
            two.pool.sharing = Sharing { mode: PoolMode::Session, auto_prepare: false, ..two.pool.sharing };
            next.databases.push(Database { name: None, ..next.databases[0].clone() });
        });
        let expected = [
            "proxy_protocol_from: 10.0.0.1, was none",
            "limits.clients: 5, was 10000",
            "limits.idle_transaction_timeout: 90s, was none",
            "auth.method: md5, was scram-sha-256",
            "users: 1 added, 1 removed, 1 with another secret",
            "database \"one\" removed",
            "database \"two\": server: other:5433, was db:5432",
            "database \"two\": user: app, was none",
            "database \"two\": password changed",
            "database \"two\": mode: session, was transaction",
            "database \"two\": wait_timeout: 1500ms, was 30s",
            "database \"two\": auto_prepare: false, was true",
            "database \"two\": log_min_duration_statement: 250ms, was none",
            "database \"*\" added",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_servers_rules_are_kept_as_long_as_it_is_the_one_that_is_asked() {
        let asking = |host: &str| {
            let address = Address::Tcp(host.to_owned(), 5432);
            let look_up = LookUp {
                address: address.clone(),
                cluster: None,
                tls: None,
                dbname: "postgres".to_owned(),
                user: "asks".to_owned(),
                password: None,
                server_auth: ServerAuth::default(),
                query: "select $1".to_owned(),
                asks_roles: true,
                cache: Duration::ZERO,
            };
            let access = Access { policy: Policy::ServerRules(None), users: Users::LookedUp(look_up, HashMap::new()) };
            (address, Configuration { access, ..configuration() })
        };
        let told = |text: &str| {
            let rules = Rules::of_server(&ServerRules {
                rules: vec![RuleRow { connection: "local".to_owned(), method: text.to_owned(), ..everybody() }],
                ..ServerRules::default()
            });
            let (rules, _) = rules.expect("it is a rule");
            Some(Arc::new(AccessRules { rules, unloaded: None, interfaces: Vec::new(), text: text.to_owned() }))
        };
        let (address, asks) = asking("one");
        let mut control = Control::new(asks.clone());
        let known = |control: &Control| control.snapshot().access.policy.rules().map(|rules| rules.text.clone());
        assert_eq!(known(&control), None);
        for text in ["trust", "reject"] {
            let published = control.observe(Observation::ServerRules(address.clone(), told(text)));
            let changes: Vec<_> = published.expect("it is news").changes.iter().map(ToString::to_string).collect();
            assert_eq!(changes, ["auth.hba: the server's rules changed"]);
            assert_eq!(known(&control).as_deref(), Some(text));
            assert!(control.observe(Observation::ServerRules(address.clone(), told(text))).is_none());
        }
        assert!(control.observe(Observation::Configured(asks.into())).is_none(), "they are known still");
        control.observe(Observation::Configured(asking("two").1.into()));
        assert_eq!(known(&control), None, "they are those of another server");
        control.observe(Observation::ServerRules(address.clone(), told("trust")));
        assert_eq!(known(&control), None, "the answer has come too late");
        control.observe(Observation::Configured(asking("one").1.into()));
        assert_eq!(known(&control), None, "nor does it count later");
        // Nobody follows them while others count.
        let asks = asking("one").1;
        control.observe(Observation::Configured(asks.clone().into()));
        control.observe(Observation::ServerRules(address.clone(), told("trust")));
        assert_eq!(known(&control).as_deref(), Some("trust"));
        control.observe(Observation::Configured(configuration().into()));
        control.observe(Observation::Configured(asks.into()));
        assert_eq!(known(&control), None, "it may have loaded others since");
        control.observe(Observation::ServerRules(address.clone(), told("trust")));
        control.observe(Observation::ServerRules(address, None));
        assert_eq!(known(&control), None, "it does not tell them any more");
    }

    #[test]
    fn a_database_and_its_look_up_are_where_the_primary_is() {
        let name: Arc<str> = "main".into();
        let unknown = Address::Primary(name.clone());
        let members = vec![Rest::parse("http://a:8008").unwrap()];
        let mut configuration = configuration();
        configuration.clusters = vec![Cluster { name: name.clone(), members, tls: None }];
        let one = &mut configuration.databases[0];
        (one.address, one.cluster) = (unknown.clone(), Some(name.clone()));
        let mut control = Control::new(configuration.clone());
        let at = |control: &Control| control.snapshot().databases[0].address.clone();
        assert_eq!(at(&control), unknown);
        let primary = |node: &str, timeline| Primary {
            node: node.to_owned(),
            address: Address::Tcp(node.to_owned(), 5432),
            timeline,
            system: "7".to_owned(),
        };
        let two = control.snapshot().databases[1].clone();
        let seen = |node, timeline| Observation::Primary(name.clone(), primary(node, timeline));
        let published = control.observe(seen("a", 1)).expect("it is news");
        let changes: Vec<_> = published.changes.iter().map(ToString::to_string).collect();
        assert_eq!(changes, ["cluster \"main\": primary: node \"a\" at a:5432, timeline 1, was none"]);
        assert_eq!(at(&control), primary("a", 1).address);
        assert!(control.observe(seen("a", 1)).is_none());
        control.observe(seen("b", 2)).expect("it has been promoted");
        assert_eq!(at(&control), primary("b", 2).address);
        assert!(control.observe(seen("a", 1)).is_none(), "it comes back, and does not know");
        assert_eq!(at(&control), primary("b", 2).address);
        assert!(Arc::ptr_eq(&two, &control.snapshot().databases[1]), "another's server");
        // It is known beyond a reload, as long as the cluster is there.
        let mut next = configuration.clone();
        next.databases[0].pool.size = 3;
        control.observe(Observation::Configured(next.into())).expect("a pool is smaller");
        assert_eq!(at(&control), primary("b", 2).address);
        let without = Configuration { clusters: Vec::new(), ..super::tests::configuration() };
        control.observe(Observation::Configured(without.into())).expect("it has gone");
        assert!(control.observe(seen("c", 3)).is_none(), "nobody follows it any more");
        control.observe(Observation::Configured(configuration.into())).expect("it is there again");
        assert_eq!(at(&control), unknown);
    }

    #[test]
    fn a_primary_with_other_data_is_withdrawn_until_there_is_one_with_its_own() {
        let (name, mut configuration): (Arc<str>, _) = ("main".into(), configuration());
        let unknown = Address::Primary(name.clone());
        configuration.clusters = vec![Cluster { name: name.clone(), members: Vec::new(), tls: None }];
        let one = &mut configuration.databases[0];
        (one.address, one.cluster) = (unknown.clone(), Some(name.clone()));
        let mut control = Control::new(configuration.clone());
        let at = |control: &Control| control.snapshot().databases[0].address.to_string();
        let seen = |host: &str, timeline, system: &str| {
            let (node, address) = ("a".to_owned(), Address::Tcp(host.to_owned(), 5432));
            Observation::Primary(name.clone(), Primary { node, address, timeline, system: system.to_owned() })
        };
        control.observe(seen("a", 3, "7")).expect("it is news");
        assert!(control.observe(seen("b", 4, "8")).is_none(), "others' data elsewhere are nothing to us");
        assert_eq!(at(&control), "a:5432");
        let published = control.observe(seen("a", 1, "8")).expect("it is news");
        let changes: Vec<_> = published.changes.iter().map(ToString::to_string).collect();
        assert_eq!(changes, ["cluster \"main\": primary: none, was node \"a\" at a:5432, timeline 3"]);
        assert_eq!(at(&control), unknown.to_string());
        let withdrawn = control.snapshot().clusters[0].withdrawn.clone().expect("it says why");
        assert!(withdrawn.by.to_string().ends_with("its system identifier is 8, not 7"), "{}", withdrawn.by);
        // Nothing but its own data brings it back.
        for (host, timeline, system) in [("a", 1, "8"), ("a", 9, "8"), ("b", 9, "8"), ("a", 2, "7")] {
            control.observe(seen(host, timeline, system));
            assert_eq!(at(&control), unknown.to_string(), "{host}, {timeline}, {system}");
        }
        assert!(control.observe(Observation::Configured(configuration.into())).is_none(), "nor does a reload");
        control.observe(seen("b", 3, "7")).expect("it is the same one, elsewhere");
        assert_eq!((at(&control), &control.snapshot().clusters[0].withdrawn), ("b:5432".to_owned(), &None));
    }

    fn everybody() -> RuleRow {
        RuleRow { databases: vec!["all".to_owned()], users: vec!["all".to_owned()], ..RuleRow::default() }
    }

    #[test]
    fn an_address_is_not_for_clients_to_see_and_a_role_is() {
        let before = &configuration().databases[0];
        let moved = Database { address: Address::Unix("/elsewhere".into()), ..before.clone() };
        assert!(moved.continues(before, "one") && !moved.keeps_pool_of(before, "one", &before.address));
        let other = Database { user: Some("app".to_owned()), ..before.clone() };
        assert!(!other.continues(before, "one") && !other.keeps_pool_of(before, "one", &before.address));
        // The same database by another entry.
        let any = Database { name: None, ..before.clone() };
        assert!(any.continues(before, "one") && any.keeps_pool_of(before, "one", &before.address));
        assert!(!Database { dbname: Some("two".to_owned()), ..any }.continues(before, "one"));
        let larger = Database { pool: PoolSettings { size: 50, ..before.pool.clone() }, ..before.clone() };
        assert!(larger.keeps_pool_of(before, "one", &before.address));
    }
}
