//! The objects of one kind in each protection domain.

use std::collections::BTreeSet;

use super::kind;
use super::slab::Handle;

/// Pairs of a domain and the index of an object in it, so that a domain's members are found without a scan of
/// all objects.
#[derive(Debug, Default)]
pub(crate) struct Members(BTreeSet<(u32, u32)>);

impl Members {
    pub(crate) fn insert(&mut self, domain: Handle<kind::Domain>, object: u32) {
        self.0.insert((domain.index(), object));
    }

    pub(crate) fn remove(&mut self, domain: Handle<kind::Domain>, object: u32) {
        self.0.remove(&(domain.index(), object));
    }

    /// Returns the indices of a domain's objects, in order.
    pub(crate) fn of(&self, domain: Handle<kind::Domain>) -> impl Iterator<Item = u32> {
        let pairs = self.0.range((domain.index(), 0)..=(domain.index(), u32::MAX));
        pairs.map(|(_, object)| *object)
    }
}

#[cfg(test)]
mod tests {
    use super::super::slab::Slab;
    use super::*;

    #[test]
    fn each_domain_has_its_own_objects() {
        let mut domains: Slab<(), kind::Domain> = Slab::new(3);
        let [one, two, none] = [(); 3].map(|()| domains.insert(|_| ()).unwrap());
        let mut members = Members::default();
        [(one, 5), (two, 0), (one, 0), (two, u32::MAX), (one, 7)]
            .into_iter()
            .for_each(|(domain, object)| members.insert(domain, object));
        members.remove(one, 5);
        members.remove(none, 7);
        let of = |domain| members.of(domain).collect::<Vec<_>>();
        assert_eq!((of(one), of(two), of(none)), (vec![0, 7], vec![0, u32::MAX], vec![]));
    }
}
