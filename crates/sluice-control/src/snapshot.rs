//! The snapshot that workers go by, and the configuration that it is made of.

use std::{collections::HashMap, sync::Arc};

use sluice_tls::ClientTls;

use crate::{
    Secret,
    access::{Access, Admin, Encryption, Policy, Users},
    address::{Address, Network, PeerAddress},
    cluster::{Cluster, NotPrimary, Primary, Standing, Withdrawn},
    reading::{Causal, Node, Reader, Reading},
    server_auth::ServerAuth,
    settings::{ClientLog, Limits, PoolSettings},
};

/// An operator's decisions, all of them valid together.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// The databases that clients may name; no two have the same name.
    pub databases: Vec<Database>,
    /// The authentication of clients.
    pub access: Access,
    /// The encryption of clients' connections; `None`: there is none.
    pub encryption: Option<Encryption>,
    /// The users of the admin console; `None`: there is none.
    pub admin: Option<Admin>,
    /// The balancers that say by the PROXY protocol where their clients come from.
    pub balancers: Vec<Network>,
    /// The limits of the process.
    pub limits: Limits,
    /// The clients that are logged as they come and go.
    pub client_log: ClientLog,
    /// The clusters that databases are in; no two have the same name.
    pub clusters: Vec<Cluster>,
}

/// A database as clients may name it, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// The name; `None` matches any that no other has, and one that begins with an asterisk those that end like it.
    pub name: Option<String>,
    /// The server's address.
    pub address: Address,
    /// The cluster whose primary that is; `None`: it is one server.
    pub cluster: Option<Arc<str>>,
    /// The decisions about its readers, where it is for reading; its address is then of no account.
    pub reading: Option<Reading>,
    /// The decisions about standbys for transactions that clients begin as read-only, where the primary's are led there.
    pub read_only: Option<Reading>,
    /// The commits that readers at a standby are to find; `None`: those that it happens to have.
    pub causal: Option<Causal>,
    /// Whether its servers are to say where commits end in the log: some database of the cluster has readers who find them.
    pub reports_commits: bool,
    /// The nodes that readers, or read-only transactions, go to now, in an order of their own.
    pub readers: Vec<Reader>,
    /// The primary's address, where it is for readers that a standby would keep waiting.
    pub spare: Option<Address>,
    /// The encryption on the way to it; `None`: none.
    pub tls: Option<Arc<ClientTls>>,
    /// The name there; `None` keeps the client's.
    pub dbname: Option<String>,
    /// The role there; `None` keeps the client's user.
    pub user: Option<String>,
    /// The password there.
    pub password: Option<Secret>,
    /// The ways in which it may have the pool log in.
    pub server_auth: ServerAuth,
    /// The secret of the extension there, to tell it where clients come from.
    pub client_address_secret: Option<Secret>,
    /// Clients at once that name it so; `None`: as many as there may be.
    pub clients: Option<u32>,
    /// Server connections at once, over all of its pools; `None`: as many as there may be.
    pub servers: Option<u32>,
    /// The settings of its pools.
    pub pool: PoolSettings,
}

/// All that workers go by, as of one moment. It never changes.
#[derive(Debug)]
pub struct Snapshot {
    /// A number that is larger in each later one.
    pub version: u64,
    /// The databases that clients may name. What has not changed is the same value as in the snapshot before.
    pub databases: Vec<Arc<Database>>,
    /// The authentication of clients; the same value as before unless it has changed.
    pub access: Arc<Access>,
    /// The encryption of clients' connections.
    pub encryption: Option<Encryption>,
    /// The users of the admin console.
    pub admin: Option<Admin>,
    /// The balancers that say by the PROXY protocol where their clients come from.
    pub balancers: Vec<Network>,
    /// The limits of the process.
    pub limits: Limits,
    /// The clients that are logged as they come and go.
    pub client_log: ClientLog,
    /// The clusters that databases are in, and their primaries as far as they are known.
    pub clusters: Vec<Standing>,
}

/// The clusters as they were seen last.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Their primaries.
    pub(crate) primaries: HashMap<Arc<str>, Primary>,
    /// The nodes with other data that are where those of some were.
    pub(crate) withdrawn: HashMap<Arc<str>, NotPrimary>,
    /// The nodes of those that have readers.
    pub(crate) nodes: HashMap<Arc<str>, Vec<Node>>,
}

impl Seen {
    /// The primary of a cluster that may be connected to.
    fn primary(&self, cluster: &str) -> Option<&Primary> {
        self.primaries.get(cluster).filter(|_| !self.withdrawn.contains_key(cluster))
    }

    fn withdrawn(&self, cluster: &str) -> Option<Withdrawn> {
        let (primary, by) = (self.primaries.get(cluster)?, self.withdrawn.get(cluster)?);
        Some(Withdrawn { primary: primary.clone(), by: by.clone() })
    }
}

impl Database {
    /// Any database of the server at that address, under the clients' own names.
    pub fn any_at(address: Address, pool: PoolSettings) -> Self {
        Self {
            name: None,
            address,
            cluster: None,
            reading: None,
            read_only: None,
            causal: None,
            reports_commits: false,
            readers: Vec::new(),
            spare: None,
            tls: None,
            dbname: None,
            user: None,
            password: None,
            server_auth: ServerAuth::default(),
            client_address_secret: None,
            clients: None,
            servers: None,
            pool,
        }
    }

    /// The name on the server for clients that call it `name`.
    pub fn dbname_for<'a>(&'a self, name: &'a str) -> &'a str {
        let plain = || self.suffix().and_then(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        self.dbname.as_deref().unwrap_or_else(plain)
    }

    /// The end that all of its names have, if it is for such.
    fn suffix(&self) -> Option<&str> {
        self.name.as_deref()?.strip_prefix('*').filter(|suffix| !suffix.is_empty())
    }

    /// Whether clients that say `name` may mean it by the end of that.
    fn ends(&self, name: &str) -> bool {
        self.suffix().is_some_and(|suffix| name.len() > suffix.len() && name.ends_with(suffix))
    }

    /// The addresses at which clients have their places; one of them is none where nobody knows where it is.
    pub fn places(&self) -> Vec<Address> {
        match &*self.readers {
            readers if self.reading.is_some() && !readers.is_empty() => {
                readers.iter().map(|reader| reader.address.clone()).collect()
            }
            _ => vec![self.address.clone()],
        }
    }

    /// The addresses at which it has pools: also those where clients have no place, and go for a transaction.
    pub fn addresses(&self) -> Vec<Address> {
        let mut addresses = self.places();
        let others = self.readers.iter().map(|reader| &reader.address).chain(&self.spare);
        for address in others {
            if !addresses.contains(address) {
                addresses.push(address.clone());
            }
        }
        addresses
    }

    /// Whether the node at that address is its cluster's primary, as far as it is for reading; `None`: it is not.
    pub fn is_primary(&self, address: &Address) -> Option<bool> {
        match self.reader(address) {
            Some(reader) => Some(reader.is_primary),
            None => (self.spare.as_ref() == Some(address)).then_some(true),
        }
    }

    /// The reader's node at that address.
    pub fn reader(&self, address: &Address) -> Option<&Reader> {
        self.readers.iter().find(|reader| reader.address == *address)
    }

    /// The role on the server for a client of that user.
    pub fn role_for<'a>(&'a self, user: &'a str) -> &'a str {
        self.user.as_deref().unwrap_or(user)
    }

    /// Whether clients that call it `name` can go on by this where they were served by that: a server's address is not
    /// for them to see, but the database and the role there are, and so is the time for which they have a server.
    pub fn continues(&self, before: &Self, name: &str) -> bool {
        let seen = |it: &Self| (it.dbname_for(name).to_owned(), it.user.clone(), it.pool.sharing.mode);
        seen(self) == seen(before)
    }

    /// Whether that one's pool at an address is just as good for this: no more than sizes and times differ.
    pub fn keeps_pool_of(&self, before: &Self, name: &str, address: &Address) -> bool {
        let leads_there = self.addresses().contains(address) && self.is_primary(address) == before.is_primary(address);
        leads_there && self.reading.is_some() == before.reading.is_some() && self.is_alike(before, name)
    }

    fn is_alike(&self, before: &Self, name: &str) -> bool {
        let settled = |it: &Self| {
            let login = (it.user.clone(), it.password.clone(), it.server_auth, it.client_address_secret.clone());
            let reading = (it.read_only.is_some(), it.causal, it.reports_commits);
            (it.tls.clone(), it.dbname_for(name).to_owned(), login, it.pool.sharing, reading)
        };
        settled(self) == settled(before)
    }
}

impl Snapshot {
    /// The first one.
    pub fn first(configuration: Configuration) -> Self {
        let Configuration { databases, access, encryption, admin, balancers, limits, client_log, clusters } =
            configuration;
        let databases = databases.into_iter().map(Arc::new).collect();
        let unseen = |cluster| Standing { cluster: Arc::new(cluster), primary: None, withdrawn: None };
        let clusters = clusters.into_iter().map(unseen).collect();
        Self {
            version: 1,
            databases,
            access: Arc::new(access),
            encryption,
            admin,
            balancers,
            limits,
            client_log,
            clusters,
        }
    }

    /// The one after this.
    pub(crate) fn next(
        &self,
        configuration: Configuration,
        seen: &Seen,
        fill_in: impl FnOnce(&mut Policy, &Users),
    ) -> Self {
        let Configuration { databases, mut access, encryption, admin, balancers, limits, client_log, clusters } =
            configuration;
        let keep = |database: Database| {
            let mut database = located(database, seen);
            database.readers = self.readers_of(&database, seen);
            let known = self.databases.iter().find(|known| ***known == database);
            known.cloned().unwrap_or_else(|| Arc::new(database))
        };
        let databases = databases.into_iter().map(keep).collect();
        locate_look_up(&mut access, seen);
        fill_in(&mut access.policy, &access.users);
        let access = self.kept_access(access);
        let standing = |cluster: Cluster| {
            let (primary, withdrawn) = (seen.primary(&cluster.name).cloned(), seen.withdrawn(&cluster.name));
            Standing { cluster: self.kept_cluster(cluster), primary, withdrawn }
        };
        let clusters = clusters.into_iter().map(standing).collect();
        Self {
            version: self.version + 1,
            databases,
            access,
            encryption,
            admin,
            balancers,
            limits,
            client_log,
            clusters,
        }
    }

    /// Whether all readers go to those nodes already: nodes are looked at each second, and mostly nothing has changed.
    pub(crate) fn has_readers_of(&self, seen: &Seen) -> bool {
        self.databases.iter().all(|it| self.readers_of(it, seen) == it.readers)
    }

    /// The nodes for a database's readers, as they are now.
    fn readers_of(&self, database: &Database, seen: &Seen) -> Vec<Reader> {
        let reading = database.reading.as_ref().or(database.read_only.as_ref());
        let (Some(reading), Some(cluster)) = (reading, &database.cluster) else { return Vec::new() };
        let before = self.databases.iter().find(|it| it.name == database.name && it.cluster == database.cluster);
        let before = before.map_or(&[][..], |before| &before.readers);
        let nodes = seen.nodes.get(cluster).map_or(&[][..], Vec::as_slice);
        reading.readers(nodes, seen.primary(cluster), before)
    }

    /// The same value as in this one, unless it has changed.
    fn kept_access(&self, access: Access) -> Arc<Access> {
        if *self.access == access { self.access.clone() } else { Arc::new(access) }
    }

    fn kept_cluster(&self, cluster: Cluster) -> Arc<Cluster> {
        let known = self.clusters.iter().map(|standing| &standing.cluster).find(|known| ***known == cluster);
        known.cloned().unwrap_or_else(|| Arc::new(cluster))
    }

    /// Whether a connection from there has to say first whose it is.
    pub fn is_balancer(&self, peer: PeerAddress) -> bool {
        match peer {
            PeerAddress::Local => false,
            PeerAddress::Tcp(address, _) => self.balancers.iter().any(|network| network.contains(address)),
        }
    }

    /// The database that a client means by that name; `None` if there is none.
    pub fn database(&self, name: &str) -> Option<&Arc<Database>> {
        let named = self.databases.iter().find(|database| database.name.as_deref() == Some(name));
        let length = |database: &&Arc<Database>| database.name.as_ref().map(String::len);
        let ends = || self.databases.iter().filter(|database| database.ends(name)).max_by_key(length);
        named.or_else(ends).or_else(|| self.databases.iter().find(|database| database.name.is_none()))
    }
}

/// A database at the primary of its cluster, where that is known.
fn located(mut database: Database, seen: &Seen) -> Database {
    let Some(primary) = database.cluster.as_ref().and_then(|cluster| seen.primary(cluster)) else { return database };
    if database.reading.is_none() {
        database.address = primary.address.clone();
    } else if database.causal.is_some() {
        database.spare = Some(primary.address.clone());
    }
    database
}

/// The same for where secrets are looked up.
fn locate_look_up(access: &mut Access, seen: &Seen) {
    if let Users::LookedUp(look_up, _) = &mut access.users
        && let Some(primary) = look_up.cluster.as_ref().and_then(|cluster| seen.primary(cluster))
    {
        look_up.address = primary.address.clone();
    }
}
