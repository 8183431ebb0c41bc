//! A real PgBouncer, to compare with.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt as _,
    process::{Child, Command, Stdio},
};

use sluice_testkit::{eventually, port::free_port};
use tempfile::TempDir;

/// The place where Debian puts it.
const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// A PgBouncer whose console everybody may use, before no server, with a database "named". It ends with this value.
pub(crate) struct PgBouncer {
    pub(crate) address: SocketAddr,
    process: Child,
    _dir: TempDir,
}

impl PgBouncer {
    /// `None` where there is none to start.
    pub(crate) fn start() -> Option<Self> {
        fs::exists(PROGRAM).unwrap().then(Self::run)
    }

    fn run() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let file = dir.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\nnamed = host=/nowhere user=app\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir =\nauth_type = any\nadmin_users = boss\n",
            address.port()
        );
        fs::write(&file, text).unwrap();
        // It refuses to run as root.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if nix::unistd::geteuid().is_root() {
            command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
        }
        command.args(["--", PROGRAM]).arg(&file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        eventually("PgBouncer listens", || TcpStream::connect(address).is_ok());
        Self { address, process, _dir: dir }
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
