//! The differences that are known, each with its reason.

use std::fs;

use serde::Deserialize;
use sluice_testkit::{Version, case::repository};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    difference: Vec<Difference>,
}

/// A test that may end otherwise through the pool.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Difference {
    /// The suite's folder.
    suite: String,
    /// The test's name; with `*` at the end, of all that begin so.
    pub(crate) test: String,
    /// With the extension only, or without it only.
    extension: Option<bool>,
    /// With this major version of PostgreSQL only.
    version: Option<u32>,
    /// Whether it may end alike as well, because it hangs on times, or differs straight from run to run.
    #[serde(default)]
    pub(crate) unsteady: bool,
    /// The cause.
    pub(crate) reason: String,
}

impl Difference {
    /// Whether it speaks of this test.
    pub(crate) fn covers(&self, test: &str) -> bool {
        self.test.strip_suffix('*').map_or(self.test == test, |begin| test.starts_with(begin))
    }

    /// Whether it speaks of runs with the extension, or without it.
    pub(crate) fn applies(&self, extension: bool) -> bool {
        self.extension.is_none_or(|only| only == extension)
    }
}

/// A suite's differences.
pub(crate) struct Known(pub(crate) Vec<Difference>);

impl Known {
    /// Reads those of a suite on that version of PostgreSQL.
    pub(crate) fn read(suite: &str, version: Version) -> Self {
        let path = repository().join("tests/drivers/suites/differences.toml");
        let file: File = toml::from_str(&fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let major = match version {
            Version::V15 => 15,
            Version::V16 => 16,
            Version::V18 => 18,
        };
        let here = |known: &Difference| known.suite == suite && known.version.is_none_or(|only| only == major);
        Self(file.difference.into_iter().filter(here).collect())
    }
}
