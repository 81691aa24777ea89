//! Memory regions and windows.

use nichrome_wire::rdma::RKey;

use super::Device;
use super::transports::{Transport, for_each_transport, for_endpoint};
use crate::core::access::Access;
use crate::core::error::{ObjectError, ObjectKind, RegisterError};
use crate::core::memory::Memory;
use crate::core::protection::{LKey, Refusal, Region, RegionChange, Validity, Window, WindowKind};
use crate::core::slab::Handle;
use crate::kind;
use crate::transport::{Endpoint, Shared};

/// A memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionHandle(Handle<kind::Key>);

/// A memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowHandle(Handle<kind::Key>);

/// What a memory region is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionConfig {
    /// The first byte, in the program's memory.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// The address that work requests and peers use for the first byte.
    pub io_address: u64,
    /// What may be done with it.
    pub access: Access,
}

impl RegionConfig {
    /// Memory that work requests and peers name by its own addresses.
    pub const fn new(address: u64, len: u64, access: Access) -> Self {
        Self { address, len, io_address: address, access }
    }
}

/// What a memory region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionReport {
    /// The key for work requests.
    pub lkey: LKey,
    /// The key for peers.
    pub rkey: RKey,
    /// Bytes.
    pub len: u64,
    /// The rights.
    pub access: Access,
}

impl<M: Memory> Device<M> {
    /// Registers memory.
    ///
    /// # Errors
    /// The domain does not exist, the rights do not go together, the memory is not all there, or there is no room for
    /// another region.
    pub fn register(
        &mut self,
        domain: Handle<kind::Domain>,
        config: RegionConfig,
    ) -> Result<RegionHandle, RegisterError> {
        self.domain_mut(domain)?;
        let region = self.region(domain, config)?;
        let made = self.verbs.protection.add_region(region);
        let made = made.ok_or(ObjectError::Exhausted(ObjectKind::Region))?;
        self.join(domain);
        self.region_registered(made);
        Ok(RegionHandle(made))
    }

    fn region(&self, domain: Handle<kind::Domain>, config: RegionConfig) -> Result<Region, RegisterError> {
        let RegionConfig { address, len, io_address, access } = config;
        if access.contains(Access::ZERO_BASED) {
            return Err(RegisterError::Rights(access));
        }
        if access.lets_peers_change() && !access.contains(Access::LOCAL_WRITE) {
            return Err(RegisterError::NeedsLocalWrite);
        }
        if let Some(address) =
            [address, io_address].into_iter().find(|first| first.checked_add(len).is_none())
        {
            return Err(RegisterError::Range { address, len });
        }
        if !self.verbs.memory.covers(address, len) {
            return Err(RegisterError::NotThere { address, len });
        }
        let (windows, validity) = (0, Validity::Valid);
        Ok(Region { domain, access, io_address, address, len, windows, validity })
    }

    /// Registers other memory, or with other rights, in place of what the region was, under the same key. A region that
    /// was invalidated is valid again, under a new key.
    ///
    /// # Errors
    /// As [`Device::register`]; the region does not exist; windows are bound to it.
    pub fn reregister(
        &mut self,
        handle: RegionHandle,
        domain: Handle<kind::Domain>,
        config: RegionConfig,
    ) -> Result<(), RegisterError> {
        self.domain_mut(domain)?;
        let region = self.region(domain, config)?;
        let old = self.verbs.protection.region(handle.0).ok_or(ObjectError::Unknown(ObjectKind::Region))?;
        if old.windows > 0 {
            return Err(ObjectError::InUse(ObjectKind::Region).into());
        }
        let old_domain = old.domain;
        let old_key = self.verbs.protection.key_of(handle.0);
        self.verbs.protection.replace_region(handle.0, region);
        self.join(domain);
        self.leave(old_domain);
        old_key.into_iter().for_each(|key| self.region_deregistered(old_domain, key));
        self.region_registered(handle.0);
        Ok(())
    }

    /// What a region is.
    ///
    /// # Errors
    /// It does not exist.
    pub fn query_region(&self, handle: RegionHandle) -> Result<RegionReport, ObjectError> {
        let protection = &self.verbs.protection;
        let found = protection.region(handle.0).zip(protection.key_of(handle.0));
        let (region, key) = found.ok_or(ObjectError::Unknown(ObjectKind::Region))?;
        Ok(RegionReport { lkey: LKey(key), rkey: RKey(key), len: region.len, access: region.access })
    }

    /// Ends a region: its memory is out of reach at once, also for packets that are on their way.
    ///
    /// # Errors
    /// It does not exist, or windows are bound to it.
    pub fn deregister(&mut self, handle: RegionHandle) -> Result<(), ObjectError> {
        let domain = self.verbs.protection.region(handle.0).map(|region| region.domain);
        let key = self.verbs.protection.key_of(handle.0);
        self.verbs.protection.remove_region(handle.0).map_err(|refusal| match refusal {
            Refusal::State => ObjectError::InUse(ObjectKind::Region),
            _ => ObjectError::Unknown(ObjectKind::Region),
        })?;
        if let Some((domain, key)) = domain.zip(key) {
            self.leave(domain);
            self.region_deregistered(domain, key);
        }
        Ok(())
    }

    /// Makes a memory window, which gives no rights before it is bound.
    ///
    /// # Errors
    /// The domain does not exist, or there is no room for another window.
    pub fn create_window(
        &mut self,
        domain: Handle<kind::Domain>,
        kind: WindowKind,
    ) -> Result<WindowHandle, ObjectError> {
        self.domain_mut(domain)?;
        let made = self.verbs.protection.add_window(Window { domain, kind, binding: None });
        let made = made.ok_or(ObjectError::Exhausted(ObjectKind::Window))?;
        self.join(domain);
        Ok(WindowHandle(made))
    }

    /// The key that names a window now.
    ///
    /// # Errors
    /// It does not exist.
    pub fn window_key(&self, handle: WindowHandle) -> Result<RKey, ObjectError> {
        let protection = &self.verbs.protection;
        let key = protection.window(handle.0).and_then(|_| protection.key_of(handle.0));
        key.map(RKey).ok_or(ObjectError::Unknown(ObjectKind::Window))
    }

    /// Destroys a window, bound or not.
    ///
    /// # Errors
    /// It does not exist.
    pub fn destroy_window(&mut self, handle: WindowHandle) -> Result<(), ObjectError> {
        let domain = self.verbs.protection.window(handle.0).map(|window| window.domain);
        let domain = domain.ok_or(ObjectError::Unknown(ObjectKind::Window))?;
        let gone = self.verbs.protection.remove_window(handle.0);
        gone.map_err(|_| ObjectError::Unknown(ObjectKind::Window))?;
        self.leave(domain);
        Ok(())
    }

    /// Regions and windows that exist.
    pub fn keys(&self) -> (usize, usize) {
        self.verbs.protection.counts()
    }

    fn region_registered(&mut self, handle: Handle<kind::Key>) {
        let protection = &self.verbs.protection;
        if let Some((region, key)) = protection.region(handle).zip(protection.key_of(handle)) {
            let (domain, region) = (region.domain, Some(region.clone()));
            self.region_changed(&RegionChange { domain, key, region });
        }
    }

    fn region_deregistered(&mut self, domain: Handle<kind::Domain>, key: u32) {
        self.region_changed(&RegionChange { domain, key, region: None });
    }

    /// Has the queue pairs of a domain follow a change to its memory, where their transport wants to.
    fn region_changed(&mut self, change: &RegionChange) {
        let mut follows = false;
        for_each_transport!(&self.transports, |shared, _Endpoint| follows |= shared.follows_regions());
        for index in 0..if follows { self.qps.places() } else { 0 } {
            let Some(transport) = self.qps.at_mut(index) else { continue };
            let is_concerned = transport.qp().domain == change.domain;
            if is_concerned && for_endpoint!(transport, |endpoint| endpoint.region_changed(change)) {
                self.settle(index);
            }
        }
    }
}
