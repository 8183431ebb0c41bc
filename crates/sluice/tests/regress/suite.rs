//! The two suites: their schedules, and how one of their files is run.

use std::{fs, path::PathBuf, process::Command};

use crate::{place, side::Side};

/// The suites that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suite {
    /// The regression files, by psql.
    Files,
    /// The isolation specs, by isolationtester.
    Specs,
}

/// Files that run when nobody says which: what they do is what clients leave on servers.
const FILES: &str = "\
    advisory_lock async copy2 copyselect guc largeobject lock namespace plancache portals portals_p2 prepare \
    rowsecurity sequence temp transactions truncate xml";

/// The same of the specs.
const SPECS: &str = "\
    async-notify inherit-temp lock-update-delete nowait read-only-anomaly sequence-ddl simple-write-skew skip-locked \
    temp-schema-cleanup two-ids";

/// Files that others build on.
const GROUND: [&str; 4] = ["test_setup", "copy", "create_misc", "create_index"];

impl Suite {
    /// The folder of its files.
    pub(crate) fn folder(self) -> PathBuf {
        place::source().join(match self {
            Self::Files => "regress",
            Self::Specs => "isolation",
        })
    }

    /// A file's path.
    pub(crate) fn path(self, name: &str) -> PathBuf {
        self.folder().join(match self {
            Self::Files => format!("sql/{name}.sql"),
            Self::Specs => format!("specs/{name}.spec"),
        })
    }

    /// The database that it uses.
    pub(crate) fn database(self) -> &'static str {
        match self {
            Self::Files => "regression",
            Self::Specs => "isolation_regression",
        }
    }

    /// The number of the pool's servers. A spec needs one for each of its sessions at once, and one to look at them.
    pub(crate) fn servers(self) -> u32 {
        match self {
            Self::Files => 4,
            Self::Specs => 12,
        }
    }

    /// The files in the order of their schedule.
    pub(crate) fn schedule(self) -> Vec<String> {
        let name = match self {
            Self::Files => "parallel_schedule",
            Self::Specs => "isolation_schedule",
        };
        let schedule = fs::read_to_string(self.folder().join(name)).unwrap();
        let lines = schedule.lines().filter_map(|line| line.strip_prefix("test: "));
        lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
    }

    /// Those that run now, in that order.
    pub(crate) fn chosen(self) -> Vec<String> {
        let mut schedule = self.schedule();
        let chosen = std::env::var("SLUICE_REGRESS").unwrap_or_else(|_| format!("{FILES} {SPECS}"));
        if chosen != "all" {
            let wanted: Vec<_> = chosen.split([' ', ',']).filter(|name| !name.is_empty()).collect();
            schedule.retain(|name| wanted.contains(&name.as_str()) || GROUND.contains(&name.as_str()));
        }
        schedule
    }

    /// The program for one file, as PostgreSQL's own driver of the tests calls it.
    pub(crate) fn command(self, side: &Side, name: &str) -> Command {
        let place = side.place.path();
        let mut command = match self {
            Self::Files => {
                let mut psql = side.server.program_at(&place::source().join("bin/psql"));
                psql.args(["-X", "-a", "-q", "-d", self.database()]);
                psql.args(["-v", "HIDE_TABLEAM=on", "-v", "HIDE_TOAST_COMPRESSION=on"]);
                psql.env("PGAPPNAME", format!("pg_regress/{name}"));
                psql
            }
            Self::Specs => {
                let mut tester = side.server.program("../lib/pgxs/src/test/isolation/isolationtester");
                tester.arg(format!("dbname={}", self.database()));
                tester.env("PGAPPNAME", format!("isolation/{name}")).env("PGISOLATIONTIMEOUT", "30");
                tester
            }
        };
        command
            .env("PGHOST", side.host())
            .env("PGPORT", side.port().to_string())
            .env("PGUSER", "postgres")
            .env("PGTZ", "America/Los_Angeles")
            .env("PGDATESTYLE", "Postgres, MDY")
            .env("PGOPTIONS", "-c intervalstyle=postgres_verbose")
            .env_remove("LC_ALL")
            .env("LC_MESSAGES", "C")
            .env("LANG", "C")
            .envs([("PG_ABS_SRCDIR", place), ("PG_ABS_BUILDDIR", place)])
            .env("PG_LIBDIR", place.join("lib"))
            .env("PG_DLSUFFIX", ".so")
            .current_dir(place);
        command
    }
}
