//! PostgreSQL as a child process: find its binaries, create its data directory once, start it, watch it, stop it.
//!
//! The order of things, each step a type that the next one needs:
//!
//! 1. [`Binaries::find`]: which PostgreSQL.
//! 2. [`RunAs::resolve`]: as which system user (PostgreSQL refuses root).
//! 3. [`DataDir::open`]: the directory, created once, locked against a second user, of the right major version.
//! 4. [`Postgres::start`]: the server, within its [`Class`], kept alive until [`Postgres::stop`].
//! 5. [`bootstrap`](bootstrap::bootstrap): the first user and database, and the role by which the pool looks up
//!    secrets.
//! 6. [`write_pool_file`]: the pool's configuration for this server.
//!
//! This crate knows the pool only as a reader of a configuration file. It prints nothing: what happens is told to an
//! [`Observer`], and errors say what to do.

mod binaries;
pub mod bootstrap;
mod certificate;
mod class;
pub mod cluster;
mod data_dir;
mod diagnosis;
mod disk;
mod endpoint;
mod event;
mod files;
mod kept_settings;
mod name;
mod orphans;
mod pid_file;
mod pool_file;
mod run_as;
mod secret;
mod server;
mod socket_dir;
mod stop_mode;
mod tuning;

pub use crate::{
    binaries::{Binaries, BinariesError, Version},
    certificate::certificate_in,
    class::{
        Class, ClassReport, Connections, Controller, Cpus, Disk, GroupDir, Hierarchies, Iops, Limit, LimitError,
        Memory, Obstacle, Outcome, ReadBack,
    },
    data_dir::{DataDir, DataDirError, DataDirSpec, Layout, POOL_SECRET},
    diagnosis::Diagnosis,
    disk::{free_bytes, full as full_disk},
    endpoint::Endpoint,
    event::{Event, Observer, Silent},
    pool_file::write_pool_file,
    run_as::{RunAs, RunAsError},
    secret::Password,
    server::{Postgres, PostgresConfig, RestartPolicy, StartError, State, StopReport},
    stop_mode::StopMode,
    tuning::{Host, PoolTooLarge, Tuning},
};
