//! The settings that a server is started with, and its command line.

use std::{
    ffi::{OsStr, OsString},
    net::SocketAddr,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
    process::Command,
    sync::Arc,
    time::Duration,
};

use nix::sys::signal::Signal;

use super::{RestartPolicy, launch::Launch};
use crate::{class::Class, data_dir::DataDir, endpoint::Endpoint, tuning::Tuning};

/// The port in the Unix socket's name when there is no TCP port: the folder is the instance's own.
const SOCKET_PORT: u16 = 5432;

/// The settings that a server is started with.
#[derive(Debug, Clone)]
pub struct PostgresConfig {
    /// Its data directory, with the programs and the user that run it. The lock on the directory is held by this.
    pub data_dir: Arc<DataDir>,
    /// Written to `sluice.conf` at each start; `None` leaves that file as it is.
    pub tuning: Option<Tuning>,
    /// Its limits. The server starts also where the machine can't enforce them: [`super::Postgres::class`] tells.
    pub class: Class,
    /// Also listens there by TCP; its port is then also the Unix socket's. By default the Unix socket only.
    pub tcp: Option<SocketAddr>,
    /// Further settings, name and value; they win over all files.
    pub settings: Vec<(String, String)>,
    /// Time limit for a start, recovery after a crash included.
    pub start_timeout: Duration,
    /// Time limit for a fast shutdown, before it becomes an immediate one.
    pub stop_timeout: Duration,
    /// The policy for starting it again after a crash.
    pub restart: RestartPolicy,
}

impl PostgresConfig {
    /// With defaults for everything but the directory.
    pub fn new(data_dir: Arc<DataDir>) -> Self {
        Self {
            data_dir,
            tuning: None,
            class: Class::default(),
            tcp: None,
            settings: Vec::new(),
            start_timeout: Duration::from_secs(600),
            stop_timeout: Duration::from_secs(60),
            restart: RestartPolicy::default(),
        }
    }

    /// The endpoint that it will listen on.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            socket_dir: self.data_dir.socket_dir().to_owned(),
            port: self.tcp.map_or(SOCKET_PORT, |address| address.port()),
            tcp: self.tcp,
        }
    }

    /// The command that starts it. If Sluice ends without stopping it, it gets a fast shutdown from the kernel.
    pub(super) fn command(&self, how: Launch) -> Command {
        let endpoint = self.endpoint();
        let run = |program: &Path| self.data_dir.run_as().command(program, Signal::SIGINT);
        let mut command = how.command(&self.data_dir.binaries().postgres, run);
        command.current_dir("/").arg("-D").arg(self.data_dir.pgdata());
        let listen = endpoint.tcp.map(|address| address.ip().to_string()).unwrap_or_default();
        let mut set = |name: &str, value: &OsStr| {
            let mut setting = OsString::from(name);
            setting.push("=");
            setting.push(value);
            command.arg("-c").arg(setting);
        };
        set("listen_addresses", listen.as_ref());
        set("port", endpoint.port.to_string().as_ref());
        set("unix_socket_directories", &list_item(&endpoint.socket_dir));
        if let Some(connections) = self.class.connections {
            set("max_connections", connections.to_string().as_ref());
        }
        for (name, value) in &self.settings {
            set(name, value.as_ref());
        }
        command
    }
}

/// A path as an item of a setting that is a list: commas and spaces are part of it.
fn list_item(path: &Path) -> OsString {
    let mut quoted = vec![b'"'];
    for byte in path.as_os_str().as_bytes() {
        if *byte == b'"' {
            quoted.push(b'"');
        }
        quoted.push(*byte);
    }
    quoted.push(b'"');
    OsString::from_vec(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_lists() {
        assert_eq!(list_item(Path::new("/a b,c\"d")), "\"/a b,c\"\"d\"");
    }
}
