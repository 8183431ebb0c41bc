//! A short probe of a disk: random and sequential reads and writes, and writes that wait for the disk.
//!
//! Direct I/O on one file of its own, so that the kernel's cache neither helps nor is thrown out. A few seconds in
//! all: enough to tell an instance with 400 requests a second from one with 40,000, not to rate a drive.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::result::{DiskProbe, DiskRow};

const FILE_BYTES: u64 = 64 << 20;
const PAGE: u32 = 8 << 10;
const LARGE: u32 = 1 << 20;
/// Each kind of access.
const TIME_EACH: Duration = Duration::from_millis(300);
/// What the probe's file needs free, with room to spare.
const FREE_MIN: u64 = 4 * FILE_BYTES;

#[derive(Clone, Copy)]
enum Access {
    RandomRead,
    SequentialRead,
    RandomWrite,
    SequentialWrite,
    WriteAndSync,
}

/// In this order; the file must have been written before it is read.
const KINDS: [(&str, Access, u32, u32); 8] = [
    ("sequential write", Access::SequentialWrite, LARGE, 1),
    ("sequential read", Access::SequentialRead, LARGE, 1),
    ("random read", Access::RandomRead, PAGE, 1),
    ("random read", Access::RandomRead, PAGE, 16),
    ("random write", Access::RandomWrite, PAGE, 1),
    ("random write", Access::RandomWrite, PAGE, 16),
    ("write and fdatasync", Access::WriteAndSync, PAGE, 1),
    ("write and fdatasync", Access::WriteAndSync, PAGE, 4),
];

/// Probes the disk below a directory. What can't be done is a remark, never an error: figures are still worth having.
pub fn probe(dir: &Path) -> DiskProbe {
    let mut probe = DiskProbe { directory: dir.display().to_string(), device: device(dir), ..DiskProbe::default() };
    let free = rustix::fs::statvfs(dir).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    if free.is_ok_and(|free| free < FREE_MIN) {
        probe.remark = Some(format!("not probed: less than {} MB free", FREE_MIN >> 20));
        return probe;
    }
    let path = dir.join("disk-probe");
    match rows(&path) {
        Ok(rows) => probe.rows = rows,
        Err(error) => probe.remark = Some(format!("not probed: {error} (direct I/O on {})", path.display())),
    }
    // Gone already if it could not be made.
    let _ = fs::remove_file(&path);
    probe
}

/// The name of the block device that holds a directory.
fn device(dir: &Path) -> Option<String> {
    let device = fs::metadata(dir).ok()?.dev();
    let link = format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    Some(fs::canonicalize(link).ok()?.file_name()?.to_string_lossy().into_owned())
}

fn rows(path: &Path) -> io::Result<Vec<DiskRow>> {
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap_or(0);
    let file = File::options().read(true).write(true).create(true).truncate(true).custom_flags(direct).open(path)?;
    let buffer = Aligned::new(LARGE as usize);
    for chunk in 0..FILE_BYTES / u64::from(LARGE) {
        file.write_all_at(buffer.bytes(), chunk * u64::from(LARGE))?;
    }
    KINDS.iter().map(|(name, access, block_bytes, depth)| row(name, &file, *access, *block_bytes, *depth)).collect()
}

fn row(name: &str, file: &File, access: Access, block_bytes: u32, depth: u32) -> io::Result<DiskRow> {
    let begin = Instant::now();
    let counts: Vec<io::Result<u64>> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..depth).map(|number| scope.spawn(move || requests(file, access, block_bytes, number))).collect();
        let ended = |_| Err(io::Error::other("a probing thread panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(ended)).collect()
    });
    let seconds = begin.elapsed().as_secs_f64();
    let requests = counts.into_iter().sum::<io::Result<u64>>()? as f64;
    Ok(DiskRow {
        access: name.to_owned(),
        block_bytes,
        depth,
        iops: requests / seconds,
        mb_per_s: requests * f64::from(block_bytes) / seconds / 1e6,
        mean_us: f64::from(depth) * seconds * 1e6 / requests.max(1.0),
    })
}

/// One request after the other until the time is over; how many.
fn requests(file: &File, access: Access, block_bytes: u32, thread: u32) -> io::Result<u64> {
    let mut buffer = Aligned::new(block_bytes as usize);
    let blocks = FILE_BYTES / u64::from(block_bytes);
    // Any sequence will do that jumps about and does not repeat soon (Knuth's MMIX generator).
    let mut random = u64::from(thread) + 1;
    let (begin, mut count) = (Instant::now(), 0);
    while begin.elapsed() < TIME_EACH {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let block = match access {
            Access::SequentialRead | Access::SequentialWrite => count % blocks,
            _ => (random >> 33) % blocks,
        };
        let offset = block * u64::from(block_bytes);
        match access {
            Access::RandomRead | Access::SequentialRead => file.read_exact_at(buffer.bytes_mut(), offset)?,
            Access::RandomWrite | Access::SequentialWrite => file.write_all_at(buffer.bytes(), offset)?,
            Access::WriteAndSync => {
                file.write_all_at(buffer.bytes(), offset)?;
                file.sync_data()?;
            }
        }
        count += 1;
    }
    Ok(count)
}

/// Bytes at an address that direct I/O takes.
struct Aligned {
    bytes: Vec<u8>,
    from: usize,
    length: usize,
}

/// Larger than any disk's blocks.
const ALIGNMENT: usize = 4096;

impl Aligned {
    fn new(length: usize) -> Self {
        // No zeros: some disks do not store them.
        let bytes: Vec<u8> = (0..length + ALIGNMENT).map(|place| (place % 251) as u8).collect();
        let from = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { bytes, from, length }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..self.from + self.length]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_probed_or_says_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let probe = probe(dir.path());
        assert!(probe.remark.is_some() != (probe.rows.len() == KINDS.len()), "{probe:?}");
        assert!(probe.rows.iter().all(|row| row.iops > 0.0 && row.mean_us > 0.0), "{probe:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(self::probe(Path::new("/nowhere")).remark.is_some());
    }

    #[test]
    fn buffers_are_aligned() {
        let buffer = Aligned::new(8192);
        assert_eq!((buffer.bytes().as_ptr() as usize % ALIGNMENT, buffer.bytes().len()), (0, 8192));
    }
}
