//! The memory of the program, as the device reaches it.

use thiserror::Error;

/// The DMA engine: how a device reads and writes the memory of its program. Process memory in the live driver, a byte
/// array in tests and in the simulator. What is reached has been checked against a registered region before.
pub trait Memory {
    /// Whether all of these bytes are there; asked when a region is registered.
    fn covers(&self, address: u64, len: u64) -> bool;

    /// Copies `into.len()` bytes from `address` on.
    ///
    /// # Errors
    /// Some of the bytes are not there any more.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryFault>;

    /// Copies `bytes` to `address`.
    ///
    /// # Errors
    /// Some of the bytes are not there any more.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault>;

    /// Replaces the 8 bytes at `address`, a multiple of 8, as one: by what `change` makes of their value. Gives the
    /// value before.
    ///
    /// # Errors
    /// The bytes are not there any more.
    fn update(&mut self, address: u64, change: impl Fn(u64) -> u64) -> Result<u64, MemoryFault>;
}

/// Memory that is not there, although it was when it was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no memory at address {address:#x}")]
pub struct MemoryFault {
    /// The first address of the access that failed.
    pub address: u64,
}

/// A byte array whose first byte has the address `base`: the memory of tests and simulations.
#[derive(Clone, Debug)]
pub struct ByteMemory {
    base: u64,
    bytes: Vec<u8>,
}

impl ByteMemory {
    /// So many zero bytes from `base` on.
    pub fn new(base: u64, len: usize) -> Self {
        Self { base, bytes: vec![0; len] }
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All bytes, to be changed.
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
