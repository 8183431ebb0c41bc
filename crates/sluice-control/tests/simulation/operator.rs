//! The operator, who changes a few things from one configuration to the next. Each of them is valid, as the reader of
//! the configuration file leaves none that is not.
//!
//! Values are written out field by field, so that a new field has to be thought of here. Clients' connections are not
//! encrypted, and no file of certificates is read.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use sluice_control::{
    Configuration, Database, Secret,
    access::{Access, AccessRules, Admin, LookUp, Method, Policy, Users},
    address::{Address, Network},
    cluster::{Cluster, Rest},
    reading::{Causal, Reading, Scope, Target},
    server_auth::ServerAuth,
    settings::{Limits, PinPolicy, PoolMode, PoolSettings, Sharing, UserLimits},
};
use sluice_hba::{RuleRow, Rules, ServerRules};
use sluice_sim::Rng;
use sluice_tls::{ClientFiles, ClientTls, SslMode};
use sluice_wire::secret::Secret as StoredSecret;

/// In each secret, and nowhere else.
pub(crate) const MARK: &str = "hidden";

/// Clusters that may be configured.
const CLUSTERS: [&str; 2] = ["main", "other"];

const NAMES: [Option<&str>; 4] = [Some("one"), Some("two"), Some("three"), None];
const HOSTS: [&str; 3] = ["a", "b", "db"];
const USERS: [&str; 3] = ["alice", "bob", "carol"];

/// A few fields of one value, and the others of another.
macro_rules! some_of {
    ($rng:expr, $new:expr, $before:expr, $kind:ident { $($field:ident),* }) => {
        $kind { $($field: if $rng.percent(10) { $new.$field } else { $before.$field }),* }
    };
}

/// The operator of a run.
pub(crate) struct Operator {
    /// The configuration that was written last.
    pub(crate) configuration: Configuration,
    /// The name of the database whose server is asked for secrets; `None`: none is.
    pub(crate) asks: Option<Option<String>>,
    tls: Vec<Option<Arc<ClientTls>>>,
    secrets: u64,
}

impl Operator {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let load = |mode| ClientTls::load(mode, &ClientFiles::default()).expect("no file is needed");
        let tls = vec![None, Some(Arc::new(load(SslMode::Prefer))), Some(Arc::new(load(SslMode::Require)))];
        let configuration = Configuration {
            databases: Vec::new(),
            access: Access { policy: Policy::Method(Method::Trust), users: Users::Listed(HashMap::new()) },
            encryption: None,
            admin: None,
            balancers: Vec::new(),
            client_log: sluice_control::settings::ClientLog::default(),
            limits: limits(rng),
            clusters: Vec::new(),
        };
        let mut operator = Self { configuration, asks: None, tls, secrets: 0 };
        for _ in 0..rng.range(2, 20) {
            operator.change(rng);
        }
        operator
    }

    /// The next configuration; it may be the same, or the same in another order.
    pub(crate) fn write(&mut self, rng: &mut Rng) -> Configuration {
        for _ in 0..rng.pick(&[0, 1, 1, 1, 2, 5]) {
            self.change(rng);
        }
        if rng.percent(10) {
            self.configuration.databases.reverse();
            self.configuration.clusters.reverse();
        }
        self.configuration.clone()
    }

    fn change(&mut self, rng: &mut Rng) {
        match rng.below(12) {
            0..=2 => self.change_database(rng),
            3 => self.change_pool(rng),
            4 | 5 => self.change_cluster(rng),
            6 => self.change_limits(rng),
            7 => self.configuration.access.policy = policy(rng),
            8 | 9 => self.change_users(rng),
            10 => self.change_source_of_secrets(rng),
            _ => self.change_surroundings(rng),
        }
        self.make_valid(rng);
    }

    fn change_database(&mut self, rng: &mut Rng) {
        let name = rng.pick(&NAMES).map(str::to_owned);
        let before = self.configuration.databases.extract_if(.., |it| it.name == name).next();
        let new = Database {
            name,
            address: Address::Tcp(rng.pick(&HOSTS).to_owned(), 5432),
            cluster: rng.percent(60).then(|| rng.pick(&CLUSTERS).into()),
            reading: rng.percent(50).then(|| reading(rng)),
            read_only: rng.percent(50).then(|| Reading { target: Target::Standby, ..reading(rng) }),
            causal: rng.percent(50).then(|| causal(rng)),
            reports_commits: rng.percent(50),
            readers: Vec::new(),
            spare: None,
            tls: rng.pick(&[0, 1, 2].map(|at| &self.tls[at])).clone(),
            dbname: rng.percent(30).then(|| "elsewhere".to_owned()),
            user: rng.percent(30).then(|| rng.pick(&USERS).to_owned()),
            password: rng.percent(50).then(|| Secret(self.secret(rng))),
            server_auth: rng.pick(&ServerAuth::WORDS.map(|(_, auth)| auth)),
            client_address_secret: rng.percent(30).then(|| Secret(self.secret(rng))),
            clients: some(rng),
            servers: some(rng),
            pool: pool(rng),
        };
        let database = match before {
            None => new,
            // It is gone.
            Some(_) if rng.percent(20) => return,
            Some(before) => some_of!(
                rng,
                new,
                before,
                Database {
                    name,
                    address,
                    cluster,
                    reading,
                    read_only,
                    causal,
                    reports_commits,
                    readers,
                    spare,
                    tls,
                    dbname,
                    user,
                    password,
                    server_auth,
                    client_address_secret,
                    clients,
                    servers,
                    pool
                }
            ),
        };
        self.configuration.databases.push(database);
    }

    fn change_pool(&mut self, rng: &mut Rng) {
        let mut new = pool(rng);
        let at = rng.index(self.configuration.databases.len());
        let Some(Database { pool, .. }) = self.configuration.databases.get_mut(at) else { return };
        let before = pool.clone();
        let (sharing, shared) = (new.sharing, before.sharing);
        new.sharing = some_of!(rng, sharing, shared, Sharing { mode, auto_prepare, lazy_begin, pins });
        *pool = some_of!(
            rng,
            new,
            before,
            PoolSettings {
                sharing,
                size,
                min,
                wait_timeout,
                failover_timeout,
                server_lifetime,
                server_idle_timeout,
                connect_timeout,
                backoff_min,
                backoff_max,
                parallel_connects,
                pinned_max,
                prepared_per_server,
                log_min_duration
            }
        );
        pool.sharing = new.sharing;
    }

    fn change_limits(&mut self, rng: &mut Rng) {
        let (mut new, before) = (limits(rng), self.configuration.limits.clone());
        for (user, limits) in &mut new.users {
            let (one, before) = (*limits, before.users.get(user).copied().unwrap_or_default());
            *limits = some_of!(rng, one, before, UserLimits { clients, servers });
        }
        new.users.retain(|_, limits| *limits != UserLimits::default());
        self.configuration.limits = some_of!(
            rng,
            new,
            before,
            Limits {
                clients,
                clients_per_address,
                clients_per_user,
                servers,
                servers_per_host,
                servers_per_user,
                users,
                pools,
                login_timeout,
                client_message_timeout,
                idle_transaction_timeout,
                idle_client_timeout,
                query_timeout,
                rewritten_message_bytes
            }
        );
    }

    fn change_cluster(&mut self, rng: &mut Rng) {
        let name: Arc<str> = rng.pick(&CLUSTERS).into();
        let gone = self.configuration.clusters.extract_if(.., |it| it.name == name).next();
        if gone.is_none() || rng.percent(60) {
            let hosts = &HOSTS[..rng.range(1, 3) as usize];
            let member = |host: &&str| Rest { is_encrypted: false, host: (*host).to_owned(), port: 8008 };
            let tls = self.tls[rng.index(self.tls.len())].clone();
            self.configuration.clusters.push(Cluster { name, members: hosts.iter().map(member).collect(), tls });
        }
    }

    fn change_users(&mut self, rng: &mut Rng) {
        let secret = self.secret(rng);
        let new = look_up(rng, secret.clone());
        match &mut self.configuration.access.users {
            Users::Listed(users) => {
                let user = rng.pick(&USERS);
                if users.remove(user).is_none() || rng.percent(50) {
                    users.insert(user.to_owned(), StoredSecret::Plain(secret));
                }
            }
            Users::LookedUp(..) if rng.percent(30) => self.asks = Some(rng.pick(&NAMES).map(str::to_owned)),
            Users::LookedUp(_, listed) if rng.percent(30) => {
                let user = rng.pick(&USERS);
                if listed.remove(user).is_none() {
                    listed.insert(user.to_owned(), rng.percent(70).then_some(StoredSecret::Plain(secret)));
                }
            }
            Users::LookedUp(look_up, _) => {
                let before = look_up.clone();
                *look_up = some_of!(
                    rng,
                    new,
                    before,
                    LookUp { address, cluster, tls, dbname, user, password, server_auth, query, asks_roles, cache }
                );
            }
        }
    }

    /// From listed users to a look-up, or back.
    fn change_source_of_secrets(&mut self, rng: &mut Rng) {
        if self.asks.is_some() && rng.percent(30) {
            self.asks = None;
            self.configuration.access.users = Users::Listed(HashMap::new());
            return;
        }
        self.asks = Some(rng.pick(&NAMES).map(str::to_owned));
        let secret = self.secret(rng);
        self.configuration.access.users = Users::LookedUp(look_up(rng, secret), HashMap::new());
    }

    fn change_surroundings(&mut self, rng: &mut Rng) {
        let users = |rng: &mut Rng| USERS[..rng.index(USERS.len())].iter().map(|user| (*user).to_owned()).collect();
        let admin = Admin { database: "sluice".to_owned(), users: users(rng), stats_users: users(rng) };
        self.configuration.admin = rng.percent(70).then_some(admin);
        let network = |last: u8| Network::of(IpAddr::from([10, 0, 0, last]));
        self.configuration.balancers = (0..rng.below(3) as u8).map(network).collect();
    }

    /// Does what the reader of the configuration file sees to: databases are in clusters that there are, secrets are
    /// looked up where a database is, and a server's rules come from where they are looked up.
    fn make_valid(&mut self, rng: &mut Rng) {
        let Self { configuration: Configuration { databases, access, clusters, .. }, asks, .. } = self;
        for database in &mut *databases {
            let is_there = |name: &Arc<str>| clusters.iter().any(|it| it.name == *name);
            database.cluster = database.cluster.take().filter(is_there);
            database.reading = database.reading.take().filter(|_| database.cluster.is_some());
            let leads = database.cluster.is_some() && database.reading.is_none();
            database.read_only = database.read_only.take().filter(|_| leads);
            match (&database.cluster, &database.address) {
                (Some(cluster), _) if database.reading.is_some() => {
                    database.address = Address::Readers(cluster.clone())
                }
                (Some(cluster), _) => database.address = Address::Primary(cluster.clone()),
                (None, Address::Primary(_) | Address::Readers(_)) => {
                    database.address = Address::Tcp(rng.pick(&HOSTS).to_owned(), 5432)
                }
                (None, _) => {}
            }
        }
        if let Users::LookedUp(look_up, _) = &mut access.users {
            let database = databases.iter().find(|it| Some(&it.name) == asks.as_ref()).or(databases.first());
            *asks = database.map(|it| it.name.clone());
            match database {
                Some(Database { address, cluster, tls, .. }) => {
                    // Secrets are the primary's.
                    let primary = cluster.clone().map(Address::Primary);
                    look_up.address = primary.unwrap_or_else(|| address.clone());
                    (look_up.cluster, look_up.tls) = (cluster.clone(), tls.clone());
                    look_up.asks_roles = !matches!(access.policy, Policy::Method(_));
                }
                None => access.users = Users::Listed(HashMap::new()),
            }
        }
        if let (Policy::ServerRules(_), Users::Listed(_)) = (&access.policy, &access.users) {
            access.policy = Policy::Method(Method::Md5);
        }
    }

    /// One that was there before, or another.
    fn secret(&mut self, rng: &mut Rng) -> String {
        self.secrets += u64::from(rng.percent(50));
        format!("{MARK} {}", self.secrets)
    }
}

fn policy(rng: &mut Rng) -> Policy {
    match rng.below(4) {
        0 => Policy::Method(rng.pick(&[Method::Trust, Method::Md5, Method::ScramSha256])),
        1 => Policy::Rules(rules(rng)),
        _ => Policy::ServerRules(None),
    }
}

/// One of few.
pub(crate) fn rules(rng: &mut Rng) -> Arc<AccessRules> {
    let method = rng.pick(&["trust", "reject", "scram-sha-256"]).to_owned();
    let all = || vec!["all".to_owned()];
    let row = RuleRow {
        connection: "local".to_owned(),
        databases: all(),
        users: all(),
        method: method.clone(),
        ..RuleRow::default()
    };
    let (rules, _) =
        Rules::of_server(&ServerRules { rules: vec![row], ..ServerRules::default() }).expect("it is a rule");
    Arc::new(AccessRules { rules, unloaded: None, interfaces: Vec::new(), text: format!("{MARK} {method}") })
}

/// Its place is that of a database.
fn look_up(rng: &mut Rng, secret: String) -> LookUp {
    LookUp {
        address: Address::Primary("replaced".into()),
        cluster: None,
        tls: None,
        dbname: rng.pick(&["postgres", "secrets"]).to_owned(),
        user: rng.pick(&["asks", "looks"]).to_owned(),
        password: rng.percent(70).then_some(Secret(secret)),
        server_auth: ServerAuth::default(),
        query: rng.pick(&["SELECT $1", "SELECT lower($1)"]).to_owned(),
        asks_roles: false,
        cache: duration(rng),
    }
}

fn reading(rng: &mut Rng) -> Reading {
    Reading {
        target: rng.pick(&[Target::Standby, Target::PreferStandby, Target::Any]),
        lag_max: Duration::from_secs(rng.pick(&[4, 10])),
        lag_bytes_max: rng.percent(30).then(|| rng.pick(&[100, 1000])),
    }
}

fn causal(rng: &mut Rng) -> Causal {
    Causal { scope: rng.pick(&[Scope::Local, Scope::Global]), timeout: Duration::from_secs(rng.pick(&[1, 2])) }
}

fn pool(rng: &mut Rng) -> PoolSettings {
    let modes = [PoolMode::Transaction, PoolMode::Session];
    let sharing = Sharing {
        mode: rng.pick(&modes),
        auto_prepare: rng.percent(50),
        lazy_begin: rng.percent(50),
        pins: rng.pick(&[PinPolicy::Pin, PinPolicy::Refuse]),
    };
    PoolSettings {
        sharing,
        size: number(rng),
        min: number(rng),
        wait_timeout: duration(rng),
        failover_timeout: rng.percent(50).then(|| duration(rng)),
        server_lifetime: duration(rng),
        server_idle_timeout: duration(rng),
        connect_timeout: duration(rng),
        backoff_min: duration(rng),
        backoff_max: duration(rng),
        parallel_connects: number(rng),
        pinned_max: some(rng),
        prepared_per_server: number(rng),
        log_min_duration: rng.percent(50).then(|| duration(rng)),
    }
}

fn limits(rng: &mut Rng) -> Limits {
    let mut users = USERS.map(|user| (user.to_owned(), UserLimits { clients: some(rng), servers: some(rng) })).to_vec();
    // One without a limit of its own is not in the file.
    users.retain(|(_, limits)| *limits != UserLimits::default());
    Limits {
        clients: number(rng),
        clients_per_address: some(rng),
        clients_per_user: some(rng),
        servers: number(rng),
        servers_per_host: some(rng),
        servers_per_user: some(rng),
        users: users.into_iter().collect(),
        pools: number(rng),
        login_timeout: duration(rng),
        client_message_timeout: duration(rng),
        idle_transaction_timeout: rng.percent(50).then(|| duration(rng)),
        idle_client_timeout: rng.percent(50).then(|| duration(rng)),
        query_timeout: rng.percent(50).then(|| duration(rng)),
        rewritten_message_bytes: number(rng) << 20,
    }
}

fn number(rng: &mut Rng) -> u32 {
    rng.range(1, 2) as u32
}

fn some(rng: &mut Rng) -> Option<u32> {
    rng.percent(50).then(|| number(rng))
}

fn duration(rng: &mut Rng) -> Duration {
    Duration::from_secs(rng.range(1, 2))
}
