//! The two ends of a path, which `nichrome-lab` names.

pub(crate) use nichrome_lab::Side;
