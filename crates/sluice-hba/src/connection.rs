//! Connections: what a client says of its own, and the kind that a rule is for.

use std::net::IpAddr;

use crate::problem::Flaw;

/// A client that asks to be let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection<'a> {
    /// The way that it comes.
    pub transport: Transport,
    /// The user of its startup message.
    pub user: &'a str,
    /// The database of its startup message.
    pub database: &'a str,
    /// It asks for physical replication (`replication=true`). For logical replication (`replication=database`) this
    /// is false: the database counts then.
    pub is_replication: bool,
}

/// The way that a client comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// By a Unix socket.
    Local,
    /// By TCP.
    Tcp {
        /// The client's address. IPv4 mapped to IPv6 counts as IPv4.
        address: IpAddr,
        /// It has TLS.
        is_encrypted: bool,
    },
}

/// The kind of connection that a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionType {
    /// `local`: a Unix socket.
    Local,
    /// `host`: TCP, with TLS or without.
    Host,
    /// `hostssl`: TCP with TLS.
    HostSsl,
    /// `hostnossl`: TCP without TLS.
    HostNoSsl,
    /// `hostgssenc`: TCP with GSSAPI's encryption, which Sluice does not have. Such a rule never counts.
    HostGssEnc,
    /// `hostnogssenc`: TCP without GSSAPI's encryption, the same as `host`.
    HostNoGssEnc,
}

impl ConnectionType {
    const ALL: [Self; 6] =
        [Self::Local, Self::Host, Self::HostSsl, Self::HostNoSsl, Self::HostGssEnc, Self::HostNoGssEnc];

    /// The name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Host => "host",
            Self::HostSsl => "hostssl",
            Self::HostNoSsl => "hostnossl",
            Self::HostGssEnc => "hostgssenc",
            Self::HostNoGssEnc => "hostnogssenc",
        }
    }

    pub(crate) fn parse(name: &str) -> Result<Self, Flaw> {
        Self::ALL.into_iter().find(|connection| connection.name() == name).ok_or_else(|| {
            Flaw::mistake(
                format!("invalid connection type \"{name}\""),
                "begin the line with local, host, hostssl, hostnossl, hostgssenc or hostnogssenc",
            )
        })
    }
}
