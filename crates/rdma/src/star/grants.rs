//! A cache of the keys and codes of recent grants, which the card would otherwise derive from its secret for
//! each packet.
//!
//! A direct-mapped cache of [`ENTRIES`] grants, whatever the number of connections. The card can derive an
//! entry from the secret and the packet again, so it may lose one at any time. Only packets with a valid tag
//! create entries, so that forged packets evict none.

use nichrome_wire::star::{GrantCode, Lease, Rights};

use super::tag::{ConnectionKey, Ends, ServerSecret};

/// Grants in the cache, a power of two.
const ENTRIES: usize = 256;

/// The grant that a packet names: its connection, lease, region and rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) ends: Ends,
    pub(super) lease: Lease,
    pub(super) key: u32,
    /// Address of the first byte, and length in bytes.
    pub(super) range: (u64, u64),
    pub(super) rights: Rights,
}

/// The inputs to the tags of packets under a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TagInput {
    pub(super) key: ConnectionKey,
    pub(super) code: GrantCode,
}

impl Grant {
    fn derive(&self, secret: &ServerSecret) -> TagInput {
        let key = secret.lease_key(&self.ends, self.lease);
        TagInput { key, code: secret.grant_code(&self.ends, self.key, self.range, self.rights) }
    }

    /// Returns the index of the grant's entry. Connections of a server have consecutive numbers, and the
    /// regions of one connection have random keys, so the entries spread.
    #[inline]
    fn entry_index(&self) -> usize {
        (self.ends.server.value() ^ self.key >> 8) as usize % ENTRIES
    }
}

/// The cache.
#[derive(Clone, Debug)]
pub(super) struct GrantCache {
    entries: Box<[Option<(Grant, TagInput)>]>,
}

impl GrantCache {
    /// Bytes of its memory.
    pub(super) const BYTES: usize = ENTRIES * size_of::<Option<(Grant, TagInput)>>();

    pub(super) fn new() -> Self {
        Self { entries: vec![None; ENTRIES].into() }
    }

    /// Returns the key and code of a grant, from the cache or derived from the secret.
    #[inline]
    pub(super) fn tag_input(&self, grant: &Grant, secret: &ServerSecret) -> TagInput {
        match &self.entries[grant.entry_index()] {
            Some((known, input)) if known == grant => *input,
            _ => grant.derive(secret),
        }
    }

    /// Keeps the key and code of a grant that a packet with a valid tag has named.
    #[inline]
    pub(super) fn keep(&mut self, grant: &Grant, input: TagInput) {
        let entry = &mut self.entries[grant.entry_index()];
        if entry.as_ref().is_none_or(|(known, _)| known != grant) {
            *entry = Some((*grant, input));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use nichrome_wire::rdma::QpNumber;

    use super::*;

    const SECRET: ServerSecret = ServerSecret::new([7; 16]);

    /// A grant of the connection `client`; all of them have the same entry_index.
    fn grant(client: u32) -> Grant {
        let [client, server] = [client, 3].map(|number| QpNumber::new(number).unwrap());
        let ends = Ends { address: Ipv4Addr::LOCALHOST.into(), client, server };
        Grant { ends, lease: Lease(60), key: 0x100, range: (0x1000, 100), rights: Rights::STORE }
    }

    #[test]
    fn a_cached_grant_has_what_the_secret_gives_and_each_field_counts() {
        let mut cache = GrantCache::new();
        let cached = grant(1);
        cache.keep(&cached, cached.derive(&SECRET));
        let others = [
            grant(2),
            Grant { lease: Lease(61), ..cached },
            Grant { key: 0x101, ..cached },
            Grant { range: (0x1001, 100), ..cached },
            Grant { range: (0x1000, 101), ..cached },
            Grant { rights: Rights::FETCH, ..cached },
        ];
        for other in others {
            assert_eq!(other.entry_index(), cached.entry_index());
            assert_eq!(cache.tag_input(&other, &SECRET), other.derive(&SECRET), "{other:?}");
        }
        assert_eq!(cache.tag_input(&cached, &SECRET), cached.derive(&SECRET));
        // Another secret changes nothing: the cached grant is not derived again.
        assert_eq!(cache.tag_input(&cached, &ServerSecret::new([8; 16])), cached.derive(&SECRET));
    }

    #[test]
    fn the_last_grant_of_a_place_is_kept() {
        let mut cache = GrantCache::new();
        [grant(1), grant(2)].iter().for_each(|grant| cache.keep(grant, grant.derive(&SECRET)));
        let other = ServerSecret::new([8; 16]);
        assert_eq!(cache.tag_input(&grant(2), &other), grant(2).derive(&SECRET));
        assert_eq!(cache.tag_input(&grant(1), &other), grant(1).derive(&other));
    }
}
