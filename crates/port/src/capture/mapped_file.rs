//! A file that is written through memory mapped to it: its content survives any end of the process, SIGKILL included.
//!
//! The file is always a whole capture. It grows a window at a time, and the space behind the last block is one block of a type
//! that readers skip. A block is copied into that space and then published by its header: a process that is killed
//! in between leaves only the end of the skipped block wrong. Closing truncates the file behind the last block.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::ptr;
use std::sync::atomic::{Ordering, compiler_fence};

use rustix::fs::{FallocateFlags, fallocate};

use crate::mapping::Mapping;

/// Bytes mapped at a time; more for blocks that do not fit.
const WINDOW: u64 = 256 * 1024;

/// Windows start at a multiple of this, the largest page size of the supported processors.
const ALIGNMENT: u64 = 64 * 1024;

/// Type of the block behind the last one: of those for local use (draft-ietf-opsawg-pcapng, section 11.1).
const FREE: u32 = 0x8000_4652;

/// Bytes of the smallest block.
const SMALLEST: u64 = 12;

/// A capture file under construction.
pub(super) struct MappedFile {
    file: File,
    window: Mapping,
    /// Offset of the window in the file.
    start: u64,
    /// Offset of the end of the last block.
    end: u64,
}

impl MappedFile {
    /// Writes to an empty file, opened for reading and writing.
    ///
    /// # Errors
    /// The file system has no space, or cannot reserve space or map files.
    pub(super) fn new(file: File) -> io::Result<Self> {
        let window = map(&file, 0, WINDOW).inspect_err(|_| {
            // What was reserved would be read as zeros.
            let _ = file.set_len(0);
        })?;
        let mut new = Self { file, window, start: 0, end: 0 };
        new.free_rest();
        Ok(new)
    }

    /// Offset of the end of the window.
    fn window_end(&self) -> u64 {
        self.start + self.window.len() as u64
    }

    /// Moves the window so that `len` bytes and a block behind them fit.
    fn make_room(&mut self, len: u64) -> io::Result<()> {
        if self.end + len + SMALLEST <= self.window_end() {
            return Ok(());
        }
        let start = self.end - self.end % ALIGNMENT;
        let needed = (self.end - start + len + SMALLEST).next_multiple_of(ALIGNMENT);
        self.window = map(&self.file, start, needed.max(WINDOW))?;
        self.start = start;
        self.free_rest();
        Ok(())
    }

    /// Makes the space behind the last block a block that readers skip.
    fn free_rest(&mut self) {
        let len = (self.window_end() - self.end) as u32;
        self.put(self.window_end() - 4, &len.to_le_bytes());
        self.put_header(self.end, header(FREE, len));
    }

    /// Writes bytes at an offset of the file.
    #[allow(unsafe_code)]
    fn put(&mut self, at: u64, bytes: &[u8]) {
        debug_assert!(self.start <= at && at + bytes.len() as u64 <= self.window_end());
        // SAFETY: the callers write within the window (`make_room`), which nothing borrows.
        unsafe {
            let to = self.window.start().as_ptr().add((at - self.start) as usize);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Writes a block's type and length in one store, after all earlier ones.
    #[allow(unsafe_code)]
    fn put_header(&mut self, at: u64, header: [u8; 8]) {
        debug_assert!(self.start <= at && at + 8 <= self.window_end());
        compiler_fence(Ordering::SeqCst);
        // SAFETY: as in `put`; the store needs no alignment.
        unsafe {
            let to = self.window.start().as_ptr().add((at - self.start) as usize);
            ptr::write_unaligned(to.cast(), header);
        }
        compiler_fence(Ordering::SeqCst);
    }
}

/// Reserves `len` bytes of the file at `start` and maps them. Without the reservation, a full disk would be a SIGBUS.
fn map(file: &File, start: u64, len: u64) -> io::Result<Mapping> {
    fallocate(file, FallocateFlags::empty(), start, len)?;
    Ok(Mapping::of(file.as_fd(), start, len as usize)?)
}

/// Returns the first bytes of a block.
fn header(kind: u32, len: u32) -> [u8; 8] {
    let [t0, t1, t2, t3] = kind.to_le_bytes();
    let [l0, l1, l2, l3] = len.to_le_bytes();
    [t0, t1, t2, t3, l0, l1, l2, l3]
}

impl Write for MappedFile {
    /// Adds whole blocks, all or none of them.
    fn write(&mut self, blocks: &[u8]) -> io::Result<usize> {
        let Some((first, rest)) = blocks.split_first_chunk::<8>() else { return Ok(0) };
        self.make_room(blocks.len() as u64)?;
        let at = self.end;
        self.put(at + 8, rest);
        self.end += blocks.len() as u64;
        self.free_rest();
        self.put_header(at, *first);
        Ok(blocks.len())
    }

    /// Does nothing: what is written is in the file.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // If it fails, readers skip the last block.
        let _ = self.file.set_len(self.end);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::read_all;
    use super::super::{LinkType, Writer};
    use super::*;
    use nichrome_wire::Instant;

    fn writer(file: &File) -> Writer<MappedFile> {
        let mapped = MappedFile::new(file.try_clone().unwrap()).unwrap();
        let mut writer = Writer::new(mapped, "test");
        writer.add_interface(LinkType::RawIp, "nichrome", 0).unwrap();
        writer
    }

    fn empty_file() -> File {
        let name = format!("nichrome-mapped-{}-{:?}", std::process::id(), std::thread::current().id());
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

    #[test]
    fn the_file_is_a_whole_capture_after_each_record() {
        let file = empty_file();
        let mut writer = writer(&file);
        for number in 0..300usize {
            let packet = vec![number as u8; 9_001 * (number % 30)];
            writer.write(0, Instant::from_nanos(7), None, [&packet], None).unwrap();
            writer.flush().unwrap();
            if number % 10 == 0 {
                let (records, error, _) = read_all(&content(&file));
                assert!(error.is_none(), "{error:?}");
                assert_eq!(records.len(), number + 1);
                assert_eq!(records[number].1, packet);
            }
        }
        let unclosed = content(&file);
        drop(writer);
        let closed = content(&file);
        assert!(closed.len() < unclosed.len() && unclosed.starts_with(&closed));
        let (records, error, progress) = read_all(&closed);
        assert!(error.is_none() && records.len() == 300, "{error:?}");
        assert_eq!(progress.bytes, closed.len() as u64);
    }

    #[test]
    fn blocks_longer_than_a_window_fit() {
        let file = empty_file();
        let mut writer = writer(&file);
        let packet = vec![7; 250_000];
        for _ in 0..3 {
            writer.write(0, Instant::ZERO, None, [&packet], None).unwrap();
        }
        drop(writer);
        assert_eq!(read_all(&content(&file)).0.len(), 3);
    }
}
