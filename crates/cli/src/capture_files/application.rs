//! The program names in the section headers of written captures. `nichrome segment` recognizes the captures
//! of `nichrome coalesce` by theirs.

/// The name that `nichrome coalesce` writes.
pub(crate) const COALESCE: &str = concat!("nichrome ", env!("CARGO_PKG_VERSION"), " coalesce");

/// The name that `nichrome segment` writes.
pub(crate) const SEGMENT: &str = concat!("nichrome ", env!("CARGO_PKG_VERSION"), " segment");

/// Returns true for [`COALESCE`] of any version.
pub(crate) fn is_coalesce(application: &str) -> bool {
    matches!(application.split(' ').collect::<Vec<_>>()[..], ["nichrome", _, "coalesce"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coalesce_is_recognized_in_any_version() {
        for name in [COALESCE, "nichrome 9.0.0-rc.1 coalesce"] {
            assert!(is_coalesce(name), "{name}");
        }
        for name in [SEGMENT, "", "nichrome 0.1.0", "nichrome coalesce", "a nichrome 0.1.0 coalesce"] {
            assert!(!is_coalesce(name), "{name}");
        }
    }
}
