//! Access to a server's registered memory, at its card and in its clients' copies of the memory table.

use std::collections::BTreeMap;

use nichrome_wire::rdma::RKey;
use nichrome_wire::star::{Reason, Registration, Span};

use super::setup::MAX_REGIONS;
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
    /// The server's name for the protection domain that the packet's tag covers; `None` without authentication.
    pub domain: Option<u32>,
}

impl Reach {
    /// The right to store.
    #[inline]
    pub const fn storing(key: KeyKind) -> Access {
        match key {
            KeyKind::Local => Access::LOCAL_WRITE,
            KeyKind::Remote => Access::REMOTE_WRITE,
        }
    }

    /// The right to fetch.
    #[inline]
    pub const fn fetching(key: KeyKind) -> Access {
        match key {
            KeyKind::Local => Access::NONE,
            KeyKind::Remote => Access::REMOTE_READ,
        }
    }
}

/// The kind of a packet's memory key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// An lkey of the server's program, from a WQE.
    Local,
    /// An rkey of the server.
    Remote,
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
        let Reach { span, len, right, domain } = *reach;
        self.stateless(span.key, domain, span.address, len.into(), right).map_err(|refusal| match refusal {
            Refusal::Key => Reason::Key,
            Refusal::Owner => Reason::Owner,
            Refusal::Right => Reason::Right,
            Refusal::Bounds => Reason::Bounds,
            Refusal::State => Reason::State,
        })
    }
}

/// A client's copy of its server's memory table: the regions of one protection domain by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryTable {
    regions: BTreeMap<u32, Registration>,
}

impl MemoryTable {
    /// Adds or replaces a region. A table of [`MAX_REGIONS`] regions ignores further keys.
    pub fn register(&mut self, region: Registration) {
        if self.regions.len() < MAX_REGIONS || self.regions.contains_key(&region.key.0) {
            self.regions.insert(region.key.0, region);
        }
    }

    /// Removes a region, if it is in the table.
    pub fn deregister(&mut self, key: RKey) {
        self.regions.remove(&key.0);
    }

    /// The number of regions.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether the table has no regions.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }
}

impl FromIterator<Registration> for MemoryTable {
    fn from_iter<I: IntoIterator<Item = Registration>>(regions: I) -> Self {
        let mut table = Self::default();
        regions.into_iter().for_each(|region| table.register(region));
        table
    }
}

/// Returns the server's addresses. The table is of one domain, so `domain` is not checked.
impl RegisteredMemory for MemoryTable {
    #[inline]
    fn resolve(&self, reach: &Reach) -> Result<u64, Reason> {
        let Reach { span, len, right, .. } = *reach;
        let region = self.regions.get(&span.key).ok_or(Reason::Key)?;
        if u16::from(region.rights) & right.bits() != right.bits() {
            return Err(Reason::Right);
        }
        let offset = span.address.wrapping_sub(region.address);
        if offset > region.len || u64::from(len) > region.len - offset {
            return Err(Reason::Bounds);
        }
        Ok(span.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::kind;
    use crate::core::protection::{Asker, Bind, LKey, Region, Validity, Window, WindowKind};
    use crate::core::slab::Slab;

    const BOTH: Access = Access::LOCAL_WRITE;

    fn reach(key: u32, address: u64, len: u16, right: Access) -> Reach {
        Reach { span: Span { address, key }, len, right, domain: None }
    }

    /// Rules that the server's memory and the client's table share.
    fn rules(memory: &impl RegisteredMemory, key: u32) {
        let writable = |address, len| memory.resolve(&reach(key, address, len, Access::LOCAL_WRITE));
        assert_eq!(memory.resolve(&reach(key ^ 1, 0x1000, 8, BOTH)), Err(Reason::Key));
        assert_eq!(memory.resolve(&reach(key, 0x1000, 8, Access::REMOTE_WRITE)), Err(Reason::Right));
        assert_eq!(memory.resolve(&reach(key, 0x1000, 8, Access::NONE)), Ok(0x1000));
        assert_eq!([writable(0x1000, 100), writable(0x1063, 1)], [Ok(0x1000), Ok(0x1063)]);
        assert_eq!(writable(0x1064, 0), Ok(0x1064));
        for (address, len) in [(0xFFF, 1), (0x1000, 101), (0x1064, 1), (u64::MAX, 2), (0, 0)] {
            assert_eq!(writable(address, len), Err(Reason::Bounds), "{address:#x} {len}");
        }
    }

    #[test]
    fn a_table_has_the_rules_of_the_memory_that_it_copies() {
        let mut domains: Slab<(), kind::Domain> = Slab::new(4);
        let domain = domains.insert(|_| ()).unwrap();
        let other = domains.insert(|_| ()).unwrap();
        let mut protection = Protection::new(4, 7);
        let (io_address, address) = (0x1000, 0x1000);
        let validity = Validity::Valid;
        let region = Region { domain, access: BOTH, io_address, address, len: 100, windows: 0, validity };
        let handle = protection.add_region(region).unwrap();
        let key = protection.key_of(handle).unwrap();
        rules(&protection, key);
        let of_domain = |name| Reach { domain: Some(name), ..reach(key, 0x1000, 8, BOTH) };
        assert_eq!(protection.resolve(&of_domain(domain.name())), Ok(0x1000));
        assert_eq!(protection.resolve(&of_domain(other.name())), Err(Reason::Owner));
        protection.remove_region(handle).unwrap();
        assert_eq!(protection.resolve(&reach(key, 0x1000, 8, BOTH)), Err(Reason::Key));

        let registration =
            Registration { key: RKey(key), address: 0x1000, len: 100, rights: BOTH.star_bits() };
        let mut table = MemoryTable::from_iter([registration]);
        rules(&table, key);
        table.deregister(RKey(key));
        assert_eq!(table.resolve(&reach(key, 0x1000, 8, BOTH)), Err(Reason::Key));
    }

    #[test]
    fn the_card_reaches_windows_that_serve_all_queue_pairs() {
        let mut domains: Slab<(), kind::Domain> = Slab::new(4);
        let mut qps: Slab<(), kind::Qp> = Slab::new(4);
        let asker = Asker { domain: domains.insert(|_| ()).unwrap(), qp: qps.insert(|_| ()).unwrap() };
        let other = domains.insert(|_| ()).unwrap();
        let mut protection = Protection::new(8, 7);
        let (domain, validity) = (asker.domain, Validity::Valid);
        let (io_address, address, len) = (0x1000, 0x5000, 100);
        let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
        let region = Region { domain, access, io_address, address, len, windows: 0, validity };
        let region = protection.add_region(region).unwrap();
        let region = LKey(protection.key_of(region).unwrap());
        let mut bound = |kind| {
            let window = protection.add_window(Window { domain, kind, binding: None }).unwrap();
            let window = RKey(protection.key_of(window).unwrap());
            let (address, len, access) = (0x1010, 10, Access::REMOTE_WRITE);
            protection.bind(asker, Bind { window, key_byte: 9, region, address, len, access }).unwrap().0
        };
        let [one, two] = [WindowKind::One, WindowKind::Two].map(&mut bound);
        let store = |key, address, right| protection.resolve(&reach(key, address, 8, right));
        assert_eq!(store(one, 0x1010, Access::REMOTE_WRITE), Ok(0x5010));
        assert_eq!(store(one, 0x1013, Access::REMOTE_WRITE), Err(Reason::Bounds));
        assert_eq!(store(one, 0x1010, Access::REMOTE_READ), Err(Reason::Right));
        assert_eq!(store(two, 0x1010, Access::REMOTE_WRITE), Err(Reason::Owner));
        let elsewhere = Reach { domain: Some(other.name()), ..reach(one, 0x1010, 8, Access::REMOTE_WRITE) };
        assert_eq!(protection.resolve(&elsewhere), Err(Reason::Owner));
    }
}
