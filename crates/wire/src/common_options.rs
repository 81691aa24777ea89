//! Classifies TCP options for coalescing with one comparison in the common case.

use crate::bytes::{array, be32};
use crate::tcp_options::{TcpOption, TcpOptions};

/// A segment's options, as far as a coalescing engine needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommonOptions {
    /// No options.
    None,
    /// Timestamps and padding, in any layout.
    Timestamps {
        /// TSval: the sender's clock.
        value: u32,
        /// TSecr: the receiver's clock, echoed.
        echo: u32,
    },
    /// Anything else, including padding alone and malformed options.
    Other,
}

impl CommonOptions {
    /// Classifies `options`, the header behind its first 20 bytes.
    #[inline(always)]
    pub fn classify(options: &[u8]) -> Self {
        /// Two no-operations, then timestamps of 10 bytes: the layout of RFC 7323 appendix A.
        const ALIGNED_TIMESTAMPS: [u8; 4] = [1, 1, 8, 10];
        if options.is_empty() {
            return Self::None;
        }
        match options.as_array::<12>() {
            Some(aligned) if array(aligned, 0) == ALIGNED_TIMESTAMPS => {
                Self::Timestamps { value: be32(aligned, 4), echo: be32(aligned, 8) }
            }
            _ => Self::classify_any(options),
        }
    }

    #[cold]
    fn classify_any(options: &[u8]) -> Self {
        let mut found = Self::Other;
        let mut list = TcpOptions::new(options);
        for option in &mut list {
            match option {
                Ok(TcpOption::NoOperation | TcpOption::EndOfList) => {}
                Ok(TcpOption::Timestamps { value, echo }) if found == Self::Other => {
                    found = Self::Timestamps { value, echo };
                }
                _ => return Self::Other,
            }
        }
        // Bytes behind the end of the list must be zero (RFC 9293 section 3.1, MUST-69).
        if list.rest().iter().all(|&byte| byte == 0) { found } else { Self::Other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp_options::tests::plausible_options;
    use proptest::prelude::*;

    #[test]
    fn timestamps_are_common_in_any_layout() {
        let want = CommonOptions::Timestamps { value: 1, echo: 2 };
        let timestamps = [8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        let layouts: [(&[u8], &[u8]); 5] =
            [(&[1, 1], &[]), (&[], &[1, 1]), (&[1], &[1]), (&[], &[0, 0]), (&[], &[])];
        for (before, after) in layouts {
            assert_eq!(CommonOptions::classify(&[before, &timestamps, after].concat()), want);
        }
    }

    #[test]
    fn anything_but_timestamps_is_other() {
        assert_eq!(CommonOptions::classify(&[]), CommonOptions::None);
        let timestamps: &[u8] = &[8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        let cases: [Vec<u8>; 8] = [
            vec![1, 1, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0],
            vec![1, 1, 1, 0],
            vec![2, 4, 5, 0xB4],
            [timestamps, timestamps].concat(),
            [timestamps, &[4, 2]].concat(),
            [timestamps, &[8, 11]].concat(),
            [&[0, 0], timestamps].concat(),
            [timestamps, &[0, 1]].concat(),
        ];
        for options in cases {
            assert_eq!(CommonOptions::classify(&options), CommonOptions::Other, "{options:?}");
        }
    }

    proptest! {
        #[test]
        fn classification_agrees_with_the_list(options in plausible_options()) {
            let list: Vec<_> = TcpOptions::new(&options).collect();
            let padding = |option: &_| matches!(option, Ok(TcpOption::NoOperation | TcpOption::EndOfList));
            let substance: Vec<_> = list.iter().filter(|option| !padding(option)).collect();
            match (CommonOptions::classify(&options), &substance[..]) {
                (CommonOptions::None, []) => prop_assert!(options.is_empty()),
                (CommonOptions::Timestamps { value, echo }, [only]) => {
                    prop_assert_eq!(**only, Ok(TcpOption::Timestamps { value, echo }));
                }
                (CommonOptions::Other, [Ok(TcpOption::Timestamps { .. })]) => {
                    let end = list.iter().position(|option| *option == Ok(TcpOption::EndOfList));
                    prop_assert!(end.is_some());
                }
                (CommonOptions::Other, _) => prop_assert!(!options.is_empty()),
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
