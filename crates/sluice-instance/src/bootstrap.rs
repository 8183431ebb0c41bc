//! The roles that a new server needs: a first user with a database, and the role by which the pool looks up secrets.
//!
//! Run at each start; what is there already stays. It logs in as the superuser by peer authentication on the Unix
//! socket, which `pg_ident.conf` allows to the system user that runs PostgreSQL, and to root. Passwords reach the
//! server as SCRAM verifiers only, so none can get into its log.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use ::postgres::{Client, Config, NoTls, error::SqlState};

use crate::{
    data_dir::DataDir,
    endpoint::Endpoint,
    files::{self, Owner},
    secret::Password,
};

/// PostgreSQL's superuser. It has no password: it logs in by peer authentication only.
pub const SUPERUSER: &str = "postgres";
/// The first user.
pub const FIRST_USER: &str = "sluice";
/// Its database.
pub const FIRST_DATABASE: &str = "sluice";

/// The gate: its library, and its extension.
pub const GATE: &str = "sluice";

/// The comment that the extension's control file once had.
const OLD_COMMENT: &str = "admission gate: how many transactions run at once";

/// The role by which the pool looks up secrets.
pub(crate) const LOOKUP_USER: &str = "sluice_auth";
const LOOKUP_DATABASE: &str = "postgres";
const LOOKUP_QUERY: &str = "SELECT sluice.get_secret($1)";

/// The start of every session of Sluice's own that runs statements. It finds PostgreSQL's own functions and operators, and
/// none that others have made in the database: a start counts above `ALTER DATABASE` and `ALTER ROLE`.
pub(crate) const SEARCH_PATH: &str = "-c search_path=pg_catalog,pg_temp";

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// The function that the pool looks secrets up by. It returns what PostgreSQL itself would check a password against,
/// for every role that may log in now, superusers included: a superuser with a password may log in to PostgreSQL by
/// it, so also through the pool, and the one that Sluice makes has none. No row: no such role, or none that may log
/// in by a password. The moment until which a password is valid is the last one that it is (`get_role_password` in
/// `crypt.c` rejects `vuntil < now`). `rolname = $1` compares without cutting `$1` to 63 bytes, as a cast to `name`
/// would.
const LOOKUP_FUNCTION: &str = "
CREATE SCHEMA IF NOT EXISTS sluice;
CREATE OR REPLACE FUNCTION sluice.get_secret(role_name text) RETURNS SETOF text
  LANGUAGE sql STABLE SECURITY DEFINER ROWS 1 SET search_path = pg_catalog, pg_temp
  AS $$
    SELECT rolpassword FROM pg_catalog.pg_authid
    WHERE rolname = $1 AND rolcanlogin AND rolpassword IS NOT NULL
      AND (rolvaliduntil IS NULL OR rolvaliduntil >= pg_catalog.now())
  $$;
COMMENT ON FUNCTION sluice.get_secret(text) IS 'The secret of a role that may log in; for sluice''s pool only';
REVOKE ALL ON FUNCTION sluice.get_secret(text) FROM PUBLIC;
GRANT USAGE ON SCHEMA sluice TO sluice_auth;
GRANT EXECUTE ON FUNCTION sluice.get_secret(text) TO sluice_auth;
";

/// The pool's way to look up secrets.
#[derive(Debug, Clone)]
pub struct Lookup {
    /// The role.
    pub user: String,
    /// Its password.
    pub password: Password,
    /// The database that has the function.
    pub database: String,
    /// The query; takes the role's name as `$1`.
    pub query: String,
}

/// The roles and files that the server has once it is bootstrapped.
#[derive(Debug, Clone)]
pub struct Bootstrapped {
    /// The first user's password, in a file.
    pub password_file: PathBuf,
    /// The same, as psql's `PGPASSFILE` has it.
    pub pgpass_file: PathBuf,
    /// PostgreSQL's reason for refusing the first user that password, if it does: an operator has changed one of them.
    pub login_refused: Option<String>,
    /// The look-up of secrets, for the pool.
    pub lookup: Lookup,
    /// Whether the gate is in force; an operator's `shared_preload_libraries` wins over Sluice's.
    pub gate: bool,
    /// The databases in which its extension could not be made, and why: they are their owners'.
    pub without_extension: Vec<String>,
}

/// The roles that a cluster of hosts has, and where their passwords are.
#[derive(Debug, Clone)]
pub struct HostRoles {
    /// [`FIRST_USER`]'s password.
    pub first_user: PasswordFile,
    /// That of the role by which the pool looks up secrets.
    pub lookup: PasswordFile,
    /// The query for that; takes the role's name as `$1`.
    pub lookup_query: &'static str,
    /// As with [`Bootstrapped`].
    pub without_extension: Vec<String>,
}

/// The file of a role's password.
#[derive(Debug, Clone)]
pub struct PasswordFile {
    /// The role.
    pub role: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Whether the role's password is in it.
    pub copy: PasswordCopy,
}

/// A host's copy of a role's password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PasswordCopy {
    /// It is the role's.
    Good,
    /// There is none: the role was there before, made on another host.
    None,
    /// It is another one than the role's; PostgreSQL's reason for refusing it.
    Other(String),
}

/// Reasons why the roles could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The superuser is not let in; an operator has changed the rules.
    #[error(
        "cannot log in to PostgreSQL as {SUPERUSER} by the Unix socket in {}: {why}\n\
         {} must have the line:  local all {SUPERUSER} peer map=sluice\n\
         and pg_ident.conf there:  sluice {peer} {SUPERUSER}",
        socket_dir.display(), hba.display()
    )]
    Login {
        /// The socket's folder.
        socket_dir: PathBuf,
        /// PostgreSQL's words.
        why: String,
        /// The file with the rules.
        hba: PathBuf,
        /// The system user that must be allowed.
        peer: String,
    },
    /// A statement failed.
    #[error("cannot {what}: {why}")]
    Sql {
        /// The action that failed, as a verb.
        what: &'static str,
        /// PostgreSQL's words.
        why: String,
    },
    /// A password's file can't be read or written.
    #[error(
        "cannot keep a password in {}: {source}\n\
         it has to be an ordinary file that the user who starts sluice can read and write: correct its owner and mode",
        path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A password's file has something else in it.
    #[error(
        "{} does not hold a password in one line\n\
         put back what was in it, or remove it: sluice up then sets a new password, and sluice node does without a copy",
        path.display()
    )]
    BadFile {
        /// The file.
        path: PathBuf,
    },
    /// The system's random source fails.
    #[error("no random numbers for a password: {0}")]
    Random(getrandom::Error),
}

/// Makes what is missing of the roles, and the files with their passwords.
pub fn bootstrap(data_dir: &DataDir, endpoint: &Endpoint) -> Result<Bootstrapped, BootstrapError> {
    let root = data_dir.root();
    let mut client = superuser(data_dir, endpoint, LOOKUP_DATABASE)?;
    let lookup = make_lookup(&mut client, &root.join("auth-password"))?;
    let password_file = root.join("password");
    let password = make_first_user(&mut client, &password_file)?;
    let pgpass_file = root.join("pgpass");
    files::write_private(&pgpass_file, pgpass(password.expose()).as_bytes(), Owner::Us)
        .map_err(|source| BootstrapError::File { path: pgpass_file.clone(), source })?;
    let login_refused = try_login(endpoint, FIRST_USER, FIRST_DATABASE, &password);
    let gate = has_gate(&mut client)?;
    let without_extension = if gate { make_extension(endpoint) } else { Vec::new() };
    Ok(Bootstrapped { password_file, pgpass_file, login_refused, lookup, gate, without_extension })
}

/// Makes what is missing of the roles of a cluster that begins on a host. A role that is there already keeps its password:
/// pools and applications have it, and its file may be on another host.
pub fn bootstrap_host(data_dir: &DataDir, endpoint: &Endpoint) -> Result<HostRoles, BootstrapError> {
    let root = data_dir.root();
    let mut client = superuser(data_dir, endpoint, LOOKUP_DATABASE)?;
    let keep = |client: &mut Client, role, name| {
        let path = root.join(name);
        if path.exists() || !role_exists(client, role)? {
            let (password, _) = read_or_make(&path)?;
            if !role_exists(client, role)? {
                let create = format!("CREATE ROLE {role} LOGIN PASSWORD '{}'", verifier(&password));
                client.batch_execute(&create).map_err(|error| sql("make a role", &error))?;
            }
            let refused = try_login(endpoint, role, LOOKUP_DATABASE, &password);
            return Ok(PasswordFile { role, path, copy: refused.map_or(PasswordCopy::Good, PasswordCopy::Other) });
        }
        Ok(PasswordFile { role, path, copy: PasswordCopy::None })
    };
    let lookup = keep(&mut client, LOOKUP_USER, "auth-password")?;
    let make = format!("BEGIN;{LOOKUP_FUNCTION}COMMIT;");
    client.batch_execute(&make).map_err(|error| sql("make the function by which the pool looks up secrets", &error))?;
    let first_user = keep(&mut client, FIRST_USER, "password")?;
    make_first_database(&mut client)?;
    let without_extension = if has_gate(&mut client)? { make_extension(endpoint) } else { Vec::new() };
    Ok(HostRoles { first_user, lookup, lookup_query: LOOKUP_QUERY, without_extension })
}

/// Makes the extension where databases lack it; says of which it can't. Their owners may have closed them, or have
/// something else by that name, and the server does without.
fn make_extension(endpoint: &Endpoint) -> Vec<String> {
    // The template, for databases to come.
    let databases = [FIRST_DATABASE, "template1"].into_iter();
    let refused = databases.filter_map(|database| {
        let made = connection(endpoint, SUPERUSER, database).connect(NoTls).and_then(|mut client| {
            client.batch_execute(&format!("CREATE EXTENSION IF NOT EXISTS {GATE} SCHEMA public"))?;
            client.batch_execute(&uncomment())
        });
        Some(format!("{database}: {}", words(&made.err()?)))
    });
    refused.collect()
}

/// Removes the comment that earlier versions came with: `pg_dump` writes it as a `COMMENT ON EXTENSION`, which only the
/// extension's owner may run, so that a database's owner could not restore the dump. An operator's own stays.
fn uncomment() -> String {
    format!(
        "DO $$ BEGIN IF EXISTS (SELECT FROM pg_catalog.pg_extension
             WHERE extname OPERATOR(pg_catalog.=) '{GATE}'
                 AND pg_catalog.obj_description(oid, 'pg_extension') OPERATOR(pg_catalog.=) '{OLD_COMMENT}')
         THEN COMMENT ON EXTENSION {GATE} IS NULL; END IF; END $$"
    )
}

fn has_gate(client: &mut Client) -> Result<bool, BootstrapError> {
    let query = "SELECT 1 FROM pg_catalog.pg_settings WHERE name = 'sluice.transaction_concurrency'";
    let row = client.query_opt(query, &[]);
    row.map(|row| row.is_some()).map_err(|error| sql("look for the gate", &error))
}

fn connection(endpoint: &Endpoint, user: &str, database: &str) -> Config {
    let mut config = Config::new();
    config.host_path(&endpoint.socket_dir).port(endpoint.port).user(user).dbname(database);
    config.application_name("sluice up").connect_timeout(CONNECT_TIME_MAX);
    // Roles that a standby needs are made before it is there, and what is missing is made again at the next start.
    const NO_WAIT: &str = "-c statement_timeout=60s -c default_transaction_read_only=off -c synchronous_commit=local";
    // A floor of durability would refuse that. Only a superuser may go below one.
    let floor = if user == SUPERUSER { "-c sluice.synchronous_commit_floor=off" } else { "" };
    config.options(&format!("{SEARCH_PATH} {NO_WAIT} {floor}"));
    config
}

pub(crate) fn superuser(data_dir: &DataDir, endpoint: &Endpoint, database: &str) -> Result<Client, BootstrapError> {
    connection(endpoint, SUPERUSER, database).connect(NoTls).map_err(|error| BootstrapError::Login {
        socket_dir: endpoint.socket_dir.clone(),
        why: words(&error),
        hba: data_dir.pgdata().join("pg_hba.conf"),
        peer: if data_dir.run_as().switches() { "root" } else { data_dir.run_as().name() }.to_owned(),
    })
}

/// The look-up role is Sluice's own: its password is set anew at each start.
fn make_lookup(client: &mut Client, file: &Path) -> Result<Lookup, BootstrapError> {
    let (password, _) = read_or_make(file)?;
    let what = "make the role by which the pool looks up secrets";
    let verb = if role_exists(client, LOOKUP_USER)? { "ALTER" } else { "CREATE" };
    let role = format!("{verb} ROLE {LOOKUP_USER} LOGIN PASSWORD '{}';", verifier(&password));
    // One simple query is one transaction: the function is at no time anybody's.
    client.batch_execute(&format!("BEGIN;{role}{LOOKUP_FUNCTION}COMMIT;")).map_err(|error| sql(what, &error))?;
    Ok(Lookup {
        user: LOOKUP_USER.to_owned(),
        password,
        database: LOOKUP_DATABASE.to_owned(),
        query: LOOKUP_QUERY.to_owned(),
    })
}

/// The first user is the operator's once it exists: its password is set only together with the file's.
fn make_first_user(client: &mut Client, file: &Path) -> Result<Password, BootstrapError> {
    let (password, new) = read_or_make(file)?;
    let exists = role_exists(client, FIRST_USER)?;
    if new || !exists {
        let verb = if exists { "ALTER" } else { "CREATE" };
        let role = format!("{verb} ROLE {FIRST_USER} LOGIN PASSWORD '{}'", verifier(&password));
        client.batch_execute(&role).map_err(|error| sql("make the first user", &error))?;
    }
    make_first_database(client)?;
    Ok(password)
}

fn make_first_database(client: &mut Client) -> Result<(), BootstrapError> {
    let what = "make the first database";
    let query = "SELECT 1 FROM pg_catalog.pg_database WHERE datname = $1";
    if client.query_opt(query, &[&FIRST_DATABASE]).map_err(|error| sql(what, &error))?.is_none() {
        let database = format!("CREATE DATABASE {FIRST_DATABASE} OWNER {FIRST_USER}");
        client.batch_execute(&database).map_err(|error| sql(what, &error))?;
    }
    Ok(())
}

pub(crate) fn role_exists(client: &mut Client, role: &str) -> Result<bool, BootstrapError> {
    let row = client.query_opt("SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = $1", &[&role]);
    row.map(|row| row.is_some()).map_err(|error| sql("look for a role", &error))
}

/// A SCRAM-SHA-256 verifier: base64, digits and `$:`, so it needs no quoting within an SQL literal.
pub(crate) fn verifier(password: &Password) -> String {
    postgres_protocol::password::scram_sha_256(password.expose().as_bytes())
}

/// The password in a file, and whether it was made just now. The file comes first, the role second: after an
/// interruption between the two, the next start finds the file and gives its password to the role.
pub(crate) fn read_or_make(path: &Path) -> Result<(Password, bool), BootstrapError> {
    let file_error = |source| BootstrapError::File { path: path.to_owned(), source };
    match fs::read_to_string(path) {
        Ok(text) => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(file_error)?;
            let password = Password::from_file(&text);
            Ok((password.ok_or_else(|| BootstrapError::BadFile { path: path.to_owned() })?, false))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let password = Password::random().map_err(BootstrapError::Random)?;
            let line = format!("{}\n", password.expose());
            files::write_private(path, line.as_bytes(), Owner::Us).map_err(file_error)?;
            Ok((password, true))
        }
        Err(source) => Err(file_error(source)),
    }
}

/// A line for any host, port and database (PostgreSQL documentation, 34.16): the file is for this one server.
fn pgpass(password: &str) -> String {
    let escaped = password.replace('\\', "\\\\").replace(':', "\\:");
    format!("*:*:*:{FIRST_USER}:{escaped}\n")
}

fn try_login(endpoint: &Endpoint, user: &str, database: &str, password: &Password) -> Option<String> {
    let mut config = connection(endpoint, user, database);
    config.password(password.expose()).connect(NoTls).err().map(|error| words(&error))
}

pub(crate) fn sql(what: &'static str, error: &::postgres::Error) -> BootstrapError {
    BootstrapError::Sql { what, why: words(error) }
}

/// PostgreSQL's own words, with the remedy where the cause is known.
pub(crate) fn words(error: &::postgres::Error) -> String {
    let Some(server) = error.as_db_error() else {
        return std::error::Error::source(error)
            .map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
    };
    let hint = match *server.code() {
        SqlState::DISK_FULL => "\nthe disk is full: make room, or move the data (--data DIR, or data in node.toml)",
        _ => "",
    };
    format!("{}: {}{hint}", server.severity(), server.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passfile_lines() {
        assert_eq!(pgpass("a:b\\c"), "*:*:*:sluice:a\\:b\\\\c\n");
    }

    #[test]
    fn verifiers_need_no_quoting() {
        let verifier = verifier(&Password::random().unwrap());
        assert!(verifier.starts_with("SCRAM-SHA-256$4096:"));
        assert!(!verifier.contains(['\'', '\\']));
    }

    #[test]
    fn a_password_file_is_kept_and_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        let (made, new) = read_or_make(&path).unwrap();
        assert!(new);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read_or_make(&path).unwrap(), (made, false));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        fs::write(&path, "one\ntwo\n").unwrap();
        let error = read_or_make(&path).unwrap_err().to_string();
        assert!(error.contains("does not hold a password"), "{error}");
    }
}
