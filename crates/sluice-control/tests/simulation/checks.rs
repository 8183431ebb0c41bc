//! Checks that must hold after each observation.

use std::{collections::BTreeMap, sync::Arc};

use sluice_control::{
    Configuration, Database, Published, Snapshot,
    access::{Access, Policy, Users},
    address::Address,
    cluster::{Cluster, Primary},
};

use crate::{operator::MARK, world::Model};

/// All that a snapshot says, in an order of its own: the order in a file is no news.
#[derive(Debug, PartialEq)]
pub(crate) struct Content {
    databases: BTreeMap<Option<String>, Database>,
    clusters: BTreeMap<Arc<str>, (Cluster, Option<Primary>)>,
    /// The others, most of which go from a configuration into a snapshot as they are.
    rest: Configuration,
}

/// An observation, and what has come of it.
pub(crate) struct Step<'a> {
    /// The snapshot that there was.
    pub(crate) before: Arc<Snapshot>,
    pub(crate) published: Option<Published>,
    /// The one that there is.
    pub(crate) snapshot: &'a Arc<Snapshot>,
    /// The content that the one before had to have.
    pub(crate) was: Content,
    /// The content that this one has to have.
    pub(crate) now: Content,
}

/// The content of a snapshot after all that has been said.
pub(crate) fn expected(model: &Model) -> Content {
    let mut configuration = model.configuration.clone();
    for database in &mut configuration.databases {
        database.readers = model.readers.get(&database.name).map(|it| it.1.clone()).unwrap_or_default();
        let primary = database.cluster.as_ref().and_then(|cluster| model.primary(cluster));
        match database.reading {
            Some(_) => database.spare = primary.filter(|_| database.causal.is_some()).map(|it| it.address.clone()),
            None => database.address = model.place(database.cluster.as_ref(), &database.address),
        }
    }
    if let Users::LookedUp(look_up, _) = &mut configuration.access.users {
        look_up.address = model.place(look_up.cluster.as_ref(), &look_up.address);
    }
    if let Policy::ServerRules(rules) = &mut configuration.access.policy {
        rules.clone_from(&model.rules);
    }
    content(configuration, |cluster| model.primary(&cluster.name).cloned())
}

fn shown(snapshot: &Snapshot) -> Content {
    let configuration = Configuration {
        databases: snapshot.databases.iter().map(|it| Database::clone(it)).collect(),
        access: Access::clone(&snapshot.access),
        encryption: snapshot.encryption.clone(),
        admin: snapshot.admin.clone(),
        balancers: snapshot.balancers.clone(),
        client_log: snapshot.client_log,
        limits: snapshot.limits.clone(),
        clusters: snapshot.clusters.iter().map(|it| Cluster::clone(&it.cluster)).collect(),
    };
    let standing = |name: &str| snapshot.clusters.iter().find(|it| &*it.cluster.name == name);
    content(configuration, |cluster| standing(&cluster.name).and_then(|it| it.primary.clone()))
}

fn content(mut rest: Configuration, primary: impl Fn(&Cluster) -> Option<Primary>) -> Content {
    let databases = rest.databases.drain(..).map(|it| (it.name.clone(), it)).collect();
    let clusters = rest.clusters.drain(..).map(|it| (it.name.clone(), (it.clone(), primary(&it)))).collect();
    Content { databases, clusters, rest }
}

/// Checks everything.
pub(crate) fn check(step: &Step<'_>, model: &Model) {
    let shown = shown(step.snapshot);
    assert_eq!(shown.databases, step.now.databases, "databases are where nobody has seen them");
    assert_eq!(shown.clusters, step.now.clusters, "clusters are not as they have been observed");
    assert_eq!(shown.rest.access, step.now.rest.access, "clients are let in by something that does not count");
    assert_eq!(shown, step.now, "the snapshot is not what has been observed");
    news(step);
    same_values(step);
    for database in &step.snapshot.databases {
        match database.reading {
            Some(_) => assert_eq!(database.address, Address::Readers(database.cluster.clone().expect("it has one"))),
            None => primaries(database, model),
        }
        readers(database, model);
    }
    look_up(step.snapshot, model);
}

/// A version rises where something has changed, and nowhere else; then it is said what, and no secret.
fn news(Step { before, published, snapshot, was, now }: &Step<'_>) {
    assert_eq!(published.is_some(), was != now, "a snapshot is published where something has changed");
    assert_eq!(snapshot.version, before.version + u64::from(published.is_some()));
    assert!(published.is_some() || Arc::ptr_eq(before, snapshot), "it is the same snapshot without news");
    let Some(published) = published else { return };
    assert!(Arc::ptr_eq(&published.snapshot, snapshot), "another one is published");
    assert!(!published.changes.is_empty(), "a snapshot without changes");
    for change in &published.changes {
        let said = format!("{change} {change:?}");
        assert!(!said.contains(MARK), "a secret is told: {said}");
    }
}

/// Values that have not changed are the very same.
fn same_values(Step { before, snapshot, .. }: &Step<'_>) {
    for database in &snapshot.databases {
        if let Some(same) = before.databases.iter().find(|it| *it == database) {
            assert!(Arc::ptr_eq(same, database), "another value of the same database {:?}", database.name);
        }
    }
    for standing in &snapshot.clusters {
        if let Some(same) = before.clusters.iter().find(|it| it.cluster == standing.cluster) {
            assert!(Arc::ptr_eq(&same.cluster, &standing.cluster), "another value of the same cluster");
        }
    }
    let is_same = before.access == snapshot.access;
    assert_eq!(
        Arc::ptr_eq(&before.access, &snapshot.access),
        is_same,
        "access is the same value as long as it is equal"
    );
}

/// A database is at its cluster's primary where that is known, and never at a node that another has come after.
fn primaries(database: &Database, model: &Model) {
    let Some(cluster) = &database.cluster else {
        assert!(!matches!(database.address, Address::Primary(_)), "it is in no cluster");
        return;
    };
    let claims = model.claims.get(cluster).map_or(&[][..], Vec::as_slice);
    let is_unknown = database.address == Address::Primary(cluster.clone());
    let is_withdrawn = model.last_primary(cluster).is_some_and(|(_, is_withdrawn)| is_withdrawn);
    let is_none = claims.is_empty() || is_withdrawn;
    assert_eq!(is_unknown, is_none, "the primary of {cluster} is known as long as one has been seen with its data");
    let Some(first) = claims.first().filter(|_| !is_withdrawn) else { return };
    let ours = || claims.iter().filter(|it| it.system == first.system);
    let here = ours().filter(|it| it.address == database.address).map(|it| it.timeline).max();
    assert!(here.is_some(), "nobody has said that the primary of {cluster} is at {}", database.address);
    assert_eq!(here, ours().map(|it| it.timeline).max(), "{} is behind in {cluster}", database.address);
}

/// Readers are at nodes that have been seen, none of them twice, and a standby among them is no primary.
fn readers(database: &Database, model: &Model) {
    let Some(cluster) = &database.cluster else { return assert!(database.readers.is_empty(), "they are a cluster's") };
    let primary = model.primary(cluster);
    for (index, reader) in database.readers.iter().enumerate() {
        let is_primary = primary.is_some_and(|it| it.address == reader.address);
        assert_eq!(reader.is_primary, is_primary, "{reader:?} is told to be another");
        assert!(database.readers[..index].iter().all(|it| it.address != reader.address), "{reader:?} is there twice");
    }
}

/// Secrets are looked up where the database is whose server is asked, and rules are that server's.
fn look_up(snapshot: &Snapshot, model: &Model) {
    let Users::LookedUp(look_up, _) = &snapshot.access.users else { return };
    let asked = model.asks.as_ref().expect("a database's server is asked");
    let database = snapshot.databases.iter().find(|it| it.name == *asked).expect("it is there");
    assert_eq!(look_up.cluster, database.cluster);
    assert_eq!(look_up.address, model.place(database.cluster.as_ref(), &database.address), "it is the primary's");
    if let Policy::ServerRules(Some(_)) = &snapshot.access.policy {
        assert_eq!(model.asked().as_ref(), Some(&look_up.address), "they are those of another server");
    }
}
