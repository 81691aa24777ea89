//! Generated traffic through every profile: every guarantee holds for any input.

use crate::generated::choose::Bytes;
use crate::generated::run;
use proptest::prelude::*;

/// 1,000, or as many as `PROPTEST_CASES` says.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1000)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    /// The outputs equal the inputs; no frame overtakes another, is held too long, or is left over; and the
    /// card sends no ACK that the host could not have sent.
    #[test]
    fn every_invariant_holds(profile in 0u32..3, choices in proptest::collection::vec(any::<u8>(), 0..3000)) {
        run(&mut Bytes(&choices), profile, u64::MAX).map_err(TestCaseError::fail)?;
    }
}
