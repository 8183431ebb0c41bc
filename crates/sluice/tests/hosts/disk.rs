//! A host's disk: a filesystem of its own in a file, which can be full, slow, or not answer at all.
//!
//! It is mounted without write barriers, as what dies here are processes and not the machine. That makes it faster than
//! the disk that the file is on.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::fcntl::{FallocateFlags, fallocate};
use sluice_testkit::proc;

/// Far more than a host of a test writes; the file is sparse.
const SIZE: &str = "3G";

/// Writes wait for `$2` seconds, and go on for a moment. Whoever ends this has writes go on.
const SLOW: &str = "\
trap 'fsfreeze --unfreeze \"$1\"; exit' TERM
while :; do
    fsfreeze --freeze \"$1\"; sleep \"$2\" & wait $!; fsfreeze --unfreeze \"$1\"; sleep 0.02
done";

/// Writes wait until this is ended.
const STALL: &str = "\
trap 'fsfreeze --unfreeze \"$1\"; exit' TERM
fsfreeze --freeze \"$1\"
while :; do sleep \"$2\" & wait $!; done";

/// Time limit for unmounting, which processes may hold that have just been killed.
const UNMOUNT_TIME_MAX: Duration = Duration::from_secs(10);

/// A disk. Dropped, it is unmounted, and its file removed.
#[derive(Debug)]
pub(crate) struct Disk {
    image: PathBuf,
    mount: PathBuf,
    slowness: Mutex<Option<Child>>,
}

impl Disk {
    /// Makes a disk and mounts it, if this machine allows that; otherwise the reason.
    pub(crate) fn new(mount: &Path) -> Result<Self, String> {
        let image = mount.with_extension("image");
        fs::create_dir(mount).unwrap();
        run(Command::new("truncate").args(["--size", SIZE]).arg(&image))?;
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image))?;
        let disk = Self { image, mount: mount.to_owned(), slowness: Mutex::default() };
        run(Command::new("mount").args(["-o", "loop,barrier=0,noatime"]).args([&disk.image, &disk.mount]))?;
        fs::remove_dir(mount.join("lost+found")).unwrap();
        fs::set_permissions(mount, fs::Permissions::from_mode(0o755)).unwrap();
        Ok(disk)
    }

    /// Removes what tests have left that were killed: folders that begin so, with the number of the process, and the
    /// disks that are mounted in them.
    pub(crate) fn remove_left(folders: &str) {
        let is_left = |folder: &Path| {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            let pid = name.strip_prefix(folders).and_then(|rest| rest.split('-').next()?.parse().ok());
            pid.is_some_and(|pid: u32| !proc::is_alive(pid))
        };
        let place = std::env::temp_dir();
        for line in fs::read_to_string("/proc/mounts").unwrap_or_default().lines() {
            let mount = line.split(' ').nth(1).map(Path::new).unwrap_or(Path::new("/"));
            if mount.parent().is_some_and(|folder| folder.parent() == Some(&place) && is_left(folder)) {
                // Another test may be doing so as well.
                let _ = run(Command::new("fsfreeze").arg("--unfreeze").arg(mount));
                let _ = run(Command::new("umount").arg(mount));
            }
        }
        let folders = fs::read_dir(place).unwrap().flatten().map(|entry| entry.path());
        folders.filter(|folder| is_left(folder)).for_each(|folder| _ = fs::remove_dir_all(folder));
    }

    fn filler(&self) -> PathBuf {
        self.mount.join("filler")
    }

    /// Leaves no room on it.
    pub(crate) fn fill(&self) {
        // The largest piece that there is, again and again. No process is started for that, which may take its time while
        // others write.
        let mut bytes = 4 << 30;
        let filler = fs::File::create(self.filler()).unwrap();
        let mut end = 0;
        while bytes >= 4096 {
            match fallocate(&filler, FallocateFlags::empty(), end, bytes) {
                Ok(()) => end += bytes,
                // What it has got before it failed stays with the file, beyond its end.
                Err(_) => bytes /= 2,
            }
        }
    }

    /// There is room again.
    pub(crate) fn empty(&self) {
        // It may not have been filled.
        let _ = fs::remove_file(self.filler());
    }

    /// Each write takes up to so long.
    pub(crate) fn slow(&self, write: Duration) {
        self.begin(SLOW, write);
    }

    /// Writes wait until [`Disk::answer`], or until this process has ended.
    pub(crate) fn stall(&self) {
        self.begin(STALL, Duration::from_secs(1));
    }

    fn begin(&self, script: &str, seconds: Duration) {
        self.answer();
        let mut slow = Command::new("setpriv");
        slow.args(["--pdeathsig", "TERM", "--", "sh", "-c", script, "sh"]).arg(&self.mount);
        slow.arg(seconds.as_secs_f64().to_string()).process_group(0);
        slow.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        *self.lock() = Some(slow.spawn().unwrap());
    }

    /// Writes go on.
    pub(crate) fn answer(&self) {
        let Some(mut slowness) = self.lock().take() else { return };
        // Of the group, so that the shell's pause ends as well.
        let group = slowness.id().cast_signed();
        // It may have ended by itself.
        let _ = nix::sys::signal::killpg(nix::unistd::Pid::from_raw(group), proc::Kind::SIGTERM);
        slowness.wait().unwrap();
        // If it was in the midst of freezing.
        let _ = run(Command::new("fsfreeze").arg("--unfreeze").arg(&self.mount));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.slowness.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.answer();
        let begin = Instant::now();
        while let Err(why) = run(Command::new("umount").arg(&self.mount)) {
            if begin.elapsed() > UNMOUNT_TIME_MAX {
                eprintln!("{why}");
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = fs::remove_file(&self.image);
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {said}")) }
}
