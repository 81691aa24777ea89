//! Access to a server's registered memory, at its card and in its clients' copies of the memory table.

use std::collections::BTreeMap;

use nichrome_wire::rdma::RKey;
use nichrome_wire::star::{Reason, Registration, Rights, Span};

use crate::core::access::Access;
use crate::core::protection::{Protection, Refusal};

/// The memory access of an RDP or GD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The first byte and the key.
    pub span: Span,
    /// Bytes.
    pub len: u16,
    /// The right that the key must grant.
    pub right: Access,
}

impl Reach {
    /// Creates the access of a packet that needs `right`, one of [`Rights::STORE`], [`Rights::FETCH`] and
    /// [`Rights::ATOMIC`], under its capability.
    ///
    /// # Errors
    /// The capability lacks the right, or does not cover the bytes.
    #[inline]
    pub fn new(span: Span, len: u16, right: Rights) -> Result<Self, Reason> {
        let capability = span.capability;
        if !capability.rights.contains(right) {
            return Err(Reason::Right);
        }
        if !capability.covers(span.address, len) {
            return Err(Reason::Bounds);
        }
        let right = match (capability.rights.contains(Rights::ELEMENT), right) {
            (true, Rights::STORE) => Access::LOCAL_WRITE,
            // No element is granted for atomic operations.
            (true, Rights::ATOMIC) => return Err(Reason::Right),
            (true, _) => Access::NONE,
            (false, Rights::STORE) => Access::REMOTE_WRITE,
            (false, Rights::ATOMIC) => Access::REMOTE_ATOMIC,
            (false, _) => Access::REMOTE_READ,
        };
        Ok(Self { span, len, right })
    }
}

/// Returns a client's rights on a region with the rights `region`, through a queue pair with the rights `qp`.
pub(crate) fn remote_rights(region: Access, qp: Access) -> Rights {
    let given = |access: Access, right| {
        if region.contains(access) && qp.contains(access) { right } else { Rights::NONE }
    };
    given(Access::REMOTE_WRITE, Rights::STORE)
        | given(Access::REMOTE_READ, Rights::FETCH)
        | given(Access::REMOTE_ATOMIC, Rights::ATOMIC)
}

/// The registered memory of a server.
pub trait RegisteredMemory {
    /// Checks an access and returns the address in the program's memory.
    ///
    /// # Errors
    /// The reason for refusing the access.
    fn resolve(&self, reach: &Reach) -> Result<u64, Reason>;
}

impl RegisteredMemory for Protection {
    #[inline]
    fn resolve(&self, reach: &Reach) -> Result<u64, Reason> {
        let Reach { span, len, right } = *reach;
        self.stateless(span.key, span.address, len.into(), right).map_err(|refusal| match refusal {
            Refusal::Key => Reason::Key,
            Refusal::Owner => Reason::Owner,
            Refusal::Right => Reason::Right,
            Refusal::Bounds => Reason::Bounds,
            Refusal::State => Reason::State,
        })
    }
}

/// Maximum number of regions in a client's copy of a memory table, as many as a device has by default. They
/// take up to 100 MB.
pub const MAX_TABLE_REGIONS: usize = 1 << 20;

/// A client's copy of its server's memory table: the regions of one protection domain by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryTable {
    regions: BTreeMap<u32, Registration>,
}

impl MemoryTable {
    /// Adds or replaces a region. Returns false if it was ignored: the table has [`MAX_TABLE_REGIONS`]
    /// others.
    pub fn register(&mut self, region: Registration) -> bool {
        let has_room = self.regions.len() < MAX_TABLE_REGIONS || self.regions.contains_key(&region.key.0);
        if has_room {
            self.regions.insert(region.key.0, region);
        }
        has_room
    }

    /// Removes a region, if it is in the table.
    pub fn deregister(&mut self, key: RKey) {
        self.regions.remove(&key.0);
    }

    /// Returns the region with this key.
    pub fn region(&self, key: u32) -> Option<&Registration> {
        self.regions.get(&key)
    }

    /// Returns the number of regions.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Returns true if the table has no regions.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }
}

impl FromIterator<Registration> for MemoryTable {
    fn from_iter<I: IntoIterator<Item = Registration>>(regions: I) -> Self {
        let mut table = Self::default();
        for region in regions {
            table.register(region);
        }
        table
    }
}

/// Resolves to the server's addresses.
impl RegisteredMemory for MemoryTable {
    #[inline]
    fn resolve(&self, reach: &Reach) -> Result<u64, Reason> {
        let region = self.regions.get(&reach.span.key).ok_or(Reason::Key)?;
        region_allows(region, reach).map(|()| reach.span.address)
    }
}

/// Checks that rights and bounds of a region allow an access.
///
/// # Errors
/// The reason for refusing it.
#[inline]
pub(super) fn region_allows(region: &Registration, reach: &Reach) -> Result<(), Reason> {
    let Reach { span, len, right } = *reach;
    if u16::from(region.rights) & right.bits() != right.bits() {
        return Err(Reason::Right);
    }
    let offset = span.address.wrapping_sub(region.address);
    if offset > region.len || u64::from(len) > region.len - offset {
        return Err(Reason::Bounds);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::kind;
    use crate::core::protection::{Accessor, Bind, LKey, Region, Validity, Window, WindowKind};
    use crate::core::slab::Slab;
    use nichrome_wire::rdma::QpNumber;
    use nichrome_wire::star::{Capability, GrantCode, Lease};

    const LOCAL: Access = Access::LOCAL_WRITE;

    fn span(key: u32, address: u64, rights: Rights) -> Span {
        let server = QpNumber::new(1).unwrap();
        let capability = Capability { base: 0x1000, len: 100, rights, server, lease: Lease(0) };
        Span { address, key, capability }
    }

    fn reach(key: u32, address: u64, len: u16, right: Access) -> Reach {
        Reach { span: span(key, address, Rights::NONE), len, right }
    }

    /// Rules that the server's memory and the client's table share.
    fn rules(memory: &impl RegisteredMemory, key: u32) {
        let writable = |address, len| memory.resolve(&reach(key, address, len, Access::LOCAL_WRITE));
        assert_eq!(memory.resolve(&reach(key ^ 1, 0x1000, 8, LOCAL)), Err(Reason::Key));
        assert_eq!(memory.resolve(&reach(key, 0x1000, 8, Access::REMOTE_WRITE)), Err(Reason::Right));
        assert_eq!(memory.resolve(&reach(key, 0x1000, 8, Access::NONE)), Ok(0x1000));
        assert_eq!([writable(0x1000, 100), writable(0x1063, 1)], [Ok(0x1000), Ok(0x1063)]);
        assert_eq!(writable(0x1064, 0), Ok(0x1064));
        for (address, len) in [(0xFFF, 1), (0x1000, 101), (0x1064, 1), (u64::MAX, 2), (0, 0)] {
            assert_eq!(writable(address, len), Err(Reason::Bounds), "{address:#x} {len}");
        }
    }

    #[test]
    fn a_capability_gives_its_rights_within_its_bytes() {
        let right = |rights, right| Reach::new(span(1, 0x1000, rights), 100, right).map(|reach| reach.right);
        let (store, fetch, element) = (Rights::STORE, Rights::FETCH, Rights::ELEMENT);
        assert_eq!(
            [right(store, store), right(fetch, store)],
            [Ok(Access::REMOTE_WRITE), Err(Reason::Right)]
        );
        assert_eq!([right(fetch, fetch), right(store, fetch)], [Ok(Access::REMOTE_READ), Err(Reason::Right)]);
        assert_eq!(right(store | element, store), Ok(Access::LOCAL_WRITE));
        assert_eq!(right(fetch | element, fetch), Ok(Access::NONE));
        assert_eq!([right(element, store), right(element, fetch)], [Err(Reason::Right); 2]);
        for (address, len) in [(0x1000, 101), (0xFFF, 1), (0x1064, 1)] {
            assert_eq!(Reach::new(span(1, address, store), len, store), Err(Reason::Bounds));
        }
    }

    #[test]
    fn peers_have_the_rights_that_region_and_queue_pair_give() {
        let all = Access::REMOTE_WRITE | Access::REMOTE_READ;
        assert_eq!(remote_rights(all, all), Rights::STORE | Rights::FETCH);
        assert_eq!([remote_rights(all, LOCAL), remote_rights(LOCAL, all)], [Rights::NONE; 2]);
        assert_eq!(remote_rights(Access::REMOTE_READ, all), Rights::FETCH);
    }

    #[test]
    fn a_table_has_the_rules_of_the_memory_that_it_copies() {
        let mut domains: Slab<(), kind::Domain> = Slab::new(4);
        let domain = domains.insert(|_| ()).unwrap();
        let mut protection = Protection::new(4, 7);
        let (io_address, address) = (0x1000, 0x1000);
        let validity = Validity::Valid;
        let region = Region { domain, access: LOCAL, io_address, address, len: 100, windows: 0, validity };
        let handle = protection.add_region(region).unwrap();
        let key = protection.key_of(handle).unwrap();
        rules(&protection, key);
        protection.remove_region(handle).unwrap();
        assert_eq!(protection.resolve(&reach(key, 0x1000, 8, LOCAL)), Err(Reason::Key));

        let (rights, code) = (LOCAL.star_bits(), GrantCode(0));
        let registration = Registration { key: RKey(key), address: 0x1000, len: 100, rights, code };
        let mut table = MemoryTable::from_iter([registration]);
        rules(&table, key);
        table.deregister(RKey(key));
        assert_eq!(table.resolve(&reach(key, 0x1000, 8, LOCAL)), Err(Reason::Key));
    }

    #[test]
    fn the_card_reaches_no_bound_window() {
        let mut domains: Slab<(), kind::Domain> = Slab::new(4);
        let mut qps: Slab<(), kind::Qp> = Slab::new(4);
        let accessor = Accessor { domain: domains.insert(|_| ()).unwrap(), qp: qps.insert(|_| ()).unwrap() };
        let mut protection = Protection::new(8, 7);
        let (domain, validity) = (accessor.domain, Validity::Valid);
        let (io_address, address, len) = (0x1000, 0x5000, 100);
        let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
        let region = Region { domain, access, io_address, address, len, windows: 0, validity };
        let region = protection.add_region(region).unwrap();
        let region = LKey(protection.key_of(region).unwrap());
        let mut bound = |kind| {
            let window = protection.add_window(Window { domain, kind, binding: None }).unwrap();
            let window = RKey(protection.key_of(window).unwrap());
            let (address, len, access) = (0x1010, 10, Access::REMOTE_WRITE);
            protection.bind(accessor, Bind { window, key_byte: 9, region, address, len, access }).unwrap().0
        };
        for key in [WindowKind::One, WindowKind::Two].map(&mut bound) {
            for right in [Access::REMOTE_WRITE, Access::LOCAL_WRITE, Access::NONE] {
                assert_eq!(protection.resolve(&reach(key, 0x1010, 8, right)), Err(Reason::Owner));
            }
        }
    }
}
