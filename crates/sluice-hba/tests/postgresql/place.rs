//! A server with the files that it reads, and Sluice's reading of them.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use postgres::{Client, SimpleQueryMessage};
use sluice_hba::{Files, MapRow, Problem, Questions, RuleRow, Rules, ServerRules};
use sluice_testkit::{TestServer, Version};

/// Files as they are.
pub(crate) struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
        Ok(entries.into_iter().filter(|entry| !entry.path().is_dir()).map(|entry| entry.file_name()).collect())
    }
}

/// A server of a test's own.
pub(crate) struct Place {
    pub(crate) server: TestServer,
    pub(crate) client: Client,
    pub(crate) hba: PathBuf,
    pub(crate) ident: PathBuf,
}

impl Place {
    pub(crate) fn start(version: Version) -> Self {
        // Without room for a standby, PostgreSQL turns physical replication away before it looks at its rules.
        let server = TestServer::start_with_tcp(version, &[("wal_level", "replica"), ("max_wal_senders", "5")]);
        let hba = PathBuf::from(server.value("SHOW hba_file"));
        let ident = PathBuf::from(server.value("SHOW ident_file"));
        let client = server.superuser("postgres");
        Self { server, client, hba, ident }
    }

    /// The folder that has the files.
    pub(crate) fn folder(&self) -> &Path {
        self.hba.parent().unwrap()
    }

    pub(crate) fn read(&self) -> Result<Rules, Vec<Problem>> {
        Rules::read(&self.hba, Some(&self.ident), &Disk)
    }

    /// Its rules and maps as the server itself tells them.
    pub(crate) fn tells(&mut self) -> ServerRules {
        let version = self.server.value("SHOW server_version_num").parse().unwrap();
        let questions = Questions::of(version);
        let names = |rows: Vec<postgres::Row>, of_roles: bool| {
            rows.iter().filter(|row| row.get::<_, bool>(0) == of_roles).map(|row| row.get(1)).collect()
        };
        let odd = |place: &mut Self| place.client.query(questions.odd_names, &[]).unwrap();
        let line = |row: &postgres::Row| usize::try_from(row.get::<_, i32>(1)).unwrap();
        let rules = self.client.query(questions.rules, &[]).unwrap();
        let maps = questions.maps.map_or_else(Vec::new, |maps| self.client.query(maps, &[]).unwrap());
        ServerRules {
            rules: rules
                .iter()
                .map(|row| RuleRow {
                    file: row.get(0),
                    line: line(row),
                    connection: row.get(2),
                    databases: row.get(3),
                    users: row.get(4),
                    address: row.get(5),
                    netmask: row.get(6),
                    method: row.get(7),
                    options: row.get::<_, Option<_>>(8).unwrap_or_default(),
                })
                .collect(),
            maps: maps
                .iter()
                .map(|row| MapRow {
                    file: row.get(0),
                    line: line(row),
                    map: row.get(2),
                    system_user: row.get(3),
                    user: row.get(4),
                })
                .collect(),
            odd_databases: names(odd(self), false),
            odd_roles: names(odd(self), true),
            version,
            is_on_this_host: true,
        }
    }

    /// The rows of a query.
    pub(crate) fn rows(&mut self, sql: &str) -> Vec<Vec<Option<String>>> {
        let messages = self.client.simple_query(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect()),
            _ => None,
        };
        messages.into_iter().filter_map(row).collect()
    }
}
