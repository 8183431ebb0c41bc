//! The Python environment that Patroni runs in: made once from pinned, hashed requirements, whole or not at all.
//!
//! Its folder's name has a digest of the requirements and Python's version, so that another version of either gets an
//! environment of its own. It is made beside its place and then renamed; a lock keeps two makers apart. It belongs to
//! the user that runs Sluice, and PostgreSQL's user can only read it.
//!
//! An environment does not run from its scripts (`bin/patroni` names the place where it was made), but by its
//! interpreter: `bin/python3 -m patroni`.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use sha2::{Digest, Sha256};

use crate::{
    diagnosis::Tail,
    event::{Event, Observer},
    files::if_there,
    run_as::RunAs,
};

/// The version of Patroni in the requirements.
pub const PATRONI_VERSION: &str = "4.1.5";

const REQUIREMENTS: &str = include_str!("../../../../packaging/patroni/requirements.txt");
const BUILD_REQUIREMENTS: &str = include_str!("../../../../packaging/patroni/build.txt");

/// The distribution's own interpreter first: another one on `PATH` may be gone tomorrow.
const PYTHONS: [&str; 2] = ["/usr/bin/python3", "python3"];

/// The versions that the requirements have hashes for: 3.11 to 3.14.
const PYTHON_MINORS: std::ops::RangeInclusive<u32> = 11..=14;

/// An environment that has been made, and works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    dir: PathBuf,
}

/// Reasons why there is no environment for Patroni. The machine's fault, or the network's; each names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// No usable Python.
    #[error(
        "Patroni needs Python 3.11 to 3.14, and there is none: {why}\n\
         install it (Debian, Ubuntu: apt-get install python3 python3-venv)"
    )]
    NoPython {
        /// The answer of each that was tried.
        why: String,
    },
    /// Python can't make environments.
    #[error(
        "python3 -m venv failed ({how}); its last words:{tail}\n\
         install what it lacks (Debian, Ubuntu: apt-get install python3-venv)"
    )]
    NoVenv {
        /// Its end, in words.
        how: String,
        /// Its output.
        tail: Tail,
    },
    /// pip did not install the packages.
    #[error("pip could not install Patroni {PATRONI_VERSION} ({how}); its last words:{tail}\n{}", pip_remedy(tail))]
    Pip {
        /// Its end, in words.
        how: String,
        /// Its output.
        tail: Tail,
    },
    /// The packages are there, and Patroni does not start.
    #[error("the environment for Patroni was made in {}, but does not work ({how}):{tail}", dir.display())]
    Broken {
        /// The folder.
        dir: PathBuf,
        /// Patroni's end, in words.
        how: String,
        /// Its output.
        tail: Tail,
    },
    /// PostgreSQL's user can't read it.
    #[error(
        "user {user} cannot enter {} on the way to Patroni's environment\n\
         run chmod o+x {}, or choose another place for it",
        at.display(), at.display()
    )]
    Blocked {
        /// The user that runs PostgreSQL.
        user: String,
        /// The first part of the path that stops it.
        at: PathBuf,
    },
    /// A file or folder can't be made.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The action that failed, as a verb.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

fn pip_remedy(tail: &Tail) -> &'static str {
    let said = |words: &[&str]| words.iter().any(|word| tail.text.contains(word));
    if said(&["DO NOT MATCH THE HASHES"]) {
        "the package index gave other files than Sluice was tested with: do not use them, and tell its operator"
    } else if said(&["No module named pip", "No module named 'pip'"]) {
        "install pip (Debian, Ubuntu: apt-get install python3-venv python3-pip)"
    } else if said(&["No space left"]) {
        "the disk is full: make room"
    } else {
        "the package index must be within reach this once: check the network, or have pip use another index or a \
         folder of packages (pip.conf, PIP_INDEX_URL, PIP_FIND_LINKS)"
    }
}

impl Environment {
    /// Finds the environment below `base`, a folder for several of them, or makes it, which needs the package index.
    pub fn prepare(base: &Path, run_as: &RunAs, observer: &dyn Observer) -> Result<Self, EnvironmentError> {
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| EnvironmentError::Io { what, path, source }
        };
        let (python, version) = find_python()?;
        DirBuilder::new().recursive(true).mode(0o755).create(base).map_err(io("create", base))?;
        let base = base.canonicalize().map_err(io("open", base))?;
        let found = Self { dir: base.join(format!("patroni-{PATRONI_VERSION}-py{version}-{}", digest())) };
        let lock_path = base.join("patroni.lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&lock_path);
        // Held until the end: a second maker waits, and then finds what the first has made.
        let lock: File = lock.map_err(io("lock", &lock_path))?;
        lock.lock().map_err(io("lock", &lock_path))?;
        if !found.dir.exists() {
            found.make(&python, observer)?;
        }
        if let Some(at) = run_as.blocked_at(&found.python()) {
            return Err(EnvironmentError::Blocked { user: run_as.name().to_owned(), at });
        }
        Ok(found)
    }

    /// Its interpreter.
    pub fn python(&self) -> PathBuf {
        self.dir.join("bin/python3")
    }

    fn make(&self, python: &Path, observer: &dyn Observer) -> Result<(), EnvironmentError> {
        let begin = Instant::now();
        let new = Self { dir: self.dir.with_extension("new") };
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| EnvironmentError::Io { what, path, source }
        };
        if if_there(fs::remove_dir_all(&new.dir)).map_err(io("remove", &new.dir))?.is_some() {
            observer.event(Event::RemovedLeftover { path: new.dir.clone() });
        }
        observer.event(Event::MakingEnvironment { path: self.dir.clone() });
        let made = new.fill(python).and_then(|()| {
            readable(&new.dir).map_err(io("set modes in", &new.dir))?;
            fs::rename(&new.dir, &self.dir).map_err(io("create", &self.dir))
        });
        if let Err(error) = made {
            // The first error is the one to report; the next attempt removes what is left.
            let _ = fs::remove_dir_all(&new.dir);
            return Err(error);
        }
        observer.event(Event::MadeEnvironment { took: begin.elapsed() });
        Ok(())
    }

    fn fill(&self, python: &Path) -> Result<(), EnvironmentError> {
        let arguments: [&OsStr; 4] = ["-m".as_ref(), "venv".as_ref(), "--clear".as_ref(), self.dir.as_ref()];
        run(python, &arguments).map_err(|(how, tail)| EnvironmentError::NoVenv { how, tail })?;
        // What builds the packages that come as source is installed first, so that pip fetches nothing for it.
        let isolated = "--no-build-isolation";
        for (name, text) in [("build.txt", BUILD_REQUIREMENTS), ("requirements.txt", REQUIREMENTS)] {
            let path = self.dir.join(name);
            fs::write(&path, text).map_err(|source| EnvironmentError::Io {
                what: "write",
                path: path.clone(),
                source,
            })?;
            let options = ["-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--no-deps"];
            let more = ["--require-hashes", "--use-pep517", isolated, "--no-cache-dir", "--quiet", "-r"];
            let mut arguments: Vec<&OsStr> = options.iter().chain(&more).map(OsStr::new).collect();
            arguments.push(path.as_ref());
            run(&self.python(), &arguments).map_err(|(how, tail)| EnvironmentError::Pip { how, tail })?;
        }
        let check = "import patroni.__main__, patroni.dcs.etcd3, patroni.api, psycopg2";
        run(&self.python(), &["-c".as_ref(), check.as_ref()]).map_err(|(how, tail)| EnvironmentError::Broken {
            dir: self.dir.clone(),
            how,
            tail,
        })
    }
}

/// The first Python that will do, and its version as `3.11`.
fn find_python() -> Result<(PathBuf, String), EnvironmentError> {
    let mut why = Vec::new();
    for python in PYTHONS {
        let script = "import sys; print('%d.%d' % sys.version_info[:2])";
        match Command::new(python).args(["-I", "-c", script]).stdin(Stdio::null()).output() {
            Err(error) => why.push(format!("{python}: {error}")),
            Ok(output) => {
                let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                let minor = version.strip_prefix("3.").and_then(|minor| minor.parse().ok());
                if minor.is_some_and(|minor| PYTHON_MINORS.contains(&minor)) {
                    return Ok((python.into(), version));
                }
                why.push(format!("{python} is Python {version}"));
            }
        }
    }
    Err(EnvironmentError::NoPython { why: why.join("; ") })
}

/// The first 12 hexadecimal digits of the requirements' SHA-256.
fn digest() -> String {
    let digest = Sha256::new().chain_update(BUILD_REQUIREMENTS).chain_update(REQUIREMENTS).finalize();
    digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// Runs a program to its end; the error is how it ended and its output.
fn run(program: &Path, arguments: &[&OsStr]) -> Result<(), (String, Tail)> {
    let mut command = Command::new(program);
    // Python's own variables could lead it to other packages; pip's are the operator's word on where packages are.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PYTHON")) {
        command.env_remove(name);
    }
    let output = command.args(arguments).current_dir("/").stdin(Stdio::null()).output();
    let output = output.map_err(|error| (error.to_string(), Tail::of("")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err((output.status.to_string(), Tail::of(&String::from_utf8_lossy(&said))))
}

/// Lets everybody read all files, and nobody but the owner write them, whatever the umask was.
fn readable(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let mode = metadata.permissions().mode();
    let may_run = if mode & 0o100 == 0 { 0 } else { 0o111 };
    fs::set_permissions(path, fs::Permissions::from_mode((mode & 0o700) | 0o444 | may_run))?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            readable(&entry?.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_requirement_is_pinned_and_hashed() {
        let text = [BUILD_REQUIREMENTS, REQUIREMENTS].concat();
        assert!(text.contains(&format!("\npatroni=={PATRONI_VERSION} ")));
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let (hashes, packages): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("    --hash=sha256:"));
        assert!(packages.iter().all(|line| line.contains("==") && line.ends_with('\\')), "{packages:?}");
        assert!(hashes.len() >= packages.len());
    }

    #[test]
    fn remedies() {
        for (said, remedy) in [
            ("ERROR: Could not find a version that satisfies the requirement", "PIP_INDEX_URL"),
            ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "other files"),
            ("/usr/bin/python3: No module named pip", "python3-pip"),
        ] {
            let error = EnvironmentError::Pip { how: "exit status: 1".to_owned(), tail: Tail::of(said) }.to_string();
            assert!(error.contains(said) && error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn everybody_may_read() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, file) = (dir.path().join("inner"), dir.path().join("inner/file"));
        fs::create_dir(&inner).unwrap();
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o700)).unwrap();
        readable(&inner).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&inner), mode(&file)), (0o755, 0o644));
    }
}
