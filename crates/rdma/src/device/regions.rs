//! The verbs of memory regions and windows.

use nichrome_wire::rdma::RKey;

use super::Device;
use super::transports::{Transport, for_each_transport, for_endpoint};
use crate::core::access::Access;
use crate::core::error::{ObjectError, ObjectKind, RegisterError};
use crate::core::kind;
use crate::core::memory::Memory;
use crate::core::protection::{LKey, Refusal, Region, RegionChange, Validity, Window, WindowKind};
use crate::core::slab::Handle;
use crate::transport::{Endpoint, Shared};

/// The handle of a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionHandle(Handle<kind::Key>);

/// The handle of a memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowHandle(Handle<kind::Key>);

/// When a region's memory must exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Paging {
    /// All of it at registration.
    #[default]
    AtRegistration,
    /// Each byte when it is accessed. Registration does not check the memory.
    OnDemand,
}

/// The configuration of a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionConfig {
    /// Address of the first byte in the program's memory.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
    /// I/O address: the address of the first byte in work requests and on the wire.
    pub io_address: u64,
    /// Access rights.
    pub access: Access,
    /// When the memory must exist.
    pub paging: Paging,
}

impl RegionConfig {
    /// Creates the configuration of a region whose I/O addresses are the addresses of the program's memory,
    /// which must exist at registration.
    pub const fn new(address: u64, len: u64, access: Access) -> Self {
        Self { address, len, io_address: address, access, paging: Paging::AtRegistration }
    }
}

/// Keys, length and rights of a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionReport {
    /// Local key, for work requests.
    pub lkey: LKey,
    /// Remote key, for peers.
    pub rkey: RKey,
    /// Length in bytes.
    pub len: u64,
    /// Access rights.
    pub access: Access,
}

impl<M: Memory> Device<M> {
    /// Registers memory.
    ///
    /// # Errors
    /// The domain or some of the memory does not exist, the rights are invalid, or the limit of keys is
    /// reached.
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
        let RegionConfig { address, len, io_address, access, paging } = config;
        // The program's memory is volatile.
        if access.intersects(Access::ZERO_BASED | Access::FLUSH_PERSISTENT) {
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
        if paging == Paging::AtRegistration && !self.verbs.memory.covers(address, len) {
            return Err(RegisterError::NotMapped { address, len });
        }
        let (windows, validity) = (0, Validity::Valid);
        Ok(Region { domain, access, io_address, address, len, windows, validity })
    }

    /// Replaces memory, rights and domain of a region. An invalidated region becomes valid. The key changes
    /// if the region was invalidated or its domain changes.
    ///
    /// # Errors
    /// See [`Device::register`]. Also fails if the region does not exist or windows are bound to it.
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

    /// Returns keys, length and rights of a region.
    ///
    /// # Errors
    /// The region does not exist.
    pub fn query_region(&self, handle: RegionHandle) -> Result<RegionReport, ObjectError> {
        let protection = &self.verbs.protection;
        let found = protection.region(handle.0).zip(protection.key_of(handle.0));
        let (region, key) = found.ok_or(ObjectError::Unknown(ObjectKind::Region))?;
        Ok(RegionReport { lkey: LKey(key), rkey: RKey(key), len: region.len, access: region.access })
    }

    /// Deregisters a region. Accesses of packets in flight fail.
    ///
    /// # Errors
    /// The region does not exist, or windows are bound to it.
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

    /// Creates a memory window. It grants no rights before it is bound.
    ///
    /// # Errors
    /// The domain does not exist, or the limit of keys is reached.
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

    /// Returns a window's current key.
    ///
    /// # Errors
    /// The window does not exist.
    pub fn window_key(&self, handle: WindowHandle) -> Result<RKey, ObjectError> {
        let protection = &self.verbs.protection;
        let key = protection.window(handle.0).and_then(|_| protection.key_of(handle.0));
        key.map(RKey).ok_or(ObjectError::Unknown(ObjectKind::Window))
    }

    /// Destroys a window, bound or not.
    ///
    /// # Errors
    /// The window does not exist.
    pub fn destroy_window(&mut self, handle: WindowHandle) -> Result<(), ObjectError> {
        let domain = self.verbs.protection.window(handle.0).map(|window| window.domain);
        let domain = domain.ok_or(ObjectError::Unknown(ObjectKind::Window))?;
        let gone = self.verbs.protection.remove_window(handle.0);
        gone.map_err(|_| ObjectError::Unknown(ObjectKind::Window))?;
        self.leave(domain);
        Ok(())
    }

    /// Returns the numbers of regions and windows.
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

    /// Reports the domain's regions to the endpoint of a queue pair whose access rights changed.
    pub(super) fn rights_changed(&mut self, handle: Handle<kind::Qp>) {
        if !self.follows_regions() {
            return;
        }
        let Self { qps, verbs, .. } = self;
        let Some(transport) = qps.get_mut(handle) else { return };
        let domain = transport.qp().domain;
        for (key, region) in verbs.protection.regions_of(domain) {
            let change = RegionChange { domain, key, region: Some(region.clone()) };
            for_endpoint!(transport, |endpoint| endpoint.region_changed(&change));
        }
    }

    /// Returns true if a transport needs reports of regions.
    fn follows_regions(&self) -> bool {
        let mut follows = false;
        for_each_transport!(&self.transports, |shared, _Endpoint| follows |= shared.follows_regions());
        follows
    }

    /// Reports a change to the endpoints of its domain, if any transport needs such reports.
    fn region_changed(&mut self, change: &RegionChange) {
        if !self.follows_regions() {
            return;
        }
        for index in self.qps_of.of(change.domain).collect::<Vec<_>>() {
            let Some(transport) = self.qps.at_mut(index) else { continue };
            if for_endpoint!(transport, |endpoint| endpoint.region_changed(change)) {
                self.settle(index);
            }
        }
    }
}
