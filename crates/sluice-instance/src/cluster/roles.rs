//! The secrets of a cluster, and the roles that replication and pg_rewind log in as.
//!
//! Patroni makes such roles where it makes a cluster itself; ours grows out of an instance of one node.

use std::{io, path::Path};

use sluice_wire::scram::Verifier;

use crate::{
    bootstrap::{self, BootstrapError},
    data_dir::DataDir,
    endpoint::Endpoint,
    files::{self, Owner},
    run_as::RunAs,
    secret::Password,
};

/// The role by which standbys stream.
pub(super) const REPLICATION: &str = "sluice_replication";
/// The role by which pg_rewind reads the leader's files.
pub(super) const REWIND: &str = "sluice_rewind";

/// Functions that pg_rewind calls (PostgreSQL documentation, "pg_rewind", Notes), and what is behind `pg_file_settings`,
/// by which another host sees what a node can't read of its settings.
const REWIND_FUNCTIONS: [&str; 5] = [
    "pg_ls_dir(text, boolean, boolean)",
    "pg_stat_file(text, boolean)",
    "pg_read_binary_file(text)",
    "pg_read_binary_file(text, bigint, bigint, boolean)",
    "pg_show_all_file_settings()",
];

/// The file with the password for Patroni's REST API.
pub(super) const REST_PASSWORD: &str = "patroni-password";

/// The passwords that the parts of a cluster show each other, each in a file below the instance's directory.
#[derive(Debug, Clone)]
pub struct Secrets {
    /// [`REPLICATION`]'s.
    pub(super) replication: Password,
    /// [`REWIND`]'s.
    pub(super) rewind: Password,
    /// Of requests to Patroni's REST API that change something; its user is `sluice`.
    pub rest: Password,
}

impl Secrets {
    /// Reads them, or makes them.
    pub(super) fn prepare(root: &Path) -> Result<Self, BootstrapError> {
        let of = |name: &str| bootstrap::read_or_make(&root.join(name)).map(|(password, _)| password);
        Ok(Self { replication: of("replication-password")?, rewind: of("rewind-password")?, rest: of(REST_PASSWORD)? })
    }
}

/// Makes the roles, or gives them their passwords, on the leader; without secrets they have none, and come by
/// certificates. It does not wait for a standby: there is none before
/// the first of these roles exists.
pub(super) fn make(data_dir: &DataDir, leader: &Endpoint, secrets: Option<&Secrets>) -> Result<(), BootstrapError> {
    let mut client = bootstrap::superuser(data_dir, leader, "postgres")?;
    let mut statements = String::from("BEGIN;");
    for (role, attribute, password) in [
        (REPLICATION, "REPLICATION", secrets.map(|it| &it.replication)),
        (REWIND, "NOREPLICATION", secrets.map(|it| &it.rewind)),
    ] {
        let verb = if bootstrap::role_exists(&mut client, role)? { "ALTER" } else { "CREATE" };
        let password = password.map_or_else(|| "NULL".to_owned(), |it| format!("'{}'", bootstrap::verifier(it)));
        statements += &format!("{verb} ROLE {role} LOGIN {attribute} PASSWORD {password};");
    }
    for function in REWIND_FUNCTIONS {
        statements += &format!("GRANT EXECUTE ON FUNCTION pg_catalog.{function} TO {REWIND};");
    }
    statements += "COMMIT;";
    client.batch_execute(&statements).map_err(|error| bootstrap::sql("make the roles for replication", &error))
}

/// Makes the roles of a cluster again that has been formed before, where one of them can't log in by its password: somebody
/// may have given it another one, and then no standby would stream.
pub(super) fn mend(data_dir: &DataDir, leader: &Endpoint, secrets: &Secrets) -> Result<(), BootstrapError> {
    const STORED: &str = "SELECT rolpassword FROM pg_catalog.pg_authid \
                          WHERE rolname = $1 AND rolcanlogin AND (rolreplication OR NOT $2)";
    let mut client = bootstrap::superuser(data_dir, leader, "postgres")?;
    for (role, replicates, password) in [(REPLICATION, true, &secrets.replication), (REWIND, false, &secrets.rewind)] {
        let row = client.query_opt(STORED, &[&role, &replicates]);
        let row = row.map_err(|error| bootstrap::sql("look at the roles for replication", &error))?;
        let stored: Option<String> = row.and_then(|row| row.get(0));
        if !stored.is_some_and(|stored| is_of(&stored, password)) {
            return make(data_dir, leader, Some(secrets));
        }
    }
    Ok(())
}

/// Whether PostgreSQL takes that password by what it has stored.
fn is_of(stored: &str, password: &Password) -> bool {
    let verifier = Verifier::parse(stored);
    verifier.is_some_and(|it| it == Verifier::derive(password.expose(), &it.salt, it.iterations))
}

/// On an instance that is one node again: removes the slots of nodes that are no more, which would keep the log for
/// ever.
///
/// # Errors
///
/// PostgreSQL's refusal.
pub fn drop_slots(data_dir: &DataDir, endpoint: &Endpoint) -> Result<(), BootstrapError> {
    let mut client = bootstrap::superuser(data_dir, endpoint, "postgres")?;
    let drop = "SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots \
                WHERE slot_name IN ('node1', 'node2', 'node3') AND slot_type = 'physical' AND NOT active";
    client.batch_execute(drop).map_err(|error| bootstrap::sql("remove the replication slots of former nodes", &error))
}

const RULES_BEGIN: &str = "# Sluice's nodes among themselves. Written by sluice; leave these lines first.";
const RULES_END: &str = "# The rules of this server.";

/// Lets the nodes log in to each other: rules before all others in a data directory's `pg_hba.conf`, which stays the
/// operator's otherwise. Standbys get it with the data.
pub(super) fn allow(pgdata: &Path, run_as: &RunAs) -> io::Result<()> {
    let path = pgdata.join("pg_hba.conf");
    let text = files::read_of_postgres(&path, run_as)?;
    let wanted = format!(
        "{RULES_BEGIN}\n\
         host  replication  {REPLICATION}  127.0.0.1/32  scram-sha-256\n\
         host  all          {REWIND}       127.0.0.1/32  scram-sha-256\n\
         {RULES_END}\n"
    );
    if text.starts_with(&wanted) {
        return Ok(());
    }
    files::write_private(&path, format!("{wanted}{text}").as_bytes(), Owner::Postgres(run_as))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{chown, symlink},
    };

    use super::*;

    #[test]
    fn a_stored_password_is_told_from_another_one() {
        let (own, other) = (Password::random().unwrap(), Password::random().unwrap());
        let stored = bootstrap::verifier(&own);
        assert!(is_of(&stored, &own) && !is_of(&stored, &other));
        assert!(!is_of("md5aabbccddeeff00112233445566778899", &own));
    }

    #[test]
    fn rules_come_first_and_once() {
        let (dir, run_as) = (tempfile::tempdir().unwrap(), RunAs::resolve(None).unwrap());
        let path = dir.path().join("pg_hba.conf");
        fs::write(&path, "host all all all reject\n").unwrap();
        chown(&path, Some(run_as.uid()), Some(run_as.gid())).unwrap();
        allow(dir.path(), &run_as).unwrap();
        let once = fs::read_to_string(&path).unwrap();
        assert!(once.ends_with("host all all all reject\n") && once.contains("host  replication"), "{once}");
        allow(dir.path(), &run_as).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), once);
    }

    #[test]
    fn what_only_root_may_read_is_given_to_nobody() {
        let (dir, run_as) = (tempfile::tempdir().unwrap(), RunAs::resolve(None).unwrap());
        let (secret, path) = (dir.path().join("secret"), dir.path().join("pg_hba.conf"));
        fs::write(&secret, "root's\n").unwrap();
        symlink(&secret, &path).unwrap();
        let allowed = allow(dir.path(), &run_as);
        if run_as.switches() {
            let error = allowed.unwrap_err().to_string();
            assert!(error.contains("does not belong to"), "{error}");
        } else {
            allowed.unwrap();
        }
        let rules = fs::read_to_string(&path).unwrap();
        assert_eq!(rules.contains("host  replication"), !run_as.switches(), "{rules}");
    }
}
