//! Errors of commands, and the status of events.

use std::{fmt, io};

use nichrome_wire::cm::PrivateDataError;
use thiserror::Error;

/// Why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No such identifier, channel or membership.
    #[error("no such object")]
    NotFound,
    /// The identifier belongs to another channel.
    #[error("the identifier belongs to another channel")]
    WrongChannel,
    /// The identifier's state does not allow the command.
    #[error("the identifier's state does not allow the command")]
    State,
    /// An argument is out of range.
    #[error("an argument is out of range")]
    Argument,
    /// More private data than the message holds.
    #[error(transparent)]
    PrivateData(#[from] PrivateDataError),
    /// No adapter has the address.
    #[error("no adapter has the address")]
    NoDevice,
    /// The port is in use at this address.
    #[error("the port is in use at this address")]
    AddressInUse,
    /// The port is in use, and one of the two bindings is to all addresses; or no port is free.
    #[error("the port is in use, and one of the two bindings is to all addresses; or no port is free")]
    AddressNotAvailable,
    /// The process can open no socket for a port.
    #[error("no socket can be opened for a port: {0}")]
    NoSocket(Errno),
    /// As many objects or queued events as the configuration allows.
    #[error("a limit of the configuration is reached")]
    Exhausted,
    /// The adapter cannot do this.
    #[error("not supported by the adapter")]
    NotSupported,
}

impl CommandError {
    /// The error number with which the kernel's command fails.
    pub const fn errno(self) -> Errno {
        match self {
            Self::NotFound => Errno::ENOENT,
            Self::WrongChannel | Self::State | Self::Argument | Self::PrivateData(_) => Errno::EINVAL,
            Self::NoDevice => Errno::ENODEV,
            Self::AddressInUse => Errno::EADDRINUSE,
            Self::AddressNotAvailable => Errno::EADDRNOTAVAIL,
            Self::NoSocket(error) => error,
            Self::Exhausted => Errno::ENOMEM,
            Self::NotSupported => Errno::ENOSYS,
        }
    }
}

/// An error number of Linux, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

#[allow(missing_docs)] // The names of errno.h.
impl Errno {
    pub const ENOENT: Self = Self(2);
    pub const EAGAIN: Self = Self(11);
    pub const ENOMEM: Self = Self(12);
    pub const EFAULT: Self = Self(14);
    pub const ENODEV: Self = Self(19);
    pub const EINVAL: Self = Self(22);
    pub const EMFILE: Self = Self(24);
    pub const ENOSPC: Self = Self(28);
    pub const ENOSYS: Self = Self(38);
    pub const EPROTO: Self = Self(71);
    pub const EADDRINUSE: Self = Self(98);
    pub const EADDRNOTAVAIL: Self = Self(99);
    pub const ECONNABORTED: Self = Self(103);
    pub const ECONNRESET: Self = Self(104);
    pub const ETIMEDOUT: Self = Self(110);
    pub const ECONNREFUSED: Self = Self(111);
    pub const EHOSTUNREACH: Self = Self(113);

    /// The status of an event: the negative number.
    pub const fn status(self) -> i32 {
        -self.0
    }
}
