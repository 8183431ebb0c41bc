//! The buffers that bytes are received into: one piece of memory, cut into equal parts, counted while in use.
//!
//! A buffer belongs to the driver until bytes are in it, and again when the last reference to it is gone.

#![allow(unsafe_code, reason = "the kernel writes into this memory, so it is handled by pointer")]

use std::{alloc::Layout, ops::Range, ptr::NonNull};

/// A buffer, by its place.
pub type BufferId = u16;

/// Received bytes.
#[derive(Debug)]
pub enum Chunk {
    /// The first `len` bytes of a buffer. Holds one reference to it.
    Shared {
        /// The buffer.
        buffer: BufferId,
        /// Their number.
        len: u32,
    },
    /// Those that came encrypted.
    Owned(Vec<u8>),
}

impl Chunk {
    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Shared { len, .. } => *len as usize,
            Self::Owned(bytes) => bytes.len(),
        }
    }
}

/// All buffers of a worker.
#[derive(Debug)]
pub struct Buffers {
    memory: NonNull<u8>,
    layout: Layout,
    size: usize,
    /// References to each buffer; zero means that it is the driver's.
    used: Vec<u16>,
    /// The number of buffers in use.
    in_use: u16,
    /// Buffers that became free and that the driver has not taken back yet.
    returned: Vec<BufferId>,
}

/// The alignment of any memory. With more, zeroed memory is written to before it is used.
const ALIGNMENT_BYTES: usize = 16;

impl Buffers {
    /// Memory for `count` buffers of `size` bytes each; the system gives it page by page as it is used.
    ///
    /// # Panics
    ///
    /// If one of both is zero, or it is more memory than there can be.
    pub fn new(count: u16, size: usize) -> Self {
        assert!(count > 0 && size > 0);
        let bytes = usize::from(count).checked_mul(size).expect("no more memory than there can be");
        let layout = Layout::from_size_align(bytes, ALIGNMENT_BYTES).expect("no more memory than there can be");
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { std::alloc::handle_alloc_error(layout) };
        Self { memory, layout, size, used: vec![0; usize::from(count)], in_use: 0, returned: Vec::new() }
    }

    /// The beginning of a buffer; for drivers, to receive into.
    pub fn pointer(&self, buffer: BufferId) -> *mut u8 {
        debug_assert!(usize::from(buffer) < self.used.len());
        // SAFETY: the buffer's number is below the count, so the result lies within the allocation.
        unsafe { self.memory.as_ptr().add(usize::from(buffer) * self.size) }
    }

    /// A buffer's whole memory, for a driver that fills it itself. The buffer must be the driver's.
    pub fn free_space(&mut self, buffer: BufferId) -> &mut [u8] {
        assert_eq!(self.used[usize::from(buffer)], 0, "a buffer in use is nobody's to write to");
        // SAFETY: within the allocation; no reference to this buffer exists, as the count shows; `self` is borrowed
        // exclusively meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(buffer), self.size) }
    }

    /// A driver has put bytes into a buffer, from its beginning.
    pub fn filled(&mut self, buffer: BufferId, len: u32) -> Chunk {
        let used = &mut self.used[usize::from(buffer)];
        debug_assert_eq!(*used, 0);
        *used = 1;
        self.in_use += 1;
        Chunk::Shared { buffer, len: len.min(self.size as u32) }
    }

    /// The bytes of a stretch that is in use. The caller holds a reference to the buffer for as long as it uses them.
    pub fn bytes(&self, buffer: BufferId, range: Range<u32>) -> &[u8] {
        assert!(range.start <= range.end && range.end as usize <= self.size);
        debug_assert!(self.used[usize::from(buffer)] > 0);
        // SAFETY: within the allocation. Nobody writes to a buffer that is in use: the kernel and the drivers only
        // write to those given back to them.
        unsafe {
            std::slice::from_raw_parts(
                self.pointer(buffer).add(range.start as usize),
                (range.end - range.start) as usize,
            )
        }
    }

    /// The bytes of a chunk.
    pub(crate) fn bytes_of<'a>(&'a self, chunk: &'a Chunk) -> &'a [u8] {
        match chunk {
            Chunk::Shared { buffer, len } => self.bytes(*buffer, 0..*len),
            Chunk::Owned(bytes) => bytes,
        }
    }

    /// The bytes of a chunk that nobody else has seen, to decrypt them where they are.
    pub(crate) fn bytes_of_mut<'a>(&'a mut self, chunk: &'a mut Chunk) -> &'a mut [u8] {
        let (buffer, len) = match chunk {
            Chunk::Shared { buffer, len } => (*buffer, *len as usize),
            Chunk::Owned(bytes) => return bytes,
        };
        assert_eq!(self.used[usize::from(buffer)], 1, "a buffer that others read from is not written to");
        // SAFETY: within the allocation, since a chunk is no longer than a buffer. The one reference to this buffer is
        // the chunk's, which is borrowed exclusively, as `self` is; the kernel and the drivers write only to buffers
        // that were given back to them.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(buffer), len) }
    }

    /// One reference more.
    pub(crate) fn retain(&mut self, buffer: BufferId) {
        self.used[usize::from(buffer)] += 1;
    }

    /// One reference less.
    pub(crate) fn release(&mut self, buffer: BufferId) {
        let used = &mut self.used[usize::from(buffer)];
        *used -= 1;
        if *used == 0 {
            self.in_use -= 1;
            self.returned.push(buffer);
        }
    }

    /// Gives up received bytes that nobody wants.
    pub fn discard(&mut self, chunk: Chunk) {
        if let Chunk::Shared { buffer, .. } = chunk {
            self.release(buffer);
        }
    }

    /// A buffer for the driver to take back.
    pub fn take_returned(&mut self) -> Option<BufferId> {
        self.returned.pop()
    }

    /// Whether so many are in use that none should be kept longer than it is handled.
    pub(crate) fn are_short(&self) -> bool {
        usize::from(self.in_use) > self.used.len() / 4 * 3
    }

    /// The number of buffers in use.
    pub fn in_use(&self) -> u16 {
        self.in_use
    }

    /// Whether any buffer has become free.
    pub fn has_returned(&self) -> bool {
        !self.returned.is_empty()
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once. Drivers are dropped before their buffers.
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), self.layout) }
    }
}
