//! A capture file that keeps its content even if the process is killed by SIGKILL: no bytes wait in a buffer of the
//! process.
//!
//! Large writes use pwrite(2). A run of small writes is copied to a shared mapping of the file, which needs no system
//! call; each new page costs a page fault, so large writes do not use the mapping.
//!
//! The file is a valid capture at any time. While a window of the file is mapped, the space behind the last block is a
//! block of a type that readers skip. A new block's content is copied into that space first and its header is stored
//! last: a process killed in between leaves a valid file whose final, skipped block has a wrong end. Closing truncates
//! the file behind the last block.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::atomic::{Ordering, compiler_fence};

use rustix::fs::{FallocateFlags, fallocate};

use crate::mapping::Mapping;

/// Size of the mapped window, in bytes.
const WINDOW: u64 = 256 * 1024;

/// Alignment of windows: the largest page size of the supported processors.
const ALIGNMENT: u64 = 64 * 1024;

/// Writes of at least this many bytes use a system call.
const LARGE: usize = 16 * 1024;

/// Consecutive small writes before a window is mapped.
const SMALL_IN_A_ROW: u32 = 32;

/// Block type of the unused space: in the range for local use (draft-ietf-opsawg-pcapng, section 11.1).
const FREE: u32 = 0x8000_4652;

/// Length of the shortest block, in bytes.
const SMALLEST: u64 = 12;

/// A capture file under construction.
pub(super) struct DurableFile {
    file: File,
    window: Option<Window>,
    /// Offset of the end of the last block.
    end: u64,
    /// Small pieces since the last large one.
    small_pieces: u32,
}

impl DurableFile {
    /// Writes to an empty file, opened for reading and writing.
    pub(super) fn new(file: File) -> Self {
        Self { file, window: None, end: 0, small_pieces: 0 }
    }

    /// Returns the window, moved if necessary, if `len` bytes and a filler block fit. Returns `None` while writes are
    /// large, or if the file cannot be mapped.
    fn window_for(&mut self, len: u64) -> Option<&mut Window> {
        let has_room = |window: &Window| self.end + len + SMALLEST <= window.end();
        if !self.window.as_ref().is_some_and(has_room) {
            if self.small_pieces < SMALL_IN_A_ROW {
                return None;
            }
            self.window = Window::map(&self.file, self.end).ok();
            match &mut self.window {
                Some(window) => window.free_rest(self.end),
                // Retries after another `SMALL_IN_A_ROW` writes.
                None => self.small_pieces = 0,
            }
        }
        self.window.as_mut()
    }

    /// Unmaps the window and truncates the file behind the last block.
    fn leave_window(&mut self) -> io::Result<()> {
        if self.window.take().is_some() {
            self.file.set_len(self.end)?;
        }
        Ok(())
    }

    fn write_directly(&mut self, blocks: &[u8]) -> io::Result<()> {
        self.leave_window()?;
        self.file.write_all_at(blocks, self.end).inspect_err(|_| {
            // On failure, readers report a truncated last block.
            let _ = self.file.set_len(self.end);
        })
    }
}

impl Write for DurableFile {
    /// Adds whole blocks, all or none of them.
    fn write(&mut self, blocks: &[u8]) -> io::Result<usize> {
        let Some((first, rest)) = blocks.split_first_chunk::<8>() else { return Ok(0) };
        let (at, end) = (self.end, self.end + blocks.len() as u64);
        self.small_pieces = if blocks.len() < LARGE { self.small_pieces.saturating_add(1) } else { 0 };
        let is_small = self.small_pieces > 0;
        match self.window_for(blocks.len() as u64).filter(|_| is_small) {
            Some(window) => {
                window.put(at + 8, rest);
                window.free_rest(end);
                window.put_header(at, *first);
            }
            None => self.write_directly(blocks)?,
        }
        self.end = end;
        Ok(blocks.len())
    }

    /// Does nothing: written bytes are in the file already.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for DurableFile {
    fn drop(&mut self) {
        // On failure, readers skip the filler block.
        let _ = self.leave_window();
    }
}

/// A mapped part of the file that ends at the end of the file.
struct Window {
    memory: Mapping,
    /// Offset in the file.
    start: u64,
}

impl Window {
    /// Maps the file from `end`, its current length. Allocates the space first: on a full disk a store would otherwise
    /// raise SIGBUS.
    fn map(file: &File, end: u64) -> io::Result<Self> {
        let start = end - end % ALIGNMENT;
        let reserved = fallocate(file, FallocateFlags::empty(), start, WINDOW);
        let mapped = reserved.and_then(|()| Mapping::of(file.as_fd(), start, WINDOW as usize));
        let memory = mapped.inspect_err(|_| {
            // On failure, readers find zeros behind the last block.
            let _ = file.set_len(end);
        })?;
        Ok(Self { memory, start })
    }

    /// Returns the end's offset in the file.
    fn end(&self) -> u64 {
        self.start + self.memory.len() as u64
    }

    /// Writes the header and trailer of a filler block from offset `from` to the end of the window.
    fn free_rest(&mut self, from: u64) {
        let len = (self.end() - from) as u32;
        self.put(self.end() - 4, &len.to_le_bytes());
        self.put_header(from, header(FREE, len));
    }

    /// Copies bytes to an offset of the file.
    #[allow(unsafe_code)]
    fn put(&mut self, at: u64, bytes: &[u8]) {
        debug_assert!(self.start <= at && at + bytes.len() as u64 <= self.end());
        // SAFETY: the callers write within the window (`window_for`), which nothing borrows.
        unsafe {
            let to = self.memory.start().as_ptr().add((at - self.start) as usize);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Publishes a block: stores its type and length at once, after all earlier stores.
    #[allow(unsafe_code)]
    fn put_header(&mut self, at: u64, header: [u8; 8]) {
        debug_assert!(self.start <= at && at + 8 <= self.end());
        compiler_fence(Ordering::SeqCst);
        // SAFETY: as in `put`; the store needs no alignment.
        unsafe {
            let to = self.memory.start().as_ptr().add((at - self.start) as usize);
            ptr::write_unaligned(to.cast(), header);
        }
        compiler_fence(Ordering::SeqCst);
    }
}

/// Returns the first bytes of a block.
fn header(kind: u32, len: u32) -> [u8; 8] {
    let [t0, t1, t2, t3] = kind.to_le_bytes();
    let [l0, l1, l2, l3] = len.to_le_bytes();
    [t0, t1, t2, t3, l0, l1, l2, l3]
}

#[cfg(test)]
mod tests {
    use super::super::testing::read_all;
    use super::super::{LinkType, PacketOptions, Writer};
    use super::*;
    use nichrome_wire::Instant;

    fn writer(file: &File) -> Writer<DurableFile> {
        let mut writer = Writer::new(DurableFile::new(file.try_clone().unwrap()), "test");
        writer.add_interface(LinkType::RawIp, "nichrome", 0).unwrap();
        writer
    }

    fn empty_file() -> File {
        let name = format!("nichrome-durable-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    fn content(file: &File) -> Vec<u8> {
        use std::os::unix::fs::FileExt;
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// Small packets in a row, then large ones, and again: both ways of writing, and each change between them.
    #[test]
    fn the_file_is_a_whole_capture_after_each_record() {
        let file = empty_file();
        let mut writer = writer(&file);
        let packet = |number: usize| {
            let len =
                if (number / 500).is_multiple_of(2) { 1 + number % 1_500 } else { 9_001 * (number % 30) };
            vec![number as u8; len]
        };
        let mut has_free_block = [false; 2];
        for number in 0..1_400 {
            writer
                .write(0, Instant::from_nanos(7), None, [&packet(number)], PacketOptions::default())
                .unwrap();
            writer.flush().unwrap();
            if number % 50 == 49 {
                let content = content(&file);
                let (records, error, _) = read_all(&content);
                assert!(error.is_none(), "{error:?}");
                assert_eq!(records.len(), number + 1);
                assert_eq!(records[number].1, packet(number));
                has_free_block[number / 500 % 2] |= content.windows(4).any(|kind| kind == FREE.to_le_bytes());
            }
        }
        assert_eq!(has_free_block, [true, false], "small packets are copied, large ones written");
        let unclosed = content(&file);
        drop(writer);
        let closed = content(&file);
        assert!(closed.len() < unclosed.len() && unclosed.starts_with(&closed));
        let (records, error, progress) = read_all(&closed);
        assert!(error.is_none() && records.len() == 1_400, "{error:?}");
        assert_eq!(progress.bytes, closed.len() as u64);
    }
}
