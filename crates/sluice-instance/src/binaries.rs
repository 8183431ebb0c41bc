//! PostgreSQL's programs: the folder with `postgres` and `initdb`, and its major version.
//!
//! Looks only; installs nothing.

use std::{
    env, fmt, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The oldest major version that Sluice starts.
pub(crate) const OLDEST_MAJOR: u32 = 13;

/// Debian's and Ubuntu's place: one folder a major version.
const DEBIAN_ROOT: &str = "/usr/lib/postgresql";

/// The programs of one PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    /// The folder that holds them.
    pub dir: PathBuf,
    /// The server.
    pub postgres: PathBuf,
    /// Creates data directories.
    pub initdb: PathBuf,
    /// The terminal client, where the folder has it.
    pub psql: Option<PathBuf>,
    /// The server's version.
    pub version: Version,
}

/// A server's version, as `postgres --version` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// 15 of `15.14`: the part that decides about data directories.
    pub major: u32,
    /// `15.14`.
    pub number: String,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.number)
    }
}

impl Version {
    /// Reads the output of `postgres --version`: `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`, `18beta1`.
    fn parse(output: &str) -> Option<Self> {
        let number = output.trim().strip_prefix("postgres (PostgreSQL) ")?.split_whitespace().next()?;
        let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        Some(Self { major: number[..digits].parse().ok()?, number: number.to_owned() })
    }
}

/// Reasons why no PostgreSQL was found. The fault is the installation's or the command line's; a retry does not help.
#[derive(Debug, thiserror::Error)]
pub enum BinariesError {
    /// Nothing in any of the usual places.
    #[error(
        "no PostgreSQL found; looked at:{}\ninstall one (Debian, Ubuntu: apt-get install postgresql-15), \
         or name its folder (--pg-bin DIR, or pg_bin in node.toml)",
        list(looked)
    )]
    NotFound {
        /// Each place, and what is wrong with it.
        looked: Vec<(String, String)>,
    },
    /// The folder that was named does not hold what is needed.
    #[error("{}: {why}\nname the folder that holds postgres and initdb (--pg-bin DIR, or pg_bin in node.toml)", dir.display())]
    NotUsable {
        /// The folder.
        dir: PathBuf,
        /// The fault of the folder.
        why: String,
    },
    /// A PostgreSQL that Sluice does not start.
    #[error(
        "{} is PostgreSQL {version}; Sluice needs {OLDEST_MAJOR} or later\n\
         install one (Debian, Ubuntu: apt-get install postgresql-15), or name its folder (--pg-bin DIR, or pg_bin in node.toml)",
        dir.display()
    )]
    TooOld {
        /// The folder.
        dir: PathBuf,
        /// Its version.
        version: Version,
    },
}

fn list(looked: &[(String, String)]) -> String {
    looked.iter().map(|(place, why)| format!("\n  {place}: {why}")).collect()
}

impl Binaries {
    /// Finds PostgreSQL: `pg_bin` alone if given; else what `pg_config --bindir` says, the newest of
    /// `/usr/lib/postgresql/*/bin`, and the folder of `postgres` on `PATH`, in this order.
    pub fn find(pg_bin: Option<&Path>) -> Result<Self, BinariesError> {
        if let Some(dir) = pg_bin {
            return Self::at(dir).map_err(|why| BinariesError::NotUsable { dir: dir.into(), why })?.supported();
        }
        Self::first_of(usual_places())
    }

    fn first_of(places: Vec<(String, Result<PathBuf, String>)>) -> Result<Self, BinariesError> {
        let mut looked = Vec::new();
        for (place, dir) in places {
            match dir.and_then(|dir| Self::at(&dir).map_err(|why| format!("{}: {why}", dir.display()))) {
                Ok(found) => return found.supported(),
                Err(why) => looked.push((place, why)),
            }
        }
        Err(BinariesError::NotFound { looked })
    }

    /// Checks one folder; the error is a reason to be shown after the folder's name.
    fn at(dir: &Path) -> Result<Self, String> {
        let dir = dir.canonicalize().map_err(|error| error.to_string())?;
        let program = |name: &str| Some(dir.join(name)).filter(|path| path.is_file());
        let postgres = program("postgres").ok_or("holds no postgres")?;
        let initdb = program("initdb").ok_or("holds no initdb")?;
        let output = capture(Command::new(&postgres).arg("--version"))
            .map_err(|error| format!("postgres --version failed: {error}"))?;
        let version =
            Version::parse(&output).ok_or_else(|| format!("postgres --version printed {:?}", output.trim()))?;
        Ok(Self { psql: program("psql"), dir, postgres, initdb, version })
    }

    /// Whether the server finds a library of that name where it looks for its own.
    pub fn has_library(&self, name: &str) -> bool {
        let told = capture(Command::new(self.dir.join("pg_config")).arg("--pkglibdir"));
        let told = told.ok().map(|output| PathBuf::from(output.trim_end()));
        let usual = ["../lib", "../lib/postgresql"].map(|place| self.dir.join(place));
        told.into_iter().chain(usual).any(|dir| dir.join(format!("{name}.so")).is_file())
    }

    /// Whether the server knows a setting of that name.
    pub fn has_setting(&self, name: &str) -> bool {
        let all = capture(Command::new(&self.postgres).arg("--describe-config")).unwrap_or_default();
        all.lines().any(|line| line.split('\t').next() == Some(name))
    }

    fn supported(self) -> Result<Self, BinariesError> {
        if self.version.major < OLDEST_MAJOR {
            return Err(BinariesError::TooOld { dir: self.dir, version: self.version });
        }
        Ok(self)
    }
}

/// The places to look at, each with its name; those that can't be determined carry the reason.
fn usual_places() -> Vec<(String, Result<PathBuf, String>)> {
    let mut places = vec![(
        "pg_config --bindir".to_owned(),
        capture(Command::new("pg_config").arg("--bindir"))
            .map(|output| PathBuf::from(output.trim_end()))
            .map_err(|error| error.to_string()),
    )];
    let debian = debian_dirs(Path::new(DEBIAN_ROOT));
    if debian.is_empty() {
        places.push((format!("{DEBIAN_ROOT}/*/bin"), Err("no such folder".to_owned())));
    }
    places.extend(debian.into_iter().map(|dir| (format!("{DEBIAN_ROOT}/*/bin"), Ok(dir))));
    let on_path = env::var_os("PATH")
        .and_then(|path| env::split_paths(&path).find(|dir| dir.join("postgres").is_file()))
        .ok_or_else(|| "no postgres there".to_owned());
    places.push(("PATH".to_owned(), on_path));
    places
}

/// `ROOT/<major>/bin`, newest first.
fn debian_dirs(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = root.read_dir() else { return Vec::new() };
    let mut majors: Vec<u32> = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    majors.sort_unstable_by(|a, b| b.cmp(a));
    majors.into_iter().map(|major| root.join(major.to_string()).join("bin")).collect()
}

fn capture(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{}: {}", output.status, said.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn versions() {
        for (output, expected) in [
            ("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n", Some((15, "15.14"))),
            ("postgres (PostgreSQL) 18.4\n", Some((18, "18.4"))),
            ("postgres (PostgreSQL) 19beta1\n", Some((19, "19beta1"))),
            ("postgres (PostgreSQL) devel\n", None),
            ("psql (PostgreSQL) 15.14\n", None),
            ("", None),
        ] {
            let parsed = Version::parse(output);
            let parsed = parsed.as_ref().map(|version| (version.major, version.number.as_str()));
            assert_eq!(parsed, expected, "{output:?}");
        }
    }

    #[test]
    fn newest_of_debian_first() {
        let root = tempfile::tempdir().unwrap();
        for major in ["9.6", "15", "9", "18", "lib"] {
            fs::create_dir(root.path().join(major)).unwrap();
        }
        let dirs = debian_dirs(root.path());
        assert_eq!(dirs, ["18/bin", "15/bin", "9/bin"].map(|dir| root.path().join(dir)));
    }

    /// Scripts that print a version. They are not written by the test: a file that another thread's fork holds open
    /// for writing can't be run.
    fn fake(version: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake").join(version)
    }

    #[test]
    fn explicit_folder() {
        let empty = tempfile::tempdir().unwrap();
        let error = Binaries::find(Some(empty.path())).unwrap_err().to_string();
        assert!(error.contains("holds no postgres") && error.contains("--pg-bin"), "{error}");

        let found = Binaries::find(Some(&fake("17.2"))).unwrap();
        assert_eq!((found.version.major, found.psql), (17, None));

        let error = Binaries::find(Some(&fake("9.6.24"))).unwrap_err().to_string();
        assert!(error.contains("is PostgreSQL 9.6.24; Sluice needs 13"), "{error}");
    }

    #[test]
    fn not_found_names_each_place_and_the_remedy() {
        let empty = tempfile::tempdir().unwrap();
        let places = vec![
            ("pg_config --bindir".to_owned(), Err("No such file or directory".to_owned())),
            ("PATH".to_owned(), Ok(empty.path().to_owned())),
        ];
        let error = Binaries::first_of(places).unwrap_err().to_string();
        for part in ["pg_config --bindir: No such file", "PATH: /", "holds no postgres", "apt-get install postgresql"] {
            assert!(error.contains(part), "{part} is missing in {error}");
        }
    }
}
