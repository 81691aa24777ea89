//! For any impairments and any driver, each packet is released once, or dropped with a reason.

use crate::generated::Choose;
use proptest::prelude::*;

/// Choices that proptest has made in advance.
struct Choices(std::vec::IntoIter<u32>);

impl Choose for Choices {
    fn below(&mut self, bound: u32) -> u32 {
        self.0.next().unwrap_or_default() % bound.max(1)
    }

    fn is_exhausted(&self) -> bool {
        self.0.len() == 0
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_invariant_holds(choices in proptest::collection::vec(any::<u32>(), 20..1500)) {
        let result = crate::generated::run(&mut Choices(choices.into_iter()));
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }
}
