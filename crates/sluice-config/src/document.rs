//! From the text of a configuration file to a [`Config`], or to all that is wrong with it.

use std::path::Path;

use sluice_control::settings::ClientLog;
use toml_edit::Document;

use crate::{
    Config, DriverChoice, admin, auth,
    auth::Auth,
    cluster, database,
    database::Database,
    files::{self, Access},
    hba, limits, listen,
    pool::Pool,
    reader::{Section, Setting, Source},
    report::{Fault, Position, Report},
    roles,
    schema::{self, Table},
    tls,
};

/// Reads a configuration file, and the files that it names.
///
/// # Errors
///
/// All problems at once: with the file itself, its syntax, its keys and values, values that can't stand together, and
/// the files of secrets. All are the operator's to correct; trying again does not help.
pub fn load(path: &Path) -> Result<Config, Report> {
    let (text, access) = read_text(path)?;
    build(&text, path, &schema::FILE, access, read)
}

/// The text of a file of ours, and who may read it.
pub(crate) fn read_text(path: &Path) -> Result<(String, Access), Report> {
    let whole = |fault: Fault| Report::new(vec![fault.at(path, None, "")]);
    let (bytes, access) = files::read(path, files::CONFIG_BYTES_MAX).map_err(whole)?;
    String::from_utf8(bytes).map(|text| (text, access)).map_err(|error| {
        let valid_up_to = error.utf8_error().valid_up_to();
        let position = Position::of(&String::from_utf8_lossy(&error.as_bytes()[..valid_up_to]), valid_up_to);
        let fault = Fault::new("not UTF-8 text", "save the file as UTF-8");
        Report::new(vec![fault.at(path, Some(position), "")])
    })
}

/// Parses the text of a configuration file. `file` is its name for messages and the place where relative paths start;
/// who may read it is not checked.
///
/// # Errors
///
/// As [`load`].
pub fn parse(text: &str, file: &Path) -> Result<Config, Report> {
    build(text, file, &schema::FILE, Access::Private, read)
}

/// Reads a text along its schema.
pub(crate) fn build<T>(
    text: &str,
    file: &Path,
    schema: &'static Table,
    access: Access,
    read: impl FnOnce(&Section<'_>) -> T,
) -> Result<T, Report> {
    let document = Document::parse(text).map_err(|error| {
        let position = error.span().map(|span| Position::of(text, span.start));
        let fault =
            Fault::new(error.message(), "correct the TOML syntax (https://toml.io); the rest was not looked at");
        Report::new(vec![fault.at(file, position, "")])
    })?;
    let source = Source::new(file, schema, text, access);
    let config = read(&Section::root(&source, document.as_table()));
    let problems = source.into_problems();
    if problems.is_empty() { Ok(config) } else { Err(Report::new(problems)) }
}

/// Reads the whole file. Where a value is bad, a default stands in and the problem has been noted.
fn read(root: &Section<'_>) -> Config {
    let listen = listen::read(root);
    let (limits, servers) = limits::read(root);
    let auth = auth::read(&root.table(&schema::AUTH), &listen);
    let encryption = tls::read(&root.table(&schema::TLS));
    let rules = auth.config.policy.rules().map(|rules| &**rules);
    hba::check_certificates(root, rules);
    hba::warn(root, rules);
    let pool = Pool::read(&root.table(&schema::POOL), &Pool::defaults());
    let clusters = cluster::read(&root.tables(&schema::CLUSTER));
    let sections = root.tables(&schema::DATABASE);
    let read = |section| database::read(section, &pool, &listen, &clusters);
    let databases: Vec<Database> = sections.iter().map(read).collect();
    check_pools(&pool, &databases, servers, root.source());
    database::check_names(&databases, root.source());
    check_databases(root, &databases, &auth);
    roles::warn(root.source(), &databases, &auth);
    let admin = admin::read(&root.table(&schema::ADMIN), &databases);
    let http_listen = listen::read_http(root, &listen.addresses);
    Config {
        listen: listen.addresses.into_iter().map(|(address, _)| address).collect(),
        unix_socket_dir: listen.unix_socket_dir,
        balancers: listen::read_balancers(root),
        driver: root.read(&schema::DRIVER).value().unwrap_or(DriverChoice::Auto),
        workers: root.read(&schema::WORKERS).value().flatten(),
        shutdown_grace: root.read(&schema::SHUTDOWN_GRACE).value().unwrap_or(schema::GRACE),
        upgrade_grace: root.read(&schema::UPGRADE_GRACE).value().unwrap_or(schema::UPGRADE),
        tcp_user_timeout: root.read(&schema::TCP_USER_TIMEOUT).value().unwrap_or(schema::USER_TIMEOUT),
        stats_period: root.read(&schema::STATS_PERIOD).value(),
        client_log: ClientLog {
            connections: root.read(&schema::LOG_CONNECTIONS).value().unwrap_or(false),
            disconnections: root.read(&schema::LOG_DISCONNECTIONS).value().unwrap_or(false),
        },
        http_listen,
        auth: auth.config,
        encryption,
        admin,
        limits,
        pool: pool.settings(),
        clusters: clusters.into_iter().map(|entry| entry.cluster).collect(),
        databases: databases.into_iter().map(|database| database.config).collect(),
        warnings: root.source().take_warnings(),
    }
}

fn check_pools(defaults: &Pool, databases: &[Database], servers: Setting<u32>, source: &Source<'_>) {
    // Only the pools that there are can be at fault: each database may replace what does not fit in `[pool]`.
    let mut pools: Vec<Pool> = databases.iter().map(|database| database.pool).collect();
    if pools.is_empty() {
        pools.push(*defaults);
    }
    for pool in &pools {
        pool.check(servers, source);
    }
    Pool::check_minima(&pools, servers, source);
}

/// Checks that there are databases, and that the look-up asks in one of them.
fn check_databases(root: &Section<'_>, databases: &[Database], auth: &Auth) {
    if !root.has(schema::DATABASE.name()) {
        let remedy = "add [[database]] with name = \"*\" for all databases of the PostgreSQL on this host";
        root.source().add(None, "database", Fault::new("no database: clients could reach nothing", remedy));
        return;
    }
    let Some((wanted, offset)) = &auth.lookup_database else {
        return;
    };
    let path = schema::LOOKUP.path_of(schema::LOOKUP_DATABASE.name);
    if wanted == "*" {
        let fault = Fault::new("\"*\" is not a database to ask in", "give the name of one, such as \"postgres\"");
        root.source().add(Some(*offset), path, fault);
        return;
    }
    // An entry without a readable name has been noted; it may be the one that is wanted.
    let serves = |database: &Database| database.name.as_ref().is_none_or(|(name, _)| name == wanted || name == "*");
    if !databases.iter().any(serves) {
        let what = format!("no [[database]] is named {wanted:?}");
        let remedy = "add one with this name, or give the name of another";
        root.source().add(Some(*offset), path, Fault::new(what, remedy));
    }
}
