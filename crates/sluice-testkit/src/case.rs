//! The setup of a test: PostgreSQL version, driver and mode.

use std::{fmt, path::PathBuf};

/// A PostgreSQL that tests run with. The pool's run with the oldest that is in wide use here, and the newest; the
/// extension's with 16 as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Debian's 15.
    V15,
    /// 16, by `scripts/test-deps.sh`.
    V16,
    /// 18, by `scripts/test-deps.sh`.
    V18,
}

impl Version {
    /// The folder of its programs; `SLUICE_TEST_PG15_BIN` and the like name others.
    pub fn bin_dir(self) -> PathBuf {
        let (variable, usual) = match self {
            Self::V15 => ("SLUICE_TEST_PG15_BIN", PathBuf::from("/usr/lib/postgresql/15/bin")),
            Self::V16 => ("SLUICE_TEST_PG16_BIN", repository().join("target/postgresql-16/bin")),
            Self::V18 => ("SLUICE_TEST_PG18_BIN", repository().join("target/postgresql-18/bin")),
        };
        let dir = std::env::var_os(variable).map_or(usual, PathBuf::from);
        assert!(dir.join("postgres").is_file(), "no PostgreSQL in {}: run scripts/test-deps.sh", dir.display());
        dir
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V15 => "PostgreSQL 15",
            Self::V16 => "PostgreSQL 16",
            Self::V18 => "PostgreSQL 18",
        })
    }
}

/// Makes a test of each function for each server, named `function::pg15` and so on.
#[macro_export]
macro_rules! versions {
    ($($name:ident),+ $(,)?) => {
        $(mod $name {
            use $crate::Version;
            #[test]
            fn pg15() { super::$name(Version::V15); }
            #[test]
            fn pg16() { super::$name(Version::V16); }
            #[test]
            fn pg18() { super::$name(Version::V18); }
        })+
    };
}

/// The checkout that the tests were built from.
pub fn repository() -> PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate is two folders below the root").to_owned()
}

/// The system interface that moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// io_uring.
    Uring,
    /// epoll.
    Epoll,
}

impl Driver {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uring => "io_uring",
            Self::Epoll => "epoll",
        }
    }
}

/// The time for which a client keeps a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// For a transaction.
    Transaction,
    /// For its life.
    Session,
}

impl Mode {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transaction => "transaction",
            Self::Session => "session",
        }
    }
}

/// The setup that one test runs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The PostgreSQL.
    pub version: Version,
    /// The pool's driver.
    pub driver: Driver,
    /// The pool's mode.
    pub mode: Mode,
}

impl Case {
    /// A case by its parts.
    pub const fn new(version: Version, driver: Driver, mode: Mode) -> Self {
        Self { version, driver, mode }
    }

    /// Whether clients share servers between transactions.
    pub fn is_transaction(self) -> bool {
        self.mode == Mode::Transaction
    }
}

/// Makes a test of each function for each of its cases, named `function::case`. Where a list has two cases of a mode, each
/// PostgreSQL and each driver is in one of them: the core does not know by which driver its bytes come.
///
/// | list | cases |
/// |---|---|
/// | `transaction` | two in transaction mode |
/// | `session` | two in session mode |
/// | `both_modes` | two in each mode |
/// | `all` | each PostgreSQL with each driver, in transaction mode |
/// | `servers_with_tls` | both drivers with the PostgreSQL that has TLS |
#[macro_export]
macro_rules! matrix {
    (transaction: $($name:ident),+ $(,)?) => {
        $($crate::matrix!(@ $name: pg15_io_uring V15 Uring Transaction, pg18_epoll V18 Epoll Transaction);)+
    };
    (session: $($name:ident),+ $(,)?) => {
        $($crate::matrix!(@ $name: pg15_io_uring V15 Uring Session, pg18_epoll V18 Epoll Session);)+
    };
    (both_modes: $($name:ident),+ $(,)?) => {
        $($crate::matrix!(@ $name:
            pg15_io_uring_transaction V15 Uring Transaction, pg18_epoll_transaction V18 Epoll Transaction,
            pg15_epoll_session V15 Epoll Session, pg18_io_uring_session V18 Uring Session);)+
    };
    (all: $($name:ident),+ $(,)?) => {
        $($crate::matrix!(@ $name:
            pg15_io_uring V15 Uring Transaction, pg15_epoll V15 Epoll Transaction,
            pg18_io_uring V18 Uring Transaction, pg18_epoll V18 Epoll Transaction);)+
    };
    // The tests' PostgreSQL 18 is built without TLS.
    (servers_with_tls: $($name:ident),+ $(,)?) => {
        $($crate::matrix!(@ $name: pg15_io_uring V15 Uring Transaction, pg15_epoll V15 Epoll Transaction);)+
    };
    (@ $name:ident: $($case:ident $version:ident $driver:ident $mode:ident),+) => {
        mod $name {
            use $crate::{Case, Driver, Mode, Version};
            $(#[test]
            fn $case() {
                super::$name(Case::new(Version::$version, Driver::$driver, Mode::$mode));
            })+
        }
    };
}
