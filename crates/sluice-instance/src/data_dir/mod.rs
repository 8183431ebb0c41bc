//! The directory of one instance: created once, used by one Sluice at a time, of the binaries' major version.
//!
//! ```text
//! DIR/lock           held (flock) while a Sluice uses the directory; holds its process id
//! DIR/pgdata/        PostgreSQL's data directory, of the user that runs PostgreSQL
//! DIR/run/           its Unix socket (elsewhere if the path would be too long)
//! DIR/log/           postgres.log, postgres.log.1, initdb.log
//! DIR/password       the first user's password; DIR/pgpass is the same for psql
//! DIR/auth-password  the look-up role's password
//! DIR/sluice.secret  the secret by which the server believes the pool where its clients are
//! DIR/sluice.toml    the pool's configuration, written at each start
//! DIR/node1/         with two or three nodes: pgdata/ and run/ of the first; see `cluster/mod.rs` for the others
//! DIR/node/          of a host among several: see `cluster/host/mod.rs`
//! ```
//!
//! A [`DataDir`] in hand is locked, complete, and fits its binaries. Nothing here starts a server.

mod create;
mod error;

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

pub use self::error::DataDirError;
use crate::{
    binaries::Binaries,
    event::Observer,
    files::if_there,
    pid_file::{self, Runner},
    run_as::RunAs,
    socket_dir,
};

/// The folder of the first node of several.
pub(crate) const FIRST_NODE: &str = "node1";

/// The folder of the node of a host.
pub(crate) const HOST: &str = "node";

/// The file beside PostgreSQL's data directory, and so in none of its backups, with the secret by which the pool says where
/// its clients are.
pub const POOL_SECRET: &str = "sluice.secret";

/// Free space below which no data directory is created: a new one has 40 MB, and grows by its first segments of log.
const FREE_BYTES_MIN: u64 = 200 << 20;

/// A request to open or create a data directory.
#[derive(Debug, Clone)]
pub struct DataDirSpec {
    /// The directory; created if missing.
    pub root: PathBuf,
    /// PostgreSQL's programs.
    pub binaries: Binaries,
    /// The user that runs them.
    pub run_as: RunAs,
    /// Whether `initdb` waits until all is on disk. Only tests say no.
    pub sync: bool,
    /// Free space, in bytes, below which nothing is created.
    pub free_bytes_min: u64,
    /// The place of the data directory.
    pub layout: Layout,
}

/// The place of the data directory within the instance's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `pgdata`.
    One,
    /// `node1/pgdata`, of the first node of several; one in `pgdata` is moved there.
    First {
        /// Whether it is created if it is missing; a node of a cluster that exists gets its data from the leader.
        may_create: bool,
    },
    /// `node/pgdata`, of a host of several.
    Host {
        /// Whether it is created if it is missing, by the host that begins a cluster.
        may_create: bool,
    },
}

impl Layout {
    /// The folder that has the data directory; none: the instance's own.
    fn home(self) -> Option<&'static str> {
        match self {
            Self::One => None,
            Self::First { .. } => Some(FIRST_NODE),
            Self::Host { .. } => Some(HOST),
        }
    }

    fn may_create(self) -> bool {
        match self {
            Self::One => true,
            Self::First { may_create } | Self::Host { may_create } => may_create,
        }
    }
}

impl DataDirSpec {
    /// With safe values for everything else.
    pub fn new(root: impl Into<PathBuf>, binaries: Binaries, run_as: RunAs) -> Self {
        Self { root: root.into(), binaries, run_as, sync: true, free_bytes_min: FREE_BYTES_MIN, layout: Layout::One }
    }
}

/// An instance's directory that has been made and locked, and has not been looked into yet.
#[derive(Debug)]
pub(crate) struct LockedDir {
    root: PathBuf,
    /// Unlocked when it closes.
    lock: File,
}

impl LockedDir {
    /// Locks the directory; creates it if it is missing.
    pub(crate) fn take(root: &Path, run_as: &RunAs) -> Result<Self, DataDirError> {
        let root = make_root(root, run_as)?;
        let lock = take_lock(&root)?;
        Ok(Self { root, lock })
    }

    /// The instance's directory, absolute.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Goes on without data: a witness has none.
    pub(crate) fn open_witness(self, run_as: &RunAs) -> Result<(PathBuf, File), DataDirError> {
        check_entry(run_as, &self.root)?;
        make_dir(&self.root.join("log"), 0o700)?;
        Ok((self.root, self.lock))
    }
}

/// An instance's directory, locked for as long as this value lives.
#[derive(Debug)]
pub struct DataDir {
    root: PathBuf,
    pgdata: PathBuf,
    socket_dir: PathBuf,
    binaries: Binaries,
    run_as: RunAs,
    created: bool,
    /// Unlocked when it closes.
    _lock: File,
}

impl DataDir {
    /// Opens the directory; creates it if it is missing.
    pub fn open(spec: DataDirSpec, observer: &dyn Observer) -> Result<Self, DataDirError> {
        let locked = LockedDir::take(&spec.root, &spec.run_as)?;
        Self::open_locked(locked, spec, observer)
    }

    /// The same, of a directory that has been locked already.
    pub(crate) fn open_locked(
        locked: LockedDir,
        spec: DataDirSpec,
        observer: &dyn Observer,
    ) -> Result<Self, DataDirError> {
        let LockedDir { root, lock } = locked;
        check_reach(&spec, &root)?;
        let home =
            spec.layout.home().map_or_else(|| Ok(root.clone()), |folder| make_node(&spec, &root.join(folder)))?;
        let socket_dir = socket_dir::prepare(&home, &spec.run_as)
            .map_err(|source| DataDirError::io("prepare the folder of the Unix socket for", &home, source))?;
        make_dir(&root.join("log"), 0o700)?;

        let pgdata = home.join("pgdata");
        let is_there = |folder: &str| root.join(folder).join("pgdata").exists();
        match spec.layout {
            Layout::One if pgdata.exists() => {}
            Layout::One if is_there(FIRST_NODE) => return Err(DataDirError::IsCluster { path: root }),
            Layout::One if is_there(HOST) => return Err(DataDirError::IsHost { path: root }),
            Layout::One => {}
            Layout::First { .. } if is_there(HOST) => return Err(DataDirError::IsHost { path: root }),
            Layout::Host { .. } if is_there(FIRST_NODE) => return Err(DataDirError::IsCluster { path: root }),
            // A host that joins a cluster has no use for the data of one node, and leaves them where they are.
            Layout::Host { may_create: false } if is_there("") => {
                return Err(DataDirError::IsOne { path: root });
            }
            Layout::First { .. } | Layout::Host { .. } => move_data(&root.join("pgdata"), &pgdata)?,
        }
        let created = match look_at(&pgdata)? {
            Found::Nothing if !spec.layout.may_create() => false,
            Found::Nothing => {
                check_new(&spec, &root, &pgdata)?;
                create::create(&spec, &root, &home, &pgdata, observer)?;
                true
            }
            Found::Cluster { major } => {
                check_major(&spec.binaries, &pgdata, &major)?;
                check_owner(&spec.run_as, &pgdata)?;
                false
            }
        };
        let pgdata = match pgdata.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => pgdata,
            opened => opened.map_err(|source| DataDirError::io("open", &pgdata, source))?,
        };
        let DataDirSpec { binaries, run_as, .. } = spec;
        Ok(Self { root, pgdata, socket_dir, binaries, run_as, created, _lock: lock })
    }

    /// The instance's directory, absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// PostgreSQL's data directory within it.
    pub fn pgdata(&self) -> &Path {
        &self.pgdata
    }

    /// The folder of the Unix socket.
    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    /// PostgreSQL's log.
    pub fn log_file(&self) -> PathBuf {
        self.root.join("log/postgres.log")
    }

    /// PostgreSQL's programs.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// The user that runs them.
    pub fn run_as(&self) -> &RunAs {
        &self.run_as
    }

    /// Whether it was created just now.
    pub fn created(&self) -> bool {
        self.created
    }
}

/// Makes the folder of a node, which belongs to PostgreSQL's user: Patroni moves things in it.
fn make_node(spec: &DataDirSpec, home: &Path) -> Result<PathBuf, DataDirError> {
    let home = home.to_owned();
    make_dir(&home, 0o700)?;
    if spec.run_as.switches() {
        let given = chown(&home, Some(spec.run_as.uid()), Some(spec.run_as.gid()));
        given.map_err(|source| DataDirError::io("set the owner of", &home, source))?;
    }
    Ok(home)
}

/// Moves the data directory to where another number of nodes has it, whole or not at all; nothing is in its way there.
pub(crate) fn move_data(from: &Path, to: &Path) -> Result<(), DataDirError> {
    if !from.exists() {
        return Ok(());
    }
    if to.exists() {
        return Err(DataDirError::TwoPgData { one: from.to_owned(), other: to.to_owned() });
    }
    if let Ok(Runner::Live(pid)) = pid_file::runner(from) {
        return Err(DataDirError::Running { pid, path: from.to_owned() });
    }
    fs::rename(from, to).map_err(|source| DataDirError::io("move", from, source))?;
    let parents = [from, to].into_iter().filter_map(Path::parent);
    parents.into_iter().try_for_each(create::sync_dir)
}

/// Creates the directory if it is missing; returns its absolute path without symbolic links.
fn make_root(root: &Path, run_as: &RunAs) -> Result<PathBuf, DataDirError> {
    // Nothing is created where PostgreSQL's user could not follow.
    let existing = root.ancestors().find_map(|part| part.canonicalize().ok());
    if let Some(existing) = existing.filter(|path| path.is_dir()) {
        check_entry(run_as, &existing)?;
    }
    if let Some(parent) = root.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(parent);
        made.map_err(|source| DataDirError::io("create", parent, source))?;
    }
    // PostgreSQL's user must be able to pass through; only the owner lists it.
    if make_dir(root, 0o700)? && run_as.switches() {
        let opened = fs::set_permissions(root, fs::Permissions::from_mode(0o711));
        opened.map_err(|source| DataDirError::io("set the mode of", root, source))?;
    }
    let root = root.canonicalize().map_err(|source| DataDirError::io("open", root, source))?;
    if root.join("PG_VERSION").exists() {
        return Err(DataDirError::IsPgData { path: root });
    }
    if is_foreign(&root).map_err(|source| DataDirError::io("read", &root, source))? {
        return Err(DataDirError::NotEmpty { path: root });
    }
    Ok(root)
}

/// Whether the directory has files, and none of them shows that Sluice made it. A file system of its own has a
/// `lost+found` from the beginning.
fn is_foreign(root: &Path) -> io::Result<bool> {
    let is_lock =
        |path: &Path| fs::read_to_string(path).is_ok_and(|pid| pid.trim().chars().all(|c| c.is_ascii_digit()));
    if is_lock(&root.join("lock"))
        || ["pgdata", "pgdata.new", FIRST_NODE, HOST].iter().any(|ours| root.join(ours).exists())
    {
        return Ok(false);
    }
    let mut others = fs::read_dir(root)?.filter(|entry| entry.as_ref().map_or(true, |e| e.file_name() != "lost+found"));
    others.next().transpose().map(|entry| entry.is_some())
}

/// Says whether it was missing.
fn make_dir(path: &Path, mode: u32) -> Result<bool, DataDirError> {
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(source) => Err(DataDirError::io("create", path, source)),
    }
}

/// Locks `root/lock`, and writes our process id into it for whoever comes second.
pub(crate) fn take_lock(root: &Path) -> Result<File, DataDirError> {
    let path = root.join("lock");
    let error = |source| DataDirError::io("lock", &path, source);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(error)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            // Without the number the message is still right.
            let pid = fs::read_to_string(&path).ok().and_then(|holder| holder.trim().parse().ok());
            return Err(DataDirError::Locked { path: root.to_owned(), pid });
        }
        Err(TryLockError::Error(source)) => return Err(error(source)),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(error)?;
    Ok(file)
}

/// PostgreSQL's user must be able to enter the directory and to run the programs.
fn check_reach(spec: &DataDirSpec, root: &Path) -> Result<(), DataDirError> {
    check_entry(&spec.run_as, root)?;
    check_entry(&spec.run_as, &spec.binaries.postgres)
}

fn check_entry(run_as: &RunAs, path: &Path) -> Result<(), DataDirError> {
    match run_as.blocked_at(path) {
        Some(at) => Err(DataDirError::Blocked { user: run_as.name().to_owned(), at, path: path.to_owned() }),
        None => Ok(()),
    }
}

/// Data that are missing where there have been some, as on a disk that is not mounted, are not made anew.
fn check_new(spec: &DataDirSpec, root: &Path, pgdata: &Path) -> Result<(), DataDirError> {
    if matches!(spec.layout, Layout::Host { .. }) {
        // It may have been given the passwords of the cluster's roles.
        return Ok(());
    }
    // Both are written when the data are there.
    let left: Vec<_> = ["password", POOL_SECRET].into_iter().filter(|name| root.join(name).exists()).collect();
    if left.is_empty() {
        return Ok(());
    }
    Err(DataDirError::DataGone { pgdata: pgdata.to_owned(), root: root.to_owned(), left: left.join(" and ") })
}

enum Found {
    Nothing,
    Cluster { major: String },
}

fn look_at(pgdata: &Path) -> Result<Found, DataDirError> {
    let version = pgdata.join("PG_VERSION");
    let text = if_there(fs::read_to_string(&version)).map_err(|source| DataDirError::io("read", &version, source))?;
    if let Some(text) = text {
        return Ok(Found::Cluster { major: text.trim().to_owned() });
    }
    let entries = if_there(fs::read_dir(pgdata)).map_err(|source| DataDirError::io("read", pgdata, source))?;
    match entries.and_then(|mut entries| entries.next()) {
        None => Ok(Found::Nothing),
        Some(_) => Err(DataDirError::NotPgData { path: pgdata.to_owned() }),
    }
}

fn check_major(binaries: &Binaries, pgdata: &Path, found: &str) -> Result<(), DataDirError> {
    if found == binaries.version.major.to_string() {
        return Ok(());
    }
    let binaries = Box::new(binaries.clone());
    Err(DataDirError::WrongMajor { path: pgdata.to_owned(), found: found.to_owned(), binaries })
}

/// The same for a data directory that is there.
pub(crate) fn check_major_of(binaries: &Binaries, pgdata: &Path) -> Result<(), DataDirError> {
    match look_at(pgdata)? {
        Found::Cluster { major } => check_major(binaries, pgdata, &major),
        Found::Nothing => Ok(()),
    }
}

fn check_owner(run_as: &RunAs, pgdata: &Path) -> Result<(), DataDirError> {
    let metadata = fs::metadata(pgdata).map_err(|source| DataDirError::io("read", pgdata, source))?;
    if metadata.uid() == run_as.uid() {
        return Ok(());
    }
    let owner = nix::unistd::User::from_uid(metadata.uid().into()).ok().flatten();
    Err(DataDirError::WrongOwner {
        path: pgdata.to_owned(),
        owner: owner.map_or_else(|| metadata.uid().to_string(), |user| user.name),
        user: run_as.name().to_owned(),
    })
}
