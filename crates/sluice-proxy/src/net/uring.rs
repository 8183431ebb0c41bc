//! The io_uring driver: multishot accept and receive into a ring of provided buffers, sends batched into the one
//! system call of a turn, completions run when this thread asks for them.
//!
//! Needs Linux 6.1 or later (`IORING_SETUP_DEFER_TASKRUN`, multishot receive).

#![allow(unsafe_code, reason = "the kernel is handed memory by address; each block says who keeps it")]

use std::{
    alloc::Layout,
    io::{self, IoSlice},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

use io_uring::{
    IoUring, cqueue, opcode, squeue,
    types::{BufRingEntry, Fd, SubmitArgs, Timespec},
};

use sluice_net::{BufferId, Buffers, Driver, Event, Flight, LinkId};

use super::{BUFFER_BYTES, BUFFERS, System, accepted, sockets::Socket};

/// Submissions a turn may hold before they are handed over early.
const SUBMISSIONS: u32 = 1024;

/// Completions the kernel can hold; more than that it keeps aside.
const COMPLETIONS: u32 = 8192;

/// The waits between attempts to make a ring where the kernel has no memory for it: rings that were closed give theirs back
/// a little later.
const MEMORY_WAITS: [Duration; 3] = [Duration::from_millis(20), Duration::from_millis(200), Duration::from_secs(1)];

/// The group of the provided buffers.
const GROUP: u16 = 0;

/// Sends up to this size nearly always complete while they are handed over, where none is under way from before. So a
/// turn waits for one completion more than its sends, which spares a turn that would find nothing but those.
const SEND_AT_ONCE_BYTES: usize = 32 << 10;

/// Time that a turn may wait for more than one completion: the delay that a socket which is full, against that
/// expectation, can cost the others, once.
const SEND_WAIT: Duration = Duration::from_millis(10);

/// The operation that a completion belongs to: the upper half of its user data.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Operation {
    Receive = 1,
    Send,
    Connect,
    Accept,
    Mailbox,
    Cancel,
}

impl Operation {
    fn data(self, link: LinkId) -> u64 {
        (self as u64) << 32 | u64::from(link)
    }

    fn of(data: u64) -> (Option<Self>, LinkId) {
        let operation = match data >> 32 {
            1 => Some(Self::Receive),
            2 => Some(Self::Send),
            3 => Some(Self::Connect),
            4 => Some(Self::Accept),
            5 => Some(Self::Mailbox),
            _ => None,
        };
        (operation, data as LinkId)
    }
}

/// The io_uring driver.
pub(crate) struct Uring {
    ring: IoUring,
    buffer_ring: BufferRing,
    /// `None` where nobody is accepted any more.
    listeners: Vec<Option<OwnedFd>>,
    mailbox: Option<OwnedFd>,
    /// The buffer that the mailbox's counter is read to.
    mailbox_count: Box<[u8; 8]>,
    /// The headers of sends with several pieces, by connection; kept until the send has completed.
    headers: Vec<Option<Box<Header>>>,
    /// The completions of a turn; empty between turns.
    completions: Vec<cqueue::Entry>,
    /// Sends to hand over in this turn.
    sends: Sends,
    /// Sends that have not completed.
    flying: usize,
    /// Listeners whose accept ended and has to be asked for again.
    accept_again: Vec<u32>,
    /// Whether nobody is to be accepted for now.
    is_paused: bool,
    /// Whether nobody is to be accepted any more.
    has_closed: bool,
}

/// The sends of a turn.
#[derive(Debug, Default)]
struct Sends {
    count: usize,
    largest: usize,
}

/// A message header with what it points to.
struct Header {
    message: libc::msghdr,
    vectors: Vec<libc::iovec>,
}

/// The ring through which buffers are provided (`io_uring_register_buf_ring(2)`).
struct BufferRing {
    entries: NonNull<BufRingEntry>,
    layout: Layout,
    tail: u16,
}

impl BufferRing {
    fn new() -> Self {
        let layout = Layout::from_size_align(usize::from(BUFFERS) * size_of::<BufRingEntry>(), 4096)
            .expect("the size is a constant");
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(entries) = NonNull::new(memory.cast()) else { std::alloc::handle_alloc_error(layout) };
        Self { entries, layout, tail: 0 }
    }

    fn provide(&mut self, buffer: BufferId, address: *mut u8) {
        let place = usize::from(self.tail & (BUFFERS - 1));
        // SAFETY: `place` is below the number of entries; the kernel does not read an entry before the tail passes it.
        let entry = unsafe { &mut *self.entries.as_ptr().add(place) };
        entry.set_addr(address as u64);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Lets the kernel see what was provided.
    fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry of the ring, is aligned as a u16, and is only read by the kernel.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout. The ring is dropped before, as its field comes first in `Uring`.
        unsafe { std::alloc::dealloc(self.entries.as_ptr().cast(), self.layout) }
    }
}

impl Uring {
    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what the entry points to lives until its completion: buffers and flights in `Net`, headers and the
        // mailbox's counter here.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            if let Err(error) = self.ring.submit() {
                // Only a kernel out of memory says this of a full queue; the entry is tried again.
                tracing::warn!("io_uring: handing over submissions failed: {error}");
            }
        }
    }

    fn receive(&mut self, link: LinkId, fd: Fd) {
        let entry = opcode::RecvMulti::new(fd, GROUP).build().user_data(Operation::Receive.data(link));
        self.push(&entry);
    }

    fn accept_on(&mut self, index: u32) {
        let Some(Some(listener)) = self.listeners.get(index as usize) else { return };
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let entry = opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).flags(flags).build();
        self.push(&entry.user_data(Operation::Accept.data(index)));
    }

    /// Ends the accepts that are under way.
    fn cancel_accepts(&mut self) {
        for index in 0..self.listeners.len() as u32 {
            if self.listeners[index as usize].is_some() && !self.accept_again.contains(&index) {
                let entry = opcode::AsyncCancel::new(Operation::Accept.data(index)).build();
                self.push(&entry.user_data(Operation::Cancel.data(0)));
            }
        }
    }

    /// Its last accept is over.
    fn close_listener(&mut self, index: u32) {
        if let Some(listener) = self.listeners.get_mut(index as usize) {
            *listener = None;
        }
    }

    fn read_mailbox(&mut self) {
        let Some(mailbox) = &self.mailbox else { return };
        let entry = opcode::Read::new(Fd(mailbox.as_raw_fd()), self.mailbox_count.as_mut_ptr(), 8).build();
        self.push(&entry.user_data(Operation::Mailbox.data(0)));
    }

    fn header(&mut self, link: LinkId, slices: &[IoSlice<'_>]) -> *const libc::msghdr {
        let place = link as usize;
        if self.headers.len() <= place {
            self.headers.resize_with(place + 1, || None);
        }
        let vectors = slices
            .iter()
            .map(|slice| libc::iovec { iov_base: slice.as_ptr().cast_mut().cast(), iov_len: slice.len() })
            .collect();
        // SAFETY: all zeroes is a valid, empty message header.
        let message = unsafe { std::mem::zeroed::<libc::msghdr>() };
        let header = self.headers[place].insert(Box::new(Header { message, vectors }));
        header.message.msg_iov = header.vectors.as_mut_ptr();
        header.message.msg_iovlen = header.vectors.len() as _;
        &raw const header.message
    }

    /// Hands over what there is, and looks for `want` completions without sleeping.
    fn spin(&mut self, want: usize, time: Duration) -> io::Result<()> {
        self.enter()?;
        let start = Instant::now();
        while self.ring.completion().len() < want && start.elapsed() < time {
            // The kernel says in shared memory that it has something to complete.
            if self.ring.submission().taskrun() {
                self.enter()?;
            }
            // The kernel likes to wake a peer on the processor of who wrote to it: let it run.
            std::thread::yield_now();
        }
        Ok(())
    }

    fn enter(&self) -> io::Result<()> {
        match self.ring.submit() {
            Ok(_) => Ok(()),
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn completion(&mut self, entry: &cqueue::Entry, buffers: &mut Buffers, out: &mut Vec<Event<Socket>>) {
        let (operation, link) = Operation::of(entry.user_data());
        let result = match entry.result() {
            error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            value => Ok(value as u32),
        };
        match operation {
            Some(Operation::Receive) => self.received(link, result, entry.flags(), buffers, out),
            Some(Operation::Send) => {
                if let Some(header) = self.headers.get_mut(link as usize) {
                    *header = None;
                }
                self.flying -= 1;
                out.push(Event::Sent(link, result.map(|sent| sent as usize)));
            }
            Some(Operation::Connect) => out.push(Event::Connected(link)),
            Some(Operation::Accept) => {
                match result {
                    // SAFETY: the kernel has just made this descriptor for us.
                    Ok(fd) => out.push(accepted::taken(unsafe { OwnedFd::from_raw_fd(fd as i32) })),
                    Err(error) => out.extend(accepted::failed(error)),
                }
                match cqueue::more(entry.flags()) {
                    true => {}
                    false if self.has_closed => self.close_listener(link),
                    false => self.accept_again.push(link),
                }
            }
            Some(Operation::Mailbox) => {
                out.push(Event::Mail);
                self.read_mailbox();
            }
            Some(Operation::Cancel) | None => {}
        }
    }

    fn received(
        &mut self,
        link: LinkId,
        result: io::Result<u32>,
        flags: u32,
        buffers: &mut Buffers,
        out: &mut Vec<Event<Socket>>,
    ) {
        let more = cqueue::more(flags);
        match (result, cqueue::buffer_select(flags)) {
            (Ok(len), Some(buffer)) if len > 0 => {
                out.push(Event::Received(link, buffers.filled(buffer, len)));
                if !more {
                    // It ended with bytes in hand: whoever wants more asks again.
                    out.push(Event::Stopped(link));
                }
            }
            (Ok(_), buffer) => {
                if let Some(buffer) = buffer {
                    let chunk = buffers.filled(buffer, 0);
                    buffers.discard(chunk);
                }
                out.push(Event::Ended(link, None));
            }
            (Err(error), _) => match error.raw_os_error() {
                Some(libc::ENOBUFS | libc::ECANCELED | libc::EINTR) => out.push(Event::Stopped(link)),
                _ => out.push(Event::Ended(link, Some(error))),
            },
        }
    }
}

impl Uring {
    fn set_up() -> io::Result<(Self, Buffers)> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)?;
        let mut buffer_ring = BufferRing::new();
        let buffers = Buffers::new(BUFFERS, BUFFER_BYTES);
        // SAFETY: the entries live as long as the ring, see `BufferRing::drop`.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(buffer_ring.entries.as_ptr() as u64, BUFFERS, GROUP, 0)?;
        }
        for buffer in 0..BUFFERS {
            buffer_ring.provide(buffer, buffers.pointer(buffer));
        }
        buffer_ring.publish();
        let driver = Self {
            ring,
            buffer_ring,
            listeners: Vec::new(),
            mailbox: None,
            mailbox_count: Box::new([0; 8]),
            headers: Vec::new(),
            completions: Vec::new(),
            sends: Sends::default(),
            flying: 0,
            accept_again: Vec::new(),
            is_paused: false,
            has_closed: false,
        };
        Ok((driver, buffers))
    }
}

/// Whether a call has only said that its time is up, or that it should be made again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN))
}

impl System for Uring {
    const NAME: &'static str = "io_uring";

    fn new() -> io::Result<(Self, Buffers)> {
        let mut waits = MEMORY_WAITS.iter();
        loop {
            match Self::set_up() {
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                    thread::sleep(*waits.next().ok_or(error)?);
                }
                done => return done,
            }
        }
    }

    fn accept(&mut self, listener: OwnedFd) -> io::Result<()> {
        self.listeners.push(Some(listener));
        self.accept_on(self.listeners.len() as u32 - 1);
        Ok(())
    }

    fn watch_mailbox(&mut self, mailbox: OwnedFd) -> io::Result<()> {
        self.mailbox = Some(mailbox);
        self.read_mailbox();
        Ok(())
    }
}

impl Driver for Uring {
    type Socket = Socket;

    fn stop_accepting(&mut self) {
        self.has_closed = true;
        // The kernel has nothing to do with these now; the others are closed with the last word on their accepts.
        for index in std::mem::take(&mut self.accept_again) {
            self.close_listener(index);
        }
        self.cancel_accepts();
    }

    fn pause_accepting(&mut self) {
        self.is_paused = true;
        self.cancel_accepts();
    }

    fn resume_accepting(&mut self) {
        self.is_paused = false;
    }

    fn await_connect(&mut self, link: LinkId, socket: &Socket) {
        let entry = opcode::PollAdd::new(Fd(socket.0.as_raw_fd()), libc::POLLOUT as u32).build();
        self.push(&entry.user_data(Operation::Connect.data(link)));
    }

    fn start_reading(&mut self, link: LinkId, socket: &Socket) {
        self.receive(link, Fd(socket.0.as_raw_fd()));
    }

    fn stop_reading(&mut self, link: LinkId, _socket: &Socket) {
        let entry = opcode::AsyncCancel::new(Operation::Receive.data(link)).build();
        self.push(&entry.user_data(Operation::Cancel.data(0)));
    }

    fn forget(&mut self, _link: LinkId) {}

    fn send(
        &mut self,
        link: LinkId,
        socket: &Socket,
        flight: &mut Flight,
        buffers: &Buffers,
    ) -> Option<io::Result<usize>> {
        let fd = Fd(socket.0.as_raw_fd());
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = match flight.single(buffers) {
            Some(bytes) => opcode::Send::new(fd, bytes.as_ptr(), bytes.len() as u32).flags(flags).build(),
            None => {
                let header = self.header(link, &flight.slices(buffers));
                opcode::SendMsg::new(fd, header).flags(flags as u32).build()
            }
        };
        self.push(&entry.user_data(Operation::Send.data(link)));
        self.sends.count += 1;
        self.sends.largest = self.sends.largest.max(flight.left());
        self.flying += 1;
        None
    }

    fn wait(
        &mut self,
        timeout: Duration,
        spin: Duration,
        buffers: &mut Buffers,
        out: &mut Vec<Event<Socket>>,
    ) -> io::Result<()> {
        if buffers.has_returned() {
            while let Some(buffer) = buffers.take_returned() {
                self.buffer_ring.provide(buffer, buffers.pointer(buffer));
            }
            self.buffer_ring.publish();
        }
        if !self.is_paused {
            for index in std::mem::take(&mut self.accept_again) {
                self.accept_on(index);
            }
        }
        let sends = std::mem::take(&mut self.sends);
        let at_once = sends.count > 0 && sends.count == self.flying && sends.largest <= SEND_AT_ONCE_BYTES;
        let (want, timeout) = if at_once { (sends.count + 1, timeout.min(SEND_WAIT)) } else { (1, timeout) };
        if !spin.is_zero() && !timeout.is_zero() {
            self.spin(want, spin)?;
        }
        let timespec = Timespec::from(timeout);
        let args = SubmitArgs::new().timespec(&timespec);
        if self.ring.completion().len() < want {
            match self.ring.submitter().submit_with_args(want, &args) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let mut completions = std::mem::take(&mut self.completions);
        completions.extend(self.ring.completion());
        for entry in completions.drain(..) {
            self.completion(&entry, buffers, out);
        }
        self.completions = completions;
        Ok(())
    }
}
