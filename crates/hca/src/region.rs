//! Registered memory.

use std::fmt;
use std::sync::Arc;

use nichrome_rdma::{
    Access, Device, DomainHandle, LKey, ObjectError, RKey, RegionConfig, RegionHandle, RegisterError, Remote,
    Sge,
};
use serde::{Deserialize, Serialize};

use crate::adapter::Adapter;

/// A further protection domain of the adapter. Only its own queue pairs may use its regions. Clones refer to
/// the same domain.
#[derive(Clone)]
pub struct ProtectionDomain {
    pub(crate) shared: Arc<SharedDomain>,
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain").finish_non_exhaustive()
    }
}

pub(crate) struct SharedDomain {
    pub(crate) adapter: Adapter,
    pub(crate) handle: DomainHandle,
}

impl Drop for SharedDomain {
    fn drop(&mut self) {
        // Fails only while objects use the domain, and they keep it alive.
        let _ = self.adapter.inner.driver.call(|device| device.destroy_domain(self.handle));
    }
}

/// Memory of an adapter, freed when the last region over it is gone.
struct Piece {
    adapter: Adapter,
    address: u64,
    len: usize,
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.adapter.inner.driver.call(|device| device.memory_mut().free(self.address));
    }
}

/// Registered memory.
pub struct Region {
    adapter: Adapter,
    handle: RegionHandle,
    lkey: LKey,
    rkey: RKey,
    piece: Arc<Piece>,
    /// The protection domain, kept alive; `None` for the adapter's own.
    _domain: Option<ProtectionDomain>,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("handle", &self.handle)
            .field("lkey", &self.lkey)
            .field("rkey", &self.rkey)
            .finish_non_exhaustive()
    }
}

/// The address and key of a peer's region, to be exchanged out of band.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRegion {
    address: u64,
    rkey: u32,
    /// Bytes.
    pub len: usize,
}

impl RemoteRegion {
    /// The remote address `at` bytes behind the region's start.
    pub const fn at(&self, at: usize) -> Remote {
        Remote { address: self.address.wrapping_add(at as u64), rkey: RKey(self.rkey) }
    }
}

impl Adapter {
    /// Creates a protection domain.
    ///
    /// # Errors
    /// No domain is free.
    pub fn protection_domain(&self) -> Result<ProtectionDomain, ObjectError> {
        let handle = self.inner.driver.call(Device::create_domain)?;
        Ok(ProtectionDomain { shared: Arc::new(SharedDomain { adapter: self.clone(), handle }) })
    }

    /// Allocates `len` zero bytes and registers them with the rights `access`, and local write.
    ///
    /// # Errors
    /// The rights contradict each other, or no key is free.
    pub fn region(&self, len: usize, access: Access) -> Result<Region, RegisterError> {
        let address = self.inner.driver.call(|device| device.memory_mut().allocate(len));
        let piece = Arc::new(Piece { adapter: self.clone(), address, len });
        Region::new(piece, self.inner.domain, None, access)
    }
}

impl ProtectionDomain {
    /// Registers the bytes of `region` in this domain, too, with the rights `access`, and local write.
    ///
    /// # Errors
    /// The rights contradict each other, or no key is free.
    pub fn region_over(&self, region: &Region, access: Access) -> Result<Region, RegisterError> {
        Region::new(Arc::clone(&region.piece), self.shared.handle, Some(self.clone()), access)
    }
}

impl Region {
    fn new(
        piece: Arc<Piece>,
        handle: DomainHandle,
        domain: Option<ProtectionDomain>,
        access: Access,
    ) -> Result<Self, RegisterError> {
        let adapter = piece.adapter.clone();
        let config = RegionConfig::new(piece.address, piece.len as u64, access | Access::LOCAL_WRITE);
        let (handle, report) = adapter.inner.driver.call(|device| {
            let handle = device.register(handle, config)?;
            Ok::<_, RegisterError>((handle, device.query_region(handle)?))
        })?;
        Ok(Self { adapter, handle, lkey: report.lkey, rkey: report.rkey, piece, _domain: domain })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.piece.len
    }

    /// Returns true if the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.piece.len == 0
    }

    /// A scatter/gather element of `len` bytes from `at` on. If it exceeds the region, the work request
    /// completes with an error.
    pub fn slice(&self, at: usize, len: usize) -> Sge {
        // `u32::MAX` is longer than every region that a request may name.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        Sge { address: self.piece.address.wrapping_add(at as u64), len, lkey: self.lkey }
    }

    /// The address and key for peers.
    pub fn remote(&self) -> RemoteRegion {
        RemoteRegion { address: self.piece.address, rkey: self.rkey.0, len: self.piece.len }
    }

    /// Accesses the bytes under the adapter's lock.
    pub fn with<T>(&self, f: impl FnOnce(&mut [u8]) -> T) -> T {
        self.adapter.inner.driver.touch(|memory| f(memory.piece_mut(self.piece.address)))
    }

    /// Drives the adapter, then evaluates `condition` on the bytes, at most twice: for programs that wait for
    /// a peer's WRITE.
    pub fn poll(&self, mut condition: impl FnMut(&[u8]) -> bool) -> bool {
        let driver = &self.adapter.inner.driver;
        driver.poll(|device| condition(device.memory().piece(self.piece.address)).then_some(())).is_some()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Fails if memory windows are bound: their keys remain, but the memory may be gone.
        let _ = self.adapter.inner.driver.call(|device| device.deregister(self.handle));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AdapterConfig;

    #[test]
    fn an_element_longer_than_a_request_may_name_is_not_cut_to_32_bits() {
        let adapter = Adapter::open(&AdapterConfig::default()).unwrap();
        let region = adapter.region(8, Access::NONE).unwrap();
        assert_eq!([8, (1 << 32) + 8].map(|len| region.slice(0, len).len), [8, u32::MAX]);
    }
}
