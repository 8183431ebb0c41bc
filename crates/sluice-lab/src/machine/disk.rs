//! A short probe of a disk: random and sequential reads and writes, and writes that wait for the disk.
//!
//! By block size and by depth, which is how many threads ask at once. Direct I/O on one file of its own, so that the
//! kernel's cache neither helps nor is thrown out. A few seconds in all: enough to tell an instance with 400 requests a
//! second from one with 40,000, not to rate a drive.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use sluice_instance::Disk;

use crate::result::{DiskProbe, DiskRow};

const FILE_BYTES: u64 = 64 << 20;
/// PostgreSQL's pages, what it reads and writes ahead, and what a copy of files does.
const PAGE: u32 = 8 << 10;
const RUN: u32 = 128 << 10;
const LARGE: u32 = 1 << 20;

/// Free space that the probe's file needs, in bytes, with room to spare.
const FREE_MIN: u64 = 4 * FILE_BYTES;

#[derive(Clone, Copy)]
enum Access {
    RandomRead,
    SequentialRead,
    RandomWrite,
    SequentialWrite,
    WriteAndSync,
}

/// Kinds of access, each with its name, block sizes and queue depths.
const KINDS: [(&str, Access, &[u32], &[u32]); 5] = [
    ("sequential write", Access::SequentialWrite, &[PAGE, RUN, LARGE], &[1]),
    ("sequential read", Access::SequentialRead, &[PAGE, RUN, LARGE], &[1]),
    ("random read", Access::RandomRead, &[PAGE, RUN], &[1, 4, 16]),
    ("random write", Access::RandomWrite, &[PAGE, RUN], &[1, 4, 16]),
    ("write and fdatasync", Access::WriteAndSync, &[PAGE], &[1, 4, 16]),
];

/// The time that is spent on each kind of access, block size and depth.
#[derive(Clone, Copy, Debug)]
pub enum Probe {
    /// Four seconds in all.
    Short,
    /// Half a second in all, to see that it works.
    Brief,
}

impl Probe {
    fn time_each(self) -> Duration {
        match self {
            Self::Short => Duration::from_millis(200),
            Self::Brief => Duration::from_millis(20),
        }
    }
}

/// Probes the disk below a directory. What can't be done is a remark, never an error: figures are still worth having.
pub fn probe(dir: &Path, how: Probe) -> DiskProbe {
    let device = Disk::below(dir).ok().and_then(|disk| disk.name());
    let mut probe = DiskProbe { directory: dir.display().to_string(), device, ..DiskProbe::default() };
    if sluice_instance::free_bytes(dir).is_ok_and(|free| free < FREE_MIN) {
        probe.remark = Some(format!("not probed: less than {} MB free", FREE_MIN >> 20));
        return probe;
    }
    let path = dir.join("disk-probe");
    match rows(&path, how.time_each()) {
        Ok(rows) => probe.rows = rows,
        Err(error) => probe.remark = Some(format!("not probed: {error} (direct I/O on {})", path.display())),
    }
    // Gone already if it could not be made.
    let _ = fs::remove_file(&path);
    probe
}

fn rows(path: &Path, time: Duration) -> io::Result<Vec<DiskRow>> {
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap_or(0);
    let file = File::options().read(true).write(true).create(true).truncate(true).custom_flags(direct).open(path)?;
    let buffer = Aligned::new(LARGE as usize);
    for chunk in 0..FILE_BYTES / u64::from(LARGE) {
        file.write_all_at(buffer.bytes(), chunk * u64::from(LARGE))?;
    }
    let mut found = Vec::new();
    for (name, access, blocks, depths) in KINDS {
        for block_bytes in blocks {
            for depth in depths {
                let case = Case { file: &file, access, block_bytes: *block_bytes, time };
                found.push(case.row(name, *depth)?);
            }
        }
    }
    Ok(found)
}

/// One kind of access to the probe's file.
#[derive(Clone, Copy)]
struct Case<'a> {
    file: &'a File,
    access: Access,
    block_bytes: u32,
    time: Duration,
}

impl Case<'_> {
    fn row(self, name: &str, depth: u32) -> io::Result<DiskRow> {
        let begin = Instant::now();
        let counts: Vec<io::Result<u64>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..depth).map(|number| scope.spawn(move || self.requests(number))).collect();
            let ended = |_| Err(io::Error::other("a probing thread panicked"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(ended)).collect()
        });
        let seconds = begin.elapsed().as_secs_f64();
        let requests = counts.into_iter().sum::<io::Result<u64>>()? as f64;
        Ok(DiskRow {
            access: name.to_owned(),
            block_bytes: self.block_bytes,
            depth,
            iops: requests / seconds,
            mb_per_s: requests * f64::from(self.block_bytes) / seconds / 1e6,
            mean_us: f64::from(depth) * seconds * 1e6 / requests.max(1.0),
        })
    }

    /// One request after the other until the time is over; how many.
    fn requests(self, thread: u32) -> io::Result<u64> {
        let mut buffer = Aligned::new(self.block_bytes as usize);
        let blocks = FILE_BYTES / u64::from(self.block_bytes);
        // Any sequence will do that jumps about and does not repeat soon (Knuth's MMIX generator).
        let mut random = u64::from(thread) + 1;
        let (begin, mut count) = (Instant::now(), 0);
        while begin.elapsed() < self.time {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let block = match self.access {
                Access::SequentialRead | Access::SequentialWrite => count % blocks,
                _ => (random >> 33) % blocks,
            };
            let offset = block * u64::from(self.block_bytes);
            match self.access {
                Access::RandomRead | Access::SequentialRead => self.file.read_exact_at(buffer.bytes_mut(), offset)?,
                Access::RandomWrite | Access::SequentialWrite => self.file.write_all_at(buffer.bytes(), offset)?,
                Access::WriteAndSync => {
                    self.file.write_all_at(buffer.bytes(), offset)?;
                    self.file.sync_data()?;
                }
            }
            count += 1;
        }
        Ok(count)
    }
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
        let probe = probe(dir.path(), Probe::Brief);
        let kinds: usize = KINDS.iter().map(|(_, _, blocks, depths)| blocks.len() * depths.len()).sum();
        assert!(probe.remark.is_some() != (probe.rows.len() == kinds), "{probe:?}");
        assert!(probe.rows.iter().all(|row| row.iops > 0.0 && row.mean_us > 0.0), "{probe:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(self::probe(Path::new("/nowhere"), Probe::Brief).remark.is_some());
    }

    #[test]
    fn buffers_are_aligned() {
        let buffer = Aligned::new(8192);
        assert_eq!((buffer.bytes().as_ptr() as usize % ALIGNMENT, buffer.bytes().len()), (0, 8192));
    }
}
