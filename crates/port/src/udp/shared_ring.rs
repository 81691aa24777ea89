//! A single-producer, single-consumer ring of messages in memory that two processes share.
//!
//! Neither side trusts the memory. Each keeps its own position in private memory, and checks the other's
//! position and each message length against the ring's bounds before using them. The reader copies a message
//! before it is parsed. The memory is sealed against shrinking (F_SEAL_SHRINK), so no access can fault.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::{self, Errno};

use crate::descriptor::Descriptor;
use crate::mapping::Mapping;

use super::ring_positions::RingPositions;
use super::socket::MAX_SEGMENTS;

/// Capacity for messages, in bytes.
const CAPACITY: u64 = 1 << 20;

/// Bytes before the messages, which hold the positions.
const MESSAGES_AT: usize = 4096;

/// Size of the shared memory, in bytes.
const SIZE: u64 = MESSAGES_AT as u64 + CAPACITY;

/// Alignment of messages, in bytes: one cache line.
const ALIGNMENT: u64 = 64;

/// Maximum length of a message, in bytes.
pub(crate) const MAX_MESSAGE: usize = 65_536;

/// Maximum number of datagrams in a message, as for a socket with UDP_SEGMENT. Bounds the work that a hostile
/// writer causes with one message.
const MAX_DATAGRAMS: usize = MAX_SEGMENTS;

const HEADER_LEN: u64 = size_of::<Header>() as u64;

/// Length field of a header that marks a wrap: the next message is at the start of the ring.
const WRAP: u32 = u32::MAX;

/// The other side stored an invalid position or length. The ring is not used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt;

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Header {
    /// Length of the message, in bytes.
    len: u32,
    /// Length of each of its datagrams, in bytes; the last may be shorter.
    segment_size: u32,
    /// The traffic class.
    class: u32,
    padding: u32,
}

/// A received message: its length and that of each of its datagrams, in bytes, and its traffic class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) len: usize,
    pub(crate) segment_size: usize,
    pub(crate) class: u8,
}

/// The memory of a ring.
#[derive(Debug)]
struct Memory(Mapping);

impl Memory {
    #[allow(unsafe_code)]
    #[inline]
    fn positions(&self) -> &RingPositions {
        // SAFETY: the mapping is page-aligned and longer than the structure, whose fields are atomic: any
        // bytes are valid, and other processes may change them at any time.
        unsafe { self.0.start().cast().as_ref() }
    }

    /// Copies `bytes` to `position`. The range must not cross the end of the ring.
    #[allow(unsafe_code)]
    #[inline]
    fn write(&self, position: u64, bytes: &[u8]) {
        let at = (position % CAPACITY) as usize;
        assert!(at + bytes.len() <= CAPACITY as usize);
        // SAFETY: the range is within the mapping. It is accessed by raw pointers only, and this process does
        // not read it. A concurrent reader may copy a mixture of old and new bytes, which it does not trust.
        unsafe {
            let to = self.0.start().as_ptr().add(MESSAGES_AT + at);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Copies the bytes at `position`. The range must not cross the end of the ring.
    #[allow(unsafe_code)]
    #[inline]
    fn read(&self, position: u64, bytes: &mut [u8]) {
        let at = (position % CAPACITY) as usize;
        assert!(at + bytes.len() <= CAPACITY as usize);
        // SAFETY: as for `write`. A concurrent writer may cause a mixture of old and new bytes to be copied.
        unsafe {
            let from = self.0.start().as_ptr().add(MESSAGES_AT + at);
            ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
    }
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER_LEN as usize] {
        let words = [self.len, self.segment_size, self.class, self.padding];
        let mut bytes = [0; HEADER_LEN as usize];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn of(bytes: [u8; HEADER_LEN as usize]) -> Self {
        let word = |nth: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[4 * nth + byte]));
        Self { len: word(0), segment_size: word(1), class: word(2), padding: word(3) }
    }
}

/// Returns the bytes that a message of `len` bytes occupies in the ring, with its header and padding.
const fn room_of(len: usize) -> u64 {
    (HEADER_LEN + len as u64).next_multiple_of(ALIGNMENT)
}

/// The producer.
#[derive(Debug)]
pub(crate) struct RingWriter {
    memory: Memory,
    descriptor: Descriptor,
    tail: u64,
    /// The reader's position when it was last loaded.
    head: u64,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Push {
    /// The message is in the ring. `wakes` is true if the caller must wake the reader.
    Done { wakes: bool },
    /// The ring has no room for the message.
    Full,
}

impl RingWriter {
    /// Creates an empty ring.
    ///
    /// # Errors
    /// No memory or descriptor is left.
    pub(crate) fn create() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = Descriptor::from(memfd_create(c"nichrome-ring", flags)?);
        ftruncate(&descriptor, SIZE)?;
        fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let memory = Memory(Mapping::of(descriptor.as_fd(), 0, SIZE as usize)?);
        Ok(Self { memory, descriptor, tail: 0, head: 0 })
    }

    /// Returns the descriptor of the memory, to be passed to the reader.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Publishes an invalid end of messages.
    #[cfg(test)]
    pub(crate) fn corrupt(&mut self, tail: u64) {
        self.memory.positions().publish(tail);
    }

    /// Returns the reader's position, which advances as the reader reads.
    pub(crate) fn head(&self) -> u64 {
        self.memory.positions().head()
    }

    /// Writes a message of up to [`MAX_MESSAGE`] bytes.
    ///
    /// # Errors
    /// The reader's position is invalid.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8], segment_size: usize, class: u8) -> Result<Push, Corrupt> {
        assert!(bytes.len() <= MAX_MESSAGE);
        debug_assert!(bytes.len().div_ceil(segment_size) <= MAX_DATAGRAMS);
        let room = room_of(bytes.len());
        let to_end = CAPACITY - self.tail % CAPACITY;
        let skipped = if room > to_end { to_end } else { 0 };
        if self.tail + skipped + room > self.head + CAPACITY {
            let head = self.head();
            if head < self.head || head > self.tail {
                return Err(Corrupt);
            }
            self.head = head;
            if self.tail + skipped + room > head + CAPACITY {
                return Ok(Push::Full);
            }
        }
        if skipped > 0 {
            let wrap = Header { len: WRAP, segment_size: 0, class: 0, padding: 0 };
            self.memory.write(self.tail, &wrap.to_bytes());
            self.tail += skipped;
        }
        let header = Header {
            len: bytes.len() as u32,
            segment_size: segment_size as u32,
            class: class.into(),
            padding: 0,
        };
        self.memory.write(self.tail, &header.to_bytes());
        self.memory.write(self.tail + HEADER_LEN, bytes);
        self.tail += room;
        Ok(Push::Done { wakes: self.memory.positions().publish(self.tail) })
    }
}

/// The consumer.
#[derive(Debug)]
pub(crate) struct RingReader {
    memory: Memory,
    head: u64,
}

impl RingReader {
    /// Maps a ring that another process has created.
    ///
    /// # Errors
    /// EINVAL: the descriptor's memory has another size, or is not sealed.
    pub(crate) fn open(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        if !fcntl_get_seals(descriptor)?.contains(SealFlags::SHRINK)
            || u64::try_from(fstat(descriptor)?.st_size) != Ok(SIZE)
        {
            return Err(Errno::INVAL);
        }
        Ok(Self { memory: Memory(Mapping::of(descriptor, 0, SIZE as usize)?), head: 0 })
    }

    /// Copies the next message to the start of `buffer`. Returns `None` if the ring is empty.
    ///
    /// # Errors
    /// A position or length in the memory is invalid.
    #[inline]
    pub(crate) fn pop(&mut self, buffer: &mut [u8; MAX_MESSAGE]) -> Result<Option<Message>, Corrupt> {
        let tail = self.memory.positions().tail();
        loop {
            let waiting = tail.wrapping_sub(self.head);
            if waiting == 0 {
                return Ok(None);
            }
            if waiting > CAPACITY || !waiting.is_multiple_of(ALIGNMENT) {
                return Err(Corrupt);
            }
            let mut bytes = [0; HEADER_LEN as usize];
            self.memory.read(self.head, &mut bytes);
            let Header { len, segment_size, class, .. } = Header::of(bytes);
            let to_end = CAPACITY - self.head % CAPACITY;
            if len == WRAP {
                if to_end > waiting {
                    return Err(Corrupt);
                }
                self.advance(to_end);
                continue;
            }
            let (len, segment_size) = (len as usize, segment_size as usize);
            let room = room_of(len);
            if !(1..=MAX_MESSAGE).contains(&len)
                || room > waiting.min(to_end)
                || segment_size == 0
                || len.div_ceil(segment_size) > MAX_DATAGRAMS
            {
                return Err(Corrupt);
            }
            self.memory.read(self.head + HEADER_LEN, &mut buffer[..len]);
            self.advance(room);
            return Ok(Some(Message { len, segment_size, class: class as u8 }));
        }
    }

    #[inline]
    fn advance(&mut self, len: u64) {
        self.head += len;
        self.memory.positions().free(self.head);
    }

    /// Requests a wake-up at the next message. The caller has cleared the last wake-up, and polls the ring
    /// once more afterwards.
    pub(crate) fn request_wake_up(&self) {
        self.memory.positions().request_wake_up();
    }

    /// Returns true if the ring has a message.
    #[inline]
    pub(crate) fn has_message(&self) -> bool {
        self.memory.positions().tail() != self.head
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn pair() -> (RingWriter, RingReader) {
        let writer = RingWriter::create().unwrap();
        let reader = RingReader::open(writer.descriptor()).unwrap();
        (writer, reader)
    }

    fn message(seed: usize, len: usize) -> Vec<u8> {
        (0..len).map(|at| (seed * 31 + at) as u8).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 32 }))]
        #[test]
        fn what_is_read_is_what_was_written_in_order(
            steps in prop::collection::vec((any::<bool>(), 1..=MAX_MESSAGE), 1..200)
        ) {
            let ((mut writer, mut reader), mut buffer) = (pair(), Box::new([0; MAX_MESSAGE]));
            let mut written = VecDeque::new();
            for (nth, (writes, len)) in steps.into_iter().enumerate() {
                if writes {
                    let bytes = message(nth, len);
                    match writer.push(&bytes, 1024 + nth, nth as u8).unwrap() {
                        Push::Done { .. } => written.push_back((nth, bytes)),
                        // There is room for ten of the longest.
                        Push::Full => prop_assert!(written.len() >= 10),
                    }
                } else {
                    let read = reader.pop(&mut buffer).unwrap();
                    let expected = written.pop_front();
                    prop_assert_eq!(read.is_some(), expected.is_some());
                    if let (Some(read), Some((nth, bytes))) = (read, expected) {
                        let message = Message { len: bytes.len(), segment_size: 1024 + nth, class: nth as u8 };
                        prop_assert_eq!(read, message);
                        prop_assert!(buffer[..read.len] == bytes[..]);
                    }
                }
            }
        }

        #[test]
        fn no_bytes_of_a_hostile_writer_make_the_reader_panic_or_read_beyond_the_ring(
            tail in prop_oneof![any::<u64>(), (0..2 * CAPACITY / ALIGNMENT).prop_map(|lines| lines * ALIGNMENT)],
            words in prop::collection::vec(prop_oneof![Just(WRAP), 0_u32..80_000, any::<u32>()], 4..64),
        ) {
            let ((writer, mut reader), mut buffer) = (pair(), Box::new([0; MAX_MESSAGE]));
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            for line in 0..64 {
                writer.memory.write(line * ALIGNMENT, &bytes[..bytes.len().min(64)]);
            }
            writer.memory.positions().publish(tail);
            for _ in 0..CAPACITY / ALIGNMENT {
                if reader.pop(&mut buffer) != Ok(None) { continue }
                prop_assert!(reader.head <= tail);
                break;
            }
        }
    }

    #[test]
    fn a_position_that_the_reader_cannot_have_is_found() {
        for head in [u64::MAX, CAPACITY] {
            let (mut writer, reader) = pair();
            let message = message(0, MAX_MESSAGE);
            while writer.push(&message, 1024, 0) != Ok(Push::Full) {}
            reader.memory.positions().free(head);
            assert_eq!(writer.push(&message, 1024, 0), Err(Corrupt));
        }
    }

    #[test]
    fn a_message_of_more_datagrams_than_a_socket_takes_is_none() {
        let mut buffer = Box::new([0; MAX_MESSAGE]);
        for (len, is_message) in [(MAX_DATAGRAMS, true), (MAX_DATAGRAMS + 1, false)] {
            let (writer, mut reader) = pair();
            let header = Header { len: len as u32, segment_size: 1, class: 0, padding: 0 };
            writer.memory.write(0, &header.to_bytes());
            writer.memory.positions().publish(room_of(len));
            assert_eq!(reader.pop(&mut buffer).is_ok(), is_message);
        }
    }

    #[test]
    fn the_reader_is_woken_once_until_it_rests() {
        let ((mut writer, reader), mut wakes) = (pair(), vec![]);
        for rests in [false, true, false] {
            if rests {
                reader.request_wake_up();
            }
            wakes.push(writer.push(&[1], 1, 0));
        }
        let done = |wakes| Ok(Push::Done { wakes });
        assert_eq!(wakes, [done(true), done(true), done(false)]);
    }

    #[test]
    fn memory_that_can_shrink_or_has_another_size_is_no_ring() {
        let open = |size, seals| {
            let descriptor = memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&descriptor, size).unwrap();
            fcntl_add_seals(&descriptor, seals).unwrap();
            RingReader::open(descriptor.as_fd()).err()
        };
        assert_eq!(open(SIZE, SealFlags::SHRINK), None);
        assert_eq!(open(SIZE, SealFlags::GROW), Some(Errno::INVAL));
        assert_eq!(open(SIZE - 1, SealFlags::SHRINK), Some(Errno::INVAL));
    }
}
