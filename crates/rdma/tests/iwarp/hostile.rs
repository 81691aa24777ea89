//! Random calls of a program and random segments of its peer; see `common/hostile_stream.rs`.

use proptest::prelude::*;

use crate::common::hostile_stream::run;

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn nothing_breaks_out(choices in proptest::collection::vec(any::<u16>(), 50..3000)) {
        let mut choices = choices.into_iter();
        run(&mut |bound| choices.next().map(|choice| u32::from(choice) % bound.max(1)));
    }
}
