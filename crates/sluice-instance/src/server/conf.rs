//! The files that a server needs beside its data before each start: `sluice.conf`, and the pool's secret.

use std::{fs, io};

use super::{PostgresConfig, StartError};
use crate::{
    data_dir::{DataDir, POOL_SECRET},
    files::{self, Owner, if_there},
    kept_settings::KeptSettings,
    secret::Password,
};

/// Writes `sluice.conf`, if the server is tuned.
pub(super) fn write(config: &PostgresConfig) -> Result<(), StartError> {
    let Some(tuning) = config.tuning else { return Ok(()) };
    let (path, run_as) = (config.data_dir.pgdata().join("sluice.conf"), config.data_dir.run_as());
    let root = config.data_dir.root();
    let kept = KeptSettings::read(root)
        .map_err(|source| StartError::io(format!("read the settings of former nodes in {}", root.display()), source))?;
    let text = tuning.to_conf() + &kept.to_conf();
    files::write_private(&path, text.as_bytes(), Owner::Postgres(run_as))
        .map_err(|source| StartError::io(format!("write {}", path.display()), source))?;
    remove_old_pool_secret(&config.data_dir)?;
    if !tuning.gate {
        return Ok(());
    }
    let failed =
        |source| StartError::io(format!("write {}", config.data_dir.root().join(POOL_SECRET).display()), source);
    pool_secret(&config.data_dir).map(drop).map_err(failed)
}

/// An earlier version kept the secret in PostgreSQL's data directory, and so in its backups. `sluice.conf` names that file
/// no more.
fn remove_old_pool_secret(data_dir: &DataDir) -> Result<(), StartError> {
    let path = data_dir.pgdata().join(POOL_SECRET);
    let removed = if_there(fs::remove_file(&path));
    removed.map(drop).map_err(|error| StartError::io(format!("remove {}", path.display()), error))
}

/// Reads the secret, or makes it. It stays what it is: the pool, which has read it, goes on when PostgreSQL is started
/// again.
pub(crate) fn pool_secret(data_dir: &DataDir) -> io::Result<String> {
    let path = data_dir.root().join(POOL_SECRET);
    if let Some(secret) = if_there(fs::read_to_string(&path))? {
        return Ok(secret);
    }
    let secret = Password::random().map_err(|error| io::Error::other(error.to_string()))?;
    let line = format!("{}\n", secret.expose());
    files::write_private(&path, line.as_bytes(), Owner::Postgres(data_dir.run_as()))?;
    Ok(line)
}
