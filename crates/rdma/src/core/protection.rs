//! Memory protection: regions, windows and their keys.
//!
//! A key is 32 random bits (`key_table.rs`), drawn for each region and window. It becomes invalid with its
//! object, and other keys cannot be computed from it. Every packet's access is checked here, so
//! deregistration takes effect at once, also for packets in flight.

use std::num::NonZeroU32;

use nichrome_wire::rdma::RKey;
use thiserror::Error;

use super::access::Access;
use super::key_table::KeyTable;
use super::members::Members;
use super::random::RandomNumbers;
use super::slab::{Handle, Slab};
use crate::core::kind;

/// Local key: the program's key of its own memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LKey(pub u32);

/// A span of registered memory.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) domain: Handle<kind::Domain>,
    pub(crate) access: Access,
    /// The address of the first byte in work requests and on the wire.
    pub(crate) io_address: u64,
    /// The address of the first byte in the program's memory.
    pub(crate) address: u64,
    pub(crate) len: u64,
    /// Number of windows bound to the region.
    pub(crate) windows: u32,
    pub(crate) validity: Validity,
}

/// A registration or deregistration of a region.
pub(crate) struct RegionChange {
    pub(crate) domain: Handle<kind::Domain>,
    pub(crate) key: u32,
    /// The registered region; `None` if it was deregistered.
    pub(crate) region: Option<Region>,
}

/// Whether a region's key is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    Valid,
    /// Invalidated by a work request or a peer, until the region is reregistered.
    Invalidated,
}

/// A memory window: rights on a part of a region, bound and invalidated by work requests.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) domain: Handle<kind::Domain>,
    pub(crate) kind: WindowKind,
    pub(crate) binding: Option<Binding>,
}

/// The two kinds of memory window (IBA 10.6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowKind {
    /// Type 1: accessible through all queue pairs of its protection domain; can be rebound while it is bound.
    One,
    /// Type 2B: accessible through the queue pair that it was bound on; must be invalidated before it is
    /// rebound.
    Two,
}

/// The binding of a window to a part of a region.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    /// The region's key, which is constant while a window is bound to it. Keys are never 0.
    region: NonZeroU32,
    pub(crate) qp: Handle<kind::Qp>,
    pub(crate) access: Access,
    /// In the region's I/O addresses.
    pub(crate) io_address: u64,
    pub(crate) len: u64,
}

/// The parameters of a bind request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The window's current key.
    pub window: RKey,
    /// The low 8 bits of the window's new key.
    pub key_byte: u8,
    /// The region's key.
    pub region: LKey,
    /// Address of the first byte, in the region's I/O addresses.
    pub address: u64,
    /// Length in bytes; 0 unbinds a window of type 1.
    pub len: u64,
    /// The rights of peers.
    pub access: Access,
}

/// The identity of an access: a queue pair and its protection domain.
#[derive(Clone, Copy)]
pub(crate) struct Accessor {
    pub(crate) domain: Handle<kind::Domain>,
    pub(crate) qp: Handle<kind::Qp>,
}

/// The origin of an invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalidator {
    /// A work request of the local program.
    Program,
    /// A SEND with invalidate of the peer.
    Peer,
}

/// Why an access was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    #[error("no region or window has this key")]
    Key,
    #[error("the key belongs to another protection domain or queue pair")]
    Owner,
    #[error("the key does not grant this right")]
    Right,
    #[error("the bytes are not all within the region or window")]
    Bounds,
    #[error("the state of the region or window does not allow this")]
    State,
}

enum Named {
    Region(Region),
    Window(Window),
}

struct Object {
    handle: Handle<kind::Key>,
    named: Named,
}

// One cache line holds an object with its key and handle: each packet looks one up.
const _: () = assert!(KeyTable::<Object>::SLOT_BYTES == 64);

/// All regions and windows of a device.
pub(crate) struct Protection {
    objects: KeyTable<Object>,
    /// The current key of each object. Handles are constant while keys change.
    keys: Slab<u32, kind::Key>,
    regions: usize,
    regions_of: Members,
}

impl Protection {
    /// Maximum number of regions and windows together.
    pub(crate) const MAX_KEYS: usize = KeyTable::<Object>::MAX_KEYS;

    /// Creates tables for up to `limit` regions and windows, whose keys are derived from `seed`.
    pub(crate) fn new(limit: usize, seed: u128) -> Self {
        let objects = KeyTable::new(RandomNumbers::new(seed, "memory keys"));
        let keys = Slab::new(limit.min(Self::MAX_KEYS));
        Self { objects, keys, regions: 0, regions_of: Members::default() }
    }

    fn insert(&mut self, named: Named) -> Option<Handle<kind::Key>> {
        let Self { objects, keys, .. } = self;
        keys.insert(|handle| objects.insert(Object { handle, named }))
    }

    pub(crate) fn add_region(&mut self, region: Region) -> Option<Handle<kind::Key>> {
        let domain = region.domain;
        let handle = self.insert(Named::Region(region))?;
        self.regions += 1;
        self.regions_of.insert(domain, handle.index());
        Some(handle)
    }

    pub(crate) fn add_window(&mut self, window: Window) -> Option<Handle<kind::Key>> {
        self.insert(Named::Window(window))
    }

    /// Returns the numbers of regions and windows.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.regions, self.objects.len() - self.regions)
    }

    /// Returns the object's current key.
    pub(crate) fn key_of(&self, handle: Handle<kind::Key>) -> Option<u32> {
        self.keys.get(handle).copied()
    }

    #[inline]
    fn named(&self, key: u32) -> Result<&Named, Refusal> {
        self.objects.get(key).map(|object| &object.named).ok_or(Refusal::Key)
    }

    fn named_mut(&mut self, key: u32) -> Result<&mut Named, Refusal> {
        self.objects.get_mut(key).map(|object| &mut object.named).ok_or(Refusal::Key)
    }

    #[inline]
    fn region_of(&self, key: LKey) -> Result<&Region, Refusal> {
        match self.named(key.0)? {
            Named::Region(region) => Ok(region),
            Named::Window(_) => Err(Refusal::Key),
        }
    }

    fn region_of_mut(&mut self, key: LKey) -> Result<&mut Region, Refusal> {
        match self.named_mut(key.0)? {
            Named::Region(region) => Ok(region),
            Named::Window(_) => Err(Refusal::Key),
        }
    }

    pub(crate) fn region(&self, handle: Handle<kind::Key>) -> Option<&Region> {
        self.region_of(LKey(self.key_of(handle)?)).ok()
    }

    pub(crate) fn window(&self, handle: Handle<kind::Key>) -> Option<&Window> {
        match self.named(self.key_of(handle)?).ok()? {
            Named::Window(window) => Some(window),
            Named::Region(_) => None,
        }
    }

    /// Replaces a region. Keeps its key, since programs that call `ibv_rereg_mr` do not send the key to peers
    /// again. Renews the key if it was invalidated, and if the domain changes: a stateless card admits
    /// packets by the key alone, whatever the domain of their connection.
    pub(crate) fn replace_region(&mut self, handle: Handle<kind::Key>, region: Region) {
        let Some(key) = self.key_of(handle) else { return };
        let Ok(named) = self.named_mut(key) else { return };
        let domain = region.domain;
        let Named::Region(old) = std::mem::replace(named, Named::Region(region)) else { return };
        self.regions_of.remove(old.domain, handle.index());
        self.regions_of.insert(domain, handle.index());
        if (old.validity == Validity::Invalidated || old.domain != domain)
            && let Some(renewed) = self.objects.renew(key)
        {
            self.rename(handle, renewed);
        }
    }

    fn rename(&mut self, handle: Handle<kind::Key>, key: u32) {
        if let Some(name) = self.keys.get_mut(handle) {
            *name = key;
        }
    }

    fn remove(&mut self, handle: Handle<kind::Key>) -> Option<Named> {
        let key = self.keys.remove(handle)?;
        self.objects.remove(key).map(|object| object.named)
    }

    /// Removes a region that no window is bound to.
    pub(crate) fn remove_region(&mut self, handle: Handle<kind::Key>) -> Result<(), Refusal> {
        let region = self.region(handle).ok_or(Refusal::Key)?;
        if region.windows > 0 {
            return Err(Refusal::State);
        }
        let domain = region.domain;
        self.remove(handle);
        self.regions -= 1;
        self.regions_of.remove(domain, handle.index());
        Ok(())
    }

    /// Removes a window, bound or not.
    pub(crate) fn remove_window(&mut self, handle: Handle<kind::Key>) -> Result<(), Refusal> {
        self.window(handle).ok_or(Refusal::Key)?;
        if let Some(Named::Window(window)) = self.remove(handle) {
            self.release(window.binding.as_ref());
        }
        Ok(())
    }

    fn release(&mut self, binding: Option<&Binding>) {
        if let Some(Ok(region)) = binding.map(|binding| self.region_of_mut(binding.region())) {
            region.windows = region.windows.saturating_sub(1);
        }
    }

    /// Checks an access of the program; returns the address in its memory.
    #[inline]
    pub(crate) fn local(
        &self,
        domain: Handle<kind::Domain>,
        key: LKey,
        address: u64,
        len: u64,
        right: Access,
    ) -> Result<u64, Refusal> {
        self.region_of(key)?.reach(domain, address, len, right)
    }

    /// Checks an access of a peer; returns the address in the program's memory.
    #[inline]
    pub(crate) fn remote(
        &self,
        accessor: Accessor,
        key: RKey,
        address: u64,
        len: u64,
        right: Access,
    ) -> Result<u64, Refusal> {
        match self.named(key.0)? {
            Named::Region(region) => region.reach(accessor.domain, address, len, right),
            Named::Window(window) => {
                let binding = window.open_to(accessor, right)?;
                let within = binding.region_address(address, len)?;
                let region = self.region_of(binding.region())?;
                region.reach(accessor.domain, within, len, Access::NONE)
            }
        }
    }

    /// Checks that a peer's key grants a right, at any address.
    pub(crate) fn grants(&self, accessor: Accessor, key: RKey, right: Access) -> Result<(), Refusal> {
        match self.named(key.0)? {
            Named::Region(region) => region.reach(accessor.domain, region.io_address, 0, right).map(drop),
            Named::Window(window) => {
                let binding = window.open_to(accessor, right)?;
                let region = self.region_of(binding.region())?;
                region.reach(accessor.domain, region.io_address, 0, Access::NONE).map(drop)
            }
        }
    }

    /// Checks an access of a packet to a stateless card; returns the address in the program's memory. The
    /// card has no queue pairs; windows are not granted to its clients.
    #[inline]
    pub(crate) fn stateless(&self, key: u32, address: u64, len: u64, right: Access) -> Result<u64, Refusal> {
        match self.named(key)? {
            Named::Region(region) => region.reach(region.domain, address, len, right),
            Named::Window(_) => Err(Refusal::Owner),
        }
    }

    /// Returns the valid regions of a domain with their keys.
    pub(crate) fn regions_of(&self, domain: Handle<kind::Domain>) -> impl Iterator<Item = (u32, &Region)> {
        let keys = self.regions_of.of(domain).filter_map(|index| self.keys.at(index).copied());
        let regions = keys.filter_map(|key| Some((key, self.region_of(LKey(key)).ok()?)));
        regions.filter(|(_, region)| region.validity == Validity::Valid)
    }

    /// Binds a window to a part of a region (IBA 10.6.7.2.2).
    pub(crate) fn bind(&mut self, accessor: Accessor, bind: Bind) -> Result<RKey, Refusal> {
        let Named::Window(window) = self.named(bind.window.0)? else { return Err(Refusal::Key) };
        window.may_be_bound(accessor, bind)?;
        let binding = if bind.len == 0 { None } else { Some(self.binding(accessor, bind)?) };
        if let Some(binding) = &binding {
            self.region_of_mut(binding.region())?.windows += 1;
        }
        let object = self.objects.get_mut(bind.window.0).ok_or(Refusal::Key)?;
        let handle = object.handle;
        let Named::Window(window) = &mut object.named else { return Err(Refusal::Key) };
        let before = std::mem::replace(&mut window.binding, binding);
        self.release(before.as_ref());
        let key = self.objects.change_byte(bind.window.0, bind.key_byte).ok_or(Refusal::Key)?;
        self.rename(handle, key);
        Ok(RKey(key))
    }

    fn binding(&self, accessor: Accessor, bind: Bind) -> Result<Binding, Refusal> {
        let region = self.region_of(bind.region)?;
        region.reach(accessor.domain, bind.address, bind.len, Access::WINDOW_BIND)?;
        if bind.access.lets_peers_change() && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(Refusal::Right);
        }
        if bind.access.contains(Access::FLUSH_PERSISTENT) && !region.access.contains(Access::FLUSH_PERSISTENT)
        {
            return Err(Refusal::Right);
        }
        let (access, io_address, len) = (bind.access, bind.address, bind.len);
        let key = NonZeroU32::new(bind.region.0).ok_or(Refusal::Key)?;
        Ok(Binding { region: key, qp: accessor.qp, access, io_address, len })
    }

    /// Invalidates a key. Peers can invalidate windows that were bound on their own queue pair, and regions
    /// with [`Access::INVALIDATE`].
    pub(crate) fn invalidate(
        &mut self,
        accessor: Accessor,
        key: RKey,
        by: Invalidator,
    ) -> Result<(), Refusal> {
        let window = match self.named_mut(key.0)? {
            Named::Region(region) => return region.invalidate(accessor),
            Named::Window(window) => window,
        };
        if window.domain != accessor.domain {
            return Err(Refusal::Owner);
        }
        if window.kind == WindowKind::One {
            return Err(Refusal::State);
        }
        let theirs = |binding: &mut Binding| by == Invalidator::Program || binding.qp == accessor.qp;
        match window.binding.take_if(theirs) {
            Some(binding) => self.release(Some(&binding)),
            None if window.binding.is_some() => return Err(Refusal::Owner),
            None if by == Invalidator::Peer => return Err(Refusal::State),
            None => {}
        }
        Ok(())
    }
}

impl Region {
    fn invalidate(&mut self, accessor: Accessor) -> Result<(), Refusal> {
        if self.domain != accessor.domain {
            return Err(Refusal::Owner);
        }
        if !self.access.contains(Access::INVALIDATE) || self.windows > 0 {
            return Err(Refusal::State);
        }
        self.validity = Validity::Invalidated;
        Ok(())
    }

    #[inline]
    fn reach(
        &self,
        domain: Handle<kind::Domain>,
        address: u64,
        len: u64,
        right: Access,
    ) -> Result<u64, Refusal> {
        if self.domain != domain {
            return Err(Refusal::Owner);
        }
        if self.validity == Validity::Invalidated {
            return Err(Refusal::State);
        }
        if !self.access.contains(right) {
            return Err(Refusal::Right);
        }
        let offset = address.wrapping_sub(self.io_address);
        if offset > self.len || len > self.len - offset {
            return Err(Refusal::Bounds);
        }
        Ok(self.address.wrapping_add(offset))
    }
}

impl Window {
    fn open_to(&self, accessor: Accessor, right: Access) -> Result<&Binding, Refusal> {
        let binding = self.binding.as_ref().ok_or(Refusal::State)?;
        if self.domain != accessor.domain || self.kind == WindowKind::Two && binding.qp != accessor.qp {
            return Err(Refusal::Owner);
        }
        if binding.access.contains(right) { Ok(binding) } else { Err(Refusal::Right) }
    }

    /// Checks the window's rules of binding (IBA o10-36.2.2, o10-37.2.30, C10-72, o10-37.2.40).
    fn may_be_bound(&self, accessor: Accessor, bind: Bind) -> Result<(), Refusal> {
        if self.domain != accessor.domain {
            return Err(Refusal::Owner);
        }
        let allowed = match self.kind {
            WindowKind::One => !bind.access.contains(Access::ZERO_BASED),
            WindowKind::Two => self.binding.is_none() && bind.len > 0,
        };
        if allowed { Ok(()) } else { Err(Refusal::State) }
    }
}

impl Binding {
    fn region(&self) -> LKey {
        LKey(self.region.get())
    }

    /// Checks that all bytes are within the window; returns the I/O address in the region.
    #[inline]
    fn region_address(&self, address: u64, len: u64) -> Result<u64, Refusal> {
        let base = if self.access.contains(Access::ZERO_BASED) { 0 } else { self.io_address };
        let offset = address.wrapping_sub(base);
        if offset > self.len || len > self.len - offset {
            return Err(Refusal::Bounds);
        }
        Ok(self.io_address.wrapping_add(offset))
    }
}

#[cfg(test)]
mod tests;
