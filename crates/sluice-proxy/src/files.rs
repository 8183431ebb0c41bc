//! The configuration file as the control plane's observation.

use std::{collections::HashMap, sync::Arc};

use sluice_config::{Config, DatabaseConfig, LookupConfig, Report, ServerAddress, users};
use sluice_control::{
    Configuration, Database,
    access::{Access, LookUp, Method, Policy, Users},
    address::Address,
};
use sluice_core::hub::Hub;
use sluice_wire::secret::Secret;

use crate::net::sockets;

/// Reads the files that a configuration names; what is wrong there is told as for the configuration itself.
pub(crate) fn configuration(config: &Config) -> Result<Configuration, Report> {
    let listed = config.auth.users_file.as_deref().map(users::load).transpose()?.unwrap_or_default();
    // Who has no secret has nothing to prove, and can be let in by rules only that ask for no password.
    let listed = listed.into_iter().map(|(user, secret)| {
        let secret = Some(secret.0).filter(|secret| !secret.is_empty());
        (user, secret.map(|secret| Secret::parse(&secret)))
    });
    let users = match &config.auth.lookup {
        Some(look_up) => {
            let mut listed: HashMap<_, _> = listed.collect();
            if let Some((user, secret)) = of_console(config, look_up) {
                listed.entry(user).or_insert(Some(secret));
            }
            for user in &config.auth.without_secret {
                listed.entry(user.clone()).or_insert(None);
            }
            look_up_of(config, look_up, listed)
        }
        None => Users::Listed(listed.filter_map(|(user, secret)| Some((user, secret?))).collect()),
    };
    let databases = config.databases.iter().map(|database| Database {
        name: database.name.clone(),
        address: match (&database.reading, cluster_of(database)) {
            (Some(_), Some(cluster)) => Address::Readers(cluster),
            _ => sockets::address(&database.server),
        },
        cluster: cluster_of(database),
        reading: database.reading.clone(),
        read_only: database.read_only.clone(),
        causal: database.causal,
        reports_commits: reports_commits(config, database),
        readers: Vec::new(),
        spare: None,
        tls: database.tls.clone(),
        dbname: database.dbname.clone(),
        user: database.user.clone(),
        password: database.password.clone(),
        server_auth: database.server_auth,
        client_address_secret: database.client_address_secret.clone(),
        clients: database.clients,
        servers: database.servers,
        pool: database.pool.clone(),
    });
    Ok(Configuration {
        databases: databases.collect(),
        access: Access { policy: config.auth.policy.clone(), users },
        encryption: config.encryption.clone(),
        admin: config.admin.clone(),
        balancers: config.balancers.clone(),
        limits: config.limits.clone(),
        client_log: config.client_log,
        clusters: config.clusters.clone(),
    })
}

/// Makes the verifiers of the passwords that stand in a file in clear, where clients are asked by SCRAM, on a thread of
/// its own: nobody waits for that, and until it is done a first log-in takes a little longer.
pub(crate) fn derive(hub: &Arc<Hub>, access: &Access) {
    let passwords = access.users.in_clear();
    let is_asked = !matches!(access.policy, Policy::Method(Method::Trust | Method::Md5) | Policy::TrustOfKnown(_));
    if passwords.is_empty() || !is_asked {
        return;
    }
    let hub = hub.clone();
    let derive = move || hub.secrets.derive(&passwords);
    if let Err(error) = std::thread::Builder::new().name("verifiers".to_owned()).spawn(derive) {
        tracing::warn!("verifiers are made at the first log-ins: no thread for that: {error}");
    }
}

/// The cluster whose primary a database's server is.
fn cluster_of(database: &DatabaseConfig) -> Option<Arc<str>> {
    match &database.server {
        ServerAddress::Primary(cluster) => Some(cluster.clone()),
        ServerAddress::Unix { .. } | ServerAddress::Tcp { .. } => None,
    }
}

/// Whether readers somewhere in a database's cluster have to find its commits.
fn reports_commits(config: &Config, database: &DatabaseConfig) -> bool {
    let cluster = cluster_of(database);
    cluster.is_some() && config.databases.iter().any(|it| it.causal.is_some() && cluster_of(it) == cluster)
}

/// The addresses of all servers.
pub(crate) fn addresses(config: &Config) -> Vec<Address> {
    config.databases.iter().map(|database| sockets::address(&database.server)).collect()
}

/// The user that looks secrets up, and its own, where it may use the admin console: an operator needs that most where no
/// server can be asked.
fn of_console(config: &Config, look_up: &LookupConfig) -> Option<(String, Secret)> {
    let admin = config.admin.as_ref()?;
    let may_use_it = admin.users.iter().chain(&admin.stats_users).any(|user| *user == look_up.user);
    let password = look_up.password.as_ref().filter(|_| may_use_it)?;
    Some((look_up.user.clone(), Secret::Plain(password.0.clone())))
}

/// Secrets are looked up on the server of the database that the configuration says, but for those that are listed.
fn look_up_of(config: &Config, look_up: &LookupConfig, listed: HashMap<String, Option<Secret>>) -> Users {
    let exact = config.databases.iter().find(|d| d.name.as_deref() == Some(&look_up.database));
    let Some(database) = exact.or_else(|| config.databases.iter().find(|d| d.name.is_none())) else {
        // A valid configuration has it.
        return Users::Listed(HashMap::new());
    };
    let look_up = LookUp {
        address: sockets::address(&database.server),
        cluster: cluster_of(database),
        tls: database.tls.clone(),
        dbname: database.dbname.clone().unwrap_or_else(|| look_up.database.clone()),
        user: look_up.user.clone(),
        password: look_up.password.clone(),
        server_auth: database.server_auth,
        query: look_up.query.clone(),
        asks_roles: match &config.auth.policy {
            Policy::Method(_) | Policy::TrustOfKnown(_) => false,
            Policy::Rules(rules) => rules.rules.needs_roles(),
            Policy::ServerRules(_) => true,
        },
        cache: look_up.cache,
    };
    Users::LookedUp(look_up, listed)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn listed(admin: &str) -> HashMap<String, Option<Secret>> {
        let text = format!(
            "[auth.lookup]\nuser = \"asker\"\npassword = \"its own\"\ndatabase = \"app\"\n{admin}\n[[database]]\nname = \"app\"\n"
        );
        let config = sluice_config::parse(&text, Path::new("sluice.toml")).expect("it is valid");
        match configuration(&config).expect("it names no files").access.users {
            Users::LookedUp(_, listed) => listed,
            Users::Listed(_) => panic!("secrets are looked up"),
        }
    }

    #[test]
    fn the_consoles_user_whose_password_stands_there_is_not_looked_up() {
        let own = HashMap::from([("asker".to_owned(), Some(Secret::Plain("its own".to_owned())))]);
        for admin in ["[admin]\nusers = [\"asker\"]", "[admin]\nusers = [\"a\"]\nstats_users = [\"asker\"]"] {
            assert_eq!(listed(admin), own, "{admin}");
        }
        for admin in ["", "[admin]\nusers = [\"a\"]"] {
            assert_eq!(listed(admin), HashMap::new(), "it has no business there, so the server is asked");
        }
    }
}
