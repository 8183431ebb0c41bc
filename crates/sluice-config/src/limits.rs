//! `[limits]` and `[[user]]`.

use std::collections::{BTreeMap, BTreeSet};

use sluice_control::settings::{Limits, UserLimits};

use crate::{
    reader::{Section, Setting},
    report::Fault,
    schema,
};

pub(crate) const RULES: &[&str] = &["No two `[[user]]` tables may have the same `name`."];

/// Reads the limits, and that of servers with its origin.
pub(crate) fn read(root: &Section<'_>) -> (Limits, Setting<u32>) {
    let section = root.table(&schema::LIMITS);
    let default = Limits::default();
    let servers = section.read(&schema::SERVERS).or_default(default.servers);
    let limits = Limits {
        clients: section.read(&schema::CLIENTS).value().unwrap_or(default.clients),
        clients_per_address: section.read(&schema::CLIENTS_PER_ADDRESS).value(),
        clients_per_user: section.read(&schema::CLIENTS_PER_USER).value(),
        servers: servers.value,
        servers_per_host: section.read(&schema::SERVERS_PER_HOST).value(),
        servers_per_user: section.read(&schema::SERVERS_PER_USER).value(),
        users: read_users(root),
        pools: section.read(&schema::POOLS).value().unwrap_or(default.pools),
        login_timeout: section.read(&schema::LOGIN_TIMEOUT).value().unwrap_or(default.login_timeout),
        client_message_timeout: section
            .read(&schema::CLIENT_MESSAGE_TIMEOUT)
            .value()
            .unwrap_or(default.client_message_timeout),
        idle_transaction_timeout: section.read(&schema::IDLE_TRANSACTION_TIMEOUT).value(),
        idle_client_timeout: section.read(&schema::IDLE_CLIENT_TIMEOUT).value(),
        query_timeout: section.read(&schema::QUERY_TIMEOUT).value(),
        rewritten_message_bytes: section
            .read(&schema::REWRITTEN_MESSAGE)
            .value()
            .unwrap_or(default.rewritten_message_bytes),
    };
    (limits, servers)
}

fn read_users(root: &Section<'_>) -> BTreeMap<String, UserLimits> {
    let (mut users, mut seen) = (BTreeMap::new(), BTreeSet::new());
    for section in root.tables(&schema::USER) {
        let own = UserLimits {
            clients: section.read(&schema::USER_CLIENTS).value(),
            servers: section.read(&schema::USER_SERVERS).value(),
        };
        let Some((name, offset)) = section.read_required(&schema::USER_NAME) else { continue };
        if !seen.insert(name.clone()) {
            let fault = Fault::new(format!("{name:?} has a table already"), "put both into one");
            section.note(&schema::USER_NAME, offset, fault);
        }
        if own != UserLimits::default() {
            users.insert(name, own);
        }
    }
    users
}
