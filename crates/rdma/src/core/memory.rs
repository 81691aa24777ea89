//! Access to the program's memory.

use thiserror::Error;

/// The DMA engine: reads and writes the program's memory. The live driver implements it for process memory,
/// tests and the simulator for a byte array. The device checks every access against a registered region
/// first.
pub trait Memory {
    /// Returns true if all of these bytes exist. Called at registration.
    fn covers(&self, address: u64, len: u64) -> bool;

    /// Copies `into.len()` bytes from `address`.
    ///
    /// # Errors
    /// Some of the bytes no longer exist.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryFault>;

    /// Copies `bytes` to `address`.
    ///
    /// # Errors
    /// Some of the bytes no longer exist.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault>;

    /// Atomically replaces the 8 bytes at `address`, a multiple of 8, by `change` of their value. Returns the
    /// original value.
    ///
    /// # Errors
    /// The bytes no longer exist.
    fn update(&mut self, address: u64, change: impl Fn(u64) -> u64) -> Result<u64, MemoryFault>;
}

/// An access to memory that no longer exists although it is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no memory at address {address:#x}")]
pub struct MemoryFault {
    /// First address of the failed access.
    pub address: u64,
}

/// Memory in a byte array whose first byte has the address `base`, for tests and simulations.
#[derive(Clone, Debug)]
pub struct ByteMemory {
    base: u64,
    bytes: Vec<u8>,
}

impl ByteMemory {
    /// Creates `len` zero bytes at `base`.
    pub fn new(base: u64, len: usize) -> Self {
        Self { base, bytes: vec![0; len] }
    }

    /// Returns all bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns all bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn range(&self, address: u64, len: usize) -> Result<std::ops::Range<usize>, MemoryFault> {
        let start = address.checked_sub(self.base).and_then(|start| usize::try_from(start).ok());
        let range = start.and_then(|start| Some(start..start.checked_add(len)?));
        range.filter(|range| range.end <= self.bytes.len()).ok_or(MemoryFault { address })
    }
}

impl Memory for ByteMemory {
    fn covers(&self, address: u64, len: u64) -> bool {
        usize::try_from(len).is_ok_and(|len| self.range(address, len).is_ok())
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
        let range = self.range(address, into.len())?;
        into.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let range = self.range(address, bytes.len())?;
        self.bytes[range].copy_from_slice(bytes);
        Ok(())
    }

    fn update(&mut self, address: u64, change: impl Fn(u64) -> u64) -> Result<u64, MemoryFault> {
        let mut value = [0; 8];
        self.read(address, &mut value)?;
        let before = u64::from_ne_bytes(value);
        self.write(address, &change(before).to_ne_bytes())?;
        Ok(before)
    }
}
