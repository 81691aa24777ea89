//! Receive buffers of streams. A stream has one only while it holds bytes that its transport has not
//! consumed, and one of the pool only if they are many.

use nichrome_rdma::iwarp::Terms;

/// Bytes of a buffer: several of the longest FPDUs, so that a read takes as much as a socket holds.
const BUFFER_LEN: usize = 256 << 10;

/// Maximum number of the pool's buffers that streams hold, 16 MiB in all. Further streams have buffers of
/// their own, which grow with their bytes up to [`OWN_LEN`].
const MAX_LENT: usize = 64;

/// Most bytes of a stream's own buffer, which holds at most [`Terms::LONGEST_FPDU`].
const OWN_LEN: usize = 2 * Terms::LONGEST_FPDU;

/// Maximum number of bytes that are copied from a buffer of the pool to a stream's own buffer at the end of a
/// read, so that streams that are read in turn share one buffer of the pool, which stays in the cache. These
/// bytes are the part of an FPDU that is too short to be placed.
const SHORT_LEN: usize = 8 << 10;

/// Free space below which the bytes of the pool's buffer move to its front: the length of an FPDU.
const MIN_ROOM: usize = 64 << 10;

/// A buffer with the bytes from `start` to `end`.
#[derive(Debug)]
pub(super) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    end: usize,
    /// The buffer belongs to the pool, not to the stream.
    is_lent: bool,
}

impl Buffer {
    /// A stream's own buffer, full of bytes.
    pub(super) fn own(bytes: Vec<u8>) -> Self {
        Self { start: 0, end: bytes.len(), memory: bytes, is_lent: false }
    }

    /// The bytes that are not consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// The space behind the bytes; in a buffer of the pool at least [`MIN_ROOM`], unless the bytes leave
    /// less.
    pub(super) fn room(&mut self) -> &mut [u8] {
        let (free, held) = (self.memory.len() - self.end, self.end - self.start);
        let moves = match self.is_lent {
            true => free < MIN_ROOM && self.start > 0,
            // Moves no more bytes than were consumed.
            false => free == 0 && self.start >= held,
        };
        if moves {
            self.memory.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, held);
        }
        &mut self.memory[self.end..]
    }

    /// Doubles a stream's own buffer if it has no room.
    fn grow(&mut self) {
        if self.room().is_empty() {
            self.memory.resize((2 * self.end).min(OWN_LEN).max(self.end + 1), 0);
        }
    }

    /// Adds the bytes that were written to the front of [`Buffer::room`].
    pub(super) fn add(&mut self, len: usize) {
        self.end = self.memory.len().min(self.end + len);
    }

    /// Adds `bytes`. The buffer grows if they do not fit: an impaired path delivers bytes even while its
    /// stream is not read.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        if self.room().len() < bytes.len() {
            self.memory.resize(2 * (self.end + bytes.len()), 0);
        }
        self.room()[..bytes.len()].copy_from_slice(bytes);
        self.add(bytes.len());
    }

    /// Removes bytes from the front.
    pub(super) fn consume(&mut self, len: usize) {
        self.start = self.end.min(self.start + len);
    }
}

/// Lends buffers.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: Vec<Vec<u8>>,
    lent: usize,
}

impl Pool {
    /// A buffer with the bytes of `held`, and room behind them. A stream's own buffer is replaced as soon as
    /// the pool has one.
    pub(super) fn lend(&mut self, held: &mut Option<Buffer>) -> Buffer {
        let held = held.take();
        match held {
            Some(buffer) if buffer.is_lent => return buffer,
            Some(mut own) if self.lent >= MAX_LENT => {
                own.grow();
                return own;
            }
            _ => {}
        }
        self.lent += 1;
        let memory = self.free.pop().unwrap_or_else(|| vec![0; BUFFER_LEN]);
        let mut buffer = Buffer { memory, start: 0, end: 0, is_lent: true };
        buffer.extend(held.as_ref().map_or(&[], Buffer::bytes));
        buffer
    }

    /// Maximum number of bytes to read into a buffer. Less if the stream cannot keep a buffer of the pool:
    /// then all of them may have to be copied.
    pub(super) fn read_limit(&self, buffer: &Buffer) -> usize {
        match buffer.is_lent && self.lent <= MAX_LENT {
            true => BUFFER_LEN,
            // A read of no bytes would look like the end of the stream.
            false => Terms::LONGEST_FPDU.saturating_sub(buffer.bytes().len()).max(1),
        }
    }

    /// Takes a buffer back after a read; returns the buffer in which the stream holds its remaining bytes, if
    /// any.
    pub(super) fn keep(&mut self, buffer: Buffer) -> Option<Buffer> {
        let len = buffer.bytes().len();
        if len > 0 && (!buffer.is_lent || len > SHORT_LEN && self.lent <= MAX_LENT) {
            return Some(buffer);
        }
        let held = (len > 0).then(|| Buffer::own(buffer.bytes().to_vec()));
        self.take_back(buffer);
        held
    }

    /// Takes back the buffer of a stream that ends.
    pub(super) fn discard(&mut self, held: Option<Buffer>) {
        if let Some(buffer) = held {
            self.take_back(buffer);
        }
    }

    fn take_back(&mut self, buffer: Buffer) {
        if !buffer.is_lent {
            return;
        }
        self.lent -= 1;
        if self.free.len() < MAX_LENT && buffer.memory.len() == BUFFER_LEN {
            self.free.push(buffer.memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_in_order_however_a_buffer_is_filled_and_consumed() {
        let (mut pool, mut held) = (Pool::default(), None);
        let (mut written, mut read) = (0_u32, 0_u32);
        for round in 0..500 {
            let mut buffer = pool.lend(&mut held);
            while (written - read) as usize * 4 < 60_000 {
                buffer.extend(&written.to_be_bytes());
                written += 1;
            }
            for _ in 0..(round * 37) % 15_000 {
                let Some(word) = buffer.bytes().first_chunk() else { break };
                assert_eq!(u32::from_be_bytes(*word), read);
                read += 1;
                buffer.consume(4);
            }
            held = pool.keep(buffer);
        }
        assert!(read > 100_000);
    }

    #[test]
    fn a_stream_without_bytes_holds_no_buffer_and_the_pool_is_bounded() {
        let mut pool = Pool::default();
        let empty = pool.lend(&mut None);
        assert!(pool.keep(empty).is_none());
        let mut streams: Vec<Option<Buffer>> = (0..MAX_LENT + 10)
            .map(|nth| {
                let mut buffer = pool.lend(&mut None);
                buffer.extend(&[nth as u8; SHORT_LEN + 1]);
                pool.keep(buffer)
            })
            .collect();
        let is_lent = |held: &&Option<Buffer>| held.as_ref().is_some_and(|buffer| buffer.is_lent);
        assert_eq!(streams.iter().filter(is_lent).count(), MAX_LENT);
        assert_eq!(pool.lent, MAX_LENT);
        for (nth, held) in streams.iter_mut().enumerate() {
            let buffer = pool.lend(held);
            assert_eq!(buffer.bytes(), [nth as u8; SHORT_LEN + 1]);
            pool.discard(Some(buffer));
        }
        assert_eq!((pool.lent, pool.free.len()), (0, MAX_LENT));
    }

    #[test]
    fn streams_with_few_bytes_are_read_into_the_same_buffer() {
        let mut pool = Pool::default();
        let mut streams: [Option<Buffer>; 3] = Default::default();
        let mut places = std::collections::HashSet::new();
        for (nth, held) in (0..12).zip([0, 1, 2].into_iter().cycle()) {
            let mut buffer = pool.lend(&mut streams[held]);
            assert_eq!(buffer.bytes(), vec![held as u8; nth / 3 * 1000]);
            places.insert(buffer.bytes().as_ptr());
            buffer.extend(&[held as u8; 1000]);
            streams[held] = pool.keep(buffer);
            assert_eq!(pool.lent, 0);
        }
        assert_eq!(places.len(), 1);
    }

    /// Otherwise, if a peer sends an FPDU byte by byte, each byte would be copied once for every byte after
    /// it.
    #[test]
    fn a_read_moves_no_bytes_although_the_pool_has_lent_all_buffers() {
        let mut pool = Pool::default();
        let fill = |pool: &mut Pool, held: &mut Option<Buffer>| {
            let mut buffer = pool.lend(held);
            let limit = pool.read_limit(&buffer);
            assert!(!buffer.room().is_empty() && limit > 0);
            let at = buffer.bytes().as_ptr();
            buffer.room()[0] = buffer.bytes().len() as u8;
            buffer.add(1);
            *held = pool.keep(buffer);
            at
        };
        let mut others: Vec<Option<Buffer>> = (0..MAX_LENT)
            .map(|_| {
                let mut buffer = pool.lend(&mut None);
                buffer.extend(&[0; SHORT_LEN + 1]);
                pool.keep(buffer)
            })
            .collect();
        let mut held = None;
        fill(&mut pool, &mut held);
        let mut moves = 0;
        for _ in 1..Terms::LONGEST_FPDU {
            let Some(before) = &held else { panic!() };
            let before = before.bytes().as_ptr();
            moves += usize::from(fill(&mut pool, &mut held) != before);
        }
        let Some(buffer) = &held else { panic!() };
        assert!(buffer.memory.len() <= OWN_LEN && moves < 20, "{moves}");
        assert!(buffer.bytes().iter().enumerate().all(|(nth, byte)| *byte == nth as u8));
        // One of the others is done.
        let mut done = pool.lend(&mut others[0]);
        done.consume(SHORT_LEN + 1);
        assert!(pool.keep(done).is_none());
        let buffer = pool.lend(&mut held);
        assert_eq!((buffer.is_lent, buffer.bytes().len(), pool.lent), (true, Terms::LONGEST_FPDU, MAX_LENT));
    }
}
