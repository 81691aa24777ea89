//! Who may reach which memory of a server, as its card and its clients see it.

use std::collections::BTreeMap;

use nichrome_wire::rdma::RKey;
use nichrome_wire::star::{Reason, Registration, Span};

use super::setup::MAX_REGIONS;
use crate::core::access::Access;
use crate::core::protection::{Protection, Refusal};

/// What a packet for the stateless card wants with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The first byte and the key.
    pub span: Span,
    /// Bytes.
    pub len: u16,
    /// What the key must allow.
    pub right: Access,
    /// The protection domain that the packet has proved to be of, by the server's name for it.
    pub domain: Option<u32>,
}

impl Reach {
    /// The right that storing takes, by a key of the server's own program or by one that it gave to peers.
    #[inline]
    pub const fn storing(key: KeyKind) -> Access {
        match key {
            KeyKind::Local => Access::LOCAL_WRITE,
            KeyKind::Remote => Access::REMOTE_WRITE,
        }
    }

    /// The right that fetching takes.
    #[inline]
    pub const fn fetching(key: KeyKind) -> Access {
        match key {
            KeyKind::Local => Access::NONE,
            KeyKind::Remote => Access::REMOTE_READ,
        }
    }
}

/// Whose key a packet names memory by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// One of the server's own program, named by an element of its.
    Local,
    /// One that the server has given to peers.
    Remote,
}

/// The registered memory of a server: of the host, not of a connection.
pub trait RegisteredMemory {
    /// Where in the program's memory the bytes are.
    ///
    /// # Errors
    /// Why they may not be reached.
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

/// A client's copy of its server's memory table: the regions of one protection domain by their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryTable {
    regions: BTreeMap<u32, Registration>,
}

impl MemoryTable {
    /// Adds a region, or changes what is known of it. A table that holds [`MAX_REGIONS`] takes no other: its key stays
    /// unknown.
    pub fn register(&mut self, region: Registration) {
        if self.regions.len() < MAX_REGIONS || self.regions.contains_key(&region.key.0) {
            self.regions.insert(region.key.0, region);
        }
    }

    /// Removes a region; nothing where there is none.
    pub fn deregister(&mut self, key: RKey) {
        self.regions.remove(&key.0);
    }

    /// How many regions there are.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether there is none.
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

/// Addresses are those that the regions count; the domain was proved by what the client holds a table of.
impl RegisteredMemory for MemoryTable {
    #[inline]
    fn resolve(&self, reach: &Reach) -> Result<u64, Reason> {
        let Reach { span, len, right, .. } = *reach;
        let region = self.regions.get(&span.key).ok_or(Reason::Key)?;
        if region.rights & right.bits() != right.bits() {
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

    /// What the card's memory and a client's copy of it must say alike.
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

        let registration = Registration { key: RKey(key), address: 0x1000, len: 100, rights: BOTH.bits() };
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
