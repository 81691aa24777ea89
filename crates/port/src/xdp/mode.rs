//! Native and generic XDP.

use std::fmt;

/// The mode in which the kernel runs an XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before the kernel allocates a socket buffer.
    Native,
    /// After the driver, for drivers without native support.
    Generic,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// The requested mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpChoice {
    /// Native if the driver supports it, else generic.
    #[default]
    Automatic,
    /// Only the given mode.
    Only(XdpMode),
}
