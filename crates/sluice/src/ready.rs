//! The text that a user reads when the service is ready: a line to type that works as it stands, and the places of
//! things.

use std::{
    env, fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use sluice_instance::{Binaries, Class, ClassReport, Cpus, Endpoint, Memory, bootstrap};
use sluice_lab::{connect::parameter, process::shell_word};

use crate::instance::NodeLine;

/// The port that psql takes where none is named.
const POSTGRES_PORT: u16 = 5432;

/// The role of the one standby that commits wait for, where they do not wait for a quorum.
const SYNCHRONOUS: &str = "sync standby";

/// The facts in the text.
pub(crate) struct Ready<'a> {
    pub(crate) binaries: &'a Binaries,
    pub(crate) listen: SocketAddr,
    pub(crate) pool_size: u32,
    pub(crate) pgpass: &'a Path,
    pub(crate) password: &'a Path,
    pub(crate) data: &'a Path,
    /// PostgreSQL's own socket, of the primary where there are several.
    pub(crate) postgres: &'a Endpoint,
    pub(crate) log: &'a Path,
    /// The certificate that clients are shown.
    pub(crate) certificate: &'a Path,
    /// The reason why the password does not work, if it does not.
    pub(crate) login_refused: Option<&'a str>,
    /// Whether PostgreSQL has the gate.
    pub(crate) gate: bool,
    /// The databases that lack its extension though they should have it, and why.
    pub(crate) without_extension: &'a [String],
    pub(crate) class: Class,
    /// The limits of the class, enforced or not.
    pub(crate) class_report: &'a ClassReport,
    /// The nodes, where there are several.
    pub(crate) nodes: Vec<NodeLine>,
    /// The processors that this process may use, if the system says it.
    pub(crate) processors: Option<NonZeroUsize>,
    /// The memory that there is for all.
    pub(crate) memory_bytes: u64,
}

impl fmt::Display for Ready<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, listen, size) = (&self.binaries.version, self.listen, self.pool_size);
        writeln!(f, "\nReady: PostgreSQL {version} behind a pool of {size} on {listen}. Type in another terminal:\n")?;
        writeln!(
            f,
            "  PGPASSFILE={} {} -h {} -p {} -U {} {}\n",
            shell_word(&self.pgpass.to_string_lossy()),
            shell_word(&psql(self.binaries).to_string_lossy()),
            reachable(listen.ip()),
            listen.port(),
            bootstrap::FIRST_USER,
            bootstrap::FIRST_DATABASE,
        )?;
        if let Some(why) = self.login_refused {
            writeln!(f, "The password there is no longer that of role {} ({why}).", bootstrap::FIRST_USER)?;
            writeln!(f, "Use the one that was set, or remove {} and start again.\n", self.password.display())?;
        }
        writeln!(f, "Password  {}", self.password.display())?;
        writeln!(f, "Data      {}", self.data.display())?;
        writeln!(f, "Log       {}", self.log.display())?;
        let root_cert = parameter("sslrootcert", &self.certificate.to_string_lossy());
        writeln!(f, "TLS       offered; to verify it: sslmode=verify-full {root_cert}")?;
        writeln!(f, "Console   the same line with the database pgbouncer, then SHOW POOLS or SHOW HELP")?;
        writeln!(f, "Superuser {}", self.superuser())?;
        match self.gate {
            true => writeln!(f, "Gate      on: select * from sluice_gate shows who runs and who waits")?,
            false => writeln!(f, "Gate      off: this PostgreSQL lacks it (make up and make deb install it)")?,
        }
        for refused in self.without_extension {
            writeln!(f, "          but CREATE EXTENSION {} fails in database {refused}", bootstrap::GATE)?;
        }
        self.write_class(f)?;
        self.write_nodes(f)?;
        if !listen.ip().is_loopback() {
            writeln!(f, "\n{listen} is open to other machines, and encrypts what clients send that ask for it.")?;
        }
        write!(f, "\nCtrl-C stops the pool and PostgreSQL.")
    }
}

impl Ready<'_> {
    /// The line by which the user who runs this gets in as PostgreSQL's superuser: past the pool, where the socket is.
    fn superuser(&self) -> String {
        let Endpoint { socket_dir, port, .. } = self.postgres;
        let (psql, dir) = (psql(self.binaries), socket_dir.to_string_lossy());
        let port = if *port == POSTGRES_PORT { String::new() } else { format!(" -p {port}") };
        format!("{} -h {}{port} -U {}", shell_word(&psql.to_string_lossy()), shell_word(&dir), bootstrap::SUPERUSER)
    }

    fn write_nodes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, NodeLine { name, role, postgres, patroni }) in self.nodes.iter().enumerate() {
            let title = if index == 0 { "Nodes" } else { "" };
            writeln!(f, "{title:<10}{name}: {role}, PostgreSQL on {postgres}, Patroni on http://{patroni}")?;
        }
        let Some(commits) = commits(&self.nodes) else { return Ok(()) };
        writeln!(f, "Commits   {commits}")?;
        let database = bootstrap::FIRST_DATABASE;
        writeln!(f, "Readers   the same line with the database {database}:ro reads from standbys")
    }

    fn write_class(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.class.is_unlimited() {
            return Ok(());
        }
        writeln!(f, "Class     {}", self.class)?;
        let memory = self.class.memory.and_then(|memory| excess_memory(memory, self.memory_bytes));
        let cpus = self.processors.and_then(|processors| excess(self.class.cpus?, processors));
        memory.into_iter().chain(cpus).try_for_each(|excess| writeln!(f, "          {excess}"))?;
        if self.class_report.is_enforced() {
            return Ok(());
        }
        writeln!(f, "          {}", self.class_report)?;
        self.class_report.remedies().iter().try_for_each(|remedy| writeln!(f, "          {remedy}"))
    }
}

/// A remark on more processors than there are: the kernel takes that limit, which then limits nothing.
fn excess(cpus: Cpus, processors: NonZeroUsize) -> Option<String> {
    let there_are = u64::try_from(processors.get()).unwrap_or(u64::MAX);
    let is_more = u64::from(cpus.millis()) > there_are.saturating_mul(1000);
    is_more.then(|| format!("cpus {cpus} limits nothing: PostgreSQL has {there_are} here"))
}

/// The same of memory.
fn excess_memory(memory: Memory, there_are_bytes: u64) -> Option<String> {
    let is_more = memory.bytes() > there_are_bytes;
    is_more.then(|| format!("memory {memory} limits nothing: PostgreSQL has {} MB here", there_are_bytes >> 20))
}

/// An address by which this machine reaches what listens on `ip`.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

/// `psql` if the shell finds it, else the one beside the server.
fn psql(binaries: &Binaries) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).any(|dir| dir.join("psql").is_file());
    binaries.psql.clone().filter(|_| !found).unwrap_or_else(|| PathBuf::from("psql"))
}

/// The standbys that a commit waits for, in words, where there are any nodes.
fn commits(nodes: &[NodeLine]) -> Option<&'static str> {
    match nodes.len() {
        0 | 1 => None,
        2 => Some("wait for the other node while it is there (synchronous)"),
        _ if nodes.iter().any(|node| node.role == SYNCHRONOUS) => Some("wait for the synchronous standby"),
        _ => Some("wait for one of the two other nodes, always (quorum, strict)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_wait_for_whom_the_roles_say() {
        let told = |roles: &[&str]| {
            let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
            let line =
                |role: &&str| NodeLine { name: String::new(), role: (*role).to_owned(), postgres: at, patroni: at };
            commits(&roles.iter().map(line).collect::<Vec<_>>())
        };
        for (roles, part) in [
            (&["leader", "sync standby"][..], "while it is there"),
            (&["leader", "quorum standby", "quorum standby"], "quorum, strict"),
            (&["leader", "replica", "sync standby"], "the synchronous standby"),
        ] {
            assert!(told(roles).is_some_and(|told| told.contains(part)), "{roles:?}");
        }
        assert_eq!(told(&[]), None);
    }

    #[test]
    fn more_processors_than_there_are_limit_nothing() {
        let two = NonZeroUsize::new(2).unwrap();
        assert_eq!(excess("2".parse().unwrap(), two), None);
        let remark = "cpus 2.5 limits nothing: PostgreSQL has 2 here";
        assert_eq!(excess("2.5".parse().unwrap(), two).as_deref(), Some(remark));
    }

    #[test]
    fn more_memory_than_there_is_limits_nothing() {
        assert_eq!(excess_memory("1GB".parse().unwrap(), 1 << 30), None);
        let remark = "memory 900GB limits nothing: PostgreSQL has 23552 MB here";
        assert_eq!(excess_memory("900GB".parse().unwrap(), 23 << 30).as_deref(), Some(remark));
    }

    #[test]
    fn addresses_to_type() {
        for (listen, expected) in [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.0.0.1", "10.0.0.1")] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), expected);
        }
    }
}
