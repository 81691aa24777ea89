//! Receive buffers of streams. A stream has one only while it holds bytes that its transport has not consumed.

use std::mem;

use nichrome_rdma::iwarp::Terms;

/// Bytes of a buffer: several of the longest FPDUs, so that a read takes as much as a socket holds.
const BUFFER_LEN: usize = 256 << 10;

/// Buffers that streams hold at most, 16 MiB in all. Bytes of further streams are copied to memory of their size, at most
/// [`Terms::LONGEST_FPDU`] each.
const MAX_LENT: usize = 64;

/// Free space below which a buffer's bytes move to its front: an FPDU's.
const MIN_ROOM: usize = 64 << 10;

/// A buffer with the bytes from `start` to `end`.
#[derive(Debug)]
pub(super) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// The bytes that are not consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// The space behind the bytes, at least [`MIN_ROOM`] unless the bytes take more than the rest.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.memory.len() - self.end < MIN_ROOM && self.start > 0 {
            self.memory.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.memory[self.end..]
    }

    /// Adds the bytes that were written to the front of [`Buffer::room`].
    pub(super) fn add(&mut self, len: usize) {
        self.end = self.memory.len().min(self.end + len);
    }

    /// Adds `bytes`. The buffer grows if they do not fit: an impaired path delivers bytes even while its stream is not read.
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

/// Received bytes of a stream that its transport has not consumed.
#[derive(Debug, Default)]
pub(super) enum Unconsumed {
    #[default]
    Nothing,
    Buffer(Buffer),
    /// A copy, where the pool has lent all its buffers.
    Copy(Box<[u8]>),
}

impl Unconsumed {
    pub(super) const fn is_empty(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

/// Lends buffers.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: Vec<Vec<u8>>,
    lent: usize,
}

impl Pool {
    /// A buffer with the bytes of `held`.
    pub(super) fn lend(&mut self, held: &mut Unconsumed) -> Buffer {
        let copy = match mem::take(held) {
            Unconsumed::Buffer(buffer) => return buffer,
            Unconsumed::Copy(bytes) => bytes,
            Unconsumed::Nothing => Box::default(),
        };
        self.lent += 1;
        let memory = self.free.pop().unwrap_or_else(|| vec![0; BUFFER_LEN]);
        let mut buffer = Buffer { memory, start: 0, end: 0 };
        buffer.extend(&copy);
        buffer
    }

    /// Bytes to read into a lent buffer at most. If the stream cannot keep it, all of them may have to be copied.
    pub(super) fn read_limit(&self, buffer: &Buffer) -> usize {
        match self.lent <= MAX_LENT {
            true => BUFFER_LEN,
            // A read of no bytes would look like the end of the stream.
            false => Terms::LONGEST_FPDU.saturating_sub(buffer.bytes().len()).max(1),
        }
    }

    /// Takes a buffer back; returns what the stream holds.
    pub(super) fn keep(&mut self, buffer: Buffer) -> Unconsumed {
        if !buffer.bytes().is_empty() && self.lent <= MAX_LENT {
            return Unconsumed::Buffer(buffer);
        }
        let held = if buffer.bytes().is_empty() {
            Unconsumed::Nothing
        } else {
            Unconsumed::Copy(buffer.bytes().into())
        };
        self.take_back(buffer);
        held
    }

    /// Takes back the buffer of a stream that ends.
    pub(super) fn discard(&mut self, held: Unconsumed) {
        if let Unconsumed::Buffer(buffer) = held {
            self.take_back(buffer);
        }
    }

    fn take_back(&mut self, buffer: Buffer) {
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
        let (mut pool, mut held) = (Pool::default(), Unconsumed::default());
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
        let empty = pool.lend(&mut Unconsumed::Nothing);
        assert!(pool.keep(empty).is_empty());
        let mut streams: Vec<Unconsumed> = (0..MAX_LENT + 10)
            .map(|nth| {
                let mut buffer = pool.lend(&mut Unconsumed::Nothing);
                buffer.extend(&[nth as u8; 100]);
                pool.keep(buffer)
            })
            .collect();
        assert_eq!(streams.iter().filter(|held| matches!(held, Unconsumed::Buffer(_))).count(), MAX_LENT);
        assert_eq!(pool.lent, MAX_LENT);
        for (nth, held) in streams.iter_mut().enumerate() {
            let buffer = pool.lend(held);
            assert_eq!(buffer.bytes(), [nth as u8; 100]);
            pool.discard(Unconsumed::Buffer(buffer));
        }
        assert_eq!((pool.lent, pool.free.len()), (0, MAX_LENT));
    }
}
