//! Random programs on a network with faults: both ends agree, no event is lost or doubled, and nothing leaks.

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn both_ends_agree_in_the_end(input in proptest::collection::vec(any::<u32>(), 0..400)) {
        let mut input = input.into_iter();
        crate::common::generated::run(&mut |bound| input.next().map(|number| number % bound.max(1)));
    }
}
