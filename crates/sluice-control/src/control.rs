//! The state machine: observations in, snapshots out.

use std::sync::Arc;

use crate::{
    access::{Access, AccessRules, Policy, Users},
    address::Address,
    changes::{self, Change},
    snapshot::{Configuration, Snapshot},
};

/// Something that has been observed outside.
#[derive(Debug)]
pub enum Observation {
    /// The configuration has been read, and is valid.
    Configured(Box<Configuration>),
    /// The server at that address has told its access rules; `None`: it does not tell them.
    ServerRules(Address, Option<Arc<AccessRules>>),
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
    /// The access rules that a server has told last, and its address, as long as somebody goes by them.
    server_rules: Option<(Address, Option<Arc<AccessRules>>)>,
}

impl Control {
    /// With that configuration.
    pub fn new(configuration: Configuration) -> Self {
        Self { snapshot: Arc::new(Snapshot::first(configuration)), server_rules: None }
    }

    /// The snapshot that was published last.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Takes an observation; gives the snapshot that it leads to, or nothing where all stays as it is.
    pub fn observe(&mut self, observation: Observation) -> Option<Published> {
        let next = match observation {
            Observation::Configured(mut configuration) => {
                if !matches!(configuration.access.policy, Policy::ServerRules(_)) {
                    // It may load others meanwhile, which nobody would notice.
                    self.server_rules = None;
                }
                self.fill_in(&mut configuration.access);
                self.snapshot.next(*configuration)
            }
            Observation::ServerRules(address, rules) => {
                self.server_rules = Some((address, rules));
                let mut access = Access::clone(&self.snapshot.access);
                self.fill_in(&mut access);
                self.snapshot.with_access(access)
            }
        };
        let changes = changes::between(&self.snapshot, &next);
        if changes.is_empty() {
            return None;
        }
        self.snapshot = Arc::new(next);
        Some(Published { snapshot: self.snapshot.clone(), changes })
    }

    /// Puts the rules of a server in their place, where clients are asked by them and they are known.
    fn fill_in(&self, access: &mut Access) {
        let (Policy::ServerRules(rules), Users::LookedUp(look_up)) = (&mut access.policy, &access.users) else {
            return;
        };
        if let Some((_, told)) = self.server_rules.as_ref().filter(|(address, _)| *address == look_up.address) {
            rules.clone_from(told);
        }
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
        access::{LookUp, Method},
        address::Network,
        settings::{Limits, PoolMode, PoolSettings, Sharing},
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
                tls: None,
                dbname: "postgres".to_owned(),
                user: "asks".to_owned(),
                password: None,
                query: "select $1".to_owned(),
                asks_roles: true,
                cache: Duration::ZERO,
            };
            let access = Access { policy: Policy::ServerRules(None), users: Users::LookedUp(look_up) };
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

    fn everybody() -> RuleRow {
        RuleRow { databases: vec!["all".to_owned()], users: vec!["all".to_owned()], ..RuleRow::default() }
    }

    #[test]
    fn an_address_is_not_for_clients_to_see_and_a_role_is() {
        let before = &configuration().databases[0];
        let moved = Database { address: Address::Unix("/elsewhere".into()), ..before.clone() };
        assert!(moved.continues(before, "one") && !moved.keeps_pools_of(before, "one"));
        let other = Database { user: Some("app".to_owned()), ..before.clone() };
        assert!(!other.continues(before, "one") && !other.keeps_pools_of(before, "one"));
        // The same database by another entry.
        let any = Database { name: None, ..before.clone() };
        assert!(any.continues(before, "one") && any.keeps_pools_of(before, "one"));
        assert!(!Database { dbname: Some("two".to_owned()), ..any }.continues(before, "one"));
        let larger = Database { pool: PoolSettings { size: 50, ..before.pool.clone() }, ..before.clone() };
        assert!(larger.keeps_pools_of(before, "one"));
    }
}
