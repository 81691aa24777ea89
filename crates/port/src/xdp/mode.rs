//! Where the kernel runs an XDP program.

use std::fmt;

/// Where the kernel runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before the kernel has made a packet of the frame.
    Native,
    /// After the driver: works with all of them.
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

/// Which mode is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpChoice {
    /// Native where the driver can, otherwise generic.
    #[default]
    Automatic,
    /// This one.
    Only(XdpMode),
}
